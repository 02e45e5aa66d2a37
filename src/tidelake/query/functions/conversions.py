"""Declare how a value of one type becomes one of another: ``to_long_from_text`` and its like.

In DuckDB a dynamic value is JSON, in Spark VARIANT. What cannot be converted is null. It does not convert.
"""

from __future__ import annotations

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.kql.literals import parse_span

FUNCTIONS: tuple[Function, ...] = (
    declare("to_string_from_dynamic", returns="text", duckdb="({0} ->> '$')", spark="try_cast({0} AS STRING)"),
    declare("to_string_from_long", returns="text", duckdb="CAST({0} AS VARCHAR)", spark="CAST({0} AS STRING)"),
    declare("to_string_from_real", returns="text", both="let[[{0}]][[<real_text>]]"),
    declare("to_string_from_bool", returns="text", duckdb="CAST({0} AS VARCHAR)", spark="CAST({0} AS STRING)"),
    declare("to_string_from_datetime", returns="text", both="<time_text {0}>"),
    declare("to_string_from_timespan", returns="text", both="let[[{0}]][[<span_text>]]"),
    declare(
        "to_long_from_dynamic",
        returns="long",
        duckdb="let[[({0} ->> '$')]][[<whole>]]",
        spark="let[[try_cast({0} AS STRING)]][[<whole>]]",
    ),
    declare("to_long_from_string", returns="long", both="let[[{0}]][[<whole>]]"),
    declare(
        "to_long_from_real", returns="long", duckdb="TRY_CAST(trunc({0}) AS BIGINT)", spark="try_cast({0} AS BIGINT)"
    ),
    declare("to_long_from_bool", returns="long", both="CAST({0} AS BIGINT)"),
    declare(
        "to_long_from_datetime",
        returns="long",
        duckdb="((epoch_us({0}) + <origin>) * 10)",
        spark="((unix_micros({0}) + <origin>) * 10)",
    ),
    declare("to_long_from_timespan", returns="long", both="{0}"),
    declare(
        "to_int_from_dynamic",
        returns="int",
        duckdb="TRY_CAST(let[[({0} ->> '$')]][[<whole>]] AS INTEGER)",
        spark="try_cast(let[[try_cast({0} AS STRING)]][[<whole>]] AS INT)",
    ),
    declare(
        "to_int_from_string",
        returns="int",
        duckdb="let[[{0}]][[TRY_CAST(<whole> AS INTEGER)]]",
        spark="try_cast(let[[{0}]][[<whole>]] AS INT)",
    ),
    declare("to_int_from_long", returns="int", duckdb="TRY_CAST({0} AS INTEGER)", spark="try_cast({0} AS INT)"),
    declare("to_int_from_real", returns="int", duckdb="TRY_CAST(trunc({0}) AS INTEGER)", spark="try_cast({0} AS INT)"),
    declare("to_int_from_bool", returns="int", duckdb="CAST({0} AS INTEGER)", spark="CAST({0} AS INT)"),
    declare("to_int_from_timespan", returns="int", duckdb="TRY_CAST({0} AS INTEGER)", spark="try_cast({0} AS INT)"),
    declare(
        "to_real_from_dynamic",
        returns="real",
        duckdb="TRY_CAST({0} ->> '$' AS DOUBLE)",
        spark="try_cast(try_cast({0} AS STRING) AS DOUBLE)",
    ),
    declare(
        "to_real_from_string",
        returns="real",
        duckdb="TRY_CAST(trim(replace({0}, '_', '?')) AS DOUBLE)",
        spark="try_cast(trim({0}) AS DOUBLE)",
    ),
    declare(
        "to_real_from_bool", returns="real", duckdb="CAST({0} AS DOUBLE)", spark="CAST(CAST({0} AS INT) AS DOUBLE)"
    ),
    declare("to_real_from_timespan", returns="real", both="CAST({0} AS DOUBLE)"),
    declare(
        "to_real_from_datetime",
        returns="real",
        duckdb="CAST((epoch_us({0}) + <origin>) * 10 AS DOUBLE)",
        spark="CAST((unix_micros({0}) + <origin>) * 10 AS DOUBLE)",
    ),
    declare(
        "to_bool_from_dynamic",
        returns="bool",
        duckdb="let[[{0}]][[CASE lower(@ ->> '$') WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE ELSE TRY_CAST(@ "
        "->> '$' AS DOUBLE) <> 0 END]]",
        spark="let[[try_cast({0} AS STRING)]][[CASE lower(@) WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE "
        "ELSE try_cast(@ AS DOUBLE) <> 0 END]]",
    ),
    declare(
        "to_bool_from_string",
        returns="bool",
        duckdb="let[[{0}]][[CASE lower(trim(@)) WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE ELSE "
        "TRY_CAST(trim(replace(@, '_', '?')) AS DOUBLE) <> 0 END]]",
        spark="let[[{0}]][[CASE lower(trim(@)) WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE ELSE "
        "try_cast(trim(@) AS DOUBLE) <> 0 END]]",
    ),
    declare("to_bool_from_long", returns="bool", both="({0} <> 0)"),
    declare("to_bool_from_real", returns="bool", both="({0} <> 0)"),
    declare("to_datetime_from_string", returns="time", both="let[[{0}]][[<time>]]"),
    declare(
        "to_datetime_from_dynamic",
        returns="time",
        duckdb="let[[({0} ->> '$')]][[<time>]]",
        spark="let[[try_cast({0} AS STRING)]][[<time>]]",
    ),
    declare(
        "to_datetime_from_long",
        returns="time",
        duckdb="make_timestamptz(({0}) // 10 - <origin>)",
        spark="timestamp_micros(({0}) div 10 - <origin>)",
    ),
    declare(
        "to_datetime_from_real",
        returns="time",
        duckdb="make_timestamptz(CAST({0} AS BIGINT) // 10 - <origin>)",
        spark="timestamp_micros(CAST({0} AS BIGINT) div 10 - <origin>)",
    ),
    declare(
        "to_timespan_from_dynamic",
        returns="long",
        duckdb="tide_to_timespan_from_string({0} ->> '$')",
        spark="tide_to_timespan_from_string(try_cast({0} AS STRING))",
    ),
    declare("to_timespan_from_long", returns="long", both="CAST({0} AS BIGINT)"),
    declare("to_timespan_from_real", returns="long", both="CAST({0} AS BIGINT)"),
    declare("to_dynamic_from_string", returns="dynamic", duckdb="to_json({0})", spark="CAST({0} AS VARIANT)"),
    declare("to_dynamic_from_long", returns="dynamic", duckdb="to_json({0})", spark="CAST({0} AS VARIANT)"),
    declare("to_dynamic_from_real", returns="dynamic", duckdb="to_json({0})", spark="CAST({0} AS VARIANT)"),
    declare("to_dynamic_from_bool", returns="dynamic", duckdb="to_json({0})", spark="CAST({0} AS VARIANT)"),
    declare(
        "to_dynamic_from_datetime",
        returns="dynamic",
        duckdb="to_json(<time_text {0}>)",
        spark="CAST(<time_text {0}> AS VARIANT)",
    ),
    declare(
        "to_dynamic_from_timespan",
        returns="dynamic",
        duckdb="let[[{0}]][[to_json(<span_text>)]]",
        spark="CAST(let[[{0}]][[<span_text>]] AS VARIANT)",
    ),
    declare("to_guid_from_string", returns="text", both="let[[{0}]][[<guid>]]"),
    declare(
        "to_guid_from_dynamic",
        returns="text",
        duckdb="let[[({0} ->> '$')]][[<guid>]]",
        spark="let[[try_cast({0} AS STRING)]][[<guid>]]",
    ),
    declare("to_timespan_from_string", returns="long", python=parse_span, arity=1),
    declare("to_json", returns="text", duckdb="CAST({0} AS VARCHAR)", spark="to_json({0})"),
    declare("to_micros", returns="long", duckdb="epoch_us({0})", spark="unix_micros({0})"),
    declare(
        "to_hex",
        returns="text",
        duckdb="let[[lower(to_hex(CAST({0} AS BIGINT)))]][[CASE WHEN length(@) < {1|0} THEN lpad(@, CAST({1|0} "
        "AS INTEGER), '0') ELSE @ END]]",
        spark="let[[lower(hex(CAST({0} AS BIGINT)))]][[CASE WHEN length(@) < {1|0} THEN lpad(@, CAST({1|0} AS "
        "INT), '0') ELSE @ END]]",
    ),
    declare("sort_key", returns="text", duckdb="({0} ->> '$')", spark="try_cast({0} AS STRING)"),
    declare("new_guid", returns="text", duckdb="CAST(uuid() AS VARCHAR)", spark="uuid()"),
)
