"""Kill source and runner at random while tables are changed and altered: nothing is lost, and nothing doubled.

Of processes that are killed only those count that had committed something since they, or the source, were started.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pymongo
import pymongo.errors
import pymysql
import pytest

import tidelake
from tests.connectors.changing import TABLES, Changes, MariaChanges
from tests.connectors.conftest import Market, Shop, market_of
from tests.connectors.test_mongo import Bazaar, changed
from tests.support.databases import Machine, ferretdb_machine, mariadb_machine
from tests.support.servers import PostgresMachine, fresh_database, postgres_machine
from tidelake.connectors.definition import SYSTEM_COLUMNS
from tidelake.lake import Lake

KILLS = int(os.environ.get("TIDELAKE_KILLS", "200"))
SEED = int(os.environ.get("TIDELAKE_SEED", "7"))
POINTS = ("sync.copied", "sync.read", "sync.committed", "sync.acknowledged", "extent.written")
HOLDING = ("sync.copied", "extent.written")  # points at which a table may be locked against being altered
TARGETS = [f"crm.{name}" for name in TABLES]
SOURCES = [f"public.{name}" for name in TABLES]


STARTED_S = 120  # until a runner has committed something, on a machine that is busy
WAITING = 50  # changes meanwhile: more would be a day's work for whoever catches up


class Killed(BaseException):
    """What a process ends with that is killed."""


def check(shop: Shop, where: str) -> None:
    """Compare both tables as far as the source has columns, and see that no change is there twice."""
    for table in TABLES:
        expected = shop.rows(table)
        names = shop.names(table)
        found = [{name: row[name] for name in row if name in names} for row in shop.latest(f"crm.{table}")]
        assert sorted(found, key=repr) == expected, where
        rows = shop.lake.table(f"crm.{table}").to_arrow(list(SYSTEM_COLUMNS)).to_pylist()
        twice = [key for key, n in Counter((row["_tide_pk"], row["_tide_lsn"]) for row in rows).items() if n > 1]
        assert not twice, where


@pytest.mark.parametrize(("seed", "mode"), [(1, "log"), (2, "upsert")])
def test_what_is_synced_is_what_the_source_has_however_often_both_are_cut_off(
    shop: Shop, seed: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'tidelake'"
    )
    cut_off(shop, Changes(shop.database, seed), SOURCES, seed, lambda: shop(cut), monkeypatch, mode=mode)


@pytest.mark.parametrize("seed", [3])
def test_what_is_synced_is_what_mariadb_has_however_often_both_are_cut_off(
    market: Market, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = market.url.rpartition("/")[2]

    def cut() -> None:
        with market.database.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND user = 'root'"
            )
            for (number,) in cursor.fetchall():
                with suppress(pymysql.MySQLError):
                    cursor.execute(f"KILL {number}")

    changes = MariaChanges(market.database, seed)
    cut_off(market, changes, [f"{own}.{name}" for name in TABLES], seed, cut, monkeypatch)


def cut_off(
    shop: Shop,
    changes: Changes,
    tables: Sequence[str],
    seed: int,
    cut: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    mode: str = "log",
) -> None:
    """Change and sync, with the runner killed or the source's connections cut at random points."""
    monkeypatch.setattr("tidelake.connectors.runner.PAUSE_S", (0.0, 0.01))
    draw, left = random.Random(seed), [0]
    changes.make_tables()

    def at(point: str) -> None:
        if point not in POINTS:
            return
        if point not in HOLDING:
            changes.change()  # while somebody reads
        left[0] -= 1
        if left[0] == 0 and draw.random() < 0.5:
            raise Killed
        if left[0] == 0:
            cut()

    mortal = Lake(replace(shop.lake.handle, at=at))
    for _ in range(12):
        for _ in range(draw.randrange(6)):
            changes.change()
        left[0] = draw.randrange(1, 6)
        try:
            mortal.sync(shop.url, tables, into="crm", mode=mode)
        except (Killed, tidelake.StorageError):
            continue
    shop.lake.sync(shop.url, tables, into="crm", mode=mode)
    check(shop, f"seed {seed}")


@pytest.mark.torture
def test_two_hundred_kills_of_source_and_runner_lose_and_double_nothing(tmp_path: Path) -> None:
    with postgres_machine() as machine, tidelake.connect(tmp_path / "lake") as lake:
        url = fresh_database(machine.url)

        def opened() -> Shop:
            return Shop(url, psycopg.connect(url, autocommit=True), lake)

        killed_at_random(tmp_path, opened, machine, Changes, SOURCES)


@pytest.mark.torture
def test_two_hundred_kills_of_mariadb_and_runner_lose_and_double_nothing(tmp_path: Path) -> None:
    with mariadb_machine(installs=True) as machine, tidelake.connect(tmp_path / "lake") as lake:
        tables = [f"shop.{name}" for name in TABLES]
        killed_at_random(tmp_path, lambda: market_of(machine, lake, "shop"), machine, MariaChanges, tables)


@pytest.mark.torture
def test_kills_of_the_runner_lose_and_double_nothing_of_ferretdb(tmp_path: Path) -> None:
    """Kill the runner; and FerretDB too, but between changes: it writes its oplog after the documents, apart."""
    draw, script = random.Random(SEED), runner_of(tmp_path)
    with ferretdb_machine(installs=True) as machine, tidelake.connect(tmp_path / "lake") as lake:
        client = pymongo.MongoClient[dict[str, Any]](machine.url, tz_aware=True)
        client.local.create_collection("oplog.rs", capped=True, size=256 << 20)
        client.shop.orders.insert_one({"_id": 0})
        bazaar = Bazaar(machine.url, client, lake, client.shop)
        bazaar.synced()
        for kills in range(1, KILLS + 1):
            before = heads(lake, ["crm.orders"])
            runner = started(script)
            until_committed(lake, before, lambda: changed(client.shop.orders, draw), runner)
            until = time.monotonic() + draw.uniform(0.0, 1.5)
            while time.monotonic() < until:
                changed(client.shop.orders, draw)
            if draw.random() < 0.2:
                machine.kill()
                machine.start()
                with suppress(pymongo.errors.AutoReconnect):  # the connection that was cut is let go
                    client.admin.command("ping")
            runner.send_signal(signal.SIGKILL)
            runner.wait()
            if kills % 20 == 0 or kills == KILLS:
                lake.source("crm").run()
                assert bazaar.latest("crm.orders") == bazaar.rows("orders"), f"after {kills} kills"
                rows = lake.table("crm.orders").to_arrow(["_tide_pk", "_tide_lsn"]).to_pylist()
                assert max(Counter(tuple(row.values()) for row in rows).values()) == 1, f"after {kills} kills"
        client.close()


def runner_of(folder: Path, source: str = "crm") -> str:
    """Return a program that syncs for ever."""
    return (
        "import tidelake, tidelake.connectors.runner as r; r.PAUSE_S = (0.05, 0.2)\n"
        f"lake = tidelake.connect({str(folder / 'lake')!r})\n"
        "while True:\n"
        f"    try: lake.source({source!r}).run(follow=True)\n"
        "    except tidelake.TidelakeError as error: print(error, flush=True)\n"
    )


def killed_at_random(
    folder: Path,
    opened: Callable[[], Shop],
    machine: PostgresMachine | Machine,
    kind: type[Changes],
    tables: Sequence[str],
) -> None:
    """Change a source while a process syncs it, and kill the one or the other, again and again."""
    draw, script = random.Random(SEED), runner_of(folder)
    shop = opened()
    kind(shop.database, SEED).make_tables()
    shop.lake.sync(shop.url, tables, into="crm")
    changes, runner, kills = kind(shop.database, SEED + 1), started(script), 0
    changes._columns = 1000

    def change() -> None:
        changes.change()
        time.sleep(0.01)

    before = heads(shop.lake, TARGETS)
    while kills < KILLS:
        until_committed(shop.lake, before, change, runner)
        until = time.monotonic() + draw.uniform(0.0, 1.5)
        while time.monotonic() < until:
            change()
        kills += 1
        is_checked = kills % 20 == 0 or kills == KILLS
        if is_checked or draw.random() < 0.7:
            runner.send_signal(signal.SIGKILL)
            runner.wait()
            if is_checked:
                shop.lake.source("crm").run()
                check(shop, f"after {kills} kills")
                print(f"{kills} kills, {sum(heads(shop.lake, TARGETS).values())} commits", flush=True)
            before = heads(shop.lake, TARGETS)
            runner = started(script)
        else:
            shop.database.close()
            machine.kill()
            before = heads(shop.lake, TARGETS)
            machine.start()
            shop = opened()
            changes.database = shop.database
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    shop.lake.source("crm").run()
    check(shop, "at the end")
    assert shop.lake.source("crm").definition.state == "running"
    shop.database.close()


def heads(lake: Lake, tables: Sequence[str]) -> dict[str, int]:
    """Return how many commits each table has."""
    return {name: lake.table(name).snapshot.sequence for name in tables}


def until_committed(
    lake: Lake, before: dict[str, int], change: Callable[[], object], runner: subprocess.Popen[Any]
) -> None:
    """Change the source until a runner has committed something."""
    until, changes = time.monotonic() + STARTED_S, 0
    while heads(lake, list(before)) == before:
        if changes < WAITING:
            change()
        else:
            time.sleep(0.05)
        changes += 1
        assert runner.poll() is None, "the runner ended by itself"
        assert time.monotonic() < until, f"nothing was committed within {STARTED_S} s"


def started(script: str) -> subprocess.Popen[Any]:
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
