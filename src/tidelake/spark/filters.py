"""Translate Spark's pushed filters into predicates.

A filter that a predicate says exactly is Spark's no more; one that a predicate only bounds (a text's end) prunes and
stays Spark's too; any other stays Spark's. Spark pushes an AND of simple comparisons, each as one filter. It does not
evaluate anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, cast

from tidelake.errors import TidelakeError
from tidelake.model.predicate import (
    Equals,
    InSet,
    IsNull,
    Not,
    Predicate,
    Range,
    StartsWith,
    StringContains,
    TimeRange,
    time_ns,
)
from tidelake.model.schema import Schema
from tidelake.scan.binding import check
from tidelake.spark.lines import pushed as d
from tidelake.spark.types import spark_names

HANDED_DIGITS = 28


def translate(filters: Iterable[d.Filter], schema: Schema) -> tuple[list[Predicate], list[d.Filter]]:
    """Return the predicates that all rows must satisfy, and the filters that Spark must still apply."""
    wanted: list[Predicate] = []
    left: list[d.Filter] = []
    own = spark_names(schema)
    for each in filters:
        predicate, is_exact = _translated(_owned(each, own), schema)
        if predicate is None or not _holds(predicate, schema):
            left.append(each)
            continue
        wanted.append(predicate)
        if not is_exact:
            left.append(each)
    return wanted, left


def _owned(each: d.Filter, own: Mapping[str, str]) -> d.Filter:
    """Return a filter in the table's own names."""
    if isinstance(each, d.Not):
        return d.Not(_owned(each.child, own))
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    if not attribute or own.get(attribute[0], attribute[0]) == attribute[0]:
        return each
    changed: Any = each
    return cast(d.Filter, replace(changed, attribute=(own[attribute[0]], *attribute[1:])))


def _holds(predicate: Predicate, schema: Schema) -> bool:
    """Return whether a predicate can be asked of this table."""
    try:
        check(predicate, schema)
    except TidelakeError:
        return False
    return True


def _translated(each: d.Filter, schema: Schema) -> tuple[Predicate | None, bool]:
    match each:
        case d.Not(child):
            inner, is_exact = _translated(child, schema)
            if inner is None or not is_exact or _has_null(child):
                return None, False
            return Not(inner), True
        case d.IsNull(attribute):
            return (IsNull(attribute[0]), True) if _column(attribute, schema) else (None, False)
        case d.IsNotNull(attribute):
            return (Not(IsNull(attribute[0])), True) if _column(attribute, schema) else (None, False)
        case d.StringEndsWith(attribute, text) if _column(attribute, schema) == "string" and text:
            return StringContains(attribute[0], text, case_sensitive=True), False
        case d.StringStartsWith(attribute, text) if _column(attribute, schema) == "string":
            return StartsWith(attribute[0], text, case_sensitive=True), True
        case d.StringContains(attribute, text) if _column(attribute, schema) == "string":
            return StringContains(attribute[0], text, case_sensitive=True), True
        case d.In(attribute, values):
            kept = [value for value in values if value is not None]
            found = [_equals(attribute, value, schema) for value in kept]
            if not kept or any(one is None for one in found):
                return None, False
            return InSet(attribute[0], tuple(kept)), True
        case d.EqualNullSafe(attribute, None):
            return (IsNull(attribute[0]), True) if _column(attribute, schema) else (None, False)
        case d.EqualTo(attribute, value):
            return _equals(attribute, value, schema), True
        case d.EqualNullSafe(attribute, value):
            equals = _equals(attribute, value, schema)
            return (None, False) if equals is None else (equals & Not(IsNull(attribute[0])), False)
        case d.GreaterThan(attribute, value):
            return _range(attribute, schema, low=value, included=False), True
        case d.GreaterThanOrEqual(attribute, value):
            return _range(attribute, schema, low=value), True
        case d.LessThan(attribute, value):
            return _range(attribute, schema, high=value, included=False), True
        case d.LessThanOrEqual(attribute, value):
            return _range(attribute, schema, high=value), True
        case _:
            return None, False


def _column(attribute: tuple[str, ...], schema: Schema) -> str | None:
    """Return the kind of the column that is asked about; None for a field inside one, or one that is not there."""
    if len(attribute) != 1 or attribute[0] not in schema:
        return None
    kind = schema[attribute[0]].type
    return kind.kind if kind.logical is None else kind.logical.kind


def _equals(attribute: tuple[str, ...], value: Any, schema: Schema) -> Predicate | None:
    return Equals(attribute[0], value) if _is_comparable(attribute, value, schema) else None


def _range(
    attribute: tuple[str, ...], schema: Schema, *, low: Any = None, high: Any = None, included: bool = True
) -> Predicate | None:
    bound = high if low is None else low
    kind = _column(attribute, schema)
    if not _is_comparable(attribute, bound, schema) or kind == "bool":
        return None
    if kind in ("timestamp", "timestamp_ntz"):
        step = 1000  # times are whole microseconds
        if low is not None:
            return TimeRange(attribute[0], time_ns(low) + (0 if included else step), None)
        return TimeRange(attribute[0], None, time_ns(high) + (step if included else 0))
    if low is not None:
        return Range(attribute[0], low=low, include_low=included)
    return Range(attribute[0], high=high, include_high=included)


def _is_comparable(attribute: tuple[str, ...], value: Any, schema: Schema) -> bool:
    match _column(attribute, schema):
        case "int" | "long":
            return type(value) is int
        case "real":
            return type(value) in (int, float)
        case "bool":
            return type(value) is bool
        case "string":
            return type(value) is str
        case "timestamp":
            return isinstance(value, datetime) and value.tzinfo is not None
        case "date":
            return type(value) is date
        case "timestamp_ntz":
            return isinstance(value, datetime) and value.tzinfo is None
        case "decimal":
            # Spark's own Python rounds what it hands over to so many digits.
            return type(value) is Decimal and len(value.as_tuple().digits) < HANDED_DIGITS
        case _:
            return False


def _has_null(each: d.Filter) -> bool:
    return isinstance(each, d.In) and any(value is None for value in each.value)
