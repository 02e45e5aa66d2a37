"""Find where the first rows by time lie that satisfy a condition, by reading a little from the wanted end on.

Statistics say where rows are, and seldom which of them match. So blocks are read, newest or oldest first, of the
condition's columns and the time alone, until rows enough have matched: none that comes after the last of these is one
of the first. Where rows enough are not found soon, nothing is known, and the scan reads what its condition leaves. It
does not order rows: Spark does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.handle.table_handle import TableHandle
from tidelake.model.predicate import And, Predicate, TimeRange
from tidelake.model.settings import TableSettings
from tidelake.pruning.plan import Block, ExtentTask, ScanPlan
from tidelake.pruning.topmost import Top
from tidelake.scan.extents import scan
from tidelake.spark.options import FIRST

LOOKED_AT_BYTES = 8 << 20  # stored, beyond which a scan in tasks is sooner done than a longer look
NS_A_TICK = 1000  # of Spark's times: rows of one are equal there

_Pieces: TypeAlias = Sequence[tuple[ExtentTask, Block]]
_Times: TypeAlias = npt.NDArray[np.int64]


def first_of(options: Mapping[str, str]) -> Top | None:
    """Return which rows by time are enough for a scan, if its options say so."""
    if FIRST not in options:
        return None
    end, rows = options[FIRST].split()
    return Top(int(rows), newest=end == "newest")


def bounded(table: TableHandle, where: Predicate | None, top: Top) -> Predicate | None:
    """Return a condition that fewer rows satisfy, but all of the first ones that satisfy the given one."""
    time = TableSettings.of(table.snapshot.settings).time
    if time is None:
        return where
    plan = table.plan_top([time], where, time, top)
    if time in plan.question.alternatives or (last := _last_of(plan, table, top)) is None:
        return where
    start_ns = last * NS_A_TICK
    wanted = TimeRange(time, start_ns, None) if top.newest else TimeRange(time, None, start_ns + NS_A_TICK)
    return wanted if where is None else And((where, wanted))


def _last_of(plan: ScanPlan, table: TableHandle, top: Top) -> int | None:
    """Return the tick of the last of enough rows that match, from the wanted end on; None if they are not found."""
    found = _first(_times(replace(plan, tasks=()), table), top)
    pieces = _in_order(plan, top)
    at, count, looked_at = 0, 1, 0
    while len(found) < top.rows and at < len(pieces):
        some = pieces[at : at + count]
        looked_at += sum(block.needed_bytes for _, block in some)
        if looked_at > LOOKED_AT_BYTES and at:
            return None
        found = _first(np.concatenate([found, _times(_of(plan, some), table)]), top)
        at, count = at + count, 2 * count
    if len(found) < top.rows:
        return None
    return int(found[-1])


def _in_order(plan: ScanPlan, top: Top) -> _Pieces:
    """Return blocks by how near the wanted end they reach; those of which that is not known come last."""
    time = plan.question.time
    known: list[tuple[int, tuple[ExtentTask, Block]]] = []
    unknown: list[tuple[ExtentTask, Block]] = []
    for task in plan.tasks:
        for block in task.blocks or ():
            stats = block.stats.columns.get(time) if time is not None else None
            end = None if stats is None else stats.high if top.newest else stats.low
            if type(end) is int:
                known.append((-end if top.newest else end, (task, block)))
            else:
                unknown.append((task, block))
    return [*(piece for _, piece in sorted(known, key=lambda each: each[0])), *unknown]


def _of(plan: ScanPlan, pieces: _Pieces) -> ScanPlan:
    """Return a plan of some of its blocks alone."""
    by_extent: dict[str, tuple[ExtentTask, list[Block]]] = {}
    for task, block in pieces:
        by_extent.setdefault(task.extent.id, (task, []))[1].append(block)
    tasks = tuple(replace(task, blocks=tuple(blocks)) for task, blocks in by_extent.values())
    return replace(plan, tasks=tasks, hot=())


def _times(plan: ScanPlan, table: TableHandle) -> _Times:
    """Return the ticks of the rows of a plan that match."""
    if not plan.tasks and not plan.hot:
        return np.empty(0, np.int64)
    times = scan(plan, table.footers).read_all().column(0).drop_null()
    found: _Times = times.cast(pa.int64()).to_numpy()
    return found if times.type.unit == "us" else found // NS_A_TICK


def _first(times: _Times, top: Top) -> _Times:
    """Return the first of some times, in order from the wanted end on."""
    ordered = np.sort(times)
    return ordered[::-1][: top.rows] if top.newest else ordered[: top.rows]
