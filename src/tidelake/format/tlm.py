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

import pickle
import struct
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelake.errors import SchemaError
from tidelake.format import ipc
from tidelake.format.block_format import BlockFormat, opening
from tidelake.format.frame import (
    FRAME_TAIL,
    UNREADABLE,
    EntryPlaces,
    check_seal,
    checked_entry,
    footer_bytes_of,
    is_sealed,
    parsed_footer,
    sealed_json,
    unreadable,
)
from tidelake.format.segment import (
    TAIL_BYTES,
    ArrowPlace,
    BlockInfo,
    EntryColumns,
    ExtentMetadata,
    PieceInfo,
    block_entry,
    block_of,
    checksum_of,
    chosen_columns,
    converted,
    last_bytes,
    read_columns,
    slim_blocks,
    surviving_blocks,
)
from tidelake.model.predicate import Predicate
from tidelake.model.schema import Column, Schema
from tidelake.objects import ObjectStore, Tail
from tidelake.pruning.statistics import Stats

if TYPE_CHECKING:
    from tidelake.format.writing import Draft, Seal

MAGIC_V1 = b"KYMA\x01"
NAME = "tlm"
MAGIC_V2 = b"KYMA\x02"
HEAD_BYTES = 64 << 10  # of an extent from elsewhere: its schema message
# Levels of zstd. Numbers and short texts are a tenth smaller at 3 than at 1 and read a quarter faster, for an eighth
# more time to write; log messages are as much smaller but slower to read, dynamic values neither, and both take 1.7
# times as long to write.
LEVEL, LONG_LEVEL = 3, 1
LONG_BYTES = 48  # the mean length of such texts, offsets included
WIDTH_ROWS = (
    1_024  # of a block whose texts' common length is told: their offsets take longer to read than their letters
)

_MIN_V2 = len(MAGIC_V2) + FRAME_TAIL
_PHYSICAL = {pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.utf8(), pa.binary()}


class TlmReader:
    """Read one extent of v1 or v2 by range."""

    def __init__(self, store: ObjectStore, key: str, parts: _Parts | None = None) -> None:
        self._store, self._key = store, key
        with opening(key):
            self._parts = parts or _open(store, key)
        self._places = {name: at for at, name in enumerate(self._parts.schema.names)}
        self._metadata = self._described()

    def metadata(self) -> ExtentMetadata:
        return self._metadata

    def _described(self) -> ExtentMetadata:
        parts = self._parts
        return ExtentMetadata(
            format=NAME,
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
        info = block_of(self._parts.blocks, block, self._key)
        columns = chosen_columns(self._parts.schema, projection)

        def decode(column: Column, piece: PieceInfo, data: pa.Buffer) -> pa.Array:
            return self._parts.decode(block, self._places[column.name], column, data)

        return read_columns(self._store, self._key, columns, block=block, info=info, decode=decode)

    def ticket(self, blocks: Collection[int], columns: Collection[str]) -> bytes:
        return pickle.dumps(self._parts.slim(blocks, columns), pickle.HIGHEST_PROTOCOL)

    def arrow_places(self, block: int, columns: Sequence[str]) -> list[ArrowPlace] | None:
        parts = self._parts
        if parts.extent_id is None:
            return None  # written elsewhere: its bytes have no checksums, and every value is validated
        layout, info = parts.layouts[block], parts.blocks[block]
        found = []
        for name in columns:
            piece = layout.pieces[self._places[name]]
            found.append(ArrowPlace(info.pieces[name], layout.codec, piece.nulls, piece.buffers, piece.width))
        return found


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

    def decode(self, block: int, at: int, column: Column, data: pa.Buffer) -> pa.Array:
        layout = self.layouts[block]
        kind = self.physical.field(at).type
        array = ipc.decode_column(
            kind, layout.rows, layout.pieces[at], data, codec=layout.codec, trusted=self.extent_id is not None
        )
        return array if kind == column.type.arrow else converted(array, column)

    def slim(self, blocks: Collection[int], columns: Collection[str]) -> _Parts:
        """Return what is needed to read these columns of these blocks."""
        places = [at for at, name in enumerate(self.schema.names) if name in columns]
        kept = tuple(self.schema.columns[at] for at in places)
        if not kept:  # a schema has a column, even if none is read
            places, kept = [0], self.schema.columns[:1]
        names = [column.name for column in kept]
        chosen, nothing = set(blocks), ipc.BatchLayout(0, None, ())
        layouts = [
            ipc.BatchLayout(layout.rows, layout.codec, tuple(layout.pieces[at] for at in places))
            if number in chosen
            else nothing
            for number, layout in enumerate(self.layouts)
        ]
        return _Parts(
            self.version,
            self.extent_id,
            Schema(kept, self.schema.version),
            pa.schema([self.physical.field(at) for at in places]),
            self.byte_size,
            self.footer_bytes,
            slim_blocks(self.blocks, chosen, names),
            layouts,
        )


def _encode(draft: Draft, pool: Executor) -> Seal:
    """Encode blocks side by side; then lay them out as one Arrow file and close the frame."""
    codec = draft.options.compression
    encoded = list(pool.map(lambda block: _encode_block(block, codec), draft.blocks))

    def seal(stats: Sequence[Stats]) -> list[bytes | pa.Buffer]:
        schema = draft.schema.arrow
        head = ipc.HEAD + ipc.schema_message(schema)
        blocks, entries, at = [], [], len(head)
        for (batch, places), known in zip(encoded, stats, strict=True):
            body_length = batch.message.size - batch.body_at
            blocks.append(ipc.Block(at, batch.body_at, body_length))
            body_at = len(MAGIC_V2) + at + batch.body_at
            entries.append(block_entry(draft.schema, known, [{**p, "at": body_at + p["at"]} for p in places]))
            at += batch.message.size
        footer = ipc.footer_bytes(schema, blocks)
        arrow_tail = ipc.END_MARK + footer + struct.pack("<i", len(footer)) + ipc.ARROW_MAGIC
        entries[-1]["extent"] = {"id": draft.extent_id, "schema": draft.schema.to_json(), "codec": codec}
        stats_json = sealed_json(entries)
        frame_tail = struct.pack("<I", len(stats_json)) + MAGIC_V2
        return [MAGIC_V2, head, *(batch.message for batch, _ in encoded), arrow_tail, stats_json, frame_tail]

    return seal


def _encode_block(block: pa.RecordBatch, codec: str | None) -> tuple[ipc.EncodedBatch, list[dict[str, Any]]]:
    """Encode a block, and say where its columns lie, counted from the beginning of its body."""
    batch = ipc.encode_batch(block, codec, _level(block) if codec == "zstd" else None)
    places = []
    for piece, values in zip(batch.layout.pieces, block.columns, strict=True):
        checksum = checksum_of(batch.message.slice(batch.body_at + piece.offset, piece.length))
        buffers = [list(buffer) for buffer in piece.buffers]
        place = {"at": piece.offset, "len": piece.length, "sum": checksum, "bufs": buffers}
        width = ipc.width_of(values) if block.num_rows >= WIDTH_ROWS else None
        places.append(place if width is None else {**place, "width": width})
    return batch, places


def _level(block: pa.RecordBatch) -> int:
    """Choose how hard to compress."""
    texts = [values for values in block.columns if pa.types.is_string(values.type) or pa.types.is_binary(values.type)]
    return LONG_LEVEL if any(values.nbytes > LONG_BYTES * len(values) for values in texts) else LEVEL


def _open(store: ObjectStore, key: str) -> _Parts:
    tail = store.get_tail(key, TAIL_BYTES)
    last = bytes(memoryview(tail.data)[-len(MAGIC_V2) :])
    if last == MAGIC_V2 and tail.size >= _MIN_V2:
        return _open_v2(store, key, tail)
    head = bytes(store.get_range(key, 0, min(len(MAGIC_V1), tail.size)))
    if head == MAGIC_V1:
        return _open_foreign(store, key, tail, body_end=tail.size, footer_bytes=0, entries=None)
    if head == MAGIC_V2:
        raise ValueError("the end is missing: no closing magic")
    raise ValueError(f"wrong magic {head!r}")


def _open_v2(store: ObjectStore, key: str, tail: Tail) -> _Parts:
    stats_json = footer_bytes_of(store, key, tail, MAGIC_V2)
    length, start = len(stats_json), tail.size - FRAME_TAIL - len(stats_json)
    entries = parsed_footer(stats_json)
    if not is_sealed(stats_json) and not any("tide" in each or "extent" in each or "sum" in each for each in entries):
        return _open_foreign(store, key, tail, body_end=start, footer_bytes=length, entries=entries)
    check_seal(stats_json)
    return _open_ours(key, tail, entries, length)


def _open_ours(key: str, tail: Tail, entries: list[dict[str, Any]], footer_bytes: int) -> _Parts:
    extent = entries[-1]["extent"]
    schema = Schema.from_json(extent["schema"])
    if extent["codec"] not in ipc.CODECS:
        raise ValueError(f"compressed in an unknown way, {extent['codec']!r}")
    blocks, layouts, names = [], [], schema.names
    for entry in entries:
        rows, tides = checked_entry(entry, names)
        layouts.append(ipc.BatchLayout(rows, extent["codec"], _EntryBuffers(key, entry, names)))
        places = EntryPlaces(key, tides, names, tail.size)
        blocks.append(BlockInfo(Stats(rows, EntryColumns(key, entry, schema)), places))
    return _Parts(2, extent["id"], schema, schema.arrow, tail.size, footer_bytes, blocks, layouts)


class _EntryBuffers(Sequence[ipc.Piece]):
    """Where the buffers of one block's columns lie in their pieces, and what else is needed to decode them."""

    def __init__(self, key: str, entry: Mapping[str, Any], names: Sequence[str]) -> None:
        self._key, self._entry, self._names = key, entry, names

    def __getitem__(self, at: Any) -> Any:
        name, rows = self._names[at], self._entry["row_count"]
        try:
            tide = self._entry["tide"][name]
            nulls = tide["nulls"] if "nulls" in tide else self._entry["cols"][name]["nulls"]
            if type(nulls) is not int or not 0 <= nulls <= rows:
                raise ValueError(f"{nulls!r} nulls in {rows} rows")
            buffers = tuple((start, size) for start, size in tide["bufs"])
            if any(type(part) is not int or part < 0 for buffer in buffers for part in buffer):
                raise ValueError("buffers without a place")
            width = tide.get("width")
            if width is not None and (type(width) is not int or width < 1):
                raise ValueError(f"texts of {width!r} bytes")
            return ipc.Piece(0, tide["len"], nulls, buffers, width)
        except UNREADABLE as error:
            raise unreadable(self._key, name, error) from error

    def __len__(self) -> int:
        return len(self._names)


def _open_foreign(
    store: ObjectStore, key: str, tail: Tail, *, body_end: int, footer_bytes: int, entries: list[dict[str, Any]] | None
) -> _Parts:
    """Open an extent that another writer made: v1, or v2 without our statistics."""
    body_at = len(MAGIC_V1)
    head = store.get_range(key, body_at, min(HEAD_BYTES, body_end - body_at))
    physical = _read_schema(store, key, head, body_at, body_end)
    schema = Schema.from_arrow(physical)
    arrow_end = memoryview(last_bytes(store, key, tail, max(body_at, body_end - 10), min(10, body_end - body_at)))
    length = ipc.footer_length(arrow_end) + 10
    if length > body_end - body_at:
        raise ValueError("the arrow footer is longer than the body")
    footer = ipc.footer_of(memoryview(last_bytes(store, key, tail, body_end - length, length)))
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
        blocks.append(BlockInfo(Stats(layout.rows, dict(EntryColumns(key, entry, schema))), pieces))
        layouts.append(layout)
    version = 1 if entries is None else 2
    return _Parts(version, None, schema, physical, tail.size, footer_bytes, blocks, layouts)


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


# Extents whose body is an Arrow file; tables ask for it as ``tlm2``.
FORMAT = BlockFormat(NAME, ".tlm", TlmReader, _encode)
