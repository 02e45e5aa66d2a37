"""Own the bytes of one extent as a Parquet file: a row group is a block, and any Parquet reader can read it.

::

    "PAR1" | row groups, one column chunk after another | footer (thrift) | u32 length of the footer | "PAR1"

Among the footer's key-value metadata, ``tidelake`` is a JSON list, one entry a block, of the shape that all formats
share: ``row_count``, ``cols``, and in ``tide`` where each column chunk lies, its checksum and the richer statistics.
The last entry also has ``extent`` (id, schema) and ends with ``sum``, the checksum of the whole footer as it was while
this sum was still all zeros. ``docs/format.md`` is the specification.

Reading starts at the tail: one request for a small footer, two for a large one, then for each block only the column
chunks asked for. No byte of ours reaches the decoder before its checksum was verified. A file without ``tidelake`` was
written elsewhere: its types are brought to ours, its statistics are believed where they cannot mislead, and its pages
are checked by their own checksums where they have them. It does not read encrypted files or nested columns.
"""

from __future__ import annotations

import math
import pickle
import re
import struct
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import SchemaError
from tidelake.format.block_format import BlockFormat, opening
from tidelake.format.segment import (
    TAIL_BYTES,
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
    piece_of,
    read_columns,
    slim_blocks,
    surviving_blocks,
)
from tidelake.format.thrift import parse_struct
from tidelake.model.predicate import Predicate
from tidelake.model.schema import Column, Schema
from tidelake.objects import ObjectStore, Tail
from tidelake.pruning.statistics import NS_MAX, NS_MIN, ColumnStats, Stats

if TYPE_CHECKING:
    from tidelake.format.writing import Draft, Seal

IDLE_DECODERS = 4  # of an extent
MAGIC = b"PAR1"
NAME = "parquet"
KEY = "tidelake"
MAX_BLOCK_ROWS = 2**31 - 1  # Arrow's own limit for the offsets of one array
WHOLE_TEXT_BYTES = 60  # writers that cut a bound keep 64 bytes less part of a character: a shorter one is whole

_FRAME_TAIL = 4 + len(MAGIC)
_LEAST = len(MAGIC) + _FRAME_TAIL
_NO_SUM = b"0" * 16
_SUM_KEY = b',"sum":"'
_SUM_END = b'"}]'
_SUM = re.compile(_SUM_KEY + rb"([0-9a-f]{16})" + _SUM_END)
_KEY_IN_THRIFT = b"\x18\x08" + KEY.encode() + b"\x18"  # a text of eight bytes, and that another text follows
_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_PHYSICAL = {"bool": (0,), "int": (1,), "long": (2,), "timestamp": (2,), "real": (4, 5)}  # as Parquet numbers its types
_CODES = {0: "<?", 1: "<i", 2: "<q", 4: "<f", 5: "<d"}


class ParquetReader:
    """Read one Parquet file by range, ours or another's."""

    def __init__(self, store: ObjectStore, key: str, parts: _Parts | None = None) -> None:
        self._store, self._key = store, key
        self._idle: list[tuple[_Window, pq.ParquetFile]] = []  # decoders that no thread uses: one takes a millisecond
        if parts is not None:
            self._parts = parts
            return
        with opening(key):
            self._parts = _open(store, key)

    def metadata(self) -> ExtentMetadata:
        parts = self._parts
        return ExtentMetadata(
            format=NAME,
            version=int(parts.file.format_version[0]),
            extent_id=parts.extent_id,
            schema=parts.schema,
            row_count=sum(block.stats.rows for block in parts.blocks),
            byte_size=parts.byte_size,
            footer_bytes=parts.file.serialized_size,
            checksummed=parts.extent_id is not None,
            blocks=tuple(parts.blocks),
        )

    def pruned_blocks(self, predicate: Predicate | None) -> list[int]:
        return surviving_blocks(self._parts.blocks, predicate)

    def read_block(self, block: int, projection: Sequence[str] | None = None) -> pa.RecordBatch:
        parts = self._parts
        info = block_of(parts.blocks, block, self._key)
        columns = chosen_columns(parts.schema, projection)
        places = {name: at for at, name in enumerate(parts.schema.names)}
        trusted = parts.extent_id is not None
        window, file = self._decoder()

        def decode(column: Column, piece: PieceInfo, data: pa.Buffer) -> pa.Array:
            window.hold(piece.offset, data)
            try:  # by number: a name could be taken for a path into a nested column
                table = file.reader.read_row_group(block, [places[column.name]], use_threads=False)
            except OSError as error:
                raise ValueError(str(error)) from error
            return _as_ours(table.column(0), column, info.stats.rows, trusted=trusted)

        found = read_columns(self._store, self._key, columns, block=block, info=info, decode=decode)
        window.hold(0, pa.py_buffer(b""))  # what was read is not kept
        if len(self._idle) < IDLE_DECODERS:
            self._idle.append((window, file))
        return found

    def _decoder(self) -> tuple[_Window, pq.ParquetFile]:
        """Return a decoder that is this thread's until it is given back; what fails is not."""
        with suppress(IndexError):
            return self._idle.pop()
        parts = self._parts
        window = _Window(parts.byte_size)
        return window, _opened(pa.PythonFile(window, mode="r"), parts.file, trusted=parts.extent_id is not None)

    def ticket(self, blocks: Collection[int], columns: Collection[str]) -> bytes:
        """Return the decoder's own footer along: it needs the place of every column of every row group."""
        parts = self._parts
        names = [name for name in parts.schema.names if name in columns]
        return pickle.dumps(replace(parts, blocks=slim_blocks(parts.blocks, blocks, names)), pickle.HIGHEST_PROTOCOL)


@dataclass(frozen=True, slots=True)
class _Parts:
    """An opened extent: what its footer says, and the footer as the decoder wants it."""

    extent_id: str | None
    schema: Schema
    byte_size: int
    blocks: Sequence[BlockInfo]
    file: pq.FileMetaData


class _Window:
    """A file of which the decoder can read one column chunk at a time; all other bytes are out of reach."""

    closed = False

    def __init__(self, size: int) -> None:
        self._size = size
        self._at = self._start = 0
        self._data = memoryview(b"")

    def hold(self, start: int, data: pa.Buffer) -> None:
        """Put these bytes in reach, in place of those before."""
        self._start, self._data = start, memoryview(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, length: int) -> memoryview:
        start = self._at - self._start
        if start < 0 or length < 0 or start + length > len(self._data):
            raise ValueError(f"the decoder wants {length} bytes at {self._at}, outside the column chunk")
        self._at += length
        return self._data[start : start + length]

    def close(self) -> None:
        """Nothing is open."""


def _encode(draft: Draft, pool: Executor) -> Seal:
    """Write the row groups as a file; then make a new footer for them, with our metadata.

    Only a closed file tells where its column chunks lie, and only then can their checksums go into a footer.
    """
    data, file = pool.submit(_written, draft, draft.blocks).result()
    body = data.slice(0, data.size - _FRAME_TAIL - file.serialized_size)
    places = [_summed_places(body, file.row_group(number)) for number in range(file.num_row_groups)]

    def seal(stats: Sequence[Stats]) -> list[bytes | pa.Buffer]:
        entries = [block_entry(draft.schema, known, columns) for known, columns in zip(stats, places, strict=True)]
        entries[-1]["extent"] = {"id": draft.extent_id, "schema": draft.schema.to_json()}
        _, described = _written(draft, [], orjson.dumps(entries)[:-2] + _SUM_KEY + _NO_SUM + _SUM_END)
        described.append_row_groups(file)
        sink = pa.BufferOutputStream()
        described.write_metadata_file(sink)
        return [body, _sealed(bytes(sink.getvalue())[len(MAGIC) :])]

    return seal


def _written(
    draft: Draft, blocks: Sequence[pa.RecordBatch], description: bytes | None = None
) -> tuple[pa.Buffer, pq.FileMetaData]:
    """Write blocks as a whole Parquet file, and give what its footer says too."""
    sink = pa.BufferOutputStream()
    codec = draft.options.compression or "none"
    with pq.ParquetWriter(sink, draft.schema.arrow, compression=codec, write_page_checksum=True) as writer:
        for block in blocks:
            writer.write_batch(block, row_group_size=block.num_rows)
        if description is not None:
            writer.add_key_value_metadata({KEY: description})
    data = sink.getvalue()
    return data, pq.read_metadata(pa.BufferReader(data))


def _summed_places(body: pa.Buffer, group: pq.RowGroupMetaData) -> list[dict[str, Any]]:
    places = []
    for at in range(group.num_columns):
        chunk = group.column(at)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        length = chunk.total_compressed_size
        places.append({"at": start, "len": length, "sum": checksum_of(body.slice(start, length))})
    return places


def _sealed(end: bytes) -> bytes:
    """Put the checksum of the footer into the footer, at the end of a file."""
    at = end.rindex(_SUM_KEY + _NO_SUM + _SUM_END) + len(_SUM_KEY)
    return end[:at] + checksum_of(end[:-_FRAME_TAIL]).encode() + end[at + len(_NO_SUM) :]


def _open(store: ObjectStore, key: str) -> _Parts:
    tail = store.get_tail(key, TAIL_BYTES)
    length = _footer_length(tail)
    start = tail.size - _FRAME_TAIL - length
    end = last_bytes(store, key, tail, start, length + _FRAME_TAIL)
    footer = bytes(end.slice(0, length))
    is_ours = _verified(footer)
    try:
        opened = _opened(pa.BufferReader(end), None, trusted=is_ours)
        file, physical = opened.metadata, opened.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"the footer is not readable: {error}") from error
    if is_ours:
        extent_id, schema, blocks = _read_ours(key, file, start)
        return _Parts(extent_id, schema, tail.size, blocks, file)
    try:
        schema = Schema.from_arrow(physical)
    except SchemaError as error:
        raise SchemaError(error.message, object=key, **error.facts, kind=error.kind) from None
    blocks = _read_foreign(parse_struct(footer), schema, physical=physical, end=start)
    return _Parts(None, schema, tail.size, blocks, file)


def _footer_length(tail: Tail) -> int:
    if tail.size < _LEAST:
        raise ValueError(f"{tail.size} bytes are too few")
    length, magic = struct.unpack_from("<I4s", tail.data, tail.data.size - _FRAME_TAIL)
    if magic != MAGIC:
        raise ValueError("the file is encrypted" if magic == b"PARE" else f"wrong magic {magic!r} at the end")
    if not 0 < length <= tail.size - _LEAST:
        raise ValueError(f"a footer of {length} bytes in an object of {tail.size}")
    if tail.data.size == tail.size and bytes(tail.data[: len(MAGIC)]) != MAGIC:
        raise ValueError("the opening magic is not the closing one")
    return int(length)


def _verified(footer: bytes) -> bool:
    """Verify the checksum of a footer of ours; false if it is another's.

    A footer that has either our key or our sum claims to be ours, so that damage to one of them does not pass for a
    file from elsewhere. A copy that another tool made, our metadata included, claims so wrongly and is refused too.
    """
    seal = _SUM.match(footer, max(footer.rfind(_SUM_KEY), 0))
    if seal and checksum_of(footer[: seal.start(1)], _NO_SUM, footer[seal.end(1) :]) == seal[1].decode():
        return True
    if seal or _KEY_IN_THRIFT in footer:
        raise ValueError("checksum mismatch in the footer: it is damaged, or a copy that kept our metadata")
    return False


def _opened(source: pa.NativeFile, metadata: pq.FileMetaData | None, *, trusted: bool) -> pq.ParquetFile:
    return pq.ParquetFile(
        source,
        metadata=metadata,
        pre_buffer=False,
        coerce_int96_timestamp_unit="us",  # nanoseconds would wrap around silently
        page_checksum_verification=not trusted,
        arrow_extensions_enabled=False,
    )


def _read_ours(key: str, file: pq.FileMetaData, end: int) -> tuple[str, Schema, list[BlockInfo]]:
    entries = orjson.loads(file.metadata[KEY.encode()])
    extent = entries[-1]["extent"]
    schema = Schema.from_json(extent["schema"])
    if file.num_columns != len(schema) or file.num_row_groups != len(entries):
        raise ValueError(f"{len(entries)} entries of {len(schema)} columns do not fit the row groups")
    blocks = []
    for entry in entries:
        places = ((name, entry["tide"][name]) for name in schema.names)
        pieces = {name: piece_of(place, end) for name, place in places}
        blocks.append(BlockInfo(Stats(entry["row_count"], EntryColumns(key, entry, schema)), pieces))
    return extent["id"], schema, blocks


def _read_foreign(footer: Mapping[int, Any], schema: Schema, *, physical: pa.Schema, end: int) -> list[BlockInfo]:
    """Read what another writer says of its row groups; field numbers, here and below, are ``parquet.thrift``'s.

    Each of our types is one column of Parquet, so the columns of a row group are those of the schema, in its order.
    """
    has_order = 7 in footer
    blocks = []
    for number, group in enumerate(footer[4]):
        chunks, rows = group[1], group[3]
        if type(rows) is not int or not 0 <= rows <= MAX_BLOCK_ROWS or len(chunks) != len(schema):
            raise ValueError(f"block {number} has {rows} rows of {len(chunks)} columns")
        pieces, known = {}, {}
        for column, field, chunk in zip(schema, physical, chunks, strict=True):
            if chunk.get(1):
                raise ValueError(f"block {number} column {column.name!r} is in another file")
            start, dictionary = chunk[3][9], chunk[3].get(11, 0)
            pieces[column.name] = PieceInfo(*_inside(dictionary if 0 < dictionary < start else start, chunk[3][7], end))
            unit = getattr(field.type, "unit", None)
            known[column.name] = _known(chunk[3], column, unit=unit, rows=rows, has_order=has_order)
        blocks.append(BlockInfo(Stats(rows, known), pieces))
    return blocks


def _inside(start: int, length: int, end: int) -> tuple[int, int]:
    if not (type(start) is type(length) is int) or start < 0 or length < 0 or start + length > end:
        raise ValueError(f"a column chunk of {length} bytes at {start} does not end before {end}")
    return start, length


def _known(chunk: Mapping[int, Any], column: Column, *, unit: str | None, rows: int, has_order: bool) -> ColumnStats:
    """Take from another writer's statistics what no writer gets wrong; the rest is unknown.

    Of vectors nothing: Parquet counts components. Of reals only the low bound: NaN is not counted, and is above all.
    Of unsigned 32 bits nothing: writers disagree on their order. Texts must be whole, and in the order that the format
    defines.
    """
    found = chunk.get(12, {})
    nulls = found.get(3)
    if column.type.kind == "vector" or (nulls is not None and not 0 <= nulls <= rows):
        return ColumnStats()
    low: Any = None
    high: Any = None
    if column.type.kind == "string" and has_order:
        low, high = _whole_text(found.get(6), found.get(8)), _whole_text(found.get(5), found.get(7))
    elif chunk[1] in _PHYSICAL.get(column.type.kind, ()):
        # The older fields 2 and 1 say the same of signed numbers.
        low, high = _number(found.get(6, found.get(2)), chunk[1]), _number(found.get(5, found.get(1)), chunk[1])
    if column.type.kind == "real":
        low, high = (None if low is None or math.isnan(low) else low), None
    elif column.type.kind == "timestamp":
        low, high = _floored_ns(low, unit), _floored_ns(high, unit)
    if low is not None and high is not None and low > high:
        return ColumnStats(nulls=nulls)
    return ColumnStats(nulls=nulls, low=low, high=high, tight=False)


def _number(value: bytes | None, physical: int) -> Any:
    code = _CODES[physical]
    return struct.unpack(code, value)[0] if value is not None and len(value) == struct.calcsize(code) else None


def _floored_ns(value: int | None, unit: str | None) -> int | None:
    """Return a time in nanoseconds, floored to the microsecond as values are; none outside the range."""
    nanos = None if value is None or unit is None else value * _NANOS[unit] // 1000 * 1000
    return nanos if nanos is not None and NS_MIN <= nanos <= NS_MAX else None


def _whole_text(value: bytes | None, is_exact: bool | None) -> str | None:
    if value is None or is_exact is False or (is_exact is None and len(value) >= WHOLE_TEXT_BYTES):
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _as_ours(values: pa.ChunkedArray, column: Column, rows: int, *, trusted: bool) -> pa.Array:
    """Return a decoded column as one array of our type."""
    if len(values) != rows:
        raise ValueError(f"{len(values)} rows where {rows} are expected")
    array = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        raise ValueError("more values than one array can hold")
    if not trusted:
        array.validate(full=True)
    return array if array.type == column.type.arrow and column.type.kind != "vector" else converted(array, column)


# For tables that other engines read too.
FORMAT = BlockFormat(NAME, ".parquet", ParquetReader, _encode)
