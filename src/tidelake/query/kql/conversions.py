"""Convert between KQL types: what KQL converts by itself, and what ``tostring`` and its kin do.

A conversion that cannot be made gives null, never an error. It does not bind names.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlglot import exp

from tidelake.query.kql.literals import format_span, parse_span, parse_time
from tidelake.query.kql.values import NOT_CONSTANT, NUMERIC, TEXTUAL, Value, call, cast, literal

_CONVERTERS = {
    "string": "tide_to_string", "long": "tide_to_long", "int": "tide_to_int", "real": "tide_to_real",
    "decimal": "tide_to_real", "bool": "tide_to_bool", "datetime": "tide_to_datetime",
    "timespan": "tide_to_timespan", "dynamic": "tide_to_dynamic", "guid": "tide_to_guid",
}  # fmt: skip
_FREELY = {
    ("int", "long"), ("int", "real"), ("long", "real"), ("int", "decimal"), ("long", "decimal"), ("real", "decimal"),
    ("decimal", "real"), ("long", "int"), ("bool", "long"), ("bool", "int"), ("bool", "real"),
}  # fmt: skip


def implicit(value: Value, kind: str) -> Value | None:
    """Return a value as another type where KQL converts without being asked, or None."""
    if value.type == kind:
        return value
    if value.is_null:
        return literal(None, kind)
    if (value.type, kind) in _FREELY:
        constant = _number(value.constant, kind) if value.is_constant else NOT_CONSTANT
        sql = value.sql if value.is_constant and kind == "long" else cast(value.sql, kind)
        return Value(sql, kind, constant)
    if value.type in TEXTUAL and kind in TEXTUAL:
        return Value(value.sql, kind, value.constant)
    if value.type in ("dynamic", "vector") or kind == "dynamic":
        return convert(value, kind)
    if value.type == "string" and kind in ("datetime", "timespan", "bool") and value.is_constant:
        converted = convert(value, kind)
        return converted if converted.constant is not None else None
    return None


def convert(value: Value, kind: str) -> Value:
    """Return a value as another type, as ``tostring`` and its kin do; null where it cannot be."""
    if value.type == kind:
        return value
    if value.is_constant and kind != "dynamic":
        folded = fold(value.constant, value.type, kind)
        if folded is not NOT_CONSTANT:
            return literal(folded, kind)
    if value.type == "dynamic" and value.is_constant and value.constant is None:
        return literal(None, kind)
    if value.type in NUMERIC and kind in ("real", "decimal"):
        return Value(cast(value.sql, "real"), kind)
    if value.type == "int" and kind == "long":
        return Value(cast(value.sql, kind), kind)
    if value.type in TEXTUAL and kind == "string":
        return Value(value.sql, kind)
    if value.type == "vector":
        as_dynamic = Value(call("tide_vector_to_dynamic", value.sql), "dynamic")
        return as_dynamic if kind == "dynamic" else convert(as_dynamic, kind)
    return Value(call(f"{_CONVERTERS[kind]}_from_{_sort_of(value.type)}", value.sql), kind)


def fold(value: Any, held: str, kind: str) -> Any:
    """Convert a constant, or say that it is better left to the engine."""
    if value is None:
        return None
    rule = _FOLDS.get((_sort_of(held), kind))
    try:
        found = rule(value) if rule else NOT_CONSTANT
        bits = {"int": 31, "long": 63}.get(kind)
        return found if not bits or not isinstance(found, int) or -(2**bits) <= found < 2**bits else None
    except (ValueError, OverflowError, KeyError):
        return None


def _sort_of(kind: str) -> str:
    """Return the name under which engines convert a type: those that look alike in SQL are one."""
    return {"guid": "string", "decimal": "real", "int": "long"}.get(kind, kind)


def _number(value: Any, kind: str) -> Any:
    return value if value is None else float(value) if kind in ("real", "decimal") else int(value)


def _to_long(text: str) -> int | None:
    text = text.strip()
    if text[:2].lower() == "0x":
        return int(text, 16)
    if "_" in text:
        return None
    found = int(float(text)) if any(mark in text for mark in ".eE") else int(text)
    return found if -(2**63) <= found < 2**63 else None


def _to_int(value: Any) -> int | None:
    found = _to_long(value) if isinstance(value, str) else int(value)
    return found if found is not None and -(2**31) <= found < 2**31 else None


def _whole(value: float) -> int | None:
    found = int(value)
    return found if -(2**63) <= found < 2**63 else None


def _to_real(text: str) -> float | None:
    return float(text) if "_" not in text else None


def _to_bool(text: str) -> bool | None:
    known = {"true": True, "false": False}.get(text.strip().lower())
    return known if known is not None else float(text) != 0


_FOLDS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("string", "long"): _to_long,
    ("string", "int"): _to_int,
    ("string", "real"): _to_real,
    ("string", "bool"): _to_bool,
    ("string", "datetime"): parse_time,
    ("string", "timespan"): parse_span,
    ("string", "string"): str,
    ("long", "string"): str,
    ("long", "long"): int,
    ("long", "int"): _to_int,
    ("long", "real"): float,
    ("long", "bool"): bool,
    ("real", "long"): _whole,
    ("real", "int"): _to_int,
    ("bool", "long"): int,
    ("bool", "string"): lambda value: "true" if value else "false",
    ("timespan", "string"): format_span,
    ("timespan", "long"): int,
    ("datetime", "string"): lambda value: iso_text(value),
}


def iso_text(value: datetime) -> str:
    """Write a time as KQL does: seven digits after the seconds, and Z."""
    return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "0Z"


def as_boolean(value: Value) -> exp.Expr:
    return value.sql if value.type == "bool" else convert(value, "bool").sql
