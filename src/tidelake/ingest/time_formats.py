"""Read times in the forms that people and programs write them, compiled: a format is a small program over bytes.

A format is text as ``strptime`` has it: ``%Y %y %m %d %b %H %I %M %S %p %z %s`` (the name of a day, ``%a``, is passed
over), and other characters stand for themselves. Beyond that:

- a blank stands for one or more, ``%_`` for blanks, a ``T`` or nothing but one of the two, ``%Z`` for an offset, ``Z``,
  ``UTC`` or ``GMT``, or nothing at all;
- a fraction after the seconds, behind a point or a comma, is read whether or not the format has ``%f``;
- ``%m``, ``%d``, ``%H`` and ``%I`` take one digit or two;
- where no offset is written the time is UTC; where no year is written it is the newest year that does not put the time
  more than a day after ``now``;
- two digits of a year are 1969 to 2068.

It does not choose a format: see ``time_detection``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.ingest.instants import (
    NO_TIME,
    is_few,
    text_buffers,
    time_of_decimal,
    times_of_decimals,
    times_of_texts,
)
from tidelake.runtime.compiling import allocating, part

RFC_3339 = "rfc3339"  # also numbers since 1970, in text; see ``instants``
YEARS_BACK = 8  # a 29 February without a year is at most so far back
DAY_US = 86_400_000_000

# What a program is made of: bytes that stand for themselves, and fields above them.
_BLANK, _YEAR, _YEAR2, _MONTH, _DAY, _MONTH_NAME, _DAY_NAME, _HOUR, _HOUR12, _MINUTE, _SECOND = range(256, 267)
_HALF, _OFFSET, _ZONE, _EPOCH, _BLANK_OR_T, _FRACTION = range(267, 273)

_FIELDS = {
    "Y": [_YEAR], "y": [_YEAR2], "m": [_MONTH], "d": [_DAY], "e": [_DAY], "b": [_MONTH_NAME], "B": [_MONTH_NAME],
    "h": [_MONTH_NAME], "a": [_DAY_NAME], "A": [_DAY_NAME], "H": [_HOUR], "I": [_HOUR12], "M": [_MINUTE],
    "S": [_SECOND], "p": [_HALF], "z": [_OFFSET], "Z": [_ZONE], "s": [_EPOCH], "_": [_BLANK_OR_T], "f": [_FRACTION],
    "%": [37], "T": [_HOUR, 58, _MINUTE, 58, _SECOND], "F": [_YEAR, 45, _MONTH, 45, _DAY],
    "D": [_MONTH, 47, _DAY, 47, _YEAR2], "R": [_HOUR, 58, _MINUTE],
}  # fmt: skip

_START, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_U = np.uint64
_MONTHS = np.frombuffer(b"janfebmaraprmayjunjulaugsepoctnovdec", dtype=np.uint8)
_DAYS_BEFORE_MONTH = np.array([0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334], dtype=np.int64)
_DAYS_OF_MONTH = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)


def times_in(texts: pa.Array, format: str, *, now_us: int) -> npt.NDArray[np.int64]:
    """Return the microseconds of each text in this format, NO_TIME where it is none or null."""
    if format == RFC_3339:
        return times_of_texts(texts)
    if is_few(texts, _read_all):
        return few_times(texts.to_pylist(), format, now_us=now_us)
    data, offsets = text_buffers(texts)
    times = np.asarray(_read_all(data, offsets, _program(format), now_us + DAY_US), dtype=np.int64)
    if texts.null_count:
        times[texts.is_null().to_numpy(zero_copy_only=False)] = NO_TIME
    return times


def few_times(texts: Sequence[str | None], format: str, *, now_us: int) -> npt.NDArray[np.int64]:
    """Read a few texts the plain way, while the loop is not compiled; what it does defines what the loop does."""
    pattern = _pattern(tuple(_program(format).tolist()))
    found = [pattern.fullmatch(text.strip(" \t\r\n")) if text is not None else None for text in texts]
    times = [NO_TIME if match is None else _time_of_match(match.groupdict(), now_us + DAY_US) for match in found]
    return np.array(times, dtype=np.int64)


def check_format(format: str) -> str:
    """Return a format that can be read, or raise."""
    _program(format)
    return format


@lru_cache(maxsize=256)
def _program(format: str) -> npt.NDArray[np.int64]:
    codes: list[int] = []
    raw = iter(format)
    for letter in raw:
        if letter == "%":
            field = next(raw, "")
            if field not in _FIELDS:
                known = " ".join(f"%{name}" for name in "YymdbHIMSpzsf")
                raise InvalidInputError(
                    f"unknown field %{field} in a time format", format=format, known=known, kind="bad_time_format"
                )
            codes += _FIELDS[field]
        elif letter.isspace():
            codes += [] if codes and codes[-1] == _BLANK else [_BLANK]
        else:
            codes += letter.encode()
    has = set(codes)
    if _EPOCH not in has and not (has & {_MONTH, _MONTH_NAME} and _DAY in has):
        raise InvalidInputError("a time format needs a month and a day, or %s", format=format, kind="bad_time_format")
    if _HOUR12 in has and _HALF not in has:
        raise InvalidInputError("%I needs %p in a time format", format=format, kind="bad_time_format")
    program = np.array(codes, dtype=np.int64)
    program.flags.writeable = False
    return program


def has_time_of_day(format: str) -> bool:
    """Whether a format says more than the day."""
    return format == RFC_3339 or bool(set(_program(format).tolist()) & {_HOUR, _HOUR12, _EPOCH})


def formats_checked(formats: Sequence[str]) -> tuple[str, ...]:
    """Return formats as a tuple, each one that can be read."""
    return tuple(check_format(format) for format in formats)


_PATTERNS = {
    _BLANK: r"[ \t]++", _YEAR: r"(?P<Y>[0-9]{4})", _YEAR2: r"(?P<y>[0-9]{2})", _MONTH: r"(?P<m>[0-9]{1,2}+)",
    _DAY: r"(?P<d>[0-9]{1,2}+)", _MONTH_NAME: r"(?P<b>[A-Za-z]{3,}+)\.?", _DAY_NAME: r"[A-Za-z]++",
    _HOUR: r"(?P<H>[0-9]{1,2}+)", _HOUR12: r"(?P<I>[0-9]{1,2}+)", _MINUTE: r"(?P<M>[0-9]{1,2}+)",
    _SECOND: r"(?P<S>[0-9]{1,2}+)(?:[.,](?P<f>[0-9]++))?", _HALF: r"(?P<p>[AaPp])\.?[Mm]?\.?",
    _OFFSET: r"(?P<z>[Zz]|(?i:utc|gmt)|[+-][0-9]{2}(?::?[0-9]{2})?)",
    _ZONE: r"(?: *(?P<z>[Zz]|(?i:utc|gmt)|[+-][0-9]{2}(?::?[0-9]{2})?))?", _EPOCH: r"(?P<s>-?[0-9]++(?:\.[0-9]++)?)",
    _BLANK_OR_T: r"(?:[Tt]|[ \t]++)", _FRACTION: r"(?P<f>[0-9]*+)",
}  # fmt: skip


def regex_of(format: str) -> str:
    """Return a regular expression, without groups, that finds texts of this format."""
    codes = _program(format).tolist()
    whole = "".join(_PATTERNS[code] if code >= 256 else re.escape(chr(code)) for code in codes)
    return re.sub(r"(?<=[+*}?])\+", "", re.sub(r"\(\?P<\w>", "(?:", whole))


@lru_cache(maxsize=256)
def _pattern(codes: tuple[int, ...]) -> re.Pattern[str]:
    whole = "".join(_PATTERNS[code] if code >= 256 else re.escape(chr(code)) for code in codes)
    for group in re.findall(r"\(\?P<(\w)>", whole):
        if (again := whole.find(f"(?P<{group}>", whole.find(f"(?P<{group}>") + 1)) >= 0:
            whole = whole[:again] + "(?:" + whole[again + 5 :]  # the first of two is the one that counts
    return re.compile(whole)


def _time_of_match(found: dict[str, str | None], latest_us: int) -> int:
    def number(name: str, default: int = 0) -> int:
        text = found.get(name)
        return default if text is None else int(text)

    if epoch := found.get("s"):
        return int(times_of_decimals(pa.array([epoch]))[0])
    month = number("m")
    if name := found.get("b"):
        month = "janfebmaraprmayjunjulaugsepoctnovdec".find(name[:3].lower())
        month = month // 3 + 1 if month >= 0 and month % 3 == 0 else 0
    hour, short = number("H"), number("y")
    if half := found.get("p"):
        hour = number("I", hour)
        if found.get("I") is not None and not 1 <= hour <= 12:
            return NO_TIME
        hour = hour % 12 + (12 if half in "Pp" else 0)
    years = [number("Y")] if found.get("Y") else [short + (1900 if short >= 69 else 2000)] if found.get("y") else []
    last = datetime.fromtimestamp(latest_us // 1_000_000, tz=UTC).year
    for year in years or range(last + 1, last - YEARS_BACK - 1, -1):
        seconds, zone = number("S"), found.get("z") or "Z"
        try:
            moment = datetime(year, month, number("d"), hour, number("M"), min(seconds, 59), tzinfo=UTC)
        except ValueError:
            continue
        if seconds > 60 or hour > 23:
            return NO_TIME
        made = (moment - _START) // _MICROSECOND + (seconds - min(seconds, 59)) * 1_000_000
        made += int((found.get("f") or "0")[:6].ljust(6, "0"))
        if zone[0] in "+-":
            digits = zone[1:].replace(":", "").ljust(4, "0")
            if int(digits[:2]) > 23:
                return NO_TIME
            minutes = int(digits[:2]) * 60 + int(digits[2:])
            made -= (-minutes if zone[0] == "-" else minutes) * 60_000_000
        if years or made <= latest_us:
            return made
    return NO_TIME


@allocating
def _read_all(data: Any, offsets: Any, program: Any, latest_us: Any) -> Any:
    times = np.empty(len(offsets) - 1, dtype=np.int64)
    for i in range(len(times)):
        times[i] = _read(data, np.int64(offsets[i]), np.int64(offsets[i + 1]), program, latest_us)
    return times


@part
def _read(data: Any, at: Any, end: Any, program: Any, latest_us: Any) -> Any:
    """Run a program over one text: its microseconds, or NO_TIME where it does not fit to the last character."""
    while end > at and data[_U(end - 1)] <= 32:
        end -= 1
    while at < end and data[_U(at)] <= 32:
        at += 1
    year, month, day, hour, minute, second = -1, 0, 0, 0, 0, 0
    fraction, offset, half, epoch = 0, 0, -1, NO_TIME
    for step in range(len(program)):
        code = program[step]
        if code < 256:
            if at >= end or np.int64(data[_U(at)]) != code:
                return NO_TIME
            at += 1
            continue
        if code in (_BLANK, _BLANK_OR_T):
            begin = at
            if code == _BLANK_OR_T and at < end and data[_U(at)] | 32 == 116:
                at += 1
                continue
            while at < end and (data[_U(at)] == 32 or data[_U(at)] == 9):
                at += 1
            if at == begin:
                return NO_TIME
        elif code == _YEAR:
            year, next_at = _digits(data, at, end, 4)
            if next_at != at + 4 or year < 1:
                return NO_TIME
            at = next_at
        elif code == _YEAR2:
            year, next_at = _digits(data, at, end, 2)
            if next_at != at + 2:
                return NO_TIME
            year += 1900 if year >= 69 else 2000
            at = next_at
        elif code == _MONTH_NAME:
            month = _month_of(data, at, end)
            if month == 0:
                return NO_TIME
            while at < end and _is_letter(data[_U(at)]):
                at += 1
            if at < end and data[_U(at)] == 46:  # some write a point after it
                at += 1
        elif code == _DAY_NAME:
            begin = at
            while at < end and _is_letter(data[_U(at)]):
                at += 1
            if at == begin:
                return NO_TIME
        elif code == _HALF:
            if at >= end:
                return NO_TIME
            letter = data[_U(at)] | 32
            if letter != 97 and letter != 112:
                return NO_TIME
            half = 12 if letter == 112 else 0
            at += 1
            if at < end and data[_U(at)] == 46:
                at += 1
            if at < end and data[_U(at)] | 32 == 109:
                at += 1
            if at < end and data[_U(at)] == 46:
                at += 1
        elif code in (_OFFSET, _ZONE):
            if code == _ZONE:
                while at < end and data[_U(at)] == 32 and at + 1 < end and not _is_digit(data[_U(at + 1)]):
                    at += 1
                if at == end or data[_U(at)] == 32:
                    continue
            offset, next_at = _zone(data, at, end)
            if next_at == at:
                if code == _OFFSET:
                    return NO_TIME
                offset = 0
            at = next_at
        elif code == _EPOCH:
            begin = at
            if at < end and data[_U(at)] == 45:
                at += 1
            size = 0.0
            while at < end and _is_digit(data[_U(at)]):
                size = size * 10.0 + (int(data[_U(at)]) - 48)
                at += 1
            if size == 0.0 and at == begin:
                return NO_TIME
            if at + 1 < end and data[_U(at)] == 46 and _is_digit(data[_U(at + 1)]):
                at += 1
                while at < end and _is_digit(data[_U(at)]):
                    at += 1
            epoch = time_of_decimal(data, begin, at, size)
            if epoch == NO_TIME:
                return NO_TIME
        elif code == _FRACTION:
            begin, scale = at, 100_000
            while at < end and _is_digit(data[_U(at)]):
                fraction += (int(data[_U(at)]) - 48) * scale
                scale //= 10
                at += 1
        else:
            value, next_at = _digits(data, at, end, 2)
            if next_at == at:
                return NO_TIME
            at = next_at
            if code == _MONTH:
                month = value
            elif code == _DAY:
                day = value
            elif code in (_HOUR, _HOUR12):
                hour = value
                if code == _HOUR12 and (hour < 1 or hour > 12):
                    return NO_TIME
            elif code == _MINUTE:
                minute = value
            else:
                second = value
                is_mark = at + 1 < end and (data[_U(at)] == 46 or data[_U(at)] == 44) and _is_digit(data[_U(at + 1)])
                follows = step + 1 < len(program) and program[step + 1] == np.int64(data[_U(at)]) if at < end else False
                if is_mark and not follows:
                    at += 1
                    scale = 100_000
                    while at < end and _is_digit(data[_U(at)]):
                        fraction += (int(data[_U(at)]) - 48) * scale
                        scale //= 10
                        at += 1
    if at != end:
        return NO_TIME
    if epoch != NO_TIME:
        return epoch
    if half >= 0:
        hour = hour % 12 + half
    if month < 1 or month > 12 or day < 1 or hour > 23 or minute > 59 or second > 60:
        return NO_TIME
    rest = ((hour * 60 + minute - offset) * 60 + second) * 1_000_000 + fraction
    if year >= 0:
        return NO_TIME if not _is_day(year, month, day) else _day_us(year, month, day) + rest
    newest = 1970 + latest_us // (366 * DAY_US) + 1  # never before the year of ``latest_us``, and soon at it
    newest += (latest_us - _day_us(newest, 1, 1)) // (366 * DAY_US) + 1
    for back in range(YEARS_BACK + 3):
        if _is_day(newest - back, month, day):
            found = _day_us(newest - back, month, day) + rest
            if found <= latest_us:
                return found
    return NO_TIME


@part
def _digits(data: Any, at: Any, end: Any, most: Any) -> Any:
    value, stop = 0, min(end, at + most)
    while at < stop and _is_digit(data[_U(at)]):
        value = value * 10 + int(data[_U(at)]) - 48
        at += 1
    return value, at


@part
def _is_digit(letter: Any) -> Any:
    return _U(letter) - _U(48) <= _U(9)


@part
def _is_letter(letter: Any) -> Any:
    return _U(letter | 32) - _U(97) <= _U(25)


@part
def _month_of(data: Any, at: Any, end: Any) -> Any:
    if at + 3 > end:
        return 0
    for month in range(12):
        if (
            data[_U(at)] | 32 == _MONTHS[month * 3]
            and data[_U(at + 1)] | 32 == _MONTHS[month * 3 + 1]
            and data[_U(at + 2)] | 32 == _MONTHS[month * 3 + 2]
        ):
            return month + 1
    return 0


@part
def _zone(data: Any, at: Any, end: Any) -> Any:
    """Read an offset, ``Z``, ``UTC`` or ``GMT``: (minutes east, place after it), or the same place."""
    if at == end:
        return 0, at
    letter = data[_U(at)]
    if letter | 32 == 122:
        return 0, at + 1
    if at + 3 <= end:
        a, b, c = data[_U(at)] | 32, data[_U(at + 1)] | 32, data[_U(at + 2)] | 32
        if (a == 117 and b == 116 and c == 99) or (a == 103 and b == 109 and c == 116):
            return 0, at + 3
    if letter != 43 and letter != 45:
        return 0, at
    hours, next_at = _digits(data, at + 1, end, 2)
    if next_at != at + 3 or hours > 23:
        return 0, at
    begin = next_at + 1 if next_at < end and data[_U(next_at)] == 58 else next_at
    minutes, after = _digits(data, begin, end, 2)
    if after == begin + 2:
        next_at = after
    elif after != begin:
        return 0, at
    total = hours * 60 + minutes
    return (-total if letter == 45 else total), next_at


@part
def _is_day(year: Any, month: Any, day: Any) -> Any:
    if year < 1 or year > 9999:
        return False
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return day <= _DAYS_OF_MONTH[month] or (is_leap and month == 2 and day == 29)


@part
def _day_us(year: Any, month: Any, day: Any) -> Any:
    past = year - 1
    days = past * 365 + past // 4 - past // 100 + past // 400 + _DAYS_BEFORE_MONTH[month] + day - 719_163
    if month > 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        days += 1
    return days * DAY_US
