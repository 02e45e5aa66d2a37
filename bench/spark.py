"""Measure tables in Spark beside Spark's own Parquet files: scans, searches, a write, and how fresh a stream is.

Both contenders hold the same rows, written by Spark itself from the same files, and are asked the same questions in the
same session, in turn. It does not measure the object store: everything is on local disk, in the page cache.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidelake
import tidelake.spark
from bench.data import SPAN_US, START_US, log_table
from bench.report import Ratio, Report
from tidelake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAYS = 5  # of the rows that other benchmarks measure with
NEEDLE = "zuzuzuzu"  # one word in a few messages
RARE = 1_000_000  # one row of so many has the word, or the value of the path
STREAM_ROWS_A_SECOND = 10_000
STREAM_SECONDS = 20
WARM_SECONDS = 8  # of the stream, in which processes start
DRIVER_MEMORY = "3g"

METHOD = (
    "Ratios are of medians; contenders take turns in one session, local[2]; the first round is a warm-up, left out.",
    "Rows are five days of log rows, each with a dynamic column of three paths (VARIANT in Parquet, by Spark, zstd).",
    "A scan ends in Spark's noop sink, so every row and column asked for crosses into the JVM.",
    "The needle is one word in one message of a million: ours by `has`, which finds whole words by statistics; Parquet "
    "by rlike with word bounds. The path is one value of a million, asked by our own condition, and by v:path in "
    "Parquet.",
    "The window is one hundredth of the time and the host one of 200, as plain Spark SQL for both.",
    "A write is from the same Parquet files, by the same session, into a new table or folder.",
    "The stream is Spark's rate source at 10,000 rows a second; a row is visible when its snapshot was committed. "
    "The first seconds, in which processes start, are left out.",
    "Delta and Iceberg do not run on Spark 4.3: see spark_peers, which gives each a Spark of its own.",
)


def run(folder: Path, *, rows: int, rounds: int) -> Report:
    """Measure everything; files go to a folder that the caller removes."""
    session = tidelake.spark.session(
        "local[2]",
        app="bench",
        spark__driver__memory=DRIVER_MEMORY,
        spark__local__dir=str(folder / "spark"),
        spark__sql__session__timeZone="UTC",
        spark__sql__shuffle__partitions="2",
        spark__sql__parquet__compression__codec="zstd",
        spark__sql__warehouse__dir=str(folder / "warehouse"),
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        with tidelake.connect(folder / "lake") as lake:
            return _measured(session, lake, folder, rows, rounds)
    finally:
        session.stop()


def _measured(session: SparkSession, lake: Lake, folder: Path, rows: int, rounds: int) -> Report:
    source = _source(session, folder, rows)
    ours, peer = _writers(session, lake, folder, source)
    seconds = _take_turns({"write: tidelake": ours, "write: Parquet": peer}, rounds)
    seconds |= _take_turns(_readers(session, lake, folder), rounds)
    fresh = _freshness(session, lake, folder)
    medians = {name: median(each) for name, each in seconds.items()}
    goals = {
        "full scan": 0.9, "two columns, aggregated": 1.0, "a word in the message": 0.1,
        "a host in a hundredth of the time": 0.33, "a path of the dynamic column": 0.2, "write": 1.15,
    }  # fmt: skip
    ratios = [
        Ratio(f"{name}, against Parquet", medians[f"{name}: tidelake"], medians[f"{name}: Parquet"], "s", goal)
        for name, goal in goals.items()
    ]
    ratios.append(Ratio("a streamed row is visible, 99th percentile, against 2 s", fresh, 2.0, "s", 1.0))
    return Report(
        name="spark",
        workload=f"{rows * DAYS:,} log rows of 9 columns; see bench/data.py.",
        ratios=tuple(ratios),
        seconds=seconds,
        sizes={
            "tidelake": sum(extent.byte_size for extent in lake.table("bench.logs").extents()),
            "Parquet": _size(folder / "parquet"),
        },
        method=METHOD,
    )


def _source(session: SparkSession, folder: Path, rows: int) -> DataFrame:
    """Write the rows as plain files, the dynamic column as JSON text, and give them as a frame."""
    (folder / "source").mkdir()
    table = log_table(rows)
    for day in range(DAYS):
        shifted = pc.add(table["ts"].cast(pa.int64()), day * SPAN_US).cast(pa.timestamp("us", tz="UTC"))
        numbers = np.arange(rows)
        message = table["message"]
        marked = pc.if_else(pa.array(numbers % RARE == 777), pa.scalar(f"one {NEEDLE} two"), message)
        status = table["status"].cast(pa.string())
        users = pa.array(numbers % 10_007).cast(pa.string())
        text = pc.binary_join_element_wise(
            '{"http": {"status": ',
            status,
            '}, "user": "u',
            users,
            '", "rare": ',
            pa.array(numbers % RARE).cast(pa.string()),
            "}",
            "",
        )
        made = table.set_column(0, "ts", shifted).set_column(7, "message", marked).append_column("attributes", text)
        pq.write_table(made, folder / "source" / f"{day}.parquet", row_group_size=500_000)
    frame = session.read.parquet(str(folder / "source"))
    return frame.selectExpr(
        *[name for name in frame.columns if name != "attributes"], "parse_json(attributes) as attributes"
    )


def _writers(
    session: SparkSession, lake: Lake, folder: Path, source: DataFrame
) -> tuple[Callable[[], object], Callable[[], object]]:
    schema = {
        "ts": "timestamp", "service": "string", "level": "string", "host": "string", "status": "int",
        "duration_ms": "real", "trace": "long", "message": "string", "attributes": "dynamic",
    }  # fmt: skip

    def ours() -> None:
        if "bench.logs" in lake.tables():
            lake.drop_table("bench.logs")
        lake.create_table("bench.logs", schema, time="ts")
        source.write.format("tidelake").options(lake=lake.where, table="bench.logs").mode("append").save()

    def peer() -> None:
        shutil.rmtree(folder / "parquet", ignore_errors=True)
        source.write.parquet(str(folder / "parquet"))

    return ours, peer


def _readers(session: SparkSession, lake: Lake, folder: Path) -> dict[str, Callable[[], object]]:
    table = lake.table("bench.logs")
    ours = session.read.format("tidelake").options(lake=lake.where, table="bench.logs").load()
    peer = session.read.parquet(str(folder / "parquet"))
    middle = START_US + DAYS * SPAN_US // 2
    window = f"ts >= timestamp_micros({middle}) and ts < timestamp_micros({middle + DAYS * SPAN_US // 100})"
    found: dict[str, Callable[[], object]] = {}

    def both(name: str, ask: Callable[[DataFrame], object]) -> None:
        found[f"{name}: tidelake"] = lambda: ask(ours)
        found[f"{name}: Parquet"] = lambda: ask(peer)

    both("full scan", lambda frame: frame.write.format("noop").mode("overwrite").save())
    both("two columns, aggregated", lambda frame: frame.groupBy("service").agg({"duration_ms": "avg"}).collect())
    both(
        "a host in a hundredth of the time",
        lambda frame: (
            frame.where(f"host = 'node-150.eu' and {window}").agg({"duration_ms": "avg", "*": "count"}).collect()
        ),
    )
    found["a word in the message: tidelake"] = lambda: table.to_spark(
        ["ts", "message"], f"message has '{NEEDLE}'", spark=session
    ).collect()
    found["a word in the message: Parquet"] = lambda: (
        peer.where(f"message rlike '(?i)\\\\b{NEEDLE}\\\\b'").select("ts", "message").collect()
    )
    found["a path of the dynamic column: tidelake"] = lambda: table.to_spark(
        ["ts", "host"], 'attributes["rare"] == 4242', spark=session
    ).collect()
    found["a path of the dynamic column: Parquet"] = lambda: (
        peer.where("attributes:rare::int = 4242").select("ts", "host").collect()
    )
    return found


def _freshness(session: SparkSession, lake: Lake, folder: Path) -> float:
    """Return the 99th percentile of how long rows of a stream take until a reader can see them, in seconds."""
    from tidelake.spark.drops import stream  # brings pyspark, which other benchmarks do without

    table = lake.create_table("bench.ticks", {"ts": "timestamp", "value": "long"}, time="ts")
    query = stream(
        lambda spark: (
            spark.readStream.format("rate")
            .option("rowsPerSecond", STREAM_ROWS_A_SECOND)
            .load()
            .selectExpr("timestamp as ts", "value")
        ),
        lake,
        "bench.ticks",
        checkpoint=str(folder / "checkpoint"),
        every="0 seconds",
        spark=session,
    )
    begun_us = time.time_ns() // 1000
    time.sleep(WARM_SECONDS + STREAM_SECONDS)
    query.stop()
    waits = []
    last = 0
    for snapshot in reversed(table.history(100_000)):
        if snapshot.sequence > 1 and snapshot.removed.rows == 0 and snapshot.removed.hot_rows == 0:
            changes = lake.catalog.changes(snapshot.scope, after=last, upto=snapshot.sequence)
            for extent in changes.added:
                times = table.handle.footers.open(extent)
                for block in range(extent.block_count):
                    held = times.read_block(block, ["ts"]).column(0).cast(pa.int64()).to_numpy()
                    waits.append(snapshot.committed_us - held[held > begun_us + WARM_SECONDS * 1_000_000])
        last = snapshot.sequence
    return float(np.percentile(np.concatenate(waits), 99)) / 1e6


def _take_turns(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, ...]]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, run in contenders.items():
            gc.collect()
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    return {name: tuple(each[1:]) for name, each in seconds.items()}


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.suffix == ".parquet")
