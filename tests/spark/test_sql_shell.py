"""Use the catalog in a JVM that no Python program has started: Spark's SQL shell, with the jar that we write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

import tidelake

ROOT = Path(__file__).parents[2]
SHELL = Path(pyspark.__file__).parent / "bin" / "spark-sql"


def test_a_shell_reads_writes_and_calls_through_a_python_of_its_own(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake") as lake:
        lake.create_table("obs.logs", {"ts": "timestamp", "n": "long"}).append([{"ts": n, "n": n} for n in range(100)])
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    jar = tmp_path / "tidelake.jar"
    subprocess.run([sys.executable, "-m", "tidelake.spark.jar", str(jar)], env=environment, check=True, timeout=120)
    settings = {
        "spark.sql.catalog.tidelake": "tidelake.LakeCatalog", "spark.sql.catalog.tidelake.lake": tmp_path / "lake",
        "spark.sql.catalogImplementation": "in-memory", "spark.ui.enabled": "false", "spark.driver.memory": "768m",
    }  # fmt: skip
    statements = """
        SHOW TABLES IN tidelake.obs;
        INSERT INTO tidelake.obs.logs VALUES (timestamp'2026-01-01', 1000);
        CREATE TABLE tidelake.obs.few AS SELECT n FROM tidelake.obs.logs WHERE n >= 98;
        SELECT 'few', count(*), max(n) FROM tidelake.obs.few;
        CALL tidelake.system.delete('obs.few', 'n == 99');
        SELECT * FROM tidelake.obs.nothing;
    """
    command = [str(SHELL), "--master", "local[2]", "--jars", str(jar), "-e", statements]
    options = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [command[0], *options, *command[1:]], env=environment, cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[:2] == ["logs", "few\t3\t1000"], done.stderr[-2000:]
    assert lines[2].startswith("1\t")  # the report of the delete
    assert "TABLE_OR_VIEW_NOT_FOUND" in done.stderr
    with tidelake.connect(tmp_path / "lake") as lake:
        assert sorted(lake.table("obs.few").to_arrow()["n"].to_pylist()) == [98, 1000]
