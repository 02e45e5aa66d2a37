"""Show that a collector that waits for nothing harms nobody: writers, a flusher, a rewriter, readers, a collector.

Each is a process of its own, and some are killed. What was acknowledged is there once, no reader misses an object, and
when all is quiet a last collection leaves exactly what snapshots hold. It does not expire snapshots.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import tidelake
from tests.support.bustle import TABLE, make_table, rewritten, rows
from tests.support.catalogs import fresh_schema
from tests.support.upkeep import check_store
from tidelake import Lake
from tidelake.errors import ConflictError

NOW: dict[str, Any] = {"abandoned_after": "0s", "orphan_after": "0s"}
WITHIN_S = 120

Open: TypeAlias = Callable[[], Lake]


def write(opened: Open, seed: int, journal: Path) -> None:
    """Append for ever, noting what is intended and what is acknowledged; one that is given up is tried no more."""
    choose, number = random.Random(seed), 0
    with opened() as lake, journal.open("a", buffering=1) as notes:
        while True:
            first, size = seed * 10**8 + number * 10**4, choose.choice((1, 20, 1100, 1100))
            number += 1
            notes.write(f"? {first} {size}\n")
            try:
                lake.table(TABLE).append(rows(range(first, first + size)))
                notes.write(f"+ {first} {size}\n")
            except ConflictError as error:
                if error.kind != "not_pending":
                    raise
                notes.write(f"- {first} {size}\n")


def work(opened: Open, seed: int, do: Callable[[Lake, random.Random], Any]) -> None:
    """Do something again and again."""
    choose = random.Random(seed)
    with opened() as lake:
        while True:
            do(lake, choose)
            time.sleep(0.02 * choose.random())


def flush(lake: Lake, choose: random.Random) -> None:
    lake.table(TABLE).flush()


def collect(lake: Lake, choose: random.Random) -> None:
    # Half of the time as impatient as can be, else so that writers get their turn.
    lake.collect(**NOW) if choose.random() < 0.5 else lake.collect(orphan_after="0s")


def read(lake: Lake, choose: random.Random) -> None:
    found = Counter(lake.table(TABLE).scan(columns=["n"]).read_all()["n"].to_pylist())
    assert len(found) >= 400
    assert set(found.values()) == {1}


def run(opened: Open, folder: Path, *, seed: int, seconds: float, kills: int) -> int:
    """Let all of them work for a while; return how many rows were acknowledged."""
    context, choose = multiprocessing.get_context("fork"), random.Random(seed)
    with opened() as lake:
        make_table(lake)
    works: list[tuple[str, Any]] = [("write", None), ("write", None), ("flush", flush), ("rewrite", rewritten)]
    works += [("collect", collect), ("collect", collect), ("read", read), ("read", read)]
    running: dict[int, Any] = {}
    born = 0

    def start(slot: int) -> None:
        nonlocal born
        born += 1
        kind, do = works[slot]
        words = (opened, born, folder / f"w{born}") if kind == "write" else (opened, born, do)
        running[slot] = context.Process(target=write if kind == "write" else work, args=words)
        running[slot].start()

    for slot in range(len(works)):
        start(slot)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(seconds / (kills + 1))
        victim = choose.randrange(6)  # not a reader
        assert all(process.exitcode is None for process in running.values()), "somebody ended by themselves"
        running[victim].kill()
        running[victim].join(WITHIN_S)
        start(victim)
    for process in running.values():
        assert process.exitcode is None, "somebody ended by themselves"
        process.kill()
        process.join(WITHIN_S)
    return check(opened, folder)


def check(opened: Open, folder: Path) -> int:
    """Compare what is there with what was noted, before and after a last collection."""
    notes = [
        line.split() for path in folder.glob("w*") for line in path.read_text().splitlines() if line[-1:].isdigit()
    ]
    ranges = {mark: {(int(first), int(size)) for m, first, size in notes if m == mark} for mark in "?+-"}

    def numbers(mark: str) -> set[int]:
        return {n for first, size in ranges[mark] for n in range(first, first + size)}

    with opened() as lake:
        check_store(lake, quiet=False)
        for _ in range(2):
            found = Counter(lake.table(TABLE).scan(columns=["n"]).read_all()["n"].to_pylist())
            assert set(found.values()) == {1}
            fresh = {n for n in found if n >= 0}
            assert numbers("+") <= fresh <= numbers("?") - numbers("-")
            lake.collect(**NOW)
            check_store(lake)
        assert [*lake.catalog.pending(), *lake.catalog.garbage(before_us=2**60)] == []
    return len(numbers("+"))


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        return lambda: tidelake.connect(tmp_path / "lake")
    place = fresh_schema(request.getfixturevalue("postgres"))
    return lambda: tidelake.connect(place, objects=tmp_path / "objects")


def test_collectors_beside_everybody_else_lose_nothing_and_leave_nothing(opened: Open, tmp_path: Path) -> None:
    assert run(opened, tmp_path, seed=7, seconds=3, kills=6) > 0


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(3))
def test_collectors_beside_everybody_else_for_a_minute(opened: Open, tmp_path: Path, seed: int) -> None:
    acknowledged = run(opened, tmp_path, seed=seed, seconds=60, kills=60)
    print(f"{acknowledged:,} rows acknowledged")
    assert acknowledged > 1000
