"""Tell what has changed in a table with a key since a snapshot: one row for each key that is not as it was.

Both snapshots are resolved, and the versions that readers see in them compared, so that the answer is right whatever
lies between them: flushes and compactions change nothing, and a key that was restored to an older version is a change.
Applied to what the first snapshot held, the rows give what the second holds. A key that changed several times is told
once, as it is in the end. It does not follow a table: who does asks again from the snapshot that it was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.handle.table_handle import TableHandle
from tidelake.logical import shown
from tidelake.model.predicate import Range
from tidelake.model.schema import SEQ_COLUMN
from tidelake.model.snapshot import Snapshot
from tidelake.scan.key_codes import Numbers, codes_of
from tidelake.scan.versions import keys_of

OP_COLUMN = "_op"
INSERT, UPDATE, DELETE = "insert", "update", "delete"


def changes(table: TableHandle, since: int | str | None = None) -> pa.RecordBatchReader:
    """Stream what has changed since a snapshot, or since the table was empty, as ``Table.changes`` says."""
    head = table.pinned()
    if not head.snapshot.is_keyed:
        raise InvalidInputError("only a table with a key can tell what changed", table=table.name, kind="no_key")
    past = None if since is None else _past(table, since)
    if past is not None and past.snapshot.sequence > head.snapshot.sequence:
        raise InvalidInputError(
            "the snapshot is newer than what is read", since=past.snapshot.sequence, at=head.snapshot.sequence
        )
    names = head.snapshot.schema.names
    kinds = [head.snapshot.schema[name].type for name in names]
    fields = [pa.field(name, kind.shown) for name, kind in zip(names, kinds, strict=True)]
    schema = pa.schema([*fields, pa.field(SEQ_COLUMN, pa.int64()), pa.field(OP_COLUMN, pa.string())])

    def as_shown(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [shown(batch.column(name), kind, name) for name, kind in zip(names, kinds, strict=True)]
        return pa.RecordBatch.from_arrays([*arrays, *batch.columns[len(names) :]], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, map(as_shown, _changed(head, past)))


def _past(table: TableHandle, since: int | str) -> TableHandle:
    scope = table.scope
    snapshot: Snapshot = (
        table.catalog.snapshot(scope, sequence=since)
        if isinstance(since, int)
        else table.catalog.snapshot(scope, snapshot_id=since)
    )
    return replace(table, past=snapshot, held=None).pinned()


def _changed(head: TableHandle, past: TableHandle | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows that came or changed, with their versions and what became of them; then those that went."""
    keys = keys_of(head.snapshot)
    now, now_seqs = _versions(head)
    then, then_seqs = (
        (now.slice(0, 0), np.empty(0, np.int64)) if past is None or not past.snapshot.is_keyed else _versions(past)
    )
    joined = pa.concat_tables([then, now]).combine_chunks()
    columns = [_flat(joined.column(name)) for name in keys]
    codes, count = codes_of(columns) if len(joined) else (np.empty(0, np.int64), 0)
    before, after = (np.full(count, -1) for _ in range(2))
    before[codes[: len(then)]], after[codes[len(then) :]] = then_seqs, now_seqs
    is_changed = (after >= 0) & (after != before)
    fresh = np.sort(after[is_changed])
    was_there = np.sort(after[is_changed & (before >= 0)])
    if len(fresh):
        names = list(head.snapshot.schema.names)
        where = Range(SEQ_COLUMN, int(fresh[0]), int(fresh[-1]))
        for batch in head.stored_rows([*names, SEQ_COLUMN], where):
            seqs = batch.column(SEQ_COLUMN).to_numpy()
            left = batch.filter(pa.array(_are_in(seqs, fresh)))
            if left.num_rows:
                known = _are_in(left.column(SEQ_COLUMN).to_numpy(), was_there)
                yield left.append_column(OP_COLUMN, pa.array(np.where(known, UPDATE, INSERT), pa.string()))
    gone = (before >= 0) & (after < 0)
    at = np.flatnonzero(gone[codes[: len(then)]])
    if len(at):
        yield _deletions(head, then.take(pa.array(at)))


def _versions(table: TableHandle) -> tuple[pa.Table, Numbers]:
    """Return the keys that readers of a snapshot see, and the version of each."""
    found = table.stored_rows([*keys_of(table.snapshot), SEQ_COLUMN]).read_all()
    return found.drop_columns([SEQ_COLUMN]), _flat(found.column(SEQ_COLUMN)).to_numpy()


def _deletions(head: TableHandle, keys: pa.Table) -> pa.RecordBatch:
    """Return rows that say of keys that they are no more."""
    rows = len(keys)
    arrays = [
        _flat(keys.column(column.name)) if column.name in keys.column_names else pa.nulls(rows, column.type.arrow)
        for column in head.snapshot.schema
    ]
    arrays += [pa.nulls(rows, pa.int64()), pa.array([DELETE] * rows, pa.string())]
    return pa.RecordBatch.from_arrays(arrays, names=[*head.snapshot.schema.names, SEQ_COLUMN, OP_COLUMN])


def _flat(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _are_in(values: Numbers, ordered: Numbers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which of some numbers are among others, which are sorted."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = ordered[places] == values
    return found
