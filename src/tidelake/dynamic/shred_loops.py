"""Take CBOR values apart into leaves and put them together again, compiled: the loops behind ``shredding``.

``split`` walks values and lists their leaves in order; rows with the same list of leaves share a *shape*. ``templates``
writes down what a shape puts before each of its leaves, which is all of a value that is not in its leaves, and
``assemble`` writes values again. Bytes are not trusted, and only canonical ones are taken apart, since only those can
be written again from what they mean; other values stay whole. It does not know columns: see ``shredding``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelake.dynamic.cbor_loops import (
    FALSE,
    HALF,
    MAP,
    NEGATIVE,
    SIMPLE,
    TEXT,
    TRUE,
    UNSIGNED,
    read_head,
    read_real,
    skip,
)
from tidelake.dynamic.shredding import BAG, BOOL, EMPTY, INT, KINDS, NULL, OTHER, REAL, TEXT_LEAF
from tidelake.runtime.compiling import allocating, compiled, inlined

MAX_DEPTH = 64  # of maps that are taken apart
MAX_CHILDREN = 1024  # keys that a map may have in all rows together: one with more is a bag, and stays whole
DONE, NODES_FULL, LEAVES_FULL, SHAPES_FULL = range(4)  # how ``split`` ends: which table was too small
NODES, LEAVES, SHAPES = range(3)  # what ``split`` counts

_U = np.uint64
_MIX, _FOLD = _U(0x9E37_79B9_7F4A_7C15), _U(32)
_NULL_BYTE, _EMPTY_BYTE, _FALSE_BYTE = 0xF6, 0xA0, 0xF4


@inlined
def _head_size(argument: Any) -> Any:
    """Return how many bytes the shortest head with an argument takes."""
    if argument < _U(24):
        return 1
    if argument < _U(1 << 8):
        return 2
    if argument < _U(1 << 16):
        return 3
    return 5 if argument < _U(1 << 32) else 9


@inlined
def _mixed(hash: Any, word: Any) -> Any:
    hash = (hash ^ _U(word)) * _MIX
    return hash ^ (hash >> _FOLD)


@inlined
def _real_size(value: Any, bits: Any) -> Any:
    """Return how many bytes a double takes in its shortest form; 0 for a NaN that has none."""
    if value != value:
        return 3 if bits == _U(0x7FF8_0000_0000_0000) else 0
    if np.float64(np.float32(value)) != value:
        return 9
    exponent = np.int64((bits >> _U(52)) & _U(0x7FF)) - 1023
    if value == 0.0 or exponent == 1024:
        return 3
    if exponent > 15 or exponent < -24:
        return 5
    spare = _U(42) if exponent >= -14 else _U(42 + (-14 - exponent))  # bits of the fraction that a half lacks
    return 3 if bits & ((_U(1) << spare) - _U(1)) == _U(0) else 5


@allocating
def split(
    data: Any, offsets: Any, stays: Any, nodes: Any, node_slots: Any, leaf_ids: Any, starts: Any, ends: Any,
    values: Any, shapes: Any, shape_slots: Any, row_shapes: Any, counts: Any,
) -> Any:  # fmt: skip
    """List the leaves of every value: which node and kind, where it lies, and its number; the answer says how it ended.

    ``stays`` marks rows that stay whole. ``nodes`` is the tree of keys, the root first; a key lies where it was first
    seen.
    """
    left = np.empty(MAX_DEPTH, dtype=np.int64)  # pairs still to read of each map that is open
    inside = np.empty(MAX_DEPTH, dtype=np.int64)  # its node
    opened = np.empty(MAX_DEPTH, dtype=np.int64)  # where it begins
    before = np.empty(MAX_DEPTH, dtype=np.int64)  # how many leaves there were before it
    key_at, key_size = np.empty(MAX_DEPTH, dtype=np.int64), np.empty(MAX_DEPTH, dtype=np.int64)  # of its last key
    last = np.empty(MAX_DEPTH, dtype=np.int64)  # the node of its last key
    node_mask, shape_mask = _U(len(node_slots) - 1), _U(len(shape_slots) - 1)
    for row in range(len(offsets) - 1):
        begin, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        first_leaf = counts[LEAVES]
        at, depth, node, is_plain = begin, -1, np.int64(0), True
        while True:
            if depth >= 0:
                while depth >= 0 and left[depth] == 0:
                    depth -= 1
                if depth < 0:
                    break
                left[depth] -= 1
                head_at = at
                major, argument, at = read_head(data, at, end)
                if major != TEXT or argument > _U(end - at) or at - head_at != _head_size(argument):
                    is_plain = False
                    break
                size, parent = np.int64(argument), inside[depth]
                if key_size[depth] >= 0:  # keys ascend: the shorter first, then by their bytes
                    ascends = size > key_size[depth]
                    if size == key_size[depth]:
                        for i in range(size):
                            if data[at + i] != data[key_at[depth] + i]:
                                ascends = data[at + i] > data[key_at[depth] + i]
                                break
                    if not ascends:
                        is_plain = False
                        break
                key_at[depth], key_size[depth] = at, size
                node = nodes[last[depth]].next if last[depth] >= 0 else nodes[parent].first  # as in a row before
                if node >= 0:
                    same = nodes[node].size == size
                    if same:
                        for i in range(size):
                            if data[nodes[node].at + i] != data[at + i]:
                                same = False
                                break
                    if not same:
                        node = np.int64(-1)
                if node < 0:
                    hash = _mixed(_MIX, parent)
                    for i in range(size):
                        hash = (hash ^ _U(data[at + i])) * _MIX
                    slot = (hash ^ (hash >> _FOLD)) & node_mask
                    while node_slots[slot] >= 0:
                        other = np.int64(node_slots[slot])
                        if nodes[other].parent == parent and nodes[other].size == size:
                            same = True
                            for i in range(size):
                                if data[nodes[other].at + i] != data[at + i]:
                                    same = False
                                    break
                            if same:
                                node = other
                                break
                        slot = (slot + _U(1)) & node_mask
                    if node < 0:
                        if nodes[parent].children >= MAX_CHILDREN:  # too many keys: this map stays whole
                            nodes[parent].is_bag = 1
                            counts[LEAVES] = before[depth]
                            node, at = parent, opened[depth]
                            depth -= 1
                            after = skip(data, at, end)
                            if after < 0:
                                is_plain = False
                                break
                            starts[counts[LEAVES]], ends[counts[LEAVES]] = at, after
                            leaf_ids[counts[LEAVES]], values[counts[LEAVES]] = node * KINDS + BAG, 0
                            counts[LEAVES] += 1
                            at = after
                            if depth < 0:
                                break
                            continue
                        node = counts[NODES]
                        if node * 2 >= len(node_slots):
                            return NODES_FULL
                        node_slots[slot] = node
                        nodes[node].parent, nodes[node].at, nodes[node].size = parent, at, size
                        nodes[node].first, nodes[node].next = -1, -1
                        nodes[parent].children += 1
                        counts[NODES] += 1
                    if last[depth] >= 0:
                        nodes[last[depth]].next = node
                    else:
                        nodes[parent].first = node
                last[depth] = node
                at += size
            if counts[LEAVES] == len(leaf_ids):
                return LEAVES_FULL
            if stays[row]:
                is_plain = False
                break
            start = at
            major, argument, at = read_head(data, at, end)
            if major < 0:
                is_plain = False
                break
            info, kind, number = np.int64(data[start] & 31), OTHER, np.int64(0)
            is_short = major == SIMPLE or at - start == _head_size(argument)
            if major == MAP and is_short:
                if argument == _U(0):
                    kind = EMPTY
                elif depth + 1 == MAX_DEPTH or nodes[node].is_bag or argument > _U(end - at):
                    kind = BAG
                else:
                    depth += 1
                    left[depth], inside[depth], opened[depth] = np.int64(argument), node, start
                    before[depth], key_size[depth], last[depth] = counts[LEAVES], -1, -1
                    continue
            elif major == MAP:
                kind = BAG
            elif major <= NEGATIVE and is_short and argument >> _U(63) == _U(0):
                kind = INT
                number = np.int64(argument) if major == UNSIGNED else -1 - np.int64(argument)
            elif major == TEXT and is_short:
                if argument > _U(end - at):
                    is_plain = False
                    break
                kind, number = TEXT_LEAF, np.int64(argument)
                at += number
            elif major == SIMPLE and info in (FALSE, TRUE):
                kind, number = BOOL, info - FALSE
            elif major == SIMPLE and info == 22:
                kind = NULL
            elif major == SIMPLE and info >= HALF:
                real = read_real(info, argument)
                bits = np.float64(real).view(np.uint64)
                if real == real or (info == HALF and argument == _U(0x7E00)):
                    if real != real:
                        bits = _U(0x7FF8_0000_0000_0000)
                    if _real_size(real, bits) == at - start:
                        kind, number = REAL, np.int64(bits)
            if kind in (OTHER, BAG):
                at = skip(data, start, end)
                if at < 0:
                    is_plain = False
                    break
            place = counts[LEAVES]
            leaf_ids[place], starts[place], ends[place], values[place] = node * KINDS + kind, start, at, number
            counts[LEAVES] += 1
            if depth < 0:
                break
        if not is_plain or at != end:
            counts[LEAVES] = first_leaf + 1
            leaf_ids[first_leaf], starts[first_leaf], ends[first_leaf], values[first_leaf] = BAG, begin, end, 0
        hash, size = _MIX, counts[LEAVES] - first_leaf
        for i in range(first_leaf, counts[LEAVES]):
            hash = _mixed(hash, leaf_ids[i])
        slot = hash & shape_mask
        shape = np.int64(-1)
        while shape_slots[slot] >= 0:
            other = np.int64(shape_slots[slot])
            same = shapes[other].hash == hash and shapes[other].size == size
            if same:
                for i in range(size):
                    if leaf_ids[shapes[other].at + i] != leaf_ids[first_leaf + i]:
                        same = False
                        break
            if same:
                shape = other
                break
            slot = (slot + _U(1)) & shape_mask
        if shape < 0:
            shape = counts[SHAPES]
            if shape * 2 >= len(shape_slots):
                return SHAPES_FULL
            shape_slots[slot] = shape
            shapes[shape].hash, shapes[shape].at, shapes[shape].size = hash, first_leaf, size
            counts[SHAPES] += 1
        row_shapes[row] = shape
    return DONE


@inlined
def _put_head(out: Any, at: Any, major: Any, argument: Any) -> Any:
    size = _head_size(argument)
    if size == 1:
        out[at] = np.uint8((major << 5) | np.int64(argument))
        return at + 1
    width = size - 1
    out[at] = np.uint8((major << 5) | (24 if width == 1 else 25 if width == 2 else 26 if width == 4 else 27))
    for i in range(width):
        out[at + 1 + i] = np.uint8((argument >> _U(8 * (width - 1 - i))) & _U(255))
    return at + size


@allocating
def templates(
    shape_offsets: Any, shape_leaves: Any, leaf_nodes: Any, leaf_kinds: Any, parents: Any, depths: Any,
    key_offsets: Any, keys: Any, root: Any, out: Any, out_offsets: Any,
) -> Any:  # fmt: skip
    """Write what comes before each leaf of each shape; the answer is how many bytes that is, or -1 without room."""
    children = np.zeros(len(parents), dtype=np.int64)
    way = np.empty(MAX_DEPTH + 1, dtype=np.int64)
    at = 0
    for shape in range(len(shape_offsets) - 1):
        first, last = shape_offsets[shape], shape_offsets[shape + 1]
        for counting in (True, False):
            previous = np.int64(root)
            for i in range(first, last):
                leaf = shape_leaves[i]
                node, kind = np.int64(leaf_nodes[leaf]), leaf_kinds[leaf]
                steps, common = 0, previous  # the nodes that are entered between the leaf before and this one
                if i == first:
                    common = np.int64(root)
                upper = node
                while depths[upper] > depths[common]:
                    way[steps] = upper
                    steps += 1
                    upper = np.int64(parents[upper])
                while depths[common] > depths[upper]:
                    common = np.int64(parents[common])
                while upper != common:
                    way[steps] = upper
                    steps += 1
                    upper, common = np.int64(parents[upper]), np.int64(parents[common])
                if counting:
                    for step in range(steps):
                        children[parents[way[step]]] += 1
                else:
                    if at + 16 > len(out):
                        return -1
                    out_offsets[i] = at
                    if i == first and node != root:
                        at = _put_head(out, at, MAP, _U(children[root]))
                    for step in range(steps - 1, -1, -1):
                        entered = way[step]
                        size = key_offsets[entered + 1] - key_offsets[entered]
                        if at + size + 32 > len(out):
                            return -1
                        at = _put_head(out, at, TEXT, _U(size))
                        for j in range(size):
                            out[at + j] = keys[key_offsets[entered] + j]
                        at += size
                        if step > 0:
                            at = _put_head(out, at, MAP, _U(children[entered]))
                    if kind == NULL:
                        out[at] = _NULL_BYTE
                        at += 1
                    elif kind == EMPTY:
                        out[at] = _EMPTY_BYTE
                        at += 1
                previous = node
            if not counting:
                for i in range(first, last):
                    upper = np.int64(leaf_nodes[shape_leaves[i]])
                    while upper >= 0:
                        children[upper] = 0
                        upper = np.int64(parents[upper])
    out_offsets[len(shape_leaves)] = at
    return at


@compiled
def assemble(
    row_shapes: Any, shape_offsets: Any, shape_leaves: Any, leaf_kinds: Any, literal_offsets: Any, literals: Any,
    cursors: Any, numbers: Any, text_offsets: Any, texts: Any, out: Any, out_offsets: Any,
) -> Any:  # fmt: skip
    """Write values: before each leaf what its shape says, then what the leaf's column has next."""
    at = np.int64(0)
    for row in range(len(row_shapes)):
        shape = row_shapes[row]
        for i in range(shape_offsets[shape], shape_offsets[shape + 1]):
            first, size = literal_offsets[i], literal_offsets[i + 1] - literal_offsets[i]
            for j in range(size):
                out[_U(at + j)] = literals[_U(first + j)]
            at += size
            leaf = shape_leaves[i]
            kind = leaf_kinds[leaf]
            if kind in (NULL, EMPTY):
                continue
            place = cursors[leaf]
            cursors[leaf] += 1
            if kind in (TEXT_LEAF, OTHER, BAG):
                size = np.int64(text_offsets[place + 1]) - np.int64(text_offsets[place])
                if kind == TEXT_LEAF:
                    at = _put_head(out, at, TEXT, _U(size))
                begin = np.int64(text_offsets[place])
                for j in range(size):
                    out[_U(at + j)] = texts[_U(begin + j)]
                at += size
            elif kind == INT:
                number = numbers[place]
                if number >= 0:
                    at = _put_head(out, at, UNSIGNED, _U(number))
                else:
                    at = _put_head(out, at, NEGATIVE, _U(-1 - number))
            elif kind == BOOL:
                out[at] = np.uint8(_FALSE_BYTE + numbers[place])
                at += 1
            else:
                at = _put_real(out, at, _U(numbers[place]))
        out_offsets[row + 1] = at
    return at


@inlined
def _put_real(out: Any, at: Any, bits: Any) -> Any:
    """Write a double in its shortest form."""
    value = np.uint64(bits).view(np.float64)
    size = _real_size(value, bits)
    word, width = bits, 8
    if value != value:
        word, width = _U(0x7E00), 2
    elif size == 5:
        word, width = _U(np.float32(value).view(np.uint32)), 4
    elif size == 3:
        sign, exponent = (bits >> _U(63)) << _U(15), np.int64((bits >> _U(52)) & _U(0x7FF)) - 1023
        fraction = bits & ((_U(1) << _U(52)) - _U(1))
        width = 2
        if value == 0.0:
            word = sign
        elif exponent == 1024:
            word = sign | _U(0x7C00)
        elif exponent >= -14:
            word = sign | (_U(exponent + 15) << _U(10)) | (fraction >> _U(42))
        else:
            word = sign | ((fraction | (_U(1) << _U(52))) >> _U(42 + (-14 - exponent)))
    out[at] = np.uint8(0xF9 if width == 2 else 0xFA if width == 4 else 0xFB)
    for i in range(width):
        out[at + 1 + i] = np.uint8((word >> _U(8 * (width - 1 - i))) & _U(255))
    return at + 1 + width
