"""Hold the manifest service to its contract on both catalogs: right answers from the nearest tier, whatever breaks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from tests.support.catalogs import SQL_STORES, place_of
from tests.support.faulty import Fault, FaultyStore
from tests.support.manifests import KEYED, World
from tidelake.errors import StorageError
from tidelake.manifest.service import Limits
from tidelake.manifest.states import LONGEST_WAIT_US
from tidelake.model.snapshot import Scope
from tidelake.objects import Data, ObjectStore, open_store

USER = "alice"


@pytest.fixture(params=SQL_STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Yield a process on an empty lake."""
    store = FaultyStore(open_store(tmp_path / "objects"))
    made = World(place_of(request.param, request, tmp_path), store, tmp_path / "node")
    yield made
    made.close()


@pytest.fixture
def lite(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Yield a process on an empty lake in SQLite, for what does not depend on the catalog."""
    store = FaultyStore(open_store(tmp_path / "objects"))
    made = World(str(tmp_path / "catalog.sqlite"), store, tmp_path / "node")
    yield made
    made.close()


def users_scope(world: World) -> Scope:
    return Scope(world.table().id, USER)


def shared_scope(world: World) -> Scope:
    return world.table("app.keyed", KEYED).scope


@pytest.mark.parametrize("scope_of", [users_scope, shared_scope])
def test_answers_come_from_the_nearest_tier_and_fill_those_above(
    world: World, scope_of: Callable[[World], Scope]
) -> None:
    scope = scope_of(world)
    world.cold(scope, 3)
    expected = world.truth(scope)
    nearest = "rocksdb" if scope.user else "memory"
    entry = world.service.get_or_load(scope)
    assert (world.ids(entry), entry.state) == (expected, "in_sync")
    assert world.service.get_or_load(scope).tier == nearest
    world.restart()
    assert world.service.get_or_load(scope).tier == "rocksdb"
    assert world.service.get_or_load(scope).tier == nearest
    world.service.close()
    shutil.rmtree(world.node or "", ignore_errors=True)
    world.open()
    entry = world.service.get_or_load(scope)
    assert (entry.tier, world.ids(entry)) == ("manifest.json", expected)
    assert world.service.get_or_load(scope).tier == nearest
    world.service.close()
    shutil.rmtree(world.node or "", ignore_errors=True)
    world.store.delete([world.service.place(scope).key])
    world.open()
    entry = world.service.get_or_load(scope)
    assert (entry.tier, world.ids(entry)) == ("catalog", expected)
    assert world.service.get_or_load(scope).tier == nearest


@pytest.mark.parametrize("scope_of", [users_scope, shared_scope])
def test_copy_is_brought_forward_by_the_commits_of_another_process(
    world: World, scope_of: Callable[[World], Scope], tmp_path: Path
) -> None:
    scope = scope_of(world)
    first = world.cold(scope, 4)
    world.service.get_or_load(scope)
    other = World(world.where, world.store, None, clock=world.clock)  # which cannot have this node's RocksDB
    other.hot(scope)
    other.compact(scope, first[1:])
    other.hot(scope)
    entry = world.service.get_or_load(scope)
    assert (entry.tier, world.ids(entry)) == ("rocksdb" if scope.user else "memory", world.truth(scope))
    assert entry.version == other.stored(scope).version == world.catalog.head(scope).sequence - 1
    assert entry.held.segments == 2
    other.close()


def test_every_kind_of_commit_keeps_manifest_json_right(world: World) -> None:
    scope = users_scope(world)
    extents = world.cold(scope, 2)
    world.hot(scope)
    world.hot(scope)
    extents.append(world.flush(scope))
    joined = world.compact(scope, extents[:2])
    stored = world.stored(scope)
    assert stored.notes is not None
    assert set(stored.notes.extents.values()) == world.truth(scope) == {extents[2].id, joined.id}
    assert stored.version == world.catalog.head(scope).sequence
    assert (stored.table_id, stored.user_id) == ("app.notes", USER)
    assert stored.last_sequence_number == int(extents[2].key.rpartition("-")[2].removesuffix(".parquet"))


def test_hot_rows_write_no_manifest_json(world: World) -> None:
    scope = users_scope(world)
    world.cold(scope)
    before = bytes(world.store.get(world.service.place(scope).key))
    version = world.service.get_or_load(scope).version
    for _ in range(3):
        world.hot(scope)
    entry = world.service.get_or_load(scope)
    assert (entry.state, entry.version) == ("pending_write", version)
    assert bytes(world.store.get(world.service.place(scope).key)) == before


def test_tables_that_are_not_segmented_have_no_manifest(world: World) -> None:
    info = world.table("obs.logs", {"time": "ts"})
    assert not world.service.is_segmented(info.scope)


def test_user_without_commits_has_nothing_anywhere(world: World) -> None:
    entry = world.service.get_or_load(users_scope(world))
    assert (entry.listed, entry.state, entry.version) == ((), "in_sync", 0)
    assert [*world.store.list()] == []


def test_statistics_are_those_of_the_columns_that_rows_are_looked_up_by(lite: World) -> None:
    keyed, users = shared_scope(lite), users_scope(lite)
    lite.cold(keyed)
    lite.cold(users)
    assert [*lite.stored(keyed).segments[0].column_stats] == [2]
    assert [*lite.stored(users).segments[0].column_stats] == [1]
    shape = orjson.loads(bytes(lite.store.get(lite.service.place(keyed).key)))
    assert shape["segments"][0]["column_stats"]["2"]["min"] == {"Int64": str(-(2**62))}
    assert (shape["user_id"], shape["files"], shape["vector_indexes"]) == (None, None, {})


def test_numbers_of_rows_are_counted_from_the_snapshot_that_added_them(lite: World) -> None:
    scope = users_scope(lite)
    lite.cold(scope, 1, rows=7)
    (segment,) = lite.stored(scope).segments
    assert (segment.min_seq, segment.max_seq) == (1 << 32, (1 << 32) + 6)


# states


def test_append_flush_and_hot_rows_meanwhile_lead_through_the_states(world: World) -> None:
    scope = users_scope(world)
    seen: list[str] = []
    world.at = lambda point: seen.append(f"{point} {world.service.look(scope).mark.state}")
    assert world.service.look(scope).mark.state == "in_sync"
    world.hot(scope)
    assert world.service.look(scope).mark.state == "pending_write"
    world.flush(scope)
    assert {each.rpartition(" ")[2] for each in seen} == {"syncing"}
    assert world.service.look(scope).mark.state == "in_sync"
    world.hot(scope)

    def interfere(point: str) -> None:
        if point == "manifest.written":
            world.at = lambda point: None
            world.hot(scope)

    world.at = interfere
    world.flush(scope)
    assert world.service.look(scope).mark.state == "pending_write"
    assert world.catalog.head(scope).totals.hot_batches == 1


def test_flush_that_fails_is_an_error_with_a_reason_and_waits_longer_each_time(world: World) -> None:
    scope = users_scope(world)
    world.hot(scope)
    waits = []
    for _ in range(30):
        with pytest.raises(StorageError), world.service.flushing(scope):
            raise StorageError("the disk is full", kind="disk_full")
        mark = world.service.look(scope).mark
        assert mark.due_us is not None
        waits.append(mark.due_us - mark.since_us)
    assert (mark.state, mark.attempts, mark.error) == ("error", 30, "the disk is full")
    assert waits[:4] == [1_000_000, 2_000_000, 4_000_000, 8_000_000]
    assert waits[-1] == LONGEST_WAIT_US
    world.flush(scope)
    mark = world.service.look(scope).mark
    assert (mark.state, mark.attempts, mark.error) == ("in_sync", 0, None)


def test_store_that_fails_is_an_error_and_is_tried_again(world: World) -> None:
    scope = users_scope(world)
    assert isinstance(world.store, FaultyStore)
    world.store.add(Fault("put*", "before", match="*manifest.json", kind="disk_full"))
    world.cold(scope)  # which does not fail for it
    look = world.service.look(scope)
    assert look.mark.state == "error"
    assert "on purpose" in str(look.mark.error)
    assert world.ids(world.service.get_or_load(scope)) == world.truth(scope)
    assert world.service.get_or_load(scope).state == "error"
    assert world.service.due() == []
    owner, work, after_s = world.later[-1]
    assert owner == ("manifest", scope)
    assert 0 < after_s <= 1
    assert work() is None
    assert world.service.look(scope).mark.state == "in_sync"
    assert world.stored(scope).version == 1


def test_error_is_due_after_its_wait_and_repaired(world: World) -> None:
    scope = users_scope(world)
    assert isinstance(world.store, FaultyStore)
    world.store.add(Fault("put*", "before", match="*manifest.json", times=2))
    world.cold(scope)
    assert world.service.due() == []
    world.clock.now_us += 2_000_000
    assert world.service.due() == [scope]
    assert world.service.repair() == 0
    assert world.service.look(scope).mark.attempts == 2
    world.clock.now_us += 4_000_000
    assert world.service.repair() == 1
    assert (world.service.due(), world.service.look(scope).mark.state) == ([], "in_sync")


def test_pending_rows_are_due_when_they_are_old_and_flushed(world: World) -> None:
    scope = users_scope(world)
    world.hot(scope)
    assert world.service.due() == []
    world.clock.now_us += 61_000_000
    assert world.service.due() == [scope]
    assert world.service.repair(world.flush) == 1
    assert (world.service.due(), world.catalog.head(scope).totals.hot_batches) == ([], 0)


def test_torn_file_makes_a_scope_stale_until_it_is_written_again(world: World) -> None:
    scope = users_scope(world)
    world.cold(scope, 2)
    key = world.service.place(scope).key
    world.store.put(key, bytes(world.store.get(key))[:100])
    world.service.close()
    shutil.rmtree(world.node or "", ignore_errors=True)
    world.open()
    entry = world.service.get_or_load(scope)
    assert (entry.tier, entry.state, world.ids(entry)) == ("catalog", "stale", world.truth(scope))
    assert "manifest" in str(entry.error)
    assert world.service.due() == [scope]
    (_, work, after_s) = world.later[-1]
    assert (work(), after_s) == (None, 0.0)
    assert world.service.look(scope).mark.state == "in_sync"
    assert len(world.stored(scope).segments) == 2


def test_syncing_scope_of_a_process_that_died_is_pending_at_start_and_its_temporary_files_go(lite: World) -> None:
    assert isinstance(lite.store, FaultyStore)
    lite.store = lite.store.inner
    lite.restart()
    scope = users_scope(lite)
    lite.hot(scope)
    lite.service._marks.syncing(scope)
    folder = Path(str(lite.store.url).removeprefix("file://")) / lite.service.place(scope).folder
    folder.mkdir(parents=True)
    left = folder / ".tide-tmp-0123456789abcdef"
    left.write_bytes(b"half")
    lite.restart()
    look = lite.service.look(scope)
    assert (look.mark.state, left.exists()) == ("pending_write", False)
    assert lite.service.due() == [scope]
    assert lite.later[-1][0] == ("manifests",)


@pytest.mark.parametrize("state", ["error", "stale", "pending_write"])
def test_states_outlive_a_process(lite: World, state: str) -> None:
    scope = users_scope(lite)
    lite.cold(scope)
    if state == "error":
        lite.service._marks.failed(scope, None, StorageError("no"))
    elif state == "stale":
        lite.service._marks.stale(scope, "torn")
    else:
        lite.hot(scope)
    lite.restart()
    assert lite.service._marks.of(scope).state == state  # type: ignore[union-attr]
    lite.clock.now_us += 100_000_000
    assert lite.service.due() == [scope]
    lite.service.repair(lambda scope: lite.flush(scope))
    assert lite.service.look(scope).mark.state == "in_sync"


# crashes


class Killed(BaseException):
    """The end of a process, at a step."""


STEPS = ("manifest.noted", "manifest.read", "manifest.sealed", "manifest.written", "manifest.looked", "manifest.synced")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("keeps_node", [True, False])
def test_killed_at_any_step_the_next_look_repairs_it(lite: World, step: str, keeps_node: bool) -> None:
    scope = users_scope(lite)
    lite.cold(scope, 70)  # with a sealed part

    def die(point: str) -> None:
        if point == step:
            raise Killed

    lite.at = die
    with pytest.raises(Killed):
        lite.cold(scope)
    lite.at = lambda point: None
    lite.service.close()
    if not keeps_node:
        shutil.rmtree(lite.node or "")
    lite.open()
    entry = lite.service.get_or_load(scope)
    assert world_agrees(lite, scope)
    assert lite.ids(entry) == lite.truth(scope)
    lite.clock.now_us += 61_000_000
    lite.service.repair()
    assert lite.service.look(scope).mark.state == "in_sync"
    stored = lite.stored(scope)
    assert {each.extent for each in lite.service._stored.segments(lite.service.place(scope), stored)} == lite.truth(
        scope
    )
    assert stored.version == lite.catalog.head(scope).sequence


def world_agrees(world: World, scope: Scope) -> bool:
    return world.ids(world.service.get_or_load(scope)) == world.truth(scope)


def test_older_writer_that_comes_late_does_not_leave_its_file(world: World) -> None:
    scope = users_scope(world)
    world.cold(scope)
    other = World(world.where, world.store, None, clock=world.clock)

    def overtake(point: str) -> None:
        if point == "manifest.sealed":
            world.at = lambda point: None
            other.cold(scope)

    world.at = overtake
    world.cold(scope)
    stored = world.stored(scope)
    assert stored.version == world.catalog.head(scope).sequence
    assert set(stored.notes.extents.values()) == world.truth(scope)  # type: ignore[union-attr]
    assert world_agrees(world, scope)
    assert world_agrees(other, scope)
    other.close()


def test_first_manifest_is_made_by_one_of_two(world: World) -> None:
    scope = users_scope(world)
    other = World(world.where, world.store, None, clock=world.clock)

    def overtake(point: str) -> None:
        if point == "manifest.sealed":
            world.at = lambda point: None
            other.cold(scope)

    world.at = overtake
    world.cold(scope)
    assert set(world.stored(scope).notes.extents.values()) == world.truth(scope)  # type: ignore[union-attr]
    assert len(world.truth(scope)) == 2
    other.close()


def test_manifests_lie_in_a_bucket_as_they_do_in_a_folder(s3_store: ObjectStore, tmp_path: Path) -> None:
    one, two = (World(str(tmp_path / "catalog.sqlite"), s3_store, None) for _ in range(2))
    scope = users_scope(one)

    def overtake(point: str) -> None:
        if point == "manifest.sealed":
            one.at = lambda point: None
            two.cold(scope)

    one.at = overtake
    one.cold(scope, 70)
    one.compact(scope, one.catalog.extents(scope)[:10])
    entry = two.service.get_or_load(scope)
    assert (entry.tier, two.ids(entry), len(entry.listed)) == ("manifest.json", one.truth(scope), 62)
    assert sum("manifest-part-" in meta.key for meta in s3_store.list()) == len(one.stored(scope).notes.parts)  # type: ignore[union-attr]
    one.close()
    two.close()


# damage


def damage_node(world: World) -> None:
    world.service.close()
    for file in Path(world.node or "").glob("*"):
        if file.suffix in (".sst", ".log") or file.name.startswith(("MANIFEST", "CURRENT")):
            file.write_bytes(b"\xff" * 1000)
    world.open()


def delete_node(world: World) -> None:
    world.service.close()
    shutil.rmtree(world.node or "", ignore_errors=True)
    world.open()


def delete_node_while_open(world: World) -> None:
    shutil.rmtree(world.node or "", ignore_errors=True)


def wrong_node(world: World) -> None:
    """A copy that lacks a segment, as if a batch had been written in part."""
    node, scope = world.service._node, Scope(world.catalog.table("app.notes").id, USER)
    assert node is not None
    held = node.held(scope)
    assert held is not None
    node.hold(scope, held, (), [next(iter(world.truth(scope)))])


def wrong_segment(world: World) -> None:
    """A copy of which one segment says another number of rows."""
    node, scope = world.service._node, Scope(world.catalog.table("app.notes").id, USER)
    assert node is not None
    held = node.held(scope)
    assert held is not None
    listed = world.service.get_or_load(scope).listed[0]
    node.hold(scope, held, [replace(listed, segment=replace(listed.segment, row_count=5))])


def torn_file(world: World) -> None:
    delete_node(world)
    key = next(meta.key for meta in world.store.list() if meta.key.endswith("/manifest.json"))
    world.store.put(key, bytes(world.store.get(key))[:-3])


def empty_file(world: World) -> None:
    delete_node(world)
    world.store.put(next(meta.key for meta in world.store.list() if meta.key.endswith("/manifest.json")), b"")


def missing_part(world: World) -> None:
    delete_node(world)
    world.store.delete([meta.key for meta in world.store.list() if "manifest-part-" in meta.key][:1])


def file_of_another_scope(world: World) -> None:
    delete_node(world)
    key = next(meta.key for meta in world.store.list() if meta.key.endswith("/manifest.json"))
    other = Scope(world.catalog.table("app.notes").id, "bob")
    world.cold(other)
    world.store.put(key, bytes(world.store.get(world.service.place(other).key)))


def older_file(world: World) -> None:
    scope = Scope(world.catalog.table("app.notes").id, USER)
    key = world.service.place(scope).key
    before = bytes(world.store.get(key))
    world.compact(scope, world.catalog.extents(scope)[:5])
    delete_node(world)
    world.store.put(key, before)


@pytest.mark.parametrize(
    "damage",
    [
        damage_node,
        delete_node,
        delete_node_while_open,
        wrong_node,
        wrong_segment,
        torn_file,
        empty_file,
        missing_part,
        file_of_another_scope,
        older_file,
    ],
)
def test_damaged_tier_gives_no_wrong_answer_and_is_put_right(lite: World, damage: Callable[[World], None]) -> None:
    scope = users_scope(lite)
    for _ in range(10):
        lite.cold(scope, 10)
    damage(lite)
    assert world_agrees(lite, scope)
    lite.cold(scope)
    assert world_agrees(lite, scope)
    lite.clock.now_us += 61_000_000
    lite.service.repair()
    delete_node(lite)
    entry = lite.service.get_or_load(scope)
    assert (entry.tier, lite.ids(entry)) == ("manifest.json", lite.truth(scope))


def test_file_that_is_newer_than_a_restored_catalog_is_not_believed(tmp_path: Path) -> None:
    place = tmp_path / "catalog.sqlite"
    world = World(str(place), open_store(tmp_path / "objects"), tmp_path / "node")
    scope = users_scope(world)
    world.cold(scope, 2)
    world.close()
    shutil.copy(place, tmp_path / "backup")
    world = World(str(place), world.store, world.node)
    world.cold(scope, 2)  # which the backup does not know
    world.close()
    for left in tmp_path.glob("catalog.sqlite*"):
        left.unlink()
    shutil.copy(tmp_path / "backup", place)
    world = World(str(place), world.store, world.node)
    assert world.stored(scope).version > world.catalog.head(scope).sequence
    assert world_agrees(world, scope)
    world.cold(scope, 3)  # under the sequence of what was lost
    assert world_agrees(world, scope)
    assert len(world.stored(scope).segments) == 5
    world.close()
    shutil.rmtree(world.node or "", ignore_errors=True)
    world = World(str(place), world.store, world.node)
    assert world.service.get_or_load(scope).tier == "manifest.json"
    assert world_agrees(world, scope)
    world.close()


def test_copy_whose_missed_commits_have_expired_is_loaded_again(world: World) -> None:
    scope = users_scope(world)
    first = world.cold(scope, 3)
    other = World(world.where, world.store, None, clock=world.clock)
    other.compact(scope, first)
    other.cold(scope)
    world.clock.now_us += 10_000_000
    world.catalog.expire_snapshots(scope, before_us=world.clock.now_us)
    assert len(world.catalog.history(scope)) == 1
    entry = world.service.get_or_load(scope)
    assert (world.ids(entry), len(entry.listed)) == (world.truth(scope), 2)
    other.close()


# bounds


def test_memory_holds_shared_scopes_only_and_no_more_than_allowed(lite: World) -> None:
    lite.limits = Limits(max_entries=3)
    lite.restart()
    table = lite.table()
    for number in range(20):
        lite.cold(Scope(table.id, f"u{number}"))
        lite.service.get_or_load(Scope(table.id, f"u{number}"))
    assert len(lite.service._memory) == 0
    shared = [lite.table(f"app.k{number}", KEYED).scope for number in range(6)]
    for scope in shared:
        lite.cold(scope)
        assert lite.service.get_or_load(scope).listed
    assert list(lite.service._memory) == shared[3:]
    assert lite.service.get_or_load(shared[0]).tier == "rocksdb"


def test_copies_that_nobody_asks_for_leave_the_node_but_not_what_is_due(lite: World) -> None:
    lite.limits = Limits(eviction_ttl_us=1_000_000, eviction_interval_us=0)
    lite.restart()
    table = lite.table()
    old, pending, fresh = (Scope(table.id, name) for name in ("old", "pending", "fresh"))
    for scope in (old, pending, fresh):
        lite.cold(scope)
    lite.hot(pending)
    lite.clock.now_us += 2_000_000
    lite.service.get_or_load(fresh)
    node = lite.service._node
    assert node is not None
    assert (node.held(old), node.mark(old)) == (None, None)
    assert node.mark(pending) is not None
    assert lite.service.get_or_load(old).tier == "manifest.json"


def test_dropped_table_leaves_no_state_behind(lite: World) -> None:
    scope = users_scope(lite)
    lite.hot(scope)
    lite.clock.now_us += 100_000_000
    lite.catalog.drop_table("app.notes")
    assert lite.service.due() == [scope]
    lite.service.repair()
    assert lite.service.due() == []


def test_control_plane_metadata_is_written_at_once_and_kept(world: World) -> None:
    scope = users_scope(world)
    index = {"embedding": {"metric": "cosine", "dimensions": 3}}
    world.service.persist_now(scope, vector_indexes=index)
    assert world.stored(scope).vector_indexes == index
    world.cold(scope)
    assert world.stored(scope).vector_indexes == index
    world.service.persist_now(scope, files={"subfolder": 1, "count": 2})
    key = world.service.place(scope).key
    world.store.put(key, b"torn")
    world.restart()
    world.cold(scope)
    assert (world.stored(scope).vector_indexes, world.stored(scope).files) == (index, {"subfolder": 1, "count": 2})


def test_control_plane_metadata_that_cannot_be_written_is_told(lite: World) -> None:
    scope = users_scope(lite)
    assert isinstance(lite.store, FaultyStore)
    lite.store.add(Fault("put*", "before", match="*manifest.json"))
    with pytest.raises(StorageError, match="could not be written"):
        lite.service.persist_now(scope, vector_indexes={})


class Counting(FaultyStore):
    """A store that counts the bytes that are written to it."""

    written = 0

    def put(self, key: str, data: Data) -> None:
        self.written += len(bytes(data))
        super().put(key, data)

    def put_if_absent(self, key: str, data: Data) -> None:
        self.written += len(bytes(data))
        super().put_if_absent(key, data)


def test_bytes_written_over_three_thousand_segments_stay_the_same_a_commit(tmp_path: Path) -> None:
    store = Counting(open_store("memory://"))
    world = World(str(tmp_path / "catalog.sqlite"), store, None)
    scope = users_scope(world)
    spent = []
    for _ in range(6):
        world.cold(scope, 499)
        before = store.written
        for _ in range(20):
            world.cold(scope)
        spent.append(store.written - before)
    assert len(world.truth(scope)) == 3_114
    assert max(spent) < 20 * 50_000
    assert max(spent[3:]) < 1.5 * max(spent[:3])
    world.close()
