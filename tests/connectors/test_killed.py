"""Kill source and runner at random while tables are changed and altered: nothing is lost, and nothing doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tidelake
from tests.connectors.changing import TABLES, Changes
from tests.connectors.conftest import Shop
from tests.support.servers import fresh_database, postgres_machine
from tidelake.connectors.definition import SYSTEM_COLUMNS
from tidelake.lake import Lake

KILLS = 200
POINTS = ("sync.copied", "sync.read", "sync.committed", "sync.acknowledged", "extent.written")
HOLDING = ("sync.copied", "extent.written")  # points at which a table may be locked against being altered
SOURCES = [f"public.{name}" for name in TABLES]


class Killed(BaseException):
    """What a process ends with that is killed."""


def check(shop: Shop, where: str) -> None:
    """Compare both tables as far as the source has columns, and see that no change is there twice."""
    for table in TABLES:
        expected = shop.rows(table)
        names = {column.name for column in shop.database.execute(f"SELECT * FROM {table}".encode()).description or ()}
        found = [{name: row[name] for name in row if name in names} for row in shop.latest(f"crm.{table}")]
        assert sorted(found, key=repr) == expected, where
        rows = shop.lake.table(f"crm.{table}").to_arrow(list(SYSTEM_COLUMNS)).to_pylist()
        twice = [key for key, n in Counter((row["_tide_pk"], row["_tide_lsn"]) for row in rows).items() if n > 1]
        assert not twice, where


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_synced_is_what_the_source_has_however_often_both_are_cut_off(
    shop: Shop, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.connectors.runner.PAUSE_S", (0.0, 0.01))
    draw, changes = random.Random(seed), Changes(shop.database, seed)
    changes.make_tables()
    left = [0]

    def at(point: str) -> None:
        if point not in POINTS:
            return
        if point not in HOLDING:
            changes.change()  # while somebody reads
        left[0] -= 1
        if left[0] == 0 and draw.random() < 0.5:
            raise Killed
        if left[0] == 0:
            shop(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'tidelake'"
            )

    mortal = Lake(replace(shop.lake.handle, at=at))
    for _ in range(12):
        for _ in range(draw.randrange(6)):
            changes.change()
        left[0] = draw.randrange(1, 6)
        try:
            mortal.sync(shop.url, SOURCES, into="crm")
        except (Killed, tidelake.StorageError):
            continue
    shop.lake.sync(shop.url, SOURCES, into="crm")
    check(shop, f"seed {seed}")


@pytest.mark.torture
def test_two_hundred_kills_of_source_and_runner_lose_and_double_nothing(tmp_path: Path) -> None:
    draw = random.Random(7)
    script = (
        "import tidelake, tidelake.connectors.runner as r; r.PAUSE_S = (0.05, 0.2)\n"
        f"lake = tidelake.connect({str(tmp_path / 'lake')!r})\n"
        "while True:\n"
        "    try: lake.source('crm').run(follow=True)\n"
        "    except tidelake.TidelakeError as error: print(error, flush=True)\n"
    )
    with postgres_machine() as machine, tidelake.connect(tmp_path / "lake") as lake:
        url = fresh_database(machine.url)
        database = psycopg.connect(url, autocommit=True)
        Changes(database, 7).make_tables()
        lake.sync(url, SOURCES, into="crm")
        changes, runner, kills = Changes(database, 8), started(script), 0
        changes._columns = 1000
        while kills < KILLS:
            until = time.monotonic() + draw.uniform(0.05, 2.5)
            while time.monotonic() < until:
                changes.change()
                time.sleep(0.01)
            kills += 1
            if draw.random() < 0.7:
                runner.send_signal(signal.SIGKILL)
                runner.wait()
                runner = started(script)
            else:
                database.close()
                machine.kill()
                machine.start()
                database = changes.database = psycopg.connect(url, autocommit=True)
            if kills % 20 == 0:
                runner.send_signal(signal.SIGKILL)
                runner.wait()
                lake.source("crm").run()
                check(Shop(url, database, lake), f"after {kills} kills")
                runner = started(script)
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        lake.source("crm").run()
        check(Shop(url, database, lake), "at the end")
        assert lake.source("crm").definition.state == "running"
        database.close()


def started(script: str) -> subprocess.Popen[Any]:
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
