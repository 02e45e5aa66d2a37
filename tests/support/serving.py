"""Run ``tidelake serve`` as a process of its own, on loopback and free ports, and stop it afterwards.

It does not know what is sent.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

from tests.support.servers import free_ports

SAID_WITHIN_S = 20
READY_WITHIN_S = 60
_READY = re.compile(r"tidelake: serving .* at (http\S+)")


@dataclass(slots=True)
class Served:
    """A server that runs."""

    url: str
    otlp: str
    flight: str
    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)

    def says(self, *parts: str) -> bool:
        """Whether a line of the log has all of these, now or soon: who answers does not wait for the log to be read."""
        until_s = time.monotonic() + SAID_WITHIN_S
        while not (found := any(all(part in line for part in parts) for line in list(self.said))):
            if time.monotonic() > until_s:
                break
            time.sleep(0.05)
        return found

    def client(self, token: str | None = None) -> httpx.Client:
        """Return a client, with a token if one is given."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        """Have it stop as it should, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def serving(
    lake: Path | str, *options: str, environment: Mapping[str, str] | None = None, port: int = 0
) -> Iterator[Served]:
    """Run a server of a lake, and stop it at the end if it still runs."""
    otlp, flight = free_ports(2)
    command = [sys.executable, "-m", "tidelake", "serve", "--lake", str(lake), "--port", str(port)]
    command += ["--otlp-port", str(otlp), "--flight-port", str(flight), *options]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}, start_new_session=True
    )
    assert process.stderr is not None
    served = Served("", f"127.0.0.1:{otlp}", f"127.0.0.1:{flight}", process)
    is_ready = threading.Event()
    reader = threading.Thread(target=_read, args=(process.stderr, served, is_ready), daemon=True)
    reader.start()
    try:
        assert is_ready.wait(READY_WITHIN_S), served.said
        assert served.url, served.said
        yield served
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)
        reader.join(10)
        process.stderr.close()


def make_certificate(key: str, certificate: str) -> None:
    """Make a certificate of loopback that nobody but a test trusts, and its key."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)


def _read(stream: IO[str], served: Served, is_ready: threading.Event) -> None:
    for line in stream:
        served.said.append(line.rstrip("\n"))
        if found := _READY.match(line):
            served.url = found[1]
            is_ready.set()
    is_ready.set()  # it ended
