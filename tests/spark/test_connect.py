"""Use tables through a Connect server that has our jar, as a client that has nothing but a connection."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import tidelake
from tests.spark.test_lines import pip

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).parent / "connect_driver.py"
WAIT_S = 120.0


@pytest.mark.torture
def test_a_client_reads_writes_streams_and_uses_the_catalog(tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    with tidelake.connect(tmp_path / "lake") as lake:
        for name in ("obs.logs", "obs.copy"):
            lake.create_table(name, {"ts": "timestamp", "n": "long"}, time="ts")
    found = served(python, tmp_path)
    assert found["batch"] == [100, 10, 1]
    assert found["stream"] == 100
    assert found["catalog"] == [
        [[8, 1000]],
        [[5]],
        [["obs", name, False] for name in ("copy", "few", "logs")],
        [[99], [98]],
        1,
    ]
    assert found["refused"] == [
        "UnavailableError: a connect client cannot add a catalog: start its server with the jar of "
        "python -m tidelake.spark.jar",
        "UnavailableError: a connect client has no plan at hand to explain: read with spark's own explain",
    ]


def environment(venv: Path) -> str:
    """Make an environment with a Spark that has Connect; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip(venv, "-e", f"{ROOT}[spark]", "pyspark[connect]~=4.3.0")
    return str(venv / "bin" / "python")


def served(python: str, folder: Path) -> dict[str, Any]:
    """Start a server with the jar, run the client, and return what it found."""
    found = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    told = found | {"PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    jar = folder / "tidelake.jar"
    subprocess.run([python, "-m", "tidelake.spark.jar", str(jar)], env=told, check=True, timeout=WAIT_S)
    home = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__path__[0])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    port = _free_port()
    settings = {
        "spark.sql.catalog.tidelake": "tidelake.LakeCatalog", "spark.sql.catalog.tidelake.lake": folder / "lake",
        "spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC",
    }  # fmt: skip
    options = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    command = [f"{home}/bin/spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "--master", "local[2]", "--jars", str(jar), *options, "spark-internal"],
            env=told, cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        _await(port)
        client = [python, str(DRIVER), f"sc://127.0.0.1:{port}", str(folder)]
        done = subprocess.run(client, env=told, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    finally:
        for process in [*psutil.Process(server.pid).children(recursive=True), psutil.Process(server.pid)]:
            process.kill()
        server.wait()
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("found")] or [done.stderr[-3000:]]
    answer: dict[str, Any] = json.loads(line.removeprefix("found"))
    return answer


def _await(port: int) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError("the server does not listen")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
