"""Append rows to a table in one commit: all of them become visible at once, or none.

A small append is kept in the catalog as hot rows, visible to every reader as soon as it is acknowledged. A large one is
written as extents, each registered as pending before its first byte. Rows that the schema cannot hold widen it in the
same commit; if another writer widens it in another way meanwhile, the rows are fitted to that and it is tried again. It
does not decide how values fit (``ingest``), or who wins a race (``catalog.commit``).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelake.errors import AlreadyExistsError, ConflictError, InvalidInputError, OverlapError
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import Rules, coerced_stream, is_rereadable
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Receipt, RecordOffset, Snapshot
from tidelake.write.alter import WIDENING_TRIES
from tidelake.write.appender import Appender
from tidelake.write.flush import see_to_flush
from tidelake.write.promote import promote_settled
from tidelake.write.publish import publish
from tidelake.write.upsert import are_new


@dataclass(frozen=True, slots=True)
class AppendReport:
    """What an append did: how many rows, in which snapshot, as how many extents (none: the rows are hot)."""

    rows: int
    snapshot: int
    extents: int
    replayed: bool = False
    overlap: int = 0  # rows in time windows that were already held
    overflowed: int = 0  # values that fitted no column
    superseded: int = 0  # rows that a later one of the same append, with the same key, took the place of
    skipped: int = 0  # rows of a file that were passed over, and are in its quarantine file
    changes: tuple[str, ...] = ()  # what became of columns whose values changed their type
    commit: str = ""  # the id of its commit, for ``undo``; empty if there were no rows


def append(
    table: TableHandle,
    rows: Any,
    *,
    key: str | None = None,
    insert_only: bool = False,
    offsets: Sequence[RecordOffset] = (),
) -> AppendReport:
    """Append rows as ``Table.append`` says; a second append of the same key changes nothing.

    How far the streams are that the rows come from, if told, is recorded in the same commit.
    """
    table.refuse_when_pinned()
    if key is not None and (receipt := table.catalog.receipt(table.scope, key=key)):
        return _replay(receipt)
    head = table.coordinator.head(table.scope)  # perhaps not the newest: the commit is rebased
    for _ in range(WIDENING_TRIES if is_rereadable(rows) else 0):
        try:
            return _append(table, rows, key, head, insert_only, offsets)
        except ConflictError as error:  # another writer gave a new field another type: fit the rows to that one
            if error.kind != "schema":
                raise
            head = table.catalog.head(table.scope)
    # What is read once is tried once: while nobody has put rows here, nobody is likely to forbid what it needs.
    is_new = not is_rereadable(rows) and not head.totals.rows + head.totals.hot_rows
    return _append(table, rows, key, head, insert_only, offsets, is_last=not is_new)


def _append(
    table: TableHandle,
    rows: Any,
    key: str | None,
    head: Snapshot,
    insert_only: bool,
    offsets: Sequence[RecordOffset],
    *,
    is_last: bool = False,
) -> AppendReport:
    if insert_only and not head.is_keyed:
        raise InvalidInputError("insert_only needs a table with a key", table=table.name, kind="no_key")
    writer = Appender(table, head)
    keys: list[pa.RecordBatch] = []  # of rows that must be new
    exact: Container[str] = frozenset() if is_last else writer  # what others may forbid is not tried for ever
    rules = Rules(time=TableSettings.of(head.settings).time, exact=exact)
    is_offered = False
    try:
        for coerced in coerced_stream(rows, head.schema, rules):
            writer.take(coerced)
            if insert_only:
                keys.append(coerced.batch.select(list(writer.key)))
        actions = [*writer.finish(), *offsets]
        if not actions:
            return AppendReport(0, head.sequence, 0)
        is_offered = True
        check = are_new(table, keys) if insert_only else None
        receipt = publish(table, head, actions, key=key, claims=writer.claims(), check=check)
    except AlreadyExistsError:
        writer.discard()
        raise
    except OverlapError as error:
        writer.give_up()
        if key is not None and (twin := table.catalog.receipt(table.scope, key=key)):
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
        writer.rows - writer.superseded,
        receipt.sequence,
        writer.extents,
        overlap=writer.overlap,
        superseded=writer.superseded,
        overflowed=writer.overflowed,
        changes=writer.changes(),
        commit=receipt.commit_id,
    )
    after_append(table, head, has_extents=bool(writer.extents))
    return report


def after_append(table: TableHandle, head: Snapshot, *, has_extents: bool) -> None:
    """Have done what follows an append that is acknowledged: promotion, a flush, upkeep."""
    if has_extents:
        promote_settled(table, head)
    else:
        see_to_flush(table, head)
    if table.lake.after_write is not None:
        table.lake.after_write(table, head)


def _replay(receipt: Receipt) -> AppendReport:
    return AppendReport(receipt.rows, receipt.sequence, receipt.extents, replayed=True, commit=receipt.commit_id)
