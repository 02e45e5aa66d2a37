"""Ask MySQL or MariaDB which tables, columns, types and keys there are, and where its binlog is.

It does not read rows.
"""

from __future__ import annotations

import re
from typing import Any

import pymysql

from tidelake.connectors.mysql.types import MyType, data_type, type_named
from tidelake.connectors.protocol import SourceTable
from tidelake.errors import InvalidInputError

FILE_BITS = 32  # of a position that are the place in a file of the binlog; the others are the file's number
_FILE = re.compile(r"(.+)\.([0-9]+)")
_SYSTEM = "('mysql', 'information_schema', 'performance_schema', 'sys')"
_TABLES = f"""
SELECT t.TABLE_SCHEMA, t.TABLE_NAME, s.COLUMN_NAME FROM information_schema.TABLES t
LEFT JOIN information_schema.STATISTICS s ON s.TABLE_SCHEMA = t.TABLE_SCHEMA AND s.TABLE_NAME = t.TABLE_NAME
  AND s.INDEX_NAME = 'PRIMARY'
WHERE t.TABLE_TYPE = 'BASE TABLE' AND t.TABLE_SCHEMA NOT IN {_SYSTEM}
"""
_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, NUMERIC_PRECISION, NUMERIC_SCALE, EXTRA FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_CHECKS = """
SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s AND CHECK_CLAUSE LIKE 'json\\_valid(%%'
"""
_JSON = re.compile(r"json_valid\(`((?:[^`]|``)+)`\)", re.IGNORECASE)


def quoted(table: str) -> str:
    """Write ``database.table`` as an identifier."""
    return ".".join(map(identifier, table.split(".", 1)))


def identifier(name: str) -> str:
    """Write a name as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def position_of(file: str, place: int) -> int:
    """Return a place in the binlog as a number that rises."""
    found = _FILE.fullmatch(file)
    if found is None:
        raise InvalidInputError("a file of the binlog has no number", file=file, kind="bad_binlog")
    return (int(found[2]) << FILE_BITS) + place


class MyCatalog:
    """What one connection tells of a server."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._connection = connection

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self._connection.get_server_info().lower()

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the answer of a query."""
        with self._connection.cursor() as cursor:
            cursor.execute(query, values or None)
            return [tuple(row) for row in cursor.fetchall()]

    def variable(self, name: str) -> str | None:
        """Return a setting of the server; None if it has none of the name."""
        found = self.rows("SHOW GLOBAL VARIABLES WHERE Variable_name = %s", name)
        return str(found[0][1]) if found else None

    def tables(self, database: str | None = None) -> dict[str, tuple[str, ...]]:
        """Return all tables, or those of a database, and the columns that name a row of each."""
        which = " AND t.TABLE_SCHEMA = %s" if database else ""
        found: dict[str, tuple[str, ...]] = {}
        order = " ORDER BY t.TABLE_SCHEMA, t.TABLE_NAME, s.SEQ_IN_INDEX"
        for schema, table, column in self.rows(_TABLES + which + order, *([database] if database else [])):
            held = found.setdefault(f"{schema}.{table}", ())
            found[f"{schema}.{table}"] = (*held, column) if column else held
        return found

    def key_of(self, table: str) -> tuple[str, ...]:
        """Return the columns that name a row."""
        which = " AND t.TABLE_SCHEMA = %s AND t.TABLE_NAME = %s ORDER BY s.SEQ_IN_INDEX"
        return tuple(row[2] for row in self.rows(_TABLES + which, *table.split(".", 1)) if row[2])

    def columns(self, table: str) -> dict[str, MyType]:
        """Return the columns of a table that hold values of their own, and their types."""
        parts = table.split(".", 1)
        checks = self.rows(_CHECKS, *parts) if self.is_mariadb else []
        texts = {each[1].replace("``", "`") for (clause,) in checks if (each := _JSON.fullmatch(clause.strip()))}
        found: dict[str, MyType] = {}
        for name, kind, written, precision, scale, extra in self.rows(_COLUMNS, *parts):
            if _is_generated(extra):
                continue
            found[name] = type_named(
                kind.lower(), written.lower(), precision, scale, is_json=kind.lower() == "json" or name in texts
            )
        return found

    def generated(self, table: str) -> frozenset[str]:
        """Return the columns of a table that are computed from others."""
        return frozenset(row[0] for row in self.rows(_COLUMNS, *table.split(".", 1)) if _is_generated(row[5]))

    def described(self, table: str) -> SourceTable:
        """Return a table in the lake's types."""
        columns = {name: data_type(kind) for name, kind in self.columns(table).items()}
        return SourceTable(table, columns, self.key_of(table))

    def binlog(self) -> tuple[str, int]:
        """Return the file that the server writes now, and how far it is."""
        try:
            found = self.rows("SHOW MASTER STATUS")
        except pymysql.err.ProgrammingError:  # MySQL 8.4 has another word for it
            found = self.rows("SHOW BINARY LOG STATUS")
        if not found:
            raise InvalidInputError("the server writes no binlog: set log_bin and restart it", kind="no_binlog")
        return str(found[0][0]), int(found[0][1])

    def files(self) -> list[tuple[str, int]]:
        """Return the files of the binlog that the server still has, and their sizes."""
        return [(str(row[0]), int(row[1])) for row in self.rows("SHOW BINARY LOGS")]


def _is_generated(extra: str | None) -> bool:
    words = (extra or "").upper()
    return "GENERATED" in words and "DEFAULT_GENERATED" not in words
