"""Formats of extents, behind one protocol: see ``segment`` for what a format is, ``tlm`` and ``parquet`` for two."""

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

__all__ = [
    "BlockInfo",
    "ExtentMetadata",
    "ExtentReader",
    "ExtentWriteResult",
    "ExtentWriter",
    "PieceInfo",
    "SegmentFormat",
    "WriteOptions",
]
