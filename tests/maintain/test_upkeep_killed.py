"""Kill upkeep at every step that has a name: the rows are those before it or after it, and a second run ends the work.

A step is a place of the code that calls a hook, of the rewrites as well as of the catalog below them. Each piece of
work is run once to count its steps, and then again and again in a process that is killed at one of them. It does not
kill two at once: see the soak.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import tidelake
from tests.support.catalogs import fresh_schema
from tests.support.upkeep import check_store, make_small
from tidelake import Lake
from tidelake.catalog.log.log_catalog import LogCatalog
from tidelake.catalog.protocol import StepHook, no_hook
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.handle import leases
from tidelake.maintain.retention import retain
from tidelake.maintain.worker import plan, work_once

TABLE = "m.t"
HOUR = 3600
NOW_S = int(time.time()) // HOUR * HOUR
BASE = NOW_S - 12 * HOUR
COLUMNS = {"ts": "timestamp", "id": "long", "k": "string", "v": "long"}
NOW: dict[str, Any] = {"abandoned_after": "0s", "orphan_after": "0s"}
LEASE_S = 0.2
WITHIN_S = 60
WAYS = ("sqlite", "log", "postgres")

Open: TypeAlias = Callable[[StepHook], Lake]
Step: TypeAlias = tuple[str, int]  # the name of a step, and how often it was passed before


def rows(first: int, count: int, hour: float, hours: float = 1) -> list[dict[str, Any]]:
    return [
        {"ts": BASE + int((hour + hours * at / count) * HOUR), "id": first + at, "k": "ab"[at % 2], "v": at}
        for at in range(count)
    ]


def filled(lake: Lake) -> None:
    """Make a table of extents and hot rows, some of them old, with a pin, garbage, and a table that was dropped.

    Retention ends at hour 6 if the clock stands still, and later as it goes on: no row lies within the hours after.
    """
    table = lake.create_table(
        TABLE, COLUMNS, time="ts", bucket="1h", retention="6h", history="100ms", flush_age="100ms", upkeep=False
    )
    table.append(rows(0, 20, 1))
    table.append([*rows(100, 10, 4, 1.9), *rows(110, 10, 8.5, 0.4)])
    table.delete("id == 3")
    table.expire("0s")
    table.pin("kept")
    table.delete("id == 110")
    table.append(rows(200, 20, 8))
    for first in (300, 320, 340, 360):
        table.append(rows(first, 20, 9, 0.1))
    table.append(rows(400, 5, 2))
    table.append(rows(500, 5, 10))
    if not lake.where.startswith("log:"):  # which holds one table
        lake.create_table("m.gone", COLUMNS).append(rows(0, 20, 1))
        lake.drop_table("m.gone")


def delete(lake: Lake) -> None:
    lake.table(TABLE).delete("k == 'a'")


def purge(lake: Lake) -> None:
    lake.table(TABLE).delete("k == 'b'", purge=True)


def replace_rows(lake: Lake) -> None:
    start = BASE + 8 * HOUR
    lake.table(TABLE).replace(rows(900, 30, 8, 1.9), start=start, end=start + 2 * HOUR, key="once")


def restore(lake: Lake) -> None:
    table = lake.table(TABLE)
    table.restore(table.pins()[0].sequence)


def undo(lake: Lake) -> None:
    table = lake.table(TABLE)
    if any(snapshot.operation == "undo" for snapshot in table.history()):
        return  # it was done
    table.undo(table.pins()[0].sequence + 3)


def compact(lake: Lake) -> None:
    lake.table(TABLE).compact()


def flush(lake: Lake) -> None:
    lake.table(TABLE).flush()


def retained(lake: Lake) -> None:
    retain(lake.table(TABLE).handle, at_us=NOW_S * 1_000_000)


def expire(lake: Lake) -> None:
    lake.table(TABLE).expire("0s")


def collect(lake: Lake) -> None:
    lake.collect(**NOW)


def work(lake: Lake) -> None:
    """Plan and do what is due, until nothing is, as a worker does whose leases are short."""
    for _ in range(20):
        plan(lake.handle)
        found = False
        while (step := work_once(lake.handle, lease_s=LEASE_S)) is not None:
            assert step.error is None, step.error
            found = found or bool(step.done.said)
        if not found:
            return


WORKS = {
    each.__name__: each
    for each in (delete, purge, replace_rows, restore, undo, compact, flush, retained, expire, collect, work)
}
FEW: tuple[tuple[str, str], ...] = (
    ("delete", "extent.written"),
    ("delete", "rewrite.committed"),
    ("replace_rows", "rewrite.written"),
    ("restore", "rewrite.read"),
    ("compact", "extent.covered"),
    ("flush", "flush.written"),
    ("work", "work.claimed"),
    ("work", "work.done"),
    ("expire", "transaction.written"),
)


@pytest.fixture
def fresh(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Open]:
    """Return how to make a new lake of a sort, and with it how to open it, calling a hook at every step."""
    make_small(monkeypatch)
    for name, seconds in (("LEASE_S", LEASE_S), ("RENEW_S", LEASE_S / 2), ("LINGER_S", LEASE_S / 2)):
        monkeypatch.setattr(leases, name, seconds)

    def make(way: str) -> Open:
        folder = tmp_path / secrets.token_hex(6)
        address = fresh_schema(request.getfixturevalue("postgres")) if way == "postgres" else None

        def opened(at: StepHook) -> Lake:
            if address is not None:
                handle = tidelake.connect(address, objects=folder, upkeep=False).handle
                catalog: Any = SqlCatalog(address, at=at)
            elif way == "log":
                handle = tidelake.connect(f"log:{folder}", upkeep=False).handle
                catalog = LogCatalog(handle.store, at=at)
            else:
                handle = tidelake.connect(folder, upkeep=False).handle
                catalog = SqlCatalog(next(folder.glob("*.sqlite")), at=at)
            handle.catalog.close()
            return Lake(replace(handle, catalog=catalog, at=at))

        with opened(no_hook) as lake:
            filled(lake)
        return opened

    return make


def numbers(lake: Lake, snapshot: int | None = None) -> list[int]:
    return sorted(lake.table(TABLE, snapshot=snapshot).scan(columns=["id"]).read_all()["id"].to_pylist())


def wait_for(do: Callable[[Lake], None]) -> None:
    """Wait until the hot rows and the snapshots are old enough for a worker."""
    time.sleep(0.2 if do is work else 0)


def counted(opened: Open, do: Callable[[Lake], None]) -> tuple[list[Step], list[int]]:
    """Do a piece of work; return its steps, and the rows that are there after it."""
    steps: list[Step] = []
    seen: Counter[str] = Counter()

    def at(point: str) -> None:
        if threading.current_thread() is threading.main_thread():  # how often a lease is prolonged is up to the clock
            steps.append((point, seen[point]))
            seen[point] += 1

    with opened(at) as lake:
        wait_for(do)
        steps.clear()
        seen.clear()
        do(lake)
        found = list(steps)
        return found, numbers(lake)


def _do_and_die(opened: Open, do: Callable[[Lake], None], step: Step) -> None:
    left: list[int] = []

    def at(point: str) -> None:
        if left and point == step[0] and threading.current_thread() is threading.main_thread():
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    lake = opened(at)
    left.append(step[1])
    do(lake)
    os._exit(0)


def check_killed(opened: Open, do: Callable[[Lake], None], step: Step, after: list[int]) -> bool:
    """Kill a piece of work at a step, look, do it again, and look again; return whether it came to that step."""
    with opened(no_hook) as lake:
        before = numbers(lake)
        wait_for(do)
        (kept,) = lake.table(TABLE).pins()
        pinned = numbers(lake, kept.sequence)
        doomed = multiprocessing.get_context("fork").Process(target=_do_and_die, args=(opened, do, step))
        doomed.start()
        doomed.join(WITHIN_S)
        assert doomed.exitcode in (0, -signal.SIGKILL), step
        found = numbers(lake)
        assert len(lake.table(TABLE)) == len(found)
        assert found in (before, after) or do is work, step  # which is several pieces
        assert set(found) <= set(before) | set(after)
        check_store(lake, quiet=False)
        time.sleep(LEASE_S)  # until those of the dead are over
        with opened(no_hook) as other:
            do(other)
        assert numbers(lake) == after, step
        assert numbers(lake, kept.sequence) == pinned
        lake.collect(**NOW)
        check_store(lake)
        assert [*lake.catalog.pending(), *lake.catalog.garbage(before_us=2**60)] == []
        assert numbers(lake) == after
        assert numbers(lake, kept.sequence) == pinned
        return doomed.exitcode != 0


@pytest.mark.parametrize(("name", "point"), FEW, ids=map("-".join, FEW))
def test_upkeep_that_is_killed_changes_all_or_nothing(fresh: Callable[[str], Open], name: str, point: str) -> None:
    _, after = counted(fresh("sqlite"), WORKS[name])
    assert check_killed(fresh("sqlite"), WORKS[name], (point, 0), after)


@pytest.mark.torture
@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("way", WAYS)
def test_upkeep_that_is_killed_at_any_step_changes_all_or_nothing(
    fresh: Callable[[str], Open], way: str, name: str
) -> None:
    steps, after = counted(fresh(way), WORKS[name])
    killed = sum(check_killed(fresh(way), WORKS[name], step, after) for step in steps)
    print(f"{way} {name}: killed at {killed} of {len(steps)} steps: {', '.join(sorted({name for name, _ in steps}))}")
    assert killed >= 0.9 * len(steps)
