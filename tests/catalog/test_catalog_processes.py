"""Check that many processes share a catalog, and that killing them loses and doubles nothing."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from tests.support.catalogs import SCHEMA, SQL_STORES, announce, commit_of, extent, hot, place_of
from tidelake.catalog.commit import Coordinator
from tidelake.catalog.protocol import Catalog
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.errors import ConflictError
from tidelake.model.snapshot import AddExtent, AppendHot, Commit, DropHot, Receipt, RemoveExtent, Scope

WITHIN_S = 120


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    """Start processes from a clean one that has imported everything: they share nothing, and start at once."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.catalog.test_catalog_processes"])
    first = found.Process(target=time.monotonic)
    first.start()
    first.join(WITHIN_S)
    assert first.exitcode == 0
    return found


@pytest.fixture(params=SQL_STORES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place_of(request.param, request, tmp_path)


def append_many(where: str, scope: Scope, start: Any, answers: Any, count: int) -> None:
    """Append, as one process of many; put the receipts, or what went wrong."""
    with SqlCatalog(where) as catalog:
        coordinator = Coordinator(catalog)
        start.wait(WITHIN_S)
        receipts: list[Receipt | str] = []
        for number in range(count):
            action = AddExtent(extent(10)) if number % 2 else AppendHot(hot(10))
            try:
                receipts.append(coordinator.commit(announce(catalog, commit_of(scope, action))))
            except Exception as error:
                receipts.append(f"{type(error).__name__} {error}")
        answers.put(receipts)


def run_together(context: ForkServerContext, target: Any, count: int, *words: Any) -> list[Any]:
    """Run a function in some processes that start together, and give what each puts."""
    start, answers = context.Barrier(count), context.Queue()
    processes = [context.Process(target=target, args=(*words[:2], start, answers, *words[2:])) for _ in range(count)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=WITHIN_S) for _ in processes]
    for process in processes:
        process.join(WITHIN_S)
        assert process.exitcode == 0
    return found


def test_sixteen_processes_append_and_nothing_is_lost_or_doubled(where: str, context: ForkServerContext) -> None:
    with SqlCatalog(where) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        found = run_together(context, append_many, 16, where, scope, 25)
        answers = [each for receipts in found for each in receipts]
        assert [each for each in answers if isinstance(each, str)] == []
        assert len({each.commit_id for each in answers}) == 400
        manifest = catalog.manifest(scope)
        assert manifest.snapshot.totals.rows + manifest.snapshot.totals.hot_rows == 4000
        assert sum(e.row_count for e in manifest.extents.values()) == 12 * 16 * 10
        assert sum(b.rows for b in manifest.hot.values()) == 13 * 16 * 10
        last = manifest.snapshot.sequence
        assert [s.sequence for s in catalog.history(scope, limit=1000)] == list(range(last, 0, -1))
        assert {each.sequence for each in answers} == set(range(2, last + 1))
        assert catalog.pending() == []


def replay_one_key(where: str, scope: Scope, start: Any, answers: Any, keys: int) -> None:
    """Commit the same keys as every other process."""
    with SqlCatalog(where) as catalog:
        coordinator = Coordinator(catalog)
        start.wait(WITHIN_S)
        answers.put(
            [
                coordinator.commit(announce(catalog, commit_of(scope, AddExtent(extent(1)), key=f"k{number}")))
                for number in range(keys)
            ]
        )


def test_processes_with_the_same_keys_commit_each_once(where: str, context: ForkServerContext) -> None:
    with SqlCatalog(where) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        found = run_together(context, replay_one_key, 4, where, scope, 20)
        assert catalog.head(scope).totals.rows == 20
        for number in range(20):
            receipts = [each[number] for each in found]
            assert len({receipt.commit_id for receipt in receipts}) == 1
            assert sorted(receipt.replayed for receipt in receipts) == [False, True, True, True]


# kill -9


def labelled(scope: Scope, key: str) -> Commit:
    """Make a commit whose extent says which key it was written for."""
    return commit_of(scope, AddExtent(extent(1, stats={"service": {"min": key, "max": key}})), key=key)


def write_until_killed(where: str, scope: Scope, journal: str, seed: int) -> None:
    """Append for ever, noting what is intended and what is acknowledged; begin with what the last one left open."""
    rng = random.Random(seed)
    notes = Path(journal).read_text().split() if os.path.exists(journal) else []
    done = {note[1:] for note in notes if note[0] == "+"}
    left = [note[1:] for note in notes if note[0] == "?" and note[1:] not in done]
    number = sum(note[0] == "?" for note in notes)
    with SqlCatalog(where) as catalog, open(journal, "ab", buffering=0) as file:
        coordinator = Coordinator(catalog)
        while True:
            if left:
                key = left.pop()
            else:
                key = f"{Path(journal).name}-{number}"
                number += 1
                file.write(f"?{key}\n".encode())
            coordinator.commit(announce(catalog, labelled(scope, key)))
            file.write(f"+{key}\n".encode())
            if rng.random() < 0.1:
                compact(catalog, coordinator, scope, rng)


def compact(catalog: Catalog, coordinator: Coordinator, scope: Scope, rng: random.Random) -> None:
    """Write and flush some hot rows: commits that add and take away at once, and move no labelled extent."""
    batch = hot(1)
    coordinator.commit(commit_of(scope, AppendHot(batch)))
    coordinator.commit(announce(catalog, commit_of(scope, DropHot(batch.id), AddExtent(extent(1, level=9)))))
    for old in [each for each in catalog.extents(scope, stats=()) if each.level == 9][: rng.randrange(2)]:
        with suppress(ConflictError):  # another took it first
            coordinator.commit(commit_of(scope, RemoveExtent(old.id), operation="retention"))


@dataclass
class Killing:
    """Writers that are killed at random and started again."""

    context: ForkServerContext
    where: str
    scope: Scope
    folder: Path
    rng: random.Random

    def run(self, *, writers: int, kills: int, seconds: float) -> None:
        """Kill and restart at least so often and so long."""
        running: dict[int, BaseProcess] = {}
        end = time.monotonic() + seconds
        while kills > 0 or time.monotonic() < end:
            for name in range(writers):
                if name not in running:
                    words = (self.where, self.scope, str(self.folder / f"w{name}"), self.rng.randrange(10**9))
                    running[name] = self.context.Process(target=write_until_killed, args=words)
                    running[name].start()
            name = self.rng.randrange(writers)
            if self.rng.random() < 0.75:  # the others are killed wherever they are, be it before their first commit
                self._wait_for_commit(name)
            time.sleep(self.rng.uniform(0.05, 0.4))
            victim = running.pop(name)
            assert victim.exitcode is None, "a writer ended by itself"
            victim.kill()
            victim.join(WITHIN_S)
            kills -= 1
        for process in running.values():
            process.kill()
            process.join(WITHIN_S)

    def _wait_for_commit(self, name: int) -> None:
        """Wait until a writer has acknowledged something more: on a busy machine it may take long to start."""
        journal = self.folder / f"w{name}"

        def acknowledged() -> int:
            return journal.read_bytes().count(b"+") if journal.exists() else 0

        before, end = acknowledged(), time.monotonic() + WITHIN_S
        while acknowledged() == before and time.monotonic() < end:
            time.sleep(0.005)

    def check(self) -> int:
        """Check every note against the catalog, opened anew; give how many rows were acknowledged."""
        notes = [note for file in sorted(self.folder.glob("w*")) for note in file.read_text().split()]
        intended = {note[1:] for note in notes if note[0] == "?"}
        acknowledged = [note[1:] for note in notes if note[0] == "+"]
        with SqlCatalog(self.where) as catalog:
            manifest = catalog.manifest(self.scope)
            stats = [e.column_stats.get("service") for e in manifest.extents.values()]
            found = Counter(each["min"] for each in stats if each)
            assert set(acknowledged) <= set(found) <= intended
            assert set(found.values()) == {1}
            for key in acknowledged:
                assert catalog.receipt(self.scope, key=key) is not None
            totals = manifest.snapshot.totals
            assert totals.rows == sum(e.row_count for e in manifest.extents.values())
            assert totals.hot_rows == sum(b.rows for b in manifest.hot.values())
            sequences = [s.sequence for s in catalog.history(self.scope, limit=10**6)]
            assert sequences == list(range(manifest.snapshot.sequence, 0, -1))
            pending = {each.key for each in catalog.pending()}
            assert not pending & {e.key for e in manifest.extents.values()}
        return len(acknowledged)


@pytest.fixture
def killing(context: ForkServerContext, where: str, tmp_path: Path) -> Killing:
    with SqlCatalog(where) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
    journals = tmp_path / "journals"
    journals.mkdir()
    return Killing(context, where, scope, journals, random.Random(5))


def test_killed_writers_lose_and_double_nothing(killing: Killing) -> None:
    killing.run(writers=3, kills=12, seconds=3)
    assert killing.check() > 20


@pytest.mark.torture
def test_writers_killed_for_a_minute_lose_and_double_nothing(killing: Killing) -> None:
    killing.run(writers=6, kills=150, seconds=60)
    assert killing.check() > 1000
