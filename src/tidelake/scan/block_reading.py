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
from tidelake.scan.block_cache import was_searched
from tidelake.scan.candidates import blocks_without, candidates, tells, texts_asked
from tidelake.scan.evaluate import select, tested
from tidelake.scan.few_rows import FewRows
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
from tidelake.scan.stored_rows import HIDDEN, StoredBlock, hot_versions_of, paths_size_of
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
        few = self.glance(extent, block)
        return self.looked_through(extent, block) if few is None else self.few(few)

    def glance(self, extent: Extent, block: Block) -> FewRows | None:
        """Return the rows of a block that may match if they are few; None if all are to be looked through."""
        if block.proven or self.where is None or HIDDEN.intersection(self.whole.names):
            return None
        reader = self.footers.open(extent)
        kept = candidates(reader, block.number, self.where, self.whole.elsewhere)
        if kept is None:
            return None
        if not kept.any():
            return FewRows(reader, ())
        places = StoredBlock(reader, extent.first_seq, block).places(kept)
        return FewRows(reader, ((block, places),) if len(places) else ())

    def without(self, extent: Extent, blocks: Sequence[Block]) -> frozenset[int]:
        """Return the numbers of blocks of which it is known at once that no row matches."""
        if self.where is None:
            return frozenset()
        numbers = [block.number for block in blocks]
        return blocks_without(self.footers.open(extent), numbers, self.where, self.whole.elsewhere)

    def tells(self, extent: Extent) -> bool:
        """Whether an extent keeps words or templates of what is asked."""
        return tells(self.footers.open(extent), texts_asked(self.where))

    def is_in_memory(self, extent: Extent) -> bool:
        """Whether a glance at the blocks of an extent finds in memory what it needs, likely."""
        return was_searched(self.footers.open(extent), texts_asked(self.where))

    def few(self, rows: FewRows) -> pa.RecordBatch:
        """Read those of some rows that are wanted: first what the predicate looks at, and of what matches the rest."""
        if self.filter is None or not len(rows):
            return self.finished(rows.loaded(self.whole) if len(rows) else _nothing(self.whole))
        asked = rows.loaded(self.asked)
        found = select(self.filter, asked.append_column(_ROW, pa.array(np.arange(asked.num_rows))), rough=self.rough)
        numbers = found.column(_ROW).to_numpy()
        others = rows.only(numbers).loaded(self.rest) if found.num_rows else _nothing(self.rest)
        return self.finished(self._of_both(found, others))

    def looked_through(self, extent: Extent, block: Block) -> pa.RecordBatch:
        """Read the wanted rows of a block of which all may match."""
        return self.finished(self._block(StoredBlock(self.footers.open(extent), extent.first_seq, block), block))

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
        pieces = reader.reader.metadata().blocks[block.number].pieces
        late = sum(pieces[column.name].length for column in self.rest.columns if column.name in pieces)
        if late + paths_size_of(reader.reader, block.number, self.rest) < LATE_BYTES:
            return self.kept(reader.loaded(self.whole))
        return self._late(reader, self.filter)

    def _late(self, reader: StoredBlock, where: Predicate) -> pa.RecordBatch:
        """Read what the predicate looks at, and the rest only where a row matches."""
        asked = reader.loaded(self.asked)
        found = select(where, asked.append_column(_ROW, pa.array(np.arange(asked.num_rows))), rough=self.rough)
        others = _rows_of(reader.loaded(self.rest), found.column(_ROW)) if found.num_rows else _nothing(self.rest)
        return self._of_both(found, others)

    def _of_both(self, found: pa.RecordBatch, others: pa.RecordBatch) -> pa.RecordBatch:
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
