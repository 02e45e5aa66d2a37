"""Run the byte loops that Arrow has no kernel for, compiled: tokens, distinct texts, filter bits.

Every loop here has a plain twin that defines it (``tokens.tokenize``, ``bloom.hash_bytes``, ``Filter.__contains__``)
and a test that the two agree. Loops release the interpreter lock, so blocks are described in parallel. Where there is
no compiler, ``plain_loops`` does the same over whole columns. It does not know about columns or files, and nothing
that only reads imports it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.kernels import plain_loops
from tidelake.kernels.bloom import GRAM_COUNT, GRAM_LETTERS, MIX_A, MIX_B, PROBES, SEED, Filter, Grams
from tidelake.kernels.tokens import TOKEN_LENGTH_CAP, TOKEN_SET_CAP
from tidelake.runtime.compiling import compiled, inlined
from tidelake.runtime.readiness import has_loops

BLOCK_TOKEN_CAP = 200_000  # past this a block's filter would say yes to everything

Hashes = npt.NDArray[np.uint64]

_LOWER = np.zeros(256, dtype=np.uint8)  # the letter that counts, or 0 where a token ends
_CODE = np.zeros(256, dtype=np.uint32)
for _code, _letter in enumerate(GRAM_LETTERS):
    _LOWER[ord(_letter)] = _LOWER[ord(_letter.upper())] = ord(_letter)
    _CODE[ord(_letter)] = _code

_U = np.uint64
_A, _B, _SEED = _U(MIX_A), _U(MIX_B), _U(SEED)


class TokenTable:
    """Collect the tokens of one column block by block: exactly up to a cap, and each block's hashes and grams."""

    def __init__(self, cap: int = TOKEN_SET_CAP) -> None:
        self._cap = cap
        self._complete = True
        self._block = 0
        self._count = 0
        self._used = 0
        self._letters = np.empty(1 << 15, dtype=np.uint8)
        self._plain = None if has_loops() else plain_loops.Tokens(slots=1 << 12, letters=1 << 15)
        self._allocate(1 << 12)

    def add(self, texts: pa.Array) -> tuple[Hashes, Grams] | None:
        """Read the texts of one block, without nulls, and describe its tokens; None when there are too many."""
        if self._plain is not None:
            return self._add_plainly(texts, self._plain)
        data, offsets = _buffers(texts)
        self._block += 1
        if not self._complete:  # only this block counts now
            self._slots["block"] = 0
            self._count = self._used = 0
        marks = np.zeros(GRAM_COUNT, dtype=np.uint8)
        place = np.array([0, 0, self._count, self._used], dtype=np.int64)
        while not _tokenize(data, offsets, place, self._block, self._slots, self._letters, marks, _LOWER, _CODE):
            self._count, self._used = int(place[2]), int(place[3])
            if self._count >= BLOCK_TOKEN_CAP:
                self._complete = False
                return None
            self._grow()
        self._count, self._used = int(place[2]), int(place[3])
        if self._count > self._cap:
            self._complete = False
        hashes = np.empty(self._count, dtype=np.uint64)
        return hashes[: _seen_in(self._slots, self._block, hashes)], Grams.of_marks(marks)

    @property
    def tokens(self) -> tuple[str, ...] | None:
        """Every token seen so far, sorted, or None past the cap or with a token too long to keep."""
        if self._plain is not None:
            return self._plain.sorted(longest=TOKEN_LENGTH_CAP) if self._complete else None
        held = self._slots[self._slots["block"] != 0]
        if not self._complete or (held["length"] > TOKEN_LENGTH_CAP).any():
            return None
        letters = self._letters.tobytes()
        spans = zip(held["start"].tolist(), held["length"].tolist(), strict=True)
        return tuple(sorted(letters[start : start + length].decode() for start, length in spans))

    def _add_plainly(self, texts: pa.Array, tokens: plain_loops.Tokens) -> tuple[Hashes, Grams] | None:
        if not self._complete:
            tokens.clear()
        found = tokens.add(texts, most=BLOCK_TOKEN_CAP)
        self._complete = self._complete and found is not None and tokens.count <= self._cap
        return None if found is None else (tokens.hashes(found), Grams.of_tokens(token.decode() for token in found))

    def _allocate(self, slots: int) -> None:
        fields = [("hash", np.uint64), ("word", np.uint64), ("start", np.int64), ("length", np.int32)]
        self._slots = np.zeros(slots, dtype=np.dtype([*fields, ("block", np.int32)]))

    def _grow(self) -> None:
        """Make room in whichever table is full; a token longer than the letters' room makes this happen again."""
        if self._count * 2 >= len(self._slots):
            held = self._slots[self._slots["block"] != 0]
            self._allocate(len(self._slots) * 4)
            _reinsert(held, self._slots)
        else:
            self._letters = np.concatenate([self._letters, np.empty(len(self._letters) * 3, dtype=np.uint8)])


def distinct_texts(texts: pa.Array) -> tuple[pa.Array, Hashes]:
    """Return the distinct values of a string or binary array without nulls, and their hashes."""
    if not has_loops():
        return plain_loops.distinct_texts(texts)
    data, offsets = _buffers(texts)
    slots = np.full(1 << max(4, (len(texts) * 2 - 1).bit_length()), -1, dtype=np.int64)
    rows, hashes = np.empty(len(texts), dtype=np.int64), np.empty(len(texts), dtype=np.uint64)
    count = int(_distinct(data, offsets, slots, rows, hashes))
    unique = texts if count == len(texts) else texts.take(pa.array(rows[:count]))
    return unique, hashes[:count]


def filter_of(hashes: Hashes, size: int) -> Filter:
    """Make a filter of exactly this many bytes; equal to ``Filter.sized``."""
    bits = np.zeros(size, dtype=np.uint8)
    add_to_bits(bits, hashes)
    return Filter(bits.tobytes())


def add_to_bits(bits: npt.NDArray[np.uint8], hashes: Hashes) -> None:
    """Set in place the bits of a filter that these hashes have."""
    if not has_loops():
        bits |= np.frombuffer(Filter.sized(hashes, len(bits)).bits, dtype=np.uint8)
        return
    _mark(bits, hashes, _U(32 - (len(bits) * 8).bit_length() + 1))


def _buffers(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
    window = places[texts.offset : texts.offset + len(texts) + 1]
    return (np.frombuffer(data, dtype=np.uint8) if data else np.zeros(0, dtype=np.uint8)), window


@inlined
def stirred(hash: Any, word: Any) -> Any:
    hash = (hash ^ word) * _A
    return hash ^ (hash >> _U(32))


@inlined
def finished(hash: Any) -> Any:
    hash = (hash ^ (hash >> _U(30))) * _A
    hash = (hash ^ (hash >> _U(27))) * _B
    return hash ^ (hash >> _U(31))


@compiled
def _tokenize(
    data: Any, offsets: Any, place: Any, block: Any, slots: Any, letters: Any, marks: Any, lower: Any, code: Any
) -> Any:
    """Insert every token; stop with False and the place to go on from when a table has no room for one more."""
    row, at, count, used = place[0], place[1], place[2], place[3]
    mask = _U(len(slots) - 1)
    room = len(slots) // 2
    rows = len(offsets) - 1
    while row < rows:
        end = np.int64(offsets[row + 1])
        at = max(at, np.int64(offsets[row]))
        while at < end:
            letter = lower[data[_U(at)]]
            if letter == 0:
                at += 1
                continue
            begin = at
            hash, word, first, shift = _SEED, _U(0), _U(0), _U(0)
            while True:
                word |= _U(letter) << shift
                shift += _U(8)
                at += 1
                if shift == _U(64):
                    if at - begin == 8:
                        first = word
                    hash = stirred(hash, word)
                    word, shift = _U(0), _U(0)
                if at == end:
                    break
                letter = lower[data[_U(at)]]
                if letter == 0:
                    break
            length = at - begin
            if length < 2:
                continue
            if shift:
                if length < 8:
                    first = word
                hash = stirred(hash, word)
            hash = finished(hash ^ _U(length))
            slot = hash & mask
            found = False
            while slots[slot].block != 0:
                if slots[slot].hash == hash and slots[slot].word == first and slots[slot].length == length:
                    found = True
                    start = slots[slot].start
                    for i in range(8, length):
                        if letters[start + i] != lower[data[begin + i]]:
                            found = False
                            break
                    if found:
                        break
                slot = (slot + _U(1)) & mask
            if not found:
                if count >= room or used + length > len(letters):
                    place[0], place[1], place[2], place[3] = row, begin, count, used
                    return False
                slots[slot].hash, slots[slot].word = hash, first
                slots[slot].start, slots[slot].length = used, length
                for i in range(length):
                    letters[used + i] = lower[data[begin + i]]
                used += length
                count += 1
            if slots[slot].block != block:
                slots[slot].block = block
                start = slots[slot].start
                for i in range(length - 2):
                    gram = code[letters[start + i]] * 36 + code[letters[start + i + 1]]
                    marks[gram * 36 + code[letters[start + i + 2]]] = 1
        row += 1
    place[0], place[1], place[2], place[3] = row, at, count, used
    return True


@compiled
def _seen_in(slots: Any, block: Any, hashes: Any) -> Any:
    """Gather the hashes of the tokens that a block has; how many there are."""
    count = 0
    for i in range(len(slots)):
        if slots[i].block == block:
            hashes[count] = slots[i].hash
            count += 1
    return count


@compiled
def _reinsert(held: Any, slots: Any) -> None:
    mask = _U(len(slots) - 1)
    for i in range(len(held)):
        slot = held[i].hash & mask
        while slots[slot].block != 0:
            slot = (slot + _U(1)) & mask
        slots[slot] = held[i]


@compiled
def _distinct(data: Any, offsets: Any, slots: Any, rows: Any, hashes: Any) -> Any:
    """Find the first row of each distinct value; ``slots`` is a table of places in ``rows``."""
    mask = _U(len(slots) - 1)
    count = 0
    for row in range(len(offsets) - 1):
        begin, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        hash = _SEED
        at = begin
        while at + 8 <= end:
            word = (
                _U(data[_U(at)])
                | _U(data[_U(at + 1)]) << _U(8)
                | _U(data[_U(at + 2)]) << _U(16)
                | _U(data[_U(at + 3)]) << _U(24)
                | _U(data[_U(at + 4)]) << _U(32)
                | _U(data[_U(at + 5)]) << _U(40)
                | _U(data[_U(at + 6)]) << _U(48)
                | _U(data[_U(at + 7)]) << _U(56)
            )
            hash = stirred(hash, word)
            at += 8
        if at < end:
            word, shift = _U(0), _U(0)
            while at < end:
                word |= _U(data[_U(at)]) << shift
                shift += _U(8)
                at += 1
            hash = stirred(hash, word)
        hash = finished(hash ^ _U(end - begin))
        slot = hash & mask
        while slots[slot] >= 0:
            if hashes[slots[slot]] == hash:
                other = np.int64(offsets[rows[slots[slot]]])
                if np.int64(offsets[rows[slots[slot]] + 1]) - other == end - begin:
                    same = True
                    for i in range(end - begin):
                        if data[_U(begin + i)] != data[_U(other + i)]:
                            same = False
                            break
                    if same:
                        break
            slot = (slot + _U(1)) & mask
        if slots[slot] < 0:
            slots[slot] = count
            rows[count] = row
            hashes[count] = hash
            count += 1
    return count


@compiled
def _mark(bits: Any, hashes: Any, shift: Any) -> None:
    low32 = _U(0xFFFF_FFFF)
    for i in range(len(hashes)):
        low, high = hashes[i] & low32, (hashes[i] >> _U(32)) | _U(1)
        for probe in range(PROBES):
            at = ((low + _U(probe) * high) & low32) >> shift
            bits[at >> _U(3)] |= np.uint8(1 << (at & _U(7)))
