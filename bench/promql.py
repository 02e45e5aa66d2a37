"""Measure range queries in PromQL, from the text to the API's JSON, beside Prometheus where it is installed.

Both have the same samples: counters of many series over six hours, a sample each 15 seconds. Prometheus has them in
blocks of its own, which promtool makes, and is asked over HTTP. It does not measure how samples come in.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np
import orjson
import pyarrow as pa

from bench.data import ROWS
from bench.report import Ratio, Report
from tidelake.dynamic import encode
from tidelake.lake import Lake, connect

SERIES = 1_000
HOURS, EVERY_S, STEP_S = 6, 15, 60
START = datetime(2026, 1, 1, tzinfo=UTC)
QUESTIONS = {
    "rate": "rate(requests_total[5m])",
    "sum of rates": "sum by (job) (rate(requests_total[5m]))",
    "rate of one": 'rate(requests_total{instance="host5:9100"}[5m])',
    "quantile": "quantile_over_time(0.9, requests_total[5m])",
}
READY_SECONDS = 30.0

METHOD = (
    f"Counters over {HOURS} hours, a sample each {EVERY_S} seconds, each series at milliseconds of its own; range "
    f"queries with a step of {STEP_S} seconds.",
    "Ours is in process, from the text to the bytes of the API's JSON; Prometheus is asked over HTTP on the same "
    "machine, and its body is read and not parsed.",
    "Each question is asked twice before it is measured, and answers are compared: both must have as many points.",
    "Without prometheus and promtool on the path, only ours is measured.",
)

Ask = Callable[[str], bytes]


def run(folder: Path, *, rows: int = ROWS, rounds: int = 5) -> Report:
    """Measure each question of each contender."""
    series = max(10, SERIES * rows // ROWS)
    labels = [{"job": f"job{at % 10}", "instance": f"host{at}:9100", "path": f"/p{at % 7}"} for at in range(series)]
    times, values = _samples(series)
    lake = _filled(folder / "lake", labels, times, values)
    contenders: dict[str, Ask] = {"tidelake": lambda text: _ours(lake, text)}
    seconds: dict[str, tuple[float, ...]] = {}
    points: dict[str, int] = {}
    with _prometheus(folder / "prometheus", labels, times, values) as theirs:
        if theirs is not None:
            contenders["prometheus"] = theirs
        for name, ask in contenders.items():
            for question, text in QUESTIONS.items():
                points[f"{name} {question}"] = _points(ask(text))
                ask(text)
                seconds[f"{name} {question}"] = tuple(_timed(ask, text) for _ in range(rounds))
    ratios = []
    for question in QUESTIONS if "prometheus" in contenders else ():
        ours, peer = (f"{name} {question}" for name in ("tidelake", "prometheus"))
        if points[ours] != points[peer]:
            raise AssertionError(f"{question}: {points[ours]} points, and {points[peer]} of Prometheus")
        goal = 1.0 if question == "rate" else None
        ratios.append(Ratio(f"{question} against Prometheus", median(seconds[ours]), median(seconds[peer]), "s", goal))
    workload = f"{series:,} series of {len(times):,} samples; range queries of {HOURS} hours by {STEP_S} s"
    return Report("promql", workload, tuple(ratios), seconds, {}, METHOD)


@contextmanager
def contenders(folder: Path, rows: int) -> Iterator[tuple[Path, Ask | None]]:
    """Fill a lake and Prometheus with the same samples; yield where the lake is, and how Prometheus is asked."""
    series = max(10, SERIES * rows // ROWS)
    labels = [{"job": f"job{at % 10}", "instance": f"host{at}:9100", "path": f"/p{at % 7}"} for at in range(series)]
    times, values = _samples(series)
    with _filled(folder / "lake", labels, times, values):
        pass
    with _prometheus(folder / "prometheus", labels, times, values) as theirs:
        yield folder / "lake", theirs


def _samples(series: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the times of the samples in milliseconds, without what each series adds, and values by (time, series)."""
    count = HOURS * 3600 // EVERY_S
    times = int(START.timestamp()) * 1000 + np.arange(count, dtype=np.int64) * EVERY_S * 1000
    grown = np.random.default_rng(7).integers(0, 10, (count, series)).cumsum(axis=0)
    return times, grown.astype(np.float64)


def _shift(series: int) -> np.ndarray:
    return 1 + np.arange(series, dtype=np.int64) * 7 % (EVERY_S * 1000 - 2)


def _filled(where: Path, labels: list[dict[str, str]], times: np.ndarray, values: np.ndarray) -> Lake:
    lake = connect(where, upkeep=False)
    columns = {"ts": "timestamp", "name": "string", "labels": "dynamic", "value": "real"}
    table = lake.create_table("prom_samples", columns, time="ts", flush_age="off")
    encoded = pa.array([encode(each) for each in labels], pa.binary())
    dynamic = pa.field("labels", pa.binary(), metadata={"tidelake.type": "dynamic"})
    kind = pa.timestamp("us", tz="UTC")
    schema = pa.schema([("ts", kind), ("name", pa.string()), dynamic, ("value", pa.float64())])
    shift = _shift(len(labels))
    for at in range(0, len(times), 240):  # an hour
        part = times[at : at + 240]
        clock = (part[:, None] + shift[None, :]).reshape(-1) * 1000
        which = pa.array(np.tile(np.arange(len(labels)), len(part)))
        names = pa.array(["requests_total"]).take(pa.array(np.zeros(len(clock), np.int64)))
        cells = [pa.array(clock).cast(kind), names, encoded.take(which), pa.array(values[at : at + 240].reshape(-1))]
        table.append(pa.table(cells, schema=schema))
    table.flush()
    return lake


def _ours(lake: Lake, text: str) -> bytes:
    end = START.timestamp() + HOURS * 3600
    return lake.promql(text, start=START, end=end, step=STEP_S).to_json()


@contextmanager
def _prometheus(
    folder: Path, labels: list[dict[str, str]], times: np.ndarray, values: np.ndarray
) -> Iterator[Ask | None]:
    """Run Prometheus over the same samples, if it is installed."""
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    if server is None or tool is None:
        yield None
        return
    folder.mkdir(parents=True)
    _write_text(folder / "samples.txt", labels, times, values)
    blocks = [tool, "tsdb", "create-blocks-from", "openmetrics", str(folder / "samples.txt"), str(folder / "data")]
    subprocess.run(blocks, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("global: {}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    told = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    told += [f"--web.listen-address={address}", "--storage.tsdb.retention.time=100y"]
    process = subprocess.Popen([server, *told], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(f"http://{address}/-/ready")
        yield lambda text: asked(address, text)
    finally:
        process.terminate()
        process.wait()


def _write_text(path: Path, labels: list[dict[str, str]], times: np.ndarray, values: np.ndarray) -> None:
    shift = _shift(len(labels))
    with path.open("w") as out:
        out.write("# TYPE requests counter\n")
        for at, each in enumerate(labels):
            head = "requests_total{" + ",".join(f'{name}="{text}"' for name, text in each.items()) + "}"
            clock, counts = ((times + shift[at]) / 1000).tolist(), values[:, at].tolist()
            out.writelines(f"{head} {value:.0f} {at_s:.3f}\n" for at_s, value in zip(clock, counts, strict=True))
        out.write("# EOF\n")


def _wait(address: str) -> None:
    until = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(address) as answer:
                answer.read()
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def asked(address: str, text: str) -> bytes:
    """Ask for a range, by HTTP."""
    start = START.timestamp()
    told = {"query": text, "start": start, "end": start + HOURS * 3600, "step": STEP_S}
    with urllib.request.urlopen(f"http://{address}/api/v1/query_range?{urllib.parse.urlencode(told)}") as answer:
        body: bytes = answer.read()
        return body


def _points(body: bytes) -> int:
    answer = orjson.loads(body)
    return sum(len(each["values"]) for each in answer.get("data", answer)["result"])


def _timed(ask: Ask, text: str) -> float:
    start = time.perf_counter()
    ask(text)
    return time.perf_counter() - start
