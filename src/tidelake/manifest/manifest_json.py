"""Read and write ``manifest.json``, the list of a scope's cold segments, in its exact shape; pure, both ways.

::

    {"table_id": "ns.table", "user_id": "alice" | null, "version": 2, "created_at": ms, "updated_at": ms,
     "segments": [{"min_seq", "max_seq", "row_count", "size_bytes", "created_at", "id", "path", "column_stats":
                   {"1": {"min": {"Int64": "3"}, "max": …, "null_count": 0}}, "schema_version": 1, "status"}],
     "last_sequence_number": 0, "files": null, "vector_indexes": {},
     "_tide": {"sequence", "snapshot", "table": {}, "parts": [{"path", "level", "segments", "checksum"}],
               "extents": {path: id}, "checksum"}}

Fields stand in this order. ``_tide`` is ours and stands beside the others: readers that do not know it lose nothing
but segments that are in sealed parts, see ``parts``. Its checksum is over everything else in canonical form (sorted
keys, no white space). A file without ``_tide`` was written by somebody else. What is torn, of another type or out of
its range is CorruptError that says what and where. It does not read or write files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import orjson
import xxhash

from tidelake.errors import CorruptError
from tidelake.manifest import scalars
from tidelake.manifest.scalars import Typed
from tidelake.objects import unfit_reason

Json: TypeAlias = Any
Status: TypeAlias = Literal["in_progress", "committed", "tombstone"]
Wanted = TypeVar("Wanted")

MANIFEST_NAME = "manifest.json"
MAX_BYTES = 64 << 20  # of one document: a tail is some tens of kilobytes, another's whole list some megabytes
MAX_INT = 2**63 - 1
MAX_LEVEL = 8  # of parts of parts: more segments than there are bytes in the world
STATUSES: tuple[str, ...] = get_args(Status)
OWN = "_tide"


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What is known of one column of a segment; None is unknown, or that all values are null."""

    min: Typed | None = None
    max: Typed | None = None
    null_count: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """One Parquet file of a scope, as its manifest lists it; columns are named by their ids."""

    min_seq: int
    max_seq: int
    row_count: int
    size_bytes: int
    created_at: int  # milliseconds since 1970, as all times here
    id: str
    path: str  # from the scope's folder on
    column_stats: Mapping[int, ColumnBounds] = field(default_factory=dict)
    schema_version: int = 1
    status: Status = "committed"


@dataclass(frozen=True, slots=True)
class PartRef:
    """A sealed part: a file beside the manifest that lists older segments, or, from level 1 on, older parts."""

    path: str
    level: int
    segments: int  # in it and in all below it
    checksum: str  # of its bytes


@dataclass(frozen=True, slots=True)
class Notes:
    """What we note beside the fields that others know."""

    sequence: int  # the snapshot at which the list was right
    snapshot: str  # its id, which no other lineage of the catalog has
    parts: tuple[PartRef, ...] = ()  # the oldest first; all are older than what ``segments`` lists
    extents: Mapping[str, str] = field(default_factory=dict)  # the catalog's ids of the segments listed here, by path
    table: Mapping[str, Json] = field(default_factory=dict)  # what its table was told, should its catalog be lost


@dataclass(frozen=True, slots=True)
class ScopeManifest:
    """The document itself: a scope's segments, of which the older ones may be in sealed parts."""

    table_id: str
    user_id: str | None
    version: int
    created_at: int
    updated_at: int
    segments: tuple[Segment, ...] = ()
    last_sequence_number: int = 0
    files: Mapping[str, int] | None = None
    vector_indexes: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    notes: Notes | None = None
    others: Mapping[str, Json] = field(default_factory=dict)  # fields that are not known here, carried along


@dataclass(frozen=True, slots=True)
class Part:
    """What a sealed part lists: segments with the catalog's ids, or further parts."""

    segments: tuple[Segment, ...] = ()
    parts: tuple[PartRef, ...] = ()
    extents: Mapping[str, str] = field(default_factory=dict)


def to_bytes(manifest: ScopeManifest) -> bytes:
    """Return the document as it is stored: indented by two, and with a checksum if it has notes of ours."""
    document = _document(manifest)
    if manifest.notes is not None:
        document[OWN] = {**_notes_to_json(manifest.notes), "checksum": _checksum(document)}
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def from_bytes(data: bytes, where: str) -> ScopeManifest:
    """Read a stored document; ``where`` names it in errors."""
    reader = _Reader(where)
    document = reader.document(data)
    notes = None
    if OWN in document:
        notes = reader.notes(document[OWN], OWN)
        summed = {name: value for name, value in document[OWN].items() if name != "checksum"}
        if reader.checksum({**document, OWN: summed}) != document[OWN]["checksum"]:
            raise reader.wrong(f"{OWN}.checksum", "it is not that of the rest: the file is torn or was changed")
    known = ("table_id", "user_id", "version", "created_at", "updated_at", "segments", "last_sequence_number")
    reader.require(document, known, "")
    segments = reader.segments(document["segments"], "segments")
    return ScopeManifest(
        table_id=reader.text(document["table_id"], "table_id"),
        user_id=None if document["user_id"] is None else reader.text(document["user_id"], "user_id"),
        version=reader.whole(document["version"], "version"),
        created_at=reader.whole(document["created_at"], "created_at", least=-MAX_INT),
        updated_at=reader.whole(document["updated_at"], "updated_at", least=-MAX_INT),
        segments=segments,
        last_sequence_number=reader.whole(document["last_sequence_number"], "last_sequence_number"),
        files=reader.files(document.get("files"), "files"),
        vector_indexes=reader.vector_indexes(document.get("vector_indexes", {}), "vector_indexes"),
        notes=notes,
        others={k: v for k, v in document.items() if k not in (*known, "files", "vector_indexes", OWN)},
    )


def part_to_bytes(part: Part) -> bytes:
    """Return a sealed part as it is stored."""
    if part.parts:
        return orjson.dumps({"parts": [_ref_to_json(each) for each in part.parts]}, option=orjson.OPT_INDENT_2)
    shape = {"segments": [segment_to_json(each) for each in part.segments], "extents": dict(part.extents)}
    return orjson.dumps(shape, option=orjson.OPT_INDENT_2)


def part_from_bytes(data: bytes, ref: PartRef, where: str) -> Part:
    """Read a sealed part, and check that it is the one that was meant."""
    reader = _Reader(where)
    if checksum_of(data) != ref.checksum:
        raise reader.wrong("", "its bytes are not those that were sealed")
    document = reader.document(data)
    if ref.level:
        reader.require(document, ("parts",), "")
        parts = reader.parts(document["parts"], "parts")
        found, below = Part(parts=parts), {each.level for each in parts}
        if below != {ref.level - 1}:
            raise reader.wrong("parts", f"parts of levels {sorted(below)} below level {ref.level}")
    else:
        reader.require(document, ("segments", "extents"), "")
        found = Part(
            reader.segments(document["segments"], "segments"), extents=reader.ids(document["extents"], "extents")
        )
    if (len(found.segments) or sum(each.segments for each in found.parts)) != ref.segments:
        raise reader.wrong("", f"it does not list {ref.segments} segments")
    return found


def checksum_of(data: bytes) -> str:
    """Checksum bytes as extents do: XXH3, 64 bits, in hex."""
    return xxhash.xxh3_64_hexdigest(data)


def segment_to_json(segment: Segment) -> dict[str, Json]:
    """Return a segment as it is stored."""
    return {
        "min_seq": segment.min_seq,
        "max_seq": segment.max_seq,
        "row_count": segment.row_count,
        "size_bytes": segment.size_bytes,
        "created_at": segment.created_at,
        "id": segment.id,
        "path": segment.path,
        "column_stats": {
            str(column): {
                "min": None if bounds.min is None else scalars.to_json(bounds.min),
                "max": None if bounds.max is None else scalars.to_json(bounds.max),
                "null_count": bounds.null_count,
            }
            for column, bounds in segment.column_stats.items()
        },
        "schema_version": segment.schema_version,
        "status": segment.status,
    }


def segment_from_json(shape: Json, where: str) -> Segment:
    """Read one stored segment; ``where`` names the document in errors."""
    return _Reader(where).segment(shape, "")


def _document(manifest: ScopeManifest) -> dict[str, Json]:
    document: dict[str, Json] = {
        "table_id": manifest.table_id,
        "user_id": manifest.user_id,
        "version": manifest.version,
        "created_at": manifest.created_at,
        "updated_at": manifest.updated_at,
        "segments": [segment_to_json(each) for each in manifest.segments],
        "last_sequence_number": manifest.last_sequence_number,
        "files": None if manifest.files is None else dict(manifest.files),
        "vector_indexes": {name: dict(index) for name, index in manifest.vector_indexes.items()},
        **manifest.others,
    }
    if manifest.notes is not None:
        document[OWN] = _notes_to_json(manifest.notes)
    return document


def _notes_to_json(notes: Notes) -> dict[str, Json]:
    return {
        "sequence": notes.sequence,
        "snapshot": notes.snapshot,
        "table": dict(notes.table),
        "parts": [_ref_to_json(each) for each in notes.parts],
        "extents": dict(notes.extents),
    }


def _ref_to_json(ref: PartRef) -> dict[str, Json]:
    return {"path": ref.path, "level": ref.level, "segments": ref.segments, "checksum": ref.checksum}


def _checksum(document: Mapping[str, Json]) -> str:
    return checksum_of(orjson.dumps(document, option=orjson.OPT_SORT_KEYS))


class _Reader:
    """Read values out of a document, and say which document and which place is wrong."""

    def __init__(self, where: str) -> None:
        self._where = where

    def wrong(self, at: str, reason: str) -> CorruptError:
        return CorruptError("not a manifest", object=self._where, at=at or "/", reason=reason, kind="bad_manifest")

    def document(self, data: bytes) -> Mapping[str, Json]:
        if len(data) > MAX_BYTES:
            raise self.wrong("", f"it has {len(data)} bytes, more than {MAX_BYTES}")
        try:
            document = orjson.loads(data)
        except (orjson.JSONDecodeError, RecursionError) as error:
            raise self.wrong("", f"not JSON: {error}") from None
        return self.mapping(document, "")

    def checksum(self, document: Mapping[str, Json]) -> str:
        try:
            return _checksum(document)
        except TypeError as error:  # nested deeper than can be written
            raise self.wrong("", str(error)) from None

    def mapping(self, value: Json, at: str) -> Mapping[str, Json]:
        return cast("Mapping[str, Json]", self._of(dict, value, at))

    def text(self, value: Json, at: str) -> str:
        if not self._of(str, value, at):
            raise self.wrong(at, "an empty text")
        return cast(str, value)

    def whole(self, value: Json, at: str, *, least: int = 0) -> int:
        if not least <= self._of(int, value, at) <= MAX_INT:
            raise self.wrong(at, f"{value} is out of range")
        return cast(int, value)

    def require(self, value: Mapping[str, Json], names: Sequence[str], at: str) -> None:
        if missing := [name for name in names if name not in value]:
            raise self.wrong(at, f"no field {missing[0]!r}")

    def each(self, value: Json, at: str, read: Callable[[Json, str], Wanted]) -> tuple[Wanted, ...]:
        return tuple(read(item, f"{at}[{place}]") for place, item in enumerate(self._of(list, value, at)))

    def path(self, value: Json, at: str) -> str:
        path = self.text(value, at)
        if reason := unfit_reason(path):
            raise self.wrong(at, f"not a path inside the folder: {reason}")
        return path

    def segments(self, value: Json, at: str) -> tuple[Segment, ...]:
        found = self.each(value, at, self.segment)
        for named in ({each.id for each in found}, {each.path for each in found}):
            if len(named) != len(found):
                raise self.wrong(at, "a segment is listed twice")
        return found

    def segment(self, value: Json, at: str) -> Segment:
        held = self.mapping(value, at)
        dot = f"{at}." if at else ""
        numbers = ("min_seq", "max_seq", "row_count", "size_bytes", "created_at")
        self.require(held, (*numbers, "id", "path"), at)
        low, high = (self.whole(held[name], dot + name, least=-MAX_INT - 1) for name in ("min_seq", "max_seq"))
        if low > high:
            raise self.wrong(f"{dot}min_seq", f"{low} is above max_seq {high}")
        status = held.get("status", "committed")
        if status not in STATUSES:
            raise self.wrong(f"{dot}status", f"not one of {', '.join(STATUSES)}")
        return Segment(
            min_seq=low,
            max_seq=high,
            row_count=self.whole(held["row_count"], f"{dot}row_count"),
            size_bytes=self.whole(held["size_bytes"], f"{dot}size_bytes"),
            created_at=self.whole(held["created_at"], f"{dot}created_at", least=-MAX_INT),
            id=self.text(held["id"], f"{dot}id"),
            path=self.path(held["path"], f"{dot}path"),
            column_stats=self.column_stats(held.get("column_stats", {}), f"{dot}column_stats"),
            schema_version=self.whole(held.get("schema_version", 1), f"{dot}schema_version", least=1),
            status=cast(Status, status),
        )

    def column_stats(self, value: Json, at: str) -> dict[int, ColumnBounds]:
        found = {}
        for name, shape in self.mapping(value, at).items():
            if not (name.isascii() and name.isdigit()) or str(int(name[:20])) != name:
                raise self.wrong(f"{at}.{name[:40]}", "not the id of a column")
            found[int(name)] = self.bounds(shape, f"{at}.{name}")
        return found

    def bounds(self, value: Json, at: str) -> ColumnBounds:
        held = self.mapping(value, at)
        nulls = held.get("null_count")
        return ColumnBounds(
            self.typed(held.get("min"), f"{at}.min"),
            self.typed(held.get("max"), f"{at}.max"),
            None if nulls is None else self.whole(nulls, f"{at}.null_count"),
        )

    def typed(self, value: Json, at: str) -> Typed | None:
        try:
            return None if value is None else scalars.from_json(value)
        except ValueError as error:
            raise self.wrong(at, str(error)) from None

    def files(self, value: Json, at: str) -> Mapping[str, int] | None:
        if value is None:
            return None
        return {name: self.whole(count, f"{at}.{name}") for name, count in self.mapping(value, at).items()}

    def vector_indexes(self, value: Json, at: str) -> Mapping[str, Mapping[str, Json]]:
        return {name: self.mapping(index, f"{at}.{name}") for name, index in self.mapping(value, at).items()}

    def notes(self, value: Json, at: str) -> Notes:
        held = self.mapping(value, at)
        self.require(held, ("sequence", "snapshot", "parts", "extents", "checksum"), at)
        return Notes(
            self.whole(held["sequence"], f"{at}.sequence"),
            self._of(str, held["snapshot"], f"{at}.snapshot"),
            self.parts(held["parts"], f"{at}.parts"),
            self.ids(held["extents"], f"{at}.extents"),
            self.mapping(held.get("table", {}), f"{at}.table"),
        )

    def ids(self, value: Json, at: str) -> Mapping[str, str]:
        return {path: self.text(id, f"{at}.{path}") for path, id in self.mapping(value, at).items()}

    def parts(self, value: Json, at: str) -> tuple[PartRef, ...]:
        return self.each(value, at, self.part)

    def part(self, value: Json, at: str) -> PartRef:
        held = self.mapping(value, at)
        self.require(held, ("path", "level", "segments", "checksum"), at)
        return PartRef(
            self.path(held["path"], f"{at}.path"),
            self._at_most(MAX_LEVEL, held["level"], f"{at}.level"),
            self.whole(held["segments"], f"{at}.segments", least=1),
            self.text(held["checksum"], f"{at}.checksum"),
        )

    def _at_most(self, most: int, value: Json, at: str) -> int:
        if self.whole(value, at) > most:
            raise self.wrong(at, f"{value} is above {most}")
        return cast(int, value)

    def _of(self, kind: type[Wanted], value: Json, at: str) -> Wanted:
        if type(value) is not kind:
            raise self.wrong(at, f"expected {_NAMES[kind]}, found {_NAMES.get(type(value), type(value).__name__)}")
        return value


_NAMES: Mapping[type, str] = {
    dict: "an object", list: "a list", str: "a text", int: "a whole number", float: "a number", bool: "true or false",
    type(None): "null",
}  # fmt: skip
