"""Count the rows whose texts pass a test by their templates, without the texts, for questions that want no columns.

Of a column that is stored by templates, a block says how many rows have each. Where every template says for all of its
texts whether they pass, no text is looked at, and those numbers are kept: the next such question reads nothing. Blocks
with a template that leaves it open are read as ever, as are those of which newer versions hide rows, or of which
statistics leave other parts of the predicate open. It does not count anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tidelake.model.predicate import And, Predicate, columns_of, conjuncts_of, leaves_of
from tidelake.model.schema import DataType
from tidelake.model.snapshot import Extent
from tidelake.pruning.plan import Block, ExtentTask, Question, surviving
from tidelake.scan.block_reading import Reading
from tidelake.scan.few_rows import FewRows
from tidelake.scan.shapes import bare
from tidelake.scan.template_answers import TEXT_TESTS, Judged, answered

_TEXT = DataType("string")


@dataclass(frozen=True, slots=True)
class CountedLines:
    """How the rows of one question are counted: by a predicate on one text column, and a question of what is left."""

    reading: Reading
    column: str
    where: Predicate
    others: Question | None
    undecided: set[tuple[str, int]] = field(default_factory=set)  # blocks that templates leave open, by extent

    @classmethod
    def of(cls, question: Question, reading: Reading) -> CountedLines | None:
        """Return how; None if rows are read as they are."""
        if question.columns or question.computed or question.counted or question.limit is not None:
            return None
        parts = list(conjuncts_of(question.where))
        named = [next(iter(columns)) for part in parts if len(columns := columns_of(part)) == 1]
        asked = [name for name in named if question.schema[name].type == _TEXT and not question.alternatives.get(name)]
        for column in dict.fromkeys(asked):
            own = [part for part in parts if all(_is_of(leaf, column) for leaf in leaves_of(part))]
            rest = [part for part in parts if part not in own]
            if own:
                others = replace(question, where=And(tuple(rest))) if rest else None
                return cls(reading, column, own[0] if len(own) == 1 else And(tuple(own)), others)
        return None

    def batches(self, tasks: Iterable[ExtentTask], rest: list[ExtentTask]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are known by now, without columns; what is left of the tasks is added to ``rest``."""
        for task in tasks:
            reader: Any = self.reading.footers.open(task.extent)
            lines = _lines_of(reader, self.column)
            if lines is None:
                rest.append(task)
                continue
            total, left = self._known_of(task, reader, answered(self.where, lines))
            if left:
                rest.append(replace(task, blocks=left))
            yield bare(total)

    def _known_of(self, task: ExtentTask, reader: Any, known: Judged) -> tuple[int, tuple[Block, ...]]:
        """Return how many rows of an extent are wanted as far as that is kept, and the blocks that are left."""
        passed, may = known
        if not may.any():
            return 0, ()
        blocks = task.blocks or ()
        counts = reader.kept_counts([block.number for block in blocks], self.column)
        if counts is None:
            return 0, blocks
        is_left = counts[:, may & ~passed].any(axis=1)
        for at, block in enumerate(blocks):
            if is_left[at]:
                self.undecided.add((task.extent.key, block.number))
            elif block.dead is not None or not self._leaves_nothing_open(task.extent, block):
                is_left[at] = True
        left = tuple(block for block, is_one in zip(blocks, is_left.tolist(), strict=True) if is_one)
        return int(counts[~is_left][:, passed].sum()), left

    def glance(self, extent: Extent, block: Block) -> FewRows | int | None:
        """Return how many rows of a block are wanted; else those that may be if they are few."""
        reader: Any = self.reading.footers.open(extent)
        lines = _lines_of(reader, self.column)
        if lines is not None and block.dead is None and (extent.key, block.number) not in self.undecided:
            counts = reader.template_counts(block.number, self.column)
            found = self._count(extent, block, counts, answered(self.where, lines))
            if found is not None:
                return found
        return self.reading.glance(extent, block)

    def without(self, extent: Extent, blocks: Sequence[Block]) -> frozenset[int]:
        """Return the numbers of blocks of which it is known at once that no row matches."""
        return self.reading.without(extent, blocks)

    def tells(self, extent: Extent) -> bool:
        """Whether an extent keeps words or templates of what is asked."""
        return self.reading.tells(extent)

    def is_in_memory(self, extent: Extent) -> bool:
        """Whether a glance at the blocks of an extent finds in memory what it needs, likely."""
        return self.reading.is_in_memory(extent)

    def few(self, rows: FewRows) -> pa.RecordBatch:
        """Read those of some rows that are wanted."""
        return self.reading.few(rows)

    def looked_through(self, extent: Extent, block: Block) -> pa.RecordBatch:
        """Read the wanted rows of a block of which all may match."""
        return self.reading.looked_through(extent, block)

    def _count(self, extent: Extent, block: Block, counts: Any, known: Judged) -> int | None:
        """Return how many rows are wanted; None if there is no telling by templates."""
        passed, may = known
        if not may.any():
            return 0
        if block.dead is not None or counts[may & ~passed].any():
            return None
        return int(counts[passed].sum()) if self._leaves_nothing_open(extent, block) else None

    def _leaves_nothing_open(self, extent: Extent, block: Block) -> bool:
        """Whether statistics prove the other parts of the predicate for all rows of a block."""
        return self.others is None or surviving(self.others, extent, [block.stats]).get(0, False)


def _is_of(leaf: Any, column: str) -> bool:
    return isinstance(leaf, TEXT_TESTS) and leaf.column == column


def _lines_of(reader: Any, column: str) -> Any:
    """Return the templates of a column, if they hold words, and it is kept how many rows have each."""
    lines = reader.lines(column) if hasattr(reader, "template_counts") else None
    return None if lines is None or lines.every_word else lines
