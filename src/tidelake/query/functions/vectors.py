"""Declare how vectors are measured against one another.

They become part of the tree, so that what was SQL has Spark's meaning within them. It does not search vectors.
"""

from __future__ import annotations

from tidelake.query.functions.declaration import Function, declare

_ALIKE = (
    "CASE WHEN array_length({0}) = array_length({1}) THEN"  # DuckDB looks into vectors that are null, and complains
)
_NAN = "CAST('NaN' AS DOUBLE)"  # what has no direction
_PRODUCT = (
    "aggregate(zip_with(CAST({0} AS ARRAY<DOUBLE>), CAST({1} AS ARRAY<DOUBLE>), (x, y) -> x * y),"
    " CAST(0 AS DOUBLE), (s, x) -> s + x)"
)
_LENGTH, _OTHER_LENGTH = (
    f"sqrt(aggregate(CAST({side} AS ARRAY<DOUBLE>), CAST(0 AS DOUBLE), (s, x) -> s + x * x))" for side in ("{0}", "{1}")
)
_COSINE = f"{_PRODUCT} / ({_LENGTH} * {_OTHER_LENGTH})"


FUNCTIONS: tuple[Function, ...] = (
    declare(
        "cosine_similarity",
        returns="real",
        duckdb=_ALIKE
        + " nullif(list_cosine_similarity(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[])), "
        + _NAN
        + ") END",
        spark=f"({_COSINE})",
        in_sql=True,
        is_tree=True,
    ),
    declare(
        "cosine_distance",
        returns="real",
        duckdb=_ALIKE + " nullif(list_cosine_distance(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[])), " + _NAN + ") END",
        spark=f"(1 - {_COSINE})",
        in_sql=True,
        is_tree=True,
    ),
    declare(
        "l2_distance",
        returns="real",
        duckdb=_ALIKE + " list_distance(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[])) END",
        spark="sqrt(aggregate(zip_with(CAST({0} AS ARRAY<DOUBLE>), CAST({1} AS ARRAY<DOUBLE>),"
        " (x, y) -> (x - y) * (x - y)), CAST(0 AS DOUBLE), (s, x) -> s + x))",
        in_sql=True,
        is_tree=True,
    ),
    declare(
        "inner_product",
        returns="real",
        duckdb=_ALIKE + " list_inner_product(CAST({0} AS DOUBLE[]), CAST({1} AS DOUBLE[])) END",
        spark=_PRODUCT,
        in_sql=True,
        is_tree=True,
    ),
    declare("vector_to_dynamic", returns="dynamic", duckdb="to_json({0})", spark="CAST({0} AS VARIANT)"),
)
