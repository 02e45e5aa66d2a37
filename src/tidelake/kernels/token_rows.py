"""Find which texts hold which tokens, as pairs of a hash and a row; compiled, with a plain twin.

The tokens are those of ``tokens.tokenize``, the hash is that of filters. It does not keep tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.kernels.bloom import SEED, hash_bytes
from tidelake.kernels.text_loops import _LOWER, _buffers, finished, stirred
from tidelake.kernels.tokens import tokenize
from tidelake.runtime.compiling import compiled
from tidelake.runtime.readiness import has_loops

HASH_BITS = 24  # of a hash, the highest, before the row: among 65,536 tokens, one in 250 that are not there is found

_U = np.uint64
_SEED = _U(SEED)
_TOP = _U((1 << HASH_BITS) - 1 << 64 - HASH_BITS)


def listed_tokens(texts: pa.Array, *, digits: bool) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return for each token of each text the first bits of its hash, and the number of the text; repeats and all.

    Tokens that hold a digit are left out unless ``digits``.
    """
    keys = _keys(texts, digits=digits) if has_loops() else np.array(list(_plain(texts, digits=digits)), dtype=np.uint64)
    return keys >> np.uint64(64 - HASH_BITS), (keys & ~_TOP).astype(np.int64)


def has_digit(token: str) -> bool:
    """Whether a token holds a digit."""
    return any(letter in "0123456789" for letter in token)


def _keys(texts: pa.Array, *, digits: bool) -> npt.NDArray[np.uint64]:
    data, offsets = _buffers(texts)
    size = int(offsets[-1]) - int(offsets[0]) if len(texts) else 0
    keys = np.empty((size + len(texts)) // 3 + 1, dtype=np.uint64)
    return keys[: _token_rows(data, offsets, _LOWER, digits, keys)]


def _plain(texts: pa.Array, *, digits: bool) -> Iterator[int]:
    top = int(_TOP)
    known: dict[str, int] = {}
    for row, text in enumerate(texts.cast(pa.binary()).to_pylist()):
        for token in tokenize((text or b"").decode("latin-1")):  # a letter for each byte: tokens are of ASCII
            if not digits and has_digit(token):
                continue
            if token not in known:
                known[token] = hash_bytes(token.encode()) & top
            yield known[token] | row


@compiled
def _token_rows(data: Any, offsets: Any, lower: Any, digits: Any, keys: Any) -> Any:
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
            if at - begin < 2 or (lowest < 58 and not digits):
                continue
            if shift:
                hash = stirred(hash, word)
            keys[count] = (finished(hash ^ _U(at - begin)) & _TOP) | _U(row)
            count += 1
    return count
