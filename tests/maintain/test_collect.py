"""Show that collection deletes exactly what nothing can reach, whatever is killed or runs beside it.

The stores, catalogs and processes are real. It does not test expiry: see the catalogs' tests.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.support.bustle import TABLE, rewritten
from tests.support.catalogs import fresh_schema
from tests.support.disks import small_disk
from tests.support.faulty import Fault, FaultyStore
from tests.support.servers import S3Server, lossy_proxy
from tests.support.upkeep import check_store
from tidelake import InvalidInputError, Lake, StorageError
from tidelake.catalog.log.log_catalog import open_log_catalog
from tidelake.catalog.protocol import Pending, new_id, now_us
from tidelake.errors import ConflictError, NotFoundError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.maintain.collect import STEPS, CollectReport, Tally
from tidelake.model.snapshot import Commit, UnitedCoverage, UpdateCoverage
from tidelake.objects import extent_key, open_store
from tidelake.runtime.processes import process_name

WITHIN_S = 60
NOW: dict[str, Any] = {"abandoned_after": "0s", "orphan_after": "0s"}
WAYS = ("sqlite", "log", "postgres")

Opened = Callable[[], Lake]


@pytest.fixture(params=WAYS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Return how to open a lake, of each sort in turn; the objects of the last are in a bucket."""
    if request.param == "postgres":
        s3: S3Server = request.getfixturevalue("s3")
        place, objects = fresh_schema(request.getfixturevalue("postgres")), f"s3://{s3.bucket}/c-{secrets.token_hex(4)}"
        login: dict[str, Any] = {"endpoint": s3.endpoint, "key": s3.key, "secret": s3.secret}
        return lambda: tidelake.connect(place, objects=objects, **login)
    return lambda: tidelake.connect(f"{'log:' * (request.param == 'log')}{tmp_path / 'lake'}")


@pytest.fixture
def lake(opened: Opened) -> Iterator[Lake]:
    with opened() as found:
        yield found


@pytest.fixture
def folder_lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelake.connect(tmp_path / "lake") as found:
        yield found


def rows(numbers: range) -> list[dict[str, Any]]:
    return [{"ts": f"2026-01-01T{n % 24:02}:{n % 60:02}:00Z", "device": "d0", "n": n} for n in numbers]


def make_table(lake: Lake) -> None:
    """Make a table of one extent, which keeps coverage."""
    columns = {"ts": "timestamp", "device": "string", "n": "long"}
    table = lake.create_table(TABLE, columns, time="ts", bucket="1m", entity="device", flush_age="off")
    table.append(rows(range(-400, 0)))
    table.flush()


def numbers(lake: Lake) -> list[int]:
    return sorted(lake.table(TABLE).scan(columns=["n"]).read_all()["n"].to_pylist())


def filled(lake: Lake) -> None:
    """Make a table of one extent and its coverage, after others that were rewritten and have expired."""
    make_table(lake)
    table = lake.table(TABLE)
    table.append(rows(range(1100)))
    rewritten(lake, random.Random(0))
    assert lake.catalog.expire_snapshots(table.handle.scope, before_us=now_us() + 1).keys


def key_of(lake: Lake, name: str | None = None) -> str:
    """Name an extent that nobody has written."""
    info = lake.catalog.table(TABLE)
    return extent_key(info.namespace, info.name, name or new_id(), ".tlm")


def register(lake: Lake, *keys: str, owner: str = "elsewhere:1") -> None:
    """Register objects as a writer does, and write them."""
    scope = lake.catalog.table(TABLE).scope
    lake.catalog.register_pending([Pending(key, scope, owner) for key in keys])
    for key in keys:
        lake.store.put(key, b"written")


def littered(lake: Lake) -> dict[str, set[str]]:
    """Leave behind what can be left behind, and return the keys by reason."""
    filled(lake)
    expired = {each.key for each in lake.catalog.garbage(before_us=now_us() + 1)}
    abandoned, orphan, job = key_of(lake), key_of(lake), f"{key_of(lake, 'job-' + new_id()).removesuffix('.tlm')}"
    register(lake, abandoned)
    lake.store.put(orphan, b"nobody's")
    lake.catalog.register_pending([Pending(job, lake.catalog.table(TABLE).scope, "spark elsewhere:1")])
    in_job = {f"{job}/{new_id()}.tlm" for _ in range(3)}
    for key in in_job:
        lake.store.put(key, b"a task's")
    return {"expired": expired, "abandoned": {abandoned, *in_job}, "orphan": {orphan}}


def digest(lake: Lake) -> dict[str, str]:
    """Return all that is in a lake: what its catalog says, and the bytes of its store."""
    if not lake.store.url.startswith("file"):
        catalog = [repr(lake.catalog.pending()), repr(lake.catalog.garbage(before_us=2**60)), repr(lake.tables())]
        return {meta.key: f"{meta.size} {meta.modified}" for meta in lake.store.list()} | {"catalog": repr(catalog)}
    root = Path(lake.store.url.removeprefix("file://"))
    files = [path for path in root.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_collect_deletes_what_nothing_reaches_and_nothing_else(lake: Lake) -> None:
    doomed = littered(lake)
    held = numbers(lake)
    report = lake.collect(**NOW)
    assert {reason: tally.objects for reason, tally in report.deleted.items()} == {
        reason: len(keys) for reason, keys in doomed.items()
    }
    assert all(tally.bytes > 0 for tally in report.deleted.values())
    assert (report.registrations, report.left) == (2, {})
    check_store(lake)
    assert numbers(lake) == held
    assert lake.collect(**NOW) == CollectReport({}, {})


def test_dry_run_lists_what_a_run_deletes_and_changes_nothing(lake: Lake) -> None:
    doomed = littered(lake)
    before = digest(lake)
    report = lake.collect(dry_run=True, **NOW)
    assert digest(lake) == before
    assert report.objects is not None
    listed = report.objects.to_pylist()
    assert {(each["key"], each["reason"]) for each in listed} == {(k, why) for why in doomed for k in doomed[why]}
    assert all(each["since"] is not None and each["size"] > 0 for each in listed)
    real = lake.collect(**NOW)
    assert (report.deleted, report.left, report.registrations) == (real.deleted, real.left, real.registrations)
    assert real.objects is None


def test_what_is_young_or_of_a_writer_at_work_is_left(lake: Lake) -> None:
    doomed = littered(lake)
    report = lake.collect()
    assert report.deleted == {"expired": report.total}
    assert report.left == {"writing": 2, "young": 1}
    kept = {meta.key for meta in lake.store.list("data")}
    assert doomed["abandoned"] | doomed["orphan"] <= kept
    check_store_has_only(lake, doomed["orphan"])


def check_store_has_only(lake: Lake, orphans: set[str]) -> None:
    with pytest.raises(AssertionError, match="nothing names"):
        check_store(lake, quiet=False)
    lake.store.delete(orphans)
    check_store(lake, quiet=False)


def test_a_writer_whose_registration_was_given_up_is_refused(folder_lake: Lake) -> None:
    """And its coverage with it, also after the garbage is forgotten."""
    filled(folder_lake)
    collected = []

    def at(step: str) -> None:
        if step == "extent.covered":
            with tidelake.connect(folder_lake.where) as other:
                collected.append(other.collect(**NOW))

    slow = Lake(replace(folder_lake.handle, at=at))
    with pytest.raises(ConflictError) as caught:
        slow.table(TABLE).append(rows(range(2000, 3100)))
    assert caught.value.kind == "not_pending"
    assert collected[0].registrations == 2
    folder_lake.collect(**NOW)
    check_store(folder_lake)


def test_united_coverage_that_was_given_up_and_forgotten_is_not_committed(lake: Lake) -> None:
    filled(lake)
    scope = lake.catalog.table(TABLE).scope
    key = lake.catalog.layout.united_coverage_key(lake.catalog.table(TABLE), 9, "0" * 32)
    lake.catalog.register_pending([Pending(key, scope, "elsewhere:1")])
    lake.collect(**NOW)
    head = lake.catalog.head(scope)
    commit = Commit(new_id(), scope, head.sequence, (UpdateCoverage(UnitedCoverage(key, 9)),))
    with pytest.raises(ConflictError) as caught:
        lake.catalog.commit([commit], onto=head)
    assert caught.value.kind == "not_pending"


def test_registrations_of_a_process_that_is_gone_are_given_up_at_once(folder_lake: Lake) -> None:
    make_table(folder_lake)
    code = "import sys; from tidelake.runtime.processes import process_name as p; print(p())"
    gone = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    own = process_name()
    host, pid, place, start = own.split(":")
    owners = [
        gone,
        own,
        f"{host}:{pid}:{place}:{int(start) + 1}",
        f"{host}:{pid}:{'0' * 8}:1",
        f"other:{pid}:{place}:1",
    ]
    keys = {owner: key_of(folder_lake) for owner in owners}
    for owner, key in keys.items():
        register(folder_lake, key, owner=owner)
    report = folder_lake.collect()
    left = {each.owner for each in folder_lake.catalog.pending()}
    assert left == {own, owners[3], owners[4]}  # the third is an earlier process of the same id
    assert report.deleted["abandoned"].objects == report.registrations == 2


def test_a_dropped_table_leaves_nothing(lake: Lake) -> None:
    littered(lake)
    lake.drop_table(TABLE)
    dry = lake.collect(dry_run=True, **NOW)
    real = lake.collect(**NOW)
    assert real.tables == dry.tables == 1
    assert real.deleted == dry.deleted
    assert [meta.key for root in ("data", "_coverage") for meta in lake.store.list(root)] == []
    assert [*lake.catalog.pending(), *lake.catalog.garbage(before_us=2**60)] == []
    if lake.store.url.startswith("file"):
        assert not Path(lake.store.url.removeprefix("file://"), "data").exists()


def test_drop_with_purge_leaves_nothing_of_the_table_and_all_of_others(folder_lake: Lake) -> None:
    make_table(folder_lake)
    folder_lake.create_table("m.other", {"ts": "timestamp", "n": "long"}).append([{"ts": 0, "n": 1}] * 2000)
    folder_lake.create_table("m.dropped", {"ts": "timestamp", "n": "long"}).append([{"ts": 0, "n": 1}] * 2000)
    folder_lake.drop_table("m.dropped")
    folder_lake.drop_table(TABLE, purge=True)
    left = [meta.key for meta in folder_lake.store.list("data")]
    assert [key.split("/")[2] for key in left] == ["dropped", "other"]
    check_store(folder_lake)
    make_table(folder_lake)  # in the same folder
    assert len(numbers(folder_lake)) == 400


def test_a_table_dropped_lately_is_left_if_told_so(folder_lake: Lake) -> None:
    filled(folder_lake)
    folder_lake.drop_table(TABLE)
    assert folder_lake.collect(dropped_after="1h").tables == 0
    assert folder_lake.collect(dropped_after="0").tables == 1


def test_files_of_others_stay_and_are_told_of(lake: Lake) -> None:
    doomed = littered(lake)
    ids = new_id()
    strange = [
        "data/readme.txt",
        "data/m/cpu/extents/notes.tlm",
        f"data/m/cpu/extents/{ids.upper()}.tlm",
        f"data/m/cpu/extents/{ids}.tlm.bak",
        f"data/m/cpu/extents/sub/{ids}.tlm",
        f"data/m/cpu/extents/job-mine/{ids}.tlm",
        f"data/m/{'x' * 100} y/extents/{ids}.tlm",
        f"data/{ids}.tlm",
        "data/m/cpu/coverage/extents/%2E%2E.cov",
    ]
    for key in strange:
        lake.store.put(key, b"a stranger's")
    report = lake.collect(**NOW)
    assert report.left == {"foreign": len(strange)}
    assert sorted(report.foreign) == sorted(strange)
    assert report.deleted["orphan"].objects == len(doomed["orphan"])
    assert {meta.key for meta in lake.store.list("data")} >= set(strange)


def test_coverage_of_another_program_beside_a_log_stays(tmp_path: Path) -> None:
    with tidelake.connect(f"log:{tmp_path}") as lake:
        make_table(lake)
        ours = next(meta.key for meta in lake.store.list("_coverage/segments"))
        copy = f"_coverage/segments/segcov-{new_id()}.roar"
        lake.store.put(copy, bytes(lake.store.get(ours)))  # bytes that its name does not vouch for
        assert lake.collect(**NOW).foreign == (copy,)
        lake.store.put("_coverage/table/7-tblcov-x.roar", b"x")
        assert "_coverage/table/7-tblcov-x.roar" in lake.collect(**NOW).foreign


def test_a_log_cannot_have_its_own_files_deleted(tmp_path: Path) -> None:
    with tidelake.connect(f"log:{tmp_path}") as lake:
        make_table(lake)
        catalog: Any = lake.catalog
        catalog.register_pending([Pending("_timeseries_log/0000000001.json", lake.catalog.table(TABLE).scope, "x")])
        report = lake.collect(**NOW)
        assert report.foreign == ("_timeseries_log/0000000001.json",)
        assert lake.catalog.garbage(before_us=2**60) == []
    with tidelake.connect(f"log:{tmp_path}") as lake:
        assert len(numbers(lake)) == 400


def test_a_store_that_a_log_table_uses_too_is_refused(tmp_path: Path) -> None:
    with tidelake.connect(f"log:{tmp_path / 'both'}") as log:
        make_table(log)
    with tidelake.connect(tmp_path / "lake", objects=tmp_path / "both") as lake:
        make_table(lake)
        with pytest.raises(InvalidInputError, match="a place of its own"):
            lake.collect(**NOW)


def test_a_store_that_the_catalog_hardly_knows_is_left_alone(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "old") as old:
        make_table(old)
        for _ in range(100):
            old.store.put(key_of(old), b"another lake's")
    with tidelake.connect(tmp_path / "new", objects=tmp_path / "old") as new:
        report = new.collect(**NOW)
        assert (report.deleted, report.left) == ({}, {"doubtful": 102})
        assert new.collect(all_orphans=True, **NOW).deleted["orphan"].objects == 102


def test_unfinished_writes_of_dead_writers_go_and_those_of_living_ones_stay(folder_lake: Lake, tmp_path: Path) -> None:
    make_table(folder_lake)
    dead = tmp_path / "lake/data/m/cpu/extents" / f".tide-tmp-{secrets.token_hex(8)}"
    dead.write_bytes(b"half")
    (tmp_path / "lake/data/.tide-tmp-notes").write_bytes(b"a stranger's")
    seen: list[CollectReport] = []

    store: Any = folder_lake.store
    with store._written("data/m/cpu/extents/x", b"bytes") as (temporary, path):
        seen.append(folder_lake.collect(dry_run=True, **NOW))
        seen.append(folder_lake.collect(**NOW))
        os.replace(temporary, path)
    assert [(each.deleted, each.left) for each in seen] == [({"temporary": Tally(1, 4)}, {"writing": 1})] * 2
    assert not dead.exists()
    assert (tmp_path / "lake/data/.tide-tmp-notes").exists()


def test_a_folder_of_a_job_never_matches_its_sibling(lake: Lake) -> None:
    filled(lake)
    job = "0" * 32
    folder = key_of(lake, f"job-{job}").removesuffix(".tlm")
    scope = lake.catalog.table(TABLE).scope
    siblings = [f"{folder}x/{new_id()}.tlm", f"{folder}.tlm", f"{folder[:-1]}1/{new_id()}.tlm"]
    for key in siblings:
        lake.store.put(key, b"a sibling's")
    inside, named = f"{folder}/{new_id()}.tlm", f"{folder}/{new_id()}.tlm"
    lake.catalog.register_pending([Pending(folder, scope, "spark elsewhere:1")])
    for key in (inside, named):
        lake.store.put(key, b"a task's")
    lake.catalog.release_pending([folder])
    lake.catalog.register_pending([Pending(named, scope, "spark elsewhere:1")])
    lake.collect()
    left = {meta.key for meta in lake.store.list("data")}
    assert {*siblings, named} <= left
    assert inside not in left


def test_the_folder_of_a_job_that_runs_is_left_alone(folder_lake: Lake, tmp_path: Path) -> None:
    """It registered long ago, but a task has written lately."""
    filled(folder_lake)
    folder = key_of(folder_lake, f"job-{new_id()}").removesuffix(".tlm")
    key = f"{folder}/{new_id()}.tlm"
    folder_lake.catalog.register_pending([Pending(folder, folder_lake.catalog.table(TABLE).scope, "spark elsewhere:1")])
    folder_lake.store.put(key, b"a task's")
    database: Any = folder_lake.catalog
    with database._database.writing() as transaction:
        transaction.run_text("UPDATE pending SET since_us = 0")
    report = folder_lake.collect(orphan_after="0s")
    assert (report.left, report.registrations) == ({"writing": 1}, 0)
    os.utime(tmp_path / "lake" / key, (0, 0))
    report = folder_lake.collect()
    assert (report.deleted["abandoned"].objects, report.registrations) == (1, 1)
    check_store(folder_lake)


def _collect_and_die(opened: Opened, step: str) -> None:
    def at(point: str) -> None:
        if point == step:
            os.kill(os.getpid(), signal.SIGKILL)

    Lake(replace(opened().handle, at=at)).collect(**NOW)


@pytest.mark.parametrize("step", STEPS)
def test_collect_killed_at_any_step_harms_nothing_and_the_next_one_ends_it(opened: Opened, step: str) -> None:
    with opened() as lake:
        littered(lake)
        if not lake.where.startswith("log:"):  # which holds one table
            lake.create_table("m.gone", {"ts": "timestamp", "n": "long"}).append([{"ts": 0, "n": 1}] * 2000)
            lake.drop_table("m.gone")
        held = numbers(lake)
        doomed = multiprocessing.get_context("fork").Process(target=_collect_and_die, args=(opened, step))
        doomed.start()
        doomed.join(WITHIN_S)
        assert doomed.exitcode == -signal.SIGKILL
        assert numbers(lake) == held
        lake.collect(**NOW)
        check_store(lake)
        assert numbers(lake) == held
        assert [*lake.catalog.garbage(before_us=2**60), *lake.catalog.pending()] == []


@pytest.mark.parametrize("step", STEPS)
def test_a_second_collector_at_any_step_of_the_first_is_harmless(opened: Opened, step: str) -> None:
    with opened() as lake, opened() as other:
        littered(lake)
        held = numbers(lake)

        def at(point: str) -> None:
            if point == step:
                other.collect(**NOW)

        Lake(replace(lake.handle, at=at)).collect(**NOW)
        check_store(lake)
        assert numbers(lake) == held


@pytest.mark.parametrize("step", STEPS)
def test_an_append_at_any_step_of_a_collection_is_kept(opened: Opened, step: str) -> None:
    with opened() as lake, opened() as other:
        littered(lake)
        held = numbers(lake)

        def at(point: str) -> None:
            if point == step:
                other.table(TABLE).append(rows(range(5000, 6100)))

        Lake(replace(lake.handle, at=at)).collect(**NOW)
        check_store(lake)
        assert numbers(lake) == [*held, *range(5000, 6100)]


@pytest.mark.parametrize("step", ["extent.registered", "extent.begun", "extent.written", "extent.covered"])
def test_a_collection_at_any_step_of_an_append_leaves_it_alone(opened: Opened, step: str) -> None:
    with opened() as lake, opened() as other:
        littered(lake)
        held = numbers(lake)

        def at(point: str) -> None:
            if point == step:
                other.collect(orphan_after="0s")

        Lake(replace(lake.handle, at=at)).table(TABLE).append(rows(range(5000, 6100)))
        assert numbers(lake) == [*held, *range(5000, 6100)]
        lake.collect(**NOW)
        check_store(lake)
        assert numbers(lake) == [*held, *range(5000, 6100)]


def test_a_bucket_is_asked_to_delete_a_thousand_at_a_time(s3: S3Server, tmp_path: Path) -> None:
    with lossy_proxy(s3) as (proxy, door):
        login: dict[str, Any] = {"endpoint": door.endpoint, "key": door.key, "secret": door.secret}
        objects = f"s3://{s3.bucket}/bulk-{secrets.token_hex(4)}"
        with tidelake.connect(tmp_path / "lake", objects=objects, **login) as lake:
            make_table(lake)
            scope = lake.catalog.table(TABLE).scope
            lake.catalog.register_pending([Pending(key_of(lake), scope, "elsewhere:1") for _ in range(1500)])
            for each in lake.catalog.pending()[:20]:
                lake.store.put(each.key, b"x")
            proxy.requests.clear()
            proxy.refuse("POST", 403)
            with pytest.raises(StorageError, match="permission denied") as caught:
                lake.collect(**NOW)
            assert caught.value.facts["store"] == objects
            assert len(lake.catalog.garbage(before_us=2**60, limit=5000)) == 1500
            proxy.requests.clear()
            assert lake.collect(**NOW).deleted["abandoned"].objects == 20
            assert proxy.requests.count("POST") == 2
            assert "DELETE" not in proxy.requests
            check_store(lake)


def test_a_store_that_may_not_be_changed_is_an_error_and_nothing_is_forgotten(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, tidelake.connect(tmp_path / "lake", objects=disk.root) as lake:
        littered(lake)
        garbage = len(lake.catalog.garbage(before_us=2**60))
        with disk.read_only(), pytest.raises(StorageError, match="the disk is read-only") as caught:
            lake.collect(orphan_after="0s")
        assert caught.value.facts["store"] == disk.root.as_uri()
        assert len(lake.catalog.garbage(before_us=2**60)) == garbage > 0
        lake.collect(**NOW)
        check_store(lake)


@pytest.mark.parametrize("mode", ["before", "after", "torn"])
def test_a_delete_that_fails_is_done_again(folder_lake: Lake, mode: Any) -> None:
    littered(folder_lake)
    store = FaultyStore(folder_lake.store, [Fault("delete", mode)])
    faulty = Lake(LakeHandle(folder_lake.catalog, store, folder_lake.where))
    with pytest.raises(StorageError):
        faulty.collect(**NOW)
    assert store.fired
    faulty.collect(**NOW)
    check_store(folder_lake)


def test_collect_refuses_what_is_no_age(folder_lake: Lake) -> None:
    bad: list[dict[str, Any]] = [{"orphan_after": "soon"}, {"abandoned_after": "-1d"}, {"dropped_after": ""}]
    for words in bad:
        with pytest.raises(InvalidInputError, match="is not a duration"):
            folder_lake.collect(**words)
    assert folder_lake.collect().total == Tally()


def test_a_log_without_a_table_has_nothing_to_collect(tmp_path: Path) -> None:
    with tidelake.connect(f"log:{tmp_path}") as lake:
        assert lake.collect(**NOW) == CollectReport({}, {})
        with pytest.raises(NotFoundError):
            lake.drop_table("t", purge=True)


def test_objects_in_memory_are_collected_too() -> None:
    store = open_store("memory://")
    with Lake(LakeHandle(open_log_catalog(store, create=True), store, "log:memory://")) as lake:
        littered(lake)
        lake.collect(**NOW)
        check_store(lake)
