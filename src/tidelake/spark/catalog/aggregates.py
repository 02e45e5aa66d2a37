"""Answer counts, minima and maxima from statistics, and find where the first rows by time must lie.

An answer is given only if it is exactly what a scan would give: of tables without a key (versions hide one another), of
columns whose values lie nowhere else (misfits, promoted paths), and of bounds that occur in the rows. Hot rows have no
statistics and are looked at. In any other case there is no answer, and Spark reads. It does not read extents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from tidelake.handle.table_handle import TableHandle
from tidelake.model.predicate import TimeRange
from tidelake.model.schema import DataType
from tidelake.model.settings import TableSettings
from tidelake.pruning.plan import ScanPlan, stats_of
from tidelake.pruning.statistics import ColumnStats
from tidelake.scan.extents import scan
from tidelake.spark.first_rows import NS_A_TICK
from tidelake.spark.options import known_options
from tidelake.spark.places import open_table
from tidelake.spark.plans import figures
from tidelake.spark.types import arrow_schema, spark_names, spark_schema, spark_type, to_spark

NO_ANSWER: dict[str, Any] = {}
EXACT_REALS = 2**53  # below it every whole number is a real
NS_A_DAY = 86_400 * 10**9


class _Unknown(Exception):
    """Statistics do not tell."""


def aggregate(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the one row of some functions of all rows of a table, or no rows where only a scan can tell."""
    table = _whole_table(question["options"])
    if table is None:
        return NO_ANSWER
    own = spark_names(table.schema)
    names = list(dict.fromkeys(own.get(each["column"]) for each in question["functions"] if "column" in each))
    if None in names:
        return NO_ANSWER
    columns = [name for name in names if name is not None]
    plan = table.outline(columns, None, stats=columns)
    if not columns:
        counted = plan.snapshot.totals
        return _told([("count", t.LongType(), counted.rows + counted.hot_rows)] * len(question["functions"]))
    try:
        known = {name: _column(plan, name, hot) for name, hot in _hot_columns(table, plan, columns).items()}
    except _Unknown:
        return NO_ANSWER
    rows = sum(task.extent.row_count for task in plan.tasks) + sum(batch.rows for batch in plan.hot)
    cells: list[tuple[str, t.DataType, Any]] = []
    for each in question["functions"]:
        name = own[each["column"]] if "column" in each else None
        if each["name"] == "count":
            cells.append(("count", t.LongType(), rows - (0 if name is None else known[name]["nulls"])))
        elif name is None or known[name][each["name"]] is ...:
            return NO_ANSWER
        else:
            cells.append((each["name"], spark_type(table.schema[name].type), known[name][each["name"]]))
    return _told(cells)


def top(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return a condition that so many rows satisfy which come first by time, and perhaps others."""
    table = _whole_table(question["options"])
    if table is None:
        return NO_ANSWER
    time = TableSettings.of(table.snapshot.settings).time
    if time is None or spark_names(table.schema).get(question["column"]) != time:
        return NO_ANSWER
    plan = table.outline([time], None)
    if time in plan.question.alternatives:
        return NO_ANSWER
    pieces = [(task.extent.min_ts_ns, task.extent.max_ts_ns, task.extent.row_count) for task in plan.tasks]
    pieces += [(batch.min_ts_ns, batch.max_ts_ns, batch.rows) for batch in plan.hot]
    bound = _bound_of(pieces, question["limit"], descending=question["descending"])
    if bound is None:
        return NO_ANSWER
    tick = bound // NS_A_TICK * NS_A_TICK
    wanted = TimeRange(time, tick, None) if question["descending"] else TimeRange(time, None, tick + NS_A_TICK)
    return {"where": repr(wanted)}


def planned(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a plan that this process made."""
    return dict(figures(question["plan"]))


def _whole_table(given: Mapping[str, str]) -> TableHandle | None:
    """Open a table all of whose rows are asked for, each of them stored once; None for any other."""
    options = known_options(given, "batch")
    if "where" in options or "users" in options:
        return None
    table = open_table(options).pinned()
    return None if table.snapshot.is_keyed else table


def _bound_of(pieces: Iterable[tuple[int | None, int | None, int]], wanted: int, *, descending: bool) -> int | None:
    """Return the last time of some pieces that come first and have rows enough; None if that is not known."""
    sided: list[tuple[int, int]] = []
    for low, high, rows in pieces:
        bound = low if descending else high
        if bound is None:
            return None
        sided.append((-bound if descending else bound, rows))
    found = 0
    for bound, rows in sorted(sided):
        found += rows
        if found >= wanted:
            return -bound if descending else bound
    return None


def _hot_columns(table: TableHandle, plan: ScanPlan, columns: Sequence[str]) -> dict[str, pa.ChunkedArray | None]:
    """Return the hot rows' columns as Spark sees them."""
    if not plan.hot:
        return dict.fromkeys(columns)
    schema = arrow_schema(spark_schema(table.schema, plan.question.columns))
    kinds = {column.name: column.type for column in plan.question.schema}
    rows = [to_spark(batch, schema, kinds) for batch in scan(replace(plan, tasks=()), table.footers)]
    shown = pa.Table.from_batches(rows, schema)
    return {name: shown.column(at) for at, name in enumerate(plan.question.columns) if name in columns}


def _column(plan: ScanPlan, name: str, hot: pa.ChunkedArray | None) -> dict[str, Any]:
    """Return how many nulls a column has, its minimum and its maximum as Spark keeps them; ``...`` is not known."""
    kind = plan.question.schema[name].type
    if name in plan.question.alternatives:
        raise _Unknown
    nulls = 0
    found: dict[str, list[Any]] = {"min": [], "max": []}
    for task in plan.tasks:
        known = stats_of(task.extent, plan.question).columns.get(name)
        if known is None or known.nulls is None:
            raise _Unknown
        nulls += known.nulls
        if known.nulls < task.extent.row_count:
            found["min"].append(_of_bound(known, known.low, kind))
            found["max"].append(_of_bound(known, known.high, kind))
    if hot is not None:
        nulls += hot.null_count
        if hot.null_count < len(hot):
            low, high = _of_rows(hot, kind)
            found["min"].append(low)
            found["max"].append(high)
    return {
        "nulls": nulls,
        "min": ... if ... in found["min"] else _of_reals(min(found["min"], default=None)),
        "max": ... if ... in found["max"] else _of_reals(max(found["max"], default=None)),
    }


def _of_bound(known: ColumnStats, bound: Any, kind: DataType) -> Any:
    """Return a bound that occurs as Spark keeps it; ``...`` for one that only bounds, or has no such form."""
    if bound is None or not known.tight:
        return ...
    match _sort_of(kind):
        case "int" | "long" if type(bound) is int:
            return bound
        case "bool" if type(bound) is bool:
            return bound
        case "string" if type(bound) is str:
            return bound
        case "real" if type(bound) in (int, float) and math.isfinite(bound) and abs(bound) < EXACT_REALS:
            return float(bound)
        case "timestamp" | "timestamp_ntz" if type(bound) is int and bound % 1000 == 0:
            return bound // 1000
        case "date" if type(bound) is int and bound % NS_A_DAY == 0:
            return bound // NS_A_DAY
        case _:
            return ...


def _of_rows(column: pa.ChunkedArray, kind: DataType) -> tuple[Any, Any]:
    """Return minimum and maximum of rows that Spark would be given."""
    match _sort_of(kind):
        case "int" | "long" | "bool" | "string":
            values = column
        case "real":
            if pc.any(pc.is_nan(column)).as_py():
                return ..., ...
            values = column
        case "timestamp" | "timestamp_ntz":
            values = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        case "date":
            values = column.cast(pa.int32())
        case _:
            return ..., ...
    found = pc.min_max(values)
    low, high = found["min"].as_py(), found["max"].as_py()
    return (..., ...) if isinstance(low, float) and not (math.isfinite(low) and math.isfinite(high)) else (low, high)


def _of_reals(value: Any) -> Any:
    """Leave a zero open, of which there are two that compare as equal."""
    return ... if isinstance(value, float) and value == 0.0 else value


def _sort_of(kind: DataType) -> str:
    return kind.kind if kind.logical is None else kind.logical.kind


def _told(cells: Sequence[tuple[str, t.DataType, Any]]) -> dict[str, Any]:
    fields = [t.StructField(f"{name}_{at}", kind) for at, (name, kind, _) in enumerate(cells)]
    return {"schema": t.StructType(fields).json(), "rows": [[value for _, _, value in cells]]}
