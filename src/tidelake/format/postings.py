"""Say which rows of a block may hold a token: a small index beside the page of a text column.

Tokens are those of ``kernels.tokens``. Each is known by 24 bits of its hash, so a row may be named for a token that it
does not hold, and is never left out for one that it does. A token that many rows hold is kept without its rows; rows
are kept as they are, or by groups of neighbours. Of tokens that hold a digit, of which lines may have several that
never come again, perhaps only a filter is kept, which says whether the block may hold them, or nothing. All that is
chosen for a column so that the index stays below ``SHARE`` of its pages; where nothing does, there is none.
``docs/format.md`` is the specification. It does not read texts of other columns, nor judge them.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.format import codecs
from tidelake.format.choosing import Choice
from tidelake.kernels.bloom import Filter, hash_bytes, hash_int, hash_ints, size_for
from tidelake.kernels.token_rows import HASH_BITS, Tokens, listed_tokens
from tidelake.kernels.tokens import has_digit

SHARE = 0.3  # of the bytes of a column's pages that its postings may take: 0.35 is what is promised, blocks differ
MIN_LETTERS = 12  # of a text on average, as of lines: there is nothing to skip in shorter ones
MIN_ROWS = 4_096  # of a block, below which all rows are as soon looked through

_Ints = npt.NDArray[np.int64]


class Form(NamedTuple):
    """How postings are kept: as groups of so many bits, how many are many, and whether tokens with digits are.

    If not, a filter of so many bytes may tell of these.
    """

    shift: int
    most: int
    digits: bool
    filter_bytes: int = 0


FORMS = (
    *(Form(0, most, True) for most in (1024, 256, 64)), Form(4, 64, True), Form(6, 16, True),
    *(Form(0, most, False) for most in (1024, 256, 64, 16)),
)  # fmt: skip
_NOWHERE, _ANYWHERE = -1, -2  # in place of the number of a token
NOT_LISTED, LISTED, FILTERED = range(3)  # what is told of tokens that hold a digit
MIN_BITS = 5  # of a filter for each token: with fewer, one in eight that are not there would be found
MANY = max(form.most << form.shift for form in FORMS)  # rows that nobody lists
TOKEN_SHARE = 8  # of the tokens of a block, one in so many tells how much a form takes
CLEARLY = 1.25  # more than there is room for, by those: then the form is not tried on all


class Choices(tuple[Choice, ...]):
    """What was chosen for tokens, how many rows they have, and those rows: of the first block, for all."""

    __slots__ = ()

    def __new__(cls) -> Choices:
        return super().__new__(cls, (Choice() for _ in range(3)))


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
    every = _Listed.of(words)
    listed, room = {True: every, False: every.without_digits()}, page_bytes * SHARE
    for form in FORMS:
        if len(_encoded(_some(listed[form.digits]), form)) * TOKEN_SHARE > room * CLEARLY:
            continue
        if (size := len(_encoded(listed[form.digits], form))) <= room:
            return form if form.digits else form._replace(filter_bytes=_filter_bytes(every, room - size))
    return None


def _filter_bytes(listed: _Listed, room: float) -> int:
    """Return how large a filter of the tokens with digits is to be; 0 if there is not enough room for one."""
    count = len(listed.digit_hashes())
    size = min(size_for(count), 1 << max(int(room).bit_length() - 1, 0)) if count else 0
    return size if size * 8 >= count * MIN_BITS else 0


def listed_rows(form: Form | None) -> int:
    """Return how many rows a text may have for them to be listed."""
    return 0 if form is None else form.most << form.shift


def encode(words: Words, form: Form, choices: Choices | None = None) -> bytes:
    """Encode the postings of a block."""
    listed = _Listed.of(words)
    page = _encoded(listed if form.digits else listed.without_digits(), form, choices or Choices())
    if not form.filter_bytes:
        return page
    bits = Filter.sized(hash_ints(listed.digit_hashes().view(np.int64)), form.filter_bytes).bits
    return page + struct.pack("<I", len(bits)) + bits


def rows_with(page: memoryview, rows: int, tokens: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which rows may hold all of some tokens."""
    return Told.of(page, rows).rows_with(tokens)


@dataclass(frozen=True, slots=True)
class Told:
    """The postings of a block, decoded: ``gaps[starts[i]:starts[i + 1]]`` are those of the groups of ``hashes[i]``."""

    rows: int
    shift: int
    digits: bool
    hashes: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.uint32]
    gaps: npt.NDArray[np.int32]
    filter: Filter | None

    @classmethod
    def of(cls, page: memoryview, rows: int) -> Told:
        """Decode postings."""
        if len(page) < 10:
            raise ValueError("postings that end early")
        shift, digits, count, groups_count = struct.unpack_from("<BBII", page)
        if shift > 24 or digits > FILTERED or max(count, groups_count) > codecs.MAX_BYTES:
            raise ValueError(f"groups of {shift} bits, digits told in way {digits}")
        hashes_page, counts_page, gaps_page, *bits = codecs.parts(page[10:], 4 if digits == FILTERED else 3)
        hashes, counts = codecs.decode_ints(hashes_page, count), codecs.decode_ints(counts_page, count)
        if count and (int(counts.min()) < 0 or int(counts.sum()) != groups_count):
            raise ValueError("postings without places")
        gaps = codecs.decode_ints(gaps_page, groups_count)
        starts = np.concatenate([[0], np.cumsum(counts)])
        groups = (rows + (1 << shift) - 1) >> shift
        if groups_count:
            if int(gaps.min()) < 0 or int(gaps.max()) >= groups:
                raise ValueError("postings of rows that are not there")
            ends = np.concatenate([[0], np.cumsum(gaps)])[starts]
            if int(np.diff(ends).max()) >= groups:
                raise ValueError("postings of rows that are not there")
        return cls(
            rows, shift, digits == LISTED, hashes.view(np.uint64), starts.astype(np.uint32), gaps.astype(np.int32),
            Filter(bytes(bits[0])) if bits else None,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """How many bytes of memory that takes."""
        bits = 0 if self.filter is None else len(self.filter.bits)
        return self.hashes.nbytes + self.starts.nbytes + self.gaps.nbytes + bits

    def lacks(self, tokens: Sequence[str]) -> bool:
        """Whether no row holds all of some tokens."""
        return any(self._place(*_asked(token)) == _NOWHERE for token in tokens)

    def _place(self, hash: int, with_digit: bool) -> int:
        """Return which of the hashes is that of a token; or that it is nowhere, or that there is no telling."""
        if with_digit and not self.digits:
            return _ANYWHERE if self.filter is None or hash_int(hash) in self.filter else _NOWHERE
        wanted = np.uint64(hash)
        at = int(np.searchsorted(self.hashes, wanted))
        return at if at < len(self.hashes) and self.hashes[at] == wanted else _NOWHERE

    def rows_with(self, tokens: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which rows may hold all of some tokens."""
        groups = (self.rows + (1 << self.shift) - 1) >> self.shift
        found: npt.NDArray[np.bool_] | None = None
        for token in tokens:
            at = self._place(*_asked(token))
            if at == _NOWHERE:
                return np.zeros(self.rows, dtype=np.bool_)
            if at == _ANYWHERE:
                continue
            own = np.cumsum(self.gaps[int(self.starts[at]) : int(self.starts[at + 1])], dtype=np.int64)
            if len(own):
                here = np.zeros(groups, dtype=np.bool_)
                here[own] = True
                found = here if found is None else found & here
        if found is None:
            return np.ones(self.rows, dtype=np.bool_)
        return np.repeat(found, 1 << self.shift)[: self.rows] if self.shift else found


@functools.lru_cache(maxsize=1024)
def _asked(token: str) -> tuple[int, bool]:
    """Return the bits of its hash by which a token is known, and whether it holds a digit; every block is asked."""
    return hash_bytes(token.encode()) >> (64 - HASH_BITS), has_digit(token)


class _Listed(NamedTuple):
    """The tokens of a block: those of its texts, each with the text, and those of its spans, each with the span."""

    words: Words
    common: Tokens
    own: Tokens

    @classmethod
    def of(cls, words: Words) -> _Listed:
        return cls(words, listed_tokens(words.texts), listed_tokens(words.spans))

    def some(self, here: npt.NDArray[np.bool_], there: npt.NDArray[np.bool_]) -> _Listed:
        return _Listed(self.words, self.common.some(here), self.own.some(there))

    def without_digits(self) -> _Listed:
        """Return the tokens that hold no digit."""
        return self.some(~self.common.digits, ~self.own.digits)

    def digit_hashes(self) -> npt.NDArray[np.uint64]:
        """Return the hashes of those that do, each once."""
        return _each_once(np.concatenate([each.hashes[each.digits] for each in (self.common, self.own)]))


def _some(listed: _Listed) -> _Listed:
    """Return some of the tokens, with all of their rows."""
    return listed.some(*(each.hashes % np.uint64(TOKEN_SHARE) == 0 for each in (listed.common, listed.own)))


def _keys(listed: _Listed, limit: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return tokens with their rows, sorted, each once; and the tokens of texts that more than ``limit`` rows have."""
    words, (hashes, numbers, _), (span_hashes, spans, _) = listed
    counts, span_rows = words.counts, words.span_rows[spans]
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
    if len(many) and len(span_hashes):
        is_few = ~np.isin(span_hashes, many)
        span_hashes, span_rows = span_hashes[is_few], span_rows[is_few]
    found = np.concatenate([np.repeat(hashes[few], sizes), span_hashes]) << np.uint64(64 - HASH_BITS)
    found |= np.concatenate([rows, span_rows]).astype(np.uint64)
    return _each_once(found), many


def _each_once(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Sort numbers, in place, and return each once."""
    numbers.sort()  # np.unique is ten times as slow, by hashing
    return np.asarray(numbers[np.concatenate([numbers[:1] == numbers[:1], numbers[1:] != numbers[:-1]])])


def _encoded(listed: _Listed, form: Form, choices: Choices | None = None) -> bytes:
    shift, most, digits, filter_bytes = form
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
    told = LISTED if digits else FILTERED if filter_bytes else NOT_LISTED
    head = struct.pack("<BBII", shift, told, len(known), len(kept))
    return head + b"".join(struct.pack("<I", len(each)) + each for each in pages)
