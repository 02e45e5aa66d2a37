"""Tables that know their time windows: append rules, answers, lost objects, receipts, on every catalog."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.catalogs import fresh_schema
from tests.support.faulty import Fault, FaultyStore
from tidelake.catalog.protocol import Pending, new_id
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.cli.commands.series import pooled
from tidelake.cli.main import main
from tidelake.coverage import coverage_store, recorder
from tidelake.errors import (
    CorruptError,
    InvalidInputError,
    InvalidRangeError,
    NotFoundError,
    OverlapError,
    QueryError,
    SchemaError,
    StorageError,
)
from tidelake.format import WriteOptions, segment_format
from tidelake.handle.lake_handle import LakeHandle
from tidelake.lake import Lake
from tidelake.model.snapshot import Action, AddExtent, Commit, RemoveExtent
from tidelake.objects import open_store
from tidelake.scan import extents as scan_module
from tidelake.table import Table
from tidelake.write import appender, stager

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = {"ts": "timestamp", "device": "string", "site": "long", "v": "real"}
DEVICE: dict[str, Any] = {"time": "ts", "bucket": "1m", "entity": ["device"]}


@pytest.fixture(params=["folder", "postgres"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    if request.param == "postgres":
        place = fresh_schema(request.getfixturevalue("postgres"))
        opened = tidelake.connect(place, objects=tmp_path / "objects")
    else:
        opened = tidelake.connect(tmp_path / "lake")
    with opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Lake]:
    with tidelake.connect(tmp_path / "lake") as opened:
        yield opened


def rows_of(device: str, *minutes: int, second: int = 0, site: int = 1) -> list[dict[str, Any]]:
    return [
        {"ts": NOON + timedelta(minutes=minute, seconds=second), "device": device, "site": site, "v": float(minute)}
        for minute in minutes
    ]


def table_of(device: str, minutes: range) -> pa.Table:
    """Make rows of so many minutes that they are written as an extent."""
    start = round(NOON.timestamp() * 1e6)
    times = start + 60_000_000 * np.array(minutes, dtype=np.int64)
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "device": pa.array([device] * len(times)),
            "site": pa.array(np.ones(len(times), dtype=np.int64)),
            "v": pa.array(np.arange(len(times), dtype=np.float64)),
        }
    )


def minutes_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return gaps as an entity's values and minutes since noon."""
    names = table.column_names[:-3]
    return [
        (
            *(row[name] for name in names),
            round((row["start"] - NOON) / timedelta(minutes=1)),
            round((row["end"] - NOON) / timedelta(minutes=1)),
        )
        for row in table.to_pylist()
    ]


def reopened(table: Table, lake: Lake) -> Table:
    """Return the table as a process that knows nothing yet sees it."""
    fresh = Lake(LakeHandle(lake.catalog, lake.store, lake.where))
    return fresh.table(table.name)


def test_exclusive_table_refuses_a_window_that_is_held(lake: Lake) -> None:
    table = lake.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
    table.append(rows_of("a", *range(10)))
    table.append(rows_of("b", *range(5)))
    before = table.snapshot
    with pytest.raises(OverlapError) as caught:
        table.append(rows_of("b", 20) + rows_of("a", *range(8, 14)))
    assert caught.value.facts == {
        "table": "m.cpu",
        "entity": "device=a",
        "start": "2026-01-01T12:08:00Z",
        "end": "2026-01-01T12:10:00Z",
        "buckets": 2,
    }
    with pytest.raises(OverlapError, match=r"entity=device=a .* buckets=1 entities=2 buckets_in_all=3"):
        table.append(rows_of("a", 9) + rows_of("b", 3, 4))
    assert table.snapshot == before
    assert table.scan().read_all().num_rows == 15
    assert table.append(rows_of("a", 10)).overlap == 0


@pytest.mark.parametrize("size", [10, 2_000])  # hot, and an extent
def test_rows_are_held_however_they_are_kept(lake: Lake, size: int) -> None:
    table = lake.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
    report = table.append(table_of("a", range(size)))
    assert report.extents == (size > 1000)
    for held in (table, reopened(table, lake)):
        with pytest.raises(OverlapError, match=f"buckets={size}"):
            held.append(table_of("a", range(size)))
    table.flush()
    for held in (table, reopened(table, lake)):
        with pytest.raises(OverlapError, match=f"buckets={size}"):
            held.append(table_of("a", range(size)))
        assert minutes_of(held.coverage.held()) == [("a", 0, size)]
    assert table.append(table_of("a", range(size, size + 5))).rows == 5


@pytest.mark.parametrize("form", ["tlm", "parquet"])
def test_large_appends_are_judged_while_they_are_written(
    folder: Lake, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(recorder, "BESIDE_ROWS", 1)
    table = folder.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive", format=form)
    table.append(table_of("a", range(3_000)))
    for wrong in (table_of("a", range(2_999, 6_000)), pa.concat_tables([table_of("b", range(3_000))] * 2)):
        with pytest.raises(OverlapError):
            table.append(wrong)
    table.append(table_of("a", range(3_000, 6_000)))
    assert minutes_of(table.coverage.held()) == [("a", 0, 6_000)]
    assert table.scan().read_all().num_rows == 6_000
    assert folder.catalog.pending() == []
    stored = {meta.key for meta in folder.store.list()}  # nothing of what was refused
    assert stored == {key for extent in table.extents() for key in (extent.key, extent.coverage_key)}


def test_a_second_append_of_a_key_is_a_replay_and_no_overlap(lake: Lake) -> None:
    table = lake.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
    first = table.append(rows_of("a", 1), key="k")
    again = reopened(table, lake).append(rows_of("a", 1), key="k")
    assert (again.replayed, again.snapshot) == (True, first.snapshot)


def test_rows_of_one_append_may_share_a_window_but_not_a_time(folder: Lake) -> None:
    table = folder.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
    table.append(rows_of("a", 1) + rows_of("a", 1, second=30))
    with pytest.raises(OverlapError, match=r"same time table=m\.cpu entity=device=a start=2026-01-01T12:02:00Z rows=1"):
        table.append(rows_of("a", 2) + rows_of("b", 2) + rows_of("a", 2))
    with pytest.raises(OverlapError, match="already held"):
        table.append(rows_of("a", 1, second=45))


def test_an_append_of_several_extents_goes_on_with_a_window_but_never_back(
    folder: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stager, "EXTENT_ROWS", 4)
    table = folder.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")

    def batches(*groups: list[dict[str, Any]]) -> pa.RecordBatchReader:
        made = [pa.RecordBatch.from_pylist(group) for group in groups]
        return pa.RecordBatchReader.from_batches(made[0].schema, made)

    on = table.append(batches(rows_of("a", 0, 1, 2, 3), rows_of("a", 3, second=30) + rows_of("a", 4, 5, 6)))
    assert (on.extents, on.rows) == (2, 8)
    for back in (rows_of("b", 3, 4, 5, 6), rows_of("b", 0, second=5) + rows_of("b", 7, 8, 9)):
        before = table.snapshot
        with pytest.raises(OverlapError, match="comes back to a time window") as caught:
            table.append(batches(rows_of("b", 0, 1, 2, 3), back))
        assert caught.value.facts["entity"] == "device=b"
        assert table.snapshot == before


def test_tracking_table_takes_late_and_double_rows_and_tells(lake: Lake) -> None:
    table = lake.create_table("m.cpu", SCHEMA, **DEVICE)
    assert table.append(rows_of("a", 0, 1, 2, 5)).overlap == 0
    late = table.append(rows_of("a", 1, 3) + rows_of("a", 1, second=9) + rows_of("b", 1))
    assert (late.rows, late.overlap) == (4, 2)
    assert minutes_of(table.coverage.gaps()) == [("a", 4, 5), ("b", 0, 1), ("b", 2, 6)]
    assert table.scan().read_all().num_rows == 8


def test_coverage_is_off_unless_asked_for(folder: Lake) -> None:
    table = folder.create_table("m.cpu", SCHEMA, time="ts")
    table.append(rows_of("a", 1))
    assert "coverage" not in table.snapshot.settings
    for ask in (table.coverage.gaps, table.coverage.report, table.repair):
        with pytest.raises(InvalidInputError, match="keeps no coverage"):
            ask()


@pytest.mark.parametrize(
    ("words", "error", "reason"),
    [
        ({"bucket": "1y"}, InvalidInputError, "unknown unit"),
        ({"bucket": "0m"}, InvalidInputError, "more than zero"),
        ({"bucket": -5}, InvalidInputError, "more than zero"),
        ({"bucket": 60}, SchemaError, "does not fit the index"),
        ({"bucket": "1m", "index": "site"}, SchemaError, "does not fit the index"),
        ({"bucket": "1m", "coverage": "sometimes"}, InvalidInputError, "exclusive, track, off"),
        ({"coverage": "exclusive"}, InvalidInputError, "needs a bucket"),
        ({"entity": ["device"]}, InvalidInputError, "needs a bucket"),
        ({"bucket": "1m", "entity": ["nowhere"]}, NotFoundError, "nowhere"),
        ({"bucket": "1m", "entity": ["v"]}, SchemaError, "string, int, long, bool"),
        ({"bucket": "1m", "entity": ["ts"]}, SchemaError, "not the index"),
        ({"bucket": "1m", "entity": ["device", "device"]}, SchemaError, "distinct"),
        ({"bucket": "1m", "timezone": "Mars/Base"}, InvalidInputError, "not a time zone"),
        ({"bucket": "1m", "schedule": "always"}, InvalidInputError, "not a schedule"),
    ],
)
def test_a_table_that_cannot_be_is_not_made(
    folder: Lake, words: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        folder.create_table("m.cpu", SCHEMA, time="ts", **words)
    assert folder.tables() == []


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"ts": None, "device": "a"}], "time"),
        ([{"device": "a"}], "time"),
        ([{"ts": "2026-01-01T00:00:00Z", "device": None}], "no value in an entity column column=device"),
        ([{"ts": "2026-01-01T00:00:00Z"}], "no value in an entity column column=device"),
        ([{"ts": "99999-01-01T00:00:00Z", "device": "a"}], "time"),
    ],
)
@pytest.mark.parametrize("mode", ["exclusive", "track"])
def test_rows_without_time_or_entity_are_refused_whole(
    folder: Lake, mode: str, rows: list[dict[str, Any]], reason: str
) -> None:
    table = folder.create_table("m.cpu", SCHEMA, **DEVICE, coverage=mode)
    with pytest.raises(InvalidInputError, match=reason):
        table.append([*rows_of("a", 1), *rows])
    assert table.scan().read_all().num_rows == 0
    assert table.coverage.gaps(NOON, NOON + timedelta(minutes=1)).num_rows == 0


def test_ranges_that_are_none_are_refused(folder: Lake) -> None:
    table = folder.create_table("m.cpu", SCHEMA, **DEVICE)
    table.append(rows_of("a", 1))
    asked = table.coverage
    for ask in (asked.ratio, asked.gaps, asked.longest_gap, asked.missing, asked.report):
        for start, end in ((NOON, NOON), (NOON, NOON - timedelta(hours=1))):
            with pytest.raises(InvalidRangeError, match=r"start is not before its end start=2026-.* end=2026-"):
                ask(start, end)
    with pytest.raises(InvalidRangeError):
        table.scan(start=NOON, end=NOON)
    with pytest.raises(InvalidInputError, match="not a time"):
        asked.gaps("yesterday", "today")
    for entity in (["a", 1], {"site": 1}, []):
        with pytest.raises(InvalidInputError, match="a value for each entity column"):
            asked.gaps(entity=entity)


def test_integer_index_counts_in_numbers(folder: Lake) -> None:
    schema = {"offset": "long", "topic": "string"}
    table = folder.create_table("k.log", schema, index="offset", bucket=10, entity="topic", coverage="exclusive")
    table.append([{"offset": at, "topic": "a"} for at in (-15, -1, 0, 9, 35)])
    assert table.coverage.gaps().to_pylist() == [
        {"topic": "a", "start": 10, "end": 30, "buckets": 2},
    ]
    with pytest.raises(OverlapError, match="entity=topic=a start=30 end=40 buckets=1"):
        table.append([{"offset": 31, "topic": "a"}])
    with pytest.raises(InvalidInputError, match="no value in the index"):
        table.append([{"topic": "a"}])
    receipt = table.coverage.receipt("a", -20, 10)
    assert (receipt.rows, receipt.start, receipt.end, receipt.buckets) == (4, "-20", "10", 3)
    assert table.coverage.verify(receipt)
    with pytest.raises(InvalidInputError, match="time index"):
        table.coverage.gaps(schedule="mon-fri")


def test_times_before_1970_and_far_ahead_are_held(folder: Lake) -> None:
    table = folder.create_table("m.cpu", SCHEMA, time="ts", bucket="250ms", coverage="exclusive")
    times = ["1902-02-03T04:05:06.1Z", "1969-12-31T23:59:59.9Z", "2250-01-01T00:00:00Z"]
    table.append([{"ts": time} for time in times])
    for time in times:
        with pytest.raises(OverlapError):
            table.append([{"ts": time.replace(".1Z", ".2Z")}])
    gaps = table.coverage.gaps()
    assert gaps.num_rows == 2
    assert gaps["start"].to_pylist()[0] == datetime(1902, 2, 3, 4, 5, 6, 250_000, tzinfo=UTC)


def test_answers_are_in_the_tables_time_zone(folder: Lake) -> None:
    table = folder.create_table("m.cpu", SCHEMA, **DEVICE, timezone="Europe/Berlin")
    table.append(rows_of("a", 0, 2))
    assert str(table.coverage.gaps()["start"][0].as_py()) == "2026-01-01 13:01:00+01:00"


def test_several_entity_columns_make_an_entity(folder: Lake) -> None:
    words = {**DEVICE, "entity": ["device", "site"], "coverage": "exclusive"}
    table = folder.create_table("m.cpu", SCHEMA, **words)
    table.append(rows_of("a", 0, 3) + rows_of("a", 0, site=2) + rows_of("b", 1))
    gaps = table.coverage.gaps()
    assert gaps.schema.names == ["device", "site", "start", "end", "buckets"]
    assert minutes_of(gaps) == [("a", 1, 1, 3), ("a", 2, 1, 4), ("b", 1, 0, 1), ("b", 1, 2, 4)]
    for entity in (["a", 2], ("a", 2), {"site": 2, "device": "a"}):
        whole = min(gaps["start"].to_pylist()), max(gaps["end"].to_pylist())
        assert minutes_of(table.coverage.gaps(*whole, entity=entity)) == [("a", 2, 1, 4)]
        assert minutes_of(table.coverage.gaps(entity=entity)) == []  # within its own span
    with pytest.raises(OverlapError, match="entity=device=a,site=2"):
        table.append(rows_of("a", 0, site=2))


Held = dict[str, set[int]]
moments = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 200)), min_size=1, max_size=60)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    appends=st.lists(moments, min_size=1, max_size=3),
    flushed=st.booleans(),
    low=st.integers(-20, 220),
    length=st.integers(1, 250),
    least=st.integers(1, 20),
)
def test_every_answer_is_that_of_sets(
    tmp_path_factory: pytest.TempPathFactory,
    appends: list[list[tuple[str, int]]],
    flushed: bool,
    low: int,
    length: int,
    least: int,
) -> None:
    with tidelake.connect(tmp_path_factory.mktemp("lake") / "lake") as lake:
        table = lake.create_table("m.cpu", SCHEMA, **DEVICE)
        held: Held = {}
        for rows in appends:
            told = table.append([row for device, minute in rows for row in rows_of(device, minute)])
            assert told.overlap == sum(minute in held.get(device, ()) for device, minute in rows)
            for device, minute in rows:
                held.setdefault(device, set()).add(minute)
            if flushed:
                table.flush()
        check_answers(table, held, range(low, low + length), least)
        check_answers(reopened(table, lake), held, range(low, low + length), least)


def check_answers(table: Table, held: Held, asked: range, least: int) -> None:
    coverage, expected = table.coverage, set(asked)
    start, end = NOON + timedelta(minutes=asked.start), NOON + timedelta(minutes=asked.stop)
    lacking = {device: expected - minutes for device, minutes in held.items()}
    found: Held = {device: set() for device in held}
    listed = minutes_of(coverage.gaps(start, end))
    for device, first, last in listed:
        assert first - 1 not in lacking[device]
        assert last not in lacking[device]
        found[device] |= set(range(first, last))
    assert found == lacking
    assert listed == sorted(listed)
    present = sum(len(expected & minutes) for minutes in held.values())
    assert coverage.ratio(start, end) == pytest.approx(present / (len(expected) * len(held)))
    longest = coverage.longest_gap(start, end)
    assert (longest.buckets if longest else 0) == max((last - first for _, first, last in listed), default=0)
    long = minutes_of(coverage.gaps(start, end, least=least))
    assert long == [gap for gap in listed if gap[2] - gap[1] >= least]
    pieces = minutes_of(coverage.missing(start, end, at_most=least))
    assert all(last - first <= least for _, first, last in pieces)
    assert {(d, m) for d, first, last in pieces for m in range(first, last)} == {
        (d, m) for d, minutes in lacking.items() for m in minutes
    }
    for device in (*held, None):
        common = held[device] if device else set.intersection(*held.values())
        ends = [m for m in common if m < asked.stop and all(m - back in common for back in range(least))]
        window = coverage.last_full_window(end, length=least, entity=device)
        last = None if window is None else round((window.end - NOON) / timedelta(minutes=1)) - 1
        assert last == max(ends, default=None)
    report = coverage.report(start, end)
    for row in report.entities.to_pylist():
        minutes = held[row["device"]] & expected
        assert (row["buckets"], row["expected"]) == (len(minutes), len(expected))
        assert row["gaps"] == sum(gap[0] == row["device"] for gap in listed)
        assert (row["first"] is None) == (not minutes)
        if minutes:
            assert row["first"] == NOON + timedelta(minutes=min(minutes))
            assert row["last"] == NOON + timedelta(minutes=max(minutes) + 1)
    for row, strip in zip(report.entities.to_pylist(), report.strips, strict=True):
        assert min(strip) >= 0
        assert max(strip) <= 1
        assert (sum(strip) == len(strip)) == (row["ratio"] == 1)
    unknown = coverage.gaps(start, end, entity="nobody")
    assert minutes_of(unknown) == [("nobody", asked.start, asked.stop)]
    assert coverage.ratio(start, end, entity="nobody") == 0
    assert coverage.last_full_window(length=1, entity="nobody") is None


def test_an_empty_table_holds_nothing(folder: Lake) -> None:
    asked = folder.create_table("m.cpu", SCHEMA, **DEVICE).coverage
    hour = (NOON, NOON + timedelta(hours=1))
    assert (asked.ratio(*hour), asked.gaps(*hour).num_rows, asked.longest_gap()) == (0.0, 0, None)
    assert asked.gaps().schema.names == ["device", "start", "end", "buckets"]
    assert minutes_of(asked.missing(*hour, entities=["a"])) == [("a", 0, 60)]
    assert asked.report().entities.num_rows == 0
    alone = folder.create_table("m.all", SCHEMA, time="ts", bucket="1m").coverage
    assert minutes_of(alone.gaps(*hour)) == [(0, 60)]
    assert (alone.ratio(*hour), alone.ratio()) == (0.0, 1.0)


def test_a_weekend_is_no_gap(folder: Lake) -> None:
    words = {**DEVICE, "bucket": "1h", "schedule": "mon-fri 09:00-17:00 Europe/Berlin"}
    table = folder.create_table("m.cpu", SCHEMA, **words)
    monday = datetime(2026, 1, 5, 8, tzinfo=UTC)  # nine in Berlin
    days = [monday + timedelta(days=day) for day in (0, 1, 2, 3, 4, 7)]
    rows: list[dict[str, Any]] = [
        {"ts": day + timedelta(hours=hour), "device": "a"} for day in days for hour in range(8)
    ]
    del rows[10]
    table.append(rows)
    assert table.coverage.gaps().to_pylist() == [
        {"device": "a", "start": rows[9]["ts"] + timedelta(hours=1), "end": rows[10]["ts"], "buckets": 1}
    ]
    assert table.coverage.ratio() == pytest.approx(47 / 48)
    assert table.coverage.gaps(schedule="").num_rows == 6
    calendar = pa.table(
        {name: pa.array([at], pa.timestamp("us", tz="UTC")) for name, at in (("start", days[0]), ("end", days[1]))}
    )
    assert [row["buckets"] for row in table.coverage.gaps(schedule=calendar).to_pylist()] == [16]
    strips = table.coverage.report().strips[0]
    assert -1.0 in strips


def test_compaction_retention_and_flush_keep_coverage_right(lake: Lake) -> None:
    table = lake.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
    for start in (0, 2_000, 4_000):
        table.append(table_of("a", range(start, start + 2_000)))
    table.append(rows_of("a", 7_000))
    table.append(rows_of("b", 100))
    first, second, third = table.extents()
    scope = lake.catalog.table("m.cpu").scope
    table.flush()
    assert minutes_of(table.coverage.held()) == [("a", 0, 6_000), ("a", 7_000, 7_001), ("b", 100, 101)]
    lake.handle.coordinator.commit(Commit(new_id(), scope, 1, (RemoveExtent(second.id),), operation="retention"))
    held = [("a", 0, 2_000), ("a", 4_000, 6_000), ("a", 7_000, 7_001), ("b", 100, 101)]
    assert minutes_of(table.coverage.held()) == minutes_of(reopened(table, lake).coverage.held()) == held
    swap = (RemoveExtent(first.id), RemoveExtent(third.id), merge(lake, table, [first, third]))
    lake.handle.coordinator.commit(Commit(new_id(), scope, 1, swap, operation="compact"))
    assert minutes_of(table.coverage.held()) == minutes_of(reopened(table, lake).coverage.held()) == held
    assert table.append(table_of("a", range(2_000, 4_000))).rows == 2_000  # what retention freed
    old = lake.table("m.cpu", snapshot=4)
    assert minutes_of(old.coverage.held()) == [("a", 0, 6_000)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["exclusive", "track"])
def test_a_random_life_is_that_of_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, seed: int
) -> None:
    monkeypatch.setattr(coverage_store, "UNITED_AFTER", 3)
    monkeypatch.setattr(appender, "HOT_ROWS", 4)
    rng = random.Random(seed)
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("m.cpu", SCHEMA, **DEVICE, coverage=mode, flush_age="off")
        scope = lake.catalog.table("m.cpu").scope
        stored: dict[str, list[tuple[str, int]]] = {}  # by extent; hot rows under ""
        for _ in range(60):
            choice = rng.random()
            extents = {extent.id: extent for extent in table.extents()}
            if choice < 0.6:
                first, device = rng.randrange(60), rng.choice("ab")
                cells = [(device, minute) for minute in range(first, first + rng.randrange(1, 9))]
                taken = {cell for part in stored.values() for cell in part}
                held = [cell for cell in cells if cell in taken]
                rows = rows_of(device, *(minute for _, minute in cells))
                if mode == "exclusive" and held:
                    with pytest.raises(OverlapError) as caught:
                        table.append(rows)
                    assert caught.value.facts["buckets"] == len(held)
                    continue
                assert table.append(rows).overlap == len(held)
                added = [extent.id for extent in table.extents() if extent.id not in extents]
                stored.setdefault(added[0] if added else "", []).extend(cells)
            elif choice < 0.7 and stored.get(""):
                table.flush()
                (flushed,) = (extent.id for extent in table.extents() if extent.id not in extents)
                stored[flushed] = stored.pop("")
            elif choice < 0.8 and extents:
                gone = rng.choice(list(extents))
                lake.handle.coordinator.commit(Commit(new_id(), scope, 1, (RemoveExtent(gone),), operation="retention"))
                del stored[gone]
            elif choice < 0.9 and len(extents) > 1:
                inputs = rng.sample(list(extents.values()), 2)
                merged = merge(lake, table, inputs)
                swap: list[Action] = [*(RemoveExtent(each.id) for each in inputs), merged]
                lake.handle.coordinator.commit(Commit(new_id(), scope, 1, tuple(swap), operation="compact"))
                stored[merged.extent.id] = [cell for each in inputs for cell in stored.pop(each.id)]
            elif choice < 0.95:
                table = reopened(table, lake)
            else:
                table.repair()
            model = {cell for part in stored.values() for cell in part}
            for asked in (table, reopened(table, lake)):
                found = minutes_of(asked.coverage.held())
                assert {(device, m) for device, low, high in found for m in range(low, high)} == model


def merge(lake: Lake, table: Table, inputs: list[Any]) -> AddExtent:
    """Write the rows of some extents as one, as a compaction would that knows nothing of coverage."""
    form, own = segment_format(inputs[0].format), new_id()
    key = f"data/m/cpu/extents/{own}.tlm"
    lake.catalog.register_pending([Pending(key, lake.catalog.table(table.name).scope, "test")])
    writer = form.start_extent(lake.store, key, table.schema, extent_id=own, options=WriteOptions(time="ts"))
    for extent in inputs:
        reader = form.open_extent(lake.store, extent.key)
        for block in range(len(reader.metadata().blocks)):
            writer.append(reader.read_block(block))
    merged = stager.extent_of(writer.finish(), own, key, form.name, table.schema)
    return AddExtent(replace(merged, level=1))


def objects(lake: Lake, folder: str) -> list[str]:
    return [meta.key for meta in lake.store.list("data") if f"/coverage/{folder}/" in meta.key]


def test_united_coverage_is_written_now_and_then_and_bounds_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage_store, "UNITED_AFTER", 10)
    monkeypatch.setattr(appender, "HOT_ROWS", 0)
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
        for minute in range(45):
            table.append(rows_of("a", 2 * minute))
        assert len(objects(lake, "table")) == 4
        assert len(objects(lake, "extents")) == 45
        store = FaultyStore(lake.store)
        fresh = Lake(LakeHandle(lake.catalog, store, lake.where))
        assert fresh.table("m.cpu").coverage.gaps().num_rows == 44
        assert store.calls["get"] <= 12
        with pytest.raises(OverlapError):
            fresh.table("m.cpu").append(rows_of("a", 0))
        assert lake.catalog.pending() == []


def damage(lake: Lake, key: str, how: str) -> None:
    data = bytearray(bytes(lake.store.get(key)))
    if how == "gone":
        lake.store.delete([key])
    elif how == "flipped":
        data[len(data) // 2] ^= 4
        lake.store.put(key, bytes(data))
    elif how == "torn":
        lake.store.put(key, bytes(data[: len(data) // 2]))
    else:
        lake.store.put(key, b"")


@pytest.mark.parametrize("how", ["gone", "flipped", "torn", "empty"])
@pytest.mark.parametrize("what", ["table", "extents", "table extents"])
def test_lost_and_damaged_objects_are_made_again_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str, what: str
) -> None:
    monkeypatch.setattr(coverage_store, "UNITED_AFTER", 2)
    monkeypatch.setattr(appender, "HOT_ROWS", 0)
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
        for minute in range(5):
            table.append(rows_of("a", 2 * minute) + rows_of("b", minute))
        expected = minutes_of(table.coverage.held())
        damaged = [key for folder in what.split() for key in objects(lake, folder)[-1:]]
        for key in damaged:
            damage(lake, key, how)
        with caplog.at_level(logging.WARNING, "tidelake"):
            assert minutes_of(reopened(table, lake).coverage.held()) == expected
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == len(damaged)
        with pytest.raises(OverlapError):
            reopened(table, lake).append(rows_of("b", 3))
        report = reopened(table, lake).repair()
        assert len(report.mended) == len(damaged)
        assert {each.source for each in report.mended} <= {"rows", "the coverage of extents"}
        caplog.clear()
        with caplog.at_level(logging.WARNING, "tidelake"):
            assert minutes_of(reopened(table, lake).coverage.held()) == expected
        assert caplog.records == []
        assert reopened(table, lake).repair(thorough=True).mended == ()
        assert table.scan().read_all().num_rows == 10


def test_an_append_heals_a_lost_united_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage_store, "UNITED_AFTER", 2)
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("m.cpu", SCHEMA, **DEVICE)
        for minute in range(4):
            table.append(rows_of("a", minute))
        damage(lake, objects(lake, "table")[-1], "gone")
        monkeypatch.setattr(coverage_store, "UNITED_AFTER", 1_000)
        reopened(table, lake).append(rows_of("a", 9))
        assert reopened(table, lake).repair().mended == ()


def test_a_thorough_repair_finds_coverage_that_is_sound_and_wrong(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("m.cpu", SCHEMA, **DEVICE)
        table.append(table_of("a", range(2_000)))
        table.append(table_of("a", range(3_000, 5_000)))
        one, other = objects(lake, "extents")
        lake.store.put(one, lake.store.get(other))
        assert reopened(table, lake).repair().mended == ()
        (mended,) = reopened(table, lake).repair(thorough=True).mended
        assert (mended.key, mended.reason) == (one, "it is not what the rows cover")
        assert minutes_of(reopened(table, lake).coverage.held()) == [("a", 0, 2_000), ("a", 3_000, 5_000)]


def test_lost_rows_are_an_error_and_no_answer(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("m.cpu", SCHEMA, **DEVICE)
        table.append(table_of("a", range(2_000)))
        lake.store.delete([objects(lake, "extents")[0], table.extents()[0].key])
        with pytest.raises((CorruptError, NotFoundError, StorageError)):
            reopened(table, lake).coverage.gaps()


@pytest.mark.parametrize("mode", ["before", "after", "torn"])
@pytest.mark.parametrize("match", ["*/extents/*.tlm", "*/coverage/extents/*", "*/coverage/table/*"])
def test_a_write_that_fails_leaves_nothing_half_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any, match: str
) -> None:
    monkeypatch.setattr(coverage_store, "UNITED_AFTER", 1)
    with tidelake.connect(tmp_path / "lake") as sound:
        store = FaultyStore(sound.store)
        lake = Lake(LakeHandle(sound.catalog, store, sound.where))
        lake.handle.coordinator._patience_s = 0.0
        table = lake.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
        table.append(table_of("a", range(2_000)))
        store.add(Fault("put*", mode, match=match))
        before = table.snapshot
        with pytest.raises(StorageError):
            table.append(table_of("a", range(2_000, 4_000)))
        assert store.fired
        assert table.snapshot == before
        assert minutes_of(reopened(table, sound).coverage.held()) == [("a", 0, 2_000)]
        table.append(table_of("a", range(2_000, 4_000)))
        assert minutes_of(reopened(table, sound).coverage.held()) == [("a", 0, 4_000)]
        sound.catalog.abandon_pending(before_us=2**62)
        given_up = {each.key for each in sound.catalog.garbage(before_us=2**62)}
        head = sound.catalog.head(sound.catalog.table("m.cpu").scope)
        reachable = {extent.key for extent in table.extents()} | {e.coverage_key for e in table.extents()}
        assert not given_up & (reachable | {head.coverage.key if head.coverage else ""})


class _Killed(BaseException):
    """Stand for a process that ends here."""


STEPS = [
    "extent.registered",
    "extent.begun",
    "extent.written",
    "extent.covered",
    "coordinator.head",
    "coordinator.commit",
    "commit.begin",
    "commit.swapped",
    "transaction.written",
    "commit.end",
]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_an_append_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(coverage_store, "UNITED_AFTER", 1)  # so that it brings a united object, too
    met = []
    armed = False

    def at(point: str) -> None:
        if armed and point == step:
            met.append(point)
            raise _Killed

    (tmp_path / "lake").mkdir()
    with SqlCatalog(tmp_path / "lake" / "catalog.sqlite", at=at) as catalog:
        lake = Lake(LakeHandle(catalog, open_store(tmp_path / "lake"), "lake", at=at))
        lake.handle.coordinator._at = at
        table = lake.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
        table.append(table_of("a", range(2_000)))
        armed = True
        with pytest.raises(_Killed):
            table.append(table_of("a", range(2_000, 4_000)))
        armed = False
        assert met
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.table("m.cpu")
        rows = table.scan().read_all().num_rows
        assert rows == (4_000 if step == "commit.end" else 2_000)
        assert minutes_of(table.coverage.held()) == [("a", 0, rows)]
        if rows == 2_000:
            table.append(table_of("a", range(2_000, 4_000)))
        with pytest.raises(OverlapError, match="buckets=4000"):
            table.append(table_of("a", range(4_000)))
        assert table.repair(thorough=True).mended == ()


def test_receipts_tell_content_whatever_the_layout(folder: Lake) -> None:
    chance = np.random.default_rng(3)
    rows = [
        {**row, "v": value, "note": note}
        for row, value, note in zip(
            rows_of("a", *range(40)) + rows_of("b", *range(40)),
            [0.0, -0.0, float("nan"), None, 1.5] * 16,
            ["x", "", None, "déjà vu"] * 20,
            strict=True,
        )
    ]
    schema = {**SCHEMA, "note": "string"}
    one = folder.create_table("m.one", schema, **DEVICE)
    one.append(rows)
    many = folder.create_table("m.many", schema, **DEVICE, format="parquet")
    shuffled = [rows[at] for at in chance.permutation(len(rows))]
    for start in range(0, len(rows), 7):
        many.append(shuffled[start : start + 7])
        many.flush()
    ends = (NOON + timedelta(minutes=3), NOON + timedelta(minutes=31))
    first, second = one.coverage.receipt("a", *ends), many.coverage.receipt("a", *ends)
    assert first.content == second.content
    assert (first.rows, first.buckets, first.expected) == (28, 28, 28)
    assert len(second.extents) == 12
    assert (one.coverage.verify(first), many.coverage.verify(first)) == (True, True)
    assert one.coverage.receipt("a").content != first.content
    assert one.coverage.receipt("b", *ends).content != first.content
    one.add_column("later", "int")
    one.add_column("site", "long")
    one.append(rows_of("a", 50))
    assert one.coverage.verify(first)
    one.append(rows_of("a", 5, second=1))
    assert not one.coverage.verify(first)
    assert folder.table("m.one", snapshot=first.snapshot).coverage.verify(first)
    assert orjson.loads(orjson.dumps(first.to_json()))["content"] == first.content


def test_receipt_is_told_by_every_value_of_every_type(folder: Lake) -> None:
    schema = {"ts": "timestamp", "i": "int", "l": "long", "r": "real", "b": "bool", "s": "string", "d": "dynamic",
              "e": "vector(2)", "t": "timestamp"}  # fmt: skip
    plain = {"ts": NOON, "i": 1, "l": 2**40, "r": 0.5, "b": True, "s": "x", "d": {"a": 1}, "e": [1.0, 2.0], "t": NOON}
    other = {"i": 2, "l": 3, "r": -0.5, "b": False, "s": "y", "d": {"a": 2}, "e": [1.0, 3.0], "t": NOON - timedelta(1)}

    def content(name: str, *rows: dict[str, Any]) -> str:
        table = folder.create_table(name, schema, time="ts", bucket="1m")
        table.append(list(rows))
        return table.coverage.receipt().content

    found = {"all": content("t.all", plain), "twice": content("t.twice", plain, plain)}
    for name, value in other.items():
        found[name] = content(f"t.{name}", {**plain, name: value})
        found[f"no {name}"] = content(f"t.no_{name}", {**plain, name: None})
    assert len(set(found.values())) == len(found)
    assert content("t.again", plain) == found["all"]
    assert content("t.order", {**plain, "i": 2}, plain) == content("t.redro", plain, {**plain, "i": 2})


def test_missing_windows_fetched_again_close_the_gaps(folder: Lake) -> None:
    table = folder.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
    table.append(rows_of("a", 0, 1, 7) + rows_of("b", 3))
    span = (NOON, NOON + timedelta(minutes=10))
    for row in table.coverage.missing(*span, entities=["c"], at_most="3m").to_pylist():
        assert row["buckets"] <= 3
        first = round((row["start"] - NOON) / timedelta(minutes=1))
        table.append(rows_of(row["device"], *range(first, first + row["buckets"])))
    assert table.coverage.gaps(*span).num_rows == 0
    assert table.coverage.ratio(*span) == 1
    assert table.scan().read_all().num_rows == 30


def test_range_scans_are_in_time_order_and_half_open(folder: Lake) -> None:
    table = folder.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
    for start in (4_000, 0, 2_000):
        table.append(table_of("a", range(start, start + 2_000)))
        table.append(table_of("b", range(start, start + 2_000)))
    table.append(rows_of("a", 6_000))
    ends = (NOON + timedelta(minutes=1_500), NOON + timedelta(minutes=4_500))
    with table.scan(["ts", "device"], start=ends[0], end=ends[1], ordered=True) as reader:
        read = reader.read_all()
    times = read["ts"].to_pylist()
    assert times == sorted(times)
    assert (times[0], times[-1]) == (ends[0], ends[1] - timedelta(minutes=1))
    assert read.num_rows == 6_000
    some = table.scan(where="device == 'a'", start=ends[0], end=ends[1], ordered=True).read_all()
    assert some.num_rows == 3_000


def test_range_scans_in_time_order_read_as_they_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tidelake.connect(tmp_path / "lake") as sound:
        table = sound.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
        for start in range(0, 60_000, 1_500):
            table.append(table_of("a", range(start, start + 1_500)))
        store = FaultyStore(sound.store)
        table = Lake(LakeHandle(sound.catalog, store, sound.where)).table("m.cpu")
        plan = table.plan(["ts", "v"], ordered=True)
        store.clear()
        with scan_module.scan(plan, table.handle.footers) as reader:
            first = reader.read_next_batch()
            assert store.reads < 30  # of forty extents: no more than threads read ahead
            assert first["ts"][0].as_py() == NOON
            rest = sum(batch.num_rows for batch in reader)
        assert first.num_rows + rest == 60_000


def test_sql_asks_for_coverage_as_for_a_table(folder: Lake) -> None:
    table = folder.create_table("m.cpu", SCHEMA, **DEVICE)
    table.append(rows_of("a", 0, 1, 5) + rows_of("b", *range(6)))
    asked, whole = table.coverage, table.coverage.report("2026-01-01", "2026-01-02")
    for text, expected in (
        ("select * from gaps('m.cpu')", asked.gaps()),
        ("select * from gaps('m.cpu', least => '4m')", asked.gaps(least="4m")),
        ("select * from held('m.cpu', entity => 'b')", asked.held(entity="b")),
        ("select * from coverage('m.cpu', '2026-01-01', '2026-01-02')", whole.entities),
        ("select * from missing('m.cpu', '2026-01-01T12:00:00Z', '2026-01-01T12:06:00Z', at_most => 2)",
         asked.missing(NOON, NOON + timedelta(minutes=6), at_most=2)),
    ):  # fmt: skip
        assert folder.sql(text).to_arrow().to_pylist() == expected.to_pylist(), text
    assert folder.kql("gaps('m.cpu') | project device, buckets").to_arrow().to_pylist() == [
        {"device": "a", "buckets": 3}
    ]
    assert folder.kql("gaps('m.cpu') | count").to_arrow().to_pylist() == [{"Count": 1}]
    assert folder.sql("select max(buckets) as most from gaps('m.cpu')").to_arrow().to_pylist() == [{"most": 3}]
    lacking = "coverage('m.cpu', datetime(2026-01-01T12:00), datetime(2026-01-01T12:10)) | where ratio < 0.5 | count"
    assert folder.kql(lacking).to_arrow().to_pylist() == [{"Count": 1}]
    with pytest.raises(QueryError, match="no such table"):
        folder.kql("gaps('m.none')")
    joined = "select g.device, count(*) as n from gaps('m.cpu') g join m.cpu c on c.device = g.device group by 1"
    assert folder.sql(joined).to_arrow().to_pylist() == [{"device": "a", "n": 3}]
    table.append(rows_of("a", 2, 3, 4))
    assert folder.sql("select * from gaps('m.cpu')").to_arrow().num_rows == 0
    for text, reason in (
        ("select * from gaps('m.none')", "no such table"),
        ("select * from gaps()", "needs the name of a table"),
        ("select * from gaps('m.cpu', color => 'red')", "knows no 'color'"),
        ("select * from gaps('m.cpu', ts) from m.cpu", ""),
        ("select * from gaps('m.cpu', '2026-01-01', '2026-01-02', 'a')", "name the others"),
    ):
        with pytest.raises(QueryError) as caught:
            folder.sql(text)
        assert reason in str(caught.value)


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
        table.append(rows_of("a", *range(500), *range(600, 1000)))
        table.append(rows_of("b", *range(1000)))
        table.append(rows_of("c\x1b", *range(900, 950)))
    return tmp_path / "lake"


def run(*words: str) -> Any:
    return CliRunner().invoke(main, list(words))


def test_commands_show_people_coverage_and_gaps(shown: Path) -> None:
    where = str(shown)
    result = run("coverage", "m.cpu", "--lake", where)
    assert result.exit_code == 0, result.output
    assert "65.00% of 1m buckets held" in result.output
    assert "█" * 60 in result.output
    assert "\x1b" not in result.output
    result = run("gaps", "m.cpu", "--lake", where, "--least", "60m")
    assert "2 gaps in m.cpu" in result.output
    assert "2026-01-01T20:20:00Z" in result.output
    result = run("repair", "m.cpu", "--lake", where)
    assert "0 objects made again" in result.output


def test_coverage_with_long_names_keeps_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("m.cpu", SCHEMA, **DEVICE, coverage="exclusive")
        table.append(rows_of("arn:aws:ec2:eu-central-1:123456789012:instance/i-" + "0" * 40, *range(500)))
        table.append(rows_of("b", *range(0, 20_000, 2)))
    for width in (60, 80, 100):
        monkeypatch.setattr("tidelake.cli.commands.options.PIPE_WIDTH", width)
        told = run("coverage", "m.cpu", "--lake", str(tmp_path / "lake")).output
        assert all(len(line) <= width for line in told.splitlines())
        numbers = [
            re.findall(r"[\d.,]+%?", line.partition("…" if "…" in line else "b ")[2]) for line in told.splitlines()
        ]
        assert ["2.50%", "1", "19,499"] in numbers
        assert ["50.00%", "9,999", "1"] in numbers
        assert "arn:aws:ec2" in told


def test_a_strip_is_pooled_over_what_is_expected() -> None:
    assert pooled([1.0, 0.0, -1.0, 1.0] * 10, 20) == [0.5, 1.0] * 10
    assert pooled([-1.0, -1.0] * 10, 10) == [-1.0] * 10
    assert pooled([0.25, 1.0], 60) == [0.25, 1.0]


def test_commands_give_machines_the_same(shown: Path) -> None:
    where = str(shown)
    found = orjson.loads(run("gaps", "m.cpu", "--lake", where, "--entity", "a", "--json").output)
    assert found == [{"device": "a", "start": "2026-01-01T20:20:00Z", "end": "2026-01-01T22:00:00Z", "buckets": 100}]
    found = orjson.loads(run("coverage", "m.cpu", "--lake", where, "--json").output)
    assert (found["mode"], found["bucket"], found["ratio"]) == ("exclusive", "1m", 0.65)
    assert [entity["ratio"] for entity in found["entities"]] == [0.9, 1.0, 0.05]
    assert orjson.loads(run("repair", "m.cpu", "--lake", where, "--thorough", "--json").output)["mended"] == []


def test_commands_say_what_is_wrong(shown: Path) -> None:
    for words, reason in (
        (("gaps", "m.cpu", "--start", "2026-01-02", "--end", "2026-01-01"), "start is not before its end"),
        (("gaps", "m.cpu", "--entity", "a", "--entity", "b"), "once for each entity column"),
        (("gaps", "m.cpu", "--least", "1y"), "unknown unit"),
        (("coverage", "m.none"), "no such table"),
    ):
        result = run(*words, "--lake", str(shown))
        assert (result.exit_code, result.output.count("\n")) == (1, 1)
        assert reason in result.output


def test_a_table_with_coverage_is_made_and_filled_on_the_command_line(tmp_path: Path) -> None:
    where = str(tmp_path / "lake")
    words = ["create", "m.cpu", "ts:timestamp", "device:string", "--bucket", "1m", "--entity", "device", "--coverage"]
    assert run(*words, "exclusive", "--lake", where).exit_code == 0
    file = tmp_path / "rows.ndjson"
    file.write_text('{"ts":"2026-01-01T00:00:00Z","device":"a"}\n')
    assert run("ingest", "m.cpu", str(file), "--lake", where).exit_code == 0
    again = run("ingest", "m.cpu", str(file), "--lake", where)
    assert again.exit_code == 1
    assert "already held" in again.output


def test_gaps_of_a_named_entity_are_within_its_own_span(tmp_path: Path) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with tidelake.connect(tmp_path / "own") as lake:
        table = lake.create_table("cpu", {"ts": "timestamp", "host": "string"}, bucket="1m", entity=["host"])
        held = {"a": (0, 1, 3), "b": (10, 12)}
        table.append(
            [{"ts": noon + timedelta(minutes=at), "host": host} for host, minutes in held.items() for at in minutes]
        )
        for host, missing in (("a", 2), ("b", 11)):
            (gap,) = table.coverage.gaps(entity=host).to_pylist()
            assert (gap["start"], gap["buckets"]) == (noon + timedelta(minutes=missing), 1)
        (gap,) = table.coverage.gaps(entity="nobody").to_pylist()  # of what is not there, the table's span is missing
        assert gap["buckets"] == 13
        assert len(table.coverage.gaps(noon, noon + timedelta(minutes=13), entity="b").to_pylist()) == 2


def test_gaps_of_a_condition_are_those_of_entities_that_may_satisfy_it(folder: Lake) -> None:
    table = folder.create_table("m.cpu", SCHEMA, **DEVICE)
    table.append(rows_of("a", 0, 1, 3) + rows_of("b", 0, 3) + rows_of("c", 0, 1, 2, 3))

    def missing(where: Any) -> list[str]:
        gaps = table.coverage.gaps(where=where)
        assert table.coverage.report(where=where).entities["gaps"].to_pylist().count(0) + gaps.num_rows == (
            table.coverage.report(where=where).entities.num_rows
        )
        return [str(each) for each in gaps["device"].to_pylist()]

    assert missing("device in ('b', 'c')") == ["b"]
    assert missing(tidelake.col("device") > "a") == ["b"]
    assert missing(~(tidelake.col("device") == "b")) == ["a"]
    assert missing("device == 'a' or ts > '2026-01-01T00:00:00Z'") == ["a", "b"]  # another column decides nothing
    assert missing("device == 'z'") == []
    with pytest.raises(tidelake.InvalidInputError):
        table.coverage.gaps(where="nothing == 1")
