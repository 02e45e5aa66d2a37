"""Check nearest neighbours against a look at every row: by codes, exactly, filtered, hidden, and in the past."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelake
from tests.support.strategies import examples
from tests.vectors.support import COLUMNS, EPOCH_S, SIZE, arrow, clustered, distances, recall_of
from tidelake.errors import AlreadyExistsError, InvalidInputError, NotFoundError, QueryError
from tidelake.lake import Lake
from tidelake.table import Table
from tidelake.vectors.definition import METRICS

ROWS = 6_000
VECTORS = clustered(ROWS)
QUERIES = clustered(40, seed=5)


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """Three indexed extents."""
    with tidelake.connect(tmp_path_factory.mktemp("nearest") / "lake") as lake:
        yield indexed(lake, "docs", "cosine")


def indexed(lake: Lake, name: str, metric: str, **told: Any) -> Table:
    table = lake.create_table(name, COLUMNS, time="ts", flush_age="off", **told)
    for first in range(0, ROWS, 2_000):
        table.append(arrow(VECTORS[first : first + 2_000], first=first))
    table.create_index("v", metric=metric)
    return table


def test_an_index_finds_what_a_look_at_every_row_finds(docs: Table) -> None:
    assert recall_of(docs, VECTORS, QUERIES, "cosine") >= 0.95
    assert "lists probed" in docs.explain_nearest("v", QUERIES[0])
    assert docs.indexes()[0].state == "active"


def test_rows_come_nearest_first_with_their_distance(docs: Table) -> None:
    found = docs.nearest("v", QUERIES[0], k=7, columns=["id", "tag"], recall=1)
    far = distances("cosine", VECTORS, QUERIES[0])
    order = np.argsort(far)[:7]
    assert found.schema.names == ["id", "tag", "_distance"]
    assert found["id"].to_pylist() == order.tolist()
    assert found["tag"].to_pylist() == [f"t{n % 100}" for n in order]
    assert found["_distance"].to_numpy() == pytest.approx(far[order])
    whole = docs.nearest("v", QUERIES[0], k=7, recall=1)
    assert whole.schema.names == ["ts", "id", "tag", "v", "_distance"]
    assert whole.drop_columns("_distance").cast(docs.to_arrow().schema).num_rows == 7


@pytest.mark.parametrize("probes", [16, 10_000])
def test_all_probes_measure_every_row(docs: Table, probes: int) -> None:
    lists = 16 if probes == 16 else None
    found = docs.nearest("v", QUERIES[1], k=50, columns=["id"], probes=10_000)["id"].to_pylist()
    assert found == np.argsort(distances("cosine", VECTORS, QUERIES[1]))[:50].tolist()
    if lists is not None:
        assert "16 of" in docs.explain_nearest("v", QUERIES[1], probes=lists)


def test_several_queries_get_their_own_rows(docs: Table) -> None:
    found = docs.nearest("v", QUERIES[:4], k=5, columns=["id"], recall=1)
    assert found.schema.names == ["id", "_query", "_distance"]
    for number in range(4):
        own = found.filter(pa.compute.equal(found["_query"], number))["id"].to_pylist()
        assert own == np.argsort(distances("cosine", VECTORS, QUERIES[number]))[:5].tolist()


def test_a_condition_is_asked_first(docs: Table) -> None:
    chosen = np.flatnonzero(np.arange(ROWS) % 100 == 7)
    for query in QUERIES[:4]:
        best = chosen[np.argsort(distances("cosine", VECTORS[chosen], query))[:10]]
        found = docs.nearest("v", query, where="tag == 't7'", columns=["id"])
        assert found["id"].to_pylist() == best.tolist()
    said = docs.explain_nearest("v", QUERIES[0], where=tidelake.col("tag") == "t7")
    assert "60 rows measured" in said
    assert "probed" not in said


def test_a_condition_that_leaves_many_rows_keeps_the_recall(docs: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.vectors.nearest.EXACT_ROWS", 100)
    chosen = np.arange(2_000, ROWS)
    found = []
    for query in QUERIES:
        best = chosen[np.argsort(distances("cosine", VECTORS[chosen], query))[:10]]
        ids = docs.nearest("v", query, start=EPOCH_S + 2_000, columns=["id"])["id"].to_numpy()
        assert (ids >= 2_000).all()
        found.append(np.isin(best, ids).mean())
    assert np.mean(found) >= 0.95
    assert "4,000 coded rows" in docs.explain_nearest("v", QUERIES[0], start=EPOCH_S + 2_000)


@pytest.mark.parametrize("metric", ["l2", "dot"])
def test_other_metrics_are_found_as_well(lake: Lake, metric: str) -> None:
    table = indexed(lake, "m", metric)
    assert recall_of(table, VECTORS, QUERIES, metric) >= 0.95
    assert "probed" not in table.explain_nearest("v", QUERIES[0], metric="cosine")
    found = table.nearest("v", QUERIES[0], k=3, metric="cosine", columns=["id"])["id"].to_pylist()
    assert found == np.argsort(distances("cosine", VECTORS, QUERIES[0]))[:3].tolist()


def test_hot_rows_are_searched_and_flushed_ones_coded(lake: Lake) -> None:
    table = indexed(lake, "h", "l2")
    table.append(arrow(QUERIES[:1], first=90_000))
    near = table.nearest("v", QUERIES[0], k=1)
    assert (near["id"].to_pylist(), near["_distance"].to_pylist()) == ([90_000], [0.0])
    assert "1 rows measured" in table.explain_nearest("v", QUERIES[0])
    table.flush()
    assert table.nearest("v", QUERIES[0], k=1)["id"].to_pylist() == [90_000]
    assert "0 rows measured" in table.explain_nearest("v", QUERIES[0])
    assert (table.indexes()[0].extents, table.indexes()[0].missing) == (4, 0)


def test_deleted_rows_are_gone_and_older_snapshots_still_have_them(lake: Lake) -> None:
    table = indexed(lake, "d", "cosine")
    before = table.snapshot.sequence
    nearest = table.nearest("v", QUERIES[0], k=5, columns=["id"])["id"].to_pylist()
    table.delete(f"id in ({', '.join(map(str, nearest))})")
    after = table.nearest("v", QUERIES[0], k=5, columns=["id"])["id"].to_pylist()
    assert not set(after) & set(nearest)
    assert "0 rows measured" in table.explain_nearest("v", QUERIES[0])
    old = lake.table("d", snapshot=before)
    assert old.nearest("v", QUERIES[0], k=5, columns=["id"])["id"].to_pylist() == nearest
    first = lake.table("d", snapshot=2)
    assert first.indexes() == []
    ids = first.nearest("v", QUERIES[0], k=5, columns=["id"])["id"].to_pylist()
    assert ids == np.argsort(distances("cosine", VECTORS[:2_000], QUERIES[0]))[:5].tolist()


def test_only_the_newest_version_of_a_key_is_found(lake: Lake) -> None:
    table = indexed(lake, "k", "cosine", key=["id"])
    near = table.nearest("v", QUERIES[0], k=4, columns=["id"])["id"].to_pylist()
    far = -np.asarray(QUERIES[0])
    table.append(arrow([far], first=near[0]))
    table.flush()
    table.append(arrow([far], first=near[1]))
    table.delete_keys([near[2]])
    ids = table.nearest("v", QUERIES[0], k=4, columns=["id"])["id"].to_pylist()
    assert ids[0] == near[3]
    assert not set(near[:3]) & set(ids)
    assert len(set(table.nearest("v", far, k=2, columns=["id"])["id"].to_pylist()) & set(near[:2])) == 2
    filtered = table.nearest("v", far, k=2, columns=["id"], where=f"id in ({', '.join(map(str, near))})")
    assert set(filtered["id"].to_pylist()) == set(near[:2])


def test_an_index_of_a_table_with_a_key_finds_what_exact_search_finds_also_after_compaction(lake: Lake) -> None:
    table = indexed(lake, "u", "cosine", key=["id"])
    before = table.snapshot.sequence
    held = dict(enumerate(VECTORS))
    for turn in range(3):
        moved = clustered(1_500, seed=40 + turn)
        table.append(arrow(moved, first=turn * 1_000))
        table.flush()
        gone = range(turn * 1_000 + 200, turn * 1_000 + 260)
        table.delete_keys(list(gone))
        held |= {turn * 1_000 + n: vector for n, vector in enumerate(moved)}
        held = {n: vector for n, vector in held.items() if n not in gone}
    for compacted in (False, True):
        if compacted:
            table.compact()
            lake.maintain()
        ids = np.array(sorted(held))
        vectors = np.array([held[n] for n in ids])
        found = [table.nearest("v", query, k=10, columns=["id"])["id"].to_pylist() for query in QUERIES]
        true = [ids[np.argsort(distances("cosine", vectors, query))[:10]].tolist() for query in QUERIES]
        assert np.mean([len({*one} & {*other}) for one, other in zip(found, true, strict=True)]) >= 9.5
        assert all(len({*one}) == 10 and {*one} <= held.keys() for one in found)
    old = lake.table("u", snapshot=before).nearest("v", QUERIES[0], k=5, columns=["id"], recall=1)
    assert old["id"].to_pylist() == np.argsort(distances("cosine", VECTORS, QUERIES[0]))[:5].tolist()


def test_a_condition_that_leaves_nothing_and_more_rows_than_there_are_give_what_there_is(docs: Table) -> None:
    none = docs.nearest("v", QUERIES[:2], k=3, where="id < 0", columns=["id", "tag"])
    assert (none.schema.names, none.num_rows) == (["id", "tag", "_query", "_distance"], 0)
    assert docs.nearest("v", QUERIES[0], k=10_000, columns=["id"]).num_rows == ROWS
    few = docs.nearest("v", QUERIES[0], k=50, where="id < 7", columns=["id"])
    assert sorted(few["id"].to_pylist()) == list(range(7))


def test_rows_without_a_direction_or_a_vector_are_never_near(lake: Lake) -> None:
    table = lake.create_table("o", COLUMNS, time="ts", flush_age="off")
    odd = [None, np.zeros(SIZE), np.full(SIZE, 1e30), np.full(SIZE, np.nan), np.full(SIZE, np.inf)]
    table.append(arrow([*VECTORS[:5_000], *odd]))
    table.create_index("v")
    ids = table.nearest("v", np.ones(SIZE), k=5_005, columns=["id"])["id"].to_pylist()
    assert sorted(ids) == [*range(5_000), 5_002]
    assert table.nearest("v", np.ones(SIZE), k=1, columns=["id"])["id"].to_pylist() == [5_002]
    assert table.nearest("v", np.ones(SIZE), k=1, where="id >= 4999", columns=["id"])["id"].to_pylist() == [5_002]


def test_few_rows_wait_until_there_are_enough(lake: Lake) -> None:
    table = lake.create_table("w", COLUMNS, time="ts", flush_age="off")
    assert table.create_index("v", metric="l2").is_waiting
    assert table.nearest("v", QUERIES[0]).num_rows == 0
    table.append(arrow(VECTORS[:2_000]))
    assert table.indexes()[0].state == "waiting"
    assert recall_of(table, VECTORS[:2_000], QUERIES, "l2") == 1
    table.append(arrow(VECTORS[2_000:], first=2_000))
    assert "coded" in str(lake.maintain())
    assert recall_of(table, VECTORS, QUERIES, "l2") >= 0.95
    assert "0 rows measured" in table.explain_nearest("v", QUERIES[0])
    assert "coded" not in str(lake.maintain())


def test_an_index_is_dropped_and_made_anew(lake: Lake) -> None:
    table = indexed(lake, "x", "cosine")
    with pytest.raises(AlreadyExistsError, match="drop it first"):
        table.create_index("v", metric="l2")
    table.drop_index("v")
    assert table.indexes() == []
    assert "6,000 rows measured" in table.explain_nearest("v", QUERIES[0])
    with pytest.raises(NotFoundError, match="no index"):
        table.drop_index("v")
    assert table.create_index("v", metric="l2").rows == ROWS
    assert recall_of(table, VECTORS, QUERIES, "l2") >= 0.95


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda t: t.nearest("v", [1.0] * (SIZE - 1)), "as many numbers"),
        (lambda t: t.nearest("v", [[1.0] * SIZE, [1.0] * 3]), "list of numbers"),
        (lambda t: t.nearest("v", []), "as many numbers"),
        (lambda t: t.nearest("v", np.empty((0, SIZE))), "1 to"),
        (lambda t: t.nearest("v", "abc"), "list of numbers"),
        (lambda t: t.nearest("v", [np.nan] * SIZE), "not finite"),
        (lambda t: t.nearest("v", [np.inf] * SIZE), "not finite"),
        (lambda t: t.nearest("v", [1e300] * SIZE), "not finite"),
        (lambda t: t.nearest("v", [0.0] * SIZE), "no direction"),
        (lambda t: t.nearest("w", [0.0] * SIZE), "no column 'w'"),
        (lambda t: t.nearest("id", [0.0] * SIZE), "not a column of vectors"),
        (lambda t: t.nearest("v", [1.0] * SIZE, k=0), "k is a whole number"),
        (lambda t: t.nearest("v", [1.0] * SIZE, k=-3), "k is a whole number"),
        (lambda t: t.nearest("v", [1.0] * SIZE, k=2.5), "k is a whole number"),
        (lambda t: t.nearest("v", [1.0] * SIZE, recall=0.9, probes=3), "not both"),
        (lambda t: t.nearest("v", [1.0] * SIZE, recall=1.5), "at most 1"),
        (lambda t: t.nearest("v", [1.0] * SIZE, recall="most"), "at most 1"),
        (lambda t: t.nearest("v", [1.0] * SIZE, probes=0), "from 1 on"),
        (lambda t: t.nearest("v", [1.0] * SIZE, metric="far"), "not a metric"),
        (lambda t: t.nearest("v", [1.0] * SIZE, columns=["nope"]), "nope"),
        (lambda t: t.nearest("v", [1.0] * SIZE, where="nope == 1"), "nope"),
        (lambda t: t.create_index("w"), "no column 'w'"),
        (lambda t: t.create_index("tag"), "not a column of vectors"),
        (lambda t: t.create_index("v", metric="hamming"), "not a metric"),
        (lambda t: t.create_index("v"), "drop it first"),
        (lambda t: t.drop_index("tag"), "not a column of vectors"),
        (lambda t: t.pinned().create_index("v"), "only be read"),
    ],
)
def test_bad_questions_say_what_is_wrong(docs: Table, ask: Any, message: str) -> None:
    with pytest.raises((InvalidInputError, QueryError, NotFoundError, AlreadyExistsError), match=message):
        ask(docs)


@examples(25)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(METRICS),
    st.sampled_from([None, "id < 40", "tag in ('t1', 't2', 't3')", "id % 2 == 0"][:3]),
    st.integers(1, 12),
)
def test_exact_search_is_a_look_at_every_row(tmp_path_factory: Any, seed: int, metric: str, where: Any, k: int) -> None:
    chance = np.random.default_rng(seed)
    vectors = chance.integers(-3, 4, (60, SIZE)).astype(np.float32)
    with tidelake.connect(_fresh(tmp_path_factory)) as lake:
        table = lake.create_table("e", COLUMNS, time="ts", flush_age="off")
        table.append(arrow(vectors[:30]))
        table.flush()
        table.append(arrow(vectors[30:], first=30))
        query = chance.integers(-3, 4, SIZE).astype(np.float32) + 0.25
        rows = table.to_arrow(["id"], where)["id"].to_numpy()
        far = distances(metric, vectors[rows], query)
        far = np.sort(far[np.isfinite(far)])[:k]
        found = table.nearest("v", query, k=k, where=where, metric=metric)
        assert found["_distance"].to_numpy() == pytest.approx(far, abs=1e-6)
        own = distances(metric, np.array(found["v"].to_pylist(), np.float32).reshape(-1, SIZE), query)
        assert own == pytest.approx(found["_distance"].to_numpy(), abs=1e-6)


def _fresh(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("exact") / "lake"
