"""Lay out the tables of the SQL catalog.

::

    catalog_meta ─ one row: version
    tables ─┬─ schemas (version)            every version a table's schema had
            ├─ settings (sequence)          as they are since a sequence of the shared scope
            └─ scopes (user) ─┬─ snapshots (sequence)
                              ├─ extents, hot_batches      visible from added_seq up to, not including, removed_seq
                              │    └─ extent_columns       what is known of each column
                              ├─ receipts (commit id), commit_keys, offsets
                              ├─ pins (name), leases (owner), gaps   which snapshots stay, and where some are missing
                              └─ due_scopes                when upkeep is to look at a user's scope again
    pending, garbage ─ objects on their way in and on their way out
    segments ─ the next number of each folder of numbered segments
    work_units

A scope has a small integer id, so that indexes stay narrow. Bounds are int64 nanoseconds; an unknown one is stored as
the end of the range, which no comparison excludes. Checksums are those of ``checksums``; an older version's rows have
none. It does not hold the queries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# The words that SQLite and PostgreSQL do not share.
_SQLITE = {
    "SERIAL": "INTEGER",  # it numbers rows itself only under this name
    "BYTES": "BLOB",
    "BYTE ORDERED TEXT": "TEXT",
    "KEYED": "WITHOUT ROWID",
    "ROOMY": "",
}
_POSTGRES = {
    "SERIAL": "BIGSERIAL",
    "BYTES": "BYTEA",
    "BYTE ORDERED TEXT": 'TEXT COLLATE "C"',
    "KEYED": "",
    "ROOMY": "WITH (fillfactor = 50)",
}
_OWN_WORDS = re.compile("|".join(sorted(_SQLITE, key=len, reverse=True)))
_COLUMN = re.compile(r"^ +([a-z_]+) ([A-Z]+)", re.MULTILINE)

_LAYOUT = """
CREATE TABLE catalog_meta (
    version BIGINT NOT NULL,
    created_us BIGINT NOT NULL
);

CREATE TABLE tables (
    id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    created_us BIGINT NOT NULL,
    dropped_us BIGINT,
    schema_version BIGINT NOT NULL,
    settings_seq BIGINT NOT NULL,
    PRIMARY KEY (id)
);
CREATE UNIQUE INDEX tables_by_name ON tables (namespace, name) WHERE dropped_us IS NULL;

CREATE TABLE schemas (
    table_id TEXT NOT NULL,
    version BIGINT NOT NULL,
    body TEXT NOT NULL,
    checksum BIGINT,
    PRIMARY KEY (table_id, version)
) KEYED;

CREATE TABLE settings (
    table_id TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    body TEXT NOT NULL,
    checksum BIGINT,
    PRIMARY KEY (table_id, sequence)
) KEYED;

-- Every commit updates its scope's row: there is room to do it in place.
CREATE TABLE scopes (
    id SERIAL NOT NULL,
    table_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    snapshot_id TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (table_id, user_id)
) ROOMY;

-- Of its commits, in order: how many extents and hot batches each added. See contributions.
CREATE TABLE snapshots (
    scope_id BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    id TEXT NOT NULL,
    parent_id TEXT,
    committed_us BIGINT NOT NULL,
    operation TEXT NOT NULL,
    schema_version BIGINT NOT NULL,
    counts TEXT NOT NULL,
    coverage_key TEXT,
    coverage_as_of BIGINT,
    checksum BIGINT,
    commits TEXT,
    commits_checksum BIGINT,
    PRIMARY KEY (scope_id, sequence)
) KEYED;
CREATE INDEX snapshots_by_id ON snapshots (id);
CREATE INDEX snapshots_by_time ON snapshots (scope_id, committed_us);

-- See tables.ordinal_of and tables.span_of.
CREATE TABLE extents (
    scope_id BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    id TEXT NOT NULL,
    key TEXT NOT NULL,
    format TEXT NOT NULL,
    byte_size BIGINT NOT NULL,
    row_count BIGINT NOT NULL,
    block_count BIGINT NOT NULL,
    min_ts_ns BIGINT NOT NULL,
    max_ts_ns BIGINT NOT NULL,
    span BIGINT NOT NULL,
    schema_version BIGINT NOT NULL,
    level BIGINT NOT NULL,
    added_seq BIGINT NOT NULL,
    removed_seq BIGINT,
    coverage_key TEXT,
    present_paths TEXT NOT NULL,
    checksum BIGINT,
    first_seq BIGINT,
    unpacked_bytes BIGINT,
    PRIMARY KEY (scope_id, ordinal),
    UNIQUE (scope_id, id)
) KEYED;
CREATE INDEX live_extents_by_time ON extents (scope_id, span, max_ts_ns, min_ts_ns) WHERE removed_seq IS NULL;
CREATE INDEX gone_extents ON extents (scope_id, removed_seq) WHERE removed_seq IS NOT NULL;

-- What is known of each column of an extent: bounds that SQL compares, and all of it as JSON.
CREATE TABLE extent_columns (
    scope_id BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    name TEXT NOT NULL,
    least_whole BIGINT,
    most_whole BIGINT,
    least_real DOUBLE PRECISION,
    most_real DOUBLE PRECISION,
    least_text BYTE ORDERED TEXT,
    most_text BYTE ORDERED TEXT,
    body BYTES NOT NULL,
    checksum BIGINT,
    bounds_checksum BIGINT,
    PRIMARY KEY (scope_id, ordinal, name)
) KEYED;

CREATE TABLE hot_batches (
    scope_id BIGINT NOT NULL,
    ordinal BIGINT NOT NULL,
    id TEXT NOT NULL,
    rows BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    min_ts_ns BIGINT NOT NULL,
    max_ts_ns BIGINT NOT NULL,
    schema_version BIGINT NOT NULL,
    added_seq BIGINT NOT NULL,
    removed_seq BIGINT,
    payload BYTES NOT NULL,
    checksum BIGINT,
    first_seq BIGINT,
    PRIMARY KEY (scope_id, ordinal),
    UNIQUE (scope_id, id)
);
CREATE INDEX live_hot ON hot_batches (scope_id, ordinal) WHERE removed_seq IS NULL;
CREATE INDEX gone_hot ON hot_batches (scope_id, removed_seq) WHERE removed_seq IS NOT NULL;

CREATE TABLE receipts (
    commit_id TEXT NOT NULL,
    scope_id BIGINT NOT NULL,
    snapshot_id TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    committed_us BIGINT NOT NULL,
    rows BIGINT NOT NULL,
    extents BIGINT NOT NULL,
    checksum BIGINT,
    PRIMARY KEY (commit_id)
) KEYED;

CREATE TABLE commit_keys (
    scope_id BIGINT NOT NULL,
    key TEXT NOT NULL,
    commit_id TEXT NOT NULL,
    committed_us BIGINT NOT NULL,
    checksum BIGINT,
    PRIMARY KEY (scope_id, key)
) KEYED;
-- A key that is damaged is not found as it is, but here.
CREATE INDEX commit_keys_by_checksum ON commit_keys (scope_id, checksum);

CREATE TABLE offsets (
    scope_id BIGINT NOT NULL,
    stream TEXT NOT NULL,
    batch BIGINT NOT NULL,
    batch_checksum BIGINT,
    PRIMARY KEY (scope_id, stream)
) KEYED;

CREATE TABLE pins (
    scope_id BIGINT NOT NULL,
    name TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    checksum BIGINT,
    PRIMARY KEY (scope_id, name)
) KEYED;
CREATE INDEX pins_by_sequence ON pins (scope_id, sequence);

-- The lowest sequence that a process reads: it may read any that is higher.
CREATE TABLE leases (
    scope_id BIGINT NOT NULL,
    owner TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    until_us BIGINT NOT NULL,
    PRIMARY KEY (scope_id, owner)
) KEYED;

-- A retained snapshot whose successor has expired, and when that one had followed it.
CREATE TABLE gaps (
    scope_id BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    ended_us BIGINT NOT NULL,
    checksum BIGINT,
    PRIMARY KEY (scope_id, sequence)
) KEYED;

CREATE TABLE pending (
    key TEXT NOT NULL,
    table_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    since_us BIGINT NOT NULL,
    PRIMARY KEY (key)
) KEYED;

CREATE TABLE garbage (
    key TEXT NOT NULL,
    table_id TEXT NOT NULL,
    since_us BIGINT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (key)
) KEYED;

-- Kept when a table goes: another of its name must not use a number again.
CREATE TABLE segments (
    folder TEXT NOT NULL,
    next_number BIGINT NOT NULL,
    PRIMARY KEY (folder)
) KEYED;

-- Of users alone: a table's shared scope is looked at whenever its table is.
CREATE TABLE due_scopes (
    scope_id BIGINT NOT NULL,
    table_id TEXT NOT NULL,
    look_us BIGINT NOT NULL,
    PRIMARY KEY (scope_id)
) KEYED;
CREATE INDEX due_scopes_by_time ON due_scopes (table_id, look_us, scope_id);

CREATE TABLE work_units (
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    payload TEXT NOT NULL,
    state TEXT NOT NULL,
    priority BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    token BIGINT NOT NULL,
    owner TEXT,
    ready_us BIGINT NOT NULL,
    lease_until_us BIGINT,
    created_us BIGINT NOT NULL,
    updated_us BIGINT NOT NULL,
    error TEXT,
    PRIMARY KEY (id)
);
CREATE UNIQUE INDEX open_work_units ON work_units (kind, key) WHERE state IN ('queued', 'leased');
"""

# Tables that catalogs of the same version may lack, because an earlier program made them: see ``setup.add_later``.
LATER = ("pins", "leases", "gaps")
SCOPED = ("segments", "due_scopes")  # and later still: those that tables of users and tables with a key need
# Besides checksums; no column that was there at first has such a name.
_LATER_COLUMNS = {
    ("snapshots", "commits"),
    ("extents", "first_seq"),
    ("extents", "unpacked_bytes"),
    ("hot_batches", "first_seq"),
}

_STATEMENTS = tuple(part.strip() for part in _LAYOUT.split(";") if part.strip())


def creation(*, is_sqlite: bool, only: Sequence[str] | None = None) -> list[str]:
    """Return the statements that make all of it, or only some tables, in a database's own words."""
    words = _SQLITE if is_sqlite else _POSTGRES
    wanted = [text for text in _STATEMENTS if only is None or _table_of(text) in only]
    return [_OWN_WORDS.sub(lambda found: words[found[0]], statement) for statement in wanted]


def later_columns() -> list[tuple[str, str, str]]:
    """Return the columns that came after a version's first, of tables that were there: table, column and type."""
    return [
        (table, name, type)
        for text in _STATEMENTS
        if "CREATE TABLE" in text and (table := _table_of(text)) not in (*LATER, *SCOPED)
        for name, type in _COLUMN.findall(text)
        if name.endswith("checksum") or (table, name) in _LATER_COLUMNS
    ]


def checksum_indexes() -> list[str]:
    """Return the statements that make the indexes of checksums, unless they are there."""
    return [
        text[text.index("CREATE INDEX") :].replace("CREATE INDEX", "CREATE INDEX IF NOT EXISTS")
        for text in _STATEMENTS
        if re.search(r"CREATE INDEX .*checksum\)$", text)
    ]


def columns_of(table: str) -> tuple[str, ...]:
    """Name the columns of a table, in order."""
    (definition,) = (text for text in _STATEMENTS if f"CREATE TABLE {table} (" in text)
    return tuple(name for name, _ in _COLUMN.findall(definition))


def _table_of(statement: str) -> str:
    """Name the table that a statement makes, or makes an index of."""
    found = re.search(r"CREATE TABLE (\w+)|INDEX \w+ ON (\w+)", statement)
    assert found is not None
    return found[1] or found[2]


def insert_into(table: str, *left_out: str) -> str:
    """Return the statement that adds a row, with a value for every column but those left out."""
    names = [name for name in columns_of(table) if name not in left_out]
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"
