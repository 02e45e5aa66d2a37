"""Make typed columns of dynamic paths: those that are named, or those that have settled on one type.

A path has settled if it has a scalar of one type in at least ``STABLE_ROWS`` of the last ``WINDOW_ROWS`` rows, and no
other in them. Whole numbers and others together are real, as in coercion; null is no type. It does not move values that
are stored: reads unite them with the column's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidelake.dynamic import cbor
from tidelake.errors import SchemaError, TidelakeError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.schema import OVERFLOW_COLUMN, DataType, Schema
from tidelake.model.settings import PROMOTED, TableSettings, columns_under
from tidelake.model.snapshot import Snapshot
from tidelake.pruning.plan import Question, make_plan
from tidelake.scan.extents import prune_blocks, scan
from tidelake.write.alter import refuse_of_user, widen

WINDOW_ROWS = 1_000
STABLE_ROWS = 100
MAX_PATHS = 2_000  # looked at in one column: a value with more keys is a map, and its keys are data

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


def promote(table: TableHandle, path: str, type: str | DataType, *, name: str | None = None) -> Schema:
    """Make a typed column of a dynamic path, as ``Table.promote`` says."""
    table.refuse_when_pinned()
    refuse_of_user(table)
    kind = DataType.parse(type) if isinstance(type, str) else type
    snapshot = table.snapshot
    column, _, inner = path.partition(".")
    if not inner or column not in snapshot.schema or snapshot.schema[column].type.kind != "dynamic":
        raise SchemaError("promote takes a path into a dynamic column, such as attributes.http.status", path=path)
    if kind.logical or kind.kind not in ("int", "long", "real", "bool", "string"):
        raise SchemaError("a path is promoted to int, long, real, bool or string", path=path, type=kind)
    target = name or inner.replace(".", "_")
    if target in snapshot.schema and snapshot.settings.get(PROMOTED + target) != [column, inner]:
        raise SchemaError(
            "a path is promoted to a column of its own: give another name=", path=path, column=target, kind="taken"
        )
    return widen(table, [(target, kind)], {PROMOTED + target: [column, inner]})


def promotable(table: TableHandle) -> list[Promotable]:
    """Return the dynamic paths that have settled on one type in the newest rows, the most frequent first."""
    table.check_user_given()
    snapshot = table.snapshot
    promoted = {tuple(place) for _, place in columns_under(PROMOTED, snapshot.settings)}
    found: list[Promotable] = []
    for column in snapshot.schema:
        if column.type.kind == "dynamic" and column.type.logical is None:
            known = {path for name, path in promoted if name == column.name}
            if column.name == OVERFLOW_COLUMN:  # there, a column's name has what did not fit the column
                known |= set(snapshot.schema.names)
            newest = _newest(table, snapshot, column.name, WINDOW_ROWS)
            found.extend(settled_paths(column.name, newest, known=known))
    return sorted(found, key=lambda each: (-each.rows, each.path))


def promote_settled(table: TableHandle, head: Snapshot) -> None:
    """Promote what has settled, if the table was told to; the rows are in, so nothing here fails the caller."""
    if not TableSettings.of(head.settings).promote:
        return
    with suppress(TidelakeError):  # tried again after the next extent
        for each in promotable(table):
            with suppress(SchemaError):  # the name is taken, or cannot be a column's
                promote(table.whole, each.path, each.type)


def settled_paths(column: str, values: pa.Array, *, known: Collection[str]) -> Iterator[Promotable]:
    """Judge the paths of a dynamic column by its newest rows, but for those that are known already."""
    found = cbor.PathTable().add(values.drop_null())
    if found is None or len(found.paths) > MAX_PATHS:
        return
    for path in found.paths:
        if path in known:
            continue
        kinds = cbor.extract(values, path).kinds
        present = kinds[(kinds != cbor.MISSING_KIND) & (kinds != cbor.NULL_KIND)]
        type = _TYPES.get(frozenset(np.unique(present).tolist()))
        if type is not None and len(present) >= STABLE_ROWS:
            yield Promotable(f"{column}.{path}", DataType.parse(type), len(present), len(values))


def _newest(table: TableHandle, snapshot: Snapshot, column: str, count: int) -> pa.Array:
    """Return the values of a column in the newest rows: hot ones, then those at the end of the newest extents."""
    parts, left = list[pa.Array](), count
    question = Question(snapshot.schema, (column,))
    hot = table.hot(snapshot)
    if hot:
        plan = make_plan(table.name, snapshot, question, [], hot)
        parts.append(_tail(scan(plan, table.footers).read_all()[column], left))
        left -= len(parts[0])
    listed = table.catalog.extents(table.scope, sequence=snapshot.sequence) if left > 0 else []
    extents = sorted(listed, key=lambda extent: extent.added_seq)
    while left > 0 and extents:
        plan = prune_blocks(make_plan(table.name, snapshot, question, [extents.pop()], []), table.footers, prune=False)
        for task in plan.tasks:
            last = replace(task, blocks=(task.blocks or ())[-1:])
            parts.append(_tail(scan(replace(plan, tasks=(last,)), table.footers).read_all()[column], left))
            left -= len(parts[-1])
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())


def _tail(values: pa.ChunkedArray, count: int) -> pa.Array:
    """Return the last values as one array."""
    last = values.slice(max(0, len(values) - count)).combine_chunks()
    return last if isinstance(last, pa.Array) else pa.concat_arrays(last.chunks or [pa.array([], values.type)])
