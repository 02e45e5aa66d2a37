"""Describe to the JVM which bytes of which files are the columns of a split, so that it reads them without Python.

What is described are blocks of which all rows are wanted, in extents in a folder of this machine, whose columns are
Arrow buffers of the very types that Spark asks for: ``StoredColumns.java`` verifies, unpacks and lends them. Of any
other split nothing is described, and Python reads it; so it does where the JVM cannot, which has the same split.

The description is JSON behind a mark, at the end of the split's pickle, where a JVM finds it that does not know what
pickles are. It does not read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import orjson
import pyarrow as pa

from tidelake.format import ArrowPlace, TellsArrowPlaces
from tidelake.model.schema import DELETED_COLUMN, SEQ_COLUMN, Column
from tidelake.model.snapshot import Extent
from tidelake.pruning.plan import Block, Question, ScanPlan
from tidelake.scan.footers import Footers

MARK = b"tidelake\0stored\0"
CODECS = (None, "zstd")  # that a JVM with Spark unpacks
KINDS = {"int": "int", "long": "long", "timestamp": "long", "real": "double", "bool": "bool", "string": "text"}
_COUNTED = "count"  # numbers that are not stored


def marked(description: bytes) -> bytes:
    """Return what is put at the end of a split, be it that nothing is described."""
    return MARK + struct.pack("<i", len(description)) + description


def described(store: str, schema: pa.Schema) -> Callable[[ScanPlan, Footers], bytes]:
    """Return what describes splits whose objects are in a store, for a scan with Spark's schema; nothing is empty."""
    parts = urlsplit(store)
    root = Path(url2pathname(parts.path)) if parts.scheme == "file" and not parts.netloc else None

    def describe(split: ScanPlan, footers: Footers) -> bytes:
        kinds = None if root is None else _kinds(split, schema)
        if root is None or kinds is None:
            return b""
        extents = []
        for task in split.tasks:
            reader: Any = footers.open(task.extent)
            if not hasattr(reader, "arrow_places"):
                return b""
            columns = _Columns(reader, task.extent, split.question, kinds)
            blocks = [columns.block(block) for block in task.blocks or ()]
            if any(block is None for block in blocks):
                return b""
            extents.append({"file": str(root / task.extent.key), "codec": columns.codec, "blocks": blocks})
        return orjson.dumps({"kinds": kinds, "extents": extents})

    return describe


def _kinds(split: ScanPlan, schema: pa.Schema) -> list[str] | None:
    """Return how the JVM reads each column that is asked for; None if it cannot."""
    question = split.question
    is_plain = question.where is None and question.limit is None and question.ordered_by is None
    if not is_plain or question.computed or question.counted is not None or split.hot or split.snapshot.is_keyed:
        return None
    kinds = [_kind(question.schema[name], field) for name, field in zip(question.columns, schema, strict=True)]
    return None if None in kinds else [kind for kind in kinds if kind is not None]


def _kind(column: Column, field: pa.Field) -> str | None:
    if column.name == SEQ_COLUMN:
        return _COUNTED
    is_same = column.type.logical is None and column.type.arrow == field.type and column.name != DELETED_COLUMN
    return KINDS.get(column.type.kind) if is_same else None


class _Columns:
    """What is wanted of one extent."""

    def __init__(self, reader: TellsArrowPlaces, extent: Extent, question: Question, kinds: Sequence[str]) -> None:
        self.reader, self.extent, self.question, self.kinds = reader, extent, question, kinds
        self.written = reader.metadata().schema  # type: ignore[attr-defined]
        self.stored = [name for name in question.columns if name in self.written]
        self.codec: str | None = None

    def block(self, block: Block) -> dict[str, Any] | None:
        """Describe a block; None if its rows are not exactly what is stored."""
        if block.dead is not None:
            return None
        places = self.reader.arrow_places(block.number, self.stored)
        if places is None:
            return None
        by_name = dict(zip(self.stored, places, strict=True))
        columns = [
            self._column(name, by_name.get(name), kind, block)
            for name, kind in zip(self.question.columns, self.kinds, strict=True)
        ]
        return None if None in columns else {"rows": block.stats.rows, "columns": columns}

    def _column(self, name: str, place: ArrowPlace | None, kind: str, block: Block) -> dict[str, Any] | None:
        rows = block.stats.rows
        if kind == _COUNTED:
            first = self.extent.first_seq
            return None if place is not None or first is None else {"first": first + block.first_row}
        nulls = rows if place is None else place.nulls
        if nulls and any(other in self.written for other, _ in self.question.alternatives.get(name, ())):
            return None  # what is null here may lie elsewhere in the row
        if place is None:
            return {"nulls": rows}
        if self.written[name].type != self.question.schema[name].type or place.codec not in CODECS:
            return None
        self.codec = place.codec
        found: dict[str, Any] = {
            "at": place.piece.offset, "len": place.piece.length, "sum": place.piece.checksum, "nulls": nulls,
            "bufs": place.buffers,
        }  # fmt: skip
        return found if place.width is None else {**found, "width": place.width}
