"""Hold the algebra of coverage to sets of integers."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tidelake.coverage.bitmaps import Runs, read_runs
from tidelake.coverage.buckets import LEAST, MOST, Bucket, parse_bucket, to_ids
from tidelake.coverage.entities import (
    Coverage,
    Index,
    cells_of,
    common,
    entity_text,
    flattened,
    from_runs,
    last_run,
    meet,
    missing,
    parse_bitmap,
    split,
    united,
    within,
)
from tidelake.coverage.schedule import Schedule, bucketed, clipped, parse_schedule
from tidelake.errors import CorruptError, InvalidInputError, InvalidRangeError

Held = dict[str, set[int]]

near = st.integers(-300, 300)
far = st.one_of(st.integers(-70_000, 70_000), st.integers(LEAST, MOST), st.sampled_from([LEAST, MOST, 0, -1]))
stretches = st.builds(
    lambda low, length, step: range(low, low + length, step), near, st.integers(1, 200), st.integers(1, 3)
)
sets = st.lists(stretches, max_size=4).map(lambda found: {number for each in found for number in each})
coverage_store = st.dictionaries(st.sampled_from(['["a"]', '["b"]', '["c"]', "[]"]), sets.filter(bool), max_size=4)


def coverage_of(held: Held) -> Coverage:
    return Coverage({entity: bitmap_of(numbers) for entity, numbers in held.items()})


def bitmap_of(numbers: set[int]) -> BitMap64:
    return BitMap64(number + 2**63 for number in numbers)


def sets_of(runs: Runs, entities: list[str]) -> Held:
    held: Held = {entity: set() for entity in entities}
    for owner, first, last in zip(runs.owner.tolist(), runs.first.tolist(), runs.last.tolist(), strict=True):
        numbers = set(range(first, last + 1))
        assert numbers
        assert not held[entities[owner]] & numbers
        held[entities[owner]] |= numbers
    return held


def held_by(coverage: Coverage) -> Held:
    return {entity: {number - 2**63 for number in coverage.bitmap(entity)} for entity in coverage}


@given(coverage_store, coverage_store)
def test_algebra_is_that_of_sets(one: Held, other: Held) -> None:
    a, b = coverage_of(one), coverage_of(other)
    entities = {*one, *other}
    for made, law in ((a | b, set.union), (a & b, set.intersection), (a - b, set.difference)):
        expected = {entity: law(one.get(entity, set()), other.get(entity, set())) for entity in entities}
        assert held_by(made) == {entity: numbers for entity, numbers in expected.items() if numbers}
    assert united([a, b]) == a | b
    assert (a & b).issubset(a)
    assert a.issubset(b) == all(numbers <= other.get(entity, set()) for entity, numbers in one.items())
    assert held_by(a) == one  # neither was changed
    assert a.buckets == sum(map(len, one.values()))


@given(st.lists(st.lists(st.one_of(near, far), max_size=40), max_size=5), st.lists(stretches, max_size=3))
def test_runs_of_bitmaps_are_those_of_sets(points: list[list[int]], ranges: list[range]) -> None:
    held = [set(each) | {n for r in ranges for n in r} for each in points]
    coverage = Coverage({entity_text([at]): bitmap_of(numbers) for at, numbers in enumerate(held)})
    order = [int(entity.strip("[]")) for entity in coverage.entities]
    runs = coverage.runs
    ends = list(zip(runs.owner.tolist(), runs.first.tolist(), runs.last.tolist(), strict=True))
    expected: list[tuple[int, int, int]] = []
    for owner, at in enumerate(order):
        for number in sorted(held[at]):
            if expected and expected[-1][0] == owner and expected[-1][2] == number - 1:
                expected[-1] = (owner, expected[-1][1], number)
            else:
                expected.append((owner, number, number))
    assert ends == expected


def test_runs_of_every_sort_of_container() -> None:
    random = np.random.default_rng(7)
    sorts = [
        set(range(-1_000_000, 900_000)),  # runs in many containers, joined across their edges
        set(range(0, 200_000, 2)),  # bits
        set(random.integers(-(2**40), 2**40, 500).tolist()),  # lists, many upper halves
        set(random.choice(140_000, 90_000, replace=False).tolist()),
        set(),
        {LEAST, MOST, 65535, 65536},
    ]
    packed = []
    for numbers in sorts:
        bitmap = bitmap_of(numbers)
        bitmap.run_optimize()
        packed.append(bytes(bitmap.serialize()))
    runs = read_runs(packed)
    assert list(sets_of(runs, list("abcdef")).values()) == sorts
    touching = (runs.owner[1:] == runs.owner[:-1]) & (runs.first[1:] == runs.last[:-1] + 1)
    assert not touching.any()


@given(coverage_store, near, st.integers(0, 400))
def test_missing_is_what_a_set_lacks(held: Held, low: int, length: int) -> None:
    coverage, high = coverage_of(held), low + length
    expected = set(range(low, high + 1))
    found = missing(coverage.runs, len(coverage), low, high)
    lacking = sets_of(found, coverage.entities)
    assert lacking == {entity: expected - numbers for entity, numbers in held.items()}
    assert sets_of(within(coverage.runs, low, high), coverage.entities) == {e: n & expected for e, n in held.items()}
    assert np.all(np.diff(found.owner) >= 0)
    every = sets_of(common(coverage.runs, len(coverage), low, high), ["all"])["all"]
    assert every == (set.intersection(expected, *held.values()) if held else set())
    assert sets_of(flattened(found), ["any"])["any"] == set().union(*lacking.values())


@given(coverage_store, st.lists(stretches.map(lambda r: (r.start, r.stop)), max_size=4))
def test_meeting_a_schedule_is_an_intersection(held: Held, windows: list[tuple[int, int]]) -> None:
    bucket = Bucket(1, "1us")
    first, last = bucketed(clipped(windows, -1000, 1000), bucket)
    wanted = {number for low, high in windows for number in range(low, high)}
    coverage = coverage_of(held)
    assert sets_of(meet(coverage.runs, first, last), coverage.entities) == {e: n & wanted for e, n in held.items()}


@given(sets.filter(bool), st.integers(1, 60))
def test_last_run_and_pieces_are_those_of_a_walk(numbers: set[int], least: int) -> None:
    coverage = coverage_of({"[]": numbers})
    runs = coverage.runs
    ends = [n for n in sorted(numbers) if n + 1 not in numbers and all(n - back in numbers for back in range(least))]
    found = last_run(runs, least)
    assert (found and found[1]) == (ends[-1] if ends else None)
    pieces = split(runs, least)
    assert sets_of(pieces, ["[]"]) == {"[]": numbers}
    assert pieces.lengths.max() <= least


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(-500, 500)), max_size=60),
    st.integers(1, 40),
    st.sampled_from([0, 1, 2]),
    st.booleans(),
)
def test_rows_cover_what_a_loop_over_them_finds(
    rows: list[tuple[str, int, int]], width: int, entities: int, apart: bool
) -> None:
    names = ("device", "site")[:entities]
    shift = 2**61 if apart else 0  # too far apart to be marked one by one
    rows = [(d, s, t + shift * (at % 2)) for at, (d, s, t) in enumerate(rows)]
    batch = pa.RecordBatch.from_pydict(
        {
            "ts": pa.array([t for _, _, t in rows], pa.timestamp("us", tz="UTC")),
            "device": pa.array([d for d, _, _ in rows], pa.string()),
            "site": pa.array([s for _, s, _ in rows], pa.int64()),
        }
    )
    cells = cells_of(batch, Index("ts", Bucket(width, "?"), names))
    held: Held = {}
    for device, site, t in rows:
        entity = entity_text([device, site][:entities])
        held.setdefault(entity, set()).add(t // width)
    assert held_by(cells.coverage) == held
    other = coverage_of({entity: {n for n in numbers if n % 2} for entity, numbers in held.items()})
    assert cells.rows_in(other) == sum((t // width) % 2 for _, _, t in rows)
    keys = [(entity_text([d, s][:entities]), t) for d, s, t in rows]
    twins = cells.twins()
    assert (twins is None) == (len(set(keys)) == len(keys))
    if twins is not None:
        assert keys.count(twins[:2]) > 1
        assert twins[2] == len(keys) - len(set(keys))


def test_many_runs_of_one_entity_become_one_bitmap() -> None:
    first = np.arange(0, 3_000, 3, dtype=np.int64)
    runs = Runs(np.zeros(len(first), dtype=np.int64), first, first + 1)
    assert held_by(from_runs(runs, ["[]"])) == {"[]": {n for n in range(3_000) if n % 3 != 2}}


@pytest.mark.parametrize("data", [b"", b"x" * 40, bytes(BitMap64([1, 2]).serialize())[:-1]])
def test_bytes_that_are_no_bitmap_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_bitmap(data)
    with pytest.raises(CorruptError):
        read_runs([data])


@pytest.mark.parametrize(
    ("text", "width_us"),
    [
        ("1m", 60_000_000),
        (" 15 MIN ", 900_000_000),
        ("90 seconds", 90_000_000),
        ("2hrs", 7_200_000_000),
        ("1 day", 86_400_000_000),
        ("2w", 1_209_600_000_000),
        ("250ms", 250_000),
        ("10us", 10),
        ("4294967295s", 4_294_967_295_000_000),
    ],
)
def test_bucket_is_read(text: str, width_us: int) -> None:
    assert parse_bucket(text) == Bucket(width_us, text.strip())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("m", "number is missing"),
        ("-1m", "number is missing"),
        ("5", "unit is missing"),
        ("0m", "more than zero"),
        ("4294967296s", "too large"),
        ("1y", "unknown unit 'y'"),
        ("1 month", "unknown unit 'month'"),
        ("1.5h", "unknown unit '.5h'"),
        (0, "more than zero"),
        (-5, "more than zero"),
        (None, "neither text"),
        (True, "neither text"),
    ],
)
def test_bucket_that_is_none_says_why(text: str | int, reason: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a bucket") as caught:
        parse_bucket(text)
    assert reason in str(caught.value)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 10**15))
def test_bucket_of_any_time_holds_it(value: int, width: int) -> None:
    bucket = Bucket(width, "?")
    number = bucket.number(value)
    assert bucket.numbers(np.array([value], dtype=np.int64)).tolist() == [number]
    assert bucket.start(number) <= value < max(bucket.start(number + 1), value + 1)
    assert bucket.starts(np.array([number], dtype=np.int64)).tolist() == [bucket.start(number)]
    assert to_ids(np.array([number], dtype=np.int64)).tolist() == [number + 2**63]


def test_span_takes_every_bucket_that_a_range_touches() -> None:
    minute = parse_bucket("1m")
    assert minute.span("1970-01-01T00:00:30Z", "1970-01-01T00:02:00Z") == (0, 1)
    assert minute.span("1969-12-31T23:59:59Z", "1970-01-01T00:00:00.000001Z") == (-1, 0)
    assert parse_bucket(100).span(-1, 101) == (-1, 1)
    for start, end in (("2026-01-02", "2026-01-01"), ("2026-01-01", "2026-01-01")):
        with pytest.raises(InvalidRangeError, match=f"start={start} end={end}"):
            minute.span(start, end)


def test_lengths_are_durations_or_counts() -> None:
    assert [parse_bucket("1m").count_of(length) for length in ("1h", "90s", 5)] == [60, 2, 5]
    for wrong in (0, -1, True, "0h", "x"):
        with pytest.raises(InvalidInputError):
            parse_bucket("1m").count_of(wrong)


def test_rows_without_time_or_entity_are_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"n": pa.array([1, None]), "e": pa.array([None, "x"])})
    with pytest.raises(InvalidInputError, match="no value in the index column=n rows=1"):
        cells_of(batch, Index("n", parse_bucket(1)))
    with pytest.raises(InvalidInputError, match="no value in an entity column column=e rows=1"):
        cells_of(batch.slice(0, 1), Index("n", parse_bucket(1), ("e",)))


def test_schedule_follows_the_clock_on_the_wall() -> None:
    schedule = parse_schedule("mon-fri 09:30-16:00 America/New_York except 2026-03-10")
    assert isinstance(schedule, Schedule)
    zone, day = ZoneInfo("America/New_York"), date(2026, 3, 2)
    low, high = datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 16, tzinfo=UTC)  # summer time began on the 8th
    first, end = schedule.expected(round(low.timestamp() * 1e6), round(high.timestamp() * 1e6))
    expected = []
    while day < date(2026, 3, 16):
        if day.weekday() < 5 and day != date(2026, 3, 10):
            opens = datetime(day.year, day.month, day.day, 9, 30, tzinfo=zone)
            expected.append((round(opens.timestamp() * 1e6), round((opens.timestamp() + 6.5 * 3600) * 1e6)))
        day += timedelta(days=1)
    assert list(zip(first.tolist(), end.tolist(), strict=True)) == expected
    assert len(expected) == 9


def test_hours_past_midnight_belong_to_the_day_they_begin_on() -> None:
    schedule = parse_schedule("sun 22:00-06:00")
    hour = 3_600_000_000
    first, end = schedule.expected(0, 7 * 24 * hour)  # 1970 began on a Thursday
    assert list(zip(first.tolist(), end.tolist(), strict=True)) == [(94 * hour, 102 * hour)]
    first, end = schedule.expected(100 * hour, 101 * hour)
    assert list(zip(first.tolist(), end.tolist(), strict=True)) == [(100 * hour, 101 * hour)]


def test_calendar_tables_say_what_is_expected() -> None:
    times = pa.timestamp("ms", tz="UTC")
    table = pa.table({"start": pa.array([50, 0, 20], times), "end": pa.array([60, 10, 30], times)})
    first, end = parse_schedule(table).expected(5_000, 55_000)
    assert (first.tolist(), end.tolist()) == ([5_000, 20_000, 50_000], [10_000, 30_000, 55_000])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "cannot read"),
        ("mon-fri 25:00-26:00", "between 00:00 and 24:00"),
        ("mon-fry 09:00-10:00", "days are mon"),
        ("mon 9-10", "cannot read"),
        ("mon-fri 09:00-10:00 Mars/Base", "not a time zone"),
        ("mon-fri except tomorrow", "2026-12-25"),
        (5, "text or a table"),
        (pa.table({"start": [1], "end": [2]}), "timestamp columns"),
    ],
)
def test_schedule_that_is_none_says_why(source: object, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        parse_schedule(source)
