"""Fit rows to a table with a key: every row has one, no two rows of an extent share one, and extents are in its order.

Of rows with one key the last is kept: an append takes the place of what was there, and the last row of an append that
of those before it. It does not look at rows that are in the table: see ``scan.versions``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError, SchemaError
from tidelake.model.schema import DELETED_COLUMN, HIDDEN_IDS, SEQ_COLUMN, Schema
from tidelake.scan.hot import hot_groups
from tidelake.scan.key_codes import last_of_each
from tidelake.scan.versions import seqs_of

BLOCK_ROWS = 8_192  # of an extent of a table with a key: a point read decodes one block


def check_keys(batch: pa.RecordBatch, key: Sequence[str], held: Schema, wanted: Schema, *, first_row: int) -> None:
    """Refuse rows without a key, keys of another type than the table's, and columns that the table gives itself."""
    for name in HIDDEN_IDS:
        if name in wanted:
            raise InvalidInputError("a table with a key gives this column itself", column=name, kind="bad_key")
    for name in key:
        if wanted[name].type != held[name].type:
            raise SchemaError(
                "a key column keeps its type", column=name, has=held[name].type, wanted=wanted[name].type,
                kind="key_type",
            )  # fmt: skip
        column = batch.column(name)
        if column.null_count:
            row = first_row + int(pc.index(column.is_null(), True).as_py())
            raise InvalidInputError(
                f"every row of a table with a key has one of type {held[name].type}", column=name, row=row,
                kind="no_key",
            )  # fmt: skip


def newest_rows(batch: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Leave out the rows that a later one takes the place of."""
    kept = last_of_each([batch.column(name) for name in key])
    return batch if len(kept) == batch.num_rows else batch.take(pa.array(kept))


def in_key_order(batch: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Sort rows by their key."""
    order = pc.sort_indices(pa.Table.from_batches([batch]), [(name, "ascending") for name in key])
    return batch.take(order)


def newest_versions(batch: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Of rows whose versions are known, keep the newest of each key, in the order of keys."""
    order = pc.sort_indices(batch.column(SEQ_COLUMN))
    return in_key_order(newest_rows(batch.take(order), key), key)


def hot_versions(hot: Sequence[Any]) -> list[pa.RecordBatch]:
    """Decode hot rows with their versions."""
    found = []
    for _, rows, batches in hot_groups(hot, lambda names: names):
        at = 0
        for batch in batches:
            own = rows.slice(at, batch.rows)
            at += batch.rows
            seqs = pa.array(seqs_of(own, batch.first_seq or 0, batch.rows), pa.int64())
            if SEQ_COLUMN in own.schema.names:
                place = own.schema.names.index(SEQ_COLUMN)
                found.append(own.set_column(place, own.schema.field(place), seqs))
            else:
                found.append(own.append_column(pa.field(SEQ_COLUMN, pa.int64()), seqs))
    return found


def told_of_deletion(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Say of every row whether it is a tombstone, where some are: what is stored has statistics that must be true."""
    if DELETED_COLUMN not in rows.schema.names:
        return rows
    at = rows.schema.names.index(DELETED_COLUMN)
    return rows.set_column(at, rows.schema.field(at), rows.column(at).fill_null(False))


def tombstones(keys: Mapping[str, pa.Array], schema: Schema) -> pa.RecordBatch:
    """Return rows that say of some keys that they are no more."""
    rows = len(next(iter(keys.values())))
    arrays = [keys[column.name] if column.name in keys else pa.nulls(rows, column.type.arrow) for column in schema]
    shown = schema.with_hidden([DELETED_COLUMN])
    return pa.RecordBatch.from_arrays([*arrays, pa.array([True] * rows, pa.bool_())], schema=shown.arrow)
