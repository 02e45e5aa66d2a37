"""Compaction: the same rows in fewer, fuller, sorted extents, and never more work than it is worth."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tidelake import Lake, Table
from tidelake.errors import InvalidInputError, SchemaError
from tidelake.maintain import choice, compact
from tidelake.maintain.choice import depth_of, runs_of
from tidelake.model.snapshot import Extent

BASE = 1_700_000_000
DAY_NS = 86_400_000_000_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return tidelake.connect(tmp_path / "lake")


def rows(offset: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"ts": BASE + offset + at, "k": f"k{at % 5}", "v": at, "d": {"x": [at % 7]}, **more} for at in range(count)]


def held(table: Table) -> Counter[str]:
    return Counter(repr(row) for row in table.to_arrow().to_pylist())


def made(lake: Lake, **settings: Any) -> Table:
    columns = {"ts": "timestamp", "k": "string", "v": "long", "d": "dynamic"}
    return lake.create_table("t", columns, time="ts", **settings)


def extent(at: int, size: int, *, low: int | None = None, span: int = 1, level: int = 0) -> Extent:
    low = at * 10 if low is None else low
    return Extent(f"e{at}", f"k{at}", "tlm", size, 10, 1, low, low + span, 1, level=level)


def test_compaction_keeps_every_row_and_older_snapshots(lake: Lake) -> None:
    table = made(lake)
    chance = random.Random(1)
    for at in range(12):
        table.append(rows(at * 1100 if at % 3 else chance.randrange(12_000), 1100, **({"new": at} if at > 5 else {})))
    table.append([{"ts": BASE, "k": "misfit", "v": "text"}])
    before, past = held(table), table.snapshot.sequence
    report = table.compact()
    assert (report.runs, report.extents, report.written) == (1, 12, 1)
    assert held(table) == before
    (extent,) = table.extents()
    assert extent.level == 1
    times = table.scan(["ts"], where="k != 'misfit'").read_all()["ts"].to_pylist()
    assert times == sorted(times)
    assert held(lake.table("t", snapshot=past)) == before
    assert table.compact().runs == 0


@pytest.mark.parametrize("form", ["tlm2", "tlm3"])
def test_rows_are_sorted_in_slices_that_fit_in_memory(lake: Lake, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    table = made(lake, format=form)
    chance = random.Random(2)
    for _ in range(10):
        table.append(rows(chance.randrange(3000), 1500))
    table.append([{"ts": BASE + 1000, "k": f"same{at}", "v": at} for at in range(3000)])
    before = held(table)
    monkeypatch.setattr(compact, "SLICE_BYTES", 60_000)  # of rows in memory, whatever they are stored in
    head = table.snapshot
    slices = compact._slices(compact._blocks(table.handle.footers, table.extents(), "ts"))
    assert len(slices) > 5
    assert (slices[0][0], slices[-1][1]) == (None, None)
    compact.compact_run(table.handle, head, table.extents())
    assert held(table) == before
    times = table.scan(["ts"]).read_all()["ts"].to_pylist()
    assert times == sorted(times)


def test_rows_are_clustered(lake: Lake) -> None:
    table = made(lake, cluster_by=["k"])
    for at in range(5):
        table.append(rows(at * 1100, 1100))
    table.compact()
    pairs = [(row["k"], row["ts"]) for row in table.scan(["k", "ts"]).read_all().to_pylist()]
    assert pairs == sorted(pairs)
    with pytest.raises(SchemaError, match="cannot be sorted"):
        lake.create_table("bad", {"ts": "timestamp", "d": "dynamic"}, cluster_by="d")


def test_a_table_without_time_is_compacted_in_the_order_of_its_commits(lake: Lake) -> None:
    table = lake.create_table("plain", {"v": "long"})
    for at in range(5):
        table.append([{"v": at * 2000 + each} for each in range(2000)])
    table.compact()
    assert len(table.extents()) == 1
    assert table.to_arrow()["v"].to_pylist() == list(range(10_000))


def test_coverage_and_hot_rows_stay(lake: Lake) -> None:
    table = lake.create_table(
        "c", {"ts": "timestamp", "dev": "string"}, bucket="1m", entity="dev", coverage="exclusive"
    )
    for at in range(4):
        table.append([{"ts": BASE + at * 120_000 + 60 * each, "dev": "a"} for each in range(1001)])
    table.append([{"ts": BASE + 10_000_000, "dev": "a"}])
    before = table.coverage.gaps().to_pylist()
    assert table.compact().written == 1
    assert table.coverage.gaps().to_pylist() == before
    assert table.coverage.gaps().num_rows == 4
    with pytest.raises(tidelake.OverlapError):
        table.append([{"ts": BASE + 60, "dev": "a"}])
    table.delete(f"ts < {BASE + 100_000}")
    assert table.append([{"ts": BASE + 60, "dev": "a"}]).rows == 1


def test_compaction_brings_a_table_to_its_format(lake: Lake) -> None:
    table = made(lake, format="parquet")
    for at in range(4):
        table.append(rows(at * 1100, 1100))
    before = held(table)
    table.compact()
    assert [each.format for each in table.extents()] == ["parquet"]
    assert held(table) == before


def test_a_run_whose_inputs_are_gone_is_dropped(lake: Lake) -> None:
    table = made(lake)
    for at in range(4):
        table.append(rows(at * 1100, 1100))
    head, run = table.snapshot, table.extents()
    table.delete("v < 10")
    report = compact.compact_run(table.handle, head, run)
    assert (report.runs, report.skipped) == (0, 1)
    assert len(table) == 4 * 1090
    assert lake.catalog.pending() == []
    with pytest.raises(InvalidInputError, match="can only be read"):
        table.pinned().compact()


def test_appends_do_not_disturb_a_compaction(lake: Lake) -> None:
    table = made(lake)
    for at in range(4):
        table.append(rows(at * 1100, 1100))
    head, run = table.snapshot, table.extents()
    table.append(rows(50_000, 1200, fresh=True))
    assert compact.compact_run(table.handle, head, run).runs == 1
    assert len(table) == 5600


def test_neighbours_are_joined_and_full_extents_left_alone() -> None:
    full = choice.SMALL_BYTES
    found = [extent(0, 100), extent(1, 100), extent(2, 100), extent(3, 100), extent(4, full), extent(5, 100)]
    assert [[each.id for each in run] for run in runs_of(found, rows=10**6)] == [["e0", "e1", "e2", "e3"]]
    assert runs_of(found[4:], rows=10**6) == []
    assert runs_of(found[:3], rows=10**6) == []
    assert len(runs_of(found[:3], rows=10**6, fewest=2)) == 1


def test_an_extent_that_is_full_in_memory_is_left_alone_however_few_bytes_it_has() -> None:
    unpacked = choice.SMALL.unpacked_bytes
    full = [replace(extent(at, 100), unpacked_bytes=unpacked) for at in range(8)]
    assert runs_of(full, rows=10**6, fewest=2) == []
    assert len(runs_of([replace(each, unpacked_bytes=None) for each in full], rows=10**6)) == 1  # nobody noted it
    assert len(runs_of([replace(each, unpacked_bytes=unpacked // 100) for each in full], rows=10**6)) == 1
    most = [replace(full[0], unpacked_bytes=unpacked // 2), *(extent(at, 100) for at in range(1, 6))]
    assert [[each.id for each in run] for run in runs_of(most, rows=10**6)] == [["e1", "e2", "e3", "e4", "e5"]]


def test_an_extent_that_is_most_of_a_run_is_left_out() -> None:
    found = [extent(0, 1000), *(extent(at, 10) for at in range(1, 6))]
    assert [[each.id for each in run] for run in runs_of(found, rows=10**6)] == [["e1", "e2", "e3", "e4", "e5"]]


def test_what_overlaps_deeply_is_sorted_apart() -> None:
    full = choice.SMALL_BYTES
    found = [extent(at, full, low=at, span=100) for at in range(20)]
    assert depth_of(found) == 20
    assert sum(len(run) for run in runs_of(found, rows=10**6)) == 20
    assert runs_of(found[: choice.MAX_DEPTH], rows=10**6) == []


def test_windows_of_a_retention_are_not_joined() -> None:
    found = [extent(at, 100, low=at * DAY_NS // 4) for at in range(8)]
    runs = runs_of(found, rows=10**6, window_ns=DAY_NS)
    assert [[each.id for each in run] for run in runs] == [["e0", "e1", "e2", "e3"], ["e4", "e5", "e6", "e7"]]


@pytest.mark.parametrize("seed", range(3))
def test_no_byte_is_written_more_often_than_the_logarithm(seed: int) -> None:
    """Whatever arrives, in order or late, each byte is written again at most as often as the count has digits."""
    chance = random.Random(seed)
    live: list[Extent] = []
    written = total = 0
    for at in range(3000):
        size = chance.randrange(1_000, 100_000)
        low = at * 10 if seed else chance.randrange(30_000)
        live.append(extent(at, size, low=low, span=chance.choice([1, 10, 5000])))
        total += size
        for run in runs_of(live, rows=10 * (at + 1)):
            taken = {each.id for each in run}
            live = [each for each in live if each.id not in taken]
            size, level = sum(each.byte_size for each in run), max(each.level for each in run) + 1
            low, high = min(each.min_ts_ns or 0 for each in run), max(each.max_ts_ns or 0 for each in run)
            live.append(Extent(f"c{at}-{len(live)}", "k", "tlm", size, 10 * len(run), 1, low, high, 1, level=level))
            written += size
    assert max(each.level for each in live) <= math.log2(30_000) + 1
    assert written <= 8 * total
    assert len(live) < 200
