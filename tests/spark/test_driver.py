"""Plan in the driver's own process, and hand columns to Spark: the same answers, with nothing started for a plan."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelake
import tidelake.spark
from tidelake.spark.jobs import told_by_task
from tidelake.spark.jvm.planning import Planner
from tidelake.spark.reading import Split, TableReader

ROWS = [
    {"ts": f"2026-03-01T00:00:{k:02}Z", "n": k, "x": k / 2, "name": f"é{k}", "ok": k % 2 == 0, "d": {"k": k}}
    for k in range(20)
]
SCHEMA = {"ts": "timestamp", "n": "long", "x": "real", "name": "string", "ok": "bool", "d": "dynamic"}


def lake_at(path: Path, rows: list[dict[str, Any]]) -> str:
    with tidelake.connect(path) as lake:
        table = lake.create_table("t", SCHEMA, time="ts", flush_age="off")
        table.append(rows)
        table.flush()
    return str(path)


def frame_of(spark: SparkSession, where: str) -> DataFrame:
    return spark.read.format("tidelake").options(lake=where, table="t").load()


def planners(spark: SparkSession) -> int:
    """Count the processes that Spark's JVM keeps for plans."""
    found = 0
    jvm: Any = spark.sparkContext._gateway
    for process in psutil.Process(jvm.proc.pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            found += any("pyspark.sql.worker." in word for word in process.cmdline())
    return found


def test_plans_start_no_process(spark: SparkSession, tmp_path: Path) -> None:
    where, before = lake_at(tmp_path / "lake", ROWS), planners(spark)
    frame = frame_of(spark, where)
    assert frame.where("n >= 15").count() == 5
    with tidelake.connect(where) as lake:
        lake.create_table("copy", SCHEMA, time="ts", flush_age="off")
    frame.write.format("tidelake").options(lake=where, table="copy").mode("append").save()
    assert frame_of(spark, where).count() == 20
    assert planners(spark) <= before  # an idle one may have ended meanwhile
    with tidelake.connect(where) as lake:
        assert lake.table("copy").scan(["n"]).read_all().num_rows == 20


def test_columns_reach_spark_as_columns(spark: SparkSession, tmp_path: Path) -> None:
    odd = [{**row, "n": None, "name": None, "x": None, "d": None, "ok": None} for row in ROWS[:3]]
    frame = frame_of(spark, lake_at(tmp_path / "lake", [*ROWS, *odd]))
    plan = frame.where("x > 1")._jdf.queryExecution().executedPlan().toString()
    assert "ColumnarToRow" in plan
    rows = frame.selectExpr("n", "x", "name", "ok", "d:k::int as k", "unix_seconds(ts) as s").collect()
    assert len(rows) == 23
    assert sum(row.n or 0 for row in rows) == sum(range(20)) == sum(row.k or 0 for row in rows)
    assert sorted(row.name or "" for row in rows) == sorted([*(f"é{k}" for k in range(20)), "", "", ""])
    assert {row.s for row in rows} == {1772323200 + k for k in range(20)}
    assert frame.where("name is null and ok is null and x is null and d is null").count() == 3


def test_only_asked_columns_are_read(spark: SparkSession, tmp_path: Path) -> None:
    names = [f"c{at:02}" for at in range(100)]
    with tidelake.connect(tmp_path) as lake:
        table = lake.create_table("t", {"ts": "timestamp", **dict.fromkeys(names, "long")}, time="ts", flush_age="off")
        columns = {name: pa.array(range(1000), pa.int64()) for name in names}
        table.append(pa.table({"ts": pa.array(range(1000), pa.timestamp("us", tz="UTC")), **columns}))
        table.flush()
    asked = frame_of(spark, str(tmp_path)).select("c07", "c93").where("c93 < 500")
    assert asked.count() == 500
    shown = asked._jdf.queryExecution().executedPlan().toString()
    assert "c07#" in shown
    assert "c08#" not in shown
    splits = TableReader({"lake": str(tmp_path), "table": "t"}, asked.schema).partitions()
    assert {name for split in splits if isinstance(split, Split) for name in split.plan.question.needed} == {
        "c07",
        "c93",
    }


def test_another_session_can_be_made_ready_while_one_is_active(spark: SparkSession, tmp_path: Path) -> None:
    where = lake_at(tmp_path / "lake", ROWS)
    assert frame_of(spark, where).count() == 20
    other = tidelake.spark.register(spark.newSession())
    assert frame_of(other, where).where("n < 3").count() == 3
    assert tidelake.spark.register(other) is other
    assert frame_of(spark, where).where("n < 3").count() == 3


def test_a_lake_made_again_in_its_place_is_another(spark: SparkSession, tmp_path: Path) -> None:
    where = lake_at(tmp_path / "lake", ROWS)
    assert frame_of(spark, where).count() == 20
    shutil.rmtree(where)
    lake_at(tmp_path / "lake", ROWS[:7])
    assert frame_of(spark, where).count() == 7


def test_what_is_no_step_of_a_plan_is_refused() -> None:
    answer = bytes(Planner().apply("os", b""))
    assert b"os is no step of a plan" in answer


def test_an_error_of_a_plan_is_told_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    where = lake_at(tmp_path / "lake", ROWS)
    with pytest.raises(Exception, match="no such table") as raised:
        spark.read.format("tidelake").options(lake=where, table="tt").load()
    assert "NotFoundError: no such table table=default.tt" in str(raised.value).partition("\n")[0]
    assert told_by_task(raised.value)[0][0] == "NotFoundError"
    frame = frame_of(spark, where)
    with pytest.raises(Exception, match="option blockRows is a whole number") as raised:
        frame.write.format("tidelake").options(lake=where, table="t", blockRows="many").mode("append").save()
    assert "Traceback" not in str(raised.value)
