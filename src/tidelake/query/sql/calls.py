"""Make calls of functions on DuckDB what they are on Spark: what they are given, and what they answer.

A function of times takes text, which Spark casts by itself. ``typeof`` is known before a query runs. Of functions that
DuckDB has under the same name with other answers, those of Spark are given. Letters that become several when their case
changes, such as ß, are left to Python, which follows the same tables as Spark; all others to DuckDB. It does not write
functions of other names: see ``sql.meaning`` and ``sql.functions``; nor does it touch casts, operators or times.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.query.functions.declaration import OURS
from tidelake.query.sql.casts import cast_to, kind_of, written

_TEXTS = exp.DataType.TEXT_TYPES
_OF_DATES = (
    exp.LastDay, exp.AddMonths, exp.TsOrDsAdd, exp.DateAdd, exp.DateTrunc, exp.Quarter, exp.WeekOfYear, exp.DayOfYear,
    exp.DayOfMonth, exp.UnixDate,
)  # fmt: skip
_OF_TIMES = (exp.Hour, exp.Minute, exp.Second, exp.TimestampTrunc, exp.TimestampAdd)
_CALLS_OF_DATES = {OURS + name for name in ("datediff", "date_diff", "next_day", "weekday")}
_CALLS_OF_TIMES = {
    OURS + name
    for name in (
        "months_between", "date_format", "unix_micros", "unix_millis", "unix_seconds", "from_utc_timestamp",
        "to_utc_timestamp",
    )
}  # fmt: skip
_ONE = {OURS + "next_day", OURS + "date_format", OURS + "from_utc_timestamp", OURS + "to_utc_timestamp"}
_NAMES = {
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
    "TEXT": "string",
    "VARCHAR": "string",
}

# Letters whose upper case is several, and those whose lower case is several or depends on where they stand.
_UPPER = "ßŉǰΐΰևẖ-ẚὐὒὔὖᾀ-ᾯᾲ-ᾴᾶᾷᾼῂ-ῄῆῇῌῒΐῖῗῢ-ῤῦῧῲ-ῴῶῷῼﬀ-ﬆﬓ-ﬗ"
_LOWER = "İΣ"
_TITLE = _UPPER + _LOWER + "Ǆ-ǌǱ-ǳ"


def with_operands(tree: exp.Expr) -> None:
    """Change a tree in place: texts become times where times are wanted, and the names of types become texts."""
    for node in reversed(list(tree.find_all(exp.TsOrDsToDate, exp.Typeof, *_OF_DATES, *_OF_TIMES, exp.Anonymous))):
        match node:
            case exp.Typeof():
                node.replace(exp.Literal.string(_type_name(node.this)))
            case exp.TsOrDsToDate():
                if kind_of(node.this) in _TEXTS:
                    node.replace(cast_to(node.this, "DATE"))
            case exp.Anonymous():
                name = str(node.this).lower()
                if name == "hash":  # DuckDB has one, which is another
                    raise QueryError(
                        "there is no function hash in process: ask with engine='spark'", kind="unsupported"
                    )
                kind = "DATE" if name in _CALLS_OF_DATES else "TIMESTAMP" if name in _CALLS_OF_TIMES else None
                for each in node.expressions[: 1 if name in _ONE else 2] if kind else ():
                    if kind_of(each) in _TEXTS:
                        each.replace(cast_to(each, kind or ""))
            case _:
                if isinstance(node, exp.TsOrDsAdd | exp.DateAdd):
                    _count_days(node.expression)
                if kind_of(node.this) in _TEXTS:
                    node.this.replace(cast_to(node.this, "DATE" if isinstance(node, _OF_DATES) else "TIMESTAMP"))


def answer_alike(tree: exp.Expr) -> None:
    """Change the calls of a tree in place."""
    for node in reversed(list(tree.find_all(*_CHANGES))):
        _CHANGES[type(node)](node)


def _count_days(node: exp.Expr) -> None:
    """Take text as the whole number of days that it is, also where a day is counted back."""
    if kind_of(node) in _TEXTS:
        node.replace(cast_to(node, "INT"))
    elif isinstance(node, exp.Neg | exp.Mul | exp.Paren):
        for side in (node.this, node.args.get("expression")):
            if side is not None:
                _count_days(side)


def _type_name(node: exp.Expr) -> str:
    kind = node.type
    if kind is None or kind.this in (exp.DType.UNKNOWN, exp.DType.VARIANT) or isinstance(kind.this, exp.Interval):
        raise QueryError("typeof does not know this type in process: ask with engine='spark'", kind="unsupported")
    if kind.this is exp.DType.NULL:
        return "void"
    if kind.this in (exp.DType.DECIMAL, exp.DType.BIGDECIMAL) and len(kind.expressions) == 2:
        return f"decimal({kind.expressions[0].name},{kind.expressions[1].name})"
    if kind.expressions or kind.this in (exp.DType.STRUCT, exp.DType.MAP, exp.DType.ARRAY):
        raise QueryError("typeof knows no nested types in process: ask with engine='spark'", kind="unsupported")
    return _NAMES.get(kind.this.value, kind.sql("spark").lower())


def _case(name: str, letters: str) -> Callable[[exp.Expr], None]:
    """Return what has no letter out of the ordinary to DuckDB, and the rest to a function of ours."""

    def change(node: exp.Expr) -> None:
        value = exp.cast(node.this.copy(), "TEXT")
        own = node.copy()
        own.set("this", value)
        rare = f"CASE WHEN strlen({{0}}) > length({{0}}) AND regexp_matches({{0}}, '[{letters}]')"
        node.replace(written(f"{rare} THEN tide_{name}_of_rare({{0}}) ELSE {{1}} END", value, own))

    return change


def _zip(node: exp.Expr) -> None:
    """Name the fields as Spark does: by the column or the field that they come from, or by their place."""
    names = [_name(each) or str(at) for at, each in enumerate(node.expressions)]
    if not names or len({name.lower() for name in names}) < len(names):
        message = "arrays_zip takes arrays of unlike names in process: name them anew, or ask with engine='spark'"
        raise QueryError(message, kind="unsupported")
    places = [f"{{{at}}}" for at in range(len(names))]
    fields = ", ".join(f"{exp.Literal.string(name).sql('duckdb')}: tide_z[{at}]" for at, name in enumerate(names, 1))
    known = " AND ".join(f"{place} IS NOT NULL" for place in places)
    zipped = f"list_transform(list_zip({', '.join(places)}), lambda tide_z: {{{fields}}})"
    node.replace(written(f"CASE WHEN {known} THEN {zipped} END", *node.expressions))


def _name(node: exp.Expr) -> str | None:
    inner = node.expression if isinstance(node, exp.Dot) else node
    return inner.name if isinstance(inner, exp.Column | exp.Identifier) else None


def _any_value(node: exp.Expr) -> None:
    """Take the first value, and also one that is null unless nulls are to be passed over."""
    if not isinstance(node.parent, exp.IgnoreNulls):
        node.replace(exp.First(this=node.this.copy()))


_CHANGES: dict[type[exp.Expr], Callable[[exp.Expr], None]] = {
    exp.Upper: _case("upper", _UPPER),
    exp.Lower: _case("lower", _LOWER),
    exp.Initcap: _case("title", _TITLE),
    exp.ArraysZip: _zip,
    exp.AnyValue: _any_value,
}
