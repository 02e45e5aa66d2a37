"""Delete rows by a condition, or swap the rows of a time range for others.

An extent of which every row is known to be meant leaves without being read. Of the others only the columns that the
condition looks at are read at first; an extent without such a row stays as it is, and one with some is written again
without them. Hot rows likewise. It is one commit, so readers see all of it or nothing, and readers of older snapshots
still see the rows until those expire. Rows that are appended meanwhile are not looked at. It does not delete objects,
unless it is told to ``purge``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tidelake.errors import InvalidInputError, OverlapError
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import Rules, coerced_stream, is_rereadable
from tidelake.maintain import expire as expiring
from tidelake.maintain.expire import PurgeReport
from tidelake.maintain.keyed import hide_rows, newest_of_run
from tidelake.maintain.rewrite import REWRITE_TRIES, Rewrite, at_newest_head
from tidelake.model.predicate import Predicate
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Extent, Fence, HotBatch, Snapshot
from tidelake.model.times import When
from tidelake.pruning.outcomes import TRUE, outcomes
from tidelake.pruning.plan import Block, Question, ScanPlan, stats_of
from tidelake.scan.extents import prune_blocks
from tidelake.scan.remaining import Remaining
from tidelake.write.appender import Appender
from tidelake.write.flush import flush


@dataclass(frozen=True, slots=True)
class DeleteReport:
    """What a deletion did: rows that are gone, and what that changed."""

    rows: int
    extents: int  # that were taken away…
    written: int  # …and that were written in their place
    bytes: int  # that the table is smaller by; on the disk once older snapshots are expired and collected
    snapshot: int
    purged: PurgeReport | None = None  # what was removed from the disk, if it was asked for

    def __str__(self) -> str:
        said = (
            f"{self.rows:,} rows, {self.extents:,} extents taken away, {self.written:,} written, "
            f"{self.bytes:,} bytes smaller, snapshot {self.snapshot}"
        )
        if self.purged is None:
            return said
        held = f"; older rows are still held by {', '.join(self.purged.held_by)}" if self.purged.held_by else ""
        return f"{said}; {self.purged.objects:,} objects deleted{held}"


@dataclass(frozen=True, slots=True)
class ReplaceReport:
    """What a replacement did."""

    rows: int  # that are there now
    replaced: int  # that are gone
    extents: int
    snapshot: int
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Doomed:
    """What a condition takes of a snapshot: extents wholly, extents in part with the blocks it may touch, hot rows."""

    rows: int
    whole: tuple[Extent, ...]
    parts: tuple[tuple[Extent, tuple[Block, ...]], ...]
    hot: tuple[HotBatch, ...]


def delete(
    table: TableHandle,
    where: Predicate | str | None = None,
    *,
    start: When | None = None,
    end: When | None = None,
    all: bool = False,
    purge: bool = False,
    dry_run: bool = False,
    fence: Fence | None = None,
) -> DeleteReport:
    """Delete the rows that match, as ``Table.delete`` says."""
    if where is None and start is None and end is None and not all:
        raise InvalidInputError(
            "a delete needs a condition or a time range; say all=True to delete every row", table=table.name
        )
    if all and not (where is None and start is None and end is None):
        raise InvalidInputError("all=True deletes every row: leave the condition and the range out", table=table.name)

    def attempt(head: Snapshot) -> DeleteReport:
        if head.is_keyed and not all:
            return _hidden(table, head, where, start, end, fence, dry_run=dry_run)
        rewrite = Rewrite(table, head, "delete", fence)
        rows = take_rows(rewrite, where, start=start, end=end, write=not dry_run)
        if not rows:
            return DeleteReport(0, 0, 0, 0, head.sequence)
        if dry_run:
            return DeleteReport(rows, rewrite.removed.extents, 0, rewrite.removed.bytes, head.sequence)
        receipt = rewrite.commit()
        removed, added = rewrite.removed, rewrite.added
        smaller = removed.bytes + removed.hot_bytes - added.bytes - added.hot_bytes
        return DeleteReport(rows, removed.extents, added.extents, smaller, receipt.sequence)

    report = at_newest_head(table, attempt)
    if not purge or dry_run:
        return report
    if table.catalog.head(table.scope).is_keyed and not all:
        rewritten(table)
    return replace(report, purged=expiring.purge(table))


def _hidden(
    table: TableHandle,
    head: Snapshot,
    where: Predicate | str | None,
    start: When | None,
    end: When | None,
    fence: Fence | None,
    *,
    dry_run: bool,
) -> DeleteReport:
    """Hide the rows of a table with a key that match: an older version would come back for one that is taken out."""
    if dry_run:
        pinned = replace(table, past=head)
        rows = sum(batch.num_rows for batch in pinned.stored_rows((), where, start=start, end=end))
        return DeleteReport(rows, 0, 0, 0, head.sequence)
    rows, writer, receipt = hide_rows(table, head, "delete", where, start=start, end=end, fence=fence)
    return DeleteReport(rows, 0, writer.extents, 0, head.sequence if receipt is None else receipt.sequence)


def rewritten(table: TableHandle) -> None:
    """Write the newest versions of all rows of a table with a key again, so that hidden ones are in no extent."""
    flush(table)

    def attempt(head: Snapshot) -> None:
        extents = table.catalog.extents(table.scope, sequence=head.sequence)
        rewrite = Rewrite(table, head, "compact")
        rewrite.take_away(extents)
        writer = rewrite.writer(level=max((extent.level for extent in extents), default=0) + 1)
        for batch in newest_of_run(table, head, extents, keep_idle=False):
            writer.take_batch(batch)
        if not rewrite.is_empty:
            rewrite.commit()

    at_newest_head(table, attempt)


def replace_rows(
    table: TableHandle,
    rows: Any,
    *,
    start: When,
    end: When,
    where: Predicate | str | None = None,
    key: str | None = None,
) -> ReplaceReport:
    """Swap the rows of a time range for others, as ``Table.replace`` says."""
    table.refuse_when_pinned()
    if key is not None and (receipt := table.catalog.receipt(table.scope, key=key)):
        return ReplaceReport(receipt.rows, 0, receipt.extents, receipt.sequence, replayed=True)

    def attempt(head: Snapshot) -> ReplaceReport:
        if head.is_keyed:
            return _replaced(table, head, rows, where, start, end, key)
        rewrite = Rewrite(table, head, "replace")
        try:
            gone = take_rows(rewrite, where, start=start, end=end)
            writer = rewrite.newcomer()
            _, question = replace(table, past=head).question((), where, start=start, end=end)
            _take_new(writer, rows, Remaining.of(question, head.schema, table.footers))
            if not (gone or writer.rows):
                return ReplaceReport(0, 0, 0, head.sequence)
            receipt = rewrite.commit(key=key, claims=writer.claims)
        except OverlapError as error:
            rewrite.give_up()
            raise writer.explained(error) from None
        except BaseException:
            rewrite.give_up()
            raise
        return ReplaceReport(writer.rows, gone, rewrite.added.extents, receipt.sequence, receipt.replayed)

    return at_newest_head(table, attempt, tries=REWRITE_TRIES if is_rereadable(rows) else 1)


def _replaced(
    table: TableHandle,
    head: Snapshot,
    rows: Any,
    where: Predicate | str | None,
    start: When,
    end: When,
    key: str | None,
) -> ReplaceReport:
    """Hide the rows of a range of a table with a key, and append others after them, in one commit."""
    _, question = replace(table, past=head).question((), where, start=start, end=end)
    remaining = Remaining.of(question, head.schema, table.footers)
    taken = 0

    def newcomers(writer: Appender) -> None:
        nonlocal taken
        before = writer.rows
        _take_new(writer, rows, remaining)
        taken = writer.rows - before

    gone, writer, receipt = hide_rows(table, head, "replace", where, start=start, end=end, newcomers=newcomers, key=key)
    if receipt is None:
        return ReplaceReport(0, 0, 0, head.sequence)
    return ReplaceReport(taken, gone, writer.extents, receipt.sequence, receipt.replayed)


def _take_new(writer: Appender, rows: Any, remaining: Remaining) -> None:
    """Stage the rows that come in place of others; all of them must be what a second replacement would replace."""
    rules = Rules(time=TableSettings.of(writer.head.settings).time, exact=writer)
    seen = 0
    for coerced in coerced_stream(rows, writer.head.schema, rules):
        batch = coerced.batch
        meant = remaining.taken(batch, batch.schema.names, batch.num_rows)
        if meant.true_count < batch.num_rows:
            raise InvalidInputError(
                "a row is not among those that are replaced: it is outside of the range, or does not match",
                row=seen + meant.to_numpy(zero_copy_only=False).argmin(),
                kind="not_replaced",
            )
        seen += batch.num_rows
        writer.take(coerced)


def take_rows(
    rewrite: Rewrite,
    where: Predicate | str | None = None,
    *,
    start: When | None = None,
    end: When | None = None,
    write: bool = True,
) -> int:
    """Take the rows that match out of the snapshot that is rewritten, and return how many they are."""
    table = replace(rewrite.table, past=rewrite.head)
    if where is None and start is None and end is None:
        extents = table.catalog.extents(table.scope, sequence=rewrite.head.sequence, stats=())
        hot = table.hot(rewrite.head)
        rewrite.take_away(extents, hot)
        return sum(extent.row_count for extent in extents) + sum(batch.rows for batch in hot)
    plan = table.outline((), where, start=start, end=end)
    remaining = Remaining.of(plan.question, rewrite.head.schema, table.footers)
    doomed = doom(plan, remaining, table)
    rewrite.take_away(doomed.whole)
    for extent, blocks in doomed.parts:
        rewrite.take_away([extent])
        if not write:
            continue
        writer = rewrite.writer(level=extent.level)
        for batch in remaining.rows(extent, blocks):
            writer.take_batch(batch)
        writer.cut()  # each extent by itself: what was apart in time stays apart
    taken = doomed.rows
    if doomed.hot:
        left, touched = remaining.hot(doomed.hot)
        hot = [batch for batch in doomed.hot if batch.id in set(touched)]
        rewrite.take_away(hot=hot)
        taken += sum(batch.rows for batch in hot) - sum(batch.num_rows for batch in left)
        if left and write:
            writer = rewrite.writer(keep_hot=True)
            for batch in left:
                writer.take_batch(batch)
    return taken


def doom(plan: ScanPlan, remaining: Remaining, table: TableHandle) -> Doomed:
    """Find what a condition takes, reading as little as it takes to know."""
    question = plan.question
    whole = [task.extent for task in plan.tasks if _is_proven(question, task.extent)]
    rows = sum(extent.row_count for extent in whole)
    proven = {extent.id for extent in whole}
    rest = replace(plan, tasks=tuple(task for task in plan.tasks if task.extent.id not in proven))
    parts = []
    for task in prune_blocks(rest, table.footers).tasks:
        blocks = task.blocks or ()
        taken = remaining.count_taken(task.extent, blocks)
        rows += taken
        if taken == task.extent.row_count:
            whole.append(task.extent)
        elif taken:
            parts.append((task.extent, blocks))
    return Doomed(rows, tuple(whole), tuple(parts), plan.hot)


def _is_proven(question: Question, extent: Extent) -> bool:
    """Whether statistics alone prove that every row of an extent is meant."""
    return question.where is not None and outcomes(question.where, stats_of(extent, question)) == TRUE
