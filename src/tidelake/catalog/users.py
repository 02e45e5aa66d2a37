"""Define what a catalog tells of the users of a table: who is due for upkeep, and what all of them hold.

It does not know how that is found.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.model.snapshot import Counts, Scope


@dataclass(frozen=True, slots=True)
class DueScope:
    """A user's scope that upkeep is to look at, since when, and its number in the catalog."""

    scope: Scope
    look_us: int
    id: int


@dataclass(frozen=True, slots=True)
class TableTotals:
    """What all scopes of a table hold together."""

    users: int
    live: Counts
    small_extents: int
    snapshots: int
    oldest_us: int | None
    pins: int
