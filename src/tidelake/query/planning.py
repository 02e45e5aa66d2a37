"""Plan the scans of a query: which columns and blocks of each table are read, for the part of it that is in view.

A plan says the same whenever its snapshot is planned, so that of a small scan is kept with its text. It does not choose
an engine, and reads no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

from tidelake.handle.table_handle import TableHandle
from tidelake.model.path_value import PathValue
from tidelake.model.predicate import And, Predicate, TimeRange
from tidelake.model.schema import DataType
from tidelake.model.settings import TableSettings
from tidelake.pruning.plan import Block, ScanPlan, Stage
from tidelake.query.manifest import Answered, Shape, from_manifest
from tidelake.query.prepared import Prepared, Scan
from tidelake.query.pushdown import Ask
from tidelake.query.seen import Seen, View
from tidelake.scan.extents import prune_blocks
from tidelake.scan.scannable import Scannable
from tidelake.vectors.narrowing import narrowed

KEPT_BLOCKS = 256  # of a plan that is kept with its text
_CHEAPEST = ("bool", "int", "timestamp", "long", "real", "string", "vector", "dynamic")


def scans_of(prepared: Prepared, seen: Seen, prune: bool) -> list[Scan]:
    """Plan all scans of a query. Of one snapshot plans are alike, so small ones are kept for when it is asked again."""
    if not prune or not seen.view.is_whole:
        return [scan_of(ask, seen, prune) for ask in prepared.asks]
    scans = []
    for at, ask in enumerate(prepared.asks):
        seen.check_time()
        table = seen.table(ask.reference.table, ask.reference.at)
        plan = prepared.plans.get(at)
        if plan is not None and isinstance(table, TableHandle) and _is_of(plan, table):
            scans.append(Scan(ask.reference.name, _names(ask), table, replace(plan, held=table.held), ask))
            continue
        scan = scan_of(ask, seen, prune)
        if ask.nearest is None and _may_be_kept(scan.plan, table):
            prepared.plans[at] = replace(scan.plan, held=None)  # who reads holds the snapshot
        scans.append(scan)
    return scans


def answered_of(prepared: Prepared, shape: Shape, table: Scannable) -> Answered:
    """Take from the manifest what it can answer, and plan the rest, unless that was done for the same snapshot."""
    found = prepared.answered.get(table.name)
    if found is not None and isinstance(table, TableHandle) and _is_of(found.plan, table):
        return replace(found, plan=replace(found.plan, held=table.held))
    found = from_manifest(shape, table)
    if found.plan.tasks:
        found = replace(found, plan=prune_blocks(found.plan, table.footers))
    if _may_be_kept(found.plan, table):
        prepared.answered.clear()
        prepared.answered[table.name] = replace(found, plan=replace(found.plan, held=None))
    return found


def _is_of(plan: ScanPlan, table: TableHandle) -> bool:
    """Whether a plan is of the snapshot at which a table is pinned."""
    past = table.past
    return (
        past is not None
        and past.id == plan.snapshot.id
        and past.scope == plan.snapshot.scope
        and table.held is not None
    )


def _may_be_kept(plan: ScanPlan, table: Scannable) -> bool:
    """Whether a plan of a table is small, and the same whenever its snapshot is planned."""
    is_plain = isinstance(table, TableHandle) and not plan.snapshot.is_keyed and not plan.hot
    return is_plain and sum(len(task.blocks or (None,)) for task in plan.tasks) <= KEPT_BLOCKS


def _names(ask: Ask) -> tuple[str, ...]:
    """Return what the columns of a scan are called in the tree."""
    names = (*_shown(ask), *(each.name for each in ask.paths))
    return names if ask.counted is None else (*names, ask.counted)


def _shown(ask: Ask) -> tuple[str, ...]:
    return ask.columns or (() if ask.paths else (_cheapest(ask.reference.types),))


def scan_of(ask: Ask, seen: Seen, prune: bool, also: Predicate | None = None) -> Scan:
    """Plan one scan, with a condition beside those that the query asks of the table."""
    seen.check_time()
    table = seen.table(ask.reference.table, ask.reference.at)
    shown = _shown(ask)
    own: list[str | PathValue] = [*(ask.reference.spelled[name] for name in shown), *ask.paths]
    where = ask.where.predicate if ask.where is not None and prune else None
    if also is not None:
        where = also if where is None else And((where, also))
    if (window := _window(seen.view, table)) is not None:
        where = window if where is None else And((where, window))
    limit = ask.limit if prune and seen.view.added is None else None  # which rows are new, a plan does not know
    is_whole = seen.view.added is None and seen.view.part is None
    plan: ScanPlan
    if ask.top is not None and prune and is_whole and isinstance(table, TableHandle):
        plan = table.plan_top(own, where, *ask.top)
    else:
        plan = table.plan(own, where, limit=limit, prune=prune)
    if window is not None:
        plan = replace(plan, question=replace(plan.question, strict=True))
    if seen.view.added is not None:
        plan = _only_added(plan, *seen.view.added)
    if seen.view.part is not None:
        plan = _only_part(plan, *seen.view.part)
    if ask.nearest is not None and prune and is_whole and isinstance(table, TableHandle):
        with seen.deadline.undisturbed():
            plan = narrowed(table, plan, ask.nearest, where)
    if ask.counted is not None:
        plan = replace(plan, question=replace(plan.question, counted=ask.counted))
    return Scan(ask.reference.name, _names(ask), table, plan, ask)


def _window(view: View, table: Scannable) -> TimeRange | None:
    """Return the range of time that a view has of a table; None if it has none, or the table no time."""
    time = TableSettings.of(table.snapshot.settings).time
    return TimeRange(time, view.start_ns, view.end_ns) if view.has_range and time is not None else None


def _only_part(plan: ScanPlan, part: int, parts: int) -> ScanPlan:
    """Return one of several parts of a plan, each of about as many bytes; hot rows are in the last one."""
    blocks = [(task, block) for task in plan.tasks for block in task.blocks or ()]
    ends = list(accumulate(block.needed_bytes for _, block in blocks))
    share = (ends[-1] if ends else 0) / parts
    kept: dict[str, list[Block]] = {}
    for (task, block), end in zip(blocks, ends, strict=True):
        if min(int((end - block.needed_bytes / 2) / share) if share else 0, parts - 1) == part:
            kept.setdefault(task.extent.id, []).append(block)
    tasks = [replace(task, blocks=tuple(kept[task.extent.id])) for task in plan.tasks if task.extent.id in kept]
    own = [block for several in kept.values() for block in several]
    rows, size = sum(block.stats.rows for block in own), sum(block.needed_bytes for block in own)
    stage = Stage(f"part {part + 1} of {parts}", len(tasks), rows, size, len(own))
    hot = plan.hot if part == parts - 1 else ()
    return replace(plan, tasks=tuple(tasks), hot=hot, stages=(*plan.stages, stage))


def _only_added(plan: ScanPlan, after: int, upto: int) -> ScanPlan:
    """Return a plan of what the snapshots after one, up to another, added."""
    tasks = tuple(task for task in plan.tasks if after < task.extent.added_seq <= upto)
    hot = tuple(batch for batch in plan.hot if after < batch.added_seq <= upto)
    blocks = [block for task in tasks for block in task.blocks or ()]
    rows, size = sum(block.stats.rows for block in blocks), sum(block.needed_bytes for block in blocks)
    return replace(
        plan, tasks=tasks, hot=hot, stages=(*plan.stages, Stage("new extents", len(tasks), rows, size, len(blocks)))
    )


def _cheapest(types: Mapping[str, DataType]) -> str:
    """Choose the column to read where rows are only counted."""
    return min(types, key=lambda name: _CHEAPEST.index(types[name].kind))
