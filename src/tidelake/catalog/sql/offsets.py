"""Keep how far each stream is, and notice when that is damaged.

The row of a stream changes with each batch, and its checksum with it. An older process raises the batch and leaves the
checksum as it was: such a row is sound if the batch is the newest of which there is a key, because both are written in
one transaction. Before keys are forgotten, those rows get their checksums. It does not decide what a replay is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from tidelake.catalog.sql.checksums import check_row, checksum_of, decoding
from tidelake.catalog.sql.driver import Row, Transaction
from tidelake.catalog.sql.layout import insert_into
from tidelake.errors import CorruptError
from tidelake.model.snapshot import RecordOffset

_all = "SELECT o.scope_id, o.stream, o.batch, o.batch_checksum FROM offsets AS o"
_of_scope = f"{_all} WHERE o.scope_id = :scope_id"
_of_streams = f"{_of_scope} AND o.stream AMONG :streams AS TEXT"
_raise = """
    UPDATE offsets SET batch = :batch, batch_checksum = :batch_checksum
    WHERE scope_id = :scope_id AND stream = :stream"""
_insert = insert_into("offsets")
_keys = """
    SELECT k.key, k.checksum FROM commit_keys AS k
    WHERE k.scope_id = :scope_id AND substr(k.key, 1, :size) = :prefix"""


def offsets_of(transaction: Transaction, scope_id: int, streams: Sequence[str] | None = None) -> dict[str, int]:
    """Return the last batch of some streams of a scope, or of all; CorruptError if one is damaged.

    A stream that is not found may be there under a damaged name, so that all are looked at then.
    """
    values: dict[str, Any] = {"scope_id": scope_id}
    rows: list[Row] = []
    if streams is not None:
        rows = transaction.rows(_of_streams, {**values, "streams": orjson.dumps(streams).decode()})
    if streams is None or len(rows) < len(set(streams)):
        rows = transaction.rows(_of_scope, values)
    for row in rows:
        if not _fits(row):
            _check_by_key(transaction, row)
    return {stream: batch for _, stream, batch, _ in rows}


def write_offsets(transaction: Transaction, scope_id: int, offsets: Iterable[RecordOffset]) -> None:
    """Write how far streams are."""
    for each in offsets:
        row = _sealed(scope_id, each.stream, each.batch)
        if not transaction.change(_raise, row):
            transaction.change(_insert, row)


def seal_offsets(transaction: Transaction) -> None:
    """Give those rows their checksums that an older process changed, while the keys are there that vouch for them."""
    for row in transaction.rows(_all):
        if not _fits(row):
            try:
                _check_by_key(transaction, row)
            except CorruptError:
                continue  # whoever needs the stream is told
            transaction.change(_raise, _sealed(*row[:3]))


def _fits(row: Row) -> bool:
    *values, checksum = row
    try:
        check_row(checksum, "an offset", *values)
    except CorruptError:
        return False
    return True


def _check_by_key(transaction: Transaction, row: Row) -> None:
    """Refuse a row whose batch is not the newest of which there is a key."""
    scope_id, stream, batch, checksum = row
    prefix = f"{stream}\x1f"  # see model.snapshot.keys_of
    found = transaction.rows(_keys, {"scope_id": scope_id, "prefix": prefix, "size": len(prefix)})
    with decoding("a key"):
        for key, sealed in found:
            check_row(sealed, "a key", scope_id, key)
        batches = [int(key[len(prefix) :]) for key, _ in found]
    if batch != max(batches, default=None):
        check_row(checksum, "an offset", scope_id, stream, batch)


def _sealed(scope_id: int, stream: str, batch: int) -> dict[str, Any]:
    checksum = checksum_of("an offset", scope_id, stream, batch)
    return {"scope_id": scope_id, "stream": stream, "batch": batch, "batch_checksum": checksum}
