"""Change single rows of a table for Spark's UPDATE, DELETE and MERGE: one commit.

1. Spark reads the table at one snapshot. Rows of a plain table carry their ids (see ``scan.row_ids``); in a table with
   a key, a row is known by that.
2. A task gets a stream of changes: an id that leaves, a row that comes, or both. It writes new rows as for an append
   (see ``writing``), and its message has the ids. Rows that nobody changes do not pass through Spark.
3. The driver takes the rows out of a plain table by their positions, as a deletion does, and hides them in a table
   with a key. What leaves and what the tasks wrote is committed together.

Rows that are appended meanwhile stay. If another commit has moved or changed a row that leaves, or has given a key a
new version, the statement fails and nothing is changed: what it computed was of older rows. It does not decide which
rows change: Spark does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelake.errors import ConflictError, InvalidInputError, TidelakeError
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import Rules, coerce_arrow
from tidelake.maintain.positions import take_positions
from tidelake.maintain.rewrite import at_newest_head
from tidelake.model.schema import SEQ_COLUMN, Schema
from tidelake.model.snapshot import Receipt, RecordOffset, Snapshot
from tidelake.scan.versions import keys_of
from tidelake.spark.options import CHANGE, known_options
from tidelake.spark.overwriting import swap
from tidelake.spark.places import open_table
from tidelake.spark.reading import row_ids
from tidelake.spark.types import from_spark, spark_names, spark_schema
from tidelake.spark.writing import (
    Extents,
    Job,
    TaskWriter,
    Written,
    announce,
    forget_folder,
    give_up,
    happened,
    sized,
    take_written,
)
from tidelake.write.appender import Appender
from tidelake.write.flush import flush
from tidelake.write.keyed import tombstones
from tidelake.write.publish import publish
from tidelake.write.upsert import is_changed_since

OPERATION = "_tidelake_op"  # what a change is: 1 takes a row away, 2 takes one away and brings another, 3 brings one
TAKES, BRINGS = (1, 2), (2, 3)
ID = "_tidelake_id_"  # the columns of an id begin so; a number follows


@dataclass(frozen=True)
class Changed(WriterCommitMessage):
    """What one task changed: the rows that it wrote, and the ids of those that leave, as Arrow streams."""

    written: Written
    taken: bytes | None = None
    touched: bytes | None = None  # every key that a change names, of a table with a key


class Once(NamedTuple):
    """What makes a commit happen once: its key, or which batch of a stream it is."""

    key: str | None = None
    offset: RecordOffset | None = None


class ChangeWriter(TaskWriter, DataSourceArrowWriter):
    """Take rows away and bring others: one commit, once for each key."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        own = {name: value for name, value in options.items() if name != CHANGE}
        self.operation, _, at = options[CHANGE].partition("@")
        self.at = int(at)
        head = open_table(own).snapshot
        self.names = [field.name for field in schema if field.name != OPERATION and not field.name.startswith(ID)]
        rows = StructType([field for field in schema if field.name in self.names])
        super().__init__(own, rows if self.names else spark_schema(head.schema))
        self.keys = keys_of(head)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Changed:
        extents = Extents(self.job.place.open_objects(self.job.objects), self.job)
        changes = _Changes(self.job, self.names, self.keys, extents)
        for batch in sized(iterator):
            if not self.job.is_replay:
                changes.take(batch)
        return changes.finish()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        once = Once(self.options.get("key"), self.offset)
        commit_changes(open_table(self.options), self.job, self.operation, self.at, _changed(messages), once)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        give_up(open_table(self.options), self.job.folder, [each.written for each in _changed(messages)])


@dataclass(slots=True)
class _Changes:
    """Part the changes of one task into new rows and ids."""

    job: Job
    names: Sequence[str]
    keys: tuple[str, ...]
    extents: Extents
    taken: list[pa.RecordBatch] = field(default_factory=list)
    touched: list[pa.RecordBatch] = field(default_factory=list)
    _schema: Schema | None = None

    def take(self, batch: pa.RecordBatch) -> None:
        operation = batch.column(OPERATION)
        takes, brings = (pc.is_in(operation, pa.array(each, pa.int32())) for each in (TAKES, BRINGS))
        ids = batch.select([name for name in batch.schema.names if name.startswith(ID)])
        news = self._written(batch.select(list(self.names)).filter(brings)) if self.names else None
        if not self.keys:
            self.taken.append(ids.filter(takes))
            return
        known = self._keys_of(ids)
        if news is not None and news.num_rows:
            # an update that keeps its key takes the place of the older version by itself
            same = pc.fill_null(_alike(known.filter(brings), news), False)
            at = np.flatnonzero(brings.to_numpy(zero_copy_only=False))[same.to_numpy(zero_copy_only=False)]
            leaves = takes.to_numpy(zero_copy_only=False).copy()
            leaves[at] = False
            self.touched.append(news)
            takes = pa.array(leaves)
        gone = known.filter(takes)
        self.taken.append(gone)
        self.touched.append(gone)

    def finish(self) -> Changed:
        taken = _unique_ids(self.taken) if not self.keys else self.taken
        return Changed(self.extents.finish(), _packed(taken), _packed(self.touched))

    def _written(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Write new rows, and return their keys."""
        schema = self._schema or self.job.schema
        coerced = coerce_arrow(from_spark(rows, schema), schema, self.job.rules)
        self._schema = coerced.schema
        self.extents.take(coerced)
        return coerced.batch.select(list(self.keys))

    def _keys_of(self, ids: pa.RecordBatch) -> pa.RecordBatch:
        """Return keys as they are stored; those of rows that are new are null."""
        own = Schema(tuple(self.job.schema[name] for name in self.keys))
        named = ids.rename_columns(list(self.keys))
        return coerce_arrow(from_spark(named, own), own, Rules(time=None)).batch


def begin(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the snapshot at which a statement that changes rows reads its table.

    Hot rows are flushed first where that changes nothing else: a later flush would move rows that the statement reads.
    """
    options, version = known_options(question["options"], "batch"), question["version"]
    table = open_table(options)
    head = table.catalog.head(table.scope)
    if not head.is_keyed and SEQ_COLUMN in head.schema:
        raise InvalidInputError(
            f"rows of a table with a column {SEQ_COLUMN} cannot be changed by spark", table=table.name, kind="bad_name"
        )
    is_wanted = question["operation"] != "delete" and head.totals.hot_batches and not head.is_keyed
    if is_wanted and str(head.sequence) == version:
        with suppress(TidelakeError):  # hot rows have ids, too
            flushed = flush(table).snapshot
            return {"version": str(flushed) if flushed == head.sequence + 1 else version}
    return {"version": version}


def commit_changes(
    table: TableHandle, job: Job, operation: str, at: int, changed: Sequence[Changed], once: Once
) -> Receipt | None:
    """Publish the changes of tasks, which are of rows as a snapshot had them; None if there is nothing to change."""
    catalog = table.catalog
    if (known := catalog.receipt(table.scope, commit_id=job.id)) is not None:
        return known  # this very job is in: its extents must not be announced again
    written = [each.written for each in changed]
    taken = [batch for each in changed for batch in _unpacked(each.taken)]
    if job.is_replay or not (taken or any(each.rows for each in written)):
        forget_folder(table, job.folder, ())
        return happened(table, *once)
    keys = [each for message in written for each in message.keys]
    announce(table, job.id, job.folder, keys)
    before = catalog.snapshot(table.scope, sequence=at)
    if before.is_keyed:
        touched = [batch for each in changed for batch in _unpacked(each.touched)]
        receipt: Receipt | None = _hide(table, before, job, operation, taken, touched, written, once)
    else:
        receipt = _take(table, before, job, operation, taken, written, once)
    if receipt is not None and receipt.commit_id != job.id:
        catalog.release_pending(keys)  # another attempt's rows are in: these are settled as garbage
    forget_folder(table, job.folder, keys)
    return receipt


def _take(
    table: TableHandle, before: Snapshot, job: Job, operation: str, taken: Sequence[pa.RecordBatch],
    written: Sequence[Written], once: Once,
) -> Receipt | None:  # fmt: skip
    """Take rows out of a plain table by their ids, and add what tasks wrote."""
    ids = np.concatenate([np.empty(0, np.int64), *(batch.column(0).to_numpy() for batch in taken)])
    positions = row_ids(table, before).positions(ids) if len(ids) else {}

    def attempt(head: Snapshot) -> Receipt | None:
        if (known := happened(table, *once)) is not None:
            return known
        return swap(table, head, job, operation, lambda rewrite: take_positions(rewrite, positions), written, *once)

    return at_newest_head(table, attempt)


def _hide(
    table: TableHandle, before: Snapshot, job: Job, operation: str, taken: Sequence[pa.RecordBatch],
    touched: Sequence[pa.RecordBatch], written: Sequence[Written], once: Once,
) -> Receipt:  # fmt: skip
    """Hide rows of a table with a key, and add what tasks wrote after them."""
    whole = pa.Table.from_batches(touched).combine_chunks().to_batches()

    def check(head: Snapshot) -> None:
        if any(is_changed_since(table, head, batch, before) for batch in whole):
            raise ConflictError(
                "a row that is to be changed has a newer version, of another commit: run it again", table=table.name,
                kind="rewritten",
            )  # fmt: skip

    writer = Appender(table, table.catalog.head(table.scope))
    try:
        for batch in taken:
            writer.take_batch(tombstones(dict(zip(batch.schema.names, batch.columns, strict=True)), writer.head.schema))
        extents = take_written(writer, written)
        actions = [*writer.finish(), *extents, *([once.offset] if once.offset else ())]
        receipt = publish(table, writer.head, actions, operation=operation, id=job.id, key=once.key, check=check)
    except BaseException:
        writer.give_up()
        raise
    if receipt.commit_id != job.id:
        writer.give_up()
    return receipt


def key_names(snapshot: Snapshot) -> list[str]:
    """Return the key columns of a table by their names in Spark."""
    shown = {name: shown_as for shown_as, name in spark_names(snapshot.schema).items()}
    return [shown[name] for name in keys_of(snapshot)]


def _changed(messages: Sequence[WriterCommitMessage | None]) -> list[Changed]:
    return [message for message in messages if isinstance(message, Changed)]


def _alike(known: pa.RecordBatch, news: pa.RecordBatch) -> pa.Array:
    """Return of each row whether two batches of keys have the same."""
    first, *others = [pc.equal(one, other) for one, other in zip(known.columns, news.columns, strict=True)]
    for each in others:
        first = pc.and_kleene(first, each)
    return first


def _unique_ids(taken: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Join the ids of rows in their order, which packs well; one that several changes name is there once."""
    ids = np.unique(np.concatenate([np.empty(0, np.int64), *(batch.column(0).to_numpy() for batch in taken)]))
    return [pa.RecordBatch.from_arrays([pa.array(ids)], names=["id"])] if len(ids) else []


def _packed(batches: Sequence[pa.RecordBatch]) -> bytes | None:
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, filled[0].schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        for batch in filled:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def _unpacked(packed: bytes | None) -> list[pa.RecordBatch]:
    return [] if packed is None else list(pa.ipc.open_stream(packed))
