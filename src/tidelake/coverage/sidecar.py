"""Write coverage as bytes, and read it back, checked.

A coverage object holds one bitmap for each entity. Two shapes::

    TIDECOV1 | XXH3 (128 bits) of the rest | Arrow IPC stream, zstd: entity, first, last, buckets, bitmap
    a 32-bit roaring bitmap, portable                     in a log table of one entity: the original's own

``entity`` is the JSON array of the entity's values and ``bitmap`` a 64-bit roaring bitmap, portable, of the buckets'
numbers plus 2^63; ``first``, ``last`` and ``buckets`` say its ends and size. The stream's metadata names the index.
The original's shape has no room for a checksum, so ours are in the object's name: 16 hex digits by chance, and the
XXH3 (64 bits) of those and the bytes. It does not read or write objects.
"""

from __future__ import annotations

import re

import orjson
import pyarrow as pa
import xxhash

from tidelake.coverage.entities import Coverage, Index, parse_bitmap
from tidelake.errors import CorruptError

MAGIC = b"TIDECOV1"
COMPRESSED_FROM = 512  # bytes, below which zstd's own frames cost more than they save

_HEAD = len(MAGIC) + 16
_SEED_WRAPPING = (1).to_bytes(8, "little") + (1 << 31).to_bytes(4, "little")  # one upper half: that of 2^63
_SCHEMA = pa.schema(
    [
        pa.field("entity", pa.string(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("buckets", pa.int64(), nullable=False),
        pa.field("bitmap", pa.binary(), nullable=False),
    ]
)
_CHECKED_ID = re.compile(r"(?:^|-)([0-9a-f]{16})([0-9a-f]{16})$")


def encode(coverage: Coverage, index: Index) -> bytes:
    """Return the bytes of coverage."""
    packed = coverage.packed()
    maps = [coverage.bitmap(entity) for entity in packed]
    columns = [
        pa.array(list(packed), pa.string()),
        pa.array([bitmap.min() - 2**63 for bitmap in maps], pa.int64()),
        pa.array([bitmap.max() - 2**63 for bitmap in maps], pa.int64()),
        pa.array([len(bitmap) for bitmap in maps], pa.int64()),
        pa.array(list(packed.values()), pa.binary()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA.with_metadata({"index": _index_json(index)}))
    sink = pa.BufferOutputStream()
    is_large = batch.nbytes >= COMPRESSED_FROM
    options = pa.ipc.IpcWriteOptions(compression="zstd" if is_large else None)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    body = bytes(sink.getvalue())
    return MAGIC + xxhash.xxh3_128_digest(body) + body


def decode(data: bytes, index: Index) -> Coverage:
    """Read what ``encode`` gave; CorruptError if it is anything else, or of another index."""
    body = data[_HEAD:]
    if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : _HEAD] != xxhash.xxh3_128_digest(body):
        raise CorruptError("not the coverage that was written: the checksum does not fit", kind="bad_coverage")
    with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
        table = stream.read_all()
    told = (table.schema.metadata or {}).get(b"index")
    if told != _index_json(index):
        raise CorruptError("coverage of another index", found=told, expected=_index_json(index), kind="bad_coverage")
    return Coverage(dict(zip(table["entity"].to_pylist(), table["bitmap"].to_pylist(), strict=True)))


def encode_seed(coverage: Coverage) -> bytes | None:
    """Return the original's bytes; None if it has none, for several entities or buckets before 1970 or past 32 bits."""
    if len(coverage) > 1:
        return None
    packed = next(iter(coverage.packed().values()), b"")
    return packed[len(_SEED_WRAPPING) :] if packed.startswith(_SEED_WRAPPING) else None


def decode_any(data: bytes, index: Index, entity: str) -> Coverage:
    """Read coverage of either shape; in the original's, it is that of ``entity``."""
    if data.startswith(MAGIC):
        return decode(data, index)
    packed = _SEED_WRAPPING + data
    bitmap = parse_bitmap(packed)
    return Coverage({entity: bitmap}) if bitmap else Coverage()


def is_own(data: bytes) -> bool:
    """Return whether bytes are of the shape that has its checksum inside."""
    return data.startswith(MAGIC)


def checked_id(data: bytes, salt: int) -> str:
    """Make the id of an object whose bytes it vouches for, from 64 random bits."""
    chance = f"{salt & (1 << 64) - 1:016x}"
    return chance + xxhash.xxh3_64_hexdigest(chance.encode() + data)


def is_vouched(name: str, data: bytes) -> bool:
    """Return whether an object's name, without its suffix, vouches for its bytes."""
    found = _CHECKED_ID.search(name)
    return found is not None and found[2] == xxhash.xxh3_64_hexdigest(found[1].encode() + data)


def _index_json(index: Index) -> bytes:
    return orjson.dumps(
        {"column": index.column, "width": index.bucket.width, "time": index.bucket.is_time, "entity": index.entity}
    )
