"""Agents that others build, installed by the tests: telemetrygen, the Collector, Prometheus 2 and 3, rsyslog, Kafka.

Each sends while the server is killed at random and started again; what the agent was told is in, is in once.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

import tidelake
from tests.support import outside
from tests.support.kafka_broker import kafka_broker
from tests.support.servers import free_ports
from tests.support.serving import Served, serving

pytestmark = pytest.mark.torture
WITHIN_S = 180
KILLS = 5
DOCS = Path(__file__).parents[2] / "docs" / "server"


def telemetrygen(kind: str, endpoint: str, *words: str) -> list[str]:
    return [str(outside.telemetrygen()), kind, "--otlp-insecure", "--otlp-endpoint", endpoint, "--rate", "0", *words]


def eventually(found: Callable[[], object], wanted: object) -> None:
    until_s = time.monotonic() + WITHIN_S
    while (seen := found()) != wanted and time.monotonic() < until_s:
        time.sleep(0.2)
    assert seen == wanted


def asked(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    try:
        with tidelake.connect(folder, upkeep=False) as lake:
            return [tuple(row.values()) for row in lake.sql(sql).to_arrow().to_pylist()]
    except tidelake.TidelakeError:
        return []


@contextmanager
def running(command: list[str], said: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with said.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **environment})
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def otlp_serving(folder: Path, port: int, otlp: int) -> Iterator[Served]:
    """Serve at ports that stay the same when it is started again."""
    with serving(folder, "--otlp-port", str(otlp), port=port) as served:
        yield served


def killed(folder: Path, port: int, otlp: int, seed: int, *, is_done: Callable[[], bool]) -> None:
    """Serve, and be killed at random, until all that was to come is in."""
    chance = random.Random(seed)
    for _ in range(KILLS):
        with otlp_serving(folder, port, otlp) as served:
            time.sleep(chance.uniform(0.2, 2.5))
            served.kill()
    with otlp_serving(folder, port, otlp):
        until_s = time.monotonic() + WITHIN_S
        while not is_done():
            assert time.monotonic() < until_s
            time.sleep(0.2)


@pytest.mark.parametrize("over", ["grpc", "http"])
def test_telemetrygen_sends_each_signal(tmp_path: Path, over: str) -> None:
    folder = tmp_path / "lake"
    with serving(folder) as served:
        endpoint = served.otlp if over == "grpc" else served.url.removeprefix("http://")
        more = ["--otlp-http"] if over == "http" else []
        for kind in ("logs", "metrics", "traces"):
            # Its exporter of spans drops by itself what comes faster than it sends.
            slowly = ["--rate", "400"] if kind == "traces" else []
            command = telemetrygen(kind, endpoint, f"--{kind}", "1000", "--workers", "2", *slowly, *more)
            ran = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
            assert ran.returncode == 0, ran.stderr[-1000:]
    assert asked(folder, "select count(*) c from otel_logs") == [(2000,)]
    assert asked(folder, "select count(*) c from otel_metrics") == [(2000,)]
    spans = asked(folder, "select count(*) c, count(distinct span_id) d, count(distinct trace_id) t from otel_spans")
    assert spans == [(4000, 4000, 2000)]
    assert asked(folder, "select distinct service_name s from otel_spans") == [("telemetrygen",)]


COLLECTOR = """
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{taken}"}}}}}}
processors:
  batch: {{timeout: 50ms, send_batch_size: 500}}
exporters:
  {exporter}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    traces: {{receivers: [otlp], processors: [batch], exporters: [{name}]}}
    logs: {{receivers: [otlp], processors: [batch], exporters: [{name}]}}
    metrics: {{receivers: [otlp], processors: [batch], exporters: [{name}]}}
"""
PATIENT = (
    "retry_on_failure: {initial_interval: 100ms, max_interval: 500ms, max_elapsed_time: 300s}, "
    "sending_queue: {queue_size: 100000}"
)
EXPORTERS = {
    "grpc": ("otlp", 'otlp: {{endpoint: "127.0.0.1:{otlp}", tls: {{insecure: true}}, {patient}}}'),
    "gzip": ("otlphttp", 'otlphttp: {{endpoint: "http://127.0.0.1:{port}", compression: gzip, {patient}}}'),
    "zstd": ("otlphttp", 'otlphttp: {{endpoint: "http://127.0.0.1:{port}", compression: zstd, {patient}}}'),
    "json": ("otlphttp", 'otlphttp: {{endpoint: "http://127.0.0.1:{port}", encoding: json, {patient}}}'),
}


@pytest.mark.parametrize("how", EXPORTERS)
def test_the_collector_loses_nothing_when_the_server_is_killed(tmp_path: Path, how: str) -> None:
    folder, (port, otlp, taken) = tmp_path / "lake", free_ports(3)
    name, text = EXPORTERS[how]
    exporter = text.format(port=port, otlp=otlp, patient=PATIENT)
    config = tmp_path / "collector.yaml"
    config.write_text(COLLECTOR.format(taken=taken, exporter=exporter, name=name))
    sent = 5000
    with running([str(outside.collector()), "--config", str(config)], tmp_path / "said") as process:
        time.sleep(2)
        assert process.poll() is None, (tmp_path / "said").read_text()[-2000:]
        generator = subprocess.Popen(
            telemetrygen("traces", f"127.0.0.1:{taken}", "--traces", str(sent), "--workers", "2", "--rate", "500"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        counted = "select count(*) c, count(distinct span_id) d from otel_spans"

        def is_done() -> bool:
            return generator.poll() is not None and asked(folder, counted) == [(4 * sent, 4 * sent)]

        killed(folder, port, otlp, seed=7, is_done=is_done)
        assert generator.wait() == 0
    assert asked(folder, counted) == [(4 * sent, 4 * sent)]


PROMETHEUS = """
global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}
scrape_configs:
- job_name: own
  static_configs: [{{targets: ["127.0.0.1:{own}"]}}]
remote_write:
- url: http://127.0.0.1:{port}/api/v1/write
  {message}
  queue_config: {{min_backoff: 30ms, max_backoff: 300ms, batch_send_deadline: 200ms, max_samples_per_send: 500}}
"""


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (outside.prometheus_2, ""),
        (outside.prometheus_3, ""),
        (outside.prometheus_3, "protobuf_message: io.prometheus.write.v2.Request"),
    ],
)
def test_prometheus_loses_nothing_when_the_server_is_killed(
    tmp_path: Path, program: Callable[[], Path], message: str
) -> None:
    folder, (port, otlp, own) = tmp_path / "lake", free_ports(3)
    config = tmp_path / "prometheus.yml"
    config.write_text(PROMETHEUS.format(own=own, port=port, message=message))
    command = [str(program()), f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    held: Counter[tuple[Any, ...]] = Counter()
    with running([*command, f"--web.listen-address=127.0.0.1:{own}"], tmp_path / "said"):

        def is_done() -> bool:
            if not held:
                held.update(scraped(own))
            return not set(held) - set(stored(folder))

        killed(folder, port, otlp, seed=3, is_done=is_done)
        later = set(scraped(own))
    found = stored(folder)
    assert len(held) > 10_000
    assert [each for each, count in found.items() if count > 1] == []
    assert set(found) - later == set()  # none invented


def scraped(port: int) -> list[tuple[Any, ...]]:
    """Return all samples that Prometheus has itself."""
    asked = {"query": '{__name__=~".+"}[1h]'}
    answer = httpx.post(f"http://127.0.0.1:{port}/api/v1/query", data=asked, timeout=60).json()
    return [
        (tuple(sorted(series["metric"].items())), round(at * 1000), float(value))
        for series in answer["data"]["result"]
        for at, value in series.get("values", [])
        if value != "NaN"
    ]


def stored(folder: Path) -> Counter[tuple[Any, ...]]:
    """Return all samples that came in, and how often."""
    rows = asked(folder, "select name, labels, unix_millis(ts) at, value from prom_samples where not isnan(value)")
    found: Counter[tuple[Any, ...]] = Counter()
    for name, labels, at, value in rows:
        series = {**(json.loads(labels) if isinstance(labels, str) else labels or {}), "__name__": name}
        found[tuple(sorted(series.items())), at, value] += 1
    return found


def test_the_suite_for_receivers_passes(tmp_path: Path) -> None:
    with serving(tmp_path / "lake") as served:
        config = tmp_path / "config.yml"
        config.write_text(f"remote_write:\n- name: tidelake\n  url: {served.url}/api/v1/write\n")
        told = {**os.environ, "PROMETHEUS_RW2_COMPLIANCE_CONFIG_FILE": str(config)}
        ran = subprocess.run(
            [str(outside.receiver_suite()), "-test.v"], env=told, cwd=tmp_path, capture_output=True, text=True,
            timeout=WITHIN_S,
        )  # fmt: skip
    failed = [line for line in ran.stdout.splitlines() if "--- FAIL" in line]
    passed = [line for line in ran.stdout.splitlines() if "--- PASS" in line]
    assert (ran.returncode, failed) == (0, []), ran.stdout[-4000:]
    assert len(passed) > 50


def on_page(page: str, first: str) -> str:
    """Return the block of a page about a protocol that begins with some words."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return next(str(block) for block in blocks if block.startswith(first))


def test_configurations_on_pages_are_what_agents_take(tmp_path: Path) -> None:
    otlp, prometheus = tmp_path / "otel.yaml", tmp_path / "prometheus.yml"
    otlp.write_text("receivers: {otlp: {protocols: {http: {}}}}\n" + on_page("otlp.md", "exporters:"))
    prometheus.write_text(on_page("prometheus.md", "# prometheus.yml"))
    environment = {**os.environ, "TIDELAKE_TOKEN": "tl_x"}
    subprocess.run([outside.collector(), "validate", "--config", otlp], env=environment, check=True)
    subprocess.run([outside.promtool(), "check", "config", prometheus], check=True)


def test_rsyslog_sends_as_its_page_says(tmp_path: Path) -> None:
    folder, config, (port,) = tmp_path / "lake", tmp_path / "rsyslog.conf", free_ports(1)
    log = tmp_path / "log"
    forwarding = on_page("syslog.md", "# rsyslog.conf").replace("5514", str(port))
    own = f'module(load="imuxsock" SysSock.Use="off")\ninput(type="imuxsock" Socket="{log}")\n'
    config.write_text(own + forwarding)
    command, libraries = outside.rsyslog()
    words = [*command, "-f", str(config), "-i", str(tmp_path / "pid")]
    with serving(folder, "--syslog-port", str(port)), running(words, tmp_path / "said", **libraries):
        eventually(lambda: log.exists(), True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(str(log))
            for n in range(100):
                sender.send(f"<11>Jan  1 00:00:00 app: message {n}".encode())
        eventually(
            lambda: asked(folder, "select app, severity, facility, count(distinct message) from syslog group by all"),
            [("app", "error", "user", 100)],
        )


def test_a_real_broker_and_a_server_that_are_killed_store_each_message_once(tmp_path: Path) -> None:
    folder, chance = tmp_path / "lake", random.Random(11)
    with kafka_broker(tmp_path / "kafka") as broker:
        topics = ("--kafka", broker.address, "--kafka-topics", "events=obs.events", "--kafka-group", "g")
        sent = 0
        for at in range(KILLS):
            sent = transaction(broker.address, sent, 3000, is_committed=True, name=f"t{at}")
            transaction(broker.address, 10_000_000 + sent, 500, is_committed=False, name=f"t{at}")
            with serving(folder, *topics) as served:
                time.sleep(chance.uniform(3, 6))
                served.kill()
            if at == KILLS // 2:
                broker.kill()
                broker.start()
        with serving(folder, *topics):
            eventually(lambda: asked(folder, "select count(*) c, count(distinct n) d, max(n) m from obs.events"),
                       [(sent, sent, sent - 1)])  # fmt: skip


def transaction(address: str, start: int, count: int, *, is_committed: bool, name: str) -> int:
    """Produce messages in a transaction, and return the next number."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 5})
    producer.init_transactions(60)
    producer.begin_transaction()
    for n in range(start, start + count):
        producer.produce("events", json.dumps({"ts": "2026-01-01T00:00:00Z", "n": n}))
        producer.poll(0)
    if is_committed:
        producer.commit_transaction(60)
    else:
        producer.flush(60)
        producer.abort_transaction(60)
    return start + count
