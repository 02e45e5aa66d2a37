"""Leave out what cannot hold one of the first rows by time, where only so many are wanted.

Extents and blocks of which every row is wanted are counted from the wanted end on. Once they have enough rows, what
lies wholly beyond the last of them is left out: as many rows come before any of its rows. Only what has bounds, and no
row without a time, is counted or left out. It does not order rows: whoever reads them does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tidelake.pruning.outcomes import TRUE, outcomes
from tidelake.pruning.plan import Block, ExtentTask, ScanPlan, Stage, stats_of
from tidelake.pruning.statistics import ColumnStats

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Top:
    """The first rows by a table's time: the newest, or the oldest."""

    rows: int
    newest: bool


@dataclass(frozen=True, slots=True)
class _Span:
    """Where the times of some rows lie, and how many of them are surely wanted."""

    low: int
    high: int
    sure: int


def top_extents(plan: ScanPlan, top: Top) -> ScanPlan:
    """Leave out extents, of which the statistics of the time column are known."""
    kept = _kept(plan.tasks, [_span_of_extent(task, plan) for task in plan.tasks], top)
    if len(kept) == len(plan.tasks):
        return plan
    rows, size = sum(task.extent.row_count for task in kept), sum(task.extent.byte_size for task in kept)
    return replace(plan, tasks=tuple(kept), stages=(*plan.stages, Stage(_name(top), len(kept), rows, size)))


def top_blocks(plan: ScanPlan, top: Top) -> ScanPlan:
    """Leave out blocks of a plan whose blocks are known."""
    each = [(task, block) for task in plan.tasks for block in task.blocks or ()]
    kept = _kept(each, [_span_of_block(block, plan) for _, block in each], top)
    if len(kept) == len(each):
        return plan
    blocks: dict[str, list[Block]] = {}
    for task, block in kept:
        blocks.setdefault(task.extent.id, []).append(block)
    tasks = tuple(
        replace(task, blocks=tuple(blocks[task.extent.id])) for task in plan.tasks if task.extent.id in blocks
    )
    rows, size = sum(block.stats.rows for _, block in kept), sum(block.needed_bytes for _, block in kept)
    return replace(plan, tasks=tasks, stages=(*plan.stages, Stage(_name(top), len(tasks), rows, size, len(kept))))


def _name(top: Top) -> str:
    return f"{'newest' if top.newest else 'oldest'} rows"


def _kept(items: Sequence[Item], spans: Sequence[_Span | None], top: Top) -> list[Item]:
    limit = _limit((span for span in spans if span is not None), top)
    if limit is None:
        return list(items)
    return [
        item
        for item, span in zip(items, spans, strict=True)
        if span is None or (span.high >= limit if top.newest else span.low <= limit)
    ]


def _limit(spans: Iterable[_Span], top: Top) -> int | None:
    """Return the time that enough rows are at or before, from the wanted end on; None if there are not enough."""
    sure = [span for span in spans if span.sure]
    found = 0
    for span in sorted(sure, key=(lambda each: -each.low) if top.newest else (lambda each: each.high)):
        found += span.sure
        if found >= top.rows:
            return span.low if top.newest else span.high
    return None


def _span_of_extent(task: ExtentTask, plan: ScanPlan) -> _Span | None:
    question, extent = plan.question, task.extent
    stats = stats_of(extent, question)
    known = stats.columns.get(question.time) if question.time is not None else None
    is_sure = question.where is None or outcomes(question.where, stats) == TRUE
    hidden = 0 if task.dead is None else len(task.dead)
    return _span(known, extent.row_count - hidden if is_sure else 0)


def _span_of_block(block: Block, plan: ScanPlan) -> _Span | None:
    time = plan.question.time
    known = block.stats.columns.get(time) if time is not None else None
    hidden = 0 if block.dead is None else len(block.dead)
    return _span(known, block.stats.rows - hidden if block.proven or plan.question.where is None else 0)


def _span(known: ColumnStats | None, sure: int) -> _Span | None:
    if known is None or known.nulls != 0 or type(known.low) is not int or type(known.high) is not int:
        return None
    return _Span(known.low, known.high, sure)
