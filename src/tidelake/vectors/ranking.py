"""Measure rows by their vectors, and keep the nearest of each query.

It does not choose which rows are measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tidelake.model.predicate import Predicate
from tidelake.model.schema import Column
from tidelake.model.times import When
from tidelake.model.vectors import measure
from tidelake.vectors.codebook import Mask
from tidelake.vectors.definition import MEASURES, Doubles, Floats, IndexMetric
from tidelake.vectors.sources import Positions, Source

BLOCK_ROWS = 65_536  # measured at once
POSITION_BITS = 32  # of an id; above them is the number of a source
_LOW = (1 << POSITION_BITS) - 1

Ids: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a table's vectors."""

    column: Column
    metric: IndexMetric
    queries: Doubles
    k: int
    where: Predicate | str | None = None
    start: When | None = None
    end: When | None = None
    recall: float | None = None
    probes: int | None = None
    with_unknown: bool = False  # also some rows that have no distance: where they belong is for others to say

    @property
    def is_filtered(self) -> bool:
        return self.where is not None or self.start is not None or self.end is not None


@dataclass(slots=True)
class Told:
    """What a search did, for people."""

    lines: list[str] = field(default_factory=list)
    lists: int = 0
    probes: int = 0
    coded: int = 0  # rows whose codes could be candidates
    candidates: int = 0  # rows that were measured because of their codes
    measured: int = 0  # rows that were measured one and all
    reasons: Counter[str] = field(default_factory=Counter)


class Best:
    """The nearest rows so far, of each query."""

    def __init__(self, asked: Asked) -> None:
        self._measure, self._k = MEASURES[asked.metric], asked.k
        self._sign = -1.0 if asked.metric == "dot" else 1.0
        self._unknown: list[Ids] | None = [] if asked.with_unknown else None
        self._ids: list[list[Ids]] = [[] for _ in asked.queries]
        self._far: list[list[Doubles]] = [[] for _ in asked.queries]

    def offer(self, at: int, query: Doubles, ids: Ids, vectors: Floats, there: Mask) -> None:
        """Measure rows, and keep the nearest; those without a distance are passed over."""
        found, known = measure(self._measure, vectors, query)  # type: ignore[arg-type]
        far = found * self._sign
        is_usable = known & there & ~np.isnan(far)
        if self._unknown is not None:
            self.note_unknown(ids[~is_usable])
        usable = np.flatnonzero(is_usable)
        if len(usable) > self._k:
            usable = usable[np.argpartition(far[usable], self._k - 1)[: self._k]]
        self._ids[at].append(ids[usable])
        self._far[at].append(far[usable])

    def note_unknown(self, ids: Ids) -> None:
        """Keep rows that have no distance, as many as are wanted of others."""
        if self._unknown is not None and sum(map(len, self._unknown)) < self._k:
            self._unknown.append(ids[: self._k])

    @property
    def unknown(self) -> Ids:
        """The rows without a distance that were kept."""
        return np.unique(np.concatenate([np.empty(0, np.int64), *(self._unknown or ())]))

    @property
    def fewest(self) -> int:
        """How many rows the query has that has the fewest, of those that are kept so far."""
        return min(sum(map(len, own)) for own in self._ids)

    def finish(self) -> tuple[list[Ids], list[Doubles]]:
        """Return the nearest rows of each query, nearest first, and how far they are."""
        ids, distances = [], []
        for own, far in zip(self._ids, self._far, strict=True):
            all_ids = np.concatenate([np.empty(0, np.int64), *own])
            all_far = np.concatenate([np.empty(0, np.float64), *far])
            order = np.lexsort((all_ids, all_far))[: self._k]
            ids.append(all_ids[order])
            distances.append(all_far[order])
        return ids, distances


def gathered(sources: Sequence[Source], ids: Ids, asked: Asked) -> tuple[Floats, Mask]:
    """Read the vectors of rows, by ascending ids."""
    size = asked.column.type.dimension or 0
    vectors, there = [np.empty((0, size), np.float32)], [np.empty(0, np.bool_)]
    for number, positions in by_source(ids):
        found, present = sources[number].vectors(asked.column.name, size, positions)
        vectors.append(found)
        there.append(present)
    return np.concatenate(vectors), np.concatenate(there)


def by_source(ids: Ids) -> list[tuple[int, Positions]]:
    """Part ascending ids by their sources: the number of each, and the positions."""
    if not len(ids):
        return []
    numbers, positions = ids >> POSITION_BITS, ids & _LOW
    starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(ids)]
    return [(int(numbers[start]), positions[start:end]) for start, end in pairwise(starts)]


def measure_all(source: Source, number: int, positions: Positions, asked: Asked, best: Best, told: Told) -> None:
    """Measure some rows of a source, one and all."""
    size = asked.column.type.dimension or 0
    told.measured += len(positions)
    for start in range(0, len(positions), BLOCK_ROWS):
        own = positions[start : start + BLOCK_ROWS]
        vectors, there = source.vectors(asked.column.name, size, own)
        for at, query in enumerate(asked.queries):
            best.offer(at, query, own | (number << POSITION_BITS), vectors, there)
