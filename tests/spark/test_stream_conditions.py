"""Prune the batches of a stream by the conditions above it: to the rows of a stream that is read whole."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelake.spark
from tests.spark.test_degrade import without
from tidelake.lake import Lake
from tidelake.spark.reading import Split
from tidelake.spark.streaming import StreamReader
from tidelake.spark.types import spark_schema
from tidelake.table import Table

EXTENTS, ROWS = 4, 50
COLUMNS = {"ts": "timestamp", "n": "long", "service": "string", "d": "dynamic"}


def row(day: int, k: int) -> dict[str, Any]:
    return {"ts": f"2026-01-{day + 1:02}T{k % 24:02}:00:00Z", "n": 100 * day + k, "service": f"s{k % 3}", "d": {"a": k}}


def made(lake: Lake, name: str = "logs") -> Table:
    """Make a table of an extent a day."""
    table = lake.create_table(name, COLUMNS, time="ts", flush_age="off")
    for day in range(EXTENTS):
        table.append([row(day, k) for k in range(ROWS)])
        table.flush()
    return table


def opened(session: SparkSession, lake: Lake, how: str, name: str = "logs", **options: str) -> DataFrame:
    if how == "catalog":
        return session.readStream.options(**options).table(f"tidelake.default.{name}")
    return session.readStream.format("tidelake").options(lake=lake.where, table=name, **options).load()


def run(frame: DataFrame, folder: Path, target: str = "found", mode: str = "append") -> list[int]:
    """Run a stream until nothing is left; return how many rows its batches were given."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.outputMode(mode).trigger(availableNow=True).start(str(folder / target))
    assert query.awaitTermination(120)
    return [progress.numInputRows for progress in query.recentProgress]


def numbers(session: SparkSession, folder: Path, target: str = "found") -> list[int]:
    return sorted(row.n for row in session.read.parquet(str(folder / target)).collect())


def lose(lake: Lake, table: Table, *days: int) -> None:
    """Remove the objects of extents, so that whoever reads them fails."""
    for extent in table.extents():
        assert extent.min_ts_ns is not None
        if datetime.fromtimestamp(extent.min_ts_ns // 10**9, UTC).day - 1 in days:
            (Path(lake.where) / extent.key).unlink()


@pytest.mark.parametrize("how", ["catalog", "format"])
def test_a_batch_reads_what_its_conditions_leave_and_goes_on_with_others(
    spark: SparkSession, lake: Lake, tmp_path: Path, how: str
) -> None:
    session = tidelake.spark.register(spark.newSession(), lake=lake)
    session.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    table = made(lake)
    lose(lake, table, 0, 3)
    frame = opened(session, lake, how, maxExtentsPerTrigger="3")
    frame = frame.where("ts >= timestamp'2026-01-02 00:00:00Z' AND ts < timestamp'2026-01-03 20:00:00Z'")
    rows = run(frame.where("service = 's1' OR n = 205").select("n", "d"), tmp_path)
    wanted = [100 * day + k for day in (1, 2) for k in range(ROWS) if k % 3 == 1 and not (day == 2 and k % 24 >= 20)]
    assert numbers(session, tmp_path) == sorted([*wanted, 205])
    assert sum(rows) == len(wanted) + 1
    kept = b"".join(path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    assert b"predicates" not in kept
    assert b'"snapshot"' in kept
    table.append([row(8, k) for k in range(ROWS)])  # hot
    run(opened(session, lake, how).where("service = 's2' AND ts > '2026-01-08'").select("n", "d"), tmp_path)
    after = sorted([*wanted, 205, *(800 + k for k in range(ROWS) if k % 3 == 2)])
    assert numbers(session, tmp_path) == after
    run(opened(session, lake, how).where("service = 's1'").select("n", "d"), tmp_path)  # goes over what is past
    assert numbers(session, tmp_path) == after


def test_one_stream_with_several_conditions_gives_each_its_rows(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    session = tidelake.spark.register(spark.newSession(), lake=lake)
    made(lake)
    frame = opened(session, lake, "catalog")
    low, high = frame.where("n < 10").select("n"), frame.where("n >= 300 AND length(service) = 2").select("n")
    both = low.unionAll(high).unionAll(frame.where("d:a::int = 7 AND n < 200").select("n"))
    run(both.unionAll(frame.where("rand() < 2 AND N = 120").select("n")), tmp_path)
    assert numbers(session, tmp_path) == sorted([*range(10), *range(300, 350), 7, 107, 120])


def test_counts_and_watermarks_are_those_of_all_rows(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """A condition on the event time stays above its watermark, which all rows move."""
    session = tidelake.spark.register(spark.newSession(), lake=lake)
    made(lake)
    frame = opened(session, lake, "catalog").withWatermark("ts", "1 day").where("service = 's0' AND ts < '2026-01-02'")
    counted = frame.groupBy("service", "ts").count()
    run(counted.selectExpr("count AS n", "ts"), tmp_path)
    found = session.read.parquet(str(tmp_path / "found"))
    assert found.agg({"n": "sum"}).collect()[0][0] == len([k for k in range(ROWS) if k % 3 == 0])


def test_the_time_of_a_batch_prunes(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    session = tidelake.spark.register(spark.newSession(), lake=lake)
    session.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    table = made(lake)
    now = datetime.now(UTC)
    table.append([{"ts": (now - timedelta(minutes=k)).isoformat(), "n": k} for k in range(90)])
    table.flush()
    lose(lake, table, *({0, 1, 2, 3} - {now.day - 1}))
    recent = opened(session, lake, "catalog").where("ts > current_timestamp() - INTERVAL 30 MINUTES AND n < 60")
    assert sum(run(recent.select("n"), tmp_path)) < 32
    assert numbers(session, tmp_path)[:25] == list(range(25))


def test_versions_and_deletions_of_a_table_with_a_key_are_pruned(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    session = tidelake.spark.register(spark.newSession(), lake=lake)
    table = lake.create_table("keyed", {"ts": "timestamp", "n": "long", "s": "string"}, time="ts", key=["n"])
    table.append([{"ts": "2026-01-01", "n": n, "s": "old"} for n in range(20)])
    run(opened(session, lake, "catalog", "keyed").where("n < 5 AND s = 'old'").select("n"), tmp_path)
    table.append([{"ts": "2026-01-02", "n": n, "s": "new"} for n in range(10)])
    run(opened(session, lake, "catalog", "keyed").where("n < 5 AND s = 'new'").select("n"), tmp_path)
    assert numbers(session, tmp_path) == sorted([*range(5), *range(5)])
    feed = opened(session, lake, "format", "keyed", changes="true").where("n >= 8 AND _op = 'upsert' AND _seq > 0")
    run(feed.select("n"), tmp_path / "feed")
    assert set(numbers(session, tmp_path / "feed")) == set(range(8, 20))


def test_a_stream_is_right_without_the_rule_that_prunes(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    made(lake)
    with without(spark, "StreamRule") as session:
        with pytest.warns(UserWarning, match="tidelake: conditions above streams do not prune here: another Spark"):
            tidelake.spark.register(session, lake=lake)
        rows = run(opened(session, lake, "catalog").where("n < 7").select("n"), tmp_path)
        assert (numbers(session, tmp_path), sum(rows)) == (list(range(7)), EXTENTS * ROWS)


@pytest.mark.parametrize(
    "told", [[], ["nonsense"], [{"name": "?"}], [{"name": "=", "children": [{"column": ["nowhere"]}]}], [7]]
)
def test_conditions_that_nobody_understands_prune_nothing(lake: Lake, told: list[Any]) -> None:
    table = made(lake)
    reader = StreamReader({"lake": lake.where, "table": "logs"}, spark_schema(table.schema))
    end = reader.latestOffset(reader.initialOffset())
    splits = reader.partitions(reader.initialOffset(), json.loads(json.dumps({**end, "predicates": told})))
    tasks = [task for split in splits if isinstance(split, Split) for task in split.plan.tasks]
    assert len(tasks) == EXTENTS
    small = {"name": "<", "children": [{"column": ["n"]}, {"type": "bigint", "value": 10}]}
    (split,) = reader.partitions(reader.initialOffset(), {**end, "predicates": [small]})
    assert isinstance(split, Split)
    assert len(split.plan.tasks) == 1
