"""Make DuckDB cast as Spark does, with errors off.

To whole numbers what is behind the point is cut off; beyond their range a real is the nearest end and a whole number
begins again from the other one. What cannot be cast is null. A real is shown as Java shows it. It does not know where
Spark casts by itself: see ``spark_meaning``.
"""

from __future__ import annotations

import re
from typing import cast

import sqlglot
from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.query.decimals import MAX_DIGITS, digits_of, is_decimal
from tidelake.query.sql.number_texts import number_text
from tidelake.query.sql.time_texts import days_of_text, micros_of_text, wall_micros_of_text

_BITS = {exp.DType.TINYINT: 8, exp.DType.SMALLINT: 16, exp.DType.INT: 32, exp.DType.BIGINT: 64}
BYTES = (exp.DType.BINARY, exp.DType.VARBINARY)
_REALS = (exp.DType.DOUBLE, exp.DType.FLOAT)
_MONTHS = {"YEAR": 12, "MONTH": 1}
_SECONDS = {"DAY": 86_400, "HOUR": 3_600, "MINUTE": 60, "SECOND": 1}
_BLANK = "' ' || chr(9) || chr(10) || chr(13)"
# Texts of times that DuckDB reads as Spark does; the others are read by functions of ours.
_PLAIN_DATE = r"\d{4}-\d{1,2}-\d{1,2}"
_PLAIN_WALL = _PLAIN_DATE + r"(?:[ T](?:[01]?\d|2[0-3]):[0-5]?\d(?::[0-5]?\d(?:[.]\d{1,6})?)?)?"
_PLAIN_TIME = (
    _PLAIN_WALL
    + "|"
    + _PLAIN_DATE
    + r"[ T](?:[01]?\d|2[0-3]):[0-5]?\d:[0-5]?\d(?:[.]\d{1,6})?(?:Z|[+-](?:0\d|1[0-7])(?::[0-5]\d)?)"
)
_INSTANTS = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)
_TO_BOOL = (
    f"CASE lower(trim({{0}}, {_BLANK})) WHEN 't' THEN TRUE WHEN 'true' THEN TRUE WHEN 'y' THEN TRUE WHEN 'yes' THEN TRUE"
    " WHEN '1' THEN TRUE WHEN 'f' THEN FALSE WHEN 'false' THEN FALSE WHEN 'n' THEN FALSE WHEN 'no' THEN FALSE"
    " WHEN '0' THEN FALSE END"
)
# As Java reads a real: it may end with its type, or have digits of base 16, but none that are kept apart by a line.
_TO_REAL = (
    "CASE WHEN contains({0}, '_') THEN NULL ELSE coalesce(TRY_CAST({0} AS DOUBLE), TRY_CAST("
    r"regexp_extract({0}, '^\s*([+-]?(?:\d+[.]?\d*|[.]\d+)(?:[eE][+-]?\d+)?)[fFdD]\s*$', 1) AS DOUBLE),"
    r" CASE WHEN regexp_matches({0}, '^\s*[+-]?0[xX][^pP]*[pP]') THEN CAST(tide_real_of_base_16({0}) AS DOUBLE) END) END"
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
    """Return a real number, or a decimal, as the text that Java shows it by."""
    digits = digits_of(node) if is_decimal(node) else None
    if digits is not None:
        return written(f"CAST(CAST({{0}} AS DECIMAL({MAX_DIGITS}, {digits[1]})) AS VARCHAR)", node)
    return written(_REAL_TEXT, node)


def is_all_fraction(node: exp.Expr) -> bool:
    """Whether a decimal has no digit before its point, where DuckDB writes no zero."""
    digits = digits_of(node) if is_decimal(node) else None
    return digits is not None and digits[0] == digits[1] < MAX_DIGITS


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
        return written(_TO_BOOL, value)
    if target in exp.DataType.TEXT_TYPES:
        if source in _REALS:
            return as_text(value)
        if source is exp.DType.TIMESTAMPTZ:  # Spark shows no zone
            parts = [plain, exp.Literal.string("[+]00$"), exp.Literal.string("")]
            return exp.Anonymous(this="regexp_replace", expressions=parts)
        if is_all_fraction(value):
            return as_text(value)
        if source in BYTES:
            return exp.Anonymous(this="decode", expressions=[value])
        if source in (exp.DType.STRUCT, exp.DType.MAP):
            raise QueryError("a struct or a map is not cast to text in process: use to_json", kind="unsupported")
    if target is exp.DType.ARRAY and len(node.to.expressions) == 1:
        return _items(node)
    if target is exp.DType.DECIMAL and source in _REALS:  # by the digits that the number is shown with
        shown = exp.TryCast(this=value, to=exp.DataType.build("TEXT"), requires_string=False)
        return exp.TryCast(this=shown, to=node.to, requires_string=False)
    if target is exp.DType.DECIMAL and source in exp.DataType.TEXT_TYPES:
        return exp.TryCast(this=_plain_number(value), to=node.to, requires_string=False)
    if target in _REALS and source in exp.DataType.TEXT_TYPES:
        return written(_TO_REAL.replace("DOUBLE", target.value), value)
    if target in BYTES:
        return _bytes(value, source) or plain
    if target in exp.DataType.TEMPORAL_TYPES and source in exp.DataType.TEXT_TYPES:
        return _time(node, target)
    if target in _INSTANTS and source in exp.DataType.NUMERIC_TYPES:
        if source in _BITS:
            return written("make_timestamptz(CAST({0} AS BIGINT) * 1000000)", value)
        exact = "DOUBLE" if source in _REALS else "DECIMAL(38, 9)"
        return written(f"make_timestamptz(TRY_CAST(trunc(CAST({{0}} AS {exact}) * 1000000) AS BIGINT))", value)
    if target in exp.DataType.REAL_TYPES and source in _INSTANTS:
        exact = "CAST(epoch_us({0}) AS DECIMAL(38, 6)) / 1000000" if target not in _REALS else "epoch({0})"
        return exp.TryCast(this=written(exact, value), to=node.to, requires_string=False)
    return plain


def _items(node: exp.Cast) -> exp.Expr:
    """Return a list whose items are cast one by one."""
    inner = node.to.expressions[0]
    held = node.this.type
    known = held.expressions[0] if held is not None and held.this is exp.DType.ARRAY and held.expressions else None
    item = exp.column("tide_c")
    item.type = known.copy() if known is not None else exp.DataType.build("DOUBLE") if inner.this in _BITS else None
    made = _cast(exp.Cast(this=item, to=inner.copy()), kind_of(item), inner.this)
    each = exp.Lambda(this=made, expressions=[exp.to_identifier("tide_c")])
    return exp.Anonymous(this="list_transform", expressions=[node.this, each])


def _plain_number(value: exp.Expr) -> exp.Expr:
    """Return the text of a number without its exponent, whose digits DuckDB does not keep."""
    if isinstance(value, exp.Literal):
        found = number_text(str(value.this))
        return exp.Null() if found is None else exp.Literal.string(found)
    return written("CASE WHEN regexp_matches({0}, '[eE_]') THEN tide_number_text({0}) ELSE {0} END", value)


def _time(node: exp.Cast, target: exp.DType) -> exp.Expr:
    """Return a text as a date, a time or what a wall clock shows; what no engine reads alike, by functions of ours."""
    value = node.this
    if target is exp.DType.DATE:
        shape, made, read = _PLAIN_DATE, "(DATE '1970-01-01' + CAST({0} AS INTEGER))", days_of_text
    elif target in _INSTANTS:
        shape, made, read = _PLAIN_TIME, "make_timestamptz({0})", micros_of_text
    elif target is exp.DType.TIMESTAMPNTZ:
        shape, made, read = _PLAIN_WALL, "make_timestamp({0})", wall_micros_of_text
    else:
        trimmed = written(f"trim({{0}}, {_BLANK})", value)
        return exp.TryCast(this=trimmed, to=node.to, requires_string=False)
    kind = "TIMESTAMPTZ" if target in _INSTANTS else "DATE" if target is exp.DType.DATE else "TIMESTAMP"
    if isinstance(value, exp.Literal):
        found = read(str(value.this))
        number = "NULL" if found is None else str(found)
        return written(f"CAST({made.format(f'CAST({number} AS BIGINT)')} AS {kind})", value)
    ours = made.format(f"tide_{read.__name__}({{0}})")
    text = f"CASE WHEN regexp_full_match({{0}}, '{shape}') THEN TRY_CAST({{0}} AS {kind}) ELSE {ours} END"
    return written(text, value)


def _bytes(value: exp.Expr, source: exp.DType | None) -> exp.Expr | None:
    """Return the bytes of a text, or of a whole number, its highest byte first."""
    if source in exp.DataType.TEXT_TYPES:
        return exp.Anonymous(this="encode", expressions=[value])
    if source in _BITS and source is not None:
        digits = _BITS[source] // 4
        return written(f"unhex(right(lpad(hex(CAST({{0}} AS BIGINT)), 16, '0'), {digits}))", value)
    return None


def _interval_cast(node: exp.Cast, source: exp.DType | None) -> exp.Expr:
    """Return a cast to or from an interval: a number counts the last of its units."""
    target = node.to.this
    unit = _last_unit(target if isinstance(target, exp.Interval) else None)
    value: exp.Expr = node.this
    if source in exp.DataType.NUMERIC_TYPES and unit is not None:
        if unit in _MONTHS:
            made = written(f"to_months(CAST(round(CAST({{0}} AS DOUBLE)) * {_MONTHS[unit]} AS INTEGER))", value)
        else:
            factor = 10**6 if unit == "SECOND" else 1
            whole = "trunc(CAST({0} AS DECIMAL(28, 6)) * 1000000)" if factor > 1 else "trunc(CAST({0} AS DOUBLE))"
            made = written(f"to_microseconds(CAST({whole} * {_SECONDS[unit] * 10**6 // factor} AS BIGINT))", value)
        made.type = exp.DataType.build("INTERVAL")
        return made
    if source in exp.DataType.TEXT_TYPES:
        return _interval_of_text(value, target)
    inner = value.unnest() if isinstance(value, exp.Paren) else value
    own = _last_unit(inner) if isinstance(inner, exp.Interval) else None
    if target in exp.DataType.NUMERIC_TYPES and own is not None:
        return _of_interval(node, value, own)
    if source is exp.DType.INTERVAL and not isinstance(target, exp.Interval) and target is not exp.DType.INTERVAL:
        shown = node.to.sql("spark").lower()
        message = f"an interval is not cast to {shown} in process: take its parts by extract(… from …)"
        raise QueryError(message, kind="unsupported")
    return exp.TryCast(this=value, to=exp.DataType.build("INTERVAL"), requires_string=False)


def _interval_of_text(value: exp.Expr, target: object) -> exp.Expr:
    """Return the interval that a text of one's units says; one that is not written out in the query is refused."""
    if not isinstance(target, exp.Interval) or target.args.get("unit") is None:
        return written("TRY_CAST(regexp_replace({0}, '^\\s*interval\\s+', '', 'i') AS INTERVAL)", value)
    if not isinstance(value, exp.Literal):
        message = "text in a column is not cast to an interval in process: use make_dt_interval or make_ym_interval"
        raise QueryError(message, kind="unsupported")
    text = re.sub(r"^\s*interval\s+([+-]?)'([^']*)'.*$", r"\1\2", str(value.this), flags=re.IGNORECASE | re.DOTALL)
    if not re.fullmatch(r"\s*[+-]?\s*\d[\d\s:.-]*", text):
        raise QueryError(f"{value.this!r} is not an interval of {target.args['unit'].sql().lower()}", kind="runtime")
    made = exp.Interval(this=exp.Literal.string(text.strip()), unit=target.args["unit"].copy())
    made.type = exp.DataType.build("INTERVAL")
    return made


def _of_interval(node: exp.Cast, value: exp.Expr, unit: str) -> exp.Expr:
    if unit in _MONTHS:
        count = f"((date_part('year', {{0}}) * 12 + date_part('month', {{0}})) // {_MONTHS[unit]})"
    else:
        count = f"(CAST(epoch_us({{0}}) AS DECIMAL(28, 6)) / {_SECONDS[unit] * 10**6})"
    if node.to.this in _BITS:
        count = f"trunc({count})"
    return exp.TryCast(this=written(count, value), to=node.to, requires_string=False)


def _last_unit(interval: exp.Interval | None) -> str | None:
    unit = interval.args.get("unit") if interval is not None else None
    word = unit.expression if isinstance(unit, exp.IntervalSpan) else unit
    return str(word).upper().removesuffix("S") if word is not None else None


def _whole(node: exp.Cast, source: exp.DType | None, target: exp.DType) -> exp.Expr | None:
    """Return a cast to a whole number, or None where it is the engine's own."""
    name, bits = target.value, _BITS[target]
    value = node.this
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if source in _INSTANTS:
        return written(
            f"TRY_CAST(epoch_us({{0}}) // 1000000 - CASE WHEN epoch_us({{0}}) % 1000000 < 0 THEN 1 ELSE 0 END AS {name})",
            value,
        )
    if source in exp.DataType.TEXT_TYPES:
        tail = "" if isinstance(node, exp.TryCast) else r"(?:[.]\d*)?"
        return written(rf"TRY_CAST(regexp_extract({{0}}, '^\s*([+-]?\d+){tail}\s*$', 1) AS {name})", value)
    if source in _REALS and bits >= 32 and not isinstance(node, exp.TryCast):
        edge = f"CASE WHEN isnan({{0}}) THEN 0 WHEN {{0}} >= {high} THEN CAST({high} AS {name}) WHEN {{0}} <= {low} THEN CAST({low} AS {name})"
        return written(f"{edge} ELSE TRY_CAST(trunc({{0}}) AS {name}) END", value)
    if source in exp.DataType.REAL_TYPES:
        return exp.TryCast(this=exp.Anonymous(this="trunc", expressions=[value]), to=node.to, requires_string=False)
    wider = source in _BITS and source is not None and _BITS[source] > bits
    if wider and not isinstance(node, exp.TryCast):
        turned = f"CAST((({{0}} & {2**bits - 1}) + {high + 1}) % {2**bits} - {high + 1} AS {name})"
        return written(f"CASE WHEN {{0}} BETWEEN {low} AND {high} THEN CAST({{0}} AS {name}) ELSE {turned} END", value)
    return None


def written(template: str, *values: exp.Expr) -> exp.Expr:
    """Put values into a text of DuckDB's SQL, where they stay part of the tree: ``{0}`` is the first."""
    tree = sqlglot.parse_one(re.sub(r"\{(\d)\}", r"__value_\1", template), read="duckdb")
    for call in reversed(list(tree.find_all(exp.RegexpReplace))):  # which mean DuckDB's, unlike those of a query
        given = [call.args.get(key) for key in ("this", "expression", "replacement", "modifiers")]
        known = [each for each in given if each is not None]
        call.replace(exp.Anonymous(this="regexp_replace", expressions=known))
    for column in list(tree.find_all(exp.Column)):
        if column.name.startswith("__value_"):
            value = values[int(column.name.removeprefix("__value_"))]
            column.replace(exp.paren(value.copy()) if isinstance(value, exp.Binary) else value.copy())
    return tree
