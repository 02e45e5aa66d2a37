"""Judge the words of a dictionary once for all rows that have them, and for all blocks that share it.

It does not know predicates.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.runtime.forking import renew_after_fork

KEPT = 16  # judged dictionaries: those of the extents that are being read
KEPT_BYTES = 64 << 20  # of their words, which are held so that no other dictionary comes to lie in their place


class _Judged:
    """What was found of the words of a few dictionaries, the last ones first."""

    def __init__(self) -> None:
        self._found: OrderedDict[Any, tuple[pa.Array, pa.BooleanArray]] = OrderedDict()
        self._lock = Lock()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Let nobody wait for a thread of the parent."""
        self._lock, self._found = Lock(), OrderedDict()

    def of(self, judge: Callable[[Any, pa.Array], pa.BooleanArray], test: Any, words: pa.Array) -> pa.BooleanArray:
        """Judge words, or say what was found of them before."""
        key = (*(each.address for each in words.buffers() if each is not None), words.offset, len(words), repr(test))
        with self._lock:
            if (known := self._found.get(key)) is not None:
                self._found.move_to_end(key)
                return known[1]
        answers = judge(test, words)
        with self._lock:
            self._found[key] = words, answers
            while len(self._found) > KEPT or sum(held.nbytes for held, _ in self._found.values()) > KEPT_BYTES:
                self._found.popitem(last=False)
        return answers


_judged = _Judged()


def by_word(judge: Callable[[Any, pa.Array], pa.BooleanArray], test: Any, values: pa.Array) -> pa.BooleanArray:
    """Judge values; each word of a dictionary once, however many rows have it."""
    if not pa.types.is_dictionary(values.type):
        return judge(test, values)
    return _judged.of(judge, test, values.dictionary).take(values.indices)


def plain(answers: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Return answers as an array of NumPy's."""
    found: npt.NDArray[np.bool_] = answers.to_numpy(zero_copy_only=False)
    return found
