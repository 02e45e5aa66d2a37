"""Read batches of a Parquet file as Arrow, with the instants that older writers did not mark as such.

Spark and others write instants as 96-bit integers, which Arrow reads as times without a zone. They are in UTC, so here
they say so. It does not choose columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet

BATCH_ROWS = 65_536

_FINE = pa.timestamp("ns")


def parquet_batches(
    file: pa.parquet.ParquetFile, row_groups: Sequence[int] | None = None, *, rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file, or of some of its row groups, so many at a time."""
    schema = _zoned_schema(file)
    for batch in file.iter_batches(rows, row_groups=row_groups):
        yield batch if schema is None else batch.cast(schema)


def _zoned_schema(file: pa.parquet.ParquetFile) -> pa.Schema | None:
    """Return the schema with a zone wherever times are 96-bit integers; None if there are none."""
    leaves = [file.schema.column(at) for at in range(len(file.schema))]
    old = {leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}
    if not old:
        return None
    fields = [field.with_type(_zoned(field.type)) if field.name in old else field for field in file.schema_arrow]
    return pa.schema(fields)


def _zoned(kind: pa.DataType) -> pa.DataType:
    if kind == _FINE:
        return pa.timestamp("ns", tz="UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_zoned(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_zoned(kind.key_type), _zoned(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_zoned(kind.value_type)))
    return kind
