"""Write tables that keep coverage from Spark: tasks say what they cover, the driver refuses what is held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tidelake.errors import InvalidInputError, OverlapError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.lake import Lake
from tidelake.spark.jobs import load, rewrite
from tidelake.table import Table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = {"ts": "timestamp", "device": "string", "v": "long"}


@pytest.fixture
def cpu(lake: Lake) -> Table:
    return lake.create_table("m.cpu", SCHEMA, bucket="1m", entity=["device"], coverage="exclusive")


def rows(minutes: range, *, device: str = "a", second: int = 0) -> pa.Table:
    times = [NOON + timedelta(minutes=minute, seconds=second) for minute in minutes]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "device": [device] * len(times),
            "v": pa.array(list(minutes), pa.int64()),
        }
    )


def write(spark: SparkSession, lake: Lake, table: pa.Table, **options: Any) -> None:
    frame = spark.createDataFrame(table).repartition(2)
    words = {"lake": lake.where, "table": "m.cpu", "extentBytes": "1000", **options}
    frame.write.format("tidelake").options(**words).mode("append").save()


def held(lake: Lake) -> list[tuple[str, int, int]]:
    found = Lake(LakeHandle(lake.catalog, lake.store, lake.where)).table("m.cpu").coverage.held()
    minute = timedelta(minutes=1)
    return [
        (row["device"], round((row["start"] - NOON) / minute), round((row["end"] - NOON) / minute))
        for row in found.to_pylist()
    ]


def test_tasks_say_what_they_cover_and_the_driver_refuses_what_is_held(
    spark: SparkSession, lake: Lake, cpu: Table
) -> None:
    write(spark, lake, rows(range(300)), key="first")
    extents = cpu.extents()
    assert extents
    assert all(extent.coverage_key for extent in extents)
    assert held(lake) == [("a", 0, 300)]
    write(spark, lake, rows(range(300)), key="first")  # a replay, not an overlap
    before = cpu.snapshot
    with pytest.raises(Exception, match=r"already held.* entity=device=a .*buckets=1"):
        write(spark, lake, rows(range(299, 500)))
    assert cpu.snapshot == before
    write(spark, lake, rows(range(300, 500)))
    assert held(lake) == [("a", 0, 500)]
    assert cpu.scan().read_all().num_rows == 500
    assert cpu.repair(thorough=True).mended == ()
    assert lake.catalog.pending() == []


def test_tasks_may_share_a_window_but_not_a_time(spark: SparkSession, lake: Lake, cpu: Table) -> None:
    apart = pa.concat_tables([rows(range(200)), rows(range(200), second=30)])
    write(spark, lake, apart)
    assert held(lake) == [("a", 0, 200)]
    double = pa.concat_tables([rows(range(300, 500)), rows(range(499, 500))])
    before = cpu.snapshot
    with pytest.raises(Exception, match="same time"):
        write(spark, lake, double)
    assert cpu.snapshot == before


def test_a_load_of_what_is_missing_leaves_out_the_rest(
    spark: SparkSession, lake: Lake, cpu: Table, tmp_path: Path
) -> None:
    cpu.append(rows(range(10, 20)))
    cpu.append(rows(range(5), device="b"))
    for at, device in enumerate("ab"):
        pq.write_table(rows(range(30), device=device), tmp_path / f"{at}.parquet")
    files = [str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")]
    with pytest.raises(OverlapError, match="already held"):
        load(lake, "m.cpu", files, spark=spark)
    report = load(lake, "m.cpu", files, spark=spark, only_missing=True)
    assert (report.rows, report.left_out) == (45, 15)
    assert held(lake) == [("a", 0, 30), ("b", 0, 30)]
    assert load(lake, "m.cpu", files, spark=spark, only_missing=True).rows == 0
    lake.create_table("m.plain", SCHEMA)
    with pytest.raises(InvalidInputError, match="keeps no coverage"):
        load(lake, "m.plain", files, spark=spark, only_missing=True)


def test_a_rewrite_keeps_what_is_held(spark: SparkSession, lake: Lake, cpu: Table) -> None:
    cpu.append(rows(range(2_000)))
    rewrite(lake, "m.cpu", format="parquet", spark=spark)
    assert [extent.format for extent in cpu.extents()] == ["parquet"]
    assert held(lake) == [("a", 0, 2_000)]
    with pytest.raises(OverlapError):
        cpu.append(rows(range(1_999, 2_005)))
    assert cpu.repair(thorough=True).mended == ()


def test_a_frame_of_gaps(spark: SparkSession, lake: Lake, cpu: Table) -> None:
    cpu.append(rows(range(3)))
    cpu.append(rows(range(8, 10)))
    found = lake.sql("select device, buckets from gaps('m.cpu')", engine="spark")
    assert [row.asDict() for row in found.spark().collect()] == [{"device": "a", "buckets": 5}]
