"""Lay out the tables of the SQL catalog.

::

    catalog_meta ─ one row: version
    tables ─┬─ schemas (version)            every version a table's schema had
            ├─ settings (sequence)          as they are since a sequence of the shared scope
            └─ scopes (user) ─┬─ snapshots (sequence)
                              ├─ extents, hot_batches      visible from added_seq up to, not including, removed_seq
                              │    └─ extent_columns       what is known of each column
                              ├─ receipts (commit id), commit_keys, offsets
    pending, garbage ─ objects on their way in and on their way out
    work_units

A scope has a small integer id, so that indexes stay narrow. Bounds are int64 nanoseconds; an unknown one is stored as
the end of the range, which no comparison excludes. Whoever only reads does not need it: importing the toolkit takes
longer than reading. It does not hold the queries.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Double,
    Index,
    Insert,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    insert,
)
from sqlalchemy.schema import CreateIndex, CreateTable

metadata = MetaData()
_ByteOrdered = Text().with_variant(Text(collation="C"), "postgresql")
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
    _long("scope_id"),
    _long("ordinal"),  # see tables.ordinal_of
    _text("id"),
    _text("key"),
    _text("format"),
    _long("byte_size"),
    _long("row_count"),
    _long("block_count"),
    _long("min_ts_ns"),
    _long("max_ts_ns"),
    _long("span"),  # see tables.span_of
    _long("schema_version"),
    _long("level"),
    _long("added_seq"),
    _long("removed_seq", nullable=True),
    _text("coverage_key", nullable=True),
    _text("present_paths"),
    PrimaryKeyConstraint("scope_id", "ordinal"),
    UniqueConstraint("scope_id", "id"),
    sqlite_with_rowid=False,
)
_live_extents = extents.c.removed_seq.is_(None)
_gone_extents = extents.c.removed_seq.is_not(None)
Index(
    "live_extents_by_time",
    extents.c.scope_id,
    extents.c.span,
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

# What is known of each column of an extent: bounds that SQL compares, and all of it as JSON.
extent_columns = Table(
    "extent_columns",
    metadata,
    _long("scope_id"),
    _long("ordinal"),
    _text("name"),
    _long("least_whole", nullable=True),
    _long("most_whole", nullable=True),
    Column("least_real", Double, nullable=True),
    Column("most_real", Double, nullable=True),
    Column("least_text", _ByteOrdered, nullable=True),
    Column("most_text", _ByteOrdered, nullable=True),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope_id", "ordinal", "name"),
    sqlite_with_rowid=False,
)

hot_batches = Table(
    "hot_batches",
    metadata,
    _long("scope_id"),
    _long("ordinal"),
    _text("id"),
    _long("rows"),
    _long("bytes"),
    _long("min_ts_ns"),
    _long("max_ts_ns"),
    _long("schema_version"),
    _long("added_seq"),
    _long("removed_seq", nullable=True),
    Column("payload", LargeBinary, nullable=False),
    PrimaryKeyConstraint("scope_id", "ordinal"),
    UniqueConstraint("scope_id", "id"),
)
_live_hot = hot_batches.c.removed_seq.is_(None)
_gone_hot = hot_batches.c.removed_seq.is_not(None)
Index(
    "live_hot",
    hot_batches.c.scope_id,
    hot_batches.c.ordinal,
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


def insert_into(table: Table, *left_out: str) -> Insert:
    """Give the statement that adds a row, with a value for every column but those left out."""
    names = [column.name for column in table.c if column.name not in left_out]
    return insert(table).inline().values({name: bindparam(name, type_=table.c[name].type) for name in names})


def creation(dialect: Dialect) -> list[str]:
    """Give the statements that make all of it, in a database's own words."""
    ddl: list[CreateTable | CreateIndex] = []
    for table in metadata.sorted_tables:
        ddl.append(CreateTable(table))
        ddl.extend(CreateIndex(index) for index in sorted(table.indexes, key=lambda index: str(index.name)))
    return [str(statement.compile(dialect=dialect)) for statement in ddl]
