"""Columns that are read as dictionaries say what they say when they are read as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.lake import Lake
from tidelake.scan.extents import scan

ASKED = ("ts", "host", "labels", "n")
ENCODED = frozenset({"host", "labels"})


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as held:
        yield held


def rows(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "ts": f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z",
            "host": None if at % 7 == 0 else f"h{at % 3}",
            "labels": None if at % 5 == 0 else {"job": f"j{at % 4}", "n": at % 2},
            "n": at,
        }
        | more
        for at in range(first, first + count)
    ]


def read(lake: Lake, where: str | None, encoded: frozenset[str]) -> list[pa.RecordBatch]:
    handle = lake.table("t").handle
    plan = handle.plan(ASKED, where)
    return list(scan(replace(plan, question=replace(plan.question, encoded=encoded)), handle.footers))


@pytest.mark.parametrize("format", ["tlm3", "tlm2", "parquet"])
@pytest.mark.parametrize("where", [None, "n >= 30 and n < 95", "host = 'h1'", "n < 0"])
def test_columns_read_as_dictionaries_say_the_same(lake: Lake, format: str, where: str | None) -> None:
    columns = {"ts": "timestamp", "host": "string", "labels": "dynamic", "n": "long"}
    table = lake.create_table("t", columns, time="ts", format=format, flush_age="off")
    for first in (0, 50):
        table.append(rows(first, 50))
        table.flush()
    table.append(rows(100, 10))
    for _ in range(3):  # the second and third time from what is kept
        plain, given = read(lake, where, frozenset()), read(lake, where, ENCODED)
        assert all(pa.types.is_dictionary(batch.column(name).type) for batch in given for name in ENCODED)
        assert [row for batch in given for row in batch.to_pylist()] == [
            row for batch in plain for row in batch.to_pylist()
        ]
    assert (sum(batch.num_rows for batch in plain) > 0) == (where != "n < 0")


def test_columns_that_were_widened_are_read_as_dictionaries_too(lake: Lake) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "n": "long", "labels": "dynamic"}, time="ts", flush_age="off")
    table.append([{"ts": "2026-01-01T00:00:00Z", "n": 1, "labels": {"a": 1}}])
    table.flush()
    table.append(rows(1, 20))  # brings the column host
    table.flush()
    table.append([{"ts": "2026-01-01T00:02:00Z", "n": 5, "host": 7}])
    plain, given = read(lake, None, frozenset()), read(lake, None, ENCODED)
    assert [row for batch in given for row in batch.to_pylist()] == [
        row for batch in plain for row in batch.to_pylist()
    ]
    assert sum(batch.num_rows for batch in given) == 22
