"""Write rows as JSON, NDJSON, CSV, Parquet or Arrow, a batch at a time.

A dynamic value is nested in JSON, and its text in CSV. A time is RFC 3339 in UTC. It does not run queries, and does not
know where the bytes go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from tidelake.model.schema import DYNAMIC_FIELD
from tidelake.query.json_rows import column_texts, is_marked, plain_texts, row_texts

GROUP_ROWS, GROUP_BYTES = 131_072, 32 << 20  # of a Parquet row group, whichever is reached first


def write_rows(reader: pa.RecordBatchReader, form: str, out: IO[bytes]) -> None:
    """Write rows in a format of ``FORMATS``."""
    _WRITERS[form](reader, out)


def _write_json(reader: pa.RecordBatchReader, out: IO[bytes]) -> None:
    is_first = True
    for batch in reader:
        for piece in row_texts(batch, before=",\n  "):
            out.write(b"[" if is_first else b",")
            out.write(piece[1:])
            is_first = False
    out.write(b"[]\n" if is_first else b"\n]\n")


def _write_ndjson(reader: pa.RecordBatchReader, out: IO[bytes]) -> None:
    for batch in reader:
        for piece in row_texts(batch, after="\n"):
            out.write(piece)


def _write_csv(reader: pa.RecordBatchReader, out: IO[bytes]) -> None:
    schema = pa.schema([pa.field(field.name, _csv_type(field.type)) for field in reader.schema])
    with pa.csv.CSVWriter(out, schema) as writer:
        for batch in reader:
            columns = [_csv_column(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _csv_type(kind: pa.DataType) -> pa.DataType:
    plain = pa.types.is_primitive(kind) and not pa.types.is_temporal(kind)
    return kind if plain or pa.types.is_string(kind) else pa.string()


def _csv_column(field: pa.Field, column: pa.Array) -> pa.Array:
    """Return a column as CSV can hold it: numbers and text as they are, times as text, all else as JSON text."""
    if isinstance(column, pa.ExtensionArray) or pa.types.is_large_string(column.type):
        column = (column.storage if isinstance(column, pa.ExtensionArray) else column).cast(pa.string())
    if _csv_type(column.type) == column.type:
        return column
    if (plain := plain_texts(column)) is not None:
        return plain
    texts = column_texts(field, column)
    if not pa.types.is_nested(column.type) and not is_marked(field, DYNAMIC_FIELD):
        texts = pc.utf8_trim(texts, '"')  # bytes as base64, a duration: no letter of theirs is escaped
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def _write_parquet(reader: pa.RecordBatchReader, out: IO[bytes]) -> None:
    with pa.parquet.ParquetWriter(out, reader.schema, compression="zstd") as writer:
        for table in _gathered(reader):
            writer.write_table(table)


def _gathered(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield batches together, as many as a row group should have."""
    held: list[pa.RecordBatch] = []
    for batch in reader:
        held.append(batch)
        if sum(each.num_rows for each in held) >= GROUP_ROWS or sum(each.nbytes for each in held) >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _write_arrow(reader: pa.RecordBatchReader, out: IO[bytes]) -> None:
    with pa.ipc.new_stream(out, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


_WRITERS = {
    "json": _write_json,
    "ndjson": _write_ndjson,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "arrow": _write_arrow,
}

FORMATS = tuple(_WRITERS)
