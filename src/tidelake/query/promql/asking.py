"""Take a PromQL query from its text to an answer.

1. read the text, and find which times each selector needs;
2. pin the table to one snapshot, and plan a scan for each distinct selector; refuse what exceeds the budget;
3. read the samples when the evaluation comes to them, and evaluate all steps at once.

It does not know how samples are stored, nor what functions mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
import promql_parser as syntax

from tidelake.catalog.names import check_user
from tidelake.errors import InvalidInputError, InvalidRangeError, UnavailableError
from tidelake.handle.lake_handle import OpenLake
from tidelake.handle.table_handle import TableHandle
from tidelake.model.settings import TableSettings
from tidelake.model.times import When, parse_time_ns
from tidelake.pruning.plan import ScanPlan
from tidelake.query.budget import Budget, Deadline
from tidelake.query.promql.answer import PromAnswer, answer_of
from tidelake.query.promql.evaluating import LOOKBACK_MS, Evaluator, Span, inner_grid
from tidelake.query.promql.labels import Words
from tidelake.query.promql.reading import conditions_of, duration_ms, held_by_python, parse
from tidelake.query.promql.selecting import Conditions, Interval, Source
from tidelake.query.promql.tables import TABLE, columns_of, table_name
from tidelake.query.promql.vectors import Grid, Read

CELL_BYTES = 72  # of a (series, step) while a function is evaluated: some arrays of eight bytes
MOST_STEPS = 1_000_000  # of a range query; past it somebody confused units

Step: TypeAlias = str | float | timedelta
Selected: TypeAlias = tuple[Conditions, ...]


def ask(
    lake: OpenLake,
    text: str,
    *,
    time: When | None = None,
    start: When | None = None,
    end: When | None = None,
    step: Step | None = None,
    table: str | Mapping[str, Any] = TABLE,
    lookback: Step = LOOKBACK_MS / 1000,
    budget: Budget | Mapping[str, Any] | None = None,
    user: str | None = None,
) -> PromAnswer:
    """Answer an instant query at ``time``, by default now, or a range query from ``start`` to ``end`` by ``step``."""
    limits = Budget.of(budget)
    deadline = Deadline(limits.seconds)
    if user is not None:
        check_user(user)
    tree = parse(text)
    grid, is_instant = _grid(time, start, end, step)
    span = Span(grid.start_ms, grid.end_ms, grid.step_ms if not is_instant else 0)
    if not is_instant and isinstance(_bare(tree), syntax.MatrixSelector | syntax.SubqueryExpr | syntax.StringLiteral):
        raise InvalidInputError("a range query is of a scalar or an instant vector", kind="type")
    asking = _Asking(lake, table, limits, deadline, user)
    evaluator = Evaluator(text, span, asking.words, asking.read, asking.reserve, duration_ms(lookback))
    with held_by_python(text):
        for selected, interval in _needs(tree, grid.start_ms, grid.end_ms, evaluator):
            asking.intervals.setdefault(selected, []).append(interval)
    asking.plan()
    with np.errstate(all="ignore"):
        value = evaluator.value(tree, grid)
    answer = answer_of(value, grid, is_instant=is_instant, plans=tuple(asking.plans.values()))
    if answer.values.nbytes > limits.result_bytes:
        raise limits.out_of_result()
    return answer


class _Asking:
    """The samples that one query reads, each selector's once."""

    def __init__(
        self, lake: OpenLake, table: str | Mapping[str, Any], limits: Budget, deadline: Deadline, user: str | None
    ) -> None:
        self.words = Words()
        self.intervals: dict[Selected, list[Interval]] = {}
        self.plans: dict[Selected, ScanPlan] = {}
        self._lake, self._table, self._user = lake, table, user
        self._limits, self._deadline = limits, deadline
        self._source: Source | None = None
        self._held: dict[Selected, Read] = {}

    def plan(self) -> None:
        """Plan all scans before any is run."""
        if not self.intervals:
            return
        handle = TableHandle.seen_by(self._lake.handle, table_name(self._table), self._user).pinned()
        self._source = Source(
            handle, columns_of(self._table, handle.schema, TableSettings.of(handle.snapshot.settings).time)
        )
        self.plans = {each: self._source.plan(each, times) for each, times in self.intervals.items()}
        self._limits.check_read(sum(_byte_size(plan) for plan in self.plans.values()))

    def read(self, selected: Selected) -> Read:
        """Return a selector's samples, which are read when first asked for."""
        if selected not in self._held:
            assert self._source is not None
            self._held[selected] = self._source.read(
                self.plans[selected], selected, self.words, self._limits, self._check_time
            )
        return self._held[selected]

    def reserve(self, series: int, steps: int) -> None:
        """Refuse what takes more time or memory than there is."""
        self._check_time()
        if series * steps * CELL_BYTES > self._limits.memory_bytes:
            raise UnavailableError(
                "the query needs more memory than its budget: ask for fewer series, a shorter range or a longer step",
                kind="memory_budget",
                bytes=self._limits.memory_bytes,
                series=series,
                steps=steps,
            )

    def _check_time(self) -> None:
        if self._limits.is_stopped():
            raise self._limits.stopped()
        if self._deadline.left < 0:
            raise self._limits.out_of_time()


def _grid(time: When | None, start: When | None, end: When | None, step: Step | None) -> tuple[Grid, bool]:
    if start is None and end is None:
        if step is not None:
            raise InvalidInputError("a range query has a start and an end", kind="bad_range")
        return Grid(_ms(datetime.now(UTC) if time is None else time), 1, 1), True
    if time is not None or start is None or end is None:
        raise InvalidInputError("either a time, or a start and an end", kind="bad_range")
    begin, until = _ms(start), _ms(end)
    if until < begin:
        raise InvalidRangeError("the end is before the start", start=start, end=end)
    width = duration_ms("1m" if step is None else step)
    if width <= 0:
        raise InvalidInputError("a step is longer than nothing", kind="bad_range")
    steps = (until - begin) // width + 1
    if steps > MOST_STEPS:
        raise InvalidInputError("the range has too many steps", kind="bad_range", steps=steps, limit=MOST_STEPS)
    return Grid(begin, width, steps), False


def _needs(tree: syntax.Expr, low: int, high: int, known: Evaluator) -> Iterator[tuple[Selected, Interval]]:
    """Yield what each selector needs: its conditions and a range of times, both ends included."""
    match tree:
        case syntax.VectorSelector():
            begin, until = _moved(tree, low, high, known)
            yield conditions_of(tree), (begin - known.lookback_ms + 1, until)
        case syntax.MatrixSelector():
            begin, until = _moved(tree.vector_selector, low, high, known)
            range_ms = tree.range // timedelta(milliseconds=1)
            yield conditions_of(tree.vector_selector), (begin - range_ms + 1, until)
        case syntax.SubqueryExpr():
            inner = inner_grid(tree, *_moved(tree, low, high, known))
            yield from _needs(tree.expr, inner.start_ms, max(inner.end_ms, inner.start_ms), known)
        case syntax.AggregateExpr():
            yield from _needs(tree.expr, low, high, known)
            if isinstance(tree.param, syntax.Expr):
                yield from _needs(tree.param, low, high, known)
        case syntax.BinaryExpr():
            yield from _needs(tree.lhs, low, high, known)
            yield from _needs(tree.rhs, low, high, known)
        case syntax.Call():
            for each in tree.args:
                yield from _needs(each, low, high, known)
        case syntax.ParenExpr() | syntax.UnaryExpr():
            yield from _needs(tree.expr, low, high, known)


def _moved(tree: syntax.VectorSelector | syntax.SubqueryExpr, low: int, high: int, known: Evaluator) -> Interval:
    at = known.fixed_ms(tree)
    offset = 0 if tree.offset is None else tree.offset // timedelta(milliseconds=1)
    return (low - offset, high - offset) if at is None else (at - offset, at - offset)


def _bare(tree: syntax.Expr) -> syntax.Expr:
    while isinstance(tree, syntax.ParenExpr):
        tree = tree.expr
    return tree


def _ms(when: When) -> int:
    return parse_time_ns(when) // 1_000_000


def _byte_size(plan: ScanPlan) -> int:
    return int(plan.stages[-1].byte_size + sum(len(batch.payload) for batch in plan.hot))
