"""Divide decimals in DuckDB's SQL as Spark does: exactly, and with as many digits as Spark gives.

DuckDB divides decimals as reals. Here a quotient is worked out in whole numbers, of the smallest unit of each side, and
rounded half up. What would need more than 127 bits on the way is an error of the engine, and never an answer that is
nearly right. It does not touch calculations with reals.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tidelake.query.decimals import digits_of, divided, is_decimal

_TOO_LONG = "error('a decimal has more digits than its type says: cast it to decimal(38, s)')"
_DIRECT = 18  # digits that DuckDB keeps in 64 bits


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a division, as text of DuckDB's SQL with its digits."""

    text: str
    precision: int
    scale: int
    is_decimal: bool

    def units(self, scale: int) -> str:
        """Write how many of a unit it is; a value that has smaller units than is known is an error."""
        raised = f" * CAST({10 ** (scale - self.scale)} AS HUGEINT)" if scale > self.scale else ""
        if not self.is_decimal:
            return f"(CAST({self.text} AS HUGEINT){raised})"
        kind = f"DECIMAL({max(self.precision, 1)}, {self.scale})"
        if self.precision <= _DIRECT:
            whole = f"CAST(TRY_CAST({self.text} AS {kind}) * CAST({10**self.scale} AS BIGINT) AS HUGEINT)"
        else:
            whole = f"CAST(replace(CAST(TRY_CAST({self.text} AS {kind}) AS VARCHAR), '.', '') AS HUGEINT)"
        fits = f"TRY_CAST({self.text} AS {kind}) = ({self.text})"
        return f"CASE WHEN {fits} THEN {whole}{raised} WHEN ({self.text}) IS NOT NULL THEN {_TOO_LONG} END"


def divides_decimals(left: exp.Expr, right: exp.Expr) -> bool:
    """Whether the digits of two sides are known, and at least one is a decimal."""
    return (is_decimal(left) or is_decimal(right)) and None not in (digits_of(left), digits_of(right))


def quotient(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return the quotient of two, with Spark's digits; null where it does not fit or nothing is divided by."""
    a, b = _sides(left, right)
    precision, scale = divided((a.precision, a.scale), (b.precision, b.scale))
    raised = scale + b.scale - a.scale  # of the left side's units, so that the quotient's are left
    one, other = a.units(a.scale + max(raised, 0)), b.units(b.scale + max(-raised, 0))
    count = "((abs(tide_q.n) * 2 + abs(tide_q.d)) // (abs(tide_q.d) * 2))"
    shown = _shown(count, "(tide_q.n < 0) <> (tide_q.d < 0)", scale)
    body = f"CASE WHEN tide_q.d <> 0 THEN TRY_CAST({shown} AS DECIMAL({precision}, {scale})) END"
    return _typed(_held(left, right, one, other, body), f"DECIMAL({precision}, {scale})")


def whole_quotient(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return the whole part of a quotient; beyond 64 bits it is an error."""
    a, b = _sides(left, right)
    scale = max(a.scale, b.scale)
    body = "CASE WHEN tide_q.d <> 0 THEN CAST(tide_q.n // tide_q.d AS BIGINT) END"
    return _typed(_held(left, right, a.units(scale), b.units(scale), body), "BIGINT")


def rest(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return what a division leaves: DuckDB's own answer where it is exact, which is where all digits fit a decimal."""
    a, b = _sides(left, right)
    scale = max(a.scale, b.scale)
    if max(a.precision - a.scale, b.precision - b.scale) + scale <= 38:
        return _typed(exp.Mod(this=exp.paren(left.copy()), expression=exp.paren(right.copy())), f"DECIMAL(38, {scale})")
    shown = _shown("abs(tide_q.n % tide_q.d)", "(tide_q.n % tide_q.d) < 0", scale)
    body = f"CASE WHEN tide_q.d <> 0 THEN TRY_CAST({shown} AS DECIMAL(38, {scale})) END"
    return _typed(_held(left, right, a.units(scale), b.units(scale), body), f"DECIMAL(38, {scale})")


def _shown(count: str, is_negative: str, scale: int) -> str:
    """Write a number of units as the text of a decimal."""
    sign = f"CASE WHEN {is_negative} THEN '-' ELSE '' END"
    if not scale:
        return f"{sign} || CAST({count} AS VARCHAR)"
    unit = f"CAST({10**scale} AS HUGEINT)"
    part = f"lpad(CAST({count} % {unit} AS VARCHAR), {scale}, '0')"
    return f"{sign} || CAST({count} // {unit} AS VARCHAR) || '.' || {part}"


def _sides(left: exp.Expr, right: exp.Expr) -> tuple[_Side, _Side]:
    digits = digits_of(left), digits_of(right)
    assert digits[0] is not None
    assert digits[1] is not None
    one = _Side("tide_s.a", *digits[0], is_decimal(left))
    other = _Side("tide_s.b", *digits[1], is_decimal(right))
    return one, other


def _held(left: exp.Expr, right: exp.Expr, one: str, other: str, body: str) -> exp.Expr:
    """Name the sides and their units, so that each is written and worked out once."""
    units = f"{{'n': {one}, 'd': {other}}}"
    sides = f"{{'a': {left.sql('duckdb')}, 'b': {right.sql('duckdb')}}}"
    return exp.Var(this=f"list_transform(list_transform([{sides}], lambda tide_s: {units}), lambda tide_q: {body})[1]")


def _typed(node: exp.Expr, kind: str) -> exp.Expr:
    node.type = exp.DataType.build(kind)
    return node
