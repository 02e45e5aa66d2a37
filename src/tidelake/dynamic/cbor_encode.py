"""Turn typed Arrow columns into dynamic ones: each value as its canonical CBOR, equal to ``dynamic.encode`` of it.

This is how a column that has become dynamic reads the rows that were written while it had one type. Whole columns are
encoded by size: the heads and numbers of all values of one width at once. It does not decode: see ``cbor``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic.values import encode
from tidelake.runtime.deferred import deferred

cbor_loops: Any = deferred("tidelake.dynamic.cbor_loops")

_Numbers = npt.NDArray[np.uint64]

_BELOW_ZERO, _TEXT = 0x20, 0x60
_LIMITS = (24, 1 << 8, 1 << 16, 1 << 32)  # arguments below these take 0, 1, 2 and 4 bytes after the head, others 8
_WIDTHS = np.array([0, 1, 2, 4, 8])
_HALF, _SINGLE, _DOUBLE = 0xF9, 0xFA, 0xFB


def encoded(values: pa.Array) -> pa.Array:
    """Return a column of numbers, booleans, texts or times as a dynamic column; nulls stay null."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return pa.array([b"\xf4", b"\xf5"], pa.binary()).take(values.cast(pa.int8()))
    if pa.types.is_integer(kind):
        return _integers(values)
    if pa.types.is_floating(kind):
        return _reals(values)
    if pa.types.is_string(kind):
        return _texts(values)
    if pa.types.is_timestamp(kind):
        distinct = pc.unique(values.drop_null())
        known = pa.array([encode(value) for value in distinct.to_pylist()], pa.binary())
        return known.take(pc.index_in(values, value_set=distinct))
    raise TypeError(f"{kind} is not kept as a dynamic value")


def _integers(values: pa.Array) -> pa.Array:
    numbers = values.cast(pa.int64()).fill_null(0).to_numpy()
    arguments = np.where(numbers < 0, -1 - numbers, numbers).astype(np.uint64)
    heads, widths = _heads(arguments, np.where(numbers < 0, _BELOW_ZERO, 0))
    return _written(values, heads, widths, arguments)


def _reals(values: pa.Array) -> pa.Array:
    reals = values.cast(pa.float64()).fill_null(0).to_numpy()
    reals = np.where(np.isnan(reals), np.nan, reals)  # one NaN for all
    with np.errstate(over="ignore", invalid="ignore"):
        singles, halves = reals.astype(np.float32), reals.astype(np.float16)
    is_single = (singles == reals) | np.isnan(reals)
    is_half = (halves == reals) | np.isnan(reals)
    widths = np.where(is_half, 2, np.where(is_single, 4, 8))
    heads = np.where(is_half, _HALF, np.where(is_single, _SINGLE, _DOUBLE))
    bits = np.where(
        is_half,
        halves.view(np.uint16).astype(np.uint64),
        np.where(is_single, singles.view(np.uint32).astype(np.uint64), reals.view(np.uint64)),
    )
    return _written(values, heads, widths, bits)


def _texts(values: pa.Array) -> pa.Array:
    lengths = pc.binary_length(values).fill_null(0).to_numpy().astype(np.uint64)
    heads, widths = _heads(lengths, np.full(len(values), _TEXT))
    return _written(values, heads, widths, lengths, bodies=lengths.astype(np.int64))


def _heads(arguments: _Numbers, majors: Any) -> tuple[Any, Any]:
    """Return each value's first byte, and how many bytes its argument takes after it."""
    sizes = np.searchsorted(np.array(_LIMITS, dtype=np.uint64), arguments, side="right")
    heads = majors + np.where(sizes == 0, arguments.astype(np.int64), 23 + sizes)
    return heads, _WIDTHS[sizes]


def _written(values: pa.Array, heads: Any, widths: Any, arguments: _Numbers, bodies: Any = None) -> pa.Array:
    """Lay out heads, arguments of their widths and bodies, which are the texts themselves."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    lengths = np.where(valid, 1 + widths + (0 if bodies is None else bodies), 0)
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] >= 2**31:
        raise pa.ArrowInvalid("too much data for one column")
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    out[offsets[:-1][valid]] = heads[valid]
    for width in (1, 2, 4, 8):
        rows = np.flatnonzero(valid & (widths == width))
        for at in range(width):
            shift = np.uint64(8 * (width - 1 - at))
            out[offsets[rows] + 1 + at] = (arguments[rows] >> shift).astype(np.uint8)
    if bodies is not None and len(values):
        _, places, letters = values.buffers()
        starts = np.frombuffer(places, dtype=np.int32)[values.offset : values.offset + len(values)].astype(np.int64)
        data = np.frombuffer(letters, dtype=np.uint8) if letters else np.zeros(0, dtype=np.uint8)
        cbor_loops.copy(data, starts, np.where(valid, bodies, 0), offsets[:-1] + 1 + widths, out)
    nulls = pa.py_buffer(np.packbits(valid, bitorder="little")) if values.null_count else None
    buffers = [nulls, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers, values.null_count)
