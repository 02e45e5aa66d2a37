"""Start a real standalone Spark cluster: a master and two workers, each a process of its own, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.support.sparks import JVM_OPTIONS

WAIT_S = 90.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a cluster is, and its processes."""

    url: str
    workers: list[subprocess.Popen[bytes]]

    def kill_worker(self, at: int) -> None:
        """End a worker and its executors at once, as a machine that loses power does."""
        worker = psutil.Process(self.workers[at].pid)
        for process in [*worker.children(recursive=True), worker]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)


@contextmanager
def spark_cluster(folder: Path, *, workers: int = 2) -> Iterator[Cluster]:
    """Return a cluster; its workers know nothing of this package but what is shipped to them."""
    home = Path(pyspark.__file__).parent
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS,
    }
    port, url_ports = _free_port(), [_free_port() for _ in range(workers + 1)]
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, log: str, host: str = "127.0.0.1") -> subprocess.Popen[bytes]:
        with (folder / f"{log}.log").open("wb") as output:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *arguments],
                env=environment | {"SPARK_LOCAL_IP": host},
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started.append(process)
        return process

    package = "org.apache.spark.deploy"
    try:
        start(
            f"{package}.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            str(url_ports[0]),
            log="master",
        )
        _await(folder / "master.log", "I have been elected leader", 1)
        members = [
            start(
                f"{package}.worker.Worker",
                "--host",
                f"127.0.0.{at + 2}",  # a machine of its own, so that Spark runs a slow task a second time there
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                str(url_ports[at + 1]),
                "--work-dir",
                str(folder / f"work-{at}"),
                url,
                log=f"worker-{at}",
                host=f"127.0.0.{at + 2}",
            )
            for at in range(workers)
        ]
        for at in range(workers):
            _await(folder / f"worker-{at}.log", "Successfully registered with master", 1)
        yield Cluster(url, members)
    finally:
        for process in reversed(started):
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        child.kill()
            process.kill()
            process.wait()


def _await(log: Path, text: str, times: int) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if log.exists() and log.read_text(errors="replace").count(text) >= times:
            return
        time.sleep(0.1)
    raise TimeoutError(f"{log.name} does not say {text!r}: {log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
