"""Read times and durations as people write them.

A time is RFC 3339 text, a ``datetime`` (UTC when it has no zone), a ``date``, or a number since 1970 UTC whose unit
shows in its size, also as text::

    1767225600            seconds            1767225600000000       microseconds, from 1e14
    1767225600000         ms, from 1e11      1767225600000000000    nanoseconds, from 1e16

So are times read wherever a person gives one: rows that are appended, ranges, conditions, states of the past. A number
that a question asks with must be 0 or of at least eight digits and more: 20260131 is a date that lacks its dashes
rather than a second of 1970. A duration is a number and a unit, ``90s``, ``15 min``, ``30d``. It takes no clock.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from typing import Any, TypeAlias

from tidelake.errors import InvalidInputError
from tidelake.model.predicate import Nanoseconds, time_ns

NANOS_FROM, MICROS_FROM, MILLIS_FROM = 10**16, 10**14, 10**11  # of numbers since 1970; below are seconds
When: TypeAlias = str | date | int | float  # a time as a person gives it; a datetime is a date

MIN_ASKED = 10**8  # of a question's numbers: smaller ones are no times but mistakes, such as 20260131
MIN_US = -62_135_596_800_000_000  # 0001-01-01
MAX_US = 253_402_300_799_999_999  # the end of 9999-12-31

_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_NAMES = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("week", "weeks"), "w"),
}
_DURATION = re.compile(r"\s*(\d{1,18})\s*([a-z]+)\s*", re.IGNORECASE)
_FRACTION = re.compile(r"\.(\d{6})(\d+)")
_NUMBER = re.compile(r"[+-]?[0-9]{9,19}(\.[0-9]{1,9})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time_ns(value: Any) -> int:
    """Return a time as nanoseconds since 1970 UTC; the unit of a number shows in its size."""
    if isinstance(value, Nanoseconds):
        return int(value)
    if not isinstance(value, str | date | int | float | Decimal) and hasattr(value, "item"):
        value = _plain(value)
    if isinstance(value, datetime):
        return time_ns(value)
    if isinstance(value, date):
        return time_ns(datetime(value.year, value.month, value.day, tzinfo=UTC))
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _number_ns(value)
    if not isinstance(value, str):
        raise InvalidInputError(
            f"{value!r} is not a time: give RFC 3339 text, a datetime, or a number since 1970", kind="bad_time"
        )
    return _number_ns(Decimal(value)) if _NUMBER.fullmatch(value.strip()) else text_time_ns(value)


def _plain(value: Any) -> Any:
    """Return an array's scalar as a value of Python's; a time finer than a microsecond is floored."""
    return (value.astype("datetime64[us]") if type(value).__name__ == "datetime64" else value).item()


def _number_ns(value: float | Decimal) -> int:
    """Return a number since 1970 as nanoseconds, or say why it is no time."""
    exact = Decimal(float.__repr__(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite():
        raise InvalidInputError(f"{value} is not a time", kind="bad_time")
    size = abs(exact)
    if 0 < size < MIN_ASKED:
        raise InvalidInputError(
            f"{value} is too small for a time: numbers are seconds, milliseconds, microseconds or nanoseconds since "
            "1970, told by their size; write a date as '2026-01-31'",
            kind="bad_time",
        )
    power = 0 if size >= NANOS_FROM else 3 if size >= MICROS_FROM else 6 if size >= MILLIS_FROM else 9
    ns = int((exact.scaleb(power)).to_integral_value(ROUND_FLOOR))
    if not MIN_US <= ns // 1000 <= MAX_US:
        raise InvalidInputError(f"{value} is not a time: it is not in the years 1 to 9999", kind="bad_time")
    return ns


def text_time_ns(value: str) -> int:
    """Return a time in RFC 3339 text as nanoseconds since 1970 UTC."""
    extra = _FRACTION.search(value)
    try:
        parsed = datetime.fromisoformat(_FRACTION.sub(r".\1", value.strip()))
    except ValueError:
        raise InvalidInputError(f"{value!r} is not a time such as 2026-01-31T12:00:00Z", kind="bad_time") from None
    below_us = int(extra[2][:3].ljust(3, "0")) if extra else 0
    return time_ns(parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)) + below_us


def time_us(value: Any) -> int:
    """Return a time as microseconds since 1970 UTC, rounded down."""
    return parse_time_ns(value) // 1000


def time_text(ns: int) -> str:
    """Return nanoseconds since 1970 as RFC 3339 in microseconds, or the number where no calendar reaches."""
    try:
        return (_EPOCH + timedelta(microseconds=ns // 1000)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{ns} ns"


def duration_us(text: str) -> int:
    """Return a duration as microseconds."""
    match = _DURATION.fullmatch(text)
    unit = match and _NAMES.get(match[2].lower(), match[2].lower())
    if not match or unit not in _UNITS_US:
        raise InvalidInputError(f"{text!r} is not a duration such as 90s, 15m, 12h, 30d or 2w", kind="bad_duration")
    if int(match[1]) == 0:
        raise InvalidInputError(f"{text!r}: a duration must be more than zero", kind="bad_duration")
    return int(match[1]) * _UNITS_US[unit]
