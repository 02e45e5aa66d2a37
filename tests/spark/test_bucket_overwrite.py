"""Overwrite the time buckets that a frame has rows in, and no others, through the data source and through SQL."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelake.spark
from tests.spark.test_overwrite import BASE, COLUMNS, Racing, rows
from tidelake import Lake, Table
from tidelake.errors import InvalidInputError
from tidelake.spark.bucketing import MAX_RUNS

DYNAMIC = {"partitionOverwriteMode": "dynamic"}
DAY = 86_400
MIDNIGHT = -(BASE % DAY)  # the last one before the first row


def by_day(table: Table) -> Counter[tuple[int, str]]:
    found = table.to_arrow(["ts", "k"]).to_pylist()
    return Counter(((row["ts"] - datetime.fromtimestamp(BASE + MIDNIGHT, UTC)).days, row["k"]) for row in found)


def days(lake: Lake, **settings: object) -> Table:
    """Make a table of four days, the last of which has hot rows alone."""
    table = lake.create_table("t", COLUMNS, time="ts", flush_age="off", **settings)  # type: ignore[arg-type]
    for day in range(3):
        table.append(rows(MIDNIGHT + day * DAY, 1200, "old"))
        table.append(rows(MIDNIGHT + day * DAY + DAY - 1, 1, "old"))
    table.append(rows(MIDNIGHT + 3 * DAY, 10, "old"))
    return table


def fresh_of(*days: int) -> list[dict[str, object]]:
    return [row for day in days for row in rows(MIDNIGHT + day * DAY + 5, 3, "new")]


@pytest.mark.parametrize("key", [None, ["ts"]])
def test_the_buckets_of_the_rows_are_replaced_in_one_commit(lake: Lake, key: list[str] | None) -> None:
    table = days(lake) if key is None else days(lake, key=key)
    before = table.snapshot.sequence
    for _ in range(2):
        Racing(lake, fresh_of(1, 3, 7), **DYNAMIC).commit(lake)
        assert by_day(table) == {(0, "old"): 1201, (1, "new"): 3, (2, "old"): 1201, (3, "new"): 3, (7, "new"): 3}
    assert table.snapshot.sequence == before + 2
    assert len(lake.table("t", snapshot=before)) == 3 * 1201 + 10
    assert lake.catalog.pending() == []


def test_buckets_are_those_of_the_table_or_of_the_option(lake: Lake) -> None:
    table = days(lake, bucket="1h", coverage="track")
    Racing(lake, fresh_of(1), **DYNAMIC).commit(lake)
    assert by_day(table)[1, "old"] == 1  # the last second of the day is in another hour
    Racing(lake, fresh_of(2), **DYNAMIC, overwriteBucket="2s").commit(lake)  # seconds 4 to 7 of a row every second
    assert by_day(table)[2, "old"] == 1201 - 4
    assert by_day(table)[2, "new"] == 3


def test_no_rows_replace_no_bucket(lake: Lake) -> None:
    table = days(lake)
    before = table.snapshot.sequence
    Racing(lake, [], **DYNAMIC).commit(lake)
    assert table.snapshot.sequence == before
    assert lake.catalog.pending() == []


def test_an_overwrite_by_bucket_under_a_key_happens_once(lake: Lake) -> None:
    table = days(lake)
    Racing(lake, fresh_of(1), **DYNAMIC, key="one").commit(lake, key="one")
    table.append(rows(MIDNIGHT + DAY, 5, "late"))
    Racing(lake, fresh_of(1), **DYNAMIC, key="one").commit(lake, key="one")
    assert by_day(table)[1, "late"] == 5


def test_buckets_that_cannot_be_are_refused(lake: Lake) -> None:
    days(lake)
    lake.create_table("u", {"v": "long"})
    refusals = {
        "dynamic or static": {"partitionOverwriteMode": "weekly"},
        "overwriteBucket is for": {"overwriteBucket": "1h"},
        "leave one out": {**DYNAMIC, "replaceWhere": "v == 1"},
        "bucket": {**DYNAMIC, "overwriteBucket": "0h"},
        "this table has none": {**DYNAMIC, "table": "u"},
    }
    for said, options in refusals.items():
        with pytest.raises(InvalidInputError, match=said):
            Racing(lake, fresh_of(1), **options)
    scattered = [row for at in range(MAX_RUNS + 1) for row in rows(2 * at, 1)]
    with pytest.raises(InvalidInputError, match="too many separate buckets"):
        Racing(lake, scattered, **DYNAMIC, overwriteBucket="1s").commit(lake)
    assert len(lake.table("t")) == 3 * 1201 + 10


def test_spark_overwrites_by_bucket_in_each_of_its_ways(spark: SparkSession, lake: Lake) -> None:
    table = days(lake)
    session = tidelake.spark.register(spark.newSession(), lake=lake)

    def frame(day: int, k: str) -> DataFrame:
        at = BASE + MIDNIGHT + day * DAY
        return session.range(3, numPartitions=2).selectExpr(
            f"timestamp_seconds({at} + id) AS ts", f"'{k}' AS k", "id AS v"
        )

    frame(0, "option").write.format("tidelake").options(lake=lake.where, table="t", **DYNAMIC).mode("overwrite").save()
    frame(1, "writeTo").writeTo("tidelake.default.t").option("PARTITIONOVERWRITEMODE", "static").overwritePartitions()
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    frame(2, "insert").createOrReplaceTempView("fresh")
    session.sql("INSERT OVERWRITE tidelake.default.t SELECT * FROM fresh")
    assert by_day(table) == {(0, "option"): 3, (1, "writeTo"): 3, (2, "insert"): 3, (3, "old"): 10}
    with pytest.raises(Exception, match="this write makes the table anew"):
        frame(0, "x").write.options(**DYNAMIC).mode("overwrite").saveAsTable("tidelake.default.t")
    assert len(table) == 19
