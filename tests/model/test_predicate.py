"""Show that predicates read as people write them, refuse nonsense, and mean the same as the plain rules."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.oracle import answers
from tests.support.strategies import WORDS, examples, texts
from tidelake.errors import InvalidInputError
from tidelake.model.predicate import (
    And,
    DynamicPathEquals,
    DynamicPathExists,
    DynamicPathMayHold,
    Equals,
    InSet,
    IsNull,
    Not,
    Or,
    Predicate,
    Range,
    StartsWith,
    StringContains,
    StringHas,
    TimeRange,
    columns_of,
    fold,
    leaves_of,
    text_holds,
    time_ns,
)
from tidelake.model.schema import Schema

TEXT = Schema.of({"s": "string"})


@pytest.mark.parametrize(
    ("predicate", "shown"),
    [
        (And((Equals("service", "auth"), Not(IsNull("level")))), "(service == 'auth' and not (level is null))"),
        (Or((InSet("n", (1, 2.5)), StringHas("s", "oom"))), "(n in (1, 2.5) or s has 'oom')"),
        (Range("n", 1, 5, include_high=False), "1 <= n < 5"),
        (Range("n", low=1, include_low=False), "n > 1"),
        (Range("n", high="z"), "n <= 'z'"),
        (StringContains("s", "oom"), "s contains 'oom'"),
        (StringContains("s", "oom", case_sensitive=True), "s contains_cs 'oom'"),
        (StartsWith("s", "GET", case_sensitive=True), "s startswith_cs 'GET'"),
        (DynamicPathExists("d", "http.status"), "exists(d['http.status'])"),
        (DynamicPathEquals("d", "ok", True), "d['ok'] == true"),
        (DynamicPathMayHold("d", "m", StringHas("", "oom")), "maybe(d['m'] has 'oom')"),
        (TimeRange("ts", 0, None), "ts in [1970-01-01T00:00:00Z, ∞)"),
        (TimeRange("ts", None, 10**30), f"ts in [-∞, {10**30} ns)"),
        (Equals("ts", datetime(2026, 1, 2, tzinfo=UTC)), "ts == datetime(2026-01-02T00:00:00+00:00)"),
    ],
)
def test_predicate_reads_as_a_person_would_write_it(predicate: Predicate, shown: str) -> None:
    assert repr(predicate) == shown


def test_columns_of_names_every_column_once() -> None:
    predicate = And((Equals("a", 1), Or((IsNull("b"), Not(Equals("a", 2))))))
    assert columns_of(predicate) == {"a", "b"}
    assert list(leaves_of(predicate)) == [Equals("a", 1), IsNull("b"), Equals("a", 2)]


@pytest.mark.parametrize("value", [None, [], object(), timedelta(1)])
def test_predicate_refuses_a_value_that_nothing_equals(value: Any) -> None:
    for make in (
        lambda: Equals("a", value),
        lambda: InSet("a", (1, value)),
        lambda: DynamicPathEquals("a", "p", value),
    ):
        with pytest.raises(InvalidInputError, match="cannot compare"):
            make()


@pytest.mark.parametrize("make", [lambda: And(()), lambda: Or(()), lambda: Range("a")])
def test_predicate_refuses_to_be_about_nothing(make: Any) -> None:
    with pytest.raises(InvalidInputError, match="at least one"):
        make()


@pytest.mark.parametrize(
    ("time", "ns"),
    [
        (datetime(1970, 1, 1), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1000),
        (datetime(2026, 4, 20, 12, tzinfo=timezone(timedelta(hours=2))), 1_776_679_200_000_000_000),
        (datetime(1, 1, 1, tzinfo=UTC), -62_135_596_800_000_000_000),
    ],
)
def test_time_ns_counts_from_1970_utc(time: datetime, ns: int) -> None:
    assert time_ns(time) == ns


def test_fold_makes_no_ascii_letter_of_another_alphabet() -> None:
    folded = {chr(code): fold(chr(code)) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF}
    assert [char for char, lower in folded.items() if not char.isascii() and any(map(str.isascii, lower))] == []
    assert [char for char, lower in folded.items() if len(lower) != 1] == []
    assert fold("ÀB\u212a\u0130") == "àb\u212a\u0130"


@pytest.mark.parametrize(
    ("leaf", "text", "holds"),
    [
        (StringHas("s", "timeout"), "a Timeout!", True),
        (StringHas("s", "timeout"), "timeouts", False),
        (StringHas("s", "timeout"), "étimeout", False),
        (StringHas("s", "timeout"), "timeouts timeout", True),
        (StringHas("s", "-timeout"), "xx-timeout", True),
        (StringHas("s", ""), "", True),
        (StringContains("s", "oom"), "OutOfMemory oOm", True),
        (StringContains("s", "oom", case_sensitive=True), "OOM", False),
        (StringContains("s", "kelvin"), "\u212aelvin", False),
        (StartsWith("s", "get /"), "GET /x", True),
        (StartsWith("s", "GET", case_sensitive=True), "get", False),
        (StartsWith("s", ""), "", True),
    ],
)
def test_text_holds_means_what_it_says(leaf: Any, text: str, holds: bool) -> None:
    assert text_holds(leaf, text) is holds


@examples(400)
@given(texts(), st.sampled_from(WORDS) | st.text(max_size=3), st.integers(0, 30), st.integers(0, 8), st.booleans())
def test_text_holds_agrees_with_the_plain_rules(text: str, word: str, at: int, length: int, cased: bool) -> None:
    for needle in (word, text[at : at + length], text[at : at + length].swapcase()):
        for leaf in (StringHas("s", needle), StringContains("s", needle, cased), StartsWith("s", needle, cased)):
            assert {text_holds(leaf, text)} == answers(leaf, {"s": text}, TEXT)


def test_predicate_is_no_truth_value_so_that_no_part_is_lost() -> None:
    a, b = Equals("a", 1), Equals("b", 2)
    for lost in (lambda: a and b, lambda: a or b, lambda: not a, lambda: bool(And((a, b))), lambda: bool(Not(a))):
        with pytest.raises(InvalidInputError, match="combine predicates with &") as caught:
            lost()
        assert caught.value.kind == "not_a_truth_value"
