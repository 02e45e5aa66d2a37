"""Hold scans of random tables to plain Python, to themselves without pruning, and to DuckDB.

A table grows by appends of rows whose fields come and go, change their type and nest; rows come late; some are hot,
some in extents of a few small blocks. What a scan gives must be what a person would choose by looking at every row.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelake
from tests.support.oracle import answers
from tests.support.rows import Row, exact, rows_of
from tests.support.strategies import DOCUMENTS, WORDS, Case, examples, predicates
from tidelake import dynamic
from tidelake.errors import QueryError
from tidelake.lake import Lake
from tidelake.model.predicate import (
    And,
    Equals,
    InSet,
    IsNull,
    Not,
    Or,
    Predicate,
    Range,
    StartsWith,
    StringContains,
    TimeRange,
)
from tidelake.model.schema import Schema
from tidelake.scan import block_reading
from tidelake.scan.binding import check
from tidelake.table import Table
from tidelake.write import appender, drift, stager

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = {
    "ts": "timestamp",
    "id": "long",
    "s": "string",
    "n": "int",
    "r": "real",
    "b": "bool",
    "d": "dynamic",
    "v": "vector(3)",
}
POOLS: dict[str, list[Any]] = {  # what fits each column, and what does not
    "s": [*WORDS[:16], "connection timeout by peer", None, 5, True, {"a": 1}],
    "n": [0, 1, -1, 7, 2**31 - 1, 2**31, -(2**40), None, "seven", 2.0, 2.5, 2**70],
    "r": [0.0, -0.0, 1.5, -2.5, math.nan, math.inf, 3, 2**53 + 1, None, "x", False],
    "b": [True, False, None, 1, "true"],
    "d": [*DOCUMENTS, None, 5, "plain", [1, 2], {"big": 2**80, "when": NOON, "raw": b"\x00"}],
    "v": [[1.0, 0.0, 0.0], [0.0, 2.0, 0.5], [0.0, 0.0, 0.0], [-3.0, 1.0, 1.0], None],
    "x": [1, 2**40, 2.5, "fresh", True, None, {"deep": [1]}],
    "y": [{"z": 1}, {"z": "one"}, [1, 2], None],
}
TIMES = [NOON + timedelta(hours=n) for n in range(12)] + [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 1, 1, tzinfo=UTC),
]


@dataclass(frozen=True, slots=True)
class Step:
    """One append: its rows, whether they stay hot, and whether all hot rows are flushed after it."""

    rows: list[dict[str, Any]]
    hot: bool
    flush: bool


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Draw a table's life. Each append has its own taste, so that extents differ and statistics tell them apart."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    steps: list[Step] = []
    number = 0
    for _ in range(draw(st.integers(1, 6))):
        tastes = {name: chance.sample(pool, chance.randint(1, min(4, len(pool)))) for name, pool in POOLS.items()}
        times = chance.sample(TIMES, 3)
        fields = [name for name in POOLS if chance.random() < 0.7]
        rows = []
        for _ in range(chance.randint(1, 14)):
            values = {name: chance.choice(tastes[name]) for name in fields}
            late = timedelta(seconds=chance.randint(0, 50))
            rows.append({"ts": chance.choice(times) + late, "id": number, **values})
            number += 1
        steps.append(Step(rows, hot=chance.random() < 0.5, flush=chance.random() < 0.3))
    return steps


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with tidelake.connect(tmp_path_factory.mktemp("oracle") / "lake") as opened:
        yield opened


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


_made = iter(range(10**9))


def build(lake: Lake, steps: list[Step], form: str) -> Table:
    """Live through a table's life, with blocks of a few rows."""
    made = lake.create_table(f"t{next(_made)}", COLUMNS, time="ts", format=form, flush_age="off")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stager, "BLOCK_ROWS", 4)
        patch.setattr(stager, "MIN_BLOCK_ROWS", 1)
        patch.setattr(drift, "MIN_MISFITS", 10**9)  # what becomes dynamic has a test of its own
        for step in steps:
            patch.setattr(appender, "HOT_ROWS", 1_000 if step.hot else 0)
            made.append(step.rows)
            if step.flush:
                made.flush()
    return made


def as_read(value: Any, kind: str) -> Any:
    """Return a value as its column gives it: what it holds without loss, else null."""
    match kind:
        case "int" | "long" if type(value) in (int, float) and math.isfinite(value) and value == int(value):
            limit = 2**31 if kind == "int" else 2**63
            return int(value) if -limit <= value < limit else None
        case "real" if type(value) is float or (type(value) is int and abs(value) < 2**1000):
            return float(value) if math.isnan(value) or float(value) == value else None
        case "bool" if type(value) is bool:
            return value
        case "string" if isinstance(value, str | bool | int | float):
            return value if isinstance(value, str) else json.dumps(value)
        case "timestamp" if isinstance(value, datetime):
            return (value - EPOCH) // timedelta(microseconds=1)
        case "dynamic":
            return None if value is None else dynamic.encode(value)
        case "vector(3)" if value is not None:
            return tuple(np.array(value, dtype=np.float32).tolist())
        case _:
            return None


def model_of(steps: list[Step], made: Table) -> list[Row]:
    """Return every row as it must be read; that the overflow column lost nothing is checked on the way."""
    schema = made.schema
    found = {row["id"]: row for row in read(made, None, prune=False)}
    model = []
    for raw in (row for step in steps for row in step.rows):
        row = {column.name: as_read(raw.get(column.name), str(column.type)) for column in schema}
        if "_overflow" in schema:
            row["_overflow"] = found[raw["id"]]["_overflow"]
        held = {} if row.get("_overflow") is None else dynamic.decode(row["_overflow"])
        for name, value in raw.items():
            if value is not None and name not in held:
                assert row[name] is not None, (name, value)
        assert {name: dynamic.encode(value) for name, value in held.items()} == {
            name: dynamic.encode(raw[name]) for name in held
        }
        model.append(row)
    return model


def read(made: Table, where: Predicate | None, *, prune: bool = True) -> list[Row]:
    reader = made.scan(None, where, prune=prune, dynamic="cbor")
    batches = [batch for batch in reader if batch.num_rows]
    return [
        row for batch in batches for row in rows_of(pa.RecordBatch.from_arrays(batch.columns, names=batch.schema.names))
    ]


def ids(rows: list[Row]) -> list[int]:
    return sorted(row["id"] for row in rows)


def pools_of(schema: Schema, model: list[Row]) -> dict[str, list[Any]]:
    return {column.name: [row[column.name] for row in model] for column in schema}


def run(lake: Lake, duck: duckdb.DuckDBPyConnection, form: str, count: int) -> None:
    """Ask random questions of random tables, and see that pruning did something."""
    seen = {"asked": 0, "pruned": 0, "duck": 0}

    @examples(count)
    @given(histories(), st.data())
    def holds(steps: list[Step], data: st.DataObject) -> None:
        made = build(lake, steps, form)
        model = model_of(steps, made)
        assert exact(sorted(read(made, None), key=lambda row: row["id"])) == exact(model)
        ordered = made.scan(["ts"], ordered=True).read_all()["ts"].cast(pa.int64()).to_pylist()
        assert ordered == sorted(row["ts"] for row in model)
        case = Case(made.schema, model, {name: [row[name] for row in model] for name in made.schema.names})
        unpruned, blocks = made.scan(prune=False).read_all(), sum(extent.block_count for extent in made.extents())
        for where in data.draw(st.lists(predicates(case), min_size=10, max_size=10)):
            try:
                check(where, made.schema)
            except QueryError:
                continue
            compare(made, where, model)
            seen["asked"] += 1
            seen["pruned"] += blocks - (made.plan(where=where).stages[-1].blocks or 0)
            seen["duck"] += agrees_with_duckdb(duck, made, where, unpruned)

    holds()
    assert seen["asked"] > count * 4
    assert seen["pruned"] > count * 4
    assert seen["duck"] > count


@pytest.mark.parametrize("form", ["tlm2", "tlm3", "parquet"])
def test_scan_gives_the_rows_that_plain_python_chooses(lake: Lake, duck: duckdb.DuckDBPyConnection, form: str) -> None:
    run(lake, duck, form, 10)


@pytest.mark.torture
@pytest.mark.parametrize("form", ["tlm2", "tlm3", "parquet"])
def test_scan_gives_the_rows_that_plain_python_chooses_for_long(
    lake: Lake, duck: duckdb.DuckDBPyConnection, form: str
) -> None:
    run(lake, duck, form, 400)


def compare(made: Table, where: Predicate, model: list[Row]) -> None:
    """Compare a scan with what each row of the model answers, and with a scan that prunes nothing."""
    found, full = ids(read(made, where)), ids(read(made, where, prune=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_reading, "LATE_BYTES", 0)
        late = read(made, where)
    assert exact(late) == exact(read(made, where))
    assert found == full, where
    wanted = {row["id"]: answers(where, row, made.schema) for row in model}
    assert [number for number in wanted if number in set(found) and True not in wanted[number]] == [], where
    assert [number for number in wanted if number not in set(found) and wanted[number] == {True}] == [], where


def agrees_with_duckdb(duck: duckdb.DuckDBPyConnection, made: Table, where: Predicate, rows: pa.Table) -> int:
    """Ask DuckDB the same of all rows, where it has the words for it."""
    values: list[Any] = []
    said = in_sql(where, made.schema, values)
    if said is None:
        return 0
    duck.register("everything", rows)
    theirs = duck.execute(f"SELECT id FROM everything WHERE {said} ORDER BY id", values).fetchall()
    duck.unregister("everything")
    assert ids(read(made, where)) == [row[0] for row in theirs], (where, said, values)
    return 1


def in_sql(where: Predicate, schema: Schema, values: list[Any]) -> str | None:
    """Write a predicate in DuckDB's words; None where it has none, or compares in another way."""
    match where:
        case And(parts) | Or(parts):
            said = [in_sql(part, schema, values) for part in parts]
            word = " AND " if isinstance(where, And) else " OR "
            return None if None in said else f"({word.join(map(str, said))})"
        case Not(part):
            inner = in_sql(part, schema, values)
            return None if inner is None else f"NOT ({inner})"
        case IsNull(column):
            return f'"{column}" IS NULL'
        case TimeRange(column, start, end):
            sides = [f'epoch_us("{column}") >= {-(-start // 1000)}'] if start is not None else []
            sides += [f'epoch_us("{column}") < {-(-end // 1000)}'] if end is not None else []
            return (
                f"({' AND '.join([f'CASE WHEN {column!r} IS NULL THEN NULL ELSE TRUE END', *sides])})"
                if sides
                else None
            )
        case Equals(column, value) if _is_plain(value, column, schema):
            values.append(value)
            return f'"{column}" = ?'
        case InSet(column, options) if options and all(_is_plain(value, column, schema) for value in options):
            values.extend(options)
            return f'"{column}" IN ({", ".join("?" * len(options))})'
        case Range(column, low, high, include_low, include_high):
            sides = []
            for bound, sign, included in ((low, ">", include_low), (high, "<", include_high)):
                if bound is not None:
                    if not _is_plain(bound, column, schema):
                        return None
                    values.append(bound)
                    sides.append(f'"{column}" {sign}{"=" if included else ""} ?')
            return f"({' AND '.join(sides)})"
        case StringContains(column, needle, True) if "\x00" not in needle:
            values.append(needle)
            return f'contains("{column}", ?)'
        case StartsWith(column, prefix, True) if "\x00" not in prefix:
            values.append(prefix)
            return f'starts_with("{column}", ?)'
        case _:
            return None


def _is_plain(value: Any, column: str, schema: Schema) -> bool:
    """Return whether DuckDB compares this literal with this column as we do: they are of one type."""
    match schema[column].type.kind:
        case "int" | "long":
            return type(value) is int and abs(value) < 2**63
        case "real":
            return type(value) is float
        case "string":
            return type(value) is str and "\x00" not in value
        case "bool":
            return type(value) is bool
        case _:
            return False
