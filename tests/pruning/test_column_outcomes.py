"""Show that a sieve drops no extent that holds a wanted row, and drops those that it can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.oracle import answers_of_rows
from tests.support.rows import batch_of
from tests.support.strategies import Case, examples, questions
from tidelake.dynamic.values import encode
from tidelake.kernels.bloom import Filter, hash_bytes, hash_int
from tidelake.model.predicate import (
    DynamicPathEquals,
    DynamicPathTest,
    Equals,
    InSet,
    Leaf,
    Predicate,
    Range,
    StringHas,
    TimeRange,
    leaves_of,
)
from tidelake.model.schema import Schema
from tidelake.pruning.collector import collect
from tidelake.pruning.column_outcomes import Known, Sieve
from tidelake.pruning.statistics import ColumnStats, Stats, merge

HOUR_NS = 3_600_000_000_000


def test_sieve_drops_no_extent_that_has_a_wanted_row() -> None:
    dropped = 0

    @examples(200)
    @given(questions(), st.integers(2, 4), st.booleans())
    def check(question: tuple[Case, list[Predicate]], parts: int, forget: bool) -> None:
        nonlocal dropped
        case, asked = question
        size = -(-len(case.rows) // parts)
        extents = [case.rows[at : at + size] for at in range(0, len(case.rows), size)]
        stats = [collect([batch_of(rows, case.schema)], case.schema)[1] for rows in extents]
        for leaf in (leaf for each in asked for leaf in leaves_of(each)):
            sieve = Sieve([known_of(known, leaf.column, as_filters=forget) for known in stats])
            for rows, kept in zip(extents, sieve.may_match(leaf).tolist(), strict=True):
                assert kept or True not in answers_of_rows(leaf, rows, case.schema), (leaf, rows)
                dropped += not kept

    check()
    assert dropped > 200, dropped


def known_of(stats: Stats, column: str, *, as_filters: bool) -> Known | None:
    """Return what is known of a column, perhaps with filters in the place of exact sets, as of many values."""
    known = stats.columns.get(column)
    if known is None or not as_filters:
        return None if known is None else Known(known)
    other = merge([stats, stats]).columns[column]
    hashes = [hash_bytes(v.encode()) if isinstance(v, str) else hash_int(int(v)) for v in known.distinct or ()]
    tokens = [hash_bytes(token.encode()) for token in known.tokens or ()]
    return Known(
        replace(
            other,
            distinct=None,
            values=None if known.distinct is None else filter_of(hashes),
            tokens=None,
            terms=None if known.tokens is None else filter_of(tokens),
        )
    )


def filter_of(hashes: list[int]) -> Filter:
    found = bytearray(64)
    for hash in hashes:
        low, high, shift = hash & 0xFFFF_FFFF, hash >> 32 | 1, 32 - (64 * 8).bit_length() + 1
        for probe in range(4):
            at = ((low + probe * high) & 0xFFFF_FFFF) >> shift
            found[at >> 3] |= 1 << (at & 7)
    return Filter(bytes(found))


def sieve_of(kind: str, *extents: list[Any]) -> Sieve:
    schema = Schema.of({"a": kind})
    rows = [[{"a": encode(value) if kind == "dynamic" else value} for value in values] for values in extents]
    stats = [collect([batch_of(each, schema)], schema)[1] for each in rows]
    return Sieve([None, *(Known(each.columns["a"]) for each in stats)])


@pytest.mark.parametrize(
    ("kind", "extents", "leaf", "kept"),
    [
        ("long", ([1, 5, 9], [2, 5], [None]), Equals("a", 5), [1, 1, 1, 0]),
        ("long", ([1, 5, 9], [2, 6], [3]), Equals("a", 5), [1, 1, 0, 0]),
        ("long", ([1, 5, 9], [2, 6], [3]), InSet("a", (3, 9)), [1, 1, 0, 1]),
        ("long", ([1, 5, 9], [2, 6], [3]), Range("a", 7, None), [1, 1, 0, 0]),
        ("long", ([1, 5], [2]), Equals("a", "5"), [1, 1, 1]),  # cannot be compared: not known
        ("long", ([1, 5], [2, 9], [6]), Equals("a", 5.0), [1, 1, 1, 0]),  # within the bounds; nor is it an integer
        ("long", ([1, 5], [2]), Equals("a", 10**400), [1, 1, 1]),
        ("real", ([1.5, 5.0], [2.0, 9.0]), Equals("a", 5), [1, 1, 1]),
        ("string", (["up", "down"], ["left", "zoo"]), Equals("a", "left"), [1, 0, 1]),
        ("string", (["up the road"], ["upper road"], ["the up"]), StringHas("a", "UP the"), [1, 1, 0, 1]),
        ("string", (["x"], ["y"]), StringHas("a", "-"), [1, 1, 1]),  # no word to look for
        ("bool", ([True], [False]), Equals("a", 1), [1, 1, 1]),
        ("timestamp", ([0], [HOUR_NS // 1000]), TimeRange("a", HOUR_NS, None), [1, 0, 1]),
        ("dynamic", ([{"b": {"c": 5}}], [{"b": {"c": 6}}]), DynamicPathEquals("a", "b.c", 5), [1, 1, 0]),
        ("dynamic", ([{"b": 5}], [{"b": "x"}]), DynamicPathTest("a", "b", InSet("", ("x", "y"))), [1, 0, 1]),
        ("dynamic", ([{"b": [5]}], [{"b": [6]}]), DynamicPathEquals("a", "b[0]", 5), [1, 1, 1]),
    ],
)
def test_sieve_drops_what_its_sets_and_bounds_disprove(
    kind: str, extents: tuple[list[Any], ...], leaf: Leaf, kept: list[int]
) -> None:
    assert sieve_of(kind, *extents).may_match(leaf).tolist() == [bool(each) for each in kept]


def test_filters_of_several_sizes_are_asked_at_once() -> None:
    small, large = filter_of([hash_int(7)]), filter_of([hash_int(8)]).folded(16)
    sieve = Sieve([Known(ColumnStats(low=0, high=9, values=each)) for each in (small, large, large, small)])
    assert sieve.may_match(Equals("a", 7)).tolist() == [True, False, False, True]
    assert sieve.may_match(Equals("a", 8)).tolist() == [False, True, True, False]


def test_what_is_kept_in_memory_is_weighed() -> None:
    assert sieve_of("long", [1]).byte_size < sieve_of("long", list(range(500))).byte_size
    assert sieve_of("string", ["one two"]).byte_size < sieve_of("string", ["one two three four"]).byte_size
