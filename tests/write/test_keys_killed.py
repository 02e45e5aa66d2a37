"""Kill what changes a table with a key at every step that has a name: readers see what was before it or after it.

Each change is run once to count its steps, and then in a process that is killed at one of them; a second run of the
same change, in a process that opens the lake anew, ends in what it is for. The table is one user's.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import tidelake
from tests.support.catalogs import fresh_schema
from tests.support.upkeep import check_store, make_small
from tidelake import Lake, Table
from tidelake.catalog.protocol import StepHook, no_hook
from tidelake.catalog.sql.sql_catalog import SqlCatalog

COLUMNS = {"id": "long", "ts": "timestamp", "text": "string"}
NOON = "2026-01-01T12:00:00Z"
WITHIN_S = 60
NOW: dict[str, Any] = {"abandoned_after": "0s", "orphan_after": "0s"}

Open: TypeAlias = Callable[[StepHook], Lake]
Held: TypeAlias = dict[int, str]


def rows(first: int, end: int, text: str) -> list[dict[str, Any]]:
    return [{"id": id, "ts": NOON, "text": text} for id in range(first, end)]


def table_of(lake: Lake) -> Table:
    return lake.table("app.notes").user("alice")


def held(lake: Lake) -> Held:
    found = table_of(lake).scan(["id", "text"]).read_all().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is there twice"
    return {row["id"]: row["text"] for row in found}


def filled(lake: Lake) -> None:
    lake.create_table("app.notes", COLUMNS, scope="user", key=["id"], flush_age="off", upkeep=False)
    table = table_of(lake)
    for text in ("a", "b", "c"):
        table.append(rows(0, 12, text))
        table.flush()
    table.delete_keys([1, 2])
    table.append(rows(3, 6, "d"))
    lake.table("app.notes").user("bob").append(rows(0, 3, "bob's"))


def upsert(lake: Lake) -> None:
    table_of(lake).append(rows(0, 40, "new"), key="once")  # more than stay hot


def delete_keys(lake: Lake) -> None:
    table_of(lake).delete_keys([3, 4, 5], key="once")


def delete_where(lake: Lake) -> None:
    table_of(lake).delete(where="text == 'c'")


def insert(lake: Lake) -> None:
    table_of(lake).append(rows(70, 75, "inserted"), key="once", insert_only=True)


def flush(lake: Lake) -> None:
    table_of(lake).flush()


def compact(lake: Lake) -> None:
    table = table_of(lake)
    table.flush()
    table.compact()


def purge(lake: Lake) -> None:
    table_of(lake).delete(where="id == 7", purge=True)


WORKS = {work.__name__: work for work in (upsert, delete_keys, delete_where, insert, flush, compact, purge)}
FEW = (
    ("upsert", "extent.written"),
    ("compact", "rewrite.written"),
    ("flush", "flush.written"),
    ("flush", "commit.swapped"),
)


@pytest.fixture
def fresh(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Open]:
    """Return how to make a lake of a sort, and with it how to open it, calling a hook at every step."""
    make_small(monkeypatch)

    def make(way: str) -> Open:
        folder = tmp_path / secrets.token_hex(6)
        address = fresh_schema(request.getfixturevalue("postgres")) if way == "postgres" else None

        def opened(at: StepHook) -> Lake:
            where: Any = folder if address is None else address
            given: dict[str, Any] = {} if address is None else {"objects": folder}
            handle = tidelake.connect(where, upkeep=False, **given).handle
            catalog = SqlCatalog(next(folder.glob("*.sqlite")) if address is None else address, at=at)
            handle.catalog.close()
            return Lake(replace(handle, catalog=catalog, at=at))

        return opened

    return make


def steps_of(opened: Open, work: Callable[[Lake], None]) -> tuple[list[tuple[str, int]], Held, Held]:
    """Return the steps of a change, and what a table holds before and after it."""
    passed: list[str] = []
    with opened(no_hook) as lake:
        filled(lake)
        before = held(lake)
    with opened(passed.append) as lake:
        passed.clear()
        work(lake)
    with opened(no_hook) as lake:
        after = held(lake)
    seen: Counter[str] = Counter()
    steps = []
    for name in passed:
        steps.append((name, seen[name]))
        seen[name] += 1
    return steps, before, after


def killed_at(opened: Open, work: Callable[[Lake], None], step: tuple[str, int]) -> None:
    """Run a change in a process that is killed at a step."""

    def run() -> None:
        left = [step[1]]
        is_begun = [False]

        def at(name: str) -> None:
            if is_begun[0] and name == step[0]:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

        lake = opened(at)
        is_begun[0] = True
        work(lake)
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(WITHIN_S)
    assert child.exitcode in (-signal.SIGKILL, 0)


def check_killed(make: Callable[[str], Open], way: str, name: str, chosen: Callable[[str], bool]) -> None:
    work = WORKS[name]
    steps, before, after = steps_of(make(way), work)
    for step in [step for step in steps if chosen(step[0])]:
        opened = make(way)
        with opened(no_hook) as lake:
            filled(lake)
        killed_at(opened, work, step)
        with opened(no_hook) as lake:
            assert held(lake) in (before, after), step
            work(lake)
            assert held(lake) == after, step
            bobs = lake.table("app.notes").user("bob")
            assert sorted(bobs.to_arrow(["text"])["text"].to_pylist()) == ["bob's"] * 3
            lake.collect(**NOW)
            assert held(lake) == after, step
            check_store(lake)


@pytest.mark.parametrize(("name", "step"), FEW)
def test_a_change_that_is_killed_happened_or_did_not(fresh: Callable[[str], Open], name: str, step: str) -> None:
    check_killed(fresh, "sqlite", name, lambda named: named == step)


@pytest.mark.torture
@pytest.mark.parametrize("way", ["sqlite", "postgres"])
@pytest.mark.parametrize("name", WORKS)
def test_killed_at_every_step(fresh: Callable[[str], Open], way: str, name: str) -> None:
    check_killed(fresh, way, name, lambda step: True)
