"""Work without numba, as the light installation does: the same rows, the same bytes, the same answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.either_way import outcomes
from tidelake.ingest import instants
from tidelake.ingest.json import plain_reader

ROOT = Path(__file__).parents[1]


def test_what_is_done_without_a_compiler_is_what_is_done_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        plain_reader, "_read", plain_reader.PROCESS_BYTES
    )  # or a few lines would take the plain way here too
    monkeypatch.setattr(instants, "FEW_TEXTS", 0)
    ran = subprocess.run([sys.executable, "-m", "tests.support.either_way"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    plain, compiled = json.loads(ran.stdout), json.loads(json.dumps(outcomes(), default=repr))
    assert list(plain) == list(compiled)
    assert {name: plain[name] for name in plain if plain[name] != compiled[name]} == {}
