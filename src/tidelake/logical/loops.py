"""Take CBOR values apart level by level, compiled: the fields of maps, the items of lists, and what leaves are.

A value is a slice of bytes, from its start to its end; a start of -1 is null. What is not of the wanted form marks the
row that it belongs to as bad. Bytes are not trusted: every length is checked against the end of its value. It does not
know types: see ``nested``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelake.dynamic.cbor_loops import read_head, read_real, skip
from tidelake.runtime.compiling import compiled

NOTHING, FALSE, TRUE, INT, REAL, TEXT, BYTES, TIME, OTHER = range(9)

_U = np.uint64
LIST, MAP = 4, 5  # CBOR's major types
_NULL, _UNDEFINED = 0xF6, 0xF7
_TEXT, _BYTES, _TAG, _SIMPLE = 3, 2, 6, 7


@compiled
def classify(
    data: Any, starts: Any, ends: Any, kinds: Any, ints: Any, reals: Any, at_text: Any, text_lengths: Any
) -> None:
    """Say what each slice is, with its value in the array that suits its kind."""
    for slot in range(len(starts)):
        begin, end = starts[slot], ends[slot]
        if begin < 0:
            continue
        major, argument, at = read_head(data, begin, end)
        info = np.int64(data[begin] & 31) if begin < end else np.int64(0)
        kinds[slot] = OTHER
        if major == _TAG and argument == _U(0):  # a time, as text
            major, argument, at = read_head(data, at, end)
            if major == _TEXT and argument <= _U(end - at):
                kinds[slot], at_text[slot], text_lengths[slot] = TIME, at, np.int64(argument)
        elif (major == 0 or major == 1) and argument >> _U(63) == _U(0):
            kinds[slot] = INT
            ints[slot] = np.int64(argument) if major == 0 else -1 - np.int64(argument)
        elif (major in (_TEXT, _BYTES)) and argument <= _U(end - at):
            kinds[slot] = TEXT if major == _TEXT else BYTES
            at_text[slot], text_lengths[slot] = at, np.int64(argument)
        elif major == _SIMPLE and 25 <= info <= 27:
            kinds[slot], reals[slot] = REAL, read_real(info, argument)
        elif major == _SIMPLE and (info == 20 or info == 21):
            kinds[slot] = FALSE if info == 20 else TRUE
        elif major == _SIMPLE and (info == 22 or info == 23):
            kinds[slot] = NOTHING


@compiled
def blank_nulls(data: Any, starts: Any, ends: Any) -> None:
    """Turn the slices that are CBOR's null into null slices."""
    for slot in range(len(starts)):
        if starts[slot] >= 0 and starts[slot] < ends[slot]:
            first = data[starts[slot]]
            if first in (_NULL, _UNDEFINED):
                starts[slot] = -1


@compiled
def split_fields(
    data: Any, starts: Any, ends: Any, rows: Any, letters: Any, names: Any, to_starts: Any, to_ends: Any, bad: Any
) -> None:
    """Find the fields of maps; a key that is none of them, or another form, makes a row bad."""
    for slot in range(len(starts)):
        at, end = starts[slot], ends[slot]
        if at < 0:
            continue
        major, count, at = read_head(data, at, end)
        if major != MAP:
            bad[rows[slot]] = True
            continue
        for _ in range(np.int64(count)):
            major, length, at = read_head(data, at, end)
            if major != _TEXT or length > _U(end - at):
                bad[rows[slot]] = True
                break
            field = _field_of(data, at, np.int64(length), letters, names)
            at += np.int64(length)
            after = skip(data, at, end)
            if field < 0 or after < 0:
                bad[rows[slot]] = True
                break
            to_starts[field, slot], to_ends[field, slot] = at, after
            at = after


@compiled
def _field_of(data: Any, at: Any, length: Any, letters: Any, names: Any) -> Any:
    for field in range(len(names) - 1):
        if names[field + 1] - names[field] == length:
            same = True
            for i in range(length):
                if data[at + i] != letters[names[field] + i]:
                    same = False
                    break
            if same:
                return field
    return -1


@compiled
def count_items(data: Any, starts: Any, ends: Any, rows: Any, major_wanted: Any, counts: Any, bad: Any) -> None:
    """Count the items of lists, or of maps, which may also be lists of pairs."""
    for slot in range(len(starts)):
        at, end = starts[slot], ends[slot]
        if at < 0:
            continue
        major, count, at = read_head(data, at, end)
        if (major in (major_wanted, LIST)) and count <= _U(end - at):
            counts[slot] = np.int64(count)
        else:
            bad[rows[slot]] = True


@compiled
def split_items(
    data: Any, starts: Any, ends: Any, rows: Any, offsets: Any, to_starts: Any, to_ends: Any, bad: Any
) -> None:
    """Find the items of lists."""
    for slot in range(len(starts)):
        if offsets[slot] == offsets[slot + 1]:
            continue
        _, _, at = read_head(data, starts[slot], ends[slot])
        for to in range(offsets[slot], offsets[slot + 1]):
            after = skip(data, at, ends[slot])
            if after < 0:
                bad[rows[slot]] = True
                break
            to_starts[to], to_ends[to] = at, after
            at = after


@compiled
def split_pairs(
    data: Any, starts: Any, ends: Any, rows: Any, offsets: Any, to_starts: Any, to_ends: Any, bad: Any
) -> None:
    """Find the keys and values of maps, or of lists of pairs: row 0 of the results has keys, row 1 values."""
    for slot in range(len(starts)):
        if offsets[slot] == offsets[slot + 1]:
            continue
        end = ends[slot]
        form, _, at = read_head(data, starts[slot], end)
        for to in range(offsets[slot], offsets[slot + 1]):
            if form == LIST:
                major, count, at = read_head(data, at, end)
                if major != LIST or count != _U(2):
                    bad[rows[slot]] = True
                    break
            middle = skip(data, at, end)
            after = skip(data, middle, end) if middle >= 0 else np.int64(-1)
            if after < 0:
                bad[rows[slot]] = True
                break
            to_starts[0, to], to_ends[0, to] = at, middle
            to_starts[1, to], to_ends[1, to] = middle, after
            at = after


@compiled
def wrap_bytes(data: Any, offsets: Any, to_offsets: Any, out: Any) -> None:
    """Write byte strings with their heads; ``to_offsets`` says where each goes."""
    for row in range(len(offsets) - 1):
        at, length = to_offsets[row], np.int64(offsets[row + 1] - offsets[row])
        head = to_offsets[row + 1] - at - length
        if head == 1:
            out[at] = 0x40 | length
        elif head > 1:
            size = head - 1
            out[at] = 0x58 if size == 1 else 0x59 if size == 2 else 0x5A
            for i in range(size):
                out[at + 1 + i] = (length >> (8 * (size - 1 - i))) & 255
        for i in range(length):
            out[at + head + i] = data[offsets[row] + i]
