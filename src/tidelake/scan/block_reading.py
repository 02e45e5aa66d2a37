"""Read the wanted rows of one block: all that a question needs, or first what its predicate looks at.

Wide columns that a predicate does not look at are read only where a row matches. It does not decide which blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.model.path_value import PathValue
from tidelake.model.predicate import And, DynamicPathExists, DynamicPathMayHold, Or, Predicate
from tidelake.model.snapshot import Extent, HotBatch
from tidelake.pruning.plan import Block, Question
from tidelake.scan.candidates import Rows, candidates
from tidelake.scan.evaluate import select, tested
from tidelake.scan.footers import Footers
from tidelake.scan.path_columns import (
    given,
    nothing_at,
    path_name,
    paths_in,
    paths_shown,
    whole_columns,
    whole_needed,
    with_paths,
)
from tidelake.scan.shapes import Shape, bare
from tidelake.scan.stored_rows import StoredBlock, hot_versions_of, paths_size_of
from tidelake.scan.windows import stretch

LATE_BYTES = 256 << 10  # columns of a block that are read in a second step, if at all: a request costs about as much
_ROW = "\0row"  # no column's name: control characters are refused


@dataclass(frozen=True, slots=True)
class Reading:
    """How the blocks of one question are read: all that it needs, or first what its predicate looks at."""

    footers: Footers
    where: Predicate | None
    filter: Predicate | None  # what rows are asked: less than ``where`` if it is rough
    whole: Shape
    asked: Shape
    rest: Shape
    given: tuple[PathValue, ...] = ()  # what is made of the values at paths
    counted: str | None = None  # the column that says of how many rows each is given
    rough: bool = False

    @classmethod
    def of(cls, question: Question, footers: Footers) -> Reading:
        names, where = whole_needed(question), question.where
        looked_at, paths, shown = whole_columns(where), paths_in(where), paths_shown(question)
        rough = question.rough and question.limit is None
        asked, rest = ([name for name in names if (name in looked_at) is each] for each in (True, False))
        return cls(
            footers,
            where,
            loosened(where) if rough and where is not None else where,
            Shape.of(question, names, paths | shown),
            Shape.of(question, asked, paths),
            Shape.of(question, rest, shown - paths),
            tuple(each for each in question.computed.values() if isinstance(each, PathValue)),
            question.counted,
            rough=rough,
        )

    def block(self, extent: Extent, block: Block) -> pa.RecordBatch:
        """Read the wanted rows of a block."""
        reader = StoredBlock(self.footers.open(extent), extent.first_seq, block)
        return self.finished(self._block(reader, block))

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that are wanted."""
        return batch if self.filter is None else select(self.filter, batch, rough=self.rough)

    def finished(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with what is asked of paths in place of all that they have."""
        if not self.whole.paths:
            return batch
        found = batch.select(self.whole.arrow.names)
        for each in self.given:
            values = batch.column(path_name(each.column, each.path))
            found = found.append_column(
                each.name, given(each, values) if each.test is None else tested(each.test, values)
            )
        if self.counted is not None:
            is_counted = self.counted in batch.schema.names
            counts = batch.column(self.counted) if is_counted else pa.array(np.ones(batch.num_rows, dtype=np.int64))
            found = found.append_column(self.counted, counts)
        return found if found.num_columns else bare(batch.num_rows)

    def _block(self, reader: StoredBlock, block: Block) -> pa.RecordBatch:
        if block.proven or self.where is None or self.filter is None:
            return reader.loaded(self.whole)
        kept = candidates(reader.reader, block.number, self.where, self.whole.elsewhere)
        if kept is not None:
            return self._late(reader, self.filter, kept) if kept.any() else _nothing(self.whole)
        pieces = reader.reader.metadata().blocks[block.number].pieces
        late = sum(pieces[column.name].length for column in self.rest.columns if column.name in pieces)
        if late + paths_size_of(reader.reader, block.number, self.rest) < LATE_BYTES:
            return self.kept(reader.loaded(self.whole))
        return self._late(reader, self.filter)

    def _late(self, reader: StoredBlock, where: Predicate, kept: Rows | None = None) -> pa.RecordBatch:
        """Read what the predicate looks at, of all rows or those that may match, and the rest only where one does."""
        places = None if kept is None else reader.places(kept)
        asked = reader.loaded(self.asked, places)
        numbers = np.arange(asked.num_rows) if places is None else places
        found = select(where, asked.append_column(_ROW, pa.array(numbers)), rough=self.rough)
        rows = found.column(_ROW)
        if not found.num_rows:
            others = _nothing(self.rest)
        elif places is None:
            others = _rows_of(reader.loaded(self.rest), rows)
        else:
            others = reader.loaded(self.rest, rows.to_numpy())
        parts = dict.fromkeys(self.asked.names, found) | dict.fromkeys(self.rest.names, others)
        return pa.RecordBatch.from_arrays([parts[name].column(name) for name in self.whole.names], self.whole.names)

    def hot(self, hot: Sequence[HotBatch], dead: Mapping[str, Any]) -> pa.RecordBatch:
        """Read all hot rows at once; those of one schema are joined before anything else is done to them."""
        joined = hot_versions_of(hot, self.whole, dead)
        return self.finished(joined if self.filter is None else select(self.filter, joined))


def loosened(where: Predicate) -> Predicate:
    """Return what rows are asked by a scan whose reader asks again: not for texts, which would be looked through twice.

    Where few rows may hold a text, ``candidates`` finds these without looking.
    """
    match where:
        case And(parts):
            return And(tuple(map(loosened, parts)))
        case Or(parts):
            return Or(tuple(map(loosened, parts)))
        case DynamicPathMayHold(column, path, _):
            return DynamicPathExists(column, path)
        case _:
            return where


def _nothing(shape: Shape) -> pa.RecordBatch:
    """Return no rows of a shape."""
    nothing = [nothing_at(path) for _, path in shape.paths]
    return with_paths(pa.RecordBatch.from_pylist([], shape.arrow), shape.paths, nothing)


def _rows_of(batch: pa.RecordBatch, ascending: pa.Array) -> pa.RecordBatch:
    """Take rows by their ascending numbers."""
    first, last = ascending[0].as_py(), ascending[-1].as_py()
    are_neighbours = last - first + 1 == len(ascending)
    return stretch(batch, first, last + 1) if are_neighbours else batch.take(ascending)
