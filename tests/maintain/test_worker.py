"""Upkeep as pieces of work: planned once, done by one of many, tried again, and by itself in the background."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tidelake import Lake, Table
from tidelake.maintain import background, units, worker
from tidelake.maintain.worker import maintain, plan, work_once
from tidelake.model.snapshot import Fence

NOW = int(time.time())
DAY = 86_400


def filled(lake: Lake, name: str = "t", **settings: Any) -> Table:
    """A table of six small extents and a hot row."""
    table = lake.create_table(name, {"ts": "timestamp", "v": "long"}, **settings)
    for at in range(6):
        table.append([{"ts": NOW - 3000 * (6 - at) + each, "v": each} for each in range(1001)])
    table.append([{"ts": NOW, "v": -1}])
    return table


def test_what_is_due_is_planned_once_and_done(lake: Lake) -> None:
    table = filled(lake)
    (due,) = units.due_in_table(table.handle)
    assert (due.kind, due.table, len(due.payload["extents"])) == ("compact", "default.t", 6)
    first, second = plan(lake.handle), plan(lake.handle)
    assert [unit.id for unit in first] == [unit.id for unit in second]
    report = maintain(lake.handle)
    assert [(done.kind, done.said) for done in report.done] == [("compact", "6 extents became 1")]
    assert len(table.extents()) == 1
    assert len(table) == 6007
    assert str(maintain(lake.handle)) == "nothing is due"
    assert lake.catalog.work.units(state="queued") == lake.catalog.work.units(state="leased") == []


def test_hot_rows_of_a_writer_that_is_gone_are_flushed(lake: Lake) -> None:
    table = filled(lake, flush_age="1s")
    lake.handle.flusher.close()
    time.sleep(1.1)
    kinds = [due.kind for due in units.due_in_table(table.handle)]
    assert kinds == ["flush", "compact"]
    maintain(lake.handle)
    assert table.snapshot.totals.hot_rows == 0
    assert len(table) == 6007


def test_old_rows_and_snapshots_leave(lake: Lake) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "v": "long"}, retention="10d", history="1s")
    table.append([{"ts": NOW - 20 * DAY + at, "v": at} for at in range(1500)])
    table.append([{"ts": NOW - DAY + at, "v": at} for at in range(1500)])
    time.sleep(1.1)
    assert {done.kind for done in lake.maintain().done} == {"retain", "expire"}
    assert len(table) == 1500
    time.sleep(1.1)  # until the state before has been the past for a second
    report = lake.maintain()
    assert {done.kind for done in report.done} == {"expire", "collect"}
    assert len(list(Path(lake.where).rglob("*.tlm"))) == 1
    assert report.bytes_freed > 0


def test_two_workers_do_not_do_the_same_work(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake") as one, tidelake.connect(tmp_path / "lake") as two:
        table = filled(one)
        plan(one.handle)
        steps: list[worker.Step | None] = []
        threads = [
            threading.Thread(target=lambda lake=lake: steps.append(work_once(lake.handle))) for lake in (one, two)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(step is not None for step in steps) == 1
        assert len(table.extents()) == 1


def test_a_piece_that_fails_is_tried_again_and_then_told_of(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "RETRY_S", 0.0)
    table = filled(lake)
    lost = Path(lake.where) / table.extents()[0].key
    data = lost.read_bytes()
    lost.unlink()
    for _ in range(5):
        report = lake.maintain()
        assert len(report.failed) == 1
        assert "compact failed" in report.failed[0]
        assert len(table.extents()) == 6
    assert lake.status().to_pylist()[0]["failed"] == 1
    lost.write_bytes(data)
    (unit,) = lake.catalog.work.units(state="dead")
    assert unit.attempts == 5
    assert lake.maintain().failed == ()
    assert len(table.extents()) == 1


def test_a_worker_that_lost_its_lease_cannot_commit(lake: Lake) -> None:
    table = filled(lake)
    (unit,) = plan(lake.handle)
    slow = lake.catalog.work.claim([unit.kind], owner="slow", lease_us=1)
    assert slow is not None
    time.sleep(0.01)
    fast = lake.catalog.work.claim([unit.kind], owner="fast", lease_us=60_000_000)
    assert fast is not None
    due = worker._due_of(slow)
    with pytest.raises(tidelake.ConflictError, match="lease"):
        units.do(lake.handle, due, fence=Fence(slow.id, slow.token))
    assert len(table.extents()) == 6
    assert units.do(lake.handle, due, fence=Fence(fast.id, fast.token)).said
    assert len(table.extents()) == 1


def test_upkeep_happens_by_itself_after_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.lake.LOOK_AFTER_S", 0.01)
    with tidelake.connect(tmp_path / "lake") as lake:
        table = filled(lake)
        until = time.monotonic() + 20
        while len(table.extents()) > 3 and time.monotonic() < until:  # four at a time, or all six
            time.sleep(0.05)
        assert len(table.extents()) <= 3
        assert len(table) == 6007


def test_a_look_that_found_nothing_is_not_repeated_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "v": "long"})
    monkeypatch.setattr(background, "RESTS", 1e6)
    assert background.step(table.handle) is None
    again_s = background.step(table.handle)
    assert again_s is not None
    assert again_s > 1


def test_upkeep_can_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.lake.LOOK_AFTER_S", 0.0)
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        assert len(filled(lake).extents()) == 6
        assert ("upkeep", lake.table("t").handle.scope) not in lake.handle.flusher._due
    with tidelake.connect(tmp_path / "lake") as lake:
        own = filled(lake, "own", upkeep=False)
        assert ("upkeep", own.handle.scope) not in lake.handle.flusher._due
        background.at_parting(own.handle)
        assert len(own.extents()) == 6


def test_a_worker_stops_when_told(lake: Lake) -> None:
    filled(lake)
    stop = threading.Event()
    told: list[str] = []
    count = worker.work(lake.handle, stop=stop, until_idle=True, tell=lambda step: told.append(step.done.said))
    assert count >= 1
    assert "6 extents became 1" in told
    stop.set()
    assert worker.work(lake.handle, stop=stop) == 0


def test_status_shows_every_table(lake: Lake) -> None:
    filled(lake, "a")
    lake.create_table("b", {"v": "long"})
    shown = {row["table"]: row for row in lake.status().to_pylist()}
    assert set(shown) == {"default.a", "default.b"}
    row = shown["default.a"]
    assert (row["rows"], row["extents"], row["small_extents"], row["overlap"]) == (6007, 6, 6, 1)
    assert (row["hot_rows"], row["hot_batches"], row["snapshots"]) == (1, 1, 8)
    assert row["due"] == ["compact"]
    assert shown["default.b"]["due"] == []
    lake.table("a").pin("audit")
    assert lake.status().to_pylist()[0]["pins"] == 1
