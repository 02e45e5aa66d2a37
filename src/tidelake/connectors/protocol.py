"""Define what a source of rows answers, and what it hands over: tables, a consistent copy of each, and what changed.

A **position** is a number that rises with the source's own record of changes: where its log, oplog or binlog is. A copy
of a table has the position from which on changes are not in it; a batch of changes has the one at which it ends. How
far a table is stands in the table's own commits, so whatever is handed over twice is there once.

What goes wrong is told by who can help: a ``StorageError`` is tried again, an ``InvalidInputError`` needs somebody to
change the source or its settings (``disabled``), anything else stops the source with its reason (``stopped``). It does
not commit: see ``committing``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.connectors.definition import EVENT_AT, LSN, OP, PK
from tidelake.errors import CommitUnknownError, ConflictError, InvalidInputError, StorageError, UnavailableError
from tidelake.model.schema import DataType

INSERT, UPDATE, DELETE, TRUNCATE = "insert", "update", "delete", "truncate"
SYSTEM_TYPES = {PK: "string", OP: "string", LSN: "string", EVENT_AT: "timestamp"}
TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of a source: its columns in the lake's types, and those that name a row.

    One that ``has_fields`` declares none: its columns are what the rows at hand have, each value with its own type.
    """

    name: str
    columns: Mapping[str, DataType]
    key: tuple[str, ...]
    has_fields: bool = False


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What changed in one table, in order: a row for each change, with the system columns.

    A truncation is a row without a key. ``unchanged`` says for some columns in which rows the source left the value
    out, because it is as it was.
    """

    table: SourceTable
    rows: pa.Table
    positions: npt.NDArray[np.int64]  # of the change of each row
    unchanged: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Effect:
    """What a statement of a source does to a table beside the changes that it tells of.

    Its ``extent`` is what may be other than what was read: nothing but columns that are ``new``, and integers that
    were ``widened``; all ``values``; or the ``rows`` themselves. A table that was ``emptied`` has none.
    """

    extent: Literal["columns", "emptied", "values", "rows"]
    new: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Alteration:
    """A statement that altered a table, and where it stands."""

    table: str
    position: int
    effect: Effect


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Whole transactions of a source, and how far they reach; alterations come alone."""

    changes: Sequence[TableChanges]
    position: int
    event_us: int | None = None
    behind_bytes: int | None = None
    altered: Sequence[Alteration] = ()


@dataclass(frozen=True, slots=True)
class TableCopy:
    """All rows of a table at one moment: changes from ``position`` on are not in them."""

    table: SourceTable
    position: int
    rows: Iterator[pa.RecordBatch]  # with the system columns


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """How a column is kept: a number that no other column of the table ever had, its type, and a default."""

    number: int
    type: str
    has_default: bool = False


@dataclass(frozen=True, slots=True)
class TableShape:
    """How a table is kept at its source: its columns, and which file its rows are in."""

    storage: int = 0
    columns: Mapping[str, ColumnShape] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return what is to be remembered of it."""
        columns = {name: [column.number, column.type] for name, column in self.columns.items()}
        return {"storage": self.storage, "columns": columns}

    def has_silent_changes(self, since: Mapping[str, Any]) -> bool:
        """Whether rows may have got values that no change tells of since the table was of another shape.

        So it is with a new column that has a default, is an older one renamed, or came with new files; with one that
        took the place of another; and with a type that was changed with all rows written anew.
        """
        held: Mapping[str, Any] = since["columns"]
        numbers, is_rewritten = {number for number, _ in held.values()}, since["storage"] != self.storage
        for name, column in self.columns.items():
            if name not in held:
                if column.has_default or column.number in numbers or is_rewritten:
                    return True
            elif held[name][0] != column.number or (held[name][1] != column.type and is_rewritten):
                return True
        return False


class Source(Protocol):
    """What a kind of source can do. It holds connections: close it."""

    def validate(self) -> None:
        """Raise InvalidInputError, which says what to do, if the source cannot be synced as it is."""
        ...

    def discover(self, tables: Sequence[str] | None = None) -> list[SourceTable]:
        """Describe tables, or all that can be synced; one without a primary key is refused if it was named."""
        ...

    def begin(self, positions: Mapping[str, int], told: int | None) -> None:
        """Make ready to stream, for tables that are this far; ``told`` is how far the source may have forgotten."""
        ...

    def snapshot(self, tables: Sequence[SourceTable]) -> Iterator[TableCopy]:
        """Copy tables, each as it was at one moment after ``begin``; a copy must be read before the next is asked."""
        ...

    def now(self) -> int:
        """Return the position that the source's record of changes has reached."""
        ...

    def stream(self, position: int | None) -> ChangeBatch | None:
        """Return the next changes that were not acknowledged; None if there are none now."""
        ...

    def shape(self, table: str) -> TableShape:
        """Describe how a table is kept now, so that what was altered since shows; nothing where it never does."""
        ...

    def acknowledge(self, position: int) -> None:
        """Let the source forget what lies before a position."""
        ...

    def forget(self) -> None:
        """Take away what syncing has left at the source."""
        ...

    def close(self) -> None: ...


Outcome = Literal["transient", "config", "permanent"]


def outcome_of(error: Exception) -> Outcome:
    """Return who can help: time, whoever set the source up, or whoever looks at the reason."""
    match error:
        case InvalidInputError():
            return "config"
        case StorageError():
            return "permanent" if error.is_certain else "transient"
        case ConflictError() | CommitUnknownError() | UnavailableError():
            return "transient"
        case _:
            return "permanent"
