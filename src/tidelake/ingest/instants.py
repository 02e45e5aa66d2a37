"""Read times, compiled: RFC 3339 text, and numbers since 1970 whose unit shows in their size.

Text is ``2026-01-31T23:59:59.123456789+01:00``: a space or a small ``t`` may stand for the ``T``, the offset may be
``Z``, ``+01:00``, ``+0100`` or ``+01``. Without an offset it is UTC, and a date alone is its midnight. A leap second is
the second after it. Numbers are nanoseconds from 1e16, microseconds from 1e14, milliseconds from 1e11, else seconds,
above and below zero alike, with decimals as they are written. What is finer than a microsecond is floored. Times
outside the years 1 to 9999, which neither Python nor Spark can show, are not times. A number of at least nine digits
may also come as text. It does not guess other formats: see ``time_formats``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.model.times import MAX_US, MICROS_FROM, MILLIS_FROM, MIN_US, NANOS_FROM
from tidelake.runtime.compiling import HAS_COMPILER, allocating, is_ready, part
from tidelake.runtime.readiness import has_loops

MIN_EPOCH_DIGITS = 9  # of a number since 1970 in text: from 1973 on, and never a date of eight digits

NO_TIME = np.iinfo(np.int64).min
FEW_TEXTS = 512  # which take less time to read than the loops to load

_ORDINARY = re.compile(
    r"((?!0001|9999)[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:([T ][0-9]{2}:[0-9]{2}:[0-5][0-9](?:\.[0-9]{1,6})?)(?:(?<=\.[0-9]{6})[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)

_U = np.uint64
_DAYS_BEFORE_MONTH = np.array([0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334], dtype=np.int64)
_DAYS_OF_MONTH = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)


def times_of_texts(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Return the microseconds of each text, NO_TIME where it is none or null."""
    if is_few(texts, _all_texts) and (few := _few_texts(texts)) is not None:
        return few
    data, offsets = text_buffers(texts)
    return _masked(texts, _all_texts(data, offsets))


def times_of_decimals(texts: pa.Array) -> npt.NDArray[np.int64]:
    """Return the microseconds of each number in text, NO_TIME where it is not finite or null."""
    data, offsets = text_buffers(texts)
    sizes = np.abs(texts.cast(pa.float64()).fill_null(np.inf).to_numpy())
    return _masked(texts, _all_decimals(data, offsets, sizes))


def times_of_ints(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the microseconds of each whole number, NO_TIME where it is none."""
    return np.asarray(_all_ints(numbers), dtype=np.int64)


def is_few(texts: pa.Array, loop: Any) -> bool:
    """Whether these texts take less time the plain way than with this loop: they are few, or it cannot be compiled."""
    return not is_ready(loop) and (len(texts) <= FEW_TEXTS or not has_loops())


def _few_texts(texts: pa.Array) -> npt.NDArray[np.int64] | None:
    """Read a few ordinary times the plain way, before the loops are compiled; None if one is out of the ordinary."""
    times = np.full(len(texts), NO_TIME, dtype=np.int64)
    others = []
    for at, text in enumerate(texts.to_pylist()):
        if text is None:
            continue
        match = _ORDINARY.fullmatch(text)
        try:
            found = datetime.fromisoformat("".join(match.groups(""))) if match else None
        except ValueError:
            found = None
        if found is None:
            others.append(at)
        else:
            times[at] = ((found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    if others and HAS_COMPILER:
        return None
    if others:
        times[others] = _all_texts(*text_buffers(texts.take(pa.array(others))))
    return times


@part
def time_of_text(data: Any, at: Any, end: Any) -> Any:
    """Return the microseconds of a time in text, or NO_TIME."""
    size = end - at
    if size < MIN_EPOCH_DIGITS:
        return NO_TIME
    if size < 10 or data[_U(at + 4)] != 45 or data[_U(at + 7)] != 45:
        return _time_of_digits(data, at, end)
    year = _two_digits(data, at) * 100 + _two_digits(data, at + 2)
    month, day = _two_digits(data, at + 5), _two_digits(data, at + 8)
    if year < 1 or year > 9999 or month < 1 or month > 12 or day < 1:
        return NO_TIME
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _DAYS_OF_MONTH[month] and not (is_leap and month == 2 and day == 29):
        return NO_TIME
    past = year - 1
    days = past * 365 + past // 4 - past // 100 + past // 400 + _DAYS_BEFORE_MONTH[month] + day - 719_163
    if is_leap and month > 2:
        days += 1
    if size == 10:
        return days * 86_400_000_000
    between = data[_U(at + 10)]
    if size < 19 or (between | 32 != 116 and between != 32) or data[_U(at + 13)] != 58 or data[_U(at + 16)] != 58:
        return NO_TIME
    hour, minute, second = _two_digits(data, at + 11), _two_digits(data, at + 14), _two_digits(data, at + 17)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 60:
        return NO_TIME
    at += 19
    fraction = 0
    if at < end and data[_U(at)] == 46:
        at += 1
        begin, scale = at, 100_000
        while at < end and _U(data[_U(at)]) - _U(48) <= _U(9):
            fraction += (int(data[_U(at)]) - 48) * scale
            scale //= 10
            at += 1
        if at == begin:
            return NO_TIME
    offset = _offset_minutes(data, at, end)
    if offset == NO_TIME:
        return NO_TIME
    seconds = days * 86_400 + hour * 3600 + (minute - offset) * 60 + second
    return _in_range(seconds * 1_000_000 + fraction)


@part
def _time_of_digits(data: Any, at: Any, end: Any) -> Any:
    """Read a number since 1970 in text, as journald and many exports write it; a short one is more likely a date."""
    begin, size, point = at, 0.0, end
    while at < end:
        letter = data[_U(at)]
        if letter == 46 and point == end and at > begin:
            point = at
        elif _U(letter) - _U(48) > _U(9):
            return NO_TIME
        elif point == end:
            size = size * 10.0 + (int(letter) - 48)
        at += 1
    if point - begin < MIN_EPOCH_DIGITS or point + 1 == end:
        return NO_TIME
    return time_of_decimal(data, begin, end, size)


@part
def time_of_int(value: Any) -> Any:
    """Return the microseconds of a whole number since 1970, or NO_TIME."""
    size = -value if value < 0 else value
    if size < 0:  # the one number that has no opposite
        return NO_TIME
    if size >= NANOS_FROM:
        return _in_range(value // 1000)
    if size >= MICROS_FROM:
        return _in_range(value)
    return _in_range(value * 1000 if size >= MILLIS_FROM else value * 1_000_000)


@part
def time_of_decimal(data: Any, at: Any, end: Any, size: Any) -> Any:
    """Return the microseconds of a number with decimals or an exponent, as written; its size tells the unit."""
    power = 6
    if size >= NANOS_FROM:
        power = -3
    elif size >= MICROS_FROM:
        power = 0
    elif size >= MILLIS_FROM:
        power = 3
    negative = data[_U(at)] == 45
    if negative:
        at += 1
    value, is_past_point, is_exact = 0, False, True
    while at < end:
        letter = data[_U(at)]
        if letter | 32 == 101:
            break
        if letter == 46:
            is_past_point = True
        elif value < 10**17:
            value = value * 10 + int(letter) - 48
            power -= is_past_point
        else:  # beyond eighteen digits
            is_exact = is_exact and letter == 48
            power += not is_past_point
        at += 1
    power += _exponent(data, at + 1, end)
    while power > 0 and value != 0:
        if value > MAX_US:
            return NO_TIME
        value *= 10
        power -= 1
    while power < 0 and value != 0:
        is_exact = is_exact and value % 10 == 0
        value //= 10
        power += 1
    if negative:
        value = -value if is_exact else -value - 1
    return _in_range(value)


def text_buffers(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return the bytes and the offsets of a string array, of the one type that compiled loops take."""
    _, offsets, letters = texts.buffers()
    places = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
    data = np.frombuffer(letters, dtype=np.uint8) if letters else np.zeros(0, dtype=np.uint8)
    data.flags.writeable = places.flags.writeable = False  # one type for the compiled loops
    return data, places[texts.offset : texts.offset + len(texts) + 1]


def _masked(texts: pa.Array, times: Any) -> npt.NDArray[np.int64]:
    if texts.null_count:
        times[texts.is_null().to_numpy(zero_copy_only=False)] = NO_TIME
    return np.asarray(times, dtype=np.int64)


@allocating
def _all_texts(data: Any, offsets: Any) -> Any:
    times = np.empty(len(offsets) - 1, dtype=np.int64)
    for i in range(len(times)):
        times[i] = time_of_text(data, np.int64(offsets[i]), np.int64(offsets[i + 1]))
    return times


@allocating
def _all_decimals(data: Any, offsets: Any, sizes: Any) -> Any:
    times = np.empty(len(offsets) - 1, dtype=np.int64)
    for i in range(len(times)):
        times[i] = NO_TIME
        if sizes[i] < np.inf:  # neither infinite nor NaN
            times[i] = time_of_decimal(data, np.int64(offsets[i]), np.int64(offsets[i + 1]), sizes[i])
    return times


@allocating
def _all_ints(numbers: Any) -> Any:
    times = np.empty(len(numbers), dtype=np.int64)
    for i in range(len(times)):
        times[i] = time_of_int(numbers[i])
    return times


@part
def _two_digits(data: Any, at: Any) -> Any:
    tens, ones = _U(data[_U(at)]) - _U(48), _U(data[_U(at + 1)]) - _U(48)
    if tens > _U(9) or ones > _U(9):
        return np.int64(-10_000)
    return np.int64(tens * _U(10) + ones)


@part
def _offset_minutes(data: Any, at: Any, end: Any) -> Any:
    """Read what follows the seconds: minutes east of Greenwich, 0 where nothing follows."""
    left = end - at
    if left == 0 or (left == 1 and data[_U(at)] | 32 == 122):
        return 0
    sign = data[_U(at)]
    if (sign != 43 and sign != 45) or left < 3:
        return NO_TIME
    hours, minutes = _two_digits(data, at + 1), np.int64(0)
    if left == 6 and data[_U(at + 3)] == 58:
        minutes = _two_digits(data, at + 4)
    elif left == 5:
        minutes = _two_digits(data, at + 3)
    elif left != 3:
        return NO_TIME
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return NO_TIME
    offset = hours * 60 + minutes
    return -offset if sign == 45 else offset


@part
def _exponent(data: Any, at: Any, end: Any) -> Any:
    exponent, negative = 0, False
    while at < end:
        letter = data[_U(at)]
        if letter == 45:
            negative = True
        elif letter != 43:
            exponent = min(exponent * 10 + int(letter) - 48, 1 << 32)
        at += 1
    return -exponent if negative else exponent


@part
def _in_range(value: Any) -> Any:
    return value if MIN_US <= value <= MAX_US else NO_TIME
