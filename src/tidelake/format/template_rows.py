"""Read which templates the rows of a block have, and put the texts of a few rows together.

Of few rows, only the variables of their own templates are decoded, and of these only the values that the rows have are
copied. It reads what ``templates`` writes, and does not fetch bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.format import codecs
from tidelake.format.template_pages import SAME, Dictionary, Held, Laid, cut, decode_numbers, laid_out, same_slot
from tidelake.format.templates import decode_column
from tidelake.kernels.template_loops import put_together

FEW_TEMPLATES = 64  # of the wanted rows: of more, the block is gone through once for all
FEW_SHARE = 8  # so does it where one row in so many is wanted

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


def decode_some(
    page: memoryview, rows: int, dictionary: Dictionary, places: _Ints, known: RowTemplates | None = None
) -> pa.Array:
    """Put the texts of some rows together, by their ascending places; ``known`` are the templates of the block."""
    valid, rest = codecs.decode_nulls(page, rows)
    if not valid[places].any():
        return pa.nulls(len(places), pa.utf8())
    if len(places) * FEW_SHARE > rows:
        return _taken(page, rows, dictionary, places)
    count = int(valid.sum())
    if known is None:
        known = RowTemplates(decode_numbers(rest, count, dictionary)[0], valid, dictionary.count)
    _, data = cut(rest[1:])
    if count == rows:
        dense, present = places, None
    else:
        present = valid[places]
        dense = (np.cumsum(valid) - 1)[places[present]]
    own = known.numbers[dense].astype(np.int64)
    needed = np.unique(own)
    if len(needed) > FEW_TEMPLATES:
        return _taken(page, rows, dictionary, places)
    found = _put_together(known, laid_out(data, known.counts, dictionary), dictionary, dense, own, needed)
    return found if present is None else found.take(pa.array(np.cumsum(present) - 1, mask=~present))


def _taken(page: memoryview, rows: int, dictionary: Dictionary, places: _Ints) -> pa.Array:
    wanted = np.zeros(rows, dtype=np.bool_)
    wanted[places] = True
    return decode_column(page, rows, dictionary, wanted).take(pa.array(places))


def _put_together(
    known: RowTemplates, laid: Laid, dictionary: Dictionary, places: _Ints, own: _Ints, needed: _Ints
) -> pa.Array:
    """Put texts together of the values that they have, as if they were all texts of their templates."""
    widths = np.diff(dictionary.first_slot)[needed]
    first_slot = np.concatenate([[0], np.cumsum(widths)])
    slots, held = np.zeros((int(first_slot[-1]), 6), dtype=np.int64), Held()
    rest_ends, rest = np.cumsum(laid.in_rest), list[pa.Array]()
    for at in np.flatnonzero(widths).tolist():
        template, here = int(needed[at]), int(first_slot[at])
        first = int(dictionary.first_slot[template])
        of_template = np.flatnonzero(known.numbers == known.numbers.dtype.type(template))
        ranks = np.searchsorted(of_template, places[own == template])
        for slot in range(first, first + int(widths[at])):
            if laid.in_rest[slot]:
                rest = rest or [codecs.decode_texts(laid.rest, int(rest_ends[-1]), pa.binary())]
                begin = int(rest_ends[slot] - laid.in_rest[slot])
                slots[here + slot - first] = held.put_texts(rest[0].take(pa.array(ranks + begin)))
                continue
            page = int(np.searchsorted(laid.own, slot))
            kind = int(laid.kinds[page])
            slots[here + slot - first] = (
                slots[here + same_slot(laid.pages[page], slot, first) - first]
                if kind == SAME
                else held.put(laid.pages[page], kind, int(laid.sizes[slot]), dictionary, ranks)
            )
    every = np.ones(len(own), dtype=np.uint8)
    source = held.source(dictionary, np.searchsorted(needed, own), every, slots)
    source = replace(source, first_piece=dictionary.first_piece[needed], first_slot=first_slot)
    found = put_together(source, laid.letters)
    if found is None:
        raise ValueError(f"some texts take more than the {laid.letters} bytes of all")
    return found
