"""Start servers of other databases that sources sync from: MariaDB, FerretDB, Prometheus.

They are programs of their own. Where one is not installed its tests are skipped, unless ``installs``: then it is
installed by the system's packages (MariaDB), or built from its Go module into a folder of the user's cache (FerretDB).
Prometheus is unpacked from the system's package. Each server is one process in a temporary folder, on loopback. It does
not share a server between test runs.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pymongo
import pymongo.errors
import pymysql
import pytest

from tests.support.outside import prometheus_2
from tests.support.servers import free_ports, running, temporary_folder, wait_until

FERRETDB = "v1.24.2"
_INSTALLING = threading.Lock()


class Machine:
    """A server that can be killed and started again, over the same folder."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        url: str,
        answers: Callable[[], None],
        until_not: Any,
        how: dict[str, Any],
    ) -> None:
        self.url = url
        self._command, self._folder, self._how = command, folder, how
        self._answers, self._until_not = answers, until_not
        self._stack = ExitStack()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = self._folder / "log"
        process = self._stack.enter_context(running(self._command, log, stop=signal.SIGKILL, **self._how))
        wait_until(self._answers, process, log, until_not=self._until_not)

    def kill(self) -> None:
        """End the server at once, as by a fault."""
        self._stack.close()


@contextmanager
def mariadb_machine(*, installs: bool = False) -> Iterator[Machine]:
    """Run MariaDB with a binlog of rows, and yield what can kill and start it."""
    program = _installed("mariadbd", "mariadb-server", installs=installs)
    with temporary_folder() as folder:
        how: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
            how = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        data, (port,) = folder / "data", free_ports(1)
        make = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"]
        subprocess.run([*make, "--skip-test-db"], check=True, cwd="/", stdout=subprocess.DEVNULL, **how)
        command = [program, "--no-defaults", f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1"]
        command += [f"--socket={folder}/socket", f"--pid-file={folder}/pid", "--log-bin=binlog", "--server-id=1"]
        command += ["--binlog-format=ROW", "--binlog-row-metadata=FULL", "--skip-name-resolve"]
        command += ["--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M", "--max-binlog-size=4M"]

        def answers() -> None:
            pymysql.connect(host="127.0.0.1", port=port, user="root", connect_timeout=2).close()

        machine = Machine(command, folder, f"mysql://root@127.0.0.1:{port}", answers, pymysql.MySQLError, how)
        machine.start()
        try:
            yield machine
        finally:
            machine.kill()


@contextmanager
def ferretdb_machine(*, installs: bool = False) -> Iterator[Machine]:
    """Run FerretDB with an oplog, and yield what can kill and start it."""
    program = _built_ferretdb(installs=installs)
    with temporary_folder() as folder:
        (port,) = free_ports(1)
        (folder / "data").mkdir()
        command = [program, f"--listen-addr=127.0.0.1:{port}", "--debug-addr=-", "--telemetry=disable"]
        command += ["--handler=sqlite", f"--sqlite-url=file:{folder}/data/", f"--state-dir={folder}"]
        command += ["--repl-set-name=rs0", "--log-level=error"]
        url = f"mongodb://127.0.0.1:{port}/?directConnection=true"

        def answers() -> None:
            with pymongo.MongoClient[dict[str, Any]](url, serverSelectionTimeoutMS=1000) as client:
                client.admin.command("ping")

        machine = Machine(command, folder, url, answers, pymongo.errors.PyMongoError, {})
        machine.start()
        try:
            yield machine
        finally:
            machine.kill()


@contextmanager
def prometheus_machine() -> Iterator[Machine]:
    """Run Prometheus, which scrapes itself every second, and yield what can kill and start it."""
    program = prometheus_2()
    with temporary_folder() as folder:
        (port,) = free_ports(1)
        where = f"127.0.0.1:{port}"
        scraped = (
            f"scrape_configs: [{{job_name: own, scrape_interval: 1s, static_configs: [{{targets: ['{where}']}}]}}]"
        )
        (folder / "config.yml").write_text(scraped)
        command = [str(program), f"--config.file={folder}/config.yml", f"--storage.tsdb.path={folder}/data"]

        def answers() -> None:
            with urlopen(f"http://{where}/-/ready", timeout=2):
                pass

        command += [f"--web.listen-address={where}"]
        machine = Machine(command, folder, f"prometheus://{where}", answers, OSError, {})
        machine.start()
        try:
            yield machine
        finally:
            machine.kill()


def _installed(program: str, package: str, *, installs: bool) -> str:
    with _INSTALLING:
        if (found := shutil.which(program)) is None and installs and shutil.which("apt-get") and os.geteuid() == 0:
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(["apt-get", "update", "-q"], check=False, env=quiet, stdout=subprocess.DEVNULL)
            install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
            subprocess.run(install, check=True, env=quiet, stdout=subprocess.DEVNULL)
            found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed: apt-get install {package}")
    return found


def _built_ferretdb(*, installs: bool) -> str:
    """Return FerretDB's program; it is built from its module, once for all runs."""
    if (found := shutil.which("ferretdb")) is not None:
        return found
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelake-tests" / f"ferretdb-{FERRETDB}"
    with _INSTALLING:
        if not kept.exists():
            if not installs or shutil.which("go") is None:
                pytest.skip("ferretdb is not there, and is not built but in the torture, with Go")
            _build_ferretdb(kept)
    return str(kept)


def _build_ferretdb(kept: Path) -> None:
    module = f"github.com/FerretDB/FerretDB@{FERRETDB}"
    subprocess.run(["go", "mod", "download", module], check=True, cwd="/")
    cache = subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout.strip()
    with temporary_folder() as folder:
        source = folder / "source"
        shutil.copytree(Path(cache, f"github.com/!ferret!d!b/!ferret!d!b@{FERRETDB}"), source)
        subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)
        (source / "build/version/version.txt").write_text(FERRETDB)
        settings = source / "go.mod"
        kept_lines = [line for line in settings.read_text().splitlines() if not line.startswith("toolchain")]
        settings.write_text("\n".join(kept_lines) + "\n")
        kept.parent.mkdir(parents=True, exist_ok=True)
        made = kept.with_suffix(f".{os.getpid()}")
        subprocess.run(["go", "build", "-o", str(made), "./cmd/ferretdb"], check=True, cwd=source)
        made.replace(kept)
