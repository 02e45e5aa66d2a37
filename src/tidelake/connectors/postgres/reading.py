"""Read tables of PostgreSQL: a consistent copy of each, then every change, by logical replication over plain SQL.

1. A publication names the tables, and a slot remembers how far we are: both are the source's, made once.
2. A temporary slot exports a snapshot and says at which position of the log it stands; tables are copied in it, with
   ``COPY … (FORMAT csv)``, each locked against being altered. One that was altered since the snapshot is copied anew in
   another: its rows would be those of one moment, and its columns of the next.
3. Changes are looked at with ``pg_logical_slot_peek_binary_changes``, committed in the lake, and only then forgotten
   with ``pg_replication_slot_advance``. Killed in between, the same changes come again, and are in already.

It does not decode: see ``messages``; nor does it commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from tidelake.catalog.protocol import now_us
from tidelake.connectors.checking import check_columns, check_tables, lost
from tidelake.connectors.definition import SourceDefinition
from tidelake.connectors.failures import altered_meanwhile
from tidelake.connectors.postgres.catalog import PgCatalog
from tidelake.connectors.postgres.connecting import connect, told_apart
from tidelake.connectors.postgres.copying import copied
from tidelake.connectors.postgres.messages import Decoder, Relation
from tidelake.connectors.protocol import ChangeBatch, SourceTable, TableCopy, TableShape
from tidelake.connectors.spooling import Spool
from tidelake.connectors.system_columns import copied_rows, keys_of
from tidelake.errors import InvalidInputError, TidelakeError

CHANGES_AT_ONCE = 200_000  # a look at the log begins at its oldest open transaction, so few looks are better
PIECE_BYTES = 16 << 20  # of messages that are decoded at once
IDLE_BYTES = 1 << 20  # of the log that hold nothing for us, after which the source may forget them


class PostgresSource:
    """A PostgreSQL database as a source of changes."""

    def __init__(self, definition: SourceDefinition) -> None:
        self._definition = definition
        self._opened: psycopg.Connection[Any] | None = None
        self._reading: psycopg.Connection[Any] | None = None  # the log, while the other is asked what its types are
        self._known: dict[int, Relation | None] = {}  # relations by id, in the shape of their last change
        self._catalog: PgCatalog | None = None
        self._told = 0  # how far the source was told that we are

    @property
    def slot(self) -> str:
        return str(self._definition.options.get("slot") or f"tide_{self._definition.id}")

    @property
    def publication(self) -> str:
        return str(self._definition.options.get("publication") or f"tide_{self._definition.id}")

    def validate(self) -> None:
        """Raise InvalidInputError if the server does not replicate logically, or not for this user."""
        level = self._one("SHOW wal_level")[0]
        if level != "logical":
            raise InvalidInputError(
                "the server does not replicate logically: set wal_level = logical and restart it",
                wal_level=level, kind="no_logical_replication",
            )  # fmt: skip
        may = self._one("SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user")[0]
        if not may:
            raise InvalidInputError(
                "the user may not replicate: ALTER ROLE … REPLICATION", user=self._one("SELECT current_user")[0],
                kind="no_privilege",
            )  # fmt: skip

    def discover(self, tables: Sequence[str] | None = None) -> list[SourceTable]:
        """Describe tables; one that cannot be told apart row by row is refused if it was named, or else left out."""
        with told_apart():
            found = self._pg().tables()
            if tables is None:
                return [self._pg().described(name) for name, key in found.items() if key]
            check_tables(tables, found, " (or replica identity)")
            described = [self._pg().described(name) for name in tables]
        check_columns(described)
        return described

    def begin(self, positions: Mapping[str, int], told: int | None) -> None:
        """Make publication and slot if nothing was synced yet; else see that the slot still remembers where we are."""
        with told_apart():
            self._publish()
            slot = self._connection().execute(
                "SELECT confirmed_flush_lsn - '0/0', wal_status FROM pg_replication_slots WHERE slot_name = %s",
                [self.slot],
            ).fetchone()  # fmt: skip
            if slot is None and not positions:
                self._one("SELECT lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput')", self.slot)
                slot = self._one(
                    "SELECT confirmed_flush_lsn - '0/0', '' FROM pg_replication_slots WHERE slot_name = %s", self.slot
                )
            if slot is None or slot[1] == "lost":
                raise self._lost("the replication slot is gone, and with it the changes since", "slot_lost")
            self._told = int(slot[0] or 0)
            known = max([*positions.values(), told or 0], default=0)
            if positions and self._told > known:
                raise self._lost("somebody else has read from the replication slot", "slot_moved")
            if positions and self.now() < max(positions.values()):
                raise self._lost("the source is older than what was read from it, as after a restore", "source_older")

    def snapshot(self, tables: Sequence[SourceTable]) -> Iterator[TableCopy]:
        """Copy tables in one exported snapshot."""
        with told_apart():
            exporter = connect(self._definition.url, replication="database")
        try:
            position, name = self._exported(exporter)
            for table in tables:
                with told_apart(), connect(self._definition.url) as reader:
                    described = self._locked(reader, table.name, name)
                    yield TableCopy(described, position, self._rows(reader, described, position))
        finally:
            exporter.close()

    def now(self) -> int:
        """Return how far the log is written."""
        return int(self._one("SELECT pg_current_wal_flush_lsn() - '0/0'")[0])

    def stream(self, position: int | None) -> ChangeBatch | None:
        """Return the next transactions, as many as have some number of changes together."""
        with told_apart():
            now = self.now()
            decoder, spool = Decoder(self._known, self._describe, epoch=self._definition.epoch), Spool()
            position = event_us = None
            with self._log().cursor().copy(self._peek(now)) as copy:
                for data in _pieces(copy):
                    found = decoder.decode(data)
                    for piece in found.changes:
                        spool.add(piece)
                    position, event_us = found.position or position, found.event_us or event_us
        if position is None:
            return ChangeBatch([], now, behind_bytes=0) if now - self._told >= IDLE_BYTES else None
        return ChangeBatch(spool.changes, position, event_us, max(now - position, 0))

    def shape(self, table: str) -> TableShape:
        """Return how a table is kept now."""
        with told_apart():
            return self._pg().shape(table)

    def acknowledge(self, position: int) -> None:
        """Advance the slot."""
        if position > self._told:
            with told_apart():
                self._one("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", self.slot, _lsn(position))
            self._told = position

    def forget(self) -> None:
        """Drop the slot, and the publication if it is ours."""
        with told_apart():
            self._connection().execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [self.slot]
            )
            if not self._definition.options.get("publication"):
                drop = sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(self.publication))
                self._connection().execute(drop)

    def close(self) -> None:
        """Let go of the connections."""
        for opened in (self._opened, self._reading):
            if opened is not None:
                with suppress(psycopg.Error, OSError):
                    opened.close()
        self._opened = self._reading = None

    def _connection(self) -> psycopg.Connection[Any]:
        if self._opened is None or self._opened.closed:
            self._opened = connect(self._definition.url)
            self._catalog = None
        return self._opened

    def _log(self) -> psycopg.Connection[Any]:
        if self._reading is None or self._reading.closed:
            self._reading = connect(self._definition.url)
        return self._reading

    def _pg(self) -> PgCatalog:
        opened = self._connection()
        if self._catalog is None:
            self._catalog = PgCatalog(opened)
        return self._catalog

    def _one(self, query: str, *values: Any) -> Any:
        with told_apart():
            found = self._connection().execute(query.encode(), list(values)).fetchone()
        assert found is not None
        return found

    def _lost(self, words: str, kind: str) -> TidelakeError:
        return lost(self._definition, words, kind, slot=self.slot)

    def _publish(self) -> None:
        """Have the publication hold exactly the tables of the source; one that was named is only looked at."""
        wanted = set(self._definition.tables)
        connection = self._connection()
        there = connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [self.publication]).fetchone()
        listed = "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s"
        held = {row[0] for row in connection.execute(listed, [self.publication])}
        if self._definition.options.get("publication"):
            if there is None or wanted - held:
                raise InvalidInputError(
                    "the publication does not hold the table", publication=self.publication,
                    table=", ".join(sorted(wanted - held)), kind="bad_publication",
                )  # fmt: skip
            return
        names = sql.SQL(", ").join(sql.Identifier(*name.split(".", 1)) for name in self._definition.tables)
        if there is None:
            make = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}")
            connection.execute(make.format(sql.Identifier(self.publication), names))
        elif wanted != held:
            change = sql.SQL("ALTER PUBLICATION {} SET TABLE {}")
            connection.execute(change.format(sql.Identifier(self.publication), names))

    def _exported(self, exporter: psycopg.Connection[Any]) -> tuple[int, str]:
        """Return a position, and the name of a snapshot that has all before it and nothing after."""
        command = f'CREATE_REPLICATION_SLOT "{self.slot[:40]}_copy_{now_us():x}" TEMPORARY LOGICAL pgoutput'
        found = exporter.pgconn.exec_(f"{command} (SNAPSHOT 'export')".encode())
        if found.status != psycopg.pq.ExecStatus.TUPLES_OK:
            words = found.error_message.decode(errors="replace").strip()
            raise InvalidInputError(f"the source exports no snapshot: {words}", kind="source_refused")
        point, name = found.get_value(0, 1), found.get_value(0, 2)
        assert point is not None
        assert name is not None
        high, _, low = point.decode().partition("/")
        return (int(high, 16) << 32) + int(low, 16), name.decode()

    def _locked(self, reader: psycopg.Connection[Any], table: str, snapshot: str) -> SourceTable:
        """Have a connection see a table as it was in a snapshot, and return it; nobody alters it as long as that reads.

        The lock comes before the snapshot, so that nothing can happen between. It is not taken before the snapshot is
        made: that waits for open transactions, and one of them may wait for the lock.
        """
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        lock = sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(sql.Identifier(*table.split(".", 1)))
        reader.execute(lock)
        reader.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        if PgCatalog(reader).shape(table) != self._pg().shape(table):
            raise altered_meanwhile(table)
        (described,) = self.discover([table])
        return described

    def _rows(self, reader: psycopg.Connection[Any], table: SourceTable, position: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table as changes that stand right before a position."""
        at_us = now_us()
        with told_apart():
            types = self._pg().types_of(table.name, tuple(table.columns))
            for texts, batch in copied(reader, table, types):
                keys = keys_of([texts.column(name) for name in table.key])
                yield copied_rows(batch, keys, position, at_us, epoch=self._definition.epoch)

    def _peek(self, upto: int) -> sql.Composed:
        return sql.SQL(
            "COPY (SELECT data FROM pg_logical_slot_peek_binary_changes({slot}, {upto}::pg_lsn, {changes}, "
            "'proto_version', '1', 'publication_names', {publication})) TO STDOUT (FORMAT binary)"
        ).format(
            slot=sql.Literal(self.slot),
            upto=sql.Literal(_lsn(upto)),
            changes=sql.Literal(CHANGES_AT_ONCE),
            publication=sql.Literal(f'"{self.publication}"'),
        )

    def _describe(self, id: int, name: str, columns: Sequence[tuple[str, int, int]], message: bytes) -> Relation | None:
        if name not in self._definition.tables:
            return None
        types = self._pg().types([(kind, modifier) for _, kind, modifier in columns])
        key = self._pg().key_of(name)
        names = tuple(column for column, _, _ in columns)
        if not key or not set(key) <= set(names):
            raise self._lost(f"{name} has another primary key, or none", "key_changed")
        return Relation(id, name, names, types, key, message)


def _pieces(copy: psycopg.Copy) -> Iterator[bytes]:
    """Yield what is copied in pieces of some bytes, each of whole messages."""
    lines, size = list[bytes](), 0
    for line in copy:
        lines.append(bytes(line))
        size += len(line)
        if size >= PIECE_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    if lines:
        yield b"".join(lines)


def _lsn(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
