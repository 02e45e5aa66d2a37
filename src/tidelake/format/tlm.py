"""Own the bytes of one extent: an Arrow IPC file in a frame, with the statistics of its blocks at the end.

::

    v2:  "KYMA" 02 | Arrow IPC file | block statistics, JSON | u32 length of the JSON | "KYMA" 02
    v1:  "KYMA" 01 | Arrow IPC file

The JSON is a list, one entry a block: ``row_count``, ``cols`` (bounds of times, integers and texts, as every reader of
v2 knows them) and beside them ``tide``: where each column's bytes lie, their checksum, and the richer statistics. The
last entry also has ``extent`` (id, schema, codec) and ends with ``sum``, the checksum of the JSON before it. A reader
of plain v2 passes all three over. ``docs/format.md`` is the specification.

Reading starts at the tail: one request for a small footer, two for a large one, then for each block only the columns
asked for. An extent without ``extent`` was written elsewhere: its schema is read from the head of the Arrow file, it
has no checksums, and every value is validated instead. It does not decide which key or id an extent has.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from tidelake.errors import CorruptExtent, InvalidInputError, SchemaError
from tidelake.format import ipc
from tidelake.format.segment import (
    BlockInfo,
    BlockWriter,
    Draft,
    ExtentMetadata,
    PieceInfo,
    Seal,
    WriteOptions,
    block_of,
    checksum_of,
    chosen_columns,
    surviving_blocks,
    verify,
)
from tidelake.objects import ObjectStore, Tail
from tidelake.predicate import Predicate
from tidelake.schema import Column, DataType, Schema
from tidelake.stats import ColumnStats, Stats, column_from_json, column_to_json

MAGIC_V1 = b"KYMA\x01"
MAGIC_V2 = b"KYMA\x02"
TAIL_BYTES = 64 << 10  # the first request: most footers, and most small extents whole
HEAD_BYTES = 64 << 10  # of an extent from elsewhere: its schema message

_FRAME_TAIL = 4 + len(MAGIC_V2)
_LEAST_V2 = len(MAGIC_V2) + _FRAME_TAIL
_SUM = re.compile(rb',"sum":"([0-9a-f]{16})"}]')
_SUM_BYTES = len(b',"sum":"0123456789abcdef"}]')
_TAGS = {"timestamp": "ts", "int": "i64", "long": "i64", "string": "str"}
_PHYSICAL = {pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.utf8(), pa.binary()}


class TlmFormat:
    """The format of extents that tables use unless told otherwise."""

    name = "tlm"
    suffix = ".tlm"

    def open_extent(self, store: ObjectStore, key: str) -> TlmReader:
        return TlmReader(store, key)

    def start_extent(
        self, store: ObjectStore, key: str, schema: Schema, *, extent_id: str, options: WriteOptions | None = None
    ) -> BlockWriter:
        return BlockWriter(store, key, schema, extent_id=extent_id, options=options, encode=_encode)


class TlmReader:
    """Read one extent of v1 or v2 by range."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store, self._key = store, key
        try:
            self._parts = _open(store, key)
        except (ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError) as error:
            raise CorruptExtent("not a readable extent", object=key, reason=_reason(error)) from error

    def metadata(self) -> ExtentMetadata:
        parts = self._parts
        return ExtentMetadata(
            format=TlmFormat.name,
            version=parts.version,
            extent_id=parts.extent_id,
            schema=parts.schema,
            row_count=sum(block.stats.rows for block in parts.blocks),
            byte_size=parts.byte_size,
            footer_bytes=parts.footer_bytes,
            checksummed=parts.extent_id is not None,
            blocks=tuple(parts.blocks),
        )

    def pruned_blocks(self, predicate: Predicate | None) -> list[int]:
        return surviving_blocks(self._parts.blocks, predicate)

    def read_block(self, block: int, projection: Sequence[str] | None = None) -> pa.RecordBatch:
        parts = self._parts
        info = block_of(parts.blocks, block, self._key)
        columns = chosen_columns(parts.schema, projection)
        pieces = [info.pieces[column.name] for column in columns]
        fetched = self._store.get_ranges(self._key, [(piece.offset, piece.length) for piece in pieces])
        arrays = []
        for column, piece, data in zip(columns, pieces, fetched, strict=True):
            verify(data, piece, key=self._key, block=block, column=column.name)
            try:
                arrays.append(parts.decode(block, column, data))
            except (ValueError, pa.ArrowException) as error:
                raise CorruptExtent(
                    "not a readable column", object=self._key, block=block, column=column.name, reason=_reason(error)
                ) from error
        schema = pa.schema([pa.field(c.name, c.type.arrow, nullable=c.nullable) for c in columns])
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * info.stats.rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class _Parts:
    """An opened extent: what its footer says, and how its columns are laid out."""

    version: int
    extent_id: str | None
    schema: Schema
    physical: pa.Schema
    byte_size: int
    footer_bytes: int
    blocks: Sequence[BlockInfo]
    layouts: Sequence[ipc.BatchLayout]

    def decode(self, block: int, column: Column, data: pa.Buffer) -> pa.Array:
        layout = self.layouts[block]
        at = self.schema.names.index(column.name)
        kind = self.physical.field(at).type
        array = ipc.decode_column(
            kind, layout.rows, layout.pieces[at], data, codec=layout.codec, trusted=self.extent_id is not None
        )
        return array if kind == column.type.arrow else _converted(array, column.type)


def _encode(draft: Draft, pool: Executor) -> Seal:
    """Encode blocks side by side; then lay them out as one Arrow file and close the frame."""
    codec = draft.options.compression
    encoded = list(pool.map(lambda block: _encode_block(block, codec), draft.blocks))

    def seal(stats: Sequence[Stats]) -> list[bytes | pa.Buffer]:
        schema = draft.schema.arrow
        head = ipc.HEAD + ipc.schema_message(schema)
        blocks, entries, at = [], [], len(head)
        for (batch, sums), known in zip(encoded, stats, strict=True):
            body_length = batch.message.size - batch.body_at
            blocks.append(ipc.Block(at, batch.body_at, body_length))
            body_at = len(MAGIC_V2) + at + batch.body_at
            entries.append(_entry(draft.schema, known, batch.layout, body_at, sums))
            at += batch.message.size
        footer = ipc.footer_bytes(schema, blocks)
        arrow_tail = ipc.END_MARK + footer + struct.pack("<i", len(footer)) + ipc.ARROW_MAGIC
        entries[-1]["extent"] = {"id": draft.extent_id, "schema": draft.schema.to_json(), "codec": codec}
        stats_json = _sealed_json(entries)
        frame_tail = struct.pack("<I", len(stats_json)) + MAGIC_V2
        return [MAGIC_V2, head, *(batch.message for batch, _ in encoded), arrow_tail, stats_json, frame_tail]

    return seal


def _encode_block(block: pa.RecordBatch, codec: str | None) -> tuple[ipc.EncodedBatch, list[str]]:
    batch = ipc.encode_batch(block, codec)
    pieces = (batch.message.slice(batch.body_at + piece.offset, piece.length) for piece in batch.layout.pieces)
    return batch, [checksum_of(piece) for piece in pieces]


def _entry(schema: Schema, known: Stats, layout: ipc.BatchLayout, body_at: int, sums: Sequence[str]) -> dict[str, Any]:
    """Give one block's entry of the JSON: what every reader knows in ``cols``, what only ours does in ``tide``."""
    plain: dict[str, Any] = {}
    tide: dict[str, Any] = {}
    for column, piece, checksum in zip(schema, layout.pieces, sums, strict=True):
        stats = known.columns[column.name]
        extra = column_to_json(stats)
        extra.pop("distinct"), extra.pop("tokens")
        if (tag := _TAGS.get(column.type.kind)) and stats.low is not None and stats.tight:
            plain[column.name] = {
                "k": tag,
                "min": extra.pop("min"),
                "max": extra.pop("max"),
                "nulls": extra.pop("nulls"),
            }
        buffers = [list(buffer) for buffer in piece.buffers]
        tide[column.name] = {
            "at": body_at + piece.offset,
            "len": piece.length,
            "sum": checksum,
            "bufs": buffers,
            **extra,
        }
    ordered = dict(sorted(plain.items(), key=lambda item: item[0].encode()))
    return {"row_count": layout.rows, "cols": ordered, "tide": tide}


def _sealed_json(entries: list[dict[str, Any]]) -> bytes:
    """Close the JSON with the checksum of everything before it."""
    body = orjson.dumps(entries)[:-2]
    return body + b',"sum":"' + checksum_of(body).encode() + b'"}]'


def _open(store: ObjectStore, key: str) -> _Parts:
    tail = store.get_tail(key, TAIL_BYTES)
    last = bytes(memoryview(tail.data)[-len(MAGIC_V2) :])
    if last == MAGIC_V2 and tail.size >= _LEAST_V2:
        return _open_v2(store, key, tail)
    head = bytes(store.get_range(key, 0, min(len(MAGIC_V1), tail.size)))
    if head == MAGIC_V1:
        return _open_foreign(store, key, tail, body_end=tail.size, footer_bytes=0, entries=None)
    if head == MAGIC_V2:
        raise ValueError("the end is missing: no closing magic")
    raise ValueError(f"wrong magic {head!r}")


def _open_v2(store: ObjectStore, key: str, tail: Tail) -> _Parts:
    length = struct.unpack_from("<I", tail.data, tail.data.size - _FRAME_TAIL)[0]
    start = tail.size - _FRAME_TAIL - length
    if start < len(MAGIC_V2):
        raise ValueError(f"statistics of {length} bytes in an object of {tail.size}")
    _check_head(tail)
    stats_json = bytes(_last(store, key, tail, start, length))
    entries = orjson.loads(stats_json)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("the statistics are not a list of objects")
    seal = _SUM.fullmatch(stats_json[-_SUM_BYTES:])
    if not seal and not any("tide" in entry or "extent" in entry or "sum" in entry for entry in entries):
        return _open_foreign(store, key, tail, body_end=start, footer_bytes=length, entries=entries)
    if not seal or checksum_of(stats_json[:-_SUM_BYTES]) != seal[1].decode():
        raise ValueError("checksum mismatch in the footer")
    return _open_ours(tail, entries, length)


def _open_ours(tail: Tail, entries: list[dict[str, Any]], footer_bytes: int) -> _Parts:
    extent = entries[-1]["extent"]
    schema = Schema.from_json(extent["schema"])
    blocks, layouts = [], []
    for entry in entries:
        pieces, places = [], {}
        for column in schema:
            tide = entry["tide"][column.name]
            places[column.name] = PieceInfo(tide["at"], tide["len"], tide["sum"])
            nulls = tide["nulls"] if "nulls" in tide else entry["cols"][column.name]["nulls"]
            pieces.append(ipc.Piece(0, tide["len"], nulls, tuple((at, size) for at, size in tide["bufs"])))
        layouts.append(ipc.BatchLayout(entry["row_count"], extent["codec"], tuple(pieces)))
        blocks.append(BlockInfo(Stats(entry["row_count"], _Columns(entry, schema)), places))
    return _Parts(2, extent["id"], schema, schema.arrow, tail.size, footer_bytes, blocks, layouts)


def _open_foreign(
    store: ObjectStore, key: str, tail: Tail, *, body_end: int, footer_bytes: int, entries: list[dict[str, Any]] | None
) -> _Parts:
    """Open an extent that another writer made: v1, or v2 without our statistics."""
    body_at = len(MAGIC_V1)
    head = store.get_range(key, body_at, min(HEAD_BYTES, body_end - body_at))
    physical = _read_schema(store, key, head, body_at, body_end)
    schema = Schema.from_arrow(physical)
    arrow_end = memoryview(_last(store, key, tail, max(body_at, body_end - 10), min(10, body_end - body_at)))
    length = ipc.footer_length(arrow_end) + 10
    if length > body_end - body_at:
        raise ValueError("the arrow footer is longer than the body")
    footer = ipc.footer_of(memoryview(_last(store, key, tail, body_end - length, length)))
    places = ipc.parse_footer(footer)
    if entries is not None and len(entries) != len(places):
        raise ValueError(f"statistics of {len(entries)} blocks for {len(places)} batches")
    blocks, layouts = [], []
    for number, place in enumerate(places):
        start = body_at + place.offset
        if place.offset < 0 or place.metadata_length <= ipc.PREFIX_BYTES or place.body_length < 0:
            raise ValueError(f"batch {number} has no place")
        if start + place.metadata_length + place.body_length > body_end:
            raise ValueError(f"batch {number} ends past the body")
        message = store.get_range(key, start, place.metadata_length)
        layout = ipc.parse_batch(memoryview(message)[ipc.PREFIX_BYTES :], physical)
        columns_at = start + place.metadata_length
        pieces = {}
        for name, piece in zip(schema.names, layout.pieces, strict=True):
            if piece.offset + piece.length > place.body_length:
                raise ValueError(f"batch {number} column {name!r} ends past the batch")
            pieces[name] = PieceInfo(columns_at + piece.offset, piece.length)
        entry = entries[number] if entries is not None else {"row_count": layout.rows, "cols": {}}
        if entry["row_count"] != layout.rows:
            raise ValueError(f"statistics of {entry['row_count']} rows for {layout.rows} in batch {number}")
        blocks.append(BlockInfo(Stats(layout.rows, dict(_Columns(entry, schema))), pieces))
        layouts.append(layout)
    version = 1 if entries is None else 2
    return _Parts(version, None, schema, physical, tail.size, footer_bytes, blocks, layouts)


class _Columns(Mapping[str, ColumnStats]):
    """The statistics of one block's columns, decoded when asked for: a footer holds many more than a query needs."""

    def __init__(self, entry: Mapping[str, Any], schema: Schema) -> None:
        self._plain, self._extra = entry["cols"], entry.get("tide", {})
        self._schema = schema
        self._decoded: dict[str, ColumnStats] = {}

    def __getitem__(self, name: str) -> ColumnStats:
        if name not in self._decoded:
            if name not in self._plain and name not in self._extra:
                raise KeyError(name)
            self._decoded[name] = self._decode(name)
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._schema.names if name in self._plain or name in self._extra)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _decode(self, name: str) -> ColumnStats:
        shape = dict(self._extra.get(name, {}))
        plain = self._plain.get(name)
        if plain is not None:
            low, high = _plain_bounds(plain, self._schema[name])
            shape |= {"min": low, "max": high, "nulls": plain["nulls"]}
        return column_from_json(shape)


def _plain_bounds(plain: Mapping[str, Any], column: Column) -> tuple[Any, Any]:
    """Read the bounds that every v2 reader knows; times are floored to what a table keeps, the microsecond."""
    low, high, tag = plain["min"], plain["max"], plain["k"]
    kind = str if tag == "str" else int
    if tag != _TAGS.get(column.type.kind) or {type(low), type(high)} != {kind} or type(plain["nulls"]) is not int:
        raise ValueError(f"statistics of column {column.name!r} are not a {column.type}'s")
    return (low // 1000 * 1000, high // 1000 * 1000) if tag == "ts" else (low, high)


def _read_schema(store: ObjectStore, key: str, head: pa.Buffer, body_at: int, body_end: int) -> pa.Schema:
    if bytes(memoryview(head)[: len(ipc.HEAD)]) != ipc.HEAD:
        raise ValueError("the body is not an arrow file")
    length = struct.unpack_from("<i", head, len(ipc.HEAD) + 4)[0] if head.size >= 16 else -1
    needed = len(ipc.HEAD) + ipc.PREFIX_BYTES + length
    if length < 0 or needed > body_end - body_at:
        raise ValueError("the schema runs past the body")
    if needed > head.size:
        head = store.get_range(key, body_at, needed)
    try:
        schema = pa.ipc.read_schema(head.slice(len(ipc.HEAD)))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"the schema is not readable: {error}") from error
    for field in schema:
        vector = pa.types.is_fixed_size_list(field.type) and pa.types.is_float32(field.type.value_type)
        if field.type not in _PHYSICAL and not pa.types.is_timestamp(field.type) and not vector:
            raise SchemaError("unsupported arrow type in an extent", object=key, column=field.name, type=field.type)
    return schema.remove_metadata()


def _last(store: ObjectStore, key: str, tail: Tail, start: int, length: int) -> pa.Buffer:
    """Give bytes near the end of the object, from the tail already read where they are in it."""
    held_from = tail.size - tail.data.size
    return tail.data.slice(start - held_from, length) if start >= held_from else store.get_range(key, start, length)


def _check_head(tail: Tail) -> None:
    """Verify the opening magic when the tail happens to be the whole object."""
    if tail.data.size == tail.size and bytes(tail.data[: len(MAGIC_V2)]) != MAGIC_V2:
        raise ValueError("the opening magic is not the closing one")


def _converted(array: pa.Array, kind: DataType) -> pa.Array:
    """Bring a foreign column to the table's type: times to microseconds UTC, rounded down."""
    if kind.kind == "timestamp":
        unit = array.type.unit
        numbers = array.view(pa.int64()).fill_null(0).to_numpy()
        factor = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(unit)
        if factor is None:
            micros = numbers // 1000
        elif factor > 1 and len(numbers) and max(-int(numbers.min()), int(numbers.max())) > (2**63 - 1) // factor:
            raise ValueError("a time is outside the range of microseconds")
        else:
            micros = numbers * factor
        mask = np.asarray(array.is_null()) if array.null_count else None
        return pa.array(micros, pa.int64(), mask=mask).view(kind.arrow)
    return array.cast(kind.arrow)


def _reason(error: Exception) -> str:
    if isinstance(error, InvalidInputError):
        return str(error)
    if isinstance(error, KeyError):
        return f"no {error.args[0]!r} in the footer"
    return str(error) or type(error).__name__
