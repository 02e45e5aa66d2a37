"""Run the pipeline on a real cluster: PostgreSQL, S3, a master and two workers, one of which dies on the way."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import S3Server
from tests.support.spark_cluster import spark_cluster

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).parent / "cluster_driver.py"


@pytest.mark.torture  # five JVMs on two cores
def test_pipeline_on_a_cluster_counts_every_row_once_though_a_worker_dies(
    tmp_path: Path, postgres_database: str, s3: S3Server
) -> None:
    package = shutil.make_archive(str(tmp_path / "tidelake"), "zip", ROOT / "src", "tidelake")  # as --py-files takes it
    with spark_cluster(tmp_path) as cluster:
        given = {
            "master": cluster.url,
            "package": package,
            "catalog": postgres_database,
            "objects": f"s3://{s3.bucket}/cluster-{secrets.token_hex(6)}",
            "endpoint": s3.endpoint,
            "key": s3.key,
            "secret": s3.secret,
            "folder": str(tmp_path),
        }
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
        driver = subprocess.Popen(
            [sys.executable, str(DRIVER), json.dumps(given)],
            env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert driver.stdin is not None
        assert driver.stdout is not None
        with driver:
            for line in driver.stdout:
                if line.startswith("streaming"):
                    cluster.kill_worker(0)
                    driver.stdin.write("killed\n")
                    driver.stdin.flush()
                if line.startswith("found"):
                    break
            else:
                raise AssertionError("the driver ended early")
            driver.stdin.close()
        found = json.loads(line.removeprefix("found"))
    assert min(found.pop("attempts")) >= 2  # one task failed once, another was so slow that it ran twice
    assert found == {
        "loaded": 3_000,
        "streamed": found["offered"],
        "distinct": found["offered"],
        "offered": found["offered"],
        "read": 3_000,
        "copied": 2_005,
        "secrets": 0,
        "troubled": True,
    }
    assert found["offered"] > 0
