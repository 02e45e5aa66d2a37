"""Narrow a plan to the rows that may be among the nearest to a vector, for an engine that orders them itself.

Blocks without such a row are dropped, and of the others all rows but those are left out as hidden rows are. Hot rows
stay, and so do as many rows without a distance as are wanted, for a language may put those first. It does not order or
cut anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tidelake.handle.table_handle import TableHandle
from tidelake.model.predicate import Predicate
from tidelake.pruning.plan import Block, ScanPlan, Stage
from tidelake.vectors import quantizing
from tidelake.vectors.definition import IndexMetric, indexes_of
from tidelake.vectors.nearest import search
from tidelake.vectors.ranking import Asked, by_source
from tidelake.vectors.sources import ExtentSource, Positions
from tidelake.vectors.views import view_of

STAGE = "nearest vectors"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows nearest to a vector, by a column and a metric."""

    column: str
    metric: IndexMetric
    query: tuple[float, ...]
    rows: int


def narrowed(table: TableHandle, plan: ScanPlan, wanted: Wanted, where: Predicate | None) -> ScanPlan:
    """Return a plan of the rows that are wanted, and others; the same plan if the column has no index for it."""
    snapshot = plan.snapshot
    index = indexes_of(snapshot.settings, snapshot.schema).get(wanted.column)
    if index is None or index.metric != wanted.metric or not quantizing.is_available():
        return plan
    query = np.array([wanted.query], np.float64)
    with np.errstate(over="ignore"):
        is_fit = query.shape[1] == index.dimensions and np.isfinite(query.astype(np.float32)).all()
    if not is_fit or (wanted.metric == "cosine" and not query.any()):
        return plan  # the engine says what comes of it
    pinned = replace(table, past=snapshot) if table.past is None else table
    with plan.reading:
        if view_of(pinned, wanted.column, wanted.metric).codebook is None:
            return plan
        asked = Asked(snapshot.schema[wanted.column], wanted.metric, query, wanted.rows, where, with_unknown=True)
        found = search(pinned, asked)
    ids = np.unique(np.concatenate([found.ids[0], found.unknown]))
    kept = {
        source.extent.id: positions
        for number, positions in by_source(ids)
        if isinstance(source := found.sources[number], ExtentSource)
    }
    return _only(plan, kept)


def _only(plan: ScanPlan, kept: Mapping[str, Positions]) -> ScanPlan:
    """Return a plan that reads some rows of its extents alone, by their positions."""
    tasks = []
    for task in plan.tasks:
        positions = kept.get(task.extent.id)
        blocks = [] if positions is None else [_only_in(block, positions) for block in task.blocks or ()]
        if left := tuple(block for block in blocks if block is not None):
            tasks.append(replace(task, blocks=left, dead=None))
    read = [block for task in tasks for block in task.blocks or ()]
    rows, size = sum(map(len, kept.values())), sum(block.needed_bytes for block in read)
    stage = Stage(STAGE, len(tasks), rows, size, len(read))
    return replace(plan, tasks=tuple(tasks), stages=(*plan.stages, stage))


def _only_in(block: Block, positions: Positions) -> Block | None:
    low, high = np.searchsorted(positions, (block.first_row, block.first_row + block.stats.rows))
    if low == high:
        return None
    dead = np.ones(block.stats.rows, np.bool_)
    dead[positions[low:high] - block.first_row] = False
    return replace(block, dead=np.flatnonzero(dead), proven=False)
