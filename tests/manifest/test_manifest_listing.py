"""Show what is known of manifests: ``lake.manifests()``, ``system.manifest`` in SQL and KQL, ``tidelake manifests``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

import tidelake
from tests.support.catalogs import announce, commit_of, hot
from tests.support.manifests import KEYED, SCHEMA, USERS, segment_extent
from tidelake.cli.main import main
from tidelake.errors import InvalidInputError, NotFoundError, StorageError
from tidelake.model.snapshot import Action, AddExtent, AppendHot, Scope


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[tidelake.Lake]:
    """Yield a lake with a table of users and a keyed one."""
    with tidelake.connect(tmp_path / "lake", upkeep=False) as opened:
        opened.catalog.create_table("app.notes", SCHEMA, USERS | {"flush_age": "off"})
        opened.catalog.create_table("app.keyed", SCHEMA, KEYED)
        opened.catalog.create_table("obs.logs", SCHEMA, {"time": "ts"})
        yield opened


def commit(lake: tidelake.Lake, scope: Scope, *actions: Action) -> None:
    base = lake.catalog.head(scope).sequence
    lake.handle.coordinator.commit(announce(lake.catalog, commit_of(scope, *actions, base=base)))


def fill(lake: tidelake.Lake) -> None:
    """Give two users segments, one of them hot rows too, and a third user a failed flush."""
    table = lake.catalog.table("app.notes").id
    for user in ("alice", "bob"):
        scope = Scope(table, user)
        folder = lake.handle.manifests.place(scope).folder
        commit(lake, scope, *(AddExtent(segment_extent(folder, number)) for number in range(2)))
    commit(lake, Scope(table, "bob"), AppendHot(hot()))
    commit(lake, Scope(table, "carol"), AppendHot(hot()))
    with pytest.raises(StorageError), lake.handle.manifests.flushing(Scope(table, "carol")):
        raise StorageError("no room")


def test_listing_has_one_row_for_each_scope_of_rows(lake: tidelake.Lake) -> None:
    fill(lake)
    found = lake.manifests()
    shown = found.select(["namespace", "table", "user", "state", "segments", "rows", "hot_rows", "error"]).to_pylist()
    assert [tuple(row.values()) for row in shown] == [
        ("app", "keyed", None, "in_sync", 0, 0, 0, None),
        ("app", "notes", "alice", "in_sync", 2, 20, 0, None),
        ("app", "notes", "bob", "pending_write", 2, 20, 3, None),
        ("app", "notes", "carol", "error", 0, 0, 3, "no room"),
    ]
    assert found["tier"].to_pylist() == ["catalog", "rocksdb", "rocksdb", "catalog"]
    assert found["version"].to_pylist() == [None, 1, 1, None]


def test_listing_is_bounded_and_can_be_asked_for_a_table_a_user_or_a_state(lake: tidelake.Lake) -> None:
    fill(lake)
    assert lake.manifests(limit=2).num_rows == 2
    assert lake.manifests("app.notes", limit=0).num_rows == 0
    assert lake.manifests("app.notes")["user"].to_pylist() == ["alice", "bob", "carol"]
    assert lake.manifests("app.notes", user="bob")["state"].to_pylist() == ["pending_write"]
    assert lake.manifests(state="error")["user"].to_pylist() == ["carol"]
    assert lake.manifests(state="pending_write")["user"].to_pylist() == ["bob"]
    assert lake.manifests(state="in_sync")["user"].to_pylist() == [None, "alice"]
    assert lake.manifests(state="stale").num_rows == 0


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"state": "gone"}, InvalidInputError),
        ({"limit": -1}, InvalidInputError),
        ({"user": "alice"}, InvalidInputError),
        ({"table": "obs.logs"}, InvalidInputError),
        ({"table": "app.nothing"}, NotFoundError),
        ({"table": "app.notes", "user": "a\x00b"}, InvalidInputError),
    ],
)
def test_listing_of_what_is_not_there_is_refused(
    lake: tidelake.Lake, asked: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        lake.manifests(**asked)  # type: ignore[arg-type]


def test_manifests_are_a_table_of_sql_and_kql(lake: tidelake.Lake) -> None:
    fill(lake)
    query = "select state, count(*) as n from system.manifest where segments >= 0 group by state order by state"
    expected = [{"state": "error", "n": 1}, {"state": "in_sync", "n": 2}, {"state": "pending_write", "n": 1}]
    assert lake.sql(query).to_arrow().to_pylist() == expected
    kql = 'system.manifest | where user == "bob" | project table, state, rows'
    assert lake.kql(kql).to_arrow().to_pylist() == [{"table": "notes", "state": "pending_write", "rows": 20}]
    commit(lake, lake.catalog.table("app.keyed").scope, AppendHot(hot()))
    assert lake.sql(query).to_arrow().to_pylist()[2]["n"] == 2  # the same text, asked again


def test_table_of_ones_own_is_not_hidden_by_the_lakes(lake: tidelake.Lake) -> None:
    lake.create_table("system.manifest", {"ts": "timestamp"})
    assert lake.sql("select * from system.manifest").to_arrow().schema.names == ["ts"]


def test_other_system_names_are_unknown_tables(lake: tidelake.Lake) -> None:
    with pytest.raises(InvalidInputError, match="there is no table"):
        lake.sql("select * from system.manifests")
    with pytest.raises(InvalidInputError):
        lake.sql("select * from system.manifest version as of 1")


def test_command_shows_manifests(lake: tidelake.Lake) -> None:
    fill(lake)
    lake.close()
    run = CliRunner()
    shown = run.invoke(main, ["--lake", lake.where, "manifests"])
    assert shown.exit_code == 0, shown.output
    assert "2 in_sync" in shown.output
    assert "carol" in shown.output
    told = run.invoke(main, ["--lake", lake.where, "manifests", "--state", "error", "--json"])
    (row,) = orjson.loads(told.output)
    assert (row["user"], row["state"], row["error"], row["attempts"]) == ("carol", "error", "no room", 1)
    mine = run.invoke(main, ["--lake", lake.where, "manifests", "app.notes", "--user", "bob", "--json"])
    assert [row["user"] for row in orjson.loads(mine.output)] == ["bob"]
    wrong = run.invoke(main, ["--lake", lake.where, "manifests", "obs.logs"])
    assert (wrong.exit_code, "no manifest" in wrong.output) == (1, True)


def test_maintenance_puts_manifests_right(lake: tidelake.Lake) -> None:
    fill(lake)
    scope = Scope(lake.catalog.table("app.notes").id, "alice")
    key = lake.handle.manifests.place(scope).key
    lake.store.put(key, b"torn")
    lake.handle.manifests._marks.stale(scope, "torn")
    assert lake.manifests("app.notes", user="alice")["state"].to_pylist() == ["stale"]
    assert "1 manifest written" in str(lake.maintain())
    assert lake.manifests("app.notes", user="alice")["state"].to_pylist() == ["in_sync"]
