"""Measure upkeep beside peers: many small files joined into few, and questions before and after.

The same rows lie in many small files, each from one append. tidelake compacts, delta-rs optimizes, pyarrow and Spark
read all files and write them again, sorted by time. Then a day of trickle shows how often a byte is written. It does
not measure deletes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bench.data import ROWS, log_table
from bench.peers import is_installed
from bench.report import Ratio, Report
from tidelake.lake import connect
from tidelake.model.schema import Schema
from tidelake.table import Table

APPENDS = 200
TRICKLE_FLUSHES = 1_440  # a day, one a minute
TRICKLE_ROWS = 200

METHOD = (
    f"{ROWS:,} rows of eight columns in {APPENDS} appends in time order, each a file of its own.",
    "tidelake: table.compact() on SQLite, until nothing is worth it. delta-rs: optimize.compact(). Parquet: all files "
    "read by pyarrow, sorted by time and written as one with zstd. Spark: the same in one task, the session being up.",
    "The needle asks for one host of one service with one status; the aggregate counts by service. Both are scans, in "
    "one process that has the table open.",
    f"The trickle: {TRICKLE_FLUSHES:,} flushes of {TRICKLE_ROWS} rows, the chosen runs compacted after every one; "
    "bytes written by flushes and compactions, divided by the bytes of the flushes.",
)


def run(folder: Path, *, rows: int = ROWS, rounds: int = 5) -> Report:
    """Compact the same rows in every contender."""
    whole = log_table(rows)
    parts = [whole.slice(at * rows // APPENDS, rows // APPENDS) for at in range(APPENDS)]
    seconds: dict[str, tuple[float, ...]] = {}
    sizes: dict[str, int] = {}
    rates: dict[str, float] = {}
    rounds = max(1, min(rounds, 3))
    for name, fill, join in _contenders():
        made = folder / "made"
        fill(made, parts)
        if name == "spark":
            _warm_up(folder / "warm-up", parts[0])
        taken = []
        for _ in range(rounds):
            copy = folder / "copy"
            shutil.copytree(made, copy)
            began = time.perf_counter()
            join(copy)
            taken.append(time.perf_counter() - began)
            sizes[name] = _size(copy)
            shutil.rmtree(copy)
        seconds[name] = tuple(taken)
        rates[f"{name}: rows a second"] = rows / min(taken)
        rates[f"{name}: MB of files a second"] = _size(made) / 1e6 / min(taken)
        shutil.rmtree(made)
    seconds |= _questions(folder / "asked", parts)
    rates["bytes written for a byte of a trickle"] = _amplification(folder / "trickle")
    ours = min(seconds["tidelake"])
    ratios = [Ratio(f"compaction against {name}", ours, min(seconds[name]), "s") for name in seconds if name in _PEERS]
    for question in ("needle", "aggregate"):
        after, before = (min(seconds[f"{question} {when}"]) for when in ("after", "before"))
        ratios.append(Ratio(f"{question} after against before", after, before, "s"))
    workload = f"{rows:,} rows in {APPENDS} files become few."
    return Report("upkeep", workload, tuple(ratios), seconds, sizes, METHOD, rates)


_PEERS = ("delta-rs", "parquet", "spark")


def _contenders() -> list[tuple[str, Callable[[Path, list[pa.Table]], None], Callable[[Path], Any]]]:
    found: list[tuple[str, Callable[[Path, list[pa.Table]], None], Callable[[Path], Any]]] = [
        ("tidelake", _fill_lake, _compact_lake),
        ("parquet", _fill_parquet, _join_parquet),
    ]
    if is_installed("pyspark"):
        found.append(("spark", _fill_parquet, _join_spark))
    if is_installed("deltalake"):
        found.append(("delta-rs", _fill_delta, _optimize_delta))
    return found


def _fill_lake(folder: Path, parts: list[pa.Table]) -> None:
    with connect(folder, upkeep=False) as lake:
        table = lake.create_table("logs", Schema.from_arrow(parts[0].schema), time="ts", flush_age="off")
        for part in parts:
            table.append(part)


def _compact_lake(folder: Path) -> None:
    with connect(folder, upkeep=False) as lake:
        lake.table("logs").compact()


def _fill_parquet(folder: Path, parts: list[pa.Table]) -> None:
    folder.mkdir()
    for at, part in enumerate(parts):
        pq.write_table(part, folder / f"{at:04}.parquet", compression="zstd")


def _join_parquet(folder: Path) -> None:
    whole = ds.dataset(folder).to_table()
    whole = whole.take(pc.sort_indices(whole["ts"]))
    pq.write_table(whole, folder / "whole.parquet", compression="zstd")


def _warm_up(folder: Path, part: pa.Table) -> None:
    """Have Spark's session up, and its first job done."""
    _fill_parquet(folder, [part])
    _join_spark(folder)


def _join_spark(folder: Path) -> None:
    from tidelake.spark import session

    files = session().read.parquet(str(folder)).repartition(1).sortWithinPartitions("ts")
    files.write.option("compression", "zstd").parquet(str(folder / "whole"))


def _fill_delta(folder: Path, parts: list[pa.Table]) -> None:
    from deltalake import write_deltalake

    for part in parts:
        write_deltalake(folder, part, mode="append")


def _optimize_delta(folder: Path) -> None:
    from deltalake import DeltaTable

    DeltaTable(folder).optimize.compact()


def _questions(folder: Path, parts: list[pa.Table]) -> dict[str, tuple[float, ...]]:
    """Ask the same before and after a compaction."""
    _fill_lake(folder, parts)
    found: dict[str, tuple[float, ...]] = {}
    with connect(folder, upkeep=False) as lake:
        table = lake.table("logs")
        for when in ("before", "after"):
            if when == "after":
                table.compact()
            found[f"needle {when}"] = _timed(lambda: _needle(table))
            found[f"aggregate {when}"] = _timed(lambda: _aggregate(table))
    return found


def _needle(table: Table) -> pa.Table:
    return table.scan(where="service == 'service-07' and status == 503 and host == 'node-100.eu'").read_all()


def _aggregate(table: Table) -> pa.Table:
    return table.scan(["service"]).read_all().group_by("service").aggregate([([], "count_all")])


def _timed(ask: Callable[[], Any], rounds: int = 5) -> tuple[float, ...]:
    ask()
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - began)
    return tuple(taken)


def _amplification(folder: Path) -> float:
    """Return how many bytes are written for a byte that a day of small flushes brings."""
    from tidelake.maintain.compact import compact_run, due_runs

    rows = log_table(TRICKLE_FLUSHES * TRICKLE_ROWS)
    flushed = rewritten = 0
    with connect(folder, upkeep=False) as lake:
        table = lake.create_table("logs", Schema.from_arrow(rows.schema), time="ts", flush_age="off")
        for at in range(TRICKLE_FLUSHES):
            table.append(rows.slice(at * TRICKLE_ROWS, TRICKLE_ROWS))
            table.flush()
            flushed += table.snapshot.added.bytes
            head = table.snapshot
            for run in due_runs(table.handle, head):
                rewritten += compact_run(table.handle, head, run).bytes_written
    return (flushed + rewritten) / flushed


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
