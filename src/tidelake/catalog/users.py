"""Define what a catalog tells of the users of a table: who is due for upkeep, and what all of them hold.

It does not know how that is found.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.model.snapshot import Counts, Extent, Scope


@dataclass(frozen=True, slots=True)
class DueScope:
    """A user's scope that upkeep is to look at, since when, and its number in the catalog."""

    scope: Scope
    look_us: int
    id: int


@dataclass(frozen=True, slots=True)
class Small:
    """Which extents count as small: those that are below all of these figures; one that is not known is below."""

    byte_size: int
    unpacked_bytes: int
    rows: int

    def is_small(self, extent: Extent) -> bool:
        """Whether an extent counts as small."""
        return (
            extent.byte_size < self.byte_size
            and (extent.unpacked_bytes or 0) < self.unpacked_bytes
            and extent.row_count < self.rows
        )


NONE_SMALL = Small(0, 0, 0)


@dataclass(frozen=True, slots=True)
class TableTotals:
    """What all scopes of a table hold together."""

    users: int
    live: Counts
    small_extents: int
    snapshots: int
    oldest_us: int | None
    pins: int
