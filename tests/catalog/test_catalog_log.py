"""Check a log table beyond the contract: finding its end, checkpoints, faults, crashes and races, on disk and on S3."""

from __future__ import annotations

import json
import logging
import multiprocessing
import random
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest

from tests.support.catalogs import (
    SCHEMA,
    Ticking,
    announce,
    append,
    append_hot,
    commit_of,
    extent,
    hot,
    publish,
)
from tests.support.faulty import Fault, FaultyStore, Mode
from tests.support.log_worker import append_many, append_until_killed
from tests.support.original import read_original
from tests.support.servers import S3Server, lossy_proxy
from tidelake.catalog.commit import Coordinator
from tidelake.catalog.log.draft import creation
from tidelake.catalog.log.entries import Done, Entry, Mark, decode, encode, seal
from tidelake.catalog.log.journal import TAIL_BYTES, UNFINISHED_US
from tidelake.catalog.log.log_catalog import LogCatalog, open_log_catalog
from tidelake.catalog.protocol import Catalog, Expired, Pending, StaleHead, TableInfo, new_id, now_us
from tidelake.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnavailableError,
)
from tidelake.model.snapshot import (
    AddExtent,
    AppendHot,
    Counts,
    DropHot,
    Extent,
    Fence,
    Manifest,
    RecordOffset,
    RemoveExtent,
    Scope,
    UnitedCoverage,
    UpdateCoverage,
    UpdateTable,
    make_id,
)
from tidelake.objects import LOG_CURRENT, ObjectStore, log_checkpoint_key, log_commit_key, open_store

GOLDEN = Path(__file__).parents[1] / "golden" / "log" / "prices"


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Return an empty root, of each sort in turn."""
    found: ObjectStore = request.getfixturevalue(f"{request.param}_store")
    return found


def create(store: ObjectStore, **words: Any) -> tuple[LogCatalog, Scope]:
    catalog = open_log_catalog(store, create=True, **words)
    return catalog, catalog.create_table("logs", SCHEMA, {"time": "ts"}).scope


def text_of(store: ObjectStore, key: str) -> str:
    return bytes(store.get(key)).decode()


def manifest_of(store: ObjectStore, scope: Scope) -> Manifest:
    """Read a table as one who has never seen it."""
    with open_log_catalog(store) as catalog:
        return catalog.manifest(scope)


def entries_of(store: ObjectStore) -> list[Entry]:
    """Read every entry of a log, whatever ``CURRENT`` says."""
    found: list[Entry] = []
    with suppress(NotFoundError):
        while True:
            version = len(found) + 1
            found.append(decode(bytes(store.get(log_commit_key(version))), version))
    return found


# opening


def test_root_without_a_log_is_not_found_and_says_so(store: ObjectStore) -> None:
    with pytest.raises(NotFoundError, match="no table here: no commits, version 0 store="):
        open_log_catalog(store)
    catalog = open_log_catalog(store, create=True)
    assert (catalog.tables(), catalog.pending(), catalog.garbage(before_us=2**60)) == ([], [], [])
    assert (catalog.expire_receipts(before_us=2**60), catalog.abandon_pending(before_us=2**60)) == (0, [])
    assert catalog.purge_tables(before_us=2**60) == Expired(0, ())
    with pytest.raises(NotFoundError, match=r"no such table table=default\.logs here=none"):
        catalog.table("logs")
    with pytest.raises(NotFoundError, match="no such table"):
        catalog.head(Scope("nobody"))
    with pytest.raises(NotFoundError, match="no commits, version 0"):
        catalog.work.enqueue("a", "b", {})


def test_folder_that_is_missing_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such folder"):
        open_log_catalog(tmp_path / "nothing")


def test_bucket_that_is_missing_is_told_in_one_line(s3: S3Server) -> None:
    with pytest.raises(StorageError, match="no such bucket: check its name") as error:
        open_log_catalog(replace(s3, bucket="nothing-here").open("t"))
    assert "\n" not in str(error.value)


def test_root_takes_one_table_and_no_other(store: ObjectStore) -> None:
    catalog, scope = create(store)
    for name in ("logs", "other"):
        with pytest.raises(AlreadyExistsError, match=r"the table exists table=default\.logs"):
            catalog.create_table(name, SCHEMA, {})
    with pytest.raises(InvalidInputError, match="version 1"):
        catalog.create_table("x", replace(SCHEMA, version=2), {})
    assert open_log_catalog(store).table("logs").scope == scope


def test_one_of_two_who_create_a_table_wins(store: ObjectStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        ready = threading.Barrier(4)

        def try_it(number: int) -> TableInfo | None:
            catalog = open_log_catalog(store, create=True)
            ready.wait()
            try:
                return catalog.create_table(f"t{number}", SCHEMA, {})
            except AlreadyExistsError:
                return None

        won = [info for info in pool.map(try_it, range(4)) if info]
    assert won == open_log_catalog(store).tables()


def test_store_that_ignores_the_condition_is_refused(memory_store: ObjectStore) -> None:
    careless = FaultyStore(memory_store, [Fault("put_if_absent", "unconditional", times=None)])
    with pytest.raises(StorageError, match="ignores conditional put"):
        create(careless)
    assert list(memory_store.list()) == []


def test_an_existing_table_on_a_store_that_ignores_the_condition_is_not_written(s3: S3Server) -> None:
    with lossy_proxy(s3) as (proxy, seen):
        root = f"careless-{secrets.token_hex(4)}"
        catalog, scope = create(s3.open(root))
        append(catalog, scope)
        before = {meta.key: bytes(s3.open(root).get(meta.key)) for meta in s3.open(root).list()}
        proxy.drops_conditions = True
        careless = open_log_catalog(seen.open(root))
        assert len(careless.extents(scope)) == 1  # it can be read
        acts: list[Callable[[], object]] = [
            lambda: append(careless, scope),
            lambda: publish(careless, scope, UpdateTable(None, {"a": 1})),
            lambda: careless.drop_table("logs"),
            lambda: careless.expire_receipts(before_us=2**62),
        ]
        for act in acts:
            with pytest.raises(StorageError, match="ignores conditional put") as error:
                act()
            assert error.value.kind == "no_conditional_put"
        assert {meta.key: bytes(s3.open(root).get(meta.key)) for meta in s3.open(root).list()} == before
        append(catalog, scope)


def test_a_server_is_asked_once_whether_it_keeps_the_condition(s3: S3Server) -> None:
    with lossy_proxy(s3) as (proxy, seen):
        root = f"careful-{secrets.token_hex(4)}"
        catalog, scope = create(s3.open(root))
        del catalog
        asked = []
        for _ in range(3):
            again = open_log_catalog(seen.open(root))
            before = proxy.requests.count("PUT")
            publish(again, scope, UpdateTable(None, {"a": 1}))
            asked.append(proxy.requests.count("PUT") - before)
        assert asked == [4, 2, 2]  # an entry and CURRENT, and two that ask


def test_table_without_a_name_has_its_roots(tmp_path: Path) -> None:
    for folder, name in (("prices-1h", "prices-1h"), ("2024 é", "_2024__"), ("x" * 200, "x" * 127)):
        root = shutil.copytree(GOLDEN, tmp_path / folder)
        assert open_log_catalog(root).tables()[0].name == name


# the end of the log


@pytest.mark.parametrize(
    "current",
    [
        None,
        b"",
        b"garbage",
        b"-3\n",
        b"\xff\xfe",
        b"0\n",
        b"1\n",
        b"3\n",
        b"5\n",
        b"9999999999\n",
        b"123456789012345\n",
    ],
)
def test_current_is_a_hint_that_is_repaired(store: ObjectStore, current: bytes | None) -> None:
    catalog, scope = create(store)
    for _ in range(3):
        append(catalog, scope)
    if current is None:
        store.delete([LOG_CURRENT])
    else:
        store.put(LOG_CURRENT, current)
    assert manifest_of(store, scope) == catalog.manifest(scope)
    assert text_of(store, LOG_CURRENT) == "4\n"


def test_commit_that_was_interrupted_is_adopted(store: ObjectStore) -> None:
    catalog, scope = create(store)
    reader = open_log_catalog(store)
    added = append(catalog, scope)
    store.put(LOG_CURRENT, b"1\n")  # the original would never write to such a table again
    assert reader.extents(scope) == [added]
    assert text_of(store, LOG_CURRENT) == "1\n"
    with open_log_catalog(store) as again:
        assert again.extents(scope) == [added]
        assert text_of(store, LOG_CURRENT) == "2\n"
        append(again, scope)
    assert (text_of(store, LOG_CURRENT), reader.head(scope).sequence) == ("3\n", 3)


def test_gap_in_the_log_is_an_error_that_names_the_file(local_store: ObjectStore) -> None:
    catalog, scope = create(local_store)
    for _ in range(4):
        append(catalog, scope)
    local_store.delete([log_commit_key(3)])
    for current in (b"5\n", b"7\n", None):
        local_store.delete([LOG_CURRENT]) if current is None else local_store.put(LOG_CURRENT, current)
        again = open_log_catalog(local_store, create=True)
        for _ in range(2):  # half a log is no answer, however often one asks
            with pytest.raises(CorruptError, match=r"a commit file is missing file=_timeseries_log/0000000003\.json"):
                again.tables()


def test_commit_in_the_place_of_another_is_found(local_store: ObjectStore) -> None:
    catalog, scope = create(local_store)
    append(catalog, scope)
    kept = bytes(local_store.get(log_commit_key(2)))
    local_store.delete([log_commit_key(2)])
    local_store.put(LOG_CURRENT, b"1\n")
    other = open_log_catalog(local_store)
    append(other, scope)
    append(other, scope)
    local_store.put(log_commit_key(2), kept)
    with pytest.raises(CorruptError, match=r"does not follow the one before it file=_timeseries_log/0000000003\.json"):
        open_log_catalog(local_store)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("damage", [b"", b"not json", b"{}", b"[1]"])
def test_damaged_commit_is_an_error_that_names_the_file(local_store: ObjectStore, version: int, damage: bytes) -> None:
    catalog, scope = create(local_store)
    append(catalog, scope)
    append(catalog, scope)
    local_store.put(log_commit_key(version), damage)
    with pytest.raises(CorruptError, match=f"a commit file is damaged file={log_commit_key(version)}") as error:
        open_log_catalog(local_store)
    assert "\n" not in str(error.value)
    assert bytes(local_store.get(log_commit_key(version))) == damage  # the evidence is kept


def test_reader_that_knows_a_damaged_commit_goes_on_and_others_do_not(local_store: ObjectStore) -> None:
    catalog, scope = create(local_store)
    append(catalog, scope)
    local_store.put(log_commit_key(2), b"not json")
    append(catalog, scope)
    assert len(catalog.extents(scope)) == 2
    with pytest.raises(CorruptError, match=log_commit_key(2)):
        open_log_catalog(local_store)


def test_newer_table_is_refused_in_one_line(tmp_path: Path) -> None:
    root = Path(shutil.copytree(GOLDEN, tmp_path / "prices"))
    file = root / log_commit_key(1)
    file.write_text(file.read_text().replace('"format_version":1', '"format_version":6'))
    with pytest.raises(InvalidInputError, match="the table has a newer format format_version=6 reads=1 store=file:"):
        open_log_catalog(root)


# what another program left unfinished


@pytest.fixture
def half_written(tmp_path: Path) -> Path:
    """Return a table in which another program broke off in the middle of its fourth commit."""
    root = Path(shutil.copytree(GOLDEN, tmp_path / "prices"))
    whole = (
        (root / log_commit_key(3))
        .read_bytes()
        .replace(b'"version":3,"base_version":2', b'"version":4,"base_version":3')
    )
    (root / log_commit_key(4)).write_bytes(whole[: len(whole) // 2])
    return root


def test_unfinished_commit_is_passed_over_by_readers(half_written: Path) -> None:
    catalog = open_log_catalog(half_written)
    scope = catalog.table("prices").scope
    assert catalog.head(scope).sequence == 3
    assert len(catalog.extents(scope)) == 2
    (half_written / LOG_CURRENT).unlink()
    assert open_log_catalog(half_written).head(scope).sequence == 3


def test_unfinished_commit_is_superseded_when_it_is_old(half_written: Path) -> None:
    torn = (half_written / log_commit_key(4)).read_bytes()
    clock = Ticking(now_us())
    catalog = open_log_catalog(half_written, clock=clock)
    scope = catalog.table("prices").scope
    with pytest.raises(StorageError, match="another program has not finished a commit: try again") as error:
        append(catalog, scope, version=2)
    assert (error.value.kind, error.value.facts["file"]) == ("unfinished", log_commit_key(4))
    clock.now_us += UNFINISHED_US
    other = open_log_catalog(half_written, clock=clock)
    added = append(catalog, scope, version=2)
    again = append(other, scope, version=2)
    assert (added.added_seq, again.added_seq) == (4, 5)
    assert (half_written / "_timeseries_log/_unfinished/0000000004.json").read_bytes() == torn
    assert json.loads((half_written / log_commit_key(4)).read_text())["actions"] == []
    assert [s.sequence for s in catalog.history(scope)] == [5, 4, 3, 2, 1]
    assert open_log_catalog(half_written).manifest(scope) == catalog.manifest(scope) == other.manifest(scope)


def test_slow_writer_may_still_finish_its_commit(half_written: Path) -> None:
    catalog = open_log_catalog(half_written)
    scope = catalog.table("prices").scope
    head = catalog.head(scope)
    ours = announce(catalog, commit_of(scope, AddExtent(extent(version=2)), base=3))
    with pytest.raises(StorageError, match="not finished"):
        catalog.commit([ours], onto=head)
    whole = (half_written / log_commit_key(3)).read_text()
    whole = whole.replace('"version":3,"base_version":2', '"version":4,"base_version":3').replace(
        "january-3", "january-4"
    )
    (half_written / log_commit_key(4)).write_text(whole)
    with pytest.raises(StaleHead):
        catalog.commit([ours], onto=head)
    assert catalog.head(scope).totals.extents == 3


@pytest.mark.parametrize("tell", ["current", "next"])
def test_commit_that_breaks_off_is_damage_when_it_was_acknowledged(half_written: Path, tell: str) -> None:
    if tell == "current":
        (half_written / LOG_CURRENT).write_text("4\n")
    else:
        shutil.copy(half_written / log_commit_key(3), half_written / log_commit_key(5))
    with pytest.raises(CorruptError, match=f"a commit file is damaged file={log_commit_key(4)} reason=it breaks off"):
        open_log_catalog(half_written)


# checkpoints


def busy_table(store: ObjectStore, commits: int) -> Scope:
    """Write the log of a table with so many versions, and no checkpoint."""
    info = TableInfo(new_id(), "default", "logs", 1)
    first = creation(info, SCHEMA, {"time": "ts"}, salt=1)
    store.put(log_commit_key(1), encode(first))
    parent = first.id
    for version in range(2, commits + 1):
        added = extent(times=(version * 1000, version * 1000 + 999))
        mark = Mark(
            sequence=version,
            parent_id=parent,
            operation="append",
            schema_version=1,
            totals=Counts(version - 1, (version - 1) * 10, (version - 1) * 1000),
            added=Counts(1, 10, 1000),
            removed=Counts(),
            coverage=None,
            commits=(Done(new_id(), f"k{version}", 10, 1),),
        )
        parent = make_id(version, version)
        store.put(log_commit_key(version), encode(Entry(version, parent, version, (AddExtent(added),), mark)))
    store.put(LOG_CURRENT, f"{commits}\n".encode())
    return info.scope


def opened(store: ObjectStore) -> tuple[LogCatalog, FaultyStore]:
    """Open a table, and give the store that counted what that took."""
    counted = FaultyStore(store)
    return open_log_catalog(counted), counted


def checkpoints_of(store: ObjectStore) -> list[str]:
    return [meta.key.rpartition("/")[2] for meta in store.list("_timeseries_log/_checkpoints")]


def test_opening_ten_thousand_commits_reads_a_handful_of_objects(memory_store: ObjectStore) -> None:
    scope = busy_table(memory_store, 9_999)
    catalog, counted = opened(memory_store)
    assert counted.calls == {"get": 1 + 9_999 + 1, "list": 1}  # CURRENT, every entry, and the one that is not there
    append(catalog, scope, times=(0, 0))
    assert checkpoints_of(memory_store) == ["0000010000.json"]
    for more in range(1, 36):
        append_hot(catalog, scope)
        if more in (1, 9, 10, 11, 20, 35):
            again, counted = opened(memory_store)
            read = {"get": 3 + (more >= 10) + more % 10, "list": 1}  # CURRENT, checkpoint, next; a tail; those since
            assert counted.calls == read
            assert again.head(scope) == catalog.head(scope)
    assert again.manifest(scope) == catalog.manifest(scope)
    assert checkpoints_of(memory_store) == ["0000010000.json", "0000010020.tail.json", "0000010030.tail.json"]
    catalog, counted = opened(memory_store)
    counted.clear()
    assert catalog.snapshot(scope, sequence=5_000).sequence == 5_000
    assert catalog.snapshot(scope, at_us=5_000).sequence == 5_000
    assert catalog.snapshot(scope, snapshot_id=make_id(5_000, 5_000)).sequence == 5_000
    assert catalog.receipt(scope, key="k5000") is not None
    assert len(catalog.extents(scope, start_ns=5_000_000, end_ns=5_010_000)) == 10
    assert len(catalog.extents(scope, sequence=5_000)) == 4_999
    assert (counted.calls["get"] < 40, counted.calls["list"]) == (True, 0)


def test_checkpoint_that_is_damaged_is_passed_over_with_a_warning(
    memory_store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    scope = busy_table(memory_store, 95)
    catalog = open_log_catalog(memory_store)
    for _ in range(130):
        append_hot(catalog, scope)
    whole = catalog.manifest(scope)
    names = checkpoints_of(memory_store)
    assert names == ["0000000100.json", "0000000200.json", "0000000210.tail.json", "0000000220.tail.json"]
    reads = []
    for damaged, name in enumerate(reversed(names), start=1):
        key = f"_timeseries_log/_checkpoints/{name}"
        data = bytearray(memory_store.get(key))
        data[len(data) // 2] ^= 4
        memory_store.put(key, data)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            again, counted = opened(memory_store)
        reads.append(counted.reads)
        assert ["a checkpoint is passed over" in record.message for record in caplog.records] == [True] * damaged
        assert again.manifest(scope) == whole
    since = (15, 25, 125, 225)
    assert reads == [
        1 + damaged + held + n + 1 for damaged, held, n in zip((1, 2, 3, 4), (2, 1, 1, 0), since, strict=True)
    ]


def test_checkpoint_of_a_newer_tidelake_is_passed_over(
    memory_store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    scope = busy_table(memory_store, 99)
    catalog = open_log_catalog(memory_store)
    append(catalog, scope)
    memory_store.put(log_checkpoint_key(100), seal({"format": 3, "state": {}}))
    with caplog.at_level(logging.WARNING):
        assert manifest_of(memory_store, scope) == catalog.manifest(scope)
    assert "written by a newer tidelake" in caplog.text


def test_checkpoint_ahead_of_the_log_is_an_error(memory_store: ObjectStore) -> None:
    scope = busy_table(memory_store, 99)
    append(open_log_catalog(memory_store), scope)
    memory_store.delete([log_commit_key(100)])
    for current in (b"99\n", b"nothing"):
        memory_store.put(LOG_CURRENT, current)
        with pytest.raises(CorruptError, match=f"a commit file is missing file={log_commit_key(100)}"):
            open_log_catalog(memory_store)


def test_reader_far_behind_jumps_to_a_checkpoint(memory_store: ObjectStore) -> None:
    scope = busy_table(memory_store, 20)
    reader, counted = opened(memory_store)
    writer = open_log_catalog(memory_store)
    for _ in range(300):
        publish(writer, scope, AppendHot(hot()))
    counted.clear()
    assert reader.manifest(scope) == writer.manifest(scope)
    assert counted.reads < 30


def test_long_hot_rows_are_not_written_into_tails(memory_store: ObjectStore) -> None:
    catalog, scope = create(memory_store)
    for _ in range(11):
        publish(catalog, scope, AppendHot(replace(hot(), payload=bytes(TAIL_BYTES // 8))))
    assert checkpoints_of(memory_store) == []
    assert manifest_of(memory_store, scope) == catalog.manifest(scope)


def test_checkpoints_that_cannot_be_written_stop_nobody(store: ObjectStore) -> None:
    faulty = FaultyStore(
        store,
        [
            Fault("put", "before", match="*/_checkpoints/*", times=None),
            Fault("put", "before", match="*CURRENT", times=None),
        ],
    )
    catalog, scope = create(faulty)
    for _ in range(12):
        append_hot(catalog, scope)
    assert len(faulty.fired) == 14
    assert manifest_of(store, scope) == catalog.manifest(scope)
    assert text_of(store, LOG_CURRENT) == "13\n"


def test_two_readers_of_one_table_agree_after_every_step(store: ObjectStore) -> None:
    writer, scope = create(store)
    reader = open_log_catalog(store)
    one = append(writer, scope)
    assert reader.manifest(scope) == writer.manifest(scope)
    batch = append_hot(writer, scope)
    publish(reader, scope, RemoveExtent(one.id), DropHot(batch.id), AddExtent(extent()), RecordOffset("s", 3), key="k")
    assert writer.manifest(scope) == reader.manifest(scope)
    assert writer.receipt(scope, key="k") == reader.receipt(scope, key="k")
    assert writer.hot(scope, sequence=3) == reader.hot(scope, sequence=3) == [replace(batch, removed_seq=4)]
    writer.expire_snapshots(scope, before_us=2**60)
    with pytest.raises(NotFoundError, match="expired"):
        reader.snapshot(scope, sequence=3)
    assert reader.garbage(before_us=2**60) == writer.garbage(before_us=2**60)
    assert reader.manifest(scope) == manifest_of(store, scope)


def test_sequences_stay_their_own_when_upkeep_lies_between(memory_store: ObjectStore) -> None:
    catalog, scope = create(memory_store)
    batches = []
    for number in range(40):
        batches.append(append_hot(catalog, scope))
        if number % 3 == 0:
            catalog.work.enqueue("compact", str(number), {})
    publish(catalog, scope, *(DropHot(batch.id) for batch in batches), AddExtent(extent()), key="last")
    for _ in range(60):
        catalog.work.enqueue("compact", new_id(), {})
    assert "0000000100.json" in checkpoints_of(memory_store)
    again = open_log_catalog(memory_store)
    assert [s.sequence for s in again.history(scope)] == list(range(42, 0, -1))
    assert again.history(scope) == catalog.history(scope)
    for sequence in (1, 2, 3, 5, 20, 41, 42):
        snapshot = again.snapshot(scope, sequence=sequence)
        assert snapshot.sequence == sequence
        assert again.snapshot(scope, snapshot_id=snapshot.id) == snapshot
        assert again.snapshot(scope, at_us=snapshot.committed_us) == snapshot
    assert again.hot(scope, sequence=30) == [replace(batch, removed_seq=42) for batch in batches[:29]]
    assert again.receipt(scope, key="last") == catalog.receipt(scope, key="last")


def test_object_that_a_retained_snapshot_shares_is_no_garbage(local_store: ObjectStore) -> None:
    catalog, scope = create(local_store)
    one = append(catalog, scope, coverage_key="c/shared")
    append(catalog, scope, coverage_key="c/shared")
    publish(catalog, scope, RemoveExtent(one.id), UpdateCoverage(UnitedCoverage("c/shared", 3)))
    publish(catalog, scope, UpdateCoverage(UnitedCoverage("c/next", 4)))
    assert catalog.expire_snapshots(scope, before_us=2**60) == Expired(4, (one.key,))


def test_expiring_deletes_nothing_of_the_log(local_store: ObjectStore, tmp_path: Path) -> None:
    catalog, scope = create(local_store)
    for _ in range(5):
        publish(catalog, scope, AddExtent(replace(extent(), format="parquet")))
    assert catalog.expire_snapshots(scope, before_us=2**60) == Expired(5, ())
    assert [local_store.head(log_commit_key(version)).key for version in range(1, 8)]
    assert len(read_original(tmp_path / "lake").segments) == 5


# one scope, one table


def test_users_have_nothing_in_a_log_and_cannot_commit(local_store: ObjectStore) -> None:
    catalog, scope = create(local_store)
    ann = Scope(scope.table_id, "ann")
    assert (catalog.head(ann).sequence, catalog.head(ann).schema) == (0, SCHEMA)
    assert (catalog.extents(ann), catalog.hot(ann), catalog.history(ann)) == ([], [], [])
    said = "a log table has one scope: tables with users need SQLite or PostgreSQL"
    with pytest.raises(UnavailableError, match=said):
        catalog.commit([commit_of(ann, AppendHot(hot()))], onto=catalog.head(ann))
    with pytest.raises(UnavailableError, match=said):
        catalog.register_pending([Pending("data/x", ann, "me")])
    with pytest.raises(UnavailableError, match="the table of a log keeps its name"):
        catalog.rename_table("logs", "others")


def test_dropped_table_is_purged_and_its_root_not_used_again(store: ObjectStore) -> None:
    clock = Ticking()
    catalog, scope = create(store, clock=clock)
    kept, gone = append(catalog, scope, coverage_key="c/1"), append(catalog, scope)
    publish(catalog, scope, RemoveExtent(gone.id))
    waiting = announce(catalog, commit_of(scope, AddExtent(extent())))
    other = open_log_catalog(store)
    head = other.head(scope)
    catalog.drop_table("logs")
    assert (other.tables(), catalog.tables()) == ([], [])
    with pytest.raises(NotFoundError, match="no such table, or it was dropped"):
        other.commit([replace(waiting, base=4)], onto=head)
    with pytest.raises(AlreadyExistsError, match="the root had a table that was dropped: use another"):
        catalog.create_table("logs", SCHEMA, {})
    assert catalog.purge_tables(before_us=0) == Expired(0, ())
    purged = catalog.purge_tables(before_us=clock.now_us)
    keys = {kept.key, "c/1", gone.key, waiting.actions[0].extent.key}  # type: ignore[union-attr]
    assert (purged.snapshots, set(purged.keys)) == (4, keys)
    assert {(g.key, g.reason) for g in other.garbage(before_us=2**60)} == {(key, "dropped") for key in keys}
    assert other.purge_tables(before_us=clock.now_us) == Expired(0, ())
    assert list(store.list("_timeseries_log/_pending")) == []


def test_fence_of_one_process_holds_in_another(store: ObjectStore) -> None:
    clock = Ticking()
    first, scope = create(store, clock=clock)
    second = open_log_catalog(store, clock=clock)
    first.work.enqueue("compact", "logs", {})
    unit = first.work.claim(["compact"], owner="one", lease_us=1000)
    assert unit is not None
    ours = commit_of(scope, AppendHot(hot()), base=1, fence=Fence(unit.id, unit.token))
    head = second.head(scope)
    clock.now_us += 10_000
    taken = second.work.claim(["compact"], owner="two", lease_us=1000)
    assert taken is not None
    assert (taken.id, taken.token, taken.owner) == (unit.id, 2, "two")
    for catalog in (first, second):
        with pytest.raises(ConflictError, match="the lease on a work unit is lost") as error:
            catalog.commit([ours], onto=head)
        assert (error.value.kind, error.value.facts["commit"]) == ("fenced", ours.id)
    fenced = commit_of(scope, AppendHot(hot()), base=1, fence=Fence(taken.id, taken.token))
    assert first.commit([fenced], onto=head)[0].sequence == 2


def test_claim_of_one_process_lets_another_commit_at_once(store: ObjectStore) -> None:
    first, scope = create(store)
    second = open_log_catalog(store)
    head = second.head(scope)
    first.work.enqueue("compact", "logs", {})
    unit = first.work.claim(["compact"], owner="one", lease_us=10**9)
    assert unit is not None
    ours = commit_of(scope, AppendHot(hot()), base=1, fence=Fence(unit.id, unit.token))
    assert second.commit([ours], onto=head)[0].sequence == 2


# announcements


def test_announcement_that_a_crash_left_behind_is_over(store: ObjectStore) -> None:
    catalog, scope = create(store)
    ours = announce(catalog, commit_of(scope, AddExtent(extent()), base=1))
    (left,) = store.list("_timeseries_log/_pending")
    data = store.get(left.key)
    catalog.commit([ours], onto=catalog.head(scope))
    store.put(left.key, data)
    assert catalog.pending() == open_log_catalog(store).pending() == []
    assert catalog.abandon_pending(before_us=2**60) == []
    assert catalog.release_pending([ours.actions[0].extent.key]) == []  # type: ignore[union-attr]
    assert catalog.garbage(before_us=2**60) == []


def test_announcement_that_is_damaged_is_passed_over(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    catalog, scope = create(store)
    catalog.register_pending([Pending("data/a", scope, "me")])
    (left,) = store.list("_timeseries_log/_pending")
    store.put(left.key, b"not ours")
    assert catalog.pending() == []
    assert "an announcement is passed over" in caplog.text


def test_extent_given_up_and_forgotten_cannot_be_committed(store: ObjectStore) -> None:
    writer, scope = create(store)
    ours = announce(writer, commit_of(scope, AddExtent(extent()), base=1))
    key = ours.actions[0].extent.key  # type: ignore[union-attr]
    collector = open_log_catalog(store)
    assert collector.abandon_pending(before_us=2**60) == [key]
    collector.forget_garbage([key])
    with pytest.raises(ConflictError, match="was given up") as error:
        writer.commit([ours], onto=writer.head(scope))
    assert error.value.kind == "not_pending"


def test_extent_given_up_and_forgotten_cannot_be_committed_though_its_announcement_stayed(store: ObjectStore) -> None:
    writer, scope = create(store)
    ours = announce(writer, commit_of(scope, AddExtent(extent()), base=1))
    key = ours.actions[0].extent.key  # type: ignore[union-attr]
    faulty = FaultyStore(store, [Fault("delete", "before", times=2)])
    collector = open_log_catalog(faulty)
    assert collector.abandon_pending(before_us=2**60) == [key]
    with pytest.raises(ConflictError, match="was given up"):
        open_log_catalog(store).commit([ours], onto=writer.head(scope))
    with pytest.raises(StorageError):
        collector.forget_garbage([key])
    collector.forget_garbage([key])
    with pytest.raises(ConflictError, match="was given up"):
        writer.commit([ours], onto=writer.head(scope))


# races


class Stop:
    """Let one thread run up to a named step and hold it there."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, point: str) -> None:
        if point == self.point and not self.reached.is_set():
            self.reached.set()
            assert self.go.wait(10)


@pytest.mark.parametrize(
    "point", ["commit.begin", "log.begin", "log.published", "log.followed", "log.pointed", "commit.end"]
)
@pytest.mark.parametrize("rival", ["commit", "abandon", "expire"])
def test_rival_at_any_step_of_a_commit_leaves_one_history(local_store: ObjectStore, point: str, rival: str) -> None:
    creator, scope = create(local_store)
    stop = Stop(point)
    catalog = open_log_catalog(local_store, at=stop)
    ours = announce(catalog, commit_of(scope, AddExtent(extent()), base=1))
    key = ours.actions[0].extent.key  # type: ignore[union-attr]
    head = catalog.head(scope)
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(catalog.commit, [ours], onto=head)
        assert stop.reached.wait(10)
        other = open_log_catalog(local_store)
        was_in = other.head(scope).sequence == 2
        if rival == "commit":
            append_hot(other, scope)
        elif rival == "abandon":
            assert other.abandon_pending(before_us=2**60) == ([] if was_in else [key])
        else:
            other.expire_snapshots(scope, before_us=2**60)
        stop.go.set()
        error = outcome.exception()
    now = open_log_catalog(local_store)
    in_now = key in {each.key for each in now.extents(scope)}
    assert was_in == (point not in ("commit.begin", "log.begin"))
    if was_in or rival == "expire":
        assert error is None
        assert in_now
    else:
        assert isinstance(error, StaleHead if rival == "commit" else ConflictError)
        assert not in_now
    assert in_now != (key in {each.key for each in now.garbage(before_us=2**60)}) or rival == "commit"
    assert now.manifest(scope) == catalog.manifest(scope) == creator.manifest(scope)


def test_threads_of_one_process_lose_nothing(store: ObjectStore) -> None:
    catalog, scope = create(store)
    coordinator = Coordinator(catalog)

    def work(number: int) -> list[int]:
        receipts = []
        for at in range(6):
            ours = announce(catalog, commit_of(scope, AddExtent(extent()), key=f"{number}-{at}"))
            receipts.append(coordinator.commit(ours).sequence)
            catalog.extents(scope)
        return receipts

    with ThreadPoolExecutor(6) as pool:
        sequences = list(pool.map(work, range(6)))
    assert all(own == sorted(own) for own in sequences)
    assert len(manifest_of(store, scope).extents) == 36
    assert catalog.pending() == []
    assert list(store.list("_timeseries_log/_pending")) == []


@pytest.mark.parametrize(("place", "processes", "count"), [("local", 8, 4), ("s3", 4, 4)])
def test_processes_that_race_on_one_root_all_land(
    place: str, processes: int, count: int, request: pytest.FixtureRequest
) -> None:
    store: ObjectStore = request.getfixturevalue(f"{place}_store")
    catalog, scope = create(store)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.log_worker"])
    results = context.Queue()
    workers = [context.Process(target=append_many, args=(store, n, count, results)) for n in range(processes)]
    for worker in workers:
        worker.start()
    done = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    own = [key for each in done for key, _, replayed in each if not replayed and key != "shared"]
    assert sorted(own) == sorted(f"{number}-{at}" for number in range(processes) for at in range(count))
    shared = [(sequence, replayed) for each in done for key, sequence, replayed in each if key == "shared"]
    assert len({sequence for sequence, _ in shared}) == 1
    assert [replayed for _, replayed in shared].count(False) == 1
    landed = processes * count + 1
    manifest = manifest_of(store, scope)
    assert (len(manifest.extents), len(manifest.hot)) == (landed, landed)
    assert manifest == catalog.manifest(scope)
    history = catalog.history(scope, limit=1000)
    assert [s.sequence for s in history] == list(range(len(history), 0, -1))
    assert [s.parent_id for s in history[:-1]] == [s.id for s in history[1:]]
    assert len(catalog.work.units()) == processes


def test_killed_writers_lose_and_double_nothing(local_store: ObjectStore) -> None:
    catalog, scope = create(local_store)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.log_worker"])
    chance = random.Random(5)
    acknowledged: list[str] = []
    for round in range(4):
        pipes = [context.Pipe(duplex=False) for _ in range(3)]
        workers = [
            context.Process(target=append_until_killed, args=(local_store, round * 3 + n, writing))
            for n, (_, writing) in enumerate(pipes)
        ]
        for worker in workers:
            worker.start()
        connection.wait([reading for reading, _ in pipes], 30)  # whoever is first: until then the others write
        for worker, (reading, writing) in zip(workers, pipes, strict=True):
            time.sleep(chance.random() * 0.15)
            worker.kill()
            worker.join(30)
            writing.close()
            with suppress(EOFError):
                while True:
                    acknowledged.append(reading.recv())
    again = open_log_catalog(local_store)
    assert len(acknowledged) >= 4
    for key in acknowledged:
        assert again.receipt(scope, key=key) is not None
    manifest = again.manifest(scope)
    commits = [done for entry in entries_of(local_store) if entry.mark for done in entry.mark.commits]
    assert len({done.key for done in commits}) == len(commits) == len(manifest.extents) == len(manifest.hot)
    assert set(acknowledged) <= {done.key for done in commits}
    append(catalog, scope)
    assert manifest_of(local_store, scope) == catalog.manifest(scope)
    waiting = {each.key for each in catalog.pending()}
    assert waiting.isdisjoint(each.key for each in catalog.extents(scope))
    assert set(catalog.abandon_pending(before_us=2**60)) == waiting


# faults and crashes


def test_lost_answer_to_a_commit_is_found_out(store: ObjectStore) -> None:
    faulty = FaultyStore(store)
    catalog, scope = create(faulty)
    head = catalog.head(scope)
    ours = commit_of(scope, AppendHot(hot()), base=1)
    faulty.add(Fault("put_if_absent", "after", match=log_commit_key(2)))
    (receipt,) = catalog.commit([ours], onto=head)
    assert faulty.fired
    assert (receipt.sequence, receipt.replayed) == (2, False)
    assert manifest_of(store, scope) == catalog.manifest(scope)
    assert len(catalog.hot(scope)) == 1


def test_lost_answer_is_found_out_after_a_second_try_too(store: ObjectStore) -> None:
    faulty = FaultyStore(store)
    catalog, scope = create(faulty)
    faulty.add(Fault("put_if_absent", "before", match=log_commit_key(2)))
    faulty.add(Fault("put_if_absent", "after", match=log_commit_key(2)))
    assert publish(catalog, scope, AppendHot(hot())).sequence == 2
    assert len(faulty.fired) == 2
    faulty.clear()
    faulty.add(Fault("put_if_absent", "after", match=log_commit_key(3)))
    faulty.add(Fault("get", "before", match=log_commit_key(3), skip=1))  # and the first look fails
    assert publish(catalog, scope, AppendHot(hot())).sequence == 3
    assert len(faulty.fired) == 2
    assert len(manifest_of(store, scope).hot) == 2


def test_commit_that_cannot_be_known_says_so_and_may_be_tried_again(store: ObjectStore) -> None:
    faulty = FaultyStore(store)
    catalog, scope = create(faulty)
    head = catalog.head(scope)
    ours = commit_of(scope, AppendHot(hot()), base=1)
    faulty.add(Fault("put_if_absent", "before", match=log_commit_key(2), times=3))
    with pytest.raises(CommitUnknownError, match="the answer to a commit was lost version=2"):
        catalog.commit([ours], onto=head)
    assert catalog.receipt(scope, commit_id=ours.id) is None
    assert catalog.commit([ours], onto=head)[0].sequence == 2


def test_commit_that_arrives_late_is_not_done_twice(local_store: ObjectStore) -> None:
    sent: list[bytes] = []

    class Late(FaultyStore):
        def put_if_absent(self, key: str, data: Any) -> None:
            if key == log_commit_key(2) and len(sent) < 3:
                sent.append(bytes(data))
            super().put_if_absent(key, data)

    late = Late(local_store)
    catalog, scope = create(late)
    head = catalog.head(scope)
    ours = commit_of(scope, AppendHot(hot()), base=1)
    late.add(Fault("put_if_absent", "before", match=log_commit_key(2), times=3))
    with pytest.raises(CommitUnknownError):
        catalog.commit([ours], onto=head)
    assert len(set(sent)) == 1  # every try is the same bytes
    local_store.put_if_absent(log_commit_key(2), sent[0])
    with pytest.raises(StaleHead) as stale:
        catalog.commit([ours], onto=head)
    receipt = catalog.receipt(scope, commit_id=ours.id)
    assert receipt is not None
    assert catalog.commit([replace(ours, base=2)], onto=stale.value.head) == [receipt]
    assert len(catalog.hot(scope)) == 1


def test_lost_answer_while_another_wins_is_a_lost_race(store: ObjectStore) -> None:
    faulty = FaultyStore(store)
    catalog, scope = create(faulty)
    head = catalog.head(scope)
    other = open_log_catalog(store)
    faulty.add(Fault("put_if_absent", "before", match=log_commit_key(2)))
    append_hot(other, scope)
    with pytest.raises(StaleHead):
        catalog.commit([commit_of(scope, AppendHot(hot()), base=1)], onto=head)
    assert faulty.fired


def test_coordinator_gets_a_commit_in_once_whatever_answers_are_lost(local_store: ObjectStore) -> None:
    faulty = FaultyStore(local_store)
    catalog, scope = create(faulty)
    coordinator = Coordinator(catalog, sleep_s=lambda seconds: None)
    for number in range(6):
        faulty.add(Fault("put_if_absent", "before", match="*.json", times=3))
        faulty.add(Fault("put_if_absent", "after", match="*.json", skip=number % 2))
        assert not coordinator.commit(commit_of(scope, AppendHot(hot()))).replayed
    assert len(manifest_of(local_store, scope).hot) == 6


@pytest.mark.parametrize("kind", ["permission_denied", "unauthenticated", "disk_full", "missing_root", "unreachable"])
def test_refused_write_is_told_as_it_is_and_nothing_happened(local_store: ObjectStore, kind: str) -> None:
    catalog, scope = create(local_store)
    append(catalog, scope)
    faulty = FaultyStore(local_store)
    other = open_log_catalog(faulty)
    before = other.manifest(scope)
    for verb in ("put*", "delete"):
        faulty.add(Fault(verb, "before", kind=kind, times=None))
    with pytest.raises(StorageError) as error:
        publish(other, scope, AppendHot(hot()))
    assert error.value.kind == kind
    with pytest.raises(StorageError):
        other.register_pending([Pending("data/x", scope, "me")])
    with pytest.raises(StorageError):
        other.expire_snapshots(scope, before_us=2**60)
    assert other.manifest(scope) == catalog.manifest(scope) == before


def test_read_only_root_can_be_read(local_store: ObjectStore) -> None:
    catalog, scope = create(local_store)
    append(catalog, scope)
    local_store.put(LOG_CURRENT, b"1\n")
    faulty = FaultyStore(local_store, [Fault("put*", "before", kind="permission_denied", times=None)])
    assert open_log_catalog(faulty).manifest(scope) == catalog.manifest(scope)


def test_torn_commit_of_ours_is_damage_and_never_an_answer(local_store: ObjectStore) -> None:
    faulty = FaultyStore(local_store, seed=3)
    catalog, scope = create(faulty)
    append(catalog, scope)
    faulty.add(Fault("put_if_absent", "torn", match=log_commit_key(3)))
    with pytest.raises(CorruptError, match=f"a commit file is damaged file={log_commit_key(3)}"):
        publish(catalog, scope, AppendHot(hot()))
    assert local_store.head(log_commit_key(3)).size > 16
    with pytest.raises(CorruptError, match=f"a commit file is damaged file={log_commit_key(3)}"):
        open_log_catalog(local_store)


class Crash(BaseException):
    """The process is gone."""


POINTS = (
    "commit.begin",
    "log.begin",
    "log.published",
    "log.followed",
    "log.pointed",
    "log.end",
    "commit.appended",
    "commit.end",
)


@pytest.mark.parametrize("point", POINTS)
def test_crash_after_each_step_of_a_commit_loses_and_doubles_nothing(store: ObjectStore, point: str) -> None:
    scope = busy_table(store, 9)  # the next version has a tail
    creator = open_log_catalog(store)

    def die(at: str) -> None:
        if at == point:
            raise Crash

    dying = open_log_catalog(store, at=die)
    head = dying.head(scope)
    ours = announce(dying, commit_of(scope, AddExtent(extent()), base=head.sequence, key="k"))
    with pytest.raises(Crash):
        dying.commit([ours], onto=head)
    again = open_log_catalog(store)
    is_in = point not in ("commit.begin", "log.begin")
    assert (again.receipt(scope, key="k") is not None) == is_in
    assert (again.pending() == []) == is_in
    now = again.head(scope)
    assert now.sequence == 9 + is_in
    (receipt,) = again.commit([replace(ours, base=now.sequence)], onto=now)
    assert (receipt.sequence, receipt.replayed) == (10, is_in)
    assert len(again.extents(scope)) == 9
    assert again.pending() == []
    assert text_of(store, LOG_CURRENT) == "10\n"
    assert manifest_of(store, scope) == again.manifest(scope) == creator.manifest(scope)


@pytest.mark.parametrize("point", ["log.begin", "log.published", "log.followed", "log.pointed", "log.end"])
def test_crash_after_each_step_of_upkeep_loses_and_doubles_nothing(store: ObjectStore, point: str) -> None:
    creator, scope = create(store)
    one = append(creator, scope)
    publish(creator, scope, RemoveExtent(one.id))
    creator.register_pending([Pending("data/left", scope, "me")])

    def die(at: str) -> None:
        if at == point:
            raise Crash

    acts: list[Callable[[LogCatalog], object]] = [
        lambda catalog: catalog.expire_snapshots(scope, before_us=2**60),
        lambda catalog: catalog.abandon_pending(before_us=2**60),
        lambda catalog: catalog.forget_garbage([one.key, "data/left"]),
    ]
    for act in acts:
        with pytest.raises(Crash):
            act(open_log_catalog(store, at=die))
        act(open_log_catalog(store))
        act(creator)
    assert [s.sequence for s in creator.history(scope)] == [3]
    assert (creator.garbage(before_us=2**60), creator.pending()) == ([], [])
    reasons = [entry.upkeep.reason for entry in entries_of(store) if entry.upkeep]
    assert reasons == ["expire", "abandon", "forget_garbage"]


@pytest.mark.parametrize("point", ["log.begin", "log.published", "log.followed", "log.pointed", "log.end"])
def test_crash_after_each_step_of_creating_a_table_leaves_it_or_nothing(store: ObjectStore, point: str) -> None:
    def die(at: str) -> None:
        if at == point:
            raise Crash

    with pytest.raises(Crash):
        create(store, at=die)
    again = open_log_catalog(store, create=True)
    if point == "log.begin":
        assert again.tables() == []
        again.create_table("logs", SCHEMA, {})
    (info,) = again.tables()
    append(again, info.scope)
    assert len(manifest_of(store, info.scope).extents) == 1


def life_of(store: ObjectStore, patience: Callable[[Callable[[], Any]], Any]) -> Manifest:
    """Live a table's life, each step tried until it is done, and give what it has in the end."""
    catalog = patience(lambda: open_log_catalog(store, create=True))
    if not patience(catalog.tables):
        patience(lambda: create_once(catalog))
    scope: Scope = patience(catalog.tables)[0].scope
    coordinator = Coordinator(catalog, sleep_s=lambda seconds: None)
    parts: list[Extent] = []
    for number in range(5):
        added = extent(number + 1)
        patience(partial(register_once, catalog, Pending(added.key, scope, "me")))
        ours = commit_of(scope, AddExtent(added), RecordOffset("s", number), key=f"k{number}")
        patience(partial(coordinator.commit, ours))
        parts.append(added)
    batch = hot()
    rows = commit_of(scope, AppendHot(batch))
    patience(lambda: coordinator.commit(rows))
    merged = extent(18)
    patience(lambda: register_once(catalog, Pending(merged.key, scope, "me")))
    removals = tuple(RemoveExtent(part.id) for part in parts)
    flush = commit_of(scope, *removals, DropHot(batch.id), AddExtent(merged))
    patience(lambda: coordinator.commit(flush))
    patience(lambda: register_once(catalog, Pending("data/left", scope, "me")))
    patience(lambda: catalog.abandon_pending(before_us=2**60))
    patience(lambda: catalog.expire_snapshots(scope, before_us=2**60))
    assert [g.key for g in patience(lambda: catalog.garbage(before_us=2**60)) if g.reason == "expired"]
    keys = [g.key for g in patience(lambda: catalog.garbage(before_us=2**60))]
    patience(lambda: catalog.forget_garbage(keys))
    found: Manifest = patience(lambda: catalog.manifest(scope))
    return found


def create_once(catalog: LogCatalog) -> None:
    try:
        catalog.create_table("logs", SCHEMA, {"time": "ts"})
    except AlreadyExistsError:
        assert catalog.tables()


def register_once(catalog: Catalog, pending: Pending) -> None:
    try:
        catalog.register_pending([pending])
    except AlreadyExistsError:
        assert pending.key in [each.key for each in catalog.pending()]


@pytest.mark.parametrize("mode", ["before", "after"])
def test_fault_in_any_call_of_a_tables_life_changes_nothing_in_the_end(mode: Mode) -> None:
    def at_once(act: Callable[[], Any]) -> Any:
        return act()

    def again(act: Callable[[], Any]) -> Any:
        try:
            return act()
        except (StorageError, CommitUnknownError):
            return act()

    counted = FaultyStore(open_store("memory://"))
    whole = life_of(counted, at_once)
    calls = counted.calls.total()
    assert calls > 60
    met = 0
    for skip in range(calls):
        inner = open_store("memory://")
        faulty = FaultyStore(inner, [Fault("*", mode, skip=skip)])
        found = life_of(faulty, again)
        met += len(faulty.fired)
        assert [e.row_count for e in found.extents.values()] == [e.row_count for e in whole.extents.values()] == [18]
        assert (found.snapshot.totals, found.hot, found.offsets) == (whole.snapshot.totals, {}, {"s": 4})
        assert manifest_of(inner, found.snapshot.scope) == found
        with open_log_catalog(inner) as catalog:
            assert (catalog.garbage(before_us=2**60), catalog.pending()) == ([], [])
            assert found.snapshot.sequence == whole.snapshot.sequence
    assert met == calls
