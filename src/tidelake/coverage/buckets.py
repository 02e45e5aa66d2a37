"""Cut time, or whole numbers, into buckets.

A bucket is a half-open stretch of the index, all of one width, counted from 0 (1970 UTC for times) in both directions:
bucket ``n`` is ``[n * width, (n + 1) * width)``. Numbers of buckets are signed; in a bitmap they lie as
``n + 2**63``, so that unsigned ids have the same order. Times are microseconds::

    1m  15 min  90 seconds  1d  2 weeks  250ms  10us       a time index
    100                                                    an index of whole numbers

It takes no clock, and does not know entities.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidelake.errors import InvalidInputError, InvalidRangeError
from tidelake.model.times import parse_time_ns, time_text

MAX_COUNT = 2**32 - 1  # of units in a bucket
LEAST, MOST = -(2**63) + 1, 2**63 - 2  # numbers of buckets; the ends stay free for arithmetic on them

Longs = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint64]

_UNITS_US = {
    **dict.fromkeys(("us",), 1),
    **dict.fromkeys(("ms",), 1_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000_000),
}
_BUCKET = re.compile(r"([0-9]*)\s*(.*)", re.ASCII | re.DOTALL)
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The width of a bucket, in microseconds or in whole numbers, and how it was written."""

    width: int
    text: str
    is_time: bool = True

    def number(self, value: int) -> int:
        """Return the bucket that a value is in."""
        return value // self.width

    def numbers(self, values: Longs) -> Longs:
        """Return the buckets that values are in."""
        return np.floor_divide(values, self.width)

    def start(self, number: int) -> int:
        """Return the first value of a bucket, or the least that 64 bits hold."""
        return min(max(number * self.width, -(2**63)), 2**63 - 1)

    def starts(self, numbers: Longs) -> Longs:
        """Return the first values of buckets, those that 64 bits hold."""
        edge = (2**63 - 1) // self.width
        return np.where(
            numbers > edge, 2**63 - 1, np.where(numbers < -edge, -(2**63), np.clip(numbers, -edge, edge) * self.width)
        )

    def shown(self, value: int) -> str:
        """Return a value of the index for people: RFC 3339, or the number."""
        return time_text(value * 1000) if self.is_time else f"{value}"

    def value_of(self, value: Any) -> int:
        """Read a value of the index as a person gives it: a time, or a whole number."""
        if self.is_time:
            return parse_time_ns(value) // 1000
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInputError(f"{value!r} is not a whole number", kind="bad_value")
        return value

    def span(self, start: Any, end: Any) -> tuple[int, int]:
        """Return the buckets that ``[start, end)`` touches, first and last; InvalidRangeError if it is empty."""
        low, high = self.value_of(start), self._end_of(end)
        if low >= high:
            raise InvalidRangeError("the range's start is not before its end", start=start, end=end)
        return max(self.number(low), LEAST), min(self.number(high - 1), MOST)

    def count_of(self, length: str | int) -> int:
        """Return a length, a duration or a number of buckets, as buckets; a part of one counts as one."""
        if isinstance(length, bool) or (isinstance(length, int) and length < 1):
            raise InvalidInputError("a length is at least one bucket", length=length, kind="bad_length")
        if isinstance(length, int):
            return length
        if not self.is_time:
            raise InvalidInputError("a length of an integer index is a number of buckets", length=length)
        return -(-parse_bucket(length).width // self.width)

    def _end_of(self, value: Any) -> int:
        """Round the end of a range up, so that nothing before it is left out."""
        return -(-parse_time_ns(value) // 1000) if self.is_time else self.value_of(value)


def parse_bucket(text: str | int) -> Bucket:
    """Read a bucket such as ``1m`` or ``15 minutes``, or a whole number for an integer index."""
    if isinstance(text, int) and not isinstance(text, bool):
        if not 0 < text <= 2**62:
            raise _wrong(text, "a bucket must be more than zero, and at most 2^62")
        return Bucket(text, str(text), is_time=False)
    if not isinstance(text, str):
        raise _wrong(text, "it is neither text nor a whole number")
    digits, unit = _parts(text)
    count = int(digits)
    if not count:
        raise _wrong(text, "a bucket must be more than zero")
    if count > MAX_COUNT:
        raise _wrong(text, f"the number is too large, at most {MAX_COUNT}")
    return Bucket(count * _UNITS_US[unit], text.strip())


def to_ids(numbers: Longs) -> Ids:
    """Return numbers of buckets as bitmaps hold them."""
    return numbers.view(np.uint64) ^ _SIGN


def from_ids(ids: Ids) -> Longs:
    """Return bitmaps' ids as numbers of buckets."""
    return (ids ^ _SIGN).view(np.int64)


def _parts(text: str) -> tuple[str, str]:
    bare = text.strip().lower()
    found = _BUCKET.fullmatch(bare)
    if not bare or not found:
        raise _wrong(text, "it is empty")
    digits, unit = found.groups()
    if not digits:
        raise _wrong(text, "the number is missing, or is not a whole one above zero")
    if not unit:
        raise _wrong(text, "the unit is missing")
    if unit not in _UNITS_US:
        raise _wrong(text, f"unknown unit {unit[:20]!r}: us, ms, s, m, h, d or w")
    return digits, unit


def _wrong(text: object, reason: str) -> InvalidInputError:
    return InvalidInputError(f"{str(text)[:40]!r} is not a bucket such as 1m, 15 min, 1d: {reason}", kind="bad_bucket")
