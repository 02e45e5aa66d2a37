"""Read plain values out of dynamic ones, on either engine, and measure vectors.

``tide_text``, ``tide_number``, ``tide_flag`` and ``tide_time`` are strict: a value of another type is null, as it is in
a scan's own filter, so that a condition means the same wherever it is asked. ``tide_as_…`` and ``tide_shown`` convert
what can be converted. In DuckDB a dynamic value is JSON, in Spark a VARIANT. It does not know tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import sqlglot
from sqlglot import exp

from tidelake.query import functions
from tidelake.query.functions import Engine, Function


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
    return functions.render(cast(exp.Expression, held.this), engine)


def _as_spark_casts(tree: exp.Expr) -> None:
    """Make DuckDB cast as Spark does: to whole numbers by cutting off, and to null what cannot be cast."""
    for node in reversed(list(tree.find_all(exp.Cast))):
        if node.to.this is exp.DType.JSON:
            continue
        source = node.this.type.this if node.this.type is not None else None
        value = node.this
        if node.to.this in exp.DataType.INTEGER_TYPES and source in (*exp.DataType.REAL_TYPES, None):
            value = exp.Anonymous(this="trunc", expressions=[value]) if source is not None else value
        node.replace(exp.TryCast(this=value, to=node.to, requires_string=False))


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
        "list_cosine_similarity(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[]))",
        "(aggregate(zip_with(CAST({0} AS ARRAY<DOUBLE>), CAST({1} AS ARRAY<DOUBLE>), (x, y) -> x * y),"
        " CAST(0 AS DOUBLE), (s, x) -> s + x) / (sqrt(aggregate(CAST({0} AS ARRAY<DOUBLE>), CAST(0 AS DOUBLE),"
        " (s, x) -> s + x * x)) * sqrt(aggregate(CAST({1} AS ARRAY<DOUBLE>), CAST(0 AS DOUBLE),"
        " (s, x) -> s + x * x))))",
    ),
    "tide_cosine_distance": _of(
        "list_cosine_distance(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[]))",
        "(1 - aggregate(zip_with(CAST({0} AS ARRAY<DOUBLE>), CAST({1} AS ARRAY<DOUBLE>), (x, y) -> x * y),"
        " CAST(0 AS DOUBLE), (s, x) -> s + x) / (sqrt(aggregate(CAST({0} AS ARRAY<DOUBLE>), CAST(0 AS DOUBLE),"
        " (s, x) -> s + x * x)) * sqrt(aggregate(CAST({1} AS ARRAY<DOUBLE>), CAST(0 AS DOUBLE),"
        " (s, x) -> s + x * x))))",
    ),
    "tide_l2_distance": _of(
        "list_distance(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[]))",
        "sqrt(aggregate(zip_with(CAST({0} AS ARRAY<DOUBLE>), CAST({1} AS ARRAY<DOUBLE>),"
        " (x, y) -> (x - y) * (x - y)), CAST(0 AS DOUBLE), (s, x) -> s + x))",
    ),
    "tide_inner_product": _of(
        "list_inner_product(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[]))",
        "aggregate(zip_with(CAST({0} AS ARRAY<DOUBLE>), CAST({1} AS ARRAY<DOUBLE>), (x, y) -> x * y),"
        " CAST(0 AS DOUBLE), (s, x) -> s + x)",
    ),
}  # fmt: skip

FUNCTIONS: dict[str, Function] = {name: Function(name, duckdb, spark) for name, (duckdb, spark) in _RENDERINGS.items()}
