"""Declare the functions of times and timespans: parts, differences, bins, formats.

A timespan is a number of ticks, of 100 nanoseconds each; bins are counted from the year 1. It does not know zones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlglot import exp

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.patterns import TIME_PART, duckdb_text, java_format_of, spark_text, strftime_of
from tidelake.query.functions.python import dumped
from tidelake.query.functions.templates import literal_text
from tidelake.query.kql.literals import TICKS_PER_DAY, TICKS_PER_SECOND


def _format_datetime_duckdb(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    pattern = literal_text(nodes[1])
    shape = strftime_of(pattern) if pattern is not None else None
    if shape is not None:
        return f"strftime({texts[0]}, {duckdb_text(shape)})"
    return f"tide_format_datetime_python(CAST(epoch_us({texts[0]}) AS VARCHAR), {texts[1]})"


def _format_datetime_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    pattern = literal_text(nodes[1])
    shape = java_format_of(pattern) if pattern is not None else None
    if shape is not None:
        return f"date_format({texts[0]}, {spark_text(shape)})"
    return f"tide_format_datetime_python(CAST(unix_micros({texts[0]}) AS STRING), {texts[1]})"


def format_timespan(ticks: str, pattern: str) -> str:
    total = abs(int(ticks))
    days, rest = divmod(total, TICKS_PER_DAY)
    seconds, fraction = divmod(rest, TICKS_PER_SECOND)
    values = {"d": days, "H": seconds // 3600, "h": seconds // 3600, "m": seconds // 60 % 60, "s": seconds % 60}
    out, at = "", 0
    while at < len(pattern):
        letter, run = pattern[at], 1
        while at + run < len(pattern) and pattern[at + run] == letter:
            run += 1
        if letter in values:
            out += str(values[letter]).zfill(run)
        elif letter in "fF":
            digits = f"{fraction:07}"[:run]
            out += digits.rstrip("0") if letter == "F" else digits
        else:
            out += letter * run
        at += run
    return ("-" if int(ticks) < 0 else "") + out


def format_datetime(micros: str, pattern: str) -> str:
    value = datetime.fromtimestamp(int(micros) // 1_000_000, UTC)
    fraction = f"{int(micros) % 1_000_000:06}0"
    hour = value.hour % 12 or 12
    simple = {
        "yyyy": f"{value.year:04}", "yy": f"{value.year % 100:02}", "y": str(value.year % 100),
        "MM": f"{value.month:02}", "M": str(value.month),
        "dd": f"{value.day:02}", "d": str(value.day), "HH": f"{value.hour:02}", "H": str(value.hour),
        "hh": f"{hour:02}", "h": str(hour), "mm": f"{value.minute:02}", "m": str(value.minute),
        "ss": f"{value.second:02}", "s": str(value.second), "tt": "AM" if value.hour < 12 else "PM",
    }  # fmt: skip
    out = ""
    for piece in TIME_PART.findall(pattern):
        if piece[0] in "fF":
            digits = fraction[: len(piece)]
            out += digits.rstrip("0") if piece[0] == "F" else digits
        else:
            out += simple.get(piece, piece)
    return out


def session_starts(rows: str, first: str, between: str) -> str:
    """Return each row's place and where its session began, from ``[place, value, restarts]`` of all rows in order."""
    longest, widest = int(first), int(between)
    out: list[tuple[int, int | None]] = []
    start: int | None = None
    before: int | None = None
    for place, value, again in json.loads(rows):
        if value is not None and (
            start is None or before is None or again or value >= start + longest or value >= before + widest
        ):
            start = value
        out.append((place, None if value is None else start))
        before = value
    return dumped(out)


FUNCTIONS: tuple[Function, ...] = (
    declare(
        "bin_datetime",
        returns="time",
        duckdb="make_timestamptz(CAST((epoch_us({0}) + <origin>) // greatest(({1}) // 10, 1) * greatest(({1}) "
        "// 10, 1) - <origin> AS BIGINT))",
        spark="timestamp_micros((unix_micros({0}) + <origin>) div greatest(({1}) div 10, 1) * greatest(({1}) "
        "div 10, 1) - <origin>)",
    ),
    declare(
        "bin_at_datetime",
        returns="time",
        duckdb="make_timestamptz(CAST(epoch_us({2}) + CAST(floor((epoch_us({0}) - epoch_us({2})) / (({1}) / "
        "10.0)) AS BIGINT) * (({1}) // 10) AS BIGINT))",
        spark="timestamp_micros(unix_micros({2}) + CAST(floor((unix_micros({0}) - unix_micros({2})) / (({1}) / "
        "10)) AS BIGINT) * (({1}) div 10))",
    ),
    declare(
        "bin_index_datetime",
        returns="long",
        duckdb="CAST(floor((epoch_us({0}) - epoch_us({1})) / (({2}) / 10.0)) AS BIGINT)",
        spark="CAST(floor((unix_micros({0}) - unix_micros({1})) / (({2}) / 10)) AS BIGINT)",
    ),
    declare(
        "bin_count_datetime",
        returns="long",
        duckdb="CAST(greatest(ceil((epoch_us({1}) - epoch_us({0})) / (({2}) / 10.0)), 0) AS BIGINT)",
        spark="CAST(greatest(ceil((unix_micros({1}) - unix_micros({0})) / (({2}) / 10)), 0) AS BIGINT)",
    ),
    declare(
        "add_ticks",
        returns="time",
        duckdb="make_timestamptz(CAST(epoch_us({0}) + CAST(floor(({1}) / 10) AS BIGINT) AS BIGINT))",
        spark="timestamp_micros(unix_micros({0}) + CAST(floor(({1}) / 10) AS BIGINT))",
    ),
    declare(
        "ticks_between",
        returns="long",
        duckdb="((epoch_us({0}) - epoch_us({1})) * 10)",
        spark="((unix_micros({0}) - unix_micros({1})) * 10)",
    ),
    declare(
        "start_of_day",
        returns="time",
        duckdb="(date_trunc('day', {0}) + to_days(CAST({1} AS INTEGER)))",
        spark="timestampadd(DAY, {1}, date_trunc('DAY', {0}))",
    ),
    declare(
        "start_of_week",
        returns="time",
        duckdb="(date_trunc('week', {0} + INTERVAL 1 DAY) - INTERVAL 1 DAY + to_weeks(CAST({1} AS INTEGER)))",
        spark="timestampadd(DAY, ({1}) * 7 - 1, date_trunc('WEEK', timestampadd(DAY, 1, {0})))",
    ),
    declare(
        "start_of_month",
        returns="time",
        duckdb="(date_trunc('month', {0}) + to_months(CAST({1} AS INTEGER)))",
        spark="timestampadd(MONTH, {1}, date_trunc('MONTH', {0}))",
    ),
    declare(
        "start_of_year",
        returns="time",
        duckdb="(date_trunc('year', {0}) + to_years(CAST({1} AS INTEGER)))",
        spark="timestampadd(YEAR, {1}, date_trunc('YEAR', {0}))",
    ),
    declare(
        "dayofweek",
        returns="long",
        duckdb="(CAST(dayofweek({0}) AS BIGINT) * 864000000000)",
        spark="(CAST(dayofweek({0}) - 1 AS BIGINT) * 864000000000)",
    ),
    declare("dayofmonth", returns="int", duckdb="CAST(day({0}) AS INTEGER)", spark="day({0})"),
    declare("dayofyear", returns="int", duckdb="CAST(dayofyear({0}) AS INTEGER)", spark="dayofyear({0})"),
    declare("hourofday", returns="int", duckdb="CAST(hour({0}) AS INTEGER)", spark="hour({0})"),
    declare("monthofyear", returns="int", duckdb="CAST(month({0}) AS INTEGER)", spark="month({0})"),
    declare("year", returns="int", duckdb="CAST(year({0}) AS INTEGER)", spark="year({0})"),
    declare("weekofyear", returns="int", duckdb="CAST(week({0}) AS INTEGER)", spark="weekofyear({0})"),
    declare(
        "from_unix_seconds",
        returns="time",
        duckdb="make_timestamptz(CAST(CASE WHEN {0} BETWEEN -62135596800 AND 253402300799 THEN ({0}) * 1000000 "
        "END AS BIGINT))",
        spark="timestamp_micros(CAST(CASE WHEN {0} BETWEEN -62135596800 AND 253402300799 THEN ({0}) * 1000000 "
        "END AS BIGINT))",
    ),
    declare(
        "from_unix_millis",
        returns="time",
        duckdb="make_timestamptz(CAST(CASE WHEN {0} BETWEEN -62135596800000 AND 253402300799999 THEN ({0}) * "
        "1000 END AS BIGINT))",
        spark="timestamp_micros(CAST(CASE WHEN {0} BETWEEN -62135596800000 AND 253402300799999 THEN ({0}) * "
        "1000 END AS BIGINT))",
    ),
    declare(
        "from_unix_micros",
        returns="time",
        duckdb="make_timestamptz(CAST(CASE WHEN {0} BETWEEN -62135596800000000 AND 253402300799999999 THEN {0} "
        "END AS BIGINT))",
        spark="timestamp_micros(CAST(CASE WHEN {0} BETWEEN -62135596800000000 AND 253402300799999999 THEN {0} "
        "END AS BIGINT))",
    ),
    declare(
        "from_unix_nanos",
        returns="time",
        duckdb="make_timestamptz(CAST(({0}) // 1000 AS BIGINT))",
        spark="timestamp_micros(CAST({0} AS BIGINT) div 1000)",
    ),
    declare(
        "utc_to_local",
        returns="time",
        duckdb="(({0} AT TIME ZONE {1}) AT TIME ZONE 'UTC')",
        spark="from_utc_timestamp({0}, {1})",
    ),
    declare(
        "local_to_utc",
        returns="time",
        duckdb="let[[(({0} AT TIME ZONE 'UTC') AT TIME ZONE {1})]][[@ - (((@ AT TIME ZONE {1}) AT TIME ZONE "
        "'UTC') - {0})]]",
        spark="let[[to_utc_timestamp({0}, {1})]][[timestamp_micros(unix_micros(@) - "
        "(unix_micros(from_utc_timestamp(@, {1})) - unix_micros({0})))]]",
    ),
    declare(
        "make_datetime",
        returns="time",
        duckdb="CASE WHEN TRY_CAST(printf('%04d-%02d-%02d', {0}, {1}, {2}) AS DATE) IS NOT NULL AND {3|0} "
        "BETWEEN 0 AND 23 AND {4|0} BETWEEN 0 AND 59 AND {5|0} >= 0 AND {5|0} < 60 THEN "
        "make_timestamptz({0}, {1}, {2}, {3|0}, {4|0}, CAST({5|0} AS DOUBLE)) END",
        spark="try_make_timestamp(CAST({0} AS INT), CAST({1} AS INT), CAST({2} AS INT), CAST({3|0} AS INT), "
        "CAST({4|0} AS INT), CAST({5|0} AS DECIMAL(16, 6)))",
    ),
    declare(
        "make_timespan",
        returns="long",
        both="(({0}) * 36000000000 + ({1}) * 600000000 + CAST(({2|0}) * 10000000 AS BIGINT))",
    ),
    declare("format_datetime", returns="text", duckdb=_format_datetime_duckdb, spark=_format_datetime_spark),
    declare("format_datetime_python", returns="text", python=format_datetime, arity=2),
    declare("format_timespan", returns="text", python=format_timespan, arity=2),
    declare("session_starts", returns="dynamic", python=session_starts, arity=3),
    declare("part_year", returns="long", both="CAST(year({0}) AS BIGINT)"),
    declare("part_quarter", returns="long", both="CAST(quarter({0}) AS BIGINT)"),
    declare("part_month", returns="long", both="CAST(month({0}) AS BIGINT)"),
    declare(
        "part_week_of_year", returns="long", duckdb="CAST(week({0}) AS BIGINT)", spark="CAST(weekofyear({0}) AS BIGINT)"
    ),
    declare("part_week", returns="long", duckdb="CAST(week({0}) AS BIGINT)", spark="CAST(weekofyear({0}) AS BIGINT)"),
    declare("part_day", returns="long", both="CAST(day({0}) AS BIGINT)"),
    declare("part_dayofyear", returns="long", both="CAST(dayofyear({0}) AS BIGINT)"),
    declare("part_hour", returns="long", both="CAST(hour({0}) AS BIGINT)"),
    declare("part_minute", returns="long", both="CAST(minute({0}) AS BIGINT)"),
    declare("part_second", returns="long", both="CAST(second({0}) AS BIGINT)"),
    declare(
        "part_millisecond",
        returns="long",
        duckdb="(epoch_us({0}) // 1000 % 1000)",
        spark="(unix_micros({0}) div 1000 % 1000)",
    ),
    declare(
        "part_microsecond", returns="long", duckdb="(epoch_us({0}) % 1000000)", spark="(unix_micros({0}) % 1000000)"
    ),
    declare(
        "part_nanosecond",
        returns="long",
        duckdb="(epoch_us({0}) % 1000000 * 1000)",
        spark="(unix_micros({0}) % 1000000 * 1000)",
    ),
    declare("diff_year", returns="long", both="CAST(year({0}) - year({1}) AS BIGINT)"),
    declare(
        "diff_quarter", returns="long", both="CAST((year({0}) - year({1})) * 4 + quarter({0}) - quarter({1}) AS BIGINT)"
    ),
    declare(
        "diff_month", returns="long", both="CAST((year({0}) - year({1})) * 12 + month({0}) - month({1}) AS BIGINT)"
    ),
    declare(
        "diff_week",
        returns="long",
        duckdb="date_diff('day', date_trunc('week', {1} + INTERVAL 1 DAY), date_trunc('week', {0} + INTERVAL 1 "
        "DAY)) // 7",
        spark="(timestampdiff(DAY, date_trunc('WEEK', timestampadd(DAY, 1, {1})), date_trunc('WEEK', "
        "timestampadd(DAY, 1, {0}))) div 7)",
    ),
    declare(
        "diff_day", returns="long", duckdb="date_diff('day', {1}, {0})", spark="CAST(datediff({0}, {1}) AS BIGINT)"
    ),
    declare(
        "diff_hour",
        returns="long",
        duckdb="date_diff('hour', {1}, {0})",
        spark="timestampdiff(HOUR, date_trunc('HOUR', {1}), date_trunc('HOUR', {0}))",
    ),
    declare(
        "diff_minute",
        returns="long",
        duckdb="date_diff('minute', {1}, {0})",
        spark="timestampdiff(MINUTE, date_trunc('MINUTE', {1}), date_trunc('MINUTE', {0}))",
    ),
    declare(
        "diff_second",
        returns="long",
        duckdb="date_diff('second', {1}, {0})",
        spark="timestampdiff(SECOND, date_trunc('SECOND', {1}), date_trunc('SECOND', {0}))",
    ),
    declare(
        "diff_millisecond",
        returns="long",
        duckdb="(epoch_us({0}) // 1000 - epoch_us({1}) // 1000)",
        spark="(unix_micros({0}) div 1000 - unix_micros({1}) div 1000)",
    ),
    declare(
        "diff_microsecond",
        returns="long",
        duckdb="(epoch_us({0}) - epoch_us({1}))",
        spark="(unix_micros({0}) - unix_micros({1}))",
    ),
    declare(
        "diff_nanosecond",
        returns="long",
        duckdb="((epoch_us({0}) - epoch_us({1})) * 1000)",
        spark="((unix_micros({0}) - unix_micros({1})) * 1000)",
    ),
    declare(
        "add_year",
        returns="time",
        duckdb="({0} + to_years(CAST({1} AS INTEGER)))",
        spark="timestampadd(YEAR, {1}, {0})",
    ),
    declare(
        "add_quarter",
        returns="time",
        duckdb="({0} + to_months(CAST({1} * 3 AS INTEGER)))",
        spark="timestampadd(QUARTER, {1}, {0})",
    ),
    declare(
        "add_month",
        returns="time",
        duckdb="({0} + to_months(CAST({1} AS INTEGER)))",
        spark="timestampadd(MONTH, {1}, {0})",
    ),
    declare(
        "add_week",
        returns="time",
        duckdb="({0} + to_weeks(CAST({1} AS INTEGER)))",
        spark="timestampadd(WEEK, {1}, {0})",
    ),
    declare(
        "add_day", returns="time", duckdb="({0} + to_days(CAST({1} AS INTEGER)))", spark="timestampadd(DAY, {1}, {0})"
    ),
    declare("add_hour", returns="time", duckdb="({0} + to_hours({1}))", spark="timestampadd(HOUR, {1}, {0})"),
    declare("add_minute", returns="time", duckdb="({0} + to_minutes({1}))", spark="timestampadd(MINUTE, {1}, {0})"),
    declare("add_second", returns="time", duckdb="({0} + to_seconds({1}))", spark="timestampadd(SECOND, {1}, {0})"),
    declare(
        "add_millisecond",
        returns="time",
        duckdb="({0} + to_milliseconds({1}))",
        spark="timestampadd(MILLISECOND, {1}, {0})",
    ),
    declare(
        "add_microsecond",
        returns="time",
        duckdb="({0} + to_microseconds({1}))",
        spark="timestampadd(MICROSECOND, {1}, {0})",
    ),
)
