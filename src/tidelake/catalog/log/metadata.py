"""Define what a table is in the words of a transaction log: its index, its columns, and times as text.

::

    {"kind":{"TimeSeries":{"timestamp_column":"ts","entity_columns":["symbol"],"bucket":{"Hours":1},"timezone":"UTC"}},
     "logical_schema":{"columns":[{"name":"ts","data_type":{"Timestamp":{"unit":"Micros","timezone":"UTC"}},
       "nullable":false},…]},
     "created_at":"2024-01-01T00:00:00Z","format_version":1,"entity_identity":{"symbol":"NVDA"}}

- Types: int Int32, long Int64, real Float64, bool Bool, string Utf8, timestamp Timestamp(Micros, UTC), dynamic Binary,
  vector List of Float32. Read besides: Float32 as real, Int96 and every Timestamp as timestamp. The rest: SchemaError.
- The settings ``time``, ``entity``, ``bucket``, ``timezone`` and ``entity_identity`` are the index's. Without ``time``,
  the first timestamp column is it; a table without one is of kind ``"Generic"``. A bucket is seconds, minutes, hours or
  days; one of other units, or none, stands as one second, because the original needs some.
- A time bound that is unknown is year 1 or 9999, and a time that 64 bits of nanoseconds cannot hold is unknown.

It does not know segments, nor what came before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from tidelake.errors import CorruptError, SchemaError
from tidelake.model import codec
from tidelake.model.schema import Column, DataType, Schema

FORMAT_VERSION = 1
MIN_TIME, MAX_TIME = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"  # stand for an unknown bound

Body: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Meta:
    """What a table is from here on: the original's words, and ours if one of our writers said them."""

    body: Body
    schema: Schema | None = None
    settings: Body | None = None


def meta_of(schema: Schema, settings: Body, *, created_us: int, before: Body | None = None) -> Meta:
    """Return what a table is; columns that ``before`` has in a type of its own, such as Float32, keep it."""
    plain = codec.to_json(settings)
    held = _columns_of(before or {})
    body: dict[str, Any] = {
        "kind": _kind_of(schema, plain),
        "logical_schema": {"columns": _columns_to_json(schema, held)},
        "created_at": before["created_at"] if before else time_text(created_us * 1000),
        "format_version": FORMAT_VERSION,
    }
    if isinstance(pinned := plain.get("entity_identity"), dict):
        body["entity_identity"] = pinned
    return Meta(body, schema, plain)


def schema_of(meta: Meta, held: Schema | None) -> Schema:
    """Return the schema that a table has after ``meta``; a column that ``held`` has by name keeps its id."""
    if meta.schema is not None:
        return meta.schema
    index, shapes = _index_of(meta.body), _columns_of(meta.body)
    if index and not shapes:  # the original adopts the columns of the first segment, and until then knows the time's
        shapes = [{"name": index["timestamp_column"], "data_type": _TIMESTAMP, "nullable": False}]
    known = {column.name: column for column in held} if held else {}
    unused = max((column.id for column in known.values()), default=0) + 1
    columns = []
    for shape in shapes:
        column, name = known.get(shape["name"]), str(shape["name"])
        id = column.id if column else unused
        unused += column is None
        columns.append(Column(id, name, _type_of(name, shape["data_type"], column), bool(shape["nullable"])))
    if held and held.columns == tuple(columns):
        return held
    return Schema(tuple(columns), held.version + 1 if held else 1)


def settings_of(meta: Meta, schema: Schema, held: Body | None) -> Body:
    """Return the settings that a table has after ``meta``; what the index does not speak of stays as ``held``."""
    if meta.settings is not None:
        return meta.settings
    index = _index_of(meta.body)
    settings: dict[str, Any] = {"format": "parquet"} if held is None else dict(held)
    if held is None and index is not None:
        settings["coverage"] = "exclusive"
    if index is not None and (held is None or _kind_of(schema, held) != meta.body["kind"]):
        settings |= {"time": index["timestamp_column"], "bucket": bucket_text(index["bucket"])}
        if entities := index.get("entity_columns"):
            settings["entity"] = list(entities)
        if zone := index.get("timezone"):
            settings["timezone"] = zone
    if pinned := meta.body.get("entity_identity"):
        settings["entity_identity"] = dict(pinned)
    return settings


def check_meta(meta: Meta) -> Meta:
    """Return what another program says of a table, if it can be used; a KeyError or the like if it cannot."""
    created_us_of(meta)
    index, columns = _index_of(meta.body), _columns_of(meta.body)
    if index is not None:
        check_type(index["timestamp_column"], str)
        bucket_text(index["bucket"])
    elif not columns:
        raise ValueError("a table without columns")
    for column in columns:
        check_type(column["name"], str)
        check_type(column["nullable"], bool)
        check_type(column["data_type"], str, dict)
    return meta


def created_us_of(meta: Meta) -> int:
    """Return the time at which a table was created."""
    return time_ns(meta.body["created_at"], "created_at") // 1000


def bucket_of(text: object) -> dict[str, int] | None:
    """Read ``1h`` or ``15 minutes`` as the original stores it; None if it has no name for it."""
    if not isinstance(text, str) or not (found := _BUCKET.fullmatch(text)):
        return None
    unit = _UNITS.get(found[2].lower())
    return {unit: int(found[1])} if unit and 0 < int(found[1]) < 2**32 else None


def bucket_text(bucket: Body) -> str:
    """Return a stored bucket as a person writes it."""
    [(unit, count)] = bucket.items()
    return f"{count}{_LETTERS[unit]}"


def check_type(value: object, *kinds: type) -> None:
    """Refuse a value of another type."""
    if type(value) not in kinds:
        raise TypeError(f"{value!r} is of another type")


def time_text(ns: int) -> str:
    """Return nanoseconds since 1970 as RFC 3339, with no more digits than needed, by threes."""
    seconds, fraction = divmod(ns, 10**9)
    whole = (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]
    digits = f".{fraction:09d}" if fraction else ""
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{whole}{digits}Z"


def time_ns(text: str, what: str) -> int:
    """Read RFC 3339 as nanoseconds since 1970; CorruptError if it is none or cannot be held."""
    found = time_or_none(text)
    if found is None:
        raise CorruptError("no such time", field=what, text=text, kind="bad_document")
    return found


def time_or_none(text: str) -> int | None:
    """Read RFC 3339 as nanoseconds since 1970, None if 64 bits do not hold them; CorruptError if it is no time."""
    if not (found := _TIME.fullmatch(text)):
        raise CorruptError("not a time", text=text, kind="bad_document")
    year, *parts = (int(part) for part in found.groups()[:6])
    if not 1677 <= year <= 2262:
        return None
    month, day, hour, minute, second = parts
    try:
        time = datetime(year, month, day, hour, minute, tzinfo=UTC) + timedelta(seconds=second)  # 60 is a leap second
    except ValueError as error:
        raise CorruptError("not a time", text=text, kind="bad_document") from error
    if found[8]:
        ahead = timedelta(hours=int(found[9]), minutes=int(found[10]))
        time += -ahead if found[8] == "+" else ahead
    ns = (time - _EPOCH) // timedelta(seconds=1) * 10**9 + int((found[7] or "0").ljust(9, "0"))
    return ns if -(2**63) <= ns < 2**63 else None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"([+-]?\d{4,6})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_BUCKET = re.compile(r"\s*(\d{1,10})\s*([A-Za-z]+)\s*", re.ASCII)
_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "Seconds"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "Minutes"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "Hours"),
    **dict.fromkeys(("d", "day", "days"), "Days"),
}
_LETTERS = {"Seconds": "s", "Minutes": "m", "Hours": "h", "Days": "d"}
_OTHER_BUCKET = {"Seconds": 1}
_TIMESTAMP = {"Timestamp": {"unit": "Micros", "timezone": "UTC"}}
_TYPES: dict[str, Any] = {
    "int": "Int32",
    "long": "Int64",
    "real": "Float64",
    "bool": "Bool",
    "string": "Utf8",
    "timestamp": _TIMESTAMP,
    "dynamic": "Binary",
    "vector": {"List": {"elements": {"name": "element", "data_type": "Float32", "nullable": False}}},
}
_KINDS = {stored: kind for kind, stored in _TYPES.items() if isinstance(stored, str)}
_KINDS |= {"Float32": "real", "Int96": "timestamp"}


def _kind_of(schema: Schema, settings: Body) -> Any:
    time = settings.get("time") or next((c.name for c in schema if c.type.kind == "timestamp"), None)
    if time is None:
        return "Generic"
    entity = settings.get("entity") or []
    index = {
        "timestamp_column": time,
        "entity_columns": [entity] if isinstance(entity, str) else list(entity),
        "bucket": bucket_of(settings.get("bucket")) or _OTHER_BUCKET,
    }
    if isinstance(zone := settings.get("timezone"), str):
        index["timezone"] = zone
    return {"TimeSeries": index}


def _index_of(body: Body) -> Body | None:
    kind = body["kind"]
    return None if kind == "Generic" else kind["TimeSeries"]


def _columns_of(body: Body) -> Sequence[Body]:
    schema = body.get("logical_schema")
    return () if schema is None else schema["columns"]


def _columns_to_json(schema: Schema, held: Iterable[Body]) -> list[Body]:
    before = {shape["name"]: shape for shape in held}
    return [_column_to_json(column, before.get(column.name)) for column in schema]


def _column_to_json(column: Column, before: Body | None) -> Body:
    if before and before["nullable"] == column.nullable and _kind_or_none(before["data_type"]) == column.type.kind:
        return before
    return {"name": column.name, "data_type": _TYPES[column.type.kind], "nullable": column.nullable}


def _type_of(name: str, stored: Any, held: Column | None) -> DataType:
    if held and stored == _TYPES[held.type.kind]:
        return held.type
    kind = _kind_or_none(stored)
    if kind is None:
        told = stored if isinstance(stored, str) else next(iter(stored), stored)
        raise SchemaError("a column has a type that is not ours", column=name, type=told, kind="unsupported_type")
    return DataType.parse(kind)


def _kind_or_none(stored: Any) -> str | None:
    if isinstance(stored, dict):
        return "timestamp" if "Timestamp" in stored else None
    return _KINDS.get(stored)
