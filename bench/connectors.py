"""Measure the sync of PostgreSQL: changes a second that one core commits, and how far behind a follower is.

It does not measure the source: its time passes too, and is told beside.
"""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from bench.data import ROWS
from bench.report import Ratio, Report
from tests.support.servers import fresh_database, postgres_server
from tidelake.lake import Lake, connect

CHANGES = 400_000  # for the whole of bench.data
CHANGES_A_CORE = 50_000  # a second
LAG_S = 2.0
LOOKS = 20
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, status text, amount numeric(10,2), at timestamptz DEFAULT now())"

METHOD = (
    "One table of four columns; inserts in one transaction, then updates of all rows in another. Processor time is "
    "that of the process that syncs: decoding, writing extents, committing. PostgreSQL's own is not in it, the wall "
    "clock's has both.",
    "The lag is from before a row is inserted until a reader of the lake sees it, while a follower runs.",
)


def run(folder: Path, *, rows: int, rounds: int) -> Report:
    """Measure everything; the lake goes to a folder that the caller removes."""
    changes = max(CHANGES * rows // ROWS, 1_000)
    seconds: dict[str, list[float]] = {"processor": [], "wall clock": [], "lag": []}
    with postgres_server() as server:
        for number in range(rounds + 1):
            url = fresh_database(server)
            with psycopg.connect(url, autocommit=True) as database, connect(folder / f"lake{number}") as lake:
                database.execute(ORDERS)
                lake.sync(url, ["public.orders"], into="crm")
                found = _caught_up(database, lake, changes)
                lag = _lags(database, lake)
                lake.source("crm").remove()
            if number:  # the first one warms up
                seconds["processor"].append(found[0])
                seconds["wall clock"].append(found[1])
                seconds["lag"] += lag
    rate = 2 * changes / median(seconds["processor"])
    return Report(
        name="connectors",
        workload=f"{changes:,} inserts and {changes:,} updates of a table of PostgreSQL.",
        ratios=(
            Ratio("seconds of a core for a change", 1 / rate, 1 / CHANGES_A_CORE, "s", goal=1.0),
            Ratio("from an insert until it is read in the lake", median(seconds["lag"]), LAG_S, "s", goal=1.0),
        ),
        seconds={name: tuple(values) for name, values in seconds.items()},
        sizes={},
        method=METHOD,
        rates={"changes, a second of a core": rate, "changes": 2 * changes / median(seconds["wall clock"])},
    )


def _caught_up(database: psycopg.Connection[Any], lake: Lake, changes: int) -> tuple[float, float]:
    """Return the processor's time and the clock's for reading what was changed."""
    series = f"generate_series(1, {changes}) i"
    database.execute(f"INSERT INTO orders SELECT i, 'status ' || i % 7, i * 1.5 FROM {series}".encode())
    database.execute("UPDATE orders SET amount = amount + 1")
    spent, began = _spent(), time.perf_counter()
    report = lake.source("crm").run()
    assert report.changes == 2 * changes
    return _spent() - spent, time.perf_counter() - began


def _lags(database: psycopg.Connection[Any], lake: Lake) -> list[float]:
    """Return how long single rows take to be seen, while a follower runs."""
    stop = threading.Event()
    follower = threading.Thread(target=lambda: lake.source("crm").run(follow=True, stop=stop))
    follower.start()
    try:
        table, found = lake.table("crm.orders"), []
        for number in range(LOOKS):
            before, began = len(table), time.perf_counter()
            database.execute("INSERT INTO orders (id) VALUES (%s)", [-number - 1])
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
