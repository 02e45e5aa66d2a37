"""Read rows as they are stored, but for those that a condition takes: what a rewrite keeps.

The condition is judged as every reader judges it, on columns united with where else their values lie; the rows that
are given are those that were written, every value in its place, under the schema that the table has now. A row for
which the condition is null is kept, as a reader who asks for the condition does not see it. It does not plan or write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.format import ExtentReader
from tidelake.model.predicate import Predicate, columns_of
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Extent, HotBatch
from tidelake.pruning.plan import Block, Question
from tidelake.scan.evaluate import evaluate
from tidelake.scan.footers import Footers
from tidelake.scan.hot import read_hot
from tidelake.scan.shapes import Shape


@dataclass(frozen=True, slots=True)
class Remaining:
    """The rows of extents and hot batches that a condition leaves, or all of them if there is none."""

    footers: Footers
    where: Predicate | None
    asked: Shape  # what the condition looks at, united
    stored: Shape  # every column of the table, as it is stored

    @classmethod
    def of(cls, question: Question, schema: Schema, footers: Footers) -> Remaining:
        """Take the condition of a question; ``schema`` is what the table stores, of which it may see more columns."""
        looked_at = () if question.where is None else sorted(columns_of(question.where))
        plain = replace(question, schema=schema, alternatives={})
        return cls(footers, question.where, Shape.of(question, looked_at), Shape.of(plain, schema.names))

    def count_taken(self, extent: Extent, blocks: Sequence[Block]) -> int:
        """Return how many rows of some blocks the condition takes; only the columns that it looks at are read."""
        reader = self.footers.open(extent)
        written = reader.metadata().schema.names
        taken = 0
        for block in blocks:
            if block.proven or self.where is None:
                taken += block.stats.rows
                continue
            batch = reader.read_block(block.number, self.asked.written(written))
            taken += self.taken(batch, written, block.stats.rows).true_count
        return taken

    def rows(self, extent: Extent, touched: Sequence[Block] | None = None) -> Iterator[pa.RecordBatch]:
        """Stream what is left of an extent; the condition is asked of the blocks that it may take rows of, or all."""
        reader = self.footers.open(extent)
        asked = None if touched is None else {block.number: block for block in touched}
        for number, info in enumerate(reader.metadata().blocks):
            if asked is None:
                left = self._left(reader, number, info.stats.rows)
            elif (block := asked.get(number)) is None:
                left = self._stored(reader, number, info.stats.rows)
            elif block.proven:
                continue
            else:
                left = self._left(reader, number, info.stats.rows)
            if left.num_rows:
                yield left

    def block(self, extent: Extent, number: int) -> pa.RecordBatch:
        """Read one block whole."""
        reader = self.footers.open(extent)
        return self._stored(reader, number, reader.metadata().blocks[number].stats.rows)

    def hot(self, batches: Sequence[HotBatch]) -> tuple[list[pa.RecordBatch], Collection[str]]:
        """Return what is left of hot batches that the condition takes rows of, and the ids of those."""
        left: list[pa.RecordBatch] = []
        touched = []
        for batch in batches:
            for written, rows in read_hot([batch], lambda names: names):
                taken = self.taken(rows, written, rows.num_rows)
                if taken.true_count:
                    touched.append(batch.id)
                    left.append(rows.filter(pc.invert(taken)))
        return [rows for rows in left if rows.num_rows], touched

    def _left(self, reader: ExtentReader, number: int, rows: int) -> pa.RecordBatch:
        written = reader.metadata().schema.names
        batch = reader.read_block(number, self.stored.written(written))
        stored = self.stored.conformed(batch, written, rows)
        if self.where is None:
            return stored
        return stored.filter(pc.invert(self.taken(batch, written, rows)))

    def _stored(self, reader: ExtentReader, number: int, rows: int) -> pa.RecordBatch:
        written = reader.metadata().schema.names
        return self.stored.conformed(reader.read_block(number, self.stored.written(written)), written, rows)

    def taken(self, batch: pa.RecordBatch, written: Sequence[str], rows: int) -> pa.BooleanArray:
        """Return of each row whether the condition takes it."""
        if self.where is None:
            return pa.array(np.ones(rows, dtype=np.bool_))
        return pc.fill_null(evaluate(self.where, self.asked.conformed(batch, written, rows)), False)
