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

from tidelake.format.codecs import compressed, encode_ints, encode_texts, lengths_and_letters
from tidelake.kernels.template_loops import Numbering
from tidelake.runtime.readiness import has_loops

MIN_VALUES = 64  # below it, nothing is saved
MAX_DICTIONARY_BYTES = 32 << 20  # whoever reads one block decodes the whole dictionary
MOSTLY_NEW = 0.7  # of values that stand together distinct: then it is seen whether those of all blocks are
SAMPLE = 2_048  # values that show whether they repeat
SPREAD = 16_384  # values of all blocks that show how many different ones there are
MEASURED = 16_384  # values, from the middle of the largest block, that are measured both ways
LONG = 48  # bytes of a text on average, offsets included, above which Arrow numbers texts sooner than a loop of ours
MEASURED_BYTES = 1 << 20  # of their characters, which tell whether there is a doubt at all
SURELY = 0.7  # of what a low level of zstd makes of characters: texts at the high one take no less
GAIN = 0.98  # a dictionary that saves less is not worth a request of its own


class Coded(NamedTuple):
    """A dictionary, encoded too, and for each block the numbers of its values, without nulls."""

    dictionary: pa.Array
    page: bytes
    codes: Sequence[npt.NDArray[np.int64]]

    def size(self) -> float:
        """Return about how many bytes all of it takes."""
        largest = max(self.codes, key=len)
        sample = _middle(largest)
        return len(self.page) + len(encode_ints(sample)) * sum(map(len, self.codes)) / len(sample)

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
    dictionary, codes = _numbered(present)
    if dictionary.nbytes > MAX_DICTIONARY_BYTES or len(dictionary) * 2 > total:
        return None
    found = Coded(dictionary, encode_texts(dictionary), codes)
    texts = _middle(max(present, key=len))
    letters, share = lengths_and_letters(texts)[1], total / len(texts)
    at_most = len(found.page) + total * len(dictionary).bit_length() / 8
    if at_most < len(compressed(letters[:MEASURED_BYTES])) * max(1.0, len(letters) / MEASURED_BYTES) * share * SURELY:
        return found
    return found if found.size() <= len(encode_texts(texts)) * share * GAIN else None


def _middle(values: Any) -> Any:
    """Return the values that are measured, from the middle of a block."""
    start = max(0, (len(values) - MEASURED) // 2)
    return values[start : start + MEASURED]


def _numbered(blocks: Sequence[pa.Array]) -> tuple[pa.Array, list[npt.NDArray[np.int64]]]:
    """Return the different values of all blocks, in the order in which they first occur, and their numbers."""
    if not has_loops() or sum(block.nbytes for block in blocks) > LONG * sum(map(len, blocks)):
        encoded = pc.dictionary_encode(pa.chunked_array(blocks))
        codes = [chunk.indices.to_numpy().astype(np.int64) for chunk in encoded.chunks]
        return encoded.chunk(encoded.num_chunks - 1).dictionary, codes
    numbering = Numbering()
    codes = [numbering.number(block) for block in blocks]
    return numbering.texts().view(blocks[0].type), codes


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
