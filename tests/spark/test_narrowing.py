"""Use paths of VARIANT columns: only their keys are read where extents keep them apart, and answers stay the same."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

import tidelake.spark
from tidelake import Lake, Table
from tidelake.spark.catalog.path_conditions import outermost_key
from tidelake.spark.narrowing import used_keys
from tidelake.spark.options import KEYS
from tidelake.spark.reading import Split, TableReader
from tidelake.spark.types import spark_schema

COLUMNS = {"ts": "timestamp", "n": "long", "d": "dynamic", "e": "dynamic"}
VALUES: list[Any] = [
    {"s": "auth", "t": 1}, {"s": b"auth"}, {"s": 5}, {"s": 5.4}, {"s": True}, {"s": None}, {}, {"s": {"a": 1, "b": []}},
    {"s": [1, {"x": 2}]}, {"s": {"b": [2]}}, {"a": {"b": "x", "c": None}}, {"a.b": "x"}, {"a.b": "y", "a": {"b": "x"}},
    {"a": [1]}, 7, "s", [1, 2], {"s": datetime(2026, 1, 1, tzinfo=UTC)}, {"s": 2**70}, {"S": "other"},
    {"é ü": "z", "long": "x" * 300}, {"s[1]": "k"}, {"s[1]": "k", "s": [1, 2]},
]  # fmt: skip
SELECTED = [
    "variant_get(d, '$.s') AS v", "try_variant_get(d, '$.s', 'string') AS v", "try_variant_get(d, '$.s', 'int') AS v",
    "try_variant_get(d, '$.s.b[0]', 'int') AS v", "try_variant_get(d, '$.s[1].x', 'int') AS v", "d:a.b::string AS v",
    "d:['a.b']::string AS v", "d:['s[1]'] AS v", "d:['é ü']::string AS v",
    "concat(d:a::string, try_variant_get(e, '$.s', 'string')) AS v",
    "is_variant_null(d:s) AS v", "d:s IS NULL AS v", "d:s::string = 'auth' AND d IS NOT NULL AS v", "d:nowhere AS v",
    "d:t, d AS v", "try_variant_get(d, '$[1]', 'int') AS v", "schema_of_variant(d) AS v",
]  # fmt: skip
CONDITIONS = ["TRUE", "d IS NOT NULL", "d IS NULL", "try_variant_get(d, '$.s', 'string') = 'auth'", "d:a IS NOT NULL"]


def filled(lake: Lake, name: str, extents: Sequence[Sequence[Any]]) -> Table:
    table = lake.create_table(name, COLUMNS, time="ts", flush_age="off", format="tlm3")
    for at, values in enumerate(extents):
        table.append([{"ts": "2026-01-01", "n": at * 100 + k, "d": d, "e": d} for k, d in enumerate(values)])
        table.flush()
    return table


def told(*paths: tuple[str, str]) -> str:
    """Say what Spark says of extractions."""
    metadata = [orjson.dumps({"__VARIANT_METADATA_KEY": {"path": path}}).decode() for _, path in paths]
    return orjson.dumps(
        [{"column": [column], "metadata": each} for (column, _), each in zip(paths, metadata, strict=True)]
    ).decode()


@pytest.mark.parametrize("every", [len(CONDITIONS), pytest.param(1, marks=pytest.mark.torture)])
def test_answers_are_those_of_whole_values(spark: SparkSession, lake: Lake, tmp_path: Path, every: int) -> None:
    """Select everything under some condition, each in its turn, or all under all."""
    filled(lake, "t", [VALUES, [None, *VALUES], [{"s": f"s{k}", "a": {"b": k}} for k in range(50)]])
    session = tidelake.spark.register(spark.newSession(), lake=lake)
    session.table("tidelake.default.t").write.parquet(str(tmp_path / "p"))
    session.read.parquet(str(tmp_path / "p")).createOrReplaceTempView("model")
    session.table("tidelake.default.t").createOrReplaceTempView("ours")
    for selected, condition in list(product(SELECTED, CONDITIONS))[:: every + (every > 1)]:
        text = f"SELECT n, to_json(struct(v)) AS j FROM (SELECT n, {selected} FROM {{}} WHERE {condition}) ORDER BY n"
        found, wanted = (session.sql(text.format(name)).collect() for name in ("ours", "model"))
        assert found == wanted, (selected, condition)


def test_keys_that_a_query_uses_reach_the_scan(spark: SparkSession, lake: Lake) -> None:
    filled(lake, "t", [VALUES])
    session = tidelake.spark.register(spark.newSession(), lake=lake)

    def shown(text: str) -> list[str]:
        lines = tidelake.spark.explain(session.sql(text)).splitlines()
        return [line.strip() for line in lines if "stored apart" in line]

    said = "of d only {}, where keys are stored apart"
    assert shown("SELECT d:s::string FROM tidelake.t WHERE d:a.b::int = 1") == [said.format("a, s")]
    assert shown("SELECT d:s::string, count(*) FROM tidelake.t GROUP BY 1") == [said.format("s")]
    assert shown("SELECT d:s::string, d FROM tidelake.t") == []
    assert shown("SELECT d FROM tidelake.t") == shown("SELECT n FROM tidelake.t") == []


def test_only_the_keys_are_read_where_no_value_is_null(lake: Lake) -> None:
    full = [{"s": k, "other": "x" * 1000} for k in range(50)]
    table = filled(lake, "t", [full, [*full, None]])
    schema = spark_schema(table.schema, ["n", "d"])

    def read(*paths: tuple[str, str]) -> tuple[list[Any], int]:
        options = {"lake": lake.where, "table": "t", "splitBytes": "1", KEYS: told(*paths)}
        reader = TableReader(options, schema)
        splits = [pickle.loads(pickle.dumps(each)) for each in reader.partitions()]
        keys = [each.keys for each in splits if isinstance(each, Split)]
        return keys, sum(batch.nbytes for split in splits for batch in reader.read(split))

    keys, narrow = read(("d", "$.s"))
    assert keys == [{"d": ("s",)}, {}]
    whole_keys, whole = read()
    assert whole_keys == [{}, {}]
    assert narrow < whole * 0.6


def test_a_column_is_whole_where_its_keys_do_not_do(lake: Lake) -> None:
    schema = lake.create_table("t", COLUMNS | {"day": "date"}, time="ts").schema
    assert used_keys(told(("d", "$.s"), ("d", "$.a.b"), ("e", "$.x[0]")), schema) == {"d": ("a", "s"), "e": ("x",)}
    for path in ("$", "$[0]", "$['a.b']", "nonsense"):
        assert used_keys(told(("d", "$.s"), ("d", path)), schema) == {}
    assert used_keys(told(("day", "$.s"), ("n", "$.s"), ("nowhere", "$.s")), schema) == {}
    assert used_keys(told(*(("d", f"$.k{at}") for at in range(17))), schema) == used_keys(None, schema) == {}


def test_the_outermost_key_of_a_path() -> None:
    known = {"$.a": "a", "$.a.b": "a", "$.a[0]": "a", "$['a b'][0].c": "a b", '$["x"]': "x"}
    assert {path: outermost_key(path) for path in known} == known
    for path in ("$", "$[0]", "$['a.b']", "$.a'b", '$.a"', "a", "$['a[0]'].b"):
        assert outermost_key(path) is None
