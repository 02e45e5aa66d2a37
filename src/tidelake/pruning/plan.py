"""Decide what a scan must read: from all that a snapshot holds down to the blocks that may hold a wanted row.

The cascade is one tuple of plain functions, ``STAGES``, each taking what the one before it left. A stage only drops
what its statistics disprove; missing statistics keep the data, so the rows of a plan are those of a full scan. What
each stage kept is counted, and ``explain`` draws it as a funnel. It does no IO: whoever has read an extent's footer
hands its blocks to ``with_blocks``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Protocol, TypeAlias

from tidelake.model.expression import Distance
from tidelake.model.path_value import PathValue
from tidelake.model.predicate import And, Predicate, TimeRange, columns_of, conjuncts_of
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Extent, HotBatch, Snapshot
from tidelake.model.svg import draw_funnel
from tidelake.pruning.outcomes import TRUE, outcomes
from tidelake.pruning.statistics import UNKNOWN, ColumnStats, Stats, column_from_json

BAR_CELLS = 24


@dataclass(frozen=True, slots=True)
class Question:
    """What a scan wants of a table: the rows that satisfy ``where``, and of them these columns.

    ``spread`` names columns whose values may also lie elsewhere in a row, as ``(dynamic column, path)``: what did not
    fit a column, or was written before its path was promoted. Reads unite the two, so a column's own statistics do not
    disprove anything where the other place may hold a value.
    """

    schema: Schema
    columns: tuple[str, ...]
    where: Predicate | None = None
    time: str | None = None  # the table's time column, whose bounds extents and hot rows carry
    alternatives: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    limit: int | None = None
    ordered_by: str | None = None
    computed: Mapping[str, Distance | PathValue] = field(
        default_factory=dict
    )  # by the name of the column they are given as
    asked: Predicate | None = None  # ``where`` as it was asked, where columns mean more than they store
    counted: str | None = None  # the column that says of how many rows each is given, where equal ones may be one
    rough: bool = False  # whether rows that do not satisfy ``where`` may be given too: who reads them asks again
    strict: bool = False  # nobody asks ``where`` again, so it is never rough
    encoded: frozenset[str] = frozenset()  # columns that are given as dictionaries: distinct values, a number a row

    @property
    def needed(self) -> tuple[str, ...]:
        """The table's columns that must be read to answer, in the schema's order."""
        wanted = {*self.columns, *(each.column for each in self.computed.values()), self.ordered_by}
        wanted |= columns_of(self.where) if self.where is not None else frozenset()
        return tuple(name for name in self.schema.names if name in wanted)


@dataclass(frozen=True, slots=True)
class Block:
    """One block of an extent: its bytes, those of the needed columns, and whether every row is known to be wanted."""

    number: int
    stats: Stats
    byte_size: int
    needed_bytes: int
    proven: bool = False
    first_row: int = 0  # its position in the extent
    dead: Any = field(default=None, compare=False, repr=False)  # positions in the block of rows that nobody sees


@dataclass(frozen=True, slots=True)
class ExtentTask:
    """An extent to read: the surviving blocks once its footer is known, None before."""

    extent: Extent
    blocks: tuple[Block, ...] | None = None
    dead: Any = field(default=None, compare=False, repr=False)  # positions of rows that newer versions hide


@dataclass(frozen=True, slots=True)
class Stage:
    """What was left after one stage; blocks are None while they are not known."""

    name: str
    extents: int
    rows: int
    byte_size: int
    blocks: int | None = None
    is_told: bool = False  # by what has the rows at hand: its name is all that there is to say


class Held(Protocol):
    """Keeps a plan's snapshot retained while the plan, or a copy of it, lives in this process."""

    def reading(self) -> AbstractContextManager[None]:
        """Say of an object that is not there that its snapshot has expired, if it has."""
        ...


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan will read, and how little that is."""

    table: str
    snapshot: Snapshot
    question: Question
    tasks: tuple[ExtentTask, ...]
    hot: tuple[HotBatch, ...]
    stages: tuple[Stage, ...]
    warnings: tuple[str, ...] = ()  # of values that do not fit their column, so far as statistics tell
    held: Held | None = field(default=None, compare=False)
    dead_hot: Mapping[str, Any] = field(default_factory=dict, compare=False)  # positions by the id of a hot batch

    @property
    def reading(self) -> AbstractContextManager[None]:
        """Where objects of the plan are read."""
        return nullcontext() if self.held is None else self.held.reading()

    def explain(self) -> str:
        """Draw the cascade as a funnel, for a person."""
        return "\n".join([*_heading(self), *_funnel(self.stages), *_closing(self)])

    def to_json(self) -> dict[str, Any]:
        """Return the same facts for a machine."""
        return {
            "table": self.table,
            "snapshot": self.snapshot.sequence,
            "columns": list(self.question.columns),
            "where": None if self.question.where is None else repr(self.question.where),
            "stages": [
                {"name": s.name, "extents": s.extents, "blocks": s.blocks, "rows": s.rows, "bytes": s.byte_size}
                for s in self.stages
            ],
            "hot_batches": len(self.hot),
            "hot_rows": sum(batch.rows for batch in self.hot),
            "warnings": list(self.warnings),
        }

    def _repr_html_(self) -> str:
        """Show the funnel in a notebook."""
        stages = [(s.name, float(s.byte_size), f"{_bytes_text(s.byte_size)}, {_counts(s)}") for s in self.stages]
        return f"<p>{escape(self.table)} at snapshot {self.snapshot.sequence}</p>{draw_funnel(stages)}"

    def __repr__(self) -> str:
        return self.explain()


Keep: TypeAlias = Callable[[Question, Sequence[Extent]], list[Extent]]


def by_time(question: Question, extents: Sequence[Extent]) -> list[Extent]:
    """Drop extents that end before the wanted time or begin after it."""
    window = time_window(question)
    return [extent for extent in extents if _in_time(window, extent.min_ts_ns, extent.max_ts_ns)]


def by_statistics(question: Question, extents: Sequence[Extent]) -> list[Extent]:
    """Drop extents whose bounds, distinct values, tokens, filters or paths disprove the predicate."""
    if question.where is None:
        return list(extents)
    return [extent for extent in extents if outcomes(question.where, stats_of(extent, question)) & TRUE]


STAGES: tuple[tuple[str, Keep], ...] = (("time bounds", by_time), ("extent statistics", by_statistics))


def make_plan(
    table: str,
    snapshot: Snapshot,
    question: Question,
    extents: Sequence[Extent],
    hot: Sequence[HotBatch],
    held: Held | None = None,
) -> ScanPlan:
    """Run the cascade over the extents that the catalog listed; ``snapshot`` counts those it did not need to list."""
    totals = snapshot.totals
    stages = [Stage("snapshot", totals.extents, totals.rows, totals.bytes), _counted("catalog", extents)]
    kept: Sequence[Extent] = extents
    for name, keep in STAGES:
        kept = keep(question, kept)
        stages.append(_counted(name, kept))
    window = time_window(question)
    warm = [batch for batch in hot if _in_time(window, batch.min_ts_ns, batch.max_ts_ns)]
    tasks = tuple(map(ExtentTask, kept))
    return ScanPlan(table, snapshot, question, tasks, tuple(warm), tuple(stages), held=held)


def without_pruning(plan: ScanPlan, extents: Sequence[Extent], hot: Sequence[HotBatch]) -> ScanPlan:
    """Return a plan of the same rows that reads everything."""
    return replace(plan, tasks=tuple(map(ExtentTask, extents)), hot=tuple(hot), stages=plan.stages[:1])


def with_blocks(plan: ScanPlan, blocks: Mapping[str, Sequence[Block]]) -> ScanPlan:
    """Take the blocks of each extent that are left, by its id; an extent without any drops out."""
    tasks = [replace(task, blocks=tuple(kept)) for task in plan.tasks if (kept := blocks[task.extent.id])]
    held = [block for task in tasks for block in task.blocks or ()]
    rows = sum(block.stats.rows for block in held)
    by_block = Stage("block statistics", len(tasks), rows, sum(block.byte_size for block in held), len(held))
    by_column = replace(by_block, name="needed columns", byte_size=sum(block.needed_bytes for block in held))
    return replace(plan, tasks=tuple(tasks), stages=(*plan.stages, by_block, by_column))


def surviving(question: Question, extent: Extent, blocks: Sequence[Stats]) -> dict[int, bool]:
    """Number the blocks that may hold a wanted row, and say of each whether every row of it is wanted."""
    # Times first: they are the cheapest to judge, and what they disprove is not judged again.
    parts = sorted(conjuncts_of(question.where), key=lambda part: not isinstance(part, TimeRange))
    kept = {}
    for number, stats in enumerate(blocks):
        known = Stats(stats.rows, _Known(stats.columns, question, extent))
        proven = True
        for part in parts:
            found = outcomes(part, known)
            if not found & TRUE:
                break
            proven = proven and found == TRUE
        else:
            kept[number] = proven
    return kept


def stats_of(extent: Extent, question: Question) -> Stats:
    """Return an extent's statistics as predicates are judged by, decoded as they are asked for."""
    return Stats(extent.row_count, _Known(_Stored(extent.column_stats), question, extent))


class _Stored(Mapping[str, ColumnStats]):
    """Column statistics as the catalog keeps them."""

    def __init__(self, shapes: Mapping[str, Any]) -> None:
        self._shapes = shapes

    def __getitem__(self, name: str) -> ColumnStats:
        held = self._shapes[name]
        return held if isinstance(held, ColumnStats) else column_from_json(held)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


class _Known(Mapping[str, ColumnStats]):
    """Statistics of a run of rows, forgotten for columns whose values may also lie elsewhere in those rows."""

    def __init__(self, columns: Mapping[str, ColumnStats], question: Question, extent: Extent) -> None:
        self._columns, self._question, self._extent = columns, question, extent

    def __getitem__(self, name: str) -> ColumnStats:
        if name in self._question.schema and self._question.schema[name].type.logical is not None:
            return self._columns.get(name, UNKNOWN)  # what did not fit a logical type is not one of its values
        for column, path in self._question.alternatives.get(name, ()):
            elsewhere = self._columns.get(column)
            if elsewhere is not None and (elsewhere.paths is None or path in elsewhere.paths):
                return UNKNOWN
        known = self._columns.get(name, UNKNOWN)
        if name in self._question.schema and self._question.schema[name].type.kind == "dynamic":
            return _of_dynamic(known)
        return known

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def for_catalog(question: Question) -> Predicate | None:
    """Return what the catalog may judge by a column's own bounds: no column whose values may lie elsewhere.

    Nor one that is dynamic by now, and may have had another type where it was written.
    """
    dynamic = {column.name for column in question.schema if column.type.kind == "dynamic"}
    types = {column.name: column.type for column in question.schema}
    elsewhere = dynamic | {name for name in question.alternatives if name not in types or types[name].logical is None}
    if question.where is None or not elsewhere:
        return question.where
    parts = question.where.parts if isinstance(question.where, And) else (question.where,)
    kept = tuple(part for part in parts if not columns_of(part) & elsewhere)
    return And(kept) if kept else None


def judged_columns(question: Question, others: Iterable[str]) -> frozenset[str]:
    """Return the columns whose statistics are needed: the question's, others, and where else their values may lie."""
    asked = frozenset(others) | (frozenset() if question.where is None else columns_of(question.where))
    return asked.union(column for name in asked for column, _ in question.alternatives.get(name, ()))


def _of_dynamic(known: ColumnStats) -> ColumnStats:
    """Return what is known of a column that is dynamic by now, and may have had another type where it was written.

    Times are kept as whole numbers there and may not be taken for such: they have neither distinct values nor a filter.
    """
    is_whole = type(known.low) is int or type(known.high) is int
    return UNKNOWN if is_whole and known.distinct is None and known.values is None else known


def time_window(question: Question) -> tuple[int | None, int | None]:
    """Return the window of the time column that every wanted row lies in, ``[start, end)`` in nanoseconds."""
    parts = [p for p in conjuncts_of(question.where) if isinstance(p, TimeRange) and p.column == question.time]
    starts = [part.start_ns for part in parts if part.start_ns is not None]
    ends = [part.end_ns for part in parts if part.end_ns is not None]
    return max(starts, default=None), min(ends, default=None)


def _in_time(window: tuple[int | None, int | None], low_ns: int | None, high_ns: int | None) -> bool:
    """Compare a window with closed bounds; a bound of None bounds nothing."""
    start_ns, end_ns = window
    ends_before = start_ns is not None and high_ns is not None and high_ns < start_ns
    begins_after = end_ns is not None and low_ns is not None and low_ns >= end_ns
    return not (ends_before or begins_after)


def _counted(name: str, extents: Sequence[Extent]) -> Stage:
    rows, size = sum(extent.row_count for extent in extents), sum(extent.byte_size for extent in extents)
    return Stage(name, len(extents), rows, size)


def _heading(plan: ScanPlan) -> list[str]:
    question = plan.question
    lines = [f"scan {plan.table} at snapshot {plan.snapshot.sequence}"]
    lines.append(f"  columns  {', '.join(question.columns) or '(none)'}")
    asked = question.where if question.asked is None else question.asked
    if asked is not None:
        lines.append(f"  where    {asked!r}")
    if question.limit is not None:
        lines.append(f"  limit    {question.limit:,}")
    return lines


def _funnel(stages: Sequence[Stage]) -> list[str]:
    """One line a stage: a bar for the bytes that are left, then extents, blocks and rows."""
    if not stages[0].extents:
        told = [f"  {stage.name}" for stage in stages if stage.is_told]
        return told or ["  extents           none yet"]
    most = max(1, stages[0].byte_size)
    lines = []
    for stage in stages:
        cells = round(BAR_CELLS * stage.byte_size / most)
        bar = "█" * cells if cells or not stage.byte_size else "▏"
        lines.append(f"  {stage.name:<18}{bar:<{BAR_CELLS}}  {_bytes_text(stage.byte_size):>9}  {_counts(stage)}")
    return lines


def _counts(stage: Stage) -> str:
    blocks = "" if stage.blocks is None else f"{_many(stage.blocks, 'block')}, "
    return f"{_many(stage.extents, 'extent')}, {blocks}{_many(stage.rows, 'row')}"


def _closing(plan: ScanPlan) -> list[str]:
    lines = []
    if plan.hot:
        batches = f"{len(plan.hot):,} {'batch' if len(plan.hot) == 1 else 'batches'}"
        lines.append(f"  hot rows          {sum(batch.rows for batch in plan.hot):,} in {batches}")
    first, last = plan.stages[0], plan.stages[-1]
    if first.byte_size:
        lines.append(f"  reads {last.byte_size / first.byte_size:.1%} of the bytes")
    lines += [f"  warning: {each}" for each in plan.warnings]
    return lines


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _bytes_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
