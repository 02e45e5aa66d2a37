"""Check vectors in Spark: sidecars of its extents, brute force that is right, and nearest rows as a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.vectors.support import COLUMNS, SIZE, arrow, clustered, distances
from tidelake.lake import Lake
from tidelake.query.session import run
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


def test_an_approximate_join_of_spark_is_right_on_our_tables(spark: SparkSession, lake: Lake, docs: Table) -> None:
    asked = lake.create_table("asked", {"n": "long", "v": f"vector({SIZE})"})
    asked.append(arrow(QUERIES).select(["id", "v"]).rename_columns(["n", "v"]))
    docs.to_spark(["id", "v"], spark=spark).createOrReplaceTempView("join_docs")
    asked.to_spark(spark=spark).createOrReplaceTempView("join_asked")
    text = (
        "select q.n, d.id from join_asked q join join_docs d"
        " approx nearest 3 by similarity vector_cosine_similarity(q.v, d.v)"
    )
    found = sorted((row.n, row.id) for row in spark.sql(text).collect())
    expected = [
        (n, int(id)) for n, query in enumerate(QUERIES) for id in np.argsort(distances("cosine", VECTORS, query))[:3]
    ]
    assert found == sorted(expected)


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
