"""Choose for which text columns of an extent a dictionary is worth it, shared by all of its blocks.

A dictionary is stored once, in the order in which texts first occur; blocks hold numbers into it. It is chosen where a
block measured both ways says that the extent becomes smaller. It does not lay out bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.format.codecs import encode_ints, encode_texts

MIN_VALUES = 64  # below it, nothing is saved
MAX_DICTIONARY_BYTES = 32 << 20  # whoever reads one block decodes the whole dictionary
MOSTLY_NEW = 0.7  # of values that stand together distinct: then it is seen whether those of all blocks are
SAMPLE = 2_048  # values that show whether they repeat
SPREAD = 16_384  # values of all blocks that show how many different ones there are
MEASURED = 16_384  # values, from the middle of the largest block, that are measured both ways
GAIN = 0.98  # a dictionary that saves less is not worth a request of its own


class Coded(NamedTuple):
    """A dictionary, for each block the numbers of its values, without nulls, and about how many bytes that takes."""

    dictionary: pa.Array
    codes: Sequence[npt.NDArray[Any]]
    size: float

    def distinct(self) -> list[pa.Array]:
        """Return the texts of each block, each once."""
        count = len(self.dictionary)
        used = (np.flatnonzero(np.bincount(codes, minlength=count)) for codes in self.codes)
        return [self.dictionary.take(pa.array(numbers)) for numbers in used]


def coded(blocks: Sequence[pa.Array]) -> Coded | None:
    """Number the values of a column's blocks by a dictionary, if that makes them smaller."""
    present = [block.drop_null() if block.null_count else block for block in blocks]
    total = sum(len(block) for block in present)
    if total < MIN_VALUES or _is_mostly_new([block for block in present if len(block)], total):
        return None
    encoded = pc.dictionary_encode(pa.chunked_array(present))
    dictionary = encoded.chunk(encoded.num_chunks - 1).dictionary
    if dictionary.nbytes > MAX_DICTIONARY_BYTES or len(dictionary) * 2 > total:
        return None
    codes = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    at = max(range(len(present)), key=lambda number: len(present[number]))
    start = max(0, (len(present[at]) - MEASURED) // 2)
    texts, numbers = present[at].slice(start, MEASURED), codes[at][start : start + MEASURED].astype("int64")
    share = total / len(texts)
    as_codes = len(encode_texts(dictionary)) + len(encode_ints(numbers)) * share
    if as_codes > len(encode_texts(texts)) * share * GAIN:
        return None
    return Coded(dictionary, codes, as_codes)


def _is_mostly_new(blocks: Sequence[pa.Array], total: int) -> bool:
    """Whether texts that stand together hardly repeat, and of texts from all over so few that most come once.

    Of so many texts drawn at random, as many pairs are alike as if there were that many different ones.
    """
    sample = blocks[len(blocks) // 2].slice(0, SAMPLE)
    if len(pc.unique(sample)) <= MOSTLY_NEW * len(sample):
        return False
    spread = SPREAD // len(blocks) + 1
    drawn = pa.concat_arrays([block.take(pa.array(_places(len(block), spread))) for block in blocks])
    alike = len(drawn) - len(pc.unique(drawn))
    return bool(alike * total < len(drawn) ** 2)


def _places(rows: int, count: int) -> npt.NDArray[Any]:
    return np.unique(np.linspace(0, rows - 1, min(count, rows)).astype(np.int64))
