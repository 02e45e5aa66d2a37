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
from tidelake.runtime.compiling import HAS_COMPILER, compiled

_U = np.uint64
_SEED = _U(SEED)


def copy(data: Any, starts: Any, lengths: Any, offsets: Any, out: Any) -> None:
    """Copy slices of bytes to where each belongs."""
    if HAS_COMPILER:
        _copy(data, starts, lengths, offsets, out)
        return
    ends = np.cumsum(lengths)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    out[np.repeat(offsets[: len(starts)], lengths) + within] = data[np.repeat(starts, lengths) + within]


@compiled
def _copy(data: Any, starts: Any, lengths: Any, offsets: Any, out: Any) -> None:
    for row in range(len(starts)):
        at = offsets[row]
        for i in range(lengths[row]):
            out[at + i] = data[starts[row] + i]


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
    """Give the place after one item, or -1 when it is malformed."""
    left = np.int64(1)
    while left > 0:
        left -= 1
        start = at
        major, argument, at = read_head(data, at, end)
        if major < 0:
            return np.int64(-1)
        if major == 2 or major == 3:
            if argument > _U(end - at):
                return np.int64(-1)
            at += np.int64(argument)
        elif major == 4 or major == 5:
            if argument > _U(end - start):
                return np.int64(-1)
            left += np.int64(argument) * (1 if major == 4 else 2)
        elif major == 6:
            left += 1
    return at


@compiled
def read_real(info: Any, argument: Any) -> Any:
    """Turn the bits of a half, single or double into a double."""
    if info == 25:
        exponent = np.int64((argument >> _U(10)) & _U(31))
        fraction = np.float64(argument & _U(1023))
        if exponent == 0:
            value = fraction * 2.0**-24
        elif exponent == 31:
            value = np.float64(np.inf if fraction == 0 else np.nan)
        else:
            value = (fraction + 1024.0) * 2.0 ** (exponent - 25)
        return -value if argument >> _U(15) else value
    if info == 26:
        return np.float64(np.uint32(argument).view(np.float32))
    return np.uint64(argument).view(np.float64)


@compiled
def _hash_leaf(path: Any, path_length: Any, tag: Any, data: Any, at: Any, length: Any, number: Any) -> Any:
    """Hash a path, a zero, a tag, then text or the eight bytes of a number: ``pruning.outcomes.leaf_bytes``."""
    hash, word, shift, total = _SEED, _U(0), _U(0), path_length + 2 + length
    for i in range(total):
        if i < path_length:
            byte = path[i]
        elif i == path_length:
            byte = np.uint8(0)
        elif i == path_length + 1:
            byte = np.uint8(tag)
        elif tag == 115:  # "s"
            byte = data[at + i - path_length - 2]
        else:
            byte = np.uint8((number >> _U(8 * (i - path_length - 2))) & _U(255))
        word |= _U(byte) << shift
        shift += _U(8)
        if shift == _U(64):
            hash = stirred(hash, word)
            word, shift = _U(0), _U(0)
    if shift:
        hash = stirred(hash, word)
    return finished(hash ^ _U(total))


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
    """Keep a hash: 0 if it was there, 1 if it is new, 2 if there is no room. A table of one slot keeps nothing."""
    if len(leaves) == 1:
        return 0
    if hash == _U(0):
        hash = _U(1)
    mask = _U(len(leaves) - 1)
    slot = hash & mask
    while leaves[slot] != _U(0):
        if leaves[slot] == hash:
            return 0
        slot = (slot + _U(1)) & mask
    if counts[2] * 2 >= len(leaves):
        return 2
    leaves[slot] = hash
    counts[2] += 1
    return 1


@compiled
def walk(
    data: Any, offsets: Any, slots: Any, letters: Any, leaves: Any, text_starts: Any, text_lengths: Any, counts: Any
) -> Any:
    """Describe every row; 0 when done, -1 for a form we never write, else which table was too small.

    ``counts``: paths, letters, leaves, texts.
    """
    path = np.empty(MAX_PATH_BYTES, dtype=np.uint8)
    left = np.empty(MAX_WALK_DEPTH, dtype=np.int64)
    is_map = np.empty(MAX_WALK_DEPTH, dtype=np.bool_)
    in_list = np.empty(MAX_WALK_DEPTH, dtype=np.bool_)
    lengths = np.empty(MAX_WALK_DEPTH, dtype=np.int64)
    mask = _U(len(slots) - 1)
    for row in range(len(offsets) - 1):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        depth = 0
        left[0], is_map[0], in_list[0], lengths[0] = 1, False, False, 0
        while depth >= 0:
            if left[depth] == 0:
                depth -= 1
                continue
            left[depth] -= 1
            here, listed, slot = lengths[depth], in_list[depth], _U(0)
            has_path = False
            if is_map[depth]:
                major, argument, at = read_head(data, at, end)
                if major != 3 or argument > _U(end - at):
                    return -1
                size = np.int64(argument)
                if not listed:
                    if here + size + 1 > MAX_PATH_BYTES:
                        return -1
                    if here:
                        path[here] = 46
                        here += 1
                    for i in range(size):
                        path[here + i] = data[at + i]
                    here += size
                at += size
                if not listed:
                    if here == 0:
                        return -1
                    has_path = True
                    hash = _hash_path(path, here)
                    slot = hash & mask
                    while slots[slot].length != 0:
                        if slots[slot].hash == hash and slots[slot].length == here:
                            same = True
                            for i in range(here):
                                if letters[slots[slot].start + i] != path[i]:
                                    same = False
                                    break
                            if same:
                                break
                        slot = (slot + _U(1)) & mask
                    if slots[slot].length == 0:
                        if counts[0] * 2 >= len(slots):
                            return 1
                        if counts[1] + here > len(letters):
                            return 2
                        slots[slot].hash, slots[slot].start, slots[slot].length = hash, counts[1], here
                        for i in range(here):
                            letters[counts[1] + i] = path[i]
                        counts[0] += 1
                        counts[1] += here
                        if _remember(leaves, hash, counts) == 2:
                            return 3
            begin = at
            major, argument, at = read_head(data, at, end)
            tagged = False
            while major == 6:
                tagged = True
                begin = at
                major, argument, at = read_head(data, at, end)
            if major < 0:
                return -1
            if major == 4 or major == 5:
                if argument > _U(end - at) or depth + 1 == MAX_WALK_DEPTH:
                    return -1
                depth += 1
                left[depth], is_map[depth], lengths[depth] = np.int64(argument), major == 5, here
                in_list[depth] = listed or major == 4
                continue
            if major == 2 or major == 3:
                if argument > _U(end - at):
                    return -1
                size = np.int64(argument)
                if has_path:  # what texts begin with; bytes become text that may begin with anything
                    first = np.int64(data[at]) if major == 3 and size > 0 else np.int64(0)
                    last = first if major == 3 else np.int64(255)
                    if slots[slot].texts == 0:
                        slots[slot].first, slots[slot].last = first, last
                    else:
                        slots[slot].first = min(slots[slot].first, first)
                        slots[slot].last = max(slots[slot].last, last)
                    slots[slot].texts += 1
                if major == 3 and not tagged:
                    fresh = 1
                    if has_path:
                        fresh = _remember(
                            leaves, _hash_leaf(path, here, 115, data, at, min(size, LEAF_TEXT_CAP), _U(0)), counts
                        )
                        if size > LEAF_TEXT_CAP:  # its beginning may be known, its end is not
                            fresh = max(fresh, 1)
                    if fresh == 2:
                        return 3
                    if fresh == 1 and len(leaves) > 1:
                        if counts[3] == len(text_starts):
                            return 4
                        text_starts[counts[3]], text_lengths[counts[3]] = at, size
                        counts[3] += 1
                at += size
                if tagged and has_path:  # a number too large for 64 bits, or a time: no bound holds
                    slots[slot].numbers += 1
                    slots[slot].low, slots[slot].high = -np.inf, np.inf
                    if _remember(leaves, _hash_leaf(path, here, 98, data, at, 0, _U(0)), counts) == 2:
                        return 3
                continue
            info = np.int64(data[begin] & 31)
            if major == 7 and info < 25:  # false, true, null and other simple values
                if has_path and (info == 20 or info == 21):
                    leaf = _hash_leaf(path, here, 102 if info == 20 else 116, data, at, 0, _U(0))
                    if _remember(leaves, leaf, counts) == 2:
                        return 3
                continue
            if not has_path:
                continue
            # a number
            whole, bits, low = True, argument, 0.0
            if major == 7:
                low = read_real(info, argument)
                whole = np.abs(low) < 2.0**63 and low == np.floor(low)
                bits = _U(np.int64(low)) if whole else np.float64(low).view(np.uint64)
                if np.isnan(low):
                    bits = _U(0x7FF8_0000_0000_0000)
            elif major == 1:
                bits = ~argument
            huge = (major < 2 and argument >> _U(63) != _U(0)) or (
                major == 7 and not np.isnan(low) and not np.isinf(low) and np.abs(low) >= 2.0**63
            )
            high = low
            if major < 2:
                low = np.float64(argument) if major == 0 else -1.0 - np.float64(argument)
                slack = np.abs(low) * 2.0**-52 if np.abs(low) >= 2.0**53 else 0.0
                high = low + slack
                low = low - slack
            tag, width = (98, 0) if huge else (105, 8) if whole else (100, 8)
            if _remember(leaves, _hash_leaf(path, here, tag, data, at, width, bits), counts) == 2:
                return 3
            if np.isnan(low):
                slots[slot].nan += 1
                if slots[slot].numbers == slots[slot].nan - 1:
                    slots[slot].low, slots[slot].high = np.inf, -np.inf
            elif slots[slot].numbers == 0:
                slots[slot].low, slots[slot].high = low, high
            else:
                slots[slot].low = min(slots[slot].low, low)
                slots[slot].high = max(slots[slot].high, high)
            slots[slot].numbers += 1
        if at != end:
            return -1
    return 0


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
        if major != 5:
            continue
        for _ in range(np.int64(argument)):
            major, argument, at = read_head(data, at, end)
            if major != 3 or argument > _U(end - at):
                return np.int64(-1)
            size = np.int64(argument)
            fits = size <= wanted and (size == wanted or path[taken + size] == 46)
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


@compiled
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
        if major < 2 and argument >> _U(63) == _U(0):
            kinds[row] = INT_KIND
            ints[row] = np.int64(argument) if major == 0 else -1 - np.int64(argument)
            reals[row] = np.float64(ints[row])
        elif major == 3 and argument <= _U(end - at):
            kinds[row] = TEXT_KIND
            starts[row], lengths[row] = at, np.int64(argument)
        elif major == 7 and info >= 25:
            kinds[row] = REAL_KIND
            reals[row] = read_real(info, argument)
        elif major == 7:
            kinds[row] = FALSE_KIND if info == 20 else TRUE_KIND if info == 21 else NULL_KIND
        else:
            kinds[row] = OTHER_KIND
            starts[row], lengths[row] = begin, max(skip(data, begin, end), begin) - begin


@compiled
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
