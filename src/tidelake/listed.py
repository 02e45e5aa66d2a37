"""Keep in memory what the catalog listed, so that the next plan of a table asks it only what is new.

For each scope the newest listing is kept: its extents, and of the columns that were asked about their statistics,
decoded. A newer snapshot brings it forward by the commits in between; an older one is the catalog's to list. Least and
most values and filters of all extents lie side by side, so that most extents are dropped without being looked at one by
one. What is kept here is a copy: it may vanish at any time, and it never drops an extent that its statistics do not
disprove. It does not judge what is left: see ``plan``.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tidelake.catalog.protocol import Catalog
from tidelake.errors import TidelakeError
from tidelake.filters import PROBES, hash_bytes, hash_int
from tidelake.plan import Question, time_window
from tidelake.predicate import And, Equals, InSet, Predicate, Range, TimeRange, Value
from tidelake.snapshot import Extent, Scope, Snapshot
from tidelake.stats import ColumnStats, column_from_json

LEAST_EXTENTS = 64  # fewer are listed by the catalog in the time it takes to ask whether it changed
MOST_EXTENTS = 50_000  # more would fill memory: a column's statistics are some hundred bytes to some kilobytes
KEPT_SCOPES = 16

_Mask = npt.NDArray[np.bool_]
_Filters = list[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]]


class Listings:
    """The newest listing of each scope of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: OrderedDict[Scope, _Listing] = OrderedDict()
        self._lock = Lock()

    def extents(self, snapshot: Snapshot, question: Question, columns: Collection[str]) -> list[Extent] | None:
        """List the extents that may hold wanted rows, with statistics; None where the catalog does it better."""
        if not LEAST_EXTENTS <= snapshot.totals.extents <= MOST_EXTENTS:
            return None
        with self._lock:
            held = self._kept.get(snapshot.scope)
            if held is None and time_window(question) != (None, None):
                return None  # a window of time is an index's work
            if held is None or held.sequence != snapshot.sequence:
                held = self._brought_forward(held, snapshot)
                if held is None:
                    return None
                self._kept[snapshot.scope] = held
            self._kept.move_to_end(snapshot.scope)
            while len(self._kept) > KEPT_SCOPES:
                self._kept.popitem(last=False)
            for name in columns:
                if name not in held.columns:
                    held.columns[name] = self._column(held, name)
            return held.surviving(question, columns)

    def _brought_forward(self, held: _Listing | None, snapshot: Snapshot) -> _Listing | None:
        scope, sequence = snapshot.scope, snapshot.sequence
        if held is None:
            return _Listing(sequence, self._catalog.extents(scope, sequence=sequence, stats=()))
        if sequence < held.sequence:
            return None
        try:
            changes = self._catalog.changes(scope, after=held.sequence, upto=sequence)
        except TidelakeError:  # what lies between has expired
            return _Listing(sequence, self._catalog.extents(scope, sequence=sequence, stats=()))
        return held.changed(sequence, changes.added, set(changes.removed))

    def _column(self, held: _Listing, name: str) -> _Column:
        scope = next(scope for scope, each in self._kept.items() if each is held)
        listed = self._catalog.extents(scope, sequence=held.sequence, stats=(name,))
        known = {extent.id: _decoded(extent, name) for extent in listed}
        return _Column([known[extent.id] for extent in held.extents])


_LISTINGS: WeakKeyDictionary[Any, Listings] = WeakKeyDictionary()


def listings_of(catalog: Catalog) -> Listings:
    """Give the listings kept of a catalog."""
    found = _LISTINGS.get(catalog)
    if found is None:
        found = _LISTINGS[catalog] = Listings(catalog)
    return found


def _decoded(extent: Extent, name: str) -> ColumnStats | None:
    """Decode a column's statistics; None where the extent has none."""
    shape = extent.column_stats.get(name)
    return None if shape is None else column_from_json(shape)


@dataclass(slots=True)
class _Column:
    """One column's statistics, in the order of the extents, and side by side what is asked most."""

    stats: list[ColumnStats | None]
    _bounds: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
    _filters: _Filters | None = None

    @property
    def bounds(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Least and most numbers, rounded outwards; NaN where nothing is known."""
        if self._bounds is None:
            low = np.array([_number(known.low if known else None, -math.inf) for known in self.stats])
            high = np.array([_number(known.high if known else None, math.inf) for known in self.stats])
            self._bounds = low, high
        return self._bounds

    @property
    def filters(self) -> _Filters:
        """Filters of values, those of one size together with the places of their extents."""
        if self._filters is None:
            by_size: dict[int, list[int]] = {}
            for at, known in enumerate(self.stats):
                if known is not None and known.values is not None and known.distinct is None:
                    by_size.setdefault(len(known.values.bits), []).append(at)
            self._filters = [(np.array(places), self._stacked(places)) for places in by_size.values()]
        return self._filters

    def _stacked(self, places: Sequence[int]) -> npt.NDArray[np.uint8]:
        held = [
            known.values.bits for at in places if (known := self.stats[at]) is not None and known.values is not None
        ]
        return np.frombuffer(b"".join(held), dtype=np.uint8).reshape(len(places), -1)

    def may_hold(self, value: Value) -> _Mask:
        """Say of each extent whether its filter may hold a value."""
        found = np.ones(len(self.stats), dtype=np.bool_)
        if isinstance(value, str):
            hash = hash_bytes(value.encode("utf-8", "surrogatepass"))
        elif type(value) is int and -(2**63) <= value < 2**63:
            hash = hash_int(value)
        else:
            return found
        for places, bits in self.filters:
            width = bits.shape[1]
            low, high, shift = hash & 0xFFFF_FFFF, hash >> 32 | 1, 32 - (width * 8).bit_length() + 1
            held = np.ones(len(places), dtype=np.bool_)
            for probe in range(PROBES):
                at = ((low + probe * high) & 0xFFFF_FFFF) >> shift
                held &= (bits[:, at >> 3] >> (at & 7) & 1).astype(np.bool_)
            found[places] = held
        return found

    def may_lie(self, low: float | None, high: float | None) -> _Mask:
        """Say of each extent whether some value may lie between two numbers; NaN compares as unknown."""
        least, most = self.bounds
        found = np.ones(len(self.stats), dtype=np.bool_)
        if low is not None:
            found &= ~(most < low)
        if high is not None:
            found &= ~(least > high)
        return found


@dataclass(slots=True)
class _Listing:
    """What one snapshot holds."""

    sequence: int
    extents: list[Extent]
    columns: dict[str, _Column] = field(default_factory=dict)

    def changed(self, sequence: int, added: Iterable[Extent], removed: set[str]) -> _Listing:
        """Give the listing after commits that added and removed extents."""
        fresh = [extent for extent in added if extent.id not in removed]
        kept = [at for at, extent in enumerate(self.extents) if extent.id not in removed]
        bare = [replace(extent, column_stats={}) for extent in fresh]
        extents = [self.extents[at] for at in kept] + bare
        columns = {
            name: [column.stats[at] for at in kept] + [_decoded(extent, name) for extent in fresh]
            for name, column in self.columns.items()
        }
        order = sorted(
            range(len(extents)), key=lambda at: (extents[at].min_ts_ns is not None, extents[at].min_ts_ns or 0)
        )
        return _Listing(
            sequence,
            [extents[at] for at in order],
            {name: _Column([stats[at] for at in order]) for name, stats in columns.items()},
        )

    def surviving(self, question: Question, columns: Collection[str]) -> list[Extent]:
        mask = np.ones(len(self.extents), dtype=np.bool_)
        for part in _conjuncts(question.where):
            leaf_column = getattr(part, "column", None)
            if leaf_column in self.columns and leaf_column not in question.spread:
                mask &= _quick(part, self.columns[leaf_column])
        return [
            replace(self.extents[at], column_stats=self._stats(at, columns)) for at in np.flatnonzero(mask).tolist()
        ]

    def _stats(self, at: int, columns: Collection[str]) -> dict[str, Any]:
        return {name: known for name in columns if (known := self.columns[name].stats[at]) is not None}


def _conjuncts(where: Predicate | None) -> Iterator[Predicate]:
    if isinstance(where, And):
        for part in where.parts:
            yield from _conjuncts(part)
    elif where is not None:
        yield where


def _quick(leaf: Predicate, column: _Column) -> _Mask:
    """Judge one leaf of all extents at once; what is not judged here is kept."""
    match leaf:
        case Equals(_, value):
            return column.may_hold(value) & _may_equal(column, value)
        case InSet(_, values) if values:
            found = np.zeros(len(column.stats), dtype=np.bool_)
            for value in values:
                found |= column.may_hold(value) & _may_equal(column, value)
            return found
        case TimeRange(_, start_ns, end_ns):
            return column.may_lie(_below(start_ns), _above(end_ns))
        case Range(_, low, high):
            numbers = [None if bound is None else _plain(bound) for bound in (low, high)]
            if all((number is None) == (bound is None) for number, bound in zip(numbers, (low, high), strict=True)):
                return column.may_lie(_below(numbers[0]), _above(numbers[1]))
    return np.ones(len(column.stats), dtype=np.bool_)


def _may_equal(column: _Column, value: Value) -> _Mask:
    number = _plain(value)
    if number is None:
        return np.ones(len(column.stats), dtype=np.bool_)
    return column.may_lie(_below(number), _above(number))


def _plain(value: Value) -> float | None:
    """Give a number that bounds can be compared with, or None: NaN, flags and what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return value


def _number(bound: Any, outwards: float) -> float:
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        return math.nan
    return math.nextafter(float(bound), outwards)


def _below(number: float | None) -> float | None:
    return None if number is None else math.nextafter(float(number), -math.inf)


def _above(number: float | None) -> float | None:
    return None if number is None else math.nextafter(float(number), math.inf)
