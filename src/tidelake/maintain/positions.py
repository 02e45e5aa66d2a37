"""Take rows out of a table by their positions, for those who chose them by more than a condition.

The positions are those of a snapshot that was read before. Its extents and hot batches never change, so they still mean
the same rows, unless another rewrite or a flush has moved these meanwhile: then nothing is taken, and whoever chose
them must choose again. It does not choose rows: see ``delete``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.errors import ConflictError
from tidelake.maintain.rewrite import Rewrite
from tidelake.model.snapshot import Extent
from tidelake.scan.ahead import READ_THREADS
from tidelake.scan.hot import read_hot
from tidelake.scan.remaining import Remaining


def take_positions(rewrite: Rewrite, positions: Mapping[str, Any]) -> int:
    """Take rows out of the snapshot that is rewritten, by extent or hot batch, and return how many they are.

    ConflictError (``rewritten``) if one of those is there no more.
    """
    table = replace(rewrite.table, past=rewrite.head)
    extents = {
        extent.id: extent
        for extent in table.catalog.extents(table.scope, sequence=rewrite.head.sequence, stats=())
        if extent.id in positions
    }
    hot = {batch.id: batch for batch in table.hot(rewrite.head) if batch.id in positions}
    if len(extents) + len(hot) < len(positions):
        raise ConflictError(
            "rows that are to be changed were moved or changed by another commit meanwhile: run it again",
            table=table.name, kind="rewritten",
        )  # fmt: skip
    _, question = table.question(())
    remaining = Remaining.of(question, rewrite.head.schema, table.footers)
    rewrite.take_away(extents.values(), hot.values())
    for extent in extents.values():
        gone = positions[extent.id]
        if len(gone) == extent.row_count:
            continue
        writer = rewrite.writer(level=extent.level)
        for batch in _left(remaining, extent, gone):
            writer.take_batch(batch)
        writer.cut()  # each extent by itself: what was apart in time stays apart
    kept = [_without(rows, positions[batch.id]) for batch in hot.values() for rows in _rows_of(batch)]
    if left := [rows for rows in kept if rows.num_rows]:
        writer = rewrite.writer(keep_hot=True)
        for rows in left:
            writer.take_batch(rows)
    return sum(map(len, positions.values()))


def _left(remaining: Remaining, extent: Extent, gone: Any) -> Iterator[pa.RecordBatch]:
    """Stream the rows of an extent without some, read by a few threads and in their order."""
    rows = [info.stats.rows for info in remaining.footers.open(extent).metadata().blocks]
    starts = np.cumsum([0, *rows])
    cuts = np.searchsorted(gone, starts)
    left = [n for n, count in enumerate(rows) if cuts[n + 1] - cuts[n] < count]

    def read(number: int) -> pa.RecordBatch:
        block = remaining.block(extent, number)
        return _without(block, gone[cuts[number] : cuts[number + 1]] - starts[number])

    with ThreadPoolExecutor(READ_THREADS, thread_name_prefix="tidelake-rewrite") as pool:
        for first in range(0, len(left), 2 * READ_THREADS):
            yield from pool.map(read, left[first : first + 2 * READ_THREADS])


def _rows_of(batch: Any) -> Iterator[pa.RecordBatch]:
    for _, rows in read_hot([batch], lambda names: names):
        yield rows


def _without(batch: pa.RecordBatch, gone: Any) -> pa.RecordBatch:
    if not len(gone):
        return batch
    kept = np.ones(batch.num_rows, np.bool_)
    kept[gone] = False
    return batch.filter(pa.array(kept))
