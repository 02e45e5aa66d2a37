"""Tell how one version of a table's schema became the next: columns that came, and types that grew.

Columns are told apart by their ids, which never change. It does not know when that was: snapshots do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelake.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Change:
    """A column that is not what it was; one that is new was nothing."""

    column: str
    was: str | None
    now: str


def changes_between(before: Schema | None, after: Schema) -> Iterator[Change]:
    """Yield what a schema has that the one before had not; of the first, every column."""
    known = {} if before is None else {each.id: each for each in before.columns}
    for column in after.columns:
        earlier = known.get(column.id)
        was, now = (
            None if earlier is None else _told(earlier.type, earlier.nullable),
            _told(column.type, column.nullable),
        )
        if was != now:
            yield Change(column.name, was, now)


def _told(kind: object, nullable: bool) -> str:
    return str(kind) if nullable else f"{kind} not null"
