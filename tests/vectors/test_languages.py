"""Check that SQL and KQL find the nearest rows by an index, and give what an engine alone gives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tidelake
from tests.vectors.support import COLUMNS, SIZE, arrow, clustered
from tidelake.lake import Lake
from tidelake.query.result import Result
from tidelake.query.session import Language, run

ROWS = 6_000
VECTORS = clustered(ROWS)
QUERY = [round(float(x), 3) for x in clustered(1, seed=5)[0]]
TEXT = ", ".join(map(str, QUERY))


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Tables of the same rows in extents and hot, each indexed by another metric; some rows are odd."""
    with tidelake.connect(tmp_path_factory.mktemp("languages") / "lake") as lake:
        for metric in ("cosine", "l2", "dot"):
            table = lake.create_table(metric, COLUMNS, time="ts", flush_age="off")
            odd = [None, np.zeros(SIZE), None]
            table.append(arrow([*VECTORS[:3_000], *odd]))
            table.append(arrow(VECTORS[3_000:], first=4_000))
            table.create_index("v", metric=metric)
            table.append(arrow([VECTORS[0], None], first=9_000))
        yield lake


BY_INDEX = [  # {q} is the vector
    "select id, cosine_distance(v, [{q}]) d from cosine where v is not null order by cosine_distance(v, [{q}]) limit 9",
    "select id from cosine order by cosine_distance(v, [{q}]) nulls last limit 10",
    "select id, cosine_distance(v, [{q}]) d from cosine where id < 3000 order by d limit 7",
    "select id from cosine order by cosine_similarity(v, array({q})) desc limit 10 offset 3",
    "select tag, id from (select * from cosine where tag in ('t1', 't2')) x"
    " order by cosine_similarity(v, [{q}]) desc limit 5",
    "with near as (select id, l2_distance(v, [{q}]) d from l2 where id > 100)"
    " select id, d from near order by d nulls last limit 4",
    "select id + 1 as n from l2 where tag <> 't3' order by l2_distance(v, [{q}]) nulls last limit 10",
    "select n + 1 as m from (select id as n, v from l2 order by l2_distance(v, [{q}]) nulls last limit 10) order by m",
    "select id, inner_product(v, [{q}]) p from dot order by p desc limit 10",
]
BY_ENGINE = [
    "select id from cosine order by cosine_distance(v, [{q}]) nulls last limit 0",
    "select id from cosine order by cosine_distance(v, [{q}]) + 0 nulls last limit 10",
    "select id from cosine order by cosine_distance(v, [{q}]) nulls last, id limit 10",
    "select id from cosine order by l2_distance(v, [{q}]) nulls last limit 10",
    "select id from cosine order by cosine_distance(v, [{q}]) desc nulls last limit 10",
    "select id from cosine where sqrt(id) < 50 order by cosine_distance(v, [{q}]) limit 10",
    "select max(id) m from cosine group by tag order by m limit 3",
    "with a as (select * from cosine) select count(*) from"
    " (select id from a order by cosine_distance(v, [{q}]) limit 10) x, a",
]
IN_KQL = [
    "cosine | extend s = series_cosine_similarity(v, dynamic([{q}])) | top 10 by s | project id, s",
    "cosine | where tag == 't7' | extend s = series_cosine_similarity(v, dynamic([{q}])) | top 3 by s | project id",
]


def asked(lake: Lake, text: str, language: Language = "sql", *, prune: bool = True) -> Result:
    return run(lake, text.replace("{q}", TEXT), language=language, engine="local", prune=prune)


def is_narrowed(result: Result) -> bool:
    return "nearest vectors" in result.explain()


@pytest.mark.parametrize("text", BY_INDEX)
def test_sql_finds_by_the_index_what_an_engine_finds(docs: Lake, text: str) -> None:
    narrow, whole = asked(docs, text), asked(docs, text, prune=False)
    assert (is_narrowed(narrow), is_narrowed(whole)) == (True, False)
    assert narrow.to_arrow().to_pylist() == whole.to_arrow().to_pylist()


@pytest.mark.parametrize("text", IN_KQL)
def test_kql_finds_by_the_index_what_an_engine_finds(docs: Lake, text: str) -> None:
    narrow, whole = asked(docs, text, "kql"), asked(docs, text, "kql", prune=False)
    assert (is_narrowed(narrow), is_narrowed(whole)) == (True, False)
    assert narrow.to_arrow().to_pylist() == whole.to_arrow().to_pylist()


@pytest.mark.parametrize("text", BY_ENGINE)
def test_what_an_index_cannot_answer_is_left_to_the_engine(docs: Lake, text: str) -> None:
    found = asked(docs, text)
    assert not is_narrowed(found)
    assert found.to_arrow().to_pylist() == asked(docs, text, prune=False).to_arrow().to_pylist()


def test_rows_without_a_distance_come_where_the_language_has_them(docs: Lake) -> None:
    text = f"select id, cosine_distance(v, [{TEXT}]) d from cosine order by d limit 6"
    found = asked(docs, text)
    rows = found.to_arrow().to_pylist()
    assert is_narrowed(found)
    assert {row["id"] for row in rows[:4]} == {3_000, 3_001, 3_002, 9_001}
    assert [row["d"] is None for row in rows] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("cosine_distance(v, [1, 2])", "as many numbers"),
        ("inner_product(array(1, 2), v) desc", "as many numbers"),
        ("cosine_similarity(v, [{zeros}]) desc", "zeros"),
    ],
)
def test_a_vector_from_which_no_row_has_a_distance_is_refused(docs: Lake, order: str, words: str) -> None:
    order = order.replace("{zeros}", ", ".join("0" * SIZE))
    with pytest.raises(tidelake.QueryError, match=words) as refused:
        docs.sql(f"select id from cosine where v is not null order by {order} limit 1", engine="local").to_arrow()
    assert refused.value.kind == "bad_query_vector"
    assert docs.sql(f"select id from l2 order by l2_distance(v, [{', '.join('0' * SIZE)}]) limit 1").to_arrow().num_rows
    kql = "cosine | extend s = series_cosine_similarity(v, dynamic([1, 2])) | top 1 by s | project id"
    assert docs.kql(kql).to_arrow().num_rows == 1
