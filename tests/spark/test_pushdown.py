"""Push filters and columns down: to the rows that they mean, and to no others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelake
import tidelake.spark
from tidelake.lake import Lake

EXTENTS, ROWS = 5, 1_200
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA = {"ts": "timestamp", "service": "string", "i": "int", "n": "long", "x": "real", "ok": "bool", "d": "dynamic"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    rng = random.Random(5)
    with tidelake.connect(tmp_path_factory.mktemp("pushdown") / "lake") as lake:
        table = lake.create_table("t", SCHEMA, time="ts", flush_age="off")
        for extent in range(EXTENTS):
            table.append(
                [
                    {
                        "ts": f"2026-01-{extent + 1:02}T{k % 24:02}:{k % 60:02}:00.{k:06}Z",
                        "service": None
                        if rng.random() < 0.1
                        else f"s{extent}-{rng.randrange(20)} Ärger {rng.randrange(9)}",
                        "i": None if rng.random() < 0.1 else rng.randrange(-50, 50),
                        "n": extent * 10_000 + k,
                        "x": rng.choice([None, float("nan"), -0.0, 0.0, 1.5, float("inf"), rng.random() * extent]),
                        "ok": rng.choice([None, True, False]),
                        "d": {"a": rng.randrange(3), f"only{extent}": True},
                    }
                    for k in range(ROWS)
                ]
            )
        table.append([{"ts": "2026-02-01T00:00:00Z", "n": 1, "service": "hot"}])
        yield lake


@pytest.fixture(scope="module")
def frame(spark: SparkSession, lake: Lake) -> DataFrame:
    return spark.read.format("tidelake").options(lake=lake.where, table="t").load()


@pytest.fixture(scope="module")
def parquet(spark: SparkSession, frame: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    path = str(tmp_path_factory.mktemp("parquet") / "rows")
    frame.write.parquet(path)
    return spark.read.parquet(path)


def predicate(rng: random.Random, depth: int = 0) -> str:
    def text() -> str:
        return f"s{rng.randrange(EXTENTS)}-{rng.randrange(20)} Ärger {rng.randrange(9)}"

    compare = rng.choice(["=", "<", "<=", ">", ">=", "<=>", "<>"])
    leaves = [
        lambda: f"i {compare} {rng.randrange(-60, 60)}",
        lambda: f"n {compare} {rng.randrange(EXTENTS * 10_000)}L",
        lambda: f"x {compare} {rng.choice(['double(' + repr('NaN') + ')', '0D', '-0.0D', '1.5D', '0.7D'])}",
        lambda: f"ok {rng.choice(['= true', '= false', 'is null', 'is not null', '<=> null'])}",
        lambda: f"service {compare} '{text()}'",
        lambda: f"service like '{rng.choice(['s1%', '%ger 3', '%Ärger%', 's2-4%', '%ärger%'])}'",
        lambda: f"service {rng.choice(['in', 'not in'])} ('{text()}', '{text()}', 'hot'{rng.choice(['', ', null'])})",
        lambda: f"i in ({rng.randrange(-50, 50)}, {rng.randrange(-50, 50)}, 999)",
        lambda: f"ts {compare} timestamp'2026-01-0{rng.randrange(1, 6)} {rng.randrange(24):02}:30:00'",
        lambda: f"{rng.choice(['service', 'i', 'x', 'd'])} is {rng.choice(['', 'not '])}null",
        lambda: f"d:a::int {compare} {rng.randrange(3)}",
    ]  # fmt: skip
    if depth < 2 and rng.random() < 0.55:
        word = rng.choice(["and", "and", "or"])
        joined = f" {word} ".join(predicate(rng, depth + 1) for _ in range(rng.randrange(2, 4)))
        return rng.choice(["", "", "not "]) + f"({joined})"
    return rng.choice(leaves)()


def answers(frame: DataFrame, predicates: list[str]) -> list[tuple[object, ...]]:
    """Count and sum what each predicate keeps, all in one query, so that its scans share a frame."""
    parts = [
        frame.where(each).selectExpr(f"{at} as at", "n", "i").groupBy("at").agg({"n": "sum", "i": "sum", "*": "count"})
        for at, each in enumerate(predicates)
    ]
    return sorted(tuple(row) for row in reduce(DataFrame.union, parts).collect())


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(1, 4))])
def test_answer_is_that_of_parquet(frame: DataFrame, parquet: DataFrame, seed: int) -> None:
    rng = random.Random(seed)
    predicates = [predicate(rng) for _ in range(25)]
    assert answers(frame, predicates) == answers(parquet, predicates)


def test_frame_used_twice_gives_each_query_its_own_rows(frame: DataFrame) -> None:
    assert frame.where("n < 10").count() == 11
    assert frame.count() == EXTENTS * ROWS + 1
    few, others = frame.where("n between 10000 and 10004").select("n"), frame.where("n >= 41190").select("n", "i")
    assert few.join(others, "n", "full").count() == 5 + 10
    assert frame.where("n < 10").count() == 11


def test_explain_shows_what_was_pruned(spark: SparkSession, frame: DataFrame) -> None:
    asked = frame.where(
        "ts >= timestamp'2026-01-03 00:00:00' and ts < timestamp'2026-01-04 00:00:00' and i > 3"
    ).select("n")
    engine: Any = spark
    mode = engine._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    shown = asked._jdf.queryExecution().explainString(mode)
    assert "ReadSchema: struct<ts:timestamp,i:int,n:bigint>" in shown
    assert "GreaterThan(i,3)" in shown
    text = tidelake.spark.explain(asked)
    assert "scan default.t at snapshot" in text
    assert "snapshot          " in text
    assert "1 extent, 1 block, 1,200 rows" in text
    assert f"{EXTENTS} extents" in text


def test_two_of_many_columns_are_all_that_is_read(frame: DataFrame) -> None:
    assert "columns  service, n" in tidelake.spark.explain(frame.groupBy("service").agg({"n": "max"}))
    assert "columns  ok\n" in tidelake.spark.explain(frame.selectExpr("1").groupBy().count())


def test_condition_of_to_spark_prunes_by_path_and_token(spark: SparkSession, lake: Lake) -> None:
    table = lake.table("t")
    found = table.to_spark(["n"], 'd["only3"] == true and d["a"] == 2', spark=spark)
    assert "1 extent, 1 block, 1,200 rows" in tidelake.spark.explain(found)
    expected = table.to_arrow(["n"], 'd["only3"] == true and d["a"] == 2')["n"].to_pylist()
    assert sorted(row.n for row in found.collect()) == sorted(expected)
    assert table.to_spark(where="service has 'hot'", spark=spark).count() == 1
    with pytest.raises(Exception, match="no such column"):
        table.to_spark(["nothing"], spark=spark)


@pytest.mark.parametrize("switch", ["false", "true"])
def test_filters_reach_our_scans_whatever_other_sources_are_told(
    spark: SparkSession, frame: DataFrame, switch: str
) -> None:
    assert spark.conf.get(PUSHDOWN) == "false"  # Spark's own default: registering leaves it as it is
    spark.conf.set(PUSHDOWN, switch)
    try:
        found = frame.where("n = 20007 and i is not null or service = 'hot'")
        assert found.count() >= 1
        assert frame.where("n < 10").count() == 11
        assert "1 extent" in tidelake.spark.explain(frame.where("n < 10"))
    finally:
        spark.conf.unset(PUSHDOWN)
