"""Show that predicates are read as they are written, in Python and as text, and that mistakes are shown in place."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import examples
from tidelake.errors import InvalidInputError, QueryError
from tidelake.model.expression import MAX_NESTING, col, parse_where
from tidelake.model.predicate import (
    And,
    DynamicPathEquals,
    DynamicPathExists,
    DynamicPathMayHold,
    DynamicPathTest,
    Equals,
    InSet,
    IsNull,
    Nanoseconds,
    Not,
    Or,
    Predicate,
    Range,
    StartsWith,
    StringContains,
    StringHas,
    StringMatches,
    TimeRange,
)

CASES = Path(__file__).parents[1] / "cases"
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
NEW_YEAR_NS = 1_767_225_600_000_000_000


class Level(StrEnum):
    ERROR = "error"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (col("a") == 1, Equals("a", 1)),
        (col("a") != 1, Not(Equals("a", 1))),
        (col("a") < 1, Range("a", high=1, include_high=False)),
        (col("a") <= 1, Range("a", high=1)),
        (col("a") > 1, Range("a", low=1, include_low=False)),
        (col("a") >= 1, Range("a", low=1)),
        (col("a").isin(x for x in (1, 2)), InSet("a", (1, 2))),
        (col("a").between(1, 2), Range("a", 1, 2)),
        (col("s").has("x"), StringHas("s", "x")),
        (col("s").contains("x"), StringContains("s", "x")),
        (col("s").contains("x", case_sensitive=True), StringContains("s", "x", True)),
        (col("s").startswith("x"), StartsWith("s", "x")),
        (col("s").startswith("x", case_sensitive=True), StartsWith("s", "x", True)),
        (col("s").matches("x+"), StringMatches("s", "x+")),
        (col("s").is_null(), IsNull("s")),
        (col("s").is_not_null(), Not(IsNull("s"))),
        (col("d")["a.b"].exists(), DynamicPathExists("d", "a.b")),
        (col("d")["a"]["b"] == 5, DynamicPathEquals("d", "a.b", 5)),
        (col("d")["a"][0] != "x", Not(DynamicPathEquals("d", "a[0]", "x"))),
        (col("d")["a"] > 5, DynamicPathTest("d", "a", Range("", low=5, include_low=False))),
        (col("d")["a"].isin([1]), DynamicPathTest("d", "a", InSet("", (1,)))),
        (col("d")["a"].matches("x"), DynamicPathTest("d", "a", StringMatches("", "x"))),
        (col("d")["a"].is_null(), DynamicPathTest("d", "a", IsNull(""))),
        (col("t") >= date(2026, 1, 1), Range("t", low=datetime(2026, 1, 1))),
        (col("a") == np.int64(3), Equals("a", 3)),
        (col("a") == np.float64(0.5), Equals("a", 0.5)),
        (col("s") == Level.ERROR, Equals("s", "error")),
    ],
)
def test_col_says_a_predicate(written: Predicate, meant: Predicate) -> None:
    assert written == meant
    assert repr(written) == repr(meant)


def test_predicates_combine_flat() -> None:
    a, b, c = Equals("a", 1), IsNull("b"), StringHas("c", "x")
    assert a & b & c == And((a, b, c))
    assert a & (b & c) == And((a, b, c))
    assert a | b | c == Or((a, b, c))
    assert a & b | c == Or((And((a, b)), c))
    assert ~a == Not(a)
    assert ~~a == a
    with pytest.raises(TypeError):
        a & 1  # type: ignore[operator]


def test_path_has_its_column_and_path() -> None:
    path = col("d")["a"]["b"]
    assert (path.column, path.path, repr(path)) == ("d", "a.b", "col('d')['a.b']")
    assert repr(col("d")) == "col('d')"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: col("a") == None, r"nothing compares with None; ask is_null\(\)"),  # noqa: E711
        (lambda: col("a").isin("abc"), "isin takes a list of values, not 'abc'"),
        (lambda: col("a") == col("b"), r"a predicate cannot compare with col\('b'\)"),
        (lambda: col("a") < [1], "a predicate cannot compare with"),
        (lambda: col("a").matches("("), "not a regular expression: missing"),
        (lambda: col("a").matches("(?=x)"), "not a regular expression: invalid perl operator"),
        (lambda: col("a").matches("\ud800"), "not a regular expression: .* surrogates not allowed"),
    ],
)
def test_col_refuses_what_it_cannot_say(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_parse_where_reads_every_form_together() -> None:
    text = """
        level == "ERROR" and (status >= 500 or message has "timeout")
        and not attributes["http.method"] in ("GET", "HEAD") and ts >= datetime(2026-01-01T00:00:00Z)
        and latency between (1 .. 5) and exists(attributes["a.b"]) and x is null and message matches regex "^a.*b$"
    """
    assert parse_where(text) == And(
        (
            Equals("level", "ERROR"),
            Or((Range("status", low=500), StringHas("message", "timeout"))),
            Not(DynamicPathTest("attributes", "http.method", InSet("", ("GET", "HEAD")))),
            Range("ts", low=NEW_YEAR),
            Range("latency", 1, 5),
            DynamicPathExists("attributes", "a.b"),
            IsNull("x"),
            StringMatches("message", "^a.*b$"),
        )
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a = 1", Equals("a", 1)),
        ("a <> 1", Not(Equals("a", 1))),
        ("a != -1.5e3", Not(Equals("a", -1500.0))),
        ("a == TRUE", Equals("a", True)),
        ("5 > a", Range("a", high=5, include_high=False)),
        ("'x' == a", Equals("a", "x")),
        ("1 <= a < 5", Range("a", 1, 5, include_high=False)),
        ("5 > a >= 1", Range("a", 1, 5, include_high=False)),
        ("-inf < d['x'] <= 2", DynamicPathTest("d", "x", Range("", -math.inf, 2, include_low=False))),
        ("a between (-2..-1)", Range("a", -2, -1)),
        ("a !between (1 .. 2)", Not(Range("a", 1, 2))),
        ("a in ()", InSet("a", ())),
        ("a !in (1, 'x')", Not(InSet("a", (1, "x")))),
        ("a not in (1)", Not(InSet("a", (1,)))),
        ("a NOT IN (1) AND b IS NOT NULL", And((Not(InSet("a", (1,))), Not(IsNull("b"))))),
        ("s !has 'x'", Not(StringHas("s", "x"))),
        ("s !contains 'x'", Not(StringContains("s", "x"))),
        ("s contains_cs 'x'", StringContains("s", "x", True)),
        ("s startswith 'x'", StartsWith("s", "x")),
        ("s !startswith_cs 'x'", Not(StartsWith("s", "x", True))),
        (r"s == 'it\'s \"\n\x41\u00e9\U0001f600'", Equals("s", "it's \"\nAé\U0001f600")),
        (r"""s matches regex @"\d+""x" """, StringMatches("s", r'\d+"x')),
        ("s == @'it''s'", Equals("s", "it's")),
        (r"s == b'\x00\xff'", Equals("s", b"\x00\xff")),
        ("a == 1 or b == 2 and c == 3", Or((Equals("a", 1), And((Equals("b", 2), Equals("c", 3)))))),
        ("not a == 1 and b == 2", And((Not(Equals("a", 1)), Equals("b", 2)))),
        ("not not a == 1", Not(Not(Equals("a", 1)))),
        ("(a == 1 and b == 2) and c == 3", And((And((Equals("a", 1), Equals("b", 2))), Equals("c", 3)))),
        ("d['a']['b'][0] == 1", DynamicPathEquals("d", "a.b[0]", 1)),
        ("d['a'].b.`c d` == 1", DynamicPathEquals("d", "a.b.c d", 1)),
        ("maybe(d['a'].b contains_cs 'x')", DynamicPathMayHold("d", "a.b", StringContains("", "x", True))),
        ("d['a'] is null", DynamicPathTest("d", "a", IsNull(""))),
        ("`odd ``name``` == 1", Equals("odd `name`", 1)),
        ("['odd name'] == 1", Equals("odd name", 1)),
        ("['odd name']['x'] == 1", DynamicPathEquals("odd name", "x", 1)),
        ("`in` == 1 and has has 'x'", And((Equals("in", 1), StringHas("has", "x")))),
        ("datetime >= datetime(2026-01-01)", Range("datetime", low=datetime(2026, 1, 1))),
        ("ts == datetime('2026-01-01 00:00:00Z')", Equals("ts", NEW_YEAR)),
        ("ts < 2026-01-01T00:00:00Z", Range("ts", high=NEW_YEAR, include_high=False)),
        ("ts == datetime(2026-01-01T00:00:00.000000001Z)", Equals("ts", Nanoseconds(NEW_YEAR_NS + 1))),
        ("ts in [2026-01-01, ∞)", TimeRange("ts", NEW_YEAR_NS, None)),
        ("ts in [-∞, -5 ns)", TimeRange("ts", None, -5)),
    ],
)
def test_parse_where_reads(text: str, meant: Predicate) -> None:
    assert parse_where(text) == meant
    assert repr(parse_where(text)) == repr(meant)


def test_parse_where_reads_dots_by_the_columns_there_are() -> None:
    columns = ("attributes", "attributes.http", "level")
    for text, meant in {
        "attributes.user.id == 5": DynamicPathEquals("attributes", "user.id", 5),
        "attributes.http == 5": Equals("attributes.http", 5),
        "attributes.http.status == 5": DynamicPathEquals("attributes.http", "status", 5),
        "attributes.tags[0].is.null == 5": DynamicPathEquals("attributes", "tags[0].is.null", 5),
        "exists(attributes.user)": DynamicPathExists("attributes", "user"),
    }.items():
        assert parse_where(text, columns=columns) == meant


def error_cases() -> list[tuple[str, str]]:
    """Read the text cases: blocks of lines after ``>``, then the error they give."""
    blocks = (CASES / "where_errors.txt").read_text(encoding="utf-8").split("\n\n")[1:]
    lines = [block.strip("\n").split("\n") for block in blocks]
    return [
        ("\n".join(line[2:] for line in block if line[0] == ">"), "\n".join(line for line in block if line[0] != ">"))
        for block in lines
    ]


@pytest.mark.parametrize(("text", "shown"), error_cases())
def test_parse_where_shows_where_a_mistake_is(text: str, shown: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse_where(text, columns=("level", "d", "s"))
    assert str(refused.value) == shown


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_parse_where_refuses_an_empty_condition(text: str) -> None:
    with pytest.raises(QueryError, match="an empty condition: write one such as level == 'ERROR'"):
        parse_where(text)


def test_parse_where_asks_for_the_columns_when_a_name_has_a_dot() -> None:
    with pytest.raises(QueryError) as refused:
        parse_where("a.b == 1")
    assert refused.value.message.startswith("a dot in a name that is not known: write a['b'] or `a.b`")


@pytest.mark.parametrize("opening", ["(", "not ", "(not "])
def test_parse_where_refuses_endless_nesting(opening: str) -> None:
    closing = ")" if "(" in opening else ""
    assert parse_where(opening * 40 + "a == 1" + closing * 40) is not None
    with pytest.raises(QueryError, match=f"nested too deeply, more than {MAX_NESTING} levels"):
        parse_where(opening * 5000 + "a == 1" + closing * 5000)


NAMES = st.sampled_from(["a", "level", "x.y", "odd name", "in", "Exists", "`", "日本", "1st", "nan"]) | st.text(
    max_size=4
)
VALUES = st.one_of(
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**400)]),
    st.floats(allow_nan=False),
    st.text(max_size=6),
    st.sampled_from(["\ud800", "'", '"', "'\"", "\\", "\n", "`"]),
    st.binary(max_size=4),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30))])),
)


def leaves() -> st.SearchStrategy[Any]:
    bound, flag, text = st.none() | VALUES, st.booleans(), st.text(max_size=6)
    ns = st.none() | st.integers(-(2**70), 2**70) | st.integers(NEW_YEAR_NS, NEW_YEAR_NS + 10**10)

    def ranges(ends: tuple[Any, Any, bool, bool]) -> Range:
        low, high, include_low, include_high = ends
        return Range("", low, high, include_low or low is None, include_high or high is None)

    tests = st.one_of(
        st.lists(VALUES, max_size=3).map(lambda values: InSet("", tuple(values))),
        st.tuples(bound, bound, flag, flag).filter(lambda ends: ends[:2] != (None, None)).map(ranges),
        text.map(lambda term: StringHas("", term)),
        st.tuples(text, flag).map(lambda asked: StringContains("", *asked)),
        st.tuples(text, flag).map(lambda asked: StartsWith("", *asked)),
        st.sampled_from(["", "^a.*b$", r"\d+'\"", "é|\n"]).map(lambda pattern: StringMatches("", pattern)),
        st.just(IsNull("")),
    )
    return st.one_of(
        st.tuples(NAMES, tests).map(lambda asked: col(asked[0])._asked(asked[1])),
        st.tuples(NAMES, VALUES).map(lambda asked: Equals(*asked)),
        st.tuples(NAMES, ns, ns).map(lambda asked: TimeRange(*asked)),
        st.tuples(NAMES, st.text(max_size=4), tests).map(lambda asked: DynamicPathTest(*asked)),
        st.tuples(NAMES, st.text(max_size=4), VALUES).map(lambda asked: DynamicPathEquals(*asked)),
        st.tuples(NAMES, st.text(max_size=4)).map(lambda asked: DynamicPathExists(*asked)),
        st.tuples(NAMES, st.text(max_size=4), text.map(lambda term: StringHas("", term))).map(
            lambda asked: DynamicPathMayHold(*asked)
        ),
    )


def predicates() -> st.SearchStrategy[Predicate]:
    def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return inner.map(Not) | parts.map(And) | parts.map(Or)

    return st.recursive(leaves(), combined, max_leaves=6)


@examples(500)
@given(predicates())
def test_repr_of_a_predicate_reads_back_to_an_equal_one(predicate: Predicate) -> None:
    text = repr(predicate)
    assert parse_where(text) == predicate
    assert repr(parse_where(text)) == text


def test_repr_of_nan_reads_back() -> None:
    found = parse_where(repr(Equals("a", math.nan)))
    assert isinstance(found, Equals)
    assert isinstance(found.value, float)
    assert math.isnan(found.value)


@examples(300)
@given(st.text(alphabet="ad s=!<>()[]'\"`@.,-15Tinothexbré\n\t∞", max_size=30) | st.text(max_size=12))
def test_parse_where_never_fails_but_with_a_place(text: str) -> None:
    try:
        found = parse_where(text, columns=("a", "d", "s"))
    except QueryError as error:
        facts = error.facts
    else:
        facts = {"line": 1, "column": 1}
        assert parse_where(repr(found)) == found
    assert {"line", "column"} <= facts.keys()
