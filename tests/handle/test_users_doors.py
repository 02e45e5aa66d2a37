"""Ask for one user's rows through every door, and try to reach another's through each of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tidelake
from tests.handle.test_users import COLUMNS, HOSTILE, REFUSED, ids, rows
from tidelake.cli.main import main
from tidelake.errors import InvalidInputError, QueryError, TidelakeError
from tidelake.lake import Lake
from tidelake.table import Table

SECRET = 424_242


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as opened:
        notes = opened.create_table("app.notes", COLUMNS, scope="user", flush_age="off")
        for number, user in enumerate(("alice", "bob")):
            notes.user(user).append(rows(number))
            notes.user(user).flush()
            notes.user(user).append(rows(10 + number))
        opened.create_table("app.shared", COLUMNS).append(rows(100, 1))
        yield opened


def test_queries_mean_the_user_that_is_given(lake: Lake) -> None:
    for user, wanted in (("alice", [0, 10]), ("bob", [1, 11]), ("carol", [])):
        for found in (
            lake.sql("select id from app.notes order by id", user=user),
            lake.kql("app.notes | project id | order by id asc", user=user),
            lake.user(user).sql("select id from app.notes order by id"),
            lake.user(user).kql("app.notes | project id | order by id asc"),
            lake.sql(f"SET tide.user = '{user}'; select id from app.notes order by id"),
            lake.sql(f"-- mine\nset  TIDE . user='{user}' ;\nselect id from app.notes order by id"),
            lake.sql("select a.id from app.notes a join app.notes b on a.id = b.id order by 1", user=user),
            lake.sql("select n.id from app.notes n left join app.shared s on n.id = s.id order by 1", user=user),
            lake.sql("with t as (select * from app.notes) select id from t order by 1", user=user),
        ):
            assert found.to_arrow()["id"].to_pylist() == wanted
        assert lake.sql("select count(*) as n from app.notes", user=user).to_arrow()["n"].to_pylist() == [len(wanted)]
    assert lake.sql("select count(*) as n from app.shared", user="alice").to_arrow()["n"].to_pylist() == [2]
    assert lake.sql("select id from app.notes version as of 1", user="bob").to_arrow()["id"].to_pylist() == [1]


def test_a_query_without_a_user_is_told_to_give_one(lake: Lake) -> None:
    asks: list[Callable[[], object]] = [
        lambda: lake.sql("select * from app.notes"),
        lambda: lake.kql("app.notes | count"),
        lambda: lake.sql("select * from app.notes version as of 1"),
        lambda: lake.kql("union app.shared, app.notes | count"),
    ]
    for ask in asks:
        with pytest.raises(InvalidInputError, match="give a user"):
            ask()


def test_a_query_cannot_choose_another_user_than_the_one_given(lake: Lake) -> None:
    text = "SET tide.user = 'bob'; select id from app.notes"
    asks: list[Callable[[], object]] = [
        lambda: lake.sql(text, user="alice"),
        lambda: lake.user("alice").sql(text),
        lambda: lake.user("alice").sql("/* x */ " + text),
    ]
    for ask in asks:
        with pytest.raises(QueryError, match="cannot choose another"):
            ask()
    for other in (
        "select 1; SET tide.user = 'bob'; select id from app.notes",
        "SET tide.user = 'alice'; SET tide.user = 'bob'; select id from app.notes",
        "SET tide.user = 'alice' select id from app.notes",
        "SET tide.user = alice; select id from app.notes",
        "SET tide.user = 'alice'",
        "SET tide.other = 'bob'; select id from app.notes",
        "select id from app.notes.bob",
        "select id from `app.notes/bob`",
        "select id from app.`notes`.`bob`",
    ):
        with pytest.raises(TidelakeError):
            lake.sql(other).to_arrow()
        with pytest.raises(TidelakeError):
            lake.user("alice").sql(other).to_arrow()
    for user in REFUSED:
        with pytest.raises(TidelakeError):
            lake.sql("select 1 as x", user=user)
    own = lake.user("alice")
    for reach in (
        lambda: own.table("app.notes", user="bob"),
        lambda: own.user("bob"),
        lambda: own.snapshot("app.notes", user="bob"),
        lambda: own.ingest("app.notes", rows(5), user="bob"),
        lambda: own.sql("select 1 as x", user="bob"),
        lambda: own.kql("print 1", user="bob"),
        lambda: own.table("app.notes").user("bob"),
        lambda: own.table("app.notes").users(),
        lambda: own.table("app.notes").all_users(),
    ):
        with pytest.raises(InvalidInputError):
            reach()
    assert ids(own.table("app.notes")) == [0, 10]
    assert ids(own.table("app.shared")) == [1, 100]
    own.ingest("app.notes", rows(5))
    own.ingest("app.shared", rows(5))
    assert (ids(own.table("app.notes")), ids(lake.table("app.shared"))) == ([0, 5, 10], [1, 5, 100])


def test_answers_about_coverage_are_the_users(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        table = lake.create_table("m.cpu", {"ts": "timestamp", "v": "real"}, scope="user", time="ts", bucket="1m")
        table.user("alice").append([{"ts": f"2026-01-01T00:0{n}:00Z", "v": 1.0} for n in (0, 3)])
        table.user("bob").append([{"ts": f"2026-01-01T00:0{n}:00Z", "v": 1.0} for n in (0, 1)])
        for user, missing in (("alice", [2]), ("bob", [])):
            found = lake.sql("select buckets from gaps('m.cpu')", user=user).to_arrow()["buckets"].to_pylist()
            assert found == missing
        with pytest.raises(InvalidInputError, match="give a user"):
            lake.sql("select * from gaps('m.cpu')").to_arrow()


def test_manifests_are_the_users_own_and_shared_ones(lake: Lake) -> None:
    lake.create_table("app.keyed", COLUMNS, key=["id"]).append(rows(1))
    own = lake.user("alice")
    for found in (
        own.manifests(),
        own.sql("select * from system.manifest").to_arrow(),
        lake.sql("select * from system.manifest", user="alice").to_arrow(),
        lake.kql("system.manifest", user="alice").to_arrow(),
    ):
        users = [user or "" for user in found["user"].to_pylist()]  # KQL has no null texts
        assert sorted(zip(found["table"].to_pylist(), users, strict=True)) == [("keyed", ""), ("notes", "alice")]
    with pytest.raises(InvalidInputError, match="another user"):
        own.manifests("app.notes", user="bob")
    assert own.manifests("app.notes")["user"].to_pylist() == ["alice"]
    assert sorted(lake.manifests("app.notes")["user"].to_pylist()) == ["alice", "bob"]


def test_all_users_are_read_together_with_whose_each_row_is(lake: Lake) -> None:
    notes = lake.table("app.notes")
    found = notes.all_users().to_arrow()
    assert found.column_names == ["ts", "id", "text", "_user"]
    pairs = sorted(zip(found["_user"].to_pylist(), found["id"].to_pylist(), strict=True))
    assert pairs == [("alice", 0), ("alice", 10), ("bob", 1), ("bob", 11)]
    assert notes.all_users().to_arrow(["_user"], "id >= 10")["_user"].to_pylist() == ["alice", "bob"]
    assert notes.all_users().scan(["id"], limit=3).read_all().num_rows == 3
    assert pa.table(notes.all_users()).num_rows == 4
    with pytest.raises(InvalidInputError, match="shared"):
        lake.table("app.shared").all_users()
    with pytest.raises(InvalidInputError, match="knows no others"):
        notes.user("alice").all_users()
    notes.add_column("_user", "string")
    with pytest.raises(InvalidInputError, match="a column _user"):
        notes.all_users()


@pytest.mark.parametrize("key", [(), ("id",)], ids=["plain", "keyed"])
def test_no_public_verb_of_one_users_table_shows_another(lake: Lake, key: tuple[str, ...]) -> None:
    """Call every public method of one user's table, and find nothing of another's in what comes back."""
    notes = lake.create_table("app.own", {**COLUMNS, "near": "vector(2)"}, scope="user", key=key, flush_age="off")
    notes.user("alice").append(rows(1, 2))
    notes.user("alice").flush()
    bob = notes.user("bob")
    bob.append(rows(SECRET))
    bob.flush()
    bob.append([{"ts": "2026-01-01T00:00:00Z", "id": SECRET, "text": "secret words", "near": [1, 0]}], key="secret-key")
    before = (bob.snapshot.sequence, ids(bob), [extent.key for extent in bob.extents()])
    alice = notes.user("alice")
    told: list[str] = []
    given: dict[str, Callable[[], Any]] = {
        "append": lambda: alice.append(rows(7), key="secret-key"),
        "delete": lambda: alice.delete(f"id == {SECRET}"),
        "replace": lambda: alice.replace(rows(8), start="2026-01-01T00:00:08Z", end="2026-01-01T00:00:09Z"),
        "user": lambda: alice.user("bob"),
        "convert": lambda: alice.convert("parquet"),
        "create_index": lambda: alice.create_index("near"),
        "drop_index": lambda: alice.drop_index("near"),
        "nearest": lambda: alice.nearest("near", [1, 0]),
        "explain_nearest": lambda: alice.explain_nearest("near", [1, 0]),
        "pin": lambda: alice.pin("mine"),
        "unpin": lambda: alice.unpin("mine"),
        "undo": lambda: alice.undo(before[0]),
        "restore": lambda: alice.restore(snapshot=bob.snapshot.id),
        "showing": lambda: alice.showing(["ts", "text"]),
        "add_column": lambda: alice.add_column("mine", "long"),
        "promote": lambda: alice.promote("tags.a", "long"),
        "get": lambda: alice.get(SECRET),
        "exists": lambda: [found.tier for found in alice.exists([SECRET])],
        "delete_keys": lambda: alice.delete_keys([SECRET]),
        "changes": lambda: alice.changes(since=0),
        "to_duckdb": lambda: None,
        "to_spark": lambda: None,
        "join_nearest": lambda: None,  # of a Spark frame, which sees the tables that ``nearest`` does
    }
    verbs = [name for name in dir(Table) if not name.startswith("_")]
    for name in sorted(verbs, key=lambda name: name == "unpin"):
        try:
            found = given[name]() if name in given else getattr(alice, name)
            found = found() if name not in given and inspect.ismethod(found) else found
            if isinstance(found, pa.RecordBatchReader):
                found = found.read_all()
            told.append(f"{name}: {found}")
            if isinstance(found, pa.Table):
                told.append(str(found.to_pylist()))
        except TidelakeError as error:
            told.append(f"{name}: {error}")
    whole = "\n".join(told)
    assert [
        word for word in (str(SECRET), "secret words", "bob", before[2][0]) if word in whole.replace("user: ", "")
    ] == []
    assert (bob.snapshot.sequence, ids(bob), [extent.key for extent in bob.extents()]) == before
    assert SECRET not in ids(alice)


def test_the_command_line_takes_a_user(tmp_path: Path) -> None:
    place = str(tmp_path / "lake")
    (tmp_path / "rows.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows(1, 2)))

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, [*words, "--lake", place])
        assert result.exit_code == code, result.output
        return result.output.replace('"', "") if "csv" in words else result.output

    run("create", "app.notes", "ts:timestamp", "id:long", "text:string", "--scope", "user")
    run("ingest", "app.notes", str(tmp_path / "rows.ndjson"), "--user", "alice")
    run("ingest", "app.other", str(tmp_path / "rows.ndjson"), "--user", "alice")
    assert "'id'" not in run("flush", "app.notes", "--user", "alice")
    for words in (
        ("query", "app.notes | project id", "--format", "csv"),
        ("query", "select id from app.notes", "--format", "csv"),
        ("query", "select id from app.other", "--format", "csv"),
    ):
        assert run(*words, "--user", "alice").split() == ["id", "1", "2"]
        assert run(*words, "--user", "bob").split() == ["id"]
        assert "give a user" in run(*words, code=1)
    assert run("query", "SET tide.user = 'alice'; select id from app.notes", "--format", "csv").split() == [
        "id",
        "1",
        "2",
    ]
    assert "1 extent" in run("describe", "app.notes", "--user", "alice")
    assert "one for each user" in run("describe", "app.notes")
    for command in ("extents", "history", "coverage", "gaps", "repair", "compact", "flush"):
        assert "give a user" in run(command, "app.notes", code=1)
    for command in ("extents", "history"):
        assert len(json.loads(run(command, "app.notes", "--user", "alice", "--json"))) >= 1
        assert json.loads(run(command, "app.notes", "--user", "bob", "--json")) == []
    assert "1 rows" in run("delete", "app.notes", "id == 1", "--user", "alice")
    assert run("query", "app.notes | count", "--format", "csv", "--user", "alice").split()[-1] == "1"
    restored = run("history", "app.notes", "--user", "alice", "--json")
    run("restore", "app.notes", str(json.loads(restored)[1]["snapshot"]), "--user", "alice")
    assert "app.notes" in run("tables")
    assert json.loads(run("status", "--json"))[0]["users"] == 1
    for user in ("", " a", "a\nb"):
        assert "not a user id" in run("query", "app.notes | count", "--user", user, code=1)
    run("ingest", "app.notes", str(tmp_path / "rows.ndjson"), "--user", "../b")
    assert run("query", "app.notes | count", "--format", "csv", "--user", "../b").split()[-1] == "2"


def test_hostile_ids_are_quoted_in_sql_as_any_text(lake: Lake) -> None:
    notes = lake.table("app.notes")
    for number, user in enumerate(HOSTILE):
        notes.user(user).append(rows(500 + number))
        quoted = user.replace("\\", "\\\\").replace("'", "\\'")
        found = lake.sql(f"SET tide.user = '{quoted}'; select max(id) as n from app.notes").to_arrow()
        assert found["n"].to_pylist() == [500 + number]
