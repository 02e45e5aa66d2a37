"""Say which rows of a block may hold a token: a small index beside the page of a text column.

Tokens are those of ``kernels.tokens``. Each is known by 24 bits of its hash, so a row may be named for a token that it
does not hold, and is never left out for one that it does. A token that many rows hold is kept without its rows; rows
are kept as they are, or by groups of neighbours; tokens that hold a digit, of which lines may have several that never
come again, are perhaps left out. All that is chosen for a column so that the index stays below ``SHARE`` of its pages;
where nothing does, there is none. ``docs/format.md`` is the
specification. It does not read texts of other columns, nor judge them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.format import codecs
from tidelake.kernels.bloom import hash_bytes
from tidelake.kernels.token_rows import HASH_BITS, has_digit, token_rows

SHARE = 0.3  # of the bytes of a column's pages that its postings may take: 0.35 is what is promised, blocks differ
MIN_LETTERS = 12  # of a text on average, as of lines: there is nothing to skip in shorter ones
MIN_ROWS = 4_096  # of a block, below which all rows are as soon looked through

_Ints = npt.NDArray[np.int64]


class Form(NamedTuple):
    """How postings are kept: as groups of so many bits, how many are many, and whether tokens with digits are."""

    shift: int
    most: int
    digits: bool


FORMS = (
    *(Form(0, most, True) for most in (1024, 256, 64)), Form(4, 64, True), Form(6, 16, True),
    *(Form(0, most, False) for most in (1024, 256, 64, 16)),
)  # fmt: skip


def chosen_form(block: pa.Array, page_bytes: int) -> Form | None:
    """Choose how the postings of a column are kept, by its largest block; None if they are not."""
    if len(block) < MIN_ROWS or block.nbytes < MIN_LETTERS * len(block):
        return None
    keys: dict[bool, npt.NDArray[np.uint64]] = {}
    for form in FORMS:
        if form.digits not in keys:
            keys[form.digits] = token_rows(block, digits=form.digits)
        if len(_encoded(keys[form.digits], form)) <= page_bytes * SHARE:
            return form
    return None


def encode(block: pa.Array, form: Form) -> bytes:
    """Encode the postings of a block."""
    return _encoded(token_rows(block, digits=form.digits), form)


def rows_with(page: memoryview, rows: int, tokens: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which rows may hold all of some tokens."""
    if len(page) < 10:
        raise ValueError("postings that end early")
    shift, digits, count, groups_count = struct.unpack_from("<BBII", page)
    if shift > 24 or max(count, groups_count) > codecs.MAX_BYTES:
        raise ValueError(f"groups of {shift} bits")
    hashes_page, counts_page, gaps_page = codecs.parts(page[10:], 3)
    hashes, counts = codecs.decode_ints(hashes_page, count), codecs.decode_ints(counts_page, count)
    if count and (int(counts.min()) < 0 or int(counts.sum()) != groups_count):
        raise ValueError("postings without places")
    gaps, starts = codecs.decode_ints(gaps_page, groups_count), np.cumsum(counts) - counts
    groups = (rows + (1 << shift) - 1) >> shift
    found = np.ones(groups, dtype=np.bool_)
    for token in tokens:
        if not digits and has_digit(token):
            continue
        wanted = hash_bytes(token.encode()) >> (64 - HASH_BITS)
        at = int(np.searchsorted(hashes, wanted))
        if at == count or int(hashes[at]) != wanted:
            return np.zeros(rows, dtype=np.bool_)
        if counts[at]:
            own = np.cumsum(gaps[int(starts[at]) : int(starts[at]) + int(counts[at])])
            if int(own.min()) < 0 or int(own.max()) >= groups:
                raise ValueError("postings of rows that are not there")
            here = np.zeros(groups, dtype=np.bool_)
            here[own] = True
            found &= here
    return np.repeat(found, 1 << shift)[:rows] if shift else found


def _encoded(keys: npt.NDArray[np.uint64], form: Form) -> bytes:
    shift, most, digits = form
    hashes = (keys >> np.uint64(64 - HASH_BITS)).astype(np.int64)
    groups = (keys & np.uint64(2 ** (64 - HASH_BITS) - 1)).astype(np.int64) >> shift
    is_new = np.ones(len(keys), dtype=np.bool_)
    is_new[1:] = (np.diff(hashes) != 0) | (np.diff(groups) != 0)  # keys ascend
    hashes, groups = hashes[is_new], groups[is_new]
    first = np.ones(len(hashes), dtype=np.bool_)
    first[1:] = np.diff(hashes) != 0
    starts = np.flatnonzero(first)
    counts = np.diff(np.concatenate([starts, [len(hashes)]]))
    is_few = counts <= most
    gaps = np.diff(groups, prepend=0)
    gaps[starts] = groups[starts]
    kept = gaps[np.repeat(is_few, counts)]
    pages = [codecs.encode_ints(each) for each in (hashes[starts], np.where(is_few, counts, 0), kept)]
    head = struct.pack("<BBII", shift, digits, len(starts), len(kept))
    return head + b"".join(struct.pack("<I", len(each)) + each for each in pages)
