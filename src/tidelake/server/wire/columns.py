"""Make Arrow columns of what the loops found: spans of bytes, numbers, and CBOR.

It does not know messages.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.model.schema import DYNAMIC_FIELD
from tidelake.server.wire.proto_loops import copy_spans, hex_spans

Spans: TypeAlias = npt.NDArray[np.int64]  # (start, end) of each row; an end before its start is null
Bytes: TypeAlias = npt.NDArray[np.uint8]
Mask: TypeAlias = npt.NDArray[np.bool_]

MAX_OFFSET = (1 << 31) - 1


class NotUtf8(ValueError):
    """Text that is not UTF-8."""


def empty_spans(rows: int) -> Spans:
    """Return spans that are all null."""
    spans = np.zeros((rows, 2), dtype=np.int64)
    spans[:, 1] = -1
    return spans


def texts(data: Bytes, spans: Spans, *, blank_is_null: bool = True) -> pa.Array:
    """Return texts that lie here and there; what is empty is null, unless told otherwise."""
    made, is_ascii = _gathered(data, spans, pa.utf8(), blank_is_null, factor=1)
    if not is_ascii:
        try:
            made.validate(full=True)
        except pa.ArrowInvalid as error:
            raise NotUtf8(str(error)) from error
    return made


def hex_texts(data: Bytes, spans: Spans) -> pa.Array:
    """Return bytes as hexadecimal digits; what is empty is null."""
    return _gathered(data, spans, pa.utf8(), True, factor=2)[0]


def _gathered(
    data: Bytes, spans: Spans, kind: pa.DataType, blank_is_null: bool, *, factor: int
) -> tuple[pa.Array, bool]:
    spans = np.ascontiguousarray(spans)  # one layout, for which the loops are compiled
    lengths = np.maximum(spans[:, 1] - spans[:, 0], 0)
    is_null = lengths == 0 if blank_is_null else spans[:, 1] < spans[:, 0]
    offsets = np.zeros(len(spans) + 1, dtype=np.int64)
    np.cumsum(lengths * factor, out=offsets[1:])
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    is_ascii = True
    if factor == 1:
        is_ascii = bool(copy_spans(data, spans, offsets, out))
    else:
        hex_spans(data, spans, offsets, out)
    return _array(kind, offsets, out, is_null), is_ascii


def dynamics(out: Bytes, offsets: npt.NDArray[np.int64], *, blank_is_null: bool = True) -> pa.Array:
    """Return CBOR values that lie one after another; what is empty is null."""
    is_null = np.diff(offsets) == 0 if blank_is_null else np.zeros(len(offsets) - 1, dtype=np.bool_)
    return _array(pa.binary(), offsets, out[: offsets[-1]], is_null)


def _array(kind: pa.DataType, offsets: npt.NDArray[np.int64], out: Bytes, is_null: Mask) -> pa.Array:
    if offsets[-1] > MAX_OFFSET:
        raise NotUtf8("too many bytes for one column")
    nulls = int(is_null.sum())
    bitmap = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if nulls else None
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, len(is_null), buffers, nulls)


def numbers(values: npt.NDArray[Any], kind: pa.DataType, is_null: Mask | None = None) -> pa.Array:
    """Return numbers as a column of a type that holds them."""
    made = pa.array(np.ascontiguousarray(values), mask=is_null if is_null is not None and is_null.any() else None)
    return made if made.type == kind else made.cast(kind, safe=False)


def field_of(name: str, kind: pa.DataType) -> pa.Field:
    """Return the field of a column; binary ones are dynamic columns' own bytes."""
    return pa.field(name, kind, metadata=DYNAMIC_FIELD if pa.types.is_binary(kind) else None)
