"""Declare what makes one value of many rows, and what reads such a value.

It does not group rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from sqlglot import exp

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.macros import TIME_SHAPE
from tidelake.query.functions.python import dumped
from tidelake.query.functions.series import number
from tidelake.query.functions.templates import Writer

_FLAT = "v -> CASE WHEN startswith(schema_of_variant(v), 'ARRAY') THEN try_cast(v AS ARRAY<VARIANT>) ELSE array(v) END"


def _make_list_ordered(before: str, after: str, *, flat: bool = False) -> Writer:
    """Collect in the order of the last argument, a row's number; nulls are left out."""

    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        value, limit, order = texts[0], texts[1], texts[2].split(" ASC")[0]
        pair = f"CASE WHEN {value} IS NOT NULL THEN named_struct('k', {order}, 'v', {before % value}) END"
        items = f"transform(sort_array(collect_list({pair})), s -> {after % 's.v'})"
        items = f"flatten(transform({items}, {_FLAT}))" if flat else items
        count = "1048576" if limit == "NULL" else limit
        return f"CAST(slice({items}, 1, CAST({count} AS INT)) AS VARIANT)"

    return write


def percentile_weighted(pairs: str, share: str) -> float | None:
    """Return the least value that, with all below it, has a share of the weight."""
    held = sorted((value, weight) for value, weight in json.loads(pairs) if value is not None and weight and weight > 0)
    wanted = sum(weight for _, weight in held) * float(share) / 100
    total = 0.0
    for value, weight in held:
        total += weight
        if total >= wanted:
            return float(value)
    return None


def percentile_of(values: str, share: str) -> float | None:
    """Return the least of some values that a share of them is not above."""
    held = sorted(value for value in json.loads(values) if isinstance(value, int | float))
    place = math.ceil(len(held) * min(max(float(share), 0.0), 100.0) / 100)
    return float(held[max(place - 1, 0)]) if held else None


def rank_of(values: str, value: str) -> int:
    return sum(held <= float(value) for held in json.loads(values))


FUNCTIONS: tuple[Function, ...] = (
    declare(
        "arg_max",
        returns="same",
        duckdb="coalesce(arg_max({0}, {1}), first({0}))",
        spark="coalesce(max_by({0}, {1}), first({0}))",
        aggregates=True,
    ),
    declare(
        "arg_min",
        returns="same",
        duckdb="coalesce(arg_min({0}, {1}), first({0}))",
        spark="coalesce(min_by({0}, {1}), first({0}))",
        aggregates=True,
    ),
    declare("any", returns="same", duckdb="any_value({0})", spark="any_value({0}, true)", aggregates=True),
    declare(
        "mean",
        returns="real",
        duckdb="coalesce(round(avg({0}), TRY_CAST(regexp_extract(typeof(min({0})), ',([0-9]+)', 1) AS INTEGER) + 4), "
        "avg({0}))",
        spark="CAST(avg({0}) AS DOUBLE)",
        aggregates=True,
    ),
    declare("stdev", returns="real", both="stddev_samp({0})", aggregates=True),
    declare("stdevp", returns="real", both="stddev_pop({0})", aggregates=True),
    declare("variance", returns="real", both="var_samp({0})", aggregates=True),
    declare("variancep", returns="real", both="var_pop({0})", aggregates=True),
    declare("covariance", returns="real", both="covar_samp({0}, {1})", aggregates=True),
    declare("covariancep", returns="real", both="covar_pop({0}, {1})", aggregates=True),
    declare(
        "percentile",
        returns="same",
        duckdb="quantile_disc({0}, {1})",
        spark="percentile_disc({1}) WITHIN GROUP (ORDER BY {0})",
        aggregates=True,
    ),
    declare("all_and", returns="same", both="bit_and({0})", aggregates=True),
    declare("all_or", returns="same", both="bit_or({0})", aggregates=True),
    declare("all_xor", returns="same", both="bit_xor({0})", aggregates=True),
    declare(
        "make_set",
        returns="dynamic",
        duckdb="to_json(list_slice(coalesce(list_sort(list(DISTINCT {0}) FILTER ({0} IS NOT NULL)), []), 1, "
        "{1|1048576}))",
        spark="CAST(slice(sort_array(collect_set({0})), 1, CAST({1|1048576} AS INT)) AS VARIANT)",
        aggregates=True,
    ),
    declare(
        "make_set_of_datetime",
        returns="dynamic",
        duckdb="to_json(list_slice(coalesce(list_sort(list(DISTINCT <time_text {0}>) FILTER ({0} IS NOT NULL)), "
        "[]), 1, {1|1048576}))",
        spark="CAST(slice(sort_array(collect_set(<time_text {0}>)), 1, CAST({1|1048576} AS INT)) AS VARIANT)",
        aggregates=True,
    ),
    declare(
        "make_set_of_dynamic",
        returns="dynamic",
        duckdb="to_json(list_slice(list_transform(list_sort(list_distinct(flatten(coalesce(list(CASE WHEN "
        "json_type({0}) = 'ARRAY' THEN CAST(CAST({0} AS JSON[]) AS VARCHAR[]) ELSE [CAST({0} AS "
        "VARCHAR)] END) FILTER ({0} IS NOT NULL), [])))), lambda e: CAST(e AS JSON)), 1, {1|1048576}))",
        spark="CAST(slice(transform(sort_array(array_distinct(flatten(collect_list(CASE WHEN "
        "startswith(schema_of_variant({0}), 'ARRAY') THEN transform(<list_or_null {0}>, e -> to_json(e)) "
        "ELSE array(to_json({0})) END)))), e -> parse_json(e)), 1, CAST({1|1048576} AS INT)) AS VARIANT)",
        aggregates=True,
    ),
    declare(
        "make_list",
        returns="dynamic",
        duckdb="to_json(list_slice(coalesce(list({0}) FILTER ({0} IS NOT NULL), []), 1, {1|1048576}))",
        spark="CAST(slice(collect_list({0}), 1, CAST({1|1048576} AS INT)) AS VARIANT)",
        aggregates=True,
    ),
    declare(
        "make_list_of_datetime",
        returns="dynamic",
        duckdb="to_json(list_slice(coalesce(list(<time_text {0}>) FILTER ({0} IS NOT NULL), []), 1, {1|1048576}))",
        spark="CAST(slice(collect_list(<time_text {0}>), 1, CAST({1|1048576} AS INT)) AS VARIANT)",
        aggregates=True,
    ),
    declare(
        "make_list_of_dynamic",
        returns="dynamic",
        duckdb="to_json(list_slice(flatten(coalesce(list(<as_list {0}>) FILTER ({0} IS NOT NULL), [])), 1, "
        "{1|1048576}))",
        spark="CAST(slice(flatten(collect_list(<as_list {0}>)), 1, CAST({1|1048576} AS INT)) AS VARIANT)",
        aggregates=True,
    ),
    declare(
        "make_list_with_nulls",
        returns="dynamic",
        duckdb="coalesce(to_json(list({0})), '[]'::JSON)",
        spark="CAST(transform(collect_list(struct({0} AS v)), s -> s.v) AS VARIANT)",
        aggregates=True,
    ),
    declare(
        "make_list_whole",
        returns="dynamic",
        duckdb="to_json(coalesce(list({0}) FILTER ({0} IS NOT NULL), []))",
        spark="CAST(collect_list({0}) AS VARIANT)",
        aggregates=True,
    ),
    declare(
        "make_list_ordered",
        returns="dynamic",
        duckdb="to_json(list_slice(coalesce(list({0} ORDER BY {2*}) FILTER ({0} IS NOT NULL), []), 1, "
        "coalesce({1}, 1048576)))",
        spark=_make_list_ordered("%s", "%s"),
        aggregates=True,
    ),
    declare(
        "make_list_ordered_of_datetime",
        returns="dynamic",
        duckdb="to_json(list_slice(coalesce(list(<time_text {0}> ORDER BY {2*}) FILTER ({0} IS NOT NULL), []), "
        "1, coalesce({1}, 1048576)))",
        spark=_make_list_ordered(f"date_format(%s, {TIME_SHAPE})", "%s"),
        aggregates=True,
    ),
    declare(
        "make_list_ordered_of_dynamic",
        returns="dynamic",
        duckdb="to_json(list_slice(flatten(coalesce(list(<as_list {0}> ORDER BY {2*}) FILTER ({0} IS NOT NULL), "
        "[])), 1, coalesce({1}, 1048576)))",
        spark=_make_list_ordered("to_json(%s)", "parse_json(%s)", flat=True),
        aggregates=True,
    ),
    declare(
        "make_list_ordered_whole",
        returns="dynamic",
        duckdb="to_json(list_slice(coalesce(list({0} ORDER BY {2*}) FILTER ({0} IS NOT NULL), []), 1, "
        "coalesce({1}, 1048576)))",
        spark=_make_list_ordered("to_json(%s)", "parse_json(%s)"),
        aggregates=True,
    ),
    declare(
        "make_bag",
        returns="dynamic",
        duckdb="coalesce(to_json(list_reduce(list(<bag {0}>) FILTER (json_type({0}) = 'OBJECT'), lambda a, e: "
        "map_concat(a, e))), '{}'::JSON)",
        spark="coalesce(to_variant_object(aggregate(collect_list(<bag {0}>), CAST(map() AS MAP<STRING, "
        "VARIANT>), (a, e) -> map_concat(map_filter(a, (k, v) -> NOT map_contains_key(e, k)), e))), "
        "parse_json('{}'))",
        aggregates=True,
    ),
    declare(
        "series",
        returns="dynamic",
        duckdb="let[[map_from_entries(list(struct_pack(k := {0}, v := {1})))]][[to_json(list_transform(<counted "
        "{2}>, lambda i: coalesce(@[i], {3})))]]",
        spark="let[[map_from_entries(collect_list(struct({0}, {1})))]][[CAST(transform(<counted {2}>, i -> "
        "coalesce(element_at(@, i), {3})) AS VARIANT)]]",
        aggregates=True,
    ),
    declare("percentile_weighted", returns="real", python=percentile_weighted, arity=2),
    declare("percentile_of", returns="real", python=percentile_of, arity=2),
    declare(
        "percentiles_of",
        returns="dynamic",
        python=lambda a, o: dumped([number(percentile_of(a, share)) for share in json.loads(o)[0]]),
        arity=2,
    ),
    declare("rank_of", returns="long", python=rank_of, arity=2),
    declare("percentrank_of", returns="real", python=lambda a, v: 100.0 * rank_of(a, v) / len(json.loads(a)), arity=2),
)
