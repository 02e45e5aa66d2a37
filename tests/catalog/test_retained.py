"""Check which snapshots stay and what goes with the others, on each store: pins, expiry, and a file that shrinks."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests.support.catalogs import SCHEMA, SQL_STORES, Ticking, append, append_hot, extent, hot, open_sql, place_of
from tests.support.catalogs import publish as published
from tidelake.catalog import open_catalog
from tidelake.catalog.log.entries import Upkeep, decode, encode, void
from tidelake.catalog.log.leases import LEASES_FOLDER, TIDIED_US
from tidelake.catalog.log.log_catalog import LogCatalog, open_log_catalog
from tidelake.catalog.log.state import from_json, to_json
from tidelake.catalog.protocol import Catalog, Changes, Expired, Pending, Pin, now_us
from tidelake.catalog.sql import shrinking, sweep
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.errors import AlreadyExistsError, CorruptError, InvalidInputError, NotFoundError
from tidelake.model.snapshot import (
    Action,
    AddExtent,
    AppendHot,
    DropHot,
    Manifest,
    RemoveExtent,
    Scope,
    UnitedCoverage,
    UpdateCoverage,
)
from tidelake.objects import ObjectStore

EVER = 2**60


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture(params=(*SQL_STORES, "log"))
def catalog(request: pytest.FixtureRequest, tmp_path: Path, clock: Ticking) -> Iterator[Catalog]:
    if request.param in SQL_STORES:
        with open_sql(place_of(request.param, request, tmp_path), clock=clock) as opened:
            yield opened
        return
    with open_log_catalog(request.getfixturevalue("local_store"), create=True, clock=clock) as opened:
        yield opened


@pytest.fixture
def scope(catalog: Catalog) -> Scope:
    return catalog.create_table("obs.logs", SCHEMA, {"time": "ts"}).scope


@pytest.fixture(params=SQL_STORES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place_of(request.param, request, tmp_path)


def sequences(catalog: Catalog, scope: Scope) -> list[int]:
    return [each.sequence for each in catalog.history(scope, limit=1000)]


# pins


def test_a_pin_is_listed_until_it_is_taken_away(catalog: Catalog, scope: Scope) -> None:
    append(catalog, scope)
    append(catalog, scope)
    audit = catalog.pin(scope, "audit 2026", 2)
    assert (audit.name, audit.sequence) == ("audit 2026", 2)
    assert catalog.pin(scope, "audit 2026", 2) == audit
    first = catalog.pin(scope, "first", 1)
    again = catalog.pin(scope, "also first", 1)
    assert catalog.pins(scope) == [again, first, audit]
    with pytest.raises(AlreadyExistsError, match="keeps another snapshot pin=audit 2026 keeps=2"):
        catalog.pin(scope, "audit 2026", 3)
    catalog.unpin(scope, "audit 2026")
    assert catalog.pins(scope) == [again, first]
    assert catalog.pin(scope, "audit 2026", 3).sequence == 3
    with pytest.raises(NotFoundError, match="no such pin"):
        catalog.unpin(scope, "nobody's")


@pytest.mark.parametrize("name", ["", " audit", "a\nb", "x" * 129])
def test_a_pin_has_a_plain_name(catalog: Catalog, scope: Scope, name: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a pin's name"):
        catalog.pin(scope, name, 1)
    assert catalog.pins(scope) == []


def test_only_a_retained_snapshot_can_be_pinned(catalog: Catalog, scope: Scope) -> None:
    append(catalog, scope)
    catalog.expire_snapshots(scope, before_us=EVER)
    for sequence in (1, 3):
        with pytest.raises(NotFoundError) as error:
            catalog.pin(scope, "late", sequence)
        assert error.value.kind == "expired"
    with pytest.raises(NotFoundError):
        catalog.pin(Scope(scope.table_id, "nobody"), "none", 0)
    catalog.drop_table("obs.logs")
    with pytest.raises(NotFoundError, match="no such table"):
        catalog.pin(scope, "dropped", 2)


def test_a_pinned_snapshot_stays_as_it_was(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    one = append(catalog, scope, coverage_key="c/one")
    batch = append_hot(catalog, scope)
    before = catalog.manifest(scope)
    catalog.pin(scope, "audit", before.snapshot.sequence)
    published(catalog, scope, RemoveExtent(one.id), DropHot(batch.id), AddExtent(between := extent()))
    published(catalog, scope, RemoveExtent(between.id), AddExtent(extent()))
    append(catalog, scope)
    head = catalog.manifest(scope)

    expired = catalog.expire_snapshots(scope, before_us=EVER)
    assert drop_removed(catalog.manifest(scope, sequence=3)) == before
    assert catalog.manifest(scope) == head
    if isinstance(catalog, LogCatalog):
        assert (expired, sequences(catalog, scope)) == (Expired(2, ()), [6, 5, 4, 3])
    else:
        assert (expired, sequences(catalog, scope)) == (Expired(4, (between.key,)), [6, 3])
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(0, ())
    catalog.unpin(scope, "audit")
    expired = catalog.expire_snapshots(scope, before_us=EVER)
    assert {one.key, "c/one"} <= set(expired.keys)
    assert sequences(catalog, scope) == [6]
    found = {each.key for each in catalog.garbage(before_us=EVER)}
    assert found == {one.key, "c/one", between.key}


def test_a_time_is_never_answered_with_an_older_pinned_snapshot(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    times = [catalog.head(scope).committed_us]
    for _ in range(5):
        clock.now_us += 1000
        append(catalog, scope)
        times.append(catalog.head(scope).committed_us)
    catalog.pin(scope, "second", 2)
    catalog.pin(scope, "third", 3)
    catalog.expire_snapshots(scope, before_us=EVER)
    assert catalog.snapshot(scope, at_us=times[1]).sequence == 2
    assert catalog.snapshot(scope, at_us=times[3] - 1).sequence == 3
    assert catalog.snapshot(scope, at_us=EVER).sequence == 6
    if isinstance(catalog, LogCatalog):
        assert catalog.snapshot(scope, at_us=times[3]).sequence == 4
        return
    for gone in (times[0], times[3], times[5] - 1):
        with pytest.raises(NotFoundError, match="expired"):
            catalog.snapshot(scope, at_us=gone)


def test_changes_reach_over_a_hole(catalog: Catalog, scope: Scope) -> None:
    one = append(catalog, scope)
    catalog.pin(scope, "audit", 2)
    published(catalog, scope, RemoveExtent(one.id), AddExtent(between := extent()))
    published(catalog, scope, RemoveExtent(between.id), AddExtent(extent()))
    (head,) = catalog.extents(scope)
    catalog.expire_snapshots(scope, before_us=EVER)
    assert catalog.changes(scope, after=2, upto=4) == Changes((head,), (one.id,), (), ())
    assert [each.sequence for each in catalog.history(scope, limit=1, before=4)][-1:] in ([2], [3])
    assert catalog.history(scope, limit=1)[0].sequence == 4


# leases


def test_a_leased_snapshot_stays_until_the_lease_ends(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    one = append(catalog, scope)
    published(catalog, scope, RemoveExtent(one.id), AddExtent(extent()))
    append(catalog, scope)
    catalog.lease(scope, owner="a", sequence=2, lease_us=10_000)
    catalog.lease(scope, owner="b", sequence=3, lease_us=10_000)
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(1, ())
    assert sequences(catalog, scope) == [4, 3, 2]
    catalog.release_leases("a", [scope])
    catalog.release_leases("nobody", [scope])
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(1, (one.key,))
    assert sequences(catalog, scope) == [4, 3]
    catalog.lease(scope, owner="b", sequence=3, lease_us=10_000)
    clock.now_us += 9_000
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(0, ())
    clock.now_us += 2_000
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(1, ())


def test_an_owner_has_one_lease_at_the_lowest_it_names(catalog: Catalog, scope: Scope) -> None:
    for _ in range(4):
        append(catalog, scope)
    for sequence in (4, 2, 3):
        catalog.lease(scope, owner="a", sequence=sequence, lease_us=10**9)
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(2, ())
    assert sequences(catalog, scope) == [5, 4, 3]
    catalog.release_leases("a", [scope])
    catalog.release_leases("a", [])
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(2, ())


def test_an_expired_snapshot_cannot_be_leased(catalog: Catalog, scope: Scope) -> None:
    append(catalog, scope)
    catalog.expire_snapshots(scope, before_us=EVER)
    for sequence in (1, 9):
        with pytest.raises(NotFoundError) as error:
            catalog.lease(scope, owner="a", sequence=sequence, lease_us=10**9)
        assert error.value.kind == "expired"
    append(catalog, scope)
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(1, ())
    catalog.lease(Scope(scope.table_id, "nobody"), owner="a", sequence=0, lease_us=10**9)
    with pytest.raises(InvalidInputError, match="is not an owner"):
        catalog.lease(scope, owner="", sequence=3, lease_us=10**9)


def test_a_large_dropped_table_is_purged_in_steps(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of them a writer has its turn; one that is killed in between leaves the rest to the next."""
    monkeypatch.setattr(sweep, "PURGE_STEP", 10)
    steps: list[str] = []
    counted = "SELECT count(*) FROM extent_columns"

    def at(step: str) -> None:
        if step == "transaction.committed":
            steps.append(step)
            if len(steps) == kill_after:
                raise KeyboardInterrupt

    kill_after = 0
    with open_sql(where, at=at) as catalog:
        large, small = (catalog.create_table(name, SCHEMA, {}).scope for name in ("large", "small"))
        stats = {f"c{n}": {"min": n, "max": n} for n in range(4)}
        keys = {append(catalog, large, stats=stats).key for _ in range(12)}
        kept = append(catalog, small, stats=stats)
        catalog.lease(large, owner="reader", sequence=2, lease_us=EVER)
        catalog.drop_table("large")
        assert catalog.purge_tables(before_us=EVER) == Expired(0, ())
        assert catalog._database.query(counted) == [(52,)]
        catalog.release_leases("reader", [large])
        steps.clear()
        kill_after = 2
        with pytest.raises(KeyboardInterrupt):
            catalog.purge_tables(before_us=EVER)
        left = catalog._database.query(counted)[0][0]
        assert 4 < left <= 32
        steps.clear()
        kill_after = 0
        purged = catalog.purge_tables(before_us=EVER)
        assert (purged.snapshots, set(purged.keys)) == (13, keys)
        assert len(steps) >= 3
        assert catalog.extents(small) == [kept]
        assert catalog._database.query(counted) == [(4,)]


def test_a_dropped_table_is_not_purged_while_somebody_reads_it(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    kept = append(catalog, scope)
    catalog.lease(scope, owner="a", sequence=2, lease_us=10_000)
    catalog.drop_table("obs.logs")
    clock.now_us += 9_000
    catalog.lease(scope, owner="a", sequence=2, lease_us=10_000)  # who holds it may go on
    with pytest.raises(NotFoundError, match="no such table"):
        catalog.lease(scope, owner="b", sequence=2, lease_us=10_000)
    clock.now_us += 9_000
    catalog.purge_tables(before_us=EVER)
    assert catalog.garbage(before_us=EVER) == []
    clock.now_us += 9_000
    catalog.purge_tables(before_us=EVER)
    assert [each.key for each in catalog.garbage(before_us=EVER)] == [kept.key]


# expiry


def test_the_newest_snapshots_are_kept_by_count(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    for _ in range(5):
        append(catalog, scope)
    assert catalog.expire_snapshots(scope, before_us=EVER, keep_last=9) == Expired(0, ())
    assert catalog.expire_snapshots(scope, before_us=EVER, keep_last=3) == Expired(3, ())
    assert sequences(catalog, scope) == [6, 5, 4]
    assert catalog.expire_snapshots(scope, before_us=0, keep_last=1) == Expired(0, ())
    with pytest.raises(InvalidInputError, match="at least the newest"):
        catalog.expire_snapshots(scope, before_us=EVER, keep_last=0)


def test_an_object_that_is_named_again_is_no_garbage(catalog: Catalog, scope: Scope) -> None:
    one = append(catalog, scope, coverage_key="c/shared")
    append(catalog, scope, coverage_key="c/shared")
    published(catalog, scope, RemoveExtent(one.id), UpdateCoverage(UnitedCoverage("c/shared", 3)))
    published(catalog, scope, UpdateCoverage(UnitedCoverage("c/next", 4)))
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(4, (one.key,))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_retained_reads_as_ever_and_the_rest_is_garbage(
    catalog: Catalog, scope: Scope, clock: Ticking, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.catalog.sql.retained.STEP", 3)
    chance, wanted = random.Random(seed), [catalog.manifest(scope)]
    for turn in range(60):
        live = wanted[-1]
        match chance.choice(("add", "add", "hot", "rewrite", "cover", "pin", "unpin", "expire")):
            case "pin":
                kept = chance.choice(sequences(catalog, scope))
                catalog.pin(scope, f"p{turn}", kept)
            case "unpin" if pins := catalog.pins(scope):
                catalog.unpin(scope, chance.choice(pins).name)
            case "expire":
                catalog.expire_snapshots(
                    scope, before_us=clock.now_us - chance.randrange(600), keep_last=chance.randint(1, 4)
                )
                check_retained(catalog, scope, wanted)
            case change:
                published(catalog, scope, *actions_of(change, live, chance, turn))
                wanted.append(catalog.manifest(scope))
    catalog.expire_snapshots(scope, before_us=EVER)
    check_retained(catalog, scope, wanted)


def actions_of(change: str, live: Manifest, chance: random.Random, turn: int) -> list[Action]:
    if change == "hot":
        return [AppendHot(hot())]
    if change == "cover":
        return [UpdateCoverage(UnitedCoverage(f"c/united{turn}", live.snapshot.sequence))]
    added: list[Action] = [AddExtent(extent(coverage_key=f"c/{turn}"))]
    if change == "rewrite":
        added += [RemoveExtent(each) for each in live.extents if chance.random() < 0.5]
        added += [DropHot(each) for each in live.hot if chance.random() < 0.8]
    return added


def check_retained(catalog: Catalog, scope: Scope, wanted: list[Manifest]) -> None:
    """Hold every retained snapshot against what it was, and the garbage against what they reach."""
    retained = sequences(catalog, scope)
    assert retained[0] == len(wanted)
    assert {pin.sequence for pin in catalog.pins(scope)} <= set(retained)
    reached = set[str]()
    for sequence in retained:
        found = drop_removed(catalog.manifest(scope, sequence=sequence))
        assert found == drop_removed(wanted[sequence - 1])
        reached |= keys_of(found)
    ever = set[str]().union(*(keys_of(each) for each in wanted))
    assert {each.key for each in catalog.garbage(before_us=EVER, limit=10_000)} == ever - reached
    for manifest, later in zip(wanted, [*wanted[1:], None], strict=True):
        snapshot = manifest.snapshot
        until = later.snapshot.committed_us - 1 if later else snapshot.committed_us + 5
        for at_us in (snapshot.committed_us, until):
            if snapshot.sequence in retained:
                assert catalog.snapshot(scope, at_us=at_us) == snapshot
            else:
                with pytest.raises(NotFoundError, match="expired"):
                    catalog.snapshot(scope, at_us=at_us)


def drop_removed(manifest: Manifest) -> Manifest:
    """Return a manifest as it is told while all of it is live, without offsets."""
    return Manifest(
        manifest.snapshot,
        {each.id: replace(each, removed_seq=None) for each in manifest.extents.values()},
        {each.id: replace(each, removed_seq=None) for each in manifest.hot.values()},
    )


def keys_of(manifest: Manifest) -> set[str]:
    found = {key for each in manifest.extents.values() for key in (each.key, each.coverage_key) if key}
    return found | ({manifest.snapshot.coverage.key} if manifest.snapshot.coverage else set())


# the SQL catalogs


STEPS: dict[str, Callable[[Catalog, Scope], object]] = {
    "pin": lambda catalog, scope: catalog.pin(scope, "audit", 2),
    "lease": lambda catalog, scope: catalog.lease(scope, owner="a", sequence=2, lease_us=10**9),
    "expire": lambda catalog, scope: catalog.expire_snapshots(scope, before_us=EVER),
}


@pytest.mark.parametrize(
    ("first", "second", "came_to", "retained"),
    [
        ("pin", "expire", Expired(1, ()), [3, 2]),
        ("expire", "pin", "expired", [3]),
        ("lease", "expire", Expired(1, ()), [3, 2]),
        ("expire", "lease", "expired", [3]),
    ],
)
def test_a_snapshot_is_taken_into_use_or_expired_and_never_both(
    where: str, first: str, second: str, came_to: object, retained: list[int]
) -> None:
    """Whichever comes first, the other waits for it and then sees it."""
    held, go = threading.Event(), threading.Event()

    def stop(point: str) -> None:
        if point == "transaction.written":
            held.set()
            go.wait(10)

    def run(name: str, catalog: Catalog, scope: Scope) -> object:
        try:
            return STEPS[name](catalog, scope)
        except NotFoundError as error:
            return error.kind

    with open_sql(where) as other, ThreadPoolExecutor(2) as threads:
        scope = other.create_table("t", SCHEMA, {}).scope
        append(other, scope)
        append(other, scope)
        with open_sql(where, at=stop) as one:
            running = threads.submit(run, first, one, scope)
            assert held.wait(10)
            waiting = threads.submit(run, second, other, scope)
            assert not wait([waiting], timeout=0.2).done
            go.set()
            running.result(10)
            assert waiting.result(10) == came_to
        assert sequences(other, scope) == retained


def test_no_commit_waits_for_one_who_begins_to_read(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    where = place_of("postgres", request, tmp_path)
    seen = list[int]()

    def commit(point: str) -> None:
        if point == "transaction.written":
            seen.append(append(other, scope).added_seq)

    with open_sql(where) as other:
        scope = other.create_table("t", SCHEMA, {}).scope
        with open_sql(where, at=commit) as one:
            one.lease(scope, owner="a", sequence=1, lease_us=10**9)
            one.pin(scope, "audit", 1)
    assert seen == [2, 3]


def run_on(where: str, *statements: str) -> None:
    """Change a catalog's database behind its back."""
    if "://" in where:
        with psycopg.connect(where, autocommit=True) as server:
            for statement in statements:
                server.execute(statement.encode())
    else:
        with closing(sqlite3.connect(where, isolation_level=None)) as file:
            for statement in statements:
                file.execute(statement)


def test_a_hole_that_no_expiry_made_is_damage(where: str) -> None:
    with open_sql(where) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        for _ in range(4):
            append(catalog, scope)
        second = catalog.snapshot(scope, sequence=2)
        catalog.pin(scope, "audit", 2)
        run_on(where, "DELETE FROM snapshots WHERE sequence = 3")
        with pytest.raises(CorruptError, match="the history has holes"):
            catalog.history(scope)
        with pytest.raises(CorruptError, match="the history has holes"):
            catalog.snapshot(scope, at_us=second.committed_us)


def test_a_catalog_of_before_pins_gets_them_when_somebody_pins(where: str) -> None:
    with open_sql(where) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        append(catalog, scope)
        append(catalog, scope)
    run_on(where, *(f"DROP TABLE {name}" for name in ("pins", "leases", "gaps")))
    with open_sql(where) as catalog, open_sql(where) as other:
        assert (catalog.pins(scope), sequences(catalog, scope)) == ([], [3, 2, 1])
        with pytest.raises(NotFoundError, match="no such pin"):
            catalog.unpin(scope, "audit")
        assert catalog.pin(scope, "audit", 1) == catalog.pins(scope)[0]
        assert other.expire_snapshots(scope, before_us=EVER) == Expired(1, ())
        assert sequences(other, scope) == [3, 1]
        other.drop_table("t")
        assert other.purge_tables(before_us=EVER).snapshots == 2


def test_a_dropped_tables_pins_go_with_it(where: str) -> None:
    with open_sql(where) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        append(catalog, scope)
        append(catalog, scope)
        catalog.pin(scope, "audit", 1)
        catalog.expire_snapshots(scope, before_us=EVER)
        catalog.drop_table("t")
        assert catalog.purge_tables(before_us=EVER).snapshots == 2
    if "://" not in where:
        with closing(sqlite3.connect(where)) as file:
            counts = [file.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("pins", "gaps")]
            assert counts == [0, 0]


# the file


def many_hot(catalog: SqlCatalog, count: int) -> Scope:
    """Commit small hot batches one by one, then put one extent in their place, as a flush does."""
    scope = catalog.create_table("t", SCHEMA, {}).scope
    batches = [replace(hot(), payload=os.urandom(2000)) for _ in range(count)]
    for batch in batches:
        published(catalog, scope, AppendHot(batch))
    published(catalog, scope, AddExtent(extent()), *(DropHot(batch.id) for batch in batches))
    return scope


def size_of(file: Path) -> int:
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*") if not each.name.endswith("-shm"))


def test_the_file_shrinks_once_hot_rows_are_flushed_and_expired(tmp_path: Path) -> None:
    file = tmp_path / "catalog.sqlite"
    with open_sql(str(file)) as catalog:
        scope = many_hot(catalog, 1000)
        before = size_of(file)
        assert before > 2_000_000
        assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(1001, ())
        catalog.expire_receipts(before_us=EVER)
        head = catalog.manifest(scope)
        with sqlite3.connect(file, isolation_level=None) as reader:  # others do not hinder it
            reader.execute("SELECT count(*) FROM tables").fetchone()
            given_back = catalog.shrink()
        reader.close()
        assert size_of(file) < before / 20
        assert given_back > before / 2
        assert catalog.manifest(scope) == head
        assert catalog.shrink() == 0
    with open_sql(str(file)) as catalog:
        assert catalog.manifest(scope) == head


def test_a_reader_of_old_pages_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "CHECKPOINTS_S", 0.01)
    file = tmp_path / "catalog.sqlite"
    with open_sql(str(file)) as catalog, closing(sqlite3.connect(file, isolation_level=None)) as reader:
        scope = many_hot(catalog, 50)
        reader.execute("BEGIN")
        seen = reader.execute("SELECT count(*) FROM hot_batches").fetchone()
        catalog.expire_snapshots(scope, before_us=EVER)
        catalog.shrink()
        assert reader.execute("SELECT count(*) FROM hot_batches").fetchone() == seen == (50,)
        reader.execute("COMMIT")
        assert reader.execute("SELECT count(*) FROM hot_batches").fetchone() == (0,)
        assert catalog.shrink() > 0


def test_a_file_that_keeps_no_track_is_written_anew_if_nobody_else_has_it(tmp_path: Path) -> None:
    file = tmp_path / "catalog.sqlite"
    with open_sql(str(file)) as catalog:
        scope = many_hot(catalog, 300)
    run_on(str(file), "PRAGMA journal_mode = DELETE", "PRAGMA auto_vacuum = NONE", "VACUUM")
    with open_sql(str(file)) as catalog:
        catalog.expire_snapshots(scope, before_us=EVER)
        head, before = catalog.manifest(scope), size_of(file)
        with open_sql(str(file)) as other:
            assert other.manifest(scope) == head
            catalog.shrink()
            assert file.stat().st_size > 600_000
        assert catalog.shrink() > 600_000
        assert size_of(file) < before / 4
        assert catalog.manifest(scope) == head
        append(catalog, scope)
    with closing(sqlite3.connect(file)) as made:
        assert made.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert made.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_nothing_is_shrunk_where_it_is_not_needed(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    append(catalog, scope)
    before = catalog.manifest(scope)
    catalog.shrink()
    assert catalog.shrink() == 0
    assert catalog.manifest(scope) == before


def test_a_lakes_catalog_can_shrink(tmp_path: Path) -> None:
    open_catalog(tmp_path / "lake").close()
    with closing(sqlite3.connect(tmp_path / "lake" / "catalog.sqlite")) as file:
        assert file.execute("PRAGMA auto_vacuum").fetchone() == (2,)


# the log


def test_upkeep_without_pins_is_written_as_before() -> None:
    upkeep = replace(void(7, 5), upkeep=Upkeep("expire", oldest=3))
    data = encode(upkeep)
    assert (b'"format":1' in data, b"pin" in data, decode(data, 7)) == (True, False, upkeep)
    pinned = replace(upkeep, upkeep=Upkeep("pin", pinned=(Pin("audit", 3, 9),)))
    data = encode(pinned)
    assert (b'"format":2' in data, decode(data, 7)) == (True, pinned)


def test_pins_are_in_the_checkpoint(memory_store: ObjectStore) -> None:
    catalog = open_log_catalog(memory_store, create=True)
    scope = catalog.create_table("t", SCHEMA, {}).scope
    pinned = catalog.pin(scope, "audit", 1)
    for _ in range(100):
        append_hot(catalog, scope)
    again = open_log_catalog(memory_store)
    assert again.pins(scope) == [pinned]
    assert again.expire_snapshots(scope, before_us=EVER) == Expired(0, ())
    again.unpin(scope, "audit")
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(100, ())


def test_objects_stay_while_a_reader_may_know_them_however_leases_and_expiry_race(memory_store: ObjectStore) -> None:
    """Expiry looked for leases before this one came, so the snapshot goes; what it reaches does not."""
    catalog = open_log_catalog(memory_store, create=True)
    scope = catalog.create_table("t", SCHEMA, {}).scope
    one = append(catalog, scope)
    published(catalog, scope, RemoveExtent(one.id), AddExtent(extent()))
    reader = open_log_catalog(memory_store)
    reader.lease(scope, owner="a", sequence=2, lease_us=10**9)
    valid = catalog._leases.valid
    catalog._leases.valid = lambda **_: []  # type: ignore[method-assign]
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(2, (one.key,))
    catalog._leases.valid = valid  # type: ignore[method-assign]
    assert catalog.garbage(before_us=EVER) == []
    reader.lease(scope, owner="a", sequence=2, lease_us=10**9)  # it goes on with the version it named
    assert catalog.garbage(before_us=EVER) == []
    with pytest.raises(NotFoundError, match="expired"):
        reader.lease(scope, owner="a", sequence=1, lease_us=10**9)
    catalog.register_pending([Pending("data/never", scope, "me")])
    catalog.release_pending(["data/never"])
    assert [each.key for each in catalog.garbage(before_us=EVER)] == ["data/never"]
    reader.release_leases("a", [scope])
    assert {each.key for each in catalog.garbage(before_us=EVER)} == {one.key, "data/never"}
    assert list(memory_store.list(LEASES_FOLDER)) == []


def test_a_checkpoint_of_before_leases_holds_garbage_back_longer(memory_store: ObjectStore) -> None:
    catalog = open_log_catalog(memory_store, create=True)
    scope = catalog.create_table("t", SCHEMA, {}).scope
    for number in range(2):
        catalog.register_pending([Pending(f"data/{number}", scope, "me")])
        catalog.release_pending([f"data/{number}"])
    state = catalog._newest()
    shape = to_json(state)
    assert from_json(shape).given_at == state.given_at == {"data/0": 2, "data/1": 3}
    del shape["given_at"], shape["pins"]
    assert from_json(shape).given_at == {"data/0": 3, "data/1": 3}


def test_leases_that_ran_out_are_tidied_and_a_damaged_one_counts(memory_store: ObjectStore, clock: Ticking) -> None:
    clock.now_us = now_us()
    catalog = open_log_catalog(memory_store, create=True, clock=clock)
    scope = catalog.create_table("t", SCHEMA, {}).scope
    one = append(catalog, scope)
    published(catalog, scope, RemoveExtent(one.id), AddExtent(extent()))
    catalog.lease(scope, owner="a", sequence=3, lease_us=1000)
    (lease,) = memory_store.list(LEASES_FOLDER)
    memory_store.put(lease.key, b"torn")
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(0, ())
    clock.now_us += 2 * TIDIED_US
    assert catalog.expire_snapshots(scope, before_us=EVER) == Expired(2, (one.key,))
    assert list(memory_store.list(LEASES_FOLDER)) != []
    clock.now_us += TIDIED_US
    catalog.expire_snapshots(scope, before_us=EVER)
    assert list(memory_store.list(LEASES_FOLDER)) == []
