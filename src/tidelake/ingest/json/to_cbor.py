"""Turn nested JSON text into canonical CBOR, compiled; equal to ``dynamic.encode`` of what the text means.

A map is written as it comes and its entries are put in order when it closes, so a value costs its size times the depth
of the maps around it that were out of order. Beyond ``MAX_FAST_DEPTH`` levels, and where a number is beyond 64 bits,
the text is only checked and the caller converts it the plain way. Of keys that occur twice the last one counts. It
does not keep anything between values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelake.dynamic.values import MAX_DEPTH
from tidelake.ingest.json.text import (
    BIG,
    FINE,
    NO_COLON,
    NO_COMMA,
    NO_KEY,
    NO_VALUE,
    REAL,
    SLOW,
    TOO_DEEP,
    WIDE,
    copy_text,
    scan_number,
    scan_text,
)
from tidelake.runtime.compiling import part

MAX_VALUE_DEPTH = MAX_DEPTH - 1  # levels of one value: with the row around it, what a dynamic column keeps
MAX_FAST_DEPTH = 64  # levels whose maps are put in order in place

LEFT = -1  # checked, but not written: convert it the plain way
FULL_OUT, FULL_SCRATCH, FULL_MARKS = -2, -3, -4  # no room: give more and begin the value again

# One open map or list: where its bytes begin, how many values it has, and its first mark.
LEVEL = np.dtype(
    [("out", np.int64), ("count", np.int64), ("mark", np.int64), ("is_map", np.bool_), ("sorted", np.bool_)]
)
# One key of an open map: where its bytes begin and end; and room to put the keys of one map in order.
MARK = np.dtype([("at", np.int64), ("end", np.int64), ("order", np.int64), ("spare", np.int64)])

_U = np.uint64
TEXT_HEAD, MAP_HEAD = _U(0x60), _U(0xA0)
_BELOW_ZERO, _LIST_HEAD = _U(0x20), _U(0x80)
_SHORT = 24  # so many keys are put in order by insertion
_NUMBER_ROOM = 9  # the longest head or number


@part
def transcode(data: Any, at: Any, out: Any, to: Any, scratch: Any, marks: Any, levels: Any) -> Any:
    """Write the map or list that begins here: (place after it, place after its bytes, what happened).

    What happened is ``FINE``, ``LEFT``, a ``FULL_…`` or, as a positive number, what is wrong with the text.
    """
    depth, mark, left, in_key = -1, 0, False, False
    while True:
        if in_key:
            if data[_U(at)] != 34:
                return at, to, NO_KEY
            end, length, wrong = scan_text(data, at + 1)
            if wrong != FINE:
                return end, to, wrong
            if not left:
                if to + length + _NUMBER_ROOM > len(out):
                    return at, to, FULL_OUT
                if mark == len(marks):
                    return at, to, FULL_MARKS
                marks[mark].at = to
                to = copy_text(data, at + 1, end, length, out, put_head(out, to, TEXT_HEAD, _U(length)))
                marks[mark].end = to
                if mark > levels[depth].mark and _order(out, marks, mark - 1, mark) >= 0:
                    levels[depth].sorted = False
                mark += 1
            at = skip_blanks(data, end + 1)
            if data[_U(at)] != 58:
                return at, to, NO_COLON
            at = skip_blanks(data, at + 1)
        if to + _NUMBER_ROOM > len(out):
            return at, to, FULL_OUT
        letter = data[_U(at)]
        if letter == 34:
            end, length, wrong = scan_text(data, at + 1)
            if wrong != FINE:
                return end, to, wrong
            if not left:
                if to + length + _NUMBER_ROOM > len(out):
                    return at, to, FULL_OUT
                to = copy_text(data, at + 1, end, length, out, put_head(out, to, TEXT_HEAD, _U(length)))
            at = end + 1
        elif letter == 123 or letter == 91:
            at = skip_blanks(data, at + 1)
            if data[_U(at)] == letter + 2:  # the letter that closes
                if depth + 1 == MAX_VALUE_DEPTH:
                    return at, to, TOO_DEEP
                out[_U(to)] = 0xA0 if letter == 123 else 0x80
                to += 1
                at += 1
            else:
                depth += 1
                if depth == MAX_VALUE_DEPTH:
                    return at, to, TOO_DEEP
                left = left or depth >= MAX_FAST_DEPTH
                levels[depth].out, levels[depth].count, levels[depth].mark = to, 1, mark
                levels[depth].is_map, levels[depth].sorted = letter == 123, True
                in_key = letter == 123
                to += 1
                continue
        elif letter == 45 or letter == 73 or letter == 78 or _U(letter) - _U(48) <= _U(9):
            end, kind, bits = scan_number(data, at)
            if kind < 0:
                return end, to, -1 - kind
            if kind in (BIG, SLOW):
                left = True
            elif not left:
                to = put_number(out, to, kind, bits, letter == 45)
            at = end
        else:
            length, byte = scan_literal(data, at)
            if length == 0:
                return at, to, NO_VALUE
            out[_U(to)] = byte
            to += 1
            at += length
        while depth >= 0:  # a value has ended: go on, or close what it was the last of
            at = skip_blanks(data, at)
            is_map = levels[depth].is_map
            if data[_U(at)] == 44:
                levels[depth].count += 1
                at = skip_blanks(data, at + 1)
                in_key = is_map
                break
            if data[_U(at)] != (125 if is_map else 93):
                return at, to, NO_COMMA
            if not left:
                if is_map:
                    to = _close_map(out, to, scratch, marks, levels[depth])
                else:
                    to = _close_list(out, to, levels[depth])
                if to < 0:
                    return at, to, to
                mark = levels[depth].mark
            at += 1
            depth -= 1
        if depth < 0:
            return at, to, LEFT if left else FINE


@part
def skip_blanks(data: Any, at: Any) -> Any:
    """Return the place of the next letter that is no blank; a newline is one that is."""
    while data[_U(at)] <= 32 and (data[_U(at)] == 32 or data[_U(at)] == 9 or data[_U(at)] == 13):
        at += 1
    return at


@part
def scan_literal(data: Any, at: Any) -> Any:
    """Read ``true``, ``false`` or ``null``: (its length, its byte in CBOR), or zeros."""
    if data[_U(at)] == 116 and data[_U(at + 1)] == 114 and data[_U(at + 2)] == 117 and data[_U(at + 3)] == 101:
        return 4, 0xF5
    if data[_U(at)] == 110 and data[_U(at + 1)] == 117 and data[_U(at + 2)] == 108 and data[_U(at + 3)] == 108:
        return 4, 0xF6
    is_fals = data[_U(at)] == 102 and data[_U(at + 1)] == 97 and data[_U(at + 2)] == 108 and data[_U(at + 3)] == 115
    return (5, 0xF4) if is_fals and data[_U(at + 4)] == 101 else (0, 0)


@part
def put_head(out: Any, to: Any, major: Any, size: Any) -> Any:
    """Write the first bytes of a CBOR item in the shortest form, and give the place after them."""
    if size < _U(24):
        out[_U(to)] = major | size
        return to + 1
    if size < _U(1 << 8):
        out[_U(to)], width = major | _U(24), 1
    elif size < _U(1 << 16):
        out[_U(to)], width = major | _U(25), 2
    elif size < _U(1 << 32):
        out[_U(to)], width = major | _U(26), 4
    else:
        out[_U(to)], width = major | _U(27), 8
    return _put_bytes(out, to + 1, size, width)


@part
def put_number(out: Any, to: Any, kind: Any, bits: Any, negative: Any) -> Any:
    """Write a number that ``scan_number`` read, and give the place after it."""
    if kind == REAL:
        return _put_real(out, to, _U(bits))
    if kind == WIDE:
        return put_head(out, to, _BELOW_ZERO, _U(bits) - _U(1)) if negative else put_head(out, to, _U(0), _U(bits))
    return put_head(out, to, _BELOW_ZERO, _U(-1 - bits)) if bits < 0 else put_head(out, to, _U(0), _U(bits))


@part
def _put_bytes(out: Any, to: Any, word: Any, width: Any) -> Any:
    for i in range(width):
        out[_U(to + i)] = (word >> _U(8 * (width - 1 - i))) & _U(0xFF)
    return to + width


@part
def _put_real(out: Any, to: Any, bits: Any) -> Any:
    """Write a double in the fewest of two, four or eight bytes that hold it exactly."""
    sign = bits >> _U(63)
    fraction = bits & _U(0x000F_FFFF_FFFF_FFFF)
    exponent = np.int64(bits >> _U(52) & _U(0x7FF)) - 1023
    if exponent == -1023 and fraction == _U(0):
        out[_U(to)] = 0xF9
        return _put_bytes(out, to + 1, sign << _U(15), np.int64(2))
    if exponent == 1024:  # infinite, or not a number
        out[_U(to)] = 0xF9
        return _put_bytes(out, to + 1, _U(0x7E00) if fraction else sign << _U(15) | _U(0x7C00), np.int64(2))
    whole = fraction | _U(1) << _U(52)
    lost = 42 if exponent >= -14 else 28 - exponent  # bits of the fraction that a half float has no place for
    if -24 <= exponent <= 15 and whole & ((_U(1) << _U(lost)) - _U(1)) == _U(0):
        kept = fraction >> _U(42) | _U(exponent + 15) << _U(10) if exponent >= -14 else whole >> _U(lost)
        out[_U(to)] = 0xF9
        return _put_bytes(out, to + 1, sign << _U(15) | kept, np.int64(2))
    lost = 29 if exponent >= -126 else -97 - exponent
    if -149 <= exponent <= 127 and whole & ((_U(1) << _U(lost)) - _U(1)) == _U(0):
        kept = fraction >> _U(29) | _U(exponent + 127) << _U(23) if exponent >= -126 else whole >> _U(lost)
        out[_U(to)] = 0xFA
        return _put_bytes(out, to + 1, sign << _U(31) | kept, np.int64(4))
    out[_U(to)] = 0xFB
    return _put_bytes(out, to + 1, bits, np.int64(8))


@part
def _close_list(out: Any, to: Any, level: Any) -> Any:
    """Write a list's head before its values, and give the place after them."""
    return _put_head_before(out, to, _LIST_HEAD, level.count, level.out)


@part
def _close_map(out: Any, to: Any, scratch: Any, marks: Any, level: Any) -> Any:
    """Put a map's entries in order, the last of equal keys only, under its head; give the place after them."""
    if level.sorted:
        return _put_head_before(out, to, MAP_HEAD, level.count, level.out)
    first, last = level.mark, level.mark + level.count
    begin = marks[first].at
    if to - begin > len(scratch):
        return FULL_SCRATCH
    _sort(out, marks, first, last)
    size, kept = 0, 0
    for i in range(first, last):
        one = marks[i].order
        if i + 1 < last and _order(out, marks, one, marks[i + 1].order) == 0:
            continue
        end = marks[one + 1].at if one + 1 < last else to
        for place in range(marks[one].at, end):
            scratch[_U(size)] = out[_U(place)]
            size += 1
        kept += 1
    if begin + size + _NUMBER_ROOM > len(out):
        return FULL_OUT
    to = put_head(out, level.out, MAP_HEAD, _U(kept))
    for i in range(size):
        out[_U(to + i)] = scratch[_U(i)]
    return to + size


@part
def _put_head_before(out: Any, to: Any, major: Any, count: Any, begin: Any) -> Any:
    """Write a head over the one byte left free for it, moving what follows when it needs more."""
    if count < 24:
        out[_U(begin)] = major | _U(count)
        return to
    more = 1 if count < 1 << 8 else 2 if count < 1 << 16 else 4
    if to + more > len(out):
        return FULL_OUT
    for place in range(to - 1, begin, -1):
        out[_U(place + more)] = out[_U(place)]
    put_head(out, begin, major, _U(count))
    return to + more


@part
def _order(out: Any, marks: Any, left: Any, right: Any) -> Any:
    """Compare two keys as bytes: the heads make the shorter text the smaller."""
    a, b = marks[left].at, marks[right].at
    for i in range(min(marks[left].end - a, marks[right].end - b)):
        if out[_U(a + i)] != out[_U(b + i)]:
            return -1 if out[_U(a + i)] < out[_U(b + i)] else 1
    return 0


@part
def _sort(out: Any, marks: Any, first: Any, last: Any) -> None:
    """Fill ``order`` with the marks in the order of their keys; equal keys stay in the order they came."""
    for start in range(first, last, _SHORT):
        for i in range(start, min(start + _SHORT, last)):
            j = i
            while j > start and _order(out, marks, marks[j - 1].order, i) > 0:
                marks[j].order = marks[j - 1].order
                j -= 1
            marks[j].order = i
    width = _SHORT
    while width < last - first:
        for start in range(first, last, 2 * width):
            middle, end = min(start + width, last), min(start + 2 * width, last)
            left, right = start, middle
            for i in range(start, end):
                take_left = right == end or (
                    left < middle and _order(out, marks, marks[left].order, marks[right].order) <= 0
                )
                if take_left:
                    marks[i].spare = marks[left].order
                    left += 1
                else:
                    marks[i].spare = marks[right].order
                    right += 1
        for i in range(first, last):
            marks[i].order = marks[i].spare
        width *= 2
