"""Store a dynamic column of an extent as the columns of its leaves, each addressable in each block.

In a block the column is one run of bytes, and so is read whole by one request::

    shapes | page of a leaf | page of a leaf … | rest

``shapes`` says which rows are null and which leaves each of the others has. A leaf that few rows of the extent have
gets no page: its values lie in ``rest``, as CBOR, in the order of rows. The *directory*, one for the column in the
extent, has the tree of keys, the leaves, the dictionaries of texts, and of every page its length, number of values and
checksum; pages follow each other, so that their places follow from their lengths. Texts that do not repeat may be kept
as ``leaf_lines`` are. ``docs/format.md`` is the
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
from tidelake.format import codecs, leaf_lines, template_rows, templates
from tidelake.format.choosing import Choice
from tidelake.format.dictionaries import Coded, coded
from tidelake.format.leaf_lines import LeafLines, LinesPlace, Place, signed
from tidelake.format.segment import PartInfo
from tidelake.format.template_pages import Dictionary
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


@dataclass(frozen=True, slots=True)
class Directory:
    """What is known of a dynamic column in an extent."""

    leaves: Leaves
    dictionaries: Mapping[int, Place]
    blocks: Sequence[Mapping[int, Page]]
    lines: Mapping[int, LinesPlace]  # of the leaves whose texts are stored by templates
    _at: dict[str, AtPath] = field(default_factory=dict)  # of the paths that were asked for

    def at(self, path: str) -> AtPath:
        """Return what there can be at a path."""
        found = self._at.get(path)  # other threads may let go of it
        if found is None:
            if len(self._at) >= PATHS_KEPT:
                self._at.clear()
            found = self._at[path] = self.leaves.at(path)
        return found

    def keeps_lines(self, path: str) -> bool:
        """Whether texts at a path are stored by templates, and nothing else can have the path."""
        found = self.at(path)
        return found.is_all and not self.lines.keys().isdisjoint(found.leaves)

    def path_bytes(self, block: int, path: str) -> int:
        """Return how many bytes of a block are read for a path."""
        pages = self.blocks[block]
        found = self.at(path)
        if not found.is_all:
            return sum(page.length for page in pages.values())
        wanted = {SHAPES, *(leaf if leaf in pages else REST for leaf in (*found.leaves, *found.inside))}
        return sum(page.length for leaf, page in pages.items() if leaf in wanted)


class TextRows(NamedTuple):
    """Which rows of a block have texts at a path, by the number of the leaf, and which have anything else but null."""

    texts: Sequence[tuple[int, npt.NDArray[np.bool_]]]
    others: npt.NDArray[np.bool_]

    @property
    def nbytes(self) -> int:
        """How many bytes of memory that takes."""
        return self.others.nbytes + sum(having.nbytes for _, having in self.texts)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A dynamic column, encoded: the pages of its blocks, and the dictionaries of its leaves."""

    leaves: Leaves
    pages: Sequence[Sequence[tuple[int, int, bytes]]]  # of each block: leaf, number of values, bytes
    dictionaries: Mapping[int, tuple[int, bytes]]  # of a leaf: number of texts, page
    lines: Mapping[int, LeafLines]  # of the leaves whose texts are templates


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
    columns = {
        leaf: {at: apart.column(own[at][leaf]) for at, apart in enumerate(aparts) if leaf in own[at]} for leaf in texts
    }
    lines = leaf_lines.chosen({leaf: each for leaf, each in columns.items() if leaf not in chosen}, pool)
    codes: list[dict[int, Any]] = [{} for _ in blocks]
    for leaf, each in chosen.items():
        having = [at for at, names in enumerate(own) if leaf in names]
        for at, block_codes in zip(having, each.codes, strict=True):
            codes[at][leaf] = block_codes
    made = [{leaf: each.pages[at] for leaf, each in lines.items() if at in each.pages} for at in range(len(blocks))]
    jobs = list(zip(blocks, aparts, own, numbers, codes, made, strict=True))
    choices = [Choice() for _ in leaves.kinds]
    paged = partial(_pages, choices=choices, rare=rare)
    pages = [paged(*jobs[0])]  # from which the choices learn
    for choice in choices:
        choice.is_open = False
    pages += pool.map(lambda job: paged(*job), jobs[1:])
    dictionaries = {leaf: (len(c.dictionary), c.page) for leaf, c in chosen.items()}
    return Encoded(leaves, pages, dictionaries, lines)


def directory_bytes(encoded: Encoded, dictionaries: Mapping[int, Place], lines: Mapping[int, LinesPlace]) -> bytes:
    """Write the directory of a dynamic column."""
    pages = [page for block in encoded.pages for page in block]
    leaves = encoded.leaves
    parts = [
        codecs.encode_ints(np.array(leaves.tree.parents, dtype=np.int64)),
        codecs.encode_texts(pa.array(leaves.tree.keys, pa.binary())),
        codecs.encode_ints(leaves.nodes),
        codecs.encode_ints(leaves.kinds),
        *(codecs.encode_ints(signed(dictionaries.keys() if at is None else [d[at] for d in dictionaries.values()]))
          for at in (None, 0, 1, 2, 3)),
        codecs.encode_ints(signed(len(block) for block in encoded.pages)),
        codecs.encode_ints(signed(leaf for leaf, _, _ in pages)),
        codecs.encode_ints(signed(len(data) for _, _, data in pages)),
        codecs.encode_ints(signed(count for _, count, _ in pages)),
        codecs.encode_ints(signed(xxhash.xxh3_64_intdigest(data) for _, _, data in pages)),
    ]  # fmt: skip
    sizes = (len(leaves.tree.parents), len(leaves.nodes), len(dictionaries), len(encoded.pages), len(pages))
    known = struct.pack("<5I", *sizes) + b"".join(struct.pack("<I", len(part)) + part for part in parts)
    return known + leaf_lines.places_bytes(lines) if lines else known


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
        dictionaries[leaf] = Place(offset, length, count, checksum % 2**64)
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
    rest = data[20 + sum(4 + len(part) for part in parts) :]
    lines = leaf_lines.parse_places(rest, leaves=leaf_count, blocks=blocks, end=end)
    if any(int(kinds[leaf]) != TEXT_LEAF for leaf in lines):
        raise ValueError("lines of a leaf that has no texts")
    return Directory(Leaves(tree, leaf_nodes, kinds), dictionaries, found, lines)


class BlockPages:
    """Read one block of a dynamic column: whole, or what it has at a path.

    ``fetch`` gives bytes of the block's run by their places in it; pages are verified here. ``dictionary`` gives the
    dictionary of a leaf, ``lines`` the templates of one.
    """

    def __init__(
        self,
        directory: Directory,
        block: int,
        rows: int,
        *,
        fetch: _Fetch,
        dictionary: Callable[[int], pa.Array],
        lines: Callable[[int], Dictionary],
    ) -> None:
        self._directory, self._pages, self._rows = directory, directory.blocks[block], rows
        self._fetch, self._dictionary, self._lines = fetch, dictionary, lines
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

    def at_path(self, path: str, places: _Ints | None = None) -> pa.StructArray:
        """Return what rows have at a path, in the form of ``path_values``: all, or those at some ascending places."""
        found = self._directory.at(path)
        self._load([SHAPES])
        valid, shapes = self._shapes()
        if not found.is_all:  # perhaps it is for the leaves that this block has
            own = self._directory.leaves
            kept = np.unique(shapes.leaves)
            found = Leaves(own.tree, own.nodes[kept], own.kinds[kept]).at(path)
            found = replace(found, leaves=kept[found.leaves].tolist(), inside=kept[found.inside].tolist())
        if not found.is_all:
            values = path_values.of_extracted(cbor.extract(self.whole(), path))
            return values if places is None else values.take(pa.array(places))
        leaves = [*found.leaves, *found.inside]
        self._load([leaf if leaf in self._pages else REST for leaf in leaves if self._has_values(leaf)])
        kinds = np.zeros(self._rows if places is None else len(places), dtype=np.uint8)
        children: dict[str, pa.Array] = {}
        for leaf in found.leaves:
            having = self._having(leaf, valid, shapes)
            wanted = having if places is None else having[places]
            if not wanted.any():
                continue
            kind, column = int(self._directory.leaves.kinds[leaf]), None
            if self._has_values(leaf) and places is None:
                column = self._column(leaf, shapes)
            elif self._has_values(leaf) and places is not None:
                column = self._some(leaf, shapes, (np.cumsum(having) - 1)[places[wanted]])
            path_values.put(kinds, children, kind, wanted, column)
        if found.inside:
            self._put_maps(found, (valid, shapes), places, kinds, children)
        return path_values.joined(kinds, children)

    def text_rows(self, path: str) -> TextRows | None:
        """Return which rows have a text at a path; None where no texts at it are templates, or there is no telling."""
        if not self._directory.keeps_lines(path):
            return None
        found = self._directory.at(path)
        self._load([SHAPES])
        valid, shapes = self._shapes()
        kinds = {leaf: int(self._directory.leaves.kinds[leaf]) for leaf in found.leaves}
        texts = [leaf for leaf, kind in kinds.items() if kind == TEXT_LEAF]
        others = np.zeros(self._rows, dtype=np.bool_)
        for leaf in [*(leaf for leaf, kind in kinds.items() if kind not in (TEXT_LEAF, NULL)), *found.inside]:
            others |= self._having(leaf, valid, shapes)
        return TextRows(tuple((leaf, self._having(leaf, valid, shapes)) for leaf in texts), others)

    def line_page(self, leaf: int) -> tuple[int, memoryview]:
        """Return how many texts a leaf that is stored by templates has in the block, and their page."""
        if leaf not in self._pages:
            raise ValueError(f"no page of leaf {leaf}, whose texts are templates")
        self._load([leaf])
        return self._pages[leaf].values, leaf_lines.as_column(memoryview(self._loaded[leaf]))

    def _having(self, leaf: int, valid: npt.NDArray[np.bool_], shapes: Shapes) -> npt.NDArray[np.bool_]:
        """Return which rows of the block have a leaf."""
        if valid.all():
            return shapes.having(leaf)
        found = np.zeros(self._rows, dtype=np.bool_)
        found[valid] = shapes.having(leaf)
        return found

    def _put_maps(
        self, found: AtPath, known: tuple[npt.NDArray[np.bool_], Shapes], places: _Ints | None,
        kinds: npt.NDArray[np.uint8], children: dict[str, pa.Array],
    ) -> None:  # fmt: skip
        """Put together the maps that some rows have at a path."""
        valid, shapes = known
        own, inside = shapes.only(found.inside)
        having = np.zeros(self._rows, dtype=np.bool_)
        having[valid] = own
        wanted = having if places is None else having[places]
        if wanted.any():
            leaves = self._directory.leaves
            maps = put_together(inside, leaves, lambda leaf: _plain(self._column(leaf, shapes)), found.node)
            if places is not None:
                maps = maps.take(pa.array((np.cumsum(having) - 1)[places[wanted]]))
            path_values.put(kinds, children, OTHER, wanted, maps)

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

    def _some(self, leaf: int, shapes: Shapes, ranks: _Ints) -> pa.Array:
        """Return some values of a leaf, by their ascending places among those of all rows that have it."""
        if leaf in self._columns or leaf not in self._directory.lines:
            return self._column(leaf, shapes).take(pa.array(ranks))
        count, page = self.line_page(leaf)
        if count != self._count(leaf, shapes):
            raise ValueError(f"leaf {leaf} has {count} values")
        lines = self._lines(leaf)
        return template_rows.texts_of([(template_rows.LinePage(page, count, lines), ranks)], lines)

    def _decoded(self, leaf: int, kind: int) -> pa.Array:
        if leaf in self._directory.lines:
            count, lines = self.line_page(leaf)
            return templates.decode_column(lines, count, self._lines(leaf))
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
                found.append(PartInfo(column, "dictionary", path, (), place.texts, place.length))
            if (lines := directory.lines.get(leaf)) is not None:
                for what, own in (("templates", lines.templates), ("words", lines.words)):
                    found.append(PartInfo(column, what, path, (), own.texts, own.length))
                listed = [each.length for each in lines.postings if each is not None]
                if listed:
                    values = sum(page.values for page, _ in pages[leaf])
                    found.append(PartInfo(column, "postings", path, (), values, sum(listed)))
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
    block: pa.Array, apart: Apart, own: Mapping[int, int], numbers: Mapping[int, int], codes: Mapping[int, Any],
    made: Mapping[int, bytes], *, choices: Sequence[Choice], rare: frozenset[int],
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
        values, page = apart.column(own[number]), made.get(number)
        if page is None:
            page = codecs.encode_values(values, codes.get(number), choices[number])
        found.append((number, len(values), page))
    rest = apart.items(leaf for number, leaf in own.items() if number in rare)
    if len(rest):
        found.append((REST, len(rest), codecs.encode_texts(rest)))
    return found


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _check_within(numbers: _Ints, end: int) -> None:
    if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= end):
        raise ValueError(f"a number that is not below {end}")
