"""Write a frame or a stream to a table: tasks write extents, the driver commits once.

1. Planning, in the driver: the rows' schema must widen the table's or fit it. The job gets an id and a folder of its
   own among the table's extents, and the folder is registered as pending before a task is sent out.
2. A task coerces its rows and writes extents into the folder, under names that no other attempt has; a few rows travel
   inside its message instead. It asks the catalog nothing.
3. Committing, in the driver: the extents of the attempts that Spark chose are registered as pending by name, and only
   if the folder still is, too, are they committed: all of them, the wider schema, and what makes it happen once (the
   key of a batch, the query and number of a stream's batch) in one commit.
4. What other attempts left in the folder is given up for collection by name, and then the folder itself.

A failure anywhere leaves only pending objects. It does not decide which attempt counts: Spark does. Nor does it take
rows away: see ``overwriting``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelake.catalog.protocol import Layout, Pending, new_id
from tidelake.coverage.coverage_store import CoverageRules, rules_of, same_time
from tidelake.coverage.entities import cells_of
from tidelake.coverage.sidecar import decode, encode
from tidelake.errors import AlreadyExistsError, ConflictError, InvalidInputError, OverlapError, SchemaError
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import Coerced, Rules, coerce_arrow
from tidelake.model.exact import has_inexact_longs, stream_has_inexact_longs
from tidelake.model.schema import DataType, Schema, becoming_real, wider_type
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Action, AddExtent, Extent, Receipt, RecordOffset, UpdateTable
from tidelake.objects import ObjectStore, extent_of_sidecar
from tidelake.pruning.plan import Question
from tidelake.scan.footers import Footers
from tidelake.scan.remaining import Remaining
from tidelake.spark.bucketing import Cut, Runs, Touched
from tidelake.spark.lines import DataSourceStreamArrowWriter
from tidelake.spark.options import BATCH, BUCKETED, REPLACING, number_of, option
from tidelake.spark.places import Place, open_table
from tidelake.spark.types import from_spark, own_names, widened
from tidelake.vectors.sidecars import write_sidecars
from tidelake.write.appender import Appender
from tidelake.write.drift import exact_columns, spilled_columns, with_promoted
from tidelake.write.flush import FLUSH_BYTES, FLUSH_ROWS, flush
from tidelake.write.keyed import BLOCK_ROWS, check_keys, in_key_order, newest_rows
from tidelake.write.naming import job_folder
from tidelake.write.publish import publish
from tidelake.write.stager import EXTENT_BYTES, Stager, conformed, united

INLINE_BYTES = 1 << 20  # fewer rows of a task than this travel in its message: the driver joins them with others'
COERCE_ROWS = 65_536  # rows are coerced so many at a time
_DYNAMIC = DataType("dynamic")
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"  # of a task's local properties


@dataclass(frozen=True, slots=True)
class Job:
    """One write: what its tasks need to know."""

    id: str
    place: Place
    objects: str
    table: str
    folder: str
    schema: Schema
    settings: Mapping[str, Any]
    layout: Layout
    extent_bytes: int
    block_rows: int | None  # as many as suit the rows, if not given
    is_replay: bool = False  # the key is in already: there is nothing to write
    held: bytes | None = None  # coverage of windows whose rows are left out
    exact: frozenset[str] = frozenset()  # long columns that may become real
    sort: bool = True  # the rows of an extent by time; else they stay as they come
    replaced: Question | None = None  # what every row must match, because rows that match are replaced
    cut: Cut | None = None  # the buckets that rows are in are replaced

    @property
    def rules(self) -> Rules:
        return Rules(time=TableSettings.of(self.settings).time, exact=self.exact)

    @property
    def coverage(self) -> CoverageRules | None:
        """What the table says of its coverage, if it keeps any; of a table with a key it is found in its rows."""
        if self.settings.get("key"):
            return None
        return rules_of(self.settings, self.schema, self.layout)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task did; the driver commits it, or what another attempt did."""

    job_id: str
    folder: str
    schema: Schema  # the one the rows needed
    extents: tuple[Extent, ...] = ()
    rows: int = 0
    inline: bytes | None = None  # rows that are not in an extent, as an Arrow stream
    spilled: frozenset[str] = frozenset()
    query: str | None = None  # of a stream
    left_out: int = 0  # rows of windows that were held
    buckets: Runs = ()  # that the rows are in, if these are replaced

    @property
    def keys(self) -> list[str]:
        """The objects that were written."""
        covered = [extent.coverage_key for extent in self.extents if extent.coverage_key is not None]
        return [*(extent.key for extent in self.extents), *covered]


@dataclass(slots=True)
class Extents:
    """Gather rows and cut them into extents of about equal memory, each sorted by time."""

    store: ObjectStore
    job: Job
    rows: int = 0
    written: list[Extent] = field(default_factory=list)
    spilled: set[str] = field(default_factory=set)
    schema: Schema | None = None
    left_out: int = 0
    _stager: Stager = field(init=False)
    _key: tuple[str, ...] = ()
    _replaced: Remaining | None = None
    _touched: Touched | None = None

    def __post_init__(self) -> None:
        settings = TableSettings.of(self.job.settings)
        self._key = settings.key
        block_rows = self.job.block_rows or (BLOCK_ROWS if self._key else None)
        sort = self.job.sort and not self._key
        self._stager = Stager(self.store, settings, self.job.extent_bytes, block_rows, sort)
        if self.job.replaced is not None:
            self._replaced = Remaining.of(self.job.replaced, self.job.schema, Footers(self.store))
        self._touched = Touched(self.job.cut) if self.job.cut is not None else None

    def take(self, coerced: Coerced) -> None:
        """Stage coerced rows, and write an extent when there are enough."""
        if self._key:
            check_keys(coerced.batch, self._key, self.job.schema, coerced.schema, first_row=self.rows)
        self.schema = coerced.schema
        self._check_replaced(coerced)
        if self._touched is not None:
            self._touched.take(coerced.batch)
        if coerced.overflowed:
            self.spilled |= spilled_columns(coerced)
        self.take_batch(self._without_held(with_promoted(coerced, self.job.settings)))

    def take_batch(self, batch: pa.RecordBatch) -> None:
        """Stage rows as they are."""
        self.rows += batch.num_rows
        for _ in self._stager.stage(batch):
            self.write()

    def finish(self, query: str | None = None, *, inline_bytes: int = INLINE_BYTES) -> Written:
        """Return what was written; the last few rows travel in the message."""
        inline = None
        if self._stager.rows and self._stager.byte_size <= min(inline_bytes, self.job.extent_bytes):
            inline = _stream_bytes(self._stager.batches, self.schema or self.job.schema)
        elif self._stager.rows:
            self.write()
        job, schema = self.job, self.schema or self.job.schema
        return Written(
            job.id,
            job.folder,
            schema,
            tuple(self.written),
            self.rows,
            inline,
            frozenset(self.spilled),
            query,
            self.left_out,
            self._touched.finish() if self._touched is not None else (),
        )

    def write(self) -> None:
        """Write what is staged as one extent."""
        extent_id = new_id()
        if self._key:
            rows = newest_rows(united(self._stager.batches, self.schema or self.job.schema), self._key)
            self._stager.batches = [in_key_order(rows, self._key)]
        covered_at = self._write_coverage(extent_id)
        key = f"{self.job.folder}/{extent_id}{self._stager.suffix}"
        extent = self._stager.write(key, extent_id, self.schema or self.job.schema)
        if self._stager.settings.vector_indexes:
            write_sidecars(self.store, self._stager.settings.vector_indexes, self.schema or self.job.schema, extent)
        self.written.append(replace(extent, coverage_key=covered_at))

    def _write_coverage(self, extent_id: str) -> str | None:
        """Write what the staged rows cover beside their extent; in a log's layout the driver does, elsewhere."""
        rules = self.job.coverage
        if rules is None or not self.job.layout.tasks_write_coverage:
            return None
        names = [rules.index.column, *rules.index.entity]
        rows = pa.Table.from_batches([batch.select(names) for batch in self._stager.batches])
        cells = cells_of(rows, rules.index)
        if rules.mode == "exclusive" and (twins := cells.twins()) is not None:
            raise same_time(rules.index, self.job.table, twins)
        key = f"{self.job.folder}/{extent_id}.cov"
        self.store.put(key, encode(cells.coverage, rules.index))
        return key

    def _check_replaced(self, coerced: Coerced) -> None:
        """Refuse a row that a second overwrite of the same range and condition would not replace."""
        if self._replaced is None:
            return
        for column in self._replaced.asked.columns:
            if coerced.schema[column.name].type != column.type:
                raise InvalidInputError(
                    "values of a column that the condition looks at do not have the type it has",
                    column=column.name, type=column.type, found=coerced.schema[column.name].type, kind="not_replaced",
                )  # fmt: skip
        batch = coerced.batch
        meant = self._replaced.taken(batch, batch.schema.names, batch.num_rows)
        if meant.true_count < batch.num_rows:
            time = self.job.rules.time
            at = int(meant.to_numpy(zero_copy_only=False).argmin())
            where = {time: batch.column(time)[at].as_py().isoformat()} if time is not None else {}
            raise InvalidInputError(
                "a row is not among those that are replaced: it is outside of the range, or does not match",
                table=self.job.table, kind="not_replaced", **where,
            )  # fmt: skip

    def _without_held(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out the rows of windows that a backfill does not need."""
        rules = self.job.coverage
        if self.job.held is None or rules is None or not batch.num_rows:
            return batch
        held = cells_of(batch, rules.index).are_in(decode(self.job.held, rules.index))
        self.left_out += int(held.sum())
        return batch.filter(pa.array(~held)) if held.any() else batch


class TaskWriter:
    """What batch and stream writers share: planning a job, and writing in its tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        table = open_table(options)
        self.options = {name: value for name, value in options.items() if name.lower() != "checkpointlocation"}
        self.offset = offset_of(options)
        self.job = plan_job(table, Place.of(options), schema, options)
        self._is_registered = False

    def __getstate__(self) -> dict[str, Any]:
        """Register the job's folder before anything is sent to where tasks are."""
        if not self._is_registered:
            register_folder(open_table(self.options), self.job.folder)
            self._is_registered = True
        return self.__dict__

    def write_rows(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        store = self.job.place.open_objects(self.job.objects)
        extents = Extents(store, self.job)
        schema, rules = self.job.schema, self.job.rules
        for batch in sized(batches):
            if self.job.is_replay:
                continue
            coerced = coerce_arrow(from_spark(batch, schema), schema, rules)
            schema = coerced.schema
            extents.take(coerced)
        context = TaskContext.get()
        return extents.finish(context.getLocalProperty(QUERY_ID) if context else None)


class BatchWriter(TaskWriter, DataSourceArrowWriter):
    """Append a frame: one commit, once for each key."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        for name in (*REPLACING, *BUCKETED):
            if option(options, name) is not None:
                raise InvalidInputError(f"option {name} is for mode overwrite", kind="bad_option")
        super().__init__(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.write_rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        table = open_table(self.options)
        key = self.options.get("key")
        commit_written(table, self.job.id, self.job.folder, written_by(messages), key=key, offset=self.offset)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        give_up(open_table(self.options), self.job.folder, written_by(messages))


class StreamWriter(TaskWriter, DataSourceStreamArrowWriter):
    """Append a stream: one commit a batch, once for each batch of a query, whatever was restarted or repeated."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.write_rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = written_by(messages)
        if not written:
            return
        query = written[0].query
        if query is None:
            raise InvalidInputError("spark did not tell the query's id, so its batches cannot be told apart")
        self.publish(open_table(self.options), written, RecordOffset(f"spark:{query}", batchId))

    def publish(self, table: TableHandle, written: Sequence[Written], offset: RecordOffset) -> None:
        """Commit the rows of one batch."""
        commit_written(table, written[0].job_id, written[0].folder, written, offset=offset)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if written := written_by(messages):
            give_up(open_table(self.options), written[0].folder, written)


def plan_job(table: TableHandle, place: Place, schema: StructType, options: Mapping[str, str]) -> Job:
    """Fit the rows' schema to the table's, and give the job a folder of its own."""
    head = table.snapshot
    table.refuse_when_pinned()
    wider = widened(head.schema, schema, table.name)
    real = becoming_real(head.schema, wider)
    inexact = set(real) - exact_columns(table.catalog, head, real)
    wider = wider.widen([(name, DataType("dynamic")) for name in inexact])  # which holds both, each as it is
    time = TableSettings.of(head.settings).time
    if time is not None and time not in own_names(head.schema, schema.fieldNames()).values():
        raise SchemaError("the rows have no time column", table=table.name, column=time, kind="no_time")
    id = new_id()
    key = options.get("key")
    return Job(
        id=id,
        place=place,
        objects=table.store.url,
        table=table.name,
        folder=job_folder(table, TableSettings.of(head.settings), id),
        schema=wider,
        settings=dict(head.settings),
        layout=table.catalog.layout,
        extent_bytes=number_of(options, "extentBytes", EXTENT_BYTES) or EXTENT_BYTES,
        block_rows=number_of(options, "blockRows", None),
        is_replay=happened(table, key, offset_of(options)) is not None,
    )


def offset_of(options: Mapping[str, str]) -> RecordOffset | None:
    """Return which batch of which stream a write is, if it says so."""
    stream, version = (option(options, name) for name in BATCH)
    if (stream is None) != (version is None):
        raise InvalidInputError("options txnAppId and txnVersion go together", kind="bad_option")
    batch = number_of(options, BATCH[1], None, least=0)
    return None if stream is None or batch is None else RecordOffset(f"app:{stream}", batch)


def register_folder(table: TableHandle, folder: str) -> None:
    """Announce a job's folder before the first byte is written below it."""
    table.catalog.register_pending([_pending(table, folder)])


def commit_written(
    table: TableHandle,
    job_id: str,
    folder: str,
    messages: Sequence[Written],
    *,
    key: str | None = None,
    offset: RecordOffset | None = None,
    operation: str = "append",
    removed: Sequence[Action] = (),
    keep_folder: bool = False,
) -> Receipt | None:
    """Publish what tasks wrote in one commit; None if there was nothing to publish."""
    catalog, scope = table.catalog, table.scope
    if (known := catalog.receipt(scope, commit_id=job_id)) is not None:
        return known  # this very job is in: its extents must not be announced again
    keys = [key for message in messages for key in message.keys]
    appender = Appender(table, catalog.head(scope), is_new=operation == "append")
    try:
        announce(table, job_id, folder, keys)
        actions = [*_actions(appender, messages), *removed]
        if not actions:
            if not keep_folder:
                forget_folder(table, folder, ())
            return None
        whole = (*actions, *([offset] if offset else ()))
        receipt = publish(
            table, appender.head, whole, operation=operation, id=job_id, key=key, claims=appender.claims()
        )
    except OverlapError as error:
        appender.give_up()
        found = happened(table, key, offset)
        if found is None:
            raise appender.explained(error) from None
        receipt = found  # of this very batch, which holds its windows since
    except BaseException:
        appender.give_up()
        raise
    if receipt.replayed and receipt.commit_id != job_id:
        catalog.release_pending(keys)  # another attempt's rows are in: these are settled as garbage
        appender.give_up()
    if not keep_folder:
        forget_folder(table, folder, keys)
    totals = appender.head.totals
    if totals.hot_rows > FLUSH_ROWS or totals.hot_bytes > FLUSH_BYTES:
        flush(table)
    return receipt


def announce(table: TableHandle, job_id: str, folder: str, keys: Sequence[str]) -> None:
    """Register each object of a job by its own name, and check that the folder protected all of them until then."""
    if not keys:
        return
    table.catalog.register_pending([_pending(table, each) for each in keys])
    if all(pending.key != folder for pending in table.catalog.pending(table_id=table.scope.table_id)):
        raise ConflictError("the job was given up for collection: run it again", table=table.name, job=job_id)


def give_up(table: TableHandle, folder: str, messages: Sequence[Written]) -> None:
    """Leave what a job wrote to collection, unless it was committed after all.

    A name that was registered is released, which a commit that is still under way then cannot use. No name in a message
    is registered again for that: it may have been given up and deleted meanwhile, and that commit would find it. What
    is left of them goes with the folder.
    """
    named = [key for message in messages for key in message.keys]
    if named:
        table.catalog.release_pending(named)
    forget_folder(table, folder, named)


def forget_folder(table: TableHandle, folder: str, kept: Iterable[str]) -> None:
    """Give up by name what lies in a job's folder and is not kept, nor a sidecar of what is; then the folder."""
    catalog, settled = table.catalog, set(kept)
    listed = [meta.key for meta in table.store.list(folder)]
    left = [key for key in listed if (extent_of_sidecar(key) or key) not in settled]
    if left:
        with suppress(AlreadyExistsError):  # this was begun before: what has no name goes with the folder
            catalog.register_pending([_pending(table, key) for key in left])
    catalog.release_pending([*left, folder])


def take_written(appender: Appender, messages: Sequence[Written]) -> list[Action]:
    """Hand what tasks wrote to an appender, which gets the rows that travelled in messages; return their extents."""
    filled = [message for message in messages if message.rows]
    appender.spilled.update(*(message.spilled for message in filled))
    appender.widened = schema = _merged(appender.head.schema, filled)
    fitted = [replace(extent, schema_version=schema.version) for message in messages for extent in message.extents]
    extents: list[Action] = [AddExtent(appender.admit(extent)) for extent in fitted]
    for message in messages:
        if message.inline is not None:
            for batch in pa.ipc.open_stream(message.inline):
                appender.take_batch(batch)
    return extents


def _actions(appender: Appender, messages: Sequence[Written]) -> list[Action]:
    """Return the actions of a job's commit; rows that travelled in messages become hot rows, or one more extent."""
    extents = take_written(appender, messages)
    actions = appender.finish()
    updates = [action for action in actions if isinstance(action, UpdateTable)]
    return [*updates, *extents, *(action for action in actions if not isinstance(action, UpdateTable))]


def _merged(schema: Schema, messages: Sequence[Written]) -> Schema:
    """Return the schema that holds what every task wrote: dynamic where tasks found types that do not widen."""
    for message in messages:
        held = {column.name: column for column in schema}
        mixed = [
            (column.name, _DYNAMIC)
            for column in message.schema
            if column.name in held and "vector" not in (column.type.kind, held[column.name].type.kind)
            and wider_type(held[column.name].type, column.type) is None
        ]  # fmt: skip
        schema = schema.widen(mixed)
        schema = schema.widen(column for column in message.schema.columns if column.name not in dict(mixed))
    reals = {column.name for column in schema if column.type.kind == "real"}
    inexact = [
        (name, _DYNAMIC)
        for name in sorted(reals)
        if any(has_inexact_longs(extent.column_stats, [name]) for each in messages for extent in each.extents)
        or any(each.inline and stream_has_inexact_longs(each.inline, [name]) for each in messages)
    ]
    return schema.widen(inexact)


def happened(table: TableHandle, key: str | None, offset: RecordOffset | None = None) -> Receipt | None:
    """Find the answer that a batch got before, by its key or by its place in a stream."""
    known = [key, f"{offset.stream}\x1f{offset.batch}" if offset else None]
    found = (table.catalog.receipt(table.scope, key=each) for each in known if each is not None)
    return next((receipt for receipt in found if receipt is not None), None)


def _pending(table: TableHandle, key: str) -> Pending:
    return Pending(key, table.scope, f"spark {socket.gethostname()}:{os.getpid()}")


def written_by(messages: Iterable[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def sized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join Spark's batches to ones that are worth a call."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= COERCE_ROWS:
            yield pa.concat_batches(held) if len(held) > 1 else held[0]
            held, rows = [], 0
    if rows:
        yield pa.concat_batches(held) if len(held) > 1 else held[0]


def _stream_bytes(batches: Sequence[pa.RecordBatch], schema: Schema) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema.arrow) as stream:
        for batch in batches:
            stream.write_batch(conformed(batch, schema))
    return bytes(sink.getvalue())
