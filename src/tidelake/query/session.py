"""Take a query from its text to a result that can be asked for rows.

1. read the text and bind its names, which is kept for the next time the same text comes;
2. pin each table to one snapshot, so that all references of a query agree;
3. plan every scan, and refuse what exceeds the budget;
4. choose the engine: in process for what is small after pruning, Spark for the rest.

Rows are read when the result is asked for them, but for small sides of joins, which narrow large ones. It does
not run anything itself: see ``local`` and ``spark``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
from sqlglot import exp

from tidelake.catalog.names import check_user
from tidelake.catalog.protocol import DEFAULT_NAMESPACE
from tidelake.connectors.attached import attached_table
from tidelake.errors import InvalidInputError, NotFoundError, QueryError
from tidelake.handle.lake_handle import LakeHandle, OpenLake
from tidelake.handle.table_handle import TableHandle
from tidelake.model.path_value import PathValue
from tidelake.model.predicate import And, Predicate, TimeRange
from tidelake.model.schema import DataType, Schema
from tidelake.model.settings import TableSettings
from tidelake.pruning.plan import Block, ScanPlan, Stage
from tidelake.query.adapt import adapt
from tidelake.query.answers import answer_rows, answered, live, name_answers
from tidelake.query.bind import AsOf, bind, bind_tables, quoted_columns
from tidelake.query.budget import Budget, Deadline
from tidelake.query.external import read_external
from tidelake.query.join_filters import with_join_filters
from tidelake.query.kql import lower
from tidelake.query.latest import with_latest
from tidelake.query.long_lists import balance, write_out_others
from tidelake.query.manifest import Answered, Shape, finish, from_manifest, shape_of
from tidelake.query.nearest import with_nearest
from tidelake.query.paths import with_paths_apart
from tidelake.query.picking import picked
from tidelake.query.prepared import Prepared, Scan
from tidelake.query.pushdown import Ask, push_down
from tidelake.query.result import Result, is_plain
from tidelake.query.row_sizes import guard_sizes
from tidelake.query.sql.parse import asks_the_time, check_text, is_by_chance, parse_sql, too_deep, with_clock
from tidelake.query.sql.setting import split_user
from tidelake.query.system import system_rows
from tidelake.runtime.deferred import deferred
from tidelake.runtime.forking import renew_after_fork
from tidelake.scan.alternatives import nor_in_overflow
from tidelake.scan.extents import prune_blocks
from tidelake.scan.scannable import Scannable
from tidelake.vectors.narrowing import narrowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelake.query.engines import local
else:
    local = deferred("tidelake.query.engines.local")  # brings the engine, which planning does without

KEPT_QUERIES = 512  # prepared texts for each lake; one is some dozens of kilobytes
_CHEAPEST = ("bool", "int", "timestamp", "long", "real", "string", "vector", "dynamic")

# Bytes as stored that the local engine takes on: some ten seconds of decoding on two cores, and about as much as it
# takes until a Spark session has started.
LOCAL_BYTES = 2 << 30

Language = Literal["sql", "kql"]
Engine: TypeAlias = Literal["local", "spark"]


@dataclass(frozen=True, slots=True)
class Sight:
    """What of a lake whoever asks may see: tables that name no namespace are in this one, and not all may be there."""

    namespace: str = DEFAULT_NAMESPACE
    reaches: Callable[[str], bool] = lambda name: True


@dataclass(frozen=True, slots=True)
class View:
    """Which part of the tables a query is about, whatever its text says: older states, a range of time, new rows.

    ``as_of`` is a time, and ``snapshots`` are sequences by the tables' full names, for references that name no state of
    their own; under no name is the one of the only table. ``start_ns`` and ``end_ns`` bound the time column of every
    table that has one. ``added`` are sequences, the first not included: of each table only what its snapshots in
    between added is read. ``part`` is one of so many parts, by its number from 0, of a query that a scan answers alone:
    all of them together are its rows.
    """

    as_of: str | None = None
    snapshots: Mapping[str, int] = field(default_factory=dict)
    start_ns: int | None = None
    end_ns: int | None = None
    added: tuple[int, int] | None = None
    part: tuple[int, int] | None = None

    @property
    def has_range(self) -> bool:
        return self.start_ns is not None or self.end_ns is not None

    @property
    def is_whole(self) -> bool:
        """Whether all rows of a snapshot are meant."""
        return not self.has_range and self.added is None and self.part is None

    @property
    def is_newest(self) -> bool:
        """Whether the newest snapshots are meant, whole or a range of time."""
        return self.as_of is None and not self.snapshots and self.added is None and self.part is None

    def state_of(self, table: str) -> AsOf | None:
        """Return the state of a table that is meant where a query names none."""
        sequence = self.snapshots.get(table, self.snapshots.get(""))
        if sequence is not None:
            return AsOf(sequence=sequence)
        return None if self.as_of is None else AsOf(time=self.as_of)


def run(
    lake: OpenLake,
    text: str,
    *,
    language: Language = "sql",
    engine: str = "auto",
    budget: Budget | Mapping[str, Any] | None = None,
    prune: bool = True,
    user: str | None = None,
    sight: Sight | None = None,
    view: View | None = None,
) -> Result:
    """Prepare a query and plan its scans; ``prune=False`` reads every row and pushes nothing down: to compare with.

    Where each user has a table, the one of ``user`` is meant, wherever the text names the table; only if none is given,
    SQL may name one by ``SET tide.user``. Tables that are out of ``sight`` are not there, nor rows out of ``view``.
    """
    limits = Budget.of(budget)
    deadline = Deadline(limits.seconds)
    held = lake.handle
    if language == "sql":
        user, text = _user_of(text, user)
    if user is not None:
        check_user(user)
    seen = _Seen(held, limits, deadline, user, sight or Sight(), view or View())
    prepared = _prepared(held, text, language, seen)
    if prepared.shape is not None and engine in ("auto", "local") and prune and seen.view.is_whole:
        return _manifest_result(prepared, prepared.shape, seen, held)
    whole = prepared
    if prepared.apart is not None and engine in ("auto", "local") and prune:
        prepared = prepared.apart
    scans = [_scan(ask, seen, prune) for ask in prepared.asks]
    chosen = _choose_engine(engine, scans)
    if seen.view.part is not None and not is_plain(prepared, scans):
        raise InvalidInputError("only the rows of a table can be read in parts", kind="no_parts")
    if chosen == "spark" and prepared is not whole:
        prepared, scans = whole, [_scan(ask, seen, prune) for ask in whole.asks]
    if chosen == "local" and prune and prepared.joined and seen.view.added is None:
        with seen.deadline.undisturbed():
            scans = with_join_filters(prepared.joined, scans, lambda scan, also: _scan(scan.ask, seen, True, also))
    limits.check_read(sum(scan.byte_size for scan in scans))
    if not prune:
        prepared = replace(prepared, picked=None)  # the scan does not ask the conditions
    return Result(prepared, scans, chosen, replace(limits, spent=deadline.spent), _Runs(held, chosen))


def _user_of(text: str, user: str | None) -> tuple[str | None, str]:
    """Return whose tables a text means, and the text without what says so."""
    named, rest = split_user(text)
    if named is None:
        return user, text
    if user is not None:
        raise QueryError("the user is given already: a query cannot choose another", kind="user_given")
    return named, rest


def _choose_engine(wanted: str, scans: Iterable[Scan]) -> Engine:
    """Return the engine that was asked for, or the one that suits what the scans read."""
    if wanted not in ("auto", "local", "spark"):
        raise InvalidInputError(f"{wanted!r} is not an engine: auto, local or spark", kind="bad_engine")
    if wanted != "auto":
        return cast(Engine, wanted)
    small = sum(scan.byte_size for scan in scans) <= LOCAL_BYTES
    return "local" if small or find_spec("pyspark") is None else "spark"


def _manifest_result(prepared: Prepared, shape: Shape, seen: _Seen, lake: LakeHandle) -> Result:
    """Answer from the manifest as far as it goes; what it cannot answer is planned as any scan is."""
    limits = seen.limits
    table = seen.table(shape.reference.table, shape.reference.at)
    answered = from_manifest(shape, table)
    plan = prune_blocks(answered.plan, lake.footers) if answered.plan.tasks else answered.plan
    scan = Scan(shape.reference.name, shape.columns, table, plan, prepared.asks[0])
    limits.check_read(scan.byte_size)
    seen.check_time()
    runs = _FromManifest(lake, "manifest", shape, replace(answered, plan=plan))
    return Result(prepared, [scan], "manifest", limits, runs)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Run a prepared query on the engine that was chosen, or read its answer off the manifest."""

    lake: LakeHandle
    engine: str

    def rows(self, prepared: Prepared, scans: Sequence[Scan], budget: Budget) -> pa.RecordBatchReader:
        if self.engine == "local":
            return local.execute(prepared, scans, budget, self.lake)
        from tidelake.query.engines import spark

        return spark.execute(prepared, scans, budget, spark.session()).to_reader()

    def schema(self, prepared: Prepared, scans: Sequence[Scan], budget: Budget) -> pa.Schema:
        if self.engine == "local":
            return local.schema_of(prepared, scans, budget, self.lake)
        return self.rows(prepared, scans, budget).schema

    def satisfying(self, prepared: Prepared, scan: Scan, rows: pa.Table, budget: Budget) -> list[bool]:
        return local.satisfying(prepared, scan, rows, budget)

    def frame(self, prepared: Prepared, scans: Sequence[Scan]) -> DataFrame:
        from tidelake.query.engines import spark

        return spark.frame_of(prepared, scans, spark.session())


@dataclass(frozen=True, slots=True)
class _FromManifest(_Runs):
    """Finish an answer that the manifest began."""

    shape: Shape
    answered: Answered

    def rows(self, prepared: Prepared, scans: Sequence[Scan], budget: Budget) -> pa.RecordBatchReader:
        return finish(self.shape, self.answered, self.lake.footers, prepared.columns).to_reader()

    def schema(self, prepared: Prepared, scans: Sequence[Scan], budget: Budget) -> pa.Schema:
        nothing = replace(self.answered, plan=replace(self.answered.plan, tasks=(), hot=()))
        return finish(self.shape, nothing, self.lake.footers, prepared.columns).schema


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Kept:
    """Prepared queries by text, with the schemas they were bound to."""

    queries: OrderedDict[tuple[str, str], tuple[Prepared, dict[str, Schema]]] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Forget all in a forked child: a thread of the parent may have been in the middle of a change."""
        self.queries, self.lock = OrderedDict(), Lock()


_KEPT: WeakKeyDictionary[LakeHandle, _Kept] = WeakKeyDictionary()


def _prepared(lake: LakeHandle, text: str, language: Language, seen: _Seen) -> Prepared:
    kept = _KEPT.setdefault(lake, _Kept())
    key = (language, text)
    with kept.lock:
        found = kept.queries.get(key)
        if found is not None:
            kept.queries.move_to_end(key)
    if found is not None and all(seen.table(name).snapshot.schema is schema for name, schema in found[1].items()):
        return found[0]
    check_text(text)
    try:
        prepared, lasting = seen.deadline.watched(
            lambda: _prepare_with_overflow(text, language, seen), seen.limits.out_of_time(planning=True)
        )
    except RecursionError:
        raise too_deep() from None
    if lasting:
        with kept.lock:
            kept.queries[key] = (prepared, seen.schemas())
            while len(kept.queries) > KEPT_QUERIES:
                kept.queries.popitem(last=False)
    return prepared


def _prepare_with_overflow(text: str, language: Language, seen: _Seen) -> tuple[Prepared, bool]:
    """Bind a text; a name that is no column, but is found in a table's overflow column, stands for that."""
    while True:
        try:
            prepared, lasting = _prepare(text, language, seen)
        except QueryError as error:
            if error.unknown is None or not seen.show_overflowed(error.unknown):
                raise nor_in_overflow(error, seen.schemas().values()) from None
        else:
            return replace(prepared, repeatable=prepared.repeatable and not seen.overflowed), (
                lasting and not seen.overflowed
            )


def _prepare(text: str, language: Language, seen: _Seen) -> tuple[Prepared, bool]:
    """Bind a text; the second answer says whether it means the same tomorrow."""
    now = datetime.now(UTC)
    if language == "kql":
        lowered = lower(text, seen, now=now)
        write_out_others(lowered.tree)
        bound = bind_tables(balance(lowered.tree), text, seen)
        names = tuple(name for name, _ in lowered.columns)
        pushed, shape = push_down(bound), _without_logical(shape_of(bound))
        asks = with_latest(bound, with_nearest(bound, pushed.asks))
        guard_sizes(bound.tree)
        lasting = not (lowered.timely or seen.answers or seen.looked_around)
        repeatable = lasting and not is_by_chance(bound.tree)
        prepared = Prepared(
            text,
            language,
            bound.tree,
            names,
            asks,
            shape,
            lowered,
            grows=pushed.grows,
            repeatable=repeatable,
            joined=pushed.joined,
        )
        return replace(prepared, apart=with_paths_apart(prepared)), lasting
    tree: exp.Query = parse_sql(text)
    name_answers(tree, text, seen)
    if columns := quoted_columns(tree, text, seen):
        tree = parse_sql(text, columns)
        seen.answers.clear()
        name_answers(tree, text, seen)
    tree = balance(tree)
    lasting = not asks_the_time(tree) and tree.find(exp.Version) is None and not seen.answers
    bound = bind(with_clock(tree, now), text, seen)
    pushed, shape = push_down(bound), shape_of(bound)
    asks = with_latest(bound, with_nearest(bound, pushed.asks))
    columns_picked = picked(bound, asks)
    adapted = adapt(bound, text)
    names = tuple(bound.shown.get(name, name) for name in adapted.named_selects)
    guard_sizes(adapted)
    clocks = _clocks(adapted)
    repeatable = lasting and not is_by_chance(adapted)
    prepared = Prepared(
        text, language, adapted, names, asks, shape, clocks=clocks, picked=columns_picked, grows=pushed.grows,
        repeatable=repeatable, joined=pushed.joined,
    )  # fmt: skip
    return replace(prepared, apart=with_paths_apart(prepared)), lasting


def _clocks(tree: exp.Query) -> frozenset[int]:
    """Return the places of the outputs that are wall clocks."""
    kinds = [None if each.type is None else each.type.this for each in tree.selects]
    return frozenset(at for at, kind in enumerate(kinds) if kind is exp.DType.TIMESTAMPNTZ)


def _without_logical(shape: Shape | None) -> Shape | None:
    """Leave to an engine the bounds of columns that KQL sees in other types than SQL."""
    if shape is None:
        return None
    asked = [shape.reference.types[each.column] for each in shape.outputs if each.column and each.kind != "count"]
    return shape if all(kind.logical is None for kind in asked) else None


def _scan(ask: Ask, seen: _Seen, prune: bool, also: Predicate | None = None) -> Scan:
    seen.check_time()
    table = seen.table(ask.reference.table, ask.reference.at)
    shown = ask.columns or (() if ask.paths else (_cheapest(ask.reference.types),))
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
    names = (*shown, *(each.name for each in ask.paths))
    if ask.counted is not None:
        plan, names = replace(plan, question=replace(plan.question, counted=ask.counted)), (*names, ask.counted)
    return Scan(ask.reference.name, names, table, plan, ask)


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


class _Seen:
    """The tables of a lake as one query sees them: each pinned to one snapshot, the newest when first asked for."""

    def __init__(
        self, lake: LakeHandle, limits: Budget, deadline: Deadline, user: str | None, sight: Sight, view: View
    ) -> None:
        self._lake, self._user, self._sight, self.view = lake, user, sight, view
        self.limits, self.deadline = limits, deadline
        self.answers: dict[str, Scannable] = {}  # tables that a query's text makes
        self.overflowed = False  # a name is no column, and was found in an overflow column
        self.looked_around = False  # what a query means depends on which tables there are
        self._tables: dict[tuple[str, AsOf | None], Scannable] = {}
        self._alone: str | None = None  # the table that a snapshot without a name is of
        self._newest: dict[str, TableHandle] = {}  # by a table's id: a query may spell its name in several ways

    def table(self, name: str, at: AsOf | None = None) -> Scannable:
        key = (name, at)
        if key not in self._tables:
            with self.deadline.undisturbed():
                self._tables[key] = self._pinned(name, at)
        return self._tables[key]

    def check_time(self) -> None:
        """Refuse to plan on once the time is over."""
        if self.deadline.left < 0:
            raise self.limits.out_of_time(planning=True)

    def answer(self, kind: str, words: Mapping[str, Any]) -> str:
        """Find an answer about a table, and give the name under which it can be read."""
        about = {name: value for name, value in words.items() if name != "table"}
        name = f"{kind}_{len(self.answers) + 1}"
        if kind == "live":
            if self._user is not None:
                raise NotFoundError("no such table", table=words["table"], kind="no_table")
            with self.deadline.undisturbed():
                self.answers[name] = live(self._lake, self._in_sight(str(words["table"])), about)
            return name
        table = self.table(str(words["table"]))
        with self.deadline.undisturbed():
            self.answers[name] = answered(name, table, kind, about, self._lake.footers)
        return name

    def external(self, columns: Sequence[str], addresses: Sequence[str], options: Mapping[str, Any]) -> str:
        """Read data outside the lake as columns of text, and give the name under which it can be read."""
        name = f"external_{len(self.answers) + 1}"
        with self.deadline.undisturbed():
            rows = read_external(columns, addresses, options, self.limits, self.deadline)
            self.answers[name] = answer_rows(name, rows, self._lake.footers)
        return name

    def columns(self, name: str) -> Mapping[str, DataType]:
        return {column.name: column.type for column in self.table(name).schema}

    def columns_at(self, name: str, at: AsOf) -> Mapping[str, DataType]:
        return {column.name: column.type for column in self.table(name, at).schema}

    def names(self) -> Sequence[str]:
        self.looked_around = True
        with self.deadline.undisturbed():
            return [name for name in self._lake.tables() if self._sight.reaches(name)]

    def show_overflowed(self, name: str) -> bool:
        """Show what the overflow columns of the tables so far have under a name as a column; say whether any has."""
        with self.deadline.undisturbed():
            shown = {key: table.showing([name]) for key, table in self._tables.items() if name not in table.schema}
        found = {key: table for key, table in shown.items() if name in table.schema}
        self._tables |= found
        self.overflowed |= bool(found)
        return bool(found)

    def schemas(self) -> dict[str, Schema]:
        return {name: table.schema for (name, at), table in self._tables.items() if at is None}

    def _pinned(self, name: str, at: AsOf | None) -> Scannable:
        if at is None and name in self.answers:
            return self.answers[name]
        if at is None:
            at = self._viewed(self._full(name))
        if at is not None and at.sequence is not None:
            return TableHandle.seen_by(self._lake, self._in_sight(name), self._user, snapshot=at.sequence)
        try:
            newest = self._pinned_newest(name)
        except NotFoundError:  # what the lake tells about itself is found under names that no table has
            own: Scannable | None = None
            if at is None and self._sight.reaches(name):
                own = system_rows(self._lake, name, self._user, self._sight.reaches)
                if own is None and self._user is None:
                    own = attached_table(self._lake, self._full(name))
            if own is None:
                raise
            return own
        if at is None:
            return newest
        past = TableHandle.seen_by(self._lake, self._in_sight(name), self._user, as_of=at.time)
        return past if past.snapshot.sequence <= newest.snapshot.sequence else newest  # a time that is still to come

    def _pinned_newest(self, name: str) -> TableHandle:
        try:
            table = TableHandle.seen_by(self._lake, self._in_sight(name), self._user)
        except NotFoundError:
            self.looked_around = True
            raise
        except InvalidInputError as error:
            self.looked_around = True
            raise _as_missing(error, name) from None
        id = table.info.id
        if id not in self._newest:
            self._newest[id] = table.pinned()
        return self._newest[id]

    def _viewed(self, full: str) -> AsOf | None:
        """Return the state in which a table is viewed; a snapshot that names no table is of the only one."""
        if "" in self.view.snapshots and full not in self.view.snapshots:
            self._alone = self._alone or full
            if self._alone != full:
                raise InvalidInputError(
                    "a snapshot is one table's, and the query names several: give one for each by its name",
                    tables=f"{self._alone}, {full}", kind="bad_snapshot",
                )  # fmt: skip
        return self.view.state_of(full)

    def _full(self, name: str) -> str:
        return name if "." in name else f"{self._sight.namespace}.{name}"

    def _in_sight(self, name: str) -> str:
        """Return a table's full name; NotFoundError, as for one that is not there, if it is out of sight."""
        own = self._full(name)
        if not self._sight.reaches(own):
            raise NotFoundError("no such table", table=own, kind="no_table")
        return own


def _as_missing(error: InvalidInputError, name: str) -> Exception:
    return NotFoundError("there is no such table", table=name) if error.kind == "bad_name" else error
