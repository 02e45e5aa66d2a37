"""Commit what a stream brought, rows of several shapes and deletions of keys, with how far it is, all at once.

An append is one batch after another of one shape; a stream of changes may alter its shape midway, and of a table with a
key it also takes rows away. It does not know where the stream comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tidelake.errors import ConflictError
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import Rules, coerced_stream
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import RecordOffset, UpdateTable
from tidelake.write.alter import WIDENING_TRIES
from tidelake.write.append import AppendReport, after_append
from tidelake.write.appender import Appender
from tidelake.write.keyed import tombstones
from tidelake.write.publish import publish
from tidelake.write.upsert import asked_keys


def land(
    table: TableHandle,
    rows: Iterable[pa.RecordBatch],
    *,
    deleted: pa.Table | None = None,
    offsets: Sequence[RecordOffset | UpdateTable] = (),
) -> AppendReport:
    """Commit rows, and deletions of keys that come before them; what is read once is tried once."""
    table.refuse_when_pinned()
    for tries in reversed(range(WIDENING_TRIES)):
        try:
            return _land(table, rows, deleted, offsets)
        except ConflictError as error:  # another writer gave a new field another type
            if error.kind != "schema" or not tries or not isinstance(rows, Sequence):
                raise
    raise AssertionError("the last try returns or raises")


def _land(
    table: TableHandle,
    rows: Iterable[pa.RecordBatch],
    deleted: pa.Table | None,
    offsets: Sequence[RecordOffset | UpdateTable],
) -> AppendReport:
    head = table.catalog.head(table.scope)
    writer = Appender(table, head)
    rules = Rules(time=TableSettings.of(head.settings).time, exact=writer, max_new_columns=1000)
    is_offered = False
    try:
        if deleted is not None and deleted.num_rows:
            keys = asked_keys(head, deleted)
            writer.take_batch(tombstones({name: keys.column(name) for name in keys.schema.names}, head.schema))
        for batch in rows:
            for coerced in coerced_stream(batch, writer.schema, rules):
                writer.take(coerced)
        actions = [*writer.finish(), *offsets]
        if not actions:
            return AppendReport(0, head.sequence, 0)
        is_offered = True
        receipt = publish(table, head, actions, claims=writer.claims())
    except BaseException:
        if is_offered:
            writer.give_up()
        else:
            writer.discard()
        raise
    if receipt.replayed:
        writer.give_up()
        return AppendReport(receipt.rows, receipt.sequence, receipt.extents, replayed=True, commit=receipt.commit_id)
    after_append(table, head, has_extents=bool(writer.extents))
    return AppendReport(
        writer.rows - writer.superseded,
        receipt.sequence,
        writer.extents,
        superseded=writer.superseded,
        overflowed=writer.overflowed,
        changes=writer.changes(),
        commit=receipt.commit_id,
    )
