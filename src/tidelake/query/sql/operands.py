"""Give functions what Spark gives them: texts as the times they are, and types by Spark's names.

A function of times takes text, which Spark casts by itself. ``typeof`` is known before a query runs. It does not write
functions: see ``sql.meaning`` and ``sql.functions``.
"""

from __future__ import annotations

from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.query.functions.declaration import OURS
from tidelake.query.sql.casts import cast_to, kind_of

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
                kind = "DATE" if name in _CALLS_OF_DATES else "TIMESTAMP" if name in _CALLS_OF_TIMES else None
                for each in node.expressions[: 1 if name in _ONE else 2] if kind else ():
                    if kind_of(each) in _TEXTS:
                        each.replace(cast_to(each, kind or ""))
            case _:
                if isinstance(node, exp.TsOrDsAdd | exp.DateAdd):
                    _count_days(node.expression)
                if kind_of(node.this) in _TEXTS:
                    node.this.replace(cast_to(node.this, "DATE" if isinstance(node, _OF_DATES) else "TIMESTAMP"))


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
