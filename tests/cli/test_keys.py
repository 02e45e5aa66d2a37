"""Tables with a key on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelake.cli.main import main


def run(*words: str) -> str:
    result = CliRunner().invoke(main, list(words))
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def test_a_table_with_a_key_is_made_filled_and_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("a", "b"):
        Path(f"{text}.ndjson").write_text(json.dumps({"id": 7, "ts": "2026-01-01T00:00:00Z", "text": text}) + "\n")
    lake = ("--lake", "lake")
    run("create", "app.notes", "id:long", "ts:timestamp", "text:string", "--key", "id", *lake)
    for text in ("a", "b"):
        run("ingest", "app.notes", f"{text}.ndjson", *lake)
    assert json.loads(run("query", "select id, text from app.notes", "--format", "ndjson", *lake)) == {
        "id": 7,
        "text": "b",
    }
    run("flush", "app.notes", *lake)
    described = run("describe", "app.notes", *lake)
    assert "1 version of a row in 1 extent" in described
    assert "key" in described
