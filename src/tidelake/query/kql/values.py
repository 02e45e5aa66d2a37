"""Hold what a bound expression is: SQL, a KQL type, and the value itself where it is known.

KQL's types are bool, int, long, real, decimal, string, datetime, timespan, guid and dynamic; a table's vector stays a
vector. A timespan is a BIGINT of ticks of 100 nanoseconds; a decimal is a double; a guid is text. It does not bind
names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlglot import exp

from tidelake.model.schema import DataType
from tidelake.query.kql import syntax
from tidelake.query.kql.literals import format_span

MAX_CONSTANT = 1_000_000  # letters of a text that is known before the query runs
NOT_CONSTANT: Any = object()
NUMERIC = ("int", "long", "real", "decimal")
TEXTUAL = ("string", "guid")

_SQL_TYPES = {
    "bool": exp.DataType.Type.BOOLEAN,
    "int": exp.DataType.Type.INT,
    "long": exp.DataType.Type.BIGINT,
    "real": exp.DataType.Type.DOUBLE,
    "decimal": exp.DataType.Type.DOUBLE,
    "string": exp.DataType.Type.TEXT,
    "guid": exp.DataType.Type.TEXT,
    "datetime": exp.DataType.Type.TIMESTAMPTZ,
    "timespan": exp.DataType.Type.BIGINT,
}


@dataclass(frozen=True, slots=True)
class Value:
    """An expression in SQL with its KQL type; ``constant`` is its value where that is known."""

    sql: exp.Expr
    type: str
    constant: Any = NOT_CONSTANT

    @property
    def is_constant(self) -> bool:
        return self.constant is not NOT_CONSTANT

    @property
    def is_null(self) -> bool:
        return self.constant is None


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its KQL name; ``key`` is its name in SQL, where case does not tell names apart."""

    name: str
    type: str
    key: str
    conflict: str = "keep_source"  # of a bag that is unpacked: what becomes of a key that is a column's name


def type_of(kind: DataType) -> str:
    """Return the KQL type of a table's column: dates and wall clocks are times, bytes and nested values dynamic."""
    if kind.logical is not None and kind.logical.kind == "decimal":
        return "decimal"
    if kind.logical is not None and kind.kind != "dynamic":
        return "datetime"
    return "datetime" if kind.kind == "timestamp" else kind.kind


def call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Call a portable function."""
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def cast(sql: exp.Expr, kind: str) -> exp.Expr:
    """Cast between SQL types; what cannot be cast is an engine's error, so only for casts that always succeed."""
    return exp.Cast(this=sql, to=exp.DataType(this=_SQL_TYPES[kind]))


def literal(value: Any, kind: str) -> Value:
    """Make a constant of a KQL type; a dynamic's value is what JSON says."""
    return Value(_literal_sql(value, kind), kind, value)


def text_literal(text: str) -> exp.Expr:
    return exp.Literal.string(text)


def number(value: int) -> exp.Expr:
    return exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))


def coalesced(sql: exp.Expr, fallback: exp.Expr) -> exp.Expr:
    return exp.Coalesce(this=sql, expressions=[fallback])


def text(value: Value) -> exp.Expr:
    """Return a string's SQL with null as empty, which is what KQL knows."""
    if value.is_constant and value.constant is not None:
        return value.sql
    return coalesced(value.sql, text_literal(""))


def any_of(parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return the condition that one of several holds; of none, none does."""
    return exp.or_(*parts) if len(parts) > 1 else parts[0] if parts else exp.false()


def json_of(value: Any) -> Any:
    """Return a dynamic literal as plain JSON: times and spans within it become text."""
    match value:
        case dict():
            return {key: json_of(inner) for key, inner in value.items()}
        case list():
            return [json_of(inner) for inner in value]
        case syntax.Literal(type="timespan", value=int(ticks)):
            return format_span(ticks)
        case syntax.Literal(value=inner):
            return json_of(inner)
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.%f0Z")
        case _:
            return value


def unreadable(value: Any) -> syntax.Literal | None:
    """Return the first part of a dynamic literal that is not what its type says, if any."""
    match value:
        case dict() | list():
            parts = value.values() if isinstance(value, dict) else value
            return next((found for part in parts if (found := unreadable(part)) is not None), None)
        case syntax.Literal(value=syntax.Unreadable()):
            return value
        case _:
            return None


def at_ticks(ticks: int) -> timedelta:
    """Return ticks as Python's span, which is as fine as a stored time."""
    return timedelta(microseconds=ticks // 10)


def convert_text_limit(value: Value, scope: Any, at: int) -> Value:
    """Refuse a constant text that functions of functions made too long."""
    if isinstance(value.constant, str) and len(value.constant) > MAX_CONSTANT:
        raise scope.error(at, "a constant text grows too long", kind="too_large")
    return value


def renamed(column: Column, name: str) -> Column:
    return replace(column, name=name)


def _literal_sql(value: Any, kind: str) -> exp.Expr:
    if kind == "dynamic":
        text = exp.Null() if value is None else text_literal(json.dumps(json_of(value), separators=(",", ":")))
        return call("tide_parse_json", text if value is not None else cast(text, "string"))
    if value is None:
        return cast(exp.Null(), kind)
    match kind:
        case "string" | "guid":
            return text_literal(str(value))
        case "bool":
            return exp.Boolean(this=bool(value))
        case "datetime":
            return cast(text_literal(value.astimezone(UTC).isoformat(" ", "microseconds")), "datetime")
        case "int" | "long" | "timespan":
            return number(value) if kind != "long" or abs(value) < 2**31 else cast(number(value), "long")
        case _:
            if not math.isfinite(value):
                return cast(text_literal({math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")), kind)
            return cast(exp.Literal.string(repr(float(value))), kind)
