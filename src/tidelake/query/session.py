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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
from sqlglot import exp

from tidelake.catalog.names import check_user
from tidelake.errors import InvalidInputError, QueryError
from tidelake.handle.lake_handle import LakeHandle, OpenLake
from tidelake.model.schema import Schema
from tidelake.query.adapt import adapt
from tidelake.query.answers import name_answers
from tidelake.query.bind import bind, bind_tables, quoted_columns
from tidelake.query.budget import Budget, Deadline
from tidelake.query.join_filters import with_join_filters
from tidelake.query.kql import lower
from tidelake.query.latest import with_latest
from tidelake.query.long_lists import balance, write_out_others
from tidelake.query.manifest import Answered, Shape, finish, shape_of
from tidelake.query.nearest import with_nearest
from tidelake.query.paths import with_paths_apart
from tidelake.query.picking import picked
from tidelake.query.planning import answered_of, scan_of, scans_of
from tidelake.query.prepared import Prepared, Scan
from tidelake.query.pushdown import push_down
from tidelake.query.result import Result, is_plain
from tidelake.query.row_sizes import guard_sizes
from tidelake.query.seen import Seen, Sight, View
from tidelake.query.sql.parse import asks_the_time, check_text, is_by_chance, parse_sql, too_deep, with_clock
from tidelake.query.sql.setting import split_user
from tidelake.runtime.deferred import deferred
from tidelake.runtime.forking import renew_after_fork
from tidelake.scan.alternatives import nor_in_overflow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelake.query.engines import local
else:
    local = deferred("tidelake.query.engines.local")  # brings the engine, which planning does without

KEPT_QUERIES = 512  # prepared texts for each lake; one is some dozens of kilobytes

# Bytes as stored that the local engine takes on: some ten seconds of decoding on two cores, and about as much as it
# takes until a Spark session has started.
LOCAL_BYTES = 2 << 30

Language = Literal["sql", "kql"]
Engine: TypeAlias = Literal["local", "spark"]


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
    seen = Seen(held, limits, deadline, user, sight or Sight(), view or View())
    prepared = _prepared(held, text, language, seen)
    if prepared.shape is not None and engine in ("auto", "local") and prune and seen.view.is_whole:
        return _manifest_result(prepared, prepared.shape, seen, held)
    whole = prepared
    if prepared.apart is not None and engine in ("auto", "local") and prune:
        prepared = prepared.apart
    scans = scans_of(prepared, seen, prune)
    chosen = _choose_engine(engine, scans)
    if seen.view.part is not None and not is_plain(prepared, scans):
        raise InvalidInputError("only the rows of a table can be read in parts", kind="no_parts")
    if chosen == "spark" and prepared is not whole:
        prepared, scans = whole, scans_of(whole, seen, prune)
    if chosen == "local" and prune and prepared.joined and seen.view.added is None:
        with seen.deadline.undisturbed():
            scans = with_join_filters(prepared.joined, scans, lambda scan, also: scan_of(scan.ask, seen, True, also))
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


def _manifest_result(prepared: Prepared, shape: Shape, seen: Seen, lake: LakeHandle) -> Result:
    """Answer from the manifest as far as it goes; what it cannot answer is planned as any scan is."""
    limits = seen.limits
    table = seen.table(shape.reference.table, shape.reference.at)
    answered = answered_of(prepared, shape, table)
    scan = Scan(shape.reference.name, shape.columns, table, answered.plan, prepared.asks[0])
    limits.check_read(scan.byte_size)
    seen.check_time()
    runs = _FromManifest(lake, "manifest", shape, answered)
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


def _prepared(lake: LakeHandle, text: str, language: Language, seen: Seen) -> Prepared:
    kept = _KEPT.get(lake) or _KEPT.setdefault(lake, _Kept())
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


def _prepare_with_overflow(text: str, language: Language, seen: Seen) -> tuple[Prepared, bool]:
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


def _prepare(text: str, language: Language, seen: Seen) -> tuple[Prepared, bool]:
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
