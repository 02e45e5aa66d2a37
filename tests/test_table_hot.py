"""Check hot rows: small appends, flushes by size, age and hand, and that a kill anywhere loses and doubles nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.rows import Row, exact, rows_of
from tidelake.catalog import open_catalog
from tidelake.errors import CorruptError, InvalidInputError
from tidelake.handle.flusher import Flusher
from tidelake.handle.lake_handle import LakeHandle
from tidelake.lake import Lake
from tidelake.objects import open_store
from tidelake.scan import hot
from tidelake.table import Table
from tidelake.write import flush as flushing

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WITHIN_S = 60
FLUSH_STEPS = (
    "flush.listed",
    "extent.registered",
    "extent.begun",
    "extent.written",
    "flush.written",
    "flush.committed",
)


@pytest.fixture
def points(lake: Lake) -> Table:
    return lake.create_table("m.points", {"ts": "timestamp", "host": "string", "value": "real"}, flush_age="off")


def point_rows(first: int, count: int = 10) -> list[dict[str, Any]]:
    return [
        {"ts": NOON + timedelta(seconds=n), "host": f"h-{n % 3}", "value": n + 0.5} for n in range(first, first + count)
    ]


def values(points: Table) -> list[float]:
    return sorted(points.scan(["value"]).read_all()["value"].to_pylist())


def scanned(points: Table, names: list[str]) -> list[Row]:
    return exact(rows_of(pa.concat_batches(list(points.scan(names)))))


def eventually(holds: Any) -> None:
    until = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.02)


def test_hot_rows_are_read_together_whatever_their_schema(points: Table) -> None:
    for n in range(0, 50, 10):
        points.append(point_rows(n))
    points.append([{**row, "region": "eu"} for row in point_rows(50)])
    points.append(pa.Table.from_pylist(point_rows(60), schema=points.schema.arrow))
    assert values(points) == [n + 0.5 for n in range(70)]
    found = points.scan(["value", "region"], "host == 'h-1'", ordered=True).read_all()
    assert found["value"].to_pylist() == [n + 0.5 for n in range(70) if n % 3 == 1]
    assert found["region"].to_pylist() == ["eu" if 50 <= n < 60 else None for n in range(70) if n % 3 == 1]
    assert points.scan([]).read_all().num_rows == 70


def test_hot_rows_that_are_not_readable_are_an_error_that_names_them(points: Table) -> None:
    for n in range(3):
        points.append(point_rows(n))
    batches = points.handle.catalog.hot(points.handle.scope)
    for spoilt in (batches[1].payload[:40], b"", batches[1].payload[: len(batches[1].payload) // 2]):
        with pytest.raises(CorruptError, match=batches[1].id):
            hot.hot_rows([batches[0], replace(batches[1], payload=spoilt), batches[2]])
    with pytest.raises(CorruptError, match=batches[1].id):
        hot.hot_rows([batches[0], replace(batches[1], rows=9), batches[2]])


def test_a_few_rows_of_a_large_table_stay_hot(points: Table) -> None:
    large = pa.Table.from_pylist(point_rows(0, 30_000), schema=points.schema.arrow)
    assert points.append(large.slice(7, 10)).extents == 0
    assert values(points) == [n + 0.5 for n in range(7, 17)]


def test_append_on_a_head_that_others_moved_is_rebased(lake: Lake, points: Table) -> None:
    points.append(point_rows(0))
    with tidelake.connect(lake.where) as other:
        theirs = other.table("m.points")
        theirs.add_column("region", "string")
        theirs.flush()
        theirs.append(point_rows(10))
        report = points.append([{**row, "region": [7]} for row in point_rows(20)])
        assert (report.rows, report.overflowed) == (10, 0)
        assert str(points.schema["region"].type) == "dynamic"  # text, and what is nested: the wider
        assert values(points) == values(theirs) == [n + 0.5 for n in range(30)]


@pytest.mark.parametrize(
    "change",
    [
        {"value": None},
        {"value": 3},
        {"value": 2**60 + 1},
        {"value": True},
        {"host": 5},
        {"extra": "new"},
        {"value": float("nan")},
        {"ts": "2026-01-01T00:00:00Z"},
    ],
    ids=str,
)
def test_append_of_dicts_gives_the_same_rows_however_alike_they_are(lake: Lake, change: dict[str, Any]) -> None:
    columns = {"ts": "timestamp", "host": "string", "value": "real", "small": "int"}
    rows = [{**row, "small": n} for n, row in enumerate(point_rows(0, 5))]
    rows[2] = {**rows[2], **change}
    mixed = [dict(reversed(row.items())) if n % 2 else row for n, row in enumerate(rows)]
    first, second = (lake.create_table(name, columns, time="ts", flush_age="off") for name in ("alike", "mixed"))
    assert first.append(rows).overflowed == second.append(mixed).overflowed
    assert {str(column) for column in first.schema} == {str(column) for column in second.schema}
    names = list(first.schema.names)
    assert scanned(first, names) == scanned(second, names)


def test_hot_rows_are_flushed_by_age_in_the_background(lake: Lake) -> None:
    points = lake.create_table("aged", {"ts": "timestamp", "value": "real"}, flush_age="1s")
    assert points.append(point_rows(0)).extents == 0
    eventually(lambda: points.snapshot.totals.hot_rows == 0)
    assert [extent.row_count for extent in points.extents()] == [10]
    assert values(points) == [n + 0.5 for n in range(10)]
    points.append(point_rows(10))
    eventually(lambda: points.snapshot.totals.hot_rows == 0)
    assert values(points) == [n + 0.5 for n in range(20)]


def test_hot_rows_are_flushed_in_the_background_once_they_are_many(
    points: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushing, "FLUSH_ROWS", 50)
    for n in range(0, 70, 10):
        points.append(point_rows(n))
    eventually(lambda: points.snapshot.totals.hot_rows < 50)
    assert values(points) == [n + 0.5 for n in range(70)]


def test_flush_age_is_checked_and_kept(lake: Lake, points: Table) -> None:
    assert lake.table("m.points").snapshot.settings["flush_age"] == "off"
    with pytest.raises(InvalidInputError, match="duration"):
        lake.create_table("bad", {"ts": "timestamp"}, flush_age="soon")
    assert lake.tables() == ["m.points"]


def test_flusher_tries_again_and_never_raises() -> None:
    flusher = Flusher()
    calls: list[int] = []

    def flush() -> float | None:
        calls.append(len(calls))
        if len(calls) == 1:
            return 0.0
        if len(calls) == 2:
            raise KeyError("gone")
        return None

    flusher.notice("owner", flush, 0.0)
    eventually(lambda: len(calls) == 2)
    flusher.notice("other", lambda: calls.append(-1), 0.0)
    eventually(lambda: calls[-1] == -1)
    flusher.close()
    flusher.notice("late", lambda: calls.append(-2), 0.0)
    assert calls == [0, 1, -1]


def test_a_process_with_hot_rows_ends_at_once(tmp_path: Path) -> None:
    script = (
        "import tidelake\n"
        f"lake = tidelake.connect({str(tmp_path / 'lake')!r})\n"
        "t = lake.create_table('m', {'ts': 'timestamp'})\n"
        "t.append([{'ts': 1773489601}])\n"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=WITHIN_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 30  # and not after the flush, which is due in a minute
    with tidelake.connect(tmp_path / "lake") as lake:
        assert lake.table("m").scan().read_all().num_rows == 1


def _flush_and_die(folder: str, step: str) -> None:
    """Flush, and be killed at a step."""

    def at(point: str) -> None:
        if point == step:
            os.kill(os.getpid(), signal.SIGKILL)

    lake = Lake(LakeHandle(open_catalog(Path(folder)), open_store(folder), folder, at=at))
    lake.table("m.points").flush()


@pytest.mark.parametrize("step", FLUSH_STEPS)
def test_flush_killed_at_any_step_leaves_each_row_readable_once(lake: Lake, points: Table, step: str) -> None:
    for n in range(0, 30, 10):
        points.append(point_rows(n), key=f"batch-{n}")
    doomed = multiprocessing.get_context("fork").Process(target=_flush_and_die, args=(lake.where, step))
    doomed.start()
    doomed.join(WITHIN_S)
    assert doomed.exitcode == -signal.SIGKILL
    assert values(points) == [n + 0.5 for n in range(30)]
    assert points.snapshot.totals.hot_rows == (0 if step == "flush.committed" else 30)
    assert points.append(point_rows(0), key="batch-0").replayed
    points.append(point_rows(30))
    points.flush()
    assert values(points) == [n + 0.5 for n in range(40)]
    assert points.snapshot.totals.hot_rows == 0


def test_two_flushes_at_once_write_each_row_once(lake: Lake, points: Table) -> None:
    points.append(point_rows(0))
    with tidelake.connect(lake.where) as other:
        theirs = other.table("m.points")

        def overtake(step: str) -> None:
            if step == "flush.written":
                assert theirs.flush().rows == 10

        ours = Table(replace(points.handle, lake=replace(points.handle.lake, at=overtake)))
        assert ours.flush().rows == 0
    assert values(points) == [n + 0.5 for n in range(10)]
    assert len(points.extents()) == 1
