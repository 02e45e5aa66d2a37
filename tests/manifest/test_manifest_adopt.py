"""Open scopes that were written by hand, without a catalog: they read and append, or are refused whole."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelake
from tidelake.errors import CorruptError, InvalidInputError, NotFoundError, SchemaError
from tidelake.manifest.manifest_json import from_bytes

ROWS = [{"id": number, "text": f"t{number}", "at": f"2026-01-0{number + 1}T00:00:00Z"} for number in range(5)]
FIRST = 315_199_164_996_489_218  # as other writers number rows


def write(
    folder: Path, name: str, rows: Sequence[dict[str, Any]], *, seq: int | None = FIRST, deleted: Sequence[int] = ()
) -> dict[str, Any]:
    """Write a segment as another program would, and return how its manifest lists it."""
    folder.mkdir(parents=True, exist_ok=True)
    columns: dict[str, Any] = {
        "id": pa.array([row["id"] for row in rows], pa.int64()),
        "text": pa.array([row.get("text") for row in rows], pa.string()),
    }
    if "at" in rows[0]:
        columns["at"] = pa.array([row["at"] for row in rows], pa.string()).cast(pa.timestamp("us", tz="UTC"))
    if seq is not None:
        columns["_seq"] = pa.array([seq + number * 1000 for number in range(len(rows))], pa.int64())
        columns["_deleted"] = pa.array([row["id"] in deleted for row in rows])
    pq.write_table(pa.table(columns), folder / name)
    first = seq or 0
    ids = [row["id"] for row in rows]
    bounds = {"min": {"Int64": str(min(ids))}, "max": {"Int64": str(max(ids))}, "null_count": 0}
    return {
        "min_seq": first, "max_seq": first + (len(rows) - 1) * 1000, "row_count": len(rows),
        "size_bytes": (folder / name).stat().st_size, "created_at": 1, "id": name, "path": name,
        "column_stats": {"1": bounds}, "schema_version": 1, "status": "committed",
    }  # fmt: skip


def manifest(folder: Path, segments: Sequence[dict[str, Any]], *, user: str | None = None, **more: Any) -> None:
    table = ".".join((folder.parent if user else folder).parts[-2:])
    shape = {
        "table_id": table, "user_id": user, "version": 2, "created_at": 7, "updated_at": 8, "segments": segments,
        "last_sequence_number": 0, "files": None, "vector_indexes": {}, **more,
    }  # fmt: skip
    (folder / "manifest.json").write_bytes(orjson.dumps(shape, option=orjson.OPT_INDENT_2))


def ids(table: Any, **asked: Any) -> list[int]:
    found: list[int] = table.scan(["id"], **asked).read_all()["id"].to_pylist()
    return sorted(found)


def test_scope_of_a_user_written_by_hand_reads_and_appends(tmp_path: Path) -> None:
    root = tmp_path / "root"
    folder = root / "app" / "notes" / "alice"
    first = write(folder, "batch-0.parquet", ROWS[:3])
    second = write(folder, "batch-1.parquet", [{**ROWS[1], "text": "newer"}, ROWS[2]], seq=FIRST + 9_000, deleted=[2])
    manifest(folder, [first, second], user="alice", last_sequence_number=4, vector_indexes={"v": {"metric": "l2"}})
    other = root / "app" / "notes" / "bob"
    manifest(other, [write(other, "batch-0.parquet", ROWS[4:])], user="bob")
    with tidelake.connect(root, upkeep=False) as lake:
        assert lake.tables() == ["app.notes"]
        notes = lake.table("app.notes", user="alice")
        assert ids(notes) == [0, 1]
        assert notes.scan(["text"], where="id == 1").read_all().to_pylist() == [{"text": "newer"}]
        assert ids(lake.table("app.notes", user="bob")) == [4]
        assert notes.handle.snapshot.settings["key"] == ["id"]
        notes.append([{"id": 1, "text": "newest"}, {"id": 9, "text": "nine"}])
        assert notes.scan(["text"], where="id == 1").read_all().to_pylist() == [{"text": "newest"}]
        notes.flush()
        assert (folder / "batch-5.parquet").exists()  # the numbers up to 4 were used
        stored = from_bytes((folder / "manifest.json").read_bytes(), "manifest.json")
        assert (len(stored.segments), stored.last_sequence_number, stored.created_at) == (3, 5, 7)
        assert stored.vector_indexes == {"v": {"metric": "l2"}}
        assert ids(notes) == [0, 1, 9]
        notes.compact()
        notes.delete_keys([0])
        assert ids(notes) == [1, 9]
    with tidelake.connect(root, upkeep=False) as lake:
        assert ids(lake.table("app.notes", user="alice")) == [1, 9]


def test_shared_keyed_table_is_adopted_and_told_its_key(tmp_path: Path) -> None:
    root = tmp_path / "root"
    folder = root / "app" / "orders"
    listed = [write(folder, "batch-0.parquet", ROWS[:3]), write(folder, "compact-0a.parquet", ROWS[1:], seq=2 * FIRST)]
    for each in listed:
        each["column_stats"] = {}
    manifest(folder, listed)
    with pytest.raises(InvalidInputError, match="tell it"):
        tidelake.connect(root)
    assert sorted(path.name for path in root.iterdir()) == ["app"]
    with pytest.raises(NotFoundError, match="no such table to adopt"):
        tidelake.connect(root, adopt={"app.order": ["id"]})
    with pytest.raises(NotFoundError):
        tidelake.connect(root, adopt={"app.orders": ["nothing"]})
    with tidelake.connect(root, adopt={"app.orders": ["id"]}, upkeep=False) as lake:
        orders = lake.table("app.orders")
        assert ids(orders) == [0, 1, 2, 3, 4]
        assert lake.manifests()["user"].to_pylist() == [None]
        assert lake.sql("select count(*) as n from app.orders where id >= 3").to_arrow().to_pylist() == [{"n": 2}]


def test_rows_without_versions_are_all_there(tmp_path: Path) -> None:
    root = tmp_path / "root"
    folder = root / "app" / "events" / "alice"
    listed = [write(folder, f"batch-{n}.parquet", ROWS[n : n + 2], seq=None) for n in range(2)]
    listed.append({**write(folder, "batch-2.parquet", ROWS, seq=None), "status": "tombstone"})
    manifest(folder, listed, user="alice")
    shared = root / "app" / "log"
    manifest(shared, [write(shared, "batch-0.parquet", ROWS, seq=None)])
    with tidelake.connect(root, upkeep=False) as lake:
        events = lake.table("app.events", user="alice")
        assert ids(events) == [0, 1, 1, 2]
        assert ids(events, start="2026-01-03T00:00:00Z") == [2]
        events.append([{"id": 7, "at": "2026-02-01T00:00:00Z"}])
        assert ids(events) == [0, 1, 1, 2, 7]
        log = lake.table("app.log")
        log.append([{"id": 8, "at": "2026-02-01T00:00:00Z"}])
        log.flush()
        assert ids(log) == [0, 1, 2, 3, 4, 8]


def test_columns_that_came_later_are_null_before(tmp_path: Path) -> None:
    root = tmp_path / "root"
    folder = root / "app" / "notes" / "alice"
    old = write(folder, "batch-0.parquet", [{"id": 1, "text": "x"}])
    new = {**write(folder, "batch-1.parquet", [ROWS[2]], seq=FIRST + 10), "schema_version": 2}
    manifest(folder, [new, old], user="alice")
    with tidelake.connect(root, upkeep=False) as lake:
        notes = lake.table("app.notes", user="alice")
        assert notes.schema.names == ("id", "text", "at")
        found = notes.scan(["id", "at"]).read_all().sort_by("id").to_pylist()
        assert [row["at"] is None for row in found] == [True, False]


def test_lake_of_ours_whose_catalog_is_lost_is_adopted(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with tidelake.connect(root, upkeep=False) as lake:
        notes = lake.create_table("app.notes", {"id": "long", "text": "string"}, scope="user", key=["id"])
        for user in ("alice", "../bob"):
            mine = notes.user(user)
            for number in range(3):
                mine.append([{"id": number, "text": f"{user} {each}"} for each in range(2) for number in range(4)])
                mine.append([{"id": 10 + number, "text": user}])
                mine.delete_keys([1])
                mine.flush()
        mine.compact()
        mine.append([{"id": 99, "text": "again"}])
        mine.flush()
        expected = {user: ids(notes.user(user)) for user in ("alice", "../bob")}
        texts = mine.scan(["text"], where="id == 2").read_all().to_pylist()
    for left in root.glob("catalog.sqlite*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    with tidelake.connect(root, upkeep=False) as lake:
        notes = lake.table("app.notes")
        assert {user: ids(notes.user(user)) for user in ("alice", "../bob")} == expected
        again = notes.user("../bob")
        assert again.scan(["text"], where="id == 2").read_all().to_pylist() == texts
        again.append([{"id": 2, "text": "after"}])
        assert again.scan(["text"], where="id == 2").read_all().to_pylist() == [{"text": "after"}]


def test_torn_manifest_is_made_again_from_the_footers_where_they_tell_all(tmp_path: Path) -> None:
    root = tmp_path / "root"
    folder = root / "app" / "notes" / "alice"
    write(folder, "batch-0.parquet", ROWS[:3])
    write(folder, "compact-0b.parquet", ROWS[2:], seq=FIRST + 5_000)
    (folder / "manifest.json").write_bytes(b'{"table_id": "app.no')
    with tidelake.connect(root, adopt={"app.notes": ["id"]}, upkeep=False) as lake:
        assert ids(lake.table("app.notes", user="alice")) == [0, 1, 2, 3, 4]
    plain = tmp_path / "plain"
    folder = plain / "app" / "events" / "alice"
    write(folder, "batch-0.parquet", ROWS[:3], seq=None)
    (folder / "manifest.json").write_bytes(b"")
    with tidelake.connect(plain, upkeep=False) as lake:
        assert ids(lake.table("app.events", user="alice")) == [0, 1, 2]
    mixed = tmp_path / "mixed"
    folder = mixed / "app" / "events" / "alice"
    write(folder, "batch-0.parquet", ROWS[:3], seq=None)
    write(folder, "compact-0c.parquet", ROWS[:3], seq=None)
    (folder / "manifest.json").write_bytes(b"")
    with pytest.raises(CorruptError, match=r"torn.*compact-0c\.parquet"):
        tidelake.connect(mixed)
    assert [path.name for path in mixed.iterdir()] == ["app"]


def good(root: Path) -> Path:
    folder = root / "app" / "notes" / "alice"
    listed = [write(folder, "batch-0.parquet", ROWS[:2]), write(folder, "batch-1.parquet", ROWS[2:], seq=FIRST + 9_000)]
    manifest(folder, listed, user="alice")
    return folder


def _missing(folder: Path) -> None:
    (folder / "batch-1.parquet").unlink()


def _shorter(folder: Path) -> None:
    (folder / "batch-1.parquet").write_bytes((folder / "batch-1.parquet").read_bytes()[:-9])


def _other_rows(folder: Path) -> None:
    shape = orjson.loads((folder / "manifest.json").read_bytes())
    shape["segments"][1]["row_count"] += 1
    (folder / "manifest.json").write_bytes(orjson.dumps(shape))


def _other_user(folder: Path) -> None:
    folder.rename(folder.parent / "mallory")


def _two_versions(folder: Path) -> None:
    listed = write(folder, "batch-0.parquet", [ROWS[0], ROWS[0]])
    manifest(folder, [listed], user="alice")


def _other_type(folder: Path) -> None:
    table = pq.read_table(folder / "batch-1.parquet")
    pq.write_table(table.set_column(1, "text", pa.array([1.5] * len(table))), folder / "batch-1.parquet")
    shape = orjson.loads((folder / "manifest.json").read_bytes())
    shape["segments"][1]["size_bytes"] = (folder / "batch-1.parquet").stat().st_size
    (folder / "manifest.json").write_bytes(orjson.dumps(shape))


@pytest.mark.parametrize(
    ("spoil", "error", "named"),
    [
        (_missing, CorruptError, "batch-1.parquet"),
        (_shorter, CorruptError, "batch-1.parquet"),
        (_other_rows, CorruptError, "batch-1.parquet"),
        (_other_user, InvalidInputError, "mallory"),
        (_two_versions, InvalidInputError, "batch-0.parquet"),
        (_other_type, SchemaError, "batch-1.parquet"),
    ],
)
def test_what_is_not_as_it_should_be_is_named_and_nothing_is_adopted(
    tmp_path: Path, spoil: Any, error: type[Exception], named: str
) -> None:
    spoil(good(tmp_path / "root"))
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(error, match=named):
        tidelake.connect(tmp_path / "root")
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("stray", ["letter.txt", "app/letter.txt", "app/other/letter.txt", "app/notes/bob/letter.txt"])
def test_folder_that_holds_something_else_is_not_a_lake(tmp_path: Path, stray: str) -> None:
    good(tmp_path / "root")
    place = tmp_path / "root" / stray
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("dear")
    with pytest.raises(InvalidInputError, match="not a lake"):
        tidelake.connect(tmp_path / "root")


def test_several_who_adopt_at_once_have_one_lake(tmp_path: Path) -> None:
    good(tmp_path / "root")
    with ThreadPoolExecutor(4) as pool:
        lakes = list(pool.map(lambda _: tidelake.connect(tmp_path / "root", upkeep=False), range(4)))
    assert len({lake.catalog.table("app.notes").id for lake in lakes}) == 1
    assert ids(lakes[3].table("app.notes", user="alice")) == [0, 1, 2, 3, 4]
    for lake in lakes:
        lake.close()
    assert [path.name for path in (tmp_path / "root").glob("*adopting*")] == []


def test_catalog_that_a_killed_process_left_half_does_not_count(tmp_path: Path) -> None:
    good(tmp_path / "root")
    (tmp_path / "root" / "catalog.sqlite-adopting-0123").write_bytes(b"half")
    with tidelake.connect(tmp_path / "root", upkeep=False) as lake:
        assert ids(lake.table("app.notes", user="alice")) == [0, 1, 2, 3, 4]
