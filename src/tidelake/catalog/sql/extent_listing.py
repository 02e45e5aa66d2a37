"""List extents by what the database can judge itself: time, and the least and most value of each column.

A predicate becomes closed intervals that wanted rows lie in, one for each column it speaks of; an extent whose bounds
show that it has nothing there is left out. What cannot be told keeps the extent: a column without bounds, a bound of
another type, ``or``, ``not``, text search. It does not look into distinct values or filters; planning does that with
what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from tidelake.catalog.protocol import Interval, Sort, sort_of
from tidelake.catalog.sql.checksums import check_row, checksum_of, decoding, if_known
from tidelake.catalog.sql.driver import Row
from tidelake.errors import InvalidInputError
from tidelake.model.codec import dumps
from tidelake.model.snapshot import Extent

MIN_NS, MAX_NS = -(2**63), 2**63 - 1  # stand for an unknown bound
SPANS = 65  # classes of time ranges, from a single time to all of it
MAX_ADDED = 1 << 20  # extents or hot batches in one snapshot; leaves 2^43 snapshots to a scope

# The classes of time ranges, and where the last one that overlaps ends, from one parameter of JSON text.
_SPANS = {
    "sqlite": "SELECT json_extract(value, '$[0]') AS span, json_extract(value, '$[1]') AS until_ns"
    " FROM json_each(:spans)",
    "postgresql": "SELECT CAST(value ->> 0 AS BIGINT) AS span, CAST(value ->> 1 AS BIGINT) AS until_ns"
    " FROM jsonb_array_elements(CAST(:spans AS JSONB))",
}

EXTENT_COLUMNS = """
    e.ordinal, e.id, e."key", e.format, e.byte_size, e.row_count, e.block_count, e.min_ts_ns, e.max_ts_ns,
    e.schema_version, e.present_paths, e.level, e.coverage_key, e.added_seq, e.removed_seq,
    e.checksum, e.first_seq, e.unpacked_bytes"""  # of extents AS e

select_stats = """
    SELECT c.ordinal, c.name, c.body, c.checksum FROM extent_columns AS c
    WHERE c.scope_id = :scope_id AND c.ordinal AMONG :ordinals AS BIGINT"""
select_some_stats = select_stats + " AND c.name AMONG :names AS TEXT"


def ordinal_of(sequence: int, position: int) -> int:
    """Number what a snapshot adds, so that numbers rise with sequences and are known before a row is written."""
    if position >= MAX_ADDED:
        raise InvalidInputError("too many extents in one snapshot", limit=MAX_ADDED)
    return sequence * MAX_ADDED + position


def span_of(min_ts_ns: int, max_ts_ns: int) -> int:
    """Class a time range by the bits of its length, so that an index finds what overlaps a range.

    Ranges of class ``c`` are shorter than ``2**c``; so those that overlap ``[first, last]`` end between ``first`` and
    ``last + 2**c``, and at least every second one that ends there does overlap.
    """
    return (max_ts_ns - min_ts_ns).bit_length()


def select_extents(sorts: Sequence[Sort], *, live: bool, by_time: bool, dialect: str) -> str:
    """Return the statement that lists those extents of a snapshot that are live at the head, or those that are not.

    It has one comparison for each sort of interval; see ``values_of`` for its values.
    """
    source = "extents AS e"
    tests = ["e.scope_id = :scope_id", "e.added_seq <= :sequence"]
    tests.append("e.removed_seq IS NULL" if live else "e.removed_seq > :sequence")
    if by_time:
        tests += ["e.max_ts_ns >= :first_ns", "e.min_ts_ns <= :last_ns"]
    if by_time and live:
        # SQLite keeps to the order written in a CROSS JOIN, and would else scan the larger side.
        source = f"({_SPANS[dialect]}) AS spans CROSS JOIN {source}"
        tests += ["e.span = spans.span", "e.max_ts_ns <= spans.until_ns"]
    tests += [f"NOT EXISTS ({_lies_outside(sort, at)})" for at, sort in enumerate(sorts)]
    return f"SELECT {EXTENT_COLUMNS} FROM {source} WHERE {' AND '.join(tests)}"


def values_of(intervals: Iterable[Interval], *, start_ns: int | None, end_ns: int | None) -> dict[str, Any]:
    """Return the values that ``select_extents`` compares with; a time range is ``[start_ns, end_ns)``."""
    first = MIN_NS if start_ns is None else min(max(start_ns, MIN_NS), MAX_NS)
    last = MAX_NS if end_ns is None else min(max(end_ns - 1, MIN_NS), MAX_NS)
    spans = [[span, min(last + (1 << span), MAX_NS)] for span in range(SPANS)]
    values: dict[str, Any] = {"first_ns": first, "last_ns": last, "spans": orjson.dumps(spans).decode()}
    for at, interval in enumerate(intervals):
        values |= {f"column_{at}": interval.column, f"low_{at}": interval.low, f"high_{at}": interval.high}
    return values


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Order extents' rows by time, those without bounds first."""
    return sorted(rows, key=lambda row: (row[7], row[8], row[0]))


def extent_to_row(extent: Extent, *, scope_id: int, sequence: int, position: int) -> dict[str, Any]:
    """Return the values of an extent's row."""
    low = MIN_NS if extent.min_ts_ns is None else extent.min_ts_ns
    high = MAX_NS if extent.max_ts_ns is None else extent.max_ts_ns
    row = {
        "ordinal": ordinal_of(sequence, position),
        "id": extent.id,
        "key": extent.key,
        "format": extent.format,
        "byte_size": extent.byte_size,
        "row_count": extent.row_count,
        "block_count": extent.block_count,
        "min_ts_ns": low,
        "max_ts_ns": high,
        "schema_version": extent.schema_version,
        "present_paths": orjson.dumps(extent.present_paths).decode(),
        "level": extent.level,
        "coverage_key": extent.coverage_key,
        "added_seq": sequence,
    }
    first = extent.first_seq
    checksum = checksum_of("an extent", scope_id, *row.values(), *if_known(first))
    # The second is not under the checksum: older programs do not know it, and no answer depends on it.
    row |= {"first_seq": first, "unpacked_bytes": extent.unpacked_bytes}
    return {"scope_id": scope_id, "span": span_of(low, high), "checksum": checksum, **row}


def stats_to_rows(extent: Extent, *, scope_id: int, sequence: int, position: int) -> Iterator[dict[str, Any]]:
    """Return the values of the rows of an extent's column statistics."""
    ordinal = ordinal_of(sequence, position)
    for name, known in extent.column_stats.items():
        row = {"scope_id": scope_id, "ordinal": ordinal, "name": name, "body": dumps(known)}
        row |= dict.fromkeys(_BOUND_COLUMNS)
        if isinstance(known, Mapping):
            for end, stored in (("least", "min"), ("most", "max")):
                bound = known.get(stored)
                if (sort := sort_of(bound)) is not None:
                    row[f"{end}_{sort}"] = 0.0 if bound == 0.0 and sort == "real" else bound  # SQLite keeps no -0.0
        row["checksum"] = checksum_of("statistics", scope_id, ordinal, name, row["body"])
        bounds = [row[each] for each in _BOUND_COLUMNS]
        row["bounds_checksum"] = checksum_of("bounds", scope_id, ordinal, name, *bounds)
        yield row


def check_bounds(scope_id: int, rows: Iterable[Row]) -> None:
    """Check the rows of ``select_bounds``; CorruptError if one is damaged."""
    for ordinal, name, *bounds, checksum in rows:
        check_row(checksum, "bounds", scope_id, ordinal, name, *bounds)


def check_extent(scope_id: int, row: Row) -> None:
    """Hold a row of ``EXTENT_COLUMNS`` against its checksum."""
    check_row(row[15], "an extent", scope_id, *row[:14], *if_known(row[16]))


def rows_to_extents(scope_id: int, rows: Sequence[Row], stats: Mapping[int, Mapping[str, Any]]) -> list[Extent]:
    """Read the rows of extents, with the statistics known of each ordinal; CorruptError if one is damaged."""
    for row in rows:
        check_extent(scope_id, row)
    with decoding("an extent"):
        return [_extent_of(row, stats.get(row[0], {})) for row in rows]


def _extent_of(row: Row, column_stats: Mapping[str, Any]) -> Extent:
    return Extent(
        id=row[1],
        key=row[2],
        format=row[3],
        byte_size=row[4],
        row_count=row[5],
        block_count=row[6],
        min_ts_ns=None if row[7] == MIN_NS else row[7],
        max_ts_ns=None if row[8] == MAX_NS else row[8],
        schema_version=row[9],
        column_stats=column_stats,
        present_paths=tuple(orjson.loads(row[10])) if row[10] != "[]" else (),
        level=row[11],
        coverage_key=row[12],
        added_seq=row[13],
        removed_seq=row[14],
        first_seq=row[16],
        unpacked_bytes=row[17] if type(row[17]) is int and row[17] >= 0 else None,
    )


def stats_parameters(rows: Sequence[Row], columns: Collection[str] | None) -> dict[str, Any]:
    """Return the values of the statement that reads the statistics of listed extents."""
    values = {"ordinals": orjson.dumps([row[0] for row in rows]).decode()}
    return values if columns is None else values | {"names": orjson.dumps(list(columns)).decode()}


_BOUND_COLUMNS = tuple(f"{end}_{sort}" for end in ("least", "most") for sort in ("whole", "real", "text"))
select_bounds = f"""
    SELECT c.ordinal, c.name, {", ".join(f"c.{name}" for name in _BOUND_COLUMNS)}, c.bounds_checksum
    FROM extent_columns AS c
    WHERE c.scope_id = :scope_id AND c.ordinal > :after AND c.name AMONG :names AS TEXT"""


def _lies_outside(sort: Sort, at: int) -> str:
    """Return that an extent's least value is above the wanted highest, or its most below the wanted lowest.

    A bound that is not there, on either side, makes no comparison true.
    """
    return (
        "SELECT 1 FROM extent_columns AS c WHERE c.scope_id = e.scope_id AND c.ordinal = e.ordinal"
        f" AND c.name = :column_{at}"
        f" AND (c.least_{sort} > :high_{at} OR c.most_{sort} < :low_{at})"
    )
