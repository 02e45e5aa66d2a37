"""Measure the sync of PostgreSQL and MariaDB: changes a second that one core commits, and how far behind a follower is.

It does not measure the source: its time passes too, and is told beside.
"""

from __future__ import annotations

import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psycopg
import pymysql

from bench.data import ROWS
from bench.report import Ratio, Report
from tests.support.databases import mariadb_machine
from tests.support.servers import fresh_database, postgres_server
from tidelake.lake import Lake, connect

CHANGES = 400_000  # for the whole of bench.data
CHANGES_A_CORE = 50_000  # a second
LAG_S = 2.0
LOOKS = 20
TABLE = "CREATE TABLE orders (id int PRIMARY KEY, status {text}, amount {number}(10,2), at {time} DEFAULT now())"

METHOD = (
    "One table of four columns; inserts in one transaction, then updates of all rows in another. Processor time is "
    "that of the process that syncs: decoding, writing extents, committing. The source's own is not in it, the wall "
    "clock's has both.",
    "The lag is from before a row is inserted until a reader of the lake sees it, while a follower runs.",
    "MariaDB is measured where its server is installed.",
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A database with an empty table, and what fills it."""

    url: str
    table: str
    fill: str
    do: Callable[[str], object]


def run(folder: Path, *, rows: int, rounds: int) -> Report:
    """Measure everything; the lakes go to a folder that the caller removes."""
    changes = max(CHANGES * rows // ROWS, 1_000)
    seconds: dict[str, list[float]] = {}
    for name, contenders in {"PostgreSQL": _postgres(changes), "MariaDB": _mariadb(changes)}.items():
        for number, contender in zip(range(rounds + 1), contenders, strict=False):
            with connect(folder / f"{name}{number}") as lake:
                lake.sync(contender.url, [contender.table], into="crm")
                spent, passed = _caught_up(contender, lake, changes)
                lags = _lags(contender, lake)
                lake.source("crm").remove()
            if number:  # the first one warms up
                seconds.setdefault(f"{name}: processor", []).append(spent)
                seconds.setdefault(f"{name}: wall clock", []).append(passed)
                seconds.setdefault(f"{name}: lag", []).extend(lags)
    ratios, rates = [], {}
    for name in ("PostgreSQL", "MariaDB"):
        if f"{name}: lag" not in seconds:
            continue
        rate = 2 * changes / median(seconds[f"{name}: processor"])
        ratios += [
            Ratio(f"{name}: seconds of a core for a change", 1 / rate, 1 / CHANGES_A_CORE, "s", goal=1.0),
            Ratio(f"{name}: insert to reader", median(seconds[f"{name}: lag"]), LAG_S, "s", goal=1.0),
        ]
        rates[f"{name}: changes, a second of a core"] = rate
        rates[f"{name}: changes"] = 2 * changes / median(seconds[f"{name}: wall clock"])
    return Report(
        name="connectors",
        workload=f"{changes:,} inserts and {changes:,} updates of a table.",
        ratios=tuple(ratios),
        seconds={name: tuple(values) for name, values in seconds.items()},
        sizes={},
        method=METHOD,
        rates=rates,
    )


def _postgres(changes: int) -> Iterator[Contender]:
    fill = f"INSERT INTO orders SELECT i, 'status ' || i % 7, i * 1.5 FROM generate_series(1, {changes}) i"
    with postgres_server() as server:
        while True:
            url = fresh_database(server)
            with psycopg.connect(url, autocommit=True) as database:
                database.execute(TABLE.format(text="text", number="numeric", time="timestamptz").encode())
                yield Contender(url, "public.orders", fill, _executing(database))


def _executing(database: psycopg.Connection[tuple[object, ...]]) -> Callable[[str], object]:
    return lambda statement: database.execute(statement.encode())


def _mariadb(changes: int) -> Iterator[Contender]:
    fill = f"INSERT INTO orders SELECT seq, concat('status ', seq % 7), seq * 1.5, now() FROM seq_1_to_{changes}"
    if shutil.which("mariadbd") is None:
        return
    with mariadb_machine() as machine:
        number = 0
        while True:
            number += 1
            with _opened(machine.url) as do:
                do(f"CREATE DATABASE shop{number}")
                do(f"USE shop{number}")
                do(TABLE.format(text="varchar(40)", number="decimal", time="timestamp(6)").replace("now()", "now(6)"))
                yield Contender(f"{machine.url}/shop{number}", f"shop{number}.orders", fill, do)


@contextmanager
def _opened(url: str) -> Iterator[Callable[[str], object]]:
    database = pymysql.connect(host="127.0.0.1", port=int(url.rpartition(":")[2]), user="root", autocommit=True)
    try:
        with database.cursor() as cursor:
            yield cursor.execute
    finally:
        database.close()


def _caught_up(contender: Contender, lake: Lake, changes: int) -> tuple[float, float]:
    """Return the processor's time and the clock's for reading what was changed."""
    contender.do(contender.fill)
    contender.do("UPDATE orders SET amount = amount + 1")
    spent, began = _spent(), time.perf_counter()
    report = lake.source("crm").run()
    assert report.changes == 2 * changes
    return _spent() - spent, time.perf_counter() - began


def _lags(contender: Contender, lake: Lake) -> list[float]:
    """Return how long single rows take to be seen, while a follower runs."""
    stop = threading.Event()
    follower = threading.Thread(target=lambda: lake.source("crm").run(follow=True, stop=stop))
    follower.start()
    try:
        table, found = lake.table("crm.orders"), []
        for number in range(LOOKS):
            before, began = len(table), time.perf_counter()
            contender.do(f"INSERT INTO orders (id) VALUES ({-number - 1})")
            while len(table) == before:
                time.sleep(0.01)
            found.append(time.perf_counter() - began)
        return found
    finally:
        stop.set()
        follower.join()


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
