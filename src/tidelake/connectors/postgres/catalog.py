"""Ask PostgreSQL which tables, columns, types and keys there are.

It does not read rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from tidelake.connectors.postgres.types import PgType, data_type
from tidelake.connectors.protocol import ColumnShape, SourceTable, TableShape
from tidelake.errors import InvalidInputError

# The columns that name a row: those of the index that is the replica identity, else of the primary key; none where
# updates and deletions are not told apart.
_KEYS = """
SELECT n.nspname || '.' || c.relname,
       CASE WHEN c.relreplident = 'n' THEN NULL ELSE (
         SELECT array_agg(a.attname::text ORDER BY k.place)
         FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(number, place), pg_attribute a
         WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND a.attnum = k.number AND k.place <= i.indnkeyatts
           AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END) END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_'
"""
_COLUMNS = """
SELECT attname::text, atttypid::int8, atttypmod FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_TYPES = """
WITH RECURSIVE wanted AS (
  SELECT oid AS asked, oid, typbasetype, typtypmod FROM pg_type WHERE oid = ANY(%s)
  UNION ALL
  SELECT w.asked, t.oid, t.typbasetype, CASE WHEN w.typtypmod >= 0 THEN w.typtypmod ELSE t.typtypmod END
  FROM wanted w JOIN pg_type t ON t.oid = w.typbasetype
)
SELECT w.asked::int8, t.typname::text, e.typname::text, w.typtypmod, e.typdelim::text
FROM wanted w JOIN pg_type t ON t.oid = w.oid
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A' WHERE w.typbasetype = 0
"""
_SHAPE = """
SELECT a.attname::text, a.attnum, a.atttypid || ':' || a.atttypmod,
       a.atthasmissing OR a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '', c.relfilenode::int8
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
"""


def quoted(name: str) -> str:
    """Write ``schema.table`` as an identifier."""
    schema, _, table = name.partition(".")
    return ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table))


class PgCatalog:
    """What one connection has learnt of a database."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._types: dict[int, PgType] = {}

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Return all tables, and the columns that name a row of each: none if rows cannot be told apart."""
        return {name: tuple(key or ()) for name, key in self._connection.execute(_KEYS + " ORDER BY 1")}

    def key_of(self, table: str) -> tuple[str, ...]:
        """Return the columns that name a row."""
        found = self._connection.execute(_KEYS + " AND n.nspname || '.' || c.relname = %s", [table]).fetchone()
        return () if found is None else tuple(found[1] or ())

    def described(self, table: str) -> SourceTable:
        """Return a table in the lake's types."""
        columns = self._connection.execute(_COLUMNS, [quoted(table)]).fetchall()
        types = self.types([(kind, modifier) for _, kind, modifier in columns])
        named = {name: data_type(kind) for (name, _, _), kind in zip(columns, types, strict=True)}
        return SourceTable(table, named, self.key_of(table))

    def types_of(self, table: str, columns: Sequence[str]) -> tuple[PgType, ...]:
        """Return the types of some columns of a table."""
        found = {name: (kind, modifier) for name, kind, modifier in self._connection.execute(_COLUMNS, [quoted(table)])}
        if missing := [name for name in columns if name not in found]:
            raise InvalidInputError("the source has no such column", table=table, column=missing[0], kind="no_column")
        return self.types([found[name] for name in columns])

    def types(self, asked: Sequence[tuple[int, int]]) -> tuple[PgType, ...]:
        """Return types by their ids and modifiers; one that is no more is text."""
        unknown = sorted({id for id, _ in asked} - self._types.keys())
        if unknown:
            for id, name, element, modifier, delimiter in self._connection.execute(_TYPES, [unknown]):
                self._types[id] = PgType(name, element, modifier, delimiter or ",")
        found = []
        for id, modifier in asked:
            kind = self._types.get(id, PgType("text"))
            own = modifier if modifier >= 0 else kind.modifier
            found.append(PgType(kind.name, kind.element, own, kind.delimiter))
        return tuple(found)

    def shape(self, table: str) -> TableShape:
        """Return how a table is kept now."""
        rows = self._connection.execute(_SHAPE, [quoted(table)]).fetchall()
        columns = {name: ColumnShape(number, kind, default) for name, number, kind, default, _ in rows}
        return TableShape(rows[0][4] if rows else 0, columns)
