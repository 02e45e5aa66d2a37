"""Ask in Spark while a table is written, flushed and rewritten: every answer is that of one snapshot."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.support.bustle import TABLE, bustle, make_table, rewritten
from tidelake.errors import ConflictError
from tidelake.lake import Lake
from tidelake.spark.jobs import copy, rewrite


@pytest.fixture
def lake(lake: Lake) -> Lake:
    make_table(lake)
    return lake


def check_joins(spark: SparkSession, lake: Lake) -> None:
    """Ask for each side of a join, a union and a subquery: all must have the same rows, none of them twice."""
    for view in ("busy_a", "busy_b"):
        spark.read.format("tidelake").options(lake=lake.where, table=TABLE).load().createOrReplaceTempView(view)
    row = spark.sql(
        """select count(a.n), count(b.n), count(distinct a.n), (select count(*) from busy_a where n > -1000),
          (select count(*) from (select n from busy_a union select n from busy_b))
        from busy_a a full outer join busy_b b on a.n = b.n"""
    ).first()
    assert row is not None
    assert len(set(row)) == 1, row


def ask_all(spark: SparkSession, lake: Lake, seed: int, rounds: int) -> None:
    with bustle(lake, seed, writers=1, others=[rewritten]):
        for _ in range(rounds):
            check_joins(spark, lake)
            report = copy(lake, TABLE, "m.copy", query="select a.* from source a left anti join source b on a.n = b.n",
                          spark=spark)  # fmt: skip
            assert report.rows == 0
    with bustle(lake, seed + 1000, writers=1):
        for _ in range(rounds):
            try:
                rewrite(lake, TABLE, spark=spark)
            except ConflictError:
                continue
    numbers = lake.table(TABLE).to_arrow(["n"])["n"].to_pylist()
    assert len(numbers) == len(set(numbers))
    assert lake.table(TABLE).repair(thorough=True).mended == ()


def test_every_answer_of_spark_is_of_one_snapshot(spark: SparkSession, lake: Lake) -> None:
    ask_all(spark, lake, seed=3, rounds=1)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2))
def test_every_answer_of_spark_is_of_one_snapshot_for_long(spark: SparkSession, lake: Lake, seed: int) -> None:
    ask_all(spark, lake, seed, rounds=12)
