"""Find the rows of a page of templates whose texts hold a word, or a part of one, without putting texts together.

A run of ASCII letters and digits lies within one word. A word of a text stands in its template, or is a variable: of
those, numbers are compared as numbers, if they can be the word at all, and what stands around numbers, the words of the
dictionary and the pages of texts are looked through. Rows that are found hold the run, whatever the case of its
characters. It does not fetch bytes, nor decide when to ask.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.format import codecs
from tidelake.format.template_pages import SAME, Dictionary, decode_numbers, laid_out
from tidelake.kernels.plain_templates import MAX_DIGITS, NUMBER, TEXT, WORD
from tidelake.kernels.tokens import Run, has_digit

MOST = 4_096  # places of a run among words or texts: of a run that is in more, all rows are as soon read

_Ints = npt.NDArray[np.int64]
_Rows = npt.NDArray[np.bool_]
_Letters = npt.NDArray[np.uint8]
_NONE: _Ints = np.zeros(0, dtype=np.int64)


class Sought(Protocol):
    """What is looked for."""

    def in_texts(self, letters: _Letters, ends: _Ints) -> _Ints | None:
        """Return which texts, that lie one after the other, are found; None if there are many."""
        ...

    def in_numbers(self, variable: _Numbers) -> _Ints:
        """Return which values of a variable that are numbers are found."""
        ...


class _Numbers(NamedTuple):
    """A variable whose values are numbers: the minimum of their digits, what is around them, and their page."""

    width: int
    prefix: bytes
    suffix: bytes
    page: memoryview
    size: int

    @classmethod
    def of(cls, page: memoryview, size: int) -> _Numbers:
        if len(page) < 5:
            raise ValueError("a variable that ends early")
        width, prefix, suffix = struct.unpack_from("<BHH", page)
        around = bytes(page[5 : 5 + prefix + suffix]).lower()
        return cls(width, around[:prefix], around[prefix:], page[5 + prefix + suffix :], size)


class _Part(NamedTuple):
    """A run of characters that may be anywhere in a word."""

    run: bytes

    def in_texts(self, letters: _Letters, ends: _Ints) -> _Ints | None:
        data, places = letters.tobytes().lower(), list[int]()
        at = data.find(self.run)
        while at >= 0:
            places.append(at)
            if len(places) > MOST:
                return None
            at = data.find(self.run, at + 1)
        starts = np.array(places, dtype=np.int64)
        found = np.searchsorted(ends, starts, "right") - 1
        return np.unique(found[starts + len(self.run) <= ends[found + 1]]) if len(found) else found

    def in_numbers(self, variable: _Numbers) -> _Ints:
        is_around = self.run in variable.prefix or self.run in variable.suffix
        return np.arange(variable.size) if is_around else _NONE


class _Word(NamedTuple):
    """A word that holds a digit, as a whole."""

    word: bytes

    def in_texts(self, letters: _Letters, ends: _Ints) -> _Ints | None:
        alike = np.flatnonzero(np.diff(ends) == len(self.word))
        for at, letter in enumerate(self.word):  # of most, the first few characters leave nothing
            own = letters[ends[alike] + at]
            is_same = own == letter
            if chr(letter).isalpha():
                is_same |= own == letter - 32
            alike = alike[is_same]
            if not len(alike):
                break
        return alike

    def in_numbers(self, variable: _Numbers) -> _Ints:
        width, prefix, suffix, page, size = variable
        digits = self.word[len(prefix) : len(self.word) - len(suffix)]
        if self.word != prefix + digits + suffix or not digits.isdigit() or len(digits.lstrip(b"0")) > MAX_DIGITS:
            return _NONE
        minimum = max(width, 1)  # of digits: a number that has more begins with no zero
        if len(digits) < minimum or (len(digits) > minimum and digits[:1] == b"0"):
            return _NONE
        number = int(digits)
        low, high = codecs.bounds_of_ints(page)
        return np.flatnonzero(codecs.decode_ints(page, size) == number) if low <= number <= high else _NONE


def rows_holding(page: memoryview, rows: int, dictionary: Dictionary, run: Run) -> _Rows | None:
    """Return which rows hold a word, or a part of one; None if there is no telling at once."""
    sought = _sought(run)
    if sought is None:
        return None
    valid, data = codecs.decode_nulls(page, rows)
    if not valid.any():
        return valid
    numbers, data = decode_numbers(data, int(valid.sum()), dictionary)
    pieces = sought.in_texts(dictionary.pieces, dictionary.piece_ends)
    words = sought.in_texts(dictionary.words, dictionary.word_ends)
    if pieces is None or words is None:
        return None
    is_template = np.zeros(dictionary.count, dtype=np.bool_)
    is_template[np.searchsorted(dictionary.first_piece, pieces, "right") - 1] = True
    found = is_template[numbers]
    places = _in_variables(data, numbers, dictionary, sought, words)
    if places is None:
        return None
    found[places] = True
    out = np.zeros(rows, dtype=np.bool_)
    out[valid] = found
    return out


def _sought(run: Run) -> Sought | None:
    """Return how a run is looked for; None if it may be a part of a number, which nobody looks into."""
    if not has_digit(run.text):
        return _Part(run.text.encode())
    return _Word(run.text.encode()) if run.is_whole else None


def _in_variables(
    data: memoryview, numbers: _Ints, dictionary: Dictionary, sought: Sought, words: _Ints
) -> _Ints | None:
    """Return which texts hold what is sought in one of their variables; None if those are many."""
    laid = laid_out(data, np.bincount(numbers, minlength=dictionary.count), dictionary)
    slot_templates = np.repeat(np.arange(dictionary.count), np.diff(dictionary.first_slot))
    values = _of_texts(laid.rest, int(laid.in_rest.sum()), sought)
    if values is None:
        return None
    found, ends = [_NONE], np.cumsum(laid.in_rest)

    def put(slot: int, values: _Ints) -> None:
        if len(values):
            found.append(np.flatnonzero(numbers == slot_templates[slot])[values])

    slots = np.searchsorted(ends, values, "right")
    for slot in np.unique(slots).tolist():
        put(slot, values[slots == slot] - int(ends[slot] - laid.in_rest[slot]))
    for slot, kind, page in zip(laid.own.tolist(), laid.kinds.tolist(), laid.pages, strict=True):
        if kind == SAME:  # as an earlier one of the same template, which was looked through
            continue
        here = _of_page(page, kind, int(laid.sizes[slot]), sought, words)
        if here is None:
            return None
        put(slot, here)
    return np.concatenate(found)


def _of_page(page: memoryview, kind: int, count: int, sought: Sought, words: _Ints) -> _Ints | None:
    """Return which values of a variable are found; None if they are many."""
    if kind == WORD:
        return np.flatnonzero(np.isin(codecs.decode_ints(page, count), words)) if len(words) else _NONE
    if kind == TEXT:
        return _of_texts(page, count, sought)
    if kind != NUMBER:
        raise ValueError(f"a variable of kind {kind}")
    return sought.in_numbers(_Numbers.of(page, count))


def _of_texts(page: memoryview, count: int, sought: Sought) -> _Ints | None:
    lengths, letters = codecs.lengths_and_letters(codecs.decode_texts(page, count, pa.binary()))
    return sought.in_texts(np.frombuffer(letters, np.uint8), np.concatenate([[0], np.cumsum(lengths)]))
