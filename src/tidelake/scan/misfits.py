"""Announce the values that a scan of a column does not give: those that did not fit the column's type.

Such a value is kept in the overflow column, or stays at the path that the column was promoted from, and the column is
null there. How many there are is read off the statistics of the blocks that a plan reads; of extents that do not say,
the rows themselves are counted, once for each process. It does not decide what fits: see ``ingest``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import replace
from threading import Lock
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from tidelake.dynamic import cbor
from tidelake.model.predicate import PLAIN_NAME, TimeRange
from tidelake.model.schema import OVERFLOW_COLUMN, Column
from tidelake.pruning.plan import Block, ExtentTask, Question, ScanPlan, time_window
from tidelake.pruning.statistics import UNKNOWN, ColumnStats
from tidelake.runtime.forking import renew_after_fork
from tidelake.scan.evaluate import evaluate
from tidelake.scan.footers import Footers
from tidelake.scan.hot import read_hot
from tidelake.scan.shapes import Shape

Window: TypeAlias = tuple[int | None, int | None]

KEPT_COUNTS = 65_536  # of blocks that were read to be counted


class _Counted:
    """What was counted in blocks that were read, the last ones asked for."""

    def __init__(self) -> None:
        self.renew_after_fork()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Forget all in a forked child: a thread of the parent may have been in the middle of a change."""
        self.counts: OrderedDict[tuple[object, ...], int] = OrderedDict()
        self.lock = Lock()


_counted_before = _Counted()


def announced(plan: ScanPlan, footers: Footers | None = None, names: Collection[str] | None = None) -> tuple[str, ...]:
    """Return a sentence for each column that a plan reads over values that do not fit it.

    Without footers nothing is read, and of what statistics do not tell it is only said that there may be some.
    """
    asked = plan.question.needed if names is None else [name for name in plan.question.needed if name in names]
    found = []
    for name in asked:
        column = plan.question.schema[name]
        takes_all = column.type.logical is None and column.type.kind in ("dynamic", "vector")
        if not takes_all and plan.question.alternatives.get(name):
            known, unknown = _counted(plan, column, footers)
            if known or unknown:
                found.append(_sentence(plan, column, known, unknown))
    return tuple(found)


def with_warnings(plan: ScanPlan) -> ScanPlan:
    """Return a plan that says what statistics tell of values that do not fit."""
    return replace(plan, warnings=announced(plan)) if plan.question.alternatives else plan


def _sentence(plan: ScanPlan, column: Column, known: int, unknown: bool) -> str:
    name = column.name
    count = f"{known:,} value{'' if known == 1 else 's'} of {name}" if known else f"values of {name}"
    if unknown:
        count = f"at least {count}" if known else f"perhaps some {count}"
    verb = "does" if known == 1 and not unknown else "do"
    places = (f"{_quoted(place)}[{path!r}]" for place, path in plan.question.alternatives[name])
    seen = " or ".join(f"isnotnull({place})" for place in places)
    question = f"{plan.table} | where isnull({_quoted(name)}) and ({seen})"
    return f"{count} {verb} not fit its type, {column.type}, and is null in this answer: see {question}".replace(
        "is null", "is null" if verb == "does" else "are null"
    )


def _quoted(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else f"[{name!r}]"


def _counted(plan: ScanPlan, column: Column, footers: Footers | None) -> tuple[int, bool]:
    """Count misfits in the blocks and hot rows of a plan, and say whether there may be more."""
    window = time_window(plan.question)
    names = (
        (column.name,) if window == (None, None) or plan.question.time is None else (column.name, plan.question.time)
    )
    shape = Shape.of(plan.question, names)
    known, unknown = _in_hot_rows(plan, shape, window), False
    for task in plan.tasks:
        for block in task.blocks or ():
            found = _by_statistics(block, plan.question, column)
            if footers is not None and (found is None or (found and _is_cut(block, plan.question, window))):
                found = _by_reading(task, block, footers, shape, window)
            known, unknown = known + (found or 0), unknown or found is None
        if task.blocks is None:
            unknown = True
    return known, unknown


def _by_statistics(block: Block, question: Question, column: Column) -> int | None:
    """Count a block's misfits as its statistics tell; None if they do not."""
    total = 0
    for place, path in question.alternatives[column.name]:
        stats = block.stats.columns.get(place)
        if stats is None or not _may_hold(stats, path, block.stats.rows):
            continue
        if place != OVERFLOW_COLUMN or stats.misfits is None:
            return None
        counts = stats.misfits.get(path, {})
        if not counts:
            return None  # it came before its column
        total += counts["count"] - (0 if column.type.logical is not None else counts.get(column.type.kind, 0))
    return total


def _may_hold(stats: ColumnStats, path: str, rows: int) -> bool:
    return stats.nulls != rows and (stats.paths is None or path in stats.paths)


def _is_cut(block: Block, question: Question, window: Window) -> bool:
    """Whether some rows of a block may lie outside the window of time that is asked for."""
    known = block.stats.columns.get(question.time or "", UNKNOWN)
    is_inside = type(known.low) is int and type(known.high) is int
    start, end = window
    starts = start is None or (is_inside and known.low >= start)  # type: ignore[operator]
    return not (starts and (end is None or (is_inside and known.high < end)))  # type: ignore[operator]


def _by_reading(task: ExtentTask, block: Block, footers: Footers, shape: Shape, window: Window) -> int:
    key = (task.extent.key, block.number, window, shape.columns, *shape.alternatives.items())
    with _counted_before.lock:
        if key in _counted_before.counts:
            _counted_before.counts.move_to_end(key)
            return _counted_before.counts[key]
    reader = footers.open(task.extent)
    written = reader.metadata().schema.names
    rows = reader.read_block(block.number, shape.written(written))
    found = _in_rows(rows, written, shape, block.stats.rows, window)
    with _counted_before.lock:
        _counted_before.counts[key] = found
        while len(_counted_before.counts) > KEPT_COUNTS:
            _counted_before.counts.popitem(last=False)
    return found


def _in_hot_rows(plan: ScanPlan, shape: Shape, window: Window) -> int:
    parts = read_hot(plan.hot, shape.written) if plan.hot else []
    return sum(_in_rows(rows, written, shape, rows.num_rows, window) for written, rows in parts)


def _in_rows(batch: pa.RecordBatch, written: Collection[str], shape: Shape, rows: int, window: Window) -> int:
    """Count the rows where a column is null as it is read, and has a value elsewhere."""
    column = shape.columns[0]
    places = [(place, path) for place, path in shape.alternatives[column.name] if place in written]
    if not places:
        return 0
    read = shape.conformed(batch, list(written), rows)
    is_null = read.column(0).is_null().to_numpy(zero_copy_only=False)
    if len(shape.columns) > 1:
        inside = evaluate(TimeRange(shape.columns[1].name, *window), read)
        is_null = is_null & inside.fill_null(False).to_numpy(zero_copy_only=False)
    elsewhere = np.zeros(rows, dtype=np.bool_)
    for place, path in places:
        elsewhere |= cbor.extract(batch.column(place), path).kinds > cbor.NULL_KIND
    return int((is_null & elsewhere).sum())
