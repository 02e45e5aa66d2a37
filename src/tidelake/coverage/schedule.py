"""Define when data is expected, so that a weekend is not a gap.

A schedule is text: weekdays, hours, a time zone, and days without any; or the rows of a calendar table::

    mon-fri 09:30-16:00 America/New_York
    mon-fri 09:30-16:00, sat 10:00-12:00 Europe/Berlin except 2026-12-25 2027-01-01
    mon-sun 22:00-06:00 UTC                      hours past midnight belong to the day they begin on

Hours are wall-clock hours of the zone, so they follow its summer time. What is expected is a list of half-open
stretches of microseconds, sorted and apart. It does not know buckets or entities, and takes no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa

from tidelake.coverage.buckets import Bucket, Longs
from tidelake.errors import InvalidInputError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MAX_DAYS = 200_000  # of a range a schedule is asked for: five hundred years

Stretches: TypeAlias = tuple[Longs, Longs]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PART = re.compile(r"([a-z]{3})(?:-([a-z]{3}))?(?:\s+(\d\d):(\d\d)-(\d\d):(\d\d))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hours:
    """Minutes of a weekday, from one to another; an end that is not after the beginning is on the next day."""

    weekday: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Weekly hours in a time zone, without some days."""

    hours: tuple[Hours, ...]
    zone: str = "UTC"
    closed: frozenset[date] = frozenset()

    def expected(self, low_us: int, high_us: int) -> Stretches:
        """Return the stretches of ``[low_us, high_us)`` in which data is expected."""
        zone = ZoneInfo(self.zone)
        try:
            day = (_EPOCH + timedelta(microseconds=low_us)).astimezone(zone).date() - timedelta(days=1)
            last = (_EPOCH + timedelta(microseconds=high_us)).astimezone(zone).date()
        except OverflowError:
            raise InvalidInputError("a schedule needs a range within the calendar", kind="bad_range") from None
        if (last - day).days > MAX_DAYS:
            raise InvalidInputError("a schedule's range is too long", days=(last - day).days, limit=MAX_DAYS)
        found = []
        while day <= last:
            if day not in self.closed:
                found += [_stretch(day, hours, zone) for hours in self.hours if hours.weekday == day.weekday()]
            day += timedelta(days=1)
        return clipped(found, low_us, high_us)


@dataclass(frozen=True, slots=True)
class Calendar:
    """Stretches of time that somebody lists: the rows of a calendar table."""

    first: tuple[int, ...]
    end: tuple[int, ...]

    def expected(self, low_us: int, high_us: int) -> Stretches:
        """Return the stretches of ``[low_us, high_us)`` in which data is expected."""
        return clipped(list(zip(self.first, self.end, strict=True)), low_us, high_us)


def parse_schedule(source: Any) -> Schedule | Calendar:
    """Read a schedule: its text, or anything Arrow with timestamp columns ``start`` and ``end``."""
    if isinstance(source, Schedule | Calendar):
        return source
    if isinstance(source, str):
        return _parse_text(source)
    if isinstance(source, pa.Table | pa.RecordBatch | pa.RecordBatchReader) or hasattr(source, "__arrow_c_stream__"):
        return _parse_table(source if isinstance(source, pa.Table) else pa.table(source))
    raise InvalidInputError("a schedule is text or a table with start and end", found=type(source).__name__)


def check_zone(name: str) -> str:
    """Return the name of a time zone if there is such a zone; InvalidInputError if not."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInputError(f"{name!r} is not a time zone such as Europe/Berlin", kind="bad_zone") from None
    return name


def bucketed(stretches: Stretches, bucket: Bucket) -> Stretches:
    """Return the buckets, first and last, that stretches of time touch; sorted, apart and not touching."""
    first, last = bucket.numbers(stretches[0]), bucket.numbers(stretches[1] - 1)
    if not len(first):
        return first, last
    begins = np.ones(len(first), dtype=bool)
    begins[1:] = first[1:] > last[:-1] + 1
    at = np.flatnonzero(begins)
    return first[at], last[np.append(at[1:], len(first)) - 1]


def clipped(stretches: Iterable[tuple[int, int]], low_us: int, high_us: int) -> Stretches:
    """Return the parts of stretches between two times, sorted and joined."""
    pairs = sorted((max(low, low_us), min(high, high_us)) for low, high in stretches)
    first: list[int] = []
    end: list[int] = []
    for low, high in pairs:
        if low >= high:
            continue
        if end and low <= end[-1]:
            end[-1] = max(end[-1], high)
        else:
            first.append(low)
            end.append(high)
    return np.array(first, dtype=np.int64), np.array(end, dtype=np.int64)


def _parse_text(text: str) -> Schedule:
    body, _, without = text.strip().partition(" except ")
    body, zone = body.strip(), "UTC"
    if body.rpartition(" ")[2][:1].isupper():
        body, _, zone = body.rpartition(" ")
    hours = [each for part in body.lower().split(",") for each in _parse_part(text, part.strip())]
    try:
        closed = frozenset(date.fromisoformat(day) for day in without.replace(",", " ").split())
    except ValueError as error:
        raise _wrong(text, f"a day without data is written 2026-12-25: {error}") from None
    return Schedule(tuple(hours), check_zone(zone), closed)


def _parse_part(text: str, part: str) -> Iterable[Hours]:
    found = _PART.fullmatch(part)
    if not found:
        raise _wrong(text, f"cannot read {part[:40]!r}")
    first, last, *clock = found.groups()
    if first not in DAYS or (last or first) not in DAYS:
        raise _wrong(text, f"days are {', '.join(DAYS)}")
    begin, end = 0, 24 * 60
    if clock[0] is not None:
        begin, end = (int(clock[0]) * 60 + int(clock[1])), (int(clock[2]) * 60 + int(clock[3]))
        if begin >= 24 * 60 or end > 24 * 60 or int(clock[1]) > 59 or int(clock[3]) > 59:
            raise _wrong(text, "hours lie between 00:00 and 24:00")
    at, count = DAYS.index(first), (DAYS.index(last or first) - DAYS.index(first)) % 7 + 1
    return [Hours((at + step) % 7, begin, end) for step in range(count)]


def _parse_table(table: pa.Table) -> Calendar:
    columns = []
    for name in ("start", "end"):
        if name not in table.column_names or not pa.types.is_timestamp(table.schema.field(name).type):
            raise InvalidInputError(
                "a calendar needs timestamp columns start and end", missing=name, kind="bad_calendar"
            )
        column = table.column(name)
        if column.null_count:
            raise InvalidInputError("a calendar's row has no time", column=name, kind="bad_calendar")
        unit = pa.timestamp("us", column.type.tz)
        columns.append(tuple(column.cast(unit, safe=False).cast(pa.int64()).to_pylist()))
    if any(low >= high for low, high in zip(*columns, strict=True)):
        raise InvalidInputError("a calendar's row ends before it begins", kind="bad_calendar")
    return Calendar(columns[0], columns[1])


def _stretch(day: date, hours: Hours, zone: ZoneInfo) -> tuple[int, int]:
    later = 0 if hours.end > hours.begin else 24 * 60
    return _at(day, hours.begin, zone), _at(day, hours.end + later, zone)


def _at(day: date, minutes: int, zone: ZoneInfo) -> int:
    wall = datetime.combine(day + timedelta(days=minutes // 1440), time(), zone) + timedelta(minutes=minutes % 1440)
    return (wall.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


def _wrong(text: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{text[:60]!r} is not a schedule such as 'mon-fri 09:30-16:00 Europe/Berlin': {reason}", kind="bad_schedule"
    )
