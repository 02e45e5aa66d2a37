"""Compact a table: write runs of small or overlapping extents again, as few that are well filled and in order.

Each run is one commit. Its rows are taken in slices of time that fit in memory: of every slice the blocks that touch it
are read from all inputs, sorted and handed to a writer, which cuts extents as an append does. So memory depends on the
slice and not on the run, statistics and blocks are fresh, and extents of an older format version become the table's. A
run whose inputs were taken by somebody else meanwhile is dropped. Hot rows are not touched: a flush is what they need.
It does not choose the runs: see ``choice``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import ConflictError, CorruptError
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain.choice import FEWEST, runs_of
from tidelake.maintain.keyed import newest_of_run
from tidelake.maintain.rewrite import Rewrite
from tidelake.maintain.suffix import keyed_runs
from tidelake.model.predicate import TimeRange
from tidelake.model.schema import SEQ_COLUMN, Schema
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Extent, Fence, Snapshot
from tidelake.model.times import duration_us
from tidelake.pruning.plan import Question
from tidelake.scan.evaluate import select
from tidelake.scan.footers import Footers
from tidelake.scan.remaining import Remaining
from tidelake.scan.versions import keys_of
from tidelake.write.stager import EXTENT_BYTES

SLICE_BYTES = EXTENT_BYTES  # of rows in memory that are sorted at once
UNPACKED = 4  # bytes in memory for a stored one, roughly, where a block does not say: the memory of a slice needs it
WINDOWS_KEPT = 16  # windows in a table's retention, across which extents are not joined
ROUNDS = 64  # of choosing anew after each was compacted: each at least doubles what is small
FIRST_NS, LAST_NS = -(2**63), 2**63

WriteRun: TypeAlias = "Callable[[Rewrite, Sequence[Extent]], int]"  # writes a run's rows again, and says how many


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction did."""

    runs: int
    rows: int
    extents: int  # that were taken away…
    written: int  # …and that were written in their place
    bytes_read: int
    bytes_written: int
    skipped: int  # runs that somebody else was faster with
    snapshot: int

    def __add__(self, other: CompactReport) -> CompactReport:
        return CompactReport(
            self.runs + other.runs,
            self.rows + other.rows,
            self.extents + other.extents,
            self.written + other.written,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.skipped + other.skipped,
            max(self.snapshot, other.snapshot),
        )

    def __str__(self) -> str:
        lost = f", {self.skipped:,} left to others" if self.skipped else ""
        return (
            f"{self.extents:,} extents became {self.written:,}, {self.rows:,} rows, "
            f"{self.bytes_read:,} bytes became {self.bytes_written:,}{lost}, snapshot {self.snapshot}"
        )


def compact(table: TableHandle, *, fewest: int = 2) -> CompactReport:
    """Compact all that is worth it, run by run, until nothing is; as ``Table.compact`` says."""
    table.refuse_when_pinned()
    report = CompactReport(0, 0, 0, 0, 0, 0, 0, table.catalog.head(table.scope).sequence)
    for _ in range(ROUNDS):
        head = table.catalog.head(table.scope)
        found = due_runs(table, head, fewest=fewest)
        for run in found:
            report += compact_run(table, head, run)
        if not found:
            break
    return report


def due_runs(table: TableHandle, head: Snapshot, *, fewest: int = FEWEST) -> list[tuple[Extent, ...]]:
    """Return the runs of a snapshot that are worth compacting."""
    if head.is_keyed:
        return _keyed_runs(table, head, fewest)
    listed = table.catalog.extents(table.scope, sequence=head.sequence, stats=())
    retention = TableSettings.of(head.settings).retention
    window_ns = duration_us(retention) * 1000 // WINDOWS_KEPT if retention else None
    rows = head.totals.rows + head.totals.hot_rows
    return runs_of(listed, rows=rows, fewest=fewest, window_ns=window_ns)


def _keyed_runs(table: TableHandle, head: Snapshot, fewest: int) -> list[tuple[Extent, ...]]:
    first_key, *_ = keys_of(head)
    listed = table.catalog.extents(table.scope, sequence=head.sequence, stats=(first_key, SEQ_COLUMN))
    rows = head.totals.rows + head.totals.hot_rows
    limits = TableSettings.of(head.settings).compaction
    return keyed_runs(listed, first_key, rows=rows, is_user=bool(table.scope.user), fewest=fewest, limits=limits)


def compact_run(
    table: TableHandle,
    head: Snapshot,
    run: Sequence[Extent],
    *,
    fence: Fence | None = None,
    write: WriteRun | None = None,
    id: str | None = None,
) -> CompactReport:
    """Write some extents of a snapshot again as one run, in one commit; nothing if they are not all there any more.

    The rows are written by this process, unless somebody else is given who writes them; the commit may be given an id.
    """
    size = sum(extent.byte_size for extent in run)
    rewrite = Rewrite(table, head, "compact", fence)
    rewrite.take_away(run)
    try:
        if head.is_keyed:
            writer = rewrite.writer(level=level_of(run))
            for batch in newest_of_run(table, head, run):
                writer.take_batch(batch)
            rows = sum(extent.row_count for extent in run)  # of which the newest versions stay
        else:
            rows = (write or _write_here)(rewrite, run)
        if rows != sum(extent.row_count for extent in run):  # before anything is published
            raise CorruptError(
                "a compaction would change the table: keep its extents, and tell us",
                table=table.name, rows=rows, expected=sum(extent.row_count for extent in run),
            )  # fmt: skip
        receipt = rewrite.commit(id=id)
    except ConflictError as error:
        rewrite.give_up()
        if error.kind == "fenced":
            raise
        return CompactReport(0, 0, 0, 0, size, 0, 1, head.sequence)
    except BaseException:
        rewrite.give_up()
        raise
    added = rewrite.added
    return CompactReport(1, added.rows, len(run), added.extents, size, added.bytes, 0, receipt.sequence)


def level_of(run: Iterable[Extent]) -> int:
    """Return how often the rows of a run will have been compacted at most."""
    return max(extent.level for extent in run) + 1


def stays_as_it_comes(settings: TableSettings) -> bool:
    """Whether sorted rows are written in their own order, and not once more by time alone."""
    return bool(settings.cluster_by)


def _write_here(rewrite: Rewrite, run: Sequence[Extent]) -> int:
    head, settings = rewrite.head, TableSettings.of(rewrite.head.settings)
    writer = rewrite.writer(level=level_of(run), sort=not stays_as_it_comes(settings))
    for batch in sorted_rows(rewrite.table.footers, head.schema, settings, run):
        writer.take_batch(batch)
    return writer.rows


def sorted_rows(
    footers: Footers, schema: Schema, settings: TableSettings, run: Iterable[Extent]
) -> Iterator[pa.RecordBatch]:
    """Stream the rows of extents as they are stored, in the order of the table's ``cluster_by`` columns and of time."""
    time = settings.time
    remaining = Remaining.of(Question(schema, schema.names, time=time), schema, footers)
    if time is None:
        for extent in run:
            yield from remaining.rows(extent)
        return
    keys = [(name, "ascending") for name in (*settings.cluster_by, time)]
    blocks = _blocks(footers, run, time)
    for low_ns, high_ns in _slices(blocks):
        window = TimeRange(time, low_ns, high_ns)
        parts = []
        for block in blocks:
            if block.touches(low_ns, high_ns):
                rows = remaining.block(block.extent, block.number)
                parts.append(rows if block.is_inside(low_ns, high_ns) else select(window, rows))
        whole = pa.Table.from_batches([part for part in parts if part.num_rows], schema.arrow)
        if whole.num_rows:
            yield from whole.take(pc.sort_indices(whole, keys)).combine_chunks().to_batches()


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of an input: when its rows begin and end, and how many bytes they take in memory, roughly."""

    extent: Extent
    number: int
    low_ns: int
    high_ns: int
    byte_size: int

    def touches(self, start_ns: int | None, end_ns: int | None) -> bool:
        """Whether rows of it may lie in a window."""
        return (start_ns is None or self.high_ns >= start_ns) and (end_ns is None or self.low_ns < end_ns)

    def is_inside(self, start_ns: int | None, end_ns: int | None) -> bool:
        """Whether all rows of it lie in a window."""
        return (start_ns is None or self.low_ns >= start_ns) and (end_ns is None or self.high_ns < end_ns)


def _blocks(footers: Footers, run: Iterable[Extent], time: str) -> list[_Block]:
    found = []
    for extent in run:
        for number, info in enumerate(footers.open(extent).metadata().blocks):
            known = info.stats.columns.get(time)
            low, high = (known.low, known.high) if known is not None else (None, None)
            size = info.unpacked or sum(piece.length for piece in info.pieces.values()) * UNPACKED
            low_ns, high_ns = (low if isinstance(low, int) else FIRST_NS), (high if isinstance(high, int) else LAST_NS)
            found.append(_Block(extent, number, low_ns, high_ns, size))
    return found


def _slices(blocks: Sequence[_Block]) -> list[tuple[int | None, int | None]]:
    """Part time into slices whose rows take about as many bytes each, as if those of a block were spread evenly."""
    sizes = np.array([block.byte_size for block in blocks], np.float64)
    count = int(-(-sizes.sum() // SLICE_BYTES)) if len(blocks) else 0
    if count <= 1:
        return [(None, None)] if blocks else []
    lows = np.array([block.low_ns for block in blocks], np.float64)
    ends = (
        np.array([block.high_ns for block in blocks], np.float64) + 1000
    )  # a microsecond, the shortest a block can be
    points, places = np.unique(np.concatenate([lows, ends]), return_inverse=True)
    rates = np.zeros(len(points))
    np.add.at(rates, places[: len(lows)], sizes / (ends - lows))
    np.subtract.at(rates, places[len(lows) :], sizes / (ends - lows))
    reached = np.concatenate([[0.0], np.cumsum(np.cumsum(rates)[:-1] * np.diff(points))])
    cuts = np.unique(np.interp(sizes.sum() / count * np.arange(1, count), reached, points).astype(object))
    bounds = [None, *(min(max(int(cut), FIRST_NS), LAST_NS) for cut in cuts), None]
    return list(pairwise(bounds))
