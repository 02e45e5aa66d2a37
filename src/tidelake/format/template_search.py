"""Find the rows of a page of templates whose texts hold a part of a word, without putting texts together.

A run of ASCII letters lies within one word. A word of a text stands in its template, or is a variable: of those, what
stands around numbers, the words of the dictionary and the pages of texts are looked through, and no number is decoded.
Rows that are found hold the run, whatever the case of its letters. It does not fetch bytes, nor decide when to ask.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.format import codecs
from tidelake.format.templates import OWN_ROWS, SAME, Dictionary, cut, decode_numbers
from tidelake.kernels.plain_templates import NUMBER, TEXT, WORD

MOST = 4_096  # places of a run among words or texts: of a run that is in more, all rows are as soon read

_Ints = npt.NDArray[np.int64]
_Rows = npt.NDArray[np.bool_]


def rows_holding(page: memoryview, rows: int, dictionary: Dictionary, run: str) -> _Rows | None:
    """Return which rows hold a run of letters, which are lower case; None if there is no telling at once."""
    if any(letter.isdigit() for letter in run):
        return None
    valid, data = codecs.decode_nulls(page, rows)
    if not valid.any():
        return valid
    numbers, data = decode_numbers(data, int(valid.sum()), dictionary)
    wanted = run.encode()
    pieces = _holding(dictionary.pieces, dictionary.piece_ends, wanted)
    words = _holding(dictionary.words, dictionary.word_ends, wanted)
    if pieces is None or words is None:
        return None
    is_template = np.zeros(dictionary.count, dtype=np.bool_)
    is_template[np.searchsorted(dictionary.first_piece, pieces, "right") - 1] = True
    found = is_template[numbers]
    places = _in_variables(data[4:], numbers, dictionary, wanted, words)
    if places is None:
        return None
    found[places] = True
    out = np.zeros(rows, dtype=np.bool_)
    out[valid] = found
    return out


def _in_variables(data: memoryview, numbers: _Ints, dictionary: Dictionary, run: bytes, words: _Ints) -> _Ints | None:
    """Return which texts hold a run in one of their variables; None if those are many."""
    rest, data = cut(data)
    counts = np.bincount(numbers, minlength=dictionary.count)
    slot_templates = np.repeat(np.arange(dictionary.count), np.diff(dictionary.first_slot))
    sizes = counts[slot_templates]
    in_rest = np.where(sizes < OWN_ROWS, sizes, 0)
    values = _values_holding(rest, int(in_rest.sum()), run)
    if values is None:
        return None
    found, ends = [np.zeros(0, dtype=np.int64)], np.cumsum(in_rest)

    def put(slot: int, values: _Ints) -> None:
        if len(values):
            found.append(np.flatnonzero(numbers == slot_templates[slot])[values])

    slots = np.searchsorted(ends, values, "right")
    for slot in np.unique(slots).tolist():
        put(slot, values[slots == slot] - int(ends[slot] - in_rest[slot]))
    own = np.flatnonzero(sizes >= OWN_ROWS)
    if len(data) < 4:
        raise ValueError("a page of templates that ends early")
    (count,) = struct.unpack_from("<I", data)
    kinds_page, data = cut(data[4:])
    lengths_page, data = cut(data)
    kinds, lengths = codecs.decode_ints(kinds_page, count), codecs.decode_ints(lengths_page, count)
    if count != len(own) or bool((lengths < 0).any()) or int(lengths.sum()) != len(data):
        raise ValueError(f"{count} pages of {len(own)} variables")
    at = 0
    for slot, kind, length in zip(own.tolist(), kinds.tolist(), lengths.tolist(), strict=True):
        own_page, size, at = data[at : at + length], int(sizes[slot]), at + length
        if kind == SAME:  # as an earlier one of the same template, which was looked through
            continue
        here = _of_page(own_page, kind, size, run, words)
        if here is None:
            return None
        put(slot, here)
    return np.concatenate(found)


def _of_page(page: memoryview, kind: int, count: int, run: bytes, words: _Ints) -> _Ints | None:
    """Return which values of a variable hold a run; None if they are many."""
    none = np.zeros(0, dtype=np.int64)
    if kind == WORD:
        return np.flatnonzero(np.isin(codecs.decode_ints(page, count), words)) if len(words) else none
    if kind == TEXT:
        return _values_holding(page, count, run)
    if kind != NUMBER or len(page) < 5:
        raise ValueError(f"a variable of kind {kind}")
    _, prefix, suffix = struct.unpack_from("<BHH", page)
    around = bytes(page[5 : 5 + prefix]), bytes(page[5 + prefix : 5 + prefix + suffix])
    return np.arange(count) if any(run in each.lower() for each in around) else none


def _values_holding(page: memoryview, count: int, run: bytes) -> _Ints | None:
    lengths, letters = codecs.lengths_and_letters(codecs.decode_texts(page, count, pa.binary()))
    return _holding(np.frombuffer(letters, np.uint8), np.concatenate([[0], np.cumsum(lengths)]), run)


def _holding(letters: npt.NDArray[np.uint8], ends: _Ints, run: bytes) -> _Ints | None:
    """Return which texts, that lie one after the other, hold a run; None if there are many."""
    data, places = letters.tobytes().lower(), list[int]()
    at = data.find(run)
    while at >= 0:
        places.append(at)
        if len(places) > MOST:
            return None
        at = data.find(run, at + 1)
    starts = np.array(places, dtype=np.int64)
    found = np.searchsorted(ends, starts, "right") - 1
    return np.unique(found[starts + len(run) <= ends[found + 1]]) if len(found) else found
