"""Where wanted values lie, as a catalog can compare them: an interval of whole numbers, reals or texts for a column.

It does not read extents: each catalog compares the intervals with the bounds it keeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from tidelake.model.predicate import And, Equals, InSet, Nanoseconds, Predicate, Range, TimeRange, time_ns
from tidelake.model.schema import Schema

MAX_INTERVALS = 8  # compared inside the database; each costs every extent in time's range a look-up

Sort: TypeAlias = Literal["whole", "real", "text"]

_SORTS: dict[str, Sort] = {"int": "whole", "long": "whole", "timestamp": "whole", "real": "real", "string": "text"}


@dataclass(frozen=True, slots=True)
class Interval:
    """Where wanted values of a column lie, both ends included; None is unbounded."""

    column: str
    sort: Sort
    low: int | float | str | None
    high: int | float | str | None


def intervals_of(where: Predicate | None, schema: Schema) -> tuple[Interval, ...]:
    """Return intervals that every wanted row lies in."""
    if where is None:
        return ()
    found = [interval for part in _parts(where) if (interval := _interval(part, schema)) is not None]
    return tuple(found[:MAX_INTERVALS])


def _parts(where: Predicate) -> Iterator[Predicate]:
    if isinstance(where, And):
        for part in where.parts:
            yield from _parts(part)
    else:
        yield where


def _interval(part: Predicate, schema: Schema) -> Interval | None:
    low: Any
    high: Any
    match part:
        case Equals(column, value):
            low = high = value
        case InSet(column, values) if len({type(value) for value in values}) == 1 and all(v == v for v in values):
            ordered: list[Any] = list(values)
            low, high = min(ordered), max(ordered)
        case Range(column, low, high):
            pass
        case TimeRange(column, low, end_ns):
            high = None if end_ns is None else end_ns - 1
        case _:
            return None
    sort = _SORTS.get(schema[column].type.kind) if column in schema else None
    if sort is None:
        return None
    least, most = _fitted(low, sort, outwards=-math.inf), _fitted(high, sort, outwards=math.inf)
    return None if least is None and most is None else Interval(column, sort, least, most)


def _fitted(value: Any, sort: Sort, *, outwards: float) -> int | float | str | None:
    """Return a bound as the column's type, no tighter than it was, or None if that cannot be."""
    if isinstance(value, datetime | Nanoseconds):
        value = time_ns(value) if isinstance(value, datetime) else int(value)
    if sort == "real" and type(value) is int and abs(value) < 2**1000:
        nearest = float(value)
        return nearest if nearest == value else math.nextafter(nearest, outwards)
    return value if sort_of(value) == sort else None


def sort_of(value: Any) -> Sort | None:
    if type(value) is int and -(2**63) <= value < 2**63:
        return "whole"
    if type(value) is float and math.isfinite(value):
        return "real"
    if type(value) is str and "\x00" not in value:  # PostgreSQL has no text with a zero byte
        return "text"
    return None
