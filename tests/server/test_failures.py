"""Kill the server, lock its catalog, fill its disk: what was acknowledged is there once, and nothing else is."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest

import tidelake
from tests.support.disks import small_disk
from tests.support.servers import free_ports
from tests.support.serving import Served, serving
from tests.support.telemetry import START_NS, logs_request, put_attributes

PROTOBUF = {"content-type": "application/x-protobuf"}
RETRY_S = 0.05


class Client(threading.Thread):
    """Send requests one after another, each until it is acknowledged, as agents do."""

    def __init__(
        self, url: str, name: str, stopped: threading.Event, make: Callable[[str, int], dict[str, object]]
    ) -> None:
        super().__init__(name=name)
        self._url, self._stopped, self._make = url, stopped, make
        self.acknowledged: list[str] = []
        self.offered: list[str] = []
        self.refused: Counter[int] = Counter()

    def run(self) -> None:
        n = 0
        with httpx.Client(base_url=self._url, timeout=30) as client:
            while not self._stopped.is_set():
                id, n = f"{self.name}-{n}", n + 1
                request = self._make(id, n)
                self.offered.append(id)
                while not self._stopped.is_set():
                    try:
                        status = client.request("POST", **request).status_code  # type: ignore[arg-type]
                    except httpx.TransportError:
                        time.sleep(RETRY_S)
                        continue
                    if status == 200:
                        self.acknowledged.append(id)
                        break
                    assert status == 503, status
                    self.refused[status] += 1
                    time.sleep(RETRY_S)


def rows_request(id: str, n: int) -> dict[str, object]:
    """A request of three rows under a key."""
    lines = [json.dumps({"ts": 1_767_225_600 + n, "id": id, "part": part}) for part in range(3)]
    return {"url": "/v1/ingest/kill.rows", "content": "\n".join(lines), "headers": {"idempotency-key": id}}


def otlp_request(id: str, n: int) -> dict[str, object]:
    """A request of three log records, known by its content."""
    request = logs_request(3, n)
    for record in request.resource_logs[0].scope_logs[0].log_records:
        put_attributes(record.attributes, {"id": id})
        record.time_unix_nano = START_NS + n
    headers = {**PROTOBUF, "x-tidelake-table": "kill.logs"}
    return {"url": "/v1/logs", "content": request.SerializeToString(), "headers": headers}


def wait_for(served: Served, is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until, served.said[-5:]
        time.sleep(0.05)


def _all_got_on(before: dict[Client, int]) -> bool:
    return all(len(client.acknowledged) > count for client, count in before.items())


def kill_and_check(folder: Path, *, kills: int, seed: int, clients: int) -> None:
    chance, port, stopped = random.Random(seed), free_ports(1)[0], threading.Event()
    url = f"http://127.0.0.1:{port}"
    senders = {
        "kill.rows": [Client(url, f"rows{n}", stopped, rows_request) for n in range(clients)],
        "kill.logs": [Client(url, f"logs{n}", stopped, otlp_request) for n in range(clients)],
    }
    everyone = [each for several in senders.values() for each in several]
    for at in range(kills + 1):
        with serving(folder, port=port) as served:
            if at == 0:
                for sender in everyone:
                    sender.start()
            before = {each: len(each.acknowledged) for each in everyone}
            wait_for(served, partial(_all_got_on, before))
            time.sleep(chance.random() * 0.3)
            if at < kills:
                served.kill()
            else:
                stopped.set()
                for sender in everyone:
                    sender.join()
    with tidelake.connect(folder, upkeep=False) as lake:
        for name, several in senders.items():
            table = lake.table(name)
            if name == "kill.rows":
                found = Counter(table.to_arrow(["id"]).column("id").to_pylist())
            else:
                texts = table.to_arrow(["attributes"]).column("attributes").to_pylist()
                found = Counter(json.loads(text)["id"] for text in texts)
            acknowledged = {id for each in several for id in each.acknowledged}
            offered = {id for each in several for id in each.offered}
            assert len(acknowledged) > kills * clients
            assert {id: found[id] for id in acknowledged if found[id] != 3} == {}
            assert {id: count for id, count in found.items() if count != 3 or id not in offered} == {}


def test_what_was_acknowledged_is_there_once_after_kill_9(tmp_path: Path) -> None:
    kill_and_check(tmp_path / "lake", kills=2, seed=1, clients=4)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(5))
def test_what_was_acknowledged_is_there_once_after_many_kills(tmp_path: Path, seed: int) -> None:
    kill_and_check(tmp_path / "lake", kills=20, seed=seed, clients=16)


def test_a_catalog_that_is_away_is_503_until_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    with serving(folder, environment={"TIDELAKE_SERVE_DEADLINE_S": "1"}) as served, served.client() as client:
        row = b'{"ts": "2026-01-01T00:00:00Z", "n": 1}'
        assert client.post("/v1/ingest/away.rows", content=row).status_code == 200
        with sqlite3.connect(folder / "catalog.sqlite", isolation_level=None) as held:
            held.execute("BEGIN EXCLUSIVE")
            for answer in (
                client.post("/v1/ingest/away.rows", content=row, headers={"idempotency-key": "once"}),
                client.post("/v1/logs", content=logs_request(1).SerializeToString(), headers=PROTOBUF),
            ):
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
                assert str(folder) not in answer.text
            held.execute("ROLLBACK")
        held.close()
        headers = {"idempotency-key": "once"}
        assert client.post("/v1/ingest/away.rows", content=row, headers=headers).status_code == 200
        assert client.get("/readyz").status_code == 200
    with tidelake.connect(folder) as lake:
        assert len(lake.table("away.rows")) == 2


def test_a_full_disk_is_503_until_there_is_room(tmp_path: Path) -> None:
    soon = {"TIDELAKE_SERVE_DEADLINE_S": "2"}
    with (
        small_disk(tmp_path / "disk", megabytes=16) as disk,
        serving(disk.root / "lake", environment=soon) as served,
    ):
        with served.client() as client:
            row = b'{"ts": "2026-01-01T00:00:00Z", "text": "%s"}\n' % (b"x" * 200)
            assert client.post("/v1/ingest/full.rows", content=row).status_code == 200
            disk.fill()
            for body in (row, row * 3000):
                answer = client.post("/v1/ingest/full.rows", content=body, headers={"idempotency-key": str(len(body))})
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
            disk.make_room()
            for body in (row, row * 3000):
                answer = client.post("/v1/ingest/full.rows", content=body, headers={"idempotency-key": str(len(body))})
                assert answer.status_code == 200, answer.text
        served.stop()
        with tidelake.connect(disk.root / "lake", upkeep=False) as lake:
            assert len(lake.table("full.rows")) == 3002
