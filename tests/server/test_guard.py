"""Whatever comes in at any port, the server answers others: garbage, giants, those who leave and those who linger."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pyarrow as pa
import pyarrow.flight as flight
import pytest

import tidelake
from tests.support.serving import Served
from tidelake.server.flight_words import message, wrapped

ENDLESS = "select count(*) from range(3000000) a, range(3000000) b where a.id * b.id = 7"

LINGERING = 6  # who stay: more than are answered at once
SETTLED_S = 1.0  # in which those who may be answered have had what they do not read


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


def test_questions_may_be_long_but_not_endless(served: Served, client: httpx.Client) -> None:
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
    for text, status in (("x" * 1_000_000, 200), ("sum(" * 99_000, 400), ("a+" * 99_000 + "a", 400)):  # a long name
        assert client.post("/api/v1/query", data={"query": text}).status_code == status, text[:5]
    with flight.connect(f"grpc://{served.flight}") as flying:
        for text in ("x" * (1 << 20), "(" * 500_000):
            command = wrapped("CommandStatementQuery", message({1: text.encode()}))
            with pytest.raises((pa.ArrowInvalid, flight.FlightError)):
                flying.get_flight_info(flight.FlightDescriptor.for_command(command))
    assert answers(client)
    assert defects(client) == []


def test_who_leaves_ends_their_question_and_who_lingers_holds_little(served: Served, client: httpx.Client) -> None:
    lingering: list[socket.socket] = []
    before = held_bytes(served)  # earlier tests asked for much
    wide = b'{"sql": "select a.text from a.logs a, a.logs b", "format": "ndjson"}'
    for _ in range(6):  # more than are answered at once, each of some gigabytes, which nobody reads
        connection = socket.create_connection(place_of(served.url), timeout=10)
        connection.sendall(b"POST /v1/query HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(wide), wide))
        lingering.append(connection)
    time.sleep(0.5)
    assert held_bytes(served) - before < 512 << 20
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
    subquery = urlencode({"query": "max_over_time(n[9d:1s])", "time": "1767225600", "table": "a.logs"})
    for head, body in (
        (b"POST /v2/rest/query", b'{"db": "a", "csl": "logs | join kind=inner (logs) on text | summarize count()"}'),
        (b"POST /v1/rest/query", b'{"db": "a", "csl": "logs | join kind=inner (logs) on text"}'),
        (b"GET /api/v1/query?" + subquery.encode(), b""),
    ):
        for _ in range(3):
            with socket.create_connection(place_of(served.url)) as connection:
                told = b"%s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"
                connection.sendall(told % (head, len(body), body))
                time.sleep(0.02)
    assert answers(client)
    until_s = time.monotonic() + 30
    while client.get("/v1/queries").json()["queries"] and time.monotonic() < until_s:
        time.sleep(0.1)
    assert client.get("/v1/queries").json()["queries"] == []


def flood(served: Served, count: int) -> list[socket.socket]:
    """Ask for gigabytes by many connections of which none reads."""
    wide = b'{"sql": "select a.text from a.logs a, a.logs b", "format": "ndjson"}'
    asked = b"POST /v1/query HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(wide), wide)
    lingering = []
    for _ in range(count):
        connection = socket.create_connection(place_of(served.url), timeout=30)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall(asked)
        lingering.append(connection)
    return lingering


def held_bytes(served: Served) -> int:
    pages = int(Path(f"/proc/{served.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def look_at_flood(served: Served, client: httpx.Client, count: int) -> dict[str, float]:
    """Let many linger: little is held for them, others are told to come again, and some who linger give way."""
    before, began_s = held_bytes(served), time.monotonic()
    lingering = flood(served, count)
    try:
        time.sleep(SETTLED_S)
        assert client.get("/healthz").status_code == 200
        most = held_bytes(served)
        for connection in lingering[:-LINGERING]:
            connection.close()
        del lingering[:-LINGERING]
        flooded_s = time.monotonic() - began_s
        until_s = time.monotonic() + 60
        while (answer := client.post("/v1/query", json={"sql": f"select 1 as c -- after {count}"})).status_code == 503:
            assert time.monotonic() < until_s  # as many wait as may, until it is seen that they are gone
            time.sleep(0.2)
        assert answer.json() == [{"c": 1}]
        most = max(most, held_bytes(served))
    finally:
        for connection in lingering:
            connection.close()
    assert most - before < 1 << 30
    waited_s = time.monotonic() - began_s - flooded_s
    return {"connections": count, "grown_mb": (most - before) / 1e6, "flooded_s": flooded_s, "waited_s": waited_s}


def test_many_who_never_read_hold_little_and_give_way(served: Served, client: httpx.Client) -> None:
    print(look_at_flood(served, client, 100))
    assert answers(client)
    assert defects(client) == []


@pytest.mark.torture
def test_ten_thousand_who_never_read_hold_little_and_give_way(served: Served, client: httpx.Client) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(look_at_flood(served, client, min(10_000, most - 1_000)))
    assert answers(client)
    assert defects(client) == []


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
