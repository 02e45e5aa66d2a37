"""Find which texts hold which tokens, as pairs of a hash and a row; compiled, with a plain twin.

The tokens are those of ``tokens.tokenize``, the hash is that of filters. It does not keep tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.kernels.bloom import SEED, hash_bytes
from tidelake.kernels.text_loops import _LOWER, _buffers, finished, stirred
from tidelake.kernels.tokens import has_digit, tokenize
from tidelake.runtime.compiling import compiled
from tidelake.runtime.readiness import has_loops

HASH_BITS = 24  # of a hash, the highest, before the row: among 65,536 tokens, one in 250 that are not there is found

_U = np.uint64
_SEED = _U(SEED)
_TOP = _U((1 << HASH_BITS) - 1 << 64 - HASH_BITS)
_DIGIT = _U(1 << 63 - HASH_BITS)  # of a key, set for tokens that hold one


class Tokens(NamedTuple):
    """Tokens of texts: the first bits of the hash of each, the number of its text, and whether it holds a digit."""

    hashes: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.int64]
    digits: npt.NDArray[np.bool_]

    def some(self, wanted: npt.NDArray[np.bool_]) -> Tokens:
        """Return those that are wanted."""
        return Tokens(self.hashes[wanted], self.numbers[wanted], self.digits[wanted])


def listed_tokens(texts: pa.Array) -> Tokens:
    """Return every token of each text; repeats and all."""
    keys = _keys(texts) if has_loops() else np.array(list(_plain(texts)), dtype=np.uint64)
    return Tokens(
        keys >> _U(64 - HASH_BITS), (keys & ~(_TOP | _DIGIT)).astype(np.int64), (keys & _DIGIT).astype(np.bool_)
    )


def _keys(texts: pa.Array) -> npt.NDArray[np.uint64]:
    data, offsets = _buffers(texts)
    size = int(offsets[-1]) - int(offsets[0]) if len(texts) else 0
    keys = np.empty((size + len(texts)) // 3 + 1, dtype=np.uint64)
    return keys[: _token_rows(data, offsets, _LOWER, keys)]


def _plain(texts: pa.Array) -> Iterator[int]:
    top = int(_TOP)
    known: dict[str, int] = {}
    for row, text in enumerate(texts.cast(pa.binary()).to_pylist()):
        for token in tokenize((text or b"").decode("latin-1")):  # a letter for each byte: tokens are of ASCII
            if token not in known:
                known[token] = hash_bytes(token.encode()) & top | int(_DIGIT) * has_digit(token)
            yield known[token] | row


@compiled
def _token_rows(data: Any, offsets: Any, lower: Any, keys: Any) -> Any:
    """Write a key for each token, and how many there are."""
    count = 0
    for row in range(len(offsets) - 1):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        while at < end:
            letter = lower[data[_U(at)]]
            if letter == 0:
                at += 1
                continue
            begin, lowest = at, letter
            hash, word, shift = _SEED, _U(0), _U(0)
            while letter != 0:
                word |= _U(letter) << shift
                shift += _U(8)
                at += 1
                lowest = min(lowest, letter)  # digits come before letters
                if shift == _U(64):
                    hash = stirred(hash, word)
                    word, shift = _U(0), _U(0)
                letter = lower[data[_U(at)]] if at < end else lower[0]
            if at - begin < 2:
                continue
            if shift:
                hash = stirred(hash, word)
            keys[count] = (finished(hash ^ _U(at - begin)) & _TOP) | _U(row)
            if lowest < 58:
                keys[count] |= _DIGIT
            count += 1
    return count
