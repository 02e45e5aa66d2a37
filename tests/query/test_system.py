"""Show what a lake tells about itself as tables of SQL and KQL: ``system.tables`` and its siblings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tidelake.query.seen import Sight
from tidelake.query.session import run

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidelake.Lake]:
    with tidelake.connect(tmp_path_factory.mktemp("lake"), upkeep=False) as lake:
        logs = lake.create_table("obs.logs", {"ts": "timestamp", "n": "long"}, time="ts", retention="30d")
        logs.append([{"ts": START, "n": n} for n in range(2_000)])
        logs.append([{"ts": START, "n": n} for n in range(3)])
        notes = lake.create_table("app.notes", {"id": "long", "text": "string"}, scope="user", key=["id"])
        notes.user("ann").append([{"id": 1, "text": "a"}])
        notes.user("bob").append([{"id": n, "text": "b"} for n in range(5)])
        lake.catalog.work.enqueue("maintain.compact", "k", {"table": "obs.logs"})
        yield lake


def rows(lake: tidelake.Lake, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.sql(text).to_arrow().to_pylist()
    return found


def test_tables_have_their_sizes(lake: tidelake.Lake) -> None:
    asked = 'select "table", of_users, rows, hot_rows, extents, columns, "key", "time" from system.tables order by 1'
    assert rows(lake, asked) == [
        {"table": "logs", "of_users": False, "rows": 2_003, "hot_rows": 3, "extents": 1, "columns": 2, "key": None,
         "time": "ts"},
        {"table": "notes", "of_users": True, "rows": 6, "hot_rows": 6, "extents": 0, "columns": 2, "key": "id",
         "time": None},
    ]  # fmt: skip


def test_columns_are_in_order(lake: tidelake.Lake) -> None:
    asked = "system.columns | where ['table'] == 'logs' | order by position asc | project column, type"
    assert lake.kql(asked).to_arrow().to_pylist() == [
        {"column": "ts", "type": "timestamp"},
        {"column": "n", "type": "long"},
    ]


def test_extents_and_commits_tell_what_each_did(lake: tidelake.Lake) -> None:
    (extent,) = rows(lake, "select * from system.extents where namespace = 'obs'")
    assert (extent["rows"], extent["first"], extent["snapshot"]) == (2_000, START, 2)
    assert extent["object"].startswith("data/obs/logs/")
    asked = "select snapshot, rows_added, extents_added, rows from system.commits where namespace = 'obs' order by 1"
    assert rows(lake, asked) == [
        {"snapshot": 1, "rows_added": 0, "extents_added": 0, "rows": 0},
        {"snapshot": 2, "rows_added": 2_000, "extents_added": 1, "rows": 2_000},
        {"snapshot": 3, "rows_added": 3, "extents_added": 0, "rows": 2_003},
    ]


def test_work_is_listed(lake: tidelake.Lake) -> None:
    found = rows(lake, 'select kind, "table", state, payload from system.work')
    assert found == [
        {"kind": "maintain.compact", "table": "obs.logs", "state": "queued", "payload": '{"table":"obs.logs"}'}
    ]


def test_a_user_sees_their_own(lake: tidelake.Lake) -> None:
    asked = "select \"user\", rows from system.commits where namespace = 'app' and rows_added > 0"
    assert [each["user"] for each in rows(lake, asked)] == ["ann", "bob"]
    assert lake.sql(asked, user="bob").to_arrow().to_pylist() == [{"user": "bob", "rows": 5}]
    assert lake.sql("select rows from system.tables where \"table\" = 'notes'", user="ann").to_arrow().to_pylist() == [
        {"rows": 1}
    ]


@pytest.mark.parametrize("name", ["tables", "columns", "extents", "commits", "work", "manifest"])
def test_what_is_out_of_sight_is_in_no_listing(lake: tidelake.Lake, name: str) -> None:
    sight = Sight(reaches=lambda table: table.startswith(("app.", "system.")))
    found = run(lake, f"select * from system.{name}", language="sql", engine="local", sight=sight).to_arrow()
    assert "logs" not in str(found.to_pylist())


def test_a_table_of_ones_own_is_not_hidden(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path, upkeep=False) as lake:
        lake.create_table("system.tables", {"x": "long"})
        assert lake.sql("select * from system.tables").to_arrow().schema.names == ["x"]
