"""Put the values of a column without gaps where rows have one. It does not know where columns come from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_WORDS = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}


def spread(dense: pa.Array, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Put values where rows have one; the others are null."""
    places = np.cumsum(valid) - 1
    if pa.types.is_dictionary(dense.type):
        codes = np.zeros(len(valid), dtype=np.int32)
        codes[valid] = dense.indices.to_numpy()
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=~valid), dense.dictionary)
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    nulls = len(valid) - int(valid.sum())
    if pa.types.is_string(dense.type) or pa.types.is_binary(dense.type):
        _, offsets, letters = dense.buffers()
        ends = np.concatenate([[0], np.frombuffer(offsets, np.int32)[1 : len(dense) + 1]]).astype(np.int32)
        found = np.concatenate([[0], ends[places + 1]]).astype(np.int32)
        return pa.Array.from_buffers(dense.type, len(valid), [bits, pa.py_buffer(found), letters], nulls)
    if pa.types.is_fixed_size_list(dense.type):
        return dense.take(pa.array(places, mask=~valid))
    if pa.types.is_boolean(dense.type):
        flags = np.zeros(len(valid), dtype=np.bool_)
        flags[valid] = dense.to_numpy(zero_copy_only=False)
        return pa.array(flags, mask=~valid)
    raw = np.frombuffer(dense.buffers()[1], _WORDS[dense.type.bit_width // 8])[: len(dense)]
    whole = np.zeros(len(valid), dtype=raw.dtype)
    whole[valid] = raw
    return pa.Array.from_buffers(dense.type, len(valid), [bits, pa.py_buffer(whole)], nulls)
