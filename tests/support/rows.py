"""Turn plain rows into Arrow and back, so that tests say what a table holds in Python's own values.

A row maps column names to values: a timestamp is its microseconds since 1970, because Python's own times end at the
year 9999; a dynamic value is its bytes; a vector is a tuple. It does not sort, check or fill anything in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from tidelake.format import ExtentReader, ExtentWriteResult, SegmentFormat, WriteOptions
from tidelake.model.schema import Column, Schema
from tidelake.objects import ObjectStore

Row: TypeAlias = dict[str, Any]

KEY = "data/x.tlm"
EXTENT_ID = "0198c0de-0000-7000-8000-000000000001"


def batch_of(rows: Sequence[Row], schema: Schema) -> pa.RecordBatch:
    """Make a batch of these rows, on exactly the schema's Arrow types."""
    arrays = [_array([row[column.name] for row in rows], column) for column in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows of a batch."""
    columns = [_plain(values) for values in batch.columns]
    names = batch.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def exact(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with every float as its bits in text, so that NaN equals itself and zero has a sign."""
    return [{name: _exact(value) for name, value in row.items()} for row in rows]


def by_time(rows: Iterable[Row], time: str) -> list[Row]:
    """Sort rows as a writer does: stably by time, rows without one at the end."""
    return sorted(rows, key=lambda row: (row[time] is None, row[time] or 0))


def write(
    store: ObjectStore,
    format: SegmentFormat,
    schema: Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    key: str = KEY,
    options: WriteOptions | None = None,
) -> ExtentWriteResult:
    """Write batches as one extent."""
    writer = format.start_extent(store, key, schema, extent_id=EXTENT_ID, options=options)
    for batch in batches:
        writer.append(batch)
    return writer.finish()


def read_all(reader: ExtentReader) -> list[Row]:
    """Read every row of an extent."""
    return [row for block in range(len(reader.metadata().blocks)) for row in rows_of(reader.read_block(block))]


def _array(values: list[Any], column: Column) -> pa.Array:
    kind = column.type.arrow
    if column.type.kind == "timestamp":
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)


def _plain(values: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(values.type):
        return list(values.view(pa.int64()).to_pylist())
    if pa.types.is_fixed_size_list(values.type):
        return [None if value is None else tuple(value) for value in values.to_pylist()]
    return list(values.to_pylist())


def _exact(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    return tuple(map(_exact, value)) if isinstance(value, tuple) else value
