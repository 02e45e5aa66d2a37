"""Measure the server: rows a second that are durable, small requests a second, and how long an acknowledgement takes.

A server runs in a process of its own and ``sender`` in another, with bodies that are ready, waiting for each answer.
What was acknowledged is counted again in the table at the end. Beside it stand, with the same bodies from the same
sender, an OpenTelemetry Collector that writes a file and VictoriaMetrics, and chDB, which takes the same lines in its
own process. It does not measure questions: see ``doors``.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cramjam

import tidelake
from bench.compiling import compile_loops
from bench.data import ROWS
from bench.report import Ratio, Report
from tests.support import outside
from tests.support.servers import free_ports
from tests.support.serving import serving
from tests.support.telemetry import logs_request

GZIP_LEVEL = 6
SECONDS, WARM_S = 8.0, 3.0
LOADED_S = 4.0  # in which a server has loaded its loops
CHDB_ROWS = 100_000  # of one insert: what a client that gathers would send
METHOD = (
    f"Each for {SECONDS:g} seconds after {WARM_S:g} of warming, on one machine: the sender, one thread that gives the "
    "kernel bodies that are ready and reads statuses, shares the cores with the server; what it took is told below.",
    "Ours: a lake in a folder, SQLite with full sync; a request is answered when its rows are durable. All rows that "
    "were acknowledged, and no others, were in the table afterwards.",
    "OTLP: 1,000 log records of 6 attributes, gzip, 80 connections; and requests of one record on 384. NDJSON: 1,000 "
    "rows of 5 columns on 64. Remote write: 2,000 samples of 10 labels on 64.",
    "The Collector takes the same OTLP requests and appends them to a file as protobuf, without a batch processor; it "
    "answers before the file is synced. VictoriaMetrics 1.79 takes the same remote-write requests and answers when "
    "they are in its memory. chDB takes the same lines, 100,000 at a time, into a MergeTree in its own process, "
    "without a network. None of the three is durable when it answers.",
)


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
    goal: int  # rows a second


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
    Workload("otlp", "/v1/logs", "default.otel_logs", PROTOBUF, lambda: otlp(1000, 64), 1000, 80, 300_000),
    Workload("small", "/v1/logs", "default.otel_logs", PROTOBUF, lambda: otlp(1, 2000), 1, 384, 2_000),
    Workload(
        "ndjson", "/v1/ingest/bench.rows", "bench.rows", {"content-type": "application/x-ndjson"},
        lambda: ndjson(1000, 32), 1000, 64, 300_000,
    ),
    Workload(
        "remote_write", "/api/v1/write", "default.",
        {"content-type": "application/x-protobuf", "content-encoding": "snappy"},
        lambda: remote_write(2000, 32), 2000, 64, 500_000,
    ),
)  # fmt: skip


def run(folder: Path, *, rows: int = ROWS, rounds: int = 5) -> Report:
    """Measure the server and its peers; with few rows, for a moment each."""
    seconds = SECONDS if rows >= ROWS // 10 else 3.0
    outside.collector(), outside.victoria_metrics()  # are installed before anything is measured
    compile_loops()
    by_name = {work.name: work for work in WORKLOADS}
    found: dict[str, dict[str, Any]] = {}
    for work in WORKLOADS:
        made = folder / f"{work.name}.bodies"
        made.write_bytes(pickle.dumps(list(work.bodies())))
        found[work.name] = measure(work, made, seconds, folder)
    with _collector(folder) as url:
        found["collector"] = send(url, by_name["otlp"], folder / "otlp.bodies", seconds)
    with _victoria_metrics(folder) as url:
        found["victoria metrics"] = send(url, by_name["remote_write"], folder / "remote_write.bodies", seconds)
    inserted = _chdb(folder, pickle.loads((folder / "ndjson.bodies").read_bytes()), seconds)
    return _report(found, inserted)


def _report(found: dict[str, dict[str, Any]], inserted: float) -> Report:
    names = [work.name for work in WORKLOADS]
    ours = {name: found[name]["rows_a_second"] for name in names}
    collected, written = found["collector"]["rows_a_second"], found["victoria metrics"]["rows_a_second"]
    ratios = [
        *(_slower(f"{_TITLES[work.name]} against {work.goal:,} a second", ours[work.name], work.goal, 1.0)
          for work in WORKLOADS),
        *(
            Ratio(f"{_TITLES[name]}, acknowledged (median) against 250 ms", found[name]["p50_s"], 0.25, "s", 1.0)
            for name in ("otlp", "small")
        ),
        _slower("gzip OTLP records against the Collector writing a file", ours["otlp"], collected),
        _slower("samples of remote write against VictoriaMetrics", ours["remote_write"], written),
        _slower("rows of NDJSON against chDB", ours["ndjson"], inserted),
    ]  # fmt: skip
    rates = {_TITLES[name]: rate for name, rate in ours.items()}
    for name in names:
        spent = f"{_TITLES[name]}, for a second of the server's processor time"
        rates[spent] = found[name]["rows_a_processor_second"]
    rates |= {"the Collector, records": collected, "VictoriaMetrics, samples": written, "chDB, rows": inserted}
    times: dict[str, tuple[float, ...]] = {}
    for name in (*names, "collector", "victoria metrics"):
        for which, key in (("half of them within", "p50_s"), ("99 of 100 within", "p99_s")):
            if found[name][key] is not None:
                times[f"{_TITLES.get(name, name)}, {which}"] = (found[name][key],)
    sizes = {f"memory of the server, most, {_TITLES[name]}": found[name]["most_bytes"] for name in names}
    spent = ", ".join(f"{_TITLES[name]} {found[name]['sender_cpu_s']:.1f} s" for name in names)
    refused = sum(found[name]["refused"] for name in names)
    method = (*METHOD, f"Processor time of the sender, warming included: {spent}. Requests refused: {refused}.")
    workload = "Rows that a server acknowledges when they are durable."
    return Report("serve", workload, tuple(ratios), times, sizes, method, rates)


def _slower(name: str, rate: float, peer: float, goal: float | None = None) -> Ratio:
    """Compare two rates by the time that a million takes."""
    return Ratio(f"a million {name}", 1e6 / rate, 1e6 / peer, "s", goal)


_TITLES = {
    "otlp": "gzip OTLP records",
    "small": "requests of one record",
    "ndjson": "rows of NDJSON",
    "remote_write": "samples of remote write",
}


def send(url: str, work: Workload, bodies: Path, seconds: float) -> dict[str, Any]:
    """Send for some seconds, by another process."""
    place = urlsplit(url)
    plan = {
        "host": place.hostname, "port": place.port, "path": place.path or work.path, "headers": work.headers,
        "connections": work.senders, "warm_s": WARM_S, "seconds": seconds,
    }  # fmt: skip
    command = [sys.executable, "-m", "bench.sender", json.dumps(plan), str(bodies)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    found: dict[str, Any] = json.loads(ran.stdout)
    return found | {"rows_a_second": found["requests_a_second"] * work.rows}


def measure(work: Workload, bodies: Path, seconds: float, folder: Path) -> dict[str, Any]:
    """Run a server, send to it, and count what is in the table."""
    lake = folder / work.name
    with serving(lake) as served:
        time.sleep(LOADED_S)
        _, before_s = used(served.process.pid)
        found = send(served.url, work, bodies, seconds)
        found["most_bytes"], after_s = used(served.process.pid)
        found["rows_a_processor_second"] = found["answered"] * work.rows / (after_s - before_s)
    with tidelake.connect(lake, upkeep=False) as opened:
        table = next(name for name in opened.tables() if name.startswith(work.table))
        stored = len(opened.table(table))
    if stored != found["answered"] * work.rows:
        raise RuntimeError(
            f"{work.name}: {stored} rows are in the table, {found['answered'] * work.rows} were acknowledged"
        )
    return found


def used(pid: int) -> tuple[int, float]:
    """Return the largest memory that a process held, in bytes, and its processor time."""
    status = Path(f"/proc/{pid}/status").read_text()
    most = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return most, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_COLLECTOR = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters: {{file: {{path: "{file}", format: proto}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{logs: {{receivers: [otlp], exporters: [file]}}}}
"""


@contextmanager
def _collector(folder: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    config = folder / "collector.yaml"
    config.write_text(_COLLECTOR.format(port=port, file=folder / "collected"))
    with _running([str(outside.collector()), "--config", str(config)], f"http://127.0.0.1:{port}/"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _victoria_metrics(folder: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    told = [f"-storageDataPath={folder / 'victoria'}", f"-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=100y"]
    with _running([str(outside.victoria_metrics()), *told], f"http://127.0.0.1:{port}/health"):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(command: Sequence[str], answers: str) -> Iterator[None]:
    """Run a program, wait until it answers, and stop it afterwards."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until_s = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(answers, timeout=5).close()
            except urllib.error.HTTPError:
                pass
            except OSError:
                if time.monotonic() > until_s or process.poll() is not None:
                    raise
                time.sleep(0.1)
                continue
            break
        yield
    finally:
        process.terminate()
        process.wait(60)


def _chdb(folder: Path, bodies: Sequence[bytes], seconds: float) -> float:
    """Return how many rows chDB inserts in a second."""
    from chdb.session import Session

    lines = b"\n".join(bodies).split(b"\n")
    whole = b"\n".join(lines[n % len(lines)] for n in range(CHDB_ROWS)).decode()
    session = Session(str(folder / "chdb"))
    columns = (
        "ts UInt64, service LowCardinality(String), level LowCardinality(String), duration Float64, message String"
    )
    session.query("CREATE DATABASE IF NOT EXISTS b")
    session.query(f"CREATE TABLE b.rows ({columns}) ENGINE = MergeTree ORDER BY ts")
    inserts, began_s = 0, time.monotonic()
    while time.monotonic() - began_s < seconds:
        session.query(f"INSERT INTO b.rows FORMAT JSONEachRow {whole}")
        inserts += 1
    rate = inserts * CHDB_ROWS / (time.monotonic() - began_s)
    stored = int(str(session.query("SELECT count() FROM b.rows", "CSV")).strip())
    session.close()
    if stored != inserts * CHDB_ROWS:
        raise RuntimeError(f"chDB has {stored} rows of {inserts * CHDB_ROWS}")
    return rate
