"""Measure the doors of a server: a stream of many rows by Flight, small questions by HTTP, a range query of PromQL.

The server is a process of its own, and so are its peers and whoever sends small questions. Beside Flight stands a plain
Flight server that reads the same rows from Parquet; beside PromQL stands Prometheus, where it is installed. It does not
measure how rows come in: see ``serve``.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq

import tidelake
from bench import promql
from bench.compiling import compile_loops
from bench.data import ROWS
from bench.report import Ratio, Report
from tests.support.servers import free_ports
from tests.support.serving import Served, serving
from tidelake.server.flight_words import message, wrapped

STREAMED = 10_000_000  # rows
CLIENTS, ASKED_S, WARM_S = 32, 10.0, 3.0
SMALL = (
    {"sql": "select count(*) c from bench.events where host = 'host7'"},
    {"sql": "select service, count(*) c, avg(value) a from bench.events group by service order by service"},
    {"kql": "bench.events | where n < 100 | project ts, service, value | order by ts asc | take 20"},
    {"sql": "select max(n) m, min(n) l from bench.events"},
)
PROCESSES = (1, 2)  # the default, and one for each core
NOT_KEPT = {"TIDELAKE_SERVE_RESULT_CACHE_BYTES": "0"}
METHOD = (
    "Flight: all rows of five columns (a time, two texts, a real, a whole number) from the first request to the last "
    "row, one endpoint after the other; the peer is pyarrow's own Flight server over one zstd Parquet file, which it "
    "reads in batches of 65,536 rows as they are asked for. Ours keeps blocks that it decoded while there is room.",
    f"HTTP: {CLIENTS} clients in a process of their own, each with a connection of its own, ask four small questions "
    "about 10,000 rows in turn for ten seconds: of a server that keeps no answers, as one process (the default) and by "
    "--processes 2; of one process that keeps them; and of it, texts that nobody asked before.",
    "PromQL: a rate over 1,000 series and six hours by HTTP, ours and Prometheus in turn, of a text that was asked "
    "before and of one that never was. No answers are kept; ours keeps columns of blocks that it decoded, with their "
    "labels numbered, and Prometheus its index.",
)


def run(folder: Path, *, rows: int = ROWS, rounds: int = 5) -> Report:
    """Measure all doors."""
    compile_loops()
    count = STREAMED * rows // ROWS
    with tidelake.connect(folder / "lake", upkeep=False) as lake:
        _fill(lake, folder, count)
    seconds: dict[str, tuple[float, ...]] = {}
    rates: dict[str, float] = {}
    ratios = []
    for processes in PROCESSES:
        with serving(folder / "lake", "--processes", str(processes), environment=NOT_KEPT) as served:
            found = _asked_by_many(served, again=True)
        name = "small questions" if processes == 1 else f"small questions of {processes} processes"
        rates[name], seconds[f"{name}, 99 of 100"] = found["rate"], (found["p99"],)
        ratios.append(Ratio(f"{name} a second against 500", 500.0, found["rate"], "/s", 1.0))
        ratios.append(Ratio(f"99 of 100 {name} against 200 ms", found["p99"], 0.2, "s", 1.0))
    with serving(folder / "lake") as served, _plain_flight(folder / "rows.parquet") as plain:
        for _ in range(2):
            _stream(served, count), _stream_plain(plain, count)
        seconds["flight"] = tuple(_stream(served, count) for _ in range(rounds))
        seconds["flight peer"] = tuple(_stream_plain(plain, count) for _ in range(rounds))
        ratios.append(
            Ratio("a stream by Flight against plain Flight from Parquet", median(seconds["flight"]),
                  median(seconds["flight peer"]), "s", 1 / 0.9)
        )  # fmt: skip
        for name, again in (("new small questions", False), ("small questions whose answers are kept", True)):
            found = _asked_by_many(served, again=again)
            rates[name], seconds[f"{name}, 99 of 100"] = found["rate"], (found["p99"],)
    ratios += _ranged(folder, rows, rounds, seconds)
    workload = f"{count:,} rows by Flight; {CLIENTS} clients of small questions; PromQL over HTTP"
    return Report("doors", workload, tuple(ratios), seconds, {}, METHOD, rates)


def _fill(lake: tidelake.Lake, folder: Path, count: int) -> None:
    """Make a large table and the same rows as Parquet, and a small table."""
    columns = {"ts": "timestamp", "service": "string", "host": "string", "value": "real", "n": "long"}
    big = lake.create_table("bench.rows", columns, flush_age="off")
    with pq.ParquetWriter(folder / "rows.parquet", _rows(0, 1).schema, compression="zstd") as writer:
        for start in range(0, count, 1_000_000):
            part = _rows(start, min(1_000_000, count - start))
            big.append(part)
            writer.write_table(part, row_group_size=65_536 * 4)
    big.flush()
    small = lake.create_table("bench.events", columns, flush_age="off")
    small.append(_rows(0, 10_000))
    small.flush()


def _rows(start: int, count: int) -> pa.Table:
    chance = np.random.default_rng(start)
    at = np.arange(start, start + count, dtype=np.int64)
    services = pa.array([f"service-{n}" for n in range(24)])
    hosts = pa.array([f"host{n}" for n in range(200)])
    return pa.table(
        {
            "ts": pa.array(1_767_225_600_000_000 + at * 1000, pa.timestamp("us", tz="UTC")),
            "service": services.take(pa.array(chance.integers(0, 24, count))),
            "host": hosts.take(pa.array(chance.integers(0, 200, count))),
            "value": chance.random(count),
            "n": at,
        }
    )


def _stream(served: Served, count: int) -> float:
    began_s = time.perf_counter()
    with flight.connect(f"grpc://{served.flight}") as client:
        told = wrapped("CommandStatementQuery", message({1: b"select * from bench.rows"}))
        info = client.get_flight_info(flight.FlightDescriptor.for_command(told))
        found = sum(_counted(client.do_get(each.ticket)) for each in info.endpoints)
    assert found == count, found
    return time.perf_counter() - began_s


def _stream_plain(address: str, count: int) -> float:
    began_s = time.perf_counter()
    with flight.connect(address) as client:
        assert _counted(client.do_get(flight.Ticket(b"rows"))) == count
    return time.perf_counter() - began_s


def _counted(stream: Any) -> int:
    return sum(chunk.data.num_rows for chunk in stream)


class _PlainFlight(flight.FlightServerBase):  # type: ignore[misc]
    """The rows of a Parquet file by Flight, as simply as that can be."""

    def __init__(self, address: str, place: str) -> None:
        self._place = place
        super().__init__(address)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Give all rows."""
        file = pq.ParquetFile(self._place)
        return flight.GeneratorStream(file.schema_arrow, file.iter_batches(65_536))


@contextmanager
def _plain_flight(place: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    address = f"grpc://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, "-m", "bench.doors", "plain", address, str(place)])
    try:
        until_s = time.monotonic() + 30
        while True:
            try:
                with flight.connect(address) as client:
                    client.wait_for_available(5)
                    break
            except (pa.ArrowException, flight.FlightError, OSError):
                if time.monotonic() > until_s:
                    raise
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def _asked_by_many(served: Served, *, again: bool) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.doors", "ask", served.url, "again" if again else "new"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def _ask(url: str, again: bool) -> dict[str, float]:
    """Ask small questions by many connections, and return how many a second were answered, and how long 99 took.

    One thread that waits for all of them: what it takes of the two cores, the server does not have.
    """
    place = urlsplit(url)
    begin_s = time.monotonic() + WARM_S
    clients = [_Client((place.hostname or "", place.port or 80), at, again) for at in range(CLIENTS)]
    with selectors.EpollSelector() as waiting:
        for each in clients:
            waiting.register(each.socket, selectors.EVENT_READ, each)
            each.ask()
        while time.monotonic() < begin_s + ASKED_S:
            for key, _ in waiting.select(1.0):
                key.data.read()
    found = [took for each in clients for began, took in each.taken if began >= begin_s]
    return {"rate": len(found) / ASKED_S, "p99": quantiles(found, n=100)[98]}


class _Client:
    """A client with a connection of its own, which asks the next question when it has the answer to the last."""

    def __init__(self, address: tuple[str, int], number: int, again: bool) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.taken: list[tuple[float, float]] = []  # when a question was asked, and how long its answer took
        self._number, self._again, self._asked = number, again, 0
        self._came = b""
        self._began_s = 0.0

    def ask(self) -> None:
        """Send a question."""
        at = (self._number + self._asked) % len(SMALL)
        ((language, text),) = SMALL[at].items()
        if not self._again:
            text = f"{text} {'--' if language == 'sql' else '//'} {self._number} {self._asked}"
        body = json.dumps({language: text}).encode()
        head = b"POST /v1/query HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._asked += 1
        self._came = b""
        self._began_s = time.monotonic()
        self.socket.sendall(head % len(body) + body)

    def read(self) -> None:
        """Read what came; once an answer is whole, ask the next."""
        self._came += self.socket.recv(65_536)
        head, found, body = self._came.partition(b"\r\n\r\n")
        if not found or not _is_whole(head.lower(), body):
            return
        assert head.startswith(b"HTTP/1.1 200 "), self._came
        self.taken.append((self._began_s, time.monotonic() - self._began_s))
        self.ask()


def _is_whole(head: bytes, body: bytes) -> bool:
    told = head.partition(b"content-length: ")[2]
    return len(body) >= int(told.partition(b"\r\n")[0]) if told else body.endswith(b"0\r\n\r\n")


def _ranged(folder: Path, rows: int, rounds: int, seconds: dict[str, tuple[float, ...]]) -> list[Ratio]:
    """Measure a range query by HTTP, of both in turn: as a text that was asked before, and as one that never was."""
    text = promql.QUESTIONS["rate"]
    asks: dict[str, Callable[[str], bytes]] = {}
    with promql.contenders(folder / "promql", rows) as (place, theirs), serving(place) as served:
        asks["query_range"] = partial(promql.asked, served.url.removeprefix("http://"))
        if theirs is not None:
            asks["query_range of Prometheus"] = theirs
        for ask in (*asks.values(), *asks.values()):
            ask(text)
        for at in range(rounds):
            for name, ask in asks.items():
                for kind, asked in ((name, text), (f"new {name}", f"{text} # {at}")):
                    seconds[kind] = (*seconds.get(kind, ()), _timed(ask, asked))
    if theirs is None:
        return []
    ours, peer = asks
    return [
        Ratio(f"{kind}query_range of a rate against Prometheus", median(seconds[f"{kind}{ours}"]),
              median(seconds[f"{kind}{peer}"]), "s", 1.0)
        for kind in ("", "new ")
    ]  # fmt: skip


def _timed(ask: Callable[[str], bytes], text: str) -> float:
    began_s = time.perf_counter()
    ask(text)
    return time.perf_counter() - began_s


if __name__ == "__main__":
    if sys.argv[1] == "plain":
        _PlainFlight(sys.argv[2], sys.argv[3]).serve()
    else:
        print(json.dumps(_ask(sys.argv[2], sys.argv[3] == "again")))
