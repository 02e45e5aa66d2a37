"""Define how background work is handed out, each unit to one owner at a time, whatever keeps it.

A unit is leased, and fenced by a token that rises with every lease: a worker that lost its lease may still run, but its
commit is refused. It does not know what the work is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict, Unpack

from tidelake.errors import ConflictError, InvalidInputError
from tidelake.runtime.processes import is_gone

UnitState = Literal["queued", "leased", "done", "dead"]


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A piece of background work: leased to one owner at a time, fenced by a token that rises with every lease."""

    id: str
    kind: str
    key: str
    payload: Mapping[str, Any]
    state: UnitState
    priority: int
    attempts: int
    max_attempts: int
    token: int
    owner: str | None
    ready_us: int  # not before
    lease_until_us: int | None
    created_us: int
    updated_us: int
    error: str | None


class UnitOptions(TypedDict, total=False):
    """What a work unit may be told besides: see ``queued_unit``."""

    priority: int
    max_attempts: int
    delay_us: int


class WorkQueue(Protocol):
    """Hand out work units, each to one owner at a time."""

    def enqueue(self, kind: str, key: str, payload: Mapping[str, Any], **options: Unpack[UnitOptions]) -> WorkUnit:
        """Add a unit, or give the open one of the same kind and key."""
        ...

    def claim(self, kinds: Collection[str], *, owner: str, lease_us: int) -> WorkUnit | None:
        """Lease the most urgent ready unit; one whose lease ran out is ready again, and dead after its last attempt."""
        ...

    def heartbeat(self, unit: WorkUnit, *, lease_us: int) -> WorkUnit:
        """Prolong a lease; ConflictError (``fenced``) if it is no longer this owner's."""
        ...

    def complete(self, unit: WorkUnit) -> None:
        """Close a unit; ConflictError (``fenced``) if it is no longer this owner's."""
        ...

    def fail(self, unit: WorkUnit, error: str, *, delay_us: int) -> WorkUnit:
        """Give a unit back for another attempt after a delay, or to the dead letters after its last."""
        ...

    def revive(self, unit_id: str) -> WorkUnit:
        """Queue a dead unit again with fresh attempts."""
        ...

    def units(self, *, state: UnitState | None = None, kind: str | None = None, limit: int = 100) -> list[WorkUnit]:
        """List units, newest first."""
        ...

    def forget(self, *, before_us: int) -> int:
        """Delete units that were done before a time, and say how many."""
        ...


def queued_unit(
    unit_id: str,
    kind: str,
    key: str,
    payload: Mapping[str, Any],
    *,
    now_us: int,
    priority: int = 0,
    max_attempts: int = 5,
    delay_us: int = 0,
) -> WorkUnit:
    """Return a new work unit, which is ready after a delay."""
    if not (kind.isprintable() and key.isprintable() and kind and key) or max_attempts < 1:
        raise InvalidInputError("a work unit needs a kind, a key and an attempt", unit_kind=kind, key=key)
    return WorkUnit(
        id=unit_id,
        kind=kind,
        key=key,
        payload=dict(payload),
        state="queued",
        priority=priority,
        attempts=0,
        max_attempts=max_attempts,
        token=0,
        owner=None,
        ready_us=now_us + delay_us,
        lease_until_us=None,
        created_us=now_us,
        updated_us=now_us,
        error=None,
    )


def lease_of(unit: WorkUnit, owner: str, until_us: int) -> dict[str, Any]:
    """Return what changes of a unit that is leased: its token rises, so that who had it before cannot commit."""
    raised = {"attempts": unit.attempts + 1, "token": unit.token + 1}
    return {"state": "leased", **raised, "owner": owner, "lease_until_us": until_us}


def give_back_if_dead(queue: WorkQueue, unit: WorkUnit) -> None:
    """Give a unit back whose owner is known to run no more, so that nobody waits for the end of its lease.

    That is known of processes of this machine; the leases of others run out.
    """
    if unit.state == "leased" and unit.owner is not None and is_gone(unit.owner):
        with suppress(ConflictError):  # somebody else saw it first
            queue.fail(unit, "its process is gone", delay_us=0)


def lost_lease(unit_id: str, token: int, **facts: object) -> ConflictError:
    """Return that a work unit has another owner by now."""
    return ConflictError("the lease on a work unit is lost", **facts, unit=unit_id, token=token, kind="fenced")
