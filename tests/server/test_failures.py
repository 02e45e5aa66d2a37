"""Kill the server, take its catalog away, fill its disk, leave it no room: what was acknowledged is there once.

Clients of all protocols press it meanwhile; agents that others build are in ``test_agents_apart``.
"""

from __future__ import annotations

import random
import select
import socket
import sqlite3
import time
from pathlib import Path

import psutil
import pytest

import tidelake
from tests.support.disks import small_disk
from tests.support.pressing import PROTOBUF, RETRY_S, Press
from tests.support.servers import free_ports, postgres_machine, postgres_pid, stopped
from tests.support.serving import serving
from tests.support.telemetry import logs_request

SOON = {"TIDELAKE_SERVE_DEADLINE_S": "2"}
ROOM = 1 << 20  # for all requests, in a storm
MOST_RSS_MB = 900  # of a server whose requests may hold 256 MiB


@pytest.mark.parametrize(
    ("kills", "seed", "clients"),
    [(2, 1, 1), *(pytest.param(20, seed, 4, marks=pytest.mark.torture) for seed in range(5))],
)
def test_what_was_acknowledged_is_there_once_after_kill_9(tmp_path: Path, kills: int, seed: int, clients: int) -> None:
    folder, chance, port = tmp_path / "lake", random.Random(seed), free_ports(1)[0]
    press = Press(f"http://127.0.0.1:{port}", clients)
    with press.at_work():
        for _ in range(kills):
            with serving(folder, port=port) as served:
                press.wait_for_all()
                time.sleep(chance.random() * 0.3)
                served.kill()
        with serving(folder, port=port):
            press.wait_for_all()
    with tidelake.connect(folder, upkeep=False) as lake:
        press.check(lake)


@pytest.mark.parametrize(("clients", "storms"), [(1, 1), pytest.param(8, 20, marks=pytest.mark.torture)])
def test_a_storm_of_refusals_loses_and_doubles_nothing(tmp_path: Path, clients: int, storms: int) -> None:
    little = {"TIDELAKE_SERVE_MEMORY_BYTES": str(ROOM), "TIDELAKE_SERVE_TABLE_MEMORY_BYTES": str(ROOM)}
    folder, port = tmp_path / "lake", free_ports(1)[0]
    press = Press(f"http://127.0.0.1:{port}", clients)
    with press.at_work(), serving(folder, port=port, environment=little) as served:
        for _ in range(storms):
            press.wait_for_all()
            take_all_room(port, press, refusals=7 * clients)
        press.wait_for_all()
        assert psutil.Process(served.process.pid).memory_info().rss < MOST_RSS_MB << 20
    with tidelake.connect(folder, upkeep=False) as lake:
        press.check(lake)


def take_all_room(port: int, press: Press, refusals: int) -> None:
    """Hold all memory that requests may have, with bodies that do not end, until many were refused for it.

    Others hold some of it at any time, and whoever asks for more than is left is refused. So one body takes what they
    do not need, and small ones take what becomes free; they never give it back, and soon there is no more.
    """
    until_s, wanted = time.monotonic() + 60, press.refused + refusals
    most, little = ROOM - 640 * len(press.clients), 400
    held: dict[socket.socket, int] = {}
    try:
        while press.refused < wanted:
            assert time.monotonic() < until_s, f"{wanted - press.refused} refusals are missing"
            size = little if most in held.values() else most
            endless = socket.create_connection(("127.0.0.1", port), timeout=30)
            held[endless] = size
            endless.sendall(b"POST /v1/ingest/press.rows HTTP/1.1\r\nhost: x\r\ncontent-length: 2000000\r\n\r\n")
            endless.sendall(b"x" * size)
            for answered in select.select(list(held), [], [], RETRY_S / 5)[0]:  # there was no room for it
                answered.close()
                del held[answered]
    finally:
        for each in held:
            each.close()


@pytest.mark.parametrize(
    ("how", "away_s", "times", "clients"),
    [
        ("killed", 1.0, 1, 1),
        pytest.param("killed", 30.0, 2, 4, marks=pytest.mark.torture),
        pytest.param("frozen", 30.0, 2, 4, marks=pytest.mark.torture),
    ],
)
def test_postgresql_may_go_away(tmp_path: Path, how: str, away_s: float, times: int, clients: int) -> None:
    port = free_ports(1)[0]
    press = Press(f"http://127.0.0.1:{port}", clients)
    objects = str(tmp_path / "objects")
    with postgres_machine() as machine, press.at_work():
        with serving(machine.url, "--objects", objects, port=port, environment=SOON):
            for _ in range(times):
                press.wait_for_all()
                if how == "killed":
                    machine.kill()
                    time.sleep(away_s)
                    machine.start()
                else:
                    with stopped(postgres_pid(machine.url)):
                        time.sleep(away_s + 2.5)  # longer than its deadline
            refused = press.refused
            press.wait_for_all(2)
        assert how == "killed" or refused > 0
        with tidelake.connect(machine.url, objects=objects, upkeep=False) as lake:
            press.stop()
            press.check(lake)


@pytest.mark.parametrize(("times", "clients"), [(1, 1), pytest.param(10, 4, marks=pytest.mark.torture)])
def test_a_disk_may_be_full_for_a_while(tmp_path: Path, times: int, clients: int) -> None:
    port = free_ports(1)[0]
    press = Press(f"http://127.0.0.1:{port}", clients)
    with small_disk(tmp_path / "disk", megabytes=64) as disk:
        folder = disk.root / "lake"
        with press.at_work(), serving(folder, port=port, environment=SOON):
            for _ in range(times):
                press.wait_for_all()
                refused = press.refused
                disk.fill()
                until_s = time.monotonic() + 60
                while press.refused < refused + 5 * clients:
                    assert time.monotonic() < until_s
                    time.sleep(0.05)
                disk.make_room()
            press.wait_for_all()
        with tidelake.connect(folder, upkeep=False) as lake:
            press.check(lake)


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
    with (
        small_disk(tmp_path / "disk", megabytes=16) as disk,
        serving(disk.root / "lake", environment=SOON) as served,
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
