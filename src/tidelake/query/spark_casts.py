"""Make DuckDB cast as Spark does, with errors off.

To whole numbers what is behind the point is cut off; beyond their range a real is the nearest end and a whole number
begins again from the other one. What cannot be cast is null. A real is shown as Java shows it. It does not know where
Spark casts by itself: see ``spark_meaning``.
"""

from __future__ import annotations

from typing import cast

import sqlglot
from sqlglot import exp

from tidelake.errors import QueryError

_BITS = {exp.DType.TINYINT: 8, exp.DType.SMALLINT: 16, exp.DType.INT: 32, exp.DType.BIGINT: 64}
BYTES = (exp.DType.BINARY, exp.DType.VARBINARY)
_REALS = (exp.DType.DOUBLE, exp.DType.FLOAT)
_MONTHS = {"YEAR": 12, "MONTH": 1}
_SECONDS = {"DAY": 86_400, "HOUR": 3_600, "MINUTE": 60, "SECOND": 1}
_BLANK = "' ' || chr(9) || chr(10) || chr(13)"
_TO_BOOL = (
    f"CASE lower(trim({{0}}, {_BLANK})) WHEN 't' THEN TRUE WHEN 'true' THEN TRUE WHEN 'y' THEN TRUE WHEN 'yes' THEN TRUE"
    " WHEN '1' THEN TRUE WHEN 'f' THEN FALSE WHEN 'false' THEN FALSE WHEN 'n' THEN FALSE WHEN 'no' THEN FALSE"
    " WHEN '0' THEN FALSE END"
)
_REAL_TEXT = (
    "list_transform([{0}], lambda v: CASE WHEN isnan(v) THEN 'NaN' WHEN isinf(v) THEN CASE WHEN v > 0 THEN 'Infinity'"
    " ELSE '-Infinity' END WHEN v = 0 OR (abs(v) >= 0.001 AND abs(v) < 10000000) THEN CAST(v AS VARCHAR)"
    " WHEN contains(CAST(v AS VARCHAR), 'e') THEN regexp_replace(regexp_replace(CAST(v AS VARCHAR), '^(-?\\d)e', '\\1.0e'),"
    " 'e([+]|(-))0*(\\d+)$', 'E\\2\\3')"
    " WHEN abs(v) >= 1 THEN CASE WHEN v < 0 THEN '-' ELSE '' END || regexp_replace(regexp_replace(replace(CAST(abs(v) AS VARCHAR), '.', ''),"
    " '^(\\d)(\\d*?)0*$', '\\1.\\2'), '[.]$', '.0') || 'E' || CAST(instr(CAST(abs(v) AS VARCHAR), '.') - 2 AS VARCHAR)"
    " ELSE CASE WHEN v < 0 THEN '-' ELSE '' END || regexp_replace(regexp_replace(CAST(abs(v) AS VARCHAR), '^0[.]0*(\\d)(\\d*)$', '\\1.\\2'), '[.]$', '.0')"
    " || 'E-' || CAST(len(regexp_extract(CAST(abs(v) AS VARCHAR), '^0[.](0*)', 1)) + 1 AS VARCHAR) END)[1]"
)


def kind_of(node: exp.Expr | None) -> exp.DType | None:
    """Return the type of an expression, or None where it is not known."""
    if node is None or node.type is None:
        return None
    if isinstance(node.type.this, exp.Interval):
        return exp.DType.INTERVAL
    return cast("exp.DType | None", node.type.this)


def cast_to(node: exp.Expr, kind: str) -> exp.Cast:
    """Return a cast of a copy that knows its type."""
    to = exp.DataType.build(kind, dialect="spark")
    made = exp.Cast(this=node.copy(), to=to)
    made.type = to.copy()
    return made


def as_text(node: exp.Expr) -> exp.Expr:
    """Return a real number as the text that Java shows it by."""
    return _written(_REAL_TEXT, node)


def as_spark_casts(tree: exp.Expr) -> None:
    """Change every cast of a tree in place."""
    for node in reversed(list(tree.find_all(exp.Cast))):
        if node.to.this is exp.DType.JSON:
            continue
        source, target = kind_of(node.this), node.to.this
        if isinstance(target, exp.Interval) or target is exp.DType.INTERVAL or source is exp.DType.INTERVAL:
            node.replace(_interval_cast(node, source))
            continue
        made = _cast(node, source, target)
        made.type = node.to.copy()
        node.replace(made)


def _cast(node: exp.Cast, source: exp.DType | None, target: exp.DType) -> exp.Expr:
    value = node.this
    plain = exp.TryCast(this=value, to=node.to, requires_string=False)
    if target in _BITS:
        return _whole(node, source, target) or plain
    if target is exp.DType.BOOLEAN and source in exp.DataType.TEXT_TYPES:
        return _written(_TO_BOOL, value)
    if target in exp.DataType.TEXT_TYPES:
        if source in _REALS:
            return as_text(value)
        if source is exp.DType.TIMESTAMPTZ:  # Spark shows no zone
            parts = [plain, exp.Literal.string("[+]00$"), exp.Literal.string("")]
            return exp.Anonymous(this="regexp_replace", expressions=parts)
        if source in BYTES:
            return exp.Anonymous(this="decode", expressions=[value])
    if target in BYTES:
        return _bytes(value, source) or plain
    if target in exp.DataType.TEMPORAL_TYPES and source in exp.DataType.TEXT_TYPES:
        trimmed = _written(f"trim({{0}}, {_BLANK})", value)
        return exp.TryCast(this=trimmed, to=node.to, requires_string=False)
    return plain


def _bytes(value: exp.Expr, source: exp.DType | None) -> exp.Expr | None:
    """Return the bytes of a text, or of a whole number, its highest byte first."""
    if source in exp.DataType.TEXT_TYPES:
        return exp.Anonymous(this="encode", expressions=[value])
    if source in _BITS and source is not None:
        digits = _BITS[source] // 4
        return _written(f"unhex(right(lpad(hex(CAST({{0}} AS BIGINT)), 16, '0'), {digits}))", value)
    return None


def _interval_cast(node: exp.Cast, source: exp.DType | None) -> exp.Expr:
    """Return a cast to or from an interval: a number counts the last of its units."""
    target = node.to.this
    unit = _last_unit(target if isinstance(target, exp.Interval) else None)
    value: exp.Expr = node.this
    if source in exp.DataType.NUMERIC_TYPES and unit is not None:
        if unit in _MONTHS:
            made = _written(f"to_months(CAST(round(CAST({{0}} AS DOUBLE)) * {_MONTHS[unit]} AS INTEGER))", value)
        else:
            factor = 10**6 if unit == "SECOND" else 1
            whole = "trunc(CAST({0} AS DECIMAL(28, 6)) * 1000000)" if factor > 1 else "trunc(CAST({0} AS DOUBLE))"
            made = _written(f"to_microseconds(CAST({whole} * {_SECONDS[unit] * 10**6 // factor} AS BIGINT))", value)
        made.type = exp.DataType.build("INTERVAL")
        return made
    if source in exp.DataType.TEXT_TYPES:
        return _written("TRY_CAST(regexp_replace({0}, '^\\s*interval\\s+', '', 'i') AS INTERVAL)", value)
    inner = value.unnest() if isinstance(value, exp.Paren) else value
    own = _last_unit(inner) if isinstance(inner, exp.Interval) else None
    if target in exp.DataType.NUMERIC_TYPES and own is not None:
        return _of_interval(node, value, own)
    if source is exp.DType.INTERVAL and not isinstance(target, exp.Interval) and target is not exp.DType.INTERVAL:
        shown = node.to.sql("spark").lower()
        message = f"an interval is not cast to {shown} in process: take its parts by extract(… from …)"
        raise QueryError(message, kind="unsupported")
    return exp.TryCast(this=value, to=exp.DataType.build("INTERVAL"), requires_string=False)


def _of_interval(node: exp.Cast, value: exp.Expr, unit: str) -> exp.Expr:
    if unit in _MONTHS:
        count = f"((date_part('year', {{0}}) * 12 + date_part('month', {{0}})) // {_MONTHS[unit]})"
    else:
        count = f"(CAST(epoch_us({{0}}) AS DECIMAL(28, 6)) / {_SECONDS[unit] * 10**6})"
    if node.to.this in _BITS:
        count = f"trunc({count})"
    return exp.TryCast(this=_written(count, value), to=node.to, requires_string=False)


def _last_unit(interval: exp.Interval | None) -> str | None:
    unit = interval.args.get("unit") if interval is not None else None
    word = unit.expression if isinstance(unit, exp.IntervalSpan) else unit
    return str(word).upper().removesuffix("S") if word is not None else None


def _whole(node: exp.Cast, source: exp.DType | None, target: exp.DType) -> exp.Expr | None:
    """Return a cast to a whole number, or None where it is the engine's own."""
    name, bits = target.value, _BITS[target]
    value = node.this
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if source in exp.DataType.TEXT_TYPES:
        tail = "" if isinstance(node, exp.TryCast) else r"(?:[.]\d*)?"
        return _written(rf"TRY_CAST(regexp_extract({{0}}, '^\s*([+-]?\d+){tail}\s*$', 1) AS {name})", value)
    if source in _REALS and bits >= 32 and not isinstance(node, exp.TryCast):
        edge = f"CASE WHEN {{0}} >= {high} THEN CAST({high} AS {name}) WHEN {{0}} <= {low} THEN CAST({low} AS {name})"
        return _written(f"{edge} ELSE TRY_CAST(trunc({{0}}) AS {name}) END", value)
    if source in exp.DataType.REAL_TYPES:
        return exp.TryCast(this=exp.Anonymous(this="trunc", expressions=[value]), to=node.to, requires_string=False)
    wider = source in _BITS and source is not None and _BITS[source] > bits
    if wider and not isinstance(node, exp.TryCast):
        turned = f"CAST((({{0}} & {2**bits - 1}) + {high + 1}) % {2**bits} - {high + 1} AS {name})"
        return _written(f"CASE WHEN {{0}} BETWEEN {low} AND {high} THEN CAST({{0}} AS {name}) ELSE {turned} END", value)
    return None


def _written(template: str, value: exp.Expr) -> exp.Expr:
    """Put a value into a text of DuckDB's SQL."""
    tree = sqlglot.parse_one(template.replace("{0}", "__value"), read="duckdb")
    for column in list(tree.find_all(exp.Column)):
        if column.name == "__value":
            column.replace(exp.paren(value.copy()) if isinstance(value, exp.Binary) else value.copy())
    for call in reversed(
        list(tree.find_all(exp.RegexpReplace))
    ):  # as it stands: a call of the query's own means Spark's
        given = [call.args.get(key) for key in ("this", "expression", "replacement", "modifiers")]
        known = [each.copy() for each in given if each is not None]
        call.replace(exp.Anonymous(this="regexp_replace", expressions=known))
    return tree
