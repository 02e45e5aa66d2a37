"""Work out the constant parts of a query: literals, times, and intervals added to them.

What it cannot work out exactly is None: the engine will. Times are UTC. It does not know columns.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias

from sqlglot import exp

from tidelake.errors import InvalidInputError
from tidelake.model.times import text_time_ns

Constant: TypeAlias = bool | int | float | Decimal | str | datetime | date

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    "WEEK": timedelta(weeks=1),
    "DAY": timedelta(days=1),
    "HOUR": timedelta(hours=1),
    "MINUTE": timedelta(minutes=1),
    "SECOND": timedelta(seconds=1),
    "MILLISECOND": timedelta(milliseconds=1),
    "MICROSECOND": timedelta(microseconds=1),
}
_TIMES = {exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ}
_REAL = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?|-?Infinity")
_WHOLE = {exp.DType.INT, exp.DType.BIGINT}


def constant_of(node: exp.Expr | None) -> Constant | None:
    """Return the value of an expression without columns, or None if it is not known here."""
    match node:
        case exp.Paren():
            return constant_of(node.this)
        case exp.Literal() if node.is_string:
            return str(node.this)
        case exp.Literal():
            return _number(str(node.this))
        case exp.Boolean():
            return bool(node.this)
        case exp.Neg():
            value = constant_of(node.this)
            return -value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None
        case exp.Cast():
            return _cast(constant_of(node.this), node.to)
        case exp.Date():
            return _date(constant_of(node.this)) if not node.expressions else None
        case exp.TsOrDsToDate():
            return _date(constant_of(node.this))
        case exp.StrToTime() | exp.StrToDate():
            return None
        case exp.Add() | exp.Sub():
            return _shifted(constant_of(node.this), node.expression, -1 if isinstance(node, exp.Sub) else 1)
        case exp.DateAdd() | exp.DateSub() | exp.TsOrDsAdd():
            return _days_later(node)
        case _:
            return None


def time_of(value: Constant) -> datetime | None:
    """Return a constant as a time, as a comparison with a timestamp reads it."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if not isinstance(value, str):
        return None
    try:
        ns = text_time_ns(value)  # engines make no time of a number in quotes
    except InvalidInputError:
        return None
    return _EPOCH + timedelta(microseconds=ns // 1000) if ns % 1000 == 0 else None


def _number(text: str) -> int | Decimal | float | None:
    try:
        if text.isdecimal():
            return int(text)
        return float(text) if "e" in text.lower() else Decimal(text)
    except (ValueError, ArithmeticError):
        return None


def _cast(value: Constant | None, to: exp.DataType) -> Constant | None:
    if value is None:
        return None
    if to.this in _TIMES:
        return time_of(value)
    if to.this is exp.DType.DATE:
        return _date(value)
    if to.this in _WHOLE and isinstance(value, int) and not isinstance(value, bool):
        return value
    if to.this is exp.DType.DOUBLE and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return float(value)
    if to.this is exp.DType.DOUBLE and isinstance(value, str) and _REAL.fullmatch(value):
        return float(value)
    return value if to.this in (exp.DType.TEXT, exp.DType.VARCHAR) and isinstance(value, str) else None


def _date(value: Constant | None) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value.strip()) if isinstance(value, str) else None
    except ValueError:
        return None


def _shifted(start: Constant | None, by: exp.Expr, sign: int) -> Constant | None:
    if not isinstance(start, date):
        return None
    if not isinstance(by, exp.Interval):
        days = constant_of(by)
        whole = type(days) is int and not isinstance(start, datetime)
        return start + sign * timedelta(days=days) if whole and isinstance(days, int) else None
    amount, unit = constant_of(by.this), str(by.args.get("unit") or "").upper().rstrip("S")
    count = _amount(amount)
    if count is None or unit not in _UNITS:
        return _months_later(start, count, unit, sign)
    if not isinstance(start, datetime):
        if unit not in ("DAY", "WEEK"):
            start = datetime(start.year, start.month, start.day, tzinfo=UTC)
        elif count != int(count):
            return None
    return start + sign * count * _UNITS[unit]


def _amount(value: Constant | None) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _months_later(start: date, count: int | None, unit: str, sign: int) -> date | None:
    if count is None or unit not in ("MONTH", "QUARTER", "YEAR"):
        return None
    months = start.month - 1 + sign * count * {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[unit]
    year, month = start.year + months // 12, months % 12 + 1
    last = (date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)).day
    return start.replace(year=year, month=month, day=min(start.day, last))


def _days_later(node: exp.Expr) -> date | None:
    start, days = _date(constant_of(node.this)), constant_of(node.expression)
    if start is None or type(days) is not int or str(node.args.get("unit") or "DAY").upper() not in ("DAY", "VAR"):
        return None
    return start + (-1 if isinstance(node, exp.DateSub) else 1) * timedelta(days=days)
