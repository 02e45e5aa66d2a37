"""Read and seal the frame that all versions of ``tlm`` from the second on share.

::

    magic, 5 bytes | body | footer, JSON | u32 length of the footer | magic

The footer ends with the checksum of what comes before it. That of the third body is compressed::

    02 | u32 length of the JSON | zstd frame of it | u64 XXH3 of all before

It does not know bodies.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import xxhash

from tidelake.errors import CorruptExtent
from tidelake.format.segment import PieceInfo, checksum_of, last_bytes, piece_of, reason_of
from tidelake.objects import ObjectStore, Tail

MAGIC_BYTES = 5
FRAME_TAIL = 4 + MAGIC_BYTES
MAX_ROWS = 2**31 - 1  # of a block
MAX_JSON_BYTES = 2**30  # of a compressed footer: more is no footer
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)

_SUM = re.compile(rb',"sum":"([0-9a-f]{16})"}]')
_SUM_BYTES = len(b',"sum":"0123456789abcdef"}]')
_PACKED = 2  # the first byte of a compressed footer: zstd, as among the codecs of pages
_PACKED_HEAD, _PACKED_SUM = struct.Struct("<BI"), struct.Struct("<Q")
_ZSTD = pa.Codec("zstd", compression_level=3)


def footer_bytes_of(store: ObjectStore, key: str, tail: Tail, magic: bytes) -> bytes:
    """Return the footer of an object that ends with its magic; the opening one is verified if it was read too."""
    length = struct.unpack_from("<I", tail.data, tail.data.size - FRAME_TAIL)[0]
    start = tail.size - FRAME_TAIL - length
    if start < MAGIC_BYTES:
        raise ValueError(f"statistics of {length} bytes in an object of {tail.size}")
    if tail.data.size == tail.size and bytes(tail.data[:MAGIC_BYTES]) != magic:
        raise ValueError("the opening magic is not the closing one")
    return bytes(last_bytes(store, key, tail, start, length))


def parsed_footer(footer: bytes) -> list[dict[str, Any]]:
    """Parse a footer: one object for each block."""
    entries = orjson.loads(footer)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("the statistics are not a list of objects")
    return entries


def is_sealed(footer: bytes) -> bool:
    """Whether a footer ends with a checksum."""
    return _SUM.fullmatch(footer[-_SUM_BYTES:]) is not None


def check_seal(footer: bytes) -> None:
    """Verify the checksum of a footer."""
    seal = _SUM.fullmatch(footer[-_SUM_BYTES:])
    if not seal or checksum_of(footer[:-_SUM_BYTES]) != seal[1].decode():
        raise ValueError("checksum mismatch in the footer")


def checked_entry(entry: Mapping[str, Any], names: Sequence[str]) -> tuple[int, Mapping[str, Any]]:
    """Return a block's number of rows and where its columns lie, once all of them are told."""
    rows, tides = entry["row_count"], entry["tide"]
    if type(rows) is not int or not 0 <= rows <= MAX_ROWS:
        raise ValueError(f"a block of {rows!r} rows")
    if not isinstance(tides, dict) or not isinstance(entry["cols"], dict):
        raise ValueError("a block without columns")
    if missing := [name for name in names if name not in tides]:
        raise ValueError(f"a block without column {missing[0]!r}")
    return rows, tides


def sealed_json(entries: list[dict[str, Any]]) -> bytes:
    """Close the JSON with the checksum of everything before it."""
    body = orjson.dumps(entries)[:-2]
    return body + b',"sum":"' + checksum_of(body).encode() + b'"}]'


def packed_json(text: bytes) -> bytes:
    """Compress the JSON of a footer, and close it with the checksum of everything before."""
    packed = _PACKED_HEAD.pack(_PACKED, len(text)) + bytes(_ZSTD.compress(text, asbytes=True))
    return packed + _PACKED_SUM.pack(xxhash.xxh3_64_intdigest(packed))


def unpacked_footer(footer: bytes) -> bytes:
    """Return the JSON of a footer that may be compressed, once its checksum is right."""
    if footer[:1] != bytes([_PACKED]):
        check_seal(footer)
        return footer
    packed, checksum = footer[: -_PACKED_SUM.size], footer[-_PACKED_SUM.size :]
    if len(packed) < _PACKED_HEAD.size or _PACKED_SUM.pack(xxhash.xxh3_64_intdigest(packed)) != checksum:
        raise ValueError("checksum mismatch in the footer")
    _, size = _PACKED_HEAD.unpack_from(packed)
    if size > MAX_JSON_BYTES:
        raise ValueError(f"a footer of {size} bytes")
    try:
        return bytes(pa.decompress(packed[_PACKED_HEAD.size :], decompressed_size=size, codec="zstd", asbytes=True))
    except (pa.ArrowInvalid, OSError) as error:  # also where there are fewer or more bytes than that
        raise ValueError(f"the footer does not decompress: {error}") from error


class EntryPlaces(Mapping[str, PieceInfo]):
    """Where the columns of one block lie, read when asked for: a footer tells of more blocks than are read."""

    def __init__(self, key: str, tides: Mapping[str, Any], names: Sequence[str], end: int) -> None:
        self._key, self._tides, self._names, self._end = key, tides, names, end
        self._read: dict[str, PieceInfo] = {}

    def __getitem__(self, name: str) -> PieceInfo:
        if name not in self._read:
            if name not in self._names:
                raise KeyError(name)
            try:
                self._read[name] = piece_of(self._tides[name], self._end)
            except UNREADABLE as error:
                raise unreadable(self._key, name, error) from error
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def unreadable(key: str, column: str, error: Exception) -> CorruptExtent:
    """Return of a footer that tells nothing sensible of a column that it is corrupt."""
    return CorruptExtent("not a readable extent", object=key, column=column, reason=reason_of(error))
