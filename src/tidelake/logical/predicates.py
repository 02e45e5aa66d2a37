"""Turn a question about the values that a column means into one about the values it stores, with the same answer.

A literal that lies between two stored values (noon for a date, a third for a decimal) equals none of them, and as a
bound becomes the next one. So statistics of stored values prune, and rows are judged as they lie. It does not evaluate.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from tidelake.errors import InvalidInputError, QueryError
from tidelake.logical.values import decimal_text
from tidelake.model.logical_types import Logical
from tidelake.model.predicate import Equals, InSet, IsNull, Leaf, Nanoseconds, Range, TimeRange, Value
from tidelake.model.schema import Column
from tidelake.model.times import parse_time_ns

DAY_NS = 86_400_000_000_000

_EPOCH_DAY = date(1970, 1, 1)
Exact: TypeAlias = int | Fraction  # in stored units, perhaps between two of them


def stored_test(leaf: Leaf, column: Column) -> Leaf | None:
    """Return what a leaf asks of the stored values of a date or a decimal; None if the stored type answers as it is."""
    logical = column.type.logical
    if logical is None or logical.kind not in ("date", "decimal") or isinstance(leaf, IsNull):
        return None
    exact: Callable[[Value], Exact] = lambda value: (  # noqa: E731
        _days(value, column) if logical.kind == "date" else _units(value, column, logical.scale)
    )
    low, high = (-(2**31), 2**31 - 1) if logical.kind == "date" else _limits(logical)
    keep: Callable[[int], Value] = decimal_text if column.type.kind == "string" else int
    match leaf:
        case Equals(name, value):
            return _one_of(name, [exact(value)], low, high, keep)
        case InSet(name, values):
            return _one_of(name, [exact(value) for value in values], low, high, keep)
        case Range(name, least, most):
            first = None if least is None else _from(exact(least), leaf.include_low)
            last = None if most is None else _upto(exact(most), leaf.include_high)
        case TimeRange(name, start_ns, end_ns) if logical.kind == "date":
            first = None if start_ns is None else _from(Fraction(start_ns, DAY_NS), True)
            last = None if end_ns is None else _upto(Fraction(end_ns, DAY_NS), False)
        case _:
            raise QueryError(f"{column.name} is {column.type}: it cannot be asked for text", kind="type_mismatch")
    if (low if first is None else max(first, low)) > (high if last is None else min(last, high)):
        return _never(name, keep)
    return Range(
        name,
        None if first is None else keep(max(first, low)),
        None if last is None else keep(min(last, high)),
    )


def _never(name: str, keep: Callable[[int], Value]) -> Leaf:
    """Ask what is never true, and null of null."""
    return Range(name, keep(1), keep(0))


def _one_of(name: str, values: list[Exact], low: int, high: int, keep: Callable[[int], Value]) -> Leaf:
    whole = sorted({int(value) for value in values if value == int(value) and low <= value <= high})
    if not whole:
        return _never(name, keep)
    return Equals(name, keep(whole[0])) if len(whole) == 1 else InSet(name, tuple(map(keep, whole)))


def _from(bound: Exact, included: bool) -> int:
    """Return the first whole number from a bound on."""
    whole = -(-bound // 1)
    return int(whole) + (1 if whole == bound and not included else 0)


def _upto(bound: Exact, included: bool) -> int:
    whole = bound // 1
    return int(whole) - (1 if whole == bound and not included else 0)


def _limits(kind: Logical) -> tuple[int, int]:
    return -(10**kind.precision - 1), 10**kind.precision - 1


def _days(value: Value, column: Column) -> Exact:
    if isinstance(value, date) and not isinstance(value, datetime):
        return (value - _EPOCH_DAY) // timedelta(days=1)
    if isinstance(value, datetime | str | Nanoseconds):
        try:
            return Fraction(parse_time_ns(value), DAY_NS)
        except InvalidInputError as error:
            raise QueryError(f"{column.name} is date: {error.message}", kind=error.kind) from None
    raise _mismatch(value, column, "a date, such as '2026-01-31'")


def _units(value: Value, column: Column, scale: int) -> Exact:
    try:
        match value:
            case bool():
                raise _mismatch(value, column, "a number")
            case int() | Decimal():
                return Fraction(value) * Fraction(10**scale)
            case float() | str():
                return Fraction(str(value)) * Fraction(10**scale)
    except (ValueError, OverflowError):
        pass
    raise _mismatch(value, column, "a number")


def _mismatch(value: Value, column: Column, hint: str) -> QueryError:
    return QueryError(
        f"{column.name} is {column.type} and cannot be compared with {value!r}: compare it with {hint}",
        kind="type_mismatch",
    )
