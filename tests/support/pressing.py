"""Press a server from many sides: a client for each protocol, each sending until it is acknowledged, as agents do.

Every request has three rows under an id of its own; afterwards, what was acknowledged must be in its table three times,
and nothing that was never sent. It does not start servers or harm them.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cramjam
import httpx

import tidelake
from tests.server.test_remote_write import first
from tests.support.telemetry import START_NS, logs_request, put_attributes

PROTOBUF = {"content-type": "application/x-protobuf"}
AT_S = 1_767_225_600
ROWS = 3
RETRY_S = 0.05
WITHIN_S = 120


@dataclass(frozen=True, slots=True)
class Protocol:
    """How one protocol sends three rows under an id, and where the id is found again."""

    name: str
    table: str
    request: Callable[[str, int], dict[str, Any]]
    id_of: Callable[[dict[str, Any]], str]
    columns: tuple[str, ...]


def _rows(id: str, n: int) -> dict[str, Any]:
    lines = [json.dumps({"ts": AT_S + n, "id": id, "part": part}) for part in range(ROWS)]
    return {"url": "/v1/ingest/press.rows", "content": "\n".join(lines), "headers": {"idempotency-key": id}}


def _otlp(id: str, n: int) -> dict[str, Any]:
    request = logs_request(ROWS, n)
    for record in request.resource_logs[0].scope_logs[0].log_records:
        put_attributes(record.attributes, {"id": id})
        record.time_unix_nano = START_NS + n
    headers = {**PROTOBUF, "x-tidelake-table": "press.logs"}
    return {"url": "/v1/logs", "content": request.SerializeToString(), "headers": headers}


def _remote_write(id: str, n: int) -> dict[str, Any]:
    samples = [(float(part), (AT_S + n * ROWS + part) * 1000) for part in range(ROWS)]
    body = bytes(cramjam.snappy.compress_raw(first([({"__name__": "press", "id": id}, samples)])))
    return {"url": "/api/v1/write", "content": body, "headers": {"content-encoding": "snappy"}}


def _elastic(id: str, n: int) -> dict[str, Any]:
    lines: list[dict[str, Any]] = []
    for part in range(ROWS):
        lines += [{"create": {}}, {"@timestamp": (AT_S + n) * 1000, "id": id, "part": part}]
    body = "".join(json.dumps(line) + "\n" for line in lines)
    return {"url": "/press_elastic/_bulk", "content": body, "headers": {"content-type": "application/x-ndjson"}}


def _loki(id: str, n: int) -> dict[str, Any]:
    values = [[str(START_NS + n * ROWS + part), f"line {part}"] for part in range(ROWS)]
    return {"url": "/loki/api/v1/push", "json": {"streams": [{"stream": {"id": id}, "values": values}]}}


def _hec(id: str, n: int) -> dict[str, Any]:
    events = [{"time": AT_S + n, "event": f"e{part}", "fields": {"id": id}} for part in range(ROWS)]
    return {"url": "/services/collector/event", "content": "".join(map(json.dumps, events))}


def _influx(id: str, n: int) -> dict[str, Any]:
    lines = "\n".join(f"press_points,id={id} part={part}i {START_NS + n * ROWS + part}" for part in range(ROWS))
    return {"url": "/api/v2/write?bucket=press", "content": lines}


def _plain(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(row[name])


def _within(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(json.loads(row[name])["id"])


PROTOCOLS = (
    Protocol("rows", "press.rows", _rows, _plain("id"), ("id",)),
    Protocol("otlp", "press.logs", _otlp, _within("attributes"), ("attributes",)),
    Protocol("remote_write", "default.prom_samples", _remote_write, _within("labels"), ("labels",)),
    Protocol("elastic", "default.press_elastic", _elastic, _plain("id"), ("id",)),
    Protocol("loki", "default.loki_logs", _loki, _within("labels"), ("labels",)),
    Protocol("hec", "default.hec_events", _hec, _within("fields"), ("fields",)),
    Protocol("influx", "press.press_points", _influx, _plain("id"), ("id",)),
)


class Client(threading.Thread):
    """Send requests one after another, each until it is acknowledged."""

    def __init__(self, url: str, name: str, stopped: threading.Event, protocol: Protocol) -> None:
        super().__init__(name=name)
        self._url, self._stopped, self.protocol = url, stopped, protocol
        self.acknowledged: list[str] = []
        self.offered: list[str] = []
        self.refused = 0
        self.wrong: str | None = None

    def run(self) -> None:
        n = 0
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._stopped.is_set():
                id, n = f"{self.name}-{n}", n + 1
                request = self.protocol.request(id, n)
                self.offered.append(id)
                while not self._stopped.is_set():
                    try:
                        answer = client.request("POST", **request)
                    except httpx.TransportError:
                        time.sleep(RETRY_S)
                        continue
                    if answer.status_code in (200, 204) and not _has_errors(answer):
                        self.acknowledged.append(id)
                        break
                    if not _is_refused(answer):
                        self.wrong = f"{self.protocol.name}: {answer.status_code} {answer.text[:300]}"
                        return
                    self.refused += 1
                    time.sleep(RETRY_S)


def _has_errors(answer: httpx.Response) -> bool:
    return answer.headers.get("x-elastic-product") is not None and bool(answer.json().get("errors"))


def _is_refused(answer: httpx.Response) -> bool:
    """Whether an answer says to come again: 503 with when to, or that for each item of a bulk."""
    if answer.status_code == 503:
        return "retry-after" in answer.headers
    if not _has_errors(answer):
        return False
    return {each["status"] for item in answer.json()["items"] for each in item.values()} <= {429, 503}


class Press:
    """Clients of all protocols, at work against one address."""

    def __init__(self, url: str, clients: int, protocols: Sequence[Protocol] = PROTOCOLS) -> None:
        self._stopped = threading.Event()
        self.clients = [
            Client(url, f"{protocol.name}{n}", self._stopped, protocol)
            for protocol in protocols
            for n in range(clients)
        ]

    @property
    def refused(self) -> int:
        return sum(client.refused for client in self.clients)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Send while this is entered; clients may be started before the server is."""
        for client in self.clients:
            client.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Have all clients end."""
        self._stopped.set()
        for client in self.clients:
            client.join()

    def wait_for_all(self, more: int = 1) -> None:
        """Wait until each client has some more acknowledgements than now."""
        before = {client: len(client.acknowledged) for client in self.clients}
        until_s = time.monotonic() + WITHIN_S
        while any(len(client.acknowledged) < count + more for client, count in before.items()):
            wrong = [client.wrong for client in self.clients if client.wrong]
            assert not wrong, wrong
            behind = [client.name for client, count in before.items() if len(client.acknowledged) < count + more]
            assert time.monotonic() < until_s, f"no answers: {behind}"
            time.sleep(0.02)

    def check(self, lake: tidelake.Lake) -> None:
        """Check that all that was acknowledged is in once, and nothing else but whole requests that were sent."""
        assert [client.wrong for client in self.clients if client.wrong] == []
        for protocol in {client.protocol for client in self.clients}:
            several = [client for client in self.clients if client.protocol is protocol]
            rows = lake.table(protocol.table).to_arrow(list(protocol.columns)).to_pylist()
            found = Counter(protocol.id_of(row) for row in rows)
            acknowledged = {id for client in several for id in client.acknowledged}
            offered = {id for client in several for id in client.offered}
            assert acknowledged
            assert {id: found[id] for id in acknowledged if found[id] != ROWS} == {}, protocol.name
            assert {id: count for id, count in found.items() if count != ROWS or id not in offered} == {}, protocol.name
