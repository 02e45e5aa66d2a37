"""Install the package as a newcomer would: in an empty environment, from a built wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import tidelake

ROOT = Path(__file__).parents[1]
LINES = """\
{"ts": "2026-03-14T12:00:00Z", "level": "ERROR", "service": "auth", "message": "timeout"}
{"ts": "2026-03-14T12:00:01Z", "level": "INFO", "service": "web", "message": "ok"}
{"ts": "2026-03-14T12:00:02Z", "level": "ERROR", "service": "auth", "message": "timeout again"}
"""


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TIDELAKE", "JAVA"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=clean | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel, built from the sources."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_has_the_package_its_types_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "tidelake/py.typed" in names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"tidelake"}


def test_three_commands_lead_to_an_answer_without_a_jvm(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    bin = tmp_path / "env" / "bin"
    (tmp_path / "app.ndjson").write_text(LINES)
    constraints = ROOT / "constraints.txt"
    path = f"{bin}:/nowhere"  # no java here
    run(bin / "pip", "install", "--quiet", "--constraint", constraints, wheel, folder=tmp_path)
    assert not list((tmp_path / "env").rglob("llvmlite"))  # half of all bytes, which the first minute does without
    run(bin / "tidelake", "ingest", "app.logs", "app.ndjson", folder=tmp_path, PATH=path)
    question = "app.logs | where level == 'ERROR' | summarize n = count() by service"
    answer = run(bin / "tidelake", "query", question, "--format", "ndjson", folder=tmp_path, PATH=path)
    assert answer == '{"service":"auth","n":2}\n'
    run(bin / "pip", "install", "--quiet", "--constraint", constraints, f"{wheel}[fast]", folder=tmp_path)
    assert run(bin / "tidelake", "query", question, "--format", "ndjson", folder=tmp_path, PATH=path) == answer
    question = "select service, sum(length(message)) as n from app.logs where has(message, 'again') group by service"
    answer = run(bin / "tidelake", "query", question, "--format", "ndjson", folder=tmp_path, PATH=path)
    assert answer == '{"service":"auth","n":13}\n'
    assert run(bin / "tidelake", "--version", folder=tmp_path) == f"tidelake {tidelake.__version__}\n"
