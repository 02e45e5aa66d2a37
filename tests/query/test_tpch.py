"""Ask the 22 queries of TPC-H on both engines, against the answers that the benchmark's generator publishes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tidelake
from tests.support.tpch import TABLES, tpch
from tidelake import Lake

SCALE = 0.01
NUMBERS = range(1, 23)
HEAVY = (2, 3, 5, 7, 8, 9, 10, 11, 16, 17, 18, 20, 21)  # joins and subqueries: Spark plans each for seconds
TIMES = {"orders": "o_orderdate", "lineitem": "l_shipdate"}
# A sum of reals depends on the order of its terms, and the query compares two such sums.
ROUNDED = {15: ("sum(l_extendedprice * (1 - l_discount))", "round(sum(l_extendedprice * (1 - l_discount)), 4)")}


@pytest.fixture(scope="module")
def made() -> Path:
    return tpch(SCALE)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, made: Path) -> Iterator[Lake]:
    """Yield a lake with the tables, each in an extent and some rows hot."""
    with tidelake.connect(tmp_path_factory.mktemp("tpch")) as lake:
        for name in TABLES:
            rows = pq.read_table(made / f"{name}.parquet")
            schema = tidelake.Schema.from_arrow(rows.schema)
            held = lake.create_table(name, schema, time=TIMES.get(name), flush_age="off")
            size = max(1, rows.num_rows * 4 // 5)
            held.append(rows.slice(0, size))
            held.flush()
            held.append(rows.slice(size))
        yield lake


def asked(made: Path, number: int) -> tuple[str, list[list[str]]]:
    """Return a query's text and its published answer."""
    found = json.loads((made / "queries.json").read_text())[str(number)]
    text = str(found["query"]).strip().removesuffix(";")
    if number in ROUNDED:
        assert ROUNDED[number][0] in text
        text = text.replace(*ROUNDED[number])
    lines = str(found["answer"]).split("\n")
    width = lines[0].count("|")
    return text, [line.split("|") for line in lines[1:] if line or width == 0][: len(lines) - 2]


def check(found: pa.Table, expected: list[list[str]]) -> None:
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    wrong = [
        (row, wanted)
        for row, wanted in zip(rows, expected, strict=True)
        if not all(map(_same, row, wanted)) or len(row) != len(wanted)
    ]
    assert wrong == []


def _same(value: Any, wanted: str) -> bool:
    match value:
        case None:
            return wanted == ""
        case datetime():
            return f"{value:%Y-%m-%d}" == wanted
        case float() | int():
            return math.isclose(value, float(wanted), rel_tol=1e-9)
        case _:
            return str(value) == wanted


@pytest.mark.parametrize("number", NUMBERS)
def test_tpch_in_process_gives_the_published_answer(number: int, lake: Lake, made: Path) -> None:
    text, expected = asked(made, number)
    check(lake.sql(text, engine="local").to_arrow(), expected)


@pytest.mark.parametrize("number", [pytest.param(n, marks=pytest.mark.torture) if n in HEAVY else n for n in NUMBERS])
def test_tpch_on_spark_gives_the_published_answer(
    number: int, lake: Lake, made: Path, quick_spark: SparkSession
) -> None:
    text, expected = asked(made, number)
    check(lake.sql(text, engine="spark").to_arrow(), expected)
