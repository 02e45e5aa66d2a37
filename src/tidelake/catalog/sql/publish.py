"""Take the steps of a commit inside a transaction of the SQL catalog.

The steps are in the order in which the catalog takes them; any may raise, and then the whole transaction is undone. It
does not begin or end the transaction, and does not know the rules of rebasing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import orjson

from tidelake.catalog.commit import passed_over
from tidelake.catalog.contributions import Share
from tidelake.catalog.sql import publish_statements as s
from tidelake.catalog.sql import sweep_statements as sweeping
from tidelake.catalog.sql.checksums import check_row, checksum_of, damaged, decoding, if_known, snapshot_checksum
from tidelake.catalog.sql.driver import Row, Transaction
from tidelake.catalog.sql.extent_listing import MAX_NS, MIN_NS, extent_to_row, ordinal_of, stats_to_rows
from tidelake.catalog.sql.offsets import offsets_of
from tidelake.errors import ConflictError
from tidelake.model.codec import dumps
from tidelake.model.schema import Schema
from tidelake.model.snapshot import (
    AddExtent,
    AppendHot,
    Commit,
    Counts,
    DropHot,
    HotBatch,
    Receipt,
    RecordOffset,
    RemoveExtent,
    Snapshot,
    UpdateTable,
    check_positions,
    coverage_keys_of,
    has_positions,
    keys_of,
    part_receipts,
)

_COUNTS = tuple(field.name for field in fields(Counts))

ActionT = TypeVar("ActionT", AddExtent, RemoveExtent, AppendHot, DropHot, UpdateTable, RecordOffset)


def swap(transaction: Transaction, onto: Snapshot, *, snapshot_id: str) -> int | None:
    """Make a snapshot the current one, if ``onto`` still is; give the scope's number, or None if the head moved."""
    values = {
        "table_id": onto.scope.table_id,
        "user_id": onto.scope.user,
        "expected": onto.id,
        "snapshot_id": snapshot_id,
        "sequence": onto.sequence + 1,
    }
    rows = transaction.rows(s.swap if onto.sequence else s.found_scope, values)
    return rows[0][0] if rows else None


def find_replayed(
    transaction: Transaction, scope_id: int, commits: Sequence[Commit], onto: Snapshot
) -> dict[int, Receipt | int]:
    """Return which commits happened before, by position: the receipt, or the position of its twin in this call."""
    rows = transaction.rows(s.receipts_by_id, listed(ids=[commit.id for commit in commits]))
    before = {("id", row[0]): receipt_from(row) for row in rows}
    if keys := [key for commit in commits for key in keys_of(commit)]:
        before |= {("key", key): receipt for key, receipt in receipts_of(transaction, scope_id, keys).items()}
    last: dict[str, int] = {}
    if streams := [action.stream for commit in commits for action in _of(commit, RecordOffset)]:
        last = offsets_of(transaction, scope_id, streams)
    found: dict[int, Receipt | int] = {}
    here: dict[tuple[str, str], int] = {}
    for at, commit in enumerate(commits):
        marks = [("id", commit.id), *(("key", key) for key in keys_of(commit))]
        offsets = {action.stream: action.batch for action in _of(commit, RecordOffset)}
        first = next((before[mark] for mark in marks if mark in before), None)
        twin = next((here[mark] for mark in marks if mark in here), None)
        if first is not None:
            found[at] = first
        elif twin is not None:
            found[at] = twin
        elif not has_positions(commit) and any(batch <= last.get(stream, -1) for stream, batch in offsets.items()):
            found[at] = Receipt(commit.id, onto.id, onto.sequence, onto.committed_us, 0, 0, replayed=True)
        else:
            check_positions(commit.actions, last)
            here |= dict.fromkeys(marks, at)
            last |= offsets
    return found


def receipts_of(transaction: Transaction, scope_id: int, keys: Sequence[str]) -> dict[str, Receipt]:
    """Return the receipts of those keys that are there.

    A damaged key would be one that is not there, and what it stands for would happen twice. So keys are looked for by
    their checksums too, in an index that has them once more.
    """
    found: dict[str, Receipt] = {}
    indexed: set[str] = set()
    checksums = [checksum_of("a key", scope_id, key) for key in keys]
    asked = {"scope_id": scope_id, **listed(keys=keys, checksums=checksums)}
    for *receipt, key, checksum, is_indexed in transaction.rows(s.receipts_by_key, asked):
        check_row(checksum, "a key", scope_id, key)
        if is_indexed:
            indexed.add(key)
        else:
            found[key] = receipt_from(tuple(receipt))
    if not found.keys() >= indexed.intersection(keys):
        raise damaged("a key", "it is in the index alone")
    return found


def take_away(transaction: Transaction, scope_id: int, commits: Sequence[Commit], sequence: int) -> Counts:
    """End the life of what commits remove and drop, all of it or an error; give how much that was."""
    extents = [(commit, action.extent_id) for commit in commits for action in _of(commit, RemoveExtent)]
    batches = [(commit, action.batch_id) for commit in commits for action in _of(commit, DropHot)]
    removed = Counts()
    for statement, taken in ((s.remove_extents, extents), (s.drop_hot, batches)):
        if not taken:
            continue
        ids = [item for _, item in taken]
        rows = transaction.rows(statement, {"scope_id": scope_id, "sequence": sequence, **listed(ids=ids)})
        live = {row[0] for row in rows}
        for commit, item in taken:
            if item not in live:
                raise ConflictError("an input is no longer live", commit=commit.id, input=item, kind="not_live")
            live.remove(item)  # so that a second one finds it gone
        sums = len(rows), sum(row[1] for row in rows), sum(row[2] for row in rows)
        removed += Counts(*sums) if statement is s.remove_extents else Counts(0, 0, 0, *sums)
    return removed


def take_off_pending(transaction: Transaction, scope_id: int, commits: Sequence[Commit], snapshot: Snapshot) -> None:
    """Take what a snapshot adds off the pending list; an extent that is not on it must not be published.

    Coverage goes with them; what a retained snapshot holds already may be named again. A united object that is older
    than another's, so that the snapshot does not name it, stays on the list as any other that lost a race.
    """
    added = [(commit.id, action.extent.key) for commit in commits for action in _of(commit, AddExtent)]
    late = passed_over(commits, snapshot)
    covered = {key: commit.id for commit in commits for key in coverage_keys_of(commit) if key not in late}
    if not added and not covered:
        return
    taken = {
        row[0] for row in transaction.rows(sweeping.take_pending, listed(keys=[*(key for _, key in added), *covered]))
    }
    if unknown := [key for key in covered if key not in taken]:
        values = {"scope_id": scope_id, **listed(keys=unknown)}
        held = {row[0] for row in transaction.rows(sweeping.held_coverage, values)}
        added += [(covered[key], key) for key in unknown if key not in held]
    for commit_id, key in added:
        if key not in taken:
            raise ConflictError(
                "an extent is not registered as pending, or was given up", commit=commit_id, key=key, kind="not_pending"
            )
        taken.remove(key)  # so that a second extent finds it gone: an object has one owner


def write_snapshot(transaction: Transaction, scope_id: int, snapshot: Snapshot, commits: Sequence[Commit] = ()) -> None:
    """Write a header, and how much each commit added."""
    coverage = snapshot.coverage
    row = {
        "sequence": snapshot.sequence,
        "id": snapshot.id,
        "parent_id": snapshot.parent_id,
        "committed_us": snapshot.committed_us,
        "operation": snapshot.operation,
        "schema_version": snapshot.schema.version,
        "counts": _counts_to_text(snapshot),
        "coverage_key": coverage.key if coverage else None,
        "coverage_as_of": coverage.as_of if coverage else None,
    }
    row["checksum"] = snapshot_checksum(snapshot.scope, snapshot.settings, tuple(row.values()))
    transaction.change(s.insert_snapshot, {"scope_id": scope_id, **row, **shares_row(scope_id, snapshot, commits)})


def shares_row(scope_id: int, snapshot: Snapshot, commits: Sequence[Commit]) -> dict[str, Any]:
    """Return the columns that tell how much each commit of a snapshot added; see ``shares_from``."""
    shares = [(commit.id, len(_of(commit, AddExtent)), len(_of(commit, AppendHot))) for commit in commits]
    text = orjson.dumps(shares).decode()
    return {"commits": text, "commits_checksum": checksum_of("commits", scope_id, snapshot.sequence, text)}


def shares_from(scope_id: int, sequence: int, row: Row) -> list[Share] | None:
    """Read how much each commit of a snapshot added; None if nobody wrote it down."""
    text, checksum = row
    if text is None:
        return None
    check_row(checksum, "commits", scope_id, sequence, text)
    with decoding("commits"):
        return [Share(*share) for share in orjson.loads(text)]


def write_added(transaction: Transaction, scope_id: int, commits: Sequence[Commit], sequence: int) -> None:
    """Write the extents and hot batches that commits add."""
    extents: list[dict[str, Any]] = []
    columns: list[dict[str, Any]] = []
    for action in (action for commit in commits for action in _of(commit, AddExtent)):
        place = {"scope_id": scope_id, "sequence": sequence, "position": len(extents)}
        extents.append(extent_to_row(action.extent, **place))
        columns.extend(stats_to_rows(action.extent, **place))
    transaction.change_many(s.insert_extent, extents)
    transaction.change_many(s.insert_column, columns)
    batches = [action.batch for commit in commits for action in _of(commit, AppendHot)]
    transaction.change_many(s.insert_hot, [_hot_row(batch, scope_id, sequence, at) for at, batch in enumerate(batches)])


def write_table(transaction: Transaction, commits: Sequence[Commit], onto: Snapshot, snapshot: Snapshot) -> None:
    """Write the schema versions and the settings that a snapshot of the shared scope brings."""
    table_id = snapshot.scope.table_id
    updates = [action.schema for commit in commits for action in _of(commit, UpdateTable)]
    widened = {schema.version: schema for schema in updates if schema and schema.version > onto.schema.version}
    if widened:
        write_schemas(transaction, table_id, list(widened.values()))
        transaction.change(s.set_schema_version, {"table_id": table_id, "schema_version": snapshot.schema.version})
    if snapshot.settings != onto.settings:
        write_settings(transaction, snapshot)
        transaction.change(s.set_settings_seq, {"table_id": table_id, "settings_seq": snapshot.sequence})


def write_schemas(transaction: Transaction, table_id: str, schemas: Sequence[Schema]) -> None:
    """Write versions of a table's schema."""
    rows = []
    for schema in schemas:
        body = orjson.dumps(schema.to_json()).decode()
        checksum = checksum_of("a schema", table_id, schema.version, body)
        rows.append({"table_id": table_id, "version": schema.version, "body": body, "checksum": checksum})
    transaction.change_many(s.insert_schema, rows)


def write_settings(transaction: Transaction, snapshot: Snapshot) -> None:
    """Write a table's settings as they are since a snapshot."""
    body = dumps(snapshot.settings).decode()
    key = snapshot.scope.table_id, snapshot.sequence
    row = {"table_id": key[0], "sequence": key[1], "body": body, "checksum": checksum_of("settings", *key, body)}
    transaction.change(s.insert_settings, row)


def write_receipts(
    transaction: Transaction, scope_id: int, commits: Sequence[Commit], receipts: Mapping[str, Receipt]
) -> None:
    """Write what makes commits happen once: their receipts and their keys, and those of their parts."""
    parts = {commit.id: part_receipts(commit, receipts[commit.id]) for commit in commits if commit.parts}
    rows = [
        {
            "commit_id": receipt.commit_id,
            "scope_id": scope_id,
            "snapshot_id": receipt.snapshot_id,
            "sequence": receipt.sequence,
            "committed_us": receipt.committed_us,
            "rows": receipt.rows,
            "extents": receipt.extents,
            "checksum": checksum_of("a receipt", *_receipt_values(receipt, scope_id)),
        }
        for receipt in (*receipts.values(), *(each for shared in parts.values() for each in shared.values()))
    ]
    transaction.change_many(s.insert_receipt, rows)
    for commit in commits:
        own, at_us = parts.get(commit.id, {}), receipts[commit.id].committed_us
        marked = [
            (key, {"scope_id": scope_id, "commit_id": own[key].commit_id if key in own else commit.id})
            for key in keys_of(commit)
        ]
        transaction.change_many(s.insert_key, [_key_row(key, {**mark, "committed_us": at_us}) for key, mark in marked])


def receipt_from(row: Row) -> Receipt:
    """Read a receipt's row, as the answer to a replay."""
    if row[0] is None:
        raise damaged("a receipt", "there is a key for it, and it is not there")
    check_row(row[7], "a receipt", *row[:7])
    return Receipt(row[0], row[1], row[2], row[3], row[4], row[5], replayed=True)


def listed(**lists: Sequence[Any]) -> dict[str, str]:
    """Return lists as parameters; see among."""
    return {name: orjson.dumps(values).decode() for name, values in lists.items()}


def _receipt_values(receipt: Receipt, scope_id: int) -> tuple[Any, ...]:
    return (
        receipt.commit_id,
        receipt.snapshot_id,
        receipt.sequence,
        receipt.committed_us,
        receipt.rows,
        receipt.extents,
        scope_id,
    )


def _key_row(key: str, marked: Mapping[str, Any]) -> dict[str, Any]:
    return {**marked, "key": key, "checksum": checksum_of("a key", marked["scope_id"], key)}


def _hot_row(batch: HotBatch, scope_id: int, sequence: int, position: int) -> dict[str, Any]:
    row = {
        "id": batch.id,
        "rows": batch.rows,
        "payload": batch.payload,
        "min_ts_ns": MIN_NS if batch.min_ts_ns is None else batch.min_ts_ns,
        "max_ts_ns": MAX_NS if batch.max_ts_ns is None else batch.max_ts_ns,
        "schema_version": batch.schema_version,
        "added_seq": sequence,
    }
    ordinal, first = ordinal_of(sequence, position), batch.first_seq
    checksum = checksum_of("a hot batch", scope_id, ordinal, *row.values(), *if_known(first))
    own = {"scope_id": scope_id, "ordinal": ordinal, "bytes": len(batch.payload), "checksum": checksum}
    return {**own, **row, "first_seq": first}


def _of(commit: Commit, kind: type[ActionT]) -> list[ActionT]:
    return [action for action in commit.actions if isinstance(action, kind)]


def _counts_to_text(snapshot: Snapshot) -> str:
    """Return a snapshot's counts as they are stored."""
    parts = (snapshot.totals, snapshot.added, snapshot.removed)
    counts = [[getattr(part, name) for name in _COUNTS] for part in parts]
    return orjson.dumps([*counts, [snapshot.next_seq]] if snapshot.next_seq else counts).decode()
