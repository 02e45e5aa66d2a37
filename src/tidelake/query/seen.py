"""Show a query the tables of a lake: each pinned to one snapshot, within what whoever asks may see.

Which tables there are, which states of them and which times are meant is decided here, beside a query's text and not in
it. It does not plan or read rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelake.catalog.protocol import DEFAULT_NAMESPACE
from tidelake.connectors.attached import attached_table
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.model.schema import DataType, Schema
from tidelake.query.answers import answer_rows, answered, live
from tidelake.query.bind import AsOf
from tidelake.query.budget import Budget, Deadline
from tidelake.query.external import read_external
from tidelake.query.system import system_rows
from tidelake.scan.scannable import Scannable


@dataclass(frozen=True, slots=True)
class Sight:
    """What of a lake whoever asks may see: tables that name no namespace are in this one, and not all may be there."""

    namespace: str = DEFAULT_NAMESPACE
    reaches: Callable[[str], bool] = lambda name: True


@dataclass(frozen=True, slots=True)
class View:
    """Which part of the tables a query is about, whatever its text says: older states, a range of time, new rows.

    ``as_of`` is a time, and ``snapshots`` are sequences by the tables' full names, for references that name no state of
    their own; under no name is the one of the only table. ``start_ns`` and ``end_ns`` bound the time column of every
    table that has one. ``added`` are sequences, the first not included: of each table only what its snapshots in
    between added is read. ``part`` is one of so many parts, by its number from 0, of a query that a scan answers alone:
    all of them together are its rows.
    """

    as_of: str | None = None
    snapshots: Mapping[str, int] = field(default_factory=dict)
    start_ns: int | None = None
    end_ns: int | None = None
    added: tuple[int, int] | None = None
    part: tuple[int, int] | None = None

    @property
    def has_range(self) -> bool:
        return self.start_ns is not None or self.end_ns is not None

    @property
    def is_whole(self) -> bool:
        """Whether all rows of a snapshot are meant."""
        return not self.has_range and self.added is None and self.part is None

    @property
    def is_newest(self) -> bool:
        """Whether the newest snapshots are meant, whole or a range of time."""
        return self.as_of is None and not self.snapshots and self.added is None and self.part is None

    def state_of(self, table: str) -> AsOf | None:
        """Return the state of a table that is meant where a query names none."""
        sequence = self.snapshots.get(table, self.snapshots.get(""))
        if sequence is not None:
            return AsOf(sequence=sequence)
        return None if self.as_of is None else AsOf(time=self.as_of)


class Seen:
    """The tables of a lake as one query sees them: each pinned to one snapshot, the newest when first asked for."""

    def __init__(
        self, lake: LakeHandle, limits: Budget, deadline: Deadline, user: str | None, sight: Sight, view: View
    ) -> None:
        self._lake, self._user, self._sight, self.view = lake, user, sight, view
        self.limits, self.deadline = limits, deadline
        self.answers: dict[str, Scannable] = {}  # tables that a query's text makes
        self.overflowed = False  # a name is no column, and was found in an overflow column
        self.looked_around = False  # what a query means depends on which tables there are
        self._tables: dict[tuple[str, AsOf | None], Scannable] = {}
        self._alone: str | None = None  # the table that a snapshot without a name is of
        self._newest: dict[str, TableHandle] = {}  # by a table's id: a query may spell its name in several ways

    def table(self, name: str, at: AsOf | None = None) -> Scannable:
        key = (name, at)
        if key not in self._tables:
            with self.deadline.undisturbed():
                self._tables[key] = self._pinned(name, at)
        return self._tables[key]

    def check_time(self) -> None:
        """Refuse to plan on once the time is over."""
        if self.deadline.left < 0:
            raise self.limits.out_of_time(planning=True)

    def answer(self, kind: str, words: Mapping[str, Any]) -> str:
        """Find an answer about a table, and give the name under which it can be read."""
        about = {name: value for name, value in words.items() if name != "table"}
        name = f"{kind}_{len(self.answers) + 1}"
        if kind == "live":
            if self._user is not None:
                raise NotFoundError("no such table", table=words["table"], kind="no_table")
            with self.deadline.undisturbed():
                self.answers[name] = live(self._lake, self._in_sight(str(words["table"])), about)
            return name
        table = self.table(str(words["table"]))
        with self.deadline.undisturbed():
            self.answers[name] = answered(name, table, kind, about, self._lake.footers)
        return name

    def external(self, columns: Sequence[str], addresses: Sequence[str], options: Mapping[str, Any]) -> str:
        """Read data outside the lake as columns of text, and give the name under which it can be read."""
        name = f"external_{len(self.answers) + 1}"
        with self.deadline.undisturbed():
            rows = read_external(columns, addresses, options, self.limits, self.deadline)
            self.answers[name] = answer_rows(name, rows, self._lake.footers)
        return name

    def columns(self, name: str) -> Mapping[str, DataType]:
        return {column.name: column.type for column in self.table(name).schema}

    def columns_at(self, name: str, at: AsOf) -> Mapping[str, DataType]:
        return {column.name: column.type for column in self.table(name, at).schema}

    def names(self) -> Sequence[str]:
        self.looked_around = True
        with self.deadline.undisturbed():
            return [name for name in self._lake.tables() if self._sight.reaches(name)]

    def show_overflowed(self, name: str) -> bool:
        """Show what the overflow columns of the tables so far have under a name as a column; say whether any has."""
        with self.deadline.undisturbed():
            shown = {key: table.showing([name]) for key, table in self._tables.items() if name not in table.schema}
        found = {key: table for key, table in shown.items() if name in table.schema}
        self._tables |= found
        self.overflowed |= bool(found)
        return bool(found)

    def schemas(self) -> dict[str, Schema]:
        return {name: table.schema for (name, at), table in self._tables.items() if at is None}

    def _pinned(self, name: str, at: AsOf | None) -> Scannable:
        if at is None and name in self.answers:
            return self.answers[name]
        if at is None:
            at = self._viewed(self._full(name))
        if at is not None and at.sequence is not None:
            return TableHandle.seen_by(self._lake, self._in_sight(name), self._user, snapshot=at.sequence)
        try:
            newest = self._pinned_newest(name)
        except NotFoundError:  # what the lake tells about itself is found under names that no table has
            own: Scannable | None = None
            if at is None and self._sight.reaches(name):
                own = system_rows(self._lake, name, self._user, self._sight.reaches)
                if own is None and self._user is None:
                    own = attached_table(self._lake, self._full(name))
            if own is None:
                raise
            return own
        if at is None:
            return newest
        past = TableHandle.seen_by(self._lake, self._in_sight(name), self._user, as_of=at.time)
        return past if past.snapshot.sequence <= newest.snapshot.sequence else newest  # a time that is still to come

    def _pinned_newest(self, name: str) -> TableHandle:
        try:
            table = TableHandle.seen_by(self._lake, self._in_sight(name), self._user)
        except NotFoundError:
            self.looked_around = True
            raise
        except InvalidInputError as error:
            self.looked_around = True
            raise _as_missing(error, name) from None
        id = table.info.id
        if id not in self._newest:
            self._newest[id] = table.pinned()
        return self._newest[id]

    def _viewed(self, full: str) -> AsOf | None:
        """Return the state in which a table is viewed; a snapshot that names no table is of the only one."""
        if "" in self.view.snapshots and full not in self.view.snapshots:
            self._alone = self._alone or full
            if self._alone != full:
                raise InvalidInputError(
                    "a snapshot is one table's, and the query names several: give one for each by its name",
                    tables=f"{self._alone}, {full}", kind="bad_snapshot",
                )  # fmt: skip
        return self.view.state_of(full)

    def _full(self, name: str) -> str:
        return name if "." in name else f"{self._sight.namespace}.{name}"

    def _in_sight(self, name: str) -> str:
        """Return a table's full name; NotFoundError, as for one that is not there, if it is out of sight."""
        own = self._full(name)
        if not self._sight.reaches(own):
            raise NotFoundError("no such table", table=own, kind="no_table")
        return own


def _as_missing(error: InvalidInputError, name: str) -> Exception:
    return NotFoundError("there is no such table", table=name) if error.kind == "bad_name" else error
