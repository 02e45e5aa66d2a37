"""Take the values of a dynamic column apart into typed leaves, and put them together again, byte for byte.

A *leaf* is what a value has at the end of a way of keys: a text, a number, a boolean, null, an empty map, or something
that is kept as it is (a list, bytes, a number beyond 64 bits). The leaves of one way and one kind are a column, without
gaps. Which leaves a row has is its *shape*; rows that are alike share one. A shape and the columns are all there is to
a value: keys ascend in canonical CBOR, so that the shape tells their order, and null is a leaf where an absent key is
none. What is not canonical, or has too many keys, is a *bag*: a leaf that holds the bytes of a whole map.

``take_apart`` and ``put_together`` are inverse; ``found_at`` reads one path out of the few columns that have it. The
loops are in ``shred_loops``. It does not know how columns are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.dynamic import plain_shredding
from tidelake.runtime.deferred import deferred
from tidelake.runtime.readiness import has_loops

loops: Any = deferred("tidelake.dynamic.shred_loops")
cbor_loops: Any = deferred("tidelake.dynamic.cbor_loops")

# The kinds of leaves. Extents store them: the numbers stay for good.
NULL, EMPTY, BOOL, INT, REAL, TEXT_LEAF, OTHER, BAG = range(8)
KINDS = 8
KIND_NAMES = ("null", "empty map", "bool", "int", "real", "text", "other", "bag")
WITH_VALUES = (BOOL, INT, REAL, TEXT_LEAF, OTHER, BAG)
ARROW_TYPES: Mapping[int, pa.DataType] = {
    BOOL: pa.bool_(),
    INT: pa.int64(),
    REAL: pa.float64(),
    TEXT_LEAF: pa.utf8(),
    OTHER: pa.binary(),
    BAG: pa.binary(),
}
MAX_DEPTH = 64

_Ints = npt.NDArray[np.int64]
_NODE = np.dtype([(name, np.int64) for name in ("parent", "at", "size", "first", "next", "children", "is_bag")])
_SHAPE = np.dtype([("hash", np.uint64), ("at", np.int64), ("size", np.int64)])


@dataclass(slots=True)
class Tree:
    """The keys that lead to leaves: of each node its parent and its key; the first is the root."""

    parents: list[int] = field(default_factory=lambda: [-1])
    keys: list[bytes] = field(default_factory=lambda: [b""])
    _places: dict[tuple[int, bytes], int] = field(default_factory=dict)
    _paths: list[bytes | None] = field(default_factory=list)

    def node_of(self, parent: int, key: bytes) -> int:
        """Find a node by its parent and key, or make it."""
        found = self._places.setdefault((parent, key), len(self.parents))
        if found == len(self.parents):
            self.parents.append(parent)
            self.keys.append(key)
        return found

    def depths(self) -> _Ints:
        """Return how many keys lead to each node."""
        found = np.zeros(len(self.parents), dtype=np.int64)
        for node, parent in enumerate(self.parents[1:], 1):
            found[node] = found[parent] + 1
        return found

    def paths(self) -> list[bytes | None]:
        """Return the path of each node; None if a key on the way is empty, which no path names."""
        if len(self._paths) != len(self.parents):
            found: list[bytes | None] = [b""]
            for parent, key in zip(self.parents[1:], self.keys[1:], strict=True):
                before = found[parent]
                found.append(None if before is None or not key else before + b"." + key if parent else key)
            self._paths = found
        return self._paths


@dataclass(frozen=True, slots=True)
class Shapes:
    """Which leaves each of some shapes has, in order, and the shape of every row; leaves by their numbers."""

    offsets: _Ints
    leaves: _Ints
    rows: _Ints

    def counts(self, leaf_count: int) -> _Ints:
        """Return how many rows have each leaf."""
        per_shape = np.bincount(self.rows, minlength=len(self.offsets) - 1)
        weights = np.repeat(per_shape, np.diff(self.offsets))
        return np.bincount(self.leaves, weights=weights, minlength=leaf_count).astype(np.int64)

    def having(self, leaf: int) -> npt.NDArray[np.bool_]:
        """Return which rows have a leaf."""
        found = np.zeros(len(self.offsets) - 1, dtype=np.bool_)
        found[np.searchsorted(self.offsets, np.flatnonzero(self.leaves == leaf), side="right") - 1] = True
        return np.asarray(found[self.rows])

    def only(self, leaves: Sequence[int]) -> tuple[npt.NDArray[np.bool_], Shapes]:
        """Return which rows have some of these leaves, and the shapes of those rows with these leaves alone."""
        kept = np.isin(self.leaves, leaves)
        ends = np.concatenate([[0], np.cumsum(kept)])
        sizes = ends[self.offsets[1:]] - ends[self.offsets[:-1]]
        having = (sizes > 0)[self.rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return np.asarray(having), Shapes(offsets, self.leaves[kept], self.rows[having])

    def entries(self) -> _Ints:
        """Return the leaves of all rows, row by row."""
        sizes = np.diff(self.offsets)[self.rows]
        ends = np.cumsum(sizes)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        return np.asarray(self.leaves[np.repeat(self.offsets[self.rows], sizes) + within])


class Apart:
    """The values of one block, taken apart; a leaf is known by its node and kind, as ``node * KINDS + kind``."""

    def __init__(self, data: Any, nodes: Any, ids: Any, places: tuple[Any, Any, Any], shapes: Any, rows: _Ints) -> None:
        self._data, self._ids = data, ids
        self._columns: dict[int, pa.Array] = {}
        self._starts, self._ends, self._values = places
        self.parents: list[int] = nodes["parent"].tolist()
        self.keys = [bytes(data[at : at + size]) for at, size in zip(nodes["at"], nodes["size"], strict=True)]
        sizes = shapes["size"]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], sizes)
        self.shapes = Shapes(offsets, ids[np.repeat(shapes["at"], sizes) + within].astype(np.int64), rows)

    @cached_property
    def _order(self) -> tuple[_Ints, _Ints, dict[int, int]]:
        """Sort the entries by leaf, stably: their order, where each leaf begins, and the place of each leaf."""
        counts = np.bincount(self._ids)
        codes = np.flatnonzero(counts)
        rank = np.zeros(len(counts), dtype=np.uint16 if len(codes) < 2**16 else np.int64)
        rank[codes] = np.arange(len(codes))
        order = np.argsort(rank[self._ids], kind="stable")
        return order, np.concatenate([[0], np.cumsum(counts[codes])]), {int(c): at for at, c in enumerate(codes)}

    @property
    def leaves(self) -> list[int]:
        """The leaves that occur."""
        return list(self._order[2])

    def count(self, leaf: int) -> int:
        """Return how many rows have a leaf."""
        _, begins, places = self._order
        return int(begins[places[leaf] + 1] - begins[places[leaf]])

    def column(self, leaf: int) -> pa.Array:
        """Return the values of a leaf, of the rows that have it."""
        if leaf not in self._columns:
            self._columns[leaf] = self._column(leaf)
        return self._columns[leaf]

    def _column(self, leaf: int) -> pa.Array:
        order, begins, places = self._order
        picked = order[begins[places[leaf]] : begins[places[leaf] + 1]]
        match leaf % KINDS:
            case k if k in (TEXT_LEAF, OTHER, BAG):
                ends = self._ends[picked].astype(np.int64)
                starts = ends - self._values[picked] if k == TEXT_LEAF else self._starts[picked].astype(np.int64)
                return gathered(self._data, starts, ends - starts, ARROW_TYPES[k])
            case k if k == BOOL:
                return pa.array(self._values[picked] != 0)
            case k if k == REAL:
                return pa.array(self._values[picked].view(np.float64))
            case _:
                return pa.array(self._values[picked])

    def items(self, leaves: Iterable[int]) -> pa.Array:
        """Return the bytes of some leaves, in the order of rows and then of leaves."""
        order, begins, places = self._order
        parts = [order[begins[places[leaf]] : begins[places[leaf] + 1]] for leaf in leaves if leaf in places]
        picked = np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
        starts = self._starts[picked].astype(np.int64)
        return gathered(self._data, starts, self._ends[picked] - starts, pa.binary())


def take_apart(values: pa.Array) -> Apart:
    """Take the values of a dynamic column apart; none of them is null. Rows whose texts are not UTF-8 stay whole.

    While loops are not compiled, all stay whole.
    """
    if not has_loops():
        return kept_whole(values)
    stays = np.zeros(len(values), dtype=np.uint8)
    while True:
        apart = _split(values, stays)
        bad = [leaf for leaf in apart.leaves if leaf % KINDS == TEXT_LEAF and not _is_utf8(apart.column(leaf))]
        if not bad:
            return apart
        for leaf in bad:
            rows = np.flatnonzero(apart.shapes.having(leaf))
            letters = apart.column(leaf).cast(pa.binary(), safe=False).to_pylist()
            stays[[row for row, text in zip(rows.tolist(), letters, strict=True) if not _decodes(text)]] = 1


def _is_utf8(texts: pa.Array) -> bool:
    """Whether texts, which are all that their buffers hold, are UTF-8; ASCII is seen in a seventh of the time."""
    letters = texts.buffers()[2]
    if np.frombuffer(letters, np.uint8, letters.size).max(initial=0) < 128:
        return True
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decodes(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def kept_whole(values: pa.Array) -> Apart:
    """Keep each value of a dynamic column as a bag; none of them is null."""
    _, places, letters = values.buffers()
    data = np.frombuffer(letters, dtype=np.uint8) if letters else np.zeros(0, dtype=np.uint8)
    offsets = np.frombuffer(places, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    nodes, shapes = np.zeros(1, dtype=_NODE), np.zeros(min(len(values), 1), dtype=_SHAPE)
    nodes["parent"], shapes["size"] = -1, 1
    ids, none = np.full(len(values), BAG, dtype=np.int32), np.zeros(len(values), dtype=np.int64)
    return Apart(data, nodes, ids, (offsets[:-1], offsets[1:], none), shapes, none)


def _split(values: pa.Array, stays: npt.NDArray[np.uint8]) -> Apart:
    _, places, letters = values.buffers()
    data = np.frombuffer(letters, dtype=np.uint8) if letters else np.zeros(0, dtype=np.uint8)
    offsets = np.frombuffer(places, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    room = [1 << 11, max(1 << 12, len(values) * 48), 1 << 11]  # nodes, leaves and shapes
    while True:
        nodes = np.zeros(room[0] // 2 + 1, dtype=_NODE)
        nodes[0]["parent"], nodes[0]["first"], nodes[0]["next"] = -1, -1, -1
        ids, starts, ends = (np.empty(room[1], dtype=np.int32) for _ in range(3))  # zeros cost more than all else
        numbers = np.empty(room[1], dtype=np.int64)
        shapes = np.zeros(room[2] // 2 + 1, dtype=_SHAPE)
        rows = np.zeros(len(values), dtype=np.int64)
        node_slots, shape_slots = np.full(room[0], -1, dtype=np.int64), np.full(room[2], -1, dtype=np.int64)
        counts = np.array([1, 0, 0], dtype=np.int64)
        full = loops.split(
            data, offsets, stays, nodes, node_slots, ids, starts, ends, numbers, shapes, shape_slots, rows, counts
        )
        if full == 0:
            break
        room[full - 1] *= 4
    node_count, leaf_count, shape_count = counts.tolist()
    used = slice(0, leaf_count)
    return Apart(
        data, nodes[:node_count], ids[used], (starts[used], ends[used], numbers[used]), shapes[:shape_count], rows
    )


@dataclass(frozen=True, slots=True)
class Leaves:
    """The leaves of an extent: the tree they hang on, and of each its node and kind."""

    tree: Tree
    nodes: _Ints
    kinds: _Ints

    def at(self, path: str) -> AtPath:
        """Return what there can be at a path."""
        wanted, paths = path.encode("utf-8", "surrogatepass"), self.tree.paths()
        if "[" in path or not path or any(known is None for known in paths):
            return AtPath([], [], 0, is_all=False)
        nodes: set[int] = set()
        here: list[int] = []
        inside: list[int] = []
        is_all, within = True, wanted + b"."
        for leaf, (node, kind) in enumerate(zip(self.nodes.tolist(), self.kinds.tolist(), strict=True)):
            known = paths[node] or b""
            if known == wanted:
                here.append(leaf)
                nodes.add(node)
            elif known.startswith(within) and (above := self._above(node, wanted)):
                inside.append(leaf)
                nodes.add(above)
            is_all &= kind != BAG or (bool(known) and not wanted.startswith(known + b"."))
        return AtPath(here, inside, nodes.pop() if len(nodes) == 1 else 0, is_all=is_all and len(nodes) <= 1)

    def _above(self, node: int, path: bytes) -> int:
        """Find the node of a path on the way to another; 0 if keys with dots step over it."""
        paths = self.tree.paths()
        while node and paths[node] != path:
            node = self.tree.parents[node]
        return node


@dataclass(frozen=True, slots=True)
class AtPath:
    """The leaves at a path, and those below it where it is a map's.

    They are not all that can be there where two ways of keys make the same path, or a bag lies on the way: then the
    whole value must be looked at.
    """

    leaves: list[int]
    inside: list[int]
    node: int
    is_all: bool


def put_together(shapes: Shapes, leaves: Leaves, column: Callable[[int], pa.Array], root: int = 0) -> pa.Array:
    """Write values from their shapes and the columns of their leaves; the inverse of ``take_apart``.

    With another root, the shapes have leaves below it, and the values are the maps that they make there.
    """
    if not has_loops():
        return plain_shredding.put_together(
            shapes, leaves, column, root=root, constants={NULL: b"\xf6", EMPTY: b"\xa0"}, raw=(OTHER, BAG)
        )
    present = np.unique(shapes.leaves).tolist()
    cursors = np.zeros(len(leaves.kinds), dtype=np.int64)
    numbers, texts = [np.zeros(0, dtype=np.int64)], []
    number_count = text_count = 0
    for leaf in present:
        kind = int(leaves.kinds[leaf])
        if kind not in WITH_VALUES:
            continue
        values = column(leaf)
        if kind in (TEXT_LEAF, OTHER, BAG):
            cursors[leaf] = text_count
            texts.append(values.cast(pa.binary()) if kind == TEXT_LEAF else values)
            text_count += len(values)
        else:
            cursors[leaf] = number_count
            numbers.append(_as_int64(values, kind))
            number_count += len(values)
    joined = pa.concat_arrays(texts) if texts else pa.array([], pa.binary())
    _, places, letters = joined.buffers()
    text_offsets = np.frombuffer(places, np.int32)[joined.offset :] if places else np.zeros(1, dtype=np.int32)
    text = np.frombuffer(letters, np.uint8) if letters else np.zeros(0, dtype=np.uint8)
    literal_offsets, literals = _templates(shapes, leaves, root)
    kinds = leaves.kinds.astype(np.uint8)
    sizes = np.diff(literal_offsets) + 9
    per_shape = np.add.reduceat(np.append(sizes, 0), shapes.offsets[:-1]) if len(shapes.offsets) > 1 else sizes[:0]
    per_shape = np.where(np.diff(shapes.offsets) > 0, per_shape, 0)
    out = np.empty(int(per_shape[shapes.rows].sum()) + len(text), dtype=np.uint8)
    out_offsets = np.zeros(len(shapes.rows) + 1, dtype=np.int64)
    size = loops.assemble(
        shapes.rows, shapes.offsets, shapes.leaves, kinds, literal_offsets, literals, cursors,
        np.concatenate(numbers), text_offsets, text, out, out_offsets,
    )  # fmt: skip
    if size >= 2**31:
        raise ValueError("values of more than two gigabytes")
    buffers = [None, pa.py_buffer(out_offsets.astype(np.int32)), pa.py_buffer(out[:size])]
    return pa.Array.from_buffers(pa.binary(), len(shapes.rows), buffers, 0)


def gathered(data: Any, starts: _Ints, lengths: _Ints, kind: pa.DataType) -> pa.Array:
    """Copy texts that lie here and there into one array."""
    offsets = np.zeros(len(starts) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    cbor_loops.copy(data, starts, lengths, offsets, out)
    return pa.Array.from_buffers(kind, len(starts), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)])


def _templates(shapes: Shapes, leaves: Leaves, root: int) -> tuple[_Ints, npt.NDArray[np.uint8]]:
    parents = np.array(leaves.tree.parents, dtype=np.int64)
    key_offsets = np.concatenate([[0], np.cumsum([len(key) for key in leaves.tree.keys])]).astype(np.int64)
    keys = np.frombuffer(b"".join(leaves.tree.keys) or b"\0", dtype=np.uint8)
    depths, room = leaves.tree.depths(), 64 * len(shapes.leaves) + 1024
    while True:
        out, offsets = np.empty(room, dtype=np.uint8), np.zeros(len(shapes.leaves) + 1, dtype=np.int64)
        size = loops.templates(
            shapes.offsets, shapes.leaves, leaves.nodes, leaves.kinds, parents, depths, key_offsets, keys, root, out,
            offsets,
        )  # fmt: skip
        if size >= 0:
            return offsets, out[:size]
        room *= 4


def _as_int64(values: pa.Array, kind: int) -> _Ints:
    if kind == BOOL:
        return np.asarray(values.cast(pa.int8()).to_numpy(zero_copy_only=False), dtype=np.int64)
    return np.asarray(values.to_numpy(zero_copy_only=False)).view(np.int64)


def joined_leaves(blocks: Sequence[Apart]) -> tuple[Leaves, list[dict[int, int]]]:
    """Unite the leaves of the blocks of an extent; the second answer numbers each block's own among them."""
    tree, numbers, maps = Tree(), dict[int, int](), []
    for apart in blocks:
        nodes = [0]
        for parent, key in zip(apart.parents[1:], apart.keys[1:], strict=True):
            nodes.append(tree.node_of(nodes[parent], key))
        own = {leaf: nodes[leaf // KINDS] * KINDS + leaf % KINDS for leaf in apart.leaves}
        maps.append({leaf: numbers.setdefault(code, len(numbers)) for leaf, code in own.items()})
    codes = np.fromiter(numbers, dtype=np.int64, count=len(numbers))
    return Leaves(tree, codes // KINDS, codes % KINDS), maps
