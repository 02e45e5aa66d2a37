"""Make DuckDB cast as Spark does, with errors off.

To whole numbers what is behind the point is cut off; beyond their range a real is the nearest end and a whole number
begins again from the other one. What cannot be cast is null. A real is shown as Java shows it. It does not know where
Spark casts by itself: see ``spark_meaning``.
"""

from __future__ import annotations

from typing import cast

import sqlglot
from sqlglot import exp

_BITS = {exp.DType.TINYINT: 8, exp.DType.SMALLINT: 16, exp.DType.INT: 32, exp.DType.BIGINT: 64}
_REALS = (exp.DType.DOUBLE, exp.DType.FLOAT)
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
        if node.to.this is exp.DType.JSON or isinstance(node.to.this, exp.Interval):
            continue
        source, target = kind_of(node.this), node.to.this
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
        if source in (exp.DType.BINARY, exp.DType.VARBINARY):
            return exp.Anonymous(this="decode", expressions=[value])
    if target in exp.DataType.TEMPORAL_TYPES and source in exp.DataType.TEXT_TYPES:
        trimmed = _written(f"trim({{0}}, {_BLANK})", value)
        return exp.TryCast(this=trimmed, to=node.to, requires_string=False)
    return plain


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
    if wider and not isinstance(node, exp.TryCast) and not isinstance(value, exp.Literal):
        turned = f"CAST((({{0}} & {2**bits - 1}) + {high + 1}) % {2**bits} - {high + 1} AS {name})"
        return _written(f"CASE WHEN {{0}} BETWEEN {low} AND {high} THEN CAST({{0}} AS {name}) ELSE {turned} END", value)
    return None


def _written(template: str, value: exp.Expr) -> exp.Expr:
    """Put a value into a text of DuckDB's SQL."""
    tree = sqlglot.parse_one(template.replace("{0}", "__value"), read="duckdb")
    for column in list(tree.find_all(exp.Column)):
        if column.name == "__value":
            column.replace(exp.paren(value.copy()) if isinstance(value, exp.Binary) else value.copy())
    return tree
