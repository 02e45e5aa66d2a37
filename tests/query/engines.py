"""Run a lowered case on an engine, over the tables that all cases share.

It does not know what is expected.
"""

from __future__ import annotations

from typing import Any

import duckdb

from tests.query.cases import NOW, TABLES, Case, CaseTables, arrow_table, shown, texts_of
from tidelake.query.functions import register_duckdb, render
from tidelake.query.kql import lower
from tidelake.query.kql.results import unpacked


def connect_duckdb() -> duckdb.DuckDBPyConnection:
    """Give a connection in UTC that knows the portable functions and the shared tables."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    register_duckdb(connection)
    for name, (columns, _) in TABLES.items():
        namespace, _, short = name.rpartition(".")
        if namespace:
            connection.execute(f"CREATE SCHEMA {namespace}")
        connection.register("arrow_rows", arrow_table(name))
        chosen = ", ".join(f"CAST({c} AS JSON) AS {c}" if kind == "dynamic" else c for c, kind in columns.items())
        connection.execute(f"CREATE TABLE {name} AS SELECT {chosen} FROM arrow_rows")
        connection.unregister("arrow_rows")
        del short
    return connection


def run_duckdb(connection: duckdb.DuckDBPyConnection, case: Case) -> tuple[str, list[str]]:
    """Give a case's columns and rows as text."""
    lowered = lower(case.query, CaseTables(), now=NOW)
    result = connection.sql(render(lowered.tree, "duckdb")).to_arrow_table()
    table, columns = unpacked(lowered, result)
    values = [[shown(value, kind) for value in table.column(at).to_pylist()] for at, (_, kind) in enumerate(columns)]
    rows = [list(row) for row in zip(*values, strict=True)]
    return ", ".join(f"{name}:{kind}" for name, kind in columns), texts_of(rows, ordered=case.ordered)
