"""Answer counts, least and most values from the manifest, and read only what the manifest cannot answer.

A query is of the right shape when it asks ``count(*)``, ``count(column)``, ``min(column)`` or ``max(column)`` of one
table, with conditions that a scan answers exactly. An extent whose statistics prove that every row is wanted gives its
part without being read; so the count of a time range reads the extents at its two ends, and a count of everything none.
Statistics that are missing or loose prove nothing: such an extent is read. It does not change what a query gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidelake.handle.table_handle import TableHandle
from tidelake.logical import shown
from tidelake.model.logical_types import Logical
from tidelake.model.schema import DataType
from tidelake.pruning.outcomes import TRUE, outcomes
from tidelake.pruning.plan import ExtentTask, Question, ScanPlan, Stage, stats_of
from tidelake.pruning.statistics import ColumnStats
from tidelake.query.bind import Bound, Reference
from tidelake.query.conjuncts import Pushed, both, conjuncts_of, pushed
from tidelake.query.join_keys import cte_of
from tidelake.query.pushdown import grows_within, is_plain_select, substituted
from tidelake.scan.extents import scan
from tidelake.scan.footers import Footers
from tidelake.scan.scannable import MemoryRows, Scannable

_EXACT_LOGICAL = (None, Logical("date"), Logical("timestamp_ntz"))  # whose bounds are given as they are meant
_EXACT_KINDS = ("int", "long", "real", "bool", "string", "timestamp")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One output: what is asked of which column; a count of rows has none."""

    kind: Literal["count", "min", "max"]
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """A query that asks one table for a few aggregates."""

    reference: Reference
    outputs: tuple[Aggregate, ...]
    where: Pushed | None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.column for each in self.outputs if each.column is not None))


@dataclass(frozen=True, slots=True)
class Answered:
    """What the manifest gave: one value for each output so far, and the plan of what is left to read."""

    parts: tuple[Any, ...]
    plan: ScanPlan
    extents: int


def shape_of(bound: Bound) -> Shape | None:
    """Recognise a query of the right shape, or give None."""
    tree = _within(bound.tree)
    if tree is None or not _aggregates_only(tree):
        return None
    outputs = {each.alias_or_name: each.unalias() for each in tree.expressions}
    conditions: list[exp.Expr] = []
    select: exp.Select = tree
    while True:
        where = select.args.get("where")
        conditions += conjuncts_of(where.this if where is not None else None)
        source = select.args["from_"].this
        if isinstance(source, exp.Table) and source.name in bound.references:
            return _shape(bound.references[source.name], outputs, conditions)
        inner = _inner(source)
        if inner is None or not is_plain_select(inner):
            return None
        names = {each.alias_or_name: each.unalias() for each in inner.expressions}
        if not all(grows_within(each, names) for each in (*outputs.values(), *conditions)):
            return None
        try:
            outputs = {name: substituted(each, names) for name, each in outputs.items()}
            conditions = [substituted(each, names) for each in conditions]
        except KeyError:
            return None
        select = inner


def from_manifest(shape: Shape, table: Scannable) -> Answered:
    """Take from the manifest what it can answer, and plan the rest."""
    own = shape.reference.spelled
    columns = [own[name] for name in shape.columns]
    where = None if shape.where is None else shape.where.predicate
    if where is None and not columns and not table.snapshot.is_keyed and isinstance(table, TableHandle | MemoryRows):
        return _all_rows(shape, table)
    plan = table.outline(columns, where, stats=columns)
    left: list[ExtentTask] = []
    parts: list[Sequence[Any]] = []
    for task in plan.tasks:
        found = _part(shape, task, plan)
        if found is None:
            left.append(task)
        else:
            parts.append(found)
    rows, size = sum(task.extent.row_count for task in left), sum(task.extent.byte_size for task in left)
    stage = Stage("manifest answers", len(left), rows, size)
    rest = replace(plan, tasks=tuple(left), stages=(*plan.stages, stage))
    return Answered(tuple(_merged(shape, parts)), rest, len(parts))


def finish(shape: Shape, answered: Answered, footers: Footers, names: Sequence[str]) -> pa.Table:
    """Read what is left, and give the one row of the answer."""
    parts: list[Sequence[Any]] = [answered.parts]
    if answered.plan.tasks or answered.plan.hot:
        parts += [_part_of_rows(shape, batch) for batch in scan(answered.plan, footers)]
    values = _merged(shape, parts)
    arrays = [
        pa.array([value], pa.int64())
        if each.kind == "count"
        else _array(value, shape.reference.types[each.column or ""])
        for value, each in zip(values, shape.outputs, strict=True)
    ]
    return pa.table(arrays, names=list(names))


def _all_rows(shape: Shape, table: Scannable) -> Answered:
    """Count the rows of a snapshot, whose totals say how many: no extent is listed."""
    snapshot = table.snapshot
    totals = snapshot.totals
    stages = (
        Stage("snapshot", totals.extents, totals.rows, totals.bytes),
        Stage("manifest answers", 0, 0, 0),
    )
    plan = ScanPlan(table.name, snapshot, Question(snapshot.schema, ()), (), (), stages)
    return Answered(tuple(totals.rows + totals.hot_rows for _ in shape.outputs), plan, totals.extents)


def _within(tree: exp.Expr) -> exp.Select | None:
    """Look through selects that only hand on the columns of another, in their order."""
    while isinstance(tree, exp.Select):
        columns = [each.unalias() for each in tree.expressions]
        if not all(isinstance(each, exp.Column) for each in columns) or not is_plain_select(tree):
            return tree
        inner = _inner(tree.args["from_"].this) if tree.args.get("where") is None else None
        if inner is None or [each.name for each in columns] != inner.named_selects:
            return tree
        tree = inner
    return None


def _aggregates_only(select: exp.Select) -> bool:
    if not is_plain_select(select, aggregates=True) or not select.expressions:
        return False
    return all(isinstance(each.unalias(), exp.Count | exp.Min | exp.Max) for each in select.expressions)


def _inner(source: exp.Expr) -> exp.Select | None:
    inner: Any = source.this if isinstance(source, exp.Subquery) else None
    if isinstance(source, exp.Table):
        cte = cte_of(source)
        inner = cte.this if cte is not None and not cte.args["alias"].columns else None
    return inner if isinstance(inner, exp.Select) else None


def _shape(reference: Reference, outputs: Mapping[str, exp.Expr], conditions: Sequence[exp.Expr]) -> Shape | None:
    aggregates = [_aggregate(each, reference.types) for each in outputs.values()]
    asked = [pushed(each, reference.types, reference.spelled) for each in conditions]
    known = [each for each in asked if each is not None and each.exact]
    wanted = tuple(each for each in aggregates if each is not None)
    if len(wanted) < len(aggregates) or len(known) < len(asked):
        return None
    return Shape(reference, wanted, both(known))


def _aggregate(node: exp.Expr, types: Mapping[str, DataType]) -> Aggregate | None:
    if node.args.get("big_int") is False or node.args.get("expressions"):
        return None
    subject = node.this
    if isinstance(node, exp.Count) and (isinstance(subject, exp.Star) or _is_constant(subject)):
        return Aggregate("count")
    if not isinstance(subject, exp.Column) or subject.name not in types:
        return None
    if not isinstance(node, exp.Count) and types[subject.name].logical not in _EXACT_LOGICAL:
        return None
    if types[subject.name].kind not in _EXACT_KINDS:
        return None
    kind: Literal["count", "min", "max"] = (
        "count" if isinstance(node, exp.Count) else "min" if isinstance(node, exp.Min) else "max"
    )
    return Aggregate(kind, subject.name)


def _is_constant(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Literal)


def _part(shape: Shape, task: ExtentTask, plan: ScanPlan) -> Sequence[Any] | None:
    """Return what one extent adds, if its statistics prove that all its rows are wanted and know each value.

    Where newer versions hide some of its rows, statistics only know how many are left.
    """
    extent, hidden = task.extent, 0 if task.dead is None else len(task.dead)
    if hidden and any(each.column is not None for each in shape.outputs):
        return None
    stats = stats_of(extent, plan.question)
    if plan.question.where is not None and outcomes(plan.question.where, stats) != TRUE:
        return None
    values: list[Any] = []
    for each in shape.outputs:
        if each.column is None:
            values.append(extent.row_count - hidden)
            continue
        known = stats.columns[shape.reference.spelled[each.column]]
        found = _known_value(each, known, extent.row_count, shape.reference.types[each.column])
        if found is _UNKNOWN:
            return None
        values.append(found)
    return values


_UNKNOWN: Any = object()


def _known_value(each: Aggregate, known: ColumnStats, rows: int, kind: DataType) -> Any:
    if known.nulls is None:
        return _UNKNOWN
    if each.kind == "count":
        return rows - known.nulls
    if known.nulls == rows:
        return None
    bound = known.low if each.kind == "min" else known.high
    if bound is None or not known.tight:
        return _UNKNOWN
    if kind.kind == "timestamp":
        return bound // 1000 if isinstance(bound, int) and bound % 1000 == 0 else _UNKNOWN
    return float(bound) if kind.kind == "real" and not isinstance(bound, str) else bound


def _part_of_rows(shape: Shape, batch: pa.RecordBatch) -> list[Any]:
    values: list[Any] = []
    for each in shape.outputs:
        if each.column is None:
            values.append(batch.num_rows)
            continue
        column = batch.column(shape.reference.spelled[each.column])
        if each.kind == "count":
            values.append(batch.num_rows - column.null_count)
        else:
            values.append(_extreme_of(each.kind, column))
    return values


def _extreme_of(kind: str, column: pa.Array) -> Any:
    """Return the least or most value; NaN is above every number, which Arrow leaves out."""
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    if pa.types.is_floating(column.type):
        nans = pc.sum(pc.is_nan(column)).as_py() or 0
        if nans and (kind == "max" or nans == len(column) - column.null_count):
            return math.nan
    if pa.types.is_string(column.type):
        found = pc.min_max(column.view(pa.binary())).as_py()[kind]
        return None if found is None else found.decode()
    return pc.min_max(column).as_py()[kind]


def _merged(shape: Shape, parts: Iterable[Sequence[Any]]) -> list[Any]:
    """Add counts, and keep the least and the most; null is nothing."""
    columns = list(zip(*parts, strict=True)) or [() for _ in shape.outputs]
    merged: list[Any] = []
    for each, values in zip(shape.outputs, columns, strict=True):
        held = [value for value in values if value is not None]
        if each.kind == "count":
            merged.append(sum(held))
        elif not held:
            merged.append(None)
        else:
            merged.append((min if each.kind == "min" else max)(held, key=_order))
    return merged


def _order(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _array(value: Any, kind: DataType) -> pa.Array:
    if kind.kind == "timestamp":
        return shown(pa.array([value], pa.int64()).view(kind.arrow), kind)
    return shown(pa.array([value], kind.arrow), kind)
