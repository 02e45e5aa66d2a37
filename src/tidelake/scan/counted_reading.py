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
from typing import TypeGuard

import pyarrow as pa

from tidelake.format import ExtentReader
from tidelake.model.snapshot import Extent
from tidelake.pruning.plan import Block, ExtentTask, ScanPlan
from tidelake.scan.ahead import Piece, read_ahead
from tidelake.scan.block_cache import ReadsDistinct
from tidelake.scan.block_reading import Reading
from tidelake.scan.distinct import joined_once
from tidelake.scan.footers import Footers
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

    def kept(self, tasks: Iterable[ExtentTask]) -> Sequence[pa.StructArray] | None:
        """Return what all extents of some tasks have at the path, if that is kept of each as a whole."""
        found = []
        for task in tasks:
            reader = self.reading.footers.open(task.extent)
            if not _is_whole(task, reader) or not self._is_apart(reader):
                return None
            kept = reader.kept_distinct(self.path)
            if kept is None:
                return None
            found.append(kept)
        return found

    def _is_apart(self, reader: ExtentReader) -> TypeGuard[ReadsDistinct]:
        return isinstance(reader, ReadsDistinct) and bool(paths_apart(reader, self.reading.whole))

    def _of_extent(self, task: ExtentTask, rest: list[ExtentTask]) -> Sequence[pa.StructArray]:
        blocks, reader = task.blocks or (), self.reading.footers.open(task.extent)
        is_whole = _is_whole(task, reader)
        if not self._is_apart(reader):
            rest.append(task)
            return []
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


def kept_size(plan: ScanPlan, footers: Footers) -> tuple[int, int] | None:
    """Return how many rows, and bytes of them, a plan that only counts is answered by; None if they are to be read."""
    counting = CountedReading.of(Reading.of(plan.question, footers))
    found = (
        None
        if counting is None or any(not footers.holds(each.extent) for each in plan.tasks)
        else counting.kept(plan.tasks)
    )
    return None if found is None else (sum(map(len, found)), sum(each.nbytes for each in found))


def _is_whole(task: ExtentTask, reader: ExtentReader) -> bool:
    """Whether all rows of an extent are read."""
    blocks = task.blocks or ()
    return len(blocks) == len(reader.metadata().blocks) and all(each.dead is None for each in blocks)
