"""Run a query in this process, on DuckDB, over the Arrow scans of its tables.

Every reference is a stream that begins anew whenever DuckDB reads it, so a plan that reads a table twice is right. Rows
are given as they come, a batch at a time, so a result may be larger than memory. Time is bounded by interrupting again
and again until the query ends, and whoever waits for it does not wait longer; memory is bounded by DuckDB's own limit,
which is the engine's share of the budget, and nothing is spilled to disk: what does not fit belongs on Spark. It does
not plan.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, cast
from weakref import WeakSet

import duckdb
import pyarrow as pa
from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.model.logical_types import Logical
from tidelake.query.budget import Budget, Deadline
from tidelake.query.conjuncts import conjuncts_of
from tidelake.query.engines import small
from tidelake.query.engines.complaints import complaint_of
from tidelake.query.engines.opening import opened
from tidelake.query.engines.streams import Stream
from tidelake.query.functions.registry import register_duckdb
from tidelake.query.functions.rendering import render_query
from tidelake.query.intervals import with_long_intervals
from tidelake.query.prepared import Prepared, Scan, result_schema
from tidelake.query.sql.parse import too_deep

BATCH_ROWS = 16_384  # of columns that are as wide in every row
PICKED_ROWS = 65_536  # of a scan that is the answer: a batch handed over costs as much as some thousand rows
WIDE_ROWS = 2_048  # of others, at a time: the engine's own vectors
BATCH_BYTES = 4 << 20  # up to which batches of wide rows are put together
BATCHES_AHEAD = 2  # one is being written while the next is made
LOOK_SECONDS = 0.1  # between looks whether anybody still reads
STOP_SECONDS = 10.0  # for a query that is told to stop; past it, it is left behind
NEXT_SECONDS = 0.5  # between looks whether somebody has stopped it
LATE_SECONDS = 0.2  # for one that is late already: who waits for it is told, and it ends by itself

_NUMBER = "\x01row"  # no column's name: control characters are refused
# Types whose values are as wide in every row.
_NARROW = frozenset(
    {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP"}
    | {"TIMESTAMP WITH TIME ZONE", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UUID", "TIME", "INTERVAL"}
)


def execute(prepared: Prepared, scans: Sequence[Scan], budget: Budget, lake: LakeHandle) -> pa.RecordBatchReader:
    """Run a query and give its rows as they come."""
    deadline = Deadline(budget.left)
    if "duckdb" not in prepared.rendered:
        prepared.rendered["duckdb"] = deadline.watched(
            partial(render_query, prepared.tree, "duckdb", language=prepared.language),
            budget.out_of_time(planning=True),
        )
    if small.is_small(prepared, scans, budget.engine_bytes):
        found = _small(prepared, scans[0], replace(budget, spent=budget.spent + deadline.spent), lake)
        if found is not None:
            return found
    _database(budget.engine_bytes)  # which takes its time, once
    ahead = _Ahead(_Run(prepared, scans, replace(budget, spent=budget.spent + deadline.spent), lake))
    return pa.RecordBatchReader.from_batches(ahead.schema, ahead)


def _small(prepared: Prepared, scan: Scan, budget: Budget, lake: LakeHandle) -> pa.RecordBatchReader | None:
    """Run a small query here and now; None if it is none after all."""
    deadline = Deadline(budget.left)

    def check() -> None:
        if budget.is_stopped():
            raise budget.stopped()
        if deadline.left < 0:
            raise budget.out_of_time()

    check()
    stream = Stream(scan, lake.footers, check, prepared.language, prepared.kept.get("layout"))
    prepared.kept["layout"] = stream.layout
    found = small.rows_of(stream, prepared.rendered["duckdb"])
    if found is None:
        prepared.known["few" if stream.has_many else "small"] = False
        return None
    rows, names = found
    schema, kinds = _shaped_as_before(prepared, rows.schema, names)
    batches = [
        pa.RecordBatch.from_arrays(
            [_plain_column(column, kind) for column, kind in zip(batch.columns, kinds, strict=True)], schema=schema
        )
        for batch in rows.combine_chunks().to_batches(BATCH_ROWS)
    ]
    return pa.RecordBatchReader.from_batches(schema, batches)


def schema_of(prepared: Prepared, scans: Sequence[Scan], budget: Budget, lake: LakeHandle) -> pa.Schema:
    """Return the columns that a query's rows have, without running it."""
    streams = [Stream(each, lake.footers, lambda: None, prepared.language) for each in scans]
    if prepared.picked is not None:
        return streams[0].picked(prepared.picked, prepared.columns).schema
    if "duckdb" not in prepared.rendered:
        prepared.rendered["duckdb"] = render_query(prepared.tree, "duckdb", language=prepared.language)
    connection = _database(budget.engine_bytes).cursor()
    try:
        for stream in streams:
            connection.register(stream.name, stream)
        found = connection.sql(prepared.rendered["duckdb"])
        return pa.schema([]) if found is None else _started(found.limit(0), prepared)[1]
    except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
        raise _explained(error, streams, budget, prepared.text) from error
    finally:
        connection.close()


def satisfying(prepared: Prepared, scan: Scan, rows: pa.Table, budget: Budget) -> list[bool]:
    """Return which of some rows satisfy the conditions that a query has on a scan's table and that name only columns of
    theirs; rows are not those of the table, and whatever cannot be asked of them rules nothing out.
    """
    names = {name for name, own in scan.ask.reference.spelled.items() if own in rows.schema.names}
    for table in prepared.tree.find_all(exp.Table):
        select = table.find_ancestor(exp.Select)
        if table.name != scan.name or select is None or table.find_ancestor(exp.From) is None:
            continue
        where = select.args.get("where")
        own = [
            each
            for each in conjuncts_of(where.this if where else None)
            if not each.find(exp.Query)
            and (columns := list(each.find_all(exp.Column)))
            and all(column.name in names and column.table in ("", table.alias_or_name) for column in columns)
        ]
        if own:
            asked = (
                exp.select(exp.column(_NUMBER, quoted=True)).from_(table.copy()).where(*(each.copy() for each in own))
            )
            return _satisfying(render_query(asked, "duckdb", language=prepared.language), scan, rows, budget)
    return [True] * rows.num_rows


def _satisfying(text: str, scan: Scan, rows: pa.Table, budget: Budget) -> list[bool]:
    spelled = {own: name for name, own in scan.ask.reference.spelled.items()}
    given = rows.rename_columns([spelled[name] for name in rows.schema.names])
    numbered = given.append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
    connection = _database(budget.engine_bytes).cursor()
    try:
        connection.register(scan.name, numbered)
        found = {number for (number,) in connection.sql(text).fetchall()}
        return [at in found for at in range(rows.num_rows)]
    except duckdb.Error:
        return [True] * rows.num_rows
    finally:
        connection.close()


def _started(found: Any, prepared: Prepared) -> tuple[Any, pa.Schema, list[pa.DataType]]:
    """Begin to run a query: the rows as the engine gives them, their schema, and the types to bring them to."""
    found = with_long_intervals(found)
    names = [str(kind) for kind in found.types]
    rows = found.to_arrow_reader(WIDE_ROWS if any(name not in _NARROW for name in names) else BATCH_ROWS)
    return rows, *_shaped(prepared, rows.schema, names)


def _shaped(prepared: Prepared, found: pa.Schema, names: Sequence[str]) -> tuple[pa.Schema, list[pa.DataType]]:
    """Return the schema of a query's rows, and the types to bring them to, from what the engine calls its types."""
    kinds = [
        _plain_type(field.type, is_count=name in ("HUGEINT", "UHUGEINT"), is_clock=at in prepared.clocks)
        for at, (field, name) in enumerate(zip(found, names, strict=True))
    ]
    plain = pa.schema([pa.field(field.name, kind) for field, kind in zip(found, kinds, strict=True)])
    return result_schema(prepared, plain, [name == "JSON" for name in names]), kinds


def _shaped_as_before(
    prepared: Prepared, found: pa.Schema, names: Sequence[str]
) -> tuple[pa.Schema, list[pa.DataType]]:
    """Return what ``_shaped`` does, as it was made for the same columns the last time."""
    kept = prepared.kept.get("shaped")
    if kept is None or kept[1] != names or not kept[0].equals(found):
        kept = prepared.kept["shaped"] = (found, names, _shaped(prepared, found, names))
    return cast("tuple[pa.Schema, list[pa.DataType]]", kept[2])


class _Ahead:
    """The batches of a query, which a thread of its own runs a little ahead of who reads them.

    Who waits here waits in Python, so that Ctrl-C is heard at once; and who stops reading stops the query.
    """

    def __init__(self, run: _Run) -> None:
        _reading.add(self)
        self._run = run
        self._thread = Thread(target=run.go, name="tidelake-query", daemon=True)
        self._thread.start()
        try:
            self.schema: pa.Schema = self._run.next()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            batch = self._run.next()
        except BaseException:
            self.close()
            raise
        if batch is None:
            self.close()
            raise StopIteration
        return batch

    def close(self) -> None:
        """Stop the query if it runs, and wait for its end; one that is late is left to end by itself."""
        if self._run.is_late:
            self._run.stop()
            return
        until = time.monotonic() + STOP_SECONDS
        while self._thread.is_alive() and time.monotonic() < until:
            self._run.stop()
            self._thread.join(LOOK_SECONDS)

    __del__ = close


class _Run:
    """One query on its thread: it puts a schema on the line, then batches, then None; or what went wrong."""

    def __init__(self, prepared: Prepared, scans: Sequence[Scan], budget: Budget, lake: LakeHandle) -> None:
        self._prepared, self._budget = prepared, budget
        self._clock = _Clock(budget.left)
        self._streams = [Stream(each, lake.footers, self._check_time, prepared.language) for each in scans]
        self._connection: duckdb.DuckDBPyConnection | None = _database(budget.engine_bytes).cursor()
        self._line: Queue[Any] = Queue(maxsize=BATCHES_AHEAD)
        self._stopped, self._ended = False, Event()

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return self._clock.left < 0

    def _check_time(self) -> None:
        if self.is_late:
            raise self._budget.out_of_time()

    def go(self) -> None:
        connection = self._connection
        assert connection is not None
        Thread(target=self._watch, name="tidelake-clock", daemon=True).start()
        try:
            self._produce(connection) if self._prepared.picked is None else self._pick(self._prepared.picked)
        except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
            explained = _explained(error, self._streams, self._budget, self._prepared.text)
            if explained is not error:
                explained.__cause__ = error.with_traceback(None)  # its frames would hold the engine
            self._put(explained)
        except BaseException as error:
            self._put(error)
        finally:
            self._ended.set()
            self._connection = None
            connection.close()

    def next(self) -> Any:
        """Wait for what comes next, but not for a query that does not hear that its time is over."""
        while True:
            with suppress(Empty):
                found = self._line.get(timeout=min(max(self._clock.left, LOOK_SECONDS), NEXT_SECONDS))
                if isinstance(found, BaseException):
                    raise found
                return found
            if self._budget.is_stopped():
                raise self._budget.stopped()
            if self._clock.left < -LATE_SECONDS:
                raise self._budget.out_of_time()

    def stop(self) -> None:
        """Let the query end soon, whatever it is doing; the clock goes on to tell it so."""
        self._stopped = True
        self._interrupt()
        with suppress(Empty):
            while True:
                self._line.get_nowait()

    def _interrupt(self) -> None:
        with suppress(duckdb.Error):  # it may have ended by itself
            if (connection := self._connection) is not None:
                connection.interrupt()

    def _watch(self) -> None:
        """Interrupt the query once its time is over or nobody wants it, again and again: one may come too early."""
        while not self._ended.wait(min(max(self._clock.left, LOOK_SECONDS), STOP_SECONDS)):
            if self._budget.is_stopped():
                self._stopped = True
            if self.is_late or self._stopped:
                self._interrupt()

    def _produce(self, connection: duckdb.DuckDBPyConnection) -> None:
        with self._clock.running():
            for stream in self._streams:
                connection.register(stream.name, stream)
            found = connection.sql(self._prepared.rendered["duckdb"])
            if found is None:
                self._put(pa.schema([]))
                self._put(None)
                return
            rows, schema, kinds = _started(found, self._prepared)
        self._put(schema)
        for batch in self._batches(rows, schema, kinds):
            self._put(batch)
        self._put(None)

    def _pick(self, columns: Sequence[str]) -> None:
        """Give rows as they are scanned: there is nothing to compute."""
        with self._clock.running():
            rows = self._streams[0].picked(columns, self._prepared.columns)
        self._put(rows.schema)
        while not self._stopped:
            with self._clock.running():
                batch = next(rows, None)
            if batch is None:
                self._put(None)
                return
            step = max(1, min(PICKED_ROWS, batch.num_rows * BATCH_BYTES // max(batch.nbytes, 1)))
            for start in range(0, batch.num_rows, step):
                self._put(batch.slice(start, step))

    def _batches(self, reader: Any, schema: pa.Schema, kinds: Sequence[pa.DataType]) -> Iterator[pa.RecordBatch]:
        """Yield the batches in the types of the schema, small ones put together."""
        waiting: list[pa.RecordBatch] = []
        while not self._stopped:
            with self._clock.running():
                batch = next(reader, None)
                if batch is not None:
                    columns = [_plain_column(column, kind) for column, kind in zip(batch.columns, kinds, strict=True)]
                    waiting.append(pa.RecordBatch.from_arrays(columns, schema=schema))
                full = batch is None or sum(each.nbytes for each in waiting) >= BATCH_BYTES
                full = full or sum(each.num_rows for each in waiting) >= BATCH_ROWS
                made = pa.concat_batches(waiting) if full and len(waiting) > 1 else waiting[0] if waiting else None
            if full and made is not None:
                yield made
                waiting.clear()
            if batch is None:
                return

    def _put(self, item: Any) -> None:
        while not self._stopped:
            with suppress(Full):
                self._line.put(item, timeout=LOOK_SECONDS)
                return


class _Clock:
    """The time that a query may still take; it stands still while nobody asks for more rows."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._since: float | None = None

    @property
    def left(self) -> float:
        since = self._since
        return self._left if since is None else self._left - (time.monotonic() - since)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._left, self._since = self.left, None


@lru_cache(maxsize=4)
def _database(memory_bytes: int) -> duckdb.DuckDBPyConnection:
    """Open DuckDB once for each memory limit; opening costs more than a small query."""
    connection = opened(memory_bytes)
    register_duckdb(connection)
    return connection


_reading: WeakSet[_Ahead] = WeakSet()


@atexit.register
def _close() -> None:
    """Stop what nobody will read to its end: the engine must not outlive the interpreter."""
    for ahead in list(_reading):
        ahead.close()
    _database.cache_clear()
    small.close()


def _explained(error: Exception, streams: Sequence[Stream], budget: Budget, text: str) -> Exception:
    for stream in streams:
        if stream.failure is not None:
            return stream.failure
    # What goes wrong once rows are on their way comes through Arrow, of which the text is left.
    message = str(error).removeprefix("Invalid: ").split("\n")[0]
    label, _, rest = message.partition(": ")
    if isinstance(error, duckdb.OutOfMemoryException | MemoryError) or label == "Out of Memory Error":
        return budget.out_of_memory()
    if isinstance(error, duckdb.InterruptException) or label == "INTERRUPT Error":
        return budget.out_of_time()
    if not isinstance(error, duckdb.Error) and not label.endswith(" Error"):
        return error
    if "Max expression depth limit" in rest:
        return too_deep()
    return complaint_of(label, rest, text)


def _plain_type(kind: pa.DataType, *, is_count: bool, is_clock: bool) -> pa.DataType:
    """Return the type that both engines share: 64-bit sums, doubles, times in UTC but for wall clocks."""
    if is_count:
        return pa.int64()
    if is_clock:
        return pa.timestamp("us")
    is_nested = pa.types.is_nested(kind) and not pa.types.is_fixed_size_list(kind)  # which are vectors
    if is_nested and (logical := Logical.from_arrow(kind)) is not None:
        return logical.arrow  # in which the items of lists have one name
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_integer(kind) and kind not in (pa.int32(), pa.int64()):
        return pa.int32() if kind.bit_width < 32 else pa.int64()
    if pa.types.is_large_string(kind):
        return pa.utf8()
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _plain_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind == column.type:
        return column
    try:
        return column.cast(kind, safe=not pa.types.is_timestamp(kind))
    except pa.ArrowInvalid:
        if pa.types.is_decimal(column.type):
            raise QueryError("a whole number is beyond 64 bits: cast to double", kind="runtime") from None
        raise
