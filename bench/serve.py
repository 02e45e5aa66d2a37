"""Measure the server: rows a second that are durable, small requests a second, and how long an acknowledgement takes.

    python -m bench.serve [--seconds 10] [--only otlp,small,ndjson,remote_write]

One server in a process of its own, and senders in another that have their bodies ready and wait for each answer. What
is counted is acknowledged, and is counted again in the table at the end. It does not run peers: they stand beside it in
``bench/results``.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cramjam

import tidelake
from tests.support.serving import Served, serving
from tests.support.telemetry import logs_request

GZIP_LEVEL = 6
WARM_S = 3.0
LOADED_S = 4.0  # in which a server has loaded its loops


@dataclass(frozen=True, slots=True)
class Workload:
    """What is sent: a path, headers, bodies, and how many rows each body has."""

    name: str
    path: str
    table: str
    headers: dict[str, str]
    bodies: Callable[[], Sequence[bytes]]
    rows: int
    senders: int


def otlp(records: int, several: int) -> list[bytes]:
    """Return gzip bodies of log records."""
    return [gzip.compress(logs_request(records, seed).SerializeToString(), GZIP_LEVEL) for seed in range(several)]


def ndjson(rows: int, several: int) -> list[bytes]:
    """Return lines of JSON."""
    chance = random.Random(1)
    return [
        "\n".join(
            json.dumps(
                {
                    "ts": 1_767_225_600_000 + n, "service": f"svc{n % 5}", "level": "INFO", "duration": chance.random(),
                    "message": f"GET /api/items/{chance.randrange(100_000)} took {n % 500} ms",
                }
            )
            for n in range(rows)
        ).encode()
        for _ in range(several)
    ]  # fmt: skip


def remote_write(samples: int, several: int) -> list[bytes]:
    """Return remote-write bodies: series of ten labels with one sample each, as Prometheus sends them."""
    return [bytes(cramjam.snappy.compress_raw(_write_request(samples, seed))) for seed in range(several)]


def _write_request(samples: int, seed: int) -> bytes:
    def field(number: int, value: bytes) -> bytes:
        return _varint(number << 3 | 2) + _varint(len(value)) + value

    out = []
    for n in range(samples):
        labels = {"__name__": f"metric_{n % 100}", "instance": f"host{n % 40}:9100", "job": "node", "cpu": str(n % 8)}
        labels |= {f"label{k}": f"value{(n + k) % 13}" for k in range(6)}
        series = b"".join(field(1, field(1, k.encode()) + field(2, v.encode())) for k, v in sorted(labels.items()))
        at = 1_767_225_600_000 + seed * 15_000
        series += field(2, b"\x09" + struct.pack("<d", n * 1.5 + seed) + b"\x10" + _varint(at))
        out.append(field(1, series))
    return b"".join(out)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


PROTOBUF = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
WORKLOADS = (
    Workload("otlp", "/v1/logs", "default.otel_logs", PROTOBUF, lambda: otlp(1000, 64), 1000, 96),
    Workload("small", "/v1/logs", "default.otel_logs", PROTOBUF, lambda: otlp(1, 2000), 1, 384),
    Workload(
        "ndjson", "/v1/ingest/bench.rows", "bench.rows", {"content-type": "application/x-ndjson"},
        lambda: ndjson(1000, 32), 1000, 96,
    ),
    Workload(
        "remote_write", "/api/v1/write", "default.",
        {"content-type": "application/x-protobuf", "content-encoding": "snappy"},
        lambda: remote_write(2000, 32), 2000, 96,
    ),
)  # fmt: skip


class Sender(threading.Thread):
    """One client: sends a body, waits for its answer, and takes the next."""

    def __init__(self, url: str, work: Workload, bodies: Sequence[bytes], at: int, until_s: float) -> None:
        super().__init__()
        place = urlsplit(url)
        self._place, self._work, self._bodies, self._at, self._until_s = place, work, bodies, at, until_s
        self.seconds: list[tuple[float, float]] = []  # when a request began, and how long it took
        self.refused = 0

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._place.hostname or "", self._place.port, timeout=60)
        n = 0
        while time.monotonic() < self._until_s:
            body = self._bodies[(self._at * 7919 + n) % len(self._bodies)]
            headers = {**self._work.headers, "idempotency-key": f"{os.getpid()}-{self._at}-{n}"}
            began_s = time.monotonic()
            connection.request("POST", self._work.path, body, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status < 300:
                self.seconds.append((began_s, time.monotonic() - began_s))
                n += 1
            elif answer.status == 503:
                self.refused += 1
                time.sleep(0.05)
            else:
                raise RuntimeError(f"{answer.status}")
        connection.close()


def send(url: str, name: str, seconds: float) -> dict[str, Any]:
    """Send for some seconds, in this process."""
    work = next(each for each in WORKLOADS if each.name == name)
    bodies = work.bodies()
    begin_s = time.monotonic() + WARM_S
    senders = [Sender(url, work, bodies, at, begin_s + seconds) for at in range(work.senders)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    all_taken = [each for sender in senders for each in sender.seconds]
    taken = [took for began, took in all_taken if began >= begin_s]
    return {
        "sent": len(all_taken) * work.rows,
        "rows_a_second": round(len(taken) * work.rows / seconds),
        "requests_a_second": round(len(taken) / seconds),
        "p50_ms": round(statistics.median(taken) * 1000, 1) if taken else None,
        "p99_ms": round(statistics.quantiles(taken, n=100)[98] * 1000, 1) if len(taken) > 100 else None,
        "refused": sum(sender.refused for sender in senders),
        "body_bytes": round(statistics.mean(map(len, bodies))),
    }


def measure(work: Workload, seconds: float, folder: Path) -> dict[str, Any]:
    """Run a server and senders, and count what is in the table."""
    lake = folder / work.name
    with serving(lake) as served:
        time.sleep(LOADED_S)
        _, before_s = _used(served)
        command = [sys.executable, "-m", "bench.serve", "--send", work.name, "--url", served.url]
        ran = subprocess.run([*command, "--seconds", str(seconds)], check=True, capture_output=True, text=True)
        found: dict[str, Any] = json.loads(ran.stdout)
        found["server_rss_mb"], after_s = _used(served)
        found["server_cpu_s"] = round(after_s - before_s, 1)
        found["rows_a_processor_second"] = round(found["sent"] / (after_s - before_s))
        found["load"] = round(os.getloadavg()[0], 1)
    with tidelake.connect(lake, upkeep=False) as opened:
        table = next(name for name in opened.tables() if name.startswith(work.table))
        found["in_table"] = len(opened.table(table))
    assert found["in_table"] == found["sent"], found
    return found


def _used(served: Served) -> tuple[int, float]:
    """Return the largest memory that the server held, in megabytes, and its processor time."""
    pid = served.process.pid
    status = Path(f"/proc/{pid}/status").read_text()
    most = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return most, round((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 1)


def main() -> None:
    """Measure what is asked for, and print a line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--send")
    parser.add_argument("--url", default="")
    asked = parser.parse_args()
    if asked.send:
        print(json.dumps(send(asked.url, asked.send, asked.seconds)))
        return
    with tempfile.TemporaryDirectory(prefix="tidelake-bench-") as folder:
        for work in WORKLOADS:
            if not asked.only or work.name in asked.only.split(","):
                print(work.name, json.dumps(measure(work, asked.seconds, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
