"""Describe to the JVM which bytes of which files are the columns of a split, so that it reads them without Python.

What is described are blocks of which all rows are wanted, in extents in a folder of this machine, whose columns are of
the very types that Spark asks for: Arrow buffers, which ``StoredColumns.java`` verifies, unpacks and lends, or pages of
the third body, which ``StoredPages.java`` decodes. Of any other split nothing is described, and Python reads it; so it
does where the JVM cannot, which has the same split.

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

from tidelake.format import PieceInfo, TellsArrowPlaces, TellsPages
from tidelake.model.schema import DELETED_COLUMN, SEQ_COLUMN, Column
from tidelake.model.snapshot import Extent
from tidelake.pruning.plan import Block, Question, ScanPlan
from tidelake.scan.footers import Footers

MARK = b"tidelake\0stored\0"
CODECS = (None, "zstd")  # that a JVM with Spark unpacks
KINDS = {"int": "int", "long": "long", "timestamp": "long", "real": "double", "bool": "bool", "string": "text"}
MAX_TEXTS = 1 << 24  # of a dictionary that the JVM reads: there is room made for as many as are told
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
            if hasattr(reader, "arrow_places"):
                columns: _Columns = _Buffers(reader, task.extent, split.question, kinds)
            elif hasattr(reader, "shared_places"):
                columns = _Pages(reader, task.extent, split.question, kinds)
            else:
                return b""
            blocks = [columns.block(block) for block in task.blocks or ()]
            if None in blocks:
                return b""
            extents.append({"file": str(root / task.extent.key), "blocks": blocks, **columns.whole()})
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

    def __init__(self, reader: Any, extent: Extent, question: Question, kinds: Sequence[str]) -> None:
        self.extent, self.question, self.kinds = extent, question, kinds
        self.info = reader.metadata()
        self.written = self.info.schema
        self.stored = [name for name in question.columns if name in self.written]

    def block(self, block: Block) -> dict[str, Any] | None:
        """Describe a block; None if its rows are not exactly what is stored."""
        if block.dead is not None:
            return None
        places = self._places(block)
        if places is None:
            return None
        columns = [
            self._column(name, places.get(name), kind, block)
            for name, kind in zip(self.question.columns, self.kinds, strict=True)
        ]
        return None if None in columns else {"rows": block.stats.rows, "columns": columns}

    def whole(self) -> dict[str, Any]:
        """Describe what all blocks share."""
        raise NotImplementedError

    def _places(self, block: Block) -> dict[str, dict[str, Any]] | None:
        """Describe the stored columns of a block, with how many nulls they have; None if they cannot be read."""
        raise NotImplementedError

    def _column(self, name: str, place: dict[str, Any] | None, kind: str, block: Block) -> dict[str, Any] | None:
        rows = block.stats.rows
        if kind == _COUNTED:
            first = self.extent.first_seq
            return None if place is not None or first is None else {"first": first + block.first_row}
        nulls = rows if place is None else place["nulls"]
        if nulls != 0 and any(other in self.written for other, _ in self.question.alternatives.get(name, ())):
            return None  # what is null here may lie elsewhere in the row
        if place is None:
            return {"nulls": rows}
        return place if self.written[name].type == self.question.schema[name].type else None


class _Buffers(_Columns):
    """Columns that are Arrow buffers."""

    def __init__(self, reader: TellsArrowPlaces, *given: Any) -> None:
        super().__init__(reader, *given)
        self.reader = reader
        self.codec: str | None = None

    def whole(self) -> dict[str, Any]:
        return {"codec": self.codec}

    def _places(self, block: Block) -> dict[str, dict[str, Any]] | None:
        places = self.reader.arrow_places(block.number, self.stored)
        if places is None or any(place.codec not in CODECS for place in places):
            return None
        found = {}
        for name, place in zip(self.stored, places, strict=True):
            self.codec = place.codec
            found[name] = {**_piece(place.piece), "nulls": place.nulls, "bufs": place.buffers}
            if place.width is not None:
                found[name]["width"] = place.width
        return found


class _Pages(_Columns):
    """Columns that are pages, some of which refer to what all blocks share."""

    def __init__(self, reader: TellsPages, *given: Any) -> None:
        super().__init__(reader, *given)
        self.shared = {name: reader.shared_places(name) for name in self.stored}

    def whole(self) -> dict[str, Any]:
        return {"shared": [self._shared(name) if name in self.shared else None for name in self.question.columns]}

    def _places(self, block: Block) -> dict[str, dict[str, Any]] | None:
        counts = (place[1] for each in self.shared.values() for place in each[:3] if place is not None)
        if max(counts, default=0) > MAX_TEXTS:
            return None
        info, found = self.info.blocks[block.number], {}
        for name in self.stored:
            found[name] = {**_piece(info.pieces[name]), "nulls": info.stats.columns[name].nulls}
            if (base := self.shared[name].base) is not None:
                found[name]["base"] = _piece(info.pieces[base])
        return found

    def _shared(self, name: str) -> dict[str, Any] | None:
        told = self.shared[name]._asdict()
        del told["base"]
        return {what: {**_piece(place[0]), "count": place[1]} for what, place in told.items() if place} or None


def _piece(piece: PieceInfo) -> dict[str, Any]:
    return {"at": piece.offset, "len": piece.length, "sum": piece.checksum}
