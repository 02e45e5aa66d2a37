"""Append the rows of many callers to a table in one commit, and answer each of them as if it had been alone.

Rows that arrive together make one well-sized extent, or one hot batch, and wait for the disk once. What the callers
must not notice of it:

- each key happens once: all keys are part of the commit, and if one of them is in already, by another process say, the
  commit is refused, that caller gets its first answer, and the others try again without it;
- rows that cannot be taken fail alone: what cannot be fitted together is fitted caller by caller, and a commit that a
  rule forbids is tried again caller by caller;
- an outcome that is not known is not known for all of them.

A table with a key, or one that refuses time windows which it holds, takes the callers one after another. It does not
wait for callers, and decides nothing about how many there are: see ``server.staging``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from tidelake.catalog.protocol import new_id
from tidelake.errors import CommitUnknownError, ConflictError, StorageError, TidelakeError
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import Coerced, Rules, coerced_stream
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Commit, Part, Receipt, RecordOffset, Snapshot, part_id
from tidelake.write.alter import WIDENING_TRIES
from tidelake.write.append import AppendReport, after_append, append
from tidelake.write.appender import Appender
from tidelake.write.publish import prepared

Outcome: TypeAlias = "AppendReport | TidelakeError"

_LINE_END = b"\n"


@dataclass(frozen=True, slots=True)
class Offer:
    """The rows of one caller: lines of JSON or Arrow, how many there are, and the key under which they happen once."""

    rows: bytes | memoryview | pa.RecordBatch | pa.Table
    count: int
    key: str | None = None
    offsets: tuple[RecordOffset, ...] = ()  # how far the streams are that the rows come from


def append_together(table: TableHandle, offers: Sequence[Offer]) -> list[Outcome]:
    """Append the rows of several callers in as few commits as can be; the outcome of each, in their order."""
    outcomes: dict[int, Outcome] = {}
    firsts: dict[str, int] = {}
    twins: dict[int, int] = {}  # callers that brought the key of one before them
    for at, offer in enumerate(offers):
        if offer.key is not None and firsts.setdefault(offer.key, at) != at:
            twins[at] = firsts[offer.key]
    waiting = [at for at in range(len(offers)) if at not in twins]
    if len(waiting) > 1 and _may_share(table):
        outcomes |= _Group(table, {at: offers[at] for at in waiting}).run()
    else:
        outcomes |= {at: _alone(table, offers[at]) for at in waiting}
    for at, first in twins.items():
        found = outcomes[first]
        outcomes[at] = replace(found, replayed=True) if isinstance(found, AppendReport) else found
    return [outcomes[at] for at in range(len(offers))]


def _may_share(table: TableHandle) -> bool:
    head = table.coordinator.head(table.scope)
    return not head.is_keyed and head.settings.get("coverage") != "exclusive"


def _alone(table: TableHandle, offer: Offer) -> Outcome:
    try:
        return append(table, offer.rows, key=offer.key, offsets=offer.offsets)
    except TidelakeError as error:
        return error.with_traceback(None)


class _Group:
    """The callers that still wait for an answer, and the answers so far."""

    def __init__(self, table: TableHandle, offers: dict[int, Offer]) -> None:
        self._table, self._waiting = table, offers
        self._outcomes: dict[int, Outcome] = {}

    def run(self) -> dict[int, Outcome]:
        table = self._table
        head = table.coordinator.head(table.scope)
        for _ in range(WIDENING_TRIES):
            if not self._waiting:
                return self._outcomes
            try:
                self._try(head)
            except ConflictError as error:
                if error.kind != "schema":
                    break
                head = table.catalog.head(table.scope)  # another writer gave a new field another type
            except (StorageError, CommitUnknownError) as error:
                return self._outcomes | dict.fromkeys(self._waiting, error.with_traceback(None))
            except TidelakeError:
                if not self._answer_misfits(head):
                    break  # whose fault it was shows when each is alone
        return self._outcomes | {at: _alone(table, offer) for at, offer in self._waiting.items()}

    def _try(self, head: Snapshot) -> None:
        """Offer one commit of all that wait, and answer those of whom it is known what became of them."""
        table = self._table
        writer = Appender(table, head)
        rules = Rules(time=TableSettings.of(head.settings).time, exact=writer)
        is_offered = False
        try:
            for coerced in self._coerced(head, rules):
                writer.take(coerced)
            actions = writer.finish()
            if not actions:  # no caller brought a row
                self._answer({at: AppendReport(0, head.sequence, 0) for at in self._waiting})
                return
            offsets = [offset for offer in self._waiting.values() for offset in offer.offsets]
            keyed = [(at, offer) for at, offer in self._waiting.items() if offer.key is not None]
            parts = tuple(Part(offer.key or "", offer.count) for _, offer in keyed)
            commit = Commit(
                new_id(), head.scope, head.sequence, tuple(prepared(table, head, [*actions, *offsets])), parts=parts,
                claims=writer.claims(),
            )  # fmt: skip
            is_offered = True
            receipt = table.coordinator.commit(commit)
        except BaseException:
            if is_offered:
                writer.give_up()
            else:
                writer.discard()
            raise
        if receipt.commit_id != commit.id:
            writer.give_up()
            self._answer_replays()
            return
        names = {at: part_id(commit.id, place) for place, (at, _) in enumerate(keyed)}
        self._answer({at: self._report(offer, receipt, names.get(at)) for at, offer in self._waiting.items()})
        after_append(table, head, has_extents=bool(writer.extents))

    def _answer_misfits(self, head: Snapshot) -> bool:
        """Answer the callers whose rows cannot be given the table's shape; whether there were any."""
        rules, found = Rules(time=TableSettings.of(head.settings).time), dict[int, Outcome]()
        for at, offer in self._waiting.items():
            try:
                for _ in coerced_stream(offer.rows, head.schema, rules):
                    pass
            except TidelakeError as error:
                found[at] = error.with_traceback(None)
        self._answer(found)
        return bool(found)

    def _coerced(self, head: Snapshot, rules: Rules) -> Iterator[Coerced]:
        schema = head.schema
        for rows in _united([offer.rows for offer in self._waiting.values()]):
            for coerced in coerced_stream(rows, schema, rules):
                schema = coerced.schema
                yield coerced

    def _answer_replays(self) -> None:
        """Answer the callers whose keys are in."""
        found: dict[int, Outcome] = {}
        for at, offer in self._waiting.items():
            receipt = None if offer.key is None else self._table.catalog.receipt(self._table.scope, key=offer.key)
            if receipt is not None:
                found[at] = replace(self._report(offer, receipt, receipt.commit_id), rows=receipt.rows, replayed=True)
        self._answer(found)
        if not found:
            raise ConflictError("a stream's batch is in", table=self._table.name, kind="replayed")

    @staticmethod
    def _report(offer: Offer, receipt: Receipt, commit: str | None) -> AppendReport:
        return AppendReport(offer.count, receipt.sequence, receipt.extents, commit=commit or receipt.commit_id)

    def _answer(self, found: dict[int, Outcome]) -> None:
        self._outcomes |= found
        for at in found:
            del self._waiting[at]


def _united(offered: Sequence[bytes | memoryview | pa.RecordBatch | pa.Table]) -> Iterator[bytes | pa.Table]:
    """Join rows of the same kind that follow one another, so that they are fitted to the table at once."""
    lines: list[bytes | memoryview] = []
    tables: list[pa.Table] = []
    for rows in offered:
        if isinstance(rows, pa.RecordBatch | pa.Table):
            if lines:
                yield _LINE_END.join(lines)
                lines = []
            table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
            if tables and not tables[-1].schema.equals(table.schema, check_metadata=True):
                yield pa.concat_tables(tables).combine_chunks()
                tables = []
            tables.append(table)
        else:
            if tables:
                yield pa.concat_tables(tables).combine_chunks()
                tables = []
            lines.append(rows)
    if lines:
        yield _LINE_END.join(lines)
    if tables:
        yield pa.concat_tables(tables).combine_chunks()
