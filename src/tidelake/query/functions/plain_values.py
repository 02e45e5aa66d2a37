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

from tidelake.query.functions import registry
from tidelake.query.functions.registry import Engine, Function
from tidelake.query.sql.meaning import as_spark
from tidelake.query.sql.parse import too_deep
from tidelake.query.sql.words import for_spark


def render(tree: exp.Query, engine: Engine, *, language: str) -> str:
    """Write a tree as SQL of an engine, portable calls included; what was SQL means on DuckDB what it does on Spark."""
    held = exp.Subquery(this=tree.copy())  # so that the root can be replaced too
    for node in reversed(list(held.find_all(exp.Anonymous))):  # arguments before the calls they are given to
        if (function := FUNCTIONS.get(str(node.this))) is not None:
            node.replace(getattr(function, engine)(node.expressions))
    if language == "sql":
        (as_spark if engine == "duckdb" else for_spark)(held)
    try:
        return registry.render(cast(exp.Expression, held.this), engine)
    except RecursionError:
        raise too_deep() from None


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

FUNCTIONS: dict[str, Function] = {name: Function(name, duckdb, spark) for name, (duckdb, spark) in _RENDERINGS.items()}
