"""Cut a plan short where few rows are enough, and keep the figures of plans for who shows them.

It does not make plans.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from threading import Lock

from tidelake.pruning.plan import Block, ExtentTask, ScanPlan
from tidelake.runtime.forking import renew_after_fork

KEPT = 1024  # plans; one is asked for when its scan has been planned, and then no more


class _Figures:
    """The figures of plans, by the names of their scans."""

    def __init__(self) -> None:
        self.renew_after_fork()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Forget all in a forked child: a thread of the parent may have been in the middle of a change."""
        self.by_name: OrderedDict[str, dict[str, int]] = OrderedDict()
        self.lock = Lock()


_FIGURES = _Figures()


def remember(name: str, plan: ScanPlan) -> None:
    """Keep the figures of a plan."""
    with _FIGURES.lock:
        _FIGURES.by_name[name] = _figures(plan)
        while len(_FIGURES.by_name) > KEPT:
            _FIGURES.by_name.popitem(last=False)


def figures(name: str) -> dict[str, int]:
    """Return the figures of a plan; none of one that was made in another process, or long ago."""
    with _FIGURES.lock:
        return _FIGURES.by_name.get(name, {})


def enough(plan: ScanPlan, rows: int) -> ScanPlan:
    """Return a plan, whose blocks are known, without what is not needed to have so many rows that are wanted for sure.

    If there are not so many, all of it stays.
    """
    tasks: list[ExtentTask] = []
    found = 0
    for task in plan.tasks:
        kept: list[Block] = []
        for block in task.blocks or ():
            if found >= rows:
                break
            kept.append(block)
            found += _sure_rows(block)
        if kept:
            tasks.append(replace(task, blocks=tuple(kept)))
    return replace(plan, tasks=tuple(tasks), hot=plan.hot if found < rows else ())


def _sure_rows(block: Block) -> int:
    hidden = 0 if block.dead is None else len(block.dead)
    return block.stats.rows - hidden if block.proven else 0


def _figures(plan: ScanPlan) -> dict[str, int]:
    whole = plan.stages[0]
    read = sum(block.needed_bytes for task in plan.tasks for block in task.blocks or ())
    return {
        "readExtents": len(plan.tasks),
        "prunedExtents": whole.extents - len(plan.tasks),
        "readBytes": read,
        "prunedBytes": whole.byte_size - read,
    }
