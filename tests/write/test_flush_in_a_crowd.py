"""Of many processes that see the same hot rows, one flushes them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

import tidelake
from tidelake import Lake
from tidelake.errors import StorageError
from tidelake.runtime.processes import is_gone
from tidelake.write import flush as flushing


def test_one_of_many_flushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "FLUSH_BATCHES", 3)
    monkeypatch.setattr(flushing, "SPREAD_S", 0.0)
    with tidelake.connect(tmp_path / "lake") as one, tidelake.connect(tmp_path / "lake") as two:
        first = one.create_table("t", {"ts": "timestamp", "v": "long"}, flush_age="off", upkeep=False)
        second = two.table("t")
        for at in range(2):
            for table in (first, second):
                table.append([{"ts": 1_790_000_000 + at, "v": at}])
        assert second.handle.coordinator.is_crowded(second.handle.scope)
        kind = f"flush.{second.handle.info.id}"
        work = one.catalog.work
        unit = work.enqueue(kind, "default.t", {})
        held = work.claim([kind], owner="another process", lease_us=60_000_000)
        assert held is not None
        flushing._flush_if_full(second.handle)
        assert second.snapshot.totals.hot_batches == 4  # another process has it
        work.complete(held)
        flushing._flush_if_full(second.handle)
        assert (second.snapshot.totals.hot_batches, len(second)) == (0, 4)
        assert [each.state for each in work.units(kind=kind)] == ["done", "done"]
        assert unit.id != work.units(kind=kind)[0].id


def die_while_flushing(folder: str) -> None:
    """Be one of two that write, and be killed when the hot rows are listed."""

    def at(step: str) -> None:
        if step == "flush.listed":
            os.kill(os.getpid(), signal.SIGKILL)

    with tidelake.connect(folder, upkeep=False) as other:
        table = Lake(replace(other.handle, at=at)).table("t")
        for at_once in (table, other.table("t"), table):
            at_once.append([{"ts": 1_790_000_000, "v": 1}])
        flushing.FLUSH_BATCHES = 1
        flushing._flush_if_full(table.handle)


def test_a_process_that_was_killed_while_it_flushed_for_all_keeps_nobody_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "lake")
    with tidelake.connect(folder, upkeep=False) as lake, tidelake.connect(folder, upkeep=False) as other:
        table = lake.create_table("t", {"ts": "timestamp", "v": "long"}, flush_age="off")
        table.append([{"ts": 1_790_000_000, "v": 0}])
        killed = multiprocessing.get_context("forkserver").Process(target=die_while_flushing, args=(folder,))
        killed.start()
        killed.join(120)
        assert killed.exitcode == -signal.SIGKILL
        (unit,) = lake.catalog.work.units()
        assert (unit.state, is_gone(unit.owner or "")) == ("leased", True)
        other.table("t").append([{"ts": 1_790_000_000, "v": 3}])
        table.append([{"ts": 1_790_000_000, "v": 4}])
        assert table.handle.coordinator.is_crowded(table.handle.scope)
        monkeypatch.setattr(flushing, "FLUSH_BATCHES", 1)
        flushing._flush_if_full(table.handle)
        assert (table.snapshot.totals.hot_batches, len(table)) == (0, 6)
        assert [each.state for each in lake.catalog.work.units()] == ["done"]


def test_a_flush_that_failed_lets_others_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(step: str) -> None:
        if step == "flush.listed":
            raise StorageError("no room")

    folder = tmp_path / "lake"
    with tidelake.connect(folder, upkeep=False) as lake, tidelake.connect(folder, upkeep=False) as other:
        table = lake.create_table("t", {"ts": "timestamp", "v": "long"}, flush_age="off")
        failing = Lake(replace(other.handle, at=at)).table("t")
        for each in (table, failing, table, failing):
            each.append([{"ts": 1_790_000_000, "v": 0}])
        monkeypatch.setattr(flushing, "FLUSH_BATCHES", 1)
        with pytest.raises(StorageError, match="no room"):
            flushing._flush_if_full(failing.handle)
        assert len(lake.catalog.work.units()) == 1
        flushing._flush_if_full(table.handle)
        assert table.snapshot.totals.hot_batches == 0


def test_a_process_alone_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "FLUSH_BATCHES", 3)
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        table = lake.create_table("t", {"ts": "timestamp", "v": "long"}, flush_age="off")
        for at in range(20):
            table.append([{"ts": 1_790_000_000 + at, "v": at}])
        assert not table.handle.coordinator.is_crowded(table.handle.scope)
        assert table.snapshot.totals.hot_batches <= 13
        assert lake.catalog.work.units() == []
        assert len(table) == 20
