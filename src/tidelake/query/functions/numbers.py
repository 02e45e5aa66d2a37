"""Declare the arithmetic: functions of numbers, bits and bins.

Where a function has no answer, it is null. It does not compute.
"""

from __future__ import annotations

import math

from tidelake.query.functions.declaration import Function, declare

FUNCTIONS: tuple[Function, ...] = (
    declare("sqrt", returns="real", both="CASE WHEN {0} >= 0 THEN sqrt({0}) END"),
    declare("exp", returns="real", both="exp({0})"),
    declare("exp2", returns="real", both="pow(2, {0})"),
    declare("exp10", returns="real", both="pow(10, {0})"),
    declare("ln", returns="real", both="CASE WHEN {0} > 0 THEN ln({0}) END"),
    declare("log2", returns="real", both="CASE WHEN {0} > 0 THEN log2({0}) END"),
    declare("log10", returns="real", both="CASE WHEN {0} > 0 THEN log10({0}) END"),
    declare("pow", returns="real", both="pow({0}, {1})"),
    declare("sin", returns="real", both="sin({0})"),
    declare("cos", returns="real", both="cos({0})"),
    declare("tan", returns="real", both="tan({0})"),
    declare("asin", returns="real", both="CASE WHEN abs({0}) <= 1 THEN asin({0}) END"),
    declare("acos", returns="real", both="CASE WHEN abs({0}) <= 1 THEN acos({0}) END"),
    declare("atan", returns="real", both="atan({0})"),
    declare("atan2", returns="real", both="atan2({0}, {1})"),
    declare("cot", returns="real", both="cot({0})"),
    declare("degrees", returns="real", both="degrees({0})"),
    declare("radians", returns="real", both="radians({0})"),
    declare("erf", returns="real", python=lambda x: math.erf(float(x)), arity=1),
    declare("erfc", returns="real", python=lambda x: math.erfc(float(x)), arity=1),
    declare("gamma", returns="real", python=lambda x: math.gamma(float(x)), arity=1),
    declare("loggamma", returns="real", python=lambda x: math.lgamma(float(x)), arity=1),
    declare("isnan", returns="bool", both="isnan({0})"),
    declare("isinf", returns="bool", duckdb="isinf({0})", spark="(abs({0}) = DOUBLE('Infinity'))"),
    declare("isfinite", returns="bool", duckdb="isfinite({0})", spark="(abs({0}) < DOUBLE('Infinity'))"),
    declare("rand", returns="real", duckdb="random()", spark="rand()"),
    declare("round", duckdb="round({0}, CAST({1} AS INTEGER))", spark="round({0}, {1})"),
    declare("abs", returns="same", both="abs({0})"),
    declare("sign", both="CAST(sign({0}) AS DOUBLE)"),
    declare("ceiling", duckdb="ceil({0})", spark="CAST(ceil({0}) AS DOUBLE)"),
    declare("bit_and", returns="long", both="({0} & {1})"),
    declare("bit_or", returns="long", both="({0} | {1})"),
    declare("bit_xor", returns="long", duckdb="xor({0}, {1})", spark="({0} ^ {1})"),
    declare("bit_not", returns="long", both="(~{0})"),
    declare(
        "shift_left",
        returns="long",
        duckdb="CASE WHEN {1} >= 0 THEN let[[(CAST({0} AS HUGEINT) * (CAST(1 AS HUGEINT) << CAST({1} % 64 AS "
        "INTEGER))) % 18446744073709551616]][[CAST(CASE WHEN @ >= 9223372036854775808 THEN @ - "
        "18446744073709551616 WHEN @ < -9223372036854775808 THEN @ + 18446744073709551616 ELSE @ END AS "
        "BIGINT)]] END",
        spark="CASE WHEN {1} >= 0 THEN shiftleft(CAST({0} AS BIGINT), CAST({1} % 64 AS INT)) END",
    ),
    declare(
        "shift_right",
        returns="long",
        duckdb="CASE WHEN {1} >= 0 THEN {0} >> ({1} % 64) END",
        spark="CASE WHEN {1} >= 0 THEN shiftright(CAST({0} AS BIGINT), CAST({1} % 64 AS INT)) END",
    ),
    declare("bit_count", returns="long", both="CAST(bit_count(CAST({0} AS BIGINT)) AS BIGINT)"),
    declare(
        "divide",
        returns="real",
        duckdb="(CAST({0} AS DOUBLE) * CASE WHEN {1} = 0 THEN CAST('inf' AS DOUBLE) ELSE 1 END / CASE WHEN {1} "
        "= 0 THEN 1 ELSE CAST({1} AS DOUBLE) END)",
        spark="(CAST({0} AS DOUBLE) * CASE WHEN {1} = 0 THEN DOUBLE('Infinity') ELSE 1D END / CASE WHEN {1} = "
        "0 THEN 1D ELSE CAST({1} AS DOUBLE) END)",
    ),
    declare(
        "divide_whole",
        returns="long",
        duckdb="CASE WHEN {1} <> 0 THEN CAST(({0}) // ({1}) AS BIGINT) END",
        spark="CASE WHEN {1} <> 0 THEN (({0}) div ({1})) END",
    ),
    declare(
        "modulo",
        duckdb="CASE WHEN {1} <> 0 THEN (({0}) % abs({1}) + abs({1})) % abs({1}) END",
        spark="CASE WHEN {1} <> 0 THEN pmod({0}, abs({1})) END",
    ),
    declare("max_of", returns="same", both="greatest({*})"),
    declare("min_of", returns="same", both="least({*})"),
    declare(
        "bin_long",
        returns="long",
        duckdb="CASE WHEN {1} <> 0 THEN (({0}) - ((({0}) % ({1})) + ({1})) % ({1})) END",
        spark="CASE WHEN {1} <> 0 THEN (({0}) - pmod({0}, {1})) END",
    ),
    declare("bin_real", returns="real", both="(floor(({0}) / ({1})) * ({1}))"),
    declare(
        "bin_at_long",
        returns="long",
        duckdb="(({2}) + CAST(floor((({0}) - ({2})) / CAST({1} AS DOUBLE)) AS BIGINT) * ({1}))",
        spark="(({2}) + CAST(floor((({0}) - ({2})) / ({1})) AS BIGINT) * ({1}))",
    ),
    declare("bin_at_real", returns="real", both="(({2}) + floor((({0}) - ({2})) / ({1})) * ({1}))"),
    declare(
        "bin_index_long",
        returns="long",
        duckdb="CAST(floor((({0}) - ({1})) / CAST({2} AS DOUBLE)) AS BIGINT)",
        spark="CAST(floor((({0}) - ({1})) / ({2})) AS BIGINT)",
    ),
    declare("bin_index_real", returns="long", both="CAST(floor((({0}) - ({1})) / ({2})) AS BIGINT)"),
    declare(
        "bin_count_long",
        returns="long",
        duckdb="CAST(greatest(ceil((({1}) - ({0})) / CAST({2} AS DOUBLE)), 0) AS BIGINT)",
        spark="CAST(greatest(ceil((({1}) - ({0})) / ({2})), 0) AS BIGINT)",
    ),
    declare("bin_count_real", returns="long", both="CAST(greatest(ceil((({1}) - ({0})) / ({2})), 0) AS BIGINT)"),
    declare(
        "longs",
        returns="long",
        duckdb="SELECT unnest(CAST(CAST({0} AS JSON) AS BIGINT[]))",
        spark="SELECT explode(from_json({0}, 'array<bigint>'))",
    ),
)
