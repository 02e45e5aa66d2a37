"""Work out how many digits a calculation with decimals has, by Spark's rules.

A decimal has a precision (all digits) and a scale (those behind the point). Where a result would need more than 38
digits, digits behind the point are given up before those in front of it, but not the first six. It does not calculate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from sqlglot import exp

from tidelake.errors import QueryError

Digits: TypeAlias = tuple[int, int]  # precision and scale

MAX_DIGITS = 38
_MIN_SCALE = 6  # behind the point, where not all digits fit
_WHOLE = {exp.DType.TINYINT: 3, exp.DType.SMALLINT: 5, exp.DType.INT: 10, exp.DType.BIGINT: 20}
_REALS = {exp.DType.DOUBLE, exp.DType.FLOAT}
_DECIMALS = (exp.DType.DECIMAL, exp.DType.BIGDECIMAL)


def digits_of(node: exp.Expr | None) -> Digits | None:
    """Return the digits of an expression whose type is known to be a decimal or a whole number."""
    if node is None or node.type is None:
        return None
    inner = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(inner, exp.Neg):
        inner = inner.this
    if isinstance(inner, exp.Literal) and inner.is_int:  # a whole number as it is written has just its digits
        return len(str(inner.this).lstrip("0")) or 1, 0
    kind = node.type.this
    if kind in _WHOLE:
        return _WHOLE[kind], 0
    if not is_decimal(node) or len(node.type.expressions) != 2:
        return None
    precision, scale = (int(part.name) for part in node.type.expressions)
    return precision, scale


def is_decimal(node: exp.Expr | None) -> bool:
    """Whether an expression is known to be a decimal."""
    return node is not None and node.type is not None and node.type.this in _DECIMALS


def of_literal(text: str) -> Digits | None:
    """Return the digits of a number as it is written, such as 1.50; None for a real such as 1e3."""
    if "." not in text or not text.replace(".", "", 1).isdecimal():
        return None
    whole, _, fraction = text.partition(".")
    scale = len(fraction)
    precision = max(len((whole + fraction).lstrip("0")), scale, 1)
    return (precision, scale) if precision <= MAX_DIGITS else None


def plus(one: Digits, other: Digits) -> Digits:
    """Return the digits of a sum or a difference."""
    scale = max(one[1], other[1])
    return bounded(max(one[0] - one[1], other[0] - other[1]) + scale + 1, scale)


def times(one: Digits, other: Digits) -> Digits:
    """Return the digits of a product."""
    return bounded(one[0] + other[0] + 1, one[1] + other[1])


def divided(one: Digits, other: Digits) -> Digits:
    """Return the digits of a quotient."""
    scale = max(_MIN_SCALE, one[1] + other[0] + 1)
    return bounded(one[0] - one[1] + other[1] + scale, scale)


def modulo(one: Digits, other: Digits) -> Digits:
    """Return the digits of what a division leaves."""
    scale = max(one[1], other[1])
    return bounded(min(one[0] - one[1], other[0] - other[1]) + scale, scale)


def widest(every: Iterable[Digits]) -> Digits:
    """Return the digits that hold values of several."""
    known = list(every)
    scale = max(scale for _, scale in known)
    return bounded(max(precision - scale for precision, scale in known) + scale, scale)


def bounded(precision: int, scale: int) -> Digits:
    """Give up digits beyond 38: those behind the point first, but not the first six."""
    if precision <= MAX_DIGITS:
        return precision, scale
    return MAX_DIGITS, max(MAX_DIGITS - (precision - scale), min(scale, _MIN_SCALE))


def type_of(digits: Digits) -> exp.DataType:
    """Return the type that has these digits."""
    return exp.DataType.build(f"DECIMAL({digits[0]}, {digits[1]})")


def even_out(tree: exp.Expr) -> bool:
    """Give decimals that make up one column, as rows that are listed or united do, the digits of the widest.

    Return whether something was changed, so that types have to be worked out again.
    """
    changed = False
    for cells in _listed(tree):
        changed = _even_cells(cells) or changed
    if changed:
        return True
    for cells in _united(tree):
        changed = _even_cells(cells) or changed
    return changed


def refuse_unknown(tree: exp.Expr) -> None:
    """Refuse a column that is made of decimals and of values whose types are not known: its digits are not known."""
    for cells in (*_listed(tree), *_united(tree)):
        known = [cell for cell in cells if not isinstance(cell, exp.Null)]
        unknown = any(cell.type is None or cell.type.this is exp.DType.UNKNOWN for cell in known)
        if unknown and any(map(is_decimal, known)):
            message = "decimals make a column with values of a type that is not known in process: cast all of them"
            raise QueryError(message, kind="unsupported")


def _listed(tree: exp.Expr) -> Iterator[Sequence[exp.Expr]]:
    """Return the columns of rows that are listed."""
    for values in tree.find_all(exp.Values):
        rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in values.expressions]
        yield from zip(*rows, strict=False)


def _united(tree: exp.Expr) -> Iterator[Sequence[exp.Expr]]:
    """Return the columns of selects that are united, the inner ones first."""
    for union in reversed(list(tree.find_all(exp.SetOperation))):
        if not isinstance(union.parent, exp.SetOperation):
            for cells in zip(*_outputs(union), strict=False):
                yield [each.unalias() for each in cells]


def _outputs(query: exp.Expr) -> list[list[exp.Expr]]:
    """Return the columns of each select that a union is made of."""
    while isinstance(query, exp.Subquery | exp.Paren):
        query = query.this
    if isinstance(query, exp.SetOperation):
        return [*_outputs(query.left), *_outputs(query.right)]
    return [list(query.expressions)] if isinstance(query, exp.Select) else []


def _even_cells(cells: Sequence[exp.Expr]) -> bool:
    known = [cell for cell in cells if not isinstance(cell, exp.Null)]
    digits = [digits_of(cell) for cell in known]
    if any(cell.type is not None and cell.type.this in _REALS for cell in known):
        mixed = [cell for cell in known if is_decimal(cell)]  # which become reals, as in Spark
        for cell in mixed:
            cell.replace(exp.cast(cell.copy(), "DOUBLE"))
        return bool(mixed)
    if len(set(digits)) < 2 or None in digits or not any(map(is_decimal, known)):
        return False
    wanted = widest(each for each in digits if each is not None)
    uneven = [cell for cell, own in zip(known, digits, strict=True) if own != wanted or not is_decimal(cell)]
    for cell in uneven:
        cell.replace(exp.cast(cell.copy(), type_of(wanted)))
    return bool(uneven)


_BINARY: dict[type[exp.Expr], Callable[[Digits, Digits], Digits]] = {
    exp.Add: plus, exp.Sub: plus, exp.Mul: times, exp.Div: divided, exp.Mod: modulo,
}  # fmt: skip
# Operations that are written as calls.
_NAMED: dict[str, Callable[[Digits, Digits], Digits]] = {
    "try_add": plus, "try_subtract": plus, "try_multiply": times, "try_divide": divided, "try_mod": modulo,
    "pmod": modulo,
}  # fmt: skip
_PARTS = (exp.Year, exp.Day, exp.Week, exp.WeekOfYear, exp.YearOfWeek, exp.YearOfWeekIso, exp.DayOfWeekIso)
_CHOICES = (exp.Coalesce, exp.Case, exp.If, exp.Greatest, exp.Least)


def of_operation(name: str, sides: Sequence[exp.Expr]) -> exp.DataType | exp.DType | None:
    """Return what a call of an operation gives, such as ``try_add``; None of another call."""
    if name not in _NAMED or len(sides) != 2:
        return None
    left, right = map(digits_of, sides)
    if left and right and any(map(is_decimal, sides)):
        return type_of(_NAMED[name](left, right))
    return exp.DType.DOUBLE if name == "try_divide" else sides[0].type


def annotators(known: dict[Any, Any]) -> dict[Any, Any]:
    """Return what gives expressions their types, with Spark's rules for decimals before those that are ``known``."""
    found = {kind: {"annotator": _binary(rule, known[kind]["annotator"])} for kind, rule in _BINARY.items()}
    found |= {kind: {"annotator": _choice(known[kind]["annotator"])} for kind in _CHOICES}
    return {
        **found,
        exp.Literal: {"annotator": _literal(known[exp.Literal]["annotator"])},
        exp.Sum: {"annotator": _aggregate(known[exp.Sum]["annotator"], lambda p, s: (min(p + 10, MAX_DIGITS), s))},
        exp.Avg: {"annotator": _aggregate(_real, lambda p, s: bounded(p + 4, s + 4))},
        exp.Round: {"annotator": _rounded},
        exp.Extract: {"annotator": _part},
        **{kind: {"returns": exp.DType.INT} for kind in _PARTS},
    }


def _real(annotator: Any, node: exp.Expr) -> exp.Expr:
    found: exp.Expr = annotator._set_type(node, exp.DType.DOUBLE)
    return found


def _part(annotator: Any, node: exp.Extract) -> exp.Expr:
    """Give seconds their fraction, as Spark does; other parts of a time are whole."""
    is_second = node.name.lower() in ("second", "seconds", "sec", "secs", "s")
    found: exp.Expr = annotator._set_type(node, type_of((8, 6)) if is_second else exp.DType.INT)
    return found


def _binary(rule: Callable[[Digits, Digits], Digits], otherwise: Any) -> Any:
    def annotate(annotator: Any, node: exp.Expr) -> exp.Expr:
        left, right = digits_of(node.this), digits_of(node.expression)
        if left and right and (is_decimal(node.this) or is_decimal(node.expression)):
            found: exp.Expr = annotator._set_type(node, type_of(rule(left, right)))
        else:
            found = otherwise(annotator, node)
            _settle(annotator, node, (node.this, node.expression))
        return found

    return annotate


def _choice(otherwise: Any) -> Any:
    def annotate(annotator: Any, node: exp.Expr) -> exp.Expr:
        found: exp.Expr = otherwise(annotator, node)
        parts = [each for each in _branches(node) if each is not None and not isinstance(each, exp.Null)]
        digits = [digits_of(each) for each in parts]
        if any(map(is_decimal, parts)) and all(digits):
            annotator._set_type(node, type_of(widest(each for each in digits if each)))
        else:
            _settle(annotator, node, parts)
        return found

    return annotate


def _settle(annotator: Any, node: exp.Expr, parts: Sequence[exp.Expr]) -> None:
    """Take what is made of decimals and reals as a real, and what is made of decimals and others as not known."""
    if not any(map(is_decimal, parts)) or not is_decimal(node):
        return
    others = {each.type.this for each in parts if each.type is not None and digits_of(each) is None}
    annotator._set_type(node, exp.DType.DOUBLE if others & _REALS else exp.DType.UNKNOWN)


def _branches(node: exp.Expr) -> list[exp.Expr | None]:
    match node:
        case exp.Case():
            return [*(each.args.get("true") for each in node.args["ifs"]), node.args.get("default")]
        case exp.If():
            return [node.args.get("true"), node.args.get("false")]
        case _:
            return [node.this, *node.expressions]


def _literal(otherwise: Any) -> Any:
    def annotate(annotator: Any, node: exp.Literal) -> exp.Expr:
        digits = None if node.is_string else of_literal(str(node.this))
        found: exp.Expr = otherwise(annotator, node)
        if digits is not None:
            annotator._set_type(node, type_of(digits))
        elif not node.is_string and node.is_int and abs(int(node.this)) >= 2**31:
            annotator._set_type(node, exp.DType.BIGINT)
        return found

    return annotate


def _aggregate(otherwise: Any, rule: Callable[[int, int], Digits]) -> Any:
    def annotate(annotator: Any, node: exp.Expr) -> exp.Expr:
        digits = digits_of(node.this) if is_decimal(node.this) else None
        found: exp.Expr = (
            otherwise(annotator, node) if digits is None else annotator._set_type(node, type_of(rule(*digits)))
        )
        return found

    return annotate


def _rounded(annotator: Any, node: exp.Round) -> exp.Expr:
    digits = digits_of(node.this) if is_decimal(node.this) else None
    places = node.args.get("decimals")
    count = int(places.name) if isinstance(places, exp.Literal) and places.is_int else 0 if places is None else None
    if digits is None or count is None:
        found: exp.Expr = annotator._set_type(node, exp.DType.DOUBLE if digits is None else node.this.type)
    else:
        scale = min(count, digits[1])
        found = annotator._set_type(node, type_of(bounded(digits[0] - digits[1] + 1 + scale, scale)))
    return found
