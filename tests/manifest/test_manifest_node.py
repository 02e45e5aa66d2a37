"""Hold the copies on a node to their promises: one process at a time, never an error, kills and forks included."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.support.manifests import SCHEMA, USERS, World
from tidelake.handle.opening import NODE_FOLDER
from tidelake.manifest import node_tier
from tidelake.manifest.node_tier import open_node_tier
from tidelake.manifest.states import Held, Mark
from tidelake.model.snapshot import Scope
from tidelake.objects import open_store

SCOPE = Scope("t" * 32, "alice")

OTHER = """
import sys
from pathlib import Path
from tests.support.manifests import World
from tidelake.model.snapshot import Scope
from tidelake.objects import open_store
world = World(sys.argv[1], open_store(sys.argv[2]), Path(sys.argv[3]))
scope = Scope(world.catalog.table("app.notes").id, "alice")
"""


def run(world: World, code: str, *, kill: bool = False) -> str:
    """Run code in another process on the same lake, and give what it prints."""
    root = str(world.store.url).removeprefix("file://")
    command = [sys.executable, "-c", OTHER + code, world.where, root, str(world.node)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": _path()})
    assert done.returncode == (-signal.SIGKILL if kill else 0), done.stderr
    return done.stdout


def _path() -> str:
    return os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a process on a lake with a table of users."""
    made = World(str(tmp_path / "catalog.sqlite"), open_store(tmp_path / "objects"), tmp_path / "node")
    made.table(settings=USERS)
    return made


def test_second_process_goes_on_without_the_tier_and_is_right(world: World) -> None:
    scope = Scope(world.catalog.table("app.notes").id, "alice")
    world.cold(scope, 3)
    told = run(
        world,
        "entry = world.service.get_or_load(scope); world.cold(scope, 2); world.hot(scope)\n"
        "print(entry.tier, len(entry.listed), world.service._node, world.service.look(scope).mark.state)",
    )
    assert told == "manifest.json 3 None pending_write\n"
    entry = world.service.get_or_load(scope)
    assert (entry.tier, world.ids(entry), entry.state) == ("rocksdb", world.truth(scope), "pending_write")
    world.service.close()
    assert "rocksdb 5 in_sync" in run(
        world, "world.flush(scope)\nentry = world.service.get_or_load(scope); print(entry.tier, 5, entry.state)"
    )
    world.open()
    entry = world.service.get_or_load(scope)
    assert (entry.tier, len(entry.listed)) == ("rocksdb", 6)
    world.close()


@pytest.mark.parametrize("step", ["manifest.noted", "manifest.written"])  # the others: see the service's own tests
def test_process_that_is_killed_is_recovered_by_the_next(world: World, step: str) -> None:
    scope = Scope(world.catalog.table("app.notes").id, "alice")
    world.cold(scope, 2)
    world.service.close()
    run(
        world,
        f"import os, signal\nworld.at = lambda point: point == {step!r} and os.kill(os.getpid(), signal.SIGKILL)\n"
        "world.hot(scope); world.flush(scope)",
        kill=True,
    )
    world.open()
    look = world.service.look(scope)
    assert look.mark.state == "pending_write"
    assert world.ids(world.service.get_or_load(scope)) == world.truth(scope)
    assert len(world.truth(scope)) == 3
    assert world.service.repair() == 1
    assert world.service.look(scope).mark.state == "in_sync"
    assert len(world.stored(scope).segments) == 3
    world.close()


def test_states_and_copies_survive_a_kill(world: World) -> None:
    scope = Scope(world.catalog.table("app.notes").id, "alice")
    run(
        world,
        "import os, signal\nworld.cold(scope, 2); world.hot(scope); os.kill(os.getpid(), signal.SIGKILL)",
        kill=True,
    )
    assert world.service.get_or_load(scope).tier == "rocksdb"
    assert world.service.get_or_load(scope).state == "pending_write"
    world.close()


def _in_child(world: World, scope: Scope, answer: Any) -> None:
    entry = world.service.get_or_load(scope)
    world.service._marks.stale(scope, "a child's")
    answer.put((entry.tier, len(entry.listed), world.service._node and world.service._node.is_open))


def test_forked_child_goes_on_without_the_tier(tmp_path: Path) -> None:
    store = open_store(tmp_path / "objects")
    world = World(str(tmp_path / "catalog.sqlite"), store, tmp_path / "node")
    scope = Scope(world.table().id, "alice")
    world.cold(scope, 3)
    fork = multiprocessing.get_context("fork")
    answer = fork.Queue()
    child = fork.Process(target=_in_child, args=(world, scope, answer))
    child.start()
    assert answer.get(timeout=30) == ("manifest.json", 3, False)
    child.join()
    assert world.service.get_or_load(scope).tier == "rocksdb"
    assert world.service.look(scope).mark.state == "in_sync"
    world.close()


def test_lake_without_rocksdb_works(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_tier, "is_installed", lambda name: False)
    scope = Scope(world.catalog.table("app.notes").id, "alice")
    world.cold(scope, 2)
    world.hot(scope)
    assert (world.service._node, world.node and world.node.exists()) == (None, False)
    entry = world.service.get_or_load(scope)
    assert (entry.tier, entry.state, len(entry.listed)) == ("manifest.json", "pending_write", 2)
    world.clock.now_us += 100_000_000
    assert world.service.due() == [scope]
    assert world.service.repair(world.flush) == 1
    assert world.service.look(scope).mark.state == "in_sync"
    world.close()


def test_two_lakes_of_one_process_share_the_tier(tmp_path: Path) -> None:
    one, _ = open_node_tier(tmp_path / "node")
    two, is_first = open_node_tier(tmp_path / "node")
    assert one is two
    assert not is_first
    assert one is not None
    held = Held(3, "s", 2, 2, 0, 0, 0, 0)
    one.hold(SCOPE, held)
    one.close()
    assert two is not None
    assert two.held(SCOPE) == held
    two.close()
    assert not two.is_open
    again, is_first = open_node_tier(tmp_path / "node")
    assert is_first
    assert again is not None
    assert again.held(SCOPE) == held
    again.close()


def test_index_gives_what_is_due_in_order_and_no_scope_twice(tmp_path: Path) -> None:
    tier, _ = open_node_tier(tmp_path / "node")
    assert tier is not None
    scopes = [Scope("t" * 32, f"u{number}") for number in range(50)]
    for number, scope in enumerate(scopes):
        tier.set_mark(scope, Mark("pending_write", 0, 100 - number))
        tier.set_mark(scope, Mark("error", 0, 1_000 - number))
    assert tier.due("pending_write", 10_000, 100) == []
    assert tier.due("error", 10_000, 100) == scopes[::-1]
    assert tier.due("error", 955, 100) == scopes[:44:-1]
    assert tier.due("error", 10_000, 3) == scopes[:46:-1]
    for scope in scopes:
        tier.set_mark(scope, Mark("in_sync", 0))
    assert tier.due("error", 10_000, 100) == []
    tier.close()


def test_users_whose_ids_begin_alike_are_kept_apart(tmp_path: Path) -> None:
    world = World(str(tmp_path / "catalog.sqlite"), open_store(tmp_path / "objects"), tmp_path / "node")
    table = world.table()
    users = ["a", "ab", "a%00b", "a/b", "..", "ä", "a b", "%2e"]
    for count, user in enumerate(users, start=1):
        world.cold(Scope(table.id, user), count)
    for count, user in enumerate(users, start=1):
        entry = world.service.get_or_load(Scope(table.id, user))
        assert (len(entry.listed), entry.tier) == (count, "rocksdb")
        assert world.ids(entry) == world.truth(Scope(table.id, user))
        assert entry.folder.count("/") == 2
    assert len({meta.key for meta in world.store.list()}) == len(users)
    world.close()


def test_copies_of_a_folder_lake_lie_beside_its_catalog_and_are_no_objects(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        lake.catalog.create_table("app.notes", SCHEMA, USERS)
        lake.maintain()
        lake.manifests(state="error")
        assert not (tmp_path / "lake" / NODE_FOLDER).exists()
        lake.manifests("app.notes", user="alice")
        assert (tmp_path / "lake" / NODE_FOLDER).is_dir()
        assert [*lake.store.list()] == []
        assert lake.collect().total.objects == 0
    with tidelake.connect(tmp_path / "other", cache=tmp_path / "cache", upkeep=False) as lake:
        lake.catalog.create_table("app.notes", SCHEMA, USERS)
        lake.manifests("app.notes", user="alice")
        assert not (tmp_path / "other" / NODE_FOLDER).exists()
        assert len([*(tmp_path / "cache").iterdir()]) == 1


def test_lake_of_plain_tables_opens_no_rocksdb(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        table = lake.create_table("obs.logs", {"ts": "timestamp", "n": "long"})
        table.append([{"ts": "2026-01-01T00:00:00Z", "n": 1}])
        table.flush()
        assert not (tmp_path / "lake" / NODE_FOLDER).exists()
