"""Read plain values out of dynamic ones, on either engine, and measure vectors.

``tide_text``, ``tide_number``, ``tide_flag`` and ``tide_time`` are strict: a value of another type is null, as it is in
a scan's own filter, so that a condition means the same wherever it is asked. ``tide_as_…`` and ``tide_shown`` convert
what can be converted. In DuckDB a dynamic value is JSON, in Spark a VARIANT. It does not know tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import cast

import sqlglot
from sqlglot import exp

from tidelake.query import functions
from tidelake.query.functions import Engine, Function
from tidelake.query.sql import too_deep


def render(tree: exp.Query, engine: Engine, *, language: str) -> str:
    """Write a tree as SQL of an engine, portable calls included; what was SQL means on DuckDB what it does on Spark."""
    held = exp.Subquery(this=tree.copy())  # so that the root can be replaced too
    for node in reversed(list(held.find_all(exp.Anonymous))):  # arguments before the calls they are given to
        if (function := FUNCTIONS.get(str(node.this))) is not None:
            node.replace(getattr(function, engine)(node.expressions))
    if engine == "duckdb" and language == "sql":
        _as_spark_casts(held)
        _as_spark_times(held)
        _as_spark_patterns(held)
        _as_spark_functions(held)
    try:
        return functions.render(cast(exp.Expression, held.this), engine)
    except RecursionError:
        raise too_deep() from None


def _as_spark_casts(tree: exp.Expr) -> None:
    """Make DuckDB cast as Spark does: to whole numbers by cutting off, and to null what cannot be cast."""
    for node in reversed(list(tree.find_all(exp.Cast))):
        if node.to.this is exp.DType.JSON:
            continue
        source = node.this.type.this if node.this.type is not None else None
        value = node.this
        if node.to.this in exp.DataType.INTEGER_TYPES and source in (*exp.DataType.REAL_TYPES, None):
            value = exp.Anonymous(this="trunc", expressions=[value]) if source is not None else value
        made = exp.TryCast(this=value, to=node.to, requires_string=False)
        if node.to.this in exp.DataType.TEXT_TYPES and source is exp.DType.TIMESTAMPTZ:  # Spark shows no zone
            parts = [made, exp.Literal.string("[+]00$"), exp.Literal.string("")]
            node.replace(exp.Anonymous(this="regexp_replace", expressions=parts))
        else:
            node.replace(made)


def _as_spark_times(tree: exp.Expr) -> None:
    """Make DuckDB's functions of times answer as Spark's do."""
    for node in reversed(list(tree.find_all(exp.StrToUnix, exp.DayOfWeek, exp.TsOrDsAdd, exp.DateAdd))):
        match node:
            case exp.StrToUnix():
                kind = node.this.type
                if kind is not None and kind.this in exp.DataType.TEMPORAL_TYPES:
                    whole = exp.Floor(this=exp.Anonymous(this="epoch", expressions=[node.this]))
                    node.replace(exp.cast(whole, "BIGINT"))
            case exp.DayOfWeek():  # Sunday is 1
                node.replace(exp.paren(exp.Add(this=node.copy(), expression=exp.Literal.number(1))))
            case _ if str(node.args.get("unit") or "DAY").upper() == "DAY" and not isinstance(node.parent, exp.Cast):
                node.replace(exp.cast(node.copy(), "DATE"))


def _as_spark_patterns(tree: exp.Expr) -> None:
    """Let a backslash in a pattern take the meaning from a wildcard, as in Spark."""
    for node in list(tree.find_all(exp.Like, exp.ILike)):
        plain = isinstance(node.expression, exp.Literal) and "\\" not in str(node.expression.this)
        if not plain and not isinstance(node.parent, exp.Escape):
            node.replace(exp.Escape(this=node.copy(), expression=exp.Literal.string("\\")))


def _as_spark_functions(tree: exp.Expr) -> None:
    """Let functions of one name answer alike: where texts begin, which percentiles are values, what has no root."""
    for node in reversed(list(tree.find_all(*_UNLIKE))):
        match node:
            case exp.RegexpReplace():
                _as_spark_replacement(node)
            case exp.Sqrt():
                negative = exp.LT(this=node.this.copy(), expression=exp.Literal.number(0))
                nothing = exp.cast(exp.Literal.string("NaN"), "DOUBLE")
                node.replace(exp.Case(ifs=[exp.If(this=negative, true=nothing)], default=node.copy()))
            case exp.Ln() | exp.Log():
                subject = node.expression if isinstance(node, exp.Log) and node.expression else node.this
                above = exp.GT(this=subject.copy(), expression=exp.Literal.number(0))
                node.replace(exp.Case(ifs=[exp.If(this=above, true=node.copy())]))
            case exp.Anonymous():
                if (rendering := _SPARK_NAMES.get(str(node.this).lower())) is not None:
                    node.replace(rendering(node.expressions))
            case exp.Substring():
                start = node.args.get("start")
                if isinstance(start, exp.Literal) and start.this == "0":
                    node.set("start", exp.Literal.number(1))
                elif start is not None and not isinstance(start.unnest(), exp.Literal | exp.Neg):
                    first = exp.If(
                        this=exp.EQ(this=start.copy(), expression=exp.Literal.number(0)), true=exp.Literal.number(1)
                    )
                    node.set("start", exp.Case(ifs=[first], default=start.copy()))
            case _:
                name = "quantile_disc" if isinstance(node, exp.ApproxQuantile) else "quantile_cont"
                node.replace(exp.Anonymous(this=name, expressions=[node.this, node.args["quantile"]]))


def _as_spark_replacement(node: exp.RegexpReplace) -> None:
    """Let ``$1`` stand for a group, as in Spark, and a backslash for itself or what follows it."""
    given = node.args.get("replacement")
    if isinstance(given, exp.Literal):
        written = re.sub(r"\\(.)|\$(\d)", lambda m: f"\\{m[2]}" if m[2] else m[1].replace("\\", r"\\"), str(given.this))
        node.set("replacement", exp.Literal.string(written))
    elif given is not None:
        parts = [given.copy(), exp.Literal.string(r"\$(\d)"), exp.Literal.string(r"\\\1"), exp.Literal.string("g")]
        node.set("replacement", exp.Anonymous(this="regexp_replace", expressions=parts))


def _parsed(template: str, dialect: str) -> Callable[[Sequence[exp.Expression]], exp.Expression]:
    """Make a rendering of a text in which ``{0}`` and ``{1}`` stand for the arguments."""

    def rendering(arguments: Sequence[exp.Expression]) -> exp.Expression:
        tree = sqlglot.parse_one(
            template.format(*(f"__argument_{number}" for number in range(len(arguments)))), read=dialect
        )
        for column in list(tree.find_all(exp.Column)):
            if column.name.startswith("__argument_"):
                given = arguments[int(column.name.rpartition("_")[2])].copy()
                wrapped = exp.paren(given) if isinstance(given, exp.Binary) else given
                if column is tree:
                    return wrapped
                column.replace(wrapped)
        return cast(exp.Expression, tree)

    return rendering


def _of(duckdb: str, spark: str) -> tuple[Callable[..., exp.Expression], Callable[..., exp.Expression]]:
    return _parsed(duckdb, "duckdb"), _parsed(spark, "spark")


_NUMBER_SCHEMAS = "('BIGINT', 'DOUBLE', 'FLOAT', 'INT', 'SMALLINT', 'TINYINT')"
_SPARK_IS_NUMBER = f"(schema_of_variant({{0}}) IN {_NUMBER_SCHEMAS} OR schema_of_variant({{0}}) LIKE 'DECIMAL%')"
_ALIKE = (
    "CASE WHEN array_length({0}) = array_length({1}) THEN"  # DuckDB looks into vectors that are null, and complains
)
_NAN = "CAST('NaN' AS DOUBLE)"  # what has no direction
_RENDERINGS = {
    "tide_text": _of(
        "CASE WHEN json_type({0}) = 'VARCHAR' THEN json_extract_string({0}, '$') END",
        "CASE WHEN schema_of_variant({0}) = 'STRING' THEN try_variant_get({0}, '$', 'string') END",
    ),
    "tide_number": _of(
        "CASE WHEN json_type({0}) IN ('BIGINT', 'UBIGINT', 'DOUBLE', 'HUGEINT', 'UHUGEINT')"
        " THEN CAST({0} AS DOUBLE) END",
        f"CASE WHEN {_SPARK_IS_NUMBER} THEN try_variant_get({{0}}, '$', 'double') END",
    ),
    "tide_flag": _of(
        "CASE WHEN json_type({0}) = 'BOOLEAN' THEN CAST({0} AS BOOLEAN) END",
        "CASE WHEN schema_of_variant({0}) = 'BOOLEAN' THEN try_variant_get({0}, '$', 'boolean') END",
    ),
    "tide_time": _of(
        "CASE WHEN json_type({0}) = 'VARCHAR' THEN TRY_CAST(json_extract_string({0}, '$') AS TIMESTAMPTZ) END",
        "CASE WHEN schema_of_variant({0}) IN ('STRING', 'TIMESTAMP') THEN"
        " try_variant_get({0}, '$', 'timestamp') END",
    ),
    "tide_shown": _of(
        "json_extract_string({0}, '$')",
        "CASE WHEN schema_of_variant({0}) = 'STRING' THEN try_variant_get({0}, '$', 'string') ELSE to_json({0}) END",
    ),
    "tide_as_long": _of(
        "CAST(TRUNC(TRY_CAST(json_extract_string({0}, '$') AS DOUBLE)) AS BIGINT)",
        "CAST(TRY_CAST(try_variant_get({0}, '$', 'string') AS DOUBLE) AS BIGINT)",
    ),
    "tide_as_real": _of(
        "TRY_CAST(json_extract_string({0}, '$') AS DOUBLE)",
        "TRY_CAST(try_variant_get({0}, '$', 'string') AS DOUBLE)",
    ),
    "tide_as_bool": _of(
        "TRY_CAST(json_extract_string({0}, '$') AS BOOLEAN)",
        "TRY_CAST(try_variant_get({0}, '$', 'string') AS BOOLEAN)",
    ),
    "tide_as_time": _of(
        "TRY_CAST(json_extract_string({0}, '$') AS TIMESTAMPTZ)",
        "TRY_CAST(try_variant_get({0}, '$', 'string') AS TIMESTAMP)",
    ),
    "tide_cosine_similarity": _of(
        _ALIKE + " nullif(list_cosine_similarity(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[])), " + _NAN + ") END",
        "(aggregate(zip_with(CAST({0} AS ARRAY<DOUBLE>), CAST({1} AS ARRAY<DOUBLE>), (x, y) -> x * y),"
        " CAST(0 AS DOUBLE), (s, x) -> s + x) / (sqrt(aggregate(CAST({0} AS ARRAY<DOUBLE>), CAST(0 AS DOUBLE),"
        " (s, x) -> s + x * x)) * sqrt(aggregate(CAST({1} AS ARRAY<DOUBLE>), CAST(0 AS DOUBLE),"
        " (s, x) -> s + x * x))))",
    ),
    "tide_cosine_distance": _of(
        _ALIKE + " nullif(list_cosine_distance(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[])), " + _NAN + ") END",
        "(1 - aggregate(zip_with(CAST({0} AS ARRAY<DOUBLE>), CAST({1} AS ARRAY<DOUBLE>), (x, y) -> x * y),"
        " CAST(0 AS DOUBLE), (s, x) -> s + x) / (sqrt(aggregate(CAST({0} AS ARRAY<DOUBLE>), CAST(0 AS DOUBLE),"
        " (s, x) -> s + x * x)) * sqrt(aggregate(CAST({1} AS ARRAY<DOUBLE>), CAST(0 AS DOUBLE),"
        " (s, x) -> s + x * x))))",
    ),
    "tide_l2_distance": _of(
        _ALIKE + " list_distance(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[])) END",
        "sqrt(aggregate(zip_with(CAST({0} AS ARRAY<DOUBLE>), CAST({1} AS ARRAY<DOUBLE>),"
        " (x, y) -> (x - y) * (x - y)), CAST(0 AS DOUBLE), (s, x) -> s + x))",
    ),
    "tide_inner_product": _of(
        _ALIKE + " list_inner_product(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[])) END",
        "aggregate(zip_with(CAST({0} AS ARRAY<DOUBLE>), CAST({1} AS ARRAY<DOUBLE>), (x, y) -> x * y),"
        " CAST(0 AS DOUBLE), (s, x) -> s + x)",
    ),
}  # fmt: skip

# Spark's functions that DuckDB has under no name, in DuckDB's words.
_SPARK_NAMES = {
    name: _parsed(template, "duckdb")
    for name, template in {
        "pmod": "((({0}) % ({1})) + ({1})) % ({1})",
        "isnull": "(({0}) IS NULL)",
        "isnotnull": "(({0}) IS NOT NULL)",
        "timestamp_seconds": "to_timestamp({0})",
        "timestamp_millis": "make_timestamptz(({0}) * 1000)",
        "timestamp_micros": "make_timestamptz({0})",
    }.items()
}
_UNLIKE = (
    exp.Quantile, exp.ApproxQuantile, exp.Substring, exp.RegexpReplace, exp.Sqrt, exp.Ln, exp.Log, exp.Anonymous,
)  # fmt: skip
FUNCTIONS: dict[str, Function] = {name: Function(name, duckdb, spark) for name, (duckdb, spark) in _RENDERINGS.items()}
