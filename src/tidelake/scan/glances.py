"""Read blocks of which a search needs few rows, those of neighbouring blocks at once.

Which rows of a block may match is often known by words and templates, before any row is read. So all blocks are glanced
at first, some at once and a bounded number ahead of what is read; then the rows that may match are read together, and
blocks that leave all rows open are read as ever. It does not say how blocks are glanced at or read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa

from tidelake.model.snapshot import Extent
from tidelake.pruning.plan import Block, ExtentTask
from tidelake.scan.ahead import Piece, read_ahead
from tidelake.scan.block_cache import ReadsDistinct
from tidelake.scan.few_rows import FewRows
from tidelake.scan.shapes import bare

# Of an extent in memory; the first ones are fewer, so that a query of few rows need not wait. Where blocks have to be
# fetched they are taken one by one: what is fetched ahead for such a query is for nothing.
BLOCKS_AT_ONCE = 8
ROWS_AT_ONCE = 8_192


class Glancing(Protocol):
    """How the blocks of one question are read."""

    def glance(self, extent: Extent, block: Block) -> FewRows | int | None:
        """Return the rows of a block that may match if they are few, or how many do if nothing else is asked."""
        ...

    def tells(self, extent: Extent) -> bool:
        """Whether an extent keeps words or templates of what is asked."""
        ...

    def without(self, extent: Extent, blocks: Sequence[Block]) -> frozenset[int]:
        """Return the numbers of blocks of which it is known at once that no row matches."""
        ...

    def is_in_memory(self, extent: Extent) -> bool:
        """Whether a glance at the blocks of an extent finds in memory what it needs, likely."""
        ...

    def few(self, rows: FewRows) -> pa.RecordBatch:
        """Read those of some rows that are wanted."""
        ...

    def looked_through(self, extent: Extent, block: Block) -> pa.RecordBatch:
        """Read the wanted rows of a block of which all may match."""
        ...


def glanced(tasks: Iterable[ExtentTask], reading: Glancing) -> Iterator[Piece[pa.RecordBatch]]:
    """Yield what is to be read of blocks, in their order; rows that are only counted come last."""
    counted, held, at_once = 0, list[tuple[Block, FewRows]](), 1
    for extent, block, known in _known(tasks, reading):
        if isinstance(known, int):
            counted += known
            continue
        is_next = known is not None and (not held or held[0][1].reader is known.reader)
        if held and not (is_next and len(held) < at_once and sum(len(few) for _, few in held) < ROWS_AT_ONCE):
            yield (piece := _together(held, reading))
            held, at_once = [], min(at_once * 2, BLOCKS_AT_ONCE) if piece.is_quick else 1
        if known is None:
            yield Piece(partial(reading.looked_through, extent, block), block.needed_bytes)
        elif len(known):
            held.append((block, known))
    if held:
        yield _together(held, reading)
    yield Piece(partial(bare, counted), 0)


def _together(held: Sequence[tuple[Block, FewRows]], reading: Glancing) -> Piece[pa.RecordBatch]:
    """Return a piece of the few rows of some blocks of an extent."""
    first = held[0][1]
    rows = FewRows(first.reader, tuple(part for _, few in held for part in few.parts))
    is_quick = isinstance(first.reader, ReadsDistinct) and first.reader.has_pages
    return Piece(partial(reading.few, rows), sum(block.needed_bytes for block, _ in held), is_quick=is_quick)


def _known(tasks: Iterable[ExtentTask], reading: Glancing) -> Iterator[tuple[Extent, Block, FewRows | int | None]]:
    """Yield blocks with what is known of them at a glance."""

    def glances(extent: Extent, blocks: Sequence[Block]) -> list[tuple[Extent, Block, FewRows | int | None]]:
        gone = reading.without(extent, blocks)
        return [(extent, block, reading.glance(extent, block)) for block in blocks if block.number not in gone]

    def pieces() -> Iterator[Piece[list[tuple[Extent, Block, FewRows | int | None]]]]:
        size = 1
        for task in tasks:
            blocks, at = task.blocks or (), 0
            if not reading.tells(task.extent):
                nothing = [(task.extent, block, None) for block in blocks]
                yield Piece(partial(list, nothing), 0, is_quick=True)
                continue
            is_quick = reading.is_in_memory(task.extent)
            while at < len(blocks):
                yield Piece(partial(glances, task.extent, blocks[at : at + size]), 0, is_quick=is_quick)
                at, size = at + size, min(size * 2, BLOCKS_AT_ONCE) if is_quick else 1

    for _, found in read_ahead(pieces()):
        yield from found
