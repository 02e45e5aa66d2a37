"""Read equal rows once, with how many they are, for questions that only count rows by what they have at a path.

What an extent has at a path, put together, is kept once all its blocks were read, so that the next such question looks
at no block. What blocks or extents gave is joined before a predicate is asked of it: few rows are asked once rather
than fewer rows often. Blocks in which rows hardly repeat, or of which newer versions hide rows, are not read here. It
does not decide which questions only count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tidelake.model.snapshot import Extent
from tidelake.pruning.plan import Block, ExtentTask
from tidelake.scan.ahead import Piece, read_ahead
from tidelake.scan.block_cache import ReadsDistinct
from tidelake.scan.block_reading import Reading
from tidelake.scan.distinct import joined_once
from tidelake.scan.path_columns import Path, path_name
from tidelake.scan.shapes import bare
from tidelake.scan.stored_rows import paths_apart

ROWS_AT_ONCE = 1 << 16  # that are joined before they are given

_FOUND = "once"


@dataclass(frozen=True, slots=True)
class CountedReading:
    """How equal rows of one question are read once."""

    reading: Reading
    path: Path
    counted: str

    @classmethod
    def of(cls, reading: Reading) -> CountedReading | None:
        """Return how; None if rows are read as they are."""
        if reading.counted is None or reading.whole.columns or len(reading.whole.paths) != 1:
            return None
        return cls(reading, reading.whole.paths[0], reading.counted)

    def batches(self, tasks: Iterable[ExtentTask], rest: list[ExtentTask]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are read here; what is left of the tasks is added to ``rest``."""
        held: list[pa.StructArray] = []
        for task in tasks:
            held += self._of_extent(task, rest)
            if sum(map(len, held)) >= ROWS_AT_ONCE:
                yield self._asked(held)
                held = []
        if held:
            yield self._asked(held)

    def _of_extent(self, task: ExtentTask, rest: list[ExtentTask]) -> Sequence[pa.StructArray]:
        blocks, reader = task.blocks or (), self.reading.footers.open(task.extent)
        if not isinstance(reader, ReadsDistinct) or not paths_apart(reader, self.reading.whole):
            rest.append(task)
            return []
        is_whole = len(blocks) == len(reader.metadata().blocks) and all(each.dead is None for each in blocks)
        if is_whole and (kept := reader.kept_distinct(self.path)) is not None:
            return [kept]
        pieces = [
            Piece(partial(self._block, task.extent, each), each.needed_bytes, None)
            for each in blocks
            if each.dead is None
        ]
        found = [batch.column(_FOUND) if batch.num_columns else None for _, batch in read_ahead(pieces)]
        alike = iter(found)
        left = tuple(each for each in blocks if each.dead is not None or next(alike) is None)
        if left:
            rest.append(ExtentTask(task.extent, left, task.dead))
        known = [each for each in found if each is not None]
        if not known:
            return []
        together = joined_once(known)
        if is_whole and not left:
            reader.keep_distinct(self.path, together)
        return [together]

    def _block(self, extent: Extent, block: Block) -> pa.RecordBatch:
        """Read one block; without a column if its rows are read as they are."""
        reader = self.reading.footers.open(extent)
        assert isinstance(reader, ReadsDistinct)
        found = reader.read_distinct(block.number, self.path)
        return bare(0) if found is None else pa.RecordBatch.from_arrays([found], [_FOUND])

    def _asked(self, held: Sequence[pa.StructArray]) -> pa.RecordBatch:
        """Return those that the predicate keeps, as the question wants them."""
        whole = held[0] if len(held) == 1 else pa.concat_arrays(held)
        batch = pa.RecordBatch.from_arrays(whole.flatten(), [path_name(*self.path), self.counted])
        return self.reading.finished(self.reading.kept(batch))
