"""Hand out background work from the SQL catalog, each unit to one owner at a time.

A claim leases a unit and raises its token; the token goes into the commit as its fence. So a worker that lost its lease
may still run, but cannot commit: clocks that differ cost double work, never a wrong table.

::

    queued ──claim──▶ leased ──complete──▶ done
      ▲                 │ fail, or the lease runs out
      └── attempts left ┴── none left ──▶ dead ──revive──▶ queued

It does not know what the work is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Unpack

import orjson

from tidelake.catalog.protocol import Clock
from tidelake.catalog.sql import work_statements as s
from tidelake.catalog.sql.driver import Database, Row, Transaction, Violation
from tidelake.catalog.work_queue import UnitOptions, UnitState, WorkUnit, lease_of, lost_lease, queued_unit
from tidelake.errors import ConflictError, NotFoundError, UnavailableError
from tidelake.model.codec import dumps
from tidelake.model.snapshot import Fence

ENQUEUE_TRIES = 100  # each lost to another that put the same unit there and took it away again


class SqlWorkQueue:
    """Work units as rows."""

    def __init__(self, database: Database, clock: Clock, new_id: Callable[[], str]) -> None:
        self._database = database
        self._clock = clock
        self._new_id = new_id

    def enqueue(self, kind: str, key: str, payload: Mapping[str, Any], **options: Unpack[UnitOptions]) -> WorkUnit:
        """Add a unit, or give the open one of the same kind and key."""
        unit = queued_unit(self._new_id(), kind, key, payload, now_us=self._clock(), **options)
        for _ in range(ENQUEUE_TRIES):
            try:
                with self._database.writing() as transaction:
                    open_ones = transaction.rows(s.open_by_key, {"kind": kind, "key": key})
                    if open_ones:
                        return _unit_of(open_ones[0])
                    transaction.change(s.insert_unit, _row_of(unit))
                    return unit
            except Violation:
                continue  # another put it there in between: give that one
        raise UnavailableError("a unit of work comes and goes", work=kind, key=key, tries=ENQUEUE_TRIES)

    def claim(self, kinds: Collection[str], *, owner: str, lease_us: int) -> WorkUnit | None:
        """Lease the most urgent ready unit; one whose lease ran out is ready again, and dead after its last attempt."""
        while True:
            now = self._clock()
            with self._database.writing() as transaction:
                rows = transaction.rows(s.ready, {"kinds": orjson.dumps(list(kinds)).decode(), "now": now})
                if not rows:
                    return None
                unit = _unit_of(rows[0])
                if unit.state == "leased" and unit.attempts >= unit.max_attempts:
                    self._move(transaction, unit, state="dead", error=unit.error or "the lease ran out")
                    continue
                return self._move(transaction, unit, **lease_of(unit, owner, now + lease_us))

    def heartbeat(self, unit: WorkUnit, *, lease_us: int) -> WorkUnit:
        """Prolong a lease; ConflictError (``fenced``) if it is no longer this owner's."""
        with self._database.writing() as transaction:
            return self._move(transaction, unit, state="leased", lease_until_us=self._clock() + lease_us)

    def complete(self, unit: WorkUnit) -> None:
        """Close a unit; ConflictError (``fenced``) if it is no longer this owner's."""
        with self._database.writing() as transaction:
            self._move(transaction, unit, state="done", lease_until_us=None)

    def fail(self, unit: WorkUnit, error: str, *, delay_us: int) -> WorkUnit:
        """Give a unit back for another attempt after a delay, or to the dead letters after its last."""
        state: UnitState = "queued" if unit.attempts < unit.max_attempts else "dead"
        with self._database.writing() as transaction:
            return self._move(
                transaction,
                unit,
                state=state,
                owner=None,
                lease_until_us=None,
                ready_us=self._clock() + delay_us,
                error=error.replace("\x00", ""),
            )

    def revive(self, unit_id: str) -> WorkUnit:
        """Queue a dead unit again with fresh attempts."""
        try:
            with self._database.writing() as transaction:
                rows = transaction.rows(s.by_id, {"id": unit_id})
                if not rows or rows[0][4] != "dead":
                    raise NotFoundError("no such dead work unit", unit=unit_id)
                unit = _unit_of(rows[0])
                return self._move(
                    transaction,
                    unit,
                    state="queued",
                    attempts=0,
                    owner=None,
                    ready_us=self._clock(),
                    lease_until_us=None,
                )
        except Violation as error:
            raise ConflictError("a unit of the same key is open", unit=unit_id, kind="open_unit") from error

    def units(self, *, state: UnitState | None = None, kind: str | None = None, limit: int = 100) -> list[WorkUnit]:
        """List units, newest first."""
        rows = self._database.query(s.listed, {"state": state, "kind": kind, "limit": limit})
        return [_unit_of(row) for row in rows]

    def forget(self, *, before_us: int) -> int:
        """Delete units that were done before a time, and say how many."""
        with self._database.writing() as transaction:
            return transaction.change(s.forget, {"before_us": before_us})

    def _move(self, transaction: Transaction, unit: WorkUnit, **changes: Any) -> WorkUnit:
        """Change a unit that is still as it is held."""
        moved = replace(unit, updated_us=self._clock(), **changes)
        values = {f"new_{name}": getattr(moved, name) for name in s.MOVED}
        if not transaction.change(s.move, {"unit": unit.id, "held": unit.token, "was": unit.state, **values}):
            raise lost_lease(unit.id, unit.token)
        return moved


def check_fence(transaction: Transaction, fence: Fence, commit_id: str) -> None:
    """Refuse a commit whose worker has lost its lease, and keep others from taking it over until the commit is in."""
    if not transaction.rows(s.fenced, {"unit": fence.unit_id, "held": fence.token}):
        raise lost_lease(fence.unit_id, fence.token, commit=commit_id)


def _unit_of(row: Row) -> WorkUnit:
    fields = dict(zip(s.COLUMNS, row, strict=True))
    return WorkUnit(**{**fields, "payload": orjson.loads(fields["payload"])})


def _row_of(unit: WorkUnit) -> dict[str, Any]:
    row = {name: getattr(unit, name) for name in s.COLUMNS}
    return {**row, "payload": dumps(unit.payload).decode()}
