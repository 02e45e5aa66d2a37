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
from tidelake.kernels.token_rows import HASH_BITS, has_digit, listed_tokens

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
MANY = max(form.most << form.shift for form in FORMS)  # rows that nobody lists
TOKEN_SHARE = 8  # of the tokens of a block, one in so many tells how much a form takes
CLEARLY = 1.25  # more than there is room for, by those: then the form is not tried on all


class Choices(tuple[codecs.Choice, ...]):
    """What was chosen for tokens, how many rows they have, and those rows: of the first block, for all."""

    __slots__ = ()

    def __new__(cls) -> Choices:
        return super().__new__(cls, (codecs.Choice() for _ in range(3)))


class Words(NamedTuple):
    """The texts of a block, as far as tokens go: what rows have in common once, and what they have of their own.

    ``counts`` says how many rows have the tokens of a text; if they are few enough to be listed, row ``rows[i]`` is one
    that has those of ``texts[numbers[i]]``. Row ``span_rows[i]`` has those of ``spans[i]``.
    """

    texts: pa.Array
    counts: _Ints
    numbers: _Ints
    rows: _Ints
    spans: pa.Array
    span_rows: _Ints

    @classmethod
    def of(cls, texts: pa.Array) -> Words:
        """Take texts as they are."""
        none = np.zeros(0, dtype=np.int64)
        return cls(texts.slice(0, 0), none, none, none, texts, np.arange(len(texts)))

    def joined(self) -> pa.Array:
        """Return texts that have all tokens of the block, and no others."""
        return pa.concat_arrays([self.texts.cast(pa.binary()), self.spans.cast(pa.binary())])


def chosen_form(words: Words, block: pa.Array, page_bytes: int) -> Form | None:
    """Choose how the postings of a column are kept, by one of its blocks; None if they are not."""
    if len(block) < MIN_ROWS or block.nbytes < MIN_LETTERS * len(block):
        return None
    listed: dict[bool, _Listed] = {}
    for form in FORMS:
        if form.digits not in listed:
            listed[form.digits] = _listed(words, digits=form.digits)
        room = page_bytes * SHARE
        if len(_encoded(_some(listed[form.digits]), form)) * TOKEN_SHARE > room * CLEARLY:
            continue
        if len(_encoded(listed[form.digits], form)) <= room:
            return form
    return None


def listed_rows(form: Form | None) -> int:
    """Return how many rows a text may have for them to be listed."""
    return 0 if form is None else form.most << form.shift


def encode(words: Words, form: Form, choices: Choices | None = None) -> bytes:
    """Encode the postings of a block."""
    return _encoded(_listed(words, digits=form.digits), form, choices or Choices())


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


class _Listed(NamedTuple):
    """The tokens of a block: of its texts, each with the text, and of its spans, each with its row."""

    hashes: npt.NDArray[np.uint64]
    numbers: _Ints
    words: Words
    span_hashes: npt.NDArray[np.uint64]
    span_rows: _Ints


def _listed(words: Words, *, digits: bool) -> _Listed:
    hashes, numbers = listed_tokens(words.texts, digits=digits)
    span_hashes, at = listed_tokens(words.spans, digits=digits)
    return _Listed(hashes, numbers, words, span_hashes, words.span_rows[at])


def _some(listed: _Listed) -> _Listed:
    """Return some of the tokens, with all of their rows."""
    here, there = (each % np.uint64(TOKEN_SHARE) == 0 for each in (listed.hashes, listed.span_hashes))
    return _Listed(
        listed.hashes[here], listed.numbers[here], listed.words, listed.span_hashes[there], listed.span_rows[there]
    )


def _keys(listed: _Listed, limit: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return tokens with their rows, sorted, each once; and the tokens of texts that more than ``limit`` rows have."""
    hashes, numbers, words, span_hashes, span_rows = listed
    counts = words.counts
    distinct, place = np.unique(hashes, return_inverse=True)
    is_many = np.bincount(place, weights=counts[numbers], minlength=len(distinct)) > limit
    many = distinct[is_many]
    few = np.flatnonzero(~is_many[place])
    own = np.zeros(len(words.texts), dtype=np.bool_)
    own[numbers[few]] = True
    here = np.flatnonzero(own[words.numbers])
    small = np.uint16 if len(words.texts) < 2**16 else np.int64  # those are sorted by their digits
    here = here[np.argsort(words.numbers[here].astype(small), kind="stable")]
    first = np.cumsum(np.where(own, counts, 0)) - counts  # of the texts that are listed; nobody asks it of others
    sizes = counts[numbers[few]]
    steps = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = words.rows[here[np.repeat(first[numbers[few]], sizes) + steps]]
    if len(many):
        is_few = ~np.isin(span_hashes, many)
        span_hashes, span_rows = span_hashes[is_few], span_rows[is_few]
    found = np.concatenate([np.repeat(hashes[few], sizes), span_hashes]) << np.uint64(64 - HASH_BITS)
    found |= np.concatenate([rows, span_rows]).astype(np.uint64)
    found.sort()  # np.unique is ten times as slow, by hashing
    return np.asarray(found[np.concatenate([found[:1] == found[:1], found[1:] != found[:-1]])]), many


def _encoded(listed: _Listed, form: Form, choices: Choices | None = None) -> bytes:
    shift, most, digits = form
    keys, many = _keys(listed, most << shift)
    hashes = (keys >> np.uint64(64 - HASH_BITS)).astype(np.int64)
    groups = (keys & np.uint64(2 ** (64 - HASH_BITS) - 1)).astype(np.int64) >> shift
    is_new = np.ones(len(keys), dtype=np.bool_)
    is_new[1:] = (hashes[1:] != hashes[:-1]) | (groups[1:] != groups[:-1])  # keys ascend
    if not is_new.all():
        hashes, groups = hashes[is_new], groups[is_new]
    first = np.ones(len(hashes), dtype=np.bool_)
    first[1:] = hashes[1:] != hashes[:-1]
    starts = np.flatnonzero(first)
    counts = np.diff(np.concatenate([starts, [len(hashes)]]))
    is_few = counts <= most
    gaps = np.diff(groups, prepend=0)
    gaps[starts] = groups[starts]
    kept = gaps if is_few.all() else gaps[np.repeat(is_few, counts)]
    known = np.concatenate([hashes[starts], many.astype(np.int64)])
    order = np.argsort(known, kind="stable")
    counted = np.concatenate([np.where(is_few, counts, 0), np.zeros(len(many), dtype=np.int64)])[order]
    lists = (known[order], counted, kept)
    pages = [codecs.encode_ints(each, choice) for each, choice in zip(lists, choices or Choices(), strict=True)]
    head = struct.pack("<BBII", shift, digits, len(known), len(kept))
    return head + b"".join(struct.pack("<I", len(each)) + each for each in pages)
