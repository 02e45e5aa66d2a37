"""Read JSON by a type as Spark's ``from_json`` does: strictly, and null where a value is not of its type.

A field of another type is null and its neighbours are kept; an item of another type makes its whole list null. Text
takes any value, as it is written. It does not build values: it gives JSON that an engine reads by the same type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from tidelake.query.sql.time_texts import days_of_text, micros_of_text, wall_micros_of_text

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT = Context(prec=76)


class _Number(str):
    """A number as it is written."""


class _Misfit(Exception):
    """A value is not of its type."""


def json_by_type(text: str, wanted: str) -> str | None:
    """Return the JSON that holds of a text what is of a type; the type is JSON too, see ``sql_formats``."""
    if not text.strip():
        return None
    shape = json.loads(wanted)
    blank = json.dumps(dict.fromkeys(shape["fields"])) if "fields" in shape else None
    try:
        found, _ = _DECODER.raw_decode(text.lstrip())
    except ValueError:
        if "'" in text:  # which Spark takes for a quote
            raise RuntimeError("from_json reads no text in single quotes in process: ask with engine='spark'") from None
        return blank
    if "items" in shape and isinstance(found, dict):
        found = [found]
    if "fields" in shape and isinstance(found, list):
        found = found[0] if found else None
        if found is None:
            return None
    try:
        return json.dumps(_read(found, shape)) if found is not None else blank
    except _Misfit:
        return blank


def _read(value: Any, shape: Mapping[str, Any]) -> Any:
    if value is None:
        return None
    if "fields" in shape:
        if not isinstance(value, dict):
            raise _Misfit
        return {name: _field(value.get(name), kind) for name, kind in shape["fields"].items()}
    if "items" in shape:
        if not isinstance(value, list):
            raise _Misfit
        return [_read(each, shape["items"]) for each in value]
    if "values" in shape:
        if not isinstance(value, dict):
            raise _Misfit
        return {name: _read(each, shape["values"]) for name, each in value.items()}
    return _leaf(value, shape)


def _field(value: Any, shape: Mapping[str, Any]) -> Any:
    try:
        return _read(value, shape)
    except _Misfit:
        return None


def _leaf(value: Any, shape: Mapping[str, Any]) -> Any:
    kind = shape["kind"]
    if kind == "TEXT":
        return _written(value)
    is_text = isinstance(value, str) and not isinstance(value, _Number)
    if kind in _BITS and isinstance(value, _Number) and value.lstrip("-").isdecimal():
        if -(2 ** (_BITS[kind] - 1)) <= int(value) < 2 ** (_BITS[kind] - 1):
            return int(value)
    elif kind in ("DOUBLE", "FLOAT") and isinstance(value, _Number):
        return float(value)
    elif kind in ("DOUBLE", "FLOAT") and is_text and value in ("NaN", "Infinity", "-Infinity", "INF", "-INF", "+INF"):
        return value.replace("INF", "Infinity") if "INF" in value else value
    elif kind == "BOOLEAN" and isinstance(value, bool):
        return value
    elif kind == "DECIMAL" and isinstance(value, str):
        return _decimal(value, shape["precision"], shape["scale"])
    elif kind in ("DATE", "TIMESTAMP", "WALL", "TIME") and is_text:
        return _time(value, kind)
    elif kind == "TIMESTAMP" and isinstance(value, _Number) and value.lstrip("-").isdecimal():
        return (_EPOCH + timedelta(seconds=int(value))).isoformat(sep=" ")
    raise _Misfit


def _time(text: str, kind: str) -> str:
    if kind == "TIME":
        return text
    if kind == "DATE":
        days = days_of_text(text)
        if days is not None:
            return (_EPOCH + timedelta(days=days)).date().isoformat()
        raise _Misfit
    micros = micros_of_text(text) if kind == "TIMESTAMP" else wall_micros_of_text(text)
    if micros is None or (kind == "WALL" and micros_of_text(text) != micros):
        raise _Misfit
    at = _EPOCH + timedelta(microseconds=micros)
    return (at if kind == "TIMESTAMP" else at.replace(tzinfo=None)).isoformat(sep=" ")


def _decimal(text: str, precision: int, scale: int) -> str:
    try:
        found = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    except ArithmeticError:
        raise _Misfit from None
    if (
        not found.is_finite()
        or len(found.as_tuple().digits) > max(precision, scale + 1)
        or abs(found) >= 10 ** (precision - scale)
    ):
        raise _Misfit
    return f"{found:f}"


def _written(value: Any) -> str:
    """Write a value as its text: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return str(value)
    return _as_json(value)


def _as_json(value: Any) -> str:
    match value:
        case _Number():
            return str(value)
        case dict():
            return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_as_json(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_as_json, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=str)
