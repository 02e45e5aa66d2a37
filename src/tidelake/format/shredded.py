"""Store a dynamic column of an extent as the columns of its leaves, each addressable in each block.

In a block the column is one run of bytes, and so is read whole by one request::

    shapes | page of a leaf | page of a leaf … | rest

``shapes`` says which rows are null and which leaves each of the others has. A leaf that few rows of the extent have
gets no page: its values lie in ``rest``, as CBOR, in the order of rows. The *directory*, one for the column in the
extent, has the tree of keys, the leaves, the dictionaries of texts, and of every page its length, number of values and
checksum; pages follow each other, so that their places follow from their lengths. ``docs/format.md`` is the
specification. It does not fetch bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tidelake.dynamic import cbor, path_values
from tidelake.dynamic.shredding import (
    ARROW_TYPES,
    BOOL,
    EMPTY,
    INT,
    KIND_NAMES,
    KINDS,
    MAX_DEPTH,
    NULL,
    OTHER,
    REAL,
    TEXT_LEAF,
    WITH_VALUES,
    Apart,
    AtPath,
    Leaves,
    Shapes,
    Tree,
    joined_leaves,
    put_together,
    take_apart,
)
from tidelake.format import codecs
from tidelake.format.choosing import Choice
from tidelake.format.dictionaries import Coded, coded
from tidelake.format.segment import PartInfo
from tidelake.kernels.spreading import spread

SHAPES, REST = -1, -2  # pages that are of no leaf
RARE_SHARE = 500  # a leaf that fewer than one row in so many has lies in the rest
MAX_LEAF_COLUMNS = 2_000  # the leaves that most rows have; others lie in the rest
PATHS_KEPT = 256  # of a directory, so that the next block does not look for them again
MAX_ENTRIES = 1 << 26  # of a directory: more is no directory
MAX_DIRECTORY_BYTES = 1 << 30

_Ints = npt.NDArray[np.int64]
_Fetch = Callable[[Sequence[tuple[int, int]]], Sequence[pa.Buffer]]


class Page(NamedTuple):
    """One page of a block: of which leaf, its place in the block's run of bytes, how many values, its checksum."""

    leaf: int
    offset: int
    length: int
    values: int
    checksum: int


class DictionaryPlace(NamedTuple):
    """Where the dictionary of a leaf lies in the object."""

    offset: int
    length: int
    words: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Directory:
    """What is known of a dynamic column in an extent."""

    leaves: Leaves
    dictionaries: Mapping[int, DictionaryPlace]
    blocks: Sequence[Mapping[int, Page]]
    _at: dict[str, AtPath] = field(default_factory=dict)  # of the paths that were asked for

    def at(self, path: str) -> AtPath:
        """Return what there can be at a path."""
        found = self._at.get(path)  # other threads may let go of it
        if found is None:
            if len(self._at) >= PATHS_KEPT:
                self._at.clear()
            found = self._at[path] = self.leaves.at(path)
        return found

    def path_bytes(self, block: int, path: str) -> int:
        """Return how many bytes of a block are read for a path."""
        pages = self.blocks[block]
        found = self.at(path)
        if not found.is_all:
            return sum(page.length for page in pages.values())
        wanted = {SHAPES, *(leaf if leaf in pages else REST for leaf in (*found.leaves, *found.inside))}
        return sum(page.length for leaf, page in pages.items() if leaf in wanted)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A dynamic column, encoded: the pages of its blocks, and the dictionaries of its leaves."""

    leaves: Leaves
    pages: Sequence[Sequence[tuple[int, int, bytes]]]  # of each block: leaf, number of values, bytes
    dictionaries: Mapping[int, tuple[int, bytes]]  # of a leaf: number of texts, page


def encode(blocks: Sequence[pa.Array], pool: Executor) -> Encoded:
    """Take the blocks of a dynamic column apart, and encode what they consist of."""
    present = [block.drop_null() if block.null_count else block for block in blocks]
    aparts = list(pool.map(take_apart, present))
    leaves, numbers = joined_leaves(aparts)
    own = [{number: leaf for leaf, number in each.items()} for each in numbers]
    counts = np.zeros(len(leaves.nodes), dtype=np.int64)
    for apart, names in zip(aparts, own, strict=True):
        for number, leaf in names.items():
            counts[number] += apart.count(leaf)
    rare = _rare(counts, leaves, sum(map(len, blocks)))

    def coded_leaf(number: int) -> Coded | None:
        found = [apart.column(names[number]) for apart, names in zip(aparts, own, strict=True) if number in names]
        return coded(found)

    texts = [leaf for leaf in np.flatnonzero(leaves.kinds == TEXT_LEAF).tolist() if leaf not in rare]
    found = dict(zip(texts, pool.map(coded_leaf, texts), strict=True))
    chosen = {leaf: each for leaf, each in found.items() if each is not None}
    codes: list[dict[int, Any]] = [{} for _ in blocks]
    for leaf, each in chosen.items():
        having = [at for at, names in enumerate(own) if leaf in names]
        for at, block_codes in zip(having, each.codes, strict=True):
            codes[at][leaf] = block_codes
    jobs = list(zip(blocks, aparts, own, numbers, codes, strict=True))
    choices = [Choice() for _ in leaves.kinds]
    paged = partial(_pages, choices=choices, rare=rare)
    pages = [paged(*jobs[0])]  # from which the choices learn
    for choice in choices:
        choice.is_open = False
    pages += pool.map(lambda job: paged(*job), jobs[1:])
    dictionaries = {leaf: (len(c.dictionary), c.page) for leaf, c in chosen.items()}
    return Encoded(leaves, pages, dictionaries)


def directory_bytes(encoded: Encoded, dictionaries: Mapping[int, DictionaryPlace]) -> bytes:
    """Write the directory of a dynamic column."""
    pages = [page for block in encoded.pages for page in block]
    leaves = encoded.leaves
    parts = [
        codecs.encode_ints(np.array(leaves.tree.parents, dtype=np.int64)),
        codecs.encode_texts(pa.array(leaves.tree.keys, pa.binary())),
        codecs.encode_ints(leaves.nodes),
        codecs.encode_ints(leaves.kinds),
        *(codecs.encode_ints(_signed(dictionaries.keys() if at is None else [d[at] for d in dictionaries.values()]))
          for at in (None, 0, 1, 2, 3)),
        codecs.encode_ints(_signed(len(block) for block in encoded.pages)),
        codecs.encode_ints(_signed(leaf for leaf, _, _ in pages)),
        codecs.encode_ints(_signed(len(data) for _, _, data in pages)),
        codecs.encode_ints(_signed(count for _, count, _ in pages)),
        codecs.encode_ints(_signed(xxhash.xxh3_64_intdigest(data) for _, _, data in pages)),
    ]  # fmt: skip
    sizes = (len(leaves.tree.parents), len(leaves.nodes), len(dictionaries), len(encoded.pages), len(pages))
    return struct.pack("<5I", *sizes) + b"".join(struct.pack("<I", len(part)) + part for part in parts)


def parse_directory(data: memoryview, *, block_count: int, end: int) -> Directory:
    """Read a directory; what does not fit together is a ValueError."""
    if len(data) < 20:
        raise ValueError("a directory that ends early")
    nodes, leaf_count, dictionary_count, blocks, page_count = struct.unpack_from("<5I", data)
    if blocks != block_count or max(nodes, leaf_count, page_count) > MAX_ENTRIES or not nodes:
        raise ValueError(f"a directory of {blocks} blocks, {nodes} nodes and {page_count} pages")
    parts = codecs.parts(data[20:], 14)
    parents = codecs.decode_ints(parts[0], nodes)
    keys = codecs.decode_texts(parts[1], nodes, pa.binary()).to_pylist()
    if parents[0] != -1 or bool((parents[1:] >= np.arange(1, nodes)).any()) or bool((parents[1:] < 0).any()):
        raise ValueError("a tree of keys whose parents come late")
    tree = Tree(parents.tolist(), keys)
    if int(tree.depths().max()) > MAX_DEPTH:
        raise ValueError("a tree of keys that is too deep")
    leaf_nodes, kinds = (codecs.decode_ints(parts[at], leaf_count) for at in (2, 3))
    _check_within(leaf_nodes, nodes)
    _check_within(kinds, KINDS)
    columns = [codecs.decode_ints(parts[at], dictionary_count) for at in range(4, 9)]
    _check_within(columns[0], leaf_count)
    dictionaries = {}
    for leaf, offset, length, count, checksum in zip(*(each.tolist() for each in columns), strict=True):
        if offset < 0 or length < 0 or offset + length > end or not 0 <= count <= MAX_ENTRIES:
            raise ValueError("a dictionary without a place")
        dictionaries[leaf] = DictionaryPlace(offset, length, count, checksum % 2**64)
    per_block = codecs.decode_ints(parts[9], blocks)
    page_leaves, lengths, counts, sums = (codecs.decode_ints(parts[at], page_count) for at in range(10, 14))
    if int(per_block.sum()) != page_count or bool((per_block < 0).any()) or bool((lengths < 0).any()):
        raise ValueError("pages without a place")
    if bool((counts < 0).any()) or bool((counts > MAX_ENTRIES).any()):
        raise ValueError("pages without a count")
    if page_count and (int(page_leaves.min()) < REST or int(page_leaves.max()) >= leaf_count):
        raise ValueError("pages of no leaf")
    found, at = [], 0
    for size in per_block.tolist():
        here = slice(at, at + size)
        offsets = np.cumsum(lengths[here]) - lengths[here]
        columns = [page_leaves[here], offsets, lengths[here], counts[here], sums[here].view(np.uint64)]
        found.append({page[0]: Page(*page) for page in zip(*(each.tolist() for each in columns), strict=True)})
        at += size
    return Directory(Leaves(tree, leaf_nodes, kinds), dictionaries, found)


class BlockPages:
    """Read one block of a dynamic column: whole, or what it has at a path.

    ``fetch`` gives bytes of the block's run by their places in it; pages are verified here. ``dictionary`` gives the
    dictionary of a leaf.
    """

    def __init__(
        self, directory: Directory, block: int, rows: int, *, fetch: _Fetch, dictionary: Callable[[int], pa.Array]
    ) -> None:
        self._directory, self._pages, self._rows = directory, directory.blocks[block], rows
        self._fetch, self._dictionary = fetch, dictionary
        self._loaded: dict[int, pa.Buffer] = {}
        self._columns: dict[int, pa.Array] = {}
        self._sorted_rest: tuple[pa.Array, _Ints, _Ints] | None = None
        self._known_shapes: tuple[npt.NDArray[np.bool_], Shapes] | None = None
        self._counts: _Ints | None = None

    def whole(self) -> pa.Array:
        """Return the values themselves."""
        self._load(list(self._pages))
        valid, shapes = self._shapes()
        values = put_together(shapes, self._directory.leaves, lambda leaf: _plain(self._column(leaf, shapes)))
        return values if valid.all() else spread(values, valid)

    def at_path(self, path: str) -> pa.StructArray:
        """Return what each row has at a path, in the form of ``path_values``."""
        found = self._directory.at(path)
        self._load([SHAPES])
        valid, shapes = self._shapes()
        if not found.is_all:  # perhaps it is for the leaves that this block has
            own = self._directory.leaves
            kept = np.unique(shapes.leaves)
            found = Leaves(own.tree, own.nodes[kept], own.kinds[kept]).at(path)
            found = replace(found, leaves=kept[found.leaves].tolist(), inside=kept[found.inside].tolist())
        if not found.is_all:
            return path_values.of_extracted(cbor.extract(self.whole(), path))
        leaves = [*found.leaves, *found.inside]
        self._load([leaf if leaf in self._pages else REST for leaf in leaves if self._has_values(leaf)])
        kinds = np.zeros(self._rows, dtype=np.uint8)
        children: dict[str, pa.Array] = {}
        for leaf in found.leaves:
            having = np.zeros(self._rows, dtype=np.bool_)
            having[valid] = shapes.having(leaf)
            if not having.any():
                continue
            kind = int(self._directory.leaves.kinds[leaf])
            column = self._column(leaf, shapes) if self._has_values(leaf) else None
            path_values.put(kinds, children, kind, having, column)
        if found.inside:
            self._put_maps(found, valid, shapes, kinds, children)
        return path_values.joined(kinds, children)

    def _put_maps(
        self, found: AtPath, valid: npt.NDArray[np.bool_], shapes: Shapes, kinds: npt.NDArray[np.uint8], children: Any
    ) -> None:
        """Put together the maps that some rows have at a path."""
        own, inside = shapes.only(found.inside)
        having = np.zeros(self._rows, dtype=np.bool_)
        having[valid] = own
        if having.any():
            leaves = self._directory.leaves
            maps = put_together(inside, leaves, lambda leaf: _plain(self._column(leaf, shapes)), found.node)
            path_values.put(kinds, children, OTHER, having, maps)

    def _has_values(self, leaf: int) -> bool:
        return int(self._directory.leaves.kinds[leaf]) in WITH_VALUES

    def _load(self, leaves: Sequence[int]) -> None:
        """Fetch pages and verify them."""
        wanted = sorted({leaf for leaf in leaves if leaf in self._pages and leaf not in self._loaded})
        places = [(self._pages[leaf].offset, self._pages[leaf].length) for leaf in wanted]
        for leaf, data in zip(wanted, self._fetch(places), strict=True):
            if xxhash.xxh3_64_intdigest(data) != self._pages[leaf].checksum:
                raise ChecksumError(f"a page of leaf {leaf}")
            self._loaded[leaf] = data

    def _shapes(self) -> tuple[npt.NDArray[np.bool_], Shapes]:
        """Return which rows are not null, and the shapes of those."""
        if self._known_shapes is None:
            self._known_shapes = self._decoded_shapes()
        return self._known_shapes

    def _decoded_shapes(self) -> tuple[npt.NDArray[np.bool_], Shapes]:
        if SHAPES not in self._pages:
            raise ValueError("a block without shapes")
        data = memoryview(self._loaded[SHAPES])
        if len(data) < 8:
            raise ValueError("shapes that end early")
        shape_count, leaf_count = struct.unpack_from("<2I", data)
        if max(shape_count, leaf_count) > MAX_ENTRIES:
            raise ValueError(f"{shape_count} shapes")
        parts = codecs.parts(data[8:], 4)
        valid = codecs.decode_bits(parts[0], self._rows)
        sizes, leaves = codecs.decode_ints(parts[1], shape_count), codecs.decode_ints(parts[2], leaf_count)
        rows = codecs.decode_ints(parts[3], int(valid.sum()))
        if bool((sizes < 0).any()) or int(sizes.sum()) != leaf_count:
            raise ValueError("shapes without leaves")
        _check_within(leaves, len(self._directory.leaves.nodes))
        _check_within(rows, shape_count)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return valid, Shapes(offsets, leaves, rows)

    def _column(self, leaf: int, shapes: Shapes) -> pa.Array:
        """Return the values of a leaf, of the rows that have it; texts of a dictionary as numbers into it."""
        if leaf not in self._columns:
            kind = int(self._directory.leaves.kinds[leaf])
            found = self._decoded(leaf, kind) if leaf in self._pages else self._from_rest(leaf, kind, shapes)
            if len(found) != self._count(leaf, shapes):
                raise ValueError(f"leaf {leaf} has {len(found)} values")
            self._columns[leaf] = found
        return self._columns[leaf]

    def _count(self, leaf: int, shapes: Shapes) -> int:
        if self._counts is None:
            self._counts = shapes.counts(len(self._directory.leaves.nodes))
        return int(self._counts[leaf])

    def _decoded(self, leaf: int, kind: int) -> pa.Array:
        page = memoryview(self._loaded[leaf])
        dictionary = self._dictionary(leaf) if leaf in self._directory.dictionaries else None
        return codecs.decode_values(page, self._pages[leaf].values, ARROW_TYPES[kind], dictionary)

    def _from_rest(self, leaf: int, kind: int, shapes: Shapes) -> pa.Array:
        items, leaves, order = self._rest(shapes)
        first, last = np.searchsorted(leaves, (leaf, leaf + 1)).tolist()
        own = items.take(pa.array(order[first:last]))
        found = cbor.whole(own)
        match kind:
            case k if k == INT:
                return pa.array(found.ints)
            case k if k == REAL:
                return pa.array(found.reals)
            case k if k == BOOL:
                return pa.array(found.kinds == cbor.TRUE_KIND)
            case k if k == TEXT_LEAF:
                return found.as_strings()
            case _:
                return own

    def _rest(self, shapes: Shapes) -> tuple[pa.Array, _Ints, _Ints]:
        """Return what is in the rest, and sorted by leaf: the leaves, and the place of each one's value."""
        if self._sorted_rest is None:
            if REST not in self._pages:
                raise ValueError("a leaf without a page, and no rest")
            items = codecs.decode_texts(memoryview(self._loaded[REST]), self._pages[REST].values, pa.binary())
            is_rare = np.isin(self._directory.leaves.kinds, WITH_VALUES)
            is_rare[[leaf for leaf in self._pages if leaf >= 0]] = False
            entries = shapes.entries()
            entries = entries[is_rare[entries]]
            if len(entries) != len(items):
                raise ValueError(f"a rest of {len(items)} values for {len(entries)} leaves")
            order = np.argsort(entries, kind="stable")
            self._sorted_rest = items, entries[order], order
        return self._sorted_rest


def parts_of(column: str, directory: Directory, blocks: Sequence[memoryview], size: int) -> list[PartInfo]:
    """Return what a dynamic column consists of, the largest leaves first; ``size`` is of the directory."""
    pages: dict[int, list[tuple[Page, str]]] = {}
    for known, data in zip(directory.blocks, blocks, strict=True):
        for leaf, page in known.items():
            name = "" if leaf == SHAPES else codecs.codec_name(data[page.offset : page.offset + page.length])
            pages.setdefault(leaf, []).append((page, name))

    def part(leaf: int, name: str, path: str | None) -> PartInfo:
        held = pages[leaf]
        used = tuple(dict.fromkeys(codec for _, codec in held if codec))
        return PartInfo(
            column, name, path, used, sum(page.values for page, _ in held), sum(page.length for page, _ in held)
        )

    paths = directory.leaves.tree.paths()
    found = []
    for leaf in pages:
        if leaf >= 0:
            path = (paths[int(directory.leaves.nodes[leaf])] or b"").decode("utf-8", "replace")
            found.append(part(leaf, KIND_NAMES[int(directory.leaves.kinds[leaf])], path))
            if (place := directory.dictionaries.get(leaf)) is not None:
                found.append(PartInfo(column, "dictionary", path, (), place.words, place.length))
    found.sort(key=lambda each: -each.byte_size)
    found += [part(leaf, name, None) for leaf, name in ((SHAPES, "shapes"), (REST, "rest")) if leaf in pages]
    return [*found, PartInfo(column, "directory", None, (), len(directory.leaves.nodes), size)]


class ChecksumError(ValueError):
    """A page does not have its checksum."""


def _rare(counts: _Ints, leaves: Leaves, rows: int) -> frozenset[int]:
    """Choose the leaves whose values lie in the rest."""
    rare = set(np.flatnonzero(counts * RARE_SHARE < rows).tolist())
    if len(counts) - len(rare) > MAX_LEAF_COLUMNS:
        rare |= set(np.argsort(-counts, kind="stable")[MAX_LEAF_COLUMNS:].tolist())
    return frozenset(leaf for leaf in rare if int(leaves.kinds[leaf]) not in (NULL, EMPTY))


def _pages(
    block: pa.Array, apart: Apart, own: Mapping[int, int], numbers: Mapping[int, int], codes: Mapping[int, Any], *,
    choices: Sequence[Choice], rare: frozenset[int],
) -> list[tuple[int, int, bytes]]:  # fmt: skip
    """Encode one block: its shapes, the leaves that have pages, and the rest."""
    lookup = np.zeros(max(numbers, default=0) + 1, dtype=np.int64)
    for leaf, number in numbers.items():
        lookup[leaf] = number
    shapes = apart.shapes
    parts = [
        codecs.encode_bits(block.is_valid().to_numpy(zero_copy_only=False)),
        codecs.encode_ints(np.diff(shapes.offsets)),
        codecs.encode_ints(lookup[shapes.leaves]),
        codecs.encode_ints(shapes.rows),
    ]
    head = struct.pack("<2I", len(shapes.offsets) - 1, len(shapes.leaves))
    found = [(SHAPES, len(block), head + b"".join(struct.pack("<I", len(part)) + part for part in parts))]
    for number in sorted(own):
        if number in rare or int(own[number]) % KINDS not in WITH_VALUES:
            continue
        values = apart.column(own[number])
        found.append((number, len(values), codecs.encode_values(values, codes.get(number), choices[number])))
    rest = apart.items(leaf for number, leaf in own.items() if number in rare)
    if len(rest):
        found.append((REST, len(rest), codecs.encode_texts(rest)))
    return found


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _signed(numbers: Any) -> _Ints:
    return np.array([(int(number) + 2**63) % 2**64 - 2**63 for number in numbers], dtype=np.int64)


def _check_within(numbers: _Ints, end: int) -> None:
    if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= end):
        raise ValueError(f"a number that is not below {end}")
