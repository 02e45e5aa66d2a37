"""Know what upkeep a table needs now, and do one piece of it.

=========  =============================================================  ==========================================
kind       due when                                                       done by
=========  =============================================================  ==========================================
flush      hot rows are older than the table's ``flush_age``              ``write.flush``
retain     extents or hot rows are older than its ``retention``           ``maintain.retention``
compact    extents are worth joining, one piece of work for each run      ``maintain.compact``
index      vectors of an indexed column are not coded                      ``vectors.indexing``
expire     snapshots are older than its ``history``                       the catalog
collect    the catalog lists garbage (of the whole lake)                  ``maintain.collect``
=========  =============================================================  ==========================================

A piece of work is a value that any process can do: it names a table and what to do, and is looked at again when it is
done, because the table may have changed since. It does not hand work out: see ``worker``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tidelake.catalog.protocol import RECEIPTS_KEPT_US, now_us
from tidelake.catalog.users import DueScope
from tidelake.errors import NotFoundError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain import collect, compact, retention
from tidelake.maintain.collect import ABANDONED_AFTER, EVER
from tidelake.maintain.compact import CompactReport
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Extent, Fence, Snapshot
from tidelake.model.times import duration_us
from tidelake.scan.hot import acknowledged_us
from tidelake.vectors import indexing, quantizing
from tidelake.vectors.definition import indexes_of
from tidelake.write.flush import flush

Kind = Literal["flush", "retain", "compact", "index", "expire", "collect"]
USERS_AT_ONCE = 10_000  # whose due pieces are planned at once; the others are found by the next look
LOOKS = 32  # at a scope, at most, while a snapshot or a row of it grows as old as it may

KINDS: tuple[Kind, ...] = (
    "flush",
    "retain",
    "compact",
    "index",
    "expire",
    "collect",
)  # in the order in which they help most


class CompactRun(Protocol):
    """Compact some extents of a snapshot, here or elsewhere."""

    def __call__(
        self, table: TableHandle, head: Snapshot, run: Sequence[Extent], *, fence: Fence | None
    ) -> CompactReport: ...


@dataclass(frozen=True, slots=True)
class Due:
    """A piece of upkeep that is due: what to do, with which table, and why."""

    kind: Kind
    table: str  # "" for the whole lake
    reason: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    user: str = ""  # of a table with users

    @property
    def key(self) -> str:
        """What two pieces of the same work have in common."""
        place = f"{self.table}/{self.user}" if self.user else self.table or "*"
        if "column" in self.payload:
            return f"{place}:{self.payload['column']}"
        return f"{place}:{self.payload['extents'][0]}" if "extents" in self.payload else place


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a piece of upkeep."""

    kind: str
    table: str
    said: str  # in words, "" if there was nothing left to do
    bytes_freed: int = 0
    pieces: int = 1  # that are told together


def due_in_lake(
    lake: LakeHandle,
    tables: Collection[str] | None = None,
    kinds: Collection[str] = KINDS,
    *,
    users: int = USERS_AT_ONCE,
) -> Iterator[Due]:
    """Yield what upkeep some tables need now, or all of them, and the lake itself."""
    for name in lake.tables() if tables is None else tables:
        try:
            table = TableHandle.open(lake, name)
            yield from due_of_users(table, kinds, limit=users) if table.is_of_users else due_in_table(table, kinds)
        except NotFoundError:
            if tables is not None:
                raise  # it was named; of others, it was dropped meanwhile
    if "collect" in kinds and tables is None and (reason := _to_collect(lake)):
        yield Due("collect", "", reason)


def due_of_users(
    table: TableHandle, kinds: Collection[str] = KINDS, *, limit: int = USERS_AT_ONCE, note: bool = True
) -> Iterator[Due]:
    """Yield what upkeep the users of a table need now, a bounded number of them; others are not looked at.

    A scope in which nothing is due is noted to be looked at again when something may be, or after its next commit.
    """
    catalog, before_us, found = table.catalog, now_us(), 0
    after: DueScope | None = None
    while found < limit and (page := catalog.due_scopes(table.info.id, before_us=before_us, after=after)):
        for scope in page:
            after = scope
            one = table.of_user(scope.scope.user)
            head = catalog.head(one.scope)
            due = list(due_in_table(one, KINDS))
            if not due and note:
                catalog.look_again(scope, sequence=head.sequence, at_us=_next_look_us(one, head))
            found += bool(due)
            yield from (each for each in due if each.kind in kinds)
            if found >= limit:
                return


def _next_look_us(table: TableHandle, head: Snapshot) -> int | None:
    """Return when something may be due in a scope in which nothing is; None if nothing will be without a commit."""
    settings, now = TableSettings.of(head.settings), now_us()
    looks = []
    hot = table.hot(head)
    if hot and settings.flush_age_us is not None:
        looks.append(min(map(acknowledged_us, hot)) + settings.flush_age_us)
    retained = table.catalog.retained(table.scope, before_us=now)
    if retained.snapshots > 1 and retained.oldest_us is not None:
        looks.append(max(retained.oldest_us + settings.history_us, now + settings.history_us // LOOKS))
    if settings.retention_us is not None and settings.time is not None:
        extents = table.catalog.extents(table.scope, sequence=head.sequence, stats=())
        times = [*(each.min_ts_ns for each in extents), *(each.min_ts_ns for each in hot)]
        oldest = [each for each in times if each is not None]
        if oldest:
            due_us = min(oldest) // 1000 + settings.retention_us
            looks.append(max(due_us, now + settings.retention_us // LOOKS))
    return min(looks, default=None)


def due_in_table(table: TableHandle, kinds: Collection[str] = KINDS) -> Iterator[Due]:
    """Yield what upkeep a table needs now."""
    head, now = table.catalog.head(table.scope), now_us()

    def due(kind: Kind, reason: str, payload: Mapping[str, Any] | None = None) -> Due:
        return Due(kind, table.name, reason, payload or {}, table.user)

    if "flush" in kinds and (old := _old_hot_rows(table, head, now)):
        yield due("flush", f"{old:,} hot rows are older than {TableSettings.of(head.settings).flush_age}")
    limit = retention.limit_ns(head, now)
    if "retain" in kinds and limit is not None:
        whole, trimmed = retention.too_old(table, head, limit)
        hot = sum(batch.rows for batch in retention.old_hot(table, head, limit))
        found = [f"{len(whole) + len(trimmed):,} extents hold rows"] if whole or trimmed else []
        found += [f"{hot:,} hot rows are"] if hot else []
        if found:
            yield due("retain", f"{' and '.join(found)} older than {head.settings['retention']}")
    if "compact" in kinds:
        for run in compact.due_runs(table, head):
            ids = [extent.id for extent in run]
            yield due("compact", f"{len(run):,} extents are worth joining", {"extents": ids})
    if "index" in kinds and quantizing.is_available():
        for index, reason in indexing.missing_in(table, head):
            yield due("index", reason, {"column": index.column})
    if "expire" in kinds:
        before_us = now - TableSettings.of(head.settings).history_us
        if (count := table.catalog.retained(table.scope, before_us=before_us).due) > 0:
            history = TableSettings.of(head.settings).history
            yield due("expire", f"{count:,} snapshots are older than {history}")


def do(
    lake: LakeHandle, due: Due, *, fence: Fence | None = None, compact_run: CompactRun = compact.compact_run
) -> Done:
    """Do a piece of upkeep, as far as it is still due; a run may be compacted elsewhere."""
    if due.kind == "collect":
        return _collected(lake)
    try:
        table = TableHandle.open(lake, due.table, user=due.user or None)
    except NotFoundError:
        return Done(due.kind, due.table, "")
    match due.kind:
        case "flush":
            flushed = flush(table)
            return Done("flush", table.name, f"{flushed.rows:,} hot rows flushed" if flushed.rows else "")
        case "retain":
            gone = retention.retain(table, fence=fence)
            return Done("retain", table.name, f"{gone.rows:,} old rows left" if gone.rows else "", gone.bytes)
        case "compact":
            return _compacted(table, due.payload, fence, compact_run)
        case "index":
            return _indexed(table, due.payload, fence)
        case "expire":
            return expire_table(table)


def expire_table(table: TableHandle) -> Done:
    """Forget the snapshots of a table that are older than its history."""
    history_us = TableSettings.of(table.catalog.head(table.scope).settings).history_us
    expired = table.catalog.expire_snapshots(table.scope, before_us=now_us() - history_us)
    said = f"{expired.snapshots:,} snapshots expired" if expired.snapshots else ""
    return Done("expire", table.name, said)


def _compacted(table: TableHandle, payload: Mapping[str, Any], fence: Fence | None, compact_run: CompactRun) -> Done:
    head = table.catalog.head(table.scope)
    wanted = set(payload["extents"])
    listed = table.catalog.extents(table.scope, sequence=head.sequence, stats=())
    run = [each for each in listed if each.id in wanted]
    if len(run) < len(wanted):
        return Done("compact", table.name, "")  # somebody was faster
    report = compact_run(table, head, run, fence=fence)
    said = f"{report.extents:,} extents became {report.written:,}" if report.runs else ""
    return Done("compact", table.name, said, report.bytes_read - report.bytes_written if report.runs else 0)


def _indexed(table: TableHandle, payload: Mapping[str, Any], fence: Fence | None) -> Done:
    head = table.catalog.head(table.scope)
    index = indexes_of(head.settings, head.schema).get(payload["column"])
    if index is None or not quantizing.is_available():
        return Done("index", table.name, "")  # it was dropped
    report = indexing.write_missing(table, index, suspects=payload.get("suspects", ()), fence=fence)
    if report.extents:
        indexing.tell_manifests(table)
    said = f"the vectors of {report.extents:,} extents were coded" if report.extents else ""
    return Done("index", table.name, said)


def _collected(lake: LakeHandle) -> Done:
    histories = [TableSettings.of(lake.snapshot(name).settings).history_us for name in lake.tables()]
    lake.catalog.expire_receipts(before_us=now_us() - max([*histories, RECEIPTS_KEPT_US]))
    lake.catalog.work.forget(before_us=now_us() - RECEIPTS_KEPT_US)
    report = collect.collect(lake)
    lake.catalog.shrink()
    said = f"{report.total.objects:,} objects deleted" if report.total.objects else ""
    return Done("collect", "", said, report.total.bytes)


def _to_collect(lake: LakeHandle) -> str:
    """Return why a collection is due; "" if it is not, so far as the catalog alone can tell."""
    if lake.catalog.garbage(before_us=EVER, limit=1):
        return "objects that nothing can reach wait"
    if lake.catalog.dropped_tables(before_us=EVER):
        return "dropped tables wait"
    old = now_us() - duration_us(ABANDONED_AFTER)
    return "objects of writers that are gone wait" if any(p.since_us < old for p in lake.catalog.pending()) else ""


def _old_hot_rows(table: TableHandle, head: Snapshot, now: int) -> int:
    """Return how many hot rows there are, if the oldest are older than they should be."""
    age_us = TableSettings.of(head.settings).flush_age_us
    if age_us is None or not head.totals.hot_batches:
        return 0
    oldest = min(map(acknowledged_us, table.hot_headers(head)), default=now)
    return head.totals.hot_rows if now - oldest > age_us else 0
