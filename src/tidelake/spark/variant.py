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

from tidelake.dynamic.cbor_loops import read_head, read_real
from tidelake.ingest.json.text import INT, REAL
from tidelake.ingest.json.to_cbor import put_head, put_number
from tidelake.runtime.compiling import compiled
from tidelake.spark.variant_plain import plain_cbor, plain_variant

MOST_KEYS = 1024  # of one row, in the compiled way: they are found one after the other
MOST_DEPTH = 128

Bytes = npt.NDArray[np.uint8]
_U = np.uint64

_DONE, _LEFT, _FULL = 0, 1, 2
_NODE = np.dtype(
    [("kind", np.int64), ("start", np.int64), ("length", np.int64), ("bits", np.int64), ("parent", np.int64),
     ("key", np.int64), ("count", np.int64), ("size", np.int64), ("at", np.int64), ("used", np.int64),
     ("done", np.int64)]
)  # fmt: skip
_KEY = np.dtype([("start", np.int64), ("length", np.int64), ("rank", np.int64), ("order", np.int64)])
_LEVEL = np.dtype(
    [("node", np.int64), ("left", np.int64), ("is_map", np.bool_)]
)  # of the values that are open while parsing
_FRAME = np.dtype(
    [("at", np.int64), ("count", np.int64), ("next", np.int64), ("ids", np.int64), ("offsets", np.int64),
     ("values", np.int64), ("id_width", np.int64), ("width", np.int64), ("is_map", np.bool_)]
)  # fmt: skip
_NULL, _TRUE, _FALSE, _INTEGER, _DOUBLE, _BINARY, _TEXT, _OBJECT, _ARRAY = range(9)


def variants_of(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Give the value and the metadata of each dynamic value; those of a null are empty."""
    data, offsets = _buffers(values)
    valid = _valid(values)
    longest = int(np.diff(offsets).max(initial=0))
    nodes, keys = np.zeros(longest + 1, dtype=_NODE), np.zeros(MOST_KEYS + 1, dtype=_KEY)
    levels = np.zeros(MOST_DEPTH + 1, dtype=_LEVEL)
    states = np.zeros(len(values), dtype=np.uint8)
    size = int(offsets[-1] - offsets[0]) if len(values) else 0
    out, meta = np.empty(2 * size + 64 * 1024, dtype=np.uint8), np.empty(2 * size + 64 * 1024, dtype=np.uint8)
    ends, meta_ends = np.zeros(len(values) + 1, dtype=np.int64), np.zeros(len(values) + 1, dtype=np.int64)
    row = 0
    while row < len(values):
        row = _to_variants(data, offsets, valid, row, nodes, keys, levels, states, out, ends, meta, meta_ends)
        if row < len(values):
            grown = max(len(out), len(meta)) * 2 + 32 * longest
            out, meta = _grown(out, grown), _grown(meta, grown)
    left = np.flatnonzero(states)
    made, described = _array(out, ends), _array(meta, meta_ends)
    if len(left):
        pairs = [plain_variant(values[int(row)].as_py()) for row in left]
        made = _replaced(made, left, [value for value, _ in pairs])
        described = _replaced(described, left, [metadata for _, metadata in pairs])
    return made, described


def dynamics_of(variants: pa.StructArray) -> pa.Array:
    """Give the dynamic value of each variant, null where it is null."""
    values, metadata = (_plain_binary(variants.field(name)) for name in ("value", "metadata"))
    valid = _valid(variants)
    data, offsets = _buffers(values)
    meta, meta_offsets = _buffers(metadata)
    states = np.zeros(len(variants), dtype=np.uint8)
    out = np.empty(2 * len(data) + len(meta) + 64 * 1024, dtype=np.uint8)
    ends = np.zeros(len(variants) + 1, dtype=np.int64)
    frames = np.zeros(MOST_DEPTH + 1, dtype=_FRAME)
    row = 0
    while row < len(variants):
        row = _to_dynamics(data, offsets, meta, meta_offsets, valid, row, frames, states, out, ends)
        if row < len(variants):
            out = _grown(out, len(out) * 2)
    made = _array(out, ends)
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
    held = data[: int(ends[-1])].copy()
    return pa.Array.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(held)], 0
    )


def _replaced(array: pa.Array, places: npt.NDArray[np.intp], values: list[bytes]) -> pa.Array:
    """Put values at some places; those at the others stay."""
    order = np.arange(len(array), dtype=np.int64)
    order[places] = len(array) + np.arange(len(places))
    return pa.concat_arrays([array, pa.array(values, pa.binary())]).take(pa.array(order))


@compiled
def _to_variants(
    data: Any, offsets: Any, valid: Any, row: Any, nodes: Any, keys: Any, levels: Any, states: Any, out: Any,
    ends: Any, meta: Any, meta_ends: Any,
) -> Any:  # fmt: skip
    """Transcode rows from ``row`` on; give the first that there was no room for, or their number.

    Rows that follow each other mostly have the same keys, in the same order: their metadata is copied.
    """
    known, known_count, known_at, known_length = np.zeros((len(keys), 2), dtype=np.int64), -1, 0, 0
    for at in range(row, len(valid)):
        to, meta_to = ends[at], meta_ends[at]
        start, end = np.int64(offsets[at]), np.int64(offsets[at + 1])
        if valid[at]:
            room = 20 * (end - start) + 64
            if to + room > len(out) or meta_to + room > len(meta):
                return at
            count, key_count = _parse(data, start, end, nodes, keys, levels)
            if count > 0:
                widths = _measure(nodes, count, key_count)
                if key_count == known_count and _are_known(data, keys, key_count, known):
                    for i in range(known_length):
                        meta[meta_to + i] = meta[known_at + i]
                    meta_to += known_length
                else:
                    _sort_keys(data, keys, key_count)
                    known_at, known_count = meta_to, key_count
                    meta_to = _put_metadata(data, keys, key_count, meta, meta_to)
                    known_length = meta_to - known_at
                    for i in range(key_count):
                        known[i, 0], known[i, 1] = keys[i].start, keys[i].length
                to = _put_value(data, nodes, count, keys, widths[0], widths[1], out, to)
            else:
                states[at] = _LEFT
        ends[at + 1], meta_ends[at + 1] = to, meta_to
    return len(valid)


@compiled
def _parse(data: Any, at: Any, end: Any, nodes: Any, keys: Any, levels: Any) -> Any:
    """Read one value as nodes, parents first; give how many and how many keys, or -1 for what is left."""
    count, key_count, depth = 0, 0, 0
    while True:
        while depth > 0 and levels[depth - 1].left == 0:
            depth -= 1
        if count > 0 and depth == 0:
            return (count, key_count) if at == end else (-1, 0)
        node = nodes[count]
        node.parent, node.key = -1, -1
        if depth > 0:
            level = levels[depth - 1]
            level.left -= 1
            node.parent = level.node
            if level.is_map:
                major, argument, at = read_head(data, at, end)
                if major != 3 or argument > _U(end - at):
                    return -1, 0
                length = np.int64(argument)
                found = _find_key(data, keys, key_count, at, length)
                if found == key_count:
                    if key_count == MOST_KEYS:
                        return -1, 0
                    keys[key_count].start, keys[key_count].length = at, length
                    key_count += 1
                node.key = found
                at += length
        first = data[at] if at < end else 0
        major, argument, at = read_head(data, at, end)
        node.start, node.length, node.bits, node.count, node.used, node.done = at, 0, 0, 0, 0, 0
        if major == 0 or major == 1:
            if argument >> _U(63):
                return -1, 0
            node.kind = _INTEGER
            node.bits = np.int64(argument) if major == 0 else -1 - np.int64(argument)
        elif major == 2 or major == 3:
            if argument > _U(end - at):
                return -1, 0
            node.kind, node.length = (_BINARY if major == 2 else _TEXT), np.int64(argument)
            at += node.length
        elif major == 4 or major == 5:
            if argument > _U(end - at) or depth == MOST_DEPTH:
                return -1, 0
            node.kind, node.count = (_ARRAY if major == 4 else _OBJECT), np.int64(argument)
            levels[depth].node, levels[depth].left, levels[depth].is_map = count, node.count, major == 5
            depth += 1
        elif major == 7:
            info = np.int64(first & 31)
            if info == 20 or info == 21 or info == 22:
                node.kind = _FALSE if info == 20 else _TRUE if info == 21 else _NULL
            elif 25 <= info <= 27:
                node.kind = _DOUBLE
                node.bits = np.float64(read_real(info, argument)).view(np.int64)
            else:
                return -1, 0
        else:
            return -1, 0
        count += 1


@compiled
def _are_known(data: Any, keys: Any, key_count: Any, known: Any) -> Any:
    """Say whether keys are those of another row; their order and ranks are then still entered."""
    for i in range(key_count):
        start, length = keys[i].start, keys[i].length
        if length != known[i, 1]:
            return False
        for j in range(length):
            if data[start + j] != data[known[i, 0] + j]:
                return False
    return True


@compiled
def _find_key(data: Any, keys: Any, key_count: Any, start: Any, length: Any) -> Any:
    for key in range(key_count):
        if keys[key].length == length:
            same = True
            for i in range(length):
                if data[keys[key].start + i] != data[start + i]:
                    same = False
                    break
            if same:
                return key
    return key_count


@compiled
def _measure(nodes: Any, count: Any, key_count: Any) -> Any:
    """Set the size of each node; give the width of ids and of offsets, alike in the whole value."""
    id_width = 1 if key_count <= 256 else 2
    for width in (1, 2, 4):
        for i in range(count):
            nodes[i].used = 0
        for i in range(count - 1, -1, -1):
            node = nodes[i]
            if node.kind == _INTEGER:
                v = node.bits
                node.size = 2 if -128 <= v < 128 else 3 if -32768 <= v < 32768 else 5 if -(2**31) <= v < 2**31 else 9
            elif node.kind == _DOUBLE:
                node.size = 9
            elif node.kind == _TEXT:
                node.size = node.length + (1 if node.length < 64 else 5)
            elif node.kind == _BINARY:
                node.size = node.length + 5
            elif node.kind == _OBJECT or node.kind == _ARRAY:
                ids = node.count * id_width if node.kind == _OBJECT else 0
                node.size = 1 + (4 if node.count > 255 else 1) + ids + (node.count + 1) * width + node.used
            else:
                node.size = 1
            if node.parent >= 0:
                nodes[node.parent].used += node.size
        if nodes[0].size < 1 << (8 * width):
            break
    return id_width, width


@compiled
def _above(data: Any, left: Any, right: Any) -> Any:
    """Say whether a key comes after another in the order of UTF-16, which is the JVM's."""
    for i in range(min(left.length, right.length)):
        a, b = data[left.start + i], data[right.start + i]
        if a != b:
            if a >= 0xEE and b >= 0xEE and (a >= 0xF0) != (b >= 0xF0):
                return a < b  # a surrogate pair is below the last of the plain letters
            return a > b
    return left.length > right.length


@compiled
def _sort_keys(data: Any, keys: Any, key_count: Any) -> None:
    for i in range(key_count):
        j = i
        while j > 0 and _above(data, keys[keys[j - 1].order], keys[i]):
            keys[j].order = keys[j - 1].order
            j -= 1
        keys[j].order = i
    for i in range(key_count):
        keys[keys[i].order].rank = i


@compiled
def _put_number(out: Any, to: Any, value: Any, width: Any) -> Any:
    """Write the low bytes of a whole number, the lowest first."""
    if width == 1:
        out[to] = value & 0xFF
        return to + 1
    for i in range(width):
        out[to + i] = (value >> (8 * i)) & 0xFF
    return to + width


@compiled
def _put_metadata(data: Any, keys: Any, key_count: Any, out: Any, to: Any) -> Any:
    total = 0
    for i in range(key_count):
        total += keys[i].length
    most = max(total, key_count)
    width = 1 if most < 256 else 2 if most < 65536 else 4
    out[to] = 0x11 | (width - 1) << 6
    to = _put_number(out, to + 1, key_count, width)
    at = 0
    for i in range(key_count + 1):
        to = _put_number(out, to, at, width)
        if i < key_count:
            at += keys[keys[i].order].length
    for i in range(key_count):
        key = keys[keys[i].order]
        for j in range(key.length):
            out[to + j] = data[key.start + j]
        to += key.length
    return to


@compiled
def _put_value(data: Any, nodes: Any, count: Any, keys: Any, id_width: Any, width: Any, out: Any, base: Any) -> Any:
    """Write the nodes, each container's tables as its children come; give the place after them."""
    nodes[0].at = base
    for i in range(count):
        node = nodes[i]
        if node.parent >= 0:
            _place(nodes[node.parent], node, keys, id_width, width, out)
        if node.kind == _OBJECT or node.kind == _ARRAY:
            is_large, tables = (1 if node.count > 255 else 0), 0
            if node.kind == _OBJECT:
                out[node.at] = ((is_large << 4 | (id_width - 1) << 2 | (width - 1)) << 2) | 2
                tables = node.count * id_width
            else:
                out[node.at] = ((is_large << 2 | (width - 1)) << 2) | 3
            node.start = _put_number(out, node.at + 1, node.count, 4 if is_large else 1)  # of ids, then offsets
            offsets = node.start + tables
            _put_number(out, offsets + node.count * width, node.used, width)
            node.length = offsets + (node.count + 1) * width  # where the values begin
            node.used, node.done = 0, 0
        else:
            _put_scalar(data, node, out)
    return base + nodes[0].size


@compiled
def _place(parent: Any, node: Any, keys: Any, id_width: Any, width: Any, out: Any) -> None:
    """Give a child its place after those before it, and enter it in its parent's tables, in the order of keys."""
    slot, offsets = parent.done, parent.start
    if parent.kind == _OBJECT:
        offsets += parent.count * id_width
        rank = keys[node.key].rank
        while slot > 0 and _number(out, parent.start + (slot - 1) * id_width, id_width) > rank:
            for i in range(id_width):
                out[parent.start + slot * id_width + i] = out[parent.start + (slot - 1) * id_width + i]
            for i in range(width):
                out[offsets + slot * width + i] = out[offsets + (slot - 1) * width + i]
            slot -= 1
        _put_number(out, parent.start + slot * id_width, rank, id_width)
    _put_number(out, offsets + slot * width, parent.used, width)
    node.at = parent.length + parent.used
    parent.used += node.size
    parent.done += 1


@compiled
def _number(data: Any, at: Any, width: Any) -> Any:
    """Read a whole number without a sign, the lowest byte first."""
    if width == 1:
        return np.int64(data[at])
    value = np.int64(0)
    for i in range(width):
        value |= np.int64(data[at + i]) << (8 * i)
    return value


@compiled
def _put_scalar(data: Any, node: Any, out: Any) -> None:
    to = node.at
    if node.kind == _INTEGER:
        kind = 3 if node.size == 2 else 4 if node.size == 3 else 5 if node.size == 5 else 6
        out[to] = kind << 2
        _put_number(out, to + 1, node.bits, node.size - 1)
    elif node.kind == _DOUBLE:
        out[to] = 7 << 2
        _put_number(out, to + 1, node.bits, 8)
    elif node.kind == _TEXT or node.kind == _BINARY:
        if node.kind == _TEXT and node.length < 64:
            out[to] = node.length << 2 | 1
            to += 1
        else:
            out[to] = (16 if node.kind == _TEXT else 15) << 2
            to = _put_number(out, to + 1, node.length, 4)
        for i in range(node.length):
            out[to + i] = data[node.start + i]
    else:
        out[to] = (0 if node.kind == _NULL else 1 if node.kind == _TRUE else 2) << 2


@compiled
def _to_dynamics(
    data: Any, offsets: Any, meta: Any, meta_offsets: Any, valid: Any, row: Any, frames: Any, states: Any, out: Any,
    ends: Any,
) -> Any:  # fmt: skip
    """Transcode rows from ``row`` on; give the first that there was no room for, or their number."""
    names = np.empty((MOST_DEPTH + 1, MOST_KEYS, 3), dtype=np.int64)  # of the maps that are open, in order
    for at in range(row, len(valid)):
        to = ends[at]
        if valid[at]:
            state, end = _put_dynamic(
                data, np.int64(offsets[at]), np.int64(offsets[at + 1]), meta, np.int64(meta_offsets[at]),
                np.int64(meta_offsets[at + 1]), frames, names, out, to,
            )  # fmt: skip
            if state == _FULL:
                return at
            states[at] = state
            to = end if state == _DONE else to
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
            return _FULL, to
        state, to, is_open = _put_item(data, at, end, frames, depth, out, to)
        if state != _DONE:
            return state, to
        if is_open:
            frame = frames[depth]
            if frame.is_map and not _order_keys(data, frame, meta, meta_start, meta_end, names[depth]):
                return _LEFT, to
            depth += 1
            if depth == MOST_DEPTH:
                return _LEFT, to
        while depth > 0 and frames[depth - 1].next == frames[depth - 1].count:
            depth -= 1
        if depth == 0:
            return _DONE, to
        frame = frames[depth - 1]
        slot = frame.next
        if frame.is_map:
            key_at, key_length, slot = names[depth - 1, frame.next]
            if not _is_text(meta, key_at, key_length):
                return _LEFT, to
            if to + key_length + 16 > len(out):
                return _FULL, to
            to = put_head(out, to, _U(0x60), _U(key_length))
            for i in range(key_length):
                out[to + i] = meta[key_at + i]
            to += key_length
        frame.next += 1
        at = frame.values + _number(data, frame.offsets + slot * frame.width, frame.width)
        if at < start or at >= end:
            return _LEFT, to


@compiled
def _put_item(data: Any, at: Any, end: Any, frames: Any, depth: Any, out: Any, to: Any) -> Any:
    """Write one scalar, or open one container: what happened, the place after it, and whether it is open now."""
    if at >= end:
        return _LEFT, to, False
    basic, kind = np.int64(data[at] & 3), np.int64(data[at] >> 2)
    if basic >= 2:
        state = _open_frame(data, at, end, frames[depth], basic == 2, kind)
        if state != _DONE:
            return state, to, False
        count = frames[depth].count
        return _DONE, put_head(out, to, _U(0xA0 if basic == 2 else 0x80), _U(count)), True
    if basic == 1 or kind == 16 or kind == 15:
        length, place = kind, at + 1
        if basic == 0:
            if at + 5 > end:
                return _LEFT, to, False
            length, place = _number(data, at + 1, 4), at + 5
        if place + length > end or ((kind != 15 or basic == 1) and not _is_text(data, place, length)):
            return _LEFT, to, False
        if to + length + 16 > len(out):
            return _FULL, to, False
        to = put_head(out, to, _U(0x40 if basic == 0 and kind == 15 else 0x60), _U(length))
        for i in range(length):
            out[to + i] = data[place + i]
        return _DONE, to + length, False
    if kind <= 2:
        out[to] = 0xF6 if kind == 0 else 0xF5 if kind == 1 else 0xF4
        return _DONE, to + 1, False
    state, to = _put_numeric(data, at, end, kind, out, to)
    return state, to, False


@compiled
def _is_text(data: Any, at: Any, length: Any) -> Any:
    """Say whether bytes are UTF-8; those that are plain ASCII, or nearly so, are told at once."""
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
            return _LEFT, to
        return _DONE, put_number(out, to, INT, _signed(data, at + 1, width), False)
    if kind == 7 or kind == 14:
        if at + 1 + (8 if kind == 7 else 4) > end:
            return _LEFT, to
        if kind == 7:
            value = np.int64(_number(data, at + 1, 8)).view(np.float64)
        else:
            value = np.float64(np.uint32(_number(data, at + 1, 4)).view(np.float32))
        return _DONE, _put_double(out, to, value)
    if kind == 8 or kind == 9:
        width = 4 if kind == 8 else 8
        if at + 2 + width > end:
            return _LEFT, to
        scale, unscaled = np.int64(data[at + 1]), _signed(data, at + 2, width)
        if scale == 0:
            return _DONE, put_number(out, to, INT, unscaled, False)
        if scale <= 22 and -(1 << 53) < unscaled < 1 << 53:  # both are exact, so their quotient is the nearest double
            return _DONE, _put_double(out, to, np.float64(unscaled) / 10.0**scale)
    return _LEFT, to


@compiled
def _put_double(out: Any, to: Any, value: Any) -> Any:
    if np.isnan(value) or np.isinf(value):
        out[to], out[to + 2] = 0xF9, 0
        out[to + 1] = 0x7E if np.isnan(value) else 0x7C if value > 0 else 0xFC
        return to + 3
    return put_number(out, to, REAL, np.float64(value).view(np.int64), False)


@compiled
def _signed(data: Any, at: Any, width: Any) -> Any:
    value = _number(data, at, width)
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
        return _LEFT
    frame.at, frame.is_map, frame.next = at, is_map, 0
    frame.count = _number(data, at + 1, size)
    if frame.count > end - at:
        return _LEFT
    frame.ids = at + 1 + size
    frame.offsets = frame.ids + frame.count * frame.id_width
    frame.values = frame.offsets + (frame.count + 1) * frame.width
    if frame.values > end or (is_map and frame.count > MOST_KEYS):
        return _LEFT
    return _DONE


@compiled
def _key_of(data: Any, frame: Any, slot: Any, meta: Any, start: Any, end: Any) -> Any:
    """Give where a field's name lies in the metadata and how long it is; a length of -1 is malformed."""
    id = _number(data, frame.ids + slot * frame.id_width, frame.id_width)
    if start >= end:
        return start, np.int64(-1)
    width = np.int64(meta[start] >> 6) + 1
    if start + 1 + width > end:
        return start, np.int64(-1)
    count = _number(meta, start + 1, width)
    table = start + 1 + width
    texts = table + (count + 1) * width
    if id >= count or texts > end:
        return start, np.int64(-1)
    first = _number(meta, table + id * width, width)
    last = _number(meta, table + (id + 1) * width, width)
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
