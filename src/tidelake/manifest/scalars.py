"""Name a bound with its type, as ``manifest.json`` holds it: an object with one field, the type's name.

::

    {"Int64": "315199164994551810"}      64-bit integers are texts: JSON numbers lose digits in some readers
    {"Int32": 5}  {"Float64": 1.5}  {"Utf8": "alice"}  {"Boolean": true}  {"Date32": 20000}  {"Binary": [1, 2]}
    {"TimestampMicrosecond": {"value": 1779216537052000, "timezone": "UTC"}}

A bound of a type that is not known here is carried along and bounds nothing. It does not compare bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelake.model.schema import DataType

Json: TypeAlias = Any
Held: TypeAlias = bool | int | float | str | bytes | None  # None: of a type that is not known here

_WHOLE: Mapping[str, tuple[int, int]] = {
    **{f"Int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    "Date32": (-(2**31), 2**31 - 1),
}
_AS_TEXT = ("Int64", "UInt64")
_TEXTS = ("Utf8", "LargeUtf8")
_REALS = ("Float64", "Float32")
_TIMES = {
    "TimestampSecond": 10**9,
    "TimestampMillisecond": 10**6,
    "TimestampMicrosecond": 10**3,
    "TimestampNanosecond": 1,
}
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_DIGITS = re.compile(r"-?(?:0|[1-9][0-9]{0,19})")
_INT64 = _WHOLE["Int64"]

_KINDS: Mapping[str, tuple[str, type | None]] = {
    "int": ("Int32", int),
    "long": ("Int64", int),
    "real": ("Float64", float),
    "bool": ("Boolean", bool),
    "string": ("Utf8", str),
}


@dataclass(frozen=True, slots=True)
class Typed:
    """A bound and the name of its type. A time is nanoseconds since 1970 in ``value``, whatever its unit."""

    kind: str
    value: Held
    shape: Json = None  # as it was read, where its value alone does not tell


def typed_bound(bound: Any, column: DataType) -> Typed | None:
    """Return a statistic's bound of a column under its type; None if there is none, or none that JSON can hold."""
    if isinstance(bound, float) and not math.isfinite(bound):
        return None
    logical = column.logical.kind if column.logical is not None else None
    if logical == "date" and type(bound) is int:
        return Typed("Date32", bound)
    if column.kind == "timestamp" and type(bound) is int:
        zone = None if logical == "timestamp_ntz" else "UTC"
        return Typed("TimestampMicrosecond", bound // 1000 * 1000, {"value": bound // 1000, "timezone": zone})
    kind, fitting = _KINDS.get(column.kind, ("", None))
    value: Held = float(bound) if fitting is float and type(bound) is int else bound
    is_fit = type(value) is fitting
    return Typed(kind, value) if is_fit else None


def to_json(typed: Typed) -> dict[str, Json]:
    """Return a bound as it is stored."""
    if typed.shape is not None:
        return {typed.kind: typed.shape}
    if typed.kind in _AS_TEXT:
        return {typed.kind: str(typed.value)}
    if isinstance(typed.value, bytes):
        return {typed.kind: list(typed.value)}
    return {typed.kind: typed.value}


def from_json(shape: Json) -> Typed:
    """Read a stored bound; ValueError says what is wrong with it."""
    if not isinstance(shape, Mapping) or len(shape) != 1:
        raise ValueError("a typed value is an object with one field, its type")
    ((kind, value),) = shape.items()
    if not _KIND.fullmatch(kind):
        raise ValueError(f"not the name of a type: {kind[:40]!r}")
    if kind in _WHOLE:
        return Typed(kind, _whole(kind, value))
    if kind in _TIMES:
        return Typed(kind, _time_ns(kind, value), dict(value))
    if kind in _TEXTS and isinstance(value, str):
        return Typed(kind, value)
    if kind in _REALS and type(value) in (int, float):
        return Typed(kind, float(value))
    if kind == "Boolean" and isinstance(value, bool):
        return Typed(kind, value)
    if kind == "Binary" and isinstance(value, list) and all(type(each) is int and 0 <= each < 256 for each in value):
        return Typed(kind, bytes(value))
    if kind in (*_TEXTS, *_REALS, "Boolean", "Binary"):
        raise ValueError(f"a {kind} cannot be a {type(value).__name__}")
    return Typed(kind, None, value)


def _whole(kind: str, value: Json) -> int:
    if kind in _AS_TEXT:
        if not isinstance(value, str) or not _DIGITS.fullmatch(value):
            raise ValueError(f"{kind} is a text of digits")
        value = int(value)
    low, high = _WHOLE[kind]
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"not {kind}: {str(value)[:40]}")
    return value


def _time_ns(kind: str, value: Json) -> int | None:
    """Return a time in nanoseconds, or None outside of what they can say."""
    if not isinstance(value, Mapping) or set(value) != {"value", "timezone"}:
        raise ValueError(f"{kind} has a value and a timezone")
    if type(value["value"]) is not int or not isinstance(value["timezone"], str | None):
        raise ValueError(f"{kind} has a whole number and a text or null")
    nanos = value["value"] * _TIMES[kind]
    return nanos if _INT64[0] <= nanos <= _INT64[1] else None
