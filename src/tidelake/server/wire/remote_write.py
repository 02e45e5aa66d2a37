"""Walk Prometheus remote-write messages and write their labels as dynamic values, compiled.

``survey`` counts what a message has, so that arrays can be made; ``walk`` fills them with places in the message;
``write_labels`` turns the labels of each series into one canonical map. Both versions of the protocol come out alike:
in the second, labels are numbers of symbols, which are places too. Histograms, exemplars and metadata are rare and are
only found here: see ``protocols.remote_write``. It does not know tables.

Places are checked before they are read. What is wrong is told as a code below zero, and where.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelake.runtime.compiling import allocating, compiled, part

TRUNCATED, BAD_WIRE, BAD_REFERENCE = -1, -2, -3
SERIES, LABELS, SAMPLES, SYMBOLS, HISTOGRAMS, EXEMPLARS, METADATA = range(7)  # what survey counts
NO_NAME, EMPTY_LABEL, DOUBLE_LABEL = 1, 2, 3  # what is wrong with a series

_VARINT, _FIXED64, _LEN, _FIXED32 = 0, 1, 2, 5


@part
def _varint(data: Any, at: int, end: int, out: Any) -> Any:
    """Read a number of seven bits a byte into ``out[0]``; return the place after it, or a code."""
    value, shift = np.uint64(0), np.uint64(0)
    for _ in range(10):
        if at >= end:
            return TRUNCATED
        byte = np.uint64(data[at])
        at += 1
        value |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            out[0] = np.int64(value)
            return at
        shift += np.uint64(7)
    return BAD_WIRE


@part
def _field(data: Any, at: int, end: int, out: Any) -> Any:
    """Read a field's head and extent: its number and wire type to ``out[1:3]``, its place and length to ``out[3:5]``.

    A varint's value is ``out[0]``. Returns the place after the field, or a code.
    """
    at = _varint(data, at, end, out)
    if at < 0:
        return at
    key = out[0]
    out[1], out[2] = key >> 3, key & 7
    if out[1] <= 0:
        return BAD_WIRE
    if out[2] == _VARINT:
        out[3] = at
        return _varint(data, at, end, out)
    if out[2] == _FIXED64 or out[2] == _FIXED32:
        out[3], out[4] = at, 8 if out[2] == _FIXED64 else 4
    elif out[2] == _LEN:
        at = _varint(data, at, end, out)
        if at < 0:
            return at
        out[3], out[4] = at, out[0]
    else:
        return BAD_WIRE
    if out[4] < 0 or out[4] > end - out[3]:
        return TRUNCATED
    return out[3] + out[4]


@allocating
def survey(data: Any, is_second: bool, counts: Any) -> Any:
    """Count the parts of a message; return 0, or what is wrong with it."""
    out, inner, packed = np.zeros(5, np.int64), np.zeros(5, np.int64), np.zeros(5, np.int64)
    at, end = 0, len(data)
    while at < end:
        at = _field(data, at, end, out)
        if at < 0:
            return at
        number, is_bytes = out[1], out[2] == _LEN
        if is_second and number == 4 and is_bytes:
            counts[SYMBOLS] += 1
        elif not is_second and number == 3 and is_bytes:
            counts[METADATA] += 1
        elif number == (5 if is_second else 1) and is_bytes:
            counts[SERIES] += 1
            own, stop = out[3], out[3] + out[4]
            while own < stop:
                own = _field(data, own, stop, inner)
                if own < 0:
                    return own
                which = inner[1]
                if which == 1 and is_second:
                    if inner[2] == _LEN:  # packed numbers, two a label
                        place, last = inner[3], inner[3] + inner[4]
                        while place < last:
                            place = _varint(data, place, last, packed)
                            if place < 0:
                                return place
                            counts[LABELS] += 1
                    elif inner[2] == _VARINT:
                        counts[LABELS] += 1
                    else:
                        return BAD_WIRE
                elif inner[2] != _LEN:
                    continue
                elif which == 1:
                    counts[LABELS] += 1
                elif which == 2:
                    counts[SAMPLES] += 1
                elif which == (3 if is_second else 4):
                    counts[HISTOGRAMS] += 1
                elif which == (4 if is_second else 3):
                    counts[EXEMPLARS] += 1
                elif which == 5 and is_second:
                    counts[METADATA] += 1
    return 0


@allocating
def walk(
    data: Any,
    is_second: bool,
    symbols: Any,
    starts: Any,
    labels: Any,
    owners: Any,
    values: Any,
    times: Any,
    others: Any,
) -> Any:
    """Fill in what ``survey`` counted; return 0, or what is wrong.

    ``symbols``: place and length of each. ``starts``: where each series' labels begin in ``labels``, and their end.
    ``labels``: place and length of a name and of its value. ``owners``, ``values`` (bits of a double) and ``times``
    (milliseconds): of each sample. ``others``: kind, series, place and length of what is decoded elsewhere.
    """
    out, inner, leaf = np.zeros(5, np.int64), np.zeros(5, np.int64), np.zeros(5, np.int64)
    at, end = 0, len(data)
    known = series = label = sample = other = 0
    if is_second:
        while at < end:
            at = _field(data, at, end, out)
            if at < 0:
                return at
            if out[1] == 4 and out[2] == _LEN:
                symbols[known, 0], symbols[known, 1] = out[3], out[4]
                known += 1
        at = 0
    while at < end:
        at = _field(data, at, end, out)
        if at < 0:
            return at
        number = out[1]
        if out[2] != _LEN:
            continue
        if not is_second and number == 3:
            others[other, 0], others[other, 1], others[other, 2], others[other, 3] = METADATA, -1, out[3], out[4]
            other += 1
        if number != (5 if is_second else 1):
            continue
        starts[series] = label
        own, stop, half = out[3], out[3] + out[4], 0
        while own < stop:
            own = _field(data, own, stop, inner)
            if own < 0:
                return own
            which, place, last = inner[1], inner[3], inner[3] + inner[4]
            if which == 1 and is_second:
                if inner[2] == _VARINT:
                    place, last = inner[3], own
                while place < last:
                    place = _varint(data, place, last, leaf)
                    if place < 0:
                        return place
                    if leaf[0] < 0 or leaf[0] >= known:
                        return BAD_REFERENCE
                    labels[label, half], labels[label, half + 1] = symbols[leaf[0], 0], symbols[leaf[0], 1]
                    half = 2 - half
                    label += 1 if half == 0 else 0
            elif inner[2] != _LEN:
                continue
            elif which == 1:
                for part_of in range(4):
                    labels[label, part_of] = 0
                while place < last:
                    place = _field(data, place, last, leaf)
                    if place < 0:
                        return place
                    if leaf[2] == _LEN and (leaf[1] == 1 or leaf[1] == 2):
                        to = 0 if leaf[1] == 1 else 2
                        labels[label, to], labels[label, to + 1] = leaf[3], leaf[4]
                label += 1
            elif which == 2:
                owners[sample], values[sample], times[sample] = series, 0, 0
                while place < last:
                    place = _field(data, place, last, leaf)
                    if place < 0:
                        return place
                    if leaf[1] == 1 and leaf[2] == _FIXED64:
                        bits = np.uint64(0)
                        for byte in range(8):
                            bits |= np.uint64(data[leaf[3] + byte]) << np.uint64(8 * byte)
                        values[sample] = np.int64(bits)
                    elif leaf[1] == 2 and leaf[2] == _VARINT:
                        times[sample] = leaf[0]
                sample += 1
            else:
                kind = -1
                if which == (3 if is_second else 4):
                    kind = HISTOGRAMS
                elif which == (4 if is_second else 3):
                    kind = EXEMPLARS
                elif which == 5 and is_second:
                    kind = METADATA
                if kind >= 0:
                    others[other, 0], others[other, 1], others[other, 2], others[other, 3] = (
                        kind,
                        series,
                        place,
                        inner[4],
                    )
                    other += 1
        if half:
            return BAD_REFERENCE
        series += 1
    starts[series] = label
    return 0


@part
def _head(out: Any, at: int, kind: int, count: int) -> Any:
    """Write the head of a text or a map, and return the place after it."""
    if count < 24:
        out[at] = kind + count
        return at + 1
    if count < 256:
        out[at], out[at + 1] = kind + 24, count
        return at + 2
    if count < 65536:
        out[at], out[at + 1], out[at + 2] = kind + 25, count >> 8, count & 255
        return at + 3
    out[at], out[at + 1], out[at + 2] = kind + 26, (count >> 24) & 255, (count >> 16) & 255
    out[at + 3], out[at + 4] = (count >> 8) & 255, count & 255
    return at + 5


@part
def _compare(data: Any, one: Any, other: Any) -> Any:
    """Compare the names of two labels as canonical maps have their keys: the shorter first, then by byte."""
    if one[1] != other[1]:
        return -1 if one[1] < other[1] else 1
    for at in range(one[1]):
        first, second = data[one[0] + at], data[other[0] + at]
        if first != second:
            return -1 if first < second else 1
    return 0


@part
def _is_name(data: Any, label: Any) -> Any:
    """Whether a label is ``__name__``."""
    if label[1] != 8:
        return False
    at = label[0]
    for place in (0, 1, 6, 7):
        if data[at + place] != 95:
            return False
    return data[at + 2] == 110 and data[at + 3] == 97 and data[at + 4] == 109 and data[at + 5] == 101


@compiled
def write_labels(
    data: Any, starts: Any, labels: Any, out: Any, ends: Any, names: Any, name_ends: Any, faults: Any
) -> Any:
    """Write the labels of each series but its name as CBOR, and its name; return whether a byte is beyond ASCII.

    ``faults`` gets what is wrong with a series; its labels are an empty map then. Labels are sorted in place.
    """
    at = name_at = 0
    high = 0
    for series in range(len(starts) - 1):
        first, last = starts[series], starts[series + 1]
        for label in range(first + 1, last):  # insertion: there are few, and they come sorted by their letters
            place = label
            while place > first and _compare(data, labels[place - 1], labels[place]) > 0:
                for part_of in range(4):
                    held = labels[place, part_of]
                    labels[place, part_of] = labels[place - 1, part_of]
                    labels[place - 1, part_of] = held
                place -= 1
        named = -1
        faults[series] = 0
        for label in range(first, last):
            if labels[label, 1] == 0:
                faults[series] = EMPTY_LABEL
            elif label > first and _compare(data, labels[label - 1], labels[label]) == 0:
                faults[series] = DOUBLE_LABEL
            elif _is_name(data, labels[label]) and labels[label, 3] > 0:
                named = label
        if named < 0 and faults[series] == 0:
            faults[series] = NO_NAME
        if faults[series] != 0:
            out[at] = 0xA0
            at += 1
        else:
            for byte in range(labels[named, 3]):
                names[name_at] = data[labels[named, 2] + byte]
                high |= names[name_at]
                name_at += 1
            kept = 0
            for label in range(first, last):
                kept += 1 if label != named and labels[label, 3] > 0 else 0  # an empty value is no label
            at = _head(out, at, 0xA0, kept)
            for label in range(first, last):
                if label == named or labels[label, 3] == 0:
                    continue
                for half in (0, 2):
                    at = _head(out, at, 0x60, labels[label, half + 1])
                    for byte in range(labels[label, half + 1]):
                        out[at] = data[labels[label, half] + byte]
                        high |= out[at]
                        at += 1
        ends[series + 1], name_ends[series + 1] = at, name_at
    return 1 if high > 127 else 0
