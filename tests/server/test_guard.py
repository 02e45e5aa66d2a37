"""Whatever comes in at any port, the server answers others: garbage, giants, those who leave and those who linger."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

import tidelake
from tests.support.serving import Served

ENDLESS = "select count(*) from range(3000000) a, range(3000000) b where a.id * b.id = 7"


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("guard") / "lake"
    with tidelake.connect(place, upkeep=False) as lake:
        rows = [{"ts": "2026-01-01T00:00:00Z", "n": n, "text": "x" * 1000} for n in range(2000)]
        lake.create_table("a.logs", {"ts": "timestamp", "n": "long", "text": "string"}).append(rows)
    return place


def place_of(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("http://").rpartition(":")
    return host, int(port)


def answers(client: httpx.Client) -> bool:
    found: list[dict[str, int]] = client.post("/v1/query", json={"sql": "select count(*) c from a.logs"}).json()
    return found == [{"c": 2000}]


def defects(client: httpx.Client) -> list[str]:
    return [line for line in client.get("/metrics").text.splitlines() if line.startswith("tidelake_defects_total")]


def test_garbage_on_every_port_is_closed_or_refused(served: Served, client: httpx.Client) -> None:
    pieces = [
        b"\x00" * 64,
        b"\xff" * 4096,
        os.urandom(2048),
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]
    pieces += [
        b"POST /v1/query HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/query HTTP/1.1\r\nhost: x\r\n" + b"a" * 70_000,
    ]
    for address in (served.url, served.otlp, served.flight):
        for piece in pieces:
            with socket.create_connection(place_of(address), timeout=10) as connection:
                try:
                    connection.sendall(piece)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65_536):
                        pass
                except OSError:
                    pass  # it hung up, as it may
    assert answers(client)
    assert defects(client) == []


def test_questions_may_be_long_but_not_endless(client: httpx.Client) -> None:
    in_list = "select n from a.logs where n in (" + ",".join(map(str, range(20_000))) + ") order by n limit 1"
    assert client.post("/v1/query", json={"sql": in_list}).json() == [{"n": 0}]
    for language, text in (
        ("sql", "x" * (1 << 20)),
        ("sql", "(" * 500_000),
        ("sql", "select " + "1+" * 400_000 + "1"),
        ("kql", "a.logs | where " + "n == 1 or " * 90_000),
    ):
        body = {language: text, "budget": {"seconds": 0.5}}
        assert client.post("/v1/query", json=body).status_code in (400, 413, 504), text[:20]
    for path in ("/v2/rest/query", "/v1/rest/mgmt"):
        assert client.post(path, json={"db": "a", "csl": "x" * (1 << 20)}).status_code in (400, 413)
    assert client.get("/api/v1/query", params={"query": "sum(" * 5000}).status_code == 400
    assert answers(client)
    assert defects(client) == []


def test_who_leaves_ends_their_question_and_who_lingers_holds_little(served: Served, client: httpx.Client) -> None:
    lingering: list[socket.socket] = []
    wide = b'{"sql": "select a.text from a.logs a, a.logs b", "format": "ndjson"}'
    for _ in range(6):  # more than are answered at once, each of some gigabytes, which nobody reads
        connection = socket.create_connection(place_of(served.url), timeout=10)
        connection.sendall(b"POST /v1/query HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(wide), wide))
        lingering.append(connection)
    time.sleep(0.5)
    pages = int(Path(f"/proc/{served.process.pid}/statm").read_text().split()[1])
    assert pages * os.sysconf("SC_PAGE_SIZE") < 1 << 30
    for connection in lingering:
        connection.close()
    assert answers(client)
    body = b'{"sql": "%s"}' % ENDLESS.encode()
    for _ in range(6):
        with socket.create_connection(place_of(served.url)) as connection:
            connection.sendall(
                b"POST /v1/query HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
            )
            time.sleep(0.02)
    assert answers(client)
    until_s = time.monotonic() + 30
    while client.get("/v1/queries").json()["queries"] and time.monotonic() < until_s:
        time.sleep(0.1)
    assert client.get("/v1/queries").json()["queries"] == []


def test_one_clients_questions_do_not_keep_another_waiting(served: Served, client: httpx.Client) -> None:
    def ask() -> None:
        with served.client() as own:
            own.post("/v1/query", json={"sql": ENDLESS, "budget": {"seconds": 3}})

    busy = [threading.Thread(target=ask) for _ in range(8)]
    for each in busy:
        each.start()
    time.sleep(0.3)
    assert client.get("/v1/tables").status_code == 200  # what the catalog knows does not wait for questions
    assert client.get("/healthz").status_code == 200
    for each in client.get("/v1/queries").json()["queries"]:
        client.delete(f"/v1/queries/{each['id']}")
    for each in busy:
        each.join(30)
    assert answers(client)
