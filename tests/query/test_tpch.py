"""Ask the 22 queries of TPC-H on both engines, against plain DuckDB on the same rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from pyspark.sql import SparkSession

import tidelake
from tests.query.tpch import tables
from tidelake import Lake

QUERIES = {
    int(path.stem): path.read_text() for path in sorted((Path(__file__).parents[1] / "cases/tpch").glob("*.sql"))
}
TIMES = {"orders": "o_orderdate", "lineitem": "l_shipdate"}


@pytest.fixture(scope="module")
def rows() -> Mapping[str, pa.Table]:
    return tables()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, rows: Mapping[str, pa.Table]) -> Iterator[Lake]:
    """Give a lake with the tables, the large ones in several extents and some rows hot."""
    with tidelake.connect(tmp_path_factory.mktemp("tpch")) as lake:
        for name, table in rows.items():
            held = lake.create_table(f"tpch.{name}", tidelake.Schema.from_arrow(table.schema), time=TIMES.get(name))
            size = max(1, -(-table.num_rows // 3))
            for start in range(0, table.num_rows, size):
                held.append(table.slice(start, size))
                if start == 0:
                    held.flush()
        yield lake


@pytest.fixture(scope="module")
def oracle(rows: Mapping[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give plain DuckDB with the same rows."""
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in rows.items():
            connection.register(name, table)
        yield connection


def asked(oracle: duckdb.DuckDBPyConnection, text: str) -> list[tuple[Any, ...]]:
    plain = sqlglot.transpile(re.sub(r"\btpch\.", "", text), read="spark", write="duckdb")[0]
    return oracle.sql(plain).fetchall()


def check(found: pa.Table, expected: list[tuple[Any, ...]]) -> None:
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        for value, other in zip(row, wanted, strict=True):
            if isinstance(other, float | int) and not isinstance(other, bool):
                assert math.isclose(value, other, rel_tol=1e-9), (row, wanted)
            else:
                assert str(value) == str(other), (row, wanted)


@pytest.mark.parametrize("number", QUERIES)
def test_tpch_in_process_is_right(number: int, lake: Lake, oracle: duckdb.DuckDBPyConnection) -> None:
    expected = asked(oracle, QUERIES[number])
    assert expected
    assert None not in expected[0], "the rows must be such that the query finds some"
    check(lake.sql(QUERIES[number], engine="local").to_arrow(), expected)


@pytest.mark.parametrize("number", QUERIES)
def test_tpch_on_spark_is_right(
    number: int, lake: Lake, oracle: duckdb.DuckDBPyConnection, quick_spark: SparkSession
) -> None:
    check(lake.sql(QUERIES[number], engine="spark").to_arrow(), asked(oracle, QUERIES[number]))


def test_there_are_all_22() -> None:
    assert list(QUERIES) == list(range(1, 23))
