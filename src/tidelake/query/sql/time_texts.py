"""Read times and dates out of text as Spark does: zones by name and by distance, years of any sign.

A time is given in microseconds since 1970, a date in days, in the calendar that is used today for all years. A text
that Spark makes null is None. It does not know words such as ``today``: see ``sql_tokens``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_DAY_US = 86_400_000_000
_BLANKS = "".join(map(chr, range(0x21)))
_DATE = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIME = re.compile(
    r"(?:([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?=[ T]|$))?)?)?"
    r"(?:(?<=\d)[ T](?=\d)|^T?(?=\d{1,2}:)|$)"
    r"(?:(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?([^\d.].*)?)?)?)?",
    re.DOTALL,
)
_DISTANCE = re.compile(r"(?:UTC|GMT|UT)?([+-])(?:(\d{1,2})|(\d{1,2}):(\d{1,2})(?::(\d\d))?|(\d\d)(\d\d)(\d\d)?)")
_UTC = frozenset({"Z", "UTC", "GMT", "UT", "Etc/UTC", "Zulu"})
_FARTHEST = 18 * 3600  # seconds, which Java takes as the greatest distance
# Java's names of three letters that are no zones of their own, or other ones.
_SHORT = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
_SHORT_DISTANCE = {"EST": -5 * 3600, "MST": -7 * 3600, "HST": -10 * 3600}


def days_of_text(text: str) -> int | None:
    """Return the days since 1970 of a date; what follows it after a space or a T does not count."""
    match = _DATE.fullmatch(text.strip(_BLANKS))
    if match is None:
        return None
    year = int(match[2]) * (-1 if match[1] == "-" else 1)
    return _days(year, int(match[3] or 1), int(match[4] or 1))


def micros_of_text(text: str) -> int | None:
    """Return the microseconds since 1970 of a time; of one without a date, as of today."""
    return _micros(text, is_wall=False)


def wall_micros_of_text(text: str) -> int | None:
    """Return what a wall clock shows, in microseconds since 1970; the zone does not count, but must be one."""
    return _micros(text, is_wall=True)


def seconds_ahead(zone: str, micros: int, *, is_local: bool = True) -> int | None:
    """Return how many seconds a zone's clocks are ahead of UTC when they, or those of UTC, show a time."""
    days, rest = divmod(micros, _DAY_US)
    return _distance(zone.strip(_BLANKS), days, rest // 1_000_000, is_local=is_local)


def _micros(text: str, *, is_wall: bool) -> int | None:
    plain = text.strip(_BLANKS)
    match = _TIME.fullmatch(plain)
    if match is None or not plain:
        return None
    sign, year, month, day, hour, minute, second, part, zone = match.groups()
    clock = (int(hour or 0), int(minute or 0), int(second or 0))
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        return None
    if year is None and is_wall:
        return None
    if year is None:
        days = int(datetime.now(UTC).timestamp()) // 86_400
    else:
        found = _days(int(year) * (-1 if sign == "-" else 1), int(month or 1), int(day or 1))
        if found is None:
            return None
        days = found
    seconds = clock[0] * 3600 + clock[1] * 60 + clock[2]
    distance = 0 if zone is None else _distance(zone.strip(_BLANKS), days, seconds)
    if distance is None:
        return None
    if is_wall:
        distance = 0
    micros = days * _DAY_US + (seconds - distance) * 1_000_000 + int((part or "").ljust(6, "0")[:6])
    return micros if -(2**63) <= micros < 2**63 else None


def _distance(zone: str, days: int, seconds: int, *, is_local: bool = True) -> int | None:
    """Return how many seconds a zone's clocks are ahead of UTC at a time, or None if there is no such zone."""
    if zone in _UTC:
        return 0
    if (match := _DISTANCE.fullmatch(zone)) is not None:
        hours = int(match[2] or match[3] or match[6])
        ahead = hours * 3600 + int(match[4] or match[7] or 0) * 60 + int(match[5] or match[8] or 0)
        return None if ahead > _FARTHEST else ahead if match[1] == "+" else -ahead
    if zone in _SHORT_DISTANCE:
        return _SHORT_DISTANCE[zone]
    known = _zone(_SHORT.get(zone, zone))
    if known is None:
        return None
    # Before and after the years that Python has, a zone is where it was in the first and the last of them.
    held = min(max(days, -719_162), 2_932_896)
    local = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=held, seconds=seconds)
    offset = (local.replace(tzinfo=known) if is_local else local.astimezone(known)).utcoffset()
    return None if offset is None else int(offset.total_seconds())


@lru_cache(maxsize=512)
def _zone(name: str) -> ZoneInfo | None:
    if not re.fullmatch(r"[A-Za-z][\w+/-]+", name):
        return None
    try:
        found = ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
    return found


def _days(year: int, month: int, day: int) -> int | None:
    """Count the days since 1970 up to a date, or None if there is no such date."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if not 1 <= month <= 12 or not 1 <= day <= lengths[month - 1]:
        return None
    before = year - 1  # whole years since the year 1, which may be less than none
    return before * 365 + before // 4 - before // 100 + before // 400 + sum(lengths[: month - 1]) + day - 719_163
