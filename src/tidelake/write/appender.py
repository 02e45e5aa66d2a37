"""Gather the rows of one commit and turn them into its actions.

Few rows become a hot batch; more become extents, cut so that none is too large, each registered as pending before its
first byte and written with what it covers. Rows that needed a wider schema bring it along. It does not commit: whoever
holds it does, and tells it to give up what was written if that fails.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidelake.catalog.protocol import Pending, new_id
from tidelake.coverage.recorder import Recorder
from tidelake.errors import CommitUnknownError, ConflictError, OverlapError, StorageError
from tidelake.format import WriteOptions, segment_format
from tidelake.format.segment import BLOCK_ROWS, ExtentWriteResult
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import Coerced
from tidelake.model.exact import is_exact_array
from tidelake.model.schema import DataType, Schema, becoming_real
from tidelake.model.settings import DEMOTED, TableSettings
from tidelake.model.snapshot import Action, AddExtent, AppendHot, Claim, Extent, HotBatch, Snapshot, UpdateTable
from tidelake.objects import extent_key
from tidelake.scan.alternatives import OVERFLOWED, also_in_overflow, spilled_columns, with_promoted
from tidelake.scan.extents import widened
from tidelake.scan.hot import hot_payload
from tidelake.write.drift import (
    WINDOW_ROWS,
    Tally,
    are_exact_in_extents,
    changes_of,
    demoted_in,
    fixed_columns,
    is_exact_in_table,
    tally,
    tally_before,
)

HOT_ROWS = 1_000  # an append of at most so many rows…
HOT_BYTES = 256 << 10  # …and bytes stays in the catalog: an object of its own would cost more than it holds
EXTENT_ROWS = 4_000_000  # a longer append is cut into several extents…
# …as is a larger one, as it lies in memory. Writing takes up to three times as much for a while: of 2 GB of NDJSON the
# whole process held 1,587 MB at most with 512 MB here, 1,000 MB with 256 MB and 652 MB with this.
EXTENT_BYTES = 128 << 20
# Dynamic bytes of a block, as they lie in memory. Of 29,084 events of 2 kB, needles in under 1 % of the rows read up to
# 64 % of the bytes in two blocks, 45 % in 15 and 18 % in such as these; the extent is half as large again for it.
BLOCK_DYNAMIC_BYTES = 768 << 10
LEAST_BLOCK_ROWS = 256  # below it, a block's statistics are as large as its rows


@dataclass(slots=True)
class Appender:
    """Gather the rows of one commit and turn them into its actions."""

    target: TableHandle
    head: Snapshot
    keep_hot: bool = True
    is_new: bool = True  # the rows are not in the table yet
    rows: int = 0
    extents: int = 0
    overflowed: int = 0
    _staged: list[pa.RecordBatch] = field(default_factory=list)
    _staged_rows: int = 0
    _staged_bytes: int = 0
    _actions: list[Action] = field(default_factory=list)
    _keys: list[str] = field(default_factory=list)
    widened: Schema | None = None  # the schema that the rows need, if not the table's
    spilled: set[str] = field(default_factory=set)  # columns of which a value is in the overflow column
    _rounded: Counter[str] = field(default_factory=Counter)  # times that were finer than microseconds, by column
    _recorder: Recorder | None = None
    _tallies: dict[str, Tally] = field(default_factory=dict)  # of columns with misfits, from their first on
    _exact: dict[str, bool] = field(default_factory=dict)  # long columns of the table that were looked at

    def __post_init__(self) -> None:
        self._recorder = Recorder.of(self.target.holdings, self.head, self.target.name, is_new=self.is_new)
        if self.target.catalog.is_log:
            self.keep_hot = (
                False  # the original's readers know no hot rows, and an acknowledged row is for every reader
            )

    @property
    def overlap(self) -> int:
        return self._recorder.overlap if self._recorder else 0

    def admit(self, extent: Extent) -> Extent:
        """Take an extent that others wrote for this commit, with what it covers."""
        if self._recorder is None:
            return extent
        admitted = self._recorder.admit(extent, self.target.info)
        if extent.coverage_key is None and admitted.coverage_key is not None:
            self._keys.append(admitted.coverage_key)
        return admitted

    def claims(self) -> tuple[Claim, ...]:
        """Give the time windows that must be free when the rows are committed."""
        return self._recorder.claims() if self._recorder else ()

    def explained(self, error: OverlapError) -> OverlapError:
        """Say in times what a rule said in buckets."""
        return self._recorder.explained(error) if self._recorder else error

    @property
    def schema(self) -> Schema:
        return self.widened or self.head.schema

    def __contains__(self, name: object) -> bool:
        """Whether a long column, as it is in the table and in these rows, may become real: a double holds all of it."""
        if not isinstance(name, str):
            return False
        if name not in self._exact:
            self._exact[name] = is_exact_in_table(self.target.catalog, self.head, name)
        added = [action.extent for action in self._actions if isinstance(action, AddExtent)]
        return (
            self._exact[name]
            and are_exact_in_extents(added, name)
            and all(is_exact_array(batch.column(name)) for batch in self._staged if name in batch.schema.names)
        )

    def take(self, coerced: Coerced) -> None:
        """Stage rows, with the schema they needed."""
        self.widened = coerced.schema
        self.overflowed += coerced.overflowed
        self._rounded.update(coerced.rounded)
        if coerced.overflowed:
            self.spilled |= spilled_columns(coerced)
        self._count(coerced.batch)
        self.take_batch(with_promoted(coerced, self.head.settings))

    def take_batch(self, batch: pa.RecordBatch) -> None:
        """Stage rows of this schema or an older one."""
        if not batch.num_rows:
            return
        self._staged.append(batch)
        self.rows += batch.num_rows
        self._staged_rows += batch.num_rows
        held_bytes = batch.get_total_buffer_size()  # a slice holds on to more than it needs
        self._staged_bytes += held_bytes if held_bytes <= HOT_BYTES else batch.nbytes
        if self._staged_rows >= EXTENT_ROWS or self._staged_bytes >= EXTENT_BYTES:
            self._write_extent()

    def _demote(self) -> None:
        """Make columns dynamic whose values truly mix, so that reads unite what fits with what does not."""
        fixed = fixed_columns(self.head.settings)
        mixed = []
        for name in sorted(self.spilled & set(self.head.schema.names) - fixed):
            kind = self.schema[name].type
            if kind.kind in ("dynamic", "vector") or kind.logical is not None:
                continue
            found = self._tallies.get(name, Tally())
            if self.rows < WINDOW_ROWS:
                before = tally_before(self.target.catalog, self.head, name, WINDOW_ROWS - self.rows)
                found = Tally(found.fits + before.fits, found.misfits + before.misfits)
            if found.is_mixed:
                mixed.append((name, DataType("dynamic")))
        if mixed:
            self.widened = self.schema.widen(mixed)

    def changes(self) -> tuple[str, ...]:
        """Say what became of columns whose values changed their type."""
        said = changes_of(self.head.schema, self.schema, self._tallies)
        finer = (
            f"{count:,} time{'s' if count > 1 else ''} of {name} had nanoseconds: microseconds are kept, rounded down"
            for name, count in sorted(self._rounded.items())
        )
        return (*said, *finer)

    def _count(self, batch: pa.RecordBatch) -> None:
        """Count what fits of the columns that have misfits."""
        for name in self.spilled:
            found, so_far = tally([batch], name), self._tallies.setdefault(name, Tally())
            so_far.fits, so_far.misfits = so_far.fits + found.fits, so_far.misfits + found.misfits

    def finish(self) -> list[Action]:
        """Give the actions of the commit; an extent's object is stored by then."""
        self._demote()
        if self._staged and self.keep_hot and not self._actions and self._is_small():
            self._actions.append(AppendHot(self._hot_batch()))
        elif self._staged:
            self._write_extent()
        for name in becoming_real(self.head.schema, self.schema):
            if name not in self:  # as when a job's tasks looked at an older snapshot
                raise ConflictError("a column cannot become real by now", column=name, kind="schema")
        fresh = also_in_overflow(self.head, self.schema) | {OVERFLOWED + name: True for name in sorted(self.spilled)}
        fresh |= {DEMOTED + name: kind for name, kind in demoted_in(self.head.schema, self.schema).items()}
        settings: dict[str, Any] = {name: value for name, value in fresh.items() if name not in self.head.settings}
        settings |= self._recorder.pinned() if self._recorder else {}
        if self.schema != self.head.schema or settings:
            widened = self.schema if self.schema != self.head.schema else None
            self._actions.insert(0, UpdateTable(widened, settings))
        return self._actions

    def discard(self) -> None:
        """Delete what was written: no commit was tried with it. What cannot be deleted is left to collection."""
        with suppress(StorageError):
            self.target.store.delete(self._keys)
        self.give_up()

    def give_up(self) -> None:
        """Leave what was written to collection; if that cannot be told now, its registration grows old."""
        if self._keys:
            with suppress(StorageError, CommitUnknownError):  # the error that led here is the one to tell
                self.target.catalog.release_pending(self._keys)

    def _is_small(self) -> bool:
        return self._staged_rows <= HOT_ROWS and self._staged_bytes <= HOT_BYTES

    def _hot_batch(self) -> HotBatch:
        rows = united(self._staged, self.schema)
        if self._recorder:
            self._recorder.take([rows])
        low, high = self._time_bounds(rows)
        return HotBatch(new_id(), rows.num_rows, hot_payload(rows), low, high, self.schema.version)

    def _time_bounds(self, rows: pa.RecordBatch) -> tuple[int | None, int | None]:
        time = TableSettings.of(self.head.settings).time
        if time is None:
            return None, None
        times = rows.column(time).view(pa.int64()).to_numpy(zero_copy_only=False)  # a row always has a time
        low, high = int(times.min()) * 1000, int(times.max()) * 1000
        return (low, high) if low >= -(2**63) and high < 2**63 else (None, None)

    def _write_extent(self) -> None:
        target, settings = self.target, TableSettings.of(self.head.settings)
        form = segment_format(settings.format)
        judged = self._recorder.begin(self._staged) if self._recorder else None
        extent_id = new_id()
        key = extent_key(target.info.namespace, target.info.name, extent_id, form.suffix)
        target.catalog.register_pending([Pending(key, target.info.scope, f"{socket.gethostname()}:{os.getpid()}")])
        target.at("extent.registered")
        self._keys.append(key)
        options = WriteOptions(
            time=settings.time, block_rows=block_rows_for(self._staged, self._staged_rows, self.schema)
        )
        writer = form.start_extent(target.store, key, self.schema, extent_id=extent_id, options=options)
        for batch in self._staged:
            writer.append(conformed(batch, self.schema))
        self._staged, self._staged_rows, self._staged_bytes = [], 0, 0

        def begin() -> None:
            """Go on only with rows that may be written; they were judged while they were encoded."""
            if judged:
                judged()
            target.at("extent.begun")

        written = writer.finish(begin)
        target.at("extent.written")
        covered_at = None
        if self._recorder and judged:
            covered_at = target.holdings.write_extent(target.info, extent_id, judged(), self._recorder.rules)
            self._keys.append(covered_at)
            target.at("extent.covered")
        self.extents += 1
        self._actions.append(
            AddExtent(extent_of(written, extent_id, key, form.name, self.schema, coverage_key=covered_at))
        )


def extent_of(
    written: ExtentWriteResult,
    extent_id: str,
    key: str,
    format: str,
    schema: Schema,
    *,
    coverage_key: str | None = None,
) -> Extent:
    """Give an extent that was written as the catalog knows it."""
    return Extent(
        id=extent_id,
        key=key,
        format=format,
        byte_size=written.byte_size,
        row_count=written.row_count,
        block_count=written.block_count,
        min_ts_ns=written.min_timestamp_nanos,
        max_ts_ns=written.max_timestamp_nanos,
        schema_version=schema.version,
        column_stats=written.column_stats,
        present_paths=written.present_paths,
        coverage_key=coverage_key,
    )


def block_rows_for(staged: Sequence[pa.RecordBatch], rows: int, schema: Schema) -> int:
    """Give the rows of a block: fewer where dynamic values are large, for a block is read to look at one path."""
    names = [column.name for column in schema if column.type.kind == "dynamic"]
    size = sum(batch.column(name).nbytes for batch in staged for name in names if name in batch.schema.names)
    fitting = BLOCK_ROWS if size <= BLOCK_DYNAMIC_BYTES else rows * BLOCK_DYNAMIC_BYTES // size
    return max(LEAST_BLOCK_ROWS, min(BLOCK_ROWS, fitting))


def conformed(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Give rows of an older schema the columns of a wider one."""
    if batch.schema.equals(schema.arrow):
        return batch
    held = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = []
    for column in schema:
        array = held.get(column.name)
        if array is None:
            array = pa.nulls(batch.num_rows, column.type.arrow)
        elif array.type != column.type.arrow:  # only then: Arrow cannot cast null vectors even to their own type
            array = widened(array, column.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def united(batches: Sequence[pa.RecordBatch], schema: Schema) -> pa.RecordBatch:
    """Join rows of several schemas under the widest."""
    parts = [conformed(batch, schema) for batch in batches]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
