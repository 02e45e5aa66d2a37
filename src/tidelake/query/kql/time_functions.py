"""List the scalar functions of times: clocks, bins, parts, differences and formats.

``TIMES`` is the whole list. What is constant is computed here. It does not know columns.
"""

from __future__ import annotations

import calendar
from collections.abc import Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from sqlglot import exp

from tidelake.query.kql.arguments import Arguments, Rule, ScalarFunction
from tidelake.query.kql.conversions import convert, implicit
from tidelake.query.kql.literals import TICKS_PER_DAY
from tidelake.query.kql.values import NUMERIC, Value, at_ticks, call, cast, literal


def _now(args: Arguments) -> Value:
    offset = args.constant(0, "the offset") if len(args) else 0
    return literal(args.scope.clock.now() + at_ticks(offset), "datetime")


def _ago(args: Arguments) -> Value:
    span = args.as_type(0, "timespan")
    if span.is_null:
        return literal(None, "datetime")
    if span.is_constant:
        try:
            return literal(args.scope.clock.now() - at_ticks(span.constant), "datetime")
        except (OverflowError, TypeError):
            raise args.error("ago goes beyond the calendar", 0) from None
    now = literal(args.scope.clock.now(), "datetime").sql
    return Value(call("tide_add_ticks", now, exp.Neg(this=exp.Paren(this=span.sql))), "datetime")


def _start_of(unit: str) -> Rule:
    def rule(args: Arguments) -> Value:
        time = args.as_type(0, "datetime")
        offset = args.as_type(1, "long") if len(args) > 1 else literal(0, "long")
        if time.is_constant and offset.is_constant:
            return literal(None if time.is_null else start_of(time.constant, unit, offset.constant), "datetime")
        return Value(call(f"tide_start_of_{unit}", time.sql, offset.sql), "datetime")

    return rule


def _end_of(unit: str) -> Rule:
    def rule(args: Arguments) -> Value:
        time = args.as_type(0, "datetime")
        offset = args.as_type(1, "long") if len(args) > 1 else literal(0, "long")
        if time.is_null:
            return time
        if time.is_constant and offset.is_constant:
            after = start_of(time.constant, unit, offset.constant + 1)
            return literal(after - timedelta(microseconds=1), "datetime")
        next_one = exp.Paren(this=exp.Add(this=offset.sql, expression=exp.Literal.number(1)))
        following = call(f"tide_start_of_{unit}", time.sql, next_one)
        return Value(call("tide_add_ticks", following, exp.Neg(this=exp.Literal.number(10))), "datetime")

    return rule


def start_of(time: datetime, unit: str, offset: int) -> datetime:
    """Return where a day, week (from Sunday), month or year begins, some units away."""
    day = time.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "day":
            return day + timedelta(days=offset)
        case "week":
            return day - timedelta(days=(day.weekday() + 1) % 7) + timedelta(weeks=offset)
        case "month":
            months = day.year * 12 + day.month - 1 + offset
            return day.replace(year=months // 12, month=months % 12 + 1, day=1)
        case _:
            return day.replace(year=day.year + offset, month=1, day=1)


def _bin(args: Arguments) -> Value:
    value = args[0]
    if value.type == "dynamic":
        value = convert(value, "real")
    size = args[1] if len(args) > 1 else literal(1, "long")
    if value.type in ("datetime", "timespan"):
        if size.type in NUMERIC and size.is_constant:
            size = literal(int(size.constant * TICKS_PER_DAY), "timespan")
        size = implicit(size, "timespan") or size
        if size.type != "timespan":
            raise args.error(f"a bin of {value.type} needs a timespan, this is {size.type}", 1, kind="type")
        if _is_no_size(size):
            return literal(None, value.type)
        if value.type == "datetime" and value.is_constant and size.is_constant and value.constant is not None:
            return literal(_bin_time(value.constant, size.constant), "datetime")
        target = "tide_bin_datetime" if value.type == "datetime" else "tide_bin_long"
        return Value(call(target, value.sql, size.sql), value.type)
    if value.type not in NUMERIC or size.type not in (*NUMERIC, "dynamic"):
        hint = ": use todatetime(…) or totimespan(…)" if args[0].type == "dynamic" else ""
        raise args.error(f"{args.name} cannot use {args[0].type} and {size.type}{hint}", kind="type")
    if _is_no_size(size):
        return literal(None, "real" if "real" in (value.type, size.type) else "long")
    if {"real", "decimal", "dynamic"} & {value.type, size.type}:
        return Value(call("tide_bin_real", convert(value, "real").sql, convert(size, "real").sql), "real")
    return Value(call("tide_bin_long", cast(value.sql, "long"), size.sql), "long")


def _bin_time(time: datetime, ticks: int) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=time.tzinfo)
    micros = (time - epoch) // timedelta(microseconds=1)
    step = max(ticks // 10, 1)
    offset = 62_135_596_800_000_000  # bins are counted from the year 1
    return epoch + timedelta(microseconds=(micros + offset) // step * step - offset)


def _is_no_size(size: Value) -> bool:
    """Whether a bin of such a size is none: what lies in it is null."""
    return size.is_constant and (size.constant is None or size.constant <= 0)


def _bin_at(args: Arguments) -> Value:
    value, size, origin = args.values
    if value.type == "datetime":
        origin = args.as_type(2, "datetime")
        return Value(call("tide_bin_at_datetime", value.sql, args.as_type(1, "timespan").sql, origin.sql), "datetime")
    kind = "real" if "real" in (value.type, size.type, origin.type) else value.type
    sides = [convert(side, kind).sql if kind == "real" else side.sql for side in (value, size, origin)]
    return Value(call("tide_bin_at_real" if kind == "real" else "tide_bin_at_long", *sides), kind)


def _at_zone(target: str) -> Rule:
    def rule(args: Arguments) -> Value:
        zone = args.as_type(1, "text")
        if zone.is_constant:
            try:
                ZoneInfo(str(zone.constant))
            except (KeyError, ValueError, OSError):
                raise args.error(f"there is no time zone '{zone.constant}'", 1) from None
        return Value(call(target, args.as_type(0, "datetime").sql, zone.sql), "datetime")

    return rule


_PARTS = ("year", "quarter", "month", "week_of_year", "week", "day", "dayofyear", "hour", "minute", "second",
          "millisecond", "microsecond", "nanosecond")  # fmt: skip


def _unit(args: Arguments, index: int) -> str:
    unit = str(args.constant(index, "the unit")).lower()
    unit = {"dayofyear": "dayofyear", "weekofyear": "week_of_year"}.get(
        unit, unit.removesuffix("s") if unit != "s" else unit
    )
    if unit not in _PARTS:
        raise args.error(f"{args.name} knows these units: {', '.join(_PARTS)}", index)
    return unit


def _datetime_part(args: Arguments) -> Value:
    return Value(cast(call(f"tide_part_{_unit(args, 0)}", args.as_type(1, "datetime").sql), "int"), "int")


def _datetime_diff(args: Arguments) -> Value:
    unit = _unit(args, 0)
    return Value(call(f"tide_diff_{unit}", args.as_type(1, "datetime").sql, args.as_type(2, "datetime").sql), "long")


def _datetime_add(args: Arguments) -> Value:
    unit = _unit(args, 0)
    amount, time = args.as_type(1, "long"), args.as_type(2, "datetime")
    if amount.is_constant and time.is_constant and amount.constant is not None and time.constant is not None:
        return literal(_added(time.constant, unit, amount.constant), "datetime")
    return Value(call(f"tide_add_{unit}", time.sql, amount.sql), "datetime")


def _added(time: datetime, unit: str, amount: int) -> datetime:
    months = {"year": 12, "quarter": 3, "month": 1}.get(unit)
    if months:
        total = time.year * 12 + time.month - 1 + months * amount
        year, month = total // 12, total % 12 + 1
        return time.replace(year=year, month=month, day=min(time.day, calendar.monthrange(year, month)[1]))
    seconds = {"week": 604800, "day": 86400, "hour": 3600, "minute": 60, "second": 1}.get(unit)
    if seconds:
        return time + timedelta(seconds=seconds * amount)
    return time + timedelta(
        microseconds={"millisecond": 1000 * amount, "microsecond": amount}.get(unit, amount // 1000)
    )


def _format_datetime(args: Arguments) -> Value:
    return Value(call("tide_format_datetime", args.as_type(0, "datetime").sql, args.as_type(1, "text").sql), "string")


def _format_timespan(args: Arguments) -> Value:
    return Value(call("tide_format_timespan", args.as_type(0, "timespan").sql, args.as_type(1, "text").sql), "string")


def _ingestion_time(args: Arguments) -> Value:
    """Return the column of that name: a lake keeps no such time by itself, for merging extents would lose it."""
    found = args.scope.column("ingestion_time")
    if found is None:
        raise args.scope.error(
            args.at,
            "ingestion_time() is a table's column 'ingestion_time', and there is none here",
            kind="unknown_name",
            name="ingestion_time",
            tables=",".join(args.scope.tables),
        )
    return found if found.type == "datetime" else convert(found, "datetime")


_ENTRIES: dict[str, tuple[int, int, Rule, str]] = {
    "now": (0, 1, _now, "datetime"),
    "ago": (1, 1, _ago, "datetime"),
    "startofday": (1, 2, _start_of("day"), "datetime"),
    "startofweek": (1, 2, _start_of("week"), "datetime"),
    "startofmonth": (1, 2, _start_of("month"), "datetime"),
    "startofyear": (1, 2, _start_of("year"), "datetime"),
    "endofday": (1, 2, _end_of("day"), "datetime"),
    "endofweek": (1, 2, _end_of("week"), "datetime"),
    "endofmonth": (1, 2, _end_of("month"), "datetime"),
    "endofyear": (1, 2, _end_of("year"), "datetime"),
    "bin": (2, 2, _bin, "of its argument"),
    "floor": (1, 2, _bin, "of its argument"),
    "bin_at": (3, 3, _bin_at, "of its argument"),
    "datetime_utc_to_local": (2, 2, _at_zone("tide_utc_to_local"), "datetime"),
    "datetime_local_to_utc": (2, 2, _at_zone("tide_local_to_utc"), "datetime"),
    "datetime_part": (2, 2, _datetime_part, "int"),
    "datepart": (2, 2, _datetime_part, "int"),
    "datetime_diff": (3, 3, _datetime_diff, "long"),
    "datetime_add": (3, 3, _datetime_add, "datetime"),
    "format_datetime": (2, 2, _format_datetime, "string"),
    "format_timespan": (2, 2, _format_timespan, "string"),
    "ingestion_time": (0, 0, _ingestion_time, "datetime"),
}

TIMES: Mapping[str, ScalarFunction] = {name: ScalarFunction(name, *entry) for name, entry in _ENTRIES.items()}
