"""Read and place the parts of an Arrow IPC file, one column of one batch at a time.

Arrow's own reader wants a whole batch, or the whole file; an extent is read by range, a column at a time, from bytes
that may be hostile. So this module reads the few flatbuffers tables that say where buffers lie (every access checked
against the end of the bytes), and builds a column from its own bytes alone::

    "ARROW1" 0 0 | schema message | batch message … | end mark | footer | i32 footer length | "ARROW1"
    message: FF FF FF FF | i32 metadata length | metadata (a flatbuffer, padded) | body (the buffers, padded)

A wrong length or offset is a ``ValueError`` with the reason. It does not fetch bytes, nor know the frame around them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

ARROW_MAGIC = b"ARROW1"
HEAD = ARROW_MAGIC + b"\0\0"
END_MARK = b"\xff\xff\xff\xff\0\0\0\0"
PREFIX_BYTES = 8  # of a message: the continuation mark and the metadata length
MAX_BUFFER_BYTES = 2**31 - 1  # Arrow's own limit for the types we keep
MAX_ROWS = 2**31 - 1  # and for their offsets
KEPT_ROWS = 1 << 17  # of a block whose texts' offsets are kept for the next, half a megabyte
SPARE_BYTES = 4096  # more than any writer pads a buffer by

_RECORD_BATCH = 3  # of MessageHeader
_CODECS = {0: "lz4", 1: "zstd"}
CODECS = (None, *_CODECS.values())
_BLOCK = struct.Struct("<qi4xq")


@dataclass(frozen=True, slots=True)
class Block:
    """Where one record batch message lies in its file."""

    offset: int
    metadata_length: int
    body_length: int


class Piece(NamedTuple):  # a tuple: a footer has thousands
    """One column of one batch: where its bytes lie in the body, and its buffers inside them.

    ``width`` is of texts that are all as long, none of them null: their offsets need not be read.
    """

    offset: int
    length: int
    nulls: int
    buffers: tuple[tuple[int, int], ...]
    width: int | None = None


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """What the metadata of one record batch says."""

    rows: int
    codec: str | None
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One record batch as message bytes, with the place of every column in its body."""

    message: pa.Buffer
    body_at: int
    layout: BatchLayout


def encode_batch(batch: pa.RecordBatch, codec: str | None, level: int | None = None) -> EncodedBatch:
    """Serialise one batch as the message an IPC file holds, at a codec's own level unless one is given."""
    sink = pa.BufferOutputStream()
    compression = codec if codec is None or level is None else pa.Codec(codec, compression_level=level)
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_batch(batch)
    written = sink.getvalue()
    schema_length = message_length(written)
    message = written.slice(schema_length, written.size - schema_length - len(END_MARK))
    metadata_length = PREFIX_BYTES + struct.unpack_from("<i", message, 4)[0]
    layout = parse_batch(memoryview(message)[PREFIX_BYTES:metadata_length], batch.schema)
    return EncodedBatch(message, metadata_length, layout)


def schema_message(schema: pa.Schema) -> bytes:
    """Serialise a schema as the first message of an IPC file."""
    return bytes(schema.serialize())


def footer_bytes(schema: pa.Schema, blocks: Sequence[Block]) -> bytes:
    """Make the footer of an IPC file whose batches lie at these places.

    Arrow writes the footer of a file of as many empty batches; then their places are written over.
    """
    sink = pa.BufferOutputStream()
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    with pa.ipc.new_file(sink, schema) as file:
        for _ in blocks:
            file.write_batch(empty)
    footer = bytearray(footer_of(memoryview(sink.getvalue())))
    at, count = _root(memoryview(footer)).vector(3, _BLOCK.size)
    if count != len(blocks):
        raise ValueError(f"arrow wrote a footer of {count} batches for {len(blocks)}")
    for place, block in enumerate(blocks):
        _BLOCK.pack_into(footer, at + place * _BLOCK.size, block.offset, block.metadata_length, block.body_length)
    return bytes(footer)


def footer_of(tail: memoryview) -> memoryview:
    """Cut the footer out of the last bytes of an IPC file; ``footer_length`` says how many are needed."""
    length = footer_length(tail)
    end = len(tail) - 4 - len(ARROW_MAGIC)
    if length > end:
        raise ValueError(f"footer of {length} bytes in {len(tail)}")
    return tail[end - length : end]


def footer_length(tail: memoryview) -> int:
    """Read the length of an IPC file's footer from its last ten bytes."""
    if len(tail) < 10 or bytes(tail[-6:]) != ARROW_MAGIC:
        raise ValueError("no arrow magic at the end of the body")
    length = int(struct.unpack_from("<i", tail, len(tail) - 10)[0])
    if length <= 0:
        raise ValueError(f"footer length {length}")
    return length


def parse_footer(footer: memoryview) -> list[Block]:
    """Read where the record batches of a file lie."""
    at, count = _root(footer).vector(3, _BLOCK.size)
    return [Block(*_BLOCK.unpack_from(footer, at + place * _BLOCK.size)) for place in range(count)]


def parse_batch(metadata: memoryview, schema: pa.Schema) -> BatchLayout:
    """Read where each column's buffers lie in a record batch's body."""
    message = _root(metadata)
    if message.number(1, "<B") != _RECORD_BATCH:
        raise ValueError("the message is not a record batch")
    header = message.table(2)
    compression = header.table_or_none(3)
    codec = None if compression is None else _CODECS.get(compression.number(0, "<b"), "unknown")
    nodes_at, node_count = header.vector(1, 16)
    buffers_at, buffer_count = header.vector(2, 16)
    nodes = [struct.unpack_from("<qq", metadata, nodes_at + 16 * i) for i in range(node_count)]
    buffers = [struct.unpack_from("<qq", metadata, buffers_at + 16 * i) for i in range(buffer_count)]
    rows = header.number(0, "<q")
    if not 0 <= rows <= MAX_ROWS:
        raise ValueError(f"a batch of {rows} rows")
    pieces, node, buffer = [], 0, 0
    for field in schema:
        wanted = _buffer_count(field.type)
        if node >= len(nodes) or buffer + wanted > len(buffers):
            raise ValueError("fewer buffers than the schema needs")
        if nodes[node][0] != rows or not 0 <= nodes[node][1] <= rows:
            raise ValueError(f"column {field.name!r} has {nodes[node]} of {rows} rows")
        pieces.append(_piece(buffers[buffer : buffer + wanted], nodes[node][1]))
        node += 2 if pa.types.is_fixed_size_list(field.type) else 1
        buffer += wanted
    return BatchLayout(rows, codec, tuple(pieces))


def decode_column(
    kind: pa.DataType, rows: int, piece: Piece, data: pa.Buffer, *, codec: str | None, trusted: bool
) -> pa.Array:
    """Build one column from the bytes of its piece; untrusted bytes are checked value by value."""
    if codec == "unknown":
        raise ValueError("compressed in an unknown way")
    if piece.width is not None:
        return _even_texts(kind, rows, piece, data, codec)
    needed = _needed_bytes(kind, rows, piece.nulls)
    buffers = [_buffer(data, place, least, codec) for place, least in zip(piece.buffers, needed, strict=True)]
    if _is_text(kind):
        letters = _letter_bytes(buffers[1], rows)
        buffers[2] = _buffer(data, piece.buffers[2], letters, codec) or pa.py_buffer(b"")
    if pa.types.is_fixed_size_list(kind):
        child = pa.Array.from_buffers(kind.value_type, rows * kind.list_size, [None, buffers[2]], 0)
        array = pa.Array.from_buffers(kind, rows, buffers[:1], piece.nulls, children=[child])
    else:
        array = pa.Array.from_buffers(kind, rows, buffers, piece.nulls)
    if not trusted:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise ValueError(str(error)) from error
    return array


def width_of(values: pa.Array) -> int | None:
    """Return how long every text of a column is, if all are as long and none is null or empty."""
    if not _is_text(values.type) or values.null_count or not len(values):
        return None
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    width = int(offsets[1]) - int(offsets[0])
    return width if width and bool((offsets[1:] - offsets[:-1] == width).all()) else None


def message_length(data: pa.Buffer) -> int:
    """Return the length of the first message in these bytes, when it has no body: a schema's."""
    mark, length = struct.unpack_from("<Ii", data, 0)
    if mark != 0xFFFF_FFFF or not 0 < length <= len(data) - PREFIX_BYTES:
        raise ValueError("no arrow message")
    return PREFIX_BYTES + int(length)


@dataclass(frozen=True, slots=True)
class _Table:
    """A flatbuffers table; every access stays inside the bytes or is a ValueError."""

    data: memoryview
    at: int

    def number(self, slot: int, code: str) -> int:
        at = self._field(slot)
        return 0 if at is None else int(_unpack(code, self.data, at))

    def table(self, slot: int) -> _Table:
        found = self.table_or_none(slot)
        if found is None:
            raise ValueError(f"field {slot} is missing")
        return found

    def table_or_none(self, slot: int) -> _Table | None:
        at = self._field(slot)
        return None if at is None else _Table(self.data, at + _unpack("<I", self.data, at))

    def vector(self, slot: int, width: int) -> tuple[int, int]:
        """Return where a vector of structs begins and how many there are."""
        at = self._field(slot)
        if at is None:
            return 0, 0
        at += _unpack("<I", self.data, at)
        count = _unpack("<I", self.data, at)
        if at + 4 + count * width > len(self.data):
            raise ValueError("a vector runs past the end")
        return at + 4, count

    def _field(self, slot: int) -> int | None:
        table = self.at - _unpack("<i", self.data, self.at)
        if 4 + 2 * slot >= _unpack("<H", self.data, table):
            return None
        offset = _unpack("<H", self.data, table + 4 + 2 * slot)
        return self.at + offset if offset else None


def _root(data: memoryview) -> _Table:
    return _Table(data, _unpack("<I", data, 0))


def _unpack(code: str, data: memoryview, at: int) -> int:
    if at < 0 or at + struct.calcsize(code) > len(data):
        raise ValueError(f"an offset points to {at} of {len(data)} bytes")
    return int(struct.unpack_from(code, data, at)[0])


def _piece(buffers: Sequence[tuple[int, int]], nulls: int) -> Piece:
    held = [(offset, length) for offset, length in buffers if length]
    start = min((offset for offset, _ in held), default=0)
    end = max((offset + length for offset, length in held), default=0)
    if any(offset < 0 or length < 0 for offset, length in buffers):
        raise ValueError("a buffer has a negative place")
    inside = tuple((offset - start, length) if length else (0, 0) for offset, length in buffers)
    return Piece(start, end - start, nulls, inside)


def _buffer_count(kind: pa.DataType) -> int:
    return 3 if pa.types.is_fixed_size_list(kind) or _is_text(kind) else 2


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _needed_bytes(kind: pa.DataType, rows: int, nulls: int) -> tuple[int, ...]:
    valid = (rows + 7) // 8 if nulls else 0
    if pa.types.is_fixed_size_list(kind):
        return valid, 0, rows * kind.list_size * 4
    if _is_text(kind):
        return valid, (rows + 1) * 4 if rows else 0, 0
    return valid, (rows * kind.bit_width + 7) // 8


def _even_texts(kind: pa.DataType, rows: int, piece: Piece, data: pa.Buffer, codec: str | None) -> pa.Array:
    """Build a column of texts that are all as long: their offsets are known, and are neither read nor checked."""
    width = piece.width or 0
    if not _is_text(kind) or len(piece.buffers) != 3 or piece.nulls or width * rows > MAX_BUFFER_BYTES:
        raise ValueError(f"a {kind} column of {rows} rows, {piece.nulls} of them null, has no width of {width}")
    letters = _buffer(data, piece.buffers[2], width * rows, codec)  # first: so many rows must really have letters
    offsets = (_kept_offsets if rows <= KEPT_ROWS else _even_offsets)(rows, width)
    return pa.Array.from_buffers(kind, rows, [None, offsets, letters or pa.py_buffer(b"")], 0)


def _even_offsets(rows: int, width: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * np.int32(width))


_kept_offsets = lru_cache(maxsize=16)(_even_offsets)  # blocks are alike: a column of one width has one array, or two


def _letter_bytes(offsets: pa.Buffer | None, rows: int) -> int:
    """Check the offsets of a text column, and read the last: how many bytes its letters take."""
    if offsets is None:
        return 0
    places = np.frombuffer(offsets, np.int32, rows + 1)
    if places[0] < 0 or bool((places[1:] < places[:-1]).any()):  # checked always: a reader would leave the buffer
        raise ValueError("a text ends before it begins")
    return int(places[-1])


def _buffer(data: pa.Buffer, place: tuple[int, int], least: int, codec: str | None) -> pa.Buffer | None:
    """Return a buffer of which this many bytes are needed, or None if none is."""
    offset, length = place
    if offset + length > data.size:
        raise ValueError(f"a buffer ends at {offset + length} of {data.size} bytes")
    if not least:
        return None
    found = data.slice(offset, length)
    if codec is not None:
        found = _decompressed(found, least, codec)
    if found.size < least:
        raise ValueError(f"a buffer of {found.size} bytes where {least} are needed")
    return found


def _decompressed(raw: pa.Buffer, least: int, codec: str) -> pa.Buffer:
    """Undo compression; a buffer that claims far more than its column needs would only take memory."""
    if raw.size < 8:
        raise ValueError("a compressed buffer without its length")
    size = struct.unpack_from("<q", raw, 0)[0]
    if size == -1:
        return raw.slice(8)
    if not least <= size <= min(2 * least + SPARE_BYTES, MAX_BUFFER_BYTES):
        raise ValueError(f"a buffer claims {size} bytes where {least} are needed")
    try:
        return pa.decompress(raw.slice(8), decompressed_size=size, codec=codec)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"a buffer does not decompress: {error}") from error
