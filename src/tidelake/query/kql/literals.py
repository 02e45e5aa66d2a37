"""Read KQL's literals: text with escapes, numbers, times and spans of time.

A span is a count of ticks of 100 nanoseconds, a time is a datetime in UTC. It does not know tokens' neighbours.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

TICKS_PER_SECOND = 10_000_000
TICKS_PER_DAY = 86_400 * TICKS_PER_SECOND
MAX_LONG = 2**63 - 1

_UNIT_TICKS = {
    "d": TICKS_PER_DAY, "h": 3600 * TICKS_PER_SECOND, "m": 60 * TICKS_PER_SECOND, "s": TICKS_PER_SECOND,
    "ms": TICKS_PER_SECOND // 1000, "micro": 10, "nano": 0.01, "tick": 1,
}  # fmt: skip
_UNITS = {
    "days": "d", "day": "d", "hours": "h", "hour": "h", "hrs": "h", "hr": "h", "minutes": "m", "minute": "m",
    "min": "m", "seconds": "s", "second": "s", "sec": "s", "milliseconds": "ms", "millisecond": "ms", "millis": "ms",
    "milli": "ms", "microseconds": "micro", "microsecond": "micro", "micros": "micro", "nanoseconds": "nano",
    "nanosecond": "nano", "nanos": "nano", "ticks": "tick",
}  # fmt: skip
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([a-z]+)")
_CLOCK = re.compile(r"(-)?(?:(\d{1,8})\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?")
_TIME = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ]\s*(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?\s*(Z|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-7]{1,3})|(.))", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_OTHER_TIMES = (
    "%m/%d/%Y", "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p", "%Y/%m/%d", "%Y/%m/%d %H:%M:%S", "%Y-%m", "%Y",
    "%m-%d-%Y", "%m-%d-%Y %H:%M:%S", "%H:%M %d %b %Y", "%H:%M:%S %d %b %Y",
    "%d %b %y %H:%M:%S", "%d %b %y %H:%M", "%d-%b-%y %H:%M:%S", "%d %b %Y %H:%M:%S", "%d %b %Y", "%b %d, %Y",
)  # fmt: skip
_AROUND = re.compile(r"^[A-Za-z]+,\s*|\s+(?:GMT|UTC)$")  # the day's name, and the zone that is ours
TYPE_NAMES = {
    "date": "datetime", "time": "timespan", "int64": "long", "uint64": "long", "ulong": "long", "int32": "int",
    "uint32": "int", "uint": "int", "int16": "int", "uint16": "int", "int8": "int", "uint8": "int", "double": "real",
    "float": "real", "uuid": "guid", "uniqueid": "guid", "boolean": "bool",
}  # fmt: skip


def text_of(token: str) -> str:
    """Return the text that a string token stands for."""
    token = token[1:] if token[0] in "hH" else token
    if token[0] == "@":
        return token[2:-1].replace(token[1] * 2, token[1])
    if token[:3] in ("```", "~~~"):
        return token[3:-3]
    return _ESCAPE.sub(_escaped, token[1:-1])


def number_of(token: str) -> int | float:
    """Return the number that a token stands for; ValueError if it is beyond 64 bits."""
    if token[:2] in ("0x", "0X"):
        value: int | float = int(token, 16)
    else:
        value = int(token) if token.isdecimal() and len(token) < 25 else float(token)
    if isinstance(value, int) and value > MAX_LONG:
        raise ValueError(f"{token} does not fit in 64 bits")
    return value


def span_of(token: str) -> int:
    """Return the ticks of ``1.5h`` and the like."""
    match = _SPAN.fullmatch("".join(token.split()))
    if match is None or (match[2] not in _UNITS and match[2] not in _UNIT_TICKS):
        raise ValueError(f"{token!r} is not a timespan")
    return round(float(match[1]) * _UNIT_TICKS[_UNITS.get(match[2], match[2])])


def parse_span(text: str) -> int:
    """Return the ticks of a timespan's text: ``1d``, ``-1h``, ``2.03:04:05.6``, or a number of days."""
    text = text.strip()
    if match := _CLOCK.fullmatch(text):
        sign, days, hours, minutes, seconds, fraction = match.groups()
        whole = int(days or 0) * 86400 + int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0)
        ticks = whole * TICKS_PER_SECOND + int((fraction or "0").ljust(7, "0")[:7])
        return -ticks if sign else ticks
    if re.fullmatch(r"-?\d{1,8}", text):
        return int(text) * TICKS_PER_DAY
    return -span_of(text[1:]) if text.startswith("-") else span_of(text)


def parse_time(text: str) -> datetime:
    """Return the time of a text; ValueError if it is not one. Without a zone it is UTC."""
    text = text.strip()
    if match := _TIME.fullmatch(text):
        year, month, day, hour, minute, second, fraction, zone = match.groups()
        micros = int((fraction or "0").ljust(6, "0")[:6])
        parts = (int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros)
        return datetime(*parts, tzinfo=UTC) - _offset(zone)
    bare = _AROUND.sub("", text)
    if bare != text and (match := _TIME.fullmatch(bare)):
        return parse_time(bare)
    for shape in ("%Y%m%d",) if re.fullmatch(r"\d{8}", bare) else _OTHER_TIMES:
        try:
            return datetime.strptime(bare, shape).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise ValueError(f"{text!r} is not a datetime")


def typed_of(token: str) -> tuple[str, Any]:
    """Return the type and value of ``long(1)`` and the like; a null is None."""
    name, inner = token[:-1].split("(", 1)
    kind, inner = TYPE_NAMES.get(name.strip(), name.strip()), inner.strip().strip("\"'").strip()
    if inner in ("null", ""):
        return kind, None
    match kind:
        case "datetime":
            return kind, parse_time(_dated(inner))
        case "timespan":
            return kind, parse_span(inner)
        case "bool":
            return kind, {"true": True, "false": False, "1": True, "0": False}[inner.lower()]
        case "int" | "long":
            return kind, int(inner, 16) if inner[:2].lower() == "0x" else int(inner)
        case "real" | "decimal":
            special = {"nan": "nan", "+inf": "inf", "-inf": "-inf", "inf": "inf"}
            return kind, float(special.get(inner.lower(), inner))
        case _:
            return kind, inner.lower()


def format_span(ticks: int) -> str:
    """Write ticks as ``d.hh:mm:ss.fffffff``, without the parts that are zero at either end."""
    sign, ticks = ("-", -ticks) if ticks < 0 else ("", ticks)
    days, rest = divmod(ticks, TICKS_PER_DAY)
    seconds, fraction = divmod(rest, TICKS_PER_SECOND)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{sign}{f'{days}.' if days else ''}{clock}{f'.{fraction:07}' if fraction else ''}"


def _dated(text: str) -> str:
    """Write a date's parts as they are in a text: spaces around dashes do not count, and commas may part them."""
    if re.fullmatch(r"\d{4}(\s*,\s*\d{1,2}){2,5}", text):
        date, clock = re.split(r"\s*,\s*", text)[:3], re.split(r"\s*,\s*", text)[3:]
        return "-".join(date) + (" " + ":".join([*clock, "0"][: max(len(clock), 2)]) if clock else "")
    return re.sub(r"^(\d{4})\s*-\s*(\d{1,2})\s*-\s*(\d{1,2})", r"\1-\2-\3", text)


def _escaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else "�"
    if match[4]:
        return chr(int(match[4], 8))
    # What no rule knows stays as it is: a pattern such as "\\w+" means what it does with "@" before it.
    return _PLAIN_ESCAPES.get(match[5]) or (match[5] if match[5] in "\\\"'`" else match[0])


def _offset(zone: str | None) -> timedelta:
    if not zone or zone in "zZ":
        return timedelta()
    digits = zone[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -offset if zone[0] == "-" else offset
