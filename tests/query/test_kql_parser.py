"""Show that KQL's parser reads what it should and fails well on everything else."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.cases import NOW, CaseTables, read_cases
from tidelake.errors import QueryError
from tidelake.query.functions import render
from tidelake.query.kql import lower, parse
from tools.kql_corpus import CORPUS, judge, queries

TEXTS = [case.query for case in read_cases()]
PIECES = sorted({word for text in TEXTS for word in text.replace("(", " ( ").replace(")", " ) ").split(" ") if word})
EVERY = 40  # queries of the corpus that a test run tries: each one in so many


def outcome(text: str) -> QueryError | None:
    """Parse and lower a text; give the error it meets, which is a QueryError with a place or none at all."""
    met = None
    try:
        parse(text)
        lowered = lower(text, CaseTables(), now=NOW)
        render(lowered.tree, "duckdb")
        render(lowered.tree, "spark")
    except QueryError as error:
        met = error
    assert met is None or {"line", "column"} <= set(met.facts), met
    return met


@given(st.text(max_size=60))
def test_parser_fails_only_with_its_own_error_on_any_text(text: str) -> None:
    outcome(text)


@given(st.binary(max_size=80))
def test_parser_fails_only_with_its_own_error_on_any_bytes(data: bytes) -> None:
    outcome(data.decode("latin-1"))


@given(st.sampled_from(TEXTS), st.data())
def test_parser_fails_only_with_its_own_error_on_cut_queries(text: str, data: st.DataObject) -> None:
    outcome(text[: data.draw(st.integers(0, len(text)))])


@given(st.sampled_from(TEXTS), st.data())
@settings(max_examples=200)
def test_parser_fails_only_with_its_own_error_on_changed_queries(text: str, data: st.DataObject) -> None:
    words = text.split(" ")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(words) - 1))
        words[at : at + data.draw(st.integers(0, 2))] = [data.draw(st.sampled_from(PIECES))]
    outcome(" ".join(words))


@given(st.lists(st.sampled_from(PIECES), max_size=25))
@settings(max_examples=200)
def test_parser_fails_only_with_its_own_error_on_any_words(words: list[str]) -> None:
    outcome(" ".join(words))


@pytest.mark.parametrize(
    "text",
    [
        "print " + "(" * 5000 + "1" + ")" * 5000,
        "print " + "f(" * 5000,
        "print " + "-" * 5000 + "1",
        "print " + "1+" * 5000 + "1",
        "print a" + ".b" * 5000,
        "print a" + "[0]" * 5000,
        "print dynamic(" + "[" * 5000,
        "let f = () {" * 500,
        "print " + "not(" * 5000 + "true",
        "logs " + "| union (logs " * 300,
        "print iff(true, 1, " * 300,
        '"' * 100_001,
        "print " + "a and " * 20_000 + "a",
    ],
)
def test_parser_refuses_endless_nesting_in_little_time(text: str) -> None:
    began = time.perf_counter()
    assert outcome(text) is not None
    assert time.perf_counter() - began < 5


def test_long_queries_are_read_in_time_that_grows_with_them() -> None:
    def seconds(count: int) -> float:
        text = "logs" + " | where level == 'x' or message has 'y'" * count
        began = time.perf_counter()
        parse(text)
        return time.perf_counter() - began

    seconds(50)
    assert seconds(800) < 40 * max(seconds(50), 0.001)


def test_functions_that_double_are_refused_before_they_explode() -> None:
    names = [f"let f{at} = (x:string) {{ strcat(f{at - 1}(x), f{at - 1}(x)) }};" for at in range(1, 40)]
    text = "let f0 = (x:string) { strcat(x, x) };" + " ".join(names) + " logs | extend y = f39(message)"
    error = outcome(text)
    assert error is not None
    assert error.kind == "too_large"


def test_constants_that_double_are_refused_before_they_explode() -> None:
    names = [f"let s{at} = strcat(s{at - 1}, s{at - 1});" for at in range(1, 40)]
    error = outcome("let s0 = 'abcdefgh';" + " ".join(names) + " print s39")
    assert error is not None
    assert error.kind == "too_large"


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real queries is not beside the project")
def test_corpus_parses_and_plans_and_every_failure_names_its_place() -> None:
    outcomes = [judge(path, text) for path, text in list(queries(CORPUS))[::EVERY]]
    failures = [each.plan_error or "" for each in outcomes if each.plan_error]
    assert sum(each.parse_error is None for each in outcomes) / len(outcomes) >= 0.95
    assert 1 - len(failures) / len(outcomes) >= 0.85
    assert all("line=" in failure and "column=" in failure and "^" in failure for failure in failures)


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real queries is not beside the project")
@given(st.data())
@settings(max_examples=60)
def test_parser_fails_only_with_its_own_error_on_cut_and_changed_real_queries(data: st.DataObject) -> None:
    texts = _real_texts()
    text = data.draw(st.sampled_from(texts))
    start = data.draw(st.integers(0, len(text)))
    other = data.draw(st.sampled_from(texts))
    with suppress(QueryError):
        parse(text[:start] + other[data.draw(st.integers(0, len(other))) :][:200])


_REAL: list[str] = []


def _real_texts() -> list[str]:
    if not _REAL:
        _REAL.extend(text for _, text in list(queries(CORPUS))[:: EVERY * 2])
    return _REAL
