"""Show that statistics never lose an answer that some row gives, and that they prune where they can."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.oracle import Answer, answers_of_rows
from tests.support.rows import Row, batch_of
from tests.support.strategies import LONG_TEXTS, NS_EDGE_US, Case, examples, questions
from tidelake.errors import InvalidInputError
from tidelake.kernels.bloom import Filter, hash_ints
from tidelake.kernels.tokens import TOKEN_LENGTH_CAP, TOKEN_SET_CAP
from tidelake.model.predicate import (
    And,
    DynamicPathEquals,
    DynamicPathExists,
    DynamicPathTest,
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
)
from tidelake.model.schema import Schema
from tidelake.pruning.collector import collect
from tidelake.pruning.outcomes import FALSE, NULL, TRUE, may_match, outcomes
from tidelake.pruning.statistics import (
    DISTINCT_SET_CAP,
    STRING_BOUND_CAP,
    Ball,
    ColumnStats,
    Stats,
    column_from_json,
    column_to_json,
    merge,
)

QUESTIONS = questions()


def answered(predicate: Predicate, stats: Stats) -> set[Answer]:
    found = outcomes(predicate, stats)
    return {answer for bit, answer in ((TRUE, True), (FALSE, False), (NULL, None)) if found & bit}


def lost(asked: Sequence[Predicate], rows: Sequence[Row], schema: Schema, stats: Stats) -> list[tuple[Any, ...]]:
    """Return the predicates that some row answers in a way which the statistics rule out."""
    missing = ((each, answers_of_rows(each, rows, schema) - answered(each, stats)) for each in asked)
    return [found for found in missing if found[1]]


def split(rows: list[Row], parts: int) -> list[list[Row]]:
    size = -(-len(rows) // parts)
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def stats_of(values: Iterable[Any], kind: str = "string") -> Stats:
    """Describe one block of one column, ``a``."""
    schema = Schema.of({"a": kind})
    return collect([batch_of([{"a": value} for value in values], schema)], schema)[0][0]


def extent_stats_of(values: Iterable[Any], kind: str = "string") -> Stats:
    """Describe an extent of one column, ``a``."""
    schema = Schema.of({"a": kind})
    return collect([batch_of([{"a": value} for value in values], schema)], schema)[1]


def stored(stats: Stats) -> Stats:
    """Return statistics as they come back from being stored."""
    shapes = orjson.loads(orjson.dumps({name: column_to_json(known) for name, known in stats.columns.items()}))
    return Stats(stats.rows, {name: column_from_json(shape) for name, shape in shapes.items()})


def test_stats_lose_no_answer_of_any_row() -> None:
    pruned = proven = 0

    @examples(300)
    @given(QUESTIONS, st.integers(1, 3))
    def check(question: tuple[Case, list[Predicate]], parts: int) -> None:
        nonlocal pruned, proven
        case, asked = question
        blocks = split(case.rows, parts)
        per_block, whole = collect([batch_of(block, case.schema) for block in blocks], case.schema)
        for block, known in zip([*blocks, case.rows], [*per_block, whole], strict=True):
            assert lost(asked, block, case.schema, known) == []
            pruned += sum(not may_match(each, known) for each in asked)
            proven += sum(outcomes(each, known) == TRUE for each in asked)

    check()
    assert (pruned > 500, proven > 50) == (True, True), (pruned, proven)


@examples(120)
@given(QUESTIONS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_merged_stats_lose_no_answer_in_any_order(
    question: tuple[Case, list[Predicate]], parts: int, chance: random.Random
) -> None:
    case, asked = question
    blocks = split(case.rows, parts)
    per_block, _ = collect([batch_of(block, case.schema) for block in blocks], case.schema)
    extents = [collect([batch_of(block, case.schema)], case.schema)[1] for block in blocks]
    for known in (per_block, extents, [*per_block[:1], *extents[1:]]):
        shuffled = chance.sample(known, len(known))
        assert lost(asked, case.rows, case.schema, merge(shuffled)) == []
        assert merge(shuffled).rows == len(case.rows)


@examples(120)
@given(QUESTIONS)
def test_stored_stats_give_the_same_answers(question: tuple[Case, list[Predicate]]) -> None:
    case, asked = question
    (block,), whole = collect([batch_of(case.rows, case.schema)], case.schema)
    for known in (block, whole):
        assert [outcomes(each, stored(known)) for each in asked] == [outcomes(each, known) for each in asked]
        assert repr(stored(known)) == repr(known)


@examples(120)
@given(QUESTIONS, st.sets(st.sampled_from([field.name for field in fields(ColumnStats)])))
def test_stats_lose_no_answer_when_some_are_unknown(
    question: tuple[Case, list[Predicate]], forgotten: set[str]
) -> None:
    case, asked = question
    (block,), whole = collect([batch_of(case.rows, case.schema)], case.schema)
    unknown: dict[str, Any] = dict.fromkeys(forgotten - {"low", "high", "tight"})
    for known in (block, whole):
        columns = {name: replace(column, **unknown) for name, column in known.columns.items()}
        assert lost(asked, case.rows, case.schema, Stats(known.rows, columns)) == []


def test_stats_of_nothing_keep_everything() -> None:
    nothing_known = Stats(5)
    leaves: list[Predicate] = [
        Equals("a", 1),
        Range("a", 1),
        StringHas("a", "x"),
        TimeRange("a", 0, 1),
        DynamicPathExists("a", "p"),
    ]
    assert [answered(leaf, nothing_known) for leaf in leaves] == [{True, False, None}] * 5
    assert answered(IsNull("a"), nothing_known) == {True, False}


def test_stats_of_no_rows_match_nothing() -> None:
    assert [outcomes(each, Stats(0)) for each in (Equals("a", 1), IsNull("a"), Not(IsNull("a")))] == [0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "values", "predicate", "wanted"),
    [
        ("long", [3, 5, 9], Equals("a", 9), {True, False}),
        ("long", [3, 5, 9], Equals("a", 10), {False}),
        ("long", [3, 5, 9], Equals("a", 4), {False}),  # inside the bounds: the filter knows
        ("long", [3, 5, 9], Equals("a", 4.5), {False}),
        ("long", [3, 5, 9], Equals("a", 5.0), {True, False}),
        ("long", [3, 5, 9], Equals("a", math.nan), {False}),
        ("long", [3, 5, 9], Equals("a", "5"), {True, False}),  # not comparable: unknown
        ("long", [3, 5, 9], InSet("a", (1, 4, 10)), {False}),
        ("long", [3, 5, 9], InSet("a", ()), {False}),
        ("long", [3, 5, 9], Range("a", 10), {False}),
        ("long", [3, 5, 9], Range("a", 9, include_low=False), {False}),
        ("long", [3, 5, 9], Range("a", 3), {True}),
        ("long", [3, 5, 9], Not(Range("a", 3, 9)), {False}),
        ("long", [3, 5, 9], Not(Equals("a", 4)), {True}),
        ("long", [7, 7], Equals("a", 7), {True}),
        ("long", [7, 7, None], Equals("a", 7), {True, None}),
        ("long", [7, 7], Not(Equals("a", 7)), {False}),
        ("long", [3, None], IsNull("a"), {True, False}),
        ("long", [3, 4], IsNull("a"), {False}),
        ("long", [None, None], IsNull("a"), {True}),
        ("long", [None, None], Equals("a", 1), {None}),
        ("long", [None, None], Not(Equals("a", 1)), {None}),
        ("long", [3, 4], And((Range("a", 3), IsNull("a"))), {False}),
        ("long", [3, 4], Or((Range("a", 5), Not(IsNull("a")))), {True}),
        ("long", [2**53 + 1], Equals("a", 2.0**53), {True, False}),  # equal where integers are compared as doubles
        ("real", [2.0**53], Equals("a", 2**53 + 1), {True, False}),
        ("int", [-(2**31), 2**31 - 1], Range("a", 2.0**31), {False}),
        ("real", [1.0, 2.0], Range("a", 2.5), {False}),
        ("real", [1.0, math.nan], Range("a", 2.5), {True, False}),
        ("real", [1.0, 2.0], Equals("a", math.nan), {False}),
        ("real", [math.nan, math.nan], Equals("a", math.nan), {True}),
        ("real", [-0.0], Equals("a", 0), {True}),
        ("real", [1.0, math.inf], Range("a", math.inf, include_low=False), {False}),
        ("bool", [True, True], Equals("a", False), {False}),
        ("bool", [True, True], Equals("a", True), {True}),
        ("bool", [True, False], Equals("a", 1), {True, False}),
        ("string", ["b", "d"], Equals("a", "c"), {False}),
        ("string", ["b", "d"], Equals("a", "e"), {False}),
        ("string", ["b", "d"], StartsWith("a", "c", case_sensitive=True), {False}),
        ("string", ["b", "d"], StartsWith("a", "e", case_sensitive=True), {False}),
        ("string", ["bcd", "bce"], StartsWith("a", "bb", case_sensitive=True), {False}),
        ("string", ["bcd", "bce"], StartsWith("a", "BC"), {True}),
        ("string", ["", ""], Equals("a", ""), {True}),
        ("timestamp", [-5, 5], TimeRange("a", 5001, None), {False}),
        ("timestamp", [-5, 5], TimeRange("a", None, -5000), {False}),
        ("timestamp", [-5, 5], TimeRange("a", -5000, 5001), {True}),
        ("timestamp", [-5, 5], TimeRange("a", None, None), {True}),
        ("timestamp", [NS_EDGE_US], TimeRange("a", None, 0), {False}),
        ("timestamp", [NS_EDGE_US + 1], TimeRange("a", None, 0), {True, False}),  # has no nanoseconds: unknown
        ("string", ["x"], DynamicPathTest("a", "p", StringHas("", "yy")), {True, False, None}),  # not of this type
        ("dynamic", [b"\xa1\x61p\x62xx"], StringHas("a", "yy"), {True, False}),  # not of this type
        ("dynamic", [b"\xa1\x61p\x62xx"], Equals("a", "yy"), {True, False}),
        ("dynamic", [b"\xa1\x61p\x62xx"], DynamicPathTest("a", "p", StringHas("", "yy")), {False, None}),
        ("dynamic", [b"\xa1\x61p\x81\x62xx"], DynamicPathTest("a", "p[0]", StringHas("", "xx")), {True, False, None}),
        ("dynamic", [b"\xa0"], DynamicPathExists("a", "p"), {False}),
        ("dynamic", [b"\xa1\x61p\x07"], DynamicPathExists("a", "p"), {True, False}),
        ("dynamic", [b"\xa1\x61p\x07"], DynamicPathEquals("a", "p", 8), {False, None}),
    ],
)
def test_stats_rule_out_just_the_answers_that_no_row_gives(
    kind: str, values: list[Any], predicate: Predicate, wanted: set[Answer]
) -> None:
    known = stats_of(values, kind), extent_stats_of(values, kind)
    assert [answered(predicate, each) for each in known] == [wanted, wanted]


@pytest.mark.parametrize(
    ("predicate", "wanted"),
    [
        (StringContains("a", "oom"), False),
        (StringContains("a", "ofmem"), True),
        (StringContains("a", "OutOfMemory"), True),
        (StringContains("a", "error in"), True),
        (StringContains("a", "memory in"), False),  # the needle itself ends the word: it must end in the text
        (StringContains("a", "in worker"), True),
        (StringContains("a", "in work"), True),
        (StringContains("a", "in orker"), False),
        (StringContains("a", "x"), True),  # one letter is no token
        (StringContains("a", "né"), True),  # nor are letters outside ASCII
        (StringHas("a", "worker"), True),
        (StringHas("a", "work"), False),
        (StringHas("a", "outofmemoryerror"), True),
        (StringHas("a", "memory"), False),
        (StartsWith("a", "java"), True),
        (StartsWith("a", "ava"), False),
        (StartsWith("a", "java.lang"), True),
        (StartsWith("a", "java.lang.OutOf"), True),
        (StartsWith("a", "java.lan."), False),
        (StartsWith("a", "zz", case_sensitive=True), True),  # the highest text itself
        (StartsWith("a", "zzz", case_sensitive=True), False),
        (StartsWith("a", "filler", case_sensitive=True), True),  # how the lowest text begins
        (StartsWith("a", "e", case_sensitive=True), False),
        (Equals("a", "worker"), True),
        (Equals("a", "work"), False),
    ],
)
def test_tokens_judge_words_and_parts_of_words(predicate: Predicate, wanted: bool) -> None:
    texts = ["java.lang.OutOfMemoryError in worker", "zz", *(f"filler {number:03d}" for number in range(80))]
    whole = extent_stats_of(texts).columns["a"]
    assert whole.tokens is not None
    exact = ColumnStats(nulls=0, low=whole.low, high=whole.high, tokens=whole.tokens)
    assert may_match(predicate, Stats(82, {"a": exact})) is wanted


def test_contains_finds_oom_inside_an_out_of_memory_error_only_where_it_is() -> None:
    block = stats_of(["java.lang.OutOfMemoryError: heap", *(f"filler {number}" for number in range(20))])
    assert (block.columns["a"].distinct, block.columns["a"].tokens) == (None, None)
    found = [needle for needle in ("oom", "ofmem", "memory", "heap", "heaps", "java.lang", "zzz") if
             may_match(StringContains("a", needle), block)]  # fmt: skip
    assert found == ["ofmem", "memory", "heap", "java.lang"]
    assert may_match(StringContains("a", "oom"), stats_of(["BoomError", *(f"filler {number}" for number in range(20))]))


def test_caps_are_the_documented_ones() -> None:
    assert (DISTINCT_SET_CAP, TOKEN_SET_CAP, STRING_BOUND_CAP, TOKEN_LENGTH_CAP) == (1_000, 10_000, 256, 256)


def test_block_filters_say_no_inside_the_bounds() -> None:
    for kind, make in (("long", int), ("string", "v{:05d}".format)):
        block = stats_of((make(number * 2) for number in range(300)), kind)
        assert block.columns["a"].distinct is None
        assert all(may_match(Equals("a", make(number * 2)), block) for number in range(300))
        assert sum(may_match(Equals("a", make(number * 2 + 1)), block) for number in range(300)) < 30


def test_distinct_values_are_exact_up_to_the_cap_and_a_filter_past_it() -> None:
    for kind, make in (("long", int), ("string", "v{:05d}".format)):
        values = [make(number * 2) for number in range(DISTINCT_SET_CAP + 1)]
        at_cap, past = (extent_stats_of(held, kind).columns["a"] for held in (values[:-1], values))
        assert (at_cap.distinct, at_cap.values) == (tuple(values[:-1]), None)
        assert past.distinct is None
        assert isinstance(past.values, Filter)
        held = Stats(1, {"a": past})
        assert all(may_match(Equals("a", value), held) for value in values)
        strangers = [make(number * 2 + 1) for number in range(DISTINCT_SET_CAP)]
        assert sum(may_match(Equals("a", value), held) for value in strangers) < 50


def test_tokens_are_exact_up_to_the_cap_and_a_filter_with_grams_past_it() -> None:
    words = [f"w{number:05d}" for number in range(TOKEN_SET_CAP + 1)]
    at_cap, past = (extent_stats_of(held).columns["a"] for held in (words[:-1], words))
    assert (at_cap.tokens, at_cap.terms, at_cap.grams) == (tuple(words[:-1]), None, None)
    assert past.tokens is None
    held = Stats(1, {"a": replace(past, values=None)})
    assert all(may_match(StringHas("a", word), held) for word in words)
    assert sum(may_match(StringHas("a", f"w{number:05d}"), held) for number in range(20_000, 21_000)) < 300
    assert may_match(StringContains("a", "0123"), held)
    assert not may_match(StringContains("a", "error"), held)


def test_prose_is_judged_by_its_tokens() -> None:
    texts = [f"request {number:06d} took {number * 7} ms in a long line of text about it" for number in range(1500)]
    prose = extent_stats_of(texts).columns["a"]
    assert (prose.distinct, prose.values) == (None, None)
    held = Stats(1500, {"a": prose})
    assert all(may_match(Equals("a", text), held) for text in texts)
    assert not may_match(Equals("a", texts[0].replace("request", "response")), held)


@pytest.mark.parametrize("text", LONG_TEXTS)
def test_bounds_of_long_texts_are_short_and_hold(text: str) -> None:
    known = stats_of([text, "m"]).columns["a"]
    low, high = (None if bound is None else str(bound) for bound in (known.low, known.high))
    assert low is not None
    assert low <= min(text, "m")
    assert high is None or max(text, "m") <= high
    assert [len(bound.encode()) for bound in (low, high or "") if len(bound.encode()) > STRING_BOUND_CAP] == []
    assert known.tight is (len(text.encode()) <= STRING_BOUND_CAP)


def test_bounds_of_long_texts_still_prune() -> None:
    known = stats_of(["k" + "x" * 300])
    asked: list[Predicate] = [Equals("a", "j"), Equals("a", "l"), Range("a", "l"), Range("a", high="k")]
    assert [may_match(each, known) for each in asked] == [False] * 4


def test_merge_keeps_what_every_part_knows() -> None:
    parts = [extent_stats_of(values, "long") for values in ([1, 2], [None, None], [2, 9, None])]
    assert merge(parts) == Stats(7, {"a": ColumnStats(nulls=3, low=1, high=9, distinct=(1, 2, 9))})
    assert merge([*parts, Stats(1, {"a": ColumnStats()})]) == Stats(8, {"a": ColumnStats()})
    assert merge([*parts, Stats(1)]) == Stats(8)
    assert merge([*parts, Stats(0)]) == merge(parts)


def test_merge_goes_from_exact_sets_to_filters_and_still_prunes() -> None:
    few = extent_stats_of(["alpha beta", "gamma"])
    many = extent_stats_of(f"name{number:05d}" for number in range(12_000))
    for merged in (merge([few, many]), merge([many, few])):
        known = merged.columns["a"]
        assert (known.distinct, known.tokens) == (None, None)
        kept = [text for text in ("gamma", "alpha beta", "name00007") if may_match(Equals("a", text), merged)]
        assert kept == ["gamma", "alpha beta", "name00007"]
        strangers = [f"name{number:05d}x" for number in range(1000)]
        assert sum(may_match(Equals("a", text), merged) for text in strangers) < 300
        assert may_match(StringContains("a", "lph"), merged)
        assert not may_match(StringContains("a", "delta"), merged)


def test_filters_say_no_to_numbers_that_no_integer_equals() -> None:
    known = ColumnStats(nulls=0, values=Filter.of(hash_ints(np.arange(5)), max_bytes=64))
    numbers = [math.nan, math.inf, -math.inf, 1.5, 10**400, 2.0**70]
    assert [outcomes(Equals("a", number), Stats(5, {"a": known})) for number in numbers] == [FALSE] * 6


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e308, math.inf, math.nan, 2**63, True, "x" * 1000])
def test_leaves_take_any_scalar(value: Any) -> None:
    known = ColumnStats(nulls=0, paths=("p",), leaves=Filter(bytes(8)))
    assert not may_match(DynamicPathEquals("a", "p", value), Stats(5, {"a": known}))


def test_ball_holds_every_vector_once_scaled() -> None:
    vectors = [(1.0, 0.0, 0.0), (0.0, 2.0, 0.0), (3.0, 4.0, 0.0), (0.0, 0.0, 0.0), None]
    ball = extent_stats_of(vectors, "vector(3)").columns["a"].ball
    assert ball is not None
    units = np.array([(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.6, 0.8, 0.0)])
    distances = np.linalg.norm(units - np.array(ball.centroid), axis=1)
    assert ball.count == 3
    assert ball.radius == pytest.approx(distances.max())
    assert ball.centroid == pytest.approx(units.mean(axis=0))


@pytest.mark.parametrize("vectors", [[(math.nan, 1.0, 0.0)], [(math.inf, 1.0, 0.0)], [(0.0, 0.0, 0.0)], [None]])
def test_ball_is_unknown_when_no_ball_holds_the_vectors(vectors: list[Any]) -> None:
    assert extent_stats_of(vectors, "vector(3)").columns["a"].ball is None


def test_stats_survive_json_with_every_field() -> None:
    known = ColumnStats(
        nulls=3,
        low=-math.inf,
        high=math.nan,
        tight=False,
        distinct=(),
        values=Filter(bytes(range(8))),
        tokens=("aa", "bb"),
        terms=Filter(bytes(8)),
        paths=("p",),
        ranges={"p": (1.5, math.inf)},
        leaves=Filter(bytes(16)),
        ball=Ball((0.5, 0.5), 1.0, 2),
        span=Ball((1.5, 2.5), 3.0, 2),
    )
    assert repr(column_from_json(orjson.loads(orjson.dumps(column_to_json(known))))) == repr(known)
    assert column_from_json({}) == ColumnStats()
    assert column_from_json({"a key from the future": 1}) == ColumnStats()


@pytest.mark.parametrize(
    "shape",
    [
        None,
        [],
        {"nulls": "1"},
        {"nulls": -1},
        {"nulls": True},
        {"min": []},
        {"min": {"real": "x"}},
        {"min": 1, "max": "z"},
        {"distinct": 5},
        {"distinct": [1, "a"]},
        {"distinct": [2, 1]},
        {"distinct": [None]},
        {"tokens": [1]},
        {"tokens": ["bb", "aa"]},
        {"tokens": "aa"},
        {"paths": [1]},
        {"values": "AA"},
        {"terms": 7},
        {"grams": "AAAA"},
        {"ranges": {"p": [1]}},
        {"ranges": {"p": ["a", "b"]}},
        {"vec": {"centroid": [1.0]}},
        {"vec": 7},
    ],
)
def test_stats_refuse_json_that_they_did_not_write(shape: Any) -> None:
    with pytest.raises(InvalidInputError, match="not stored statistics"):
        column_from_json(shape)


def test_collect_reads_slices_where_they_lie() -> None:
    schema = Schema.of({"a": "string", "n": "long", "r": "real", "b": "bool", "ts": "timestamp"})
    rows = [
        {"a": f"t{at}", "n": at, "r": float(at), "b": at > 4, "ts": at} if at % 3 else dict.fromkeys(schema.names)
        for at in range(12)
    ]
    sliced = batch_of(rows, schema).slice(3, 5)
    alone = pa.RecordBatch.from_arrays(
        [pa.concat_arrays([c]) for c in batch_of(rows[3:8], schema).columns], schema.names
    )
    assert collect([sliced], schema) == collect([alone], schema)


@examples(200)
@given(
    bounds=st.tuples(*[st.none() | st.integers(-3, 3)] * 2),
    low=st.integers(-3, 3),
    size=st.integers(0, 3),
    nulls=st.integers(0, 4),
)
def test_a_window_of_times_is_judged_as_a_range_of_numbers_is(
    bounds: tuple[int | None, int | None], low: int, size: int, nulls: int
) -> None:
    known = Stats(4, {"t": ColumnStats(nulls=nulls, low=low, high=low + size)})
    found = outcomes(TimeRange("t", *bounds), known)
    if bounds == (None, None):
        assert found == (NULL if nulls == 4 else TRUE | (NULL if nulls else 0))
    else:
        assert found == outcomes(Range("t", *bounds, include_high=False), known)
