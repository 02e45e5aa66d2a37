"""Clients that are programs of their own, or need packages of their own: Prometheus, promtool, flightsql-dbapi."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import cramjam
import httpx
import pytest

from tests.server.test_remote_write import first
from tests.support import outside
from tests.support.servers import free_ports
from tests.support.serving import Served

pytestmark = pytest.mark.torture
AT_S = 1_767_225_600
RATES = "sum by (job) (rate(hits[5m]))"
READY_WITHIN_S = 30
FLOWN = """
import sys
from flightsql import FlightSQLClient, connect
client = FlightSQLClient(host="127.0.0.1", port=int(sys.argv[1]), insecure=True)
info = client.execute("select count(*) c from prom_samples")
assert client.do_get(info.endpoints[0].ticket).read_all().to_pylist() == [{"c": 82}]
tables = client.get_tables(db_schema_filter_pattern="def%")
names = client.do_get(tables.endpoints[0].ticket).read_all()["table_name"].to_pylist()
assert "prom_samples" in names, names
cursor = connect(client).cursor()
cursor.execute("select value from prom_samples order by value desc limit 1")
assert cursor.fetchall() == [[40.0]]
"""


@pytest.fixture(scope="module")
def filled(served: Served, client: httpx.Client) -> Served:
    series = [
        ({"__name__": "hits", "job": job}, [(float(n), (AT_S + n * 15) * 1000) for n in range(41)]) for job in "ab"
    ]
    body = bytes(cramjam.snappy.compress_raw(first(series)))
    assert client.post("/api/v1/write", content=body, headers={"content-encoding": "snappy"}).status_code == 204
    return served


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("instant", "--time", str(AT_S + 600), "URL", RATES), '{job="b"} => 0.0666'),
        (
            ("range", "--start", str(AT_S), "--end", str(AT_S + 600), "--step", "5m", "URL", 'hits{job="a"}'),
            f"20 @[{AT_S + 300}]",
        ),
        (("series", "--match", 'hits{job="a"}', "--start", str(AT_S), "--end", str(AT_S + 600), "URL"), 'job="a"'),
        (("labels", "--start", str(AT_S), "--end", str(AT_S + 600), "URL", "job"), "a\nb"),
    ],
)
def test_promtool_asks(filled: Served, words: tuple[str, ...], said: str) -> None:
    told = [filled.url if each == "URL" else each for each in words]
    ran = subprocess.run([outside.promtool(), "query", *told], capture_output=True, text=True, check=True)
    assert said in ran.stdout


def test_prometheus_reads_remotely(filled: Served, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = tmp_path / "prometheus.yml"
    config.write_text(f"global: {{}}\nremote_read:\n- url: {filled.url}/api/v1/read\n  read_recent: true\n")
    told = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    told.append(f"--web.listen-address=127.0.0.1:{port}")
    process = subprocess.Popen(
        [str(outside.prometheus_2()), *told], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready").read())
        params = {"query": RATES, "time": str(AT_S + 600)}
        found = httpx.get(f"http://127.0.0.1:{port}/api/v1/query", params=params).json()["data"]["result"]
        assert {each["metric"]["job"]: each["value"][1][:6] for each in found} == {"a": "0.0666", "b": "0.0666"}
    finally:
        process.terminate()
        process.wait()


def test_flightsql_dbapi_asks(filled: Served, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "apart"], check=True)
    python = tmp_path / "apart" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "flightsql-dbapi", "pandas"], check=True)
    port = filled.flight.rpartition(":")[2]
    subprocess.run([python, "-c", FLOWN, port], check=True, env={})


def wait_for(look: Callable[[], object]) -> None:
    until_s = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            look()
            return
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.1)
