"""Formats of extents, behind one protocol: see ``segment`` for what a format is, ``tlm`` and ``parquet`` for two."""

from collections.abc import Mapping

from tidelake.errors import CorruptExtent, InvalidInputError, StorageError
from tidelake.format.parquet import ParquetFormat
from tidelake.format.segment import (
    BlockInfo,
    ExtentMetadata,
    ExtentReader,
    ExtentWriter,
    ExtentWriteResult,
    PieceInfo,
    SegmentFormat,
    WriteOptions,
)
from tidelake.format.tlm import TlmFormat
from tidelake.objects import ObjectStore

__all__ = [
    "FORMATS",
    "BlockInfo",
    "ExtentMetadata",
    "ExtentReader",
    "ExtentWriteResult",
    "ExtentWriter",
    "PieceInfo",
    "SegmentFormat",
    "WriteOptions",
    "format_of_object",
    "segment_format",
]

FORMATS: Mapping[str, SegmentFormat] = {format.name: format for format in (TlmFormat(), ParquetFormat())}

_NAMES_BY_MAGIC = {b"KYMA": "tlm", b"PAR1": "parquet"}


def segment_format(name: str) -> SegmentFormat:
    """Find a format by its name."""
    if name not in FORMATS:
        raise InvalidInputError(f"unknown format {name!r}", known=", ".join(FORMATS), kind="unknown_format")
    return FORMATS[name]


def format_of_object(store: ObjectStore, key: str) -> SegmentFormat:
    """Return an object's format by its first four bytes."""
    try:
        magic = bytes(store.get_range(key, 0, 4))
    except StorageError as error:
        if error.kind != "short_read":
            raise
        raise CorruptExtent("no known format", object=key, reason="fewer than four bytes") from error
    if magic not in _NAMES_BY_MAGIC:
        raise CorruptExtent("no known format", object=key, reason=f"it begins with {magic!r}")
    return FORMATS[_NAMES_BY_MAGIC[magic]]
