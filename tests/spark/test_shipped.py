"""Run on a cluster whose workers have a bare Python: the package and what it needs come as an archive."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.test_lines import INSTALL_S, ROOT, RUN_S
from tests.support.spark_cluster import spark_cluster

DRIVER = Path(__file__).parent / "shipped_driver.py"


@pytest.mark.torture
def test_workers_without_the_package_get_it_as_an_archive(tmp_path: Path) -> None:
    bare, packages = tmp_path / "bare", tmp_path / "packages"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=INSTALL_S)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*install, "--target", str(packages), str(ROOT)], check=True, timeout=INSTALL_S)
    archive = shutil.make_archive(str(tmp_path / "packages"), "zip", packages)
    python = str(bare / "bin" / "python")
    assert subprocess.run([python, "-c", "import pyarrow"], capture_output=True, check=False).returncode
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster") as cluster:
        given = {
            "master": cluster.url, "archive": archive, "lake": str(tmp_path / "lake"),
            "folder": str(tmp_path / "local"),
        }  # fmt: skip
        told = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        told |= {"PYSPARK_PYTHON": python, "PYTHONPATH": str(packages), "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, str(DRIVER), json.dumps(given)], env=told, cwd=tmp_path, capture_output=True, text=True,
            check=False, timeout=RUN_S,
        )  # fmt: skip
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("found")] or [done.stderr[-3000:]]
    assert json.loads(line.removeprefix("found")) == {
        "rows": [[sum(range(4000)), 4000]],
        "copied": [[4000, 2000]],
        "shipped": True,
    }
