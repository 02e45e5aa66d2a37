"""Turn CBOR values into Spark's VARIANT bytes, compiled: the loops behind ``variant.variants_of``.

A row is parsed into nodes, the nodes are measured from the last to the first, and written from the first to the last.
A row that differs from the one before it in its scalars alone has the same nodes: only scalars are parsed, and what
lies between them is compared. It does not read variants: see ``variant``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelake.dynamic.cbor_loops import read_head, read_real
from tidelake.kernels.eight_bytes import eight, put_eight
from tidelake.runtime.compiling import allocating, compiled, inlined

MAX_KEYS = 1024  # of one row, in the compiled way: they are found one after the other
MAX_DEPTH = 128
MAX_PIECES = 256  # of a row that the next one is compared with: what lies before, between and after its scalars

U = np.uint64

DONE, LEFT, FULL = 0, 1, 2
NODE = np.dtype(
    [("kind", np.int64), ("start", np.int64), ("length", np.int64), ("bits", np.int64), ("parent", np.int64),
     ("key", np.int64), ("count", np.int64), ("size", np.int64), ("at", np.int64), ("used", np.int64),
     ("done", np.int64), ("slot", np.int64)]
)  # fmt: skip
PIECE = np.dtype([("start", np.int64), ("length", np.int64), ("node", np.int64)])  # and the scalar that comes after
KEY = np.dtype([("start", np.int64), ("length", np.int64), ("rank", np.int64), ("order", np.int64)])
LEVEL = np.dtype(
    [("node", np.int64), ("left", np.int64), ("is_map", np.bool_)]
)  # of the values that are open while parsing
_NULL, _TRUE, _FALSE, _INTEGER, _DOUBLE, _BINARY, _TEXT, _OBJECT, _ARRAY = range(9)


@allocating
def to_variants(
    data: Any, offsets: Any, valid: Any, row: Any, nodes: Any, keys: Any, levels: Any, pieces: Any, states: Any,
    out: Any, ends: Any, meta: Any, meta_ends: Any,
) -> Any:  # fmt: skip
    """Transcode rows from ``row`` on; give the first that there was no room for, or their number.

    Rows that follow each other mostly have the same keys, in the same order: their metadata is copied.
    """
    known, known_count, known_at, known_length = np.zeros((len(keys), 2), dtype=np.int64), -1, 0, 0
    count, piece_count, has_slots, id_width, width = 0, 0, False, 1, 1
    for at in range(row, len(valid)):
        to, meta_to = ends[at], meta_ends[at]
        start, end = np.int64(offsets[at]), np.int64(offsets[at + 1])
        if valid[at]:
            room = 20 * (end - start) + 72
            if to + room > len(out) or meta_to + room > len(meta):
                return at
            if piece_count > 0 and _parse_alike(data, start, end, nodes, pieces, piece_count):
                if not has_slots:
                    _find_slots(nodes, count, id_width, width, out)
                    has_slots = True
                id_width, width = _measure(nodes, count, known_count)
                for i in range(0, known_length, 8):  # there is room for more
                    put_eight(meta, meta_to + i, eight(meta, known_at + i))
                meta_to += known_length
                to = _put_value(data, nodes, count, keys, id_width, width, has_slots, out, to)
                ends[at + 1], meta_ends[at + 1] = to, meta_to
                continue
            count, key_count = _parse(data, start, end, nodes, keys, levels)
            piece_count, has_slots = 0, False
            if count > 0:
                piece_count = _pieces(nodes, count, start, end, pieces)
                id_width, width = _measure(nodes, count, key_count)
                if key_count == known_count and _are_known(data, keys, key_count, known):
                    for i in range(0, known_length, 8):
                        put_eight(meta, meta_to + i, eight(meta, known_at + i))
                    meta_to += known_length
                else:
                    _sort_keys(data, keys, key_count)
                    known_at, known_count = meta_to, key_count
                    meta_to = _put_metadata(data, keys, key_count, meta, meta_to)
                    known_length = meta_to - known_at
                    for i in range(key_count):
                        known[i, 0], known[i, 1] = keys[i].start, keys[i].length
                to = _put_value(data, nodes, count, keys, id_width, width, has_slots, out, to)
            else:
                states[at] = LEFT
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
                if major != 3 or argument > U(end - at):
                    return -1, 0
                length = np.int64(argument)
                found = _find_key(data, keys, key_count, at, length)
                if found == key_count:
                    if key_count == MAX_KEYS:
                        return -1, 0
                    keys[key_count].start, keys[key_count].length = at, length
                    key_count += 1
                node.key = found
                at += length
        began, first = at, data[at] if at < end else 0
        major, argument, at = read_head(data, at, end)
        node.start, node.length, node.count, node.used, node.done, node.at = at, 0, 0, 0, 0, began
        if major == 4 or major == 5:
            if argument > U(end - at) or depth == MAX_DEPTH:
                return -1, 0
            node.kind, node.count = (_ARRAY if major == 4 else _OBJECT), np.int64(argument)
            levels[depth].node, levels[depth].left, levels[depth].is_map = count, node.count, major == 5
            depth += 1
        elif _take_scalar(node, first, major, argument, at, end):
            at += node.length
        else:
            return -1, 0
        count += 1


@compiled
def _take_scalar(node: Any, first: Any, major: Any, argument: Any, at: Any, end: Any) -> Any:
    """Enter the scalar whose head ends here; give whether it is one that is done here."""
    node.start, node.length = at, 0
    if major == 0 or major == 1:
        node.kind = _INTEGER
        node.bits = np.int64(argument) if major == 0 else -1 - np.int64(argument)
        return argument >> U(63) == U(0)
    if major == 2 or major == 3:
        if argument > U(end - at):
            return False
        node.kind, node.length = (_BINARY if major == 2 else _TEXT), np.int64(argument)
        return True
    if major != 7:
        return False
    info = np.int64(first & 31)
    if info == 20 or info == 21 or info == 22:
        node.kind = _FALSE if info == 20 else _TRUE if info == 21 else _NULL
    elif 25 <= info <= 27:
        node.kind = _DOUBLE
        node.bits = np.float64(read_real(info, argument)).view(np.int64)
    else:
        return False
    return True


@compiled
def _pieces(nodes: Any, count: Any, at: Any, end: Any, pieces: Any) -> Any:
    """Enter what lies around the scalars of a row; give how many pieces that is, 0 if too many."""
    found = 0
    for i in range(count):
        node = nodes[i]
        if node.kind == _OBJECT or node.kind == _ARRAY:
            continue
        if found + 1 == len(pieces):
            return 0
        pieces[found].start, pieces[found].length, pieces[found].node = at, node.at - at, i
        at = node.start + node.length
        found += 1
    pieces[found].start, pieces[found].length, pieces[found].node = at, end - at, -1
    return found + 1


@compiled
def _parse_alike(data: Any, at: Any, end: Any, nodes: Any, pieces: Any, piece_count: Any) -> Any:
    """Read the scalars of a row that has the same pieces as another; give whether it has."""
    for i in range(piece_count):
        piece = pieces[i]
        if piece.length > end - at:
            return False
        for j in range(piece.length):
            if data[at + j] != data[piece.start + j]:
                return False
        at += piece.length
        if piece.node >= 0:
            first = data[at] if at < end else 0
            major, argument, at = read_head(data, at, end)
            if not _take_scalar(nodes[piece.node], first, major, argument, at, end):
                return False
            at += nodes[piece.node].length
    return at == end


@compiled
def _find_slots(nodes: Any, count: Any, id_width: Any, width: Any, out: Any) -> None:
    """Enter where each node is in the tables of its parent, as they were written: by its place, which no other has."""
    for i in range(1, count):
        node = nodes[i]
        parent = nodes[node.parent]
        if parent.kind == _OBJECT:
            offsets, node.slot = parent.start + parent.count * id_width, 0
            while number(out, offsets + node.slot * width, width) != node.at - parent.length:
                node.slot += 1


@compiled
def _are_known(data: Any, keys: Any, key_count: Any, known: Any) -> Any:
    """Return whether keys are those of another row; their order and ranks are then still entered."""
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
    """Return whether a key comes after another in the order of UTF-16, which is the JVM's."""
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
def _put_value(
    data: Any, nodes: Any, count: Any, keys: Any, id_width: Any, width: Any, has_slots: Any, out: Any, base: Any
) -> Any:
    """Write the nodes, each container's tables as its children come; give the place after them."""
    nodes[0].at = base
    for i in range(count):
        node = nodes[i]
        if node.parent >= 0:
            _place(nodes[node.parent], node, keys, id_width, width, has_slots, out)
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


@inlined
def _place(parent: Any, node: Any, keys: Any, id_width: Any, width: Any, has_slots: Any, out: Any) -> None:
    """Give a child its place after those before it, and enter it in its parent's tables, in the order of keys."""
    slot, offsets = parent.done, parent.start
    if parent.kind == _OBJECT:
        offsets += parent.count * id_width
        rank = keys[node.key].rank
        slot = node.slot if has_slots else _shifted(out, parent.start, offsets, slot, rank, id_width, width)
        if id_width == 1:
            out[U(parent.start + slot)] = np.uint8(rank)
        else:
            _put_number(out, parent.start + slot * id_width, rank, id_width)
    if width == 1:
        out[U(offsets + slot)] = np.uint8(parent.used)
    else:
        _put_number(out, offsets + slot * width, parent.used, width)
    node.at = parent.length + parent.used
    parent.used += node.size
    parent.done += 1


@compiled
def _shifted(out: Any, ids: Any, offsets: Any, slot: Any, rank: Any, id_width: Any, width: Any) -> Any:
    """Make room for a key in the tables of its parent, after those before it in order; give its place there."""
    while slot > 0 and number(out, ids + (slot - 1) * id_width, id_width) > rank:
        for i in range(id_width):
            out[ids + slot * id_width + i] = out[ids + (slot - 1) * id_width + i]
        for i in range(width):
            out[offsets + slot * width + i] = out[offsets + (slot - 1) * width + i]
        slot -= 1
    return slot


@compiled
def number(data: Any, at: Any, width: Any) -> Any:
    """Read a whole number without a sign, the lowest byte first."""
    if width == 1:
        return np.int64(data[at])
    value = np.int64(0)
    for i in range(width):
        value |= np.int64(data[at + i]) << (8 * i)
    return value


@inlined
def _put_scalar(data: Any, node: Any, out: Any) -> None:
    """Write a scalar, and up to seven bytes after it, where the next one will be."""
    to = node.at
    if node.kind == _INTEGER:
        out[U(to)] = np.uint8(12 if node.size == 2 else 16 if node.size == 3 else 20 if node.size == 5 else 24)
        put_eight(out, to + 1, U(node.bits))
    elif node.kind == _DOUBLE:
        out[U(to)] = np.uint8(7 << 2)
        put_eight(out, to + 1, U(node.bits))
    elif node.kind == _TEXT or node.kind == _BINARY:
        if node.kind == _TEXT and node.length < 64:
            out[U(to)] = np.uint8(node.length << 2 | 1)
            to += 1
        else:
            out[U(to)] = np.uint8((16 if node.kind == _TEXT else 15) << 2)
            put_eight(out, to + 1, U(node.length))
            to += 5
        if node.start + node.length + 8 <= len(data):
            for i in range(0, node.length, 8):
                put_eight(out, to + i, eight(data, node.start + i))
        else:
            for i in range(node.length):
                out[to + i] = data[node.start + i]
    else:
        out[U(to)] = np.uint8((0 if node.kind == _NULL else 1 if node.kind == _TRUE else 2) << 2)
