"""Compare rows by their keys: as values, all of them at once.

Rows with equal keys get equal codes, and codes are dense numbers from 0, so that what belongs to a key is a place in an
array. Keys are told apart by dictionaries of their values and never by hashes alone. It does not know versions or
tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]

_MOST_CODES = 2**62
_FEW = 64  # rows


def codes_of(columns: Sequence[pa.Array]) -> tuple[Numbers, int]:
    """Number the rows of some columns by their values; the second answer is how many different rows there are."""
    codes, count = _codes(columns[0])
    for column in columns[1:]:
        others, more = _codes(column)
        if count * more >= _MOST_CODES:
            codes, count = _codes(pa.array(codes))
        codes, count = codes * more + others, count * more
    return (codes, count) if len(columns) == 1 else _codes(pa.array(codes))


def newest(codes: Numbers, count: int, seqs: Numbers) -> Numbers:
    """Return, for each code, the row with the largest sequence; of equals the last."""
    order = np.argsort(seqs, kind="stable")
    found = np.empty(count, np.int64)
    found[codes[order]] = order  # of several that go to one place, the last stays
    return found


def last_of_each(columns: Sequence[pa.Array]) -> Numbers:
    """Return the rows that no later row has the key of, in their order."""
    if len(columns[0]) <= _FEW and all(map(_is_exact, columns)):
        return np.sort(np.fromiter(_last_of_few(columns), np.int64))
    codes, count = codes_of(columns)
    rows = len(codes)
    if count == rows:
        return np.arange(rows)
    found = np.empty(count, np.int64)
    found[codes] = np.arange(rows)
    return np.sort(found)


def _last_of_few(columns: Sequence[pa.Array]) -> Iterable[int]:
    """Return the last row of each key by a dictionary of Python's, which of few rows is done before Arrow has begun."""
    keys = columns[0].to_pylist() if len(columns) == 1 else zip(*(each.to_pylist() for each in columns), strict=True)
    return {key: row for row, key in enumerate(keys)}.values()


def _is_exact(column: pa.Array) -> bool:
    """Whether values of a column are equal in Python if they are in Arrow."""
    return bool(pa.types.is_integer(column.type) or pa.types.is_string(column.type))


def _codes(column: pa.Array) -> tuple[Numbers, int]:
    encoded = column.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return codes, len(encoded.dictionary)
