"""Gather the rows of one commit and turn them into its actions.

Few rows become a hot batch; more become extents, cut so that none is too large, each registered as pending before its
first byte and written with what it covers. Rows that needed a wider schema bring it along. It does not commit: whoever
holds it does, and tells it to give up what was written if that fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from tidelake.catalog.protocol import new_id
from tidelake.coverage.entities import Coverage
from tidelake.coverage.recorder import Recorder
from tidelake.errors import CommitUnknownError, ConflictError, NotFoundError, OverlapError, StorageError
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import Coerced
from tidelake.model.exact import is_exact_array
from tidelake.model.schema import SEQ_COLUMN, DataType, Schema, becoming_real
from tidelake.model.settings import DEMOTED, OVERFLOWED, TableSettings
from tidelake.model.snapshot import Action, AddExtent, AppendHot, Claim, Extent, HotBatch, Snapshot, UpdateTable
from tidelake.scan.hot import hot_payload
from tidelake.vectors.sidecars import write_sidecars
from tidelake.write.drift import (
    WINDOW_ROWS,
    Tally,
    also_in_overflow,
    are_exact_in_extents,
    changes_of,
    demoted_in,
    fixed_columns,
    is_exact_in_table,
    spilled_columns,
    tally,
    tally_before,
    with_promoted,
)
from tidelake.write.keyed import BLOCK_ROWS, check_keys, in_key_order, newest_rows, newest_versions, told_of_deletion
from tidelake.write.naming import ExtentName
from tidelake.write.stager import Stager, united

HOT_ROWS = 1_000  # an append of at most so many rows…
HOT_BYTES = 256 << 10  # …and bytes stays in the catalog: an object of its own would cost more than it holds

Found = TypeVar("Found")


@dataclass(slots=True)
class Appender:
    """Gather the rows of one commit and turn them into its actions."""

    target: TableHandle
    head: Snapshot
    keep_hot: bool = True
    is_new: bool = True  # the rows are not in the table yet
    freed: Coverage | None = None  # what the same commit takes away and is held no more
    sort: bool = True  # the rows of an extent by time; else they stay as they come
    is_moved: bool = False  # the rows were in an extent before
    level: int = 0  # how many times the rows were compacted, this time included
    rows: int = 0
    extents: int = 0
    overflowed: int = 0
    superseded: int = 0  # rows that a later one with the same key took the place of
    key: tuple[str, ...] = ()
    _stager: Stager = field(init=False)
    _actions: list[Action] = field(default_factory=list)
    _names: list[ExtentName] = field(default_factory=list)
    _keys: list[str] = field(default_factory=list)  # of what else was written
    _sidecars: list[str] = field(default_factory=list)  # of vectors; they go where their extents go
    widened: Schema | None = None  # the schema that the rows need, if not the table's
    spilled: set[str] = field(default_factory=set)  # columns of which a value is in the overflow column
    _rounded: Counter[str] = field(default_factory=Counter)  # times that were finer than microseconds, by column
    _recorder: Recorder | None = None
    _tallies: dict[str, Tally] = field(default_factory=dict)  # of columns with misfits, from their first on
    _exact: dict[str, bool] = field(default_factory=dict)  # long columns of the table that were looked at

    def __post_init__(self) -> None:
        settings = TableSettings.of(self.head.settings)
        self.key = settings.key
        self._stager = Stager(
            self.target.store, settings, sort=self.sort and not self.key, block_rows=BLOCK_ROWS if self.key else None
        )
        self._recorder = Recorder.of(
            self.target.coverage_store, self.head, self.target.name, is_new=self.is_new, freed=self.freed
        )
        self.keep_hot = self.keep_hot and self.target.catalog.layout.keeps_hot_rows

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
        """Return the time windows that must be free when the rows are committed."""
        return self._recorder.claims() if self._recorder else ()

    def explained(self, error: OverlapError) -> OverlapError:
        """Return in times what a rule said in buckets."""
        return self._recorder.explained(error) if self._recorder else error

    @property
    def schema(self) -> Schema:
        return self.widened or self.head.schema

    def __contains__(self, name: object) -> bool:
        """Whether a long column, as it is in the table and in these rows, may become real: a double holds all of it."""
        if not isinstance(name, str):
            return False
        if name not in self._exact:
            catalog = self.target.catalog
            self._exact[name] = self._in_table(lambda head: is_exact_in_table(catalog, head, name))
        added = [action.extent for action in self._actions if isinstance(action, AddExtent)]
        return (
            self._exact[name]
            and are_exact_in_extents(added, name)
            and all(is_exact_array(batch.column(name)) for batch in self._stager.batches if name in batch.schema.names)
        )

    def take(self, coerced: Coerced) -> None:
        """Stage rows, with the schema they needed."""
        if self.key:
            check_keys(coerced.batch, self.key, self.head.schema, coerced.schema, first_row=self.rows)
        self.widened = coerced.schema
        self.overflowed += coerced.overflowed
        self._rounded.update(coerced.rounded)
        if coerced.overflowed:
            self.spilled |= spilled_columns(coerced)
        self._count(coerced.batch)
        self.take_batch(with_promoted(coerced, self.head.settings))

    def take_batch(self, batch: pa.RecordBatch) -> None:
        """Stage rows of this schema or an older one."""
        self.rows += batch.num_rows
        for _ in self._stager.stage(batch):
            self._write_extent()

    def cut(self) -> None:
        """Write what is staged as an extent, so that the rows that come next are in another."""
        if self._stager.rows:
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
                before = self._tally_before(name)
                found = Tally(found.fits + before.fits, found.misfits + before.misfits)
            if found.is_mixed:
                mixed.append((name, DataType("dynamic")))
        if mixed:
            self.widened = self.schema.widen(mixed)

    def _tally_before(self, name: str) -> Tally:
        catalog, left = self.target.catalog, WINDOW_ROWS - self.rows
        return self._in_table(lambda head: tally_before(catalog, head, name, left))

    def _in_table(self, look: Callable[[Snapshot], Found]) -> Found:
        """Look at what the table has, at the head that the rows are fitted to or, once that has expired, the newest."""
        head = self.head
        while True:
            try:
                return look(head)
            except NotFoundError:
                newest = self.target.catalog.head(head.scope)
                if newest.id == head.id:
                    raise
                head = newest

    def changes(self) -> tuple[str, ...]:
        """Return what became of columns whose values changed their type."""
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
        """Return the actions of the commit; an extent's object is stored by then."""
        self._demote()
        if self._stager.rows and self.keep_hot and not self._actions and self._is_small():
            self._actions.append(AppendHot(self._hot_batch()))
        elif self._stager.rows:
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
            self.target.store.delete(
                [*self._keys, *self._sidecars, *(name.key for name in self._names if name.is_begun)]
            )
        self.give_up()

    def give_up(self) -> None:
        """Leave what was written to collection; if that cannot be told now, its registration grows old."""
        with suppress(StorageError, CommitUnknownError):  # the error that led here is the one to tell
            if self._keys:
                self.target.catalog.release_pending(self._keys)
            for name in self._names:
                name.give_up()

    def _is_small(self) -> bool:
        return self._stager.rows <= HOT_ROWS and self._stager.byte_size <= HOT_BYTES

    def _hot_batch(self) -> HotBatch:
        rows = self._distinct(united(self._stager.batches, self._stored_schema()))
        if self._recorder:
            self._recorder.take([rows])
        low, high = self._time_bounds(rows)
        return HotBatch(new_id(), rows.num_rows, hot_payload(rows), low, high, self.schema.version)

    def _time_bounds(self, rows: pa.RecordBatch) -> tuple[int | None, int | None]:
        time = TableSettings.of(self.head.settings).time
        if time is None:
            return None, None
        if rows.column(time).null_count:  # tombstones have none
            return None, None
        times = rows.column(time).view(pa.int64()).to_numpy(zero_copy_only=False)
        low, high = int(times.min()) * 1000, int(times.max()) * 1000
        return (low, high) if low >= -(2**63) and high < 2**63 else (None, None)

    def _stored_schema(self) -> Schema:
        """Return the schema with the hidden columns that staged rows have."""
        if not self.key:
            return self.schema
        return self.schema.with_hidden({name for batch in self._stager.batches for name in batch.schema.names})

    def _distinct(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Keep one row of each key, if the table has one: the last, or the newest where versions are known."""
        if not self.key:
            return rows
        rows = told_of_deletion(rows)
        kept = newest_versions(rows, self.key) if SEQ_COLUMN in rows.schema.names else newest_rows(rows, self.key)
        self.superseded += rows.num_rows - kept.num_rows
        return kept

    def _write_extent(self) -> None:
        target = self.target
        stored = self._stored_schema()
        if self.key:
            rows = self._distinct(united(self._stager.batches, stored))
            self._stager.batches = [in_key_order(rows, self.key)]
        judged = self._recorder.begin(self._stager.batches) if self._recorder else None
        extent_id = new_id()
        name = ExtentName.registered(
            target, self._stager.settings, extent_id, self._stager.suffix, is_moved=self.is_moved
        )
        self._names.append(name)
        target.at("extent.registered")

        def begin() -> None:
            """Go on only with rows that may be written; they were judged while they were encoded."""
            if judged:
                judged()
            target.at("extent.begun")

        written = self._stager.write(name.key, extent_id, stored, begin, sink=name)
        extent = replace(written, key=name.key, level=self.level)
        target.at("extent.written")
        if self._recorder and judged:
            covered_at = target.coverage_store.write_extent(target.info, extent_id, judged(), self._recorder.rules)
            extent = replace(extent, coverage_key=covered_at)
            self._keys.append(covered_at)
            target.at("extent.covered")
        if self._stager.settings.vector_indexes:
            self._sidecars += write_sidecars(target.store, self._stager.settings.vector_indexes, stored, extent)
            target.at("extent.coded")
        self.extents += 1
        self._actions.append(AddExtent(extent))
