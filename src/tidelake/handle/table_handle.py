"""Hold a table: which one of which lake, and at which snapshot, with the verbs that plan and read it.

A handle is a value: whoever needs another snapshot makes another handle. It does not change the table: what appends,
flushes and alters takes a handle, see ``write``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Unpack

import pyarrow as pa

from tidelake.catalog.commit import Coordinator
from tidelake.catalog.protocol import Catalog, HotHeader, StepHook, TableInfo
from tidelake.coverage.coverage_store import CoverageStore
from tidelake.dynamic.forms import check_form, stream_in_form
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.leases import Held
from tidelake.model.predicate import Predicate
from tidelake.model.schema import DELETED_COLUMN, Schema
from tidelake.model.snapshot import Extent, HotBatch, Scope, Snapshot
from tidelake.model.times import When
from tidelake.objects import ObjectStore
from tidelake.pruning.plan import (
    Question,
    ScanPlan,
    for_catalog,
    judged_columns,
    make_plan,
    time_window,
    without_pruning,
)
from tidelake.pruning.statistics import Stats
from tidelake.pruning.topmost import Top, top_blocks, top_extents
from tidelake.scan.alternatives import understood
from tidelake.scan.extents import prune_blocks, scan_shown
from tidelake.scan.extents import scan as scan_stored
from tidelake.scan.field_statistics import describe_hot
from tidelake.scan.footers import Footers
from tidelake.scan.listing_cache import listings_of
from tidelake.scan.misfits import with_warnings
from tidelake.scan.questions import Columns, Selection, question_of
from tidelake.scan.versions import Dead, keys_of, on_key, without_dead

HOT_DESCRIBED = 100_000  # hot rows; more are not looked at for statistics


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TableHandle:
    """A table of a lake at its newest snapshot, or pinned to one, which can then only be read."""

    lake: LakeHandle
    info: TableInfo
    past: Snapshot | None = None  # the snapshot that it is pinned to
    held: Held | None = None  # keeps that snapshot retained
    user: str = ""  # whose rows; "" for a shared table, or a table of users as such, which has no rows

    @classmethod
    def open(
        cls,
        lake: LakeHandle,
        name: str,
        *,
        as_of: When | None = None,
        snapshot: str | int | None = None,
        user: str | None = None,
    ) -> TableHandle:
        """Hold a table as it is, or as it was at a time or a snapshot (id or sequence); or that of one user."""
        info = lake.catalog.table(name)
        lake.coverage_store.know(info)
        table = cls(lake, info, user=lake.scope(info, user).user)
        if as_of is None and snapshot is None:
            return table
        table.check_user_given()
        return replace(table, past=lake.snapshot(name, as_of=as_of, snapshot=snapshot, user=user))

    @classmethod
    def seen_by(
        cls,
        lake: LakeHandle,
        name: str,
        user: str | None,
        *,
        as_of: When | None = None,
        snapshot: str | int | None = None,
    ) -> TableHandle:
        """Hold a table as a user sees it: their own where each user has one, or else the shared one."""
        own = user if user is not None and lake.has_users(lake.catalog.table(name)) else None
        return cls.open(lake, name, as_of=as_of, snapshot=snapshot, user=own)

    @property
    def name(self) -> str:
        return str(self.info)

    @property
    def scope(self) -> Scope:
        """The scope whose rows are read and written; InvalidInputError for a table of users as such."""
        self.check_user_given()
        return self.place

    @property
    def place(self) -> Scope:
        """The scope that this handle stands for, whether it can have rows or not."""
        return Scope(self.info.id, self.user)

    @property
    def whole(self) -> TableHandle:
        """The table without a user, which can be described and altered."""
        return self if not self.user else TableHandle(self.lake, self.info)

    def of_user(self, user: str) -> TableHandle:
        """Return the table of one user, at its newest snapshot."""
        self.refuse_when_pinned()
        if self.user:
            raise InvalidInputError("this is one user's table already", table=self.name, kind="has_user")
        return replace(self, user=self.lake.scope(self.info, user).user)

    def users(self, after: str = "") -> Iterator[str]:
        """Yield the ids of the users that have a scope, in their order, after one of them if told."""
        if not self.lake.has_users(self.info):
            raise InvalidInputError("the table is shared and has no users", table=self.name, kind="shared_table")
        if self.user:
            raise InvalidInputError("one user's table knows no others", table=self.name, kind="has_user")
        return (scope.user for scope in self.catalog.scopes(self.info.id, after=after) if scope.user)

    @property
    def is_of_users(self) -> bool:
        """Whether this is a table of users as such, without rows."""
        return not self.user and self.lake.has_users(self.info)

    def check_user_given(self) -> None:
        """Raise InvalidInputError for a table of users as such."""
        if not self.user:
            self.lake.seen_scope(self.info, None)

    @property
    def catalog(self) -> Catalog:
        return self.lake.catalog

    @property
    def store(self) -> ObjectStore:
        return self.lake.store

    @property
    def coordinator(self) -> Coordinator:
        return self.lake.coordinator

    @property
    def footers(self) -> Footers:
        return self.lake.footers

    @property
    def coverage_store(self) -> CoverageStore:
        return self.lake.coverage_store

    @property
    def at(self) -> StepHook:
        return self.lake.at

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that reads see now; of a table of users as such, the one that has its schema."""
        return self.past or self.catalog.head(self.place)

    @property
    def schema(self) -> Schema:
        return self.snapshot.schema

    def pinned(self) -> TableHandle:
        """Return the table at the snapshot it has now, so that several reads agree."""
        snapshot, held = self._in_use()
        return replace(self, past=snapshot, held=held)

    def showing(self, columns: Sequence[str], where: str | None = None) -> TableHandle:
        """Return the table pinned, with what is in the overflow column under these names as columns."""
        snapshot, held = self._in_use()
        shown, _ = understood(self.catalog, snapshot, columns, where)
        return replace(self, past=shown, held=held)

    def refuse_when_pinned(self) -> None:
        """Raise InvalidInputError if the table can only be read."""
        if self.past is not None:
            raise InvalidInputError("an older snapshot can only be read", table=self.name, snapshot=self.past.sequence)

    def extents(self) -> list[Extent]:
        """Return the extents that reads see now."""
        return self.catalog.extents(self.scope, sequence=self.snapshot.sequence)

    def hot(self, snapshot: Snapshot, ids: Collection[str] | None = None) -> Sequence[HotBatch]:
        """Return the hot batches of a snapshot, or those of some ids; the catalog is only asked if it has any."""
        if not snapshot.totals.hot_batches or (ids is not None and not ids):
            return ()
        return self.catalog.hot(self.scope, sequence=snapshot.sequence, ids=ids)

    def hot_headers(self, snapshot: Snapshot) -> Sequence[HotHeader]:
        """Return the hot batches of a snapshot without their rows; the catalog is only asked if it has any."""
        return self.catalog.hot_headers(self.scope, sequence=snapshot.sequence) if snapshot.totals.hot_batches else ()

    def hot_statistics(self) -> Stats | None:
        """Describe the hot rows, as statistics describe those of an extent; None if there are none, or too many."""
        snapshot, question = self.question()
        is_described = 0 < snapshot.totals.hot_rows <= HOT_DESCRIBED
        return describe_hot(self.hot(snapshot), question) if is_described else None

    def question(
        self,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        **asked: Unpack[Selection],
    ) -> tuple[Snapshot, Question]:
        """Return the snapshot that a scan reads now and what it asks of it."""
        snapshot = self.snapshot
        return snapshot, self._question_at(snapshot, columns, where, **asked)

    def outline(
        self,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        *,
        stats: Iterable[str] = (),
        **asked: Unpack[Selection],
    ) -> ScanPlan:
        """Plan as far as the catalog alone can tell: which extents, not yet which blocks; no object is read.

        But for a table with a key, whose keys say which rows are hidden. Extents come with the statistics of the
        columns that ``where`` asks about, and of those in ``stats``.
        """
        snapshot, held = self._in_use()
        question = self._question_at(snapshot, columns, where, **asked)
        judged = judged_columns(question, stats)
        listed = listings_of(self.catalog).extents(snapshot, question, judged)
        if listed is None:
            start_ns, end_ns = time_window(question)
            listed = self.catalog.extents(
                self.scope,
                sequence=snapshot.sequence,
                start_ns=start_ns,
                end_ns=end_ns,
                where=for_catalog(question),
                stats=judged,
            )
        hot = self.hot(snapshot)
        plan = make_plan(self.name, snapshot, question, listed, hot, held)
        return without_dead(plan, self._dead(plan, hot)) if snapshot.is_keyed else plan

    def plan(
        self,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        *,
        prune: bool = True,
        **asked: Unpack[Selection],
    ) -> ScanPlan:
        """Plan a scan to the block; without ``prune``, every block of every extent."""
        plan = self.outline(columns, where, **asked)
        if not prune:
            listed = self.catalog.extents(self.scope, sequence=plan.snapshot.sequence)
            hot = self.hot(plan.snapshot)
            whole = without_pruning(plan, listed, hot)
            if plan.snapshot.is_keyed:
                whole = without_dead(whole, self._dead(replace(plan, question=replace(plan.question, where=None)), hot))
            return with_warnings(prune_blocks(whole, self.footers, prune=False))
        return with_warnings(prune_blocks(plan, self.footers))

    def plan_top(self, columns: Columns, where: Predicate | None, by: str, top: Top) -> ScanPlan:
        """Plan a scan of which only the first rows by a column are needed; by the time column, few extents are read."""
        plan = self.outline(columns, where, stats=(by,))
        if by != plan.question.time or by in plan.question.alternatives:
            return with_warnings(prune_blocks(plan, self.footers))
        return with_warnings(top_blocks(prune_blocks(top_extents(plan, top), self.footers), top))

    def scan(
        self,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        *,
        prune: bool = True,
        dynamic: str = "json",
        **asked: Unpack[Selection],
    ) -> pa.RecordBatchReader:
        """Stream the rows that match, as ``Table.scan`` does."""
        check_form(dynamic)
        plan = self.plan(columns, where, prune=prune, **asked)
        return stream_in_form(scan_shown(plan, self.footers), dynamic)

    def reading(self) -> AbstractContextManager[None]:
        """Where objects of a pinned table are read: one that is not there is said to have expired, if it has."""
        return nullcontext() if self.held is None else self.held.reading()

    def stored_rows(
        self, columns: Columns, where: Predicate | str | None = None, **asked: Unpack[Selection]
    ) -> pa.RecordBatchReader:
        """Stream the rows that match, in the types that they are stored in."""
        plan = self.plan(columns, where, **asked)
        return scan_stored(plan, self.footers)

    def count_rows(self) -> int:
        """Return how many rows there are; of a table with a key, those that are not hidden."""
        snapshot, dead = self.dead()
        return snapshot.totals.rows + snapshot.totals.hot_rows - sum(map(len, dead.values()))

    def dead(self) -> tuple[Snapshot, Dead]:
        """Return the snapshot that reads see now, and the positions of all its rows that newer versions hide."""
        snapshot, held = self._in_use()
        question = self._question_at(snapshot, (), None)
        plan = make_plan(self.name, snapshot, question, (), (), held)
        return snapshot, self._dead(plan, self.hot(snapshot)) if snapshot.is_keyed else {}

    def _dead(self, plan: ScanPlan, hot: Sequence[HotBatch]) -> Dead:
        """Return the positions of rows that newer versions hide, at least of those that a plan's question may want."""
        snapshot, keys = plan.snapshot, keys_of(plan.snapshot)
        where = on_key(plan.question, keys)
        extents = self.catalog.extents(
            self.scope, sequence=snapshot.sequence, where=where, stats=(*keys, DELETED_COLUMN)
        )
        with plan.reading:
            return self.lake.versions.dead_in(snapshot, extents, hot, where)

    def _question_at(
        self,
        snapshot: Snapshot,
        columns: Columns | None,
        where: Predicate | str | None,
        **asked: Unpack[Selection],
    ) -> Question:
        shown, parsed = understood(self.catalog, snapshot, columns, where)
        return question_of(self.name, shown, columns, parsed, **asked)

    def _in_use(self) -> tuple[Snapshot, Held]:
        """Return the snapshot that reads see now, and what keeps it retained; the newest, should one have expired."""
        if self.past is not None and self.held is not None and self.held.sequence == self.past.sequence:
            return self.past, self.held
        for may_retry in (True, True, False):
            held = Held(self.catalog, self.snapshot)
            try:
                self.lake.leases.hold(self.scope, held.sequence, held)
                return held.snapshot, held
            except NotFoundError as error:
                if self.past is not None or error.kind != "expired" or not may_retry:
                    raise
        raise AssertionError("the last try returns or raises")

    def __repr__(self) -> str:
        past = "" if self.past is None else f" at snapshot {self.past.sequence}"
        user = f" of {self.user!r}" if self.user else ""
        return f"TableHandle({self.name}{user}{past} in {self.lake.where!r})"
