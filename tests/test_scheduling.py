"""Runs of several processes end, also where one of them dies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.scheduling import SPARK_TESTS

CONFTEST = """
from tests.support.scheduling import ByFile
def pytest_xdist_make_scheduler(config, log):
    return ByFile(config, log)
"""
QUICK = "def test_first(): pass\ndef test_second(): pass\n"
DIES = (
    "import os\ndef test_before(): pass\ndef test_dies(): os._exit(3)\ndef test_after(): pass\ndef test_last(): pass\n"
)


def test_run_ends_with_one_failure_when_a_process_dies(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in ("a", "b", "y", "z"):
        (tmp_path / f"test_{name}.py").write_text(QUICK)
    (tmp_path / "test_m.py").write_text(DIES)
    (tmp_path / "spark-tests").touch()
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path.cwd()), SPARK_TESTS: str(tmp_path / "spark-tests")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "1 failed, 11 passed" in run.stdout, run.stdout + run.stderr
    assert run.returncode == 1
