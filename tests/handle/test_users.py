"""Give each user a table of their own: rows, history and objects apart, one schema for all, ids that cannot do harm."""

from __future__ import annotations

import gc
import threading
import unicodedata
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.catalogs import SQL_STORES, place_of
from tidelake.errors import InvalidInputError, NotFoundError, SchemaError, TidelakeError
from tidelake.handle.table_handle import TableHandle
from tidelake.lake import Lake
from tidelake.maintain import worker
from tidelake.objects import is_manifest_key
from tidelake.table import Table

COLUMNS = {"ts": "timestamp", "id": "long", "text": "string"}
HOSTILE = (
    "../b",
    "..",
    ".",
    "%2e%2e",
    "%2E%2E%2Fb",
    "alice/../bob",
    "alice",
    "Alice",
    "аlice",  # the first letter is Cyrillic
    "alicе",  # and here the last one
    "CON",
    "*",
    "'; DROP TABLE scopes; --",
    '"',
    "a b",
    "a\\b",
    "extents",
    "manifest.json",
    "batch-0.parquet",
    "job-" + "0" * 32,
    "~",
    "😀",
    "é",
)
REFUSED = (
    "",
    " a",
    "a ",
    "\t",
    "a\x00b",
    "a\nb",
    "a\u200bb",  # zero width
    "\ufeffa",
    "a\u202eb",  # right to left
    "a\ud800",
    "x" * 256,
    "é" * 50,  # as a folder's name it is longer than a folder's name may be
    "x" * 10_000,
    unicodedata.normalize("NFD", "é"),
)


@pytest.fixture(params=SQL_STORES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    place = tmp_path / "lake" if request.param == "sqlite" else place_of(request.param, request, tmp_path)
    objects = None if request.param == "sqlite" else tmp_path / "objects"
    with tidelake.connect(place, objects=objects, upkeep=False) as opened:
        yield opened


@pytest.fixture
def notes(lake: Lake) -> Table:
    return lake.create_table("app.notes", COLUMNS, scope="user", flush_age="off")


def rows(*ids: int, **more: Any) -> list[dict[str, Any]]:
    return [{"ts": f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z", "id": n, "text": f"text {n}", **more} for n in ids]


def ids(table: Table, **asked: Any) -> list[int]:
    found: list[int] = table.to_arrow(["id"], **asked)["id"].to_pylist()
    return sorted(found)


def objects(lake: Lake) -> list[str]:
    """Return the keys of a lake's objects, but for manifests."""
    return sorted(meta.key for meta in lake.store.list() if not is_manifest_key(meta.key))


def test_each_user_has_rows_and_a_history_of_their_own(lake: Lake, notes: Table) -> None:
    alice, bob = notes.user("alice"), lake.table("app.notes", user="bob")
    assert (alice.append(rows(1, 2)).snapshot, bob.append(rows(3)).snapshot) == (1, 1)
    alice.flush()
    assert (ids(alice), ids(bob), len(alice), len(bob)) == ([1, 2], [3], 2, 1)
    assert [each.operation for each in alice.history()] == ["flush", "append"]
    assert [each.operation for each in bob.history()] == ["append"]
    assert list(notes.users()) == ["alice", "bob"]
    assert list(notes.users(after="alice")) == ["bob"]
    assert objects(lake) == ["app/notes/alice/batch-0.parquet"]
    assert ids(lake.table("app.notes", user="carol")) == []
    assert list(notes.users()) == ["alice", "bob"]  # who reads is not yet there


def test_segments_are_numbered_and_what_is_written_again_is_not(lake: Lake, notes: Table) -> None:
    alice = notes.user("alice")
    for start in range(0, 20_000, 5_000):
        alice.append(rows(*range(start, start + 5_000)))
    alice.compact()
    alice.append(rows(*range(20_000, 25_000)))
    alice.delete("id == 3")
    names = [key.removeprefix("app/notes/alice/") for key in objects(lake)]
    assert [name for name in names if name.startswith("batch-")] == [f"batch-{n}.parquet" for n in range(5)]
    kept = [extent.key.removeprefix("app/notes/alice/") for extent in alice.extents()]
    assert sorted(name.partition("-")[0] for name in kept) == ["batch", "compact"]
    assert {name.partition("-")[0] for name in names} == {"batch", "compact"}
    assert len(alice) == 24_999


def test_all_verbs_work_for_one_user_and_leave_the_other_alone(lake: Lake, notes: Table) -> None:
    alice, bob = notes.user("alice"), notes.user("bob")
    bob.append(rows(100))
    alice.append(rows(*range(10)))
    alice.flush()
    alice.append(rows(10, 11))
    alice.pin("kept")
    assert alice.delete("id < 5").rows == 5
    assert ids(alice) == [5, 6, 7, 8, 9, 10, 11]
    alice.replace(rows(7), start="2026-01-01T00:00:07Z", end="2026-01-01T00:00:08Z")
    assert alice.restore(snapshot=3).snapshot > 3
    assert ids(alice) == list(range(12))
    last = alice.append(rows(12), key="once").snapshot
    assert alice.append(rows(12), key="once").replayed
    assert not bob.append(rows(12), key="once").replayed
    alice.undo(last)
    assert ids(alice) == list(range(12))
    assert ids(lake.table("app.notes", user="alice", snapshot=2)) == list(range(10))
    assert [pin.name for pin in alice.pins()] == ["kept"]
    assert bob.pins() == []
    alice.unpin("kept")
    assert alice.expire("0s").snapshots > 3
    assert lake.collect(orphan_after="0s").left == {}
    assert (ids(alice), ids(bob)) == (list(range(12)), [12, 100])
    with pytest.raises(NotFoundError):
        lake.table("app.notes", user="alice", snapshot=2)
    assert bob.history()[-1].sequence == 1


def test_a_table_of_users_needs_one_and_a_shared_table_has_none(lake: Lake, notes: Table) -> None:
    shared = lake.create_table("app.shared", COLUMNS)
    verbs: list[Callable[[], object]] = [
        lambda: notes.append(rows(1)),
        notes.flush,
        notes.scan,
        notes.plan,
        notes.outline,
        notes.to_arrow,
        notes.history,
        notes.extents,
        notes.compact,
        notes.expire,
        notes.pins,
        notes.pinned,
        notes.promotable,
        notes.repair,
        lambda: len(notes),
        lambda: notes.pin("x"),
        lambda: notes.unpin("x"),
        lambda: notes.undo(1),
        lambda: notes.restore(snapshot=1),
        lambda: notes.delete("id == 1"),
        lambda: notes.replace(rows(1), start="2026-01-01", end="2026-01-02"),
        lambda: notes.showing(["x"]),
        lambda: pa.table(notes),
        lambda: lake.table("app.notes", snapshot=1),
        lambda: lake.ingest("app.notes", rows(1)),
    ]
    for verb in verbs:
        with pytest.raises(InvalidInputError, match="give a user"):
            verb()
    for one_too_many in (
        lambda: shared.user("alice"),
        lambda: lake.table("app.shared", user="alice"),
        lambda: lake.snapshot("app.shared", user="alice"),
        lambda: lake.ingest("app.shared", rows(1), user="alice"),
        lambda: shared.users(),
    ):
        with pytest.raises(InvalidInputError, match="shared"):
            one_too_many()
    with pytest.raises(InvalidInputError, match="one user's table"):
        notes.user("alice").user("bob")
    with pytest.raises(InvalidInputError, match="knows no others"):
        notes.user("alice").users()
    assert notes.schema.names == ("ts", "id", "text")
    assert "one for each user" in repr(notes)
    assert "'alice'" in repr(notes.user("alice"))


@pytest.mark.parametrize("user", REFUSED, ids=lambda user: ascii(user[:12]))
def test_what_is_no_user_id_is_refused_at_every_door(lake: Lake, notes: Table, user: str) -> None:
    for door in (
        lambda: notes.user(user),
        lambda: lake.table("app.notes", user=user),
        lambda: lake.table("app.notes", user=user, snapshot=1),
        lambda: lake.snapshot("app.notes", user=user),
        lambda: lake.ingest("app.notes", rows(1), user=user),
        lambda: lake.ingest("app.new", rows(1), user=user),
        lambda: TableHandle.open(lake.handle, "app.notes", user=user),
    ):
        with pytest.raises(InvalidInputError, match="not a user id"):
            door()
    assert lake.tables() == ["app.notes"]
    assert list(notes.users()) == []
    assert objects(lake) == []


def test_hostile_ids_are_users_like_any_other(lake: Lake, notes: Table) -> None:
    for number, user in enumerate(HOSTILE):
        one = notes.user(user)
        one.append(rows(number))
        one.flush()
        one.append(rows(1000 + number))
    for number, user in enumerate(HOSTILE):
        assert ids(notes.user(user)) == [number, 1000 + number]
        (extent,) = notes.user(user).extents()
        assert extent.key.count("/") == 3
        assert extent.key.endswith("/batch-0.parquet")
    assert sorted(notes.users()) == sorted(HOSTILE)
    assert len(set(objects(lake))) == len(HOSTILE)
    assert lake.collect(orphan_after="0s").deleted == {}
    assert all(len(notes.user(user)) == 2 for user in HOSTILE)


def test_an_append_widens_the_table_of_all_users(lake: Lake, notes: Table) -> None:
    alice, bob = notes.user("alice"), notes.user("bob")
    bob.append(rows(1))
    alice.append(rows(2, mood="good"))
    assert notes.schema.names == alice.schema.names == bob.schema.names == ("ts", "id", "text", "mood")
    assert bob.to_arrow(["mood"])["mood"].to_pylist() == [None]
    bob.append(rows(3, mood="bad"))  # its last head was older than the schema
    assert notes.schema.version == 2
    assert [each.operation for each in lake.catalog.history(notes.handle.info.scope)] == ["alter", "create"]
    assert sorted(bob.to_arrow(["mood"])["mood"].to_pylist(), key=str) == [None, "bad"]


def test_users_that_widen_a_table_in_different_ways_end_as_two_writers_of_one_table(notes: Table) -> None:
    alice, bob = notes.user("alice"), notes.user("bob")
    alice.append(rows(1)), bob.append(rows(1))  # both know the schema from now on
    alice.append(rows(2, size=2**53 + 1))  # which no double holds
    bob.append(rows(2, size=0.5))
    assert notes.schema["size"].type.kind == "long"
    assert alice.to_arrow(["size"], "id == 2")["size"].to_pylist() == [2**53 + 1]
    assert bob.to_arrow(["_overflow"], "id == 2")["_overflow"].to_pylist() == ['{"size":0.5}']
    bob.append(rows(3, note="text"))
    alice.append(rows(3, Note="other"))  # alike but for case: into the same column
    assert [name for name in notes.schema.names if name.lower() == "note"] == ["note"]


def test_users_that_widen_a_table_at_the_same_time_lose_nothing(lake: Lake, notes: Table) -> None:
    failed: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for turn in range(5):
                notes.user(f"user-{number}").append(
                    rows(turn, **{f"own_{number}_{turn}": turn, "both": number % 2 or 0.5})
                )
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert set(notes.schema.names) >= {f"own_{number}_{turn}" for number in range(4) for turn in range(5)}
    for number in range(4):
        one = notes.user(f"user-{number}")
        assert ids(one) == list(range(5))
        for turn in range(5):
            assert one.to_arrow(["id"], f"own_{number}_{turn} == {turn}")["id"].to_pylist() == [turn]


def test_the_schema_is_altered_without_a_user(notes: Table) -> None:
    alice = notes.user("alice")
    alice.append([{**rows(1)[0], "tags": {"a": {"b": 5}}}])
    changes: list[Callable[[], object]] = [
        lambda: alice.add_column("x", "long"),
        lambda: alice.promote("tags.a.b", "long"),
    ]
    for change in changes:
        with pytest.raises(InvalidInputError, match="belongs to the table"):
            change()
    notes.add_column("x", "int")
    notes.add_column("x", "long")
    notes.promote("tags.a.b", "long", name="b")
    assert alice.to_arrow(["b", "x"]).to_pylist() == [{"b": 5, "x": None}]
    with pytest.raises(SchemaError, match="a real cannot hold"):
        notes.add_column("x", "real")  # nobody reads the rows of all users to find out


def test_coverage_is_of_each_user(lake: Lake) -> None:
    table = lake.create_table(
        "m.cpu", {"ts": "timestamp", "device": "string", "v": "real"}, scope="user", time="ts", bucket="1m",
        entity=["device"], coverage="exclusive",
    )  # fmt: skip
    alice, bob = table.user("alice"), table.user("bob")
    row = {"ts": "2026-01-01T00:00:00Z", "device": "d", "v": 1.0}
    later = {**row, "ts": "2026-01-01T00:03:00Z"}
    for one in (alice, bob):
        one.append([row])
        one.flush()
    alice.append([later])
    alice.flush()
    with pytest.raises(TidelakeError, match="held"):
        alice.append([row])
    assert alice.coverage.gaps()["buckets"].to_pylist() == [2]
    assert bob.coverage.gaps().num_rows == 0
    covered = [extent.coverage_key for one in (alice, bob) for extent in one.extents()]
    assert len(set(covered)) == 3
    assert None not in covered
    lake.store.delete([key for key in covered if key is not None])
    assert len(alice.repair().mended) == 2
    assert len(bob.repair().mended) == 1
    with pytest.raises(InvalidInputError, match="give a user"):
        table.coverage.gaps()


def test_the_number_of_a_segment_that_another_program_wrote_is_passed_over(lake: Lake, notes: Table) -> None:
    lake.store.put("app/notes/alice/batch-0.parquet", b"not ours")
    alice = notes.user("alice")
    alice.append(rows(1))
    alice.flush()
    assert [extent.key for extent in alice.extents()] == ["app/notes/alice/batch-1.parquet"]
    assert lake.catalog.pending() == []
    assert lake.catalog.garbage(before_us=2**62) == []
    assert lake.store.get("app/notes/alice/batch-0.parquet").to_pybytes() == b"not ours"


def test_a_table_of_the_same_name_takes_other_numbers(lake: Lake, notes: Table) -> None:
    notes.user("alice").append(rows(*range(2_000)))
    lake.drop_table("app.notes")
    again = lake.create_table("app.notes", COLUMNS, scope="user").user("alice")
    again.append(rows(*range(2_000)))
    assert [extent.key for extent in again.extents()] == ["app/notes/alice/batch-1.parquet"]
    assert lake.collect(orphan_after="0s").deleted["dropped"].objects == 1
    assert objects(lake) == ["app/notes/alice/batch-1.parquet"]
    assert len(again) == 2_000


def test_what_is_purged_goes_with_its_manifests_and_what_is_not_ours_stays(lake: Lake, notes: Table) -> None:
    for user in ("alice", "../bob"):
        notes.user(user).append(rows(*range(2_000)))
        lake.store.put(f"{notes.user(user).extents()[0].key.rpartition('/')[0]}/manifest.json", b"{}")
    lake.store.put("app/notes/alice/manifest-part-0a.json", b"{}")
    lake.store.put("app/notes/alice/batch-77.parquet", b"nobody's")
    lake.store.put("app/notes/alice/letter.txt", b"foreign")
    report = lake.collect(orphan_after="0s")
    assert report.deleted["orphan"].objects == 1
    assert report.foreign == ("app/notes/alice/letter.txt",)
    assert len(objects(lake)) == 3
    assert len([*lake.store.list("app")]) == 6
    lake.drop_table("app.notes")
    would = lake.collect(dry_run=True)
    assert would.objects is not None
    assert would.deleted["dropped"].objects == 5
    lake.store.put("app/notes/alice/batch-78.parquet", b"nobody's")
    info = lake.catalog.dropped_tables(before_us=2**62)
    assert [str(each) for each in info] == ["app.notes"]
    lake.collect()
    assert objects(lake) == ["app/notes/alice/letter.txt"]


def test_a_purge_at_once_leaves_nothing(lake: Lake, notes: Table) -> None:
    for number in range(3):
        notes.user(f"user-{number}").append(rows(*range(2_000)))
    lake.store.put("app/notes/user-0/manifest.json", b"{}")
    lake.drop_table("app.notes", purge=True)
    assert objects(lake) == []
    assert lake.catalog.garbage(before_us=2**62) == []


def test_what_a_table_of_users_cannot_be_is_said(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="one of shared, user"):
        lake.create_table("app.notes", COLUMNS, scope="tenant")
    with pytest.raises(InvalidInputError, match="parquet"):
        lake.create_table("app.notes", COLUMNS, scope="user", format="tlm")
    with pytest.raises(InvalidInputError, match="namespace"):
        lake.create_table("data.notes", COLUMNS, scope="user")
    with (
        tidelake.connect(f"log:{tmp_path / 'log'}") as log,
        pytest.raises(InvalidInputError, match="one shared table"),
    ):
        log.create_table("app.notes", COLUMNS, scope="user")
    assert lake.tables() == []


def test_upkeep_finds_the_users_that_need_it_and_no_others(lake: Lake) -> None:
    notes = lake.create_table("app.notes", COLUMNS, scope="user", flush_age="1ms", history="1ms")
    for number in range(20):
        notes.user(f"user-{number:02}").append(rows(number))
    assert lake.catalog.due_scopes(notes.handle.info.id, before_us=0) == []
    (row,) = lake.status().to_pylist()
    assert (row["users"], row["rows"], row["hot_rows"], row["extents"], row["due"]) == (20, 20, 20, 0, ["flush"])
    said = [each.said for each in lake.maintain().done if each.kind == "flush"]
    assert said == ["1 hot rows flushed"] * 20
    (row,) = lake.status().to_pylist()
    assert (row["rows"], row["hot_rows"], row["extents"], row["due"]) == (20, 0, 20, [])
    assert len(lake.catalog.due_scopes(notes.handle.info.id, before_us=2**62)) == 0  # until the next commit
    notes.user("user-07").append(rows(7))
    (due,) = lake.catalog.due_scopes(notes.handle.info.id, before_us=2**62)
    assert due.scope.user == "user-07"


def test_what_many_users_needed_is_told_in_few_words(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "DONE_KEPT", 10)
    notes = lake.create_table("app.notes", COLUMNS, scope="user", flush_age="1ms")
    for number in range(25):
        notes.user(f"user-{number:02}").append(rows(number))
    done = lake.maintain().done
    assert len(done) <= 10
    assert sum(each.pieces for each in done if each.kind == "flush") == 25


def test_a_retention_of_users_is_noted_once_for_all_of_them(lake: Lake) -> None:
    notes = lake.create_table("app.notes", COLUMNS, scope="user", retention="1d", flush_age="off")
    now = datetime.now(UTC)
    old, new = [{"ts": (now - timedelta(days=days)).isoformat(), "id": days, "text": ""} for days in (3, 0)]
    for user in ("alice", "bob", "carol"):
        notes.user(user).append([old] * 1_001)
        notes.user(user).append([new])
    assert lake.status()["due"].to_pylist() == [["retain"]]
    lake.maintain()
    assert [ids(notes.user(user)) for user in ("alice", "bob", "carol")] == [[0]] * 3
    operations = [each.operation for each in lake.catalog.history(notes.handle.info.scope)]
    assert operations in (["alter", "create"], ["alter", "alter", "create"])  # a step may pass while this runs
    assert lake.status()["due"].to_pylist() == [[]]


def test_a_process_keeps_nothing_of_users_that_it_has_done_with(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake") as lake:
        notes = lake.create_table("app.notes", COLUMNS, scope="user")
        for number in range(50):
            notes.user(f"user-{number}").append(rows(number))
            assert ids(notes.user(f"user-{number}")) == [number]
        held = lake.handle
        gc.collect()
        held.leases.let_go()
        held.leases.let_go()
        assert len(held.leases._scopes) == 0
        assert len(held.flusher._due) < 5  # one for the table, whose users are found by an index
