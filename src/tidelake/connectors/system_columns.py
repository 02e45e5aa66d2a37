"""Make the four columns that a synced table has besides the source's own.

==================  ===================================================================================================
``_tide_pk``        the primary key as text; of several columns, joined by ``:``, with ``%`` and ``:`` percent-encoded
``_tide_op``        ``insert``, ``update``, ``delete`` or ``truncate``
``_tide_lsn``       where the change stands: texts that sort as the changes do, ``EPOCH-POSITION-NUMBER`` in hexadecimal
``_tide_event_at``  when it was committed, by the source's clock
==================  ===================================================================================================

It does not read sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.connectors.definition import EVENT_AT, LSN, OP, PK
from tidelake.connectors.protocol import INSERT, TIME, TRUNCATE, SourceTable, TableChanges
from tidelake.model.schema import JSON_FIELD

SYSTEM_FIELDS = (
    pa.field(PK, pa.string()), pa.field(OP, pa.string()), pa.field(LSN, pa.string()), pa.field(EVENT_AT, TIME),
)  # fmt: skip
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_LENGTH = 30  # of a text, 4 - 16 - 8

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Places:
    """Where each of some changes stands: its transaction's position, its number in that, and when that was."""

    positions: _Ints
    numbers: _Ints
    times_us: _Ints

    def take(self, rows: _Ints) -> Places:
        return Places(self.positions[rows], self.numbers[rows], self.times_us[rows])


def changes_of(
    table: SourceTable,
    columns: Sequence[tuple[pa.Field, pa.Array]],
    keys: pa.Array,
    ops: Any,
    places: Places,
    *,
    epoch: int,
) -> TableChanges:
    """Return changes of a table, one for each row of its columns."""
    system = [
        keys,
        pa.array(ops, pa.string()),
        lsns_of(epoch, places.positions, places.numbers),
        pa.array(places.times_us, TIME),
    ]
    fields = [*(field for field, _ in columns), *SYSTEM_FIELDS]
    arrays = [*(array for _, array in columns), *system]
    rows = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    return TableChanges(table, rows, np.ascontiguousarray(places.positions))


def before(changes: TableChanges, position: int) -> TableChanges:
    """Leave out changes from a position on."""
    kept = changes.positions < position
    return replace(changes, rows=changes.rows.filter(pa.array(kept)), positions=changes.positions[kept])


def truncation_of(table: SourceTable, place: Places, *, epoch: int) -> TableChanges:
    """Return the change that empties a table: a row without a key."""
    columns = []
    for name, kind in table.columns.items():
        is_json = kind.kind == "dynamic" and kind.logical is None
        field = pa.field(name, pa.string() if is_json else kind.shown, metadata=JSON_FIELD if is_json else None)
        columns.append((field, pa.nulls(1, field.type)))
    return changes_of(table, columns, pa.nulls(1, pa.string()), [TRUNCATE], place, epoch=epoch)


def copied_rows(batch: pa.RecordBatch, keys: pa.Array, position: int, at_us: int, *, epoch: int) -> pa.RecordBatch:
    """Return rows of a copy as changes that stand right before a position."""
    count = batch.num_rows
    system = [
        keys,
        pa.array([INSERT] * count, pa.string()),
        lsns_of(epoch, np.full(count, position, np.int64), np.zeros(count, np.int64)),
        pa.array(np.full(count, at_us), TIME),
    ]
    for field, array in zip(SYSTEM_FIELDS, system, strict=True):
        batch = batch.append_column(field, array)
    return batch


def keys_of(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the texts that name rows; null where the first key column is. Bytes are written in hexadecimal."""
    texts = [_texts(each) for each in columns]
    if len(texts) == 1:
        return texts[0]
    escaped = [pc.replace_substring(pc.replace_substring(each, "%", "%25"), ":", "%3A") for each in texts]
    return pc.binary_join_element_wise(*escaped, ":")


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_binary(column.type):
        return pa.array([None if each is None else each.hex() for each in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def lsns_of(epoch: int, positions: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Return where changes stand as texts that sort as they do."""
    count = len(positions)
    out = np.full((count, _LENGTH), ord("-"), np.uint8)
    out[:, :4] = _hexadecimal(np.full(count, epoch, np.uint64), 4)
    out[:, 5:21] = _hexadecimal(positions.astype(np.uint64), 16)
    out[:, 22:] = _hexadecimal(numbers.astype(np.uint64), 8)
    offsets = np.arange(count + 1, dtype=np.int32) * _LENGTH
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(out.tobytes())])


def lsn_of(epoch: int, position: int, number: int = 0) -> str:
    """Return where one change stands."""
    return f"{epoch:04X}-{position:016X}-{number:08X}"


def _hexadecimal(numbers: npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.uint8]:
    shifts = np.arange(4 * (width - 1), -1, -4, dtype=np.uint64)
    found: npt.NDArray[np.uint8] = _DIGITS[((numbers[:, None] >> shifts) & np.uint64(15)).astype(np.intp)]
    return found


def epoch_of(lsn: str) -> int:
    """Return the epoch that a change was read in."""
    return int(lsn.partition("-")[0], 16)
