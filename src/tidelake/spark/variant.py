"""Turn whole columns of dynamic values into Spark's VARIANT bytes and back, compiled.

A variant is two byte strings: the value, and the sorted dictionary of the keys in it. A row is parsed into nodes, the
nodes are measured from the last to the first, and written from the first to the last, so that nothing recurses. What is
rare (a time, an integer beyond 64 bits, a decimal that no double holds, thousands of keys) and what is malformed is
left to the plain way, row by row. It does not know Spark's types: see ``types``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.ingest.json.text import INT, REAL
from tidelake.ingest.json.to_cbor import put_head, put_number
from tidelake.runtime.compiling import allocating, compiled
from tidelake.spark.variant_loops import (
    DONE,
    FULL,
    KEY,
    LEFT,
    LEVEL,
    MAX_DEPTH,
    MAX_KEYS,
    MAX_PIECES,
    NODE,
    PIECE,
    U,
    number,
    to_variants,
)
from tidelake.spark.variant_plain import plain_cbor, plain_variant

Bytes = npt.NDArray[np.uint8]

_FRAME = np.dtype(
    [("at", np.int64), ("count", np.int64), ("next", np.int64), ("ids", np.int64), ("offsets", np.int64),
     ("values", np.int64), ("id_width", np.int64), ("width", np.int64), ("is_map", np.bool_)]
)  # fmt: skip


def variants_of(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the value and the metadata of each dynamic value; those of a null are empty."""
    data, offsets = _buffers(values)
    valid = _valid(values)
    longest = int(np.diff(offsets).max(initial=0))
    nodes, keys = np.zeros(longest + 1, dtype=NODE), np.zeros(MAX_KEYS + 1, dtype=KEY)
    levels, pieces = np.zeros(MAX_DEPTH + 1, dtype=LEVEL), np.zeros(MAX_PIECES, dtype=PIECE)
    states = np.zeros(len(values), dtype=np.uint8)
    size = int(offsets[-1] - offsets[0]) if len(values) else 0
    out, meta = np.empty(2 * size + 64 * 1024, dtype=np.uint8), np.empty(2 * size + 64 * 1024, dtype=np.uint8)
    ends, meta_ends = np.zeros(len(values) + 1, dtype=np.int64), np.zeros(len(values) + 1, dtype=np.int64)
    row = 0
    while row < len(values):
        row = to_variants(data, offsets, valid, row, nodes, keys, levels, pieces, states, out, ends, meta, meta_ends)
        if row < len(values):
            grown = max(len(out), len(meta)) * 2 + 32 * longest
            out, meta = _grown(out, grown), _grown(meta, grown)
    left = np.flatnonzero(states)
    made, described = (_array(data[: int(at[-1])], at) for data, at in ((out, ends), (meta, meta_ends)))
    if len(left):
        pairs = [plain_variant(values[int(row)].as_py()) for row in left]
        made = _replaced(made, left, [value for value, _ in pairs])
        described = _replaced(described, left, [metadata for _, metadata in pairs])
    return made, described


def dynamics_of(variants: pa.StructArray) -> pa.Array:
    """Return the dynamic value of each variant, null where it is null."""
    values, metadata = (_plain_binary(variants.field(name)) for name in ("value", "metadata"))
    valid = _valid(variants)
    data, offsets = _buffers(values)
    meta, meta_offsets = _buffers(metadata)
    states = np.zeros(len(variants), dtype=np.uint8)
    out = np.empty(2 * len(data) + len(meta) + 64 * 1024, dtype=np.uint8)
    ends = np.zeros(len(variants) + 1, dtype=np.int64)
    frames = np.zeros(MAX_DEPTH + 1, dtype=_FRAME)
    row = 0
    while row < len(variants):
        row = _to_dynamics(data, offsets, meta, meta_offsets, valid, row, frames, states, out, ends)
        if row < len(variants):
            out = _grown(out, len(out) * 2)
    made = _array(out[: int(ends[-1])].copy(), ends)  # rows are gathered, which room would be with them
    left = np.flatnonzero(states)
    if len(left):
        pairs = [(values[int(row)].as_py(), metadata[int(row)].as_py()) for row in left]
        made = _replaced(made, left, [plain_cbor(*pair) for pair in pairs])
    if variants.null_count:
        nulls = pa.py_buffer(np.packbits(valid, bitorder="little"))
        made = pa.Array.from_buffers(pa.binary(), len(made), [nulls, *made.buffers()[1:]], variants.null_count)
    return made


def _buffers(values: pa.Array) -> tuple[Bytes, npt.NDArray[np.int32]]:
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
    window = places[values.offset : values.offset + len(values) + 1]
    return (np.frombuffer(data, dtype=np.uint8) if data else np.zeros(0, dtype=np.uint8)), window


def _valid(values: pa.Array) -> npt.NDArray[np.bool_]:
    if not values.null_count:
        return np.ones(len(values), dtype=np.bool_)
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def _plain_binary(array: pa.Array) -> pa.Array:
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def _grown(array: Bytes, size: int) -> Bytes:
    grown = np.empty(size, dtype=np.uint8)
    grown[: len(array)] = array
    return grown


def _array(data: Bytes, ends: npt.NDArray[np.int64]) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)], 0
    )


def _replaced(array: pa.Array, places: npt.NDArray[np.intp], values: list[bytes]) -> pa.Array:
    """Put values at some places; those at the others stay."""
    order = np.arange(len(array), dtype=np.int64)
    order[places] = len(array) + np.arange(len(places))
    return pa.concat_arrays([array, pa.array(values, pa.binary())]).take(pa.array(order))


@allocating
def _to_dynamics(
    data: Any, offsets: Any, meta: Any, meta_offsets: Any, valid: Any, row: Any, frames: Any, states: Any, out: Any,
    ends: Any,
) -> Any:  # fmt: skip
    """Transcode rows from ``row`` on; give the first that there was no room for, or their number."""
    names = np.empty((MAX_DEPTH + 1, MAX_KEYS, 3), dtype=np.int64)  # of the maps that are open, in order
    for at in range(row, len(valid)):
        to = ends[at]
        if valid[at]:
            state, end = _put_dynamic(
                data, np.int64(offsets[at]), np.int64(offsets[at + 1]), meta, np.int64(meta_offsets[at]),
                np.int64(meta_offsets[at + 1]), frames, names, out, to,
            )  # fmt: skip
            if state == FULL:
                return at
            states[at] = state
            to = end if state == DONE else to
        ends[at + 1] = to
    return len(valid)


@compiled
def _put_dynamic(
    data: Any, start: Any, end: Any, meta: Any, meta_start: Any, meta_end: Any, frames: Any, names: Any, out: Any,
    to: Any,
) -> Any:  # fmt: skip
    """Write one variant as canonical CBOR: what happened, and the place after it."""
    at, depth = start, 0
    while True:
        if to + 16 > len(out):
            return FULL, to
        state, to, is_open = _put_item(data, at, end, frames, depth, out, to)
        if state != DONE:
            return state, to
        if is_open:
            frame = frames[depth]
            if frame.is_map and not _order_keys(data, frame, meta, meta_start, meta_end, names[depth]):
                return LEFT, to
            depth += 1
            if depth == MAX_DEPTH:
                return LEFT, to
        while depth > 0 and frames[depth - 1].next == frames[depth - 1].count:
            depth -= 1
        if depth == 0:
            return DONE, to
        frame = frames[depth - 1]
        slot = frame.next
        if frame.is_map:
            key_at, key_length, slot = names[depth - 1, frame.next]
            if not _is_text(meta, key_at, key_length):
                return LEFT, to
            if to + key_length + 16 > len(out):
                return FULL, to
            to = put_head(out, to, U(0x60), U(key_length))
            for i in range(key_length):
                out[to + i] = meta[key_at + i]
            to += key_length
        frame.next += 1
        at = frame.values + number(data, frame.offsets + slot * frame.width, frame.width)
        if at < start or at >= end:
            return LEFT, to


@compiled
def _put_item(data: Any, at: Any, end: Any, frames: Any, depth: Any, out: Any, to: Any) -> Any:
    """Write one scalar, or open one container: what happened, the place after it, and whether it is open now."""
    if at >= end:
        return LEFT, to, False
    basic, kind = np.int64(data[at] & 3), np.int64(data[at] >> 2)
    if basic >= 2:
        state = _open_frame(data, at, end, frames[depth], basic == 2, kind)
        if state != DONE:
            return state, to, False
        count = frames[depth].count
        return DONE, put_head(out, to, U(0xA0 if basic == 2 else 0x80), U(count)), True
    if basic == 1 or kind == 16 or kind == 15:
        length, place = kind, at + 1
        if basic == 0:
            if at + 5 > end:
                return LEFT, to, False
            length, place = number(data, at + 1, 4), at + 5
        if place + length > end or ((kind != 15 or basic == 1) and not _is_text(data, place, length)):
            return LEFT, to, False
        if to + length + 16 > len(out):
            return FULL, to, False
        to = put_head(out, to, U(0x40 if basic == 0 and kind == 15 else 0x60), U(length))
        for i in range(length):
            out[to + i] = data[place + i]
        return DONE, to + length, False
    if kind <= 2:
        out[to] = 0xF6 if kind == 0 else 0xF5 if kind == 1 else 0xF4
        return DONE, to + 1, False
    state, to = _put_numeric(data, at, end, kind, out, to)
    return state, to, False


@compiled
def _is_text(data: Any, at: Any, length: Any) -> Any:
    """Return whether bytes are UTF-8; those that are plain ASCII, or nearly so, are told at once."""
    i = 0
    while i < length:
        first = data[at + i]
        if first < 0x80:
            i += 1
            continue
        more = 1 if 0xC2 <= first <= 0xDF else 2 if first & 0xF0 == 0xE0 else 3 if 0xF0 <= first <= 0xF4 else 0
        if more == 0 or i + more >= length:
            return False
        second = data[at + i + 1]
        low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for j in range(2, more + 1):
            if data[at + i + j] & 0xC0 != 0x80:
                return False
        i += more + 1
    return True


@compiled
def _put_numeric(data: Any, at: Any, end: Any, kind: Any, out: Any, to: Any) -> Any:
    if 3 <= kind <= 6:
        width = 1 << (kind - 3)
        if at + 1 + width > end:
            return LEFT, to
        return DONE, put_number(out, to, INT, _signed(data, at + 1, width), False)
    if kind == 7 or kind == 14:
        if at + 1 + (8 if kind == 7 else 4) > end:
            return LEFT, to
        if kind == 7:
            value = np.int64(number(data, at + 1, 8)).view(np.float64)
        else:
            value = np.float64(np.uint32(number(data, at + 1, 4)).view(np.float32))
        return DONE, _put_double(out, to, value)
    if kind == 8 or kind == 9:
        width = 4 if kind == 8 else 8
        if at + 2 + width > end:
            return LEFT, to
        scale, unscaled = np.int64(data[at + 1]), _signed(data, at + 2, width)
        if scale == 0:
            return DONE, put_number(out, to, INT, unscaled, False)
        if scale <= 22 and -(1 << 53) < unscaled < 1 << 53:  # both are exact, so their quotient is the nearest double
            return DONE, _put_double(out, to, np.float64(unscaled) / 10.0**scale)
    return LEFT, to


@compiled
def _put_double(out: Any, to: Any, value: Any) -> Any:
    if np.isnan(value) or np.isinf(value):
        out[to], out[to + 2] = 0xF9, 0
        out[to + 1] = 0x7E if np.isnan(value) else 0x7C if value > 0 else 0xFC
        return to + 3
    return put_number(out, to, REAL, np.float64(value).view(np.int64), False)


@compiled
def _signed(data: Any, at: Any, width: Any) -> Any:
    value = number(data, at, width)
    shift = 64 - 8 * width
    return (value << shift) >> shift


@compiled
def _open_frame(data: Any, at: Any, end: Any, frame: Any, is_map: Any, header: Any) -> Any:
    """Read where a container's tables lie; what runs past the end is left."""
    frame.width = (header & 3) + 1
    frame.id_width = ((header >> 2) & 3) + 1 if is_map else 0
    is_large = (header >> 4) & 1 if is_map else (header >> 2) & 1
    size = 4 if is_large else 1
    if at + 1 + size > end:
        return LEFT
    frame.at, frame.is_map, frame.next = at, is_map, 0
    frame.count = number(data, at + 1, size)
    if frame.count > end - at:
        return LEFT
    frame.ids = at + 1 + size
    frame.offsets = frame.ids + frame.count * frame.id_width
    frame.values = frame.offsets + (frame.count + 1) * frame.width
    if frame.values > end or (is_map and frame.count > MAX_KEYS):
        return LEFT
    return DONE


@compiled
def _key_of(data: Any, frame: Any, slot: Any, meta: Any, start: Any, end: Any) -> Any:
    """Return where a field's name lies in the metadata and how long it is; a length of -1 is malformed."""
    id = number(data, frame.ids + slot * frame.id_width, frame.id_width)
    if start >= end:
        return start, np.int64(-1)
    width = np.int64(meta[start] >> 6) + 1
    if start + 1 + width > end:
        return start, np.int64(-1)
    count = number(meta, start + 1, width)
    table = start + 1 + width
    texts = table + (count + 1) * width
    if id >= count or texts > end:
        return start, np.int64(-1)
    first = number(meta, table + id * width, width)
    last = number(meta, table + (id + 1) * width, width)
    if first > last or texts + last > end:
        return start, np.int64(-1)
    return texts + first, last - first


@compiled
def _order_keys(data: Any, frame: Any, meta: Any, start: Any, end: Any, names: Any) -> Any:
    """List a map's names where CBOR wants them, the shorter first; False when one is malformed or double."""
    for slot in range(frame.count):
        at, length = _key_of(data, frame, slot, meta, start, end)
        if length < 0:
            return False
        to = slot
        while to > 0 and _is_less(meta, at, length, names[to - 1, 0], names[to - 1, 1]):
            names[to, 0], names[to, 1], names[to, 2] = names[to - 1, 0], names[to - 1, 1], names[to - 1, 2]
            to -= 1
        if to > 0 and not _is_less(meta, names[to - 1, 0], names[to - 1, 1], at, length):
            return False
        names[to, 0], names[to, 1], names[to, 2] = at, length, slot
    return True


@compiled
def _is_less(meta: Any, a: Any, a_length: Any, b: Any, b_length: Any) -> Any:
    if a_length != b_length:
        return a_length < b_length
    for i in range(a_length):
        if meta[a + i] != meta[b + i]:
            return meta[a + i] < meta[b + i]
    return False
