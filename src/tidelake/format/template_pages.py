"""Read the pages of a column of templates: its dictionaries, the templates of rows, and the values of variables.

``templates`` writes them and puts all texts of a block together, ``template_rows`` those of a few rows, and
``template_search`` looks through them. It does not put texts together.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.format import codecs
from tidelake.kernels.plain_templates import HOLE, NUMBER, PLACEHOLDER, SLACK, TEXT, WORD, Source

SAME = 3  # a variable that has the values of an earlier one of its template
SLOT_NUMBERS = 6  # that say where the values of a variable are held
OWN_ROWS = 128  # of a block that have a template, from which on its variables have pages of their own

_Ints = npt.NDArray[np.int64]


class Dictionary:
    """The templates and words of a column in an extent, ready to be used."""

    def __init__(self, templates: pa.Array, words: pa.Array, *, every_word: bool) -> None:
        lengths, letters = codecs.lengths_and_letters(templates)
        data = np.frombuffer(letters, np.uint8)
        ends = np.cumsum(lengths)
        is_hole = data == HOLE
        before = np.concatenate([[0], np.cumsum(is_hole)])
        holes = np.flatnonzero(is_hole)
        cuts = np.concatenate([holes * 2 + 1, ends * 2])  # where pieces end; a template ends before the next begins
        cuts.sort()
        cuts //= 2
        self.count, self.every_word = len(templates), every_word
        self.pieces = _with_slack(data[~is_hole])
        self.piece_ends = np.concatenate([[0], cuts - before[cuts]])
        self.first_slot = np.concatenate([[0], before[ends]])
        self.first_piece = self.first_slot[:-1] + np.arange(len(templates))
        word_letters, self.word_ends = _texts(words)
        self.words = _with_slack(word_letters)
        self._templates = templates
        self._shown: pa.Array | None = None
        self._filled: tuple[str, pa.Array] | None = None

    def shown(self) -> pa.Array | None:
        """Return the templates as ``message_template`` has them; None if they are not the same."""
        if self._shown is None and not self.every_word:
            self._shown = self._as_shown()
        return self._shown

    @property
    def has_holes(self) -> npt.NDArray[np.bool_]:
        """Which templates have variables."""
        return np.diff(self.first_slot) > 0

    def filled(self, letter: str) -> pa.Array:
        """Return the templates with an ASCII letter or digit for each variable."""
        kept = self._filled  # of the last letter; other threads may ask for others meanwhile
        if kept is None or kept[0] != letter:
            lengths, letters = codecs.lengths_and_letters(self._templates)
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            data = bytes(letters).replace(bytes([HOLE]), letter.encode())
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            kept = self._filled = letter, pa.Array.from_buffers(pa.utf8(), len(lengths), buffers, 0)
        return kept[1]

    def _as_shown(self) -> pa.Array:
        places = np.concatenate([[0], np.cumsum(np.diff(self.first_slot) * (len(PLACEHOLDER) - 1))])
        lengths, letters = codecs.lengths_and_letters(self._templates)
        offsets = (np.concatenate([[0], np.cumsum(lengths)]) + places).astype(np.int32)
        data = letters.replace(bytes([HOLE]), PLACEHOLDER.encode())
        return pa.Array.from_buffers(pa.utf8(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0)


def decode_numbers(page: memoryview, count: int, dictionary: Dictionary) -> tuple[_Ints, memoryview]:
    """Read the numbers of the templates of rows that have a text; and what comes after them."""
    if len(page) < 5 or page[0] != codecs.TEXT_TEMPLATES:
        raise ValueError("no templates")
    own, rest = cut(page[1:])
    found = codecs.decode_ints(own, count)
    _check_below(found, dictionary.count)
    return found, rest


@dataclass(slots=True)
class Held:
    """The values of all variables of a block so far: numbers, texts, and what stands around numbers."""

    numbers: list[_Ints] = field(default_factory=list)
    texts: list[pa.Array] = field(default_factory=list)
    affixes: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])

    def put(
        self, page: memoryview, kind: int, count: int, dictionary: Dictionary, ranks: _Ints | None = None
    ) -> list[int]:
        """Decode the values of a variable, keep all of them or some, and return its slot, as ``Source`` has them."""
        if kind == TEXT:
            texts = codecs.decode_texts(page, count, pa.binary())
            return self.put_texts(texts if ranks is None else texts.take(pa.array(ranks)))
        if kind == WORD:
            found = codecs.decode_ints(page, count)
            _check_below(found, len(dictionary.word_ends) - 1)
            return [WORD, self._put_numbers(found, ranks), 0, 0, 0, 0]
        if kind != NUMBER or len(page) < 5:
            raise ValueError(f"a variable of kind {kind}")
        width, prefix, suffix = struct.unpack_from("<BHH", page)
        if width > 64 or 5 + prefix + suffix > len(page):
            raise ValueError("a variable whose prefix ends past its page")
        found = codecs.decode_ints(page[5 + prefix + suffix :], count)
        if len(found) and int(found.min()) < 0:
            raise ValueError("a negative number among digits")
        self.affixes.append(bytes(page[5 : 5 + prefix + suffix]))
        at = self._moved(2, prefix + suffix)
        return [NUMBER, self._put_numbers(found, ranks), width, at, at + prefix, at + prefix + suffix]

    def put_texts(self, texts: pa.Array) -> list[int]:
        """Keep the values of a variable that are texts, and return its slot."""
        self.texts.append(texts)
        return [TEXT, self._moved(1, len(texts)), 0, 0, 0, 0]

    def source(self, dictionary: Dictionary, numbers: _Ints, wanted: npt.NDArray[np.uint8], slots: _Ints) -> Source:
        """Return what texts of these templates, all of the dictionary's, are put together from."""
        return Source(
            numbers, wanted, dictionary.first_piece, dictionary.piece_ends, dictionary.pieces, dictionary.first_slot,
            slots, _joined(self.numbers, np.int64), *_joined_texts(self.texts), dictionary.word_ends, dictionary.words,
            np.frombuffer(b"".join([*self.affixes, bytes(SLACK)]), np.uint8),
        )  # fmt: skip

    def _put_numbers(self, found: _Ints, ranks: _Ints | None) -> int:
        self.numbers.append(found if ranks is None else found[ranks])
        return self._moved(0, len(self.numbers[-1]))

    def _moved(self, which: int, count: int) -> int:
        self.counts[which] += count
        return self.counts[which] - count


class Laid(NamedTuple):
    """Where the values of the variables of a block lie, by the slots of the dictionary: in the rest, or in pages."""

    letters: int  # bytes that all texts have
    rest: memoryview
    sizes: _Ints  # how many values each variable has
    in_rest: _Ints  # and how many of them lie in the rest
    own: _Ints  # the variables that have pages
    kinds: _Ints
    pages: Sequence[memoryview]


def laid_out(data: memoryview, counts: _Ints, dictionary: Dictionary) -> Laid:
    """Read what comes after the numbers of templates, of which there are so many each."""
    if len(data) < 4:
        raise ValueError("a page of templates that ends early")
    (letters,) = struct.unpack_from("<I", data)
    if letters > codecs.MAX_BYTES:
        raise ValueError(f"texts of {letters} bytes")
    rest, data = cut(data[4:])
    sizes = np.repeat(counts, np.diff(dictionary.first_slot))
    own = np.flatnonzero(sizes >= OWN_ROWS)
    if len(data) < 4:
        raise ValueError("a page of templates that ends early")
    (count,) = struct.unpack_from("<I", data)
    if count != len(own):
        raise ValueError(f"{count} pages of {len(own)} variables")
    kinds_page, data = cut(data[4:])
    lengths_page, data = cut(data)
    kinds, lengths = codecs.decode_ints(kinds_page, count), codecs.decode_ints(lengths_page, count)
    if (count and not 0 <= int(lengths.min()) <= int(lengths.max()) <= len(data)) or int(lengths.sum()) != len(data):
        raise ValueError("pages that end elsewhere than their block")
    ends = np.cumsum(lengths).tolist()
    pages = [data[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]
    return Laid(letters, rest, sizes, np.where(sizes < OWN_ROWS, sizes, 0), own, kinds, pages)


def same_slot(page: memoryview, slot: int, first: int) -> int:
    """Return the earlier variable that has the values of one, by the first of their template."""
    source = first + int.from_bytes(page[:2], "little")
    if len(page) != 2 or source >= slot:
        raise ValueError("a variable that is the same as a later one")
    return source


def cut(data: memoryview) -> tuple[memoryview, memoryview]:
    """Cut off a part with its length before it."""
    if len(data) < 4:
        raise ValueError("a part that ends early")
    (size,) = struct.unpack_from("<I", data)
    if size > len(data) - 4:
        raise ValueError("a part that ends past its page")
    return data[4 : 4 + size], data[4 + size :]


def _joined(arrays: list[Any], kind: Any) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=kind)


def _texts(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], _Ints]:
    lengths, letters = codecs.lengths_and_letters(texts)
    return np.frombuffer(letters, np.uint8), np.concatenate([[0], np.cumsum(lengths)])


def _joined_texts(arrays: list[pa.Array]) -> tuple[_Ints, npt.NDArray[np.uint8]]:
    found = [_texts(each) for each in arrays]
    lengths = _joined([np.diff(ends) for _, ends in found], np.int64)
    every = np.concatenate([*(letters for letters, _ in found), np.zeros(SLACK, np.uint8)])
    return np.concatenate([[0], np.cumsum(lengths)]), every


def _with_slack(letters: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.concatenate([letters, np.zeros(SLACK, np.uint8)])


def _check_below(numbers: _Ints, end: int) -> None:
    if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= end):
        raise ValueError(f"a number that is not below {end}")
