"""The commands that keep a lake small, as a user types them."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

import tidelake
from tidelake.cli.main import main

BASE = 1_790_000_000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A lake whose table has six small extents, and is not looked after by itself."""
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("logs", {"ts": "timestamp", "who": "string"}, upkeep=False)
        for at in range(6):
            table.append([{"ts": BASE + at * 2000 + each, "who": f"u{each % 5}"} for each in range(1001)])
    return tmp_path / "lake"


def run(place: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--lake", str(place), *arguments])


def test_rows_are_deleted_and_brought_back(place: Path) -> None:
    shown = run(place, "delete", "logs", "who == 'u1'", "--dry-run")
    assert shown.output.startswith("would delete from logs: 1,200 rows")
    deleted = run(place, "delete", "logs", "who == 'u1'", "--json")
    assert orjson.loads(deleted.output)["rows"] == 1200
    back = run(place, "restore", "logs", "7")
    assert back.output == "logs: 4,806 rows taken away, 6,006 brought back, snapshot 9\n"
    assert run(place, "undo", "logs", "9").exit_code == 1
    purged = run(place, "delete", "logs", "--start", str(BASE), "--end", str(BASE + 4000), "--purge")
    assert "objects deleted" in purged.output
    assert "1 snapshot" not in run(place, "history", "logs").output
    assert len(list(place.rglob("*.tlm"))) == 4


def test_a_delete_without_a_condition_is_refused(place: Path) -> None:
    refused = run(place, "delete", "logs")
    assert refused.exit_code == 1
    assert "say --all to delete every row" in refused.output
    assert run(place, "delete", "logs", "--all").exit_code == 0


def test_an_append_is_undone(place: Path) -> None:
    undone = run(place, "undo", "logs", "7")
    assert undone.output == "logs: 1,001 rows taken away, 0 brought back, snapshot 8\n"
    again = run(place, "undo", "logs", "7")
    assert again.exit_code == 1
    assert "flushed, compacted or deleted since" in again.output


def test_an_append_is_undone_by_its_key_or_commit(place: Path) -> None:
    with tidelake.connect(place) as lake:
        for key in ("batch-8", "batch-9"):
            report = lake.table("logs").append([{"ts": BASE, "who": "u9", "n": 1}], key=key)
    undone = run(place, "undo", "logs", "--key", "batch-8")
    assert undone.output == "logs: 1 rows taken away, 0 brought back, snapshot 10\n"
    assert run(place, "undo", "logs", "--commit", report.commit, "--json").exit_code == 0
    assert "no commit has this key" in run(place, "undo", "logs", "--key", "batch-10").output
    assert "one of snapshot, key and commit" in run(place, "undo", "logs").output


def test_what_is_due_is_shown_and_done(place: Path) -> None:
    assert run(place, "maintain", "--dry-run").output == "compact default.logs: 6 extents are worth joining\n"
    assert "compact" in run(place, "status").output
    assert run(place, "maintain", "nowhere").exit_code == 1
    assert run(place, "maintain").output == "default.logs: 6 extents became 1\n"
    assert run(place, "maintain").output == "nothing is due\n"
    (row,) = orjson.loads(run(place, "status", "--json").output)
    assert (row["extents"], row["due"]) == (1, "")


def test_a_worker_ends_when_nothing_is_due(place: Path) -> None:
    output = run(place, "work", "--until-idle").output
    assert output.startswith("default.logs: 6 extents became 1\n")
    assert output.endswith("pieces of work done\n")


def test_tables_are_compacted_and_dropped(place: Path) -> None:
    assert run(place, "compact", "logs").output.startswith("logs: 6 extents became 1")
    assert run(place, "convert", "logs", "--format", "parquet").output.startswith("logs: 1 extents became 1")
    assert run(place, "drop", "logs", "--purge").output == "dropped logs\n"
    assert not [*place.rglob("*.tlm"), *place.rglob("*.parquet")]
    assert run(place, "drop", "logs").exit_code == 1
