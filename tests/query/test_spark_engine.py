"""Ask on Spark: a query that takes too long is stopped, and a result can go on as a frame of Spark's."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tidelake import Lake, UnavailableError

# Some millions of pairs, each asked without compiled code. Spark gives up the query at once, but a task that has begun
# to pair rows ends by itself, so there must not be too many.
SLOW = (
    "select count(*) as n from obs.logs a, obs.logs b, obs.logs c, obs.logs d "
    "where d.status < 300 and d.bytes % 5000 = 0 and a.status * b.status + b.bytes * c.bytes > d.status + 3"
)


def test_query_that_takes_too_long_on_spark_is_stopped(world: Lake, quick_spark: SparkSession) -> None:
    with pytest.raises(UnavailableError, match="took longer than its budget") as caught:
        world.sql(SLOW, engine="spark", budget={"seconds": 0.2}).to_arrow()
    assert caught.value.kind == "time_budget"
    found = world.sql("select count(*) as n from obs.logs where status + 0 = 500", engine="spark")
    assert found.to_arrow()["n"].to_pylist() == [24], "the session goes on"


def test_result_goes_on_as_a_frame(world: Lake, quick_spark: SparkSession) -> None:
    before = quick_spark.conf.get("spark.sql.ansi.enabled")
    frame = world.sql("select service, status, ts from obs.logs where status = 500").spark()
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("service", "string"),
        ("status", "int"),
        ("ts", "timestamp"),
    ]
    counted = {row["service"]: row["count"] for row in frame.groupBy("service").count().collect()}
    sql = "select service, count(*) as n from obs.logs where status = 500 group by 1"
    assert counted == {row["service"]: row["n"] for row in world.sql(sql).to_arrow().to_pylist()}
    kql = world.kql("obs.logs | where status == 500 | summarize n = count() by service").spark()
    assert {row["service"] or None: row["n"] for row in kql.collect()} == counted
    assert quick_spark.conf.get("spark.sql.ansi.enabled") == before
    assert not [table.name for table in quick_spark.catalog.listTables() if table.name.startswith("tide_")]
