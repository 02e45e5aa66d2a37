"""Show that Spark finds what the table finds of values that change their type, and announces the rest."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.write.test_drift import check_drift, rows_of
from tidelake.lake import Lake


@pytest.mark.parametrize("seed", [1, 7, *(pytest.param(seed, marks=pytest.mark.torture) for seed in (3, 4, 9))])
def test_every_value_is_found_or_announced_on_spark(spark: SparkSession, lake: Lake, seed: int) -> None:
    check_drift(lake, seed, ("local", "spark"))


def test_a_column_of_several_types_is_compared_alike_on_both_engines(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp", "v": "long"}, time="ts", flush_age="off")
    table.append(rows_of([12] * 30))
    table.flush()
    table.append(rows_of([*["twelve"] * 12, 12, 12.5], 100))
    assert str(table.schema["v"].type) == "dynamic"
    for condition, count in {"v = 12": 31, "v = 'twelve'": 12, "v > 12": 1, "v is not null": 44}.items():
        for engine in ("local", "spark"):
            found = lake.sql(f"select count(*) n from m where {condition}", engine=engine).to_arrow()
            assert found["n"].to_pylist() == [count], (condition, engine)


def test_a_name_that_is_no_column_is_found_in_the_overflow_column_on_spark(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("m", {"ts": "timestamp"}, time="ts", flush_age="off")
    fillers = {f"f{n}": n for n in range(40)}  # more than become columns
    table.append([{"ts": row["ts"], **fillers, "late": row["v"]} for row in rows_of(list(range(10)))])
    for text in ("select count(*) n from m where late >= 5", "select count(late) - 5 n from m"):
        assert lake.sql(text, engine="spark").to_arrow()["n"].to_pylist() == [5]
