"""Read rows of PostgreSQL for one query: the columns, conditions and limit that it asks for.

It is done in a read-only transaction. Only tables that were attached are ever named, and only as quoted identifiers.
It does not keep anything at the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from tidelake.connectors.in_place import TIMEOUT_S, gathered, limit_sent
from tidelake.connectors.postgres.catalog import PgCatalog
from tidelake.connectors.postgres.conditions import condition_of
from tidelake.connectors.postgres.connecting import connect, told_apart
from tidelake.connectors.postgres.copying import copied_query
from tidelake.connectors.protocol import SourceTable
from tidelake.model.predicate import Predicate


@dataclass(frozen=True, slots=True)
class PostgresReader:
    """A database of PostgreSQL, as queries read it."""

    url: str

    def describe(self, table: str) -> SourceTable:
        """Return a table's columns in the lake's types."""
        with told_apart(), connect(self.url) as connection:
            return PgCatalog(connection).described(table)

    def tables(self) -> list[str]:
        """Return the names of all tables."""
        with told_apart(), connect(self.url) as connection:
            return list(PgCatalog(connection).tables())

    def read(
        self, table: str, columns: Sequence[str], where: Predicate | None, limit: int | None
    ) -> tuple[list[pa.RecordBatch], str]:
        """Return rows that may match, and what was asked of the source."""
        with told_apart(), connect(self.url) as connection:
            connection.execute(f"SET statement_timeout = '{TIMEOUT_S}s'".encode())
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            pg = PgCatalog(connection)
            whole = pg.described(table)
            types = dict(zip(whole.columns, pg.types_of(table, tuple(whole.columns)), strict=True))
            found = condition_of(where, types)
            query = sql.SQL("SELECT {} FROM {}").format(
                sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(*table.split(".", 1))
            )
            if found is not None:
                query += sql.SQL(" WHERE ") + found[0]
            if (most := limit_sent(limit, where, is_exact=found is not None and found[1])) is not None:
                query += sql.SQL(" LIMIT {}").format(sql.Literal(most))
            rows = copied_query(connection, query, columns, [types[name] for name in columns])
            return gathered(table, (batch for _, batch in rows)), query.as_string(connection)
