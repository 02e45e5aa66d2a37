"""Build extents as another writer does, from the specification alone.

::

    v2:  4B 59 4D 41 02 | Arrow IPC file | block statistics, JSON | u32 LE length of the JSON | 4B 59 4D 41 02
    v1:  4B 59 4D 41 01 | Arrow IPC file

Only the Arrow file is pyarrow's. It shares nothing with the writer of this project, so that a reader that passes here
reads what others wrote.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

LONGEST_BOUND = 256  # bytes of UTF-8; one longer value leaves the column out

SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("ns")),
        pa.field("n", pa.int32()),
        pa.field("long", pa.int64()),
        pa.field("real", pa.float64()),
        pa.field("ok", pa.bool_()),
        pa.field("msg", pa.utf8()),
        pa.field("Ärger", pa.utf8()),
        pa.field("attributes", pa.binary()),
        pa.field("embedding", pa.list_(pa.field("item", pa.float32(), nullable=False), 2)),
    ]
)


def frame_v1(batches: Sequence[pa.RecordBatch], compression: str | None = None) -> bytes:
    """Frame batches as version 1."""
    return b"KYMA\x01" + arrow_file(batches, compression)


def frame_v2(batches: Sequence[pa.RecordBatch], compression: str | None = None) -> bytes:
    """Frame batches as version 2."""
    stats = stats_json(batches)
    return b"KYMA\x02" + arrow_file(batches, compression) + stats + struct.pack("<I", len(stats)) + b"KYMA\x02"


def arrow_file(batches: Sequence[pa.RecordBatch], compression: str | None = None) -> bytes:
    """Return batches as an Arrow IPC file."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, batches[0].schema, options=options) as file:
        for batch in batches:
            file.write_batch(batch)
    return bytes(sink.getvalue())


def stats_json(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return the block statistics of batches as they are stored."""
    entries = [{"row_count": batch.num_rows, "cols": column_bounds(batch)} for batch in batches]
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()


def column_bounds(batch: pa.RecordBatch) -> dict[str, dict[str, Any]]:
    """Return the bounds of the columns that have any, in the order of their names' bytes."""
    found = {}
    for name in sorted(batch.schema.names, key=str.encode):
        values = batch.column(name)
        tag = _tag_of(values.type)
        plain = values.cast(pa.int64()) if tag == "ts" else values
        present = [value for value in plain.to_pylist() if value is not None]
        if not tag or not present or (tag == "str" and max(len(text.encode()) for text in present) > LONGEST_BOUND):
            continue
        ordered = sorted(present, key=str.encode if tag == "str" else int)
        found[name] = {"k": tag, "min": ordered[0], "max": ordered[-1], "nulls": len(values) - len(present)}
    return found


def sample_batches() -> list[pa.RecordBatch]:
    """Return blocks that hold every type, nulls, times before 1970 and below the microsecond, and no rows at all."""
    second = 1_000_000_000
    start = 1_776_679_200 * second
    return [
        _batch(
            timestamp=[start, start + second + 999],
            n=[1, 2],
            long=[-(2**63), 2**63 - 1],
            real=[0.5, float("nan")],
            ok=[True, False],
            msg=["GET /ok", "z"],
            Ärger=["b", "a"],
            attributes=[b"\xa0", b"\xa1\x61a\x01"],
            embedding=[[1.0, 2.0], [0.5, -0.5]],
        ),
        _batch(
            timestamp=[-1, -1_500, None],
            n=[None, -7, 7],
            long=[None, None, None],
            real=[float("-inf"), -0.0, None],
            ok=[None, True, None],
            msg=["", None, "é日\U0010ffff"],
            Ärger=[None, None, None],
            attributes=[None, b"", b"\x00"],
            embedding=[None, [0.0, 0.0], None],
        ),
        _batch(
            timestamp=[-(2**63), 2**63 - 1],
            n=[-(2**31), 2**31 - 1],
            long=[5, 5],
            real=[1.0, 2.0],
            ok=[False, False],
            msg=["m" * 257, "a"],
            Ärger=["é" * 128, "c"],
            attributes=[b"x" * 300, b"y"],
            embedding=[[3.0, 4.0], [5.0, 6.0]],
        ),
        _batch(**{name: [] for name in SCHEMA.names}),
    ]


def _batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


def _tag_of(kind: pa.DataType) -> str | None:
    if kind in (pa.int32(), pa.int64()):
        return "i64"
    if kind == pa.utf8():
        return "str"
    return "ts" if pa.types.is_timestamp(kind) and kind.unit == "ns" else None
