"""Check vectors in Spark: sidecars of its extents, brute force that is right, and nearest rows as a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.vectors.support import COLUMNS, SIZE, arrow, clustered, distances
from tidelake.errors import TidelakeError
from tidelake.lake import Lake
from tidelake.query.session import run
from tidelake.spark import register
from tidelake.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 5_000
VECTORS = clustered(ROWS)
QUERIES = clustered(3, seed=5)
TEXT = ", ".join(f"{x:.3f}" for x in QUERIES[0])
ROUNDED = [float(f"{x:.3f}") for x in QUERIES[0]]


@pytest.fixture
def docs(lake: Lake) -> Table:
    table = lake.create_table("docs", COLUMNS, time="ts", flush_age="off")
    table.append(arrow(VECTORS))
    table.create_index("v")
    return table


def test_brute_force_in_spark_and_the_index_agree(spark: SparkSession, lake: Lake, docs: Table) -> None:
    best = np.argsort(distances("cosine", VECTORS, ROUNDED))[:5].tolist()
    text = f"select id from docs order by cosine_distance(v, array({TEXT})) limit 5"
    for prune in (True, False):
        assert run(lake, text, engine="spark", prune=prune).to_arrow()["id"].to_pylist() == best
    assert run(lake, text, engine="local").to_arrow()["id"].to_pylist() == best
    docs.to_spark(["id", "v"], spark=spark).createOrReplaceTempView("near_docs")
    query = f"array({', '.join(f'cast({x} as float)' for x in ROUNDED)})"
    own = f"select id from near_docs order by vector_cosine_similarity(v, {query}) desc limit 5"
    assert [row.id for row in spark.sql(own).collect()] == best


@pytest.fixture
def joined(spark: SparkSession, lake: Lake, docs: Table) -> Callable[[str], tuple[list[tuple[int, int | None]], bool]]:
    """Return what gives a join's rows, and whether an index found them; ``q`` has vectors, nulls and zeros."""
    asked = lake.create_table("asked", {"n": "long", "v": f"vector({SIZE})"})
    asked.append(arrow([*QUERIES, None, np.zeros(SIZE)]).select(["id", "v"]).rename_columns(["n", "v"]))
    docs.to_spark(["id", "v", "tag"], spark=spark).createOrReplaceTempView("join_docs")
    docs.to_spark(["id", "v"], where="tag == 't3'", spark=spark).createOrReplaceTempView("join_some")
    asked.to_spark(spark=spark).createOrReplaceTempView("join_asked")

    def ask(join: str) -> tuple[list[tuple[int, int | None]], bool]:
        found = spark.sql(f"select q.n, d.id from join_asked q {join}")
        plan = found._jdf.queryExecution().optimizedPlan().toString()
        return sorted((tuple(row) for row in found.collect()), key=str), "MapInArrow" in plan and "max_by" not in plan

    return ask


def near(k: int, keep: Callable[[int], bool] = lambda _: True) -> list[tuple[int, int | None]]:
    kept = np.array([id for id in range(ROWS) if keep(id)])
    best = [kept[np.argsort(distances("cosine", VECTORS[kept], query))[:k]] for query in QUERIES]
    return sorted(((n, int(id)) for n, ids in enumerate(best) for id in ids), key=str)


BY = "by similarity vector_cosine_similarity(q.v, d.v)"


def test_an_approximate_join_of_spark_finds_by_the_index(
    spark: SparkSession, lake: Lake, docs: Table, joined: Callable[[str], tuple[list[tuple[int, int | None]], bool]]
) -> None:
    assert joined(f"join join_docs d approx nearest 3 {BY}") == (near(3), True)
    alone: list[tuple[int, int | None]] = [(3, None), (4, None)]
    outer = sorted([*near(2), *alone], key=str)
    assert joined(f"left join join_docs d approx nearest 2 {BY}") == (outer, True)
    some = near(2, lambda id: id % 100 == 3)
    assert joined(f"join join_some d approx nearest 2 {BY}") == (some, True)
    renamed = "join (select v as w, id from join_docs) d approx nearest 3 by similarity"
    assert joined(f"{renamed} vector_cosine_similarity(d.w, q.v)") == (near(3), True)
    register(spark, lake=lake, catalog="vectors")
    assert joined(f"join vectors.default.docs d approx nearest 3 {BY}") == (near(3), True)


def test_a_join_that_is_not_for_an_index_is_left_to_spark(
    spark: SparkSession, docs: Table, joined: Callable[[str], tuple[list[tuple[int, int | None]], bool]]
) -> None:
    assert joined(f"join join_docs d exact nearest 2 {BY}") == (near(2), False)
    few = "(select * from join_docs where id < 100)"
    assert joined(f"join {few} d approx nearest 2 {BY}") == (near(2, lambda id: id < 100), False)
    assert not joined("join join_docs d approx nearest 2 by distance vector_l2_distance(q.v, d.v)")[1]
    docs.drop_index("v")
    assert joined(f"join join_docs d approx nearest 2 {BY}") == (near(2), False)


def test_a_frame_is_joined_with_what_the_index_finds_near(spark: SparkSession, docs: Table) -> None:
    rows = [(n, [float(x) for x in query]) for n, query in enumerate(QUERIES)]
    frame = spark.createDataFrame([*rows, (7, rows[1][1]), (8, None)], "n int, q array<float>")
    found = docs.join_nearest(frame, "v", "q", k=3, columns=["id"]).collect()
    near = {n: np.argsort(distances("cosine", VECTORS, QUERIES[1 if n == 7 else n]))[:3].tolist() for n in (0, 1, 2, 7)}
    assert sorted((row.n, row.id) for row in found) == sorted((n, id) for n, ids in near.items() for id in ids)
    assert all(row._distance < 0.5 and len(row.q) == SIZE for row in found)
    none = docs.join_nearest(frame.where("n = 8"), "v", "q", columns=["id", "v"])
    assert (none.columns, none.count()) == (["q", "n", "id", "v", "_distance"], 0)
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: docs.join_nearest(frame, "v", "nothing"), "no such column"),
        (lambda: docs.join_nearest(frame, "nothing", "q"), "nothing"),
        (lambda: docs.join_nearest(frame.withColumnRenamed("n", "id"), "v", "q"), "rename it"),
        (lambda: docs.join_nearest(frame, "v", "n"), "arrays of float"),
        (lambda: docs.join_nearest(frame.selectExpr("n", "slice(q, 1, n + 1) q"), "v", "q"), "several lengths"),
        (lambda: docs.join_nearest(frame.selectExpr("n", "slice(q, 1, 2) q"), "v", "q"), "as many numbers"),
        (lambda: docs.join_nearest(frame.selectExpr("n", "transform(q, x -> float(0)) q"), "v", "q"), "zeros"),
    ]
    for bad, message in cases:
        with pytest.raises(TidelakeError, match=message):
            bad()


def test_extents_of_spark_are_coded_too(spark: SparkSession, lake: Lake, docs: Table) -> None:
    rows = arrow(clustered(3_000, seed=8), first=20_000)
    frame = spark.createDataFrame(rows)
    written = frame.write.format("tidelake").option("lake", lake.handle.address).option("table", "docs")
    written.option("extentBytes", 1 << 16).mode("append").save()
    (index,) = docs.indexes()
    assert (index.missing, index.state) == (0, "active")
    assert index.extents == len(docs.extents()) > 1
    near = docs.nearest("v", QUERIES[0], k=4, columns=["id"])
    assert "0 rows measured" in docs.explain_nearest("v", QUERIES[0])
    assert [row.id for row in spark.createDataFrame(near).collect()] == near["id"].to_pylist()
    lake.collect(abandoned_after="0s", dropped_after="0s", orphan_after="0s")
    assert docs.indexes()[0].missing == 0
