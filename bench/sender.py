"""Send bodies that are ready to an HTTP server, on many connections from one thread, and take the time of each answer.

    python -m bench.sender PLAN.json BODIES

It takes little of the processor that it shares with who is measured: a request is its head and its body, given to the
kernel as they are, and of an answer only the status and the length are read. It does not look at what it sends.
"""

from __future__ import annotations

import json
import os
import pickle
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

PAUSE_S = 0.05  # after a server had no room
END = b"\r\n\r\n"


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    number: int
    sent: int = 0
    began_s: float = 0.0
    left: memoryview = field(default_factory=lambda: memoryview(b""))
    answer: bytes = b""


class Sender:
    """Connections that each send a body, wait for its answer, and take the next."""

    def __init__(self, host: str, port: int, head: bytes, bodies: Sequence[bytes], connections: int) -> None:
        self._head, self._bodies = head, bodies
        self._selector = selectors.DefaultSelector()
        self._connections = []
        for number in range(connections):
            opened = socket.create_connection((host, port))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setblocking(False)
            self._connections.append(_Connection(opened, number))
        self._paused: list[tuple[float, _Connection]] = []
        self.taken: list[tuple[float, float]] = []  # when a request began, and how long it took
        self.refused = 0

    def run(self, until_s: float) -> None:
        """Send until then, and wait for what is under way."""
        for each in self._connections:
            self._selector.register(each.socket, selectors.EVENT_READ, each)
            self._begin(each)
        under_way = len(self._connections)
        while under_way:
            for key, ready in self._selector.select(PAUSE_S):
                connection: _Connection = key.data
                if ready & selectors.EVENT_WRITE:
                    self._send(connection)
                if ready & selectors.EVENT_READ and self._is_answered(connection):
                    if time.monotonic() < until_s:
                        self._begin(connection)
                    else:
                        under_way -= 1
            now_s = time.monotonic()
            while self._paused and self._paused[0][0] <= now_s:
                self._begin(self._paused.pop(0)[1])
        for each in self._connections:
            each.socket.close()

    def _begin(self, connection: _Connection) -> None:
        body = self._bodies[(connection.number * 7919 + connection.sent) % len(self._bodies)]
        key = b"%d-%d-%d" % (os.getpid(), connection.number, connection.sent)
        head = b"%bidempotency-key: %b\r\ncontent-length: %d%b" % (self._head, key, len(body), END)
        connection.began_s = time.monotonic()
        try:
            gone = connection.socket.sendmsg((head, body))
        except BlockingIOError:
            gone = 0
        if gone < len(head) + len(body):
            connection.left = memoryview(head + body)[gone:]
            self._selector.modify(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)

    def _send(self, connection: _Connection) -> None:
        try:
            connection.left = connection.left[connection.socket.send(connection.left) :]
        except BlockingIOError:
            return
        if not connection.left:
            self._selector.modify(connection.socket, selectors.EVENT_READ, connection)

    def _is_answered(self, connection: _Connection) -> bool:
        """Read what came; whether that was an answer after which the next request is due."""
        got = connection.socket.recv(65_536)
        if not got:
            raise RuntimeError("the server closed a connection")
        connection.answer += got
        head, found, rest = connection.answer.partition(END)
        if not found or len(rest) < _length(head):
            return False
        status, connection.answer = int(head[9:12]), b""
        now_s = time.monotonic()
        if status < 300:
            self.taken.append((connection.began_s, now_s - connection.began_s))
            connection.sent += 1
            return True
        if status != 503:
            raise RuntimeError(f"{head.decode()}\n{rest[:400]!r}")
        self.refused += 1
        self._paused.append((now_s + PAUSE_S, connection))
        return False


def _length(head: bytes) -> int:
    at = head.lower().find(b"content-length:")
    return 0 if at < 0 else int(head[at + 15 :].split(b"\r\n", 1)[0])


def main() -> None:
    """Send as a plan says, and print what was found as JSON."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    bodies = pickle.loads(Path(sys.argv[2]).read_bytes())
    fields = "".join(f"{name}: {value}\r\n" for name, value in plan["headers"].items())
    head = f"POST {plan['path']} HTTP/1.1\r\nhost: {plan['host']}\r\n{fields}".encode()
    sender = Sender(plan["host"], plan["port"], head, bodies, plan["connections"])
    begin_s = time.monotonic() + plan["warm_s"]
    used_s = time.process_time()
    sender.run(begin_s + plan["seconds"])
    end_s = begin_s + plan["seconds"]
    taken = [took for began, took in sender.taken if begin_s <= began + took < end_s]  # answered in that time
    print(
        json.dumps(
            {
                "answered": len(sender.taken),
                "requests_a_second": len(taken) / plan["seconds"],
                "p50_s": median(taken) if taken else None,
                "p99_s": quantiles(taken, n=100)[98] if len(taken) > 100 else None,
                "refused": sender.refused,
                "sender_cpu_s": time.process_time() - used_s,
                "body_bytes": round(mean(map(len, bodies))),
            }
        )
    )


if __name__ == "__main__":
    main()
