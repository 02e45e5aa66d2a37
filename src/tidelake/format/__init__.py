"""Formats of extents, behind one protocol: see ``segment`` for it, and ``tlm``, ``tlm3`` and ``parquet``."""

from collections.abc import Mapping

from tidelake.errors import CorruptExtent, InvalidInputError, StorageError
from tidelake.format import parquet, tlm, tlm3
from tidelake.format.segment import (
    ArrowPlace,
    BlockInfo,
    ExtentMetadata,
    ExtentReader,
    ExtentWriter,
    ExtentWriteResult,
    PartInfo,
    PieceInfo,
    SegmentFormat,
    SharedPlaces,
    TellsArrowPlaces,
    TellsPages,
    TellsParts,
    WriteOptions,
)
from tidelake.objects import ObjectStore

__all__ = [
    "FORMATS",
    "ArrowPlace",
    "BlockInfo",
    "ExtentMetadata",
    "ExtentReader",
    "ExtentWriteResult",
    "ExtentWriter",
    "PartInfo",
    "PieceInfo",
    "SegmentFormat",
    "SharedPlaces",
    "TellsArrowPlaces",
    "TellsPages",
    "TellsParts",
    "WriteOptions",
    "format_of_object",
    "segment_format",
]

FORMATS: Mapping[str, SegmentFormat] = {format.name: format for format in (tlm.FORMAT, tlm3.FORMAT, parquet.FORMAT)}

_NAMES_BY_MAGIC = {b"KYMA": "tlm", b"PAR1": "parquet"}
_NAMES_BY_VERSION = {b"KYMA\x03": "tlm3"}
_MAGIC_BYTES = 5


def segment_format(name: str) -> SegmentFormat:
    """Find a format by its name."""
    if name not in FORMATS:
        raise InvalidInputError(f"unknown format {name!r}", known=", ".join(FORMATS), kind="unknown_format")
    return FORMATS[name]


def format_of_object(store: ObjectStore, key: str) -> SegmentFormat:
    """Return an object's format by its first bytes."""
    try:
        magic = bytes(store.get_range(key, 0, _MAGIC_BYTES))
    except StorageError as error:
        if error.kind != "short_read":
            raise
        raise CorruptExtent("no known format", object=key, reason="fewer than five bytes") from error
    name = _NAMES_BY_VERSION.get(magic) or _NAMES_BY_MAGIC.get(magic[:4])
    if name is None:
        raise CorruptExtent("no known format", object=key, reason=f"it begins with {magic!r}")
    return FORMATS[name]
