"""Define what a format of extents must do, and share what every reader does around its own bytes.

A format is a factory of readers and writers. Catalog, planner, executor and ingest know only the protocols here, so a
new format is one new file. What an extent says of a block is a JSON entry that all formats share, and all read a block
by fetching and verifying its columns' bytes; what they share in writing is in ``writing``. It does not choose keys, nor
register what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tidelake.errors import CorruptExtent, InvalidInputError, NotFoundError, SchemaError
from tidelake.model.predicate import Predicate
from tidelake.model.schema import Column, Schema
from tidelake.objects import ObjectSink, ObjectStore, Tail
from tidelake.pruning.outcomes import may_match
from tidelake.pruning.statistics import ColumnStats, Stats, column_from_json, column_to_json

BLOCK_ROWS = 65_536  # small enough to skip, large enough that a range read is worth its request
CHECKSUM_LETTERS = 16
TAIL_BYTES = 64 << 10  # the first request: most footers, and most small extents whole

_PLACE_KEYS = {"at", "len", "sum", "bufs", "width"}  # of a column in ``tide``, but for its statistics
_TAGS = {"timestamp": "ts", "int": "i64", "long": "i64", "string": "str"}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How an extent is cut and encoded."""

    time: str | None = None  # the time column; by default the first timestamp column
    sort: bool = True  # by time; rows without a time come last
    block_rows: int = BLOCK_ROWS
    compression: str | None = "zstd"

    def __post_init__(self) -> None:
        if not 1 <= self.block_rows <= 2**24:
            raise InvalidInputError("block_rows must be between 1 and 16,777,216", block_rows=self.block_rows)
        if self.compression not in (None, "zstd", "lz4"):
            raise InvalidInputError("compression must be zstd, lz4 or None", compression=self.compression)


class PieceInfo(NamedTuple):  # a tuple: a footer has thousands
    """The bytes of one column of one block inside the object, and their checksum if there is one."""

    offset: int
    length: int
    checksum: str | None = None


class ArrowPlace(NamedTuple):
    """One column of one block as Arrow buffers inside the object, for readers that are not Python.

    ``buffers`` are places in the column's bytes, each compressed on its own where ``codec`` is not None. ``width`` is
    of texts that are all as long, none of them null.
    """

    piece: PieceInfo
    codec: str | None
    nulls: int
    buffers: tuple[tuple[int, int], ...]
    width: int | None = None


class SharedPlaces(NamedTuple):
    """What the pages of a column in all blocks of an extent refer to, for readers that are not Python.

    Each place is of texts, with how many they are. ``base`` is the column that this one is stored as differences from.
    """

    dictionary: tuple[PieceInfo, int] | None = None
    templates: tuple[PieceInfo, int] | None = None
    words: tuple[PieceInfo, int] | None = None  # of the templates' variables
    base: str | None = None


@dataclass(frozen=True, slots=True)
class BlockInfo:
    """What an extent says of one of its blocks."""

    stats: Stats
    pieces: Mapping[str, PieceInfo]
    unpacked: int | None = None  # bytes that its rows take in memory, roughly, if it says


@dataclass(frozen=True, slots=True)
class ExtentMetadata:
    """What an extent says of itself."""

    format: str
    version: int
    extent_id: str | None
    schema: Schema
    row_count: int
    byte_size: int
    footer_bytes: int
    checksummed: bool
    blocks: tuple[BlockInfo, ...]


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A part of a column over all blocks of an extent: what it holds, in which codecs, and its bytes.

    ``path`` is of a part that holds one path of a dynamic column, None of others.
    """

    column: str
    part: str
    path: str | None
    codecs: tuple[str, ...]
    values: int
    byte_size: int


class SharedPiece(NamedTuple):
    """Bytes of a column beside its pieces in blocks: a dictionary, templates, postings, a directory.

    ``block`` is of what is of one block.
    """

    column: str
    part: str
    block: int | None
    piece: PieceInfo


@runtime_checkable
class TellsParts(Protocol):
    """A reader of extents whose columns consist of parts."""

    def parts(self) -> Sequence[PartInfo]:
        """Return the parts of all columns; their bytes are read."""

    def shared_pieces(self) -> Sequence[SharedPiece]:
        """Return all bytes that have a checksum beside the pieces of blocks; directories are read."""


@dataclass(frozen=True, slots=True)
class ExtentWriteResult:
    """What the catalog gets to know of a finished extent."""

    extent_id: str
    object_path: str
    byte_size: int
    row_count: int
    block_count: int
    min_timestamp_nanos: int | None
    max_timestamp_nanos: int | None
    present_paths: tuple[str, ...]
    column_stats: Mapping[str, Any]


Decode: TypeAlias = Callable[[Column, PieceInfo, pa.Buffer], pa.Array]


class TellsArrowPlaces(Protocol):
    """A reader of extents that may consist of Arrow buffers which have checksums."""

    def arrow_places(self, block: int, columns: Sequence[str]) -> list[ArrowPlace] | None:
        """Return where columns of a block lie; None if they are not Arrow buffers that have checksums."""


class TellsPages(Protocol):
    """A reader of extents whose columns are pages, which lie where its metadata says."""

    def shared_places(self, column: str) -> SharedPlaces:
        """Return what the pages of a column refer to."""


class ExtentReader(Protocol):
    """Read one extent by range."""

    def metadata(self) -> ExtentMetadata:
        """Return what the extent says of itself, from its footer."""

    def pruned_blocks(self, predicate: Predicate | None) -> list[int]:
        """Return the blocks that may hold a matching row."""

    def read_block(self, block: int, projection: Sequence[str] | None = None) -> pa.RecordBatch:
        """Read these columns of a block, or all of them; checksums are verified first."""

    def ticket(self, blocks: Collection[int], columns: Collection[str]) -> bytes:
        """Return what ``reopen`` needs elsewhere to read these columns of these blocks without the footer."""


class ExtentWriter(Protocol):
    """Write one extent; nothing is stored before ``finish``."""

    def append(self, batch: pa.RecordBatch) -> None:
        """Take rows; SchemaError if they do not have the extent's schema."""

    def finish(self, before_store: Callable[[], None] | None = None) -> ExtentWriteResult:
        """Store the object and describe it, unless ``before_store`` raises, which is called once its bytes are made."""


class SegmentFormat(Protocol):
    """Make readers and writers of one format."""

    @property
    def name(self) -> str:
        """What catalogs and tables call it."""

    @property
    def suffix(self) -> str:
        """How the keys of its objects end."""

    @property
    def keeps_paths(self) -> bool:
        """Whether a path of a dynamic column is read alone."""

    def open_extent(self, store: ObjectStore, key: str) -> ExtentReader:
        """Read an extent's footer; CorruptExtent if it is not one of this format."""

    def reopen(self, store: ObjectStore, key: str, ticket: bytes) -> ExtentReader:
        """Go on reading where a reader's ticket was made, perhaps in another process; only what it is for."""

    def start_extent(
        self, store: ObjectSink, key: str, schema: Schema, *, extent_id: str, options: WriteOptions | None = None
    ) -> ExtentWriter:
        """Begin an extent that will be stored under this key."""


def time_column(schema: Schema, name: str | None = None) -> Column | None:
    """Find the time column: the one named, or the first timestamp."""
    if name is None:
        return next((column for column in schema if column.type.kind == "timestamp"), None)
    column = schema[name]
    if column.type.kind != "timestamp":
        raise SchemaError("the time column must be a timestamp", column=name, type=column.type)
    return column


def surviving_blocks(blocks: Sequence[BlockInfo], predicate: Predicate | None) -> list[int]:
    """Return the blocks whose statistics leave room for a matching row."""
    return [at for at, block in enumerate(blocks) if predicate is None or may_match(predicate, block.stats)]


def block_entry(schema: Schema, known: Stats, places: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one block's entry of a footer: what every reader of v2 knows in ``cols``, what only ours does in ``tide``.

    A place says where a column's bytes lie (``at``, ``len``), their checksum (``sum``), and what else its format needs.
    """
    plain: dict[str, Any] = {}
    tide: dict[str, Any] = {}
    for column, place in zip(schema, places, strict=True):
        stats = known.columns[column.name]
        extra = {key: value for key, value in column_to_json(stats).items() if value is not None}
        if (tag := _TAGS.get(column.type.kind)) and stats.low is not None and stats.tight:
            plain[column.name] = {
                "k": tag,
                "min": extra.pop("min"),
                "max": extra.pop("max"),
                "nulls": extra.pop("nulls"),
            }
        tide[column.name] = {**place, **extra}
    ordered = dict(sorted(plain.items(), key=lambda item: item[0].encode()))
    return {"row_count": known.rows, "cols": ordered, "tide": tide}


class EntryColumns(Mapping[str, ColumnStats]):
    """The statistics of one block's columns, decoded when asked for: a footer holds many more than a query needs."""

    def __init__(self, key: str, entry: Mapping[str, Any], schema: Schema) -> None:
        self._key, self._plain, self._extra = key, entry["cols"], entry.get("tide", {})
        self._schema = schema
        self._decoded: dict[str, ColumnStats] = {}

    def __getitem__(self, name: str) -> ColumnStats:
        if name not in self._decoded:
            if name not in self._plain and name not in self._extra:
                raise KeyError(name)
            try:
                self._decoded[name] = self._decode(name)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise CorruptExtent(
                    "not readable statistics", object=self._key, column=name, reason=reason_of(error)
                ) from error
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._schema.names if name in self._plain or name in self._extra)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _decode(self, name: str) -> ColumnStats:
        shape = self._extra.get(name, {})
        plain = self._plain.get(name)
        if plain is None:
            return column_from_json(shape)
        low, high = _plain_bounds(plain, self._schema[name])
        if shape.keys() <= _PLACE_KEYS and plain["nulls"] >= 0:  # as times have it, which are asked about most
            return ColumnStats(nulls=plain["nulls"], low=low, high=high)
        return column_from_json({**shape, "min": low, "max": high, "nulls": plain["nulls"]})


def piece_of(place: Mapping[str, Any], end: int) -> PieceInfo:
    """Read where a column's bytes lie, all before ``end``, and the checksum they must have."""
    start, length, checksum = place["at"], place["len"], place["sum"]
    if not (type(start) is type(length) is int) or start < 0 or length < 0 or start + length > end:
        raise ValueError(f"a column of {length} bytes at {start} does not end before {end}")
    if not isinstance(checksum, str) or len(checksum) != CHECKSUM_LETTERS:
        raise ValueError(f"{checksum!r} is not a checksum")
    return PieceInfo(start, length, checksum)


def slim_blocks(
    blocks: Sequence[BlockInfo], wanted: Collection[int], columns: Collection[str]
) -> tuple[BlockInfo, ...]:
    """Return the same number of blocks without statistics, and only the wanted ones with the places of columns."""
    chosen = set(wanted)
    return tuple(
        BlockInfo(Stats(block.stats.rows, {}), {name: block.pieces[name] for name in columns} if at in chosen else {})
        for at, block in enumerate(blocks)
    )


def last_bytes(store: ObjectStore, key: str, tail: Tail, start: int, length: int) -> pa.Buffer:
    """Return bytes near the end of the object, from the tail already read where they are in it."""
    held_from = tail.size - tail.data.size
    return tail.data.slice(start - held_from, length) if start >= held_from else store.get_range(key, start, length)


def read_columns(
    store: ObjectStore,
    key: str,
    columns: Sequence[Column],
    *,
    block: int,
    info: BlockInfo,
    decode: Decode,
    encoded: Collection[str] = (),
) -> pa.RecordBatch:
    """Fetch the bytes of these columns of a block, verify them, and decode them; those ``encoded`` as they come."""
    pieces = [info.pieces[column.name] for column in columns]
    fetched = store.get_ranges(key, [(piece.offset, piece.length) for piece in pieces])
    arrays = []
    for column, piece, data in zip(columns, pieces, fetched, strict=True):
        if piece.checksum is not None and checksum_of(data) != piece.checksum:
            raise CorruptExtent("checksum mismatch", object=key, block=block, column=column.name, kind="checksum")
        try:
            arrays.append(decode(column, piece, data))
        except (ValueError, SchemaError, pa.ArrowException) as error:
            raise CorruptExtent(
                "not a readable column", object=key, block=block, column=column.name, reason=reason_of(error)
            ) from error
    if not columns:
        rows = pa.Array.from_buffers(pa.struct([]), info.stats.rows, [None], 0, children=[])  # takes no memory
        return pa.RecordBatch.from_struct_array(rows)
    kinds = [
        array.type if column.name in encoded else column.type.arrow
        for column, array in zip(columns, arrays, strict=True)
    ]
    fields = [pa.field(c.name, kind, nullable=c.nullable) for c, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def converted(array: pa.Array, column: Column) -> pa.Array:
    """Bring a column from elsewhere to the table's type: times to microseconds UTC, rounded down."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if column.type.kind == "timestamp":
        return _micros(array).view(column.type.arrow)
    return checked_vectors(array, column) if column.type.kind == "vector" else array.cast(column.type.arrow)


def checked_vectors(values: pa.Array, column: Column) -> pa.Array:
    """Rebuild a vector column on our own type, whose components cannot be null."""
    dimension = column.type.dimension or 0
    components = values.values.slice(values.offset * dimension, len(values) * dimension)
    if components.null_count:
        present = values.flatten()
        if present.null_count:
            raise SchemaError("a vector has a null component", column=column.name, kind="vector_length")
        components = pc.fill_null(components, 0.0)
    return pa.FixedSizeListArray.from_arrays(components, type=column.type.arrow, mask=values.is_null())


def checksum_of(*parts: pa.Buffer | bytes) -> str:
    """Checksum bytes as every extent does: XXH3, 64 bits, in hex."""
    total = xxhash.xxh3_64()
    for part in parts:
        total.update(part)
    return str(total.hexdigest())


def reason_of(error: Exception) -> str:
    """Return on one line why bytes could not be read."""
    if isinstance(error, KeyError):
        return f"no {error.args[0]!r} in the footer"
    return " ".join(str(error).split()) or type(error).__name__


def chosen_columns(schema: Schema, projection: Sequence[str] | None) -> list[Column]:
    """Resolve a projection against an extent's own columns."""
    return list(schema) if projection is None else [schema[name] for name in projection]


def block_of(blocks: Sequence[BlockInfo], block: int, key: str) -> BlockInfo:
    """Find a block by its number."""
    if not 0 <= block < len(blocks):
        raise NotFoundError("no such block", object=key, block=block, blocks=len(blocks))
    return blocks[block]


def _plain_bounds(plain: Mapping[str, Any], column: Column) -> tuple[Any, Any]:
    """Read the bounds that every v2 reader knows; times are floored to what a table keeps, the microsecond."""
    low, high, tag = plain["min"], plain["max"], plain["k"]
    kind = str if tag == "str" else int
    if tag != _TAGS.get(column.type.kind) or {type(low), type(high)} != {kind} or type(plain["nulls"]) is not int:
        raise ValueError(f"statistics of column {column.name!r} are not a {column.type}'s")
    return (low // 1000 * 1000, high // 1000 * 1000) if tag == "ts" else (low, high)


def _micros(times: pa.Array) -> pa.Array:
    numbers = times.view(pa.int64()).fill_null(0).to_numpy()
    factor = {"s": 1_000_000, "ms": 1_000, "us": 1}.get(times.type.unit)
    if factor is None:
        micros = numbers // 1000
    elif factor > 1 and len(numbers) and max(-int(numbers.min()), int(numbers.max())) > (2**63 - 1) // factor:
        raise ValueError("a time is outside the range of microseconds")
    else:
        micros = numbers * factor
    mask = np.asarray(times.is_null()) if times.null_count else None
    return pa.array(micros, pa.int64(), mask=mask)
