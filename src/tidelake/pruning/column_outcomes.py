"""Judge one condition of many extents at once, by what is known of one column of each.

Least and most values lie side by side. Exact sets of values and of words lie end to end, as hashes; filters of one size
lie on top of each other. So a question that few extents can answer costs a few passes over arrays, not a look at every
extent. It never drops an extent that its statistics do not disprove, and leaves what it cannot tell to ``outcomes``,
which takes the rest one by one. It does not know extents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelake.kernels.bloom import PROBES, Filter, hash_bytes, hash_int
from tidelake.kernels.tokens import runs_of
from tidelake.model.predicate import (
    DynamicPathEquals,
    DynamicPathTest,
    Equals,
    InSet,
    Leaf,
    Range,
    StringHas,
    TimeRange,
    Value,
)
from tidelake.pruning.outcomes import LONG_SET, is_text, leaf_hash
from tidelake.pruning.statistics import ColumnStats

Mask: TypeAlias = npt.NDArray[np.bool_]
Hashes: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]

MEMBER_BYTES = 72  # that an exact value or word costs in memory, with its hash
PLAIN_BYTES = 400  # and statistics without sets


@dataclass(slots=True)
class Known:
    """What is known of a column of one extent, and the sets made of it so far."""

    stats: ColumnStats
    sets: dict[Sort, Hashes | Filter | None] = field(default_factory=dict)

    def set_of(self, sort: Sort) -> Hashes | Filter | None:
        """Return an exact set as hashes, or a filter, or None if nothing is known."""
        if sort not in self.sets:
            held = sort(self.stats)
            self.sets[sort] = (
                np.fromiter(map(hash, held), dtype=np.int64, count=len(held)) if isinstance(held, tuple) else held
            )
        return self.sets[sort]

    @property
    def byte_size(self) -> int:
        """About how much memory it takes."""
        stats = self.stats
        members = sum(
            len(each) for each in (stats.distinct, stats.tokens, stats.paths, stats.ranges, stats.initials) if each
        )
        bits = sum(len(each.bits) for each in (stats.values, stats.terms, stats.grams, stats.leaves) if each)
        return PLAIN_BYTES + MEMBER_BYTES * members + 2 * bits  # filters are stacked besides


Sort: TypeAlias = Callable[[ColumnStats], tuple[Any, ...] | Filter | None]


def numbers_of(known: ColumnStats) -> tuple[Any, ...] | Filter | None:
    """Return the whole numbers of a column."""
    if known.distinct is not None:
        return known.distinct if all(type(value) is int for value in known.distinct) else None
    return known.values if type(known.low) is int and type(known.high) is int else None


def texts_of(known: ColumnStats) -> tuple[Any, ...] | Filter | None:
    """Return the texts of a column."""
    if known.distinct is not None:
        return known.distinct if all(type(value) is str for value in known.distinct) else None
    return known.values if type(known.low) is str and type(known.high) is str else None


def words_of(known: ColumnStats) -> tuple[Any, ...] | Filter | None:
    """Return the words of a column of texts."""
    if not is_text(known):
        return None
    return known.terms if known.tokens is None else known.tokens


def leaves_of(known: ColumnStats) -> tuple[Any, ...] | Filter | None:
    """Return the paths of a dynamic column, with and without their scalars."""
    return known.leaves


class Judge:
    """What is known of one column of ``count`` extents, whichever way it is held."""

    count: int

    def may_match(self, leaf: Leaf) -> Mask:
        """Return of each extent whether some row may satisfy a leaf; what is not judged here may."""
        match leaf:
            case Equals(_, value):
                return self._may_equal(value)
            case InSet(_, values) if len(values) > LONG_SET:
                return self._may_lie_among(values)
            case InSet(_, values) if values:
                return reduce(or_, map(self._may_equal, values))
            case TimeRange(_, start_ns, end_ns):
                return self._may_lie(start_ns, end_ns)
            case Range(_, low, high):
                numbers = _plain(low), _plain(high)
                if (numbers[0] is None) == (low is None) and (numbers[1] is None) == (high is None):
                    return self._may_lie(*numbers)
            case StringHas(_, term):
                words = [run.text for run in runs_of(term, whole=True)]
                return reduce(
                    and_, (self._may_hold(words_of, word, hash_bytes(word.encode())) for word in words), self._all
                )
            case DynamicPathEquals(_, path, value):
                return self._may_have_leaf(path, [value])
            case DynamicPathTest(_, path, InSet(_, values)) if 0 < len(values) <= LONG_SET:
                return self._may_have_leaf(path, values)
        return self._all

    @property
    def _all(self) -> Mask:
        return np.ones(self.count, dtype=np.bool_)

    def _may_equal(self, value: Value) -> Mask:
        if isinstance(value, str):
            return self._may_hold(texts_of, value, hash_bytes(value.encode("utf-8", "surrogatepass")))
        number = _plain(value)
        if number is None:
            return self._all
        found = self._may_lie(number, number)
        if type(value) is int and -(2**63) <= value < 2**63:
            found &= self._may_hold(numbers_of, value, hash_int(value))
        return found

    def _may_lie_among(self, values: Sequence[Value]) -> Mask:
        """Judge many values by the least and the greatest of them, if they are whole numbers."""
        whole = [value for value in values if type(value) is int]
        return self._may_lie(min(whole), max(whole)) if len(whole) == len(values) else self._all

    def _may_have_leaf(self, path: str, values: Iterable[Value]) -> Mask:
        plain = [value for value in values if isinstance(value, bool | int | float | str)]
        if "[" in path or len(plain) < len(list(values)):
            return self._all
        return reduce(or_, (self._may_hold(leaves_of, value, leaf_hash(path, value)) for value in plain))

    def _may_hold(self, sort: Sort, value: Any, hashed: int) -> Mask:
        """Return of each extent whether a set may hold a value, or its hash if the set is a filter."""
        raise NotImplementedError

    def _bounds_of(self) -> tuple[Doubles, Doubles]:
        """Return the least and the most number of each extent, a hair apart; NaN where there is none."""
        raise NotImplementedError

    def _may_lie(self, low: float | None, high: float | None) -> Mask:
        """Return of each extent whether some value may lie between two numbers; NaN compares as unknown."""
        least, most = self._bounds_of()
        found = self._all
        if low is not None:
            found &= ~(most < math.nextafter(float(low), -math.inf))
        if high is not None:
            found &= ~(least > math.nextafter(float(high), math.inf))
        return found


def bounds_of(each: Iterable[ColumnStats | None]) -> tuple[Doubles, Doubles]:
    """Lay the bounds of many extents side by side."""
    pairs = [
        (math.nan, math.nan) if known is None else (_number(known.low, -math.inf), _number(known.high, math.inf))
        for known in each
    ]
    both = np.array(pairs, dtype=np.float64).reshape(len(pairs), 2)
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


class Sieve(Judge):
    """One column of many extents, statistics and all; None stands for an extent that says nothing of it."""

    def __init__(self, each: Sequence[Known | None]) -> None:
        self.each = each
        self.count = len(each)
        self.byte_size = sum(known.byte_size for known in each if known is not None)  # about how much memory it takes
        self._bounds: tuple[Doubles, Doubles] | None = None
        self._sets: dict[Sort, _Sets] = {}

    def _may_hold(self, sort: Sort, value: Any, hashed: int) -> Mask:
        if sort not in self._sets:
            self._sets[sort] = _Sets([None if known is None else known.set_of(sort) for known in self.each])
        return self._sets[sort].may_hold(hash(value), hashed)

    def _bounds_of(self) -> tuple[Doubles, Doubles]:
        if self._bounds is None:
            self._bounds = bounds_of(None if known is None else known.stats for known in self.each)
        return self._bounds


class _Sets:
    """Sets of one sort: exact ones end to end, filters of one size on top of each other."""

    def __init__(self, sets: Sequence[Hashes | Filter | None]) -> None:
        self._count = len(sets)
        exact = [(at, found) for at, found in enumerate(sets) if isinstance(found, np.ndarray)]
        self._exact = np.array([at for at, _ in exact], dtype=np.int64)
        self._members = np.concatenate([found for _, found in exact]) if exact else np.empty(0, dtype=np.int64)
        self._ends = np.cumsum([len(found) for _, found in exact], dtype=np.int64)
        by_size: dict[int, list[tuple[int, bytes]]] = {}
        for at, found in enumerate(sets):
            if isinstance(found, Filter):
                by_size.setdefault(len(found.bits), []).append((at, found.bits))
        self._filters = [
            (
                np.array([at for at, _ in those], dtype=np.int64),
                np.frombuffer(b"".join(bits for _, bits in those), dtype=np.uint8).reshape(len(those), size),
            )
            for size, those in by_size.items()
        ]

    def may_hold(self, member: int, hashed: int) -> Mask:
        found = np.ones(self._count, dtype=np.bool_)
        found[self._exact] = False
        hits = np.flatnonzero(self._members == member)
        found[self._exact[np.searchsorted(self._ends, hits, side="right")]] = True
        for places, bits in self._filters:
            found[places] = filters_hold(bits.T, hashed)
        return found


def filters_hold(bits: npt.NDArray[np.uint8], hashed: int) -> Mask:
    """Return which filters may hold a hash: ``bits`` has a row for each byte of a filter, a column for each filter."""
    low, high, shift = hashed & 0xFFFF_FFFF, hashed >> 32 | 1, 32 - (bits.shape[0] * 8).bit_length() + 1
    held = np.ones(bits.shape[1], dtype=np.bool_)
    for probe in range(PROBES):
        at = ((low + probe * high) & 0xFFFF_FFFF) >> shift
        held &= (bits[at >> 3] >> (at & 7) & 1).astype(np.bool_)
    return held


def _plain(value: Value | None) -> float | None:
    """Return a number that bounds can be compared with, or None: NaN, flags, no number, or beyond all doubles."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return value if isinstance(value, float) or abs(value) < 2**1023 else None


def _number(bound: Any, outwards: float) -> float:
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        return math.nan
    return math.nextafter(float(bound), outwards)
