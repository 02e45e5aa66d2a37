"""Hold the values of a query: scalars by step, vectors of series by step, and samples with windows over them.

``Vector.present`` says where a series has a value, because NaN is a value too. Samples are laid out by series and time
from the batches in which they were read. A batch says of each row its kind: which of the distinct label sets of some
batches it has. So a sample is looked at with a small number, and label sets once for each kind. It does not evaluate
anything, nor read rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelake.errors import QueryError
from tidelake.query.promql.labels import Labels, Words, distinct, joined
from tidelake.query.promql.loops import find_until, scatter
from tidelake.runtime.readiness import has_loops

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Kinds: TypeAlias = npt.NDArray[np.int32]

STALE = 0x7FF0000000000002  # the bits of the NaN that ends a series


@dataclass(frozen=True, slots=True)
class Grid:
    """The times at which an expression is evaluated: milliseconds, each ``step_ms`` after the one before."""

    start_ms: int
    step_ms: int
    steps: int

    @property
    def times_ms(self) -> Ints:
        return self.start_ms + self.step_ms * np.arange(self.steps, dtype=np.int64)

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.step_ms * (self.steps - 1)


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number for each step."""

    values: Floats


@dataclass(frozen=True, slots=True)
class Text:
    """A text."""

    text: str


@dataclass(frozen=True, slots=True)
class Vector:
    """Some series: their labels, a value for each (series, step), and where there is one."""

    labels: Labels
    values: Floats
    present: Bools
    is_ordered: bool = False  # the order of the series is part of the answer

    def take(self, rows: Any) -> Vector:
        return Vector(self.labels.take(rows), self.values[rows], self.present[rows], self.is_ordered)

    def where(self, kept: Bools) -> Vector:
        """Return the vector with values only where ``kept``."""
        return replace(self, present=self.present & kept)

    def compact(self) -> Vector:
        """Return the vector without the series that have no value."""
        kept = self.present.any(axis=1)
        return self if kept.all() else self.take(kept)

    def nameless(self, values: Floats | None = None) -> Vector:
        """Return the vector without names, and with other values if they are given."""
        return united(replace(self, labels=self.labels.nameless(), values=self.values if values is None else values))


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples sorted by series and time: those of series ``s`` are in ``[first[s], first[s + 1])``."""

    labels: Labels
    times_ms: Ints
    values: Floats
    first: Ints

    def series(self) -> Ints:
        """Return the series of each sample."""
        return np.repeat(np.arange(len(self.labels), dtype=np.int64), np.diff(self.first))

    def until(self, grid: Grid) -> Ints:
        """Return for each (series, step) the place after the last sample that is not later than the step."""
        if has_loops():
            found = np.empty((len(self.labels), grid.steps), np.int64)
            find_until(self.times_ms, self.first, grid.times_ms, found)
            return found
        steps, series = grid.steps, self.series()
        reached = -((grid.start_ms - self.times_ms) // max(grid.step_ms, 1))  # the first step that is not before it
        if grid.steps == 1:
            reached = (self.times_ms > grid.start_ms).astype(np.int64)
        np.clip(reached, 0, steps, out=reached)
        counts = np.bincount(series * (steps + 1) + reached, minlength=len(self.labels) * (steps + 1))
        table = counts.reshape(len(self.labels), steps + 1)[:, :steps].cumsum(axis=1)
        return np.asarray(table + self.first[:-1, None], np.int64)


@dataclass(frozen=True, slots=True)
class Windows:
    """For each (series, step) the samples ``[low, high)`` in a range of time, which ends at ``ends_ms``."""

    samples: Samples
    low: Ints
    high: Ints
    ends_ms: Ints
    range_ms: int

    @property
    def counts(self) -> Ints:
        return self.high - self.low


Value: TypeAlias = Scalar | Text | Vector | Windows


def empty(words: Words, steps: int) -> Vector:
    """Return a vector without series."""
    return Vector(Labels.nothing(words, 0), np.empty((0, steps)), np.empty((0, steps), np.bool_))


def united(vector: Vector) -> Vector:
    """Unite series that have the same labels; two values of one label set at one step are an error."""
    first, kind = distinct(vector.labels.codes)
    if len(first) == len(kind):
        return vector
    order = np.argsort(kind, kind="stable")
    starts = np.searchsorted(kind[order], np.arange(len(first)))
    counts = np.add.reduceat(vector.present[order].astype(np.int64), starts, axis=0)
    if (counts > 1).any():
        raise QueryError("vector cannot contain metrics with the same labelset", kind="same_labels")
    values = np.add.reduceat(np.where(vector.present, vector.values, 0.0)[order], starts, axis=0)
    return Vector(vector.labels.take(first), values, counts > 0, vector.is_ordered)


@dataclass(frozen=True, slots=True)
class Read:
    """The samples of a selector, with the markers that end a series, and without them."""

    samples: Samples
    is_stale: Bools
    live: Samples


@dataclass(frozen=True, slots=True)
class Piece:
    """Samples of one batch, in the order in which they were read: of each its kind, of each kind its series."""

    series: Ints
    kinds: Kinds
    times_ms: Ints
    values: Floats

    def renumbered(self, numbers: Ints) -> Piece:
        """Return the piece with other numbers for its series; kinds without one stay so."""
        return replace(self, series=np.where(self.series < 0, -1, numbers[self.series]))


@dataclass(frozen=True, slots=True)
class Part:
    """Samples of one value column, whose series are the places of their label sets."""

    labels: Labels
    pieces: Sequence[Piece]


def laid_out(words: Words, parts: Sequence[Part]) -> Read:
    """Lay out samples by series, which are in the order of their labels, and time."""
    if not any(len(piece.times_ms) for part in parts for piece in part.pieces):
        return _nothing(words)
    labels = joined([part.labels for part in parts])
    by_labels = labels.sort_order()
    rank = np.empty(len(labels), np.int64)
    rank[by_labels] = np.arange(len(labels))
    begins = np.cumsum([0, *(len(part.labels) for part in parts)])
    pieces = [
        piece.renumbered(rank[begin : begin + len(part.labels)])
        for part, begin in zip(parts, begins.tolist(), strict=False)
        for piece in part.pieces
    ]
    first = np.concatenate([[0], np.cumsum(sum(_counts(piece, len(labels)) for piece in pieces))]).astype(np.int64)
    sorted_labels = labels.take(by_labels)
    if has_loops() and (found := _scattered(sorted_labels, first, pieces)) is not None:
        return _told_apart(found)
    series = np.concatenate([piece.series[piece.kinds] for piece in pieces])
    times = np.concatenate([piece.times_ms for piece in pieces])
    values = np.concatenate([piece.values for piece in pieces])
    order = _order(series, times)
    samples = Samples(sorted_labels, times[order], values[order], first)
    again = samples.times_ms[1:] == samples.times_ms[:-1]
    if again.any():  # of rows with one time, all but the last go
        inside = first[(first > 0) & (first < len(times))]
        again[inside - 1] = False  # a series that begins when the one before ends
        samples = _kept(samples, ~np.append(again, False)) if again.any() else samples
    return _told_apart(samples)


def _counts(piece: Piece, series: int) -> Ints:
    """Return how many samples of each series a piece has."""
    of_kinds = np.bincount(piece.kinds, minlength=len(piece.series))
    held = piece.series >= 0
    found = np.zeros(series, np.int64)
    np.add.at(found, piece.series[held], of_kinds[held])
    return found


def _scattered(labels: Labels, first: Ints, pieces: Sequence[Piece]) -> Samples | None:
    """Put each sample to the place of its series; None if a series goes back in time, or stays."""
    places, newest = first[:-1].copy(), np.full(len(labels), np.iinfo(np.int64).min)
    times, values = np.empty(first[-1], np.int64), np.empty(first[-1])
    for piece in pieces:
        for each in (piece.series, piece.kinds, piece.times_ms, piece.values):
            each.flags.writeable = False  # one type for the compiled loop
        if not scatter(piece.series, piece.kinds, piece.times_ms, piece.values, places, newest, times, values):
            return None
    return Samples(labels, times, values, first)


def _told_apart(samples: Samples) -> Read:
    """Return samples with the markers that end a series, and without them."""
    is_stale = samples.values.view(np.int64) == STALE
    return Read(samples, is_stale, _kept(samples, ~is_stale) if is_stale.any() else samples)


def _order(series: Any, times: Ints) -> Any:
    """Return the order by series and time, stable: rows mostly come by time, and series are counted, not compared."""
    order = None if (times[1:] >= times[:-1]).all() else np.argsort(times, kind="stable")
    for shift in range(0, max(int(series.max()).bit_length(), 1), 16):
        digits = (series >> shift).astype(np.uint16)
        again = np.argsort(digits if order is None else digits[order], kind="stable")
        order = again if order is None else order[again]
    return order


def _kept(samples: Samples, kept: Bools) -> Samples:
    """Return some of the samples."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return Samples(samples.labels, samples.times_ms[kept], samples.values[kept], before[samples.first])


def _nothing(words: Words) -> Read:
    none = np.empty(0, np.int64)
    samples = Samples(Labels.nothing(words, 0), none, np.empty(0), np.zeros(1, np.int64))
    return Read(samples, np.empty(0, np.bool_), samples)
