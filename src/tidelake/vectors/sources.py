"""Read single rows of extents and hot batches by their positions: vectors to be measured, and columns to be shown.

It does not choose the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.format import ExtentReader
from tidelake.model.snapshot import Extent
from tidelake.pruning.plan import Block, ExtentTask, Question, ScanPlan
from tidelake.scan.evaluate import select
from tidelake.scan.footers import Footers
from tidelake.scan.path_columns import paths_in, whole_columns
from tidelake.scan.shapes import Shape
from tidelake.scan.stored_rows import StoredBlock, hot_versions_of
from tidelake.vectors.codebook import Mask
from tidelake.vectors.definition import Floats
from tidelake.vectors.sidecars import matrix_of, valid_in

Positions: TypeAlias = npt.NDArray[np.int64]

_ROW = "\0row"  # no column's name: control characters are refused


class Source(Protocol):
    """Some rows of a table, numbered from 0."""

    def vectors(self, column: str, dimensions: int, positions: Positions) -> tuple[Floats, Mask]:
        """Return the vectors of rows by ascending positions, and which are there."""
        ...

    def rows(self, shape: Shape, positions: Positions) -> pa.RecordBatch:
        """Return columns of rows by ascending positions, as they are stored."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ExtentSource:
    """The rows of an extent."""

    extent: Extent
    reader: ExtentReader = field(repr=False)
    firsts: Positions = field(repr=False)  # the first row of each block, and the row after the last

    @classmethod
    def of(cls, extent: Extent, footers: Footers) -> ExtentSource:
        reader = footers.open(extent)
        rows = [info.stats.rows for info in reader.metadata().blocks]
        return cls(extent, reader, np.cumsum([0, *rows]).astype(np.int64))

    def vectors(self, column: str, dimensions: int, positions: Positions) -> tuple[Floats, Mask]:
        """Return the vectors of rows by ascending positions, and which are there."""
        if column not in self.reader.metadata().schema:
            return np.zeros((len(positions), dimensions), np.float32), np.zeros(len(positions), np.bool_)
        found, there = [], []
        for number, own in self._by_block(positions):
            array = self.reader.read_block(number, [column]).column(0)
            found.append(matrix_of(array, dimensions)[own])
            there.append(valid_in(array)[own] if array.null_count else np.ones(len(own), np.bool_))
        return (found[0], there[0]) if len(found) == 1 else (np.concatenate(found), np.concatenate(there))

    def rows(self, shape: Shape, positions: Positions) -> pa.RecordBatch:
        """Return columns of rows by ascending positions, as they are stored."""
        infos, parts = self.reader.metadata().blocks, []
        for number, own in self._by_block(positions):
            block = Block(number, infos[number].stats, 0, 0, True, int(self.firsts[number]))
            parts.append(StoredBlock(self.reader, self.extent.first_seq, block).loaded(shape).take(pa.array(own)))
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _by_block(self, positions: Positions) -> Iterator[tuple[int, Positions]]:
        if len(self.firsts) == 2:
            yield 0, positions
            return
        cuts = np.searchsorted(positions, self.firsts)
        for number in np.flatnonzero(np.diff(cuts)).tolist():
            yield number, positions[cuts[number] : cuts[number + 1]] - self.firsts[number]


@dataclass(frozen=True, slots=True, eq=False)
class HotSource:
    """Hot rows that are seen, and that match what is asked, with every column."""

    batch: pa.RecordBatch

    @classmethod
    def of(cls, plan: ScanPlan) -> HotSource:
        question, where = plan.question, plan.question.where
        paths = paths_in(where) if where is not None else frozenset()
        shape = Shape.of(question, question.schema.names, paths)
        batch = hot_versions_of(plan.hot, shape, plan.dead_hot)
        found = batch if where is None else select(where, batch)
        return cls(found.select(list(question.schema.names)))

    def vectors(self, column: str, dimensions: int, positions: Positions) -> tuple[Floats, Mask]:
        """Return the vectors of rows by ascending positions, and which are there."""
        array = self.batch.column(column)
        return matrix_of(array, dimensions)[positions], valid_in(array)[positions]

    def rows(self, shape: Shape, positions: Positions) -> pa.RecordBatch:
        """Return columns of rows by ascending positions, as they are stored."""
        return self.batch.select(shape.names).take(pa.array(positions))


def matching(plan: ScanPlan, footers: Footers) -> Iterator[tuple[Extent, Positions]]:
    """Yield of each extent of a plan the rows that are seen and match, by ascending positions."""
    question = plan.question
    where = question.where
    shape = None
    if where is not None:
        looked_at = whole_columns(where)
        names = [name for name in question.schema.names if name in looked_at]
        shape = Shape.of(question, names, paths_in(where))
    for task in plan.tasks:
        found = [_matching_block(task, block, question, shape, footers) for block in task.blocks or ()]
        yield task.extent, np.concatenate([np.empty(0, np.int64), *found])


def _matching_block(
    task: ExtentTask, block: Block, question: Question, shape: Shape | None, footers: Footers
) -> Positions:
    rows: Any = np.arange(block.stats.rows, dtype=np.int64)
    if shape is not None and question.where is not None and not block.proven:
        stored = StoredBlock(footers.open(task.extent), task.extent.first_seq, replace(block, dead=None))
        batch = stored.loaded(shape).append_column(_ROW, pa.array(rows))
        rows = select(question.where, batch).column(_ROW).to_numpy(zero_copy_only=False)
    if block.dead is not None and len(block.dead):
        rows = rows[~np.isin(rows, block.dead)]
    found: Positions = rows + block.first_row
    return found


def all_but(rows: int, dead: Sequence[int] | npt.NDArray[Any] | None) -> Positions:
    """Return the positions of rows without some."""
    if dead is None or not len(dead):
        return np.arange(rows, dtype=np.int64)
    alive = np.ones(rows, np.bool_)
    alive[dead] = False
    return np.flatnonzero(alive)
