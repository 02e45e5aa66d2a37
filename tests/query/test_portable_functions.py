"""Show that the portable functions mean what the rest of the package means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from tests.query.engines import connect_duckdb
from tidelake.dynamic.values import MISSING, get_path
from tidelake.model.predicate import StartsWith, StringContains, StringHas, text_holds
from tidelake.query.functions.patterns import path_ways
from tidelake.query.functions.registry import FUNCTIONS
from tidelake.query.functions.rendering import render
from tidelake.query.kql.plain_functions import LINES
from tools.kql_corpus import PAGE, reference

keys = st.sampled_from(["a", "b", "c", "a.b", "b.c", "a.b.c"])
values = st.recursive(
    st.integers(0, 9) | st.sampled_from(["x", "y"]) | st.none(),
    lambda inner: st.dictionaries(keys, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)
paths = st.lists(st.sampled_from(["a", "b", "c", "a[0]", "b[1]"]), min_size=1, max_size=4).map(".".join)
words = st.text(st.sampled_from("abAB1 _-é.ÉKß"), max_size=12)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect_duckdb() as connection:
        yield connection


def evaluated(connection: duckdb.DuckDBPyConnection, name: str, *arguments: exp.Expr) -> Any:
    sql = render(exp.select(exp.Anonymous(this=name, expressions=list(arguments))), "duckdb")
    (row,) = connection.execute(sql).fetchall()
    return row[0]


@given(value=st.dictionaries(keys, values, max_size=3), path=paths)
def test_get_follows_paths_as_dynamic_values_do(
    connection: duckdb.DuckDBPyConnection, value: dict[str, Any], path: str
) -> None:
    document = exp.Anonymous(this="tide_parse_json", expressions=[exp.Literal.string(json.dumps(value))])
    found = evaluated(connection, "tide_get", document, exp.Literal.string(path))
    wanted = get_path(value, path)
    assert (None if found is None else json.loads(found)) == (None if wanted is MISSING else wanted)


@given(text=words, sought=words.filter(bool))
def test_text_searches_agree_with_scans(connection: duckdb.DuckDBPyConnection, text: str, sought: str) -> None:
    literals = exp.Literal.string(text), exp.Literal.string(sought)
    assert evaluated(connection, "tide_has", *literals) == text_holds(StringHas("c", sought), text)
    assert evaluated(connection, "tide_contains", *literals) == text_holds(StringContains("c", sought), text)
    assert evaluated(connection, "tide_startswith", *literals) == text_holds(StartsWith("c", sought), text)


@given(path=paths)
def test_paths_have_few_ways_and_the_longest_key_first(path: str) -> None:
    ways = path_ways(path)
    assert ways[0] == [path] or path.endswith("]")
    assert 1 <= len(ways) <= 32


def test_every_scalar_function_has_a_form_on_both_engines() -> None:
    targets = {line.split(": ")[1].split()[0] for line in LINES.strip().splitlines()}
    assert targets - set(FUNCTIONS) == set()


def test_has_any_finds_one_of_a_thousand_terms_as_it_finds_each_alone(connection: duckdb.DuckDBPyConnection) -> None:
    terms = [f"{at}.ns{at % 7}.example-{at}.org" for at in range(1000)] + ["-x", "y-", "-z-"]
    texts = [
        "see 7.NS0.example-7.org now",
        "see a7.ns0.example-7.org",
        "a-x b",
        "a-xb",
        "ay- b",
        "y-b",
        "q-z-q",
        "none",
    ]
    asked = [exp.Literal.string(term) for term in terms]
    for text in texts:
        alone = any(
            evaluated(connection, "tide_has", exp.Literal.string(text), term) for term in asked[7:8] + asked[-3:]
        )
        assert evaluated(connection, "tide_has_any", exp.Literal.string(text), *asked) == alone, text


def test_reference_of_the_page_is_the_implementation() -> None:
    assert reference() in PAGE.read_text()
