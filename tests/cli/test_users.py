"""Tables of users on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelake.cli.main import main


def run(*words: str) -> str:
    result = CliRunner().invoke(main, [*words, "--lake", "lake"])
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def test_the_users_of_a_table_are_listed_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.ndjson").write_text('{"ts": "2026-01-01T00:00:00Z", "text": "a"}\n')
    for user in ("alice", "../bob", "zoë"):
        run("ingest", "app.notes", "a.ndjson", "--user", user)
    found = json.loads(run("users", "app.notes", "--json"))
    assert [(row["user"], row["rows"]) for row in found] == [("../bob", 1), ("alice", 1), ("zoë", 1)]
    assert [row["user"] for row in json.loads(run("users", "app.notes", "--after", "alice", "--json"))] == ["zoë"]
    shown = run("users", "app.notes", "--limit", "1")
    assert "there are more: --after ../bob" in " ".join(shown.split())


def test_a_table_without_users_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("create", "obs.logs", "ts:timestamp")
    result = CliRunner().invoke(main, ["users", "obs.logs", "--lake", "lake"])
    assert result.exit_code == 1
    assert "obs.logs" in result.stderr
    assert "Traceback" not in result.stderr
