"""Bind a predicate to a schema before anything is read: what cannot be asked is a QueryError.

Literals become values that compare with the column's type: times in any form nanoseconds, a range of them a TimeRange.
It does not read rows, nor answer predicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from tidelake.errors import InvalidInputError, QueryError
from tidelake.logical import stored_test
from tidelake.model.expression import unknown_column
from tidelake.model.predicate import (
    And,
    DynamicPathEquals,
    DynamicPathExists,
    DynamicPathMayHold,
    DynamicPathTest,
    Equals,
    InSet,
    IsNull,
    Leaf,
    Nanoseconds,
    Not,
    Or,
    Predicate,
    Range,
    StartsWith,
    StringContains,
    StringHas,
    StringMatches,
    TimeRange,
    Value,
    VectorTest,
)
from tidelake.model.schema import Column, Schema
from tidelake.model.times import parse_time_ns
from tidelake.model.vectors import Metric

Family: TypeAlias = type[Any]  # int for all numbers, or str, bool, bytes, datetime

_COMPARES_WITH = {"bool": "true or false", "string": "text", "timestamp": "a time, or a number since 1970"}


def check(predicate: Predicate, schema: Schema) -> Predicate:
    """Bind a predicate to a schema, or say what is wrong with it; a range of times becomes a TimeRange."""
    match predicate:
        case And(parts):
            return And(tuple(check(part, schema) for part in parts))
        case Or(parts):
            return Or(tuple(check(part, schema) for part in parts))
        case Not(part):
            return Not(check(part, schema))
        case leaf:
            if leaf.column not in schema:
                raise unknown_column(leaf.column, schema.names)
            return bind(leaf, schema[leaf.column])


def check_vector(metric: Metric, query: Sequence[float], column: Column) -> None:
    """Refuse to measure what is no vector, or a vector of another length."""
    if column.type.kind != "vector":
        raise QueryError(f"{column.name} is {column.type}: {metric} measures vectors", kind="type_mismatch")
    if column.type.dimension != len(query):
        raise QueryError(
            f"{column.name} is {column.type}: {metric} needs as many numbers", got=len(query), kind="vector_length"
        )


def bind(leaf: Leaf, column: Column) -> Leaf:
    """Check one leaf against its column, with literals as the column's type compares them."""
    if (translated := stored_test(leaf, column)) is not None:
        return translated
    kind = column.type.kind
    match leaf:
        case IsNull():
            return leaf
        case Equals() | InSet() | Range() if kind == "vector" or (
            kind == "dynamic" and column.type.logical is not None
        ):
            raise QueryError(f"{column.name} is {column.type} and cannot be compared", kind="type_mismatch")
        case Range() if kind == "dynamic":
            _check_bounds(leaf)
            return leaf
        case Equals() | InSet() | StringHas() | StringContains() | StartsWith() | StringMatches() if (
            kind == "dynamic" and column.type.logical is None
        ):
            return leaf
        case Equals(name, value):
            return Equals(name, _literal(value, column))
        case InSet(name, values):
            return InSet(name, tuple(_literal(value, column) for value in values))
        case Range(name, low, high):
            low, high = (None if bound is None else _literal(bound, column) for bound in (low, high))
            if kind != "timestamp":
                return replace(leaf, low=low, high=high)
            start = None if low is None else int(low) + (not leaf.include_low)
            return TimeRange(name, start, None if high is None else int(high) + leaf.include_high)
        case TimeRange():
            wanted = "timestamp"
        case StringHas() | StringContains() | StartsWith() | StringMatches():
            wanted = "string"
        case VectorTest():
            check_vector(leaf.metric, leaf.query, column)
            return leaf
        case DynamicPathExists() | DynamicPathEquals() | DynamicPathTest() | DynamicPathMayHold():
            wanted = "dynamic"
            if isinstance(leaf, DynamicPathTest):
                _check_bounds(leaf)
    if kind != wanted:
        asked = "a path" if wanted == "dynamic" else "a window of time" if wanted == "timestamp" else "text"
        raise QueryError(f"{column.name} is {column.type}: it cannot be asked for {asked}", kind="type_mismatch")
    return leaf


def _literal(value: Value, column: Column) -> Any:
    """Return a literal as the column's type compares it."""
    if isinstance(value, Decimal) and value.is_finite():
        value = int(value) if value == value.to_integral_value() else float(value)
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = value.isoformat()
    match column.type.kind:
        case "int" | "long" | "real" if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        case "bool" if isinstance(value, bool):
            return value
        case "string" if isinstance(value, str):
            return value
        case "timestamp" if isinstance(value, str | datetime | int | float) and not isinstance(value, bool):
            try:
                return Nanoseconds(parse_time_ns(value))
            except InvalidInputError as error:
                raise QueryError(f"{column.name} is timestamp: {error.message}", kind=error.kind) from None
        case _:
            hint = _COMPARES_WITH.get(column.type.kind, "a number")
            raise QueryError(
                f"{column.name} is {column.type} and cannot be compared with {value!r}: compare it with {hint}",
                kind="type_mismatch",
            )


def _check_bounds(leaf: DynamicPathTest | Range) -> None:
    match leaf.test if isinstance(leaf, DynamicPathTest) else leaf:
        case Range(_, low, high) if low is not None and high is not None and family_of(low) != family_of(high):
            raise QueryError(f"the bounds are of two types: {leaf!r}", kind="type_mismatch")


def family_of(value: Value) -> Family:
    """Return the type that stands for all that a literal compares with."""
    for family in (bool, int, str, bytes, datetime):
        if isinstance(value, family):
            return family
    return int
