"""Read the binlog of MySQL or MariaDB as whole transactions, and as statements that alter tables.

``mysql-replication`` speaks to the server and parts events; rows are read by ``images``. A transaction stands where its
first event begins, so that one which begins at the position of a copy is not in the copy. What is not complete when the
binlog ends is read again. It does not know tables of the lake.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import (
    GtidEvent,
    MariadbGtidEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from tidelake.connectors.mysql.catalog import position_of
from tidelake.connectors.mysql.connecting import settings_of
from tidelake.connectors.mysql.images import ImageColumn, Images
from tidelake.connectors.mysql.statements import effects_of
from tidelake.connectors.mysql.types import data_type
from tidelake.connectors.protocol import DELETE, INSERT, UPDATE, Alteration, SourceTable, TableChanges
from tidelake.connectors.spooling import Spool
from tidelake.connectors.system_columns import Places, before, changes_of, keys_of, truncation_of
from tidelake.errors import CorruptError, InvalidInputError

EVENTS = (
    GtidEvent, MariadbGtidEvent, QueryEvent, RotateEvent, XAPrepareEvent, XidEvent, DeleteRowsEvent,
    PartialUpdateRowsEvent, TableMapEvent, UpdateRowsEvent, WriteRowsEvent,
)  # fmt: skip
PIECE_BYTES = 16 << 20  # of row images, after which they are made columns
_ENDS = ("COMMIT", "ROLLBACK")

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Relation:
    """A table in the shape of one table map."""

    name: str  # database.table
    columns: tuple[ImageColumn, ...]
    key: tuple[str, ...]
    shown: tuple[str, ...]  # the columns that have values of their own

    def table(self) -> SourceTable:
        """Return it in the lake's types."""
        kinds = {column.name: data_type(column.kind) for column in self.columns}
        return SourceTable(self.name, {name: kinds[name] for name in self.shown}, self.key)


# What makes a relation of a table map: its name, its columns, and those of its key; the same for the same.
Describe = Callable[[str, list[Any], tuple[str, ...]], Relation]


@dataclass(slots=True)
class _Rows:
    """Row images of one relation that were read and not made columns yet."""

    relation: Relation
    events: list[bytes] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    places: list[tuple[int, int, int]] = field(default_factory=list)  # of the transaction, the event in it, its time

    def changes(self, epoch: int) -> TableChanges:
        """Make columns of them."""
        images = Images.find(self.events, self.relation.columns)
        counts = images.counts
        ends = np.cumsum(counts)
        event = np.repeat(np.arange(len(counts)), counts)
        inside = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
        ops = np.array(self.ops, object)[event]
        places = np.array(self.places, np.int64).reshape(-1, 3)[event]
        keep, ops = _kept(images, ops, inside, self.relation.key)
        is_deletion = ops == DELETE
        found = images.take(keep).only(self.relation.key, is_deletion)
        columns = found.read(self.relation.shown)
        keys = keys_of([array for field, array in found.read(self.relation.key)])
        where = Places(places[:, 0], places[:, 1] + inside, places[:, 2]).take(keep)
        return changes_of(self.relation.table(), columns, keys, ops, where, epoch=epoch)


def _kept(
    images: Images, ops: npt.NDArray[np.object_], inside: _Ints, key: tuple[str, ...]
) -> tuple[_Ints, npt.NDArray[np.object_]]:
    """Return which images are changes, and which: the one before an update is, as a deletion, if the key is another."""
    is_update = ops == UPDATE
    before = np.flatnonzero(is_update & (inside % 2 == 0))
    if not len(before):
        return np.arange(len(ops)), ops
    old = keys_of([array for _, array in images.take(before).read(key)])
    new = keys_of([array for _, array in images.take(before + 1).read(key)])
    moved = pc.coalesce(pc.not_equal(old, new), pc.xor(pc.is_null(old), pc.is_null(new))).to_numpy(zero_copy_only=False)
    is_kept = np.ones(len(ops), np.bool_)
    is_kept[before[~moved]] = False
    ops = ops.copy()
    ops[before] = DELETE
    keep = np.flatnonzero(is_kept)
    return keep, ops[keep]


@dataclass(slots=True)
class Looked:
    """What a look at the binlog found, up to a position."""

    position: int
    spool: Spool = field(default_factory=Spool)
    altered: list[Alteration] = field(default_factory=list)
    event_us: int | None = None
    bytes: int = 0  # of row images

    @property
    def changes(self) -> list[TableChanges]:
        return self.spool.changes


class Binlog:
    """The binlog from a position on. It holds connections: close it."""

    def __init__(
        self,
        url: str,
        file: str,
        place: int,
        *,
        server_id: int,
        tables: Collection[str],
        describe: Describe,
        epoch: int,
    ) -> None:
        self._tables, self._describe, self._epoch = frozenset(tables), describe, epoch
        self._relations: dict[int, Relation | None] = {}  # by table id, as of the last table map
        self._file, self._streams = file, 0
        self._held: Looked | None = None  # an alteration, which is told after what came before it
        self._last = position_of(file, place)  # where the last whole transaction ended
        self._pending: dict[int, _Rows] = {}  # by the id of its relation
        self._pending_bytes = 0
        self.is_read = False  # whether the binlog has ended, for now
        self._reader = BinLogStreamReader(
            settings_of(url), server_id, resume_stream=True, blocking=False, log_file=file, log_pos=place,
            only_events=EVENTS, only_schemas=sorted({name.split(".", 1)[0] for name in tables}),
            only_tables=sorted({name.split(".", 1)[1] for name in tables}), pymysql_wrapper=self._connect,
            enable_logging=False, slave_uuid=None,
        )  # fmt: skip

    def close(self) -> None:
        """Let go of the connections."""
        self._reader.close()

    def _connect(self, **settings: Any) -> pymysql.Connection[Any]:
        """Open a connection for the reader: one for the stream, since a second one would begin inside a transaction."""
        database = settings.pop("db", None)
        if database is None:
            self._streams += 1
            if self._streams > 1:
                raise pymysql.OperationalError(2013, "the connection was lost while the binlog was read")
        return pymysql.connect(**settings, database=database)

    def look(self, most_bytes: int) -> Looked | None:
        """Return what follows, about so many bytes of it and whole transactions; None if there is nothing.

        A statement that alters tables comes alone.
        """
        if self._held is not None:
            held, self._held = self._held, None
            return held
        found = Looked(self._last)
        start: int | None = None  # of the transaction that is being read
        for event in self._events():
            end = position_of(self._file, event.packet.log_pos)
            begin = end - event.packet.event_size
            start = begin if start is None else start
            match event:
                case TableMapEvent():
                    self._map(event)
                    continue
                case WriteRowsEvent() | UpdateRowsEvent() | DeleteRowsEvent():
                    self._take(event, start, begin, found)
                    continue
                case QueryEvent():
                    if (ended := self._statement(event, start)) is None:
                        continue
                case XidEvent() | XAPrepareEvent():
                    ended = Looked(end)
                case _:
                    continue
            place, start, self._last = start, None, end
            if ended.altered or ended.changes:
                ended.position, ended.event_us = end, event.timestamp * 1_000_000
                return self._after(found, ended, place)
            found.position, found.event_us = end, event.timestamp * 1_000_000
            if found.bytes >= most_bytes:
                return self._closed(found)
        self.is_read = True
        return None if found.event_us is None else self._closed(found, start)

    def _after(self, found: Looked, altered: Looked, place: int) -> Looked:
        """Return what came before an alteration, and keep that for the next look; or that, if nothing came before."""
        if not self._pending and not found.changes:
            return altered
        self._held, found.position = altered, place
        return self._closed(found)

    def _events(self) -> Iterator[Any]:
        while (event := self._reader.fetchone()) is not None:
            if isinstance(event, RotateEvent):
                if event.next_binlog != self._file:
                    self._file = event.next_binlog
                    self._last = max(self._last, position_of(self._file, 4))
                self._relations = {}
                continue
            yield event

    def _map(self, event: Any) -> None:
        name = f"{event.schema}.{event.table}"
        if name not in self._tables:
            self._relations[event.table_id] = None
            return
        if not event.get_table().column_name_flag:
            raise InvalidInputError(
                "the binlog does not name columns: SET GLOBAL binlog_row_metadata = FULL, then tidelake sync run "
                "--resync", table=name, kind="bad_binlog",
            )  # fmt: skip
        told = event.optional_metadata
        places = told.simple_primary_key_list or list(told.primary_keys_with_prefix or ())
        key = tuple(str(event.columns[at].name) for at in places)
        self._relations[event.table_id] = self._describe(name, event.columns, key)

    def _take(self, event: Any, start: int, begin: int, found: Looked) -> None:
        relation = self._relations.get(event.table_id)
        if relation is None:
            return
        if isinstance(event, PartialUpdateRowsEvent):
            raise InvalidInputError(
                "the binlog has parts of JSON values: SET GLOBAL binlog_row_value_options = ''", table=relation.name,
                kind="bad_binlog",
            )  # fmt: skip
        bitmaps = [event.columns_present_bitmap, getattr(event, "columns_present_bitmap2", None)]
        whole = (1 << len(relation.columns)) - 1
        for bitmap in bitmaps:
            if bitmap is not None and int.from_bytes(bitmap, "little") & whole != whole:
                raise InvalidInputError(
                    "the binlog has parts of rows: SET GLOBAL binlog_row_image = FULL, then tidelake sync run --resync",
                    table=relation.name, kind="bad_binlog",
                )  # fmt: skip
        if event.number_of_columns != len(relation.columns):
            raise CorruptError("a row has not the columns of its table", table=relation.name, kind="bad_message")
        data = event.packet.read(event.event_size - event.packet.read_bytes)
        held = self._pending.get(id(relation))
        if held is None:
            held = self._pending[id(relation)] = _Rows(relation)
        held.events.append(data)
        held.ops.append(_op(event))
        held.places.append((start, begin - start, event.timestamp * 1_000_000))
        self._pending_bytes += len(data)
        found.bytes += len(data)
        if self._pending_bytes >= PIECE_BYTES:
            self._pour(found)

    def _closed(self, found: Looked, open_at: int | None = None) -> Looked:
        """Make columns of all rows that were read, but those of a transaction that has not ended."""
        self._pour(found)
        if open_at is not None:
            found.spool.changes = [before(changes, open_at) for changes in found.changes]
        return found

    def _pour(self, found: Looked) -> None:
        """Make columns of the rows that are pending."""
        for held in self._pending.values():
            found.spool.add(held.changes(self._epoch))
        self._pending, self._pending_bytes = {}, 0

    def _statement(self, event: Any, start: int) -> Looked | None:
        """Return what a statement ends: a transaction, or itself; None if it is inside one, or begins it."""
        text = event.query if isinstance(event.query, str) else event.query.decode(errors="replace")
        words = text.strip().upper()
        if words in _ENDS or words.startswith("XA COMMIT"):
            return Looked(start)
        if words.startswith(("BEGIN", "SAVEPOINT", "ROLLBACK TO", "RELEASE", "XA ")):
            return None
        database = event.schema.decode() if isinstance(event.schema, bytes) else str(event.schema)
        found, at_us = Looked(start), event.timestamp * 1_000_000
        for name, effect in effects_of(text, database, self._tables).items():
            if effect.extent == "emptied":
                one = np.array([start], np.int64)
                place = Places(one, np.zeros(1, np.int64), np.array([at_us], np.int64))
                found.spool.add(truncation_of(SourceTable(name, {}, ()), place, epoch=self._epoch))
            else:
                found.altered.append(Alteration(name, start, effect))
        return found


def _op(event: Any) -> str:
    return INSERT if isinstance(event, WriteRowsEvent) else UPDATE if isinstance(event, UpdateRowsEvent) else DELETE
