"""Overwrite a table, a time range of it, or the rows that match a condition, with a frame: one commit.

1. Tasks write the new rows as for an append (see ``writing``), and check each: one that a second overwrite of the same
   range and condition would not replace fails the job, and nothing is changed.
2. The driver takes the old rows out at the newest snapshot, as ``Table.replace`` does: extents leave whole, those at
   the edges are written again without the rows.
3. What leaves and what the tasks wrote is committed together. If another rewrite was faster with an extent that leaves,
   the driver begins again with step 2; the tasks do not.

What is replaced is what is there when the driver commits, rows that came while the tasks ran included. Rows that come
between steps 2 and 3 stay. It does not write extents of new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelake.errors import ConflictError, InvalidInputError, OverlapError
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain.delete import take_rows
from tidelake.maintain.keyed import hide_rows
from tidelake.maintain.rewrite import Rewrite, at_newest_head
from tidelake.model.predicate import Predicate, columns_of
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Action, Receipt, RecordOffset, Snapshot
from tidelake.pruning.plan import Question
from tidelake.spark.bucketing import cut_of, joined
from tidelake.spark.options import REPLACING, option
from tidelake.spark.places import open_table
from tidelake.spark.writing import (
    Job,
    StreamWriter,
    TaskWriter,
    Written,
    announce,
    forget_folder,
    give_up,
    happened,
    take_written,
    written_by,
)
from tidelake.write.appender import Appender


@dataclass(frozen=True, slots=True)
class Replaced:
    """Which rows an overwrite replaces: all of them, or those of a time range that match."""

    start: str | None = None
    end: str | None = None
    where: Predicate | str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Replaced:
        """Read the options of a write."""
        if option(options, "where") is not None:
            raise InvalidInputError(
                "option where chooses what is read: name the rows to overwrite with replaceWhere", kind="bad_option"
            )
        given = [option(options, name) for name in REPLACING]
        for name, text in zip(REPLACING, given, strict=True):
            if text is not None and not text.strip():
                raise InvalidInputError(f"option {name} is empty: leave it out to overwrite all", kind="bad_option")
        return cls(*given)

    def question(self, table: TableHandle, head: Snapshot, schema: Schema) -> Question | None:
        """Return what a row must match, of a snapshot with the schema that the new rows bring; None for any row."""
        if self == Replaced():
            return None
        widened = replace(table, past=replace(head, schema=schema))
        return widened.question((), self.where, start=self.start, end=self.end)[1]


class OverwriteWriter(TaskWriter, DataSourceArrowWriter):
    """Replace rows with a frame: one commit, once for each key."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.replaced = Replaced.of(options)
        super().__init__(options, schema)
        table = open_table(options)
        head = table.snapshot
        self.replaced.question(table, head, head.schema)  # of old rows: it must be sound without the new ones
        self.job = replace(
            self.job,
            replaced=self.replaced.question(table, head, self.job.schema),
            cut=cut_of(options, head),
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.write_rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_overwrite(
            open_table(self.options), self.job, self.replaced, written_by(messages), key=self.options.get("key"),
            offset=self.offset,
        )  # fmt: skip

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        give_up(open_table(self.options), self.job.folder, written_by(messages))


class CompleteWriter(StreamWriter):
    """Replace all rows with each batch of a stream whose batches are the whole answer."""

    def publish(self, table: TableHandle, written: Sequence[Written], offset: RecordOffset) -> None:
        job = replace(self.job, id=written[0].job_id, folder=written[0].folder)
        commit_overwrite(table, job, Replaced(), written, offset=offset)


def commit_overwrite(
    table: TableHandle,
    job: Job,
    replaced: Replaced,
    messages: Sequence[Written],
    *,
    key: str | None = None,
    offset: RecordOffset | None = None,
) -> Receipt | None:
    """Publish what tasks wrote in place of the rows that it replaces; None if there is nothing to change."""
    catalog = table.catalog
    if (known := catalog.receipt(table.scope, commit_id=job.id)) is not None:
        return known  # this very job is in: its extents must not be announced again
    if job.is_replay:  # its tasks wrote nothing, so it must not take anything away, whatever became of the key
        forget_folder(table, job.folder, ())
        return happened(table, key, offset)
    if job.cut is not None:
        runs = joined(message.buckets for message in messages)
        if not runs:  # no rows, and so no buckets
            forget_folder(table, job.folder, ())
            return None
        replaced = Replaced(where=job.cut.where(runs))
    keys = [each for message in messages for each in message.keys]
    announce(table, job.id, job.folder, keys)
    receipt = at_newest_head(table, lambda head: _attempt(table, head, job, replaced, messages, key, offset))
    if receipt is not None and receipt.commit_id != job.id:
        catalog.release_pending(keys)  # another attempt's rows are in: these are settled as garbage
    forget_folder(table, job.folder, keys)
    return receipt


def _attempt_hiding(
    table: TableHandle, head: Snapshot, job: Job, replaced: Replaced, messages: Sequence[Written], key: str | None,
    offset: RecordOffset | None,
) -> Receipt | None:  # fmt: skip
    """Hide the rows of a table with a key that are replaced, and add what tasks wrote after them."""
    given: list[Action] = []

    def newcomers(writer: Appender) -> None:
        given.extend(take_written(writer, messages))
        given.extend([offset] if offset else ())

    _, _, receipt = hide_rows(
        table, head, "replace", replaced.where, start=replaced.start, end=replaced.end, newcomers=newcomers,
        also=given, key=key, id=job.id,
    )  # fmt: skip
    return receipt


def _attempt(
    table: TableHandle, head: Snapshot, job: Job, replaced: Replaced, messages: Sequence[Written], key: str | None,
    offset: RecordOffset | None,
) -> Receipt | None:  # fmt: skip
    if (known := happened(table, key, offset)) is not None:
        return known
    if job.cut is None:
        _check_same(job, replaced.question(table, head, head.schema.widen(job.schema.columns)))
    if head.is_keyed and replaced != Replaced():
        return _attempt_hiding(table, head, job, replaced, messages, key, offset)

    def take(rewrite: Rewrite) -> int:
        return take_rows(rewrite, replaced.where, start=replaced.start, end=replaced.end)

    return swap(table, head, job, "replace", take, messages, key, offset)


def swap(
    table: TableHandle,
    head: Snapshot,
    job: Job,
    operation: str,
    take: Callable[[Rewrite], int],
    messages: Sequence[Written],
    key: str | None,
    offset: RecordOffset | None,
) -> Receipt | None:
    """Take rows out of a snapshot and commit that with what tasks wrote; None if there is nothing to change."""
    rewrite = Rewrite(table, head, operation)
    try:
        gone = take(rewrite)
        writer = rewrite.newcomer()
        try:
            extents = take_written(writer, messages)
            if not (gone or extents or writer.rows):
                return None
            rewrite.finish()
            rewrite.add(*extents, *([offset] if offset else ()))  # after the schema that they need
            return rewrite.commit(id=job.id, key=key, claims=writer.claims)
        except OverlapError as error:
            found = happened(table, key, offset)
            if found is None:
                raise writer.explained(error) from None
            rewrite.give_up()
            return found  # of this very batch, which holds its windows since
    except BaseException:
        rewrite.give_up()
        raise


def _check_same(job: Job, question: Question | None) -> None:
    """Refuse to go on if the condition means something else by now than when the tasks checked their rows."""
    if _meaning(job.replaced) != _meaning(question):
        raise ConflictError(
            "a column that the condition looks at changed while the job ran: run it again",
            table=job.table,
            kind="schema",
        )


def _meaning(question: Question | None) -> Any:
    if question is None or question.where is None:
        return None
    looked_at = sorted(columns_of(question.where))
    return question.where, [(question.schema[name].type, question.alternatives.get(name, ())) for name in looked_at]
