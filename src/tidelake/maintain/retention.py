"""Let rows go that are older than a table's retention, by their time column.

Extents and hot batches that lie wholly before the limit leave by metadata alone. An extent that straddles it is written
again without its old rows once at least half of it is old by its bounds, so that trimming costs no more than it frees;
until then they stay readable. The commit notes the limit in the table's settings, so that coverage tells what has
expired from what is missing. It does not delete objects.
"""

from __future__ import annotations

from dataclasses import replace

from tidelake.catalog.protocol import HotHeader, now_us
from tidelake.errors import InvalidInputError
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain.delete import DeleteReport
from tidelake.maintain.keyed import hide_rows
from tidelake.maintain.rewrite import Rewrite, at_newest_head
from tidelake.model.settings import RETAINED_FROM, TableSettings
from tidelake.model.snapshot import Action, Extent, Fence, Snapshot, UpdateTable
from tidelake.scan.remaining import Remaining
from tidelake.write.appender import Appender

STEPS = 64  # in a retention, in which the limit of a table with users moves on
TRIM_SHARE = 0.5  # of an extent's time that is before the limit, from which on its old rows are written off


def limit_ns(snapshot: Snapshot, at_us: int) -> int | None:
    """Return the time before which a table's rows are too old; None if it keeps them for ever."""
    settings = TableSettings.of(snapshot.settings)
    if settings.retention_us is None or settings.time is None:
        return None
    limit_us = at_us - settings.retention_us
    if snapshot.scope.user:  # in steps, which all users share: the table notes the limit, and seldom
        limit_us -= limit_us % max(1, settings.retention_us // STEPS)
    return limit_us * 1000


def too_old(table: TableHandle, head: Snapshot, before_ns: int) -> tuple[list[Extent], list[Extent]]:
    """Return the extents of a snapshot that lie wholly before a limit, and those worth trimming."""
    if not head.totals.extents:
        return [], []
    listed = table.catalog.extents(table.scope, sequence=head.sequence, end_ns=before_ns, stats=())
    bounded = [extent for extent in listed if extent.min_ts_ns is not None and extent.max_ts_ns is not None]
    whole = [extent for extent in bounded if (extent.max_ts_ns or 0) < before_ns]
    rest = [extent for extent in bounded if (extent.min_ts_ns or 0) < before_ns <= (extent.max_ts_ns or 0)]
    return whole, [extent for extent in rest if _old_share(extent, before_ns) >= TRIM_SHARE]


def old_hot(table: TableHandle, head: Snapshot, before_ns: int) -> list[HotHeader]:
    """Return the hot batches of a snapshot that lie wholly before a limit; no rows are read."""
    headers = table.hot_headers(head)
    return [batch for batch in headers if batch.max_ts_ns is not None and batch.max_ts_ns < before_ns]


def retain(table: TableHandle, *, at_us: int | None = None, fence: Fence | None = None) -> DeleteReport:
    """Take the rows out that are older than the retention, in one commit; nothing if there are none."""
    if limit_ns(table.snapshot, 0) is None:
        raise InvalidInputError("the table has no retention", table=table.name, kind="no_retention")

    def attempt(head: Snapshot) -> DeleteReport:
        before_ns = limit_ns(head, now_us() if at_us is None else at_us)
        if before_ns is None:
            return DeleteReport(0, 0, 0, 0, head.sequence)
        pinned = replace(table, past=head)
        if head.is_keyed:
            also: list[Action] = []

            def note(writer: Appender) -> None:
                if writer.rows:  # what is hidden has expired, and is not missing
                    also.append(UpdateTable(None, _noted(head, before_ns)))

            hidden, writer, receipt = hide_rows(
                table, head, "retain", end=before_ns, fence=fence, newcomers=note, also=also
            )
            return DeleteReport(hidden, 0, writer.extents, 0, head.sequence if receipt is None else receipt.sequence)
        whole, trimmed = too_old(pinned, head, before_ns)
        hot = pinned.hot(head, [batch.id for batch in old_hot(pinned, head, before_ns)])
        if not (whole or trimmed or hot):
            return DeleteReport(0, 0, 0, 0, head.sequence)
        rewrite = Rewrite(table, head, "retain", fence)
        rewrite.take_away([*whole, *trimmed], hot)
        _, question = pinned.question((), end=before_ns)
        remaining = Remaining.of(question, head.schema, table.footers)
        kept = 0
        for extent in trimmed:
            writer = rewrite.writer(level=extent.level)
            for batch in remaining.rows(extent):
                writer.take_batch(batch)
            writer.cut()
            kept += writer.rows
        rewrite.update(**_noted(head, before_ns))
        receipt = rewrite.commit()
        removed, added = rewrite.removed, rewrite.added
        rows = removed.rows + removed.hot_rows - kept
        smaller = removed.bytes + removed.hot_bytes - added.bytes
        return DeleteReport(rows, removed.extents, added.extents, smaller, receipt.sequence)

    return at_newest_head(table, attempt)


def _noted(head: Snapshot, before_ns: int) -> dict[str, int]:
    """Return the setting that says up to where rows have expired."""
    limit_us = -(-before_ns // 1000)
    return {RETAINED_FROM: max(limit_us, int(head.settings.get(RETAINED_FROM) or limit_us))}


def _old_share(extent: Extent, before_ns: int) -> float:
    low, high = extent.min_ts_ns or 0, extent.max_ts_ns or 0
    return (before_ns - low) / max(1, high - low)
