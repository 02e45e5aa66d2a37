"""Give Spark options: those that are known are heeded, whatever their case, and no other is passed over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidelake
from tidelake.errors import InvalidInputError
from tidelake.lake import Lake
from tidelake.spark.options import known_options


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("t", {"ts": "timestamp", "n": "long"}, time="ts", flush_age="off")
        for n in range(3):
            table.append([{"ts": f"2026-01-01T00:00:0{n}Z", "n": n}])
        yield lake


def numbers(spark: SparkSession, lake: Lake, **options: Any) -> list[int]:
    frame = spark.read.format("tidelake").options(**{"lake": lake.where, "table": "t", **options}).load()
    return sorted(row.n for row in frame.collect())


def test_names_of_another_table_format_mean_what_they_mean_there(spark: SparkSession, lake: Lake) -> None:
    snapshot = lake.table("t").history()[1]
    when = (datetime(1970, 1, 1) + timedelta(microseconds=snapshot.committed_us)).isoformat()
    assert numbers(spark, lake, versionAsOf=snapshot.sequence) == [0, 1]
    assert numbers(spark, lake, VERSIONASOF=str(snapshot.sequence)) == [0, 1]
    assert numbers(spark, lake, timestampAsOf=when) == [0, 1]
    assert numbers(spark, lake, asof=when) == [0, 1]
    assert numbers(spark, lake, Where="n >= 1", SPLITBYTES="1000") == [1, 2]
    with pytest.raises(Exception, match="give as_of or snapshot, not both"):
        numbers(spark, lake, versionAsOf="1", timestampAsOf="2026-01-01")
    with pytest.raises(Exception, match=r"option .* is given twice, under two names"):
        numbers(spark, lake, versionAsOf="1", snapshot="2")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("snapshoot", "there is no option 'snapshoot', did you mean 'snapshot'"),
        ("versionAsOff", "there is no option 'versionasoff', did you mean 'versionAsOf'"),
        ("header", "there is no option 'header'; known are accessKey, asOf,"),
        ("startingSnapshot", "it is for a stream: a batch reads one snapshot"),
    ],
)
def test_read_refuses_what_it_does_not_know(spark: SparkSession, lake: Lake, name: str, hint: str) -> None:
    with pytest.raises(Exception, match=hint):
        numbers(spark, lake, **{name: "1"})


def test_write_refuses_what_it_does_not_know(spark: SparkSession, lake: Lake) -> None:
    rows = spark.sql("select timestamp'2026-01-01 00:00:09' as ts, 9L as n, true as fresh")
    writer = rows.write.format("tidelake").mode("append")
    with pytest.raises(Exception, match="there is no option 'kee', did you mean 'key'"):
        writer.options(lake=lake.where, table="t", kee="x").save()
    merged = rows.write.format("tidelake").mode("append").options(lake=lake.where, table="t", mergeSchema="false")
    with pytest.raises(Exception, match="a write adds the columns that the table lacks"):
        merged.save()
    assert numbers(spark, lake) == [0, 1, 2]
    again = rows.write.format("tidelake").mode("append")
    again.options(lake=lake.where, table="t", mergeSchema="true", EXTENTBYTES="100000").save()
    assert numbers(spark, lake) == [0, 1, 2, 9]


def test_streams_refuse_what_they_do_not_know(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    lake.create_table("copy", {"ts": "timestamp", "n": "long"}, time="ts", flush_age="off")

    def run(checkpoint: str, reading: dict[str, str], writing: dict[str, str]) -> list[int]:
        frame = spark.readStream.format("tidelake").options(lake=lake.where, table="t", **reading).load()
        writer = frame.writeStream.format("tidelake").queryName(f"options_{checkpoint}")
        writer = writer.options(lake=lake.where, table="copy", checkpointLocation=str(tmp_path / checkpoint), **writing)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(120)
        if (error := query.exception()) is not None:
            raise error
        return sorted(lake.table("copy").to_arrow(["n"])["n"].to_pylist())

    with pytest.raises(Exception, match="begin it after a snapshot with startingSnapshot"):
        run("a", {"versionAsOf": "2"}, {})
    with pytest.raises(Exception, match="there is no option 'maxextentspertriger', did you mean"):
        run("b", {"maxExtentsPerTriger": "2"}, {})
    with pytest.raises(Exception, match="the batches of a stream are known by its checkpoint"):
        run("c", {}, {"key": "k"})
    last = lake.table("t").snapshot.sequence
    assert run("d", {"startingVersion": str(last), "maxFilesPerTrigger": "1"}, {"extentBytes": "100000"}) == [2]
    assert run("e", {"startingSnapshot": str(last - 2)}, {}) == [1, 2, 2]


def test_options_of_a_table_that_sql_creates_are_known_or_refused(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(Exception, match="there is no option 'versionof'"):
        spark.sql(f"create table bad_t using tidelake options (lake '{lake.where}', table 't', versionOf '1')")
    spark.sql(
        f"create table good_t using tidelake options (lake '{lake.where}', table 't', versionAsOf '2', key 'k') "
        "comment 'of three' tblproperties ('made.by' = 'hand')"
    )
    try:
        assert [row.n for row in spark.sql("select n from good_t").collect()] == [0]
    finally:
        spark.sql("drop table good_t")


def test_unknown_option_never_shows_a_value() -> None:
    with pytest.raises(InvalidInputError) as raised:
        known_options({"lake": "x", "secretkeys": "hunter2"}, "batch")
    assert "hunter2" not in str(raised.value)
    assert "secretKey" in str(raised.value)
