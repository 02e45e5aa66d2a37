"""Measure small queries, warm: from the text to Arrow, planning included, over a table of many extents.

The rows lie in a thousand extents, and in as many Parquet files for DuckDB and one table for chDB. The needle is one
trace identifier that occurs once. It does not measure ingest or large scans: see ``tables``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import ROWS, log_table
from bench.report import Ratio, Report
from tidelake.lake import connect

EXTENTS = 1_000  # of ROWS rows; fewer rows make fewer extents
ASKED = 20  # times in a round, of which the median counts
GOAL_SECONDS = 0.030
KYMA_SECONDS, KYMA_EXTENTS = 0.084, 14_291  # as published; not run here

METHOD = (
    "A question goes from its text to an Arrow table: parsing, finding names, listing, pruning, reading, the engine.",
    "Every contender has its table open and has answered each question twice before it is measured. A round is the "
    "median of twenty questions; the literal changes from one to the next, so no text is seen twice.",
    "The needle is a trace identifier that one row has, anywhere in the day. The slice counts services in one minute. "
    "The count is of all rows.",
    "DuckDB reads one Parquet file for each extent, by a glob; chDB has one MergeTree table ordered by time.",
    f"kyma's {KYMA_SECONDS * 1000:.0f} ms for {KYMA_EXTENTS:,} extents is its published figure, on another machine: it "
    "stands beside ours for orientation.",
)

Ask = Callable[[int], pa.Table]


def run(folder: Path, *, rows: int = ROWS, rounds: int = 5) -> Report:
    """Measure each question of each contender."""
    extents = max(8, EXTENTS * rows // ROWS)
    table = log_table(rows // 4)
    ours, peers = _tidelake(folder, table, extents), {"duckdb": _duckdb(folder, table, extents)}
    if find_spec("chdb") is not None:
        peers["chdb"] = _chdb(folder, table)
    seconds: dict[str, tuple[float, ...]] = {}
    for name, questions in {"tidelake": ours, **peers}.items():
        for question, ask in questions.items():
            ask(-1), ask(-2)
            seconds[f"{name} {question}"] = tuple(_round(ask, at) for at in range(rounds))
    best = {name: median(times) for name, times in seconds.items()}
    ratios = [
        Ratio(f"{question} against {name}", best[f"tidelake {question}"], best[f"{name} {question}"], "s")
        for question in ours
        for name in peers
    ]
    ratios.insert(
        0, Ratio(f"needle in {extents:,} extents against 30 ms", best["tidelake needle"], GOAL_SECONDS, "s", 1.0)
    )
    ratios.append(
        Ratio(f"needle against kyma's published, {KYMA_EXTENTS:,} extents", best["tidelake needle"], KYMA_SECONDS, "s")
    )
    workload = f"{table.num_rows:,} log rows of 8 columns in {extents:,} extents; small questions, warm"
    return Report("query", workload, tuple(ratios), seconds, {}, METHOD)


def _round(ask: Ask, number: int) -> float:
    times = []
    for at in range(ASKED):
        start = time.perf_counter()
        ask(number * ASKED + at)
        times.append(time.perf_counter() - start)
    return median(times)


def _parts(table: pa.Table, count: int) -> list[pa.Table]:
    size = -(-table.num_rows // count)
    return [table.slice(start, size) for start in range(0, table.num_rows, size)]


def _needle(table: pa.Table, at: int) -> int:
    return int(table["trace"][at * 7919 % table.num_rows].as_py())


def _minute(table: pa.Table, at: int) -> tuple[str, str]:
    low = table["ts"][at * 7919 % (table.num_rows * 9 // 10)].as_py().replace(second=0, microsecond=0)
    return f"{low:%Y-%m-%d %H:%M}:00", f"{low:%Y-%m-%d %H:%M}:59"


def _questions(table: pa.Table, source: str, ask: Callable[[str], pa.Table]) -> dict[str, Ask]:
    """Return the questions in the SQL that all contenders read."""

    def needle(at: int) -> pa.Table:
        return ask(f"select ts, message from {source} where trace = {_needle(table, at)}")

    def minute(at: int) -> pa.Table:
        low, high = _minute(table, at)
        return ask(
            f"select service, count(*) as n from {source} where ts >= '{low}' and ts <= '{high}' group by service"
        )

    def count(at: int) -> pa.Table:
        return ask(f"select count(*) as n from {source}")

    return {"needle": needle, "slice": minute, "count": count}


def _tidelake(folder: Path, table: pa.Table, extents: int) -> dict[str, Ask]:
    lake = connect(folder / "lake")
    held = lake.create_table("obs.logs", {name: _kind(field.type) for name, field in _fields(table)}, time="ts")
    for part in _parts(table, extents):
        held.append(part)
        held.flush()
    return _questions(table, "obs.logs", lambda text: lake.sql(text, engine="local").to_arrow())


def _fields(table: pa.Table) -> list[tuple[str, Any]]:
    return [(field.name, field) for field in table.schema]


def _kind(kind: pa.DataType) -> str:
    from tidelake.model.schema import DataType

    return str(DataType.from_arrow(kind))


def _duckdb(folder: Path, table: pa.Table, extents: int) -> dict[str, Ask]:
    place = folder / "parquet"
    place.mkdir()
    for number, part in enumerate(_parts(table, extents)):
        pq.write_table(part, place / f"{number:05}.parquet", compression="zstd")
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET parquet_metadata_cache = true")
    return _questions(table, f"read_parquet('{place}/*.parquet')", lambda text: connection.sql(text).to_arrow_table())


def _chdb(folder: Path, table: pa.Table) -> dict[str, Ask]:
    from chdb import session

    whole = folder / "whole.parquet"
    pq.write_table(table, whole)
    held = session.Session(str(folder / "chdb"))
    held.query("CREATE DATABASE IF NOT EXISTS obs")
    held.query(
        "CREATE TABLE obs.logs ENGINE = MergeTree ORDER BY ts AS "
        f"SELECT * FROM file('{whole}', Parquet) SETTINGS schema_inference_make_columns_nullable = 0"
    )

    def ask(text: str) -> pa.Table:
        return pa.ipc.open_file(pa.py_buffer(held.query(text, "Arrow").bytes())).read_all()

    return _questions(table, "obs.logs", ask)
