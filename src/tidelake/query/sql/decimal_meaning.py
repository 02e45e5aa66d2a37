"""Divide decimals in DuckDB's SQL as Spark does: exactly, and with as many digits as Spark gives.

DuckDB divides decimals as reals. Here a quotient is worked out in whole numbers, of the smallest unit of each side, and
rounded half up. Few digits are divided in 64 bits, some at a time, as one does on paper: the engine is told the steps
as plain calculations, of which it works out each once. More digits are divided in 128 bits, by a list of one row. What
would need more than 127 bits on the way is an error of the engine, and never an answer that is nearly right. It does
not touch calculations with reals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tidelake.query.decimals import MAX_DIGITS, Digits, bounded, digits_of, divided, is_decimal, type_of
from tidelake.query.functions.declaration import PORTABLE, Function, declare
from tidelake.query.functions.templates import Writer

# A cast that fails, and not the engine's error(): subqueries with that are worked out row by row, or by cross products.
_TOO_LONG = "CAST('a decimal has more digits than its type says: cast it to decimal(38, s)' AS HUGEINT)"
_QUOTIENT, _WHOLE, _REST = "tide_quotient", "tide_whole_quotient", "tide_rest"  # calls that FUNCTIONS write
_DIRECT = 18  # digits that DuckDB keeps in 64 bits
_SHORT = 400  # characters of a side that may be written many times


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a division, as text of DuckDB's SQL with its digits."""

    text: str
    precision: int
    scale: int
    is_decimal: bool
    is_total: bool = False  # is made of aggregates, and is short

    def held(self, name: str) -> _Side:
        """Return the side under the name that it has in a list of one row."""
        return replace(self, text=f"tide_s.{name}")

    def units(self, scale: int) -> str:
        """Write how many of a unit it is; a value that has smaller units than is known is an error."""
        raised = f" * CAST({10 ** (scale - self.scale)} AS HUGEINT)" if scale > self.scale else ""
        if not self.is_decimal:
            return f"(CAST({self.text} AS HUGEINT){raised})"
        kind = f"DECIMAL({max(self.precision, 1)}, {self.scale})"
        if self.precision <= _DIRECT:
            whole = f"CAST(TRY_CAST({self.text} AS {kind}) * CAST({10**self.scale} AS BIGINT) AS HUGEINT)"
        elif self.precision + self.scale < MAX_DIGITS:
            unit = f"CAST({10**self.scale} AS DECIMAL({self.scale + 1}, 0))"
            whole = f"CAST(TRY_CAST({self.text} AS {kind}) * {unit} AS HUGEINT)"
        else:
            whole = f"CAST(replace(CAST(TRY_CAST({self.text} AS {kind}) AS VARCHAR), '.', '') AS HUGEINT)"
        fits = f"TRY_CAST({self.text} AS {kind}) = ({self.text})"
        return f"CASE WHEN {fits} THEN {whole}{raised} WHEN ({self.text}) IS NOT NULL THEN {_TOO_LONG} END"

    def few_units(self, scale: int) -> str:
        """Write how many of a unit it is in 64 bits, for a value that has the scale that is known."""
        if not self.is_decimal:
            return f"(CAST({self.text} AS BIGINT) * {10**scale})" if scale else f"CAST({self.text} AS BIGINT)"
        if not scale:
            return f"CAST({self.text} AS BIGINT)"
        value = f"({self.text})"
        if self.precision + scale > _DIRECT:  # or the engine would stay within 64 bits
            value = f"CAST({self.text} AS DECIMAL({_DIRECT + 1 + self.scale}, {self.scale}))"
        return f"CAST({value} * CAST({10**scale} AS DECIMAL({scale + 1}, 0)) AS BIGINT)"

    def has_scale(self) -> str:
        """Write whether the engine's own type has the scale that is known, which is decided before a query runs."""
        return f"typeof({self.text}) LIKE 'DECIMAL(%,{self.scale})'" if self.is_decimal else "TRUE"


def divides_decimals(left: exp.Expr, right: exp.Expr) -> bool:
    """Whether the digits of two sides are known, and at least one is a decimal."""
    return (is_decimal(left) or is_decimal(right)) and None not in (digits_of(left), digits_of(right))


def quotient(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return the quotient of two, with Spark's digits; null where it does not fit or nothing is divided by."""
    a, b = _digits(left), _digits(right)
    return _call(_QUOTIENT, left, right, type_of(divided(a, b)))


def whole_quotient(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return the whole part of a quotient; beyond 64 bits it is an error."""
    return _call(_WHOLE, left, right, exp.DataType.build("BIGINT"))


def mean(total: exp.Expr, count: exp.Expr, digits: Digits) -> exp.Expr:
    """Return a sum of decimals of some digits, by how many they are: with four digits more."""
    total.type = type_of((min(digits[0] + 10, MAX_DIGITS), digits[1]))
    count.type = exp.DataType.build("BIGINT")
    found = bounded(digits[0] + 4, digits[1] + 4)
    made = _call(_QUOTIENT, total, count, type_of(found))
    made.expressions.extend(exp.Literal.number(each) for each in found)
    return made


def rest(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return what a division leaves: DuckDB's own answer where it is exact, which is where all digits fit a decimal."""
    a, b = _digits(left), _digits(right)
    scale = max(a[1], b[1])
    kind = type_of((MAX_DIGITS, scale))
    if max(a[0] - a[1], b[0] - b[1]) + scale > MAX_DIGITS:
        return _call(_REST, left, right, kind)
    made = exp.Mod(this=exp.paren(left, copy=False), expression=exp.paren(right, copy=False))
    made.type = kind
    return made


def _digits(node: exp.Expr) -> Digits:
    found = digits_of(node)
    assert found is not None, "divides_decimals was not asked"
    return found


def _call(name: str, left: exp.Expr, right: exp.Expr, kind: exp.DataType) -> exp.Expr:
    """Return a call that is written when a tree is, so that what it is given still has its turn before."""
    known = [(*_digits(side), int(is_decimal(side))) for side in (left, right)]
    numbers = [exp.Literal.number(each) for side in known for each in side]
    made = exp.Anonymous(this=name, expressions=[left, right, *numbers])
    made.type = kind
    return made


def _write_quotient(a: _Side, b: _Side, digits: Digits | None = None) -> str:
    precision, scale = digits or divided((a.precision, a.scale), (b.precision, b.scale))
    raised = scale + b.scale - a.scale  # of the left side's units, so that the quotient's are left
    one, other = a.held("a").units(a.scale + max(raised, 0)), b.held("b").units(b.scale + max(-raised, 0))
    count = "((abs(tide_q.n) * 2 + abs(tide_q.d)) // (abs(tide_q.d) * 2))"
    is_negative = "(tide_q.n < 0) <> (tide_q.d < 0)"
    if 0 < scale <= MAX_DIGITS - precision:  # so that all that fits the quotient's type fits a decimal on the way
        signed = f"CASE WHEN {is_negative} THEN -{count} ELSE {count} END"
        shown = f"TRY_CAST({signed} AS DECIMAL({MAX_DIGITS - scale}, 0)) * {_last_place(scale)}"
    else:
        shown = _shown(count, is_negative, scale)
    body = f"CASE WHEN tide_q.d <> 0 THEN TRY_CAST({shown} AS DECIMAL({precision}, {scale})) END"
    return _quickly(a, b, None if digits else _by_steps(a, b), _held(a, b, one, other, body))


def _write_whole(a: _Side, b: _Side) -> str:
    scale = max(a.scale, b.scale)
    body = "CASE WHEN tide_q.d <> 0 THEN CAST(tide_q.n // tide_q.d AS BIGINT) END"
    made = _held(a, b, a.held("a").units(scale), b.held("b").units(scale), body)
    return _quickly(a, b, _in_one_step(a, b), made)


def _write_rest(a: _Side, b: _Side) -> str:
    scale = max(a.scale, b.scale)
    shown = _shown("abs(tide_q.n % tide_q.d)", "(tide_q.n % tide_q.d) < 0", scale)
    body = f"CASE WHEN tide_q.d <> 0 THEN TRY_CAST({shown} AS DECIMAL(38, {scale})) END"
    return _held(a, b, a.held("a").units(scale), b.held("b").units(scale), body)


def _writer(write: Callable[..., str]) -> Writer:
    def written(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        numbers = [int(each) for each in texts[2:]]
        totals = [
            len(text) <= _SHORT and node.find(exp.AggFunc) is not None
            for node, text in zip(nodes[:2], texts[:2], strict=True)
        ]
        a = _Side(texts[0], numbers[0], numbers[1], bool(numbers[2]), totals[0])
        b = _Side(texts[1], numbers[3], numbers[4], bool(numbers[5]), totals[1])
        return write(a, b, *([(numbers[6], numbers[7])] if len(numbers) > 6 else []))

    return written


def _quickly(a: _Side, b: _Side, written: str | None, otherwise: str) -> str:
    """Divide in 64 bits where digits are few and the sides short, if their types turn out to be the known ones."""
    if written is None or max(len(a.text), len(b.text)) > _SHORT:
        return otherwise
    return f"CASE WHEN {a.has_scale()} AND {b.has_scale()} THEN {written} ELSE {otherwise} END"


def _in_one_step(a: _Side, b: _Side) -> str | None:
    """Write the whole part of a quotient in 64 bits, or return None where it needs more; by zero it is null."""
    scale = max(a.scale, b.scale)
    if max(a.precision - a.scale, b.precision - b.scale) + scale > _DIRECT:
        return None
    return f"({a.few_units(scale)} // {b.few_units(scale)})"


def _by_steps(a: _Side, b: _Side) -> str | None:
    """Write a quotient in 64 bits, or return None where it needs more; by zero it is null.

    The whole part comes first. What is left is raised by as many digits as fit and divided again, until all digits are
    there. The last step has one more bit, by which it is rounded: half of one more than twice a number.
    """
    precision, scale = divided((a.precision, a.scale), (b.precision, b.scale))
    all_digits = left = scale + b.scale - a.scale
    fits = _DIRECT - b.precision
    if max(a.precision, left) > _DIRECT or left < 1 or fits < 1:
        return None
    if max(a.precision - a.scale + b.scale + 1, left + 1) + scale >= MAX_DIGITS:
        return None
    one, other = a.few_units(a.scale), b.few_units(b.scale)
    rest, digits = f"({one} % {other})", ""
    while left > fits:
        step = f"({rest} * {10**fits} // {other})"
        digits = f"({digits} * {10**fits} + {step})" if digits else step
        rest = f"({rest} * {10**fits} % {other})"
        left -= fits
    twice = f"({rest} * {2 * 10**left} // {other})"
    last = f"(({twice} + sign({twice})) // 2)"
    digits = f"({digits} * {10**left} + {last})" if digits else last
    whole = _moved(f"({one} // {other})", _DIRECT + 1, a.scale - b.scale)  # too wide for the engine to stay in 64 bits
    return f"TRY_CAST({whole} + {_moved(digits, all_digits + 1, scale)} AS DECIMAL({precision}, {scale}))"


def _moved(count: str, precision: int, scale: int) -> str:
    """Write a number of units as the decimal it stands for."""
    whole = f"CAST({count} AS DECIMAL({precision}, 0))"
    if scale > 0:
        return f"{whole} * {_last_place(scale)}"
    return f"{whole} * CAST({10**-scale} AS DECIMAL({1 - scale}, 0))" if scale else whole


def _last_place(scale: int) -> str:
    """Write the smallest unit of decimals."""
    return f"CAST('0.{1:0{scale}d}' AS DECIMAL({scale}, {scale}))"


def _shown(count: str, is_negative: str, scale: int) -> str:
    """Write a number of units as the text of a decimal."""
    sign = f"CASE WHEN {is_negative} THEN '-' ELSE '' END"
    if not scale:
        return f"{sign} || CAST({count} AS VARCHAR)"
    unit = f"CAST({10**scale} AS HUGEINT)"
    part = f"lpad(CAST({count} % {unit} AS VARCHAR), {scale}, '0')"
    return f"{sign} || CAST({count} // {unit} AS VARCHAR) || '.' || {part}"


def _held(a: _Side, b: _Side, one: str, other: str, body: str) -> str:
    """Name the sides and their units, so that each is written and worked out once.

    Aggregates are written out: the engine works out equal ones once, and takes no list of them after grouping.
    """
    if a.is_total or b.is_total:
        names = {"tide_q.n": f"({one})", "tide_q.d": f"({other})", "tide_s.a": f"({a.text})", "tide_s.b": f"({b.text})"}
        for name, text in names.items():
            body = body.replace(name, text)
        return body
    units = f"{{'n': {one}, 'd': {other}}}"
    sides = f"{{'a': {a.text}, 'b': {b.text}}}"
    return f"list_transform(list_transform([{sides}], lambda tide_s: {units}), lambda tide_q: {body})[1]"


FUNCTIONS: tuple[Function, ...] = tuple(
    declare(name.removeprefix(PORTABLE), duckdb=_writer(write), duckdb_only="Spark divides decimals itself")
    for name, write in ((_QUOTIENT, _write_quotient), (_WHOLE, _write_whole), (_REST, _write_rest))
)
