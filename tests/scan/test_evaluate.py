"""Show that a batch is answered as plain Python answers its rows, and that nothing pruned would have been an answer."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import examples
from tidelake.dynamic.values import MISSING, encode, get_path
from tidelake.errors import QueryError
from tidelake.model.predicate import (
    And,
    DynamicPathEquals,
    DynamicPathExists,
    DynamicPathMayHold,
    DynamicPathTest,
    Equals,
    InSet,
    IsNull,
    Leaf,
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
    text_holds,
    time_ns,
)
from tidelake.model.schema import Schema
from tidelake.pruning.collector import collect
from tidelake.pruning.outcomes import FALSE, NULL, TRUE, outcomes
from tidelake.pruning.statistics import merge
from tidelake.scan.binding import check
from tidelake.scan.evaluate import evaluate, select

SCHEMA = Schema.of({"i": "int", "l": "long", "r": "real", "b": "bool", "s": "string", "t": "timestamp", "d": "dynamic"})
INTS = (0, 1, -1, 7, 2**31 - 1, -(2**31))
LONGS = (*INTS, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63))
REALS = (0.0, -0.0, 1.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 2.0**53, 2.0**63, -(2.0**63), 5e-324, 1.7e308)
WORDS = ("", "timeout", "TIMEOUT!", "a timeouts", "x-timeout_y", "status 500", "\u212aey", "ſtatus", "\u0130x")
TEXTS = (*WORDS, "ÀÉ", "àé", "ΌΣΟΣ", "日本 timeout", "étimeout", "a\nb", "\x00", "timeout" * 20, "\U0010ffff")
TIMES_US = (0, 1, -1, 1_776_679_200_000_000, 2**63 - 1, -(2**63), (2**63 - 1) // 1000)
NUMBERS = (*LONGS, *REALS, 2**63, 2**64, -(2**64), 2**53 + 3, 10**400, -(10**400), 0.5, 7.0)
MOMENT = datetime(2026, 4, 20, 10, tzinfo=UTC)
SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 7, 2**53 + 1, 2**63, -(2**63) - 1, 2**80, -(2**80), 1.0, -0.0, 7.5, math.nan, math.inf),
    *(2.0**63, 2.0**80, "timeout", "a TIMEOUT", "é", "", b"", b"\x01", MOMENT, datetime(1969, 1, 1), [1], {"x": 1}, []),
)
PATHS = ("a", "a.b", "b", "b.c", "l[0]", "l", "none")
LITERALS = tuple(value for value in SCALARS if isinstance(value, bool | int | float | str | bytes | datetime))
PATTERNS = (
    *("timeout", "^timeout$", "(?i)TIMEOUT", r"\btimeout\b", "time(out|r)s?", "[0-9]{3}", "a.b", "(?s)a.b", ""),
    *(r"status\s+5", "(?i)key", "(?i)status", "x|y", "x-time.*y"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """Rows, as Python values, and the batch of them."""

    rows: list[dict[str, Any]]
    batch: pa.RecordBatch


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    columns["d"] = [None if value is None else encode(value) for value in columns["d"]]
    arrays = [
        pa.array(columns[c.name], pa.int64()).view(c.type.arrow)
        if c.name == "t"
        else pa.array(columns[c.name], c.type.arrow, from_pandas=False)
        for c in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.arrow)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw rows whose values come from small pools, cut out of a longer batch so that buffers have offsets."""
    choose = random.Random(draw(st.integers(0, 2**32)))
    nulls = draw(st.sampled_from([0.0, 0.2, 1.0]))
    odd_text = draw(st.text(max_size=8))
    pools: dict[str, Callable[[], Any]] = {
        "i": lambda: choose.choice(INTS),
        "l": lambda: choose.choice(LONGS),
        "r": lambda: choose.choice(REALS),
        "b": lambda: choose.random() < 0.5,
        "s": lambda: choose.choice((*TEXTS, odd_text, odd_text + "timeout")),
        "t": lambda: choose.choice(TIMES_US),
        "d": lambda: choose.choice(
            (
                {"a": choose.choice(SCALARS), "b": {"c": choose.choice(SCALARS)}, "l": [choose.choice(SCALARS)]},
                {"a.b": choose.choice(SCALARS), "a": {"b": choose.choice(SCALARS)}},
                {"l": choose.choice(SCALARS)},
                [],
            )
        ),
    }
    kinds = {name: draw(st.booleans()) for name in SCHEMA.names}
    rows = [
        {name: None if choose.random() < (nulls if kinds[name] else 0.0) else pools[name]() for name in SCHEMA.names}
        for _ in range(draw(st.integers(1, 12)))
    ]
    return Case(rows[1:], batch_of(rows).slice(1)) if len(rows) > 4 else Case(rows, batch_of(rows))


def leaves() -> st.SearchStrategy[Any]:
    numbers = st.sampled_from(NUMBERS)
    texts = st.sampled_from(TEXTS) | st.text(max_size=3) | st.just("\ud800")
    times = (st.sampled_from([us * 1000 for us in TIMES_US]) | st.integers(-2, 2)).map(Nanoseconds) | st.just(MOMENT)
    literals: dict[str, st.SearchStrategy[Any]] = {
        "i": numbers,
        "l": numbers,
        "r": numbers,
        "b": st.booleans(),
        "s": texts,
        "t": times,
    }

    def compared(name: str) -> st.SearchStrategy[Any]:
        return sets_and_ranges(name, literals[name]) | literals[name].map(lambda value: Equals(name, value))

    ns = st.none() | st.sampled_from([us * 1000 + off for us in TIMES_US for off in (-1, 0, 1)])
    path, at_path = st.sampled_from(PATHS), st.sampled_from(LITERALS)
    return st.one_of(
        st.sampled_from(list(literals)).flatmap(compared),
        st.tuples(ns, ns).map(lambda ends: TimeRange("t", *ends)),
        text_tests("s"),
        st.sampled_from(SCHEMA.names).map(IsNull),
        path.map(lambda at: DynamicPathExists("d", at)),
        st.tuples(path, at_path | numbers).map(lambda asked: DynamicPathEquals("d", *asked)),
        st.tuples(path, path_tests(at_path)).map(lambda asked: DynamicPathTest("d", *asked)),
        st.tuples(path, text_tests("").filter(lambda test: not isinstance(test, StringMatches))).map(
            lambda asked: DynamicPathMayHold("d", *asked)
        ),
    )


def path_tests(at_path: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    alike = st.sampled_from([bool, int, str, bytes, datetime]).flatmap(
        lambda family: ranges("", st.sampled_from([value for value in LITERALS if kind_of(value) is family]))
    )
    sets = st.lists(at_path, max_size=4).map(lambda values: InSet("", tuple(values)))
    return sets | alike | text_tests("") | st.just(IsNull(""))


def sets_and_ranges(name: str, literal: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(literal, max_size=4).map(lambda values: InSet(name, tuple(values))) | ranges(name, literal)


def ranges(name: str, literal: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    bound, flag = st.none() | literal, st.booleans()
    ends = st.tuples(bound, bound, flag, flag).filter(lambda drawn: drawn[:2] != (None, None))
    return ends.map(lambda drawn: Range(name, *drawn))


def text_tests(name: str) -> st.SearchStrategy[Any]:
    needle = st.sampled_from([*TEXTS, "TIMEOUT", "out", "k", "s", "i", "é", "ς", "σ", "500"]) | st.text(max_size=2)
    return st.one_of(
        needle.map(lambda term: StringHas(name, term)),
        st.tuples(needle, st.booleans()).map(lambda asked: StringContains(name, *asked)),
        st.tuples(needle, st.booleans()).map(lambda asked: StartsWith(name, *asked)),
        st.sampled_from(PATTERNS).map(lambda pattern: StringMatches(name, pattern)),
    )


def predicates() -> st.SearchStrategy[Predicate]:
    def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        parts = st.lists(inner, min_size=1, max_size=3).map(tuple)
        return inner.map(Not) | parts.map(And) | parts.map(Or)

    return st.recursive(leaves(), combined, max_leaves=5)


def answer(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """Answer for one row, by the plain rules."""
    match predicate:
        case And(parts):
            found = [answer(part, row) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [answer(part, row) for part in parts]
            return True if True in found else None if None in found else False
        case Not(part):
            inner = answer(part, row)
            return None if inner is None else not inner
        case leaf:
            return leaf_answer(leaf, row)


def leaf_answer(leaf: Leaf, row: dict[str, Any]) -> bool | None:
    value = row[leaf.column]
    if leaf.column == "t" and value is not None:
        value *= 1000
        leaf = in_ns(leaf)
    match leaf:
        case DynamicPathExists(_, path):
            return at_path(value, path) is not MISSING
        case DynamicPathEquals(_, path, wanted):
            found = at_path(value, path)
            return None if found in (None, MISSING) else passes(InSet("", (wanted,)), found)
        case DynamicPathTest(_, path, test):
            found = at_path(value, path)
            if isinstance(test, IsNull):
                return found is None or found is MISSING
            applies = found is not None and found is not MISSING and applies_to(test, found)
            return passes(test, found) if applies else None
        case DynamicPathMayHold(_, path, test):
            found = at_path(value, path)
            if found is None or found is MISSING:
                return None
            return passes(test, found) if isinstance(found, str) else True
        case IsNull():
            return value is None
        case _:
            return None if value is None else passes(leaf, value)


def in_ns(leaf: Leaf) -> Leaf:
    """Return the times that a leaf compares with as a time column has them."""
    match leaf:
        case Equals(name, datetime() as time):
            return Equals(name, time_ns(time))
        case InSet(name, values):
            return InSet(name, tuple(time_ns(value) if isinstance(value, datetime) else value for value in values))
        case _:
            return leaf


def applies_to(test: Any, found: Any) -> bool:
    match test:
        case InSet():
            return True
        case Range(_, low, high):
            return all(kind_of(bound) is kind_of(found) for bound in (low, high) if bound is not None)
        case _:
            return isinstance(found, str)


def passes(test: Any, value: Any) -> bool:
    match test:
        case Equals(_, wanted):
            return kind_of(wanted) is kind_of(value) and rank(value) == rank(wanted)
        case InSet(_, values):
            return any(passes(Equals("", wanted), value) for wanted in values)
        case TimeRange(_, start, end):
            return (start is None or value >= start) and (end is None or value < end)
        case Range(_, low, high, include_low, include_high):
            above = low is None or rank(value) > rank(low) or (include_low and rank(value) == rank(low))
            return above and (high is None or rank(value) < rank(high) or (include_high and rank(value) == rank(high)))
        case StringMatches(_, pattern):
            return matches_as_re2(pattern, value)
        case _:
            return text_holds(test, value)


def matches_as_re2(pattern: str, text: str) -> bool:
    """Match as RE2 does: ASCII classes, and the Kelvin sign and the long s are k and s where case is ignored."""
    if "(?i" in pattern:
        text = text.replace("\u212a", "k").replace("ſ", "s")
    return bool(re.search(pattern, text, re.ASCII))


def rank(value: Any) -> tuple[Any, ...]:
    """Order exactly: NaN above all numbers, infinities at their ends, the rest as fractions; a time as nanoseconds."""
    if isinstance(value, datetime):
        return (0, Fraction(time_ns(value)))
    if isinstance(value, float) and not math.isfinite(value):
        return (2,) if math.isnan(value) else (1 if value > 0 else -1,)
    if isinstance(value, int | float):
        return (0, Fraction(value))
    return (0, value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)


def kind_of(value: Any) -> type[Any]:
    for kind in (bool, int, str, bytes, datetime):
        if isinstance(value, kind):
            return kind
    return int if isinstance(value, float) else type(value)


def at_path(value: Any, path: str) -> Any:
    return MISSING if value is None else get_path(value, path)


def comparisons(name: str, literals: Sequence[Any]) -> Iterator[Any]:
    """Yield every comparison with every literal, and with pairs of them."""
    for at, literal in enumerate(literals):
        yield Equals(name, literal)
        yield InSet(name, (literal, literals[at - 1], literals[at - 2]))
        for included in (True, False):
            yield Range(name, low=literal, include_low=included)
            yield Range(name, high=literal, include_high=included)


@pytest.mark.parametrize(
    ("name", "values", "literals"),
    [
        ("i", INTS, NUMBERS),
        ("l", LONGS, NUMBERS),
        ("r", REALS, NUMBERS),
        ("b", (True, False), (True, False)),
        ("s", TEXTS, (*TEXTS, "\ud800")),
        ("t", TIMES_US, [Nanoseconds(us * 1000 + off) for us in TIMES_US for off in (-1, 0, 1)]),
    ],
)
def test_evaluate_compares_every_value_with_every_literal(name: str, values: Any, literals: Any) -> None:
    rows = [dict.fromkeys(SCHEMA.names) | {name: value} for value in (*values, None)]
    batch = batch_of(rows)
    for predicate in comparisons(name, literals):
        assert evaluate(predicate, batch).to_pylist() == [answer(predicate, row) for row in rows], predicate


def test_evaluate_compares_every_value_at_a_path_with_every_literal() -> None:
    values = (*SCALARS, *NUMBERS[:-2])
    rows = [dict.fromkeys(SCHEMA.names) | {"d": {"a": value, "l": [value]}} for value in values]
    batch = batch_of(rows)
    for test in comparisons("", (*LITERALS, *NUMBERS)):
        for path in ("a", "l[0]"):
            is_equality = isinstance(test, Equals)
            predicate = DynamicPathEquals("d", path, test.value) if is_equality else DynamicPathTest("d", path, test)
            assert evaluate(predicate, batch).to_pylist() == [answer(predicate, row) for row in rows], predicate


@examples(250)
@given(cases(), st.lists(predicates(), min_size=1, max_size=4))
def test_evaluate_answers_as_plain_python_does(case: Case, asked: list[Predicate]) -> None:
    for predicate in asked:
        expected = [answer(predicate, row) for row in case.rows]
        assert evaluate(predicate, case.batch).to_pylist() == expected, predicate
        assert evaluate(check(predicate, SCHEMA), case.batch).to_pylist() == expected, predicate
        numbered = case.batch.append_column("row", pa.array(range(len(expected))))
        kept = select(predicate, numbered).column("row").to_pylist()
        assert kept == [row for row, found in enumerate(expected) if found], predicate


@examples(50)
@given(cases(), cases(), st.lists(predicates(), min_size=8, max_size=16))
def test_statistics_never_lose_an_answer(case: Case, other: Case, asked: list[Predicate]) -> None:
    blocks, extent = collect([case.batch, other.batch], SCHEMA)
    for predicate in asked:
        for stats, batches in (
            (blocks[0], [case.batch]),
            (blocks[1], [other.batch]),
            (extent, [case.batch, other.batch]),
            (merge(blocks), [case.batch, other.batch]),
        ):
            may = outcomes(predicate, stats)
            given_answers = {found for batch in batches for found in evaluate(predicate, batch).to_pylist()}
            assert sum({True: TRUE, False: FALSE, None: NULL}[found] for found in given_answers) & ~may == 0, predicate


@pytest.mark.parametrize(
    ("leaf", "texts", "proven"),
    [
        (StringContains("s", "A"), ["ab", "ba"], True),
        (StringContains("s", "A"), ["ab", "éa"], False),
        (StringHas("s", "É"), ["é"], False),
        (StringMatches("s", "^(?i)A"), ["ab", "aé"], False),
        (StringMatches("s", "^(?i)A"), ["ab", "AB"], True),
    ],
)
def test_statistics_prove_a_text_search_only_where_all_is_ascii(leaf: Leaf, texts: list[str], proven: bool) -> None:
    """Another engine may filter rows, and know other letters than Python does."""
    _, extent = collect([pa.record_batch({"s": texts})], Schema.of({"s": "string"}))
    assert outcomes(leaf, extent) == (TRUE if proven else TRUE | FALSE)


def many_rows(count: int) -> pa.RecordBatch:
    draw = random.Random(7)
    pool = [dict.fromkeys(SCHEMA.names) | {"i": i, "l": i % 3, "s": TEXTS[i % len(TEXTS)]} for i in range(97)]
    return batch_of([draw.choice(pool) for _ in range(count)])


@pytest.mark.parametrize("share", [2, 8, 97])
def test_select_keeps_the_same_rows_when_it_narrows(share: int) -> None:
    batch = many_rows(3000)
    few = Range("i", high=97 // share)
    for predicate in (
        And((StringMatches("s", "t"), few)),
        And((StringContains("s", "T"), few, InSet("l", (0, 1)))),
        And((few, few, Not(StringHas("s", "timeout")), IsNull("d"))),
        And((few, Or((StringHas("s", "timeout"), Equals("l", 0))))),
    ):
        expected = batch.filter(evaluate(predicate, batch))
        assert 0 < expected.num_rows < batch.num_rows
        assert select(predicate, batch).equals(expected)


def test_select_gives_the_batch_itself_when_every_row_is_wanted() -> None:
    batch = many_rows(50)
    assert select(IsNull("d"), batch) is batch
    assert select(Equals("i", -1), batch).num_rows == 0
    assert select(IsNull("d"), batch.slice(0, 0)).num_rows == 0


EDGES_US = (-(2**63), -5, 0, 1, 2, 3, 4, 7, 2**63 - 1)


@examples(150)
@given(
    times=st.lists(st.one_of(st.sampled_from(EDGES_US), st.integers(-3, 12)), max_size=40),
    order=st.sampled_from(["ascending", "as it comes", "with nulls"]),
    start=st.none() | st.integers(-5_000, 14_000) | st.sampled_from([-(2**80), 2**80, -(2**63) * 1000]),
    end=st.none() | st.integers(-5_000, 14_000) | st.sampled_from([-(2**80), 2**80, 2**63 * 1000]),
    cut=st.integers(0, 5),
)
def test_select_cuts_a_window_of_times_as_a_filter_does(
    times: list[int], order: str, start: int | None, end: int | None, cut: int
) -> None:
    ordered: list[int | None] = [*sorted(times)] if order != "as it comes" else [*times]
    if order == "with nulls":
        ordered.insert(len(ordered) // 2, None)
    rows = [dict.fromkeys(SCHEMA.names) | {"t": time, "l": at} for at, time in enumerate(ordered)]
    batch = batch_of(rows).slice(min(cut, len(rows)))
    window = TimeRange("t", start, end)
    for predicate in (
        window,
        And((window, window)),
        And((Range("l", low=3), window)),
        And((window, Not(window))),
        And((window, TimeRange("t", 1_000, None), Range("l", high=9))),
    ):
        assert select(predicate, batch).equals(batch.filter(evaluate(predicate, batch)))


def test_select_holds_on_to_few_rows_only_by_a_copy_of_them() -> None:
    rows = [dict.fromkeys(SCHEMA.names) | {"t": at, "s": "text" * 9} for at in range(4_000)]
    few = select(TimeRange("t", 10_000, 20_000), batch_of(rows))
    assert few.num_rows == 10
    assert few.get_total_buffer_size() < 10_000


def nested(text: str) -> list[Any]:
    """Return values that have a text at ``a.b`` and elsewhere, at a part of it, and not at all."""
    return [
        *({"a": {"b": text}}, {"a.b": text}, {"a": {"b": text + "x"}}, {"a": {"b": "x" + text}}, {"a": {"c": text}}),
        *({text: 1}, {"a": {text: {"b": text}}}, {"a": {"b": [text]}}, {"a": {"b": {"b": text}}}, {"a": {"b": None}}),
        *({"a": {"b": text.encode()}}, {"a": {"b": 7}}, {"a": text, "b": text}, text, [text], None, {}, 7, {"a": {}}),
        *({"z": text, "a": {"b": text[1:]}}, {"a": {"b": ""}}, {"a.b": text[:-1], "a": {"b": text}}),
        {"z": text, "a": {"b": "~" * len(text.encode())}},  # as long, and another
    ]


@pytest.mark.parametrize("rows", [1, 60, 2_000])
@pytest.mark.parametrize("text", ["user-13187", "a", "é日", "b", "x" * 300, ""])
def test_select_finds_a_text_at_a_path_as_a_filter_does(text: str, rows: int) -> None:
    chance = random.Random(f"{text!r} {rows}")
    values = [*nested(text), *nested("other")] * (rows // 40 + 1)
    chance.shuffle(values)
    batch = batch_of([dict.fromkeys(SCHEMA.names) | {"d": value, "l": at} for at, value in enumerate(values)])
    wanted = DynamicPathEquals("d", "a.b", text)
    for asked in (
        batch,
        batch.slice(7, len(values) // 2),
        batch.slice(3, 0),
        batch.filter(batch.column("d").is_null()),
    ):
        for predicate in (
            wanted,
            And((Range("l", low=5), wanted)),
            And((Range("l", low=5, high=9), wanted)),
            And((wanted, DynamicPathEquals("d", "a.b[0]", text))),
            And((wanted, Not(wanted))),
            Or((wanted, IsNull("d"))),
        ):
            assert select(predicate, asked).equals(asked.filter(evaluate(predicate, asked)))


def test_evaluate_takes_arrow_types_wider_or_narrower_than_its_own() -> None:
    batch = pa.record_batch(
        {
            "n": pa.array([1, 2, None], pa.uint8()),
            "f": pa.array([0.5, math.nan, None], pa.float32()),
            "s": pa.array(["a", "b", None], pa.large_utf8()),
            "c": pa.array(["a", "b", None]).dictionary_encode(),
            "t": pa.array([1, 2, None], pa.timestamp("ms")),
        }
    )
    assert evaluate(Equals("n", 2.0), batch).to_pylist() == [False, True, None]
    assert evaluate(Range("f", low=0.5, include_low=False), batch).to_pylist() == [False, True, None]
    assert evaluate(StringHas("s", "B"), batch).to_pylist() == [False, True, None]
    assert evaluate(InSet("c", ("b", "z")), batch).to_pylist() == [False, True, None]
    assert evaluate(Equals("t", Nanoseconds(2_000_000)), batch).to_pylist() == [False, True, None]


def test_evaluate_reads_a_dynamic_path_type_by_type() -> None:
    documents = [{"a": 5}, {"a": 5.0}, {"a": "5"}, {"a": True}, {"a": None}, {}, None, {"a": [5]}]
    batch = pa.record_batch({"d": pa.array([None if d is None else encode(d) for d in documents], pa.binary())})

    def answers(predicate: Predicate) -> list[bool | None]:
        found: list[bool | None] = evaluate(predicate, batch).to_pylist()
        return found

    assert answers(DynamicPathExists("d", "a")) == [True, True, True, True, True, False, False, True]
    assert answers(DynamicPathEquals("d", "a", 5)) == [True, True, False, False, None, None, None, False]
    assert answers(DynamicPathTest("d", "a", InSet("", ("5", 5)))) == [True, True, True, False, None, None, None, False]
    assert answers(DynamicPathTest("d", "a", Range("", low=5))) == [True, True, None, None, None, None, None, None]
    assert answers(DynamicPathTest("d", "a", StringHas("", "5"))) == [None, None, True, None, None, None, None, None]
    assert answers(DynamicPathTest("d", "a", IsNull(""))) == [False, False, False, False, True, True, True, False]


def test_a_dynamic_value_is_compared_by_its_own_type() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    values: list[Any] = [5, 5.5, "5", True, None, {"a": 5}, 2**70, noon, b"x"]
    encoded = pa.array([None, *(encode(value) for value in values)], pa.binary())
    batch = pa.record_batch({"d": encoded})

    def trues(predicate: Predicate) -> list[Any]:
        found = evaluate(predicate, batch).to_pylist()
        return [value for value, answer in zip(values, found[1:], strict=True) if answer]

    assert trues(Equals("d", 5)) == trues(Equals("d", 5.0)) == [5]
    assert trues(Equals("d", "5")) == trues(StringHas("d", "5")) == trues(StartsWith("d", "5")) == ["5"]
    assert trues(InSet("d", (True, "5", 2**70, b"x"))) == ["5", True, 2**70, b"x"]
    assert trues(Range("d", low=5.2)) == [5.5, 2**70]
    assert trues(Equals("d", noon)) == [noon]
    assert trues(Not(Equals("d", 5))) == [value for value in values if value not in (5, None)]
    assert trues(IsNull("d")) == []


def test_check_turns_times_in_any_form_into_nanoseconds() -> None:
    ns = 1_776_679_200_000_000_000
    east = datetime(2026, 4, 20, 12, tzinfo=timezone(timedelta(hours=2)))
    for literal in ("2026-04-20T10:00:00Z", "2026-04-20T12:00:00+02:00", east, ns):
        assert check(Equals("t", literal), SCHEMA) == Equals("t", ns)
        assert check(InSet("t", (literal, 0)), SCHEMA) == InSet("t", (ns, 0))
        assert check(Not(Range("t", low=literal, high=literal)), SCHEMA) == Not(TimeRange("t", ns, ns + 1))
        assert check(Range("t", low=literal, include_low=False), SCHEMA) == TimeRange("t", ns + 1, None)
        assert check(Range("t", high=literal, include_high=False), SCHEMA) == TimeRange("t", None, ns)


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (Equals("I", 1), "no column 'I', did you mean 'i'? columns=i, l, r, b, s, t, d"),
        (Or((IsNull("i"), Not(Equals("zzz", 1)))), "no column 'zzz' columns=i, l, r, b, s, t, d"),
        (Equals("l", "5"), "l is long and cannot be compared with '5': compare it with a number"),
        (Equals("i", True), "i is int and cannot be compared with True: compare it with a number"),
        (Range("r", low=b"x"), "r is real and cannot be compared with b'x': compare it with a number"),
        (Equals("b", 1), "b is bool and cannot be compared with 1: compare it with true or false"),
        (InSet("s", ("a", 1)), "s is string and cannot be compared with 1: compare it with text"),
        (
            Equals("t", 1.5),
            "t is timestamp: 1.5 is too small for a time: numbers are seconds, milliseconds, microseconds or "
            "nanoseconds since 1970, told by their size; write a date as '2026-01-31'",
        ),
        (Equals("t", "soon"), "t is timestamp: 'soon' is not a time such as 2026-01-31T12:00:00Z"),
        (StringHas("i", "x"), "i is int: it cannot be asked for text"),
        (Range("d", 1, "x"), "the bounds are of two types: 1 <= d <= 'x'"),
        (DynamicPathExists("s", "a"), "s is string: it cannot be asked for a path"),
        (TimeRange("l", 0, 1), "l is long: it cannot be asked for a window of time"),
        (DynamicPathTest("d", "a", Range("", 1, "x")), "the bounds are of two types: 1 <= d['a'] <= 'x'"),
    ],
)
def test_check_says_what_cannot_be_asked(predicate: Predicate, message: str) -> None:
    with pytest.raises(QueryError) as refused:
        check(predicate, SCHEMA)
    assert str(refused.value) == message
    with pytest.raises(QueryError):
        evaluate(predicate, many_rows(1))


def test_check_shows_only_some_columns_of_a_wide_table() -> None:
    schema = Schema.of({f"column_{number:03}": "int" for number in range(300)})
    with pytest.raises(QueryError, match=r"did you mean 'column_00\d' .* columns=column_000, .* and 280 more$"):
        check(IsNull("colum_007"), schema)


def test_check_leaves_a_vector_only_its_nulls() -> None:
    schema = Schema.of({"v": "vector(2)"})
    assert check(IsNull("v"), schema) == IsNull("v")
    with pytest.raises(QueryError, match=r"v is vector\(2\) and cannot be compared"):
        check(Equals("v", 1), schema)
    batch = pa.RecordBatch.from_arrays([pa.array([[1.0, 2.0], None], schema["v"].type.arrow)], schema=schema.arrow)
    assert evaluate(IsNull("v"), batch).to_pylist() == [False, True]


def test_evaluate_is_exact_where_doubles_are_not() -> None:
    edge = 2**53
    batch = pa.record_batch({"l": pa.array([edge, edge + 1, edge + 2]), "r": np.array([edge, edge + 2, math.inf])})
    assert evaluate(Equals("l", float(edge)), batch).to_pylist() == [True, False, False]
    assert evaluate(Range("l", low=float(edge), include_low=False), batch).to_pylist() == [False, True, True]
    assert evaluate(Equals("r", edge + 1), batch).to_pylist() == [False, False, False]
    assert evaluate(Range("r", low=edge + 1), batch).to_pylist() == [False, True, True]
    assert evaluate(Range("r", high=10**400), batch).to_pylist() == [True, True, False]
