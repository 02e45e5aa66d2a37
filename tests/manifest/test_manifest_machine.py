"""Hold two processes to the catalog, whatever they do and whatever is damaged in between, in any order."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.manifests import KEYED, USERS, World
from tidelake.errors import NotFoundError
from tidelake.model.snapshot import Scope
from tidelake.objects import open_store

STEPS = (
    "cold", "cold", "many", "hot", "flush", "compact", "restart", "no node", "no file", "torn file", "old file",
    "no part", "expire", "repair", "die", "look",
)  # fmt: skip
POINTS = ("manifest.noted", "manifest.read", "manifest.sealed", "manifest.written", "manifest.looked")


class Killed(BaseException):
    """The end of a process, at a step."""


class Lake:
    """Two processes on one lake, of which one has the node's copies, and a file as it once was."""

    def __init__(self, folder: Path, *, has_users: bool) -> None:
        store = open_store("memory://")
        one = World(str(folder / "catalog.sqlite"), store, folder / "node")
        two = World(str(folder / "catalog.sqlite"), store, None, clock=one.clock)
        self.worlds = (one, two)
        info = one.table(settings=USERS if has_users else KEYED)
        self.scope = Scope(info.id, "alice" if has_users else "")
        self.before = b""

    @property
    def key(self) -> str:
        return self.worlds[0].service.place(self.scope).key

    def do(self, step: str, world: World, point: str) -> None:
        scope, store = self.scope, world.store
        match step:
            case "cold":
                world.cold(scope)
            case "many":
                world.cold(scope, 40)
            case "hot":
                world.hot(scope)
            case "flush" if world.catalog.head(scope).totals.hot_batches:
                world.flush(scope)
            case "compact" if len(extents := world.catalog.extents(scope)) > 1:
                world.compact(scope, extents[:: 2 if len(extents) < 50 else 1][:45])
            case "restart":
                world.restart()
            case "no node" if world.node is not None:
                world.service.close()
                shutil.rmtree(world.node, ignore_errors=True)
                world.open()
            case "no file":
                store.delete([self.key])
            case "torn file":
                store.put(self.key, b'{"table_id": "app')
            case "old file" if self.before:
                store.put(self.key, self.before)
            case "no part":
                store.delete([meta.key for meta in store.list() if "manifest-part-" in meta.key][:1])
            case "expire":
                world.clock.now_us += 1_000_000
                world.catalog.expire_snapshots(scope, before_us=world.clock.now_us)
            case "repair":
                world.clock.now_us += 100_000_000
                world.service.repair()
            case "die":
                self._die(world, point)
            case _:
                pass

    def _die(self, world: World, point: str) -> None:
        def kill(at: str) -> None:
            if at == point:
                raise Killed

        world.at = kill
        try:
            world.cold(self.scope)
        except Killed:
            pass
        finally:
            world.at = lambda at: None
        world.restart()

    def check(self) -> None:
        for world in self.worlds:
            assert world.ids(world.service.get_or_load(self.scope)) == world.truth(self.scope)

    def check_at_the_end(self) -> None:
        """Once a process that knows nothing has looked, and what is due was put right, the file is right by itself."""
        first = self.worlds[0]
        first.cold(self.scope)
        world = World(first.where, first.store, None, clock=first.clock)
        world.service.get_or_load(self.scope)
        for each in (first, world):
            each.clock.now_us += 4_000_000_000
            each.service.repair()
            assert each.service.look(self.scope).mark.state in ("in_sync", "pending_write")
        stored = world.stored(self.scope)
        listed = world.service._stored.segments(world.service.place(self.scope), stored)
        assert {each.extent for each in listed} == world.truth(self.scope)
        world.close()


@settings(max_examples=25)
@given(
    has_users=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1), st.sampled_from(POINTS)), max_size=14),
)
def test_no_order_of_events_gives_a_wrong_answer(has_users: bool, steps: list[tuple[str, int, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder), has_users=has_users)
        try:
            for step, who, point in steps:
                lake.do(step, lake.worlds[who], point)
                lake.check()
                try:
                    lake.before = lake.before or bytes(lake.worlds[0].store.get(lake.key))
                except NotFoundError:
                    continue
            lake.check_at_the_end()
        finally:
            for world in lake.worlds:
                world.close()
