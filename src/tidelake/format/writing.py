"""Turn rows into the blocks of an extent, and those into one object.

Rows are checked, sorted by time, cut into blocks and described; a format's ``encode`` turns blocks into bytes while the
statistics are collected, and seals them. The object appears whole at ``finish`` or not at all. Compiled code comes in
with this module, so that those who only read do not load it. It does not choose keys, nor register what it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, SchemaError
from tidelake.format.segment import ExtentWriteResult, WriteOptions, checked_vectors, time_column
from tidelake.model.schema import Column, Schema
from tidelake.objects import ObjectSink
from tidelake.pruning.collector import Collecting
from tidelake.pruning.statistics import UNKNOWN, Stats, column_to_json

BLOCK_BYTES = 64 << 20  # of a block in memory: long rows make shorter blocks
THREADS = 2  # encoding and describing overlap; more threads than that wait for each other
THREADED_ROWS = 4_096  # below it, threads cost more than they save


@dataclass(frozen=True, slots=True)
class Draft:
    """The blocks of an extent, ready to be encoded."""

    extent_id: str
    schema: Schema
    options: WriteOptions
    blocks: Sequence[pa.RecordBatch]
    collecting: Collecting  # of the statistics


Parts: TypeAlias = Sequence[bytes | pa.Buffer]
Seal: TypeAlias = Callable[[Sequence[Stats]], Parts]
Encode: TypeAlias = Callable[[Draft, Executor], Seal]


class BlockWriter:
    """Take rows, and at the end sort, cut, describe and store them.

    ``encode`` is all that formats differ in: it turns blocks into bytes while the statistics are still being collected,
    and gives a function that seals those bytes with them. One that ``knows_words`` begins the statistics of texts.
    """

    def __init__(
        self,
        store: ObjectSink,
        key: str,
        schema: Schema,
        *,
        extent_id: str,
        options: WriteOptions | None,
        encode: Encode,
        knows_words: bool = False,
    ) -> None:
        self._store, self._key, self._schema, self._extent_id = store, key, schema, extent_id
        self._options = options or WriteOptions()
        self._encode, self._knows_words = encode, knows_words
        self._time = time_column(schema, self._options.time)
        self._batches: list[pa.RecordBatch] = []
        self._finished = False

    def append(self, batch: pa.RecordBatch) -> None:
        self._refuse_when_finished()
        self._batches.append(checked(batch, self._schema))

    def finish(self, before_store: Callable[[], None] | None = None) -> ExtentWriteResult:
        self._refuse_when_finished()
        if not any(batch.num_rows for batch in self._batches):
            raise InvalidInputError("an extent needs at least one row", extent=self._extent_id, kind="no_rows")
        blocks = cut_blocks(self._batches, self._time if self._options.sort else None, self._options.block_rows)
        self._batches, self._finished = [], True
        with _executor(sum(block.num_rows for block in blocks)) as pool:
            collecting = Collecting(blocks, self._schema, pool)
            collecting.begin_all(but="string" if self._knows_words else None)
            seal = self._encode(Draft(self._extent_id, self._schema, self._options, blocks, collecting), pool)
            per_block, whole = collecting.finish()
        data = pa.py_buffer(b"".join(seal(per_block)))
        if before_store is not None:
            before_store()
        self._store.put(self._key, data)
        return self._result(data.size, len(blocks), whole)

    def _result(self, byte_size: int, block_count: int, whole: Stats) -> ExtentWriteResult:
        times = whole.columns[self._time.name] if self._time else UNKNOWN
        paths = {path for known in whole.columns.values() for path in known.paths or ()}
        return ExtentWriteResult(
            extent_id=self._extent_id,
            object_path=self._key,
            byte_size=byte_size,
            row_count=whole.rows,
            block_count=block_count,
            min_timestamp_nanos=None if times.low is None else int(times.low),
            max_timestamp_nanos=None if times.high is None else int(times.high),
            present_paths=tuple(sorted(paths)),
            column_stats={name: column_to_json(known) for name, known in sorted(whole.columns.items())},
        )

    def _refuse_when_finished(self) -> None:
        if self._finished:
            raise InvalidInputError("the extent is finished", extent=self._extent_id)


class _InPlace(Executor):
    """Do at once what is submitted: starting threads takes longer than to describe a few rows."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except Exception as error:  # kept for whoever asks for the result, as any executor does
            done.set_exception(error)
        return done


def _executor(rows: int) -> Executor:
    if rows < THREADED_ROWS:
        return _InPlace()
    return ThreadPoolExecutor(THREADS, thread_name_prefix="tidelake-extent")


def checked(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Give a batch exactly the schema's Arrow types, or raise what does not fit."""
    if batch.schema.names != list(schema.names):
        missing = [name for name in schema.names if name not in batch.schema.names]
        extra = [name for name in batch.schema.names if name not in schema]
        facts = {"missing": missing, "unexpected": extra} if missing or extra else {"order": batch.schema.names}
        raise SchemaError("the batch does not have the extent's columns", kind="schema_mismatch", **facts)
    columns = [_checked_column(values, column) for values, column in zip(batch.columns, schema, strict=True)]
    found = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    try:
        found.validate()
        for values in found.columns:
            if not _is_ascii(values):
                values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidInputError("the batch is not valid arrow", reason=error) from error
    return found


def cut_blocks(batches: Sequence[pa.RecordBatch], time: Column | None, block_rows: int) -> list[pa.RecordBatch]:
    """Sort rows by time, stably, unless time is None, and cut them into blocks."""
    table = pa.Table.from_batches([batch for batch in batches if batch.num_rows])
    order = None if time is None else _order_by(table.column(time.name))
    blocks: list[pa.RecordBatch] = []
    start = 0
    while start < table.num_rows:
        rows = min(block_rows, table.num_rows - start)
        block = table.slice(start, rows) if order is None else table.take(order.slice(start, rows))
        while block.nbytes > BLOCK_BYTES and rows > 1:
            rows = (rows + 1) // 2
            block = block.slice(0, rows)
        blocks.append(_as_batch(block))
        start += rows
    return blocks


def _checked_column(values: pa.Array, column: Column) -> pa.Array:
    wanted = column.type.arrow
    if values.null_count and not column.nullable:
        raise SchemaError("null in a column that has none", column=column.name, nulls=values.null_count)
    if values.type == wanted:
        return checked_vectors(values, column) if column.type.kind == "vector" else values
    if column.type.kind == "vector" and pa.types.is_fixed_size_list(values.type):
        if values.type.list_size != column.type.dimension:
            facts = {"expected": column.type.dimension, "found": values.type.list_size}
            raise SchemaError("vector of the wrong length", column=column.name, kind="vector_length", **facts)
        if pa.types.is_float32(values.type.value_type):
            return checked_vectors(values, column)
    raise SchemaError(
        "the batch's type is not the extent's",
        column=column.name,
        expected=wanted,
        found=values.type,
        kind="schema_mismatch",
    )


def _is_ascii(values: pa.Array) -> bool:
    """Whether a column is of texts of ASCII without nulls, and so valid: seen in a seventh of the time."""
    if not pa.types.is_string(values.type) or not len(values):
        return False
    validity, offsets, data = values.buffers()
    if validity is not None or data is None or not data.size:
        return False
    ends = np.frombuffer(offsets, np.int32, values.offset + len(values) + 1)[values.offset :]
    is_within = ends[0] >= 0 and ends[-1] <= data.size and bool((ends[1:] >= ends[:-1]).all())
    return is_within and bool(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].max(initial=0) < 128)


def _order_by(times: pa.ChunkedArray) -> pa.Array | None:
    """Return the stable order by time with nulls last, or None when the rows are in it already."""
    if not times.null_count and _is_ascending([chunk.view(pa.int64()).to_numpy() for chunk in times.chunks]):
        return None
    return pc.sort_indices(times)  # stable, nulls last


def _is_ascending(parts: Sequence[npt.NDArray[np.int64]]) -> bool:
    """Return whether numbers, none of which is less than the one before, go on so from part to part."""
    held = [part for part in parts if len(part)]
    joints = all(before[-1] <= after[0] for before, after in pairwise(held))
    return joints and all(bool((part[1:] >= part[:-1]).all()) for part in held)


def _as_batch(table: pa.Table) -> pa.RecordBatch:
    arrays = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
