"""Read rows of PostgreSQL for one query: the columns, conditions and limit that it asks for.

It is done in a read-only transaction. Only tables that were attached are ever named, and only as quoted identifiers.
What is read lives for one query, and is bounded. It does not keep anything at the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from psycopg import sql

from tidelake.connectors.postgres.catalog import PgCatalog
from tidelake.connectors.postgres.conditions import condition_of
from tidelake.connectors.postgres.connecting import connect, told_apart
from tidelake.connectors.postgres.copying import copied_query
from tidelake.connectors.protocol import SourceTable
from tidelake.errors import UnavailableError
from tidelake.model.predicate import Predicate

TIMEOUT_S = 60
MAX_BYTES = 256 << 20  # larger questions are for a synced copy


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
            if limit is not None and (where is None or (found is not None and found[1])):
                query += sql.SQL(" LIMIT {}").format(sql.Literal(limit))
            batches, size = [], 0
            for _, batch in copied_query(connection, query, columns, [types[name] for name in columns]):
                batches.append(batch)
                size += batch.nbytes
                if size > MAX_BYTES:
                    raise UnavailableError(
                        "the source has too many rows for one question: ask for fewer, or sync the table",
                        table=table, bytes=MAX_BYTES, kind="read_budget",
                    )  # fmt: skip
            return batches, query.as_string(connection)
