"""Turn one entry of a transaction log into bytes and back.

An entry is a JSON object in the shape of timeseries-table-core 0.2.2 (format version 1), without spaces::

    {"version":2,"base_version":1,"timestamp":"2024-01-01T00:00:00.000001Z","actions":[
      {"UpdateTableMeta":{…}},
      {"AddSegment":{"segment_id":"seg-<32 hex>","path":"data/x.parquet","format":"parquet",
        "ts_min":"2024-01-01T00:00:00Z","ts_max":"2024-01-01T23:00:00Z",
        "row_count":240,"file_size":9000,"coverage_path":"_coverage/segments/….roar"}},
      {"RemoveSegment":{"segment_id":"…"}},
      {"UpdateTableCoverage":{"bucket_spec":{"Hours":1},"coverage_path":"_coverage/table/….roar"}}]}

What that shape has no place for stands beside it under ``tide``, which its readers pass over. The entry's own ``tide``
comes first, and first in it the checksum (XXH3, 128 bits) of all bytes after it::

    {"tide":{"sum":"<32 hex>","format":1,"id":"…","table":{…}|null,"snapshot":{…}|null,"upkeep":{…}|null},"version":2,…}

    "snapshot":{"sequence":2,"parent":"…","operation":"append","schema":1,
      "totals":[1,240,9000,0,0,0],"added":[1,240,9000,0,0,0],"removed":[0,0,0,0,0,0],"coverage":["<key>",2]|null,
      "commits":[{"id":"…","key":"…"|null,"rows":240,"extents":1,"offsets":[["<stream>",7]],"parts":[["<key>",3]]}],
      "hot":[{"id":"…","rows":3,"payload":"<base64 Arrow IPC>",…}],"dropped":["<hot batch>"]}

``snapshot`` is what the entry made; counts are extents, their rows and bytes, hot batches, their rows and bytes.
``upkeep`` is an entry that made none; one that pins or unpins a snapshot is of format 2, so that who does not know pins
stops there. An entry without ``tide`` is another program's, and makes a snapshot of its own. In ``UpdateTableMeta``
(see ``metadata``) ``tide`` holds the schema with its column ids and the settings; in ``AddSegment`` blocks, schema
version, level, statistics and paths. An extent's id is its segment's, without the ``seg-`` before 32 hex digits.

It does not read files, nor know what came before an entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, TypeAlias

import orjson
import xxhash

from tidelake.catalog.log.metadata import (
    FORMAT_VERSION,
    MAX_TIME,
    MIN_TIME,
    Body,
    Meta,
    check_meta,
    time_ns,
    time_or_none,
    time_text,
)
from tidelake.catalog.protocol import Garbage, Pin
from tidelake.catalog.work_queue import WorkUnit
from tidelake.errors import CorruptError, InvalidInputError
from tidelake.model import codec
from tidelake.model.schema import Schema
from tidelake.model.snapshot import (
    AddExtent,
    Counts,
    Extent,
    HotBatch,
    Part,
    RecordOffset,
    RemoveExtent,
    UnitedCoverage,
    make_id,
)
from tidelake.objects import check_key, log_commit_key

TIDE_VERSION = 1  # of what we put beside the original
PINS_VERSION = 2  # of an entry or a checkpoint with pins: who does not know them must not expire or checkpoint


@dataclass(frozen=True, slots=True)
class Covered:
    """Where the table's united coverage is, and in which buckets."""

    bucket: Body
    key: str


Change: TypeAlias = Meta | AddExtent | RemoveExtent | Covered


@dataclass(frozen=True, slots=True)
class Done:
    """One commit of an entry: enough to find it again and to repeat its receipt."""

    id: str
    key: str | None
    rows: int
    extents: int
    offsets: tuple[RecordOffset, ...] = ()
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """What an entry says of the snapshot it makes."""

    sequence: int
    parent_id: str | None
    operation: str
    schema_version: int
    totals: Counts
    added: Counts
    removed: Counts
    coverage: UnitedCoverage | None
    commits: tuple[Done, ...] = ()
    hot: tuple[HotBatch, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What an entry changes without making a snapshot."""

    reason: str
    oldest: int | None = None  # snapshots below this sequence are let go
    first_kept: int | None = None  # commits below this sequence are forgotten
    dropped_us: int | None = None
    purged: bool = False
    garbage: tuple[Garbage, ...] = ()
    forgotten: tuple[str, ...] = ()  # garbage that is gone
    units: tuple[Mapping[str, Any], ...] = ()
    closed: tuple[str, ...] = ()  # units that are forgotten
    pinned: tuple[Pin, ...] = ()
    unpinned: tuple[str, ...] = ()  # names of pins


@dataclass(frozen=True, slots=True)
class Named:
    """The name a table was created with."""

    id: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of the log. Without a mark and upkeep it is another program's."""

    version: int
    id: str
    at_us: int
    changes: tuple[Change, ...] = ()
    mark: Mark | None = None
    upkeep: Upkeep | None = None
    table: Named | None = None

    @property
    def is_plain(self) -> bool:
        return self.mark is None and self.upkeep is None


class Unfinished(Exception):
    """Bytes that another program began to write and did not finish; ours appear whole or not at all."""


def encode(entry: Entry) -> bytes:
    """Return an entry's bytes."""
    upkeep = entry.upkeep
    tide = {
        "format": PINS_VERSION if upkeep and (upkeep.pinned or upkeep.unpinned) else TIDE_VERSION,
        "id": entry.id,
        "table": codec.to_json(entry.table),
        "snapshot": None if entry.mark is None else _mark_to_json(entry.mark),
        "upkeep": None if upkeep is None else _upkeep_to_json(upkeep),
    }
    return seal(
        tide,
        version=entry.version,
        base_version=entry.version - 1,
        timestamp=time_text(entry.at_us * 1000),
        actions=[_action_to_json(change) for change in entry.changes],
    )


def decode(data: bytes, version: int) -> Entry:
    """Read an entry's bytes; Unfinished, CorruptError, or InvalidInputError if it is of a newer format."""
    if data.startswith(_HEAD):
        try:
            return from_document(unseal(data), version)
        except CorruptError as error:
            raise _wrong(version, error.facts.get("reason", error.message)) from error
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if _is_cut_short(data):
            raise Unfinished from error
        raise _wrong(version, f"not JSON: {error}") from error
    if not isinstance(document, dict) or document.keys() != _FIELDS:
        raise _wrong(version, "not the fields of a commit")
    return from_document(document, version)


def from_document(document: Body, version: int) -> Entry:
    """Read an entry whose bytes are known to be sound."""
    try:
        if (document["version"], document["base_version"]) != (version, version - 1):
            raise _wrong(version, f"it says version {document['version']} on {document['base_version']}")
        changes = tuple(_action_from_json(action) for action in document["actions"])
        at_us = time_ns(document["timestamp"], "timestamp") // 1000
        tide = document.get("tide")
        if tide is None:
            return Entry(version, _plain_id(version, document), at_us, changes)
        return Entry(
            version,
            str(tide["id"]),
            at_us,
            changes,
            None if tide["snapshot"] is None else _mark_from_json(tide["snapshot"]),
            None if tide["upkeep"] is None else codec.from_json(Upkeep, {**_NO_PINS, **tide["upkeep"]}),
            _read_or_none(Named, tide["table"]),
        )
    except (CorruptError, InvalidInputError) as error:
        if error.kind in ("newer", "bad_commit"):
            raise
        raise _wrong(version, error) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _wrong(version, f"a field is missing or wrong: {error!r}") from error


def unit_to_json(unit: WorkUnit) -> dict[str, Any]:
    """Return a work unit as upkeep holds it."""
    return {each.name: getattr(unit, each.name) for each in fields(unit)}


def unit_from_json(shape: Body) -> WorkUnit:
    """Read what ``unit_to_json`` gave."""
    return WorkUnit(**shape)


def seal(tide: dict[str, Any], **rest: Any) -> bytes:
    """Return a document's bytes, with the checksum of all that follows it at the start."""
    try:
        text = orjson.dumps({"tide": tide, **rest}, default=dict)
    except TypeError as error:
        raise InvalidInputError("cannot be kept as JSON", reason=error, kind="not_json") from error
    body = text[len(_OPENING) :]
    return b"".join((_HEAD, xxhash.xxh3_128_hexdigest(body).encode(), b'",', body))


def unseal(data: bytes) -> dict[str, Any]:
    """Read what ``seal`` gave; CorruptError if it is anything else."""
    start = len(_HEAD) + 34
    body = data[start:]
    found = data[len(_HEAD) : start]
    if not data.startswith(_HEAD) or found != xxhash.xxh3_128_hexdigest(body).encode() + b'",':
        raise CorruptError("the checksum does not fit", kind="bad_document")
    document: dict[str, Any] = orjson.loads(_OPENING + body)
    if document["tide"]["format"] not in (TIDE_VERSION, PINS_VERSION):
        newer = document["tide"]["format"]
        raise InvalidInputError(
            "the log was written by a newer tidelake", format=newer, reads=PINS_VERSION, kind="newer"
        )
    return document


def void(version: int, at_us: int) -> Entry:
    """Return the entry that takes the place of one that was never finished, the same whoever gives it."""
    return Entry(version, make_id(version, 0), at_us, upkeep=Upkeep("void"))


_OPENING = b'{"tide":{'
_HEAD = b'{"tide":{"sum":"'
_COUNTS = attrgetter(*(each.name for each in fields(Counts)))
_FIELDS = {"version", "base_version", "timestamp", "actions"}
_HEX = re.compile(r"[0-9a-f]{32}")
_NO_PINS: dict[str, Any] = {"pinned": (), "unpinned": ()}


def _action_to_json(change: Change) -> dict[str, Any]:
    match change:
        case Meta(body, schema, settings):
            ours = {} if schema is None else {"tide": {"schema": schema.to_json(), "settings": settings}}
            return {"UpdateTableMeta": {**body, **ours}}
        case AddExtent(extent):
            return {"AddSegment": _segment_to_json(extent)}
        case RemoveExtent(extent_id):
            return {"RemoveSegment": {"segment_id": _segment_id(extent_id)}}
        case Covered(bucket, key):
            return {"UpdateTableCoverage": {"bucket_spec": bucket, "coverage_path": key}}


def _action_from_json(action: Body) -> Change:
    [(name, body)] = action.items()
    match name:
        case "UpdateTableMeta":
            return _meta_from_json(body)
        case "AddSegment":
            return AddExtent(_extent_from_json(body))
        case "RemoveSegment":
            return RemoveExtent(_extent_id(body["segment_id"]))
        case "UpdateTableCoverage":
            return Covered(body["bucket_spec"], check_key(body["coverage_path"]))
        case _:
            raise CorruptError("no such action", action=name, kind="bad_document")


def _meta_from_json(body: Body) -> Meta:
    found = body.get("format_version", body.get("protocol_version"))
    if isinstance(found, int) and found > FORMAT_VERSION:
        raise InvalidInputError(
            "the table has a newer format", format_version=found, reads=FORMAT_VERSION, kind="newer"
        )
    plain = {name: held for name, held in body.items() if name != "tide"}
    if (ours := body.get("tide")) is not None:
        return Meta(plain, Schema.from_json(ours["schema"]), ours["settings"])
    return check_meta(Meta(plain))


def _upkeep_to_json(upkeep: Upkeep) -> dict[str, Any]:
    """Return upkeep as an entry holds it; without pins, as those who do not know them read it."""
    return {name: held for name, held in codec.to_json(upkeep).items() if held or name not in _NO_PINS}


def _mark_to_json(mark: Mark) -> dict[str, Any]:
    return {
        "sequence": mark.sequence,
        "parent": mark.parent_id,
        "operation": mark.operation,
        "schema": mark.schema_version,
        "totals": _COUNTS(mark.totals),
        "added": _COUNTS(mark.added),
        "removed": _COUNTS(mark.removed),
        "coverage": mark.coverage and (mark.coverage.key, mark.coverage.as_of),
        "commits": [
            {
                "id": done.id,
                "key": done.key,
                "rows": done.rows,
                "extents": done.extents,
                "offsets": [(offset.stream, offset.batch) for offset in done.offsets],
                **({"parts": [(part.key, part.rows) for part in done.parts]} if done.parts else {}),
            }
            for done in mark.commits
        ],
        "hot": [codec.to_json(batch) for batch in mark.hot],
        "dropped": mark.dropped,
    }


def _mark_from_json(body: Body) -> Mark:
    return Mark(
        sequence=body["sequence"],
        parent_id=body["parent"],
        operation=body["operation"],
        schema_version=body["schema"],
        totals=Counts(*body["totals"]),
        added=Counts(*body["added"]),
        removed=Counts(*body["removed"]),
        coverage=body["coverage"] and UnitedCoverage(*body["coverage"]),
        commits=tuple(
            Done(
                d["id"],
                d["key"],
                d["rows"],
                d["extents"],
                tuple(RecordOffset(*each) for each in d["offsets"]),
                tuple(Part(*each) for each in d.get("parts", ())),
            )
            for d in body["commits"]
        ),
        hot=tuple(codec.from_json(HotBatch, each) for each in body["hot"]),
        dropped=tuple(body["dropped"]),
    )


def _segment_to_json(extent: Extent) -> dict[str, Any]:
    low, high = extent.min_ts_ns, extent.max_ts_ns
    segment: dict[str, Any] = {
        "segment_id": _segment_id(extent.id),
        "path": check_key(extent.key),
        "format": extent.format,
        "ts_min": MIN_TIME if low is None else time_text(low),
        "ts_max": MAX_TIME if high is None else time_text(high),
        "row_count": extent.row_count,
        "file_size": extent.byte_size,
    }
    if extent.coverage_key is not None:
        segment["coverage_path"] = extent.coverage_key
    segment["tide"] = {
        "blocks": extent.block_count,
        "schema": extent.schema_version,
        "level": extent.level,
        "stats": extent.column_stats,
        "paths": extent.present_paths,
    }
    if extent.unpacked_bytes is not None:
        segment["tide"]["unpacked"] = extent.unpacked_bytes
    return segment


def _extent_from_json(body: Body) -> Extent:
    ours = body.get("tide")
    return Extent(
        id=_extent_id(body["segment_id"]),
        key=check_key(body["path"]),
        format=str(body["format"]),
        byte_size=int(body.get("file_size") or 0),
        row_count=int(body["row_count"]),
        block_count=1 if ours is None else int(ours["blocks"]),
        min_ts_ns=time_or_none(body["ts_min"]),
        max_ts_ns=time_or_none(body["ts_max"]),
        schema_version=0 if ours is None else int(ours["schema"]),
        column_stats={} if ours is None else ours["stats"],
        present_paths=() if ours is None else tuple(ours["paths"]),
        level=0 if ours is None else int(ours["level"]),
        coverage_key=None if body.get("coverage_path") is None else check_key(body["coverage_path"]),
        unpacked_bytes=None if ours is None or ours.get("unpacked") is None else int(ours["unpacked"]),
    )


def _segment_id(extent_id: str) -> str:
    segment_id = f"seg-{extent_id}" if _HEX.fullmatch(extent_id) else extent_id
    if _extent_id(segment_id) != extent_id:
        raise InvalidInputError("an extent's id cannot be kept in a log", extent=extent_id, kind="bad_id")
    return segment_id


def _extent_id(segment_id: str) -> str:
    return segment_id[4:] if segment_id[:4] == "seg-" and _HEX.fullmatch(segment_id, 4) else segment_id


def _is_cut_short(data: bytes) -> bool:
    """Return bytes whose end is missing: none, zeros as a crash leaves them, or the start of a JSON object."""
    if _HEAD.startswith(data) or not data.strip(b"\0"):
        return True
    text = data.decode("utf-8", "ignore") if data[:1] == b"{" else ""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return bool(text) and error.pos >= len(text) - 1
    return False


def _plain_id(version: int, document: Body) -> str:
    """Make an id for an entry that has none, from all that it says."""
    said = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    return make_id(version, xxhash.xxh3_128_intdigest(said))


def _read_or_none(kind: type[Any], value: Any) -> Any:
    return None if value is None else codec.from_json(kind, value)


def _wrong(version: int, reason: object) -> CorruptError:
    return CorruptError("a commit file is damaged", file=log_commit_key(version), reason=reason, kind="bad_commit")
