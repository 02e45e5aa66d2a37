"""Remember what was seen in a few bytes: may it be here, or is it certainly not?

``Filter`` is a Bloom filter whose size is a power of two, so that one folds into half its size and any two can be
united; ``Grams`` is an exact bitmap of the 46,656 three-letter runs of ``[0-9a-z]``, which lets a search for a part of
a word prune too. Both may say yes wrongly and never say no wrongly. They hold hashes, not values: see ``hash_bytes``.

The hash reads eight bytes at a time, little-endian, the last word padded with zeros, and ends with the length and a
finaliser (the constants of splitmix64). All arithmetic is modulo 2**64; ``docs/format.md`` spells it out. It does not
resist an enemy who chooses values to collide: a collision only costs a wasted read.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tidelake.errors import InvalidInputError
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    np = deferred("numpy")

PROBES = 4  # near the best for 3 to 12 bits a key, and one number for every filter keeps them unitable
BITS_PER_KEY = 10  # about one wrong yes in a hundred
SMALLEST_BYTES = 8
MAX_FILL = 0.95  # above this, four in five answers are a wrong yes: the bytes are not worth storing
GRAM_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
GRAM_COUNT = len(GRAM_LETTERS) ** 3
GRAM_BYTES = GRAM_COUNT // 8
LEAF_TEXT_CAP = 256  # bytes of a text inside a dynamic value that its hash reads

MASK = 0xFFFF_FFFF_FFFF_FFFF
SEED = 0x9E37_79B9_7F4A_7C15
MIX_A = 0xBF58_476D_1CE4_E5B9
MIX_B = 0x94D0_49BB_1331_11EB

_GRAM_CODES = {letter: code for code, letter in enumerate(GRAM_LETTERS)}


@dataclass(frozen=True, slots=True)
class Filter:
    """A set of 64-bit hashes, approximately: ``hash in filter`` is never wrong when it says no."""

    bits: bytes

    def __post_init__(self) -> None:
        size = len(self.bits)
        if size < SMALLEST_BYTES or size & (size - 1) or size > 1 << 28:
            raise InvalidInputError("a filter's size must be a power of two", bytes=size)

    @classmethod
    def of(cls, hashes: npt.NDArray[np.uint64], *, max_bytes: int) -> Filter:
        """Make a filter of these distinct hashes, no larger than it needs to be or may be."""
        return cls.sized(hashes, min(size_for(len(hashes)), max_bytes))

    @classmethod
    def sized(cls, hashes: npt.NDArray[np.uint64], size: int) -> Filter:
        """Make a filter of these hashes at exactly this size, to be united with others."""
        marks = np.zeros(size * 8, dtype=np.bool_)
        marks[_probes(hashes, size)] = True
        return cls(np.packbits(marks, bitorder="little").tobytes())

    def __contains__(self, hash: int) -> bool:
        low, high, shift = hash & 0xFFFF_FFFF, hash >> 32 | 1, 32 - (len(self.bits) * 8).bit_length() + 1
        for probe in range(PROBES):
            at = ((low + probe * high) & 0xFFFF_FFFF) >> shift
            if not self.bits[at >> 3] >> (at & 7) & 1:
                return False
        return True

    def __or__(self, other: Filter) -> Filter:
        """Unite two filters at the size of the larger, whose precision would be lost by folding it."""
        size = max(len(self.bits), len(other.bits))
        ours, theirs = (np.frombuffer(f._unfolded(size), dtype=np.uint8) for f in (self, other))
        return Filter((ours | theirs).tobytes())

    def folded(self, size: int) -> Filter:
        """Return the same set in fewer bytes, with more wrong answers."""
        marks = np.unpackbits(np.frombuffer(self.bits, dtype=np.uint8), bitorder="little")
        while len(marks) > size * 8:
            marks = marks[::2] | marks[1::2]
        return Filter(np.packbits(marks, bitorder="little").tobytes())

    def _unfolded(self, size: int) -> bytes:
        """Return the bits at a larger size: each stands for all that would fold into it."""
        marks = np.unpackbits(np.frombuffer(self.bits, dtype=np.uint8), bitorder="little")
        return np.packbits(np.repeat(marks, size // len(self.bits)), bitorder="little").tobytes()

    def trimmed(self) -> Filter:
        """Fold while the filter stays sparse enough to keep its precision."""
        marks = np.unpackbits(np.frombuffer(self.bits, dtype=np.uint8), bitorder="little")
        while len(marks) > SMALLEST_BYTES * 8 and np.count_nonzero(marks) < 0.18 * len(marks):
            marks = marks[::2] | marks[1::2]  # half the size at most doubles the fill
        return Filter(np.packbits(marks, bitorder="little").tobytes())

    @property
    def fill(self) -> float:
        """The share of bits that are set; a wrong yes has this probability to the power of PROBES."""
        return int.from_bytes(self.bits, "little").bit_count() / (len(self.bits) * 8)

    def to_text(self) -> str:
        return base64.b64encode(self.bits).decode()

    @classmethod
    def from_text(cls, text: str) -> Filter:
        return cls(_decoded(text))

    def __repr__(self) -> str:
        return f"Filter({len(self.bits)} bytes, {self.fill:.0%} full)"


@dataclass(frozen=True, slots=True)
class Grams:
    """Every three-letter run that occurs in some token, exactly."""

    bits: bytes

    def __post_init__(self) -> None:
        if len(self.bits) != GRAM_BYTES:
            raise InvalidInputError("a gram bitmap has a fixed size", bytes=len(self.bits), expected=GRAM_BYTES)

    @classmethod
    def of_marks(cls, marks: npt.NDArray[np.uint8]) -> Grams:
        """Make a bitmap from one byte per gram."""
        return cls(np.packbits(marks, bitorder="little").tobytes())

    @classmethod
    def of_tokens(cls, tokens: Iterable[str]) -> Grams:
        """Make a bitmap of the runs inside these tokens."""
        marks = np.zeros(GRAM_COUNT, dtype=np.uint8)
        marks[[at for token in tokens for at in _gram_places(token)]] = 1
        return cls.of_marks(marks)

    def may_hold(self, run: str) -> bool:
        """Return whether some token may have this run of ``[0-9a-z]`` inside it."""
        return all(self.bits[at >> 3] >> (at & 7) & 1 for at in _asked_places(run))

    def __or__(self, other: Grams) -> Grams:
        ours, theirs = (np.frombuffer(grams.bits, dtype=np.uint8) for grams in (self, other))
        return Grams((ours | theirs).tobytes())

    def to_text(self) -> str:
        return base64.b64encode(zlib.compress(self.bits, 6)).decode()

    @classmethod
    def from_text(cls, text: str) -> Grams:
        inflate = zlib.decompressobj()
        try:
            bits = inflate.decompress(_decoded(text), GRAM_BYTES + 1)
        except zlib.error as error:
            raise InvalidInputError("not a gram bitmap", reason=error) from error
        if len(bits) <= GRAM_BYTES and not inflate.eof:
            raise InvalidInputError("not a gram bitmap", reason="it ends too early")
        return cls(bits)

    def __repr__(self) -> str:
        return f"Grams({int.from_bytes(self.bits, 'little').bit_count()} of {GRAM_COUNT})"


def size_for(keys: int) -> int:
    """Return the bytes that a filter of this many keys wants: a power of two."""
    return max(SMALLEST_BYTES, 1 << max(keys * BITS_PER_KEY // 8 - 1, 0).bit_length())


def hash_bytes(data: bytes) -> int:
    """Hash one value as filters do."""
    hash = SEED
    for at in range(0, len(data), 8):
        hash = (hash ^ int.from_bytes(data[at : at + 8], "little")) * MIX_A & MASK
        hash ^= hash >> 32
    return _finished(hash ^ len(data))


def hash_int(value: int) -> int:
    """Hash one integer as filters do: its 64-bit two's complement, finalised."""
    return _finished(value & MASK)


def hash_ints(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Hash many integers; equal to ``hash_int`` of each."""
    hash = values.view(np.uint64).copy()
    hash ^= hash >> np.uint64(30)
    hash *= np.uint64(MIX_A)
    hash ^= hash >> np.uint64(27)
    hash *= np.uint64(MIX_B)
    hash ^= hash >> np.uint64(31)
    return hash


def _gram_places(run: str) -> list[int]:
    codes = [_GRAM_CODES[letter] for letter in run]
    return [(a * 36 + b) * 36 + c for a, b, c in zip(codes, codes[1:], codes[2:], strict=False)]


_asked_places = lru_cache(maxsize=256)(_gram_places)  # of every block


def _finished(hash: int) -> int:
    hash = (hash ^ hash >> 30) * MIX_A & MASK
    hash = (hash ^ hash >> 27) * MIX_B & MASK
    return hash ^ hash >> 31


def _probes(hashes: npt.NDArray[np.uint64], size: int) -> npt.NDArray[Any]:
    low, high = hashes & np.uint64(0xFFFF_FFFF), hashes >> np.uint64(32) | np.uint64(1)
    shift = np.uint64(32 - (size * 8).bit_length() + 1)
    probes = [((low + np.uint64(i) * high) & np.uint64(0xFFFF_FFFF)) >> shift for i in range(PROBES)]
    return np.concatenate(probes).astype(np.int64)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise InvalidInputError("not base64", reason=error) from error
