"""Turn documents into columns: a field of the document is a column of the table.

=====================================================  =====================================================
int, long                                              long
double, also beside whole numbers                      real
bool, string, date                                     bool, string, timestamp
ObjectId, UUID, decimal                                string, so that no digit is lost
binary                                                 binary
objects, arrays, all else, and fields of several types  dynamic
=====================================================  =====================================================

What documents of one batch agree on is a column's type there; where a table holds another, its column becomes dynamic,
and keeps what it has. It does not connect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa
from bson import Binary, Decimal128, Int64, ObjectId, json_util
from bson.datetime_ms import DatetimeMS

from tidelake.connectors.protocol import TIME
from tidelake.model.schema import JSON_FIELD, DataType

ID = "_id"
_HEX = frozenset("0123456789abcdef")
_PLAIN: Mapping[type, str] = {
    bool: "bool", int: "long", Int64: "long", float: "real", str: "string", datetime: "timestamp", bytes: "binary",
    ObjectId: "string", UUID: "string", Decimal128: "string",
}  # fmt: skip
_ARROW = {
    "bool": pa.bool_(), "long": pa.int64(), "real": pa.float64(), "string": pa.string(), "timestamp": TIME,
    "binary": pa.binary(),
}  # fmt: skip


def columns_of(documents: Sequence[Mapping[str, Any]]) -> tuple[dict[str, DataType], list[tuple[pa.Field, pa.Array]]]:
    """Return the columns of some documents, and their types."""
    names: dict[str, None] = dict.fromkeys([ID])
    for each in documents:
        names.update(dict.fromkeys(each))
    types, found = {}, []
    for name in names:
        values = [_simple(each.get(name)) for each in documents]
        kind = _kind({type(value) for value in values if value is not None})
        types[name] = DataType.parse(kind)
        if kind == "dynamic":
            texts = [None if value is None else to_json(value) for value in values]
            found.append((pa.field(name, pa.string(), metadata=JSON_FIELD), pa.array(texts, pa.string())))
        else:
            plain = [None if value is None else _PLAINLY.get(type(value), _same)(value) for value in values]
            found.append((pa.field(name, _ARROW[kind]), pa.array(plain, _ARROW[kind])))
    return types, found


def key_of(id: Any) -> str:
    """Return the text that names a document: no two ids have the same, of whatever types they are."""
    if isinstance(id, str):
        return to_json(id) if _may_be_other(id) else id
    if isinstance(id, ObjectId | UUID):
        return str(id)
    return to_json(_simple(id))


def to_json(value: Any) -> str:
    """Write a value as JSON; what JSON has no word for as MongoDB's own extended JSON has it."""
    return orjson.dumps(value, default=_extended, option=orjson.OPT_NON_STR_KEYS).decode()


def _may_be_other(text: str) -> bool:
    """Whether a text could be what another id is written as."""
    if len(text) == 24 and _HEX.issuperset(text):
        return True
    if len(text) == 36 and text.count("-") == 4:
        return True
    return not text or text[0] in '"{[-0123456789' or text in ("true", "false", "null")


def _kind(types: set[type]) -> str:
    kinds = {_PLAIN.get(each, "dynamic") for each in types}
    if len(types) > 1 and kinds == {"string"}:
        return "dynamic" if str in types else "string"
    if kinds == {"long", "real"}:
        return "real"
    return "string" if not kinds else kinds.pop() if len(kinds) == 1 else "dynamic"


def _simple(value: Any) -> Any:
    """Return a value in the types of this module."""
    if isinstance(value, Binary):
        return UUID(bytes=bytes(value)) if value.subtype == 4 and len(value) == 16 else bytes(value)
    if isinstance(value, float) and math.isnan(value):
        return value
    return value


def _same(value: Any) -> Any:
    return value


def _extended(value: Any) -> Any:
    match value:
        case ObjectId() | UUID() | Decimal128():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case Binary() | bytes():
            return orjson.loads(json_util.dumps(Binary(bytes(value))))
        case DatetimeMS():
            return {"$date": int(value)}
    return orjson.loads(json_util.dumps(value))


_PLAINLY: Mapping[type, Callable[[Any], Any]] = {ObjectId: str, UUID: str, Decimal128: str, Int64: int}


def keys_of(ids: Iterable[Any]) -> pa.Array:
    """Return the texts that name documents."""
    return pa.array([key_of(id) for id in ids], pa.string())
