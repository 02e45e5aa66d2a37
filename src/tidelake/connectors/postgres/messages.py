"""Turn messages of ``pgoutput`` into rows, whole columns at a time.

Messages are found by compiled loops; what follows works on all changes of a relation at once. A relation is described
before its first change, and again after it was altered, so one batch may hold a table in several shapes. An update that
changes the key is two changes: the old row's deletion, then the new row. It does not talk to the server: types that it
does not know it asks ``types`` for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.connectors.postgres import message_loops as loops
from tidelake.connectors.postgres.types import PgType, column_of, data_type, is_json
from tidelake.connectors.protocol import DELETE, INSERT, UPDATE, SourceTable, TableChanges
from tidelake.connectors.system_columns import Places, changes_of, keys_of, truncation_of
from tidelake.dynamic.shredding import gathered
from tidelake.errors import CorruptError
from tidelake.model.schema import JSON_FIELD

EPOCH_US = 946_684_800_000_000  # PostgreSQL's times begin with the year 2000
MIN_MESSAGE = 7  # bytes, with its frame

_Ints = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as messages describe it: its columns, and which of them name a row."""

    id: int
    name: str  # schema.table
    columns: tuple[str, ...]
    types: tuple[PgType, ...]
    key: tuple[str, ...]
    shape: bytes = b""  # the message itself: another is another shape

    def table(self) -> SourceTable:
        """Return it in the lake's types."""
        columns = zip(self.columns, self.types, strict=True)
        return SourceTable(self.name, {name: data_type(kind) for name, kind in columns}, self.key)


@dataclass(slots=True)
class Decoded:
    """What a batch of messages holds."""

    changes: list[TableChanges] = field(default_factory=list)
    position: int | None = None  # where the transaction after the last one may begin
    event_us: int | None = None


# What makes a relation of its message: its id, name, and columns with their types' ids and modifiers.
Describe = Callable[[int, str, Sequence[tuple[str, int, int]], bytes], Relation | None]


class Decoder:
    """Read the messages of one look at a slot, piece by piece; ``known`` is what relations are, and follows them.

    A relation that is described as None is passed over.
    """

    def __init__(self, known: dict[int, Relation | None], describe: Describe, *, epoch: int) -> None:
        self._known, self._describe, self._epoch = known, describe, epoch
        self._state = np.zeros(3, np.int64)
        self._is_begun = False

    def decode(self, data: bytes) -> Decoded:
        """Read the messages of a piece, which ends where one does."""
        raw = np.frombuffer(data, np.uint8)
        found = np.empty((max(len(raw) // MIN_MESSAGE, 1), loops.WIDTH), np.int64)
        start = 0 if self._is_begun else loops.HEADER
        self._is_begun = True
        count = int(loops.find(raw, start, EPOCH_US, self._state, found))
        if count < 0:
            raise CorruptError("a message of the source is not as it should be", number=-1 - count, kind="bad_message")
        return _decoded(raw, found[:count], self._known, self._describe, self._epoch)


def _decoded(raw: _Bytes, found: _Ints, known: dict[int, Relation | None], describe: Describe, epoch: int) -> Decoded:
    count = len(found)
    kinds = found[:, loops.KIND]
    out = Decoded()
    commits = np.flatnonzero(kinds == loops.COMMIT)
    if len(commits):
        out.position = int(found[commits[-1], loops.NEW_AT])
        out.event_us = int(found[commits[-1], loops.TIME_US])
    turns = np.flatnonzero((kinds == loops.RELATION) | (kinds == loops.TRUNCATE))
    pending: dict[int, list[_Ints]] = {}  # by relation: the changes in its shape so far
    start = 0
    for turn in [*turns.tolist(), count]:
        _note_changes(found, start, turn, pending)
        start = turn + 1
        if turn == count:
            break
        message = raw[found[turn, loops.AT] : found[turn, loops.AT] + found[turn, loops.SIZE]].tobytes()
        if found[turn, loops.KIND] == loops.RELATION:
            id = int(found[turn, loops.RELATION_ID])
            held = known.get(id)
            if id not in known or (held is not None and held.shape != message):
                _close(raw, found, pending, id, known, out, epoch)
                known[id] = _described(message, describe)
        else:
            for id in _truncated(message):
                _close(raw, found, pending, id, known, out, epoch)
                if (relation := known.get(id)) is not None:
                    out.changes.append(_truncation(relation, found[turn], epoch))
    for id in list(pending):
        _close(raw, found, pending, id, known, out, epoch)
    return out


def _note_changes(found: _Ints, start: int, end: int, pending: dict[int, list[_Ints]]) -> None:
    kinds = found[start:end, loops.KIND]
    rows = start + np.flatnonzero((kinds == loops.INSERT) | (kinds == loops.UPDATE) | (kinds == loops.DELETE))
    relations = found[rows, loops.RELATION_ID]
    for id in np.unique(relations).tolist():
        pending.setdefault(id, []).append(rows[relations == id])


def _close(
    raw: _Bytes,
    found: _Ints,
    pending: dict[int, list[_Ints]],
    id: int,
    known: Mapping[int, Relation | None],
    out: Decoded,
    epoch: int,
) -> None:
    """Make rows of the changes of a relation in the shape that it had so far."""
    rows = pending.pop(id, None)
    if rows is None:
        return
    if id not in known:
        raise CorruptError("a change of a table that was not described", relation=id, kind="bad_message")
    if (relation := known[id]) is not None:
        out.changes.append(_changes(raw, found[np.concatenate(rows)], relation, epoch))


def _changes(raw: _Bytes, found: _Ints, relation: Relation, epoch: int) -> TableChanges:
    width, key = len(relation.columns), [relation.columns.index(name) for name in relation.key]
    new = _Tuples.cut(raw, found[:, loops.NEW_AT], width, relation)
    old = _Tuples.cut(raw, found[:, loops.OLD_AT], width, relation) if (found[:, loops.OLD_AT] >= 0).any() else None
    is_deletion = found[:, loops.KIND] == loops.DELETE
    moved = np.zeros(len(found), np.bool_)
    if old is not None:
        moved = ~is_deletion & (found[:, loops.OLD_AT] >= 0) & _differ(new, old, key)
        new = new.with_unchanged_of(old, found[:, loops.OLD_KIND] == loops.OLD)
        new = new.where(is_deletion, old.only(key))
    rows = new
    order, ops = np.arange(len(found)), _ops(found[:, loops.KIND])
    numbers = found[:, loops.NUMBER] * 2
    if moved.any() and old is not None:  # the old key's deletion comes right before
        before = np.flatnonzero(moved)
        rows = rows.followed_by(old.only(key).take(before))
        order = np.argsort(np.concatenate([np.arange(len(found)) * 2 + 1, before * 2]), kind="stable")
        ops = np.concatenate([ops, np.full(len(before), DELETE, dtype=object)])[order]
        found = np.concatenate([found, found[before]])[order]
        numbers = np.concatenate([numbers, numbers[before] - 1])[order]
        rows = rows.take(order)
    columns, unchanged = rows.columns(relation)
    places = Places(found[:, loops.POSITION], numbers, found[:, loops.TIME_US])
    keys = keys_of([rows.texts(at) for at in key])
    return replace(changes_of(relation.table(), columns, keys, ops, places, epoch=epoch), unchanged=unchanged)


def _ops(kinds: _Ints) -> npt.NDArray[np.object_]:
    found = np.full(len(kinds), INSERT, dtype=object)
    found[kinds == loops.UPDATE] = UPDATE
    found[kinds == loops.DELETE] = DELETE
    return found


@dataclass(frozen=True, slots=True)
class _Tuples:
    """Where the values of some rows are, column by column."""

    raw: _Bytes
    kinds: _Bytes
    starts: _Ints
    lengths: _Ints

    @classmethod
    def cut(cls, raw: _Bytes, places: _Ints, width: int, relation: Relation) -> _Tuples:
        shape = (len(places), width)
        kinds, starts, lengths = np.empty(shape, np.uint8), np.empty(shape, np.int64), np.empty(shape, np.int64)
        if loops.cut(raw, np.ascontiguousarray(places), kinds, starts, lengths) < 0:
            raise CorruptError("a row has not the columns of its table", table=relation.name, kind="bad_message")
        return cls(raw, kinds, starts, lengths)

    def take(self, rows: _Ints) -> _Tuples:
        return _Tuples(self.raw, self.kinds[rows], self.starts[rows], self.lengths[rows])

    def followed_by(self, other: _Tuples) -> _Tuples:
        return _Tuples(
            self.raw,
            np.concatenate([self.kinds, other.kinds]),
            np.concatenate([self.starts, other.starts]),
            np.concatenate([self.lengths, other.lengths]),
        )

    def only(self, columns: Sequence[int]) -> _Tuples:
        """Leave out the values of all other columns."""
        kinds = np.full_like(self.kinds, loops.NULL)
        kinds[:, list(columns)] = self.kinds[:, list(columns)]
        return _Tuples(self.raw, kinds, self.starts, self.lengths)

    def where(self, rows: npt.NDArray[np.bool_], other: _Tuples) -> _Tuples:
        """Take some rows of others instead."""
        return self._mixed(np.broadcast_to(rows[:, None], self.kinds.shape), other)

    def with_unchanged_of(self, old: _Tuples, are_whole: npt.NDArray[np.bool_]) -> _Tuples:
        """Take values that were left out, because they are as they were, from old rows that are whole."""
        return self._mixed((self.kinds == loops.UNCHANGED) & are_whole[:, None], old)

    def _mixed(self, choose: npt.NDArray[np.bool_], other: _Tuples) -> _Tuples:
        return _Tuples(
            self.raw,
            np.where(choose, other.kinds, self.kinds),
            np.where(choose, other.starts, self.starts),
            np.where(choose, other.lengths, self.lengths),
        )

    def texts(self, column: int) -> pa.Array:
        """Return a column as PostgreSQL writes it."""
        has_value = self.kinds[:, column] == loops.TEXT
        lengths = np.where(has_value, self.lengths[:, column], 0)
        found = gathered(self.raw, np.ascontiguousarray(self.starts[:, column]), lengths, pa.string())
        return found if has_value.all() else pc.if_else(pa.array(has_value), found, pa.scalar(None, pa.string()))

    def columns(self, relation: Relation) -> tuple[list[tuple[pa.Field, pa.Array]], dict[str, npt.NDArray[np.bool_]]]:
        """Return the columns in their types, and where values are left out because they are as they were."""
        columns, unchanged = [], {}
        for at, (name, kind) in enumerate(zip(relation.columns, relation.types, strict=True)):
            array = column_of(self.texts(at), kind)
            columns.append((pa.field(name, array.type, metadata=JSON_FIELD if is_json(kind) else None), array))
            left_out = self.kinds[:, at] == loops.UNCHANGED
            if left_out.any():
                unchanged[name] = left_out
        return columns, unchanged


def _differ(new: _Tuples, old: _Tuples, key: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Return in which rows the key is another."""
    found = np.zeros(len(new.kinds), np.bool_)
    for at in key:
        same = pc.equal(new.texts(at), old.texts(at)).fill_null(True)
        found |= ~same.to_numpy(zero_copy_only=False)
    return found


def _truncation(relation: Relation, message: _Ints, epoch: int) -> TableChanges:
    one = message[None, :]
    place = Places(one[:, loops.POSITION], one[:, loops.NUMBER] * 2, one[:, loops.TIME_US])
    return truncation_of(relation.table(), place, epoch=epoch)


def _truncated(message: bytes) -> tuple[int, ...]:
    (count,) = struct.unpack_from("!i", message, 1)
    return struct.unpack_from(f"!{count}I", message, 6)


def _described(message: bytes, describe: Describe) -> Relation | None:
    (id,) = struct.unpack_from("!I", message, 1)
    try:
        schema, at = _text(message, 5)
        name, at = _text(message, at)
        (count,) = struct.unpack_from("!h", message, at + 1)
        at += 3
        columns = []
        for _ in range(count):
            column, at = _text(message, at + 1)
            columns.append((column, *struct.unpack_from("!Ii", message, at)))
            at += 8
    except (struct.error, ValueError) as error:
        raise CorruptError("a table's description is not as it should be", relation=id, kind="bad_message") from error
    return describe(id, f"{schema}.{name}", columns, message)


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1
