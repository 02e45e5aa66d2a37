"""Read, check and delete rows of a table by their keys.

A deletion appends tombstones, which hide what was there from its commit on. What depends on rows that are in the table,
such as that a key is new, is looked up at one snapshot and committed on top of that very snapshot: if it is the newest
no more, it is looked up again. It does not find rows itself: see ``scan.lookup``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidelake.dynamic.forms import stream_in_form
from tidelake.errors import AlreadyExistsError, InvalidInputError
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import Rules, coerced_stream
from tidelake.logical import shown
from tidelake.model.predicate import Predicate
from tidelake.model.schema import DELETED_COLUMN, DYNAMIC_FIELD, SEQ_COLUMN, Schema
from tidelake.model.snapshot import Extent, Snapshot
from tidelake.scan.lookup import Found, Lookup, key_columns
from tidelake.scan.versions import as_bounds, keys_of
from tidelake.write.appender import Appender
from tidelake.write.flush import see_to_flush
from tidelake.write.keyed import tombstones
from tidelake.write.publish import publish

SHOWN_KEYS = 5  # in an error
_PLAIN = {"int": int, "long": int, "string": str, "bool": bool}  # whose values are what they are stored as


@dataclass(frozen=True, slots=True)
class DeleteKeysReport:
    """What a deletion of keys did."""

    keys: int  # that are no more, whether they were there or not
    snapshot: int
    replayed: bool = False


def asked_keys(snapshot: Snapshot, keys: Any) -> pa.RecordBatch:
    """Return keys as rows of the key columns: from scalars, tuples, mappings, or anything that rows come from."""
    names = keys_of(snapshot)
    if not names:
        raise InvalidInputError("the table has no key: make it with key=[…]", kind="no_key")
    if not hasattr(keys, "__arrow_c_stream__"):
        if isinstance(keys, str | bytes | int | Mapping) or not isinstance(keys, Iterable):
            keys = [keys]
        keys = [_as_mapping(key, names) for key in keys]
        if not keys:
            return pa.RecordBatch.from_pylist([], pa.schema([snapshot.schema.arrow.field(name) for name in names]))
    own = Schema(tuple(snapshot.schema[name] for name in names))
    batches = []
    for coerced in coerced_stream(keys, own, Rules(time=None)):
        if coerced.schema.names != own.names:
            odd = [name for name in coerced.schema.names if name not in own]
            raise InvalidInputError("a key has its key columns alone", unexpected=", ".join(odd), kind="bad_key")
        for name in names:
            if coerced.schema[name].type != own[name].type or coerced.batch.column(name).null_count:
                raise InvalidInputError(f"a key is of type {own[name].type} and not null", column=name, kind="bad_key")
        batches.append(coerced.batch.select(list(names)))
    whole = pa.Table.from_batches(batches, own.arrow).combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], own.arrow)


def find(table: TableHandle, keys: Any) -> list[Found]:
    """Look keys up in the snapshot that reads see now."""
    pinned = table.pinned()  # so that nothing of it is collected meanwhile
    asked = asked_keys(pinned.snapshot, keys)
    if not asked.num_rows:
        return []
    lookup, columns, extents = _looked_up(pinned, asked, is_newest=table.past is None)
    with pinned.reading():
        return lookup.find(columns, extents)


def is_changed_since(table: TableHandle, head: Snapshot, keys: pa.RecordBatch, since: Snapshot) -> bool:
    """Whether one of some keys has a version, at a head, that was not there at an older snapshot."""
    if head.sequence == since.sequence or not keys.num_rows:
        return False
    pinned = replace(table, past=head, held=None).pinned()
    lookup, columns, extents = _looked_up(pinned, keys, is_newest=False)
    with pinned.reading():
        newest, _ = lookup.newest(columns, extents)
    return bool((newest >= since.next_seq).any())


def _looked_up(
    pinned: TableHandle, asked: pa.RecordBatch, *, is_newest: bool
) -> tuple[Lookup, list[pa.Array], list[Extent]]:
    """Return what looks keys up in a pinned table, the keys by column, and the extents that may have them."""
    snapshot = pinned.snapshot
    names = keys_of(snapshot)
    lookup = Lookup(snapshot.schema, names, pinned.footers, pinned.hot(snapshot))
    columns = key_columns(asked, names)
    return lookup, columns, _candidates(pinned, lookup.condition(columns), columns[0], is_newest=is_newest)


def _candidates(pinned: TableHandle, where: Predicate, first: pa.Array, *, is_newest: bool) -> list[Extent]:
    """List the extents that may have some keys: those that the manifest leaves, with what the catalog knows of them."""
    snapshot = pinned.snapshot
    if not snapshot.totals.extents:
        return []
    left = _left_by_manifest(pinned, as_bounds(first.unique())) if is_newest else None
    if left is not None and not left:
        return []
    stats = (*keys_of(snapshot), DELETED_COLUMN)
    return pinned.catalog.extents(pinned.scope, sequence=snapshot.sequence, where=where, stats=stats, ids=left)


def _left_by_manifest(table: TableHandle, sought: Sequence[Any]) -> list[str]:
    """Return the extents whose first keys, by the manifest's bounds, may be among some, which are sorted."""
    snapshot = table.snapshot
    first, *_ = keys_of(snapshot)
    column = snapshot.schema[first].id
    left = []
    for listed in table.lake.manifests.get_or_load(table.scope, snapshot).listed:
        known = listed.segment.column_stats.get(column)
        low, high = (None, None) if known is None else (known.min, known.max)
        is_bounded = low is not None and high is not None and None not in (low.value, high.value)
        if not is_bounded or bisect_left(sought, low.value) < bisect_right(sought, high.value):  # type: ignore[union-attr]
            left.append(listed.extent)
    return left


def get(table: TableHandle, key: Any) -> dict[str, Any] | None:
    """Return the newest version of one row, or None if there is none."""
    pinned = table.pinned()
    snapshot = pinned.snapshot
    names = keys_of(snapshot)
    with pinned.reading():
        found = pinned.lake.points.find(
            snapshot,
            _scalars(snapshot, names, key),
            lambda: pinned.catalog.extents(pinned.scope, sequence=snapshot.sequence, stats=(*names, SEQ_COLUMN)),
            lambda: pinned.hot(snapshot),
        )
    if found is None or found.is_deleted:
        return None
    schema = snapshot.schema
    row = found.rows.slice(found.row, 1)
    arrays = [shown(row.column(column.name), column.type, column.name) for column in schema]
    fields = [
        pa.field(column.name, array.type, metadata=DYNAMIC_FIELD if column.type.kind == "dynamic" else None)
        for column, array in zip(schema, arrays, strict=True)
    ]
    one = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    if any(column.type.kind == "dynamic" for column in schema):
        reader = pa.RecordBatchReader.from_batches(one.schema, [one])
        one = stream_in_form(reader, "json").read_all().to_batches()[0]
    rows: list[dict[str, Any]] = one.to_pylist()
    return rows[0]


def _scalars(snapshot: Snapshot, names: Sequence[str], key: Any) -> list[pa.Scalar]:
    """Return the values of one key in the types of their columns."""
    values = key if isinstance(key, tuple) else (key,)
    if len(values) == len(names) and names:
        types = [snapshot.schema[name].type for name in names]
        if all(
            kind.logical is None and type(value) is _PLAIN.get(kind.kind)
            for kind, value in zip(types, values, strict=True)
        ):
            try:
                return [pa.scalar(value, kind.arrow) for kind, value in zip(types, values, strict=True)]
            except (pa.ArrowException, OverflowError):  # too large: what reads all sorts of values says so
                pass
    asked = asked_keys(snapshot, [key])
    return [asked.column(name)[0] for name in names]


def delete_keys(table: TableHandle, keys: Any, *, key: str | None = None) -> DeleteKeysReport:
    """Write tombstones for keys, as ``Table.delete_keys`` says."""
    table.refuse_when_pinned()
    if key is not None and (receipt := table.catalog.receipt(table.scope, key=key)):
        return DeleteKeysReport(receipt.rows, receipt.sequence, replayed=True)
    head = table.coordinator.head(table.scope)
    asked = asked_keys(head, keys)
    if not asked.num_rows:
        return DeleteKeysReport(0, head.sequence)
    writer = Appender(table, head)
    try:
        writer.take_batch(tombstones({name: asked.column(name) for name in asked.schema.names}, head.schema))
        receipt = publish(table, head, writer.finish(), operation="delete", key=key)
    except BaseException:
        writer.give_up()
        raise
    if receipt.replayed:
        writer.give_up()
        return DeleteKeysReport(receipt.rows, receipt.sequence, replayed=True)
    see_to_flush(table, head)
    if table.lake.after_write is not None:
        table.lake.after_write(table, head)
    return DeleteKeysReport(writer.rows - writer.superseded, receipt.sequence)


def are_new(table: TableHandle, keys: Sequence[pa.RecordBatch]) -> Callable[[Snapshot], None]:
    """Return what raises AlreadyExistsError, which names some, if one of these keys is in a snapshot."""

    def check(head: Snapshot) -> None:
        asked = pa.Table.from_batches(keys).combine_chunks().to_batches()[0]
        pinned = replace(table, past=head, held=None).pinned()
        lookup, columns, extents = _looked_up(pinned, asked, is_newest=True)
        with pinned.reading():
            _, are_seen = lookup.newest(columns, extents)
        held = np.flatnonzero(are_seen)
        if len(held):
            some = asked.take(pa.array(held[:SHOWN_KEYS])).to_pylist()
            shown = "; ".join(", ".join(f"{name}={value!r}" for name, value in row.items()) for row in some)
            raise AlreadyExistsError(
                f"{len(held):,} of the keys are there already: {shown}", table=table.name, keys=len(held),
                kind="key_exists",
            )  # fmt: skip

    return check


def _as_mapping(key: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if isinstance(key, Mapping):
        if key.keys() != set(names):
            raise InvalidInputError("a key has its key columns alone", wanted=", ".join(names), kind="bad_key")
        return key
    values = tuple(key) if isinstance(key, tuple | list) else (key,)
    if len(values) != len(names):
        raise InvalidInputError("a key has a value for each key column", wanted=", ".join(names), kind="bad_key")
    return dict(zip(names, values, strict=True))
