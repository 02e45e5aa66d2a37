"""Read which templates the rows of a block have, and put the texts of a few rows of some blocks together.

Of few rows, only the variables of their own templates are decoded, and of these only the values that the rows have are
copied; those of several blocks are put together at once, since a block has a row or two of what is looked for. It reads
what ``templates`` writes, and does not fetch bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.format import codecs
from tidelake.format.template_pages import (
    SAME,
    SLOT_NUMBERS,
    Dictionary,
    Held,
    Laid,
    cut,
    decode_numbers,
    laid_out,
    same_slot,
)
from tidelake.format.templates import decode_column
from tidelake.kernels.template_loops import put_together

FEW_TEMPLATES = 64  # of the wanted rows: of more, the block is gone through once for all
FEW_SHARE = 8  # so is it where one row in so many is wanted
LETTERS = 128 << 20  # of the blocks whose texts are put together at once, all of theirs: none has more of them

_Ints = npt.NDArray[np.int64]
_Rows = npt.NDArray[np.bool_]


class RowTemplates:
    """The number of each row's template, in as few bytes as hold it, of those rows that have a text."""

    def __init__(self, numbers: _Ints, valid: _Rows, count: int) -> None:
        kind = np.uint8 if count <= 2**8 else np.uint16 if count <= 2**16 else np.int32
        self.numbers: npt.NDArray[np.integer] = numbers.astype(kind)
        self.valid = None if len(numbers) == len(valid) else valid
        self.counts: _Ints = np.bincount(numbers, minlength=count)

    @property
    def nbytes(self) -> int:
        """How many bytes of memory that takes."""
        return self.numbers.nbytes + self.counts.nbytes + (0 if self.valid is None else self.valid.nbytes)

    def rows(self, wanted: _Rows) -> _Rows:
        """Return which rows have a template that is wanted."""
        some = np.flatnonzero(wanted & (self.counts > 0))
        if len(some) <= FEW_TEMPLATES // 8:
            found = np.zeros(len(self.numbers), dtype=np.bool_)
            for each in some.astype(self.numbers.dtype):
                found |= self.numbers == each
        else:
            found = wanted[self.numbers]
        if self.valid is None:
            return found
        out = np.zeros(len(self.valid), dtype=np.bool_)
        out[self.valid] = found
        return out


def decode_rows(head: memoryview, rows: int, dictionary: Dictionary) -> RowTemplates:
    """Read the templates of the rows of a block."""
    valid, rest = codecs.decode_nulls(head, rows)
    numbers = decode_numbers(rest, int(valid.sum()), dictionary)[0] if valid.any() else np.zeros(0, dtype=np.int64)
    return RowTemplates(numbers, valid, dictionary.count)


class LinePage:
    """A page of lines, opened: the templates of its rows, and where the values of their variables lie."""

    def __init__(self, page: memoryview, rows: int, dictionary: Dictionary, known: RowTemplates | None = None) -> None:
        valid, rest = codecs.decode_nulls(page, rows)
        self.page, self.rows = page, rows
        self.known = decode_rows(page, rows, dictionary) if known is None else known
        self.nbytes = len(page) + self.known.nbytes
        self.laid = laid_out(cut(rest[1:])[1], self.known.counts, dictionary) if valid.any() else None
        self._rest: tuple[pa.Array, _Ints] | None = None

    def in_rest(self, laid: Laid) -> tuple[pa.Array, _Ints]:
        """Return the values in the rest, and where those of each variable begin."""
        if self._rest is None:
            ends = np.cumsum(laid.in_rest)
            values = codecs.decode_texts(laid.rest, int(laid.in_rest.sum()), pa.binary())
            self._rest = values, ends - laid.in_rest
        return self._rest

    def ranks(self, template: int, places: _Ints) -> _Ints:
        """Return which of the texts of a template those are that lie at some places."""
        numbers = self.known.numbers
        return np.searchsorted(np.flatnonzero(numbers == numbers.dtype.type(template)), places)


class _Wanted(NamedTuple):
    """Texts of a page: their places among those that are not null, their templates, and each of these once.

    ``present`` says which rows of those that were asked for have a text, if not all do.
    """

    page: LinePage
    laid: Laid
    places: _Ints
    own: _Ints
    needed: _Ints
    present: _Rows | None


def texts_of(pages: Sequence[tuple[LinePage, _Ints]], dictionary: Dictionary) -> pa.Array:
    """Put the texts of some rows of some pages together, by their ascending places; pages have the same templates."""
    found, wanted, letters = list[pa.Array](), list[_Wanted](), 0
    for page, places in pages:
        few = None if len(places) * FEW_SHARE > page.rows else _wanted(page, places)
        if few is None or letters + few.laid.letters > LETTERS:
            found += _put_together(wanted, dictionary) if wanted else []
            wanted, letters = [], 0
        if few is None:
            found.append(_taken(page, dictionary, places))
        else:
            wanted.append(few)
            letters += few.laid.letters
    found += _put_together(wanted, dictionary) if wanted else []
    return found[0] if len(found) == 1 else pa.concat_arrays(found or [pa.array([], pa.utf8())])


def _wanted(page: LinePage, places: _Ints) -> _Wanted | None:
    """Return which texts are wanted of a page; None if it is to be gone through once, or has none there."""
    valid, present = page.known.valid, None
    if page.laid is None:
        return None
    if valid is not None:
        present = valid[places]
        places = (np.cumsum(valid) - 1)[places[present]]
    own = page.known.numbers[places].astype(np.int64)
    needed = np.unique(own)
    return _Wanted(page, page.laid, places, own, needed, present) if len(needed) <= FEW_TEMPLATES else None


def _taken(page: LinePage, dictionary: Dictionary, places: _Ints) -> pa.Array:
    wanted = np.zeros(page.rows, dtype=np.bool_)
    wanted[places] = True
    return decode_column(page.page, page.rows, dictionary, wanted).take(pa.array(places))


def _put_together(wanted: Sequence[_Wanted], dictionary: Dictionary) -> list[pa.Array]:
    """Put texts together of the values that they have, as if each template of a page were one of its own."""
    held, slots, templates = Held(), list[list[int]](), list[int]()
    numbers = []
    for each in wanted:
        numbers.append(np.searchsorted(each.needed, each.own) + len(templates))
        templates += each.needed.tolist()
        slots += _slots(each, held, dictionary)
    widths = np.diff(dictionary.first_slot)[templates]
    rows = np.concatenate(numbers)
    every = np.ones(len(rows), dtype=np.uint8)
    source = held.source(dictionary, rows, every, np.array(slots, dtype=np.int64).reshape(-1, SLOT_NUMBERS))
    first_slot = np.concatenate([[0], np.cumsum(widths)])
    source = replace(source, first_piece=dictionary.first_piece[templates], first_slot=first_slot)
    letters = sum(each.laid.letters for each in wanted)
    found = put_together(source, letters) if len(rows) else pa.array([], pa.utf8())
    if found is None:
        raise ValueError(f"some texts take more than the {letters} bytes of all")
    if all(each.present is None for each in wanted):
        return [found]
    parts = [np.ones(len(each.own), np.bool_) if each.present is None else each.present for each in wanted]
    present = np.concatenate(parts)
    return [found.take(pa.array(np.cumsum(present) - 1, mask=~present))]


def _slots(wanted: _Wanted, held: Held, dictionary: Dictionary) -> list[list[int]]:
    """Decode the values that texts of a page have; return where they are held, by template and variable."""
    page, laid, places, own, needed, _ = wanted
    slots, rare, first_rare = list[list[int]](), list[_Ints](), list[tuple[int, int]]()
    count = 0
    for template in needed.tolist():
        first, end = dictionary.first_slot[template : template + 2].tolist()
        if first == end:
            continue
        ranks, here = page.ranks(template, places[own == template]), len(slots)
        for slot in range(first, end):
            if laid.in_rest[slot]:
                _, begins = page.in_rest(laid)
                rare.append(ranks + begins[slot])
                first_rare.append((len(slots), count))
                count += len(ranks)
                slots.append([])
                continue
            at = int(np.searchsorted(laid.own, slot))
            kind = int(laid.kinds[at])
            slots.append(
                slots[here + same_slot(laid.pages[at], slot, first) - first]
                if kind == SAME
                else held.put(laid.pages[at], kind, int(laid.sizes[slot]), dictionary, ranks)
            )
    if rare:
        kind, begin, *others = held.put_texts(page.in_rest(laid)[0].take(pa.array(np.concatenate(rare))))
        for slot, before in first_rare:
            slots[slot][:] = [kind, begin + before, *others]
    return slots
