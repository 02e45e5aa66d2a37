"""Ask for paths of VARIANT columns: the answers are those of Parquet, and extents without such a value are not read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidelake.spark
from tidelake import Lake
from tidelake.model.schema import Schema
from tidelake.spark.catalog.conditions import meant
from tidelake.spark.catalog.path_conditions import keys_of

SCHEMA = Schema.of({"d": "dynamic", "n": "long"})
ODD: list[Any] = [
    {"s": "auth"}, {"s": b"auth"}, {"s": 5}, {"s": "5"}, {"s": 5.4}, {"s": True}, {"s": "true"}, {"s": None}, {},
    {"s": {"a": 1}}, {"s": [1, 2]}, {"a": {"b": "x"}}, {"a.b": "x"}, {"a.b": "y", "a": {"b": "x"}}, {"a": [1]}, None, 7,
    {"s": " 5 "}, {"S": "auth"}, {"s": datetime(2026, 1, 1, tzinfo=UTC)}, {"s": "2026-01-01"}, {"s": float("inf")},
]  # fmt: skip
PLAIN = {"d:s::string = 'auth'", "d:s::string IN ('auth', 'other')", "d:rare IS NOT NULL", "d:s::string = 'nowhere'"}
CONDITIONS = [
    *sorted(PLAIN), "'auth' = d:s::string", "d:s::string = 'true'", "d:s::string = '5'", "d:s::string >= 'a'",
    "try_variant_get(d, '$.s', 'int') = 5", "try_variant_get(d, '$.s', 'double') > 4.5",
    "try_variant_get(d, '$.s', 'boolean')", "d:a.b::string = 'x'", "d:['a.b']::string = 'x'", "d:a[0]::int = 1",
    "d:s IS NULL", "NOT (d:s::string = 'auth')", "d:s::string <=> 'auth'", "d:s::string LIKE 'au%'",
    "d:s::string = 'auth' OR n < 3", "variant_get(d, '$.s', 'string') = 'Infinity'", "d:S::string = 'auth'",
]  # fmt: skip


def variant(path: str, to: str = "string") -> dict[str, Any]:
    return {"variant": ["d"], "path": path, "to": to}


def text(value: str | None) -> dict[str, Any]:
    return {"type": "string", "value": value}


def test_answers_are_those_of_parquet_and_extents_are_pruned(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "n": "long", "d": "dynamic"}, time="ts", flush_age="off")
    for extent in range(3):
        odd = ODD if extent == 2 else [{"s": f"s{extent}-{k}", "rare": 1} if extent else {"t": k} for k in range(22)]
        table.append([{"ts": f"2026-01-0{extent + 1}", "n": extent * 100 + k, "d": d} for k, d in enumerate(odd)])
        table.flush()
    session = tidelake.spark.register(spark.newSession(), lake=lake)
    session.table("tidelake.default.t").write.parquet(str(tmp_path / "p"))
    session.read.parquet(str(tmp_path / "p")).createOrReplaceTempView("model")
    asked = [f"collect_list(n) FILTER (WHERE {each})" for each in CONDITIONS]
    wanted = session.sql(f"SELECT {', '.join(asked)} FROM model").collect()[0]
    for condition, expected in zip(CONDITIONS, wanted, strict=True):
        found = session.sql(f"SELECT n FROM tidelake.default.t WHERE {condition}")
        assert sorted(row.n for row in found.collect()) == sorted(expected), condition
    for condition in PLAIN:
        shown = tidelake.spark.explain(session.sql(f"SELECT n FROM tidelake.default.t WHERE {condition}"))
        assert "d['" in shown, shown


@pytest.mark.parametrize(
    ("tree", "bound"),
    [
        ({"name": "=", "children": [variant("$.s"), text("auth")]}, "(d['s'] == 'auth' or d['s'] == b'auth')"),
        ({"name": "=", "children": [text("auth"), variant("$['s']")]}, "(d['s'] == 'auth' or d['s'] == b'auth')"),
        ({"name": "=", "children": [variant("$.s"), text("NaN")]}, "exists(d['s'])"),
        ({"name": "=", "children": [variant("$.s", "int"), {"type": "int", "value": 5}]}, "exists(d['s'])"),
        ({"name": "=", "children": [variant("$.a.b"), text("x")]}, "exists(d['a.b'])"),
        ({"name": "IS_NOT_NULL", "children": [variant('$["a"].b')]}, "exists(d['a.b'])"),
        ({"name": "IS_NULL", "children": [variant("$.s")]}, "None"),
        ({"name": "<=>", "children": [variant("$.s"), text("x")]}, "None"),
        ({"name": "=", "children": [variant("$.s"), text(None)]}, "None"),
        ({"name": "=", "children": [variant("$.s"), variant("$.t")]}, "None"),
        ({"name": "NOT", "children": [{"name": "=", "children": [variant("$.s"), text("x")]}]}, "None"),
        ({"name": "=", "children": [variant("$.s[0]"), text("x")]}, "None"),
    ],
)
def test_a_condition_bounds_what_it_proves(tree: dict[str, Any], bound: str) -> None:
    found = meant(tree, SCHEMA)
    assert (repr(found.predicate), found.is_exact) == (bound, False)


def test_paths_are_read_as_spark_writes_them() -> None:
    paths = ["$.a", "$['a b'].c", '$["x"]', "$", "$[0]", "$.a[1]", "$['a.b']", "a", "$..a", "$['a[0]']", '$["[0]"]']
    assert [keys_of(path) for path in paths] == [["a"], ["a b", "c"], ["x"], *[None] * 8]
