"""Write tables through the data source: batch and SQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelake
from tidelake.dynamic.values import decode
from tidelake.lake import Lake

SCHEMA = {"ts": "timestamp", "n": "int", "name": "string", "doc": "dynamic", "v": "vector(2)"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelake.connect(tmp_path / "lake") as lake:
        lake.create_table("t", SCHEMA, time="ts")
        yield lake


def save(frame: DataFrame, lake: Lake, **options: str) -> None:
    frame.write.format("tidelake").options(**{"lake": lake.where, "table": "t"} | options).mode("append").save()


def numbers(spark: SparkSession, count: int, more: str = "") -> DataFrame:
    return spark.range(count).selectExpr(
        "timestamp_micros(1767225600000000 + (id * 7919 % 1000) * 1000000) as ts",
        "cast(id as int) as n",
        "concat('name ', id) as name",
        """parse_json(concat('{"a": ', id % 10, ', "b": [1.5, null, "x"]}')) as doc""",
        "array(cast(id as float), 0.5f) as v",
        *([more] if more else []),
    )


def test_batches_for_python_are_bounded_by_their_rows(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in tidelake.spark.BATCHES} == tidelake.spark.BATCHES


def test_write_is_one_commit_of_well_sized_extents_in_time_order(spark: SparkSession, lake: Lake) -> None:
    save(numbers(spark, 60_000).repartition(3), lake, extentBytes="200000")
    table = lake.table("t")
    assert [snapshot.operation for snapshot in table.history()] == ["append", "create"]
    assert len(table.extents()) >= 6
    assert lake.catalog.pending() == []
    found = table.to_arrow()
    assert sorted(found["n"].to_pylist()) == list(range(60_000))
    assert table.scan(["n"], where='doc["a"] == 3').read_all().num_rows == 6_000
    row = table.scan(where="n == 12345", dynamic="cbor").read_all().to_pylist()[0]
    assert tidelake_value(row["doc"]) == {"a": 5, "b": [1.5, None, "x"]}
    assert row["v"] == [12345.0, 0.5]
    for extent in table.extents():
        times = table.handle.footers.open(extent).read_block(0, ["ts"]).column(0)
        assert times == times.sort()


def tidelake_value(data: bytes) -> object:
    from tidelake.dynamic.values import decode

    return decode(data)


def test_write_of_few_rows_stays_hot(spark: SparkSession, lake: Lake) -> None:
    save(numbers(spark, 10), lake)
    totals = lake.table("t").snapshot.totals
    assert (totals.extents, totals.hot_rows) == (0, 10)


def test_write_under_a_key_happens_once(spark: SparkSession, lake: Lake) -> None:
    for _ in range(2):
        save(numbers(spark, 3_000), lake, key="one")
    assert lake.table("t").to_arrow(["n"]).num_rows == 3_000
    assert lake.table("t").snapshot.sequence == 2
    assert lake.catalog.pending() == []


def test_write_widens_the_schema_in_its_own_commit(spark: SparkSession, lake: Lake) -> None:
    save(
        numbers(spark, 20, "map('k', id) as nested").selectExpr(
            "ts", "cast(n as bigint) n", "n / 4 as quarter", "nested"
        ),
        lake,
    )
    table = lake.table("t")
    assert {c.name: str(c.type) for c in table.schema}.items() >= {
        "n": "long", "quarter": "real", "nested": "map<string,long>"
    }.items()  # fmt: skip
    assert table.snapshot.sequence == 2
    assert sorted(table.to_arrow(["quarter"])["quarter"].to_pylist()) == [n / 4 for n in range(20)]


def test_write_that_narrows_is_refused_and_nothing_is_visible(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(
        Exception, match=r"a write cannot narrow or replace a column's type column=n .*has=int wanted=string"
    ):
        save(spark.sql("select current_timestamp() as ts, 'many' as n"), lake)
    with pytest.raises(Exception, match=r"the rows have no time column table=default.t column=ts"):
        save(spark.sql("select 1 as n"), lake)
    with pytest.raises(Exception, match=r"a row has no time in the table's time column"):
        save(spark.sql("select cast(null as timestamp) as ts, 1 as n"), lake)
    assert lake.table("t").snapshot.sequence == 1
    assert lake.catalog.pending() == []


def test_failed_task_leaves_nothing_but_garbage(spark: SparkSession, lake: Lake) -> None:
    frame = numbers(spark, 40_000).selectExpr("ts", "n", "name").where("assert_true(n < 39999) is null")
    with pytest.raises(Exception, match=r"assert_true|is not true"):
        save(frame, lake, extentBytes="200000")
    assert lake.table("t").snapshot.sequence == 1
    assert lake.catalog.pending() == []
    garbage = {each.key for each in lake.catalog.garbage(before_us=2**62)}
    for meta in lake.store.list("data"):  # what a task wrote after the job was given up is in the job's folder
        assert meta.key in garbage or meta.key.rpartition("/")[0] in garbage


def test_sql_creates_inserts_and_reads(spark: SparkSession, lake: Lake) -> None:
    spark.sql(f"create table sql_t using tidelake options (lake '{lake.where}', table 't')")
    try:
        spark.sql(
            "insert into sql_t select timestamp'2026-01-01 00:00:00', 7, 'x', "
            "parse_json('{\"a\": 1}'), array(1.0f, 2.0f)"
        )
        spark.sql("insert into sql_t select ts, n + 1, name, doc, v from sql_t")
        assert [row.n for row in spark.sql("select n from sql_t where doc:a::int = 1 order by n").collect()] == [7, 8]
        spark.read.format("tidelake").options(lake=lake.where, table="t").load().createOrReplaceTempView("view_t")
        assert spark.sql("select sum(n) from view_t").first()[0] == 15  # type: ignore[index]
    finally:
        spark.sql("drop table sql_t")
    assert lake.table("t").snapshot.sequence == 3


def test_bad_places_are_said_clearly(spark: SparkSession, lake: Lake) -> None:
    def read(**options: str) -> object:
        return spark.read.format("tidelake").options(**options).load().collect()

    with pytest.raises(Exception, match="name the lake with option lake"):
        read(table="t")
    with pytest.raises(Exception, match="name the table with option table"):
        read(lake=lake.where)
    with pytest.raises(Exception, match="no such table"):
        read(lake=lake.where, table="nothing")
    with pytest.raises(Exception, match="no lake here"):
        read(lake=lake.where + "-nowhere", table="t")
    with pytest.raises(Exception, match=r"StorageError"):
        read(lake="postgresql://nobody@127.0.0.1:1/none", objects=lake.where, table="t")


def test_vanished_object_fails_the_job(spark: SparkSession, lake: Lake) -> None:
    save(numbers(spark, 3_000), lake)
    (extent,) = lake.table("t").extents()
    frame = spark.read.format("tidelake").options(lake=lake.where, table="t").load()
    assert frame.count() == 3_000
    lake.store.delete([extent.key])
    with pytest.raises(Exception, match="no such object"):
        frame.count()


def test_write_of_reals_widens_a_column_of_whole_numbers_or_keeps_it_exact(spark: SparkSession, lake: Lake) -> None:
    columns = {"ts": "timestamp", "small": "long", "large": "long", "s": "string"}
    table = lake.create_table("wide", columns, time="ts", flush_age="off")
    table.append([{"ts": "2026-01-01T00:00:00Z", "small": 3, "large": 2**53 + 1, "s": "x"}])
    frame = spark.sql("select current_timestamp() as ts, 0.5d as small, 0.5d as large, 12 as s")
    save(frame, lake, table="wide")
    assert {c.name: str(c.type) for c in table.schema} == columns | {"small": "real", "large": "dynamic"}
    rows = table.to_arrow(["small", "large", "s"], "small > 0", dynamic="cbor").sort_by("small").to_pylist()
    assert [row["small"] for row in rows] == [0.5, 3.0]
    assert [decode(row["large"]) for row in rows] == [0.5, 2**53 + 1]
    assert [row["s"] for row in rows] == ["12", "x"]
