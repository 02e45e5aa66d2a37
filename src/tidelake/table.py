"""Append to a table and read from it: the noun that users hold.

An append is one commit: all of its rows become visible at once, or none. A small one is kept in the catalog as hot
rows, visible to every reader as soon as it is acknowledged; a flush turns hot rows into an extent. A large one is
written as extents, each registered as pending before its first byte. Rows that the schema cannot hold widen it in the
same commit. It does not decide how values fit (``ingest``), what is read (``plan``), or who wins a race (``commit``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tidelake.catalog.commit import Coordinator
from tidelake.catalog.protocol import At, Catalog, TableInfo, new_id, nothing_at, now_us
from tidelake.coverage.coverage_store import Holdings
from tidelake.coverage.repair import RepairReport, repair
from tidelake.coverage.verbs import Series
from tidelake.dynamic.forms import check_form, stream_in_form, table_in_form
from tidelake.errors import (
    ConflictError,
    InvalidInputError,
    InvalidRangeError,
    OverlapError,
    SchemaError,
    TidelakeError,
    redacted,
)
from tidelake.ingest import OVERFLOW_COLUMN, Rules, coerced_stream, is_rereadable
from tidelake.logical.frames import pandas_frame
from tidelake.model.expression import Distance, unknown_column
from tidelake.model.predicate import And, Predicate, TimeRange, columns_of
from tidelake.model.schema import DataType, Schema
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Action, Commit, DropHot, Extent, HotBatch, Receipt, Snapshot, UpdateTable
from tidelake.model.times import When, parse_time_ns
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
from tidelake.scan.alternatives import PROMOTED, also_in_overflow, places, spread_of, understood
from tidelake.scan.evaluate import check, check_vector
from tidelake.scan.extents import Footers, prune_blocks, scan, scan_shown, without_cases
from tidelake.scan.hot import acknowledged_us, hot_rows
from tidelake.scan.listing_cache import listings_of
from tidelake.scan.misfits import with_warnings
from tidelake.write.appender import Appender, Target
from tidelake.write.drift import check_widening
from tidelake.write.flush import Flusher
from tidelake.write.promote import WINDOW_ROWS, Promotable, settled_paths

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

FLUSH_ROWS = 50_000  # hot rows past which they are flushed at once…
FLUSH_BYTES = 16 << 20  # …or their bytes
FLUSH_OVERDUE = 4  # times as many hot rows, and an append flushes them itself before it returns
WIDENING_TRIES = 8  # each lost to a writer that widened the schema in another way

Columns: TypeAlias = Sequence[str | Distance]


@dataclass(frozen=True, slots=True)
class AppendReport:
    """What an append did: how many rows, in which snapshot, as how many extents (none: the rows are hot)."""

    rows: int
    snapshot: int
    extents: int
    replayed: bool = False
    overlap: int = 0  # rows in time windows that were already held
    overflowed: int = 0  # values that fitted no column
    skipped: int = 0  # rows of a file that were passed over, and are in its quarantine file
    changes: tuple[str, ...] = ()  # what became of columns whose values changed their type


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What a flush did."""

    rows: int
    extents: int
    snapshot: int


class Table:
    """A table at its newest snapshot, or pinned to an older one, which can then only be read."""

    _lake_address: str = ""  # where its lake is, with any password, for processes that open it too

    def __init__(
        self,
        catalog: Catalog,
        store: ObjectStore,
        coordinator: Coordinator,
        footers: Footers,
        info: TableInfo,
        pinned: Snapshot | None = None,
        *,
        flusher: Flusher | None = None,
        holdings: Holdings | None = None,
        at: At = nothing_at,
    ) -> None:
        self._catalog, self._store, self._coordinator, self._footers = catalog, store, coordinator, footers
        self._holdings = holdings or Holdings(catalog, store, footers)
        self._holdings.know(info)
        self._flusher, self._at = flusher, at
        self._info = info
        self._pinned = pinned
        self._target = Target(catalog, store, info, self._holdings, self.name, at)

    @property
    def lake(self) -> str:
        """Where the table's lake is, without a password."""
        return redacted(self._lake_address)

    @property
    def name(self) -> str:
        return str(self._info)

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that reads see now."""
        return self._pinned or self._catalog.head(self._info.scope)

    @property
    def schema(self) -> Schema:
        return self.snapshot.schema

    def pinned(self) -> Table:
        """Hold the table at the snapshot it has now, so that several reads agree."""
        held = copy(self)
        held._pinned = self.snapshot
        return held

    def showing(self, columns: Sequence[str], where: str | None = None) -> Table:
        """Hold the table as ``pinned`` does, with what is in the overflow column under these names as columns."""
        held = copy(self)
        held._pinned, _ = understood(self._catalog, self.snapshot, columns, where)
        return held

    @property
    def coverage(self) -> Series:
        """What the table holds and what is missing, if it was made with a bucket."""
        return Series(self, self._holdings)

    def repair(self, *, thorough: bool = False) -> RepairReport:
        """Make lost or damaged coverage again, from extents' coverage or their rows; see ``coverage.repair``."""
        self._refuse_when_pinned()
        return repair(self._info, self._catalog, self._coordinator, self._holdings, thorough=thorough)

    def append(self, rows: Any, *, key: str | None = None) -> AppendReport:
        """Append rows: an Arrow stream or table, a list of dicts, NDJSON bytes, or the path of a file.

        With a key, a second append of the same key changes nothing and gets the first answer.
        """
        self._refuse_when_pinned()
        if key is not None and (receipt := self._catalog.receipt(self._info.scope, key=key)):
            return _replay(receipt)
        head = self._coordinator.head(self._info.scope)  # perhaps not the newest: the commit is rebased
        for _ in range(WIDENING_TRIES if is_rereadable(rows) else 0):
            try:
                return self._append(rows, key, head)
            except ConflictError as error:  # another writer gave a new field another type: fit the rows to that one
                if error.kind != "schema":
                    raise
                head = self._catalog.head(self._info.scope)
        # What is read once is tried once: while nobody has put rows here, nobody is likely to forbid what it needs.
        is_new = not is_rereadable(rows) and not head.totals.rows + head.totals.hot_rows
        return self._append(rows, key, head, is_last=not is_new)

    def _append(self, rows: Any, key: str | None, head: Snapshot, *, is_last: bool = False) -> AppendReport:
        writer = Appender(self._target, head)
        exact: Container[str] = frozenset() if is_last else writer  # what others may forbid is not tried for ever
        rules = Rules(time=TableSettings.of(head.settings).time, exact=exact)
        is_offered = False
        try:
            for coerced in coerced_stream(rows, head.schema, rules):
                writer.take(coerced)
            actions = writer.finish()
            if not actions:
                return AppendReport(0, head.sequence, 0)
            commit = Commit(new_id(), self._info.scope, head.sequence, tuple(actions), key=key, claims=writer.claims())
            is_offered = True
            receipt = self._coordinator.commit(commit)
        except OverlapError as error:
            writer.give_up()
            if key is not None and (twin := self._catalog.receipt(self._info.scope, key=key)):
                return _replay(twin)  # it holds what this very append did, only faster
            raise writer.explained(error) from None
        except BaseException:
            if is_offered:  # the commit may have happened
                writer.give_up()
            else:
                writer.discard()
            raise
        if receipt.replayed:
            writer.give_up()
            return _replay(receipt)
        report = AppendReport(
            writer.rows,
            receipt.sequence,
            writer.extents,
            overlap=writer.overlap,
            overflowed=writer.overflowed,
            changes=writer.changes(),
        )
        if writer.extents:
            self._promote_settled(head)
        else:
            self._see_to_flush(head)
        return report

    def _see_to_flush(self, head: Snapshot) -> None:
        """Have hot rows flushed, now or when they are old. The append is acknowledged: nothing here fails it."""
        rows, size = head.totals.hot_rows, head.totals.hot_bytes
        fullness = max(rows / FLUSH_ROWS, size / FLUSH_BYTES)
        age_us = TableSettings.of(head.settings).flush_age_us
        if fullness > (FLUSH_OVERDUE if self._flusher else 1):
            with suppress(Exception):  # tried again by the next append
                self.flush()
        elif self._flusher is not None and fullness > 1:
            self._flusher.notice(self._info.scope, lambda: self._flush_by_age(0), 0.0)
        elif self._flusher is not None and age_us is not None:
            self._flusher.notice(self._info.scope, lambda: self._flush_by_age(age_us), age_us / 1e6)

    def _flush_by_age(self, age_us: int) -> float | None:
        """Flush if the oldest hot rows are that old; else say after how many seconds they will be."""
        head = self._catalog.head(self._info.scope)
        hot = self._catalog.hot(self._info.scope, sequence=head.sequence) if head.totals.hot_batches else []
        left_us = age_us - (now_us() - min(map(acknowledged_us, hot), default=0))
        if hot and left_us > 0:
            return left_us / 1e6
        self._flush(head, hot)
        return None

    def flush(self) -> FlushReport:
        """Turn the hot rows into an extent. If another flush is faster, there is nothing left to do."""
        self._refuse_when_pinned()
        head = self._catalog.head(self._info.scope)
        return self._flush(head, self._catalog.hot(self._info.scope, sequence=head.sequence))

    def _flush(self, head: Snapshot, hot: Sequence[HotBatch]) -> FlushReport:
        """Write hot rows as an extent, and swap it for them in one commit:

        1. list the hot rows of the head
        2. write them as an extent, registered as pending before its first byte
        3. commit the extent and the end of the hot rows together

        Killed before the commit is in, it leaves the rows hot and the extent to collection; after, the rows cold.
        """
        if not hot:
            return FlushReport(0, 0, head.sequence)
        self._at("flush.listed")
        writer = Appender(self._target, head, keep_hot=False, is_new=False)
        try:
            for batch in hot_rows(hot):
                writer.take_batch(batch)
            drops: list[Action] = [DropHot(batch.id) for batch in hot]
            actions = (*writer.finish(), *drops)
            self._at("flush.written")
            commit = Commit(new_id(), self._info.scope, head.sequence, actions, operation="flush")
            receipt = self._coordinator.commit(commit)
            self._at("flush.committed")
        except ConflictError:
            writer.give_up()
            return FlushReport(0, 0, self._catalog.head(self._info.scope).sequence)
        except BaseException:
            writer.give_up()
            raise
        self._promote_settled(head)
        return FlushReport(writer.rows, writer.extents, receipt.sequence)

    def plan(
        self,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        *,
        start: When | None = None,
        end: When | None = None,
        limit: int | None = None,
        ordered: bool = False,
        prune: bool = True,
    ) -> ScanPlan:
        """Say what a scan would read; ``explain()`` of the answer shows it."""
        plan = self.outline(columns, where, start=start, end=end, limit=limit, ordered=ordered)
        if not prune:
            listed = self._catalog.extents(self._info.scope, sequence=plan.snapshot.sequence)
            whole = without_pruning(plan, listed, self._hot(plan.snapshot))
            return with_warnings(prune_blocks(whole, self._footers, prune=False))
        return with_warnings(prune_blocks(plan, self._footers))

    def outline(
        self,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        *,
        start: When | None = None,
        end: When | None = None,
        limit: int | None = None,
        ordered: bool = False,
        stats: Iterable[str] = (),
    ) -> ScanPlan:
        """Plan as far as the catalog alone can tell: which extents, not yet which blocks; no object is read.

        Extents come with the statistics of the columns that ``where`` asks about, and of those in ``stats``.
        """
        snapshot = self.snapshot
        question = self._question(snapshot, columns, where, start, end, limit, ordered)
        scope = self._info.scope
        judged = judged_columns(question, stats)
        listed = listings_of(self._catalog).extents(snapshot, question, judged)
        if listed is None:
            start_ns, end_ns = time_window(question)
            listed = self._catalog.extents(
                scope,
                sequence=snapshot.sequence,
                start_ns=start_ns,
                end_ns=end_ns,
                where=for_catalog(question),
                stats=judged,
            )
        return make_plan(self.name, snapshot, question, listed, self._hot(snapshot))

    def _hot(self, snapshot: Snapshot) -> Sequence[HotBatch]:
        return self._catalog.hot(self._info.scope, sequence=snapshot.sequence) if snapshot.totals.hot_batches else ()

    def scan(
        self,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        *,
        start: When | None = None,
        end: When | None = None,
        limit: int | None = None,
        ordered: bool = False,
        prune: bool = True,
        dynamic: str = "json",
    ) -> pa.RecordBatchReader:
        """Stream the rows that match, ``[start, end)`` of the time column, in time order if asked.

        A time is RFC 3339 text, a datetime, a date, or a number since 1970: seconds, milliseconds, microseconds or
        nanoseconds by its size, here, in conditions and in rows that are appended alike.
        Dynamic values are JSON text, or CBOR bytes with ``dynamic="cbor"``. ``prune=False`` reads everything and gives
        the same rows; it is there to be compared with.
        """
        check_form(dynamic)
        plan = self.plan(columns, where, start=start, end=end, limit=limit, ordered=ordered, prune=prune)
        return stream_in_form(scan_shown(plan, self._footers), dynamic)

    def to_arrow(
        self, columns: Columns | None = None, where: Predicate | str | None = None, *, dynamic: str = "json"
    ) -> pa.Table:
        """Read matching rows into one Arrow table; dynamic values as ``json``, ``struct`` or ``cbor``."""
        return table_in_form(self.scan(columns, where, dynamic="cbor"), dynamic)

    def to_polars(
        self, columns: Columns | None = None, where: Predicate | str | None = None, *, dynamic: str = "json"
    ) -> polars.DataFrame:
        """Read matching rows into a Polars frame; needs polars. Dynamic values as in ``to_arrow``."""
        import polars

        frame = polars.from_arrow(self.to_arrow(columns, where, dynamic=dynamic))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pandas(
        self, columns: Columns | None = None, where: Predicate | str | None = None, *, dynamic: str = "json"
    ) -> pandas.DataFrame:
        """Read matching rows into a pandas frame; needs pandas. Dynamic values as in ``to_arrow``."""
        return pandas_frame(self.to_arrow(columns, where, dynamic=dynamic))

    def to_duckdb(
        self,
        connection: duckdb.DuckDBPyConnection,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        *,
        dynamic: str = "json",
    ) -> duckdb.DuckDBPyRelation:
        """Give matching rows to DuckDB as a relation, streamed; needs duckdb. Dynamic values as in ``scan``."""
        return connection.from_arrow(without_cases(self.scan(columns, where, dynamic=dynamic), self.schema))

    def __len__(self) -> int:
        """Return how many rows the table has."""
        totals = self.snapshot.totals
        return totals.rows + totals.hot_rows

    def __bool__(self) -> bool:
        """A table is something, also without rows."""
        return True

    def to_spark(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        *,
        spark: SparkSession | None = None,
        plain: bool = False,
    ) -> DataFrame:
        """Give matching rows to Spark as a frame; needs pyspark.

        With ``plain``, dates and wall clocks are TIMESTAMP, in UTC, and bytes and nested values VARIANT.
        """
        from tidelake.spark.frames import frame_of

        return frame_of(self, columns, where, spark, plain=plain)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Let any reader of Arrow streams read the whole table."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def history(self, limit: int = 100) -> list[Snapshot]:
        """List snapshots, newest first."""
        return self._catalog.history(self._info.scope, limit=limit)

    def extents(self) -> list[Extent]:
        """List the extents that reads see now."""
        return self._catalog.extents(self._info.scope, sequence=self.snapshot.sequence)

    def add_column(self, name: str, type: str | DataType) -> Schema:
        """Add a nullable column, or widen one: int to long to real, or anything but a vector to dynamic.

        A type that does not hold every value of the column is a SchemaError, and nothing is changed.
        """
        self._refuse_when_pinned()
        kind = DataType.parse(type) if isinstance(type, str) else type
        for tries in range(WIDENING_TRIES):
            head = self._catalog.head(self._info.scope)
            check_widening(self._catalog, head, name, kind)
            try:
                return self._widen([(name, kind)], also_in_overflow(head, head.schema.widen([(name, kind)])))
            except ConflictError as error:
                if error.kind != "schema" or tries + 1 == WIDENING_TRIES:
                    raise
        raise AssertionError("the last try returns or raises")

    def promote(self, path: str, type: str | DataType, *, name: str | None = None) -> Schema:
        """Make a typed column of a dynamic path, ``attributes.http.status``.

        New rows are written to the column; in old rows the value stays where it is, and reads unite the two. The column
        is named like the path's last key unless told otherwise.
        """
        self._refuse_when_pinned()
        kind = DataType.parse(type) if isinstance(type, str) else type
        snapshot = self.snapshot
        column, _, inner = path.partition(".")
        if not inner or column not in snapshot.schema or snapshot.schema[column].type.kind != "dynamic":
            raise SchemaError("promote takes a path into a dynamic column, such as attributes.http.status", path=path)
        if kind.logical or kind.kind not in ("int", "long", "real", "bool", "string"):
            raise SchemaError("a path is promoted to int, long, real, bool or string", path=path, type=kind)
        target = name or inner.replace(".", "_")
        if target in snapshot.schema and snapshot.settings.get(PROMOTED + target) != [column, inner]:
            raise SchemaError(
                "a path is promoted to a column of its own: give another name=", path=path, column=target, kind="taken"
            )
        return self._widen([(target, kind)], {PROMOTED + target: [column, inner]})

    def promotable(self) -> list[Promotable]:
        """List the dynamic paths that have settled on one type in the newest rows, the most frequent first.

        A path qualifies with a value of one scalar type in at least 100 of the last 1,000 rows, and no other in them.
        """
        snapshot = self.snapshot
        promoted = {tuple(place) for _, place in places(snapshot.settings, PROMOTED)}
        found: list[Promotable] = []
        for column in snapshot.schema:
            if column.type.kind == "dynamic" and column.type.logical is None:
                known = {path for name, path in promoted if name == column.name}
                if column.name == OVERFLOW_COLUMN:  # there, a column's name has what did not fit the column
                    known |= set(snapshot.schema.names)
                newest = self._newest(snapshot, column.name, WINDOW_ROWS)
                found.extend(settled_paths(column.name, newest, known=known))
        return sorted(found, key=lambda each: (-each.rows, each.path))

    def _newest(self, snapshot: Snapshot, column: str, count: int) -> pa.Array:
        """Give the values of a column in the newest rows: hot ones, then those at the end of the newest extents."""
        scope, parts, left = self._info.scope, list[pa.Array](), count
        question = Question(snapshot.schema, (column,))
        hot = self._catalog.hot(scope, sequence=snapshot.sequence) if snapshot.totals.hot_batches else []
        if hot:
            plan = make_plan(self.name, snapshot, question, [], hot)
            parts.append(_tail(scan(plan, self._footers).read_all()[column], left))
            left -= len(parts[0])
        listed = self._catalog.extents(scope, sequence=snapshot.sequence) if left > 0 else []
        extents = sorted(listed, key=lambda extent: extent.added_seq)
        while left > 0 and extents:
            plan = prune_blocks(
                make_plan(self.name, snapshot, question, [extents.pop()], []), self._footers, prune=False
            )
            for task in plan.tasks:
                last = replace(task, blocks=(task.blocks or ())[-1:])
                parts.append(_tail(scan(replace(plan, tasks=(last,)), self._footers).read_all()[column], left))
                left -= len(parts[-1])
        return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())

    def _promote_settled(self, head: Snapshot) -> None:
        """Promote what has settled, if the table was told to; the rows are in, so nothing here fails the caller."""
        if not TableSettings.of(head.settings).promote:
            return
        with suppress(TidelakeError):  # tried again after the next extent
            for each in self.promotable():
                with suppress(SchemaError):  # the name is taken, or cannot be a column's
                    self.promote(each.path, each.type)

    def _repr_html_(self) -> str:
        snapshot = self.snapshot
        rows = "".join(
            f"<tr><td>{escape(column.name)}</td><td>{escape(str(column.type))}</td></tr>" for column in snapshot.schema
        )
        head = f"<b>{escape(self.name)}</b> at snapshot {snapshot.sequence}: {len(self):,} rows"
        return f"<p>{head}</p><table><thead><tr><th>column</th><th>type</th></tr></thead><tbody>{rows}</tbody></table>"

    def __repr__(self) -> str:
        snapshot = self.snapshot
        totals = snapshot.totals
        rows = f"{totals.rows + totals.hot_rows:,} rows in {totals.extents:,} extents"
        hot = f" and {totals.hot_batches:,} hot batches" if totals.hot_batches else ""
        return (
            f"Table({self.name} at snapshot {snapshot.sequence}: {rows}{hot}; {', '.join(map(str, snapshot.schema))})"
        )

    def _widen(self, columns: Iterable[tuple[str, DataType]], settings: Mapping[str, Any]) -> Schema:
        self._refuse_when_pinned()
        head = self._catalog.head(self._info.scope)
        widened = head.schema.widen(columns)
        if widened == head.schema and all(head.settings.get(name) == value for name, value in settings.items()):
            return head.schema
        action = UpdateTable(widened if widened != head.schema else None, settings)
        self._coordinator.commit(Commit(new_id(), self._info.scope, head.sequence, (action,), operation="alter"))
        return self.schema

    def _question(
        self,
        snapshot: Snapshot,
        columns: Columns | None,
        where: Predicate | str | None,
        start: When | None,
        end: When | None,
        limit: int | None,
        ordered: bool,
    ) -> Question:
        snapshot, parsed = understood(self._catalog, snapshot, columns, where)
        schema = snapshot.schema
        time = TableSettings.of(snapshot.settings).time
        wanted, computed = _asked_columns(schema, columns)
        if limit is not None and limit < 0:
            raise InvalidInputError("a limit cannot be negative", limit=limit)
        parts = [check(parsed, schema)] if parsed is not None else []
        if start is not None or end is not None or ordered:
            if time is None:
                raise InvalidInputError("the table has no time column", table=self.name)
            if start is not None or end is not None:
                parts.append(_range(time, start, end))
        predicate = None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))
        spread, by = spread_of(snapshot.settings), time if ordered else None
        asked = parsed if parsed is not None and any(_is_logical(schema, name) for name in columns_of(parsed)) else None
        return Question(schema, wanted, predicate, time, spread, limit, by, computed, asked)

    def _refuse_when_pinned(self) -> None:
        if self._pinned is not None:
            raise InvalidInputError(
                "an older snapshot can only be read", table=self.name, snapshot=self._pinned.sequence
            )


def _replay(receipt: Receipt) -> AppendReport:
    return AppendReport(receipt.rows, receipt.sequence, receipt.extents, replayed=True)


def _range(time: str, start: When | None, end: When | None) -> TimeRange:
    start_ns = None if start is None else parse_time_ns(start)
    end_ns = None if end is None else parse_time_ns(end)
    if start_ns is not None and end_ns is not None and start_ns >= end_ns:
        raise InvalidRangeError("the range's start is not before its end", start=start, end=end)
    return TimeRange(time, start_ns, end_ns)


def _asked_columns(schema: Schema, columns: Columns | None) -> tuple[tuple[str, ...], dict[str, Distance]]:
    """Give the names of a scan's columns, and those of them that are computed."""
    if columns is None:
        return schema.names, {}
    computed = {each.name: each for each in columns if isinstance(each, Distance)}
    for each in computed.values():
        if each.column not in schema:
            raise unknown_column(each.column, schema.names)
        check_vector(each.metric, each.query, schema[each.column])
    names = tuple(each.name if isinstance(each, Distance) else each for each in columns)
    for name in names:
        if name not in computed:
            schema[name]  # an unknown one is a NotFoundError
        elif name in schema or names.count(name) > 1:
            raise InvalidInputError("a computed column needs a name of its own: give one with alias()", column=name)
    return names, computed


def _is_logical(schema: Schema, name: str) -> bool:
    return name in schema and schema[name].type.logical is not None


def _tail(values: pa.ChunkedArray, count: int) -> pa.Array:
    """Give the last values as one array."""
    last = values.slice(max(0, len(values) - count)).combine_chunks()
    return last if isinstance(last, pa.Array) else pa.concat_arrays(last.chunks or [pa.array([], values.type)])
