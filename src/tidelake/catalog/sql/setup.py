"""Bring a database to the catalog's layout.

``layout`` has the tables themselves. It does not hold the queries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tidelake.catalog.protocol import Clock
from tidelake.catalog.sql import layout
from tidelake.catalog.sql.driver import Database, Row
from tidelake.errors import CorruptError, InvalidInputError, StorageError

VERSION = 1

CHECKED_BYTES = 16 << 20  # of a SQLite file whose soundness is checked when it is opened: 60 ms at most


def prepare(database: Database, clock: Clock) -> None:
    """Bring a database to this layout: make it, bring it forward, or refuse it. Safe when many do it at once."""
    if _version(database, database.query) == VERSION:
        _check_sound(database)
        _add_columns(database)
        return
    with database.writing() as transaction:
        if not database.is_sqlite:
            transaction.rows(_opening, {"opening": _OPENING})
        found = _version(database, transaction.rows)
        if found is None:
            if database.is_sqlite and transaction.rows(_sqlite_tables):
                raise InvalidInputError("the database is not a catalog", catalog=database.name, kind="not_a_catalog")
            for statement in layout.creation(is_sqlite=database.is_sqlite):
                transaction.run_text(statement)
            transaction.change(_insert_meta, {"version": VERSION, "created_us": clock()})
        elif found > VERSION:
            raise InvalidInputError(
                "the catalog was made by a newer tidelake",
                catalog=database.name,
                version=found,
                knows=VERSION,
                kind="newer_catalog",
            )
        elif found < VERSION:
            for version in range(found, VERSION):
                for statement in _MIGRATIONS[version]:
                    transaction.run_text(statement)
            transaction.change(_set_version, {"version": VERSION})


def _check_sound(database: Database) -> None:
    """Look for damage that rows do not show, such as an index that misses some of them, unless that takes long."""
    if database.is_sqlite and database.size_bytes <= CHECKED_BYTES:
        found = database.query(_integrity)
        if found != [("ok",)]:
            raise CorruptError(
                "the catalog is not a sound SQLite database: keep its files, and restore a copy",
                catalog=database.name,
                reason=found[0][0] if found else "no answer",
                kind="bad_catalog",
            )


def _add_columns(database: Database) -> None:
    """Give an older catalog the columns that came later; older processes do not mind.

    Without permission it stays as it is, and its statements leave the columns out.
    """
    wanted = layout.later_columns()
    there = _columns_named({column for _, column, _ in wanted}, is_sqlite=database.is_sqlite)
    found = set(database.query(there))
    if found.issuperset((table, column) for table, column, _ in wanted):
        return
    try:
        with database.writing() as transaction:
            if not database.is_sqlite:
                transaction.rows(_opening, {"opening": _OPENING})
            found = set(transaction.rows(there))
            for table, column, type in wanted:
                if (table, column) not in found:
                    transaction.run_text(f"ALTER TABLE {table} ADD COLUMN {column} {type}")
            for statement in layout.checksum_indexes():
                transaction.run_text(statement)
    except StorageError:
        database.leave_out({column for table, column, _ in wanted if (table, column) not in found})


def has_later(database: Database, rows: Callable[[str], list[Row]], tables: Sequence[str] = layout.LATER) -> bool:
    """Whether a catalog has tables that came after its version's first."""
    has_table = _sqlite_has_meta if database.is_sqlite else _postgres_has_meta
    return bool(rows(has_table.replace("catalog_meta", tables[-1])))


def add_later(database: Database, tables: Sequence[str] = layout.LATER) -> None:
    """Give an older catalog tables that came after its version's first; older processes do not mind."""
    with database.writing() as transaction:
        if not database.is_sqlite:
            transaction.rows(_opening, {"opening": _OPENING})
        if not has_later(database, transaction.rows, tables):
            for statement in layout.creation(is_sqlite=database.is_sqlite, only=tables):
                transaction.run_text(statement)


_MIGRATIONS: dict[int, tuple[str, ...]] = {}  # by version, the statements that lead to the next; 1 is the first
_OPENING = 0x7469_6465_6C61_6B65  # "tidelake": the advisory lock of those who open a catalog

_meta = "SELECT version FROM catalog_meta"
_insert_meta = "INSERT INTO catalog_meta (version, created_us) VALUES (:version, :created_us)"
_set_version = "UPDATE catalog_meta SET version = :version"
_opening = "SELECT pg_advisory_xact_lock(:opening)"
_sqlite_tables = "SELECT name FROM sqlite_master"
_sqlite_has_meta = f"{_sqlite_tables} WHERE name = 'catalog_meta'"
_integrity = "PRAGMA integrity_check(1)"
_sqlite_columns = """
    SELECT t.name, c.name FROM sqlite_master AS t, pragma_table_info(t.name) AS c
    WHERE t.type = 'table' AND c.name IN"""
_postgres_columns = """
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = current_schema() AND column_name IN"""
# to_regclass would answer from a cache that may be older than the advisory lock
_postgres_has_meta = (
    "SELECT tablename FROM pg_tables WHERE tablename = 'catalog_meta' AND schemaname = current_schema()"
)


def _columns_named(names: Collection[str], *, is_sqlite: bool) -> str:
    """Return the statement that lists the tables that have columns of some names."""
    listed = ", ".join(f"'{name}'" for name in sorted(names))
    return f"{_sqlite_columns if is_sqlite else _postgres_columns} ({listed})"


def _version(database: Database, rows: Callable[[str], list[Row]]) -> int | None:
    """Return the version of a catalog, or None if there is none yet."""
    if not rows(_sqlite_has_meta if database.is_sqlite else _postgres_has_meta):
        return None
    found = rows(_meta)
    if len(found) != 1:
        raise CorruptError("the catalog does not say its version", catalog=database.name)
    version: int = found[0][0]
    return version
