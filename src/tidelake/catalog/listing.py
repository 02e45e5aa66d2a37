"""List extents by what the database can judge itself: time, and the least and most value of each column.

A predicate becomes closed intervals that wanted rows lie in, one for each column it speaks of; an extent whose bounds
show that it has nothing there is left out. What cannot be told keeps the extent: a column without bounds, a bound of
another type, ``or``, ``not``, text search. It does not look into distinct values or filters; planning does that with
what is left.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import orjson
from sqlalchemy import BigInteger, ColumnElement, Select, Text, bindparam, exists, or_, select, text, true
from sqlalchemy.types import Double

from tidelake.catalog.driver import Row, among, for_each
from tidelake.catalog.tables import (
    LEAST_NS,
    MOST_NS,
    SPANS,
    extent_columns,
    extents,
    ordinal_of,
    span_of,
)
from tidelake.codec import dumps
from tidelake.predicate import And, Equals, InSet, Predicate, Range, TimeRange, time_ns
from tidelake.schema import Schema
from tidelake.snapshot import Extent

MAX_INTERVALS = 8  # compared inside the database; each costs every extent in time's range a look-up

Sort: TypeAlias = Literal["whole", "real", "text"]

_SORTS: dict[str, Sort] = {"int": "whole", "long": "whole", "timestamp": "whole", "real": "real", "string": "text"}
_TYPES: dict[Sort, Any] = {"whole": BigInteger, "real": Double, "text": Text}
_SCOPE = bindparam("scope_id", type_=BigInteger)
_SEQUENCE = bindparam("sequence", type_=BigInteger)
_FIRST, _LAST = bindparam("first_ns", type_=BigInteger), bindparam("last_ns", type_=BigInteger)

# The classes of time ranges, and where the last one that overlaps ends, from one parameter of JSON text.
_SPANS = {
    dialect: text(f"SELECT {each.format(0)} AS span, {each.format(1)} AS until_ns FROM {source}")
    .bindparams(bindparam("spans", type_=Text))
    .columns(span=BigInteger, until_ns=BigInteger)
    .subquery("spans")
    for dialect, each, source in (
        ("sqlite", "json_extract(value, '$[{}]')", "json_each(:spans)"),
        ("postgresql", "CAST(value ->> {} AS BIGINT)", "jsonb_array_elements(CAST(:spans AS JSONB))"),
    )
}

EXTENT_COLUMNS = (
    extents.c.ordinal,
    extents.c.id,
    extents.c.key,
    extents.c.format,
    extents.c.byte_size,
    extents.c.row_count,
    extents.c.block_count,
    extents.c.min_ts_ns,
    extents.c.max_ts_ns,
    extents.c.schema_version,
    extents.c.present_paths,
    extents.c.level,
    extents.c.coverage_key,
    extents.c.added_seq,
    extents.c.removed_seq,
)

select_stats = select(extent_columns.c.ordinal, extent_columns.c.name, extent_columns.c.body).where(
    extent_columns.c.scope_id == _SCOPE, among(extent_columns.c.ordinal, "ordinals")
)
select_some_stats = select_stats.where(among(extent_columns.c.name, "names"))


@dataclass(frozen=True, slots=True)
class Interval:
    """Where wanted values of a column lie, both ends included; None is unbounded."""

    column: str
    sort: Sort
    low: int | float | str | None
    high: int | float | str | None


def intervals_of(where: Predicate | None, schema: Schema) -> tuple[Interval, ...]:
    """Give intervals that every wanted row lies in."""
    if where is None:
        return ()
    found = [interval for part in _parts(where) if (interval := _interval(part, schema)) is not None]
    return tuple(found[:MAX_INTERVALS])


@lru_cache(maxsize=256)  # the text of a statement is kept with it
def select_extents(sorts: tuple[Sort, ...], *, live: bool, by_time: bool, dialect: str) -> Select[Any]:
    """Give the statement that lists those extents of a snapshot that are live at the head, or those that are not.

    It has one comparison for each sort of interval; see ``values_of`` for its values.
    """
    e = extents.c
    statement = select(*EXTENT_COLUMNS).where(e.scope_id == _SCOPE, e.added_seq <= _SEQUENCE)
    statement = statement.where(e.removed_seq.is_(None) if live else e.removed_seq > _SEQUENCE)
    if by_time:
        statement = statement.where(e.max_ts_ns >= _FIRST, e.min_ts_ns <= _LAST)
    if by_time and live:
        spans = _SPANS[dialect]
        statement = statement.select_from(for_each(spans, extents, true()))
        statement = statement.where(e.span == spans.c.span, e.max_ts_ns <= spans.c.until_ns)
    for at, sort in enumerate(sorts):
        statement = statement.where(~_lies_outside(sort, at))
    return statement


def values_of(intervals: Iterable[Interval], *, start_ns: int | None, end_ns: int | None) -> dict[str, Any]:
    """Give the values that ``select_extents`` compares with; a time range is ``[start_ns, end_ns)``."""
    first = LEAST_NS if start_ns is None else min(max(start_ns, LEAST_NS), MOST_NS)
    last = MOST_NS if end_ns is None else min(max(end_ns - 1, LEAST_NS), MOST_NS)
    spans = [[span, min(last + (1 << span), MOST_NS)] for span in range(SPANS)]
    values: dict[str, Any] = {"first_ns": first, "last_ns": last, "spans": orjson.dumps(spans).decode()}
    for at, interval in enumerate(intervals):
        values |= {f"column_{at}": interval.column, f"low_{at}": interval.low, f"high_{at}": interval.high}
    return values


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Order extents' rows by time, those without bounds first."""
    return sorted(rows, key=lambda row: (row[7], row[8], row[0]))


def extent_to_row(extent: Extent, *, scope_id: int, sequence: int, position: int) -> dict[str, Any]:
    """Give the values of an extent's row."""
    low = LEAST_NS if extent.min_ts_ns is None else extent.min_ts_ns
    high = MOST_NS if extent.max_ts_ns is None else extent.max_ts_ns
    return {
        "scope_id": scope_id,
        "ordinal": ordinal_of(sequence, position),
        "id": extent.id,
        "key": extent.key,
        "format": extent.format,
        "byte_size": extent.byte_size,
        "row_count": extent.row_count,
        "block_count": extent.block_count,
        "min_ts_ns": low,
        "max_ts_ns": high,
        "span": span_of(low, high),
        "schema_version": extent.schema_version,
        "level": extent.level,
        "added_seq": sequence,
        "coverage_key": extent.coverage_key,
        "present_paths": orjson.dumps(extent.present_paths).decode(),
    }


def stats_to_rows(extent: Extent, *, scope_id: int, sequence: int, position: int) -> Iterator[dict[str, Any]]:
    """Give the values of the rows of an extent's column statistics."""
    ordinal = ordinal_of(sequence, position)
    for name, known in extent.column_stats.items():
        row = {"scope_id": scope_id, "ordinal": ordinal, "name": name, "body": dumps(known)}
        row |= dict.fromkeys(_BOUND_COLUMNS)
        if isinstance(known, Mapping):
            for end, stored in (("least", "min"), ("most", "max")):
                bound = known.get(stored)
                if (sort := _sort_of(bound)) is not None:
                    row[f"{end}_{sort}"] = bound
        yield row


def row_to_extent(row: Row, column_stats: Mapping[str, Any]) -> Extent:
    """Read an extent's row."""
    return Extent(
        id=row[1],
        key=row[2],
        format=row[3],
        byte_size=row[4],
        row_count=row[5],
        block_count=row[6],
        min_ts_ns=None if row[7] == LEAST_NS else row[7],
        max_ts_ns=None if row[8] == MOST_NS else row[8],
        schema_version=row[9],
        column_stats=column_stats,
        present_paths=tuple(orjson.loads(row[10])) if row[10] != "[]" else (),
        level=row[11],
        coverage_key=row[12],
        added_seq=row[13],
        removed_seq=row[14],
    )


def stats_parameters(rows: Sequence[Row], columns: Collection[str] | None) -> dict[str, Any]:
    """Give the values of the statement that reads the statistics of listed extents."""
    values = {"ordinals": orjson.dumps([row[0] for row in rows]).decode()}
    return values if columns is None else values | {"names": orjson.dumps(list(columns)).decode()}


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
    """Give a bound as the column's type, no tighter than it was, or None if that cannot be."""
    if isinstance(value, datetime):
        value = time_ns(value)
    if sort == "real" and type(value) is int and abs(value) < 2**1000:
        nearest = float(value)
        return nearest if nearest == value else math.nextafter(nearest, outwards)
    return value if _sort_of(value) == sort else None


def _sort_of(value: Any) -> Sort | None:
    if type(value) is int and LEAST_NS <= value <= MOST_NS:
        return "whole"
    if type(value) is float and math.isfinite(value):
        return "real"
    if type(value) is str and "\x00" not in value:  # PostgreSQL has no text with a zero byte
        return "text"
    return None


_BOUND_COLUMNS = tuple(f"{end}_{sort}" for end in ("least", "most") for sort in ("whole", "real", "text"))


def _lies_outside(sort: Sort, at: int) -> ColumnElement[bool]:
    """Say that an extent's least value is above the wanted highest, or its most below the wanted lowest.

    A bound that is not there, on either side, makes no comparison true.
    """
    c = extent_columns.c
    low, high = (bindparam(f"{end}_{at}", type_=_TYPES[sort]) for end in ("low", "high"))
    return exists().where(
        c.scope_id == extents.c.scope_id,
        c.ordinal == extents.c.ordinal,
        c.name == bindparam(f"column_{at}", type_=Text),
        or_(c[f"least_{sort}"] > high, c[f"most_{sort}"] < low),
    )
