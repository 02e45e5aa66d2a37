"""Find what is where in the messages of ``pgoutput``, compiled.

The bytes are those of ``COPY … TO STDOUT (FORMAT binary)`` of one ``bytea`` column: a header, then for each message a
count of fields, a length, and the message. It does not make columns of them: see ``messages``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelake.runtime.compiling import compiled, part

TRAILER = 65535  # in place of a count of fields
HEADER = 19  # bytes before the first row: a signature, flags, and the length of an extension that is empty
BEGIN, COMMIT, RELATION, TYPE, ORIGIN, LOGICAL = 66, 67, 82, 89, 79, 77  # B C R Y O M
INSERT, UPDATE, DELETE, TRUNCATE = 73, 85, 68, 84  # I U D T
KEY, OLD, NEW = 75, 79, 78  # K O N: which tuple follows
NULL, UNCHANGED, TEXT = 110, 117, 116  # n u t: what a column of a tuple is

# Columns of what ``find`` writes for each message.
KIND, AT, SIZE, POSITION, TIME_US, NUMBER, RELATION_ID, NEW_AT, OLD_AT, OLD_KIND = range(10)
WIDTH = 10
OUTSIDE = -1  # an error: a message reaches past the end, or is not as it should be


@part
def _word(data: Any, at: Any, size: Any) -> Any:
    """Read a number whose highest byte comes first."""
    value = np.int64(0)
    for step in range(size):
        value = (value << np.int64(8)) | np.int64(data[at + step])
    return value


@part
def _past_tuple(data: Any, at: Any, end: Any) -> Any:
    """Return where a tuple ends, or ``OUTSIDE``."""
    if at + 2 > end:
        return OUTSIDE
    columns = _word(data, at, 2)
    at += 2
    for _ in range(columns):
        if at + 1 > end:
            return OUTSIDE
        kind = data[at]
        at += 1
        if kind == TEXT:
            if at + 4 > end:
                return OUTSIDE
            at += 4 + _word(data, at, 4)
        elif kind != NULL and kind != UNCHANGED:
            return OUTSIDE
    return at if at <= end else OUTSIDE


@compiled
def find(data: Any, start: Any, epoch_us: Any, state: Any, out: Any) -> Any:
    """Write a row for each message: its place, its transaction's commit, its number in that, and its tuples' places.

    ``state`` is the position, time and number that the messages before have left, and is brought forward. Return how
    many there are, or -1 - n if the n-th is broken.
    """
    at, count = start, 0
    position, time_us, number = state[0], state[1], state[2]
    while at + 6 <= len(data):
        fields = _word(data, at, 2)
        if fields != 1:
            break
        size = _word(data, at + 2, 4)
        at += 6
        end = at + size
        if end > len(data) or size < 1 or count >= len(out):
            return OUTSIDE - count
        kind = np.int64(data[at])
        out[count, KIND], out[count, AT], out[count, SIZE] = kind, at, size
        out[count, RELATION_ID], out[count, NEW_AT], out[count, OLD_AT], out[count, OLD_KIND] = 0, -1, -1, 0
        if kind == BEGIN:
            if size < 21:
                return OUTSIDE - count
            position, time_us, number = _word(data, at + 1, 8), _word(data, at + 9, 8) + epoch_us, np.int64(0)
        elif kind == COMMIT:
            if size < 26:
                return OUTSIDE - count
            out[count, NEW_AT] = _word(data, at + 10, 8)  # where the next transaction may begin
        elif kind == RELATION:
            if size < 5:
                return OUTSIDE - count
            out[count, RELATION_ID] = _word(data, at + 1, 4)
        elif kind in (INSERT, UPDATE, DELETE):
            if size < 6:
                return OUTSIDE - count
            out[count, RELATION_ID] = _word(data, at + 1, 4)
            number += 1
            here = at + 5
            tuple_kind = data[here]
            if tuple_kind in (KEY, OLD):
                out[count, OLD_AT], out[count, OLD_KIND] = here + 1, tuple_kind
                here = _past_tuple(data, here + 1, end)
                if here == OUTSIDE:
                    return OUTSIDE - count
                tuple_kind = data[here] if here < end else np.uint8(0)
            if kind != DELETE:
                if tuple_kind != NEW or _past_tuple(data, here + 1, end) == OUTSIDE:
                    return OUTSIDE - count
                out[count, NEW_AT] = here + 1
        elif kind == TRUNCATE:
            number += 1
        out[count, POSITION], out[count, TIME_US], out[count, NUMBER] = position, time_us, number
        count += 1
        at = end
    state[0], state[1], state[2] = position, time_us, number
    if at + 2 <= len(data) and _word(data, at, 2) != TRAILER:
        return OUTSIDE - count
    return count


@compiled
def cut(data: Any, places: Any, kinds: Any, starts: Any, lengths: Any) -> Any:
    """Write for each tuple, of places that ``find`` has checked, what each of its columns is and where.

    Return how many tuples have as many columns as there is room for; -1 - n if the n-th has another number.
    """
    width = kinds.shape[1]
    for row in range(len(places)):
        at = places[row]
        if at < 0:
            for column in range(width):
                kinds[row, column] = NULL
                starts[row, column] = 0
                lengths[row, column] = 0
            continue
        if _word(data, at, 2) != width:
            return OUTSIDE - row
        at += 2
        for column in range(width):
            kind = data[at]
            at += 1
            kinds[row, column] = kind
            starts[row, column] = at
            lengths[row, column] = 0
            if kind == TEXT:
                size = _word(data, at, 4)
                starts[row, column] = at + 4
                lengths[row, column] = size
                at += 4 + size
    return len(places)
