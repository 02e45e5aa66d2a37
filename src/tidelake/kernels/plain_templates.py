"""Define how texts are split into templates and variables, and do it without a compiler, text by text.

What is written must not depend on what is installed: ``template_loops`` gives the same. It does not read files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.runtime import notices

HOLE = 0xFF  # stands for a variable: a byte that no UTF-8 holds
SLACK = 8  # bytes after the last letters, which are copied so many at a time
MAX_DIGITS = 19  # more do not fit into 63 bits
TEXT, NUMBER, WORD = range(3)  # what the values of a variable are

VARIABLE = r"[A-Za-z]*[0-9][0-9A-Za-z]*"  # a word that holds a digit
PLACEHOLDER = "<*>"  # stands for a variable where people read

_VARIABLE = re.compile(VARIABLE.encode())
_WORD = re.compile(rb"[0-9A-Za-z]+")
_NUMBER = re.compile(rb"([A-Za-z]*)([0-9]{1,19})([A-Za-z]*)")
_HOLE = bytes([HOLE])

_Bytes = npt.NDArray[np.uint8]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Source:
    """All that texts are put together from.

    ``templates`` has the number of each text's template. Template ``n`` consists of the pieces from ``first_piece[n]``
    on, one more than it has variables, and piece ``p`` is ``pieces[piece_ends[p]:piece_ends[p + 1]]``. Its variables
    are the rows of ``slots`` from ``first_slot[n]`` on: what the values are, where the first one lies, the width of
    numbers, and where in ``affixes`` the prefix begins, the suffix begins, and the suffix ends. ``SLACK`` bytes
    come after the letters of pieces, texts, words and affixes.
    """

    templates: _Ints
    wanted: _Bytes  # which rows are put together, the others are empty; of no length where all are
    first_piece: _Ints
    piece_ends: _Ints
    pieces: _Bytes
    first_slot: _Ints
    slots: _Ints
    numbers: _Ints
    text_ends: _Ints
    texts: _Bytes
    word_ends: _Ints
    words: _Bytes
    affixes: _Bytes


class Number(NamedTuple):
    """How the values of a variable are numbers: the lengths of prefix and suffix around them, and of the digits.

    A width of 0 means that no number begins with a zero that it does not need.
    """

    prefix: int
    suffix: int
    width: int


def message_template(text: str) -> str:
    """Return a text with a placeholder for each word that holds a digit."""
    return re.sub(VARIABLE, PLACEHOLDER, text)


def split(letters: _Bytes, places: _Ints, *, every_word: bool) -> tuple[_Bytes, _Ints, _Ints, _Ints, _Ints]:
    """Return templates, one after the other, their ends, and of variables how many, where and how long they are."""
    notices.interpreting(len(letters))
    rule, data = _WORD if every_word else _VARIABLE, letters.tobytes()
    templates = bytearray()
    ends, counts, starts, lengths = (list[int]() for _ in range(4))
    for begin, end in zip(places[:-1].tolist(), places[1:].tolist(), strict=True):
        at, before = begin, len(starts)
        for match in rule.finditer(data, begin, end):
            templates += data[at : match.start()] + _HOLE
            starts.append(match.start())
            lengths.append(match.end() - match.start())
            at = match.end()
        templates += data[at:end]
        ends.append(len(templates))
        counts.append(len(starts) - before)
    found = np.frombuffer(bytes(templates), np.uint8)
    return found, *(np.array(each, dtype=np.int64) for each in (ends, counts, starts, lengths))  # type: ignore[return-value]


def numbered(known: dict[bytes, int], letters: _Bytes, starts: _Ints, lengths: _Ints) -> _Ints:
    """Return the numbers of spans of letters; new ones get the next number."""
    data = letters.tobytes()
    spans = (data[start : start + length] for start, length in zip(starts.tolist(), lengths.tolist(), strict=True))
    return np.fromiter((known.setdefault(span, len(known)) for span in spans), np.int64, len(starts))


def places_by_variable(numbers: _Ints, counts: _Ints, bounds: _Ints, first_slot: _Ints) -> _Ints:
    """Return where variables, which come by text, come to lie by template, variable and text."""
    rank = np.empty(len(numbers), dtype=np.int64)  # of a text among those of its template
    sizes = np.bincount(numbers)
    rank[np.argsort(numbers, kind="stable")] = np.arange(len(numbers)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    slot = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(bounds[np.repeat(first_slot[numbers], counts) + slot] + np.repeat(rank, counts))


def as_numbers(letters: _Bytes, starts: _Ints, lengths: _Ints, bounds: _Ints) -> tuple[_Ints, list[Number | None]]:
    """Read the variables as numbers of which all values are some."""
    numbers, forms = np.zeros(len(starts), dtype=np.int64), []
    data = letters.tobytes()
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        own = [
            data[start : start + length] for start, length in zip(starts[first:last], lengths[first:last], strict=True)
        ]
        forms.append(_number_form(own, numbers[first:last]))
    return numbers, forms


def _number_form(values: list[bytes], numbers: _Ints) -> Number | None:
    matches = [_NUMBER.fullmatch(value) for value in values]
    if not matches or None in matches:
        return None
    found = [match.groups() for match in matches if match]
    if len({(prefix, suffix) for prefix, _, suffix in found}) != 1:
        return None
    digits = [each for _, each, _ in found]
    is_plain = all(len(each) == 1 or each[:1] != b"0" for each in digits)
    if not is_plain and len(set(map(len, digits))) != 1:
        return None
    read = list(map(int, digits))
    if max(read) >= 2**63:
        return None
    numbers[:] = read
    return Number(len(found[0][0]), len(found[0][2]), 0 if is_plain else len(digits[0]))


def gathered(letters: _Bytes, starts: _Ints, lengths: _Ints) -> _Bytes:
    """Return spans of letters, one after the other."""
    data = letters.tobytes()
    spans = zip(starts.tolist(), lengths.tolist(), strict=True)
    return np.frombuffer(b"".join(data[start : start + length] for start, length in spans), np.uint8)


def put_together(source: Source, size: int) -> pa.Array | None:
    """Put texts together, of ``size`` bytes in all; None if they are not so many."""
    notices.interpreting(size)
    pieces, texts, words = source.pieces.tobytes(), source.texts.tobytes(), source.words.tobytes()
    affixes, slots = source.affixes.tobytes(), source.slots.tolist()
    found, total = [], 0
    for row, number in enumerate(source.templates.tolist()):
        first, last = source.first_slot[number : number + 2].tolist()
        is_wanted = not len(source.wanted) or bool(source.wanted[row])
        parts = []
        for at, slot in enumerate(slots[first:last]):
            kind, place, width, prefix, suffix, stop = slot
            slot[1] += 1
            if not is_wanted:
                continue
            parts.append(_span(pieces, source.piece_ends, int(source.first_piece[number]) + at))
            if kind == NUMBER:
                parts.append(affixes[prefix:suffix] + b"%0*d" % (width, source.numbers[place]) + affixes[suffix:stop])
            elif kind == WORD:
                parts.append(_span(words, source.word_ends, int(source.numbers[place])))
            else:
                parts.append(_span(texts, source.text_ends, place))
        parts.append(_span(pieces, source.piece_ends, int(source.first_piece[number]) + last - first))
        found.append(b"".join(parts) if is_wanted else b"")
        total += len(found[-1])
        if total > size:
            return None
    if total != size and not len(source.wanted):
        return None
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in found])]).astype(np.int32)
    data = pa.py_buffer(b"".join(found))
    return pa.Array.from_buffers(pa.utf8(), len(found), [None, pa.py_buffer(offsets), data], 0)


def _span(data: bytes, ends: _Ints, at: int) -> bytes:
    return data[int(ends[at]) : int(ends[at + 1])]
