"""Define what type two operands have together, and compute or write an operation on them.

It does not bind names.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlglot import exp

from tidelake.query.kql.conversions import convert, implicit
from tidelake.query.kql.scope import Scope
from tidelake.query.kql.values import NUMERIC, TEXTUAL, Value, at_ticks, call, cast, literal, text

FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt, ">": operator.gt, "<=": operator.le,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def common_types(left: Value, right: Value) -> Sequence[str]:
    kinds = {left.type, right.type}
    if "dynamic" in kinds or "vector" in kinds:
        other = right.type if left.type in ("dynamic", "vector") else left.type
        return ("real", "string") if other in NUMERIC else (other, "string")
    if kinds <= {*NUMERIC, "bool"}:
        return ("long", "real") if kinds <= {"int", "long", "bool"} else ("real",)
    if kinds <= set(TEXTUAL):
        return ("string",)
    return ("datetime", "timespan", "bool")


def as_number(value: Value, other: Value) -> Value:
    """Return what is dynamic or bool as a number, or as what the other side goes with."""
    if value.type == "dynamic":
        return convert(value, "datetime" if other.type == "datetime" else "real")
    return implicit(value, "long") or value if value.type == "bool" else value


def result_type(name: str, left: str, right: str) -> str | None:
    if left in NUMERIC and right in NUMERIC:
        return "real" if {"real", "decimal"} & {left, right} else "long"
    match name, left, right:
        case ("+", "datetime", "timespan") | ("+", "timespan", "datetime") | ("-", "datetime", "timespan"):
            return "datetime"
        case ("-", "datetime", "datetime") | ("+" | "-" | "%", "timespan", "timespan"):
            return "timespan"
        case "/", "timespan", "timespan":
            return "real"
        case "*", "timespan", _ if right in NUMERIC:
            return "timespan"
        case "*", _, "timespan" if left in NUMERIC:
            return "timespan"
        case "/", "timespan", _ if right in NUMERIC:
            return "timespan"
        case "+", "string", "string":
            return "string"
    return None


def folded(name: str, left: Value, right: Value, kind: str, scope: Scope, at: int) -> Value:
    one, other = left.constant, right.constant
    if one is None or other is None:
        return literal(None, kind)
    try:
        if kind == "datetime":
            time, span = (one, other) if isinstance(one, datetime) else (other, one)
            return literal(time - at_ticks(span) if name == "-" else time + at_ticks(span), kind)
        if isinstance(one, datetime):
            return literal((one - other) // timedelta(microseconds=1) * 10, kind)
        if name == "/":
            found = _divided(one, other) if kind == "real" else _truncated(one, other)
        else:
            found = one % abs(other) if name == "%" else FOLDED[name](one, other)
        if kind in ("long", "timespan") and not -(2**63) <= found < 2**63:
            raise OverflowError
        return literal(round(found) if kind == "timespan" else found, kind)
    except ZeroDivisionError:
        return literal(None, kind)
    except OverflowError:
        raise scope.error(at, f"'{name}' goes beyond what {kind} can hold") from None


def _divided(one: float, other: float) -> float:
    """Divide reals, of which none is too small to divide by."""
    if other:
        return one / other
    return math.nan if not one or math.isnan(one) else math.copysign(math.inf, one)


def _truncated(one: Any, other: Any) -> Any:
    if isinstance(one, float) or isinstance(other, float):
        return int(one / other)
    return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


def arithmetic_sql(name: str, left: Value, right: Value, kind: str) -> exp.Expr:
    one, other = left.sql, right.sql
    if kind == "datetime":
        time, span = (one, other) if left.type == "datetime" else (other, one)
        return call("tide_add_ticks", time, exp.Neg(this=exp.Paren(this=span)) if name == "-" else span)
    if left.type == "datetime":
        return call("tide_ticks_between", one, other)
    if kind == "string":
        return call("tide_strcat", text(left), text(right))
    if name == "/":
        return call("tide_divide" if kind == "real" else "tide_divide_whole", one, other)
    if name == "%":
        return call("tide_modulo", _widened(left, kind), _widened(right, kind))
    if kind == "timespan" and "real" in (left.type, right.type):
        return cast(exp.Round(this=exp.Mul(this=exp.Paren(this=one), expression=exp.Paren(this=other))), "long")
    kinds: dict[str, type[exp.Binary]] = {"+": exp.Add, "-": exp.Sub, "*": exp.Mul}
    return exp.Paren(this=kinds[name](this=_widened(left, kind), expression=_widened(right, kind)))


def _widened(value: Value, kind: str) -> exp.Expr:
    """Return an operand wide enough that a sum of two ints does not overflow."""
    if (kind == "long" and value.type == "int") or (kind == "long" and value.is_constant):
        return cast(value.sql, "long")
    return cast(value.sql, "real") if kind == "real" and value.type == "decimal" else value.sql
