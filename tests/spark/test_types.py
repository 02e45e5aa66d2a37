"""Show that Spark's types come back as they were written, in any time zone, and that filters on them prune."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import tidelake
import tidelake.spark
from tidelake import Lake
from tidelake.spark import jobs

ZONES = ("UTC", "America/New_York", "Asia/Kolkata")

# Of every type the values, and the type they come back in where that is another.
TYPES: dict[str, tuple[list[Any], str | None]] = {
    "boolean": ([True, False], None),
    "tinyint": ([-128, 127], "int"),
    "smallint": ([-32768, 32767], "int"),
    "int": ([-(2**31), 2**31 - 1], None),
    "bigint": ([-(2**63), 2**63 - 1], None),
    "float": ([0.5, float("inf")], "double"),
    "double": ([0.1, -0.0], None),
    "string": (["", "é\x00"], None),
    "decimal(10,2)": ([Decimal("1225.50"), Decimal("-0.01")], None),
    "decimal(18,18)": ([Decimal("0.999999999999999999"), Decimal("-1E-18")], None),
    "decimal(38,5)": ([Decimal("123456789012345678901234567890123.12345"), Decimal("-0.00001")], None),
    "date": ([date(2024, 3, 10), date(1899, 12, 31)], None),
    "timestamp_ntz": ([datetime(2024, 3, 10, 2, 30), datetime(2024, 11, 3, 1, 30, 0, 1)], None),
    "timestamp": ([datetime(2024, 3, 10, 7, 30, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)], None),
    "binary": ([bytearray(b"\x00\xff"), bytearray()], None),
    "struct<a:int,b:array<string>>": ([Row(a=1, b=["x", None]), Row(a=None, b=None)], None),
    "array<date>": ([[date(2024, 3, 10), None], []], None),
    "array<timestamp_ntz>": ([[datetime(2024, 3, 10, 2, 30)], []], None),
    "array<timestamp>": ([[datetime(2024, 3, 10, 7, 30, tzinfo=UTC)], []], None),
    "map<string,decimal(30,2)>": ([{"b": Decimal("1.50"), "a": None}, {}], None),
    "map<bigint,array<binary>>": ([{5: [bytearray(b"x")], -1: []}, {}], None),
    "map<date,float>": ([{date(2024, 3, 10): 0.5}, {}], None),
    "struct<t:tinyint,s:smallint,f:float,d:struct<n:timestamp_ntz>>": (
        [Row(t=-128, s=5, f=0.5, d=Row(n=datetime(2024, 3, 10, 2, 30))), Row(t=None, s=None, f=None, d=None)],
        None,
    ),
}
SCHEMA = "n int, ts timestamp, " + ", ".join(f"c{at} {kind}" for at, kind in enumerate(TYPES))


@pytest.fixture(params=ZONES)
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def every(spark: SparkSession) -> DataFrame:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    rows: list[tuple[Any, ...]] = [(n, at, *(values[n] for values, _ in TYPES.values())) for n in (0, 1)]
    return spark.createDataFrame([*rows, (2, at, *(None for _ in TYPES))], SCHEMA).coalesce(1)


def read(spark: SparkSession, lake: Lake, table: str) -> DataFrame:
    return spark.read.format("tidelake").option("lake", lake.where).option("table", table).load()


def save(frame: DataFrame, lake: Lake, table: str) -> None:
    frame.write.format("tidelake").option("lake", lake.where).option("table", table).mode("append").save()


def test_every_type_comes_back(spark: SparkSession, lake: Lake, zone: str) -> None:
    table = lake.create_table("s.t", {"ts": "timestamp"})
    frame = every(spark)
    save(frame, lake, "s.t")
    for _ in range(2):  # as hot rows, and out of an extent
        found = read(spark, lake, "s.t").select(*frame.columns)
        kinds = {field.name: field.dataType.simpleString() for field in found.schema}
        assert kinds == {field.name: field.dataType.simpleString() for field in frame.schema} | {
            f"c{at}": back for at, (_, back) in enumerate(TYPES.values()) if back
        }
        assert found.orderBy("n").collect() == frame.orderBy("n").collect()
        table.flush()
    # What was written in one zone is the same in every other, and outside of Spark.
    kept = table.to_arrow(["n", "c11", "c12"]).sort_by("n").to_pylist()
    assert [(row["c11"], row["c12"]) for row in kept[:2]] == list(
        zip(TYPES["date"][0], TYPES["timestamp_ntz"][0], strict=True)
    )


def test_filters_find_what_they_should_and_prune(spark: SparkSession, lake: Lake, zone: str) -> None:
    columns = {"ts": "timestamp", "day": "date", "local": "timestamp_ntz", "price": "decimal(10,2)",
               "big": "decimal(38,5)", "raw": "binary", "st": "struct<a:int>"}  # fmt: skip
    table = lake.create_table("s.t", columns)
    for n in range(6):
        table.append(
            [{"ts": "2024-01-01T00:00:00Z", "day": date(2024, 3, 8 + n), "local": datetime(2024, 3, 8 + n, 2, 30),
              "price": Decimal(n) + Decimal("0.50"), "big": Decimal(n) * 10**30, "raw": bytes([n]), "st": {"a": n}}]
        )  # fmt: skip
        table.flush()
    frame = read(spark, lake, "s.t")
    asked = {
        "day = date'2024-03-10'": 1,
        "day >= date'2024-03-11'": 3,
        "day in (date'2024-03-10', date'2025-01-01')": 1,
        "local = timestamp_ntz'2024-03-10 02:30:00'": 1,
        "local < timestamp_ntz'2024-03-10 02:30:00'": 2,
        "price = 2.50": 1,
        "price > 3.5": 2,
        "big = 2000000000000000000000000000000.00000": 1,
        "big <= 1000000000000000000000000000000": 2,
        "raw = X'03'": 1,
        "st.a = 4": 1,
        "st is null": 0,
    }
    for condition, rows in asked.items():
        assert frame.where(condition).count() == rows, condition
    for condition in ("day = date'2024-03-10'", "local > timestamp_ntz'2024-03-13 02:29:59'", "price = 2.50"):
        assert "needed columns" in (said := tidelake.spark.explain(frame.where(condition)))
        assert "1 extent, 1 block, 1 row" in said, said


def test_sums_and_groups_work(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("s.t", {"ts": "timestamp", "amount": "decimal(10,2)", "st": "struct<a:int,b:string>"})
    amounts = [Decimal("0.10")] * 12_255
    table.append([{"ts": "2024-01-01T00:00:00Z", "amount": x, "st": {"a": n % 2}} for n, x in enumerate(amounts)])
    frame = read(spark, lake, "s.t")
    assert frame.selectExpr("sum(amount) as s").collect() == [Row(s=Decimal("1225.50"))]
    counted = frame.groupBy("st.a").count().orderBy("a").collect()
    assert [(row["a"], row["count"]) for row in counted] == [(0, 6128), (1, 6127)]
    assert frame.groupBy("st").count().count() == 2
    for engine in ("local", "spark"):
        found = lake.sql("select sum(amount) as s, avg(amount) as a from s.t", engine=engine).to_arrow()
        assert found.to_pylist() == [{"s": Decimal("1225.50"), "a": Decimal("0.10")}]
        by = lake.sql("select st.a, count(*) as n from s.t group by st.a order by 1", engine=engine).to_arrow()
        assert by.to_pylist() == [{"a": 0, "n": 6128}, {"a": 1, "n": 6127}]
        assert lake.kql("s.t | summarize s = sum(amount)", engine=engine).to_arrow()["s"].to_pylist() == [1225.5]


def test_a_stream_writes_what_its_session_cannot_shift(
    spark: SparkSession, lake: Lake, tmp_path: Path, zone: str
) -> None:
    lake.create_table("s.t", {"ts": "timestamp"})
    frame = spark.createDataFrame(
        [(datetime(2024, 1, 1, tzinfo=UTC), date(2024, 3, 10), datetime(2024, 3, 10, 2, 30), Decimal("1.10"))],
        "ts timestamp, day date, local timestamp_ntz, price decimal(10,2)",
    )
    frame.write.parquet(str(tmp_path / "in"))
    query = (
        spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in")).writeStream.format("tidelake")
        .option("lake", lake.where).option("table", "s.t").option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert read(spark, lake, "s.t").collect() == frame.collect()
    [row] = lake.table("s.t").to_arrow(["day", "local", "price"]).to_pylist()
    assert row == {"day": date(2024, 3, 10), "local": datetime(2024, 3, 10, 2, 30), "price": Decimal("1.10")}


@pytest.mark.parametrize("kind", ["interval day to second", "interval year to month", "struct<v:variant>"])
def test_what_no_column_holds_is_refused(spark: SparkSession, lake: Lake, kind: str) -> None:
    lake.create_table("s.t", {"ts": "timestamp"})
    frame = spark.sql(f"select current_timestamp() as ts, cast(null as {kind}) as v")
    with pytest.raises(Exception, match="unsupported spark type column=v"):
        save(frame, lake, "s.t")
    assert lake.table("s.t").snapshot.sequence == 1


def test_columns_of_two_cases_are_read_filtered_and_written(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("s.t", {"ts": "timestamp", "level": "string"})
    table.append([{"ts": "2024-01-01T00:00:00Z", "level": "a", "Level": 5}, {"ts": "2024-01-01T00:00:01Z", "Level": 6}])
    table.flush()
    frame = read(spark, lake, "s.t")
    assert frame.columns == ["ts", "level", "Level_2"]
    assert [row["Level_2"] for row in frame.where("level = 'a'").collect()] == [5]
    assert [row["level"] for row in frame.where("Level_2 = 5").select("level").collect()] == ["a"]
    assert table.to_spark(["Level"], "Level == 6", spark=spark).collect() == [Row(Level_2=6)]
    save(frame.where("Level_2 = 5"), lake, "s.t")
    assert table.schema.names == ("ts", "level", "Level")
    assert sorted(table.to_arrow()["Level"].to_pylist()) == [5, 5, 6]
    lake.create_table("s.u", {"ts": "timestamp", "level": "string"})
    save(frame.selectExpr("ts as TS", "level as LEVEL"), lake, "s.u")
    assert lake.table("s.u").schema.names == ("ts", "level")
    assert sorted(lake.table("s.u").to_arrow()["level"].to_pylist(), key=str) == [None, "a", "a"]


def test_jobs_and_streams_keep_logical_types(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("s.t", {"ts": "timestamp"})
    frame = every(spark)
    save(frame, lake, "s.t")
    table.flush()
    before, kinds = table.to_arrow().sort_by("n"), table.schema.to_json()["columns"]
    jobs.rewrite(lake, "s.t", format="parquet", spark=spark)
    assert [extent.format for extent in table.extents()] == ["parquet"]
    assert table.to_arrow().sort_by("n") == before
    frame.write.parquet(str(tmp_path / "files"))
    jobs.load(lake, "s.loaded", [str(tmp_path / "files" / "*.parquet")], time="ts", spark=spark)
    lake.table("s.loaded").flush()
    loaded = lake.table("s.loaded")
    assert {shape["name"]: shape.get("logical") for shape in loaded.schema.to_json()["columns"]} == {
        shape["name"]: shape.get("logical") for shape in kinds
    }
    assert loaded.to_arrow(before.schema.names).sort_by("n") == before
    stream = spark.readStream.format("tidelake").option("lake", lake.where).option("table", "s.t").load()
    query = (
        stream.select(*frame.columns).writeStream.format("memory").queryName("typed").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    assert spark.table("typed").orderBy("n").collect() == frame.orderBy("n").collect()
