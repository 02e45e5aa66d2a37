"""Read a column of JSON texts as the values of a dynamic column, compiled.

Queries and scans give dynamic values as JSON text, in a field that says so (``JSON_FIELD``): appended again, they are
the values they were. It does not guess that a text is JSON.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ingest.json.columns import Lines
from tidelake.model.schema import JSON_FIELD, DataType

_NAME = "v"


def is_json(field: pa.Field) -> bool:
    """Whether a field says that its texts are JSON."""
    metadata = field.metadata or {}
    return all(metadata.get(key) == value for key, value in JSON_FIELD.items())


def dynamic_of_json(texts: pa.Array) -> pa.Array:
    """Return JSON texts as CBOR, null where there is none; a text that is not JSON is InvalidInputError."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.binary())
    on_one_line = pc.replace_substring(pc.fill_null(texts, "null"), "\n", " ")
    lines = pc.binary_join_element_wise(f'{{"{_NAME}":', on_one_line, "}\n", "")
    data = np.frombuffer(lines.buffers()[2], dtype=np.uint8)[: pc.sum(pc.binary_length(lines)).as_py()]
    read = Lines(data, (_NAME,))
    has_values = _NAME in list(read.names())
    return read.column(_NAME, DataType("dynamic")) if has_values else pa.nulls(len(texts), pa.binary())
