"""Flush hot rows: write them as an extent, and swap it for them in one commit.

An append has them flushed once they are many or old, in the background if it can. If two flushes race, one finds that
there is nothing left to do. It does not run in the background itself: see ``handle.flusher``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tidelake.catalog.protocol import now_us
from tidelake.catalog.work_queue import give_back_if_dead
from tidelake.errors import ConflictError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Action, DropHot, HotBatch, Snapshot
from tidelake.runtime.processes import process_name
from tidelake.scan.hot import acknowledged_us, hot_rows
from tidelake.write.appender import Appender
from tidelake.write.keyed import hot_versions
from tidelake.write.promote import promote_settled
from tidelake.write.publish import publish

FLUSH_ROWS = 50_000  # hot rows past which they are flushed at once…
FLUSH_BYTES = 16 << 20  # …or their bytes
FLUSH_BATCHES = 1_000  # …or their batches, each of which a reader decodes
SPREAD_S = 3.0  # over which many processes are spread that all see the same hot rows: the first flushes for all
FLUSH_LEASE_US = 60_000_000  # after which another machine flushes, should this process have died
FLUSH_OVERDUE = 4  # times as many hot rows, and an append flushes them itself before it returns


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What a flush did."""

    rows: int
    extents: int
    snapshot: int


def flush(table: TableHandle) -> FlushReport:
    """Turn the hot rows into an extent. If another flush is faster, there is nothing left to do."""
    table.refuse_when_pinned()
    head = table.catalog.head(table.scope)
    return _flush(table, head, table.catalog.hot(table.scope, sequence=head.sequence))


def see_to_flush(table: TableHandle, head: Snapshot) -> None:
    """Have hot rows flushed, now or when they are old. The append is acknowledged: nothing here fails it."""
    fullness, is_crowded = _fullness(head), table.coordinator.is_crowded(table.scope)
    age_us = TableSettings.of(head.settings).flush_age_us
    flusher = table.lake.flusher
    if fullness > FLUSH_OVERDUE and not is_crowded:
        with suppress(Exception):  # tried again by the next append
            flush(table)
    elif fullness > 1:
        flusher.notice(table.scope, lambda: _flush_if_full(table), random.random() * SPREAD_S if is_crowded else 0.0)
    elif age_us is not None and not table.user:  # of many users, upkeep finds those whose rows are old
        flusher.notice(table.scope, lambda: _flush_by_age(table, age_us), age_us / 1e6)


def _fullness(head: Snapshot) -> float:
    """Return how full the hot rows are; above 1 they are flushed whatever their age."""
    held, rows = head.totals, TableSettings.of(head.settings).flush_rows or FLUSH_ROWS
    return max(held.hot_rows / rows, held.hot_bytes / FLUSH_BYTES, held.hot_batches / FLUSH_BATCHES)


def _flush_if_full(table: TableHandle) -> None:
    """Flush, unless another process has done so by now, or is about to."""
    head = table.catalog.head(table.scope)
    if _fullness(head) > 1:
        with _turn_to_flush(table) as is_ours:
            if is_ours:
                _flush(table, head, table.hot(head))


@contextmanager
def _turn_to_flush(table: TableHandle) -> Iterator[bool]:
    """Say whether it is this process that flushes: of many that see the same hot rows, one is enough."""
    if not table.coordinator.is_crowded(table.scope):
        yield True
        return
    queue, kind = table.catalog.work, f"flush.{table.scope}"
    unit = queue.enqueue(kind, table.name, {"table": table.name}, max_attempts=1_000_000)
    give_back_if_dead(queue, unit)
    leased = queue.claim([kind], owner=process_name(), lease_us=FLUSH_LEASE_US)
    if leased is None:
        yield False
        return
    try:
        yield True
    finally:
        with suppress(ConflictError):  # it took longer than its lease, and another has it
            queue.complete(leased)


def _flush_by_age(table: TableHandle, age_us: int) -> float | None:
    """Flush if the oldest hot rows are that old; else return after how many seconds they will be."""
    head = table.catalog.head(table.scope)
    headers = table.hot_headers(head)
    left_us = age_us - (now_us() - min(map(acknowledged_us, headers), default=0))
    if headers and left_us > 0:
        return left_us / 1e6
    with _turn_to_flush(table) as is_ours:
        if is_ours:
            _flush(table, head, table.hot(head))
    return None if is_ours else age_us / 1e6


def _flush(table: TableHandle, head: Snapshot, hot: Sequence[HotBatch]) -> FlushReport:
    if not hot:
        return FlushReport(0, 0, head.sequence)
    with table.lake.manifests.flushing(table.scope):
        return _flush_rows(table, head, hot)


def _flush_rows(table: TableHandle, head: Snapshot, hot: Sequence[HotBatch]) -> FlushReport:
    """Write hot rows as an extent, and swap it for them in one commit:

    1. list the hot rows of the head
    2. write them as an extent, registered as pending before its first byte
    3. commit the extent and the end of the hot rows together

    Killed before the commit is in, it leaves the rows hot and the extent to collection; after, the rows cold.
    """
    table.at("flush.listed")
    writer = Appender(table, head, keep_hot=False, is_new=False)
    try:
        for batch in hot_versions(hot) if head.is_keyed else hot_rows(hot):
            writer.take_batch(batch)
        drops: list[Action] = [DropHot(batch.id) for batch in hot]
        actions = (*writer.finish(), *drops)
        table.at("flush.written")
        receipt = publish(table, head, actions, operation="flush")
        table.at("flush.committed")
    except ConflictError:
        writer.give_up()
        return FlushReport(0, 0, table.catalog.head(table.scope).sequence)
    except BaseException:
        writer.give_up()
        raise
    promote_settled(table, head)
    return FlushReport(writer.rows - writer.superseded, writer.extents, receipt.sequence)
