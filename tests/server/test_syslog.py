"""Syslog over real sockets, by the standard library's own handler and by hand."""

from __future__ import annotations

import logging
import logging.handlers
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tidelake
from tests.support.servers import free_ports
from tests.support.serving import Served, serving


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def served(lake_folder: Path, port: int) -> Iterator[Served]:
    with serving(lake_folder, "--syslog-port", str(port)) as server:
        yield server


def eventually(found: Callable[[], int], wanted: int) -> None:
    until_s = time.monotonic() + 20
    while found() != wanted and time.monotonic() < until_s:
        time.sleep(0.05)
    assert found() == wanted


def count(lake: tidelake.Lake, where: str) -> int:
    try:
        return int(lake.sql(f"select count(*) c from syslog where {where}").to_arrow().to_pylist()[0]["c"])
    except tidelake.NotFoundError:
        return 0
    except tidelake.QueryError:  # no such table yet
        return 0


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_the_standard_librarys_handler(reader: tidelake.Lake, port: int, kind: int) -> None:
    handler = logging.handlers.SysLogHandler(("127.0.0.1", port), socktype=socket.SocketKind(kind))
    if kind == socket.SOCK_STREAM:
        handler.append_nul = False
        handler.setFormatter(logging.Formatter("by stream %(message)s\n"))
    try:
        for number in range(20):
            handler.emit(logging.LogRecord("x", logging.ERROR, "", 0, f"message {number} of {kind}", None, None))
    finally:
        handler.close()
    eventually(lambda: count(reader, f"message like '%of {int(kind)}%' and severity = 'error'"), 20)


def test_both_framings_on_one_connection(reader: tidelake.Lake, port: int) -> None:
    one = b'<165>1 2026-01-01T00:00:00Z box app - ID1 [x@1 k="v"] counted\nwith a line'
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for piece in (b"%d " % len(one), one[:10], one[10:], b"<13>Jan  1 00:00:00 box cron[1]: lined\n", b"<13>last"):
            connection.sendall(piece)
            time.sleep(0.01)
    eventually(lambda: count(reader, "message in ('counted\nwith a line', 'lined', 'last')"), 3)
    rows = reader.sql("select data, app from syslog where message_id = 'ID1'").to_arrow().to_pylist()
    assert [row["app"] for row in rows] == ["app"]


def test_garbage_is_kept_and_the_listener_lives(reader: tidelake.Lake, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"999999999999 \n\0\xff\xfe\n" + b"x" * 200_000 + b"\n")
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"<13>alive\n")
    eventually(lambda: count(reader, "message = 'alive'"), 1)
    eventually(lambda: count(reader, "message like 'xxxx%'"), 4)


def test_what_came_is_stored_when_the_server_stops(tmp_path: Path, port: int) -> None:
    own = free_ports(1)[0]
    with serving(tmp_path / "lake", "--syslog-port", str(own)) as server:
        with socket.create_connection(("127.0.0.1", own)) as connection:
            connection.sendall(b"".join(b"<13>one %d\n" % number for number in range(500)))
            time.sleep(0.5)
        assert server.stop() == 0
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        assert count(lake, "message like 'one%'") == 500
