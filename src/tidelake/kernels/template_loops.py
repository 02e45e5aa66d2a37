"""Split texts into templates and variables, number texts, and put texts together again: compiled loops.

A *word* is a run of ASCII letters and digits. A variable is a word that holds a digit, or, where every word is asked
for, any word; what is left of a text, with the byte ``HOLE`` for each variable, is its template. No text holds that
byte, since no UTF-8 does. The same over plain Python, which defines it, is in ``plain_templates``. It does not choose
what is stored, nor how.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.kernels import plain_templates
from tidelake.kernels.bloom import MIX_A, MIX_B, SEED
from tidelake.kernels.plain_templates import HOLE, MAX_DIGITS, Number, Source
from tidelake.runtime.compiling import compiled
from tidelake.runtime.readiness import has_loops

STRETCH_BYTES = 4 << 20  # of texts that are split at once: the places of their words take four times as much

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_CLASS = np.zeros(256, dtype=np.uint8)  # 0 of what no word holds, 1 of letters, 2 of digits
for _letter in b"abcdefghijklmnopqrstuvwxyz":
    _CLASS[_letter] = _CLASS[_letter - 32] = 1
_CLASS[48:58] = 2
_U = np.uint64
_A, _B, _SEED = _U(MIX_A), _U(MIX_B), _U(SEED)
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], dtype=np.uint64)  # of so many bytes of a word
_TABLE = np.dtype([("hash", np.uint64), ("start", np.int64), ("length", np.int64), ("number", np.int64)])


class Split(NamedTuple):
    """Texts, split: their letters, the templates as spans of bytes, and the variables as spans of the letters.

    ``counts`` are of the variables of each text.
    """

    letters: Bytes
    templates: Bytes
    template_ends: Ints
    counts: Ints
    starts: Ints
    lengths: Ints


class Numbering:
    """Number distinct texts in the order in which they first occur."""

    def __init__(self) -> None:
        self._count = self._used = 0
        self._letters: Bytes = np.empty(1 << 16, dtype=np.uint8)
        self._table = np.zeros(1 << 12, dtype=_TABLE)
        self._ends: Ints = np.zeros((1 << 11) + 1, dtype=np.int64)  # of the texts among the letters, by number
        self._plain: dict[bytes, int] | None = None if has_loops() else {}

    def __len__(self) -> int:
        return self._count if self._plain is None else len(self._plain)

    @property
    def byte_size(self) -> int:
        """The bytes of all texts that have a number."""
        return self._used if self._plain is None else sum(map(len, self._plain))

    def add(self, letters: Bytes, starts: Ints, lengths: Ints) -> Ints:
        """Return the numbers of texts, which are spans of letters."""
        if self._plain is not None:
            return plain_templates.numbered(self._plain, letters, starts, lengths)
        numbers = np.empty(len(starts), dtype=np.int64)
        place = np.array([0, self._count, self._used], dtype=np.int64)
        while not _number(letters, starts, lengths, place, _MASKS, self._table, self._letters, self._ends, numbers):
            if place[1] * 2 >= len(self._table):
                held = self._table[self._table["number"] != 0]
                self._table = np.zeros(len(self._table) * 4, dtype=_TABLE)
                self._ends = np.concatenate([self._ends, np.zeros(len(self._ends) * 3, dtype=np.int64)])
                _renumber(held, self._table)
            else:
                more = max(len(self._letters), int(lengths[place[0]]))
                self._letters = np.concatenate([self._letters, np.empty(more, dtype=np.uint8)])
        self._count, self._used = int(place[1]), int(place[2])
        return numbers

    def texts(self) -> pa.Array:
        """Return the texts by their numbers, as bytes."""
        if self._plain is not None:
            return pa.array(list(self._plain), pa.binary())
        offsets = pa.py_buffer(self._ends[: self._count + 1].astype(np.int32))
        data = pa.py_buffer(self._letters[: self._used].tobytes())
        return pa.Array.from_buffers(pa.binary(), self._count, [None, offsets, data], 0)

    def some(self, numbers: Ints) -> pa.Array:
        """Return the texts that have these numbers, as bytes."""
        if self._plain is not None:
            return self.texts().take(pa.array(numbers))
        return gathered(self._letters, self._ends[numbers], self._ends[numbers + 1] - self._ends[numbers])


def split(texts: pa.Array, *, every_word: bool) -> Split:
    """Split texts without nulls."""
    letters, places = _buffers(texts)
    if not has_loops():
        return Split(letters, *plain_templates.split(letters, places, every_word=every_word))
    parts: list[tuple[Bytes, Ints, Ints, Ints, Ints]] = []
    row, ended = 0, 0
    while row < len(texts):
        last = max(int(np.searchsorted(places, places[row] + STRETCH_BYTES, "right")) - 1, row + 1)
        size = int(places[last] - places[row])
        templates = np.empty(size, dtype=np.uint8)
        ends, counts = (np.empty(last - row, dtype=np.int64) for _ in range(2))
        starts, lengths = (np.empty((size + last - row) // 2 + 1, dtype=np.int64) for _ in range(2))
        words, used = _split(
            letters, places[row : last + 1], every_word, _CLASS, templates, ends, counts, starts, lengths
        )
        parts.append((templates[:used], ends + ended, counts, starts[:words], lengths[:words]))
        row, ended = last, ended + used
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Split(letters, letters[:0], none, none, none, none)
    joined = parts[0] if len(parts) == 1 else tuple(np.concatenate(each) for each in zip(*parts, strict=True))
    return Split(letters, *joined)


def by_variable(found: Split, numbers: Ints, bounds: Ints, first_slot: Ints) -> tuple[Ints, Ints]:
    """Order variables by template, variable and text; ``bounds`` are the ends of each variable's values."""
    starts, lengths = np.empty_like(found.starts), np.empty_like(found.lengths)
    if has_loops():
        _order(numbers, found.counts, found.starts, found.lengths, bounds[:-1].copy(), first_slot, starts, lengths)
        return starts, lengths
    places = plain_templates.places_by_variable(numbers, found.counts, bounds, first_slot)
    starts[places], lengths[places] = found.starts, found.lengths
    return starts, lengths


def as_numbers(letters: Bytes, starts: Ints, lengths: Ints, bounds: Ints) -> tuple[Ints, list[Number | None]]:
    """Read variables as numbers, where all values of one are; ``bounds`` are the ends of each one's values."""
    if not has_loops():
        return plain_templates.as_numbers(letters, starts, lengths, bounds)
    numbers = np.zeros(len(starts), dtype=np.int64)
    forms = np.zeros((len(bounds) - 1, 4), dtype=np.int64)
    _numbers(letters, starts, lengths, bounds, _CLASS, numbers, forms)
    return numbers, [Number(*each[1:]) if each[0] else None for each in forms.tolist()]


def gathered(letters: Bytes, starts: Ints, lengths: Ints) -> pa.Array:
    """Return spans of letters as texts of their own."""
    offsets = np.zeros(len(starts) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    found = np.empty(int(offsets[-1]), dtype=np.uint8)
    if has_loops():
        _gather(letters, starts, offsets, found)
    else:
        found = plain_templates.gathered(letters, starts, lengths)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(found)], 0)


def put_together(source: Source, size: int) -> pa.Array | None:
    """Put texts together, of ``size`` bytes in all; None if they are not so many."""
    if not has_loops():
        return plain_templates.put_together(source, size)
    found, offsets = np.empty(size, dtype=np.uint8), np.zeros(len(source.templates) + 1, dtype=np.int32)
    if not _assemble(
        source.templates, source.wanted, source.first_piece, source.piece_ends, source.pieces, source.first_slot,
        source.slots.copy(), source.numbers, source.text_ends, source.texts, source.word_ends, source.words,
        source.affixes, found, offsets,
    ):  # fmt: skip
        return None
    data = pa.py_buffer(found[: int(offsets[-1])])
    return pa.Array.from_buffers(pa.utf8(), len(source.templates), [None, pa.py_buffer(offsets), data], 0)


def _buffers(texts: pa.Array) -> tuple[Bytes, Ints]:
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
    window = places[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return (np.frombuffer(data, dtype=np.uint8) if data else np.zeros(0, dtype=np.uint8)), window


@compiled
def _split(
    data: Any, places: Any, every: Any, classes: Any, templates: Any, ends: Any, counts: Any, starts: Any, lengths: Any
) -> Any:
    """Copy texts but for their variables; say how many words and bytes were written."""
    used, words = 0, 0
    wanted = 1 if every else 2
    for row in range(len(places) - 1):
        at, end, before = places[row], places[row + 1], words
        while at < end:
            kind = classes[data[_U(at)]]
            if kind == 0:
                templates[used] = data[_U(at)]
                used += 1
                at += 1
                continue
            begin, most = at, kind
            while kind != 0:
                if kind > most:
                    most = kind
                templates[used] = data[_U(at)]
                used += 1
                at += 1
                kind = classes[data[_U(at)]] if at < end else classes[0]
            if most >= wanted:
                used -= at - begin
                templates[used] = HOLE
                used += 1
                starts[words] = begin
                lengths[words] = at - begin
                words += 1
        ends[row] = used
        counts[row] = words - before
    return words, used


@compiled
def _number(
    data: Any, starts: Any, lengths: Any, place: Any, masks: Any, table: Any, letters: Any, ends: Any, numbers: Any
) -> Any:
    """Number spans; stop with False and the place to go on from when a table has no room for one more.

    Of up to eight bytes the hash is a number that no others of the same length have, so they are not compared.
    """
    mask, room = _U(len(table) - 1), len(table) // 2
    count, used, whole = place[1], place[2], len(data) - 8
    for i in range(place[0], len(starts)):
        begin, length = starts[i], lengths[i]
        hash, at = _SEED, 0
        while at < length:
            word, left = _U(0), min(length - at, 8)
            if begin + at <= whole:
                word = (
                    _U(data[_U(begin + at)])
                    | _U(data[_U(begin + at + 1)]) << _U(8)
                    | _U(data[_U(begin + at + 2)]) << _U(16)
                    | _U(data[_U(begin + at + 3)]) << _U(24)
                    | _U(data[_U(begin + at + 4)]) << _U(32)
                    | _U(data[_U(begin + at + 5)]) << _U(40)
                    | _U(data[_U(begin + at + 6)]) << _U(48)
                    | _U(data[_U(begin + at + 7)]) << _U(56)
                )
                word &= masks[left]
            else:
                for k in range(left):
                    word |= _U(data[_U(begin + at + k)]) << _U(8 * k)
            hash = (hash ^ word) * _A
            hash ^= hash >> _U(32)
            at += 8
        hash = (hash ^ _U(length)) * _B
        hash ^= hash >> _U(29)
        slot = hash & mask
        found = False
        while table[slot].number != 0:
            if table[slot].hash == hash and table[slot].length == length:
                found = True
                if length > 8:
                    start = table[slot].start
                    for k in range(length):
                        if letters[_U(start + k)] != data[_U(begin + k)]:
                            found = False
                            break
                if found:
                    break
            slot = (slot + _U(1)) & mask
        if not found:
            if count >= room or used + length > len(letters):
                place[0], place[1], place[2] = i, count, used
                return False
            for k in range(length):
                letters[_U(used + k)] = data[_U(begin + k)]
            table[slot].hash = hash
            table[slot].start = used
            table[slot].length = length
            table[slot].number = count + 1
            used += length
            count += 1
            ends[count] = used
        numbers[i] = table[slot].number - 1
    place[0], place[1], place[2] = len(starts), count, used
    return True


@compiled
def _renumber(held: Any, table: Any) -> None:
    mask = _U(len(table) - 1)
    for i in range(len(held)):
        slot = held[i].hash & mask
        while table[slot].number != 0:
            slot = (slot + _U(1)) & mask
        table[slot] = held[i]


@compiled
def _numbers(data: Any, starts: Any, lengths: Any, bounds: Any, classes: Any, numbers: Any, forms: Any) -> None:
    """Read the values of each variable as numbers until one is none."""
    for slot in range(len(bounds) - 1):
        first, last = bounds[slot], bounds[slot + 1]
        if first == last:
            continue
        begin, length = starts[first], lengths[first]
        prefix, suffix = 0, 0
        while prefix < length and classes[data[_U(begin + prefix)]] == 1:
            prefix += 1
        while suffix < length - prefix and classes[data[_U(begin + length - 1 - suffix)]] == 1:
            suffix += 1
        width, is_plain, is_even, is_number = length - prefix - suffix, True, True, True
        for i in range(first, last):
            own, size = starts[i], lengths[i] - prefix - suffix
            if size < 1 or size > MAX_DIGITS:
                is_number = False
                break
            for k in range(prefix):
                if data[_U(own + k)] != data[_U(begin + k)]:
                    is_number = False
            for k in range(suffix):
                if data[_U(own + prefix + size + k)] != data[_U(begin + length - suffix + k)]:
                    is_number = False
            value = _U(0)
            for k in range(size):
                digit = data[_U(own + prefix + k)]
                if digit < 48 or digit > 57:
                    is_number = False
                    break
                value = value * _U(10) + _U(digit - 48)
            if data[_U(own + prefix)] == 48 and size > 1:
                is_plain = False
            if size != width:
                is_even = False
            if not is_number or not (is_plain or is_even) or value >= _U(1) << _U(63):
                is_number = False
                break
            numbers[i] = np.int64(value)
        if is_number:
            forms[slot, 0], forms[slot, 1], forms[slot, 2] = 1, prefix, suffix
            forms[slot, 3] = 0 if is_plain else width


@compiled
def _order(
    numbers: Any,
    counts: Any,
    starts: Any,
    lengths: Any,
    next_place: Any,
    first_slot: Any,
    to_starts: Any,
    to_lengths: Any,
) -> None:
    at = 0
    for row in range(len(numbers)):
        slot = first_slot[numbers[row]]
        for k in range(counts[row]):
            place = next_place[slot + k]
            next_place[slot + k] = place + 1
            to_starts[place] = starts[at]
            to_lengths[place] = lengths[at]
            at += 1


@compiled
def _gather(data: Any, starts: Any, offsets: Any, found: Any) -> None:
    for i in range(len(starts)):
        at = np.int64(offsets[i])
        for k in range(np.int64(offsets[i + 1]) - at):
            found[_U(at + k)] = data[_U(starts[i] + k)]


@compiled
def _assemble(
    templates: Any, wanted: Any, first_piece: Any, piece_ends: Any, pieces: Any, first_slot: Any,
    slots: Any, numbers: Any, text_ends: Any, texts: Any, word_ends: Any, words: Any, affixes: Any,
    found: Any, offsets: Any,
) -> Any:  # fmt: skip
    """Write each text: the pieces of its template, and between them the next value of each of its variables.

    A row of ``slots`` is of one variable: what its values are, where the next one lies, the width of numbers, and the
    ends of its prefix and its suffix.
    """
    used, room = 0, len(found)
    for row in range(len(templates)):
        number = templates[row]
        slot, last = first_slot[number], first_slot[number + 1]
        is_wanted = len(wanted) == 0 or wanted[row] != 0
        piece = first_piece[number]
        while True:
            if is_wanted:
                begin, end = piece_ends[piece], piece_ends[piece + 1]
                if used + end - begin > room:
                    return False
                for k in range(begin, end):
                    found[_U(used)] = pieces[_U(k)]
                    used += 1
            if slot == last:
                break
            at, kind = slots[slot, 1], slots[slot, 0]
            slots[slot, 1] = at + 1
            if is_wanted:
                if kind == 1:
                    value = numbers[_U(at)]
                    digits, rest = 1, value // 10
                    while rest > 0:
                        digits += 1
                        rest //= 10
                    width = max(digits, slots[slot, 2])
                    prefix, suffix, stop = slots[slot, 3], slots[slot, 4], slots[slot, 5]
                    if used + (stop - prefix) + width > room:
                        return False
                    for k in range(prefix, suffix):
                        found[_U(used)] = affixes[_U(k)]
                        used += 1
                    for k in range(width):
                        found[_U(used + width - 1 - k)] = np.uint8(48 + value % 10)
                        value //= 10
                    used += width
                    for k in range(suffix, stop):
                        found[_U(used)] = affixes[_U(k)]
                        used += 1
                elif kind == 2:
                    code = numbers[_U(at)]
                    begin, end = word_ends[code], word_ends[code + 1]
                    if used + end - begin > room:
                        return False
                    for k in range(begin, end):
                        found[_U(used)] = words[_U(k)]
                        used += 1
                else:
                    begin, end = text_ends[at], text_ends[at + 1]
                    if used + end - begin > room:
                        return False
                    for k in range(begin, end):
                        found[_U(used)] = texts[_U(k)]
                        used += 1
            slot += 1
            piece += 1
        offsets[row + 1] = used
    return used == room or len(wanted) != 0
