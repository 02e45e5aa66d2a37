"""Hold what is known of one column of very many extents in a few bytes each, and judge conditions by it.

Of statistics only what judges quickly is kept: bounds as two numbers, an exact set as eight bytes for each member, a
filter as its bits. Members of all extents lie in one sorted array, so that a value is found by a search in it, not by a
pass over it; filters of one size lie transposed, so that a probe reads a row. What takes more than its share of memory
is not kept, and then keeps every extent. It does not know extents: they are numbers here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelake.kernels.bloom import Filter
from tidelake.model.predicate import InSet, Leaf
from tidelake.pruning.column_outcomes import (
    Doubles,
    Judge,
    Mask,
    Sort,
    bounds_of,
    filters_hold,
    leaves_of,
    numbers_of,
    texts_of,
    words_of,
)
from tidelake.pruning.statistics import ColumnStats

Keys: TypeAlias = npt.NDArray[np.uint64]
Places: TypeAlias = npt.NDArray[np.int64]

SORTS: tuple[Sort, ...] = (numbers_of, texts_of, words_of, leaves_of)
MANY_VALUES = 32  # of a set: each is a pass over the extents
_MIX = 0x9E37_79B9_7F4A_7C15
_LOW = np.uint64(0xFFFF_FFFF)


@dataclass(frozen=True, slots=True)
class Members:
    """Sets of one sort, of as many extents as ``known`` is long."""

    known: Mask  # whether the extent's exact set is among the keys
    keys: Keys  # of each member of each set half a hash, then the extent's number; sorted
    filters: Mapping[int, tuple[Places, npt.NDArray[np.uint8]]]  # by their size: of which extents, and their bits

    @classmethod
    def of(cls, sets: Sequence[tuple[Any, ...] | Filter | None]) -> Members:
        """Take the sets of extents, in order."""
        exact = [(place, found) for place, found in enumerate(sets) if isinstance(found, tuple)]
        known = np.zeros(len(sets), dtype=np.bool_)
        known[[place for place, _ in exact]] = True
        sizes = [len(found) for _, found in exact]
        hashes = np.fromiter((hash(member) for _, found in exact for member in found), np.int64, count=sum(sizes))
        places = np.repeat(np.array([place for place, _ in exact], dtype=np.uint64), sizes)
        keys = _halves(hashes) << np.uint64(32) | places
        keys.sort()
        by_size: dict[int, list[tuple[int, bytes]]] = {}
        for place, found in enumerate(sets):
            if isinstance(found, Filter):
                by_size.setdefault(len(found.bits), []).append((place, found.bits))
        return cls(known, keys, {size: _stacked(size, those) for size, those in by_size.items()})

    @property
    def byte_size(self) -> int:
        return self.keys.nbytes + self.known.nbytes + sum(each.nbytes + at.nbytes for at, each in self.filters.values())

    def may_hold(self, member: int, hashed: int) -> Mask:
        """Return of each extent whether its set may hold a member with a hash, or with the hash of filters."""
        found = ~self.known
        for places, bits in self.filters.values():
            found[places] = filters_hold(bits, hashed)
        first = _halves(np.array([member], dtype=np.int64))[0] << np.uint64(32)
        low, high = np.searchsorted(self.keys, first), np.searchsorted(self.keys, first | _LOW, side="right")
        found[(self.keys[low:high] & _LOW).astype(np.int64)] = True
        return found


class LargeColumn(Judge):
    """One column of very many extents."""

    def __init__(self, count: int, bounds: tuple[Doubles, Doubles], sets: Mapping[Sort, Members]) -> None:
        self.count, self._bounds, self.sets = count, bounds, sets

    @classmethod
    def of(cls, each: Sequence[ColumnStats | None]) -> LargeColumn:
        """Take what is known of a column of some extents; None stands for one that says nothing of it."""
        sets = {sort: [None if known is None else sort(known) for known in each] for sort in SORTS}
        told = {sort: Members.of(those) for sort, those in sets.items() if any(one is not None for one in those)}
        return cls(len(each), bounds_of(each), told)

    @property
    def byte_size(self) -> int:
        """How much memory it takes."""
        return sum(each.nbytes for each in self._bounds) + sum(each.byte_size for each in self.sets.values())

    def bounded(self, max_bytes: int) -> LargeColumn:
        """Return the same without the largest sets, so that no more than some memory is taken."""
        kept = dict(sorted(self.sets.items(), key=lambda held: held[1].byte_size))
        while kept and sum(each.byte_size for each in kept.values()) > max_bytes:
            kept.popitem()
        return self if len(kept) == len(self.sets) else LargeColumn(self.count, self._bounds, kept)

    def may_match(self, leaf: Leaf) -> Mask:
        if isinstance(leaf, InSet) and len(leaf.values) > MANY_VALUES:
            return self._may_lie_among(leaf.values)
        return super().may_match(leaf)

    def _may_hold(self, sort: Sort, value: Any, hashed: int) -> Mask:
        return self._all if sort not in self.sets else self.sets[sort].may_hold(hash(value), hashed)

    def _bounds_of(self) -> tuple[Doubles, Doubles]:
        return self._bounds


def united(columns: Sequence[LargeColumn]) -> LargeColumn:
    """Put columns of several runs of extents end to end."""
    counts = [column.count for column in columns]
    least, most = zip(*(column._bounds for column in columns), strict=True)
    sorts = dict.fromkeys(sort for column in columns for sort in column.sets)
    sets = {sort: _united_members([column.sets.get(sort) for column in columns], counts) for sort in sorts}
    return LargeColumn(sum(counts), (np.concatenate(least), np.concatenate(most)), sets)


def _united_members(each: Sequence[Members | None], counts: Sequence[int]) -> Members:
    starts = np.cumsum([0, *counts])
    known = np.concatenate(
        [np.zeros(count, dtype=np.bool_) if one is None else one.known for one, count in zip(each, counts, strict=True)]
    )
    told = [(one, int(start)) for one, start in zip(each, starts, strict=False) if one is not None]
    keys = np.concatenate([one.keys + np.uint64(start) for one, start in told])
    keys.sort()
    filters: dict[int, tuple[Places, npt.NDArray[np.uint8]]] = {}
    for size in dict.fromkeys(size for one, _ in told for size in one.filters):
        those = [(one.filters[size], start) for one, start in told if size in one.filters]
        filters[size] = (
            np.concatenate([places + start for (places, _), start in those]),
            np.concatenate([bits for (_, bits), _ in those], axis=1),
        )
    return Members(known, keys, filters)


def _stacked(size: int, filters: Iterable[tuple[int, bytes]]) -> tuple[Places, npt.NDArray[np.uint8]]:
    places, bits = zip(*filters, strict=True)
    rows = np.frombuffer(b"".join(bits), dtype=np.uint8).reshape(len(places), size)
    return np.array(places, dtype=np.int64), np.ascontiguousarray(rows.T)


def _halves(hashes: npt.NDArray[np.int64]) -> Keys:
    """Mix hashes down to 32 bits: numbers in a row hash to numbers in a row."""
    return hashes.view(np.uint64) * np.uint64(_MIX) >> np.uint64(32)
