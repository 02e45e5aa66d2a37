"""Read protobuf messages of telemetry in compiled loops: fields into columns, attributes into canonical CBOR.

::

    message:    (key, value)*         key: varint, field number << 3 | wire type
    wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes

``envelope`` finds the records of a request (resource → scope → records); ``scan`` reads the fields of many records that
a table of slots names, and writes each record's attributes as a CBOR map; ``any_values`` does so for values of any
type. Every read is checked against the end of its message. A loop returns a negative number where it cannot go on:
``BAD`` for what is no such message, ``LEFT`` for what the plain reader is asked to judge (text that is no UTF-8, values
nested deeper than ``MAX_FAST_DEPTH``), ``FULL`` where it needs more room. It does not make Arrow: see ``otlp``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelake.ingest.json.text import REAL
from tidelake.ingest.json.to_cbor import put_head, put_number
from tidelake.runtime.compiling import allocating, compiled, part

BAD, LEFT, FULL = -1, -2, -3
MAX_FAST_DEPTH = 32
SLOTS = 32  # field numbers that a table of slots has; higher ones are passed over

# What becomes of a field: nothing, a number, bytes, an attribute, or one of several messages.
SKIP, NUMBER, BYTES, ATTRIBUTE, REPEATED = range(5)

# Kinds of an AnyValue, which are its field numbers.
NONE, TEXT, BOOL, INT, DOUBLE, ARRAY, MAP, RAW = range(8)

_U = np.uint64
_I = np.int64
_TEXT_HEAD, _RAW_HEAD, _MAP_HEAD, _LIST_HEAD, _BELOW_ZERO = _U(0x60), _U(0x40), _U(0xA0), _U(0x80), _U(0x20)
_VALUE, _ENTRIES = 0, 1  # what ``_put`` is asked to write


@part
def read_varint(data: Any, at: Any, end: Any) -> Any:
    """Read a varint: its value, and the place after it, or BAD."""
    value, shift = _U(0), _U(0)
    while at < end:
        byte = data[_U(at)]
        at += 1
        value |= (_U(byte) & _U(0x7F)) << shift
        if byte < 128:
            return value, at
        shift += _U(7)
        if shift > _U(63):
            break
    return _U(0), _I(BAD)


@part
def read_fixed(data: Any, at: Any, width: Any) -> Any:
    """Read a little-endian word."""
    value = _U(0)
    for i in range(width):
        value |= _U(data[_U(at + i)]) << _U(8 * i)
    return value


@part
def read_field(data: Any, at: Any, end: Any) -> Any:
    """Read one field: number, wire type, value or length, where its bytes begin, and the place after it, or BAD."""
    key, at = read_varint(data, at, end)
    if at < 0:
        return _I(0), _I(0), _U(0), _I(0), _I(BAD)
    number, wire = _I(key >> _U(3)), _I(key & _U(7))
    if number == 0:
        return _I(0), _I(0), _U(0), _I(0), _I(BAD)
    if wire == 0:
        value, after = read_varint(data, at, end)
        return number, wire, value, at, after
    if wire == 2:
        size, start = read_varint(data, at, end)
        if start < 0 or size > _U(end - start):
            return _I(0), _I(0), _U(0), _I(0), _I(BAD)
        return number, wire, size, start, start + _I(size)
    width = 8 if wire == 1 else 4 if wire == 5 else 0
    if width == 0 or at + width > end:
        return _I(0), _I(0), _U(0), _I(0), _I(BAD)
    return number, wire, read_fixed(data, at, width), at, at + width


@part
def is_utf8(data: Any, at: Any, end: Any) -> Any:
    """Whether bytes are UTF-8 as Unicode has it: shortest forms, no surrogates, nothing beyond U+10FFFF."""
    while at < end:
        byte = data[_U(at)]
        if byte < 0x80:
            at += 1
            continue
        if byte < 0xC2 or byte > 0xF4:
            return False
        more = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        if at + more >= end:
            return False
        second = data[_U(at + 1)]
        low = 0xA0 if byte == 0xE0 else 0x90 if byte == 0xF0 else 0x80
        high = 0x9F if byte == 0xED else 0x8F if byte == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for i in range(2, more + 1):
            if data[_U(at + i)] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@part
def put_bytes(data: Any, start: Any, size: Any, head: Any, out: Any, to: Any) -> Any:
    """Copy bytes behind their head."""
    to = put_head(out, to, head, _U(size))
    for i in range(size):
        out[_U(to + i)] = data[_U(start + i)]
    return to + size


@part
def read_entry(data: Any, at: Any, end: Any, marks: Any, top: Any) -> Any:
    """Read a KeyValue into a mark: where its key and its value lie; FINE is 0."""
    key_at, key_size, value_at, value_end = at, _I(0), _I(0), _I(-1)
    while at < end:
        number, wire, size, start, at = read_field(data, at, end)
        if at < 0:
            return _I(BAD)
        if wire == 2 and number == 1:
            key_at, key_size = start, _I(size)
        elif wire == 2 and number == 2:
            value_at, value_end = start, at
    marks[top, 0], marks[top, 1], marks[top, 2], marks[top, 3] = key_at, key_size, value_at, value_end
    return _I(0)


@part
def _compare(data: Any, marks: Any, one: Any, other: Any) -> Any:
    """Compare two keys as canonical CBOR orders them: the shorter first, then by byte."""
    difference = marks[one, 1] - marks[other, 1]
    if difference != 0:
        return difference
    a, b = marks[one, 0], marks[other, 0]
    for i in range(marks[one, 1]):
        left, right = _I(data[_U(a + i)]), _I(data[_U(b + i)])
        if left != right:
            return left - right
    return _I(0)


@part
def _sort(data: Any, marks: Any, first: Any, last: Any) -> Any:
    """Put entries in order, and leave out those that a later one of the same key takes the place of; where they end."""
    for i in range(first + 1, last):
        j = i
        while j > first and _compare(data, marks, j - 1, j) > 0:
            for k in range(4):
                held = marks[j, k]
                marks[j, k] = marks[j - 1, k]
                marks[j - 1, k] = held
            j -= 1
    kept = first
    for i in range(first, last):
        if i + 1 < last and _compare(data, marks, i, i + 1) == 0:
            continue
        if kept != i:
            for k in range(4):
                marks[kept, k] = marks[i, k]
        kept += 1
    return kept


@part
def put(data: Any, what: Any, at: Any, end: Any, out: Any, to: Any, marks: Any, top: Any, levels: Any) -> Any:
    """Write an AnyValue that lies here, or the map of the entries with these marks; the place after it, or what failed.

    What is written is at most a quarter longer than what was read, and nine bytes: an integer of five bytes may need
    nine. ``levels`` has the maps and lists that are open: what it is, where the next is, where they end, and the mark
    at which its own begin. There is no recursion, because code with it cannot be kept.
    """
    depth = _I(-1)
    is_value = what == _VALUE
    if not is_value:
        depth = _I(0)
        last = _sort(data, marks, at, end)
        levels[0, 0], levels[0, 1], levels[0, 2], levels[0, 3] = MAP, at, last, top
        to = put_head(out, to, _MAP_HEAD, _U(last - at))
    while True:
        if is_value:
            is_value = False
            kind, bits, start, stop = _I(NONE), _U(0), at, at
            while at < end:
                number, wire, value, begin, at = read_field(data, at, end)
                if at < 0:
                    return _I(BAD)
                if 1 <= number <= RAW:
                    kind, bits, start, stop = number, value, begin, at
                    needed = 0 if number in (BOOL, INT) else 1 if number == DOUBLE else 2
                    if wire != needed:
                        return _I(BAD)
                elif number == 8:
                    return _I(LEFT)
            if kind == TEXT:
                if not is_utf8(data, start, stop):
                    return _I(LEFT)
                to = put_bytes(data, start, stop - start, _TEXT_HEAD, out, to)
            elif kind == BOOL:
                out[_U(to)] = 0xF5 if bits else 0xF4
                to += 1
            elif kind == INT:
                to = put_head(out, to, _BELOW_ZERO, ~bits) if _I(bits) < 0 else put_head(out, to, _U(0), bits)
            elif kind == DOUBLE:
                to = put_number(out, to, REAL, bits, False)
            elif kind == RAW:
                to = put_bytes(data, start, stop - start, _RAW_HEAD, out, to)
            elif kind == NONE:
                out[_U(to)] = 0xF6
                to += 1
            else:
                depth += 1
                if depth >= len(levels):
                    return _I(LEFT)
                first, count, inner = top, _I(0), start
                while inner < stop:
                    number, wire, value, begin, inner = read_field(data, inner, stop)
                    if inner < 0:
                        return _I(BAD)
                    if number == 1 and wire == 2:
                        count += 1
                        if kind == MAP:
                            if top >= len(marks):
                                return _I(FULL)
                            if read_entry(data, begin, inner, marks, top) < 0:
                                return _I(BAD)
                            top += 1
                if kind == MAP:
                    last = _sort(data, marks, first, top)
                    levels[depth, 0], levels[depth, 1], levels[depth, 2], levels[depth, 3] = MAP, first, last, first
                    to = put_head(out, to, _MAP_HEAD, _U(last - first))
                else:
                    levels[depth, 0], levels[depth, 1], levels[depth, 2], levels[depth, 3] = ARRAY, start, stop, first
                    to = put_head(out, to, _LIST_HEAD, _U(count))
        if depth < 0:
            return to
        place = levels[depth, 1]
        if place == levels[depth, 2]:
            top = levels[depth, 3]
            depth -= 1
        elif levels[depth, 0] == MAP:
            levels[depth, 1] = place + 1
            key_at, key_size = marks[place, 0], marks[place, 1]
            if not is_utf8(data, key_at, key_at + key_size):
                return _I(LEFT)
            to = put_bytes(data, key_at, key_size, _TEXT_HEAD, out, to)
            if marks[place, 3] < 0:
                out[_U(to)] = 0xF6
                to += 1
            else:
                at, end, is_value = marks[place, 2], marks[place, 3], True
        else:
            number, wire, value, begin, after = read_field(data, place, levels[depth, 2])
            levels[depth, 1] = after
            if number == 1 and wire == 2:
                at, end, is_value = begin, after, True


@compiled
def envelope(data: Any, counts: Any, resources: Any, scopes: Any, records: Any) -> Any:
    """Find what a request holds: resources, the scopes in each, and the records in each of these.

    ``counts`` says how many there are of each; with empty arrays they are only counted. A resource or scope is (start,
    end, start and end of its schema's address); a scope also has its resource, and a record (start, end, scope).
    """
    fills = len(records) > 0
    counts[:] = 0
    at, end = _I(0), _I(len(data))
    while at < end:
        number, wire, _size, start, at = read_field(data, at, end)
        if at < 0:
            return _I(BAD)
        if number != 1 or wire != 2:
            continue
        resource = counts[0]
        counts[0] += 1
        inner, stop = start, at
        while inner < stop:
            number, wire, _size, start, inner = read_field(data, inner, stop)
            if inner < 0:
                return _I(BAD)
            if wire != 2:
                continue
            if number == 1 and fills:
                resources[resource, 0], resources[resource, 1] = start, inner
            elif number == 3 and fills:
                resources[resource, 2], resources[resource, 3] = start, inner
            elif number == 2:
                scope = counts[1]
                counts[1] += 1
                if fills:
                    scopes[scope, 4] = resource
                place, last = start, inner
                while place < last:
                    number, wire, _size, start, place = read_field(data, place, last)
                    if place < 0:
                        return _I(BAD)
                    if wire != 2:
                        continue
                    if number == 1 and fills:
                        scopes[scope, 0], scopes[scope, 1] = start, place
                    elif number == 3 and fills:
                        scopes[scope, 2], scopes[scope, 3] = start, place
                    elif number == 2:
                        if fills:
                            record = counts[2]
                            records[record, 0], records[record, 1], records[record, 2] = start, place, scope
                        counts[2] += 1
    return _I(0)


@allocating
def scan(
    data: Any, records: Any, actions: Any, slots: Any, numbers: Any, seen: Any, spans: Any, repeated: Any,
    out: Any, offsets: Any, marks: Any,
) -> Any:  # fmt: skip
    """Read the fields of records, and write the attributes of each as a CBOR map.

    ``actions`` and ``slots`` say by field number what becomes of a field, and in which column; ``repeated`` gets
    (record, slot, start, end) of messages that may come more than once. Returns how many of those there were.
    """
    count, to = _I(0), _I(0)
    levels = np.empty((MAX_FAST_DEPTH, 4), dtype=np.int64)
    for row in range(len(records)):
        at, end, top = records[row, 0], records[row, 1], _I(0)
        while at < end:
            number, wire, value, start, at = read_field(data, at, end)
            if at < 0:
                return _I(BAD)
            action = actions[number] if number < SLOTS else _I(SKIP)
            if action == NUMBER:
                if wire == 2:
                    return _I(LEFT)
                numbers[row, slots[number]] = _I(value)
                seen[row, slots[number]] = True
            elif action == BYTES:
                if wire != 2:
                    return _I(LEFT)
                spans[row, slots[number], 0], spans[row, slots[number], 1] = start, at
                seen[row, slots[number]] = True
            elif action == ATTRIBUTE:
                if wire != 2:
                    return _I(LEFT)
                if top >= len(marks):
                    return _I(FULL)
                wrong = read_entry(data, start, at, marks, top)
                if wrong < 0:
                    return wrong
                top += 1
            elif action == REPEATED:
                if wire != 2:
                    return _I(LEFT)
                if count >= len(repeated):
                    return _I(FULL)
                repeated[count, 0], repeated[count, 1] = row, slots[number]
                repeated[count, 2], repeated[count, 3] = start, at
                count += 1
        if top > 0:
            to = put(data, _ENTRIES, _I(0), top, out, to, marks, top, levels)
            if to < 0:
                return to
        offsets[row + 1] = to
    return count


@allocating
def any_values(data: Any, spans: Any, texts: Any, kinds: Any, out: Any, offsets: Any, marks: Any) -> Any:
    """Read values of any type: text as its place, any other as CBOR; ``kinds`` says which a value is."""
    to = _I(0)
    levels = np.empty((MAX_FAST_DEPTH, 4), dtype=np.int64)
    for row in range(len(spans)):
        at, end = spans[row, 0], spans[row, 1]
        offsets[row + 1] = to
        if end < at:
            continue
        kind, start, stop = _I(NONE), at, at
        place = at
        while place < end:
            number, _wire, _value, begin, place = read_field(data, place, end)
            if place < 0:
                return _I(BAD)
            if 1 <= number <= 8:
                kind, start, stop = number, begin, place
        kinds[row] = kind
        if kind == TEXT:
            texts[row, 0], texts[row, 1] = start, stop
        elif kind != NONE:
            to = put(data, _VALUE, at, end, out, to, marks, _I(0), levels)
            if to < 0:
                return to
            offsets[row + 1] = to
    return _I(0)


@compiled
def find_text(data: Any, records: Any, field: Any, key: Any, found: Any) -> Any:
    """Find the text that records have under a key among their attributes, which are in some field; the last counts."""
    for row in range(len(records)):
        at, end = records[row, 0], records[row, 1]
        while at < end:
            number, wire, size, start, at = read_field(data, at, end)
            if at < 0:
                return _I(BAD)
            if number != field or wire != 2:
                continue
            is_key, value_at, value_end = False, _I(0), _I(-1)
            inner = start
            while inner < at:
                number, wire, size, begin, inner = read_field(data, inner, at)
                if inner < 0:
                    return _I(BAD)
                if number == 1 and wire == 2 and size == _U(len(key)):
                    is_key = True
                    for i in range(len(key)):
                        if data[_U(begin + i)] != key[_U(i)]:
                            is_key = False
                            break
                elif number == 2 and wire == 2:
                    value_at, value_end = begin, inner
            while is_key and value_at < value_end:
                number, wire, size, begin, value_at = read_field(data, value_at, value_end)
                if value_at < 0:
                    return _I(BAD)
                if number == 1 and wire == 2:
                    found[row, 0], found[row, 1] = begin, value_at
    return _I(0)


@compiled
def copy_spans(data: Any, spans: Any, offsets: Any, out: Any) -> Any:
    """Copy bytes that lie here and there into one array; whether all of them are ASCII."""
    high = np.uint8(0)
    for row in range(len(spans)):
        to, start = offsets[row], spans[row, 0]
        for i in range(spans[row, 1] - start):
            byte = data[_U(start + i)]
            high |= byte
            out[_U(to + i)] = byte
    return high < 128


@compiled
def hex_spans(data: Any, spans: Any, offsets: Any, out: Any) -> None:
    """Write bytes that lie here and there as hexadecimal digits."""
    for row in range(len(spans)):
        to, start = offsets[row], spans[row, 0]
        for i in range(spans[row, 1] - start):
            byte = data[_U(start + i)]
            high, low = byte >> 4, byte & 15
            out[_U(to + 2 * i)] = high + (48 if high < 10 else 87)
            out[_U(to + 2 * i + 1)] = low + (48 if low < 10 else 87)


@compiled
def put_buckets(data: Any, bounds: Any, counts: Any, names: Any, out: Any, offsets: Any) -> Any:
    """Write the buckets of histograms as CBOR: a map of two lists, of doubles and of whole numbers of eight bytes."""
    to = _I(0)
    for row in range(len(bounds)):
        offsets[row + 1] = to
        first, second = bounds[row, 1] - bounds[row, 0], counts[row, 1] - counts[row, 0]
        if first <= 0 and second <= 0:
            continue
        if first % 8 != 0 or second % 8 != 0:
            return _I(BAD)
        out[_U(to)] = 0xA2
        to = put_bytes(names, _I(0), _I(6), _TEXT_HEAD, out, to + 1)
        to = put_head(out, to, _LIST_HEAD, _U(max(first, 0) // 8))
        for at in range(bounds[row, 0], bounds[row, 0] + max(first, 0), 8):
            to = put_number(out, to, REAL, read_fixed(data, at, 8), False)
        to = put_bytes(names, _I(6), _I(6), _TEXT_HEAD, out, to)
        to = put_head(out, to, _LIST_HEAD, _U(max(second, 0) // 8))
        for at in range(counts[row, 0], counts[row, 0] + max(second, 0), 8):
            to = put_head(out, to, _U(0), read_fixed(data, at, 8))
        offsets[row + 1] = to
    return _I(0)
