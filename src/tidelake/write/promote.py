"""Find dynamic paths that have settled on one type, and so may become columns.

The rule: a path that has a scalar of one type in at least ``STABLE_ROWS`` of the last ``WINDOW_ROWS`` rows, and no
other in them. Whole numbers and others together are real, as in coercion; null is no type. It does not change tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelake.dynamic import cbor
from tidelake.model.schema import DataType

WINDOW_ROWS = 1_000
STABLE_ROWS = 100
MOST_PATHS = 2_000  # looked at in one column: a value with more keys is a map, and its keys are data

_TYPES = {
    frozenset({cbor.INT_KIND}): "long",
    frozenset({cbor.REAL_KIND}): "real",
    frozenset({cbor.INT_KIND, cbor.REAL_KIND}): "real",
    frozenset({cbor.TRUE_KIND}): "bool",
    frozenset({cbor.FALSE_KIND}): "bool",
    frozenset({cbor.TRUE_KIND, cbor.FALSE_KIND}): "bool",
    frozenset({cbor.TEXT_KIND}): "string",
}


@dataclass(frozen=True, slots=True)
class Promotable:
    """A path that may be promoted: its type, and in how many of the newest rows it has a value."""

    path: str
    type: DataType
    rows: int
    of: int

    def __str__(self) -> str:
        return f"{self.path}: {self.type} in {self.rows:,} of the last {self.of:,} rows"


def settled_paths(column: str, values: pa.Array, *, known: Collection[str]) -> Iterator[Promotable]:
    """Judge the paths of a dynamic column by its newest rows, but for those that are known already."""
    found = cbor.PathTable().add(values.drop_null())
    if found is None or len(found.paths) > MOST_PATHS:
        return
    for path in found.paths:
        if path in known:
            continue
        kinds = cbor.extract(values, path).kinds
        present = kinds[(kinds != cbor.MISSING_KIND) & (kinds != cbor.NULL_KIND)]
        type = _TYPES.get(frozenset(np.unique(present).tolist()))
        if type is not None and len(present) >= STABLE_ROWS:
            yield Promotable(f"{column}.{path}", DataType.parse(type), len(present), len(values))
