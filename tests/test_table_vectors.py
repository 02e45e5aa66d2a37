"""Check vectors: distances as conditions and as columns, and pruning by the balls that hold them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelake
from tests.support.oracle import answers
from tests.support.strategies import examples
from tidelake.errors import InvalidInputError, NotFoundError, QueryError, SchemaError
from tidelake.lake import Lake
from tidelake.model.expression import parse_where
from tidelake.model.predicate import Not, Predicate, Range, VectorTest
from tidelake.model.schema import Schema
from tidelake.model.vectors import METRICS
from tidelake.pruning.collector import collect
from tidelake.pruning.outcomes import FALSE, NULL, TRUE, outcomes
from tidelake.pruning.statistics import merge
from tidelake.scan.evaluate import evaluate
from tidelake.table import Table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = Schema.of({"v": "vector(3)"})
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.25, 1e-13, 1e-7, 1e6, -3e38)


@pytest.fixture
def points(lake: Lake) -> Table:
    """Eight extents of vectors, each around a place of its own, and a hot one."""
    table = lake.create_table("p", {"ts": "timestamp", "id": "long", "v": "vector(4)"}, flush_age="off")
    chance = np.random.default_rng(7)
    for place in range(8):
        middle = np.eye(4)[place % 4] * (10 if place < 4 else -10)
        vectors = (middle + chance.normal(0, 0.5, (1_200, 4))).astype(np.float32)
        table.append(_arrow(place * 1_200, vectors))
    table.append(_arrow(9_600, np.full((3, 4), 5, dtype=np.float32)))
    return table


def _arrow(first: int, vectors: Any) -> pa.Table:
    kind = pa.list_(pa.float32(), 4)
    ids = list(range(first, first + len(vectors)))
    times = [NOON + timedelta(seconds=n) for n in ids]
    array = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4)
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "id": ids, "v": array.cast(kind)})


def test_distances_prune_extents_and_find_the_same_rows(points: Table) -> None:
    vectors = np.array(points.scan(["v"]).read_all()["v"].to_pylist())
    query = [9.5, 0.25, 0.0, 0.0]
    unit = np.array(query) / np.linalg.norm(query)
    measures = {
        "l2_distance": np.linalg.norm(vectors - query, axis=1),
        "inner_product": vectors @ query,
        "cosine_distance": 1 - (vectors @ unit) / np.linalg.norm(vectors, axis=1),
    }
    asked = {
        tidelake.l2_distance("v", query) < 1.5: measures["l2_distance"] < 1.5,
        tidelake.l2_distance("v", query) >= 12: measures["l2_distance"] >= 12,
        tidelake.inner_product("v", query) > 80: measures["inner_product"] > 80,
        tidelake.cosine_distance("v", query) < 0.02: measures["cosine_distance"] < 0.02,
        ~(tidelake.l2_distance(tidelake.col("v"), query) > 1.5): ~(measures["l2_distance"] > 1.5),
    }
    for where, holds in asked.items():
        found = points.scan(["id"], where).read_all()["id"].to_pylist()
        assert sorted(found) == np.flatnonzero(holds).tolist()
        assert sorted(points.scan(["id"], where, prune=False).read_all()["id"].to_pylist()) == sorted(found)
        assert sorted(points.scan(["id"], repr(where)).read_all()["id"].to_pylist()) == sorted(found)
        assert len(points.plan(where=where).tasks) < 8, where
    assert len(points.plan(where=tidelake.l2_distance("v", query) < 1.5).tasks) == 1


def test_a_distance_is_a_column_of_a_scan(points: Table) -> None:
    query = [1.0, 2.0, 3.0, 4.0]
    found = points.scan(
        ["id", tidelake.l2_distance("v", query).alias("d"), tidelake.inner_product("v", query)],
        tidelake.cosine_distance("v", query) < 0.1,
        limit=50,
    ).read_all()
    assert found.schema.names == ["id", "d", "inner_product"]
    by_id = dict(zip(*points.scan(["id", "v"]).read_all().to_pydict().values(), strict=True))
    for row in found.to_pylist():
        assert row["d"] == pytest.approx(math.dist(by_id[row["id"]], query))
        assert row["inner_product"] == pytest.approx(sum(map(float.__mul__, by_id[row["id"]], query)))
    assert found.num_rows == 3


def test_a_distance_is_null_where_there_is_no_vector_or_no_direction(lake: Lake) -> None:
    table = lake.create_table("n", {"ts": "timestamp", "v": "vector(2)"}, flush_age="off")
    table.append([{"ts": NOON, "v": [0.0, 0.0]}, {"ts": NOON}, {"ts": NOON, "v": [3.0, 4.0]}])
    names = [tidelake.cosine_distance("v", [0, 1]).alias("c"), tidelake.l2_distance("v", [0, 0]).alias("d")]
    for _ in ("hot", "cold"):
        assert table.scan(names).read_all().to_pydict() == {"c": [None, None, pytest.approx(0.2)], "d": [0, None, 5]}
        assert table.scan(where="not cosine_distance(v, [0, 1]) < 0.1").read_all().num_rows == 1
        table.flush()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda t: t.scan(where="l2_distance(v, [1, 2]) < 1"), "needs as many numbers"),
        (lambda t: t.scan(where="l2_distance(id, [1, 2]) < 1"), "measures vectors"),
        (lambda t: t.scan(where="l2_distance(w, [1, 2]) < 1"), "no column 'w'"),
        (lambda t: t.scan(where="l2_distance(v, [1, 'a']) < 1"), "list of numbers"),
        (lambda t: t.scan(where="l2_distance(v, []) < 1"), "list of numbers"),
        (lambda t: t.scan(where="l2_distance(v, [1, 2, 3, 4]) < 'a'"), "compare it with one"),
        (lambda t: t.scan(where="l2_distance(v, [1, 2, 3, 4]) has 'a'"), "compare it with one"),
        (lambda t: t.scan(where="v == 1"), "cannot be compared"),
        (lambda t: t.scan([tidelake.l2_distance("v", [1])]), "needs as many numbers"),
        (lambda t: t.scan([tidelake.l2_distance("w", [1])]), "no column 'w'"),
        (lambda t: t.scan([tidelake.l2_distance("v", [1, 2, 3, 4]).alias("id")]), "name of its own"),
        (lambda t: t.append([{"ts": NOON, "v": [1.0, 2.0]}]), "not a vector of the column's length"),
    ],
)
def test_vectors_say_what_is_wrong(points: Table, ask: Any, message: str) -> None:
    with pytest.raises((InvalidInputError, QueryError, NotFoundError, SchemaError), match=message):
        ask(points)
    assert points.snapshot.totals.rows + points.snapshot.totals.hot_rows == 9_603


def vectors_of() -> st.SearchStrategy[Any]:
    number = st.sampled_from(NUMBERS) | st.floats(-10, 10, width=32)
    return st.tuples(number, number, number)


def _pruned(rows: list[Any], where: Predicate) -> tuple[int, list[bool | None]]:
    kind = SCHEMA["v"].type.arrow
    whole = pa.record_batch([pa.array(rows, kind)], schema=SCHEMA.arrow)
    blocks = [whole.slice(at, 3) for at in range(0, whole.num_rows, 3)]
    per_block, extent = collect(blocks, SCHEMA)
    given_answers: list[bool | None] = []
    for block, stats in zip(blocks, per_block, strict=True):
        found = evaluate(where, block).to_pylist()
        possible = outcomes(where, stats)
        for answer in found:
            assert possible & {True: TRUE, False: FALSE, None: NULL}[answer]
            assert outcomes(where, extent) & {True: TRUE, False: FALSE, None: NULL}[answer]
            assert outcomes(where, merge(per_block)) & {True: TRUE, False: FALSE, None: NULL}[answer]
        given_answers.extend(found)
    return sum(not outcomes(where, stats) & TRUE for stats in per_block), given_answers


@examples(300)
@given(
    st.lists(st.none() | vectors_of(), min_size=1, max_size=9),
    vectors_of(),
    st.sampled_from(METRICS),
    st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0, -1.0, 1e6]) | st.floats(-20, 20),
    st.booleans(),
)
def test_distance_is_what_a_person_would_compute_and_pruning_is_sound(
    rows: list[Any], query: Any, metric: Any, bound: float, above: bool
) -> None:
    test = Range("", low=bound, include_low=False) if above else Range("", high=bound)
    for where in (VectorTest("v", metric, query, test), Not(VectorTest("v", metric, query, test))):
        assert parse_where(repr(where)) == where
        _, found = _pruned(rows, where)
        narrow = [None if row is None else tuple(np.array(row, dtype=np.float32).tolist()) for row in rows]
        for row, answer in zip(narrow, found, strict=True):
            assert answer in answers(where, {"v": row}, SCHEMA)


def test_balls_really_prune_blocks() -> None:
    rows = [(float(n // 3 * 10), 1.0, 0.0) for n in range(12)]
    near = VectorTest("v", "l2_distance", (1.0, 0.0, 0.0), Range("", high=2.0))
    alike = VectorTest("v", "inner_product", (1.0, 0.0, 0.0), Range("", low=25.0))
    for where in (near, alike):
        pruned, found = _pruned(rows, where)
        assert (pruned, found.count(True)) == (3, 3)
    block = pa.record_batch([pa.array(rows[:3], SCHEMA["v"].type.arrow)], schema=SCHEMA.arrow)
    _, extent = collect([block], SCHEMA)
    assert outcomes(VectorTest("v", "l2_distance", (0.0, 0.0, 0.0), Range("", high=2.0)), extent) == TRUE
