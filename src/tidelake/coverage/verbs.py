"""Answer what a table holds and what is missing: the noun behind ``table.coverage``.

Answers come from coverage alone; no row is read, but for a receipt's. A range ``[start, end)`` means every bucket that
it touches, and without one it is from the first bucket that any entity holds to the last. Of a table with entities a
question is about one, or about all that are held. Ends of gaps are times, the end not included; of an integer index,
numbers. With a schedule, only what it expects can be missing. What a retention took away has expired, and is neither
held nor missing. It does not change the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any, Protocol, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from tidelake.coverage.bitmaps import Runs
from tidelake.coverage.buckets import Bucket, Longs
from tidelake.coverage.coverage_store import CoverageRules, CoverageStore
from tidelake.coverage.entities import (
    NO_ENTITY,
    Coverage,
    Index,
    cells_of,
    common,
    entity_text,
    entity_values,
    last_run,
    may_concern,
    meet,
    missing,
    shown_entity,
    split,
    united,
    within,
)
from tidelake.coverage.fingerprint import Fingerprint
from tidelake.coverage.schedule import bucketed, parse_schedule
from tidelake.errors import InvalidInputError
from tidelake.model.expression import parse_where
from tidelake.model.predicate import And, Equals, Nanoseconds, Predicate, Range
from tidelake.model.settings import RETAINED_FROM
from tidelake.model.snapshot import Extent, Snapshot
from tidelake.model.svg import draw_held

STRIP_CELLS = 60  # of the heat strip in a report
MAX_DRAWN = 100  # entities of a report, in a notebook

Entity: TypeAlias = Any  # a value, several in the columns' order, or a mapping
Judge: TypeAlias = Callable[[pa.Table], Sequence[bool]]  # says of each entity, by its columns, whether it is meant


class Rows(Protocol):
    """What is asked of the table itself."""

    @property
    def name(self) -> str: ...

    @property
    def snapshot(self) -> Snapshot: ...

    def pinned(self) -> Rows: ...

    def scan(
        self,
        columns: Sequence[str] | None = ...,
        where: Predicate | str | None = ...,
        *,
        start: Any = ...,
        end: Any = ...,
        ordered: bool = ...,
        dynamic: str = ...,
    ) -> pa.RecordBatchReader: ...

    def extents(self) -> list[Extent]: ...


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of an entity's buckets, held or missing; the end is not included."""

    entity: str | None
    start: Any
    end: Any
    buckets: int


@dataclass(frozen=True, slots=True)
class CoverageReceipt:
    """Proof of what was held when: check it later with ``verify``."""

    table: str
    snapshot: int
    snapshot_id: str
    entity: str | None
    start: str
    end: str
    rows: int
    buckets: int  # held
    expected: int
    extents: tuple[str, ...]
    hot_batches: int
    columns: tuple[str, ...]
    content: str  # see ``fingerprint``

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """What a table holds, one row for each entity."""

    table: str
    snapshot: int
    mode: str
    bucket: str
    start: Any
    end: Any
    ratio: float
    entities: pa.Table  # entity columns, first, last, buckets, expected, ratio, gaps, longest_gap
    strips: list[list[float]]  # how full each part of the range is, by entity; -1 where nothing is expected
    edges: list[Any]  # where the parts begin, and where the last one ends

    def _repr_html_(self) -> str:
        """Show what is held as a map by entity and time, in a notebook."""
        shown = self.entities.slice(0, MAX_DRAWN).to_pylist()
        keys = self.entities.schema.names[: self.entities.schema.get_field_index("first")]
        names = [" · ".join(str(row[name]) for name in keys) or self.table for row in shown]
        drawn = draw_held(names, self.strips[: len(names)], (str(self.start), str(self.end)))
        more = f"<p>{self.entities.num_rows - len(names):,} more</p>" if self.entities.num_rows > len(names) else ""
        return f"<p>{escape(repr(self))}</p>{drawn}{more}"

    def __repr__(self) -> str:
        return (
            f"CoverageReport({self.table} at snapshot {self.snapshot}: {self.entities.num_rows:,} entities, "
            f"{self.start} to {self.end}, {self.ratio:.2%} of {self.bucket} buckets held)"
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question, made plain: of which snapshot, whose runs, which buckets, and which of these are expected."""

    snapshot: Snapshot
    index: Index
    entities: list[str]
    runs: Runs
    low: int
    high: int
    expected: tuple[Longs, Longs] | None

    @property
    def is_empty(self) -> bool:
        return self.low > self.high

    @property
    def held(self) -> Runs:
        inside = within(self.runs, self.low, self.high)
        return inside if self.expected is None else meet(inside, *self.expected)

    @property
    def gaps(self) -> Runs:
        if self.is_empty:
            return within(self.runs, self.low, self.high)
        found = missing(self.runs, len(self.entities), self.low, self.high)
        return found if self.expected is None else meet(found, *self.expected)

    @property
    def wanted(self) -> int:
        """How many buckets each entity should hold."""
        if self.expected is not None:
            return int((self.expected[1] - self.expected[0] + 1).sum())
        return max(self.high - self.low + 1, 0)

    def listed(self, runs: Runs) -> pa.Table:
        """Return runs as entity columns, start, end and buckets."""
        columns = self.entity_columns(runs.owner)
        columns["start"] = self.times(runs.first)
        columns["end"] = self.times(runs.last + 1)
        columns["buckets"] = pa.array(runs.lengths)
        return pa.table(columns)

    def entity_columns(self, owner: Longs) -> dict[str, pa.Array]:
        """Return the values that name owners."""
        at = pa.array(owner)
        columns = _entity_columns(self.snapshot, self.index, self.entities)
        return {name: values.take(at) for name, values in columns.items()}

    def times(self, numbers: Longs, keep: Any = None) -> pa.Array:
        """Return the beginnings of buckets, in the table's time zone."""
        values = pa.array(self.index.bucket.starts(numbers), mask=None if keep is None else ~keep)
        zone = self.snapshot.settings.get("timezone") or "UTC"
        return values.view(pa.timestamp("us", tz=zone)) if self.index.bucket.is_time else values

    def window(self, entity: str | None, first: int, last: int) -> Window:
        """Return one stretch of buckets."""
        times = self.times(np.array([first, last + 1], dtype=np.int64)).to_pylist()
        shown = None if entity in (None, NO_ENTITY) else shown_entity(str(entity), self.index.entity)
        return Window(shown, times[0], times[1], last - first + 1)


class Series:
    """What a table holds, at its snapshot of now or the one it is pinned to; each question is asked of one snapshot."""

    def __init__(self, table: Rows, coverage_store: CoverageStore) -> None:
        self._table, self._coverage_store = table, coverage_store

    def ratio(self, start: Any = None, end: Any = None, *, entity: Entity = None, schedule: Any = None) -> float:
        """Return how much of what is expected is held, from 0 to 1; of nothing expected, all is."""
        asked = self._asked(start, end, entity, schedule)
        wanted = asked.wanted * len(asked.entities)
        if not asked.entities and asked.wanted:
            return 0.0
        return float(asked.held.lengths.sum()) / wanted if wanted else 1.0

    def gaps(
        self,
        start: Any = None,
        end: Any = None,
        *,
        entity: Entity = None,
        schedule: Any = None,
        least: str | int = 1,
        where: Predicate | str | Judge | None = None,
    ) -> pa.Table:
        """List what is missing: entity columns, ``start``, ``end`` and ``buckets``, in that order.

        Shorter gaps than ``least``, a duration or a number of buckets, are left out; with ``where``, those of entities
        whose rows cannot satisfy it.
        """
        asked = self._asked(start, end, entity, schedule, where=where)
        count, gaps = asked.index.bucket.count_of(least), asked.gaps
        if count > 1:
            keep = gaps.lengths >= count
            gaps = Runs(gaps.owner[keep], gaps.first[keep], gaps.last[keep])
        return asked.listed(gaps)

    def longest_gap(
        self, start: Any = None, end: Any = None, *, entity: Entity = None, schedule: Any = None
    ) -> Window | None:
        """Return the longest gap, the first of several; None if nothing is missing."""
        asked = self._asked(start, end, entity, schedule)
        gaps = asked.gaps
        if not len(gaps):
            return None
        at = int(np.argmax(gaps.lengths))
        return asked.window(asked.entities[int(gaps.owner[at])], int(gaps.first[at]), int(gaps.last[at]))

    def last_full_window(self, end: Any = None, *, length: str | int, entity: Entity = None) -> Window | None:
        """Return the last stretch of a length that is wholly held and ends by ``end``; None if there is none.

        Of a table with entities, and none named, every one of them must hold it.
        """
        asked = self._asked(None, None, entity, "")
        bucket = asked.index.bucket
        least = bucket.count_of(length)
        high = asked.high if end is None else bucket.number(bucket.value_of(end)) - 1
        low, high = asked.low, min(asked.high, high)
        if low > high:
            return None
        found = last_run(common(asked.runs, len(asked.entities), low, high), least)
        if found is None:
            return None
        named = asked.entities[0] if entity is not None else None
        return asked.window(named, found[1] - least + 1, found[1])

    def missing(
        self,
        start: Any,
        end: Any,
        *,
        entity: Entity = None,
        entities: Sequence[Entity] | None = None,
        schedule: Any = None,
        at_most: str | int | None = None,
    ) -> pa.Table:
        """List the windows to fetch again, in the shape of ``gaps``; ``entities`` may name some that hold nothing yet.

        With ``at_most``, a duration or a number of buckets, long windows are cut.
        """
        asked = self._asked(start, end, entity, schedule, extra=entities or ())
        gaps = asked.gaps
        if at_most is not None:
            gaps = split(gaps, asked.index.bucket.count_of(at_most))
        return asked.listed(gaps)

    def held(self, start: Any = None, end: Any = None, *, entity: Entity = None) -> pa.Table:
        """List what is held, in the shape of ``gaps``."""
        asked = self._asked(start, end, entity, "")
        return asked.listed(asked.held)

    @property
    def expired_before(self) -> datetime | None:
        """The time before which the table's retention took rows away; None if it has taken nothing.

        What was before it counts neither as held nor as missing.
        """
        limit_us = self._table.snapshot.settings.get(RETAINED_FROM)
        return None if limit_us is None else datetime.fromtimestamp(limit_us / 1e6, UTC)

    @property
    def is_of_numbers(self) -> bool:
        """Whether the table counts by a whole number, and not by time."""
        return not self._rules(self._table.snapshot).index.bucket.is_time

    def entities(self) -> pa.Table:
        """List the entities that hold anything."""
        asked = self._asked(None, None, None, "")
        return pa.table(asked.entity_columns(np.arange(len(asked.entities), dtype=np.int64)))

    def report(
        self,
        start: Any = None,
        end: Any = None,
        *,
        entity: Entity = None,
        schedule: Any = None,
        cells: int | None = None,
        where: Predicate | str | Judge | None = None,
    ) -> CoverageReport:
        """Return of each entity what it holds and what is missing, and how full each of so many parts is.

        With ``where``, only of entities whose rows may satisfy it.
        """
        asked = self._asked(start, end, entity, schedule, where=where)
        held, gaps, count = asked.held, asked.gaps, len(asked.entities)
        buckets = _summed(held, held.lengths, count)
        longest = np.zeros(count, dtype=np.int64)
        np.maximum.at(longest, gaps.owner, gaps.lengths)
        first, last = _ends(within(asked.runs, asked.low, asked.high), count)
        has_any = buckets > 0
        wanted = np.full(count, asked.wanted, dtype=np.int64)
        columns = asked.entity_columns(np.arange(count, dtype=np.int64))
        columns["first"] = asked.times(first, has_any)
        columns["last"] = asked.times(last + 1, has_any)
        columns["buckets"] = pa.array(buckets)
        columns["expected"] = pa.array(wanted)
        columns["ratio"] = pa.array(np.where(wanted > 0, buckets / np.maximum(wanted, 1), 1.0))
        columns["gaps"] = pa.array(np.bincount(gaps.owner, minlength=count).astype(np.int64))
        columns["longest_gap"] = pa.array(longest)
        total = asked.wanted * count
        bucket = asked.index.bucket
        edges = _edges(asked, cells or STRIP_CELLS)
        return CoverageReport(
            table=self._table.name,
            snapshot=asked.snapshot.sequence,
            mode=asked.snapshot.settings["coverage"],
            bucket=bucket.text,
            start=None if asked.is_empty else bucket.shown(bucket.start(asked.low)),
            end=None if asked.is_empty else bucket.shown(bucket.start(asked.high + 1)),
            ratio=float(buckets.sum()) / total if total else 1.0 if not asked.wanted else 0.0,
            entities=pa.table(columns),
            strips=_strips(asked, held, edges),
            edges=[bucket.shown(bucket.start(int(each))) for each in edges],
        )

    def receipt(self, entity: Entity = None, start: Any = None, end: Any = None) -> CoverageReceipt:
        """Return proof of what is held: snapshot, extents, rows, and a hash of their content.

        The range is taken as it is, not by buckets. Reads the rows, of the same snapshot as all else in it.
        """
        return Series(self._table.pinned(), self._coverage_store)._receipt(entity, start, end)

    def _receipt(self, entity: Entity, start: Any, end: Any) -> CoverageReceipt:
        asked = self._asked(start, end, entity, "")
        bucket = asked.index.bucket
        low = bucket.start(asked.low) if start is None else bucket.value_of(start)
        high = bucket.start(asked.high + 1) if end is None else bucket.value_of(end)
        snapshot = asked.snapshot
        named = None if entity is None else asked.entities[0]
        content, rows = self._content(named, low, high, snapshot.schema.names)
        extents = [extent for extent in self._table.extents() if _may_hold(extent, low, high, bucket.is_time)]
        return CoverageReceipt(
            table=self._table.name,
            snapshot=snapshot.sequence,
            snapshot_id=snapshot.id,
            entity=named,
            start=bucket.shown(low),
            end=bucket.shown(high),
            rows=rows,
            buckets=int(asked.held.lengths.sum()),
            expected=asked.wanted * len(asked.entities),
            extents=tuple(sorted(extent.id for extent in extents)),
            hot_batches=snapshot.totals.hot_batches,
            columns=snapshot.schema.names,
            content=content,
        )

    def verify(self, receipt: CoverageReceipt) -> bool:
        """Return whether the table holds now, to the row, what it held when a receipt was given."""
        held = Series(self._table.pinned(), self._coverage_store)
        bucket = held._rules(held._table.snapshot).index.bucket
        ends = (receipt.start, receipt.end)
        low, high = (bucket.value_of(text if bucket.is_time else int(text)) for text in ends)
        content, rows = held._content(receipt.entity, low, high, receipt.columns)
        return (content, rows) == (receipt.content, receipt.rows)

    def __repr__(self) -> str:
        return f"coverage of {self._table.name}"

    def _rules(self, snapshot: Snapshot) -> CoverageRules:
        rules = self._coverage_store.told(snapshot)
        if rules is None:
            raise no_coverage(self._table.name)
        return rules

    def _asked(
        self,
        start: Any,
        end: Any,
        entity: Entity,
        schedule: Any,
        *,
        extra: Sequence[Entity] = (),
        where: Predicate | str | Judge | None = None,
    ) -> _Asked:
        snapshot = self._table.snapshot
        if snapshot.is_keyed:
            pinned = self._table.pinned()
            snapshot = pinned.snapshot
            index = self._rules(snapshot).index
            whole = _in_rows(pinned, index)
        else:
            index = self._rules(snapshot).index
            whole = self._coverage_store.at(snapshot)
        bucket = index.bucket
        named = None if entity is None else entity_text(_entity(entity, index.entity))
        own = whole if named is None else whole.only([named])
        low, high = _whole_range(own if own.entities else whole)  # by default, the series' own span
        if start is not None and end is not None:
            low, high = bucket.span(start, end)
        elif start is not None:
            low = bucket.number(bucket.value_of(start))
        elif end is not None:
            high = bucket.number(bucket.value_of(end) - 1)
        if (retained := self._first_retained(snapshot, index)) is not None:
            low = max(low, retained)  # what was before is not missing, it has expired
        if named is not None:
            coverage, entities = own, [named]
        else:
            added = [entity_text(_entity(each, index.entity)) for each in extra]
            coverage, entities = whole, sorted({*whole.entities, *added}) if added else whole.entities
        if not index.entity and not entities:
            entities = [NO_ENTITY]
        if where is not None and index.entity:
            told = parse_where(where, columns=snapshot.schema.names) if isinstance(where, str) else where
            named = pa.table(_entity_columns(snapshot, index, entities))
            judged = told(named) if callable(told) else may_concern(named, told)
            entities = [each for each, is_meant in zip(entities, judged, strict=True) if is_meant]
            coverage = coverage.only(entities)
        runs = coverage.runs if coverage.entities == entities else _renumbered(coverage, entities)
        expected = self._expected(snapshot, bucket, schedule, (low, high))
        return _Asked(snapshot, index, entities, runs, low, high, expected)

    def _first_retained(self, snapshot: Snapshot, index: Index) -> int | None:
        """Return the first bucket that the table's retention has left whole; None if it has taken nothing."""
        limit_us = snapshot.settings.get(RETAINED_FROM)
        if limit_us is None or index.column != snapshot.settings.get("time"):
            return None
        number = index.bucket.number(limit_us)
        return number if index.bucket.start(number) == limit_us else number + 1

    def _expected(
        self, snapshot: Snapshot, bucket: Bucket, schedule: Any, span: tuple[int, int]
    ) -> tuple[Longs, Longs] | None:
        told = snapshot.settings.get("schedule") if schedule is None else schedule
        if told is None or (isinstance(told, str) and not told) or span[0] > span[1]:
            return None
        if not bucket.is_time:
            raise InvalidInputError("a schedule is for a time index", table=self._table.name)
        return bucketed(parse_schedule(told).expected(bucket.start(span[0]), bucket.start(span[1] + 1)), bucket)

    def _content(self, entity: str | None, low: int, high: int, columns: Sequence[str]) -> tuple[str, int]:
        index = self._rules(self._table.snapshot).index
        parts: list[Predicate] = []
        if entity is not None:
            named = zip(index.entity, entity_values(entity), strict=True)
            parts += [Equals(name, value) for name, value in named]
        bounds: dict[str, Any] = {"start": Nanoseconds(low * 1000), "end": Nanoseconds(high * 1000)}
        if not index.bucket.is_time:
            parts.append(Range(index.column, low, high, include_high=False))
            bounds = {}
        where = None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))
        is_ordered = index.bucket.is_time
        found = Fingerprint(index.column if is_ordered else None)
        with self._table.scan(list(columns), where, **bounds, ordered=is_ordered, dynamic="cbor") as reader:
            for batch in reader:
                found.add(batch)
        return found.finish()


def _in_rows(table: Rows, index: Index) -> Coverage:
    """Find what the rows cover that readers see: of a table with a key, whose rows change, nobody keeps it."""
    rows = table.scan([index.column, *index.entity])
    whole = (batch.drop_null() for batch in rows)  # what has no entity covers none
    return united(cells_of(batch, index).coverage for batch in whole if batch.num_rows)


def no_coverage(table: str) -> InvalidInputError:
    """Return the error for a question about a table that keeps no coverage."""
    return InvalidInputError("the table keeps no coverage: create it with bucket=", table=table, kind="no_coverage")


def _entity(entity: Entity, names: Sequence[str]) -> list[Any]:
    """Read an entity as a person gives it, in the order of the columns."""
    if isinstance(entity, Mapping):
        values = [entity[name] for name in names] if set(entity) == set(names) else []
    else:
        values = list(entity) if isinstance(entity, list | tuple) else [entity]
    if len(values) != len(names):
        raise InvalidInputError(
            "an entity needs a value for each entity column", columns=", ".join(names), found=entity
        )
    return values


def _whole_range(coverage: Coverage) -> tuple[int, int]:
    runs = coverage.runs
    return (int(runs.first.min()), int(runs.last.max())) if len(runs) else (0, -1)


def _entity_columns(snapshot: Snapshot, index: Index, entities: Sequence[str]) -> dict[str, pa.Array]:
    """Return the values that name entities."""
    values = list(zip(*orjson.loads(f"[{','.join(entities)}]"), strict=True))
    columns = {}
    for number, name in enumerate(index.entity):
        kind = snapshot.schema[name].type.arrow if name in snapshot.schema else pa.string()
        columns[name] = pa.array(values[number] if values else [], kind)
    return columns


def _renumbered(coverage: Coverage, entities: Sequence[str]) -> Runs:
    """Return runs whose owners are numbered in a longer list of entities."""
    numbers = {entity: at for at, entity in enumerate(entities)}
    places = np.array([numbers[entity] for entity in coverage.entities], dtype=np.int64)
    runs = coverage.runs
    return Runs(places[runs.owner] if len(runs) else runs.owner, runs.first, runs.last)


def _summed(runs: Runs, values: Longs, count: int) -> Longs:
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, runs.owner, values)
    return total


def _ends(runs: Runs, count: int) -> tuple[Longs, Longs]:
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, runs.owner, runs.first)
    np.maximum.at(last, runs.owner, runs.last)
    return np.where(first > last, 0, first), np.where(first > last, 0, last)


def _edges(asked: _Asked, cells: int) -> Longs:
    """Cut a range into parts of about as many buckets each, at most so many."""
    if asked.is_empty:
        return np.zeros(0, dtype=np.int64)
    return np.linspace(asked.low, asked.high + 1, min(cells, asked.high - asked.low + 1) + 1).astype(np.int64)


def _strips(asked: _Asked, held: Runs, edges: Longs) -> list[list[float]]:
    """Return how full each part of a range is, for each entity."""
    count = len(asked.entities)
    if asked.is_empty or not count:
        return [[] for _ in range(count)]
    first, last = edges[:-1], edges[1:] - 1
    cells = len(first)
    begin = np.searchsorted(last, held.first)
    stop = np.searchsorted(first, held.last, side="right")
    pieces = stop - begin
    which = np.repeat(np.arange(len(held), dtype=np.int64), pieces)
    cell = np.arange(len(which), dtype=np.int64) - np.repeat(np.cumsum(pieces) - pieces, pieces) + begin[which]
    length = np.minimum(held.last[which], last[cell]) - np.maximum(held.first[which], first[cell]) + 1
    full = np.zeros(count * cells, dtype=np.int64)
    np.add.at(full, held.owner[which] * cells + cell, length)
    wanted = last - first + 1
    if asked.expected is not None:
        parts = meet(Runs(np.arange(cells, dtype=np.int64), first, last), *asked.expected)
        wanted = _summed(parts, parts.lengths, cells)
    shares = np.where(wanted > 0, full.reshape(count, cells) / np.maximum(wanted, 1), -1.0)
    found: list[list[float]] = shares.tolist()
    return found


def _may_hold(extent: Extent, low: int, high: int, is_time: bool) -> bool:
    if not is_time:
        return True
    begins = extent.min_ts_ns is None or extent.min_ts_ns < high * 1000
    ends = extent.max_ts_ns is None or extent.max_ts_ns >= low * 1000
    return begins and ends
