"""Refuse values that a query makes far too large out of nothing, such as ``repeat('x', 1000000000)``.

An engine builds such a value whole, outside of its own account of memory, and hears no interrupt meanwhile. So a size
that can be told from the text is checked before the query runs, texts made of texts included. A size that only rows can
tell is left to the engine. It does not change the tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sqlglot import exp

from tidelake.query.functions.declaration import OURS

MAX_ITEMS = 1 << 20  # of a list that is counted out
MAX_LETTERS = 1 << 24  # of a text that is repeated or filled up
MAX_DEPTH = 40  # of arithmetic that is worked out; deeper is not known
_UNKNOWN = 64.0  # letters of a text that only rows can tell


def too_large(node: exp.Expr) -> str | None:
    """Return what is wrong with the size of a value that a call makes, or None if nothing is known to be."""
    name, arguments = _call(node)
    if name == "sequence" and _items(arguments) > MAX_ITEMS:
        return f"a sequence of more than {MAX_ITEMS:,} values: use from range(start, end), which gives rows"
    if name == "array_repeat" and _number(_at(arguments, 1), 0.0) > MAX_ITEMS:
        return f"an array of more than {MAX_ITEMS:,} values"
    if name in ("repeat", "space", "lpad", "rpad", "pad", "replace", "randstr") and _letters(node) > MAX_LETTERS:
        return f"a text of more than {MAX_LETTERS:,} characters"
    return None


def _call(node: exp.Expr) -> tuple[str, list[exp.Expr | None]]:
    """Return the name of a function and what it is given, whichever kind of node stands for it."""
    match node:
        case exp.Anonymous():
            return node.name.lower().removeprefix(OURS), list(node.expressions)
        case exp.GenerateSeries():
            return "sequence", [node.args.get(key) for key in ("start", "end", "step")]
        case exp.Repeat():
            return "repeat", [node.this, node.args.get("times")]
        case exp.Pad():
            return "pad", [node.this, node.expression]
        case exp.Replace():
            return "replace", [node.this, node.expression, node.args.get("replacement")]
        case exp.DPipe():
            return "concat", [node.this, node.expression]
        case exp.Concat():
            return "concat", list(node.expressions)
        case exp.Func() | exp.Paren() | exp.Cast():
            return node.key, [node.this if isinstance(node.this, exp.Expr) else None]
        case _:
            return "", []


def _items(arguments: list[exp.Expr | None]) -> float:
    """Count the values of a sequence of numbers; 0 where it cannot be told."""
    start, end = _number(_at(arguments, 0)), _number(_at(arguments, 1))
    step = _number(_at(arguments, 2), 1.0)
    return abs(end - start) / abs(step) if step and math.isfinite(end - start) else 0.0


def _letters(node: exp.Expr | None, depth: int = 0) -> float:
    """Estimate the length of a text from above, columns taken as short."""
    if node is None or depth > MAX_DEPTH:
        return _UNKNOWN
    if isinstance(node, exp.Literal):
        return float(len(str(node.this)))
    name, arguments = _call(node)
    match name:
        case "paren" | "cast" | "lower" | "upper" | "trim" | "reverse":
            return _letters(_at(arguments, 0), depth + 1)
        case "repeat":
            return _letters(_at(arguments, 0), depth + 1) * max(_number(_at(arguments, 1), 1.0), 0.0)
        case "space" | "randstr":
            return max(_number(_at(arguments, 0), 1.0), 0.0)
        case "lpad" | "rpad" | "pad":
            return max(_number(_at(arguments, 1), 1.0), 0.0)
        case "replace":
            put = _letters(_at(arguments, 2), depth + 1) if _at(arguments, 2) is not None else 0.0
            sought = max(_letters(_at(arguments, 1), depth + 1), 1.0)
            return _letters(_at(arguments, 0), depth + 1) * max(put / sought, 1.0)
        case "concat":
            return sum(_letters(each, depth + 1) for each in arguments)
        case _:
            return _UNKNOWN


def _at(arguments: list[exp.Expr | None], at: int) -> exp.Expr | None:
    return arguments[at] if at < len(arguments) else None


def _number(node: exp.Expr | None, unknown: float = math.nan, depth: int = 0) -> float:
    """Work out a number that is written with numbers alone."""
    if depth > MAX_DEPTH:
        return unknown
    try:
        match node:
            case exp.Literal() if not node.is_string:
                return float(node.this)
            case exp.Paren() | exp.Cast():
                return _number(node.this, unknown, depth + 1)
            case exp.Neg():
                return -_number(node.this, unknown, depth + 1)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Pow():
                left, right = _number(node.this, math.nan, depth + 1), _number(node.expression, math.nan, depth + 1)
                found = _OPERATIONS[type(node)](left, right)
                return unknown if math.isnan(found) else found
    except (ArithmeticError, ValueError):
        return unknown
    return unknown


_OPERATIONS: dict[type[exp.Expr], Callable[[float, float], float]] = {
    exp.Add: lambda left, right: left + right,
    exp.Sub: lambda left, right: left - right,
    exp.Mul: lambda left, right: left * right,
    exp.Div: lambda left, right: left / right,
    exp.Pow: lambda left, right: left**right,
}
