"""Tables with a key: upserts, tombstones, what readers see of them, and what is refused."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidelake import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    Lake,
    NotFoundError,
    SchemaError,
    Table,
    connect,
)
from tidelake.scan import versions

COLUMNS = {"id": "long", "ts": "timestamp", "text": "string"}
NOON = "2026-01-01T12:00:00Z"


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    with connect(tmp_path / "lake", upkeep=False) as lake:
        yield lake


@pytest.fixture
def notes(lake: Lake) -> Table:
    return lake.create_table("app.notes", COLUMNS, key=["id"], flush_age="off")


def rows(*pairs: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"id": id, "ts": NOON, "text": text} for id, text in pairs]


def texts(table: Table, **asked: Any) -> dict[int, str]:
    found = table.scan(["id", "text"], **asked).read_all().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is there twice"
    return {row["id"]: row["text"] for row in found}


def test_the_newest_version_of_a_key_is_the_one_that_readers_see(lake: Lake, notes: Table) -> None:
    notes.append(rows((1, "a"), (2, "b")))
    notes.append(rows((2, "c")))
    assert texts(notes) == {1: "a", 2: "c"}
    notes.flush()
    notes.append(rows((1, "d")))
    assert texts(notes) == texts(notes, prune=False) == {1: "d", 2: "c"}
    assert len(notes) == 2
    assert lake.sql("select count(*), min(text) from app.notes").to_arrow().to_pylist() == [
        {"count(*)": 2, "min(text)": "c"}
    ]
    assert lake.kql("['app.notes'] | where id == 1 | project text").to_arrow().to_pylist() == [{"text": "d"}]


def test_a_condition_that_an_older_version_matches_does_not_bring_it_back(notes: Table) -> None:
    notes.append(rows((1, "old"), (2, "other")))
    notes.flush()
    notes.append(rows((1, "new")))
    notes.flush()
    assert texts(notes, where="text == 'old'") == {}
    assert texts(notes, where="text == 'new'") == {1: "new"}
    assert texts(notes, where="id == 1") == {1: "new"}


def test_rows_of_one_append_with_one_key_are_reduced_to_the_last_and_counted(notes: Table) -> None:
    report = notes.append(rows((1, "a"), (2, "b"), (1, "c"), (1, "d")))
    assert (report.rows, report.superseded) == (2, 2)
    assert texts(notes) == {1: "d", 2: "b"}


def test_deleted_keys_are_gone_also_where_older_versions_lie_in_extents(notes: Table) -> None:
    notes.append(rows((1, "a"), (2, "b"), (3, "c")))
    notes.flush()
    before = notes.history()[0].sequence
    assert notes.delete_keys([1, {"id": 2}, (9,)]).keys == 3
    for _ in range(2):
        assert texts(notes) == texts(notes, prune=False) == {3: "c"}
        assert len(notes) == 1
        assert notes.get(1) is None
        notes.flush()
    assert texts(connect_at(notes, before)) == {1: "a", 2: "b", 3: "c"}
    notes.append(rows((1, "again")))
    assert texts(notes) == {1: "again", 3: "c"}


def connect_at(table: Table, snapshot: int) -> Table:
    from tidelake.handle.table_handle import TableHandle

    return Table(TableHandle.open(table.handle.lake, table.name, snapshot=snapshot))


def test_versions_rise_with_commits_and_are_shown_when_they_are_named(lake: Lake, notes: Table) -> None:
    assert notes.schema.names == ("id", "ts", "text")
    notes.append(rows((1, "a"), (2, "b")))
    notes.append(rows((1, "c")))
    seen = notes.to_arrow(["id", "_seq", "_deleted"]).to_pylist()
    assert seen == [{"id": 2, "_seq": 1, "_deleted": False}, {"id": 1, "_seq": 2, "_deleted": False}]
    notes.flush()
    assert sorted(notes.to_arrow(["_seq"])["_seq"].to_pylist()) == [1, 2]
    asked = "select id, _seq from app.notes where _seq > 1"
    assert lake.sql(asked).to_arrow().to_pylist() == [{"id": 1, "_seq": 2}]


def test_a_key_is_found_by_the_tier_that_has_it(notes: Table) -> None:
    notes.append(rows((1, "a"), (2, "b")))
    assert [(found.exists, found.tier) for found in notes.exists([1, 7])] == [(True, "hot"), (False, "manifest")]
    notes.flush()
    notes.append(rows((2, "c")))
    notes.delete_keys([1])
    found = notes.exists([1, 2, 700])
    assert [(each.exists, each.tier) for each in found] == [(False, "hot"), (True, "hot"), (False, "extents")]
    assert [(each.exists, each.tier) for each in notes.exists([700])] == [(False, "manifest")]
    notes.flush()
    assert [(each.exists, each.tier) for each in notes.exists([2])] == [(True, "extents")]


def test_insert_only_refuses_keys_that_are_there_and_names_them(notes: Table) -> None:
    notes.append(rows((1, "a")))
    notes.flush()
    with pytest.raises(AlreadyExistsError, match="id=1"):
        notes.append(rows((1, "b"), (5, "c")), insert_only=True)
    assert texts(notes) == {1: "a"}
    notes.append(rows((5, "c")), insert_only=True, key="five")
    assert notes.append(rows((5, "c")), insert_only=True, key="five").replayed
    notes.delete_keys([5])
    notes.append(rows((5, "d")), insert_only=True)
    assert texts(notes) == {1: "a", 5: "d"}


def test_of_many_who_insert_one_key_at_once_one_succeeds(notes: Table) -> None:
    won: list[int] = []

    def insert(own: int) -> None:
        try:
            notes.append(rows((1, f"by {own}")), insert_only=True)
            won.append(own)
        except AlreadyExistsError:
            return

    threads = [threading.Thread(target=insert, args=(own,)) for own in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert texts(notes) == {1: f"by {won[0]}"}


@pytest.mark.parametrize(
    ("row", "error", "said"),
    [
        ({"ts": NOON, "text": "x"}, InvalidInputError, "has one of type long"),
        ({"id": None, "ts": NOON}, InvalidInputError, "has one of type long"),
        ({"id": "word", "ts": NOON}, InvalidInputError, "has one of type long"),
        ({"id": 2.5, "ts": NOON}, SchemaError, "keeps its type"),
        ({"id": 1, "ts": NOON, "_seq": 7}, InvalidInputError, "gives this column itself"),
        ({"id": 1, "ts": NOON, "_deleted": True}, InvalidInputError, "gives this column itself"),
    ],
)
def test_rows_whose_key_does_not_fit_are_refused_whole(notes: Table, row: Any, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        notes.append([*rows((8, "fine")), row])
    assert texts(notes) == {}
    assert notes.schema.names == ("id", "ts", "text")


@pytest.mark.parametrize(
    ("columns", "key", "said"),
    [
        ({"id": "real", "ts": "timestamp"}, ["id"], "a key column is one of"),
        ({"id": "dynamic", "ts": "timestamp"}, ["id"], "a key column is one of"),
        ({"id": "long", "ts": "timestamp"}, ["id", "id"], "names a column once"),
        ({"id": "long", "ts": "timestamp"}, ["nobody"], "no such column"),
        ({"id": "long", "_seq": "long", "ts": "timestamp"}, ["id"], "gives this column itself"),
    ],
)
def test_a_key_that_cannot_be_one_makes_no_table(lake: Lake, columns: Any, key: Any, said: str) -> None:
    with pytest.raises(Exception, match=said):
        lake.create_table("app.odd", columns, key=key)
    assert lake.tables() == []


def test_a_log_and_a_table_with_exclusive_coverage_have_no_key(tmp_path: Path, lake: Lake) -> None:
    with connect(f"log:{tmp_path / 'log'}") as log, pytest.raises(InvalidInputError, match="no key"):
        log.create_table("t", COLUMNS, key=["id"])
    with pytest.raises(InvalidInputError, match="never exclusive"):
        lake.create_table("app.odd", COLUMNS, key=["id"], bucket="1m", coverage="exclusive")


def test_verbs_by_key_need_a_table_that_has_one(lake: Lake) -> None:
    plain = lake.create_table("app.plain", COLUMNS)
    for verb in (plain.get, plain.exists, plain.delete_keys):
        with pytest.raises(InvalidInputError, match="has no key"):
            verb([1])
    with pytest.raises(InvalidInputError, match="needs a table with a key"):
        plain.append(rows((1, "a")), insert_only=True)


@pytest.mark.parametrize("bad", ["word", None, {"id": 1, "text": "a"}, {"other": 1}, (1, 2), 1.5])
def test_keys_that_are_none_are_refused(notes: Table, bad: Any) -> None:
    with pytest.raises((InvalidInputError, SchemaError)):
        notes.delete_keys([bad])
    assert notes.history()[0].operation == "create"


def test_keys_of_several_columns_and_types(lake: Lake) -> None:
    columns = {"day": "date", "name": "string", "at": "timestamp", "ok": "bool", "v": "long"}
    table = lake.create_table("app.wide", columns, key=["name", "day", "ok"], time="at")
    base = {"day": "2026-01-01", "name": "ä", "at": NOON, "ok": True}
    table.append([base | {"v": 1}, base | {"v": 2, "ok": False}, base | {"v": 3, "day": "2026-01-02"}])
    table.flush()
    table.append([base | {"v": 4}])
    table.delete_keys([{"name": "ä", "day": "2026-01-02", "ok": True}])
    assert sorted(table.to_arrow(["v"])["v"].to_pylist()) == [2, 4]
    row = table.get(("ä", "2026-01-01", True))
    assert row is not None
    assert row["v"] == 4


def test_a_time_as_a_key(lake: Lake) -> None:
    table = lake.create_table("app.times", {"at": "timestamp", "v": "long"}, key="at")
    table.append([{"at": "2026-01-01T00:00:00.000001Z", "v": 1}, {"at": "2026-01-01T00:00:00.000002Z", "v": 2}])
    table.flush()
    table.append([{"at": "2026-01-01T00:00:00.000002Z", "v": 3}])
    assert sorted(table.to_arrow(["v"])["v"].to_pylist()) == [1, 3]
    row = table.get("2026-01-01T00:00:00.000002Z")
    assert row is not None
    assert row["v"] == 3


def test_a_large_append_over_hot_rows_and_tombstones_over_both(notes: Table) -> None:
    notes.append(rows((5, "hot")))
    whole = pa.table(
        {
            "id": pa.array(range(5_000)),
            "ts": pa.array([0] * 5_000, pa.timestamp("us", tz="UTC")),
            "text": ["bulk"] * 5_000,
        }
    )
    assert notes.append(whole).extents == 1
    assert texts(notes)[5] == "bulk"
    notes.flush()  # older versions become an extent that is newer than the other
    assert texts(notes)[5] == "bulk"
    notes.delete_keys(list(range(4_000)))
    assert len(texts(notes)) == len(notes) == 1_000
    assert notes.get(3_999) is None
    assert notes.get(4_000) is not None


def test_a_delete_by_condition_hides_rows_and_does_not_bring_older_ones_back(notes: Table) -> None:
    notes.append(rows((1, "keep"), (2, "drop")))
    notes.flush()
    notes.append(rows((1, "drop"), (3, "drop"), (4, "keep")))
    assert notes.delete(where="text == 'drop'", dry_run=True).rows == 3
    assert notes.delete(where="text == 'drop'").rows == 3
    assert texts(notes) == {4: "keep"}
    assert notes.delete(all=True).snapshot
    assert texts(notes) == {}


def test_a_purge_leaves_no_hidden_version_on_the_disk(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", upkeep=False) as lake:
        notes = lake.create_table("app.notes", COLUMNS, key=["id"], flush_age="off")
        notes.append(rows((1, "secret-word-one"), (2, "stays")))
        notes.flush()
        notes.append(rows((1, "secret-word-two")))
        notes.delete(where="id == 1", purge=True)
        assert texts(notes) == {2: "stays"}
    for path in (tmp_path / "lake").rglob("*"):
        assert not path.is_file() or b"secret-word" not in path.read_bytes(), path


def test_a_range_is_replaced_by_rows_that_may_have_the_same_keys(notes: Table) -> None:
    notes.append([*rows((1, "a"), (2, "b")), {"id": 3, "ts": "2026-02-01", "text": "later"}])
    notes.flush()
    new = [*rows((2, "B")), {"id": 9, "ts": NOON, "text": "new"}]
    for _ in range(2):
        notes.replace(new, start="2026-01-01", end="2026-01-02")
        assert texts(notes) == {2: "B", 3: "later", 9: "new"}


def test_rows_older_than_the_retention_leave_and_none_comes_back(lake: Lake) -> None:
    notes = lake.create_table("app.kept", COLUMNS, key=["id"], retention="30d", flush_age="off")
    recent = "2999-01-01"
    notes.append([{"id": 1, "ts": recent, "text": "newer in time"}, {"id": 2, "ts": recent, "text": "stays"}])
    notes.flush()
    notes.append([{"id": 1, "ts": "2001-01-01", "text": "older in time"}])
    lake.maintain()
    assert texts(notes) == {2: "stays"}


def test_compaction_keeps_the_newest_and_the_tombstones_that_hide_something(notes: Table) -> None:
    notes.append(rows(*((id, "first") for id in range(20))))
    notes.flush()
    for id in range(6):
        notes.append(rows((id, "second")))
        notes.flush()
    notes.delete_keys([7, 8])
    notes.flush()
    before, count = texts(notes), len(notes.extents())
    old = notes.history()[0].sequence
    report = notes.compact()
    assert report.runs
    assert len(notes.extents()) < count
    assert texts(notes) == texts(notes, prune=False) == before
    assert texts(connect_at(notes, old)) == before
    notes.expire("0s")
    notes.append(rows((30, "x")))
    notes.flush()
    notes.compact()
    assert sum(extent.row_count for extent in notes.extents()) == len(notes) == 19
    assert texts(notes) == before | {30: "x"}


def test_a_compaction_of_what_is_not_all_there_keeps_the_tombstones(notes: Table) -> None:
    from tidelake.maintain.compact import compact_run

    notes.append(rows((1, "a"), (2, "b")))
    notes.flush()
    (older,) = notes.extents()
    notes.delete_keys([1])
    notes.flush()
    notes.append(rows((3, "c")))
    notes.flush()
    notes.expire("0s")
    head = notes.handle.catalog.head(notes.handle.scope)
    run = [extent for extent in notes.extents() if extent.id != older.id]
    assert compact_run(notes.handle, head, run).runs == 1
    assert texts(notes) == {2: "b", 3: "c"}
    notes.compact()
    assert texts(notes) == {2: "b", 3: "c"}


def test_an_undone_upsert_shows_what_was_there_before(notes: Table) -> None:
    notes.append(rows((1, "a")))
    change = notes.append(rows((1, "b")))
    notes.undo(change.snapshot)
    assert texts(notes) == {1: "a"}
    gone = notes.delete_keys([1])
    notes.undo(gone.snapshot)
    assert texts(notes) == {1: "a"}
    notes.append(rows((1, "c"), (2, "d")))
    notes.flush()
    notes.restore(snapshot=2)
    assert texts(notes) == {1: "a"}
    notes.append(rows((1, "e")))
    assert texts(notes) == {1: "e"}


def test_ranges_of_keys_are_resolved_one_after_the_other(notes: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "MAX_ROWS", 3_000)
    for text in ("a", "b"):
        ids = pa.array(range(0, 20_000, 1 if text == "a" else 3))
        times = pa.array([0] * len(ids), pa.timestamp("us", tz="UTC"))
        notes.append(pa.table({"id": ids, "ts": times, "text": [text] * len(ids)}))
    notes.delete_keys(list(range(0, 20_000, 1_000)))
    found = texts(notes)
    assert len(found) == 20_000 - 20
    assert all(found[id] == ("b" if id % 3 == 0 else "a") for id in found)


def test_concurrent_upserts_of_one_key_leave_one_row(notes: Table) -> None:
    def upsert(own: int) -> None:
        for at in range(10):
            notes.append(rows((1, f"{own}.{at}"), (own + 100, "own")))

    threads = [threading.Thread(target=upsert, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(notes)
    assert set(found) == {1, 100, 101, 102, 103}
    assert found[1].endswith(".9")
    seqs = notes.to_arrow(["_seq"])["_seq"].to_pylist()
    assert len(set(seqs)) == len(seqs)


def test_a_delete_looks_again_when_the_table_changed_meanwhile(notes: Table) -> None:
    from tidelake.maintain.keyed import hide_rows

    notes.append(rows((1, "a")))
    head = notes.handle.catalog.head(notes.handle.scope)
    notes.append(rows((1, "b")))
    with pytest.raises(ConflictError, match="changed since"):
        hide_rows(notes.handle, head, "delete", "text == 'a'")
    assert texts(notes) == {1: "b"}


def replayed(held: dict[int, str], table: Table, since: int | None) -> dict[int, str]:
    for row in table.changes(since).read_all().to_pylist():
        if row["_op"] == "delete":
            del held[row["id"]]
        else:
            assert (row["id"] in held) == (row["_op"] == "update")
            held[row["id"]] = row["text"]
    return held


def test_changes_applied_to_an_older_snapshot_give_the_newest(notes: Table) -> None:
    notes.append(rows((1, "a"), (2, "b"), (3, "c")))
    first = notes.snapshot.sequence
    before = texts(notes)
    notes.append(rows((2, "B"), (4, "d")))
    notes.flush()
    notes.delete_keys([1, 99])
    notes.append(rows((4, "D")))
    assert replayed(dict(before), notes, first) == texts(notes) == {2: "B", 3: "c", 4: "D"}
    assert replayed({}, notes, None) == texts(notes)
    assert notes.changes(notes.snapshot.sequence).read_all().num_rows == 0
    second, held = notes.snapshot.sequence, texts(notes)
    notes.compact()
    assert notes.changes(second).read_all().num_rows == 0
    notes.restore(snapshot=first)
    assert replayed(held, notes, second) == before


def test_changes_need_a_key_and_a_snapshot_that_is_there(lake: Lake, notes: Table) -> None:
    with pytest.raises(InvalidInputError, match="with a key"):
        lake.create_table("app.plain", COLUMNS).changes(1)
    with pytest.raises(NotFoundError, match="expired"):
        notes.changes(77)


def test_coverage_is_that_of_the_rows_that_readers_see(lake: Lake) -> None:
    table = lake.create_table("app.series", COLUMNS, key=["id"], bucket="1h", flush_age="off")
    table.append([{"id": hour, "ts": f"2026-01-01T{hour:02}:10:00Z", "text": "x"} for hour in range(6)])
    table.flush()
    day = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T06:00:00Z"}
    assert table.coverage.ratio(**day) == 1
    table.append([{"id": 2, "ts": "2026-01-01T03:20:00Z", "text": "moved"}])
    table.delete_keys([4])
    for _ in range(2):
        assert table.coverage.gaps(**day)["start"].to_pylist() == [
            datetime(2026, 1, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, 4, tzinfo=UTC)
        ]  # fmt: skip
        assert lake.sql("select count(*) as n from gaps('app.series')").to_arrow().to_pylist() == [{"n": 2}]
        table.flush()
        table.compact()
    before = table.history()[-2].sequence
    assert lake.table("app.series", snapshot=before).coverage.ratio(**day) == 1


def test_what_retention_hid_has_expired_and_is_not_missing(lake: Lake) -> None:
    table = lake.create_table("app.series", COLUMNS, key=["id"], bucket="1d", retention="5d", flush_age="off")
    now = datetime.now(UTC)
    table.append([{"id": day, "ts": (now - timedelta(days=day)).isoformat(), "text": "x"} for day in range(20)])
    table.flush()
    lake.maintain()
    assert len(table) == 5
    assert table.coverage.expired_before is not None
    assert table.coverage.gaps(start=now - timedelta(days=19), end=now).num_rows == 0


def test_values_that_drift_are_united_also_for_one_row(lake: Lake) -> None:
    table = lake.create_table("app.odd", {"id": "long", "ts": "timestamp", "v": "long", "d": "dynamic"}, key=["id"])
    table.append([{"id": id, "ts": NOON, "v": id, "d": {"deep": id}} for id in range(4)])
    table.append([{"id": 1, "ts": NOON, "v": "word"}, {"id": 9, "ts": NOON, "v": 7, "fresh": "field"}])
    for _ in range(2):
        for id in (0, 1, 2, 3, 9):
            (row,) = table.scan(where=f"id == {id}").read_all().to_pylist()
            assert table.get(id) == row
        table.flush()
        table.promote("d.deep", "long")
        table.append([{"id": 3, "ts": NOON, "v": 2.5, "d": {"deep": 33}}])
        table.compact()
    assert table.get(0)["deep"] == 0  # type: ignore[index]
    assert table.get(3)["deep"] == 33  # type: ignore[index]
