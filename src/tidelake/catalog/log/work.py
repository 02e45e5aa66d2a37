"""Hand out background work from a transaction log, each unit to one owner at a time.

Every change of a unit is an entry of the log, so claims, fences and commits have one order: a worker whose unit was
claimed by another cannot commit, whatever its clock says. An entry for each step is dear, and meant for the few units
of one table; many workers want SQLite or PostgreSQL. The states are those of the SQL catalog's units. It does not know
what the work is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, TypeVar, Unpack

from tidelake.catalog.log.entries import Upkeep, unit_to_json
from tidelake.catalog.log.state import LogState
from tidelake.catalog.protocol import Clock
from tidelake.catalog.work_queue import UnitOptions, UnitState, WorkUnit, lease_of, lost_lease, queued_unit
from tidelake.errors import ConflictError, NotFoundError
from tidelake.model.snapshot import Commit

Answer = TypeVar("Answer")
Proposal: TypeAlias = Callable[[LogState], tuple[Upkeep | None, Answer]]


class Amend(Protocol):
    """Append what a proposal makes of the newest state, if anything, and give its answer."""

    def __call__(self, propose: Proposal[Answer]) -> Answer: ...


class LogWorkQueue:
    """Work units as entries of a log."""

    def __init__(self, amend: Amend, state: Callable[[], LogState], clock: Clock, new_id: Callable[[], str]) -> None:
        self._amend = amend
        self._state = state
        self._clock = clock
        self._new_id = new_id

    def enqueue(self, kind: str, key: str, payload: Mapping[str, Any], **options: Unpack[UnitOptions]) -> WorkUnit:
        """Add a unit, or give the open one of the same kind and key."""
        unit = queued_unit(self._new_id(), kind, key, payload, now_us=self._clock(), **options)

        def propose(state: LogState) -> tuple[Upkeep | None, WorkUnit]:
            held = _open_unit(state, kind, key)
            return (_changed(unit), unit) if held is None else (None, held)

        return self._amend(propose)

    def claim(self, kinds: Collection[str], *, owner: str, lease_us: int) -> WorkUnit | None:
        """Lease the most urgent ready unit; one whose lease ran out is ready again, and dead after its last attempt."""

        def propose(state: LogState) -> tuple[Upkeep | None, WorkUnit | None]:
            now = self._clock()
            dead: list[WorkUnit] = []
            for unit in _ready(state, kinds, now):
                if unit.state == "queued" or unit.attempts < unit.max_attempts:
                    leased = replace(unit, **lease_of(unit, owner, now + lease_us), updated_us=now)
                    return _changed(*dead, leased), leased
                dead.append(replace(unit, state="dead", error=unit.error or "the lease ran out", updated_us=now))
            return (_changed(*dead) if dead else None), None

        return self._amend(propose)

    def heartbeat(self, unit: WorkUnit, *, lease_us: int) -> WorkUnit:
        """Prolong a lease; ConflictError (``fenced``) if it is no longer this owner's."""
        return self._move(unit, lambda now: {"state": "leased", "lease_until_us": now + lease_us})

    def complete(self, unit: WorkUnit) -> None:
        """Close a unit; ConflictError (``fenced``) if it is no longer this owner's."""
        self._move(unit, lambda now: {"state": "done", "lease_until_us": None})

    def fail(self, unit: WorkUnit, error: str, *, delay_us: int) -> WorkUnit:
        """Give a unit back for another attempt after a delay, or to the dead letters after its last."""
        state: UnitState = "queued" if unit.attempts < unit.max_attempts else "dead"
        given_back = {"state": state, "owner": None, "lease_until_us": None, "error": error.replace("\x00", "")}
        return self._move(unit, lambda now: {**given_back, "ready_us": now + delay_us})

    def revive(self, unit_id: str) -> WorkUnit:
        """Queue a dead unit again with fresh attempts."""

        def propose(state: LogState) -> tuple[Upkeep | None, WorkUnit]:
            unit = state.units.get(unit_id)
            if unit is None or unit.state != "dead":
                raise NotFoundError("no such dead work unit", unit=unit_id)
            if _open_unit(state, unit.kind, unit.key) is not None:
                raise ConflictError("a unit of the same key is open", unit=unit_id, kind="open_unit")
            now = self._clock()
            revived = replace(
                unit, state="queued", attempts=0, owner=None, ready_us=now, lease_until_us=None, updated_us=now
            )
            return _changed(revived), revived

        return self._amend(propose)

    def units(self, *, state: UnitState | None = None, kind: str | None = None, limit: int = 100) -> list[WorkUnit]:
        """List units, newest first."""
        held = self._state().units.values()
        found = [unit for unit in held if state in (None, unit.state) and kind in (None, unit.kind)]
        return sorted(found, key=lambda unit: (unit.created_us, unit.id), reverse=True)[:limit]

    def forget(self, *, before_us: int) -> int:
        """Delete units that were done before a time, and say how many."""

        def propose(state: LogState) -> tuple[Upkeep | None, int]:
            done = [u.id for u in state.units.values() if u.state == "done" and u.updated_us < before_us]
            return (Upkeep("work", closed=tuple(done)) if done else None), len(done)

        return self._amend(propose)

    def _move(self, unit: WorkUnit, change: Callable[[int], Mapping[str, Any]]) -> WorkUnit:
        """Change a unit that is still as it is held."""

        def propose(state: LogState) -> tuple[Upkeep | None, WorkUnit]:
            held = state.units.get(unit.id)
            if held is None or (held.token, held.state) != (unit.token, unit.state):
                raise lost_lease(unit.id, unit.token)
            now = self._clock()
            moved = replace(unit, updated_us=now, **change(now))
            return _changed(moved), moved

        return self._amend(propose)


def check_fence(state: LogState, commit: Commit) -> None:
    """Refuse a commit whose worker has lost its lease."""
    if (fence := commit.fence) is None:
        return
    unit = state.units.get(fence.unit_id)
    if unit is None or (unit.token, unit.state) != (fence.token, "leased"):
        raise lost_lease(fence.unit_id, fence.token, commit=commit.id)


def _changed(*units: WorkUnit) -> Upkeep:
    return Upkeep("work", units=tuple(unit_to_json(unit) for unit in units))


def _open_unit(state: LogState, kind: str, key: str) -> WorkUnit | None:
    held = state.units.values()
    return next((u for u in held if (u.kind, u.key) == (kind, key) and u.state in ("queued", "leased")), None)


def _ready(state: LogState, kinds: Collection[str], now: int) -> list[WorkUnit]:
    found = [
        unit
        for unit in state.units.values()
        if unit.kind in kinds
        and (
            (unit.state == "queued" and unit.ready_us <= now)
            or (unit.state == "leased" and unit.lease_until_us is not None and unit.lease_until_us < now)
        )
    ]
    return sorted(found, key=lambda unit: (-unit.priority, unit.ready_us, unit.id))
