"""Guard the rows of the SQL catalog by checksums, and say plainly when one is damaged.

Every row that an answer is made of, and that never changes once written, carries the XXH3 checksum of its kind, its key
and its values, and so does a stream's, which changes: see ``offsets``. A row of an older version has none and is taken
as it is. Other rows that change (a table's, a scope's, when an extent was removed) have none; they are held against
those that do: a head must be the snapshot that its scope names, and what is listed must be as much as the snapshot
counts.

It does not read the database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any

import orjson
import xxhash

from tidelake.errors import CorruptError, TidelakeError
from tidelake.model.codec import dumps
from tidelake.model.snapshot import Scope

_MASK = (1 << 62) - 1
_MARK = 1 << 62  # set in every checksum: one that lost its bytes is no checksum, and not a missing one

_DECODING = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)


def checksum_of(kind: str, *values: Any) -> int:
    """Return the checksum of a row's values; bytes go in by their own hash."""
    return xxhash.xxh3_64_intdigest(orjson.dumps((kind, *values), default=_hashed)) & _MASK | _MARK


def if_known(value: Any) -> tuple[Any, ...]:
    """Return a value that came later than its checksum: where there is none, the checksum is as it was."""
    return () if value is None else (value,)


def snapshot_checksum(scope: Scope, settings: Mapping[str, Any], row: Sequence[Any]) -> int:
    """Return the checksum of a snapshot's row, with the settings it has if they are the table's of its time."""
    return checksum_of("a snapshot", *_snapshot_key(scope, settings), *row)


def check_row(found: Any, kind: str, *values: Any) -> None:
    """Compare a row with the checksum it was written with, if it has one; CorruptError if they differ."""
    if found is None:
        return
    try:
        fits = found == checksum_of(kind, *values)
    except TypeError:  # a value that no row has
        fits = False
    if not fits:
        raise damaged(kind, "its checksum does not fit")


def check_snapshot(scope: Scope, settings: Mapping[str, Any], row: Sequence[Any]) -> None:
    """Compare a snapshot's row, whose last value is its checksum, with that; CorruptError if they differ."""
    check_row(row[-1], "a snapshot", *_snapshot_key(scope, settings), *row[:-1])


@contextmanager
def decoding(kind: str) -> Iterator[None]:
    """Turn what goes wrong while a row is read into CorruptError."""
    try:
        yield
    except TidelakeError as error:
        if isinstance(error, CorruptError):
            raise
        raise damaged(kind, error) from error
    except _DECODING as error:
        raise damaged(kind, f"{type(error).__name__}: {error}") from error


def check_numbers(kind: str, *values: Any) -> None:
    """Refuse a row whose numbers are none."""
    if any(value is not None and type(value) is not int for value in values):
        raise damaged(kind, "a number is something else")


def check_head(scope: Scope, row: Sequence[Any]) -> None:
    """Refuse a head that is not the snapshot its scope names, or has another schema than its table."""
    _, schema_version, settings_seq, scope_id, sequence, snapshot_id = row[:6]
    check_numbers("a table", schema_version, settings_seq, scope_id, sequence)
    check_scope_is_there(scope, scope_id)
    if scope_id is not None and (row[6], row[7]) != (sequence, snapshot_id):
        raise damaged("a scope", "its snapshot is not there", scope=scope, sequence=sequence)
    if scope_id is not None and not scope.user and row[11] != schema_version:
        raise damaged("a table", "its schema is not its snapshot's", scope=scope, version=schema_version)


def check_scope_is_there(scope: Scope, scope_id: int | None) -> None:
    """Refuse a table without a snapshot: it is made with one."""
    if scope_id is None and not scope.user:
        raise damaged("a table", "it has no snapshot", scope=scope)


def check_in_a_row(sequences: Sequence[Any], head: int | None, gaps: Collection[int]) -> None:
    """Refuse a history with other holes than after the snapshots in ``gaps``; what is retained ends at the head."""
    if head and (not sequences or sequences[0] != head):
        raise damaged("a snapshot", "the history has holes")
    for later, sequence in pairwise(sequences):
        if later != sequence + 1 and (later <= sequence or sequence not in gaps):
            raise damaged("a snapshot", "the history has holes")


def check_count(what: str, items: int, rows: int, found_items: int, found_rows: int) -> None:
    """Refuse a listing that is not as much as its snapshot counts."""
    if (items, rows) != (found_items, found_rows):
        raise damaged(
            what, "they are not what the snapshot counts", counted=(items, rows), found=(found_items, found_rows)
        )


def _hashed(value: Any) -> int:
    if not isinstance(value, bytes):
        raise TypeError
    return xxhash.xxh3_64_intdigest(value)


def _snapshot_key(scope: Scope, settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return scope.table_id, scope.user, 0 if scope.user else _digest(dumps(settings))


@lru_cache(maxsize=1024)
def _digest(settings: bytes) -> int:
    """Return a hash of a table's settings, whatever their order."""
    plain = orjson.loads(settings)
    return xxhash.xxh3_64_intdigest(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS))


def damaged(kind: str, reason: object, **facts: object) -> CorruptError:
    """Return the error for a row of the catalog that is not what was written."""
    return CorruptError(
        f"the catalog is damaged: {kind} cannot be read; restore a copy", reason=reason, kind="bad_catalog", **facts
    )
