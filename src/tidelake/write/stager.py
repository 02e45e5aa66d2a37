"""Stage rows in memory, and cut them into extents that are neither too large nor too small.

Appends, flushes and Spark's tasks write extents by it, and by nothing else. It does not name objects, register them or
commit: whoever holds it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidelake.format import WriteOptions, segment_format
from tidelake.format.segment import BLOCK_ROWS, ExtentWriteResult
from tidelake.model.schema import Schema
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Extent
from tidelake.objects import ObjectSink, ObjectStore
from tidelake.scan.shapes import widened

EXTENT_ROWS = 4_000_000  # a longer append is cut into several extents…
# …as is a larger one, as it lies in memory. Writing takes up to three times as much for a while: of 2 GB of NDJSON the
# whole process held 1,587 MB at most with 512 MB here, 1,000 MB with 256 MB and 652 MB with this.
EXTENT_BYTES = 128 << 20
# Dynamic bytes of a block, as they lie in memory. Of 29,084 events of 2 kB, needles in under 1 % of the rows read up to
# 64 % of the bytes in two blocks, 45 % in 15 and 18 % in such as these; the extent is half as large again for it.
BLOCK_DYNAMIC_BYTES = 768 << 10
MIN_BLOCK_ROWS = 256  # below it, a block's statistics are as large as its rows
COUNTED_BYTES = 256 << 10  # of a batch, above which its own bytes are counted: a slice holds on to more than it needs


@dataclass(slots=True)
class Stager:
    """Rows on their way into extents."""

    store: ObjectStore
    settings: TableSettings
    extent_bytes: int = EXTENT_BYTES
    block_rows: int | None = None  # as many as suit the rows, if not given
    sort: bool = True  # by time; else rows stay in the order in which they come
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    byte_size: int = 0

    @property
    def suffix(self) -> str:
        """How the names of extents end in the table's format."""
        return segment_format(self.settings.extent_format).suffix

    def stage(self, batch: pa.RecordBatch) -> Iterator[None]:
        """Stage rows piece by piece; stops each time that what is staged is to be written."""
        held_bytes = batch.get_total_buffer_size()
        size = held_bytes if held_bytes <= COUNTED_BYTES else batch.nbytes
        pieces = max(1, -(-size // self.extent_bytes))
        step = max(1, -(-batch.num_rows // pieces))
        for start in range(0, batch.num_rows, step):
            piece = batch if pieces == 1 else batch.slice(start, step)
            self.batches.append(piece)
            self.rows += piece.num_rows
            self.byte_size += size if pieces == 1 else piece.nbytes
            if self.rows >= EXTENT_ROWS or self.byte_size >= self.extent_bytes:
                yield

    def write(
        self,
        key: str,
        extent_id: str,
        schema: Schema,
        before_store: Callable[[], None] | None = None,
        *,
        sink: ObjectSink | None = None,
    ) -> Extent:
        """Write what is staged as one extent, to the store or another sink, and return it as the catalog knows it."""
        form = segment_format(self.settings.extent_format)
        fitting = BLOCK_ROWS if form.keeps_paths else block_rows_for(self.batches, self.rows, schema)
        block_rows = fitting if self.block_rows is None else min(self.block_rows, fitting)
        options = WriteOptions(time=self.settings.time, block_rows=block_rows, sort=self.sort)
        writer = form.start_extent(sink or self.store, key, schema, extent_id=extent_id, options=options)
        unpacked_bytes = 0
        for batch in self.batches:
            rows = conformed(batch, schema)
            unpacked_bytes += rows.nbytes
            writer.append(rows)
        self.batches, self.rows, self.byte_size = [], 0, 0
        found = extent_of(writer.finish(before_store), extent_id, key, form.name, schema)
        return replace(found, unpacked_bytes=unpacked_bytes)


def extent_of(
    written: ExtentWriteResult,
    extent_id: str,
    key: str,
    format: str,
    schema: Schema,
) -> Extent:
    """Return an extent that was written as the catalog knows it."""
    return Extent(
        id=extent_id,
        key=key,
        format=format,
        byte_size=written.byte_size,
        row_count=written.row_count,
        block_count=written.block_count,
        min_ts_ns=written.min_timestamp_nanos,
        max_ts_ns=written.max_timestamp_nanos,
        schema_version=schema.version,
        column_stats=written.column_stats,
        present_paths=written.present_paths,
    )


def block_rows_for(staged: Sequence[pa.RecordBatch], rows: int, schema: Schema) -> int:
    """Return the rows of a block: fewer where dynamic values are large, for a block is read to look at one path.

    What counts is the largest such column: a path is in one of them, and the others are not read for it.
    """
    names = [column.name for column in schema if column.type.kind == "dynamic"]
    sizes = [sum(batch.column(name).nbytes for batch in staged if name in batch.schema.names) for name in names]
    size = max(sizes, default=0)
    fitting = BLOCK_ROWS if size <= BLOCK_DYNAMIC_BYTES else rows * BLOCK_DYNAMIC_BYTES // size
    return max(MIN_BLOCK_ROWS, min(BLOCK_ROWS, fitting))


def conformed(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Give rows of an older schema the columns of a wider one."""
    if batch.schema.equals(schema.arrow):
        return batch
    held = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = []
    for column in schema:
        array = held.get(column.name)
        if array is None:
            array = pa.nulls(batch.num_rows, column.type.arrow)
        elif array.type != column.type.arrow:  # only then: Arrow cannot cast null vectors even to their own type
            array = widened(array, column.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def united(batches: Sequence[pa.RecordBatch], schema: Schema) -> pa.RecordBatch:
    """Join rows of several schemas under the widest."""
    parts = [conformed(batch, schema) for batch in batches]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
