"""Name the content of rows, whatever extents they lie in.

What is hashed (SHA-256), so that anybody can do it again:

1. Rows are put in order: by time if there is one, and rows of one time by their other columns, in the order of the
   columns' names, compared as below. So the same rows, written in any order and any layout, hash the same.
2. For each column two streams are hashed: ``marks``, a byte for each row, 1 if it has a value and 0 if not; and
   ``values``, the values of the rows that have one, as little-endian int64 (int, long, timestamp in microseconds, bool
   as 0 or 1), float64 (real, every NaN alike), or for text and bytes (string, dynamic as its CBOR, vector as float32) a
   little-endian int64 length and then the bytes.
3. The name is the SHA-256 of ``tidelake-content-1``, a line feed, the number of rows, a line feed, and then for each
   column that has a value in any row, in the order of names: its name, a line feed, ``integer``, ``real`` or
   ``bytes``, a line feed, and the two digests.

A column without any value says nothing, so a column added later does not change the name of old rows; nor does
widening int to long. It does not read extents.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Fingerprint:
    """Hash rows that come in order of time, in batches of any size."""

    def __init__(self, time: str | None) -> None:
        self._time = time
        self._rows = 0
        self._columns: dict[str, _Column] = {}
        self._waiting: list[pa.RecordBatch] = []  # rows of the last time, which may go on; without a time, all

    def add(self, batch: pa.RecordBatch) -> None:
        """Hash the rows that are complete up to a time."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        if self._time is None:
            return
        whole = pa.concat_batches(self._waiting) if len(self._waiting) > 1 else batch
        times = whole.column(self._time).cast(pa.int64())
        last = times[whole.num_rows - 1]
        ready = int(np.searchsorted(times.to_numpy(zero_copy_only=False), last.as_py()))
        self._hash(whole.slice(0, ready))
        self._waiting = [whole.slice(ready)]

    def finish(self) -> tuple[str, int]:
        """Return the name of all rows, and how many they are."""
        if self._waiting:
            self._hash(pa.concat_batches(self._waiting))
            self._waiting = []
        total = hashlib.sha256(f"tidelake-content-1\n{self._rows}\n".encode())
        for name, column in sorted(self._columns.items()):
            if column.has_values:
                total.update(f"{name}\n{column.kind}\n".encode())
                total.update(column.marks.digest() + column.values.digest())
        return total.hexdigest(), self._rows

    def _hash(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        self._rows += rows.num_rows
        plain = {name: _plain(rows.column(name)) for name in sorted(rows.schema.names)}
        keys = {name: _key(array) for name, array in plain.items()}
        first = [self._time] if self._time is not None else []
        order = [(name, "ascending") for name in (*first, *(name for name in keys if name not in first))]
        at = pc.sort_indices(pa.table(keys), sort_keys=order)
        for name, array in plain.items():
            column = self._columns.setdefault(name, _Column(_kind(array.type)))
            column.add(array.take(at))


class _Column:
    """The two streams of a column."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.has_values = False
        self.marks, self.values = hashlib.sha256(), hashlib.sha256()

    def add(self, array: pa.Array) -> None:
        marks = array.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False)
        self.marks.update(marks.tobytes())
        held = array.drop_null()
        if not len(held):
            return
        self.has_values = True
        if self.kind != "bytes":
            self.values.update(held.to_numpy(zero_copy_only=False).tobytes())
            return
        self.values.update(_with_lengths(held))


def _with_lengths(texts: pa.Array) -> bytes:
    """Put the length before each text, all at once."""
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False).astype("<i8")
    prefixes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(texts), [None, pa.py_buffer(lengths.tobytes())])
    joined = pc.binary_join_element_wise(prefixes.cast(pa.large_binary()), texts, pa.scalar(b"", pa.large_binary()))
    _, offsets, data = joined.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[joined.offset : joined.offset + len(joined) + 1]
    return bytes(data[int(ends[0]) : int(ends[-1])])


def _plain(array: Any) -> pa.Array:
    """Return a column as int64, float64 or bytes."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _plain(array.cast(kind.value_type))
    if pa.types.is_boolean(kind):
        return array.cast(pa.int8()).cast(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return array.cast(pa.int64())
    if pa.types.is_floating(kind):
        wide = array.cast(pa.float64())
        return pc.if_else(pc.is_nan(wide), float("nan"), wide)
    if pa.types.is_fixed_size_list(kind):
        return _vectors(array)
    return array.cast(pa.large_binary())


def _vectors(array: pa.FixedSizeListArray) -> pa.Array:
    width = array.type.list_size * 4
    flat = pc.fill_null(array.values.slice(array.offset * array.type.list_size, len(array) * array.type.list_size), 0.0)
    raw = pa.py_buffer(flat.cast(pa.float32()).to_numpy(zero_copy_only=False).astype("<f4").tobytes())
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(array), [None, raw])
    return pc.if_else(array.is_valid(), fixed.cast(pa.large_binary()), pa.scalar(None, pa.large_binary()))


def _key(array: pa.Array) -> pa.Array:
    """Return what a column is ordered by: reals by their bits, so that two that differ in any are told apart."""
    if pa.types.is_floating(array.type):
        bits = array.fill_null(0.0).to_numpy(zero_copy_only=False).view(np.int64)
        return pa.array(bits, mask=array.is_null().to_numpy(zero_copy_only=False))
    return array


def _kind(kind: pa.DataType) -> str:
    return "integer" if pa.types.is_integer(kind) else "real" if pa.types.is_floating(kind) else "bytes"
