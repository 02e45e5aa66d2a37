"""Overwrite tables through the data source: whole, by time range, by condition, and with SQL."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tidelake import Lake, Table
from tidelake.errors import InvalidInputError, OverlapError
from tidelake.spark.overwriting import OverwriteWriter, commit_overwrite
from tidelake.spark.types import spark_schema
from tidelake.spark.writing import Written

BASE = 1_700_000_000
COLUMNS = {"ts": "timestamp", "k": "string", "v": "long"}


def rows(offset: int, count: int, k: str | None = None) -> list[dict[str, Any]]:
    return [{"ts": BASE + offset + at, "k": k or ("b" if at % 2 else "a"), "v": at} for at in range(count)]


def time_of(offset: int) -> str:
    return datetime.fromtimestamp(BASE + offset, UTC).isoformat()


def made(lake: Lake, name: str) -> Table:
    """Make a table of two extents and some hot rows."""
    table = lake.create_table(name, COLUMNS, time="ts", flush_age="off")
    table.append(rows(0, 1500))
    table.append(rows(5000, 1500))
    table.append(rows(10_000, 10))
    return table


def held(table: Table) -> Counter[str]:
    return Counter(map(repr, table.to_arrow().to_pylist()))


def frame_of(spark: SparkSession, given: list[dict[str, Any]]) -> DataFrame:
    if not given:
        return spark.range(0).selectExpr("timestamp_seconds(id) as ts", "'' as k", "id as v")
    return spark.createDataFrame(
        [(row["ts"], row["k"], row["v"]) for row in given], "s long, k string, v long"
    ).selectExpr("timestamp_seconds(s) as ts", "k", "v")


def overwrite(frame: DataFrame, lake: Lake, **options: str) -> None:
    frame.write.format("tidelake").options(**{"lake": lake.where, "table": "t"} | options).mode("overwrite").save()


@pytest.mark.parametrize(
    ("options", "fresh"),
    [
        ({}, rows(700, 3000)),
        ({"start": time_of(700), "end": time_of(10_004)}, rows(800, 20)),
        ({"start": time_of(700), "end": time_of(10_004), "replaceWhere": "k == 'a'"}, rows(800, 3000, "a")),
        ({"REPLACEWHERE": "k == 'b' and v < 100"}, rows(6000, 50, "b")),
        ({"start": time_of(0), "end": time_of(100)}, []),
    ],
)
def test_overwrite_is_what_replace_is_and_may_be_repeated(
    spark: SparkSession, lake: Lake, options: dict[str, str], fresh: list[dict[str, Any]]
) -> None:
    table, twin = made(lake, "t"), made(lake, "u")
    where = options.get("replaceWhere", options.get("REPLACEWHERE"))
    start, end = options.get("start", time_of(-1)), options.get("end", time_of(20_000))
    twin.replace(fresh, start=start, end=end, where=where)
    before, past = held(table), table.snapshot.sequence
    for _ in range(2):
        overwrite(frame_of(spark, fresh).repartition(2), lake, extentBytes="30000", **options)
        assert held(table) == held(twin)
    commits = 1 if not fresh else 2  # the second time there is nothing to take away, and nothing comes
    assert [each.operation for each in table.history()[:commits]] == ["replace"] * commits
    assert table.snapshot.sequence == past + commits
    assert held(lake.table("t", snapshot=past)) == before
    assert lake.catalog.pending() == []


def test_overwrite_under_a_key_happens_once(spark: SparkSession, lake: Lake) -> None:
    table = made(lake, "t")
    overwrite(frame_of(spark, rows(0, 10)), lake, key="one")
    table.append(rows(100, 5))
    overwrite(frame_of(spark, rows(0, 10)), lake, key="one")
    assert len(table) == 15
    assert lake.catalog.pending() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"start": time_of(0), "end": time_of(9)}, "a row is not among those that are replaced"),
        ({"replaceWhere": "k == 'a'"}, "a row is not among those that are replaced"),
        ({"replaceWhere": "nothing == 1"}, "nothing"),
        ({"replaceWhere": " "}, "option replaceWhere is empty"),
        ({"start": time_of(9), "end": time_of(0)}, "the range's start is not before its end"),
        ({"where": "k == 'a'"}, "name the rows to overwrite with replaceWhere"),
        ({"snapshot": "2"}, "an older snapshot can only be read"),
    ],
)
def test_overwrite_that_is_not_sound_changes_nothing(
    spark: SparkSession, lake: Lake, options: dict[str, str], said: str
) -> None:
    table = made(lake, "t")
    past = table.snapshot.sequence
    with pytest.raises(Exception, match=said):
        overwrite(frame_of(spark, rows(0, 10)), lake, **options)
    assert table.snapshot.sequence == past
    assert lake.catalog.pending() == []


def test_reads_and_appends_do_not_overwrite(spark: SparkSession, lake: Lake) -> None:
    made(lake, "t")
    options = {"lake": lake.where, "table": "t"}
    with pytest.raises(Exception, match="option replaceWhere is for mode overwrite"):
        frame_of(spark, rows(0, 1)).write.format("tidelake").options(**options, replaceWhere="v == 1").mode(
            "append"
        ).save()
    with pytest.raises(Exception, match="a read takes a condition, with where"):
        spark.read.format("tidelake").options(**options, start=time_of(0)).load().collect()


def test_sql_overwrites(spark: SparkSession, lake: Lake) -> None:
    table = made(lake, "t")
    options = f"options (lake '{lake.where}', table 't')"
    spark.sql(f"create table over_t using tidelake {options}")
    try:
        spark.sql("insert overwrite over_t select ts, k, v + 1 from over_t where v < 3")
        assert sorted(table.to_arrow(["v"])["v"].to_pylist()) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        spark.sql("insert overwrite over_t with (replaceWhere 'v == 3') select ts, 'z', 3L from over_t where v = 2")
        assert sorted(table.to_arrow(["v"], "k == 'z'")["v"].to_pylist()) == [3, 3, 3]
        assert len(table) == 9
        spark.sql("insert overwrite over_t select * from over_t where v > 100")
        assert len(table) == 0
        spark.sql(f"create temporary view over_v using tidelake {options}")
        spark.sql("insert into over_v values (timestamp'2026-01-01 00:00:00', 'x', 1L)")
        spark.sql("insert overwrite over_v select ts, k, v + 6 from over_v")
        assert table.to_arrow(["v"])["v"].to_pylist() == [7]
    finally:
        spark.sql("drop table over_t")


class Racing:
    """An overwrite whose tasks are done, and which is committed by hand."""

    def __init__(self, lake: Lake, fresh: list[dict[str, Any]], **options: str) -> None:
        given = {"lake": lake.where, "table": "t", **options}
        self.writer = OverwriteWriter(given, spark_schema(lake.table("t").schema))
        self.writer.__getstate__()  # as when it is sent to tasks
        times = pa.array([row["ts"] * 10**6 for row in fresh], pa.timestamp("us", tz="UTC"))
        columns = {"ts": times, "k": [row["k"] for row in fresh], "v": [row["v"] for row in fresh]}
        self.written: Written = self.writer.write(iter(pa.table(columns).to_batches()))

    def commit(self, lake: Lake, key: str | None = None) -> None:
        writer = self.writer
        commit_overwrite(lake.table("t").handle, writer.job, writer.replaced, [self.written], key=key)


def test_rows_that_come_during_an_overwrite_stay_and_lost_races_are_run_again(lake: Lake) -> None:
    table = made(lake, "t")
    racing = Racing(lake, rows(100, 3000, "new"), start=time_of(0), end=time_of(5100))
    table.append(rows(50, 5, "early"))  # inside of the range, before the driver looks: replaced
    table.append(rows(20_000, 5, "outside"))
    seen: list[str] = []

    def at(step: str) -> None:
        if step == "rewrite.written":
            seen.append(step)
            if len(seen) == 1:
                table.append(rows(60, 5, "late"))  # inside, after the driver looked
                table.append(rows(30_000, 5, "outside"))
                table.delete("v == 1499")  # of both extents, which the overwrite was to take away

    racing.commit(Lake(replace(lake.handle, at=at)))
    assert len(seen) == 2
    found = Counter(table.to_arrow(["k"])["k"].to_pylist())
    assert (found["new"], found["early"], found["late"], found["outside"]) == (3000, 0, 0, 10)
    assert found["a"] + found["b"] == 1399 + 10
    assert lake.catalog.pending() == []
    racing.commit(lake)  # an answer that was lost
    assert len(table) == found.total()


def test_two_overwrites_under_one_key_leave_the_rows_of_one(lake: Lake) -> None:
    table = made(lake, "t")
    first, second = (Racing(lake, rows(0, 2000, k), key="one") for k in ("first", "second"))
    first.commit(lake, key="one")
    second.commit(lake, key="one")
    assert set(table.to_arrow(["k"])["k"].to_pylist()) == {"first"}
    assert lake.catalog.pending() == []


def test_windows_that_an_overwrite_frees_are_free_for_its_rows(lake: Lake) -> None:
    table = lake.create_table("t", COLUMNS, time="ts", bucket="1m", coverage="exclusive")
    table.append(rows(0, 3000, "old"))
    Racing(lake, rows(640, 1200, "new"), start=time_of(640), end=time_of(1840)).commit(lake)  # whole minutes
    assert Counter(table.to_arrow(["k"])["k"].to_pylist()) == {"old": 1800, "new": 1200}
    with pytest.raises(OverlapError):
        table.append(rows(700, 1, "twin"))
    with pytest.raises(OverlapError):  # the windows at the edges hold rows that stay, too
        Racing(lake, rows(650, 1100, "x"), start=time_of(650), end=time_of(1750)).commit(lake)
    assert Counter(table.to_arrow(["k"])["k"].to_pylist()) == {"old": 1800, "new": 1200}
    with pytest.raises(InvalidInputError, match="a row is not among those"):
        Racing(lake, rows(0, 5), start=time_of(600), end=time_of(1800))
