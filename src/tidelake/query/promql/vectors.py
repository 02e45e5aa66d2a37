"""Hold the values of a query: scalars by step, vectors of series by step, and samples with windows over them.

``Vector.present`` says where a series has a value, because NaN is a value too. It does not evaluate anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tidelake.errors import QueryError
from tidelake.query.promql.labels import Labels, Words, distinct
from tidelake.query.promql.loops import find_until
from tidelake.runtime.readiness import has_loops

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]


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
