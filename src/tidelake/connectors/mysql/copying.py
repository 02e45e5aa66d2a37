"""Copy rows out of MySQL as Arrow batches, unbuffered: every value as MySQL writes it.

It does not know what the rows are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.cursors import SSCursor

from tidelake.connectors.mysql.catalog import identifier, quoted
from tidelake.connectors.mysql.types import MyType, asked, column_of, field_of

PIECE_ROWS = 10_000
PIECE_BYTES = 8 << 20


def copied(
    connection: pymysql.Connection[Any], table: str, columns: Mapping[str, MyType], rest: str = ""
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a table: all, or what follows ``FROM``. The connection decodes nothing: see ``undecoded``."""
    words = ", ".join(asked(identifier(name), kind) for name, kind in columns.items())
    names = list(columns.items())
    with connection.cursor(SSCursor) as cursor:
        cursor.execute(f"SELECT {words} FROM {quoted(table)}{rest}")
        rows = PIECE_ROWS
        while found := cursor.fetchmany(rows):
            yield (piece := _batch(found, names))
            rows = max(min(PIECE_ROWS, PIECE_BYTES * len(found) // max(piece.nbytes, 1)), 1)


def undecoded() -> dict[str, Any]:
    """Return how a connection is opened whose answers are bytes."""
    return {"conv": {}, "use_unicode": False}


def _batch(rows: Any, columns: list[tuple[str, MyType]]) -> pa.RecordBatch:
    arrays, fields = [], []
    for (name, kind), values in zip(columns, zip(*rows, strict=True), strict=True):
        array = column_of(values, kind)
        arrays.append(array)
        fields.append(field_of(name, kind, array))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
