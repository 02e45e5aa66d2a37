"""Of many processes that see the same hot rows, one flushes them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake
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
