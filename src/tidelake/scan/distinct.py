"""Put rows that have the same at a path together, with how many they are.

A query that only counts rows by what they have at a path is answered by a few rows for each block, whatever its
expressions are. Values of low cardinality are put together by number: texts by their place in a dictionary, whole
numbers and reals by hashing. Where rows hardly repeat, nothing is put together. It does not read blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic import path_values

MIN_REPEATED = 4  # rows for each that is left, on average, below which there is nothing to gain
MAX_TEXT = 64  # bytes of a text on average, of those that have no dictionary
MAX_NUMBERS = 1 << 22  # that are counted without sorting

_KINDS = 256
_COUNT = "count"


def put_together(values: pa.StructArray) -> pa.StructArray | None:
    """Return what rows have at a path, each once, as ``values``, and of how many rows as ``count``; None if too many.

    Rows that are equal in every field are the same; NaN and both zeros stay apart, as they are stored.
    """
    numbers = np.asarray(path_values.kinds_of(values), dtype=np.int64)
    room = _KINDS
    for name in ("text", "int", "real", "other"):
        held = path_values.field(values, name)
        if held is None:
            continue
        places = _places(held)
        if places is None:
            return None
        count, at = places
        if room * (count + 1) > 1 << 62:
            return None
        numbers = numbers * (count + 1) + at
        room *= count + 1
    rows, counts = _counted(numbers, room)
    if len(rows) * MIN_REPEATED > len(values):
        return None
    return pa.StructArray.from_arrays([values.take(pa.array(rows)), pa.array(counts)], names=["values", "count"])


def joined_once(parts: Sequence[pa.StructArray]) -> pa.StructArray:
    """Return several results of ``put_together`` as one, in which equal rows are one again; texts are plain."""
    values = pa.concat_arrays([path_values.filled(each.field("values")) for each in parts])
    counts = pa.concat_arrays([each.field("count") for each in parts])
    names = [each.name for each in values.type]
    columns = dict(zip(names, values.flatten(), strict=True)) | {_COUNT: counts}
    bits = columns | {"real": columns["real"].view(pa.int64())}  # by which NaN and both zeros are told apart
    grouped = pa.table(bits).group_by(names, use_threads=False).aggregate([(_COUNT, "sum")]).combine_chunks()
    fields = {name: grouped.column(name).chunk(0) for name in names}
    fields["real"] = fields["real"].view(pa.float64())
    whole = pa.StructArray.from_arrays(list(fields.values()), names=names)
    return pa.StructArray.from_arrays([whole, grouped.column(f"{_COUNT}_sum").chunk(0)], names=["values", "count"])


def _places(held: pa.Array) -> tuple[int, npt.NDArray[np.int64]] | None:
    """Number values, from one; null is zero."""
    if not pa.types.is_dictionary(held.type):
        if (pa.types.is_string(held.type) or pa.types.is_binary(held.type)) and held.nbytes > MAX_TEXT * len(held):
            return None
        plain = held.view(pa.int64()) if pa.types.is_floating(held.type) else held
        held = pc.dictionary_encode(plain)
    indices = held.indices
    if indices.null_count:
        indices = pc.fill_null(indices, pa.scalar(-1, indices.type))
    return len(held.dictionary), np.asarray(indices, dtype=np.int64) + 1


def _counted(numbers: npt.NDArray[np.int64], room: int) -> tuple[npt.NDArray[np.int64], Any]:
    """Return a row of each number that occurs, and how many have it."""
    if room > MAX_NUMBERS or room > 64 * len(numbers):
        _, rows, counts = np.unique(numbers, return_index=True, return_counts=True)
        return rows, counts
    counts = np.bincount(numbers, minlength=room)
    some = np.zeros(room, dtype=np.int64)
    some[numbers] = np.arange(len(numbers))
    found = np.flatnonzero(counts)
    return some[found], counts[found]
