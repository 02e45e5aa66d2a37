"""Read tables through the data source."""

from __future__ import annotations

import pickle
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelake
from tests.support.servers import S3Server
from tidelake.lake import Lake
from tidelake.spark.places import Place
from tidelake.spark.reading import TableReader
from tidelake.spark.types import spark_schema

ROWS = 5_000


def rows_of(count: int, *, day: int = 1) -> list[dict[str, Any]]:
    return [
        {
            "ts": f"2026-01-{day:02}T{n % 24:02}:00:00Z",
            "service": f"service-{n % 7}",
            "n": n,
            "x": n / 4,
            "ok": n % 3 == 0,
            "attributes": {"http": {"status": 200 + n % 5}, "user": f"u{n % 100}"},
            "v": [float(n), 1.0, 2.0],
        }
        for n in range(count)
    ]


SCHEMA = {
    "ts": "timestamp", "service": "string", "n": "long", "x": "real", "ok": "bool", "attributes": "dynamic",
    "v": "vector(3)",
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with tidelake.connect(tmp_path_factory.mktemp("read") / "lake") as lake:
        table = lake.create_table("obs.logs", SCHEMA, time="ts")
        table.append(rows_of(ROWS))
        table.append(rows_of(10, day=2))  # stays hot
        yield lake


def frame(spark: SparkSession, lake: Lake, table: str = "obs.logs", **options: str) -> DataFrame:
    return spark.read.format("tidelake").options(lake=lake.where, table=table, **options).load()


def as_arrow(frame: DataFrame) -> pa.Table:
    found = frame.toArrow()
    assert isinstance(found, pa.Table)
    return found


def test_frame_has_all_rows_hot_ones_too(spark: SparkSession, lake: Lake) -> None:
    found = as_arrow(frame(spark, lake).select("n", "service", "x", "ok")).sort_by(
        [("n", "ascending"), ("x", "ascending")]
    )
    expected = (
        lake.table("obs.logs").to_arrow(["n", "service", "x", "ok"]).sort_by([("n", "ascending"), ("x", "ascending")])
    )
    assert found.num_rows == ROWS + 10
    assert found.to_pydict() == expected.to_pydict()


def test_types_are_those_that_spark_has(spark: SparkSession, lake: Lake) -> None:
    assert frame(spark, lake).schema.simpleString() == (
        "struct<ts:timestamp,service:string,n:bigint,x:double,ok:boolean,attributes:variant,v:array<float>>"
    )
    row = (
        frame(spark, lake)
        .where("n = 4321")
        .selectExpr("cast(ts as string)", "attributes:http.status::int", "attributes:user::string", "v")
        .first()
    )
    assert row is not None
    assert tuple(row) == ("2026-01-01 01:00:00", 201, "u21", [4321.0, 1.0, 2.0])


def test_schema_of_the_user_is_the_projection(spark: SparkSession, lake: Lake) -> None:
    reader = spark.read.format("tidelake").options(lake=lake.where, table="obs.logs")
    assert reader.schema("n bigint, service string").load().where("n = 7").distinct().collect() == [(7, "service-0")]
    with pytest.raises(Exception, match=r"no such column column=nothing table=obs.logs columns=ts, service"):
        reader.schema("nothing bigint").load().collect()
    with pytest.raises(Exception, match=r"the schema asks for another type column=n .*has=bigint wanted=int"):
        reader.schema("n int").load().collect()


def test_older_snapshot_reads_the_same(spark: SparkSession, lake: Lake) -> None:
    assert frame(spark, lake, snapshot="2").count() == ROWS
    committed_us = lake.table("obs.logs").history()[-2].committed_us
    as_of = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=committed_us)).isoformat()
    assert frame(spark, lake, asOf=as_of).count() == ROWS
    with pytest.raises(Exception, match=r"no such snapshot"):
        frame(spark, lake, snapshot="99").count()


def test_options_reach_the_planner_whatever_their_case(spark: SparkSession, lake: Lake) -> None:
    assert frame(spark, lake, splitBytes="1000").rdd.getNumPartitions() == 2  # one block, and the hot rows
    with pytest.raises(Exception, match="option splitBytes is a whole number from 1 on got=many"):
        frame(spark, lake, SPLITBYTES="many").count()


def test_secrets_are_in_options_and_not_in_splits(tmp_path: Path, s3: S3Server) -> None:
    where = f"s3://{s3.bucket}/secrets-{secrets.token_hex(6)}"
    store: dict[str, Any] = {"objects": where, "endpoint": s3.endpoint, "key": s3.key, "secret": s3.secret}
    with tidelake.connect(tmp_path / "lake", **store) as lake:
        table = lake.create_table("t", {"ts": "timestamp", "n": "long"}, time="ts")
        table.append([{"ts": "2026-01-01T00:00:00Z", "n": n} for n in range(2_000)])
        place = Place.of_lake(lake)
        assert s3.secret not in repr(place)
        options = {**place.options(), "table": "t"}
        reader = TableReader(options, spark_schema(table.schema))
        (split,) = reader.partitions()
        assert s3.secret.encode() not in pickle.dumps(split)
        elsewhere = pickle.loads(pickle.dumps(reader))
        assert sum(batch.num_rows for batch in elsewhere.read(pickle.loads(pickle.dumps(split)))) == 2_000
