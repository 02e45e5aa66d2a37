"""Turn rows from outside into batches of a table's schema: the door to coercion and to sources.

It does not commit: see ``commit``.
"""

from tidelake.ingest.coerce import (
    TIME_NAMES,
    Coerced,
    Rules,
    coerce_arrow,
    coerce_lines,
    coerce_ndjson,
    coerce_rows,
    infer_schema,
    timed_schema,
)
from tidelake.ingest.files import FileRows, ReadOptions
from tidelake.ingest.source import coerced_stream, first_rows, is_rereadable
from tidelake.model.schema import OVERFLOW_COLUMN

__all__ = [
    "OVERFLOW_COLUMN",
    "TIME_NAMES",
    "Coerced",
    "FileRows",
    "ReadOptions",
    "Rules",
    "coerce_arrow",
    "coerce_lines",
    "coerce_ndjson",
    "coerce_rows",
    "coerced_stream",
    "first_rows",
    "infer_schema",
    "is_rereadable",
    "timed_schema",
]
