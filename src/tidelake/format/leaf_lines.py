"""Store the texts at a path of a dynamic column as those of a column of lines: as templates, with postings.

What ``templates`` and ``postings`` do for a string column, block by block, they do for the texts of a leaf that do not
repeat: the page of the leaf is one of templates, and beside it may lie which of its values hold which words. It does
not lay out extents, nor say where its parts lie: the directory of the column does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.format import codecs
from tidelake.format.templates import templated

PARTS = 9  # of a directory, that say where those of lines lie
SHARE = 8  # of the texts that do not repeat, a leaf with less than one byte in so many is not looked at: it takes time
MAX_TEXTS = 1 << 26  # of a dictionary: more is none

_Ints = npt.NDArray[np.int64]


class Place(NamedTuple):
    """Where something lies in the object: its bytes, how many texts it has, and its checksum."""

    offset: int
    length: int
    texts: int
    checksum: int


class LinesPlace(NamedTuple):
    """Where the templates of a leaf, the words of their variables and, for each block, its postings lie."""

    templates: Place
    words: Place
    every_word: bool
    postings: Sequence[Place | None]


_NOWHERE = Place(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class LeafLines:
    """The texts of a leaf, encoded: by the number of a block its page, and its postings if there are any."""

    pages: Mapping[int, bytes]
    postings: Mapping[int, bytes]
    templates: pa.Array
    words: pa.Array
    every_word: bool


def chosen(leaves: Mapping[int, Mapping[int, pa.Array]], pool: Executor) -> dict[int, LeafLines]:
    """Encode those leaves by templates that become smaller, of those that hold much of the text of a column."""
    sizes = {leaf: sum(block.nbytes for block in blocks.values()) for leaf, blocks in leaves.items()}
    large = (leaf for leaf, size in sizes.items() if size * SHARE >= sum(sizes.values()))
    return {leaf: found for leaf in large if (found := encoded(leaves[leaf], pool)) is not None}


def encoded(blocks: Mapping[int, pa.Array], pool: Executor) -> LeafLines | None:
    """Encode the texts that a leaf has in some blocks by templates, if that makes them smaller.

    All blocks do as the first one that is encoded, which therefore is the largest.
    """
    order = sorted(blocks, key=lambda block: -len(blocks[block]))
    found = templated([blocks[block] for block in order], None, pool)
    if found is None:
        return None
    made = {block: each.result() for block, each in zip(order, found.blocks, strict=True)}
    return LeafLines(
        {block: each.page[1:] for block, each in made.items()},  # the page of a leaf has no byte for nulls
        {block: each.postings for block, each in made.items() if each.postings is not None},
        found.templates,
        found.words,
        found.every_word,
    )


def as_column(page: memoryview) -> memoryview:
    """Return the page of a leaf as that of a column without nulls."""
    return memoryview(bytes([codecs.NO_NULLS]) + page)


def places_bytes(lines: Mapping[int, LinesPlace]) -> bytes:
    """Write where the parts of lines lie, by leaf."""
    dictionaries = [place for each in lines.values() for place in (each.templates, each.words)]
    listed = [place or _NOWHERE for each in lines.values() for place in each.postings]
    columns: list[Iterable[int]] = [
        list(lines),
        [each.every_word for each in lines.values()],
        *([place[at] for place in dictionaries] for at in range(4)),
        *([place[at] for place in listed] for at in (0, 1, 3)),
    ]
    parts = [codecs.encode_ints(signed(each)) for each in columns]
    return struct.pack("<I", len(lines)) + b"".join(struct.pack("<I", len(part)) + part for part in parts)


def parse_places(data: memoryview, *, leaves: int, blocks: int, end: int) -> dict[int, LinesPlace]:
    """Read what ``places_bytes`` writes, of an object that has so many bytes; no bytes at all say of no leaf."""
    if not len(data):
        return {}
    if len(data) < 4:
        raise ValueError("places of lines that end early")
    (count,) = struct.unpack_from("<I", data)
    if count > leaves:
        raise ValueError(f"lines of {count} leaves where there are {leaves}")
    parts = codecs.parts(data[4:], PARTS)
    numbers, flags = (codecs.decode_ints(part, count).tolist() for part in parts[:2])
    if len(set(numbers)) < count or any(not 0 <= leaf < leaves for leaf in numbers) or not {0, 1}.issuperset(flags):
        raise ValueError("lines of no leaf")
    dictionaries = _places([codecs.decode_ints(part, 2 * count) for part in parts[2:6]], end)
    offsets, lengths, sums = (codecs.decode_ints(part, count * blocks) for part in parts[6:])
    listed = _places([offsets, lengths, np.zeros_like(offsets), sums], end)
    return {
        leaf: LinesPlace(
            dictionaries[2 * at],
            dictionaries[2 * at + 1],
            bool(flags[at]),
            [place if place.length else None for place in listed[at * blocks : (at + 1) * blocks]],
        )
        for at, leaf in enumerate(numbers)
    }


def signed(numbers: Iterable[int]) -> _Ints:
    """Return numbers of 64 bits, checksums among them, as those with a sign that have the same bits."""
    return np.array([(int(number) + 2**63) % 2**64 - 2**63 for number in numbers], dtype=np.int64)


def _places(columns: Sequence[_Ints], end: int) -> list[Place]:
    found = []
    for offset, length, count, checksum in zip(*(each.tolist() for each in columns), strict=True):
        if offset < 0 or length < 0 or offset + length > end or not 0 <= count <= MAX_TEXTS:
            raise ValueError("a part of lines without a place")
        found.append(Place(offset, length, count, checksum % 2**64))
    return found
