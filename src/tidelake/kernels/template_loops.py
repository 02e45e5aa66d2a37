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
from tidelake.kernels.eight_bytes import eight, put_eight
from tidelake.kernels.plain_templates import HOLE, MAX_DIGITS, SLACK, Number, Source
from tidelake.runtime.compiling import compiled, inlined
from tidelake.runtime.readiness import has_loops

STRETCH_BYTES = 4 << 20  # of texts that are split at once: the places of their words take four times as much

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Places = npt.NDArray[Any]  # among letters, and lengths: of 32 bits where there are many

_CLASS = np.zeros(256, dtype=np.uint8)  # 0 of what no word holds, 1 of letters, 2 of digits
for _letter in b"abcdefghijklmnopqrstuvwxyz":
    _CLASS[_letter] = _CLASS[_letter - 32] = 1
_CLASS[48:58] = 2
_U = np.uint64
_A, _B, _SEED = _U(MIX_A), _U(MIX_B), _U(SEED)
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], dtype=np.uint64)  # of so many bytes of a word
_SPARSE = 4  # slots of a table for each text: those that are found at once are found without a wrong guess
_RUN = 56  # bits that are read at once, from any place
_LOWEST = 0x03F7_9D71_B4CB_0A89  # times one bit, its highest six bits are another number for each bit
_BITS = np.zeros(64, dtype=np.uint8)  # which bit, by that number
for _bit in range(64):
    _BITS[(_LOWEST << _bit & 2**64 - 1) >> 58] = _bit


class Split(NamedTuple):
    """Texts, split: their letters, the templates as spans of bytes, and the variables as spans of the letters.

    ``counts`` are of the variables of each text.
    """

    letters: Bytes
    templates: Bytes
    template_ends: Ints
    counts: Ints
    starts: Places
    lengths: Places


class Numbering:
    """Number distinct texts in the order in which they first occur."""

    def __init__(self) -> None:
        self._count = self._used = 0
        self._letters: Bytes = np.empty(1 << 16, dtype=np.uint8)
        self._allocate(_SPARSE << 11)
        self._ends: Ints = np.zeros((1 << 11) + 1, dtype=np.int64)  # of the texts among the letters, by number
        self._plain: dict[bytes, int] | None = None if has_loops() else {}

    def __len__(self) -> int:
        return self._count if self._plain is None else len(self._plain)

    @property
    def byte_size(self) -> int:
        """The bytes of all texts that have a number."""
        return self._used if self._plain is None else sum(map(len, self._plain))

    def number(self, texts: pa.Array) -> Ints:
        """Return the numbers of texts without nulls."""
        letters, places = _buffers(texts)
        return self.add(letters, places[:-1].astype(np.int32), np.diff(places).astype(np.int32))

    def add(self, letters: Bytes, starts: Places, lengths: Places) -> Ints:
        """Return the numbers of texts, which are spans of letters."""
        if self._plain is not None:
            return plain_templates.numbered(self._plain, letters, starts, lengths)
        numbers = np.empty(len(starts), dtype=np.int64)
        place = np.array([0, self._count, self._used], dtype=np.int64)
        while not _number(
            letters, starts, lengths, place, _MASKS, self._keys, self._numbers, self._letters, self._ends, numbers
        ):
            if place[1] * _SPARSE >= len(self._keys):
                keys, held = self._keys, self._numbers
                self._allocate(len(keys) * 2)
                self._ends = np.concatenate([self._ends, np.zeros(len(self._ends), dtype=np.int64)])
                _renumber(keys, held, self._keys, self._numbers)
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

    def _allocate(self, slots: int) -> None:
        self._keys = np.zeros(slots, dtype=np.uint64)
        self._numbers = np.zeros(slots, dtype=np.int32)  # from 1 on


def split(texts: pa.Array, *, every_word: bool) -> Split:
    """Split texts without nulls."""
    letters, places = _buffers(texts)
    if not has_loops():
        return Split(letters, *plain_templates.split(letters, places, every_word=every_word))
    parts: list[tuple[Bytes, Ints, Ints, Places, Places]] = []
    row, ended = 0, 0
    while row < len(texts):
        last = max(int(np.searchsorted(places, places[row] + STRETCH_BYTES, "right")) - 1, row + 1)
        size = int(places[last] - places[row])
        templates = np.empty(size, dtype=np.uint8)
        ends, counts = (np.empty(last - row, dtype=np.int64) for _ in range(2))
        starts, lengths = (np.empty((size + last - row) // 2 + 1, dtype=np.int32) for _ in range(2))
        in_word, is_digit = (np.empty(size, dtype=np.bool_) for _ in range(2))
        _classify(letters, places[row], in_word, is_digit)
        word_bits = _bits(in_word)
        digit_bits = word_bits[:0] if every_word else _bits(is_digit)
        words, used = _split(
            letters, places[row : last + 1], word_bits, digit_bits, _BITS, templates, ends, counts, starts, lengths
        )
        parts.append((templates[:used], ends + ended, counts, starts[:words], lengths[:words]))
        row, ended = last, ended + used
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Split(letters, letters[:0], none, none, none, none)
    joined = parts[0] if len(parts) == 1 else tuple(np.concatenate(each) for each in zip(*parts, strict=True))
    return Split(letters, *joined)


def by_variable(found: Split, numbers: Ints, bounds: Ints, first_slot: Ints) -> tuple[Places, Places]:
    """Order variables by template, variable and text; ``bounds`` are the ends of each variable's values."""
    if len(numbers) and (numbers == numbers[0]).all():
        variables = int(found.counts[0])
        ordered = (np.ascontiguousarray(each.reshape(-1, variables or 1).T) for each in (found.starts, found.lengths))
        starts, lengths = (each.reshape(-1) for each in ordered)
        return starts, lengths
    starts, lengths = np.empty_like(found.starts), np.empty_like(found.lengths)
    if has_loops():
        _order(numbers, found.counts, found.starts, found.lengths, bounds[:-1].copy(), first_slot, starts, lengths)
        return starts, lengths
    places = plain_templates.places_by_variable(numbers, found.counts, bounds, first_slot)
    starts[places], lengths[places] = found.starts, found.lengths
    return starts, lengths


def as_numbers(letters: Bytes, starts: Places, lengths: Places, bounds: Ints) -> tuple[Ints, list[Number | None]]:
    """Read variables as numbers, where all values of one are; ``bounds`` are the ends of each one's values."""
    if not has_loops():
        return plain_templates.as_numbers(letters, starts, lengths, bounds)
    numbers = np.zeros(len(starts), dtype=np.int64)
    forms = np.zeros((len(bounds) - 1, 4), dtype=np.int64)
    _numbers(letters, starts, lengths, bounds, _CLASS, numbers, forms)
    return numbers, [Number(*each[1:]) if each[0] else None for each in forms.tolist()]


def count(codes: Ints, counts: Ints) -> None:
    """Add to counts of numbers how often each comes."""
    if has_loops():
        _count(codes, counts)
    else:
        counts += np.bincount(codes, minlength=len(counts))


def places_of_rare(codes: Ints, counts: Ints, most: int) -> Ints:
    """Return the places of the numbers that come no more than ``most`` times in all."""
    if not has_loops():
        return np.flatnonzero(counts[codes] <= most)
    places = np.empty(len(codes), dtype=np.int64)
    return places[: _places_of_rare(codes, counts, most, places)].copy()


def gathered(letters: Bytes, starts: Places, lengths: Places) -> pa.Array:
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
    found, offsets = np.empty(size + SLACK, dtype=np.uint8), np.zeros(len(source.templates) + 1, dtype=np.int32)
    if not _assemble(
        source.templates, source.wanted, source.first_piece, source.piece_ends, source.pieces, source.first_slot,
        source.slots.copy(), source.numbers, source.text_ends, source.texts, source.word_ends, source.words,
        source.affixes, found, offsets,
    ):  # fmt: skip
        return None
    used = found[: int(offsets[-1])]
    data = pa.py_buffer(used if len(used) * 2 > size else used.copy())  # few texts do not hold the room of all
    return pa.Array.from_buffers(pa.utf8(), len(source.templates), [None, pa.py_buffer(offsets), data], 0)


def _bits(flags: npt.NDArray[np.bool_]) -> Bytes:
    """Return flags as bits, and eight bytes more, so that any may be read with those after it."""
    bits = np.zeros(len(flags) // 8 + 9, dtype=np.uint8)
    bits[: (len(flags) + 7) // 8] = np.packbits(flags, bitorder="little")
    return bits


def _buffers(texts: pa.Array) -> tuple[Bytes, Ints]:
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
    window = places[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return (np.frombuffer(data, dtype=np.uint8) if data else np.zeros(0, dtype=np.uint8)), window


@inlined
def _copy(data: Any, begin: Any, end: Any, found: Any, used: Any) -> Any:
    """Copy letters, eight at a time, so that up to seven bytes after them are written too; return where they end."""
    for k in range(begin, end, 8):
        put_eight(found, used + k - begin, eight(data, k))
    return used + end - begin


@inlined
def _run(bits: Any, place: Any, size: Any) -> Any:
    """Read bits from a place on, ``_RUN`` at most."""
    return eight(bits, place >> 3) >> _U(place & 7) & ((_U(1) << _U(size)) - _U(1))


@compiled
def _classify(data: Any, start: Any, in_word: Any, is_digit: Any) -> None:
    """Say of bytes which are digits, and which those or letters: many at once, so without a table."""
    zero, nine, a, z, case = np.uint8(48), np.uint8(9), np.uint8(97), np.uint8(25), np.uint8(32)
    for i in range(len(in_word)):
        letter = data[_U(start + i)]
        digit = np.uint8(letter - zero) <= nine
        in_word[_U(i)] = (np.uint8(np.uint8(letter | case) - a) <= z) | digit
        is_digit[_U(i)] = digit


@compiled
def _split(
    data: Any,
    places: Any,
    word_bits: Any,
    digit_bits: Any,
    bit_of: Any,
    templates: Any,
    ends: Any,
    counts: Any,
    starts: Any,
    lengths: Any,
) -> Any:
    """Copy texts but for their variables; say how many words and bytes were written.

    A variable is a run of ``word_bits`` among which there is one of ``digit_bits``, or any run if there are none.
    """
    used, words, first = 0, 0, np.int64(places[0])
    for row in range(len(places) - 1):
        at, end, before = np.int64(places[row]), np.int64(places[row + 1]), words
        copied, begin, inside = at, at, _U(0)
        while at < end or inside != 0:
            size: Any = min(end - at, _RUN)  # none after the last, where a word may end
            run = _run(word_bits, at - first, size)
            turns = run ^ (run << _U(1) | inside)
            if size == _RUN:
                turns &= (_U(1) << _U(_RUN)) - _U(1)
            inside = run >> _U(size - 1) if size == _RUN else _U(0)
            while turns != 0:
                lowest = turns & (~turns + _U(1))
                turns ^= lowest
                here = at + np.int64(bit_of[lowest * _U(_LOWEST) >> _U(58)])
                if run & lowest:
                    begin = here
                    continue
                is_variable, place = len(digit_bits) == 0, begin - first
                while place < here - first and not is_variable:
                    left: Any = min(here - first - place, _RUN)
                    is_variable = _run(digit_bits, place, left) != 0
                    place += left
                if is_variable:
                    for k in range(copied, begin):
                        templates[_U(used)] = data[_U(k)]
                        used += 1
                    templates[_U(used)] = HOLE
                    used += 1
                    starts[_U(words)] = begin
                    lengths[_U(words)] = here - begin
                    words += 1
                    copied = here
            at += size
        for k in range(copied, end):
            templates[_U(used)] = data[_U(k)]
            used += 1
        ends[row] = used
        counts[row] = words - before
    return words, used


@compiled
def _number(
    data: Any,
    starts: Any,
    lengths: Any,
    place: Any,
    masks: Any,
    keys: Any,
    held: Any,
    letters: Any,
    ends: Any,
    numbers: Any,
) -> Any:
    """Number spans; stop with False and the place to go on from when a table has no room for one more.

    The key of up to eight bytes is those bytes, so such texts are not compared.
    """
    slots, mask, room = _U(len(keys)), _U(len(keys) - 1), len(keys) // _SPARSE
    count, used, whole = place[1], place[2], len(data) - 8
    for i in range(place[0], len(starts)):
        begin, length = np.int64(starts[i]), np.int64(lengths[i])
        if length > 8:
            key, at = _SEED, begin
            while at < begin + length:
                key = (key ^ eight(data, min(at, begin + length - 8))) * _A
                key ^= key >> _U(32)
                at += 8
        elif begin <= whole:
            key = eight(data, begin) & masks[_U(length)]
        else:
            key = _U(0)
            for k in range(length):
                key |= _U(data[_U(begin + k)]) << _U(8 * k)
        slot = (key * _B >> _U(32)) * slots >> _U(32)  # by its highest bits
        number, found = held[slot], False
        while number != 0:
            if keys[slot] == key and ends[_U(number)] - ends[_U(number - 1)] == length:
                found = True
                if length > 8:
                    at, start = begin, ends[_U(number - 1)] - begin
                    while at < begin + length and found:
                        here = min(at, begin + length - 8)
                        found = eight(data, here) == eight(letters, start + here)
                        at += 8
                if found:
                    break
            slot = (slot + _U(1)) & mask
            number = held[slot]
        if not found:
            if count >= room or used + length > len(letters):
                place[0], place[1], place[2] = i, count, used
                return False
            for k in range(length):
                letters[_U(used + k)] = data[_U(begin + k)]
            used += length
            count += 1
            number = count
            keys[slot], held[slot], ends[count] = key, count, used
        numbers[_U(i)] = number - 1
    place[0], place[1], place[2] = len(starts), count, used
    return True


@compiled
def _renumber(keys: Any, held: Any, to_keys: Any, to_held: Any) -> None:
    """Move what a table holds to a larger one."""
    slots, mask = _U(len(to_keys)), _U(len(to_keys) - 1)
    for i in range(len(keys)):
        if held[i] != 0:
            slot = (keys[i] * _B >> _U(32)) * slots >> _U(32)
            while to_held[slot] != 0:
                slot = (slot + _U(1)) & mask
            to_keys[slot], to_held[slot] = keys[i], held[i]


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
def _count(codes: Any, counts: Any) -> None:
    for i in range(len(codes)):
        counts[_U(codes[i])] += 1


@compiled
def _places_of_rare(codes: Any, counts: Any, most: Any, places: Any) -> Any:
    found = 0
    for i in range(len(codes)):
        places[_U(found)] = i
        found += counts[_U(codes[i])] <= most
    return found


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
    used, room = 0, len(found) - SLACK
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
                used = _copy(pieces, begin, end, found, used)
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
                    used = _copy(affixes, prefix, suffix, found, used)
                    for k in range(width):
                        found[_U(used + width - 1 - k)] = np.uint8(48 + value % 10)
                        value //= 10
                    used += width
                    used = _copy(affixes, suffix, stop, found, used)
                elif kind == 2:
                    code = numbers[_U(at)]
                    begin, end = word_ends[code], word_ends[code + 1]
                    if used + end - begin > room:
                        return False
                    used = _copy(words, begin, end, found, used)
                else:
                    begin, end = text_ends[at], text_ends[at + 1]
                    if used + end - begin > room:
                        return False
                    used = _copy(texts, begin, end, found, used)
            slot += 1
            piece += 1
        offsets[row + 1] = used
    return used == room or len(wanted) != 0
