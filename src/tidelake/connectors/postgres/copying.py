"""Copy rows out of PostgreSQL as Arrow batches, by ``COPY … (FORMAT csv)``: every value as its type writes it.

It does not know what the rows are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv as csv
from psycopg import sql

from tidelake.connectors.postgres.types import PgType, column_of, is_json
from tidelake.connectors.protocol import SourceTable
from tidelake.model.schema import JSON_FIELD

PIECE_BYTES = 8 << 20


def copied(
    connection: psycopg.Connection[Any],
    table: SourceTable,
    types: Sequence[PgType],
    where: sql.Composable | None = None,
) -> Iterator[tuple[pa.Table, pa.RecordBatch]]:
    """Yield the rows of a table, as texts and in their types; all of them, or what follows ``FROM``."""
    columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
    query = sql.SQL("SELECT {} FROM {}{}").format(
        columns, sql.Identifier(*table.name.split(".", 1)), sql.SQL("") if where is None else where
    )
    yield from copied_query(connection, query, tuple(table.columns), types)


def copied_query(
    connection: psycopg.Connection[Any], query: sql.Composable, names: Sequence[str], types: Sequence[PgType]
) -> Iterator[tuple[pa.Table, pa.RecordBatch]]:
    """Yield the answer of a query, a piece at a time."""
    command = sql.SQL("COPY ({}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)").format(query)
    with connection.cursor().copy(command) as copy:
        lines, size = list[bytes](), 0
        for line in copy:
            lines.append(bytes(line))
            size += len(line)
            if size >= PIECE_BYTES:
                yield _read(b"".join(lines), names, types)
                lines, size = [], 0
        if lines:
            yield _read(b"".join(lines), names, types)


def _read(data: bytes, names: Sequence[str], types: Sequence[PgType]) -> tuple[pa.Table, pa.RecordBatch]:
    own = [f"c{at}" for at in range(len(names))]
    texts = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(column_names=own, block_size=len(data) + 1, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(own, pa.string()), null_values=[""], strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ).combine_chunks().rename_columns(list(names))  # fmt: skip
    arrays, fields = [], []
    for at, (name, kind) in enumerate(zip(names, types, strict=True)):
        column = texts.column(at)
        array = column_of(column.chunk(0) if column.num_chunks else pa.array([], pa.string()), kind)
        arrays.append(array)
        fields.append(pa.field(name, array.type, metadata=JSON_FIELD if is_json(kind) else None))
    return texts, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
