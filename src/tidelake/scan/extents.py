"""Turn a plan into Arrow batches. This is the only reader of extents.

Footers are read side by side and kept in a small cache; blocks are read and filtered by a few threads, a bounded number
ahead of the consumer, and handed on in the plan's order. In time order, blocks are merged as they come: a row is given
once no later block can begin before it, so memory holds what overlaps in time and not the table. It does not plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.format import ExtentReader
from tidelake.logical import shown
from tidelake.model.expression import Distance
from tidelake.model.path_value import PathValue
from tidelake.model.schema import Schema, told_apart
from tidelake.pruning.plan import Block, ExtentTask, Question, ScanPlan, surviving, with_blocks
from tidelake.scan.ahead import READ_THREADS, Piece, read_ahead
from tidelake.scan.block_reading import Reading
from tidelake.scan.candidates import texts_asked
from tidelake.scan.counted_lines import CountedLines
from tidelake.scan.counted_reading import CountedReading
from tidelake.scan.evaluate import measured
from tidelake.scan.footers import Footers
from tidelake.scan.glances import glanced
from tidelake.scan.path_columns import paths_in, paths_shown, whole_needed
from tidelake.scan.shapes import Shape, given_field
from tidelake.scan.stored_rows import joined, paths_size_of

LAST_NS = 2**63


def prune_blocks(plan: ScanPlan, footers: Footers, *, prune: bool = True) -> ScanPlan:
    """Read the footers of a plan's extents and drop the blocks they disprove, or none of them."""
    question = plan.question
    shape = Shape.of(question, whole_needed(question), paths_in(question.where) | paths_shown(question))

    def blocks_of(task: ExtentTask) -> list[Block]:
        reader = footers.open(task.extent)
        infos = reader.metadata().blocks
        stats = [info.stats for info in infos]
        first_rows = np.cumsum([0, *(each.rows for each in stats)])
        kept = surviving(plan.question, task.extent, stats) if prune else dict.fromkeys(range(len(infos)), False)
        return [
            Block(
                number,
                stats[number],
                byte_size=sum(piece.length for piece in infos[number].pieces.values()),
                needed_bytes=_needed_bytes(reader, number, shape),
                proven=proven,
                first_row=int(first_rows[number]),
                dead=_dead_between(task.dead, int(first_rows[number]), int(first_rows[number + 1])),
            )
            for number, proven in kept.items()
        ]

    if sum(not footers.holds(task.extent) for task in plan.tasks) <= 1:  # a thread costs more than a kept footer
        with plan.reading:
            found = list(map(blocks_of, plan.tasks))
    else:
        with plan.reading, ThreadPoolExecutor(READ_THREADS, thread_name_prefix="tidelake-footer") as pool:
            found = list(pool.map(blocks_of, plan.tasks))
    blocks = {task.extent.id: blocks for task, blocks in zip(plan.tasks, found, strict=True)}
    return with_blocks(plan, blocks)


def _needed_bytes(reader: ExtentReader, number: int, shape: Shape) -> int:
    pieces = reader.metadata().blocks[number].pieces
    return sum(piece.length for name, piece in pieces.items() if name in shape.sources) + paths_size_of(
        reader, number, shape
    )


def scan(plan: ScanPlan, footers: Footers) -> pa.RecordBatchReader:
    """Stream the rows of a plan whose blocks are known, as they are stored."""
    question = plan.question
    schema = output_schema(question)
    batches = _held(plan, _ordered(plan, footers) if question.ordered_by else _unordered(plan, footers))
    if question.limit is not None:
        batches = _limited(batches, question.limit)
    projected = (_projected(question, batch, schema) for batch in batches)
    return pa.RecordBatchReader.from_batches(schema, projected)


def _held(plan: ScanPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep what is read retained until the last of it is."""
    with plan.reading:
        yield from batches


def scan_shown(plan: ScanPlan, footers: Footers) -> pa.RecordBatchReader:
    """Stream the rows of a plan as readers see them: in the logical types of their columns."""
    question, rows = plan.question, scan(plan, footers)
    kinds = [None if name in question.computed else question.schema[name].type for name in question.columns]
    if all(kind is None or kind.logical is None for kind in kinds):
        return rows
    fields = [
        field if kind is None or kind.logical is None else pa.field(field.name, kind.shown)
        for field, kind in zip(rows.schema, kinds, strict=True)
    ]
    schema = pa.schema(fields)
    batches = (
        pa.RecordBatch.from_arrays(
            [
                array if kind is None else shown(array, kind, field.name)
                for array, kind, field in zip(batch.columns, kinds, fields, strict=True)
            ],
            schema=schema,
        )
        for batch in rows
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def without_cases(rows: pa.RecordBatchReader, schema: Schema) -> pa.RecordBatchReader:
    """Name a table's columns for engines to which case tells nothing; see ``schema.told_apart``."""
    given = told_apart(schema.names)
    names = [given.get(name, name) for name in rows.schema.names]
    if names == rows.schema.names:
        return rows
    renamed = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    return pa.RecordBatchReader.from_batches(renamed, (batch.rename_columns(names) for batch in rows))


def output_schema(question: Question) -> pa.Schema:
    """Return the Arrow schema of a scan's batches."""
    fields = [
        _computed_field(name, question.computed[name]) if name in question.computed else given_field(question, name)
        for name in question.columns
    ]
    return pa.schema(fields if question.counted is None else [*fields, pa.field(question.counted, pa.int64())])


def _projected(question: Question, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns that were asked for, and compute those that no table has."""
    if not question.computed:
        return batch.select(list(question.columns))
    arrays = [
        measured(each.metric, each.query, batch.column(each.column))
        if isinstance(each := question.computed.get(name), Distance)
        else batch.column(name)
        for name in question.columns
    ]
    if question.counted is not None:
        arrays.append(batch.column(question.counted))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _pieces(question: Question, tasks: Iterable[ExtentTask], reading: Reading) -> list[Piece[pa.RecordBatch]]:
    return [
        Piece(partial(reading.block, task.extent, block), block.needed_bytes, _first_ns(question, block))
        for task in tasks
        for block in task.blocks or ()
    ]


def _hot_piece(plan: ScanPlan, reading: Reading) -> list[Piece[pa.RecordBatch]]:
    if not plan.hot:
        return []
    return [Piece(partial(reading.hot, plan.hot, plan.dead_hot), sum(len(batch.payload) for batch in plan.hot))]


def _dead_between(dead: Any, first: int, end: int) -> Any:
    """Return which positions of an extent lie in a block, counted from its beginning."""
    if dead is None:
        return None
    low, high = np.searchsorted(dead, (first, end))
    return dead[low:high] - first if high > low else None


def _unordered(plan: ScanPlan, footers: Footers) -> Iterator[pa.RecordBatch]:
    reading, tasks, rest = Reading.of(plan.question, footers), plan.tasks, list[ExtentTask]()
    lines = CountedLines.of(plan.question, reading)
    if (counting := CountedReading.of(reading) or lines) is not None:
        yield from (batch for batch in counting.batches(tasks, rest) if batch.num_rows)
        tasks = tuple(rest)
    is_glanced = lines is not None or bool(texts_asked(reading.where))
    pieces = glanced(tasks, lines or reading) if is_glanced else _pieces(plan.question, tasks, reading)
    for _, batch in read_ahead(chain(pieces, _hot_piece(plan, reading))):
        if batch.num_rows:
            yield batch


def _ordered(plan: ScanPlan, footers: Footers) -> Iterator[pa.RecordBatch]:
    """Merge blocks by time: rows before the beginning of every block still to come are final."""
    time = plan.question.ordered_by
    reading = Reading.of(plan.question, footers)
    found = _pieces(plan.question, plan.tasks, reading) + _hot_piece(plan, reading)
    pieces = sorted(found, key=lambda piece: -LAST_NS if piece.first_ns is None else piece.first_ns)
    held: list[pa.RecordBatch] = []
    for piece, batch in read_ahead(pieces):
        if held and piece.first_ns is not None:
            final, rest = _split_before(_sorted(held, time), time, piece.first_ns)
            if final.num_rows:
                yield final
            held = [rest] if rest.num_rows else []
        if batch.num_rows:
            held.append(batch)
    if held:
        yield _sorted(held, time)


def _limited(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows


def _first_ns(question: Question, block: Block) -> int | None:
    known = block.stats.columns.get(question.ordered_by) if question.ordered_by else None
    low: Any = known.low if known is not None else None
    return low if isinstance(low, int) else None


def _sorted(batches: Sequence[pa.RecordBatch], time: str | None) -> pa.RecordBatch:
    whole = joined(batches)
    return whole.take(pc.sort_indices(whole.column(time)))


def _split_before(batch: pa.RecordBatch, time: str | None, ns: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Split sorted rows at a time; rows without a time come last."""
    before = pc.sum(pc.less(batch.column(time).cast(pa.int64()), -(-ns // 1000))).as_py() or 0
    return batch.slice(0, before), batch.slice(before)


def _computed_field(name: str, computed: Distance | PathValue) -> pa.Field:
    return pa.field(name, computed.arrow if isinstance(computed, PathValue) else pa.float64())
