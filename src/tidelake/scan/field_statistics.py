"""Sum up what statistics know of a table's columns, and of the paths in its dynamic ones, without reading an extent.

Extents' statistics are those that the catalog lists; hot rows, which it holds too, are looked at themselves if whoever
asks hands them in. What one extent does not know, the whole does not know. It does not ask a catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from tidelake.model.schema import OVERFLOW_COLUMN, Column, DataType
from tidelake.model.snapshot import Extent, HotBatch
from tidelake.model.times import time_text
from tidelake.pruning.statistics import UNKNOWN, ColumnStats, Stats, column_from_json, merge_columns
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    from tidelake.pruning.plan import Question

logical, pa = deferred("tidelake.logical"), deferred("pyarrow")  # only tables with logical types need them
collector, stored_rows = deferred("tidelake.pruning.collector"), deferred("tidelake.scan.stored_rows")  # and hot rows

PATHS_SHOWN = 1_000  # of one column


@dataclass(frozen=True, slots=True)
class PathStatistics:
    """What is known of one path in a dynamic column: how many rows may have it, and the bounds of its numbers."""

    path: str
    rows: int  # of the extents that have it
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """What is known of one column; a bound of None is not known, or there is no value."""

    column: Column
    nulls: int | None
    low: Any
    high: Any
    distinct: tuple[Any, ...] | None  # every value, where they are few
    misfits: int = 0  # values that did not fit the column
    paths: tuple[PathStatistics, ...] = field(default=())


def field_statistics(
    columns: Iterable[Column], extents: Sequence[Extent], hot: Stats | None = None
) -> list[FieldStatistics]:
    """Return what is known of each of some columns."""
    misfits = _misfits(extents, hot)
    return [_of_column(column, extents, hot, misfits) for column in columns]


def merged_stats(extents: Iterable[Extent], column: Column, hot: Stats | None = None) -> ColumnStats:
    """Return what all extents, and hot rows, know of a column together; without what is costly to merge."""
    parts = [(_known(extent, column.name), extent.row_count) for extent in extents]
    if hot is not None and hot.rows:
        parts.append((_listed(hot.columns.get(column.name, UNKNOWN)), hot.rows))
    if column.type.kind == "dynamic":  # bounds are of the type that it had where it was written
        parts = [(ColumnStats(nulls=each.nulls), rows) for each, rows in parts]
    return reduce(_merged, parts)[0] if parts else UNKNOWN


def describe_hot(hot: Sequence[HotBatch], question: Question) -> Stats:
    """Describe hot rows, in a table's columns as they are now, as statistics describe the rows of an extent."""
    rows = stored_rows.hot_versions_of(hot, stored_rows.Shape.of(question, question.schema.names))
    found: Stats = collector.collect([rows], question.schema)[1]
    return found


def shown_bound(kind: DataType, bound: Any) -> Any:
    """Return a bound as it reads best: times as RFC 3339, truths as such, logical types as they are meant."""
    if bound is None:
        return None
    if kind.kind == "timestamp":
        text = time_text(int(bound))
        return text if kind.logical is None else text.removesuffix("Z")
    if kind.logical is not None and kind.kind != "dynamic":
        [meant] = logical.shown(pa.array([bound], kind.arrow), kind).to_pylist()
        return str(meant)
    return bool(bound) if kind.kind == "bool" else bound


def _of_column(
    column: Column, extents: Sequence[Extent], hot: Stats | None, misfits: Mapping[str, int]
) -> FieldStatistics:
    known = merged_stats(extents, column, hot)
    low, high = (shown_bound(column.type, bound) for bound in (known.low, known.high))
    values = None if known.distinct is None else tuple(shown_bound(column.type, each) for each in known.distinct)
    paths = _paths(extents, hot, column.name) if column.type.kind == "dynamic" else ()
    left = misfits.get(column.name, 0) if column.type.kind != "dynamic" else 0
    return FieldStatistics(column, known.nulls, low, high, values, left, paths)


def _misfits(extents: Iterable[Extent], hot: Stats | None) -> dict[str, int]:
    """Count the values that did not fit each column."""
    stored = [column_from_json(each) for e in extents if (each := e.column_stats.get(OVERFLOW_COLUMN))]
    if hot is not None and OVERFLOW_COLUMN in hot.columns:
        stored.append(hot.columns[OVERFLOW_COLUMN])
    found: dict[str, int] = {}
    for known in stored:
        for name, counts in (known.misfits or {}).items():
            found[name] = found.get(name, 0) + counts.get("count", 0)
    return found


def _paths(extents: Iterable[Extent], hot: Stats | None, column: str) -> tuple[PathStatistics, ...]:
    parts = [
        (column_from_json(shape), extent.row_count)
        for extent in extents
        if (shape := extent.column_stats.get(column)) is not None
    ]
    if hot is not None and column in hot.columns:
        parts.append((hot.columns[column], hot.rows))
    found: dict[str, PathStatistics] = {}
    for known, rows in parts:
        ranges = known.ranges or {}
        for path in known.paths or ():
            before = found.get(path, PathStatistics(path, 0))
            low, high = before.low, before.high
            if path in ranges:
                low = ranges[path][0] if low is None else min(low, ranges[path][0])
                high = ranges[path][1] if high is None else max(high, ranges[path][1])
            found[path] = PathStatistics(path, before.rows + rows, low, high)
    ordered = sorted(found.values(), key=lambda each: (-each.rows, each.path))
    return tuple(ordered[:PATHS_SHOWN])


def _known(extent: Extent, column: str) -> ColumnStats:
    """Return what is listed of a column in an extent; one that is older than the column has only nulls there."""
    stored = extent.column_stats.get(column)
    return ColumnStats(nulls=extent.row_count) if stored is None else _listed(column_from_json(stored))


def _listed(known: ColumnStats) -> ColumnStats:
    return ColumnStats(known.nulls, known.low, known.high, known.tight, known.distinct)


def _merged(one: tuple[ColumnStats, int], other: tuple[ColumnStats, int]) -> tuple[ColumnStats, int]:
    return merge_columns(one[0], other[0], one[1], other[1]), one[1] + other[1]
