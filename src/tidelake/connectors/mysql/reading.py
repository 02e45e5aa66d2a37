"""Read tables of MySQL and MariaDB: a consistent copy of each, then every change, from the binlog.

1. Tables are copied in one snapshot, of which the server says at which place of the binlog it stands.
2. Changes are read from the binlog as a replica reads them. The server does not know how far we are: it forgets files
   of the binlog when it is set up to, and what was not read by then is lost, which is said.

It does not decode: see ``binlog`` and ``images``; nor does it commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pymysql

from tidelake.catalog.protocol import now_us
from tidelake.connectors.checking import check_columns, check_tables, lost
from tidelake.connectors.definition import SourceDefinition
from tidelake.connectors.failures import altered_meanwhile
from tidelake.connectors.mysql.binlog import Binlog, Looked, Relation
from tidelake.connectors.mysql.catalog import FILE_BITS, MyCatalog, position_of
from tidelake.connectors.mysql.connecting import connect, database_of, told_apart
from tidelake.connectors.mysql.copying import copied, undecoded
from tidelake.connectors.mysql.images import image_column
from tidelake.connectors.mysql.types import MyType
from tidelake.connectors.protocol import ChangeBatch, SourceTable, TableCopy, TableShape
from tidelake.connectors.system_columns import copied_rows, keys_of
from tidelake.errors import InvalidInputError, TidelakeError

BYTES_AT_ONCE = 64 << 20  # of row images
IDLE_BYTES = 1 << 20  # of the binlog that hold nothing for us, after which how far we are is noted
BINLOG_LOST = 1236  # what a server says to a replica that asks for what it has not
_NEEDED = {
    "log_bin": ("ON", "the server writes no binlog: set log_bin and server_id, and restart it"),
    "binlog_format": ("ROW", "the binlog has no rows: SET GLOBAL binlog_format = ROW"),
    "binlog_row_image": ("FULL", "the binlog has parts of rows: SET GLOBAL binlog_row_image = FULL"),
    "binlog_row_metadata": ("FULL", "the binlog does not name columns: SET GLOBAL binlog_row_metadata = FULL"),
}


def server_id_of(definition: SourceDefinition) -> int:
    """Return what the server knows us by: no other replica of it may have the same."""
    given = definition.options.get("server_id")
    if given is None:
        return 0x40000000 | int(definition.id or "1", 16) & 0x3FFFFFFF
    if not str(given).isdecimal() or not 1 <= int(given) < 1 << 32:
        raise InvalidInputError("the option server_id is a number from 1 to 2^32 - 1", found=given, kind="bad_option")
    return int(given)


class MysqlSource:
    """A server of MySQL or MariaDB as a source of changes."""

    def __init__(self, definition: SourceDefinition) -> None:
        self._definition = definition
        self._opened: pymysql.Connection[Any] | None = None
        self._binlog: Binlog | None = None
        self._at: int | None = None  # where reading goes on
        self._noted = 0
        self._hints: dict[str, dict[str, MyType]] = {}
        self._looked: set[str] = set()  # tables whose hints are those of now
        self._relations: dict[Any, Relation] = {}

    def validate(self) -> None:
        """Raise InvalidInputError if the server's binlog does not have what is needed."""
        with told_apart():
            server_id_of(self._definition)  # one that is none is refused here
            for name, (needed, words) in _NEEDED.items():
                found = self._my().variable(name)
                if found is None or found.upper() not in (needed, "1" if needed == "ON" else needed):
                    raise InvalidInputError(words, setting=name, found=found, kind="bad_binlog")
            try:
                self._my().binlog()
            except pymysql.MySQLError as error:
                raise InvalidInputError(
                    "the user may not replicate: GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* (MariaDB: also "
                    "BINLOG MONITOR)", kind="no_privilege",
                ) from error  # fmt: skip

    def discover(self, tables: Sequence[str] | None = None) -> list[SourceTable]:
        """Describe tables; one without a primary key is refused if it was named, or else left out."""
        with told_apart():
            if tables is None:
                found = self._my().tables(database_of(self._definition.url))
                return [self._my().described(name) for name, key in found.items() if key]
            check_tables(tables, self._my().tables())
            described = [self._my().described(name) for name in tables]
        check_columns(described)
        return described

    def begin(self, positions: Mapping[str, int], told: int | None) -> None:
        """See that the server still has what was not read yet."""
        self._at = max(min(positions.values()), told or 0) if positions else None
        if self._at is None:
            return
        with told_apart():
            files = {position_of(file, 0) >> FILE_BITS: size for file, size in self._my().files()}
            if self._at >> FILE_BITS not in files and self.now() > self._at:
                raise self._lost("the binlog was purged before it was read")
            if self.now() < max(self._at, *positions.values()):
                raise self._lost("the source is older than what was read from it, as after a restore", "source_older")

    def snapshot(self, tables: Sequence[SourceTable]) -> Iterator[TableCopy]:
        """Copy tables in one snapshot."""
        with told_apart():
            reader = connect(self._definition.url, **undecoded())
        try:
            with told_apart():
                position = self._begun(reader)
            self._at = position if self._at is None else min(self._at, position)
            for table in tables:
                with told_apart():
                    described = self._my().described(table.name)  # what it was altered to until now is in the copy
                yield TableCopy(described, position, self._rows(reader, described, position))
        finally:
            reader.close()

    def now(self) -> int:
        """Return how far the binlog is written."""
        with told_apart():
            return position_of(*self._my().binlog())

    def stream(self, position: int | None) -> ChangeBatch | None:
        """Return the next transactions, as many as have some number of bytes together."""
        try:
            found = self._look()
        except TidelakeError:
            self._close_binlog()
            raise
        if found is None:
            return None
        self._at = found.position
        if not found.changes and not found.altered and found.position - self._noted < IDLE_BYTES:
            return None
        self._noted = found.position
        for each in found.altered:
            self._looked.discard(each.table)
            self._relations = {key: kept for key, kept in self._relations.items() if kept.name != each.table}
        behind = self.now() - found.position
        return ChangeBatch(
            [each for each in found.changes if each.rows.num_rows], found.position, found.event_us,
            behind if 0 <= behind < 1 << FILE_BITS else None, found.altered,
        )  # fmt: skip

    def shape(self, table: str) -> TableShape:
        """Return nothing: what alters a table is in the binlog."""
        return TableShape()

    def acknowledge(self, position: int) -> None:
        """Do nothing: the server does not wait for us."""

    def forget(self) -> None:
        """Do nothing: nothing was left at the server."""

    def close(self) -> None:
        """Let go of the connections."""
        self._close_binlog()
        if self._opened is not None:
            with suppress(pymysql.MySQLError, OSError):
                self._opened.close()
            self._opened = None

    def _my(self) -> MyCatalog:
        if self._opened is None or not self._opened.open:
            self._opened = connect(self._definition.url)
        return MyCatalog(self._opened)

    def _look(self) -> Looked | None:
        with told_apart():
            try:
                if self._binlog is not None and self._binlog.is_read:
                    self._close_binlog()
                if self._binlog is None:
                    if self._at is None or (self._at >= self.now()):
                        return None
                    self._binlog = self._read_from(self._at)
                return self._binlog.look(BYTES_AT_ONCE)
            except pymysql.MySQLError as error:
                if error.args and error.args[0] == BINLOG_LOST:
                    raise self._lost("the binlog was purged before it was read") from error
                raise

    def _read_from(self, position: int) -> Binlog:
        number, place = position >> FILE_BITS, position & ((1 << FILE_BITS) - 1)
        names = {position_of(file, 0) >> FILE_BITS: file for file, _ in self._my().files()}
        if number not in names:
            raise self._lost("the binlog was purged before it was read")
        return Binlog(
            self._definition.url, names[number], max(place, 4), server_id=server_id_of(self._definition),
            tables=self._definition.tables, describe=self._describe, epoch=self._definition.epoch,
        )  # fmt: skip

    def _close_binlog(self) -> None:
        if self._binlog is not None:
            with suppress(pymysql.MySQLError, OSError):
                self._binlog.close()
            self._binlog = None

    def _begun(self, reader: pymysql.Connection[Any]) -> int:
        """Begin a snapshot, and return the place of the binlog that it stands at."""
        my = MyCatalog(reader)
        my.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if my.is_mariadb:
            my.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            told = dict(my.rows("SHOW STATUS LIKE 'binlog\\_snapshot\\_%'"))
            found = {name.decode().lower(): value.decode() for name, value in told.items()}
            return position_of(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))
        my.rows("FLUSH TABLES WITH READ LOCK")  # nothing is committed until the snapshot has begun
        try:
            my.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return self.now()
        finally:
            my.rows("UNLOCK TABLES")

    def _rows(self, reader: pymysql.Connection[Any], table: SourceTable, position: int) -> Iterator[pa.RecordBatch]:
        at_us = now_us()
        with told_apart():
            columns = self._my().columns(table.name)
            if tuple(columns) != tuple(table.columns):
                raise altered_meanwhile(table.name)
            for batch in copied(reader, table.name, columns):
                keys = keys_of([batch.column(name) for name in table.key])
                yield copied_rows(batch, keys, position, at_us, epoch=self._definition.epoch)

    def _describe(self, name: str, columns: list[Any], key: tuple[str, ...]) -> Relation:
        signature = (name, key, tuple(tuple(sorted(column.data.items(), key=str)).__repr__() for column in columns))
        if signature in self._relations:
            return self._relations[signature]
        if not key:
            raise self._lost(f"{name} has no primary key any more", "key_changed")
        if name not in self._looked:  # what is there no more is remembered, as long as its changes may come
            self._hints[name] = {**self._hints.get(name, {}), **self._my().columns(name)}
            self._looked.add(name)
        hints, generated = self._hints[name], self._my().generated(name)
        found = tuple(image_column(column, hints.get(column.name)) for column in columns)
        shown = tuple(column.name for column in found if column.name not in generated)
        self._relations[signature] = Relation(name, found, key, shown)
        return self._relations[signature]

    def _lost(self, words: str, kind: str = "binlog_purged") -> TidelakeError:
        return lost(self._definition, words, kind)
