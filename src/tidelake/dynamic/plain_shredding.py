"""Keep dynamic values whole, and put those that were taken apart together again, without compiled loops.

Taking values apart is what a compiler is needed for. While there is none, each value is one *bag*, which is as right as
its leaves are, and what is stored so is taken apart when it is written again. Putting values together is done for all
rows of a shape at once. It does not choose when this is the way: ``shredding`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic.cbor_encode import encoded

if TYPE_CHECKING:
    from tidelake.dynamic.shredding import Leaves, Shapes

_MAP, _TEXT = 5, 3  # major types of CBOR

_Ints = npt.NDArray[np.int64]


def put_together(
    shapes: Shapes,
    leaves: Leaves,
    column: Callable[[int], pa.Array],
    *,
    root: int,
    constants: dict[int, bytes],
    raw: Sequence[int],
) -> pa.Array:
    """Write values from their shapes and the columns of their leaves, as ``shredding.put_together`` says.

    ``constants`` are the bytes of kinds that have no values, ``raw`` the kinds whose values are CBOR already.
    """
    counts = np.diff(shapes.offsets)
    written: dict[int, tuple[pa.Array, _Ints]] = {}  # of each leaf: its values, and where each row's lies
    for leaf in np.unique(shapes.leaves).tolist():
        if (kind := int(leaves.kinds[leaf])) not in constants:
            values = column(leaf)
            places = np.cumsum(shapes.having(leaf)) - 1
            written[leaf] = (values.cast(pa.binary()) if kind in raw else encoded(values), places)
    order = np.argsort(shapes.rows, kind="stable")
    ends = np.cumsum(np.bincount(shapes.rows, minlength=len(counts)))
    found = []
    for shape in np.unique(shapes.rows).tolist():
        rows = order[ends[shape - 1] if shape else 0 : ends[shape]]
        own = shapes.leaves[shapes.offsets[shape] : shapes.offsets[shape + 1]].tolist()
        found.append(_joined(_literals(own, leaves, root, constants), own, written, rows))
    if not found:
        return pa.array([], pa.binary())
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return pa.concat_arrays(found).take(pa.array(places))


def _joined(literals: Sequence[bytes], own: Sequence[int], written: Any, rows: _Ints) -> pa.Array:
    """Write the values of the rows of one shape."""
    parts: list[Any] = []
    for literal, leaf in zip(literals, own, strict=True):
        parts.append(pa.scalar(literal, pa.binary()))
        if leaf in written:
            values, places = written[leaf]
            parts.append(values.take(pa.array(places[rows])))
    if not any(isinstance(part, pa.Array) for part in parts):
        return pa.array([b"".join(literals)] * len(rows), pa.binary())
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


def _literals(own: Sequence[int], leaves: Leaves, root: int, constants: dict[int, bytes]) -> list[bytes]:
    """Return what comes before the value of each leaf of a shape: keys, and heads of maps."""
    ways = [_way(int(leaves.nodes[leaf]), leaves, root) for leaf in own]
    entered = []  # of each leaf, the nodes on its way that the leaf before it has not
    children: dict[int, int] = {}
    before: list[int] = []
    for way in ways:
        shared = next((at for at, (a, b) in enumerate(zip(way, before, strict=False)) if a != b), len(before))
        entered.append(way[min(shared, len(way)) :])
        for at in range(len(way) - len(entered[-1]), len(way)):
            parent = way[at - 1] if at else root
            children[parent] = children.get(parent, 0) + 1
        before = way
    found = []
    for at, (leaf, nodes) in enumerate(zip(own, entered, strict=True)):
        parts = [_head(_MAP, children[root])] if at == 0 and ways[0] else []
        for node in nodes:
            key = leaves.tree.keys[node]
            parts += [_head(_TEXT, len(key)), key]
            if node != nodes[-1]:
                parts.append(_head(_MAP, children[node]))
        parts.append(constants.get(int(leaves.kinds[leaf]), b""))
        found.append(b"".join(parts))
    return found


def _way(node: int, leaves: Leaves, root: int) -> list[int]:
    """Return the nodes from below the root to a node."""
    way = []
    while node != root:
        way.append(node)
        node = leaves.tree.parents[node]
    return way[::-1]


def _head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    width = next(width for width in (1, 2, 4, 8) if argument < 1 << (8 * width))
    return bytes([major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[width]]) + argument.to_bytes(width, "big")
