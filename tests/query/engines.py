"""Run a lowered case on an engine, over the tables that all cases share.

It does not know what is expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from tests.query.cases import NOW, TABLES, Case, CaseTables, arrow_table, shown, texts_of
from tidelake.query.functions.registry import register_duckdb
from tidelake.query.functions.rendering import render
from tidelake.query.kql import Lowered, lower
from tidelake.query.kql.results import unpacked


def connect_duckdb() -> duckdb.DuckDBPyConnection:
    """Return a connection in UTC that knows the portable functions and the shared tables."""
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
    """Return a case's columns and rows as text."""
    lowered = lower(case.query, CaseTables(), now=NOW)
    result = connection.sql(render(lowered.tree, "duckdb")).to_arrow_table()
    table, columns = unpacked(lowered, result)
    values = [[shown(value, kind) for value in table.column(at).to_pylist()] for at, (_, kind) in enumerate(columns)]
    rows = [list(row) for row in zip(*values, strict=True)]
    return ", ".join(f"{name}:{kind}" for name, kind in columns), texts_of(rows, ordered=case.ordered)


def run_spark(session: Any, cases: Sequence[Case]) -> list[tuple[str, list[str]]]:
    """Return many cases' columns and rows as text, by one job: each row as JSON, under its case's number.

    A bag that is to be unpacked stays whole here, so such a case runs on its own.
    """
    lowered = [lower(case.query, CaseTables(), now=NOW) for case in cases]
    parts = [_rows_query(at, each) for at, each in enumerate(lowered)]
    found: list[list[tuple[int, list[str | None]]]] = [[] for _ in cases]
    for row in session.sql("\nUNION ALL\n".join(parts)).collect():
        found[row["case"]].append((row["place"], list(row["cells"])))
    answers = []
    for case, each, rows in zip(cases, lowered, found, strict=True):
        rows.sort(key=lambda row: row[0])
        names = [name for name, _ in each.columns]
        table = pa.table(
            [pa.array([cells[at] for _, cells in rows], pa.string()) for at in range(len(names))], names=names
        )
        kinds = dict(each.columns)
        table, columns = unpacked(each, table)
        values = [
            [value if name not in kinds else _read(value, kind) for value in table.column(at).to_pylist()]
            for at, (name, kind) in enumerate(columns)
        ]
        shown_rows = [
            [shown(v, kind) for v, (_, kind) in zip(row, columns, strict=True)] for row in zip(*values, strict=True)
        ]
        header = ", ".join(f"{name}:{kind}" for name, kind in columns)
        answers.append((header, texts_of(shown_rows, ordered=case.ordered)))
    return answers


def _rows_query(at: int, lowered: Lowered) -> str:
    """Write a query that gives each row as an array of texts, with its place in the order."""
    tree = lowered.tree.copy()
    order = tree.args.get("order")
    tree.set("order", None)
    keys = list(order.expressions) if order else [exp.Ordered(this=exp.Null())]
    window = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=[key.copy() for key in keys]))
    cells = [_cell(item.this, kind) for item, (_, kind) in zip(tree.expressions, lowered.columns, strict=True)]
    tree.set(
        "expressions",
        [
            exp.alias_(exp.Literal.number(at), "case"),
            exp.alias_(exp.Cast(this=window, to=exp.DataType.build("BIGINT")), "place"),
            exp.alias_(exp.Anonymous(this="array", expressions=cells), "cells"),
        ],
    )
    for table in tree.find_all(exp.Table):
        if table.db:  # a view of a session has no namespace
            table.set("this", exp.to_identifier(f"{table.db}_{table.name}", quoted=True))
            table.set("db", None)
    return f"SELECT * FROM ({render(tree, 'spark')})"


def _cell(sql: exp.Expr, kind: str) -> exp.Expr:
    if kind == "dynamic":
        return exp.Anonymous(this="to_json", expressions=[sql])
    if kind == "datetime":
        sql = exp.Anonymous(this="unix_micros", expressions=[sql])
    return exp.Cast(this=sql, to=exp.DataType.build("TEXT"))


def _read(text: str | None, kind: str) -> Any:
    if text is None or kind in ("dynamic", "string", "timespan", "guid"):
        return text
    if kind == "bool":
        return text == "true"
    if kind == "datetime":
        return datetime.fromtimestamp(int(text) // 1_000_000, UTC).replace(microsecond=int(text) % 1_000_000)
    return int(text) if kind in ("int", "long") else float(text)
