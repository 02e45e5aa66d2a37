"""Read tables in Spark while a writer never rests: an execution of a query reads one snapshot of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelake
import tidelake.spark
from tests.support.restless import restless
from tidelake.errors import ConflictError
from tidelake.lake import Lake
from tidelake.spark.jobs import copy, rewrite
from tidelake.spark.places import Place
from tidelake.table import Table


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("t", {"ts": "timestamp", "n": "long"}, time="ts", flush_age="off")
        table.append(rows(0, 1500))
        yield lake


@pytest.fixture
def planner(lake: Lake) -> Lake:
    """Return the lake as Spark's planning holds it open."""
    return Lake(Place.of_lake(lake).open())


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"ts": f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z", "n": n} for n in range(first, first + count)]


def more(table: Table, at: int) -> None:
    totals = table.snapshot.totals
    table.append(rows(totals.rows + totals.hot_rows, 5))
    if at % 3 == 2:
        table.flush()


def read(spark: SparkSession, held: Lake, **options: str) -> DataFrame:
    return spark.read.format("tidelake").options(**{"lake": held.where, "table": "t", **options}).load()


def joined(spark: SparkSession, lake: Lake) -> list[int]:
    """Join a frame with itself, and with another of the same table: each side must have the rows of the others."""
    frame, other = read(spark, lake), read(spark, lake, table="default.t")
    full = frame.alias("a").join(other.alias("b"), frame.n == other.n, "full_outer")
    counted = full.selectExpr("count(a.n)", "count(b.n)").first()
    twice = frame.join(frame.where("n % 2 >= 0").selectExpr("n as m"), frame.n == frame.n * 0 + 1, "left").count()
    assert twice > 0
    assert counted is not None
    return [counted[0], counted[1]]


def united(spark: SparkSession, lake: Lake) -> list[int]:
    frame = read(spark, lake)
    parts = frame.selectExpr("'a' as part", "n").union(frame.where("n >= 0").selectExpr("'b' as part", "n"))
    parts = parts.union(read(spark, lake, lake=os.path.relpath(lake.where)).selectExpr("'c' as part", "n"))
    return [row["count"] for row in parts.groupBy("part").count().collect()]


def asked(spark: SparkSession, lake: Lake) -> list[int]:
    """Ask in SQL, with subqueries of every sort, of a view and of a table that SQL created."""
    read(spark, lake).createOrReplaceTempView("one_snapshot_view")
    spark.sql(f"create table one_snapshot_table using tidelake options (lake '{lake.where}', table 't')")
    try:
        row = spark.sql(
            """with c as (select n from one_snapshot_table)
            select count(*), (select count(*) from one_snapshot_view where n >= 0), (select max(n) + 1 from c),
              sum(case when n in (select n from c) then 1 else 0 end),
              sum(case when exists (select 1 from one_snapshot_view v where v.n = t.n) then 1 else 0 end)
            from one_snapshot_table t"""
        ).first()
    finally:
        spark.sql("drop table one_snapshot_table")
    assert row is not None
    return list(row)


def as_of_later(spark: SparkSession, lake: Lake) -> list[int]:
    """Read a table as it is and as it will be: both are as it is."""
    later = read(spark, lake, asOf="2999-01-01T00:00:00Z")
    both = read(spark, lake).selectExpr("'a' as part").union(later.selectExpr("'b' as part"))
    return [row["count"] for row in both.groupBy("part").count().collect()]


@pytest.mark.parametrize("ask", [joined, united, asked, as_of_later])
def test_all_scans_of_a_query_read_one_snapshot(
    spark: SparkSession, lake: Lake, planner: Lake, ask: Callable[[SparkSession, Lake], list[int]]
) -> None:
    with restless(planner, "t", more) as made:
        counts = ask(spark, lake)
    assert made
    assert len(set(counts)) == 1, counts
    assert counts[0] >= 1500


def test_next_action_reads_newer_rows_and_a_planned_frame_its_own(spark: SparkSession, lake: Lake) -> None:
    frame = read(spark, lake)
    assert (frame.count(), len(frame.collect())) == (1500, 1500)
    lake.table("t").append(rows(1500, 10))
    assert frame.count() == 1510  # a new execution
    assert len(frame.collect()) == 1500  # Spark has planned this one: it reads the snapshot of its plan


def test_explain_tells_of_the_snapshot_that_is_read(spark: SparkSession, lake: Lake) -> None:
    frame = read(spark, lake).where("n >= 0")
    assert "snapshot 2" in tidelake.spark.explain(frame)
    lake.table("t").append(rows(1500, 10))
    assert "snapshot 2" in tidelake.spark.explain(frame)
    assert len(frame.collect()) == 1500


def test_rewrite_takes_away_what_it_read_and_nothing_else(spark: SparkSession, lake: Lake) -> None:
    lake.table("t").append(rows(1500, 1500))

    def extents(table: Table, at: int) -> None:
        table.append(rows(3000 + 2000 * at, 2000))

    with restless(lake, "t", extents) as made:
        report = rewrite(lake, "t", format="parquet", spark=spark)
    assert made
    assert report.rows == 3000
    found = lake.table("t").to_arrow(["n"])["n"].to_pylist()
    assert sorted(found) == list(range(3000 + 2000 * len(made)))


def test_rewrite_of_what_another_rewrite_took_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    first = lake.table("t").extents()

    def rewritten(table: Table, at: int) -> None:
        if at == 0:
            rewrite(lake_of(table), "t", spark=spark)

    with restless(lake, "t", rewritten), pytest.raises(ConflictError):
        rewrite(lake, "t", spark=spark)
    assert lake.table("t").to_arrow().num_rows == 1500
    assert first != lake.table("t").extents()


def lake_of(table: Table) -> Lake:
    return tidelake.connect(table.lake)


def test_copy_reads_one_snapshot(spark: SparkSession, lake: Lake, planner: Lake) -> None:
    with restless(planner, "t", more), restless(lake, "t", more) as made:
        report = copy(
            lake, "t", "u", query="select a.* from source a left anti join source b on a.n = b.n", spark=spark
        )
        assert report.rows == 0
        report = copy(lake, "t", "u", query="select a.ts, a.n from source a join source b on a.n = b.n", spark=spark)
    assert made
    assert report.rows == lake.table("u").to_arrow().num_rows
    assert report.rows >= 1500


def test_first_batch_of_a_stream_is_one_snapshot(
    spark: SparkSession, lake: Lake, planner: Lake, tmp_path: Path
) -> None:
    with restless(planner, "t", more) as made:
        frame = spark.readStream.format("tidelake").options(lake=lake.where, table="t").load()
        query = (
            frame.writeStream.format("memory")
            .queryName("one_snapshot_stream")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
    assert made
    found = sorted(row.n for row in spark.table("one_snapshot_stream").collect())
    assert found == list(range(len(found)))
    assert len(found) >= 1500
