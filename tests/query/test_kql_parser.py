"""Show that KQL's parser reads what it should and fails well on everything else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.cases import NOW, CaseTables, read_cases
from tidelake.errors import QueryError
from tidelake.query.functions.rendering import render
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


# Forms that Microsoft's documentation shows and its parser accepts, an empty line between them.
FORMS = r"""
print @'C:\temp', h'secret', h@"se\cret", 'it\'s', "tab\t", "\u0041", 'a' "b"

print ```several
lines```, ~~~tilde~~~

print datetime(2026-01-01T10:11:12.123Z), datetime(null), datetime("2026-01-01 10:00"), datetime(2026-01)

print timespan(1d), time(1.02:03:04), 5ms, 6microsecond, 7tick, 1.5h, time(2 days), timespan(null), 30seconds

print guid(74be27de-1e4e-49d9-b579-fe0b331d3642), decimal(1.5), real(nan), real(-inf), long(0x1F), 1.5E-3, bool(null)

print dynamic([1, "a", true, null, {"b": [1.5, -2]}]), dynamic({"a": datetime(2026-01-01), "t": timespan(1d)})

let f = (a:long, b:string = "z") { strcat(b, a) }; print f(1), f(1, "q"), f(b="w", a=3)

let f = (T:(*)) { T | count }; let g = (T:(id:long)) { T | where id > 1 }; users | invoke g() | invoke f()

let v = view () { users }; let ['my name'] = 5; union v, users | where id < ['my name']

set notruncation; set query_take_max_records = 10;
declare query_parameters(n:long = 3, s:string = "a");
users // a comment
| where id < n

cluster('x').database('people').['teams'] | union database("people").table("teams"), people.teams

users | where name in~ ("ADA") and team !in (people.teams) and name !in~ ((users | project name))

logs | where message has_all ("login", "ok") or message has_any ("a", "b") and status !between (200 .. 300)

logs | where message matches regex @"log\w+" and message !contains "z" and message hasprefix "lo" and * has "ok"

logs | mv-expand kind=array with_itemindex=i a = attributes to typeof(string) limit 5

logs | mv-apply w = split(message, " ") to typeof(string) on (where w startswith "l" | summarize n = count())

users | join hint.strategy=broadcast kind=leftouter (people.teams) on $left.team == $right.team
| join kind=innerunique users on id, $left.name == $right.name | getschema kind=csl | consume decodeblocks=true

logs | summarize hint.shufflekey=service hint.num_partitions=4 (t, m) = arg_max(ts, message), count() by service

logs | summarize (p5, p50) = percentiles(latency, 5, 50), percentiles_array(latency, 5, 50), take_any(*) by level

logs | make-series n=count() default=0 on ts from datetime(2026-01-01) to datetime(2026-01-02) step 6h by service

logs | make-series n=count() on ts in range(datetime(2026-01-01), datetime(2026-01-02), 1h)
| render timechart with (title="x", ycolumns=n, ts, kind=stacked)

logs | parse kind=regex flags=Ui message with "login" rest:string | parse-where message with * "timeout" *

print s="a=1, b=\"x y\"" | parse-kv s as (a:long, b:string) with (pair_delimiter=",", kv_delimiter="=", quote='"')

logs | evaluate bag_unpack(attributes, 'p_') : (ts:datetime, p_bytes:long)

logs | evaluate pivot(level, count(), service) : (service:string, error:long)

range t from datetime(2026-01-01) to datetime(2026-01-02) step 6h | extend x = row_number()

logs | partition hint.strategy=native by service (top 1 by ts | extend kind = "first")

find withsource=T in (logs, user*) where * has "ada" project id:string, pack_all()

search kind=case_sensitive in (logs, users) "ada" or name:"alan"

union withsource=T kind=outer isfuzzy=true logs, nothing, (users | where id == 1) | summarize count() by T

logs | as hint.materialized=true X | union X | project-reorder ts granny-asc, * | sort by ts asc nulls first
"""


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
def test_parser_refuses_endless_nesting_with_little_work(text: str) -> None:
    assert calls_of(lambda: outcome(text)) < 10_000_000
    assert outcome(text) is not None


def test_work_of_reading_grows_with_the_query() -> None:
    def work(count: int) -> int:
        text = "logs" + " | where level == 'x' or message has 'y'" * count
        return calls_of(lambda: parse(text))

    assert work(800) < 20 * work(50)


def calls_of(action: Callable[[], object]) -> int:
    """Count the calls that an action makes, which is the same on any machine."""
    count = 0

    def seen(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("text", [text for text in FORMS.split("\n\n") if text.strip()])
def test_forms_that_the_language_documents_are_planned(text: str) -> None:
    assert outcome(text.strip()) is None


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


def test_corpus_parses_and_plans_and_every_failure_names_its_place() -> None:
    outcomes = [judge(path, text) for path, text in real_or_ours()[::EVERY]]
    failures = [each.plan_error or "" for each in outcomes if each.plan_error]
    assert sum(each.parse_error is None for each in outcomes) / len(outcomes) >= 0.95
    assert 1 - len(failures) / len(outcomes) >= 0.94
    assert all("line=" in failure and "column=" in failure and "^" in failure for failure in failures)


@given(st.data())
@settings(max_examples=60)
def test_parser_fails_only_with_its_own_error_on_cut_and_changed_real_queries(data: st.DataObject) -> None:
    texts = _real_texts()
    text = data.draw(st.sampled_from(texts))
    start = data.draw(st.integers(0, len(text)))
    other = data.draw(st.sampled_from(texts))
    with suppress(QueryError):
        parse(text[:start] + other[data.draw(st.integers(0, len(other))) :][:200])


def real_or_ours() -> list[tuple[str, str]]:
    """Return queries that people wrote, or our own where those are not beside the project."""
    return (
        list(queries(CORPUS)) if CORPUS.exists() else [("ours", case.query) for case in read_cases() if not case.error]
    )


_REAL: list[str] = []


def _real_texts() -> list[str]:
    if not _REAL:
        _REAL.extend(text for _, text in real_or_ours()[:: EVERY * 2])
    return _REAL
