"""Draw schemas, rows and predicates that look for trouble.

Values come from small pools, so that rows repeat, predicates hit, and statistics have something to prove; the pools
hold what breaks things: NaN, both zeros, the ends of every type's range, times before 1970 and beyond nanoseconds,
texts longer than a bound may be, letters that change when lower-cased. It does not know which answers are right.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import cbor2
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.support.rows import Row
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
from tidelake.model.schema import Column, DataType, Schema

Test = TypeVar("Test", bound=Callable[..., Any])

KINDS = ("int", "long", "real", "bool", "string", "timestamp", "dynamic", "vector(3)")

WORDS = (
    "timeout",
    "TimeOut",
    "timeouts",
    "OutOfMemoryError",
    "oom",
    "ab",
    "abcdefgh",
    "abcdefghi",
    "ABCDEFGHJ",
    "0198c0de7000",
    "x",
    "\u212aelvin",  # lower-cases to an ASCII k, were it not kept
    "\u0130stanbul",  # lower-cases to two characters, were it not kept
    "straße",
    "ÀÉÎ",
    "日本語",
    "é",
    "\U0010ffff",
    "\x00",
    "",
)
LONG_TEXTS = ("long " * 80, "é" * 300, "\U0010ffff" * 70, "\x7f" * 257, "z" * 40_000, "a" * 256, "a" * 255 + "é")
GAPS = (" ", "", "-", "_", "/", "é", "\n")

LONGS = (0, 1, -1, 42, 2**31 - 1, -(2**31), 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63))
REALS = (0.0, -0.0, 1.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 2.0**53, 2.0**63, 5e-324, 1.7e308)
NS_EDGE_US = (2**63 - 1) // 1000  # the last microsecond whose nanoseconds fit in 64 bits
TIMES_US = (
    0,
    -1,
    1,
    1_776_679_200_000_000,
    1_776_679_201_000_000,
    -2_208_988_800_000_000,
    NS_EDGE_US,
    NS_EDGE_US + 1,
    -NS_EDGE_US - 1,
    -NS_EDGE_US - 2,
    2**63 - 1,
    -(2**63),
)
DOCUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"http": {"status": 500, "method": "GET"}},
    {"http.status": 200},
    {"http": {"status": 404}, "http.status": 200},
    {"user": "ada", "n": 1, "ok": True},
    {"user": None, "tags": ["alpha", "beta", 7], "n": 1.5},
    {"items": [{"name": "gamma"}, {"name": None}], "items[1]": "delta"},
)
PATTERNS = ("time", "^GET", "[0-9]+", "(?i)OUTOF", "é|x", "^$", "a.c")
PATHS = (
    *("http", "http.status", "http.method", "user", "n", "ok", "tags", "tags[0]", "tags[2]", "items", "items[0].name"),
    *("items[1]", "items[1].name", "absent", "http.absent", ""),
)


def examples(count: int) -> Callable[[Test], Test]:
    """Run a property on this many examples, the same ones every time."""
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A schema, its rows, and for each column the values they were chosen from."""

    schema: Schema
    rows: list[Row]
    pools: dict[str, list[Any]]


def texts() -> st.SearchStrategy[str]:
    """Draw words, sentences, long texts, and anything else that is Unicode."""
    return _TEXTS


@st.composite
def schemas(draw: st.DrawFn, *, max_columns: int = 4) -> Schema:
    """Draw a schema of any types, with names that no code should stumble over."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=max_columns))
    first = draw(_SMALL)
    columns = []
    for at, kind in enumerate(kinds):
        name = f"{_NAMES[(first + at) % len(_NAMES)]}{at}"
        columns.append(Column(at + 1, name, DataType.parse(kind), draw(st.booleans()) or kind == "timestamp"))
    return Schema(tuple(columns))


@st.composite
def cases(draw: st.DrawFn, *, max_columns: int = 4, max_rows: int = 40) -> Case:
    """Draw a schema and rows for it."""
    schema = draw(schemas(max_columns=max_columns))
    pools = {}
    for column in schema:
        pools[column.name] = draw(_POOLS[str(column.type)])
        if column.nullable and draw(st.booleans()):
            pools[column.name].append(None)
        if column.type.kind in _FILLERS and draw(st.booleans()):
            pools[column.name] += _FILLERS[column.type.kind]
    count = draw(st.integers(1, max_rows))
    chance = random.Random(draw(st.integers(0, 2**32)))  # a draw per value would be most of what is drawn
    columns = {name: _shuffled(chance, pool, count) for name, pool in pools.items()}
    return Case(schema, [{name: values[at] for name, values in columns.items()} for at in range(count)], pools)


@st.composite
def predicates(draw: st.DrawFn, case: Case) -> Predicate:
    """Draw a predicate about the columns of a case, most often about values that it has."""
    return _predicate(_Chooser(draw), case, depth=2)


@st.composite
def questions(draw: st.DrawFn, *, max_columns: int = 3, max_rows: int = 24) -> tuple[Case, list[Predicate]]:
    """Draw a case and some predicates about it."""
    case = draw(cases(max_columns=max_columns, max_rows=max_rows))
    choose = _Chooser(draw)
    return case, [_predicate(choose, case, depth=2) for _ in range(draw(st.integers(4, 8)))]


def _shuffled(chance: random.Random, pool: list[Any], count: int) -> list[Any]:
    """Choose values so that all of a pool come up where there is room for them."""
    return chance.sample(pool, min(len(pool), count)) + chance.choices(pool, k=max(count - len(pool), 0))


class _Chooser:
    """Choose by drawing; strategies that are built anew for every draw would take most of a run."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def below(self, count: int) -> int:
        return self._draw(_SMALL) % count

    def one_of(self, options: Sequence[Any]) -> Any:
        return options[self.below(len(options))]

    def value(self, kind: str) -> Any:
        return self._draw(_VALUES[kind])


def _predicate(choose: _Chooser, case: Case, *, depth: int) -> Predicate:
    form = choose.below(6) if depth else 0
    if form < 3:
        return _leaf(choose, case)
    if form == 3:
        return Not(_predicate(choose, case, depth=depth - 1))
    parts = tuple(_predicate(choose, case, depth=depth - 1) for _ in range(1 + choose.below(3)))
    return And(parts) if form == 4 else Or(parts)


def _leaf(choose: _Chooser, case: Case) -> Predicate:
    """Ask about a column, most often what is asked of its type."""
    odds = choose.below(30)
    if odds == 29:
        return choose.one_of(_ABOUT_ABSENT)  # type: ignore[no-any-return]
    column = choose.one_of(case.schema.columns)
    if odds >= 26:
        return IsNull(column.name)
    asked = {"timestamp": _timed, "string": _worded, "dynamic": _pathed}.get(column.type.kind, _compared)
    if odds >= 14:
        asked = _compared
    if odds >= 24:
        asked = choose.one_of([_timed, _worded, _pathed])
    return asked(choose, column, case.pools[column.name])


def _compared(choose: _Chooser, column: Column, pool: Sequence[Any]) -> Predicate:
    form = choose.below(4)
    if form < 2:
        return Equals(column.name, _literal(choose, column, pool))
    if form == 2:
        return InSet(column.name, tuple(_literal(choose, column, pool) for _ in range(choose.below(4))))
    return _range(choose, column.name, _literal(choose, column, pool), _literal(choose, column, pool))


def _range(choose: _Chooser, name: str, low: Any, high: Any) -> Range:
    first, last = choose.one_of([(low, None), (None, high), (low, high)])
    return Range(name, first, last, include_low=choose.below(2) == 0, include_high=choose.below(2) == 0)


def _literal(choose: _Chooser, column: Column, pool: Sequence[Any]) -> Any:
    """Choose a literal, nearly always one that compares with the column, and often one that it holds."""
    odds = choose.below(10)
    kind = column.type.kind
    if odds == 9 or kind == "vector":
        return choose.one_of(LITERALS)
    if odds == 8 and kind == "real":
        return choose.one_of(LONGS)
    held = [value for value in pool if value is not None]
    value = choose.one_of(held) if held and odds < 6 else choose.value(str(column.type))
    if kind == "timestamp":
        return Nanoseconds(value * 1000 + (odds == 5))
    if kind in ("int", "long"):
        return float(value) if odds == 8 else value + (odds in (4, 5))
    return value


def _timed(choose: _Chooser, column: Column, pool: Sequence[Any]) -> Predicate:
    held = [value for value in pool if value is not None and column.type.kind == "timestamp"]
    start, end = (choose.one_of([None, *TIMES_US, *held * 4]) for _ in range(2))
    return TimeRange(column.name, None if start is None else start * 1000, None if end is None else end * 1000 + 1)


def _worded(choose: _Chooser, column: Column, pool: Sequence[Any]) -> Predicate:
    needle, form, cased = _needle(choose, pool), choose.below(4), choose.below(2) == 1
    if form == 3:
        return StringMatches(column.name, choose.one_of(PATTERNS))
    if form == 0:
        return StringHas(column.name, needle)
    return StringContains(column.name, needle, cased) if form == 1 else StartsWith(column.name, needle, cased)


def _needle(choose: _Chooser, pool: Sequence[Any]) -> str:
    """Choose what people search for: a part of a text that is there, in either case, or a word that may not be."""
    held = [value for value in pool if isinstance(value, str)]
    odds = choose.below(6)
    if not held or odds == 5:
        return str(choose.one_of(WORDS))
    text = str(choose.one_of(held))
    start, length = choose.below(20), choose.below(12)
    part = text if odds == 4 else text[start : start + length] if odds > 1 else text[:length]
    return part.swapcase() if odds % 2 else part


def _pathed(choose: _Chooser, column: Column, pool: Sequence[Any]) -> Predicate:
    path, form = choose.one_of(PATHS), choose.below(5)
    if form == 0:
        return DynamicPathExists(column.name, path)
    if form == 1:
        return DynamicPathEquals(column.name, path, choose.one_of(_LEAVES))
    if form == 2:
        return DynamicPathTest(column.name, path, choose.one_of(_PATH_TESTS))
    if form == 3:
        return DynamicPathMayHold(column.name, path, choose.one_of(_HELD_TESTS))
    ends = [choose.one_of(_LEAVES) for _ in range(2)]
    return DynamicPathTest(column.name, path, choose.one_of([InSet("", tuple(ends)), _range(choose, "", *ends)]))


LITERALS: tuple[Any, ...] = (
    *LONGS,
    *REALS,
    *WORDS,
    10**400,
    -(10**400),
    True,
    False,
    b"",
    b"\xa0",
    datetime(1970, 1, 1),
    datetime(2026, 4, 20, 10, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
)
_LEAVES = (500, 200.0, 404, 1, 1.5, 7, "GET", "ada", "alpha", "gamma", True, 0, math.nan, 10**400, 2.0**70, b"")
_HELD_TESTS: tuple[StringHas | StringContains | StartsWith, ...] = (
    StringHas("", "get"),
    StringHas("", "alpha"),
    StringHas("", "gamma"),
    StringHas("", "zz"),
    StringContains("", "d"),
    StartsWith("", "AD"),
)
_PATH_TESTS = (*_HELD_TESTS, StringMatches("", "^a"), IsNull(""))
_ABOUT_ABSENT: tuple[Predicate, ...] = (
    Equals("absent", 1),
    Range("absent", high="x"),
    StringHas("absent", "x"),
    DynamicPathExists("absent", "p"),
    IsNull("absent"),
)

_FILLERS: dict[str, Sequence[Any]] = {  # more values than a block keeps exactly
    "int": range(1000, 1060, 3),
    "long": range(2**40, 2**40 + 60, 3),
    "string": [f"filler {number:02d} word{number % 3}" for number in range(20)],
}
_NAMES = ("ts", "Straße", 'a "b', "日本", "x.y")
_SMALL = st.integers(0, 2**16 - 1)
_TEXTS = st.one_of(
    st.sampled_from(WORDS),
    st.lists(st.sampled_from(WORDS + GAPS), max_size=6).map("".join),
    st.text(max_size=12),
    st.sampled_from(LONG_TEXTS),
)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.one_of(
        st.sampled_from([value for value in LONGS if -(2**31) <= value < 2**31]),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-4, 4),
    ),
    "long": st.one_of(st.sampled_from(LONGS), st.integers(-(2**63), 2**63 - 1), st.integers(-4, 4)),
    "real": st.one_of(st.sampled_from(REALS), st.floats(), st.integers(-4, 4).map(float)),
    "bool": st.booleans(),
    "string": _TEXTS,
    "timestamp": st.one_of(
        st.sampled_from(TIMES_US),
        st.integers(1_776_679_200_000_000, 1_776_679_260_000_000),
        st.integers(-(2**63), 2**63 - 1),
    ),
    "dynamic": st.sampled_from([cbor2.dumps(document) for document in DOCUMENTS]),
    "vector(3)": st.tuples(*[st.floats(width=32)] * 3),
}
_POOLS = {kind: st.lists(values, min_size=1, max_size=6) for kind, values in _VALUES.items()}
