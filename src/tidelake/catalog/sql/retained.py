"""Keep the snapshots of the SQL catalog that somebody wants, and let the others go.

A snapshot is retained while it is pinned, or not older than the oldest one that is wanted: by age, by count, or by a
lease. So below the oldest there are holes, and ``gaps`` tells for each snapshot before a hole when it had ended. An
extent or hot batch stays while a retained snapshot sees it, wherever that is in the chain.

A pin or a lease is written by a transaction that sees its snapshot, and expiry sees all of them in its own. SQLite has
one writer; on PostgreSQL the two exclude each other by an advisory lock of the scope, which no commit waits for. Expiry
goes in steps of so many snapshots, so that a writer waits for one step only, and each step leaves a sound catalog. It
does not delete objects.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from weakref import WeakSet

import orjson

from tidelake.catalog.names import check_owner, check_pin_name
from tidelake.catalog.protocol import (
    Clock,
    Expired,
    Pin,
    Readers,
    Retained,
    let_unused_go,
)
from tidelake.catalog.sql import reading
from tidelake.catalog.sql import retained_statements as s
from tidelake.catalog.sql import sweep_statements as sweeping
from tidelake.catalog.sql.checksums import check_row, checksum_of
from tidelake.catalog.sql.driver import Database, Row, Transaction, Violation
from tidelake.catalog.sql.layout import SCOPED
from tidelake.catalog.sql.reading import SqlReader
from tidelake.catalog.sql.setup import add_later, has_later
from tidelake.catalog.sql.shrinking import shrink
from tidelake.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from tidelake.model.snapshot import Scope

STEP = 5000  # snapshots that one transaction lets go of: some 50 ms
_GUARDS = 0x7469_6465 << 31  # where the advisory locks of scopes begin


class SqlRetainer(SqlReader):
    """The part of the SQL catalog that knows which snapshots stay."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database)
        self._clock = clock
        self.readers: WeakSet[Readers] = WeakSet()
        self._is_later = False  # the catalog is known to have the tables for it
        self._is_scoped = False  # and those for scopes of users and numbered segments

    def pin(self, scope: Scope, name: str, sequence: int) -> Pin:
        """Keep a snapshot by a name until it is unpinned; AlreadyExistsError if another one has the name."""
        check_pin_name(name)
        self._ensure_later()
        pinned = Pin(name, sequence, self._clock())
        try:
            with self._database.writing() as transaction:
                scope_id = self._taken(transaction, scope, sequence)
                held = transaction.rows(s.pin_of, {"scope_id": scope_id, "name": name})
                if not held:
                    transaction.change(s.insert_pin, _pin_row(scope_id, pinned))
                    return pinned
                found = _pin_of(scope_id, held[0])
        except Violation:  # somebody took the name just now
            found = next(each for each in self.pins(scope) if each.name == name)
        if found.sequence == sequence:
            return found
        raise AlreadyExistsError("a pin of this name keeps another snapshot", pin=name, keeps=found.sequence)

    def unpin(self, scope: Scope, name: str) -> None:
        """Let a pinned snapshot go with the next expiry; NotFoundError if no pin has the name."""
        if self._knows_later():
            with self._database.writing() as transaction:
                scope_id = self._place(transaction, scope).scope_id
                if transaction.change(s.delete_pin, {"scope_id": scope_id, "name": name}):
                    return
        raise NotFoundError("no such pin", pin=name, scope=scope, kind="no_pin")

    def pins(self, scope: Scope) -> list[Pin]:
        """List the pins of a scope, the oldest snapshot's first."""
        with self._database.reading() as transaction:
            scope_id = self._place(transaction, scope).scope_id
            if scope_id is None or not has_later(self._database, transaction.rows):
                return []
            return [_pin_of(scope_id, row) for row in transaction.rows(s.list_pins, {"scope_id": scope_id})]

    def lease(self, scope: Scope, *, owner: str, sequence: int, lease_us: int) -> None:
        """Keep a snapshot and all after it for a time, or for more time; a power failure may undo it."""
        check_owner(owner)
        if sequence == 0:
            return  # of a user without commits
        self._ensure_later()
        now = self._clock()
        row = {"owner": owner, "sequence": sequence, "until_us": now + lease_us}
        with self._database.writing(durable=False) as transaction:
            try:
                scope_id = self._taken(transaction, scope, sequence)
            except NotFoundError as error:
                # A dropped table can still be read by who holds it.
                if error.kind == "no_table" and transaction.change(
                    s.prolong_lease, {**row, **_named(scope), "now_us": now}
                ):
                    return
                raise
            transaction.change(s.put_lease, {"scope_id": scope_id, **row})

    def release_leases(self, owner: str, scopes: Collection[Scope]) -> None:
        """Give an owner's leases back; those that it does not have are passed over."""
        if scopes and self._knows_later():
            with self._database.writing(durable=False) as transaction:
                transaction.change_many(s.drop_lease, [{"owner": owner, **_named(scope)} for scope in scopes])

    def expire_snapshots(self, scope: Scope, *, before_us: int, keep_last: int = 1) -> Expired:
        """Let go of the snapshots that ended before a time, and of what only they could reach."""
        if keep_last < 1:
            raise InvalidInputError("at least the newest snapshot is kept", keep_last=keep_last)
        let_unused_go(self.readers)
        self._ensure_later()
        snapshots, keys, is_more = 0, dict[str, None](), True
        while is_more:
            with self._database.writing() as transaction:
                step, is_more = self._expire(transaction, scope, before_us, keep_last)
            snapshots += step.snapshots
            keys |= dict.fromkeys(step.keys)
        return Expired(snapshots, tuple(keys))

    def retained(self, scope: Scope, *, before_us: int) -> Retained:
        """Count the snapshots of a scope, and those that an expiry would let go of, but for leases."""
        with self._database.reading() as transaction:
            scope_id = self._place(transaction, scope).scope_id
            if scope_id is None:
                return Retained(0, None, 0)
            values: dict[str, Any] = {"scope_id": scope_id, "before_us": before_us}
            ((count, oldest_us, head),) = transaction.rows(s.span, values)
            in_force = transaction.rows(s.in_force_at, values)[0][0]
            if in_force is None or not has_later(self._database, transaction.rows):
                return Retained(count, oldest_us, 0 if in_force is None else max(min(in_force, head) - 1, 0))
            ((due,),) = transaction.rows(s.expirable, {**values, "oldest": min(in_force, head)})
            return Retained(count, oldest_us, due)

    def shrink(self) -> int:
        """Give the space that nothing uses any more back to the disk, and say how many bytes that was."""
        return shrink(self._database) if self._database.is_sqlite else 0

    def _expire(self, transaction: Transaction, scope: Scope, before_us: int, keep_last: int) -> tuple[Expired, bool]:
        """Take one step; say whether there is another."""
        self._guard(transaction, scope, s.take_guard)
        held = transaction.rows(s.locked_scope, _named(scope))
        if not held:
            return Expired(0, ()), False
        scope_id, head = held[0]
        values: dict[str, Any] = {"scope_id": scope_id, "before_us": before_us, "step": STEP}
        transaction.change(s.drop_old_leases, {"scope_id": scope_id, "now_us": self._clock()})
        wanted = [transaction.rows(each, values)[0][0] for each in (s.in_force_at, s.lowest_lease)]
        if wanted[0] is None:
            return Expired(0, ()), False
        oldest = min(head - keep_last + 1, *(each for each in wanted if each is not None))
        further = transaction.rows(s.after_a_step, {**values, "oldest": oldest})
        values["bound"] = further[0][0] if further else oldest
        gaps = [_gap_row(scope_id, *row) for row in transaction.rows(s.new_gaps, values)]
        transaction.change_many(s.insert_gap, gaps)
        gone = transaction.rows(s.drop_snapshots, values)
        transaction.change(s.drop_gaps, values)
        extents = transaction.rows(s.drop_extents, values)
        if extents:
            ordinals = orjson.dumps([row[0] for row in extents]).decode()
            transaction.change(s.drop_columns, {"scope_id": scope_id, "ordinals": ordinals})
        transaction.change(s.drop_hot, values)
        found = [key for row in (*gone, *(row[1:] for row in extents)) for key in row if key is not None]
        keys = self._unnamed(transaction, scope_id, found)
        self._discard(transaction, [(key, scope.table_id) for key in keys], "expired")
        return Expired(len(gone), tuple(keys)), bool(further)

    def _unnamed(self, transaction: Transaction, scope_id: int, keys: Sequence[str]) -> list[str]:
        """Return those objects that nothing in a scope names any more, each once."""
        if not keys:
            return []
        listed = {"scope_id": scope_id, "keys": orjson.dumps(keys).decode()}
        named = {row[0] for row in transaction.rows(s.still_named, listed)}
        return [key for key in dict.fromkeys(keys) if key not in named]

    def _discard(self, transaction: Transaction, taken: Sequence[Row], reason: str) -> list[str]:
        """Put objects on the garbage list."""
        now = self._clock()
        rows = [{"key": key, "table_id": table_id, "since_us": now, "reason": reason} for key, table_id in taken]
        transaction.change_many(sweeping.insert_garbage, rows)
        return [key for key, _ in taken]

    def _taken(self, transaction: Transaction, scope: Scope, sequence: int) -> int:
        """Make sure of a retained snapshot until the transaction ends, and return its scope's number."""
        self._guard(transaction, scope, s.share_guard)
        scope_id = self._place(transaction, scope, sequence).scope_id
        if scope_id is None:
            raise NotFoundError("no such snapshot", scope=scope, sequence=sequence)
        return scope_id

    def _guard(self, transaction: Transaction, scope: Scope, statement: str) -> None:
        if not self._database.is_sqlite:
            for (scope_id,) in transaction.rows(reading.scope_id, _named(scope)):
                transaction.rows(statement, {"guard": _GUARDS + scope_id})

    def _ensure_scoped(self) -> None:
        if not self._is_scoped:
            if not has_later(self._database, self._database.query, SCOPED):
                add_later(self._database, SCOPED)
            self._is_scoped = True

    def _ensure_later(self) -> None:
        if not self._knows_later():
            add_later(self._database)
            self._is_later = True

    def _knows_later(self) -> bool:
        self._is_later = self._is_later or has_later(self._database, self._database.query)
        return self._is_later


def _named(scope: Scope) -> dict[str, str]:
    return {"table_id": scope.table_id, "user_id": scope.user}


def _pin_row(scope_id: int, pin: Pin) -> dict[str, Any]:
    row = {"scope_id": scope_id, "name": pin.name, "sequence": pin.sequence, "created_us": pin.created_us}
    return {**row, "checksum": checksum_of("a pin", *row.values())}


def _pin_of(scope_id: int, row: Row) -> Pin:
    check_row(row[3], "a pin", scope_id, *row[:3])
    return Pin(*row[:3])


def _gap_row(scope_id: int, sequence: int, ended_us: int) -> dict[str, Any]:
    row = {"scope_id": scope_id, "sequence": sequence, "ended_us": ended_us}
    return {**row, "checksum": checksum_of("a gap", *row.values())}
