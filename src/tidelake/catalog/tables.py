"""Lay out the SQL catalog, and bring an older layout forward.

::

    catalog_meta ─ one row: version
    tables ─┬─ schemas (version)            every version a table's schema had
            ├─ settings (sequence)          as they are since a sequence of the shared scope
            └─ scopes (user) ─┬─ snapshots (sequence)
                              ├─ extents, hot_batches      visible from added_seq up to, not including, removed_seq
                              ├─ receipts (commit id), commit_keys, offsets
    pending, garbage ─ objects on their way in and on their way out
    work_units

A scope has a small integer id, so that indexes stay narrow. Bounds are int64 nanoseconds; an unknown one is stored as the
end of the range, which no comparison excludes. It does not run queries.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.schema import CreateIndex, CreateTable

VERSION = 1

LEAST_NS, MOST_NS = -(2**63), 2**63 - 1  # stand for an unknown bound

metadata = MetaData()
_Serial = BigInteger().with_variant(Integer, "sqlite")  # sqlite numbers rows itself only under this name


def _long(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


catalog_meta = Table("catalog_meta", metadata, _long("version"), _long("created_us"))

tables = Table(
    "tables",
    metadata,
    Column("id", Text, primary_key=True),
    _text("namespace"),
    _text("name"),
    _long("created_us"),
    _long("dropped_us", nullable=True),
    _long("schema_version"),
    _long("settings_seq"),
)
Index(
    "tables_by_name",
    tables.c.namespace,
    tables.c.name,
    unique=True,
    sqlite_where=tables.c.dropped_us.is_(None),
    postgresql_where=tables.c.dropped_us.is_(None),
)

schemas = Table(
    "schemas",
    metadata,
    _text("table_id"),
    _long("version"),
    _text("body"),
    PrimaryKeyConstraint("table_id", "version"),
    sqlite_with_rowid=False,
)

settings = Table(
    "settings",
    metadata,
    _text("table_id"),
    _long("sequence"),
    _text("body"),
    PrimaryKeyConstraint("table_id", "sequence"),
    sqlite_with_rowid=False,
)

scopes = Table(
    "scopes",
    metadata,
    Column("id", _Serial, primary_key=True),
    _text("table_id"),
    _text("user_id"),
    _long("sequence"),
    _text("snapshot_id"),
    UniqueConstraint("table_id", "user_id"),
    postgresql_with={"fillfactor": 50},  # every commit updates its row: leave room to do it in place
)

snapshots = Table(
    "snapshots",
    metadata,
    _long("scope_id"),
    _long("sequence"),
    _text("id"),
    _text("parent_id", nullable=True),
    _long("committed_us"),
    _text("operation"),
    _long("schema_version"),
    _text("counts"),
    _text("coverage_key", nullable=True),
    _long("coverage_as_of", nullable=True),
    PrimaryKeyConstraint("scope_id", "sequence"),
    sqlite_with_rowid=False,
)
Index("snapshots_by_id", snapshots.c.id)
Index("snapshots_by_time", snapshots.c.scope_id, snapshots.c.committed_us)

extents = Table(
    "extents",
    metadata,
    Column("n", _Serial, primary_key=True),
    _long("scope_id"),
    _text("id"),
    _text("key"),
    _text("format"),
    _long("byte_size"),
    _long("row_count"),
    _long("block_count"),
    _long("min_ts_ns"),
    _long("max_ts_ns"),
    _long("schema_version"),
    _long("level"),
    _long("added_seq"),
    _long("removed_seq", nullable=True),
    _text("coverage_key", nullable=True),
    _text("present_paths"),
    _text("bounds"),  # {"column": [least, most]}, small: what SQL compares
    Column("column_stats", LargeBinary, nullable=False),  # last, so that a row can be judged without reading it
    UniqueConstraint("scope_id", "id"),
)
_live_extents = extents.c.removed_seq.is_(None)
_gone_extents = extents.c.removed_seq.is_not(None)
Index(
    "live_extents_by_time",
    extents.c.scope_id,
    extents.c.max_ts_ns,
    extents.c.min_ts_ns,
    sqlite_where=_live_extents,
    postgresql_where=_live_extents,
)
Index(
    "gone_extents",
    extents.c.scope_id,
    extents.c.removed_seq,
    sqlite_where=_gone_extents,
    postgresql_where=_gone_extents,
)
Index("extents_by_sequence", extents.c.scope_id, extents.c.added_seq)

hot_batches = Table(
    "hot_batches",
    metadata,
    Column("n", _Serial, primary_key=True),
    _long("scope_id"),
    _text("id"),
    _long("rows"),
    _long("bytes"),
    _long("min_ts_ns"),
    _long("max_ts_ns"),
    _long("schema_version"),
    _long("added_seq"),
    _long("removed_seq", nullable=True),
    Column("payload", LargeBinary, nullable=False),
    UniqueConstraint("scope_id", "id"),
)
_live_hot = hot_batches.c.removed_seq.is_(None)
_gone_hot = hot_batches.c.removed_seq.is_not(None)
Index(
    "live_hot",
    hot_batches.c.scope_id,
    hot_batches.c.added_seq,
    sqlite_where=_live_hot,
    postgresql_where=_live_hot,
)
Index(
    "gone_hot",
    hot_batches.c.scope_id,
    hot_batches.c.removed_seq,
    sqlite_where=_gone_hot,
    postgresql_where=_gone_hot,
)

receipts = Table(
    "receipts",
    metadata,
    Column("commit_id", Text, primary_key=True),
    _long("scope_id"),
    _text("snapshot_id"),
    _long("sequence"),
    _long("committed_us"),
    _long("rows"),
    _long("extents"),
    sqlite_with_rowid=False,
)

commit_keys = Table(
    "commit_keys",
    metadata,
    _long("scope_id"),
    _text("key"),
    _text("commit_id"),
    _long("committed_us"),
    PrimaryKeyConstraint("scope_id", "key"),
    sqlite_with_rowid=False,
)

offsets = Table(
    "offsets",
    metadata,
    _long("scope_id"),
    _text("stream"),
    _long("batch"),
    PrimaryKeyConstraint("scope_id", "stream"),
    sqlite_with_rowid=False,
)

pending = Table(
    "pending",
    metadata,
    Column("key", Text, primary_key=True),
    _text("table_id"),
    _text("user_id"),
    _text("owner"),
    _long("since_us"),
    sqlite_with_rowid=False,
)

garbage = Table(
    "garbage",
    metadata,
    Column("key", Text, primary_key=True),
    _text("table_id"),
    _long("since_us"),
    _text("reason"),
    sqlite_with_rowid=False,
)

work_units = Table(
    "work_units",
    metadata,
    Column("id", Text, primary_key=True),
    _text("kind"),
    _text("key"),
    _text("payload"),
    _text("state"),
    _long("priority"),
    _long("attempts"),
    _long("max_attempts"),
    _long("token"),
    _text("owner", nullable=True),
    _long("ready_us"),
    _long("lease_until_us", nullable=True),
    _long("created_us"),
    _long("updated_us"),
    _text("error", nullable=True),
)
_open_units = work_units.c.state.in_(("queued", "leased"))
Index(
    "open_work_units",
    work_units.c.kind,
    work_units.c.key,
    unique=True,
    sqlite_where=_open_units,
    postgresql_where=_open_units,
)


def creation(dialect: Dialect) -> list[str]:
    """Give the statements that make an empty catalog of this version."""
    ddl: list[CreateTable | CreateIndex] = []
    for table in metadata.sorted_tables:
        ddl.append(CreateTable(table))
        ddl.extend(CreateIndex(index) for index in sorted(table.indexes, key=lambda index: str(index.name)))
    return [str(statement.compile(dialect=dialect)) for statement in ddl]


def migration(dialect: Dialect, version: int) -> list[str]:
    """Give the statements that turn a catalog of an older version into the next one's."""
    raise NotImplementedError(version)  # version 1 is the first
