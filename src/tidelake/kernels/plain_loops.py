"""Describe texts without a compiler: what the loops of ``kernels`` do, by calls over whole columns.

Tokens are found by a regular expression over bytes and hashed once each; many texts are hashed side by side, eight
bytes of each at a time. What is written must not depend on what is installed, so where the loops give up because
a table is full, this gives up in the same place. It does not read files.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.kernels.bloom import MIX_A, MIX_B, SEED, hash_bytes
from tidelake.runtime import notices

LONG_BYTES = 4096  # of a text that is hashed by itself: few texts have so many words to go through together

Hashes = npt.NDArray[np.uint64]

_U = np.uint64
_TOKEN = re.compile(rb"[0-9a-z]{2,}")


class Tokens:
    """The tokens of some blocks, each once, and the room that the loops' tables would have for them by now."""

    def __init__(self, *, slots: int, letters: int) -> None:
        self._slots, self._letters = slots, letters
        self._known: dict[bytes, int] = {}
        self._used = 0  # letters of all tokens

    @property
    def count(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Forget the tokens, and not how large the tables are."""
        self._known, self._used = {}, 0

    def add(self, texts: pa.Array, *, most: int) -> list[bytes] | None:
        """Return a block's tokens, each once; None when a table is full and there are too many to make it larger."""
        kind = pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary()
        whole = b"\n".join(texts.view(kind).to_pylist()).lower()
        notices.interpreting(len(whole))
        found = list(dict.fromkeys(_TOKEN.findall(whole)))
        fresh = [token for token in found if token not in self._known]
        counts = self.count + np.arange(len(fresh))
        sizes = np.fromiter(map(len, fresh), np.int64, len(fresh))
        used = self._used + np.cumsum(sizes)  # with each token
        while len(full := np.flatnonzero((counts >= self._slots // 2) | (used > self._letters))):
            if counts[full[0]] >= most:
                return None
            if counts[full[0]] * 2 >= self._slots:
                self._slots *= 4
            else:
                self._letters *= 4
        self._known.update(zip(fresh, hashes_of(pa.array(fresh, pa.binary())).tolist(), strict=True))
        self._used += int(sizes.sum())
        return found

    def hashes(self, tokens: list[bytes]) -> Hashes:
        """Return the hashes of tokens that were added."""
        return np.fromiter((self._known[token] for token in tokens), np.uint64, len(tokens))

    def sorted(self, *, longest: int) -> tuple[str, ...] | None:
        """Return all tokens in order; None if one has more letters than are kept."""
        if any(len(token) > longest for token in self._known):
            return None
        return tuple(sorted(token.decode() for token in self._known))


def distinct_texts(texts: pa.Array) -> tuple[pa.Array, Hashes]:
    """Return the distinct values of a string or binary array without nulls, in order, and their hashes."""
    unique = texts.unique()
    return (texts if len(unique) == len(texts) else unique), hashes_of(unique)


def hashes_of(texts: pa.Array) -> Hashes:
    """Hash texts; equal to ``filters.hash_bytes`` of each."""
    _, places, letters = texts.buffers()
    ends = np.frombuffer(places, dtype=np.int32) if places else np.zeros(1, dtype=np.int32)
    ends = ends[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    data = np.frombuffer(letters, dtype=np.uint8) if letters else np.zeros(1, dtype=np.uint8)
    notices.interpreting(int(ends[-1] - ends[0]) if len(texts) else 0)
    begins, sizes = ends[:-1], np.diff(ends)
    hashes = np.full(len(texts), SEED, dtype=np.uint64)
    is_long = sizes > LONG_BYTES
    for at in range(0, int(sizes[~is_long].max(initial=0)), 8):
        rows = np.flatnonzero((sizes > at) & ~is_long)
        word = np.zeros(len(rows), dtype=np.uint64)
        for i in range(8):
            here = np.flatnonzero(sizes[rows] > at + i)
            word[here] |= data[begins[rows[here]] + at + i].astype(np.uint64) << _U(8 * i)
        mixed = (hashes[rows] ^ word) * _U(MIX_A)
        hashes[rows] = mixed ^ (mixed >> _U(32))
    hashes ^= sizes.astype(np.uint64)
    hashes = (hashes ^ (hashes >> _U(30))) * _U(MIX_A)
    hashes = (hashes ^ (hashes >> _U(27))) * _U(MIX_B)
    hashes ^= hashes >> _U(31)
    for row in np.flatnonzero(is_long).tolist():
        hashes[row] = hash_bytes(data[begins[row] : begins[row] + sizes[row]].tobytes())
    return hashes
