"""Frame arrays as bytes that vouch for themselves, and read them back, checked.

    magic (8) | XXH3 (128 bits) of the rest | u32 LE: length of the header | header, JSON | the arrays, in order

The header says what the arrays belong to, and of each its type and shape; a reader needs every byte to be accounted
for. It does not know what the arrays mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import xxhash

from tidelake.errors import CorruptError

TYPES: dict[str, np.dtype[Any]] = {"f4": np.dtype("<f4"), "u4": np.dtype("<u4"), "u1": np.dtype("u1")}
MAX_ITEMS = 2**40  # of one array; a header that says more is not one

_SUM_BYTES = 16


def framed(magic: bytes, header: Mapping[str, Any], arrays: Sequence[npt.NDArray[Any]]) -> bytes:
    """Return the bytes of some arrays under a header."""
    kinds = {kind: name for name, kind in TYPES.items()}
    shapes = [[kinds[each.dtype.newbyteorder("<")], list(each.shape)] for each in arrays]
    head = orjson.dumps({**header, "arrays": shapes})
    parts = [len(head).to_bytes(4, "little"), head, *(np.ascontiguousarray(each).tobytes() for each in arrays)]
    body = b"".join(parts)
    return magic + xxhash.xxh3_128_digest(body) + body


def unframed(magic: bytes, data: bytes, key: str) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
    """Return the header and the arrays that were framed; CorruptError if the bytes are anything else."""
    body = memoryview(data)[len(magic) + _SUM_BYTES :]
    if data[: len(magic)] != magic or data[len(magic) : len(magic) + _SUM_BYTES] != xxhash.xxh3_128_digest(body):
        raise CorruptError("the checksum does not fit", object=key, kind="bad_vectors")
    try:
        size = int.from_bytes(body[:4], "little")
        header = orjson.loads(bytes(body[4 : 4 + size]))
        arrays, at = [], 4 + size
        for name, shape in header.pop("arrays"):
            count = math.prod(shape)
            if not 0 <= count <= MAX_ITEMS or any(side < 0 for side in shape):
                raise ValueError(f"an array of the shape {shape}")
            end = at + count * TYPES[name].itemsize
            arrays.append(np.frombuffer(body[at:end], TYPES[name]).reshape(shape))
            at = end
        if at != len(body):
            raise ValueError(f"{len(body) - at} bytes are left over")
        return header, arrays
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError("not framed arrays", object=key, reason=str(error), kind="bad_vectors") from error
