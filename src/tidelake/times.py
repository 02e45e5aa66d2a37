"""Read times and durations as people write them.

A time is RFC 3339 text, a ``datetime`` (UTC when it has no zone), or an integer of nanoseconds since 1970 UTC. A
duration is a number and a unit, ``90s``, ``15 min``, ``30d``. It takes no clock.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tidelake.errors import InvalidInputError
from tidelake.predicate import time_ns

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
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time_ns(value: str | datetime | int) -> int:
    """Give a time as nanoseconds since 1970 UTC."""
    if isinstance(value, bool) or not isinstance(value, str | datetime | int):
        raise InvalidInputError(f"{value!r} is not a time: give RFC 3339 text, a datetime, or nanoseconds")
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        return time_ns(value)
    extra = _FRACTION.search(value)
    try:
        parsed = datetime.fromisoformat(_FRACTION.sub(r".\1", value.strip()))
    except ValueError:
        raise InvalidInputError(f"{value!r} is not a time such as 2026-01-31T12:00:00Z", kind="bad_time") from None
    below_us = int(extra[2][:3].ljust(3, "0")) if extra else 0
    return time_ns(parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)) + below_us


def time_us(value: str | datetime | int) -> int:
    """Give a time as microseconds since 1970 UTC, rounded down."""
    return parse_time_ns(value) // 1000


def time_text(ns: int) -> str:
    """Give nanoseconds since 1970 as RFC 3339 in microseconds, or the number where no calendar reaches."""
    try:
        return (_EPOCH + timedelta(microseconds=ns // 1000)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{ns} ns"


def duration_us(text: str) -> int:
    """Give a duration as microseconds."""
    match = _DURATION.fullmatch(text)
    unit = match and _NAMES.get(match[2].lower(), match[2].lower())
    if not match or unit not in _UNITS_US:
        raise InvalidInputError(f"{text!r} is not a duration such as 90s, 15m, 12h, 30d or 2w", kind="bad_duration")
    if int(match[1]) == 0:
        raise InvalidInputError(f"{text!r}: a duration must be more than zero", kind="bad_duration")
    return int(match[1]) * _UNITS_US[unit]
