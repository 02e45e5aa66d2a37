"""Commit copies and changes of a source's tables to the lake, each with how far the table is in the same commit.

A table of mode ``log`` has a row for every change. One of mode ``upsert`` has a key, and of changes of one batch with
the same key only the last is committed: as an upsert, or as a deletion. A change that is in already is left out by its
position, and a commit holds only if the table is still where it was thought to be (``RecordOffset.after``), so of two
that sync one source only one goes on.

A column that is new at the source is new here, and one whose type no longer fits becomes dynamic. If rows have got
values of a new column without a change, the table is copied once more. It does not talk to sources but for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.catalog.protocol import now_us
from tidelake.connectors.definition import EVENT_AT, LSN, OP, PK, SourceDefinition
from tidelake.connectors.latest import is_synced, latest_keys
from tidelake.connectors.protocol import (
    DELETE,
    SYSTEM_TYPES,
    TIME,
    TRUNCATE,
    Alteration,
    Effect,
    Source,
    SourceTable,
    TableChanges,
    TableCopy,
    TableShape,
)
from tidelake.connectors.system_columns import lsn_of
from tidelake.connectors.unchanged import filled
from tidelake.errors import AlreadyExistsError, InvalidInputError, NotFoundError, SchemaError, TidelakeError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.model.schema import DataType, Schema
from tidelake.model.snapshot import RecordOffset, UpdateTable
from tidelake.write.alter import add_column, widen
from tidelake.write.append import AppendReport
from tidelake.write.create import create_table
from tidelake.write.landing import land
from tidelake.write.promote import promotable, promote

SHAPE = "synced_shape"  # the setting that remembers how the source kept a table
COPIED = "synced_at"  # the setting that remembers where a log's table was last copied again
PROMOTE_ROWS = 10_000  # between looks for paths that may be columns
NOWHERE = -1  # the position of a table that was not copied yet


class Committer:
    """Commit what one source hands over."""

    def __init__(self, lake: LakeHandle, definition: SourceDefinition) -> None:
        self._lake, self._definition = lake, definition
        self._handles: dict[str, TableHandle] = {}
        self._positions: dict[str, int] = {}
        self._unseen: dict[str, int] = {}  # rows of each table since its dynamic paths were looked at

    def positions(self) -> dict[str, int]:
        """Return how far each table is that was copied; looked up, since others may have gone on."""
        self._positions = {}
        for name, target in self._definition.tables.items():
            try:
                handle = TableHandle.open(self._lake, target)
            except NotFoundError:
                continue
            stream = self._definition.stream_of(name)
            found = handle.catalog.positions(handle.scope, [stream]).get(stream)
            if found is not None:
                self._positions[name] = found
        return dict(self._positions)

    def make_table(self, table: SourceTable) -> TableHandle:
        """Return the table of the lake for one of the source; it is made if it is not there."""
        target = self._definition.tables[table.name]
        if table.name in self._handles:
            return self._handles[table.name]
        schema: Mapping[str, str | type | DataType] = {**table.columns, **SYSTEM_TYPES}
        key = table.key if self._definition.mode == "upsert" else ()
        try:
            create_table(self._lake.catalog, target, schema, time=EVENT_AT, key=key)
        except AlreadyExistsError:
            held = TableHandle.open(self._lake, target)
            if not is_synced(held.schema) or tuple(held.snapshot.settings.get("key") or ()) != tuple(key):
                raise InvalidInputError(
                    "the lake has another table of this name: give another namespace with into=, or drop it",
                    table=target, kind="table_taken",
                ) from None  # fmt: skip
        except SchemaError as error:
            raise InvalidInputError(f"the table cannot be made: {error}", table=table.name, kind="bad_table") from error
        handle = self._handles[table.name] = TableHandle.open(self._lake, target)
        return handle

    def _handle(self, table: SourceTable) -> TableHandle:
        """Return the table of the lake for one of the source, which was copied before."""
        if table.name not in self._handles and table.name in self._positions:
            self._handles[table.name] = TableHandle.open(self._lake, self._definition.tables[table.name])
        return self.make_table(table)

    def copy(self, copy: TableCopy, shape: TableShape) -> AppendReport:
        """Commit a copy of a whole table in one commit; rows that the lake has and the copy does not are deleted.

        The shape is that of the table before it was copied.
        """
        handle = self.make_table(copy.table)
        before = self._positions.get(copy.table.name, NOWHERE)
        held = self._held_keys(handle, copy.table)
        offsets: list[RecordOffset | UpdateTable] = [
            RecordOffset(self._definition.stream_of(copy.table.name), copy.position, after=before),
            UpdateTable(None, {SHAPE: shape.to_json()}),
        ]
        report = self._land_copy(handle, copy, held, offsets)
        self._positions[copy.table.name] = copy.position
        self._promote(handle, copy.table.name, PROMOTE_ROWS)
        return report

    def refresh(self, copy: TableCopy, shape: TableShape) -> AppendReport:
        """Commit the rows of a table once more, as newer versions of what is there; a log stays where it is."""
        if self._definition.mode == "upsert":
            return self.copy(copy, shape)
        return land(self.make_table(copy.table), copy.rows)

    def alter(self, altered: Alteration, position: int, source: Source) -> int:
        """Follow a statement that altered a table, up to a position; return how many rows were read for it.

        A table that may have other values than what was told of them is copied again, in one commit with the position.
        """
        name, at = altered.table, self._positions.get(altered.table, NOWHERE)
        if altered.position < at or at == NOWHERE:
            return 0
        handle = self._handle(SourceTable(name, {}, ()))
        offset = RecordOffset(self._definition.stream_of(name), position, after=at)
        count = 0
        copied_at = int(handle.snapshot.settings.get(COPIED, NOWHERE))
        is_in = altered.position < copied_at and altered.effect.extent != "rows"  # of a copy that was made since
        if not is_in and _is_read_again(handle.schema, altered.effect):
            tables = [each for each in source.discover() if each.name == name]
            for copy in source.snapshot(tables):
                if self._definition.mode == "upsert":
                    return self.copy(copy, source.shape(name)).rows
                held = self._held_keys(handle, copy.table) if altered.effect.extent == "rows" else None
                actions: list[RecordOffset | UpdateTable] = [offset, UpdateTable(None, {COPIED: copy.position})]
                is_there = copy.position == copied_at  # only what is gone is new
                count = self._land_copy(handle, copy, held, actions, is_there=is_there).rows
        if handle.catalog.positions(handle.scope, [offset.stream]).get(offset.stream) != position:
            land(handle, [], offsets=[offset])
        self._positions[name] = position
        return count

    def _held_keys(self, handle: TableHandle, table: SourceTable) -> pa.Table | None:
        """Return the keys of the rows that the lake has, if it has any."""
        totals = handle.snapshot.totals
        return latest_keys(handle, table.key) if totals.rows + totals.hot_rows else None

    def _land_copy(
        self,
        handle: TableHandle,
        copy: TableCopy,
        held: pa.Table | None,
        offsets: Sequence[RecordOffset | UpdateTable],
        *,
        is_there: bool = False,
    ) -> AppendReport:
        """Commit a copy, with deletions of what is held and not in it; only those if the copy itself is there."""
        self._adapt(handle, copy.table, {})
        if held is None or not held.num_rows:
            return land(handle, [] if is_there else copy.rows, offsets=offsets)
        batches = list(copy.rows)
        gone = _missing(held, batches)
        if self._definition.mode == "upsert":
            return land(handle, batches, deleted=gone.select(list(copy.table.key)), offsets=offsets)
        told = _deletions(gone, copy.table, self._definition.epoch, copy.position)
        return land(handle, [*([] if is_there else batches), *told], offsets=offsets)

    def change(self, pieces: Sequence[TableChanges], position: int, source: Source) -> int:
        """Commit the changes of one table up to a position, and return how many were new."""
        name = pieces[0].table.name
        handle, at = self._handle(pieces[-1].table), self._positions.get(name, NOWHERE)
        pieces = [fresh for each in pieces if (fresh := _since(each, at)).rows.num_rows]
        if not pieces:
            return 0
        for each in pieces:
            self._follow(handle, each.table, source)
        if self._positions.get(name, NOWHERE) != at:  # it was copied again meanwhile
            return self.change(pieces, max(position, self._positions[name]), source)
        if any(each.unchanged for each in pieces):
            pieces = filled(handle, pieces)
        offset = RecordOffset(self._definition.stream_of(name), position, after=at)
        count = int(sum(each.rows.num_rows for each in pieces))
        if self._definition.mode == "upsert":
            batches, deleted = self._reduced(handle, pieces)
            land(handle, batches, deleted=deleted, offsets=[offset])
        else:
            land(handle, [batch for each in pieces for batch in _batches(each.rows)], offsets=[offset])
        self._positions[name] = position
        self._promote(handle, name, count)
        return count

    def _promote(self, handle: TableHandle, name: str, rows: int) -> None:
        """Make columns of dynamic paths that have settled on a type, now and then: of ``at.city``, ``at__city``.

        That is hardly a name at a source, which may have ``city`` any day. What does not work out is tried again.
        """
        self._unseen[name] = self._unseen.get(name, 0) + rows
        if self._unseen[name] < PROMOTE_ROWS:
            return
        self._unseen[name] = 0
        with suppress(TidelakeError):
            for each in promotable(handle):
                with suppress(SchemaError):
                    promote(handle, each.path, each.type, name=each.path.replace(".", "__"))

    def _follow(self, handle: TableHandle, table: SourceTable, source: Source) -> None:
        """Have the lake's table follow what the source's was altered to, before its changes are committed.

        1. Copy it again if rows have got values without a change, 2. widen, 3. note the shape: killed in between, the
        shape is still another, and the next run begins with 1.
        """
        shape = source.shape(table.name)
        held = handle.snapshot.settings.get(SHAPE)
        if held is not None and held == shape.to_json() and not _misfits(handle.schema, table):
            self._adapt(handle, table, {})
            return
        is_told = not shape.columns  # such a source tells itself what was altered
        if not is_told and (_misfits(handle.schema, table) or (held is not None and shape.has_silent_changes(held))):
            for copy in source.snapshot(source.discover([table.name])):
                self.refresh(copy, shape)
        self._adapt(handle, table, {SHAPE: shape.to_json()})

    def _adapt(self, handle: TableHandle, table: SourceTable, settings: Mapping[str, Any]) -> None:
        """Widen a table of the lake to hold what a table of the source holds."""
        for name in _misfits(handle.schema, table):
            add_column(handle, name, "dynamic")
        schema = handle.schema
        wider = [
            (name, kind) for name, kind in table.columns.items()
            if name not in schema or _is_wider_number(schema[name].type, kind)
        ]  # fmt: skip
        if wider or settings:
            widen(handle, wider, settings)

    def _reduced(
        self, handle: TableHandle, pieces: Sequence[TableChanges]
    ) -> tuple[list[pa.RecordBatch], pa.Table | None]:
        """Return what is left of changes when only the last of each key counts: rows, and keys that are no more."""
        key = tuple(handle.snapshot.settings["key"])
        turns = [number for number, each in enumerate(pieces) if each.rows.column(OP)[0].as_py() == TRUNCATE]
        emptied = latest_keys(handle, key) if turns else None
        pieces = pieces[turns[-1] + 1 :] if turns else pieces
        texts = pa.chunked_array([chunk for each in pieces for chunk in each.rows.column(PK).chunks], pa.string())
        last = _last_of_each(texts)
        batches, gone, start = list[pa.RecordBatch](), list[pa.Table](), 0
        for each in pieces:
            end = start + each.rows.num_rows
            rows = last[np.searchsorted(last, start) : np.searchsorted(last, end)] - start
            kept, start = each.rows.take(pa.array(rows)), end
            is_gone = pc.equal(kept.column(OP), DELETE)
            batches += _batches(kept.filter(pc.invert(is_gone)))
            gone.append(kept.filter(is_gone).select(list(key)))
        if emptied is not None:
            gone.append(emptied.filter(pc.invert(pc.is_in(emptied.column(PK), value_set=texts))).select(list(key)))
        return batches, pa.concat_tables(gone, promote_options="permissive") if gone else None


def _last_of_each(texts: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return where each text stands for the last time, in order."""
    coded = texts.combine_chunks().dictionary_encode()
    last = np.empty(len(coded.dictionary), np.int64)
    last[coded.indices.to_numpy()] = np.arange(len(coded))  # of several, the last stays
    return np.sort(last)


def _is_read_again(schema: Schema, effect: Effect) -> bool:
    """Whether rows may have other values after a statement than the lake has of them."""
    if effect.extent != "columns" or any(name in schema for name in effect.new):
        return True
    return any(name in schema and schema[name].type.kind not in ("int", "long") for name in effect.widened)


def _since(changes: TableChanges, position: int) -> TableChanges:
    """Leave out changes that are in."""
    fresh = changes.positions >= position
    if fresh.all():
        return changes
    kept = pa.array(fresh)
    left_out = {name: mask[fresh] for name, mask in changes.unchanged.items()}
    return replace(changes, rows=changes.rows.filter(kept), positions=changes.positions[fresh], unchanged=left_out)


def _batches(rows: pa.Table) -> list[pa.RecordBatch]:
    return rows.combine_chunks().to_batches() if rows.num_rows else []


def _misfits(schema: Schema, table: SourceTable) -> list[str]:
    """Return the columns whose values at the source are of a type that the lake's column cannot take in."""
    return [
        name for name, kind in table.columns.items() if name in schema and not _takes(schema[name].type, kind, table)
    ]


def _takes(held: DataType, kind: DataType, table: SourceTable) -> bool:
    if held == kind or held == DataType("dynamic") or held.logical is not None:
        return True  # what does not fit a logical type is kept beside it, and the column stays
    numbers = ("int", "long", "real")
    if held.kind in numbers:
        return kind.logical is None and kind.kind in numbers
    return held.kind == "string" and not table.has_fields and (kind.logical is None and kind.kind in (*numbers, "bool"))


def _is_wider_number(held: DataType, kind: DataType) -> bool:
    if held.logical is not None or kind.logical is not None:
        return False
    return (held.kind, kind.kind) in (("int", "long"), ("int", "real"))


def _missing(held: pa.Table, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return the keys of a table that a copy does not have."""
    there = pa.concat_arrays([batch.column(PK) for batch in batches]) if batches else pa.array([], pa.string())
    return held.filter(pc.invert(pc.is_in(held.column(PK), value_set=there)))


def _deletions(gone: pa.Table, table: SourceTable, epoch: int, position: int) -> Iterator[pa.RecordBatch]:
    """Yield deletions of rows that a copy does not have."""
    if not gone.num_rows:
        return
    system: dict[str, Any] = {
        OP: pa.array([DELETE] * gone.num_rows),
        LSN: pa.array([lsn_of(epoch, position)] * gone.num_rows),
        EVENT_AT: pa.array([now_us()] * gone.num_rows, TIME),
    }
    for name, array in system.items():
        gone = gone.append_column(name, array)
    yield from _batches(gone)
