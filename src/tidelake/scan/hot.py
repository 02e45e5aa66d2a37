"""Encode hot rows for the catalog, and read many of them at once.

A hot batch is one Arrow IPC stream: its schema, then its rows. Batches of one table mostly share a schema, so their
rows are decoded together, as one stream, and only the columns that are asked for: a thousand small batches cost about
what one large one does. It does not commit, and knows no table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

import pyarrow as pa

from tidelake.catalog.protocol import HotHeader
from tidelake.errors import CorruptError
from tidelake.format.ipc import END_MARK, message_length
from tidelake.model.snapshot import HotBatch


def hot_payload(rows: pa.RecordBatch) -> bytes:
    """Encode rows as the Arrow IPC stream that a catalog keeps."""
    return b"".join((rows.schema.serialize(), rows.serialize(), END_MARK))


def acknowledged_us(batch: HotBatch | HotHeader) -> int:
    """Return the time at which a hot batch was made: its id begins with it."""
    return int(batch.id[:13], 16)


def read_hot(
    batches: Sequence[HotBatch], wanted: Callable[[Sequence[str]], Sequence[str]]
) -> list[tuple[list[str], pa.RecordBatch]]:
    """Read hot rows: for each schema among them, the columns that were written and the rows with those ``wanted``."""
    return [(names, rows) for names, rows, _ in hot_groups(batches, wanted)]


def hot_groups(
    batches: Sequence[HotBatch], wanted: Callable[[Sequence[str]], Sequence[str]]
) -> list[tuple[list[str], pa.RecordBatch, list[HotBatch]]]:
    """Read hot rows as ``read_hot`` does, and say which batches they come from, in their order."""
    alike: dict[bytes, list[tuple[HotBatch, pa.Buffer]]] = {}
    for batch in batches:
        message, rows = _parted(batch)
        alike.setdefault(message, []).append((batch, rows))
    found = []
    for message, several in alike.items():
        schema = _schema_of(message, several[0][0])
        names = set(wanted(schema.names))
        fields = [at for at, name in enumerate(schema.names) if name in names]
        found.append((schema.names, _decoded(message, several, fields), [batch for batch, _ in several]))
    return found


def hot_rows(batches: Sequence[HotBatch]) -> list[pa.RecordBatch]:
    """Decode whole batches, one for each schema among them."""
    return [rows for _, rows in read_hot(batches, lambda names: names)]


def _parted(batch: HotBatch) -> tuple[bytes, pa.Buffer]:
    """Part a payload into its schema's message and the rest, without the end mark."""
    payload = pa.py_buffer(batch.payload)
    try:
        length = message_length(payload)
    except (ValueError, struct.error) as error:
        raise _unreadable(batch, error) from error
    ends = len(END_MARK) if batch.payload.endswith(END_MARK) else 0
    return batch.payload[:length], payload.slice(length, max(payload.size - length - ends, 0))


def _decoded(message: bytes, several: Sequence[tuple[HotBatch, pa.Buffer]], fields: list[int]) -> pa.RecordBatch:
    try:
        return _stream(message, several, fields)
    except (pa.ArrowException, OSError, ValueError) as error:
        for batch, rows in several:  # one of them is not sound: say which
            try:
                _stream(message, [(batch, rows)], fields)
            except (pa.ArrowException, OSError, ValueError) as own:
                raise _unreadable(batch, own) from own
        raise _unreadable(several[0][0], error) from error


def _stream(message: bytes, several: Sequence[tuple[HotBatch, pa.Buffer]], fields: list[int]) -> pa.RecordBatch:
    """Decode rows of one schema as one stream."""
    whole = pa.py_buffer(b"".join((message, *(rows for _, rows in several), END_MARK)))
    if not fields:
        rows = sum(batch.rows for batch, _ in several)
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    options = pa.ipc.IpcReadOptions(included_fields=fields)
    with pa.ipc.open_stream(whole, options=options) as reader:
        batches = [batch for batch in reader if batch.num_rows]
    if sum(batch.num_rows for batch in batches) != sum(batch.rows for batch, _ in several):
        raise ValueError("not the rows that were committed")
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


@lru_cache(maxsize=256)
def _arrow_schema(message: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(message))


def _schema_of(message: bytes, batch: HotBatch) -> pa.Schema:
    try:
        return _arrow_schema(message)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(batch, error) from error


def _unreadable(batch: HotBatch, reason: Exception) -> CorruptError:
    return CorruptError("hot rows are not readable", batch=batch.id, reason=reason)
