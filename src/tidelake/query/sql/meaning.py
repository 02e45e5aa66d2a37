"""Make a tree of SQL mean on DuckDB what it means on Spark.

What the engines do alike is left as it is. Types are those that ``adapt`` found; where one is not known, nothing is
changed on its account. Casts are in ``casts``, functions by name in ``functions``. It does not change trees
that Spark runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.query.decimals import digits_of, is_decimal, refuse_unknown
from tidelake.query.sql.calls import answer_alike, with_operands
from tidelake.query.sql.casts import BYTES, as_spark_casts, as_text, cast_to, is_all_fraction, kind_of, written
from tidelake.query.sql.decimal_meaning import divides_decimals, mean, quotient, rest, whole_quotient

_Over = Callable[[exp.Expr], exp.Expr]  # puts an aggregate into the filter and the window of another

_NUMBERS = exp.DataType.NUMERIC_TYPES
_TEXTS = exp.DataType.TEXT_TYPES
_TIMES = exp.DataType.TEMPORAL_TYPES
_WHOLE = exp.DataType.INTEGER_TYPES
_UNITS = {
    "year": "y years yr yrs", "isoyear": "yearofweek", "quarter": "qtr", "month": "mon mons months", "week": "weeks w",
    "day": "d days", "dayofweek": "dow", "isodow": "dow_iso dayofweek_iso", "doy": "dayofyear",
    "hour": "h hours hr hrs", "minute": "m min mins minutes", "second": "s sec seconds secs",
}  # fmt: skip
_UNIT = {word: unit for unit, words in _UNITS.items() for word in (unit, *words.split())}
_MICROS = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_OF_DAYS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY"}
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv)
_AGGREGATES = (
    exp.Corr, exp.Skewness, exp.Kurtosis, exp.Mode, exp.WithinGroup, exp.GroupConcat, exp.Count, exp.Quantile,
    exp.ApproxQuantile, exp.Avg, exp.CountIf, exp.ArgMax, exp.ArgMin, exp.ArrayAgg, exp.ArrayUniqueAgg,
)  # fmt: skip
_UNLIKE = (
    exp.Substring,
    exp.RegexpReplace,
    exp.RegexpExtractAll,
    exp.Sqrt,
    exp.Ln,
    exp.Log,
    exp.Concat,
    exp.ConcatWs,
    exp.DPipe,
    exp.Reverse,
    exp.StrPosition,
    exp.Chr,
    exp.GenerateSeries,
    exp.JSONFormat,
)
_NAN = exp.cast(exp.Literal.string("NaN"), "DOUBLE")


def as_spark(tree: exp.Expr) -> None:
    """Change a tree in place so that DuckDB answers as Spark does."""
    refuse_unknown(tree)
    with_operands(tree)
    _branches(tree)
    _operands(tree)
    as_spark_casts(tree)
    _intervals(tree)
    _times(tree)
    _patterns(tree)
    _functions(tree)
    answer_alike(tree)
    _aggregates(tree)
    _generators(tree)
    _sets(tree)


def _branches(tree: exp.Expr) -> None:
    """Give the branches of a choice one type: text, where some are text."""
    for node in tree.find_all(exp.Case, exp.If, exp.Coalesce):
        match node:
            case exp.Case():
                parts = [*(each.args.get("true") for each in node.args["ifs"]), node.args.get("default")]
            case exp.If() if not isinstance(node.parent, exp.Case):
                parts = [node.args.get("true"), node.args.get("false")]
            case exp.Coalesce():
                parts = [node.this, *node.expressions]
            case _:
                continue
        _unify([each for each in parts if each is not None])


def _unify(parts: list[exp.Expr]) -> None:
    kinds = {kind_of(each) for each in parts} - {exp.DType.NULL, None, exp.DType.UNKNOWN}
    if not kinds & set(_TEXTS) or not kinds - set(_TEXTS):
        return
    for each in parts:
        if kind_of(each) not in (*_TEXTS, exp.DType.NULL, None, exp.DType.UNKNOWN):
            each.replace(exp.cast(each.copy(), "TEXT"))


def _operands(tree: exp.Expr) -> None:
    """Take a text that meets a number or a time in an operation as one, or as null."""
    kinds = (*_COMPARED, *_ARITHMETIC, exp.Between, exp.Neg, exp.Anonymous)
    for node in reversed(list(tree.find_all(*kinds))):  # inner ones first
        if isinstance(node, exp.Between):
            for bound in (node.args["low"], node.args["high"]):
                _as_other(bound, node.this)
        elif isinstance(node, exp.Neg):
            if kind_of(node.this) in _TEXTS and not isinstance(node.parent, exp.Interval):
                node.this.replace(cast_to(node.this, "DOUBLE"))
        elif isinstance(node, exp.Anonymous):
            if str(node.this).lower() == "tide_sql_try_divide" and len(node.expressions) == 2:
                left, right = node.expressions
                if divides_decimals(left, right):
                    node.replace(quotient(left, right))
        elif isinstance(node, _COMPARED):
            _as_other(node.this, node.expression)
            _as_other(node.expression, node.this)
        else:
            _calculate(node)


def _as_other(node: exp.Expr, other: exp.Expr) -> None:
    kind = kind_of(other)
    if kind_of(node) not in _TEXTS or other.type is None:
        return
    if kind in _NUMBERS or kind is exp.DType.BOOLEAN or kind in (exp.DType.DATE, exp.DType.TIMESTAMPTZ):
        to = exp.DataType.build("DOUBLE") if kind in (exp.DType.DECIMAL, exp.DType.BIGDECIMAL) else other.type.copy()
        made = exp.Cast(this=node.copy(), to=to)
        made.type = to.copy()
        node.replace(made)


def _calculate(node: exp.Expr) -> None:
    left, right = node.this, node.expression
    kinds = kind_of(left), kind_of(right)
    for side, other in ((left, right), (right, left)):
        if kind_of(side) not in _TEXTS:
            continue
        if kind_of(other) in _NUMBERS or kind_of(other) in _TEXTS or kind_of(other) is exp.DType.INTERVAL:
            if kind_of(other) is exp.DType.INTERVAL and isinstance(node, exp.Add | exp.Sub):
                side.replace(cast_to(side, "TIMESTAMPTZ"))
            else:
                side.replace(cast_to(side, "DOUBLE"))
        elif kind_of(other) in _TIMES and isinstance(node, exp.Sub):
            side.replace(cast_to(side, "DATE" if kind_of(other) is exp.DType.DATE else "TIMESTAMPTZ"))
    dates = kinds[0] is exp.DType.DATE or kinds[1] is exp.DType.DATE
    if isinstance(node, exp.Sub) and dates and all(kind is exp.DType.DATE or kind in _TEXTS for kind in kinds):
        days = exp.cast(exp.Sub(this=node.this.copy(), expression=node.expression.copy()), "INT")
        node.replace(_typed(exp.Anonymous(this="to_days", expressions=[days]), "INTERVAL"))
    elif isinstance(node, exp.Sub) and exp.DType.DATE in kinds and exp.DType.TIMESTAMPTZ in kinds:
        for side in (node.this, node.expression):
            if kind_of(side) is exp.DType.DATE:
                side.replace(cast_to(side, "TIMESTAMPTZ"))
    elif isinstance(node, exp.Add | exp.Sub) and dates and _is_of_days(left, right):
        made = cast_to(type(node)(this=node.this.copy(), expression=node.expression.copy()), "DATE")
        node.replace(made)
    elif isinstance(node, exp.Div) and divides_decimals(node.this, node.expression):
        node.replace(quotient(node.this, node.expression))
    elif isinstance(node, exp.IntDiv) and divides_decimals(node.this, node.expression):
        node.replace(whole_quotient(node.this, node.expression))
    elif isinstance(node, exp.Mod) and divides_decimals(node.this, node.expression):
        node.replace(rest(node.this, node.expression))
    elif isinstance(node, exp.IntDiv) and any(kind in _NUMBERS and kind not in _WHOLE for kind in kinds):
        whole = exp.Anonymous(
            this="trunc", expressions=[exp.Div(this=node.this.copy(), expression=node.expression.copy())]
        )
        node.replace(_typed(exp.cast(whole, "BIGINT"), "BIGINT"))


def _is_of_days(*sides: exp.Expr) -> bool:
    """Whether one of two is an interval of whole days, or of more: a date that it is added to stays one."""
    for side in sides:
        if isinstance(side, exp.Interval) and (unit := side.args.get("unit")) is not None:
            words = [unit.this, unit.expression] if isinstance(unit, exp.IntervalSpan) else [unit]
            return all(str(word).upper().removesuffix("S") in _OF_DAYS for word in words)
    return False


def _typed(node: exp.Expr, kind: str) -> exp.Expr:
    node.type = exp.DataType.build(kind)
    return node


def _intervals(tree: exp.Expr) -> None:
    """Write the forms of an interval that DuckDB does not read: ``'1-2' year to month``, and signs before a text."""
    for node in list(tree.find_all(exp.Interval)):
        value, unit = node.this, node.args.get("unit")
        negative = isinstance(value, exp.Neg)
        if negative:
            value = value.this
        if not isinstance(value, exp.Literal) or isinstance(node.parent, exp.DataType):
            continue
        text = str(value.this).strip()
        if isinstance(unit, exp.IntervalSpan):
            node.replace(_span(text, str(unit.this).upper(), str(unit.expression).upper(), negative))
        elif unit is not None and (negative or re.search(r"\s", text)):
            number = ("-" if negative else "") + re.sub(r"\s", "", text)
            node.set("this", exp.Literal.string(number.removeprefix("--")))
        elif unit is None:
            value.set("this", re.sub(r"^interval\s+", "", text, flags=re.IGNORECASE))


def _span(text: str, first: str, last: str, negative: bool) -> exp.Expr:
    sign = -1 if (text.startswith("-")) != negative else 1
    parts = re.split(r"[-\s:]+", text.lstrip("+-"))
    if first in ("YEAR", "MONTH"):
        years, months = (*map(int, parts), 0)[:2]
        made: exp.Expr = exp.Anonymous(this="to_months", expressions=[exp.Literal.number(sign * (years * 12 + months))])
    else:
        units = list(_MICROS)
        chosen = units[units.index(first) : units.index(last) + 1]
        if len(parts) != len(chosen):
            raise QueryError(f"'{text}' is not an interval {first} to {last}".lower(), kind="syntax")
        micros = int(sum(Decimal(part) * _MICROS[unit] for part, unit in zip(parts, chosen, strict=True)))
        days, rest = divmod(micros, _MICROS["DAY"]) if first == "DAY" else (0, micros)
        made = exp.Anonymous(this="to_microseconds", expressions=[exp.Literal.number(sign * rest)])
        if days:
            whole = exp.Anonymous(this="to_days", expressions=[exp.Literal.number(sign * days)])
            made = exp.paren(exp.Add(this=whole, expression=made))
    return _typed(made, "INTERVAL")


def _times(tree: exp.Expr) -> None:
    """Make DuckDB's functions of times answer as Spark's do."""
    kinds = (
        exp.StrToUnix, exp.DayOfWeek, exp.TsOrDsAdd, exp.DateAdd, exp.Extract, exp.TimestampDiff, exp.Anonymous,
    )  # fmt: skip
    for node in reversed(list(tree.find_all(*kinds))):
        match node:
            case exp.StrToUnix():
                if kind_of(node.this) in _TEXTS:
                    node.replace(exp.cast(node.copy(), "BIGINT"))
                elif kind_of(node.this) in _TIMES:
                    whole = exp.Floor(this=exp.Anonymous(this="epoch", expressions=[node.this]))
                    node.replace(exp.cast(whole, "BIGINT"))
            case exp.DayOfWeek():  # Sunday is 1
                node.replace(exp.paren(exp.Add(this=node.copy(), expression=exp.Literal.number(1))))
            case exp.TimestampDiff():  # whole units, not how many begin in between
                unit = str(node.args.get("unit") or "DAY").upper()
                node.replace(_months_apart(node, _MONTHS[unit]) if unit in _MONTHS else _units_apart(node, unit))
            case exp.Extract():
                node.replace(_part(str(node.name or node.this), node.expression) or node.copy())
            case exp.Anonymous():
                if str(node.this).lower() in ("date_part", "datepart") and len(node.expressions) == 2:
                    unit, value = node.expressions
                    made = exp.Null() if isinstance(unit, exp.Null) else _part(unit.name, value)
                    node.replace(made or node.copy())
            case _:
                if str(node.args.get("unit") or "DAY").upper() == "DAY" and not isinstance(node.parent, exp.Cast):
                    node.replace(exp.cast(node.copy(), "DATE"))


def _units_apart(node: exp.TimestampDiff, unit: str) -> exp.Expr:
    return exp.Anonymous(
        this="datesub", expressions=[exp.Literal.string(unit.lower()), node.expression.copy(), node.this.copy()]
    )


def _months_apart(node: exp.TimestampDiff, months: int) -> exp.Expr:
    """Count whole months: one is whole when its day and its time of day are reached."""
    between = "((year(tide_p.b) - year(tide_p.a)) * 12 + month(tide_p.b) - month(tide_p.a))"
    rest = "epoch_us(tide_p.{0}) - epoch_us(date_trunc('month', tide_p.{0}))"
    a, b = rest.format("a"), rest.format("b")
    short = (
        f"CASE WHEN tide_p.b >= tide_p.a AND {b} < {a} THEN -1 WHEN tide_p.b < tide_p.a AND {b} > {a} THEN 1 ELSE 0 END"
    )
    body = f"CAST(trunc(({between} + {short}) / {months}) AS BIGINT)"
    sides = "{'a': CAST({0} AS TIMESTAMP), 'b': CAST({1} AS TIMESTAMP)}"
    return written(f"list_transform([{sides}], lambda tide_p: {body})[1]", node.expression, node.this)


def _part(word: str, value: exp.Expr) -> exp.Expr | None:
    """Return one part of a time or an interval, under DuckDB's name for it; seconds have their fraction."""
    unit = _UNIT.get(word.lower())
    if unit is None:
        return None
    if kind_of(value) in _TEXTS:
        value = cast_to(value, "TIMESTAMP")
    if kind_of(value) is exp.DType.INTERVAL and unit in ("day", "hour"):  # hours beyond a day are days
        whole = "(date_part('day', {0}) + date_part('hour', {0}) // 24)"
        return written(whole if unit == "day" else "(date_part('hour', {0}) % 24)", value)
    found: exp.Expr = exp.Anonymous(
        this="date_part", expressions=[exp.Literal.string("microsecond" if unit == "second" else unit), value.copy()]
    )
    if unit == "second":
        return exp.cast(exp.Div(this=found, expression=exp.Literal.number(1_000_000)), "DECIMAL(8, 6)")
    return exp.paren(exp.Add(this=found, expression=exp.Literal.number(1))) if unit == "dayofweek" else found


def _patterns(tree: exp.Expr) -> None:
    """Let a backslash in a pattern take the meaning from a wildcard, as in Spark."""
    for node in list(tree.find_all(exp.Like, exp.ILike)):
        plain = isinstance(node.expression, exp.Literal) and "\\" not in str(node.expression.this)
        if not plain and not isinstance(node.parent, exp.Escape):
            node.replace(exp.Escape(this=node.copy(), expression=exp.Literal.string("\\")))


def _functions(tree: exp.Expr) -> None:
    """Let functions of one name answer alike: where texts begin, what has no root, how numbers are shown."""
    for node in reversed(list(tree.find_all(*_UNLIKE))):
        match node:
            case exp.RegexpReplace():
                _replacement(node)
            case exp.Sqrt():
                negative = exp.LT(this=node.this.copy(), expression=exp.Literal.number(0))
                node.replace(exp.Case(ifs=[exp.If(this=negative, true=_NAN.copy())], default=node.copy()))
            case exp.Ln() | exp.Log():
                subject = node.expression if isinstance(node, exp.Log) and node.expression else node.this
                above = exp.GT(this=subject.copy(), expression=exp.Literal.number(0))
                node.replace(exp.Case(ifs=[exp.If(this=above, true=node.copy())]))
            case exp.Substring():
                _substring(node)
            case exp.RegexpExtractAll():
                _without_nulls(node)
            case exp.Reverse():
                _reverse(node)
            case exp.StrPosition():
                _position(node)
            case exp.Chr():
                for code in list(node.expressions):
                    code.replace(written("CAST(CAST({0} AS BIGINT) & 255 AS INTEGER)", code))
            case exp.GenerateSeries():
                _sequence(node)
            case exp.JSONFormat():
                _as_json(node)
            case _:
                for part in [*node.expressions, *([node.this, node.expression] if isinstance(node, exp.DPipe) else [])]:
                    if kind_of(part) in (exp.DType.DOUBLE, exp.DType.FLOAT) or is_all_fraction(part):
                        part.replace(as_text(part))


def _reverse(node: exp.Reverse) -> None:
    """Turn a text or a list around; DuckDB would turn the text that a list is shown as."""
    kind = kind_of(node.this)
    if kind is exp.DType.ARRAY or isinstance(node.this, exp.Array):
        node.replace(exp.Anonymous(this="list_reverse", expressions=[node.this]))
    elif kind not in _TEXTS and kind is not exp.DType.NULL:
        message = "reverse takes what is known as text or as an array in process: cast it, or ask with engine='spark'"
        raise QueryError(message, kind="unsupported")


def _position(node: exp.StrPosition) -> None:
    start = node.args.get("position")
    if start is not None:
        before = exp.LT(this=exp.paren(start.copy()), expression=exp.Literal.number(1))
        node.replace(exp.Case(ifs=[exp.If(this=before, true=exp.Literal.number(0))], default=node.copy()))


def _sequence(node: exp.GenerateSeries) -> None:
    """Count down where the end is before the start; dates and months are refused, which DuckDB adds one by one."""
    start, end, step = (node.args.get(key) for key in ("start", "end", "step"))
    if isinstance(node.parent, exp.Table) or start is None or end is None:
        return
    if kind_of(start) in _TIMES:
        if step is None or kind_of(start) is exp.DType.DATE or not _is_short(step):
            message = (
                "sequence of times takes timestamps and a step of days or less in process: ask with engine='spark'"
            )
            raise QueryError(message, kind="unsupported")
    elif step is None:
        down = exp.GT(this=exp.paren(start.copy()), expression=exp.paren(end.copy()))
        one = exp.If(this=down, true=exp.Literal.number(-1))
        node.set("step", exp.Case(ifs=[one], default=exp.Literal.number(1)))


def _is_short(step: exp.Expr) -> bool:
    unit = str(step.args.get("unit") or "").upper().removesuffix("S")
    return isinstance(step, exp.Interval) and unit in (*_MICROS, "WEEK")


def _as_json(node: exp.JSONFormat) -> None:
    """Leave out the fields of a struct that are null; times and decimals, which Spark writes otherwise, are refused."""
    if not isinstance(node.this, exp.Expr):
        raise QueryError("to_json is given too few arguments", kind="arguments")
    kind = node.this.type
    inside = list(kind.find_all(exp.DataType)) if kind is not None else []
    if any(each.this in (*_TIMES, exp.DType.DECIMAL, *BYTES) for each in inside):
        message = (
            "to_json takes no times, decimals or bytes in process: cast them to string, or ask with engine='spark'"
        )
        raise QueryError(message, kind="unsupported")
    if kind is not None and kind.this is not exp.DType.VARIANT and not any(e.this is exp.DType.MAP for e in inside):
        text = exp.cast(node.copy(), "VARCHAR")
        node.replace(exp.Anonymous(this="tide_without_null_fields", expressions=[text]))


def _substring(node: exp.Substring) -> None:
    start = node.args.get("start")
    if isinstance(start, exp.Literal) and start.this == "0":
        node.set("start", exp.Literal.number(1))
    elif start is not None and not isinstance(start.unnest(), exp.Literal | exp.Neg):
        first = exp.If(this=exp.EQ(this=start.copy(), expression=exp.Literal.number(0)), true=exp.Literal.number(1))
        node.set("start", exp.Case(ifs=[first], default=start.copy()))


def _without_nulls(node: exp.Expr) -> None:
    """Let a group that took no part in a match be empty text."""
    item = exp.Coalesce(this=exp.column("tide_x"), expressions=[exp.Literal.string("")])
    each = exp.Lambda(this=item, expressions=[exp.to_identifier("tide_x")])
    node.replace(exp.Anonymous(this="list_transform", expressions=[node.copy(), each]))


def _replacement(node: exp.RegexpReplace) -> None:
    """Let ``$1`` stand for a group, as in Spark, and a backslash for itself or what follows it."""
    given = node.args.get("replacement")
    if isinstance(given, exp.Literal):
        written = re.sub(r"\\(.)|\$(\d)", lambda m: f"\\{m[2]}" if m[2] else m[1].replace("\\", r"\\"), str(given.this))
        node.set("replacement", exp.Literal.string(written))
    elif given is not None:
        parts = [given.copy(), exp.Literal.string(r"\$(\d)"), exp.Literal.string(r"\\\1"), exp.Literal.string("g")]
        node.set("replacement", exp.Anonymous(this="regexp_replace", expressions=parts))


def _aggregates(tree: exp.Expr) -> None:
    """Let aggregates answer as Spark's do, also where they are filtered or over a window."""
    for node in reversed(list(tree.find_all(*_AGGREGATES))):
        match node:
            case exp.Avg() if kind_of(node.this) is exp.DType.TIMESTAMPTZ:  # seconds
                node.this.replace(exp.Anonymous(this="epoch", expressions=[node.this.copy()]))
            case exp.Avg() if is_decimal(node.this) and digits_of(node.this) is not None:
                _around(node, _mean)
            case exp.ArgMax() | exp.ArgMin():
                _around(node, _chosen)
            case exp.ArrayAgg() | exp.ArrayUniqueAgg():  # of nothing, an empty list
                _around(node, lambda over, inner: exp.Coalesce(this=over(inner), expressions=[exp.Array()]))
            case exp.Avg() if kind_of(node.this) is exp.DType.INTERVAL:
                raise QueryError(
                    "avg takes numbers in process, not intervals: ask with engine='spark'", kind="unsupported"
                )
            case exp.Corr():  # of what does not vary there is none
                _around(node, _known)
            case exp.CountIf():  # what is not known is not counted, and nothing is not null
                one = exp.If(this=node.this.copy(), true=exp.Literal.number(1))
                node.replace(exp.Count(this=exp.Case(ifs=[one])))
            case exp.Kurtosis():
                node.replace(exp.Anonymous(this="kurtosis_pop", expressions=[node.this]))
            case exp.Skewness():
                _around(node, _skewness)
            case exp.Count() if node.expressions:
                _count_whole(node)
            case exp.GroupConcat() if any(
                kind_of(each) in (*BYTES, exp.DType.INTERVAL)
                for each in node.find_all(exp.Column, exp.HexString, exp.Interval)
            ):
                message = "listagg takes text in process, not bytes or intervals: ask with engine='spark'"
                raise QueryError(message, kind="unsupported")
            case exp.GroupConcat():
                if node.args.get("separator") is None or isinstance(node.args["separator"], exp.Null):
                    node.set("separator", exp.Literal.string(""))
            case exp.Mode() if not isinstance(node.parent, exp.WithinGroup):
                node.replace(exp.Anonymous(this="mode", expressions=[node.this]))
            case exp.WithinGroup():
                _within_group(node)
            case exp.Quantile() | exp.ApproxQuantile():
                name = "quantile_disc" if isinstance(node, exp.ApproxQuantile) else "quantile_cont"
                node.replace(exp.Anonymous(this=name, expressions=[node.this, node.args["quantile"]]))


def _around(node: exp.Expr, made: Callable[[_Over, exp.Expr], exp.Expr]) -> None:
    """Replace an aggregate with its filter and window by what is ``made`` of aggregates with the same."""
    whole: exp.Expr = node
    while isinstance(whole.parent, exp.Filter | exp.Window) and whole.arg_key == "this":
        whole = whole.parent

    def over(inner: exp.Expr) -> exp.Expr:
        if whole is node:
            return inner
        outside = whole.copy()
        at = outside
        while isinstance(at.this, exp.Filter | exp.Window):
            at = at.this
        at.set("this", inner)
        return outside

    whole.replace(exp.paren(made(over, node.copy())))


def _chosen(over: _Over, node: exp.Expr) -> exp.Expr:
    """Return what stands beside the greatest or the least, also where that is null: a struct is never null."""
    held = exp.Struct(expressions=[exp.PropertyEQ(this=exp.to_identifier("v"), expression=node.this.copy())])
    name = "arg_max" if isinstance(node, exp.ArgMax) else "arg_min"
    count = node.args.get("count")
    call = exp.Anonymous(this=name, expressions=[held, node.expression.copy(), *([count.copy()] if count else [])])
    if count is None:
        return exp.Anonymous(this="struct_extract", expressions=[over(call), exp.Literal.string("v")])
    item = exp.Var(this="tide_x.v")
    each = exp.Lambda(this=item, expressions=[exp.to_identifier("tide_x")])
    return exp.Anonymous(this="list_transform", expressions=[over(call), each])


def _mean(over: _Over, node: exp.Expr) -> exp.Expr:
    """Return an exact mean of decimals, which DuckDB works out as reals."""
    inner, digits = node.this, digits_of(node.this)
    assert digits is not None
    given = exp.Distinct(expressions=inner.expressions) if isinstance(inner, exp.Distinct) else inner
    return mean(over(exp.Sum(this=given.copy())), over(exp.Count(this=given.copy())), digits)


def _known(over: _Over, node: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="nullif", expressions=[over(node), _NAN.copy()])


def _skewness(over: _Over, node: exp.Expr) -> exp.Expr:
    """Return the skewness of a whole, out of DuckDB's, which is that of a sample."""
    kinds = (exp.Count, exp.Min, exp.Max, type(node))
    count, least, most, own = (over(kind(this=node.this.copy())) for kind in kinds)
    n = "CAST({0} AS DOUBLE)"
    whole = f"{{3}} * ({n} - 2) / sqrt({n} * ({n} - 1))"
    text = f"CASE WHEN {{1}} = {{2}} THEN NULL WHEN {n} = 2 THEN 0.0::DOUBLE ELSE {whole} END"
    return written(text, count, least, most, own)


def _count_whole(node: exp.Count) -> None:
    """Count the rows in which none of several is null."""
    parts = [node.this, *node.expressions]
    whole = exp.and_(*(exp.Not(this=exp.Is(this=part.copy(), expression=exp.Null())) for part in parts))
    node.replace(exp.Count(this=exp.Case(ifs=[exp.If(this=whole, true=exp.Literal.number(1))])))


def _within_group(node: exp.WithinGroup) -> None:
    """Say percentiles and the mode of an order as functions of what is ordered."""
    order = node.expression.expressions[0]
    value, descending = order.this, bool(order.args.get("desc"))
    inner = node.this
    if isinstance(inner, exp.Mode):
        node.replace(exp.Anonymous(this="mode", expressions=[exp.Order(this=value, expressions=[order.copy()])]))
    elif isinstance(inner, exp.PercentileCont | exp.PercentileDisc):
        share = inner.this.copy()
        name = "quantile_cont" if isinstance(inner, exp.PercentileCont) else "quantile_disc"
        if not descending:
            node.replace(exp.Anonymous(this=name, expressions=[value, share]))
        elif isinstance(inner, exp.PercentileCont):
            rest = exp.paren(exp.Sub(this=exp.Literal.number(1), expression=share))
            node.replace(exp.Anonymous(this=name, expressions=[value, rest]))
        elif kind_of(value) in _NUMBERS:
            turned = exp.Anonymous(this=name, expressions=[exp.Neg(this=exp.paren(value.copy())), share])
            node.replace(turned)
            _around(turned, lambda over, inner: exp.Neg(this=over(inner)))


def _sets(tree: exp.Expr) -> None:
    """Let several grouping sets of no rows give no row, also for the whole."""
    for group in tree.find_all(exp.Group):
        sets = group.find(exp.GroupingSets, exp.Rollup, exp.Cube)
        select = group.parent
        if sets is None or not isinstance(select, exp.Select):
            continue
        if isinstance(sets, exp.GroupingSets) and len(sets.expressions) < 2 and len(group.expressions) < 2:
            continue
        some: exp.Expr = exp.GT(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
        having = select.args.get("having")
        select.set("having", exp.Having(this=some if having is None else exp.and_(having.this.copy(), some)))


def _generators(tree: exp.Expr) -> None:
    """Write what makes rows, as a table, by unnesting a list."""
    for table in list(tree.find_all(exp.Table)):
        call = table.this
        if isinstance(call, exp.Identifier) or call is None:
            continue
        name = str(call.this).lower() if isinstance(call, exp.Anonymous) else call.sql_name().lower()
        if name == "range":
            call.set("expressions", [exp.cast(each, "BIGINT") for each in call.expressions[:3]])
        elif name in ("explode", "posexplode", "explode_outer", "posexplode_outer"):
            argument = call.expressions[0] if isinstance(call, exp.Anonymous) else call.this
            is_map = isinstance(argument, exp.VarMap | exp.Map) or kind_of(argument) is exp.DType.MAP
            table.replace(
                _unnested(argument, table.args["alias"], is_map, name.endswith("_outer"), name.startswith("pos"))
            )


def _unnested(value: exp.Expr, alias: exp.TableAlias, is_map: bool, outer: bool, numbered: bool) -> exp.Expr:
    items = listed = "map_entries({0})" if is_map else "{0}"
    if outer:
        items = f"CASE WHEN len({items}) > 0 THEN {items} ELSE [NULL] END"
    item = "tide_item.key, tide_item.value" if is_map else "tide_item"
    number = f"CASE WHEN len({listed}) > 0 THEN tide_place - 1 END, " if numbered else ""
    placed = f"unnest({items}) AS tide_item, generate_subscripts({items}, 1) AS tide_place"
    text = f"(SELECT {number}{item} FROM (SELECT {placed}))"
    made = written(text, value)
    made.set("alias", alias.copy())
    return made
