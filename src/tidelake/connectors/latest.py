"""Find what the source of a synced table has now: the latest change of each key, unless it is a deletion.

The latest is chosen first, by ``_tide_lsn``, and deletions are left out then, so that a row that was deleted does not
come back; so are rows from before a truncation. A table with a key, which takes changes as upserts, holds nothing else.
Which changes are the latest is found from two columns; the others are read for those that match. It does not sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.connectors.definition import LSN, OP, PK, SYSTEM_COLUMNS
from tidelake.connectors.protocol import DELETE, TRUNCATE
from tidelake.dynamic.forms import check_form, stream_in_form
from tidelake.errors import InvalidInputError, UnavailableError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.predicate import Predicate, columns_of
from tidelake.model.schema import Schema
from tidelake.model.settings import PROMOTED, columns_under
from tidelake.model.snapshot import HotBatch, Snapshot
from tidelake.pruning.plan import Question
from tidelake.scan.extents import scan as scan_stored
from tidelake.scan.extents import scan_shown
from tidelake.scan.footers import Footers
from tidelake.scan.hot import hot_payload
from tidelake.scan.scannable import RowsAtHand

MAX_BYTES = 512 << 20  # of the rows that one question holds
_BETWEEN = "\x1f"  # a key and where its change stands, as one text


def is_synced(schema: Schema) -> bool:
    """Whether a table has the columns of one that is synced."""
    return all(name in schema for name in SYSTEM_COLUMNS)


def check_synced(table: TableHandle) -> None:
    """Raise InvalidInputError for a table that is not synced."""
    if not is_synced(table.schema):
        raise InvalidInputError("the table is not synced from a source", table=table.name, kind="not_synced")


def latest_rows(
    table: TableHandle,
    columns: Sequence[str] | None = None,
    where: Predicate | str | None = None,
    *,
    dynamic: str = "json",
) -> pa.RecordBatchReader:
    """Stream the rows that the source has, as far as it was read."""
    check_form(dynamic)
    check_synced(table)
    pinned = table.pinned()
    if pinned.snapshot.is_keyed:
        return pinned.scan(columns, where, dynamic=dynamic)
    names = list(columns) if columns is not None else list(pinned.schema.names)
    chosen = _chosen(pinned)
    plan = pinned.plan([*names, *(name for name in (PK, LSN) if name not in names)], where)
    shown = scan_shown(plan, pinned.footers)
    kept = pa.schema([shown.schema.field(name) for name in names])
    found = pa.RecordBatchReader.from_batches(kept, (_only(batch, chosen).select(names) for batch in shown))
    return stream_in_form(found, dynamic)


def latest_keys(table: TableHandle, key: Sequence[str]) -> pa.Table:
    """Return the keys of the rows that the source has, with their texts."""
    names = list(dict.fromkeys([PK, *key]))
    if table.snapshot.is_keyed:
        return table.scan(names).read_all()
    return latest_rows(table, names).read_all()


@dataclass(frozen=True, slots=True)
class LatestRows(RowsAtHand):
    """The latest rows of a synced table, as a query scans them: read when it is planned, what it needs of them."""

    table: TableHandle  # pinned

    @classmethod
    def of(cls, table: Any) -> Any:
        """Return the latest rows of a table; of one with a key, the table itself."""
        if not isinstance(table, TableHandle):
            raise InvalidInputError("the latest rows are those of a synced table", table=table.name, kind="not_synced")
        check_synced(table)
        return table if table.snapshot.is_keyed else cls(table)

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def snapshot(self) -> Snapshot:
        return self.table.snapshot

    @property
    def footers(self) -> Footers:
        return self.table.footers

    def showing(self, columns: Sequence[str]) -> LatestRows:
        return replace(self, table=self.table.showing(columns))

    def batches_for(self, question: Question, where: Predicate | None) -> tuple[Sequence[HotBatch], str | None]:
        """Read what is asked for, as rows in memory."""
        places = dict(columns_under(PROMOTED, self.snapshot.settings))
        asked = [*question.columns, *(() if where is None else columns_of(where))]
        parents = [places[name][0] for name in asked if name in places]  # which older rows have them in
        names = [name for name in dict.fromkeys([*asked, *parents, PK, LSN]) if name in self.schema]
        chosen, batches, size = _chosen(self.table), list[pa.RecordBatch](), 0
        for batch in scan_stored(self.table.plan(names, where), self.footers):
            batches.append(kept := _only(batch, chosen))
            size += kept.nbytes
            if size > MAX_BYTES:
                raise UnavailableError(
                    "the latest rows are too many for one question: ask for fewer columns or rows, stream them with "
                    "table.latest(), or sync the table with mode='upsert'",
                    table=self.name, bytes=MAX_BYTES, kind="read_budget",
                )  # fmt: skip
        whole = pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []
        hot = [HotBatch(f"latest{at}", each.num_rows, hot_payload(each), None, None, self.schema.version)
               for at, each in enumerate(whole)]  # fmt: skip
        return hot, None


def _chosen(pinned: TableHandle) -> pa.Array:
    """Return keys with where their latest changes stand, of those that were not deleted since."""
    found = scan_stored(pinned.plan([PK, LSN, OP]), pinned.footers).read_all().combine_chunks()
    keys, lsns, ops = (_whole(found, name) for name in (PK, LSN, OP))
    emptied = pc.max(lsns.filter(pc.equal(ops, TRUNCATE))).as_py()
    last = _last_of_each(keys, lsns)
    is_kept = pc.and_(pc.is_valid(keys.take(last)), pc.not_equal(ops.take(last), DELETE))
    if emptied is not None:
        is_kept = pc.and_(is_kept, pc.greater(lsns.take(last), emptied))
    kept = last.filter(is_kept)
    return _joined(keys.take(kept), lsns.take(kept))


def _whole(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _last_of_each(keys: pa.Array, lsns: pa.Array) -> pa.Array:
    """Return the place of the last change of each key."""
    if not len(keys):
        return pa.array([], pa.int64())
    codes: npt.NDArray[np.int64] = keys.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    ranks = np.asarray(pc.rank(lsns, tiebreaker="first"), dtype=np.int64)
    order = np.lexsort((ranks, codes))
    ends = np.flatnonzero(np.append(np.diff(codes[order]), 1))
    return pa.array(order[ends])


def _only(batch: pa.RecordBatch, chosen: pa.Array) -> pa.RecordBatch:
    """Leave the changes that are the latest."""
    mine = _joined(batch.column(PK), batch.column(LSN))
    return batch.filter(pc.is_in(mine, value_set=chosen, skip_nulls=True))


def _joined(keys: pa.Array, lsns: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(keys, lsns, _BETWEEN)
