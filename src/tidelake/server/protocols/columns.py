"""Make batches of rows whose columns a protocol knows.

It does not convert values that do not fit: those are for ``ingest``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from tidelake.dynamic.values import encode
from tidelake.errors import InvalidInputError
from tidelake.model.schema import DYNAMIC_FIELD, JSON_FIELD
from tidelake.server.call import Shape

INSTANT = pa.timestamp("us", tz="UTC")
_TYPES = {
    "timestamp": INSTANT,
    "string": pa.string(),
    "long": pa.int64(),
    "real": pa.float64(),
    "bool": pa.bool_(),
    "dynamic": pa.binary(),
}
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999


def batch_of(shape: Shape, columns: Sequence[Sequence[Any] | pa.Array]) -> pa.RecordBatch:
    """Return columns in the order of a shape; those that are dynamic hold values already encoded."""
    fields, arrays = [], []
    for (name, kind), values in zip(shape.columns.items(), columns, strict=True):
        metadata = DYNAMIC_FIELD if kind == "dynamic" else None
        fields.append(pa.field(name, _TYPES[kind], metadata=metadata))
        arrays.append(values if isinstance(values, pa.Array) else pa.array(values, _TYPES[kind]))
    return pa.record_batch(arrays, schema=pa.schema(fields))


class Encoded:
    """Encodes values as dynamic, and those that come again only once: the labels of a stream are those of its lines."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, str], ...], bytes] = {}

    def texts(self, labels: dict[str, str]) -> bytes | None:
        """Return a map of texts; None if it is empty."""
        if not labels:
            return None
        key = tuple(labels.items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = encode(labels)
        return found


def microseconds(value_ns: int) -> int:
    """Return nanoseconds as microseconds, rounded down; InvalidInputError if no table can hold them."""
    value = value_ns // 1000
    if not _FIRST_US <= value <= _LAST_US:
        raise InvalidInputError("a time is out of range", nanoseconds=value_ns, kind="bad_time")
    return value


def loose_column(name: str, values: Sequence[Any]) -> tuple[pa.Field, pa.Array]:
    """Return values of any scalar types as a column: of their type if they share one, else each of its own."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} or kinds <= {str} or kinds <= {float}:
        array = pa.array(values, from_pandas=False) if kinds else pa.nulls(len(values), pa.string())
        return pa.field(name, array.type), array
    if kinds <= {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pa.field(name, pa.int64()), pa.array(values, pa.int64())
    texts = [None if value is None else orjson.dumps(value).decode() for value in values]
    return pa.field(name, pa.string(), metadata=JSON_FIELD), pa.array(texts, pa.string())
