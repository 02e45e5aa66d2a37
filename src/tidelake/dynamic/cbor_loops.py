"""Walk CBOR values, compiled: the loops behind ``cbor``, and the heads and reals that other loops read.

Bytes are not trusted: every length is checked against the end of its value. It does not know columns: see ``cbor``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelake.dynamic.cbor import (
    FALSE_KIND,
    INT_KIND,
    MAX_FIND_MAPS,
    MAX_PATH_BYTES,
    MAX_WALK_DEPTH,
    NULL_KIND,
    OTHER_KIND,
    REAL_KIND,
    TEXT_KIND,
    TRUE_KIND,
)
from tidelake.kernels.bloom import LEAF_TEXT_CAP, SEED
from tidelake.kernels.text_loops import finished, stirred
from tidelake.runtime.compiling import allocating, compiled, inlined
from tidelake.runtime.readiness import has_loops

_U = np.uint64
_SEED = _U(SEED)

# Major types of CBOR, RFC 8949 section 3.1, and the simple values and widths of major 7.
UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE = range(8)
FALSE, TRUE, HALF, SINGLE = 20, 21, 25, 26
DOT = ord(".")

# What a leaf's hash says of its kind; extents keep these hashes, so the letters stay for good.
LEAF_TEXT, LEAF_WHOLE, LEAF_REAL = ord("s"), ord("i"), ord("d")
LEAF_TRUE, LEAF_FALSE, LEAF_BIG = ord("t"), ord("f"), ord("b")
NAN_BITS = _U(0x7FF8_0000_0000_0000)  # one for all of them

# What ``walk`` counts, and how it ends: all described, a form we never write, or which table was too small.
PATHS, LETTERS, LEAVES, TEXTS = range(4)
DONE, FOREIGN, PATHS_FULL, LETTERS_FULL, LEAVES_FULL, TEXTS_FULL = 0, -1, 1, 2, 3, 4
KNOWN, NEW, NO_ROOM = range(3)  # what became of a hash that was to be remembered


def copy(data: Any, starts: Any, lengths: Any, offsets: Any, out: Any) -> None:
    """Copy slices of bytes to where each belongs."""
    if has_loops():
        _copy(data, starts, lengths, offsets, out)
        return
    ends = np.cumsum(lengths)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    out[np.repeat(offsets[: len(starts)], lengths) + within] = data[np.repeat(starts, lengths) + within]


@compiled
def _copy(data: Any, starts: Any, lengths: Any, offsets: Any, out: Any) -> None:
    for row in range(len(starts)):
        at, start = offsets[row], starts[row]
        for i in range(lengths[row]):
            out[_U(at + i)] = data[_U(start + i)]  # unsigned: no place is asked whether it counts from the end


@compiled
def read_head(data: Any, at: Any, end: Any) -> Any:
    """Read one item's head: its major type, argument, and the place after it; a major of -1 is malformed."""
    if at >= end:
        return -1, _U(0), at
    first = data[at]
    major, info = np.int64(first >> 5), np.int64(first & 31)
    at += 1
    if info < 24:
        return major, _U(info), at
    if info > 27:
        return -1, _U(0), at
    size = np.int64(1) << (info - 24)
    if at + size > end:
        return -1, _U(0), at
    argument = _U(0)
    for i in range(size):
        argument = (argument << _U(8)) | _U(data[at + i])
    return major, argument, at + size


@compiled
def skip(data: Any, at: Any, end: Any) -> Any:
    """Return the place after one item, or -1 when it is malformed."""
    left = np.int64(1)
    while left > 0:
        left -= 1
        start = at
        major, argument, at = read_head(data, at, end)
        if major < 0:
            return np.int64(-1)
        if major in (BYTES, TEXT):
            if argument > _U(end - at):
                return np.int64(-1)
            at += np.int64(argument)
        elif major in (ARRAY, MAP):
            if argument > _U(end - start):
                return np.int64(-1)
            left += np.int64(argument) * (1 if major == ARRAY else 2)
        elif major == TAG:
            left += 1
    return at


@compiled
def read_real(info: Any, argument: Any) -> Any:
    """Turn the bits of a half, single or double into a double."""
    if info == HALF:
        exponent = np.int64((argument >> _U(10)) & _U(31))
        fraction = np.float64(argument & _U(1023))
        if exponent == 0:
            value = fraction * 2.0**-24
        elif exponent == 31:
            value = np.float64(np.inf if fraction == 0 else np.nan)
        else:
            value = (fraction + 1024.0) * 2.0 ** (exponent - 25)
        return -value if argument >> _U(15) else value
    if info == SINGLE:
        return np.float64(np.uint32(argument).view(np.float32))
    return np.uint64(argument).view(np.float64)


@compiled
def _hash_leaf(slot: Any, tag: Any, data: Any, at: Any, length: Any, number: Any) -> Any:
    """Hash a path, a zero, a tag, then text or the eight bytes of a number: ``pruning.outcomes.leaf_bytes``.

    Where the path and the zero leave off is kept in the path's slot.
    """
    hash, word, shift = slot.state, slot.word | _U(tag) << slot.shift, slot.shift + _U(8)
    if shift == _U(64):
        hash = stirred(hash, word)
        word, shift = _U(0), _U(0)
    if tag == LEAF_TEXT:
        for i in range(length):
            word |= _U(data[_U(at + i)]) << shift
            shift += _U(8)
            if shift == _U(64):
                hash = stirred(hash, word)
                word, shift = _U(0), _U(0)
    elif length:  # a word, across two where the path did not end with one
        hash = stirred(hash, word | number << shift)
        word = number >> (_U(64) - shift) if shift else _U(0)
    if shift:
        hash = stirred(hash, word)
    return finished(hash ^ _U(slot.length + 2 + length))


@compiled
def _hash_path(path: Any, length: Any) -> Any:
    hash, word, shift = _SEED, _U(0), _U(0)
    for i in range(length):
        word |= _U(path[i]) << shift
        shift += _U(8)
        if shift == _U(64):
            hash = stirred(hash, word)
            word, shift = _U(0), _U(0)
    if shift:
        hash = stirred(hash, word)
    return finished(hash ^ _U(length))


@compiled
def _remember(leaves: Any, hash: Any, counts: Any) -> Any:
    """Keep a hash: it was there, it is new, or there is no room. A table of one slot keeps nothing."""
    if len(leaves) == 1:
        return KNOWN
    if hash == _U(0):
        hash = _U(1)
    mask = _U(len(leaves) - 1)
    slot = hash & mask
    while leaves[slot] != _U(0):
        if leaves[slot] == hash:
            return KNOWN
        slot = (slot + _U(1)) & mask
    if counts[LEAVES] * 2 >= len(leaves):
        return NO_ROOM
    leaves[slot] = hash
    counts[LEAVES] += 1
    return NEW


@inlined
def _is_path(slot: Any, letters: Any, path: Any, length: Any) -> Any:
    """Whether a slot is a path's."""
    same = slot.length == length
    if same:
        for i in range(length):
            if letters[slot.start + i] != path[i]:
                same = False
                break
    return same


@inlined
def _slot_of(path: Any, length: Any, slots: Any, letters: Any, leaves: Any, counts: Any) -> Any:
    """Find or make the slot of a path; below zero it is the table that was too small, with its sign turned."""
    hash = _hash_path(path, length)
    mask = _U(len(slots) - 1)
    slot = hash & mask
    while slots[slot].length != 0:
        if slots[slot].hash == hash and _is_path(slots[slot], letters, path, length):
            return np.int64(slot)
        slot = (slot + _U(1)) & mask
    if counts[PATHS] * 2 >= len(slots):  # half full: chains stay short
        return np.int64(-PATHS_FULL)
    if counts[LETTERS] + length > len(letters):
        return np.int64(-LETTERS_FULL)
    slots[slot].hash, slots[slot].start, slots[slot].length = hash, counts[LETTERS], length
    state, word, shift = _SEED, _U(0), _U(0)
    for i in range(length + 1):  # with the zero that follows a path in its leaves
        if i < length:
            letters[counts[LETTERS] + i] = path[i]
            word |= _U(path[i]) << shift
        shift += _U(8)
        if shift == _U(64):
            state = stirred(state, word)
            word, shift = _U(0), _U(0)
    slots[slot].state, slots[slot].word, slots[slot].shift = state, word, shift
    counts[PATHS] += 1
    counts[LETTERS] += length
    if _remember(leaves, hash, counts) == NO_ROOM:
        return np.int64(-LEAVES_FULL)
    return np.int64(slot)


@inlined
def _see_beginning(slots: Any, slot: Any, is_text: Any, first: Any) -> None:
    """Widen what the texts at a path begin with; bytes become text that may begin with anything."""
    last = first if is_text else np.int64(255)
    if slots[slot].texts == 0:
        slots[slot].first, slots[slot].last = first, last
    else:
        slots[slot].first = min(slots[slot].first, first)
        slots[slot].last = max(slots[slot].last, last)
    slots[slot].texts += 1


@inlined
def _see_number(
    major: Any, info: Any, argument: Any, data: Any, slots: Any, slot: Any, leaves: Any, counts: Any
) -> Any:
    """Widen the bounds of the numbers at a path, and keep the hash of this one; whether there was room for it."""
    whole, bits, low = True, argument, 0.0
    if major == SIMPLE:
        low = read_real(info, argument)
        whole = np.abs(low) < 2.0**63 and low == np.floor(low)  # 3.0 is found by 3
        bits = _U(np.int64(low)) if whole else np.float64(low).view(np.uint64)
        if np.isnan(low):
            bits = NAN_BITS
    elif major == NEGATIVE:
        bits = ~argument
    is_big = (major != SIMPLE and argument >> _U(63) != _U(0)) or (
        major == SIMPLE and not np.isnan(low) and not np.isinf(low) and np.abs(low) >= 2.0**63
    )
    high = low
    if major != SIMPLE:  # the bounds are doubles: beyond 2**53 they keep a distance, so that they hold
        low = np.float64(argument) if major == UNSIGNED else -1.0 - np.float64(argument)
        slack = np.abs(low) * 2.0**-52 if np.abs(low) >= 2.0**53 else 0.0
        high = low + slack
        low = low - slack
    tag, width = (LEAF_BIG, 0) if is_big else (LEAF_WHOLE, 8) if whole else (LEAF_REAL, 8)
    if _remember(leaves, _hash_leaf(slots[slot], tag, data, 0, width, bits), counts) == NO_ROOM:
        return False
    if np.isnan(low):
        slots[slot].nan += 1
        if slots[slot].numbers == slots[slot].nan - 1:  # none but these: there are no bounds yet
            slots[slot].low, slots[slot].high = np.inf, -np.inf
    elif slots[slot].numbers == 0:
        slots[slot].low, slots[slot].high = low, high
    else:
        slots[slot].low = min(slots[slot].low, low)
        slots[slot].high = max(slots[slot].high, high)
    slots[slot].numbers += 1
    return True


def walk(
    data: Any, offsets: Any, slots: Any, letters: Any, leaves: Any, text_starts: Any, text_lengths: Any, counts: Any
) -> Any:
    """Describe every row: its paths, what is at each, and the hashes of leaves; the answer says how it ended."""
    path = np.empty(MAX_PATH_BYTES, dtype=np.uint8)  # of the value that is being read; inner maps go on where outer end
    left = np.empty(MAX_WALK_DEPTH, dtype=np.int64)  # items still to read of each map and list that is open
    is_map = np.empty(MAX_WALK_DEPTH, dtype=np.bool_)
    in_list = np.empty(MAX_WALK_DEPTH, dtype=np.bool_)  # what is inside a list has no path of its own
    lengths = np.empty(MAX_WALK_DEPTH, dtype=np.int64)  # of the path that led to each
    return _walk(
        data, offsets, slots, letters, leaves, text_starts, text_lengths, counts, path, left, is_map, in_list, lengths
    )


@compiled
def _walk(
    data: Any, offsets: Any, slots: Any, letters: Any, leaves: Any, text_starts: Any, text_lengths: Any, counts: Any,
    path: Any, left: Any, is_map: Any, in_list: Any, lengths: Any,
) -> Any:  # fmt: skip
    before = np.int64(0)  # the slot of the path before, of the row before too
    for row in range(len(offsets) - 1):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        depth = 0
        left[0], is_map[0], in_list[0], lengths[0] = 1, False, False, 0
        while depth >= 0:
            if left[depth] == 0:
                depth -= 1
                continue
            left[depth] -= 1
            here, listed, slot = lengths[depth], in_list[depth], np.int64(-1)
            if is_map[depth]:  # the key comes first
                major, argument, at = read_head(data, at, end)
                if major != TEXT or argument > _U(end - at):
                    return FOREIGN
                size = np.int64(argument)
                if not listed:
                    if here + size + 1 > MAX_PATH_BYTES:
                        return FOREIGN
                    if here:
                        path[here] = DOT
                        here += 1
                    for i in range(size):
                        path[here + i] = data[at + i]
                    here += size
                    if here == 0:
                        return FOREIGN
                    guess = slots[before].next  # rows are alike: what followed the last path, follows it again
                    if _is_path(slots[guess], letters, path, here):
                        slot = guess
                    else:
                        slot = _slot_of(path, here, slots, letters, leaves, counts)
                        if slot < 0:
                            return -slot
                        slots[before].next = slot
                    before = slot
                at += size
            has_path = slot >= 0
            begin = at
            major, argument, at = read_head(data, at, end)
            is_tagged = False
            while major == TAG:
                is_tagged = True
                begin = at
                major, argument, at = read_head(data, at, end)
            if major < 0:
                return FOREIGN
            if major in (ARRAY, MAP):
                if argument > _U(end - at) or depth + 1 == MAX_WALK_DEPTH:
                    return FOREIGN
                depth += 1
                left[depth], is_map[depth], lengths[depth] = np.int64(argument), major == MAP, here
                in_list[depth] = listed or major == ARRAY
                continue
            if major in (BYTES, TEXT):
                if argument > _U(end - at):
                    return FOREIGN
                size = np.int64(argument)
                if has_path:
                    first = np.int64(data[at]) if major == TEXT and size > 0 else np.int64(0)
                    _see_beginning(slots, slot, major == TEXT, first)
                if major == TEXT and not is_tagged:
                    fresh = NEW
                    if has_path:
                        leaf = _hash_leaf(slots[slot], LEAF_TEXT, data, at, min(size, LEAF_TEXT_CAP), _U(0))
                        fresh = _remember(leaves, leaf, counts)
                        if size > LEAF_TEXT_CAP:  # its beginning may be known, its end is not
                            fresh = max(fresh, NEW)
                    if fresh == NO_ROOM:
                        return LEAVES_FULL
                    if fresh == NEW and len(leaves) > 1:  # its words are not known either
                        if counts[TEXTS] == len(text_starts):
                            return TEXTS_FULL
                        text_starts[counts[TEXTS]], text_lengths[counts[TEXTS]] = at, size
                        counts[TEXTS] += 1
                at += size
                if is_tagged and has_path:  # a number too large for 64 bits, or a time: no bound holds
                    slots[slot].numbers += 1
                    slots[slot].low, slots[slot].high = -np.inf, np.inf
                    leaf = _hash_leaf(slots[slot], LEAF_BIG, data, at, 0, _U(0))
                    if _remember(leaves, leaf, counts) == NO_ROOM:
                        return LEAVES_FULL
                continue
            if not has_path:
                continue
            info = np.int64(data[begin] & 31)
            if major == SIMPLE and info < HALF:
                if info in (FALSE, TRUE):  # null and other simple values say no more than their path
                    leaf = _hash_leaf(slots[slot], LEAF_FALSE if info == FALSE else LEAF_TRUE, data, at, 0, _U(0))
                    if _remember(leaves, leaf, counts) == NO_ROOM:
                        return LEAVES_FULL
            elif not _see_number(major, info, argument, data, slots, slot, leaves, counts):
                return LEAVES_FULL
        if at != end:
            return FOREIGN
    return DONE


@compiled
def _find(data: Any, start: Any, end: Any, path: Any, maps: Any, steps: Any) -> Any:
    """Find the place of what a value has at a path, the longest key first; -1 if nothing is there.

    ``maps`` and ``steps`` are room for the maps still to look into, the next one last, and how much of the path led
    to each. A path has at most one such map for each of its dots in each map on the way, and those are few.
    """
    maps[0], steps[0] = start, 0
    waiting = 1
    while waiting > 0:
        waiting -= 1
        at, taken = maps[waiting], steps[waiting]
        wanted = len(path) - taken
        floor = waiting
        major, argument, at = read_head(data, at, end)
        if major != MAP:
            continue
        for _ in range(np.int64(argument)):
            major, argument, at = read_head(data, at, end)
            if major != TEXT or argument > _U(end - at):
                return np.int64(-1)
            size = np.int64(argument)
            fits = size <= wanted and (size == wanted or path[taken + size] == DOT)
            if fits:
                for i in range(size):
                    if data[at + i] != path[taken + i]:
                        fits = False
                        break
            at += size
            if fits and size == wanted:
                return at
            if fits and waiting < len(maps):
                place = waiting  # keep this map's candidates in order of their keys' length, the longest last
                while place > floor and steps[place - 1] > taken + size + 1:
                    maps[place], steps[place] = maps[place - 1], steps[place - 1]
                    place -= 1
                maps[place], steps[place] = at, taken + size + 1
                waiting += 1
            at = skip(data, at, end)
            if at < 0:
                return np.int64(-1)
    return np.int64(-1)


@allocating
def extract(data: Any, offsets: Any, path: Any, kinds: Any, ints: Any, reals: Any, starts: Any, lengths: Any) -> None:
    """Say what every row has at a path; an empty one stands for the value itself."""
    maps, steps = np.empty(MAX_FIND_MAPS, dtype=np.int64), np.empty(MAX_FIND_MAPS, dtype=np.int64)
    for row in range(len(offsets) - 1):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        if len(path) > 0:
            at = _find(data, at, end, path, maps, steps)
        if at < 0 or at == end:
            continue
        begin = at
        major, argument, at = read_head(data, at, end)
        if major < 0:
            continue
        info = np.int64(data[begin] & 31)
        if major <= NEGATIVE and argument >> _U(63) == _U(0):
            kinds[row] = INT_KIND
            ints[row] = np.int64(argument) if major == UNSIGNED else -1 - np.int64(argument)
            reals[row] = np.float64(ints[row])
        elif major == TEXT and argument <= _U(end - at):
            kinds[row] = TEXT_KIND
            starts[row], lengths[row] = at, np.int64(argument)
        elif major == SIMPLE and info >= HALF:
            kinds[row] = REAL_KIND
            reals[row] = read_real(info, argument)
        elif major == SIMPLE:
            kinds[row] = FALSE_KIND if info == FALSE else TRUE_KIND if info == TRUE else NULL_KIND
        else:
            kinds[row] = OTHER_KIND
            starts[row], lengths[row] = begin, max(skip(data, begin, end), begin) - begin


@allocating
def locate(data: Any, offsets: Any, path: Any, starts: Any, lengths: Any) -> None:
    """Find where the whole value at a path lies in every row; rows without one keep their length."""
    maps, steps = np.empty(MAX_FIND_MAPS, dtype=np.int64), np.empty(MAX_FIND_MAPS, dtype=np.int64)
    for row in range(len(offsets) - 1):
        end = np.int64(offsets[row + 1])
        at = _find(data, np.int64(offsets[row]), end, path, maps, steps)
        if at >= 0:
            after = skip(data, at, end)
            if after >= 0:
                starts[row], lengths[row] = at, after - at
