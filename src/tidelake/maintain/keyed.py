"""Delete, replace and compact rows of a table with a key.

A row that left while an older version of its key stayed behind would bring that one back. So nothing is taken out by a
condition: what it matches is hidden by tombstones, which a compaction lets go of once nothing is left for them to hide.

A compaction unites some extents and keeps the newest version of each key. A tombstone goes when no other extent and no
hot row has a version of its key, and no snapshot is retained from before it, whose reader could still ask what has
changed since. It does not choose what to compact: see ``suffix``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.handle.table_handle import TableHandle
from tidelake.model.predicate import Predicate
from tidelake.model.schema import DELETED_COLUMN, SEQ_COLUMN, Schema
from tidelake.model.snapshot import Action, Extent, Fence, Receipt, Snapshot
from tidelake.model.times import When
from tidelake.pruning.plan import Question
from tidelake.scan.lookup import Lookup, key_columns
from tidelake.scan.shapes import Shape
from tidelake.scan.versions import Looking, inside, is_apart, keys_of, seqs_of
from tidelake.write.appender import Appender
from tidelake.write.keyed import newest_versions, tombstones
from tidelake.write.publish import publish


def hide_rows(
    table: TableHandle,
    head: Snapshot,
    operation: str,
    where: Predicate | str | None = None,
    *,
    start: When | None = None,
    end: When | None = None,
    fence: Fence | None = None,
    newcomers: Callable[[Appender], None] | None = None,
    also: Sequence[Action] = (),
    key: str | None = None,
    id: str | None = None,
) -> tuple[int, Appender, Receipt | None]:
    """Commit tombstones for the rows of a snapshot that match, and after them rows that come in their place.

    Those are staged by ``newcomers``, or are extents that others wrote, which it may add to ``also``.

    It holds on top of that snapshot alone: ConflictError (``moved``) if there is a newer one.
    """
    pinned = replace(table, past=head, held=None).pinned()
    names = list(keys_of(head))
    writer = Appender(table, head)
    hidden = 0
    try:
        for batch in pinned.stored_rows(names, where, start=start, end=end):
            hidden += batch.num_rows
            writer.take_batch(tombstones({name: batch.column(name) for name in names}, head.schema))
        if newcomers is not None:
            newcomers(writer)
        actions = [*writer.finish(), *also]
        if not actions:
            return 0, writer, None
        receipt = publish(table, head, actions, operation=operation, id=id, key=key, fence=fence, is_exact=True)
        return hidden, writer, receipt
    except BaseException:
        writer.give_up()
        raise


def newest_of_run(
    table: TableHandle, head: Snapshot, run: Sequence[Extent], *, keep_idle: bool = True
) -> Iterator[pa.RecordBatch]:
    """Stream the newest versions of some extents in the order of keys, without tombstones that hide nothing.

    Those that a retained snapshot's reader may ask for are kept all the same, unless told otherwise.
    """
    keys = keys_of(head)
    schema = head.schema.with_hidden((SEQ_COLUMN, DELETED_COLUMN))
    looking = Looking(table.footers, head.schema, keys)
    own = {extent.id for extent in run}
    others = [extent for extent in _all_extents(table, head) if extent.id not in own]
    lookup = Lookup(head.schema, keys, table.footers, table.hot(head))
    forgotten = _oldest_seq(table) if keep_idle else head.next_seq
    for window in looking.windows([looking.of_extent(extent) for extent in run]):
        parts = [rows for extent in run for rows in _versions(table, schema, extent, keys[0], window)]
        if not parts:
            continue
        newest = newest_versions(pa.Table.from_batches(parts, schema.arrow).combine_chunks().to_batches()[0], keys)
        left = _without_idle(newest, lookup, others, forgotten)
        if left.num_rows:
            yield left


def _without_idle(rows: pa.RecordBatch, lookup: Lookup, others: Sequence[Extent], forgotten: int) -> pa.RecordBatch:
    """Leave out the tombstones that hide nothing."""
    deleted = rows.column(DELETED_COLUMN)
    candidates = pc.and_(deleted, pc.less(rows.column(SEQ_COLUMN), forgotten))
    if not candidates.true_count:
        return rows
    at = np.flatnonzero(candidates.to_numpy(zero_copy_only=False))
    seqs, _ = lookup.newest(key_columns(rows.take(pa.array(at)), lookup.keys), others)
    idle = at[seqs < 0]
    alive = np.ones(rows.num_rows, np.bool_)
    alive[idle] = False
    return rows.filter(pa.array(alive))


def _versions(
    table: TableHandle, schema: Schema, extent: Extent, first_key: str, window: tuple[Any, Any]
) -> Iterator[pa.RecordBatch]:
    """Read the rows of an extent whose first key lies in a window, with their versions."""
    reader = table.footers.open(extent)
    written = reader.metadata().schema.names
    shape = Shape.of(Question(schema, schema.names), schema.names)
    first = 0
    for number, info in enumerate(reader.metadata().blocks):
        rows, begin = info.stats.rows, (extent.first_seq or 0) + first
        first += rows
        known = info.stats.columns.get(first_key)
        if known is not None and is_apart(known.low, known.high, window):
            continue
        read = reader.read_block(number, shape.written(written))
        batch = shape.conformed(read, written, rows)
        seqs = pa.array(seqs_of(read, begin, rows), pa.int64())
        batch = _set(batch, SEQ_COLUMN, seqs)
        batch = _set(batch, DELETED_COLUMN, batch.column(DELETED_COLUMN).fill_null(False))
        yield batch if window == (None, None) else batch.filter(inside(batch.column(first_key), window))


def _set(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    at = batch.schema.names.index(name)
    return batch.set_column(at, batch.schema.field(at), values)


def _all_extents(table: TableHandle, head: Snapshot) -> list[Extent]:
    return table.catalog.extents(table.scope, sequence=head.sequence, stats=(*keys_of(head), DELETED_COLUMN))


def _oldest_seq(table: TableHandle) -> int:
    """Return the version that the oldest retained snapshot would have given next: no reader asks for changes before."""
    oldest_us = table.catalog.retained(table.scope, before_us=0).oldest_us
    if oldest_us is None:
        return 0
    return table.catalog.snapshot(table.scope, at_us=oldest_us).next_seq
