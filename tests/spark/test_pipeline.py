"""Run the documented pipeline, kill its drivers, and compare gold with a computation of all files."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

import tidelake
import tidelake.spark
from tests.spark.pipeline_driver import documented

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).parent / "pipeline_driver.py"
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


class Raw:
    """Events in files: of a few hours, many late, some twice, some corrected."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.events: list[dict[str, Any]] = []
        self.newest: dict[str, dict[str, Any]] = {}
        self.files = 0
        folder.mkdir(parents=True)

    def write(self, rows: int) -> None:
        """Write one more file, whole."""
        chosen = [self._event() for _ in range(rows)]
        part = self.folder.parent / "part"
        part.write_text("".join(json.dumps(each) + "\n" for each in chosen))
        part.rename(self.folder / f"{self.files:05}.json")
        self.files += 1

    def _event(self) -> dict[str, Any]:
        kind = self.chance.random()
        if self.events and kind < 0.2:
            return self.chance.choice(self.events)  # it comes twice, perhaps after a correction
        if self.events and kind < 0.4:
            old = self.newest[self.chance.choice(self.events)["id"]]
            event = {**old, "revision": old["revision"] + 1, "device": self._device(), "value": self._value()}
        else:
            minute = self.chance.randrange(60 * (2 + self.files)) if kind < 0.6 else 60 * self.files
            at = BEGIN + timedelta(minutes=minute, seconds=self.chance.randrange(3600))
            event = {"ts": at.isoformat(), "id": f"e{len(self.events)}", "revision": 0, "device": self._device(),
                     "value": self._value()}  # fmt: skip
        self.events.append(event)
        self.newest[event["id"]] = event
        return event

    def _device(self) -> str:
        return self.chance.choice("abcd")

    def _value(self) -> int:
        return self.chance.randrange(-(10**12), 10**12)

    def gold(self) -> dict[tuple[datetime, str], tuple[int, int]]:
        """Return what gold must be."""
        sums: dict[tuple[datetime, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
        for event in self.newest.values():
            at = datetime.fromisoformat(event["ts"]).replace(minute=0, second=0)
            n, total = sums[at, event["device"]]
            sums[at, event["device"]] = (n + 1, total + event["value"])
        return dict(sums)


def run_and_kill(folder: Path, raw: Raw, after_s: float, rows: int) -> None:
    """Run a driver for a while, with new files before it and meanwhile, and kill it and all that it started."""
    raw.write(rows)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "SPARK_LOCAL_IP": "127.0.0.1"}
    driver = subprocess.Popen(
        [sys.executable, str(DRIVER), str(folder)], env=environment, cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert driver.stdout is not None
    with driver:
        assert driver.stdout.readline() == "ready\n"
        ends = time.monotonic() + after_s
        while time.monotonic() < ends:
            time.sleep(min(1.0, max(0.0, ends - time.monotonic())))
            raw.write(rows)
        for process in [psutil.Process(driver.pid), *psutil.Process(driver.pid).children(recursive=True)]:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
    for checkpoint in (folder / "checkpoints").glob("*"):
        begun = [file.name for file in (checkpoint / "offsets").glob("*") if file.name.isdecimal()]
        if not begun:  # killed before its first batch: Spark goes on only where nothing is, and says so
            shutil.rmtree(checkpoint)


def check_gold(spark: SparkSession, folder: Path, raw: Raw) -> None:
    """Let the pipeline come to rest in this session, and compare."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    with tidelake.connect(folder / "lake") as lake:
        tidelake.spark.register(session, lake=lake)
        page = documented()
        page["make"](session)
        for query in page["pipeline"](session, str(folder / "raw"), str(folder / "checkpoints"), availableNow=True):
            query.awaitTermination()  # one after the other, so that each has all that there is
        assert len(lake.table("bronze.events")) == sum(
            len(file.read_text().splitlines()) for file in (folder / "raw").glob("*.json")
        )
        silver = {row["id"]: row["revision"] for row in lake.table("silver.events").to_arrow().to_pylist()}
        assert silver == {id: event["revision"] for id, event in raw.newest.items()}
        gold = lake.table("gold.hourly").to_arrow().to_pylist()
        found = {(row["hour"], row["device"]): (row["n"], row["total"]) for row in gold}
        assert len(found) == len(gold)
        assert found == raw.gold()


def test_gold_is_exact_after_a_driver_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    raw = Raw(tmp_path / "raw", seed=5)
    run_and_kill(tmp_path, raw, raw.chance.uniform(1.0, 4.0), 40)
    raw.write(40)
    check_gold(spark, tmp_path, raw)


@pytest.mark.torture
def test_gold_is_exact_after_drivers_are_killed_at_random(spark: SparkSession, tmp_path: Path) -> None:
    raw = Raw(tmp_path / "raw", seed=int(os.environ.get("TIDELAKE_SEED", "1")))
    for _ in range(int(os.environ.get("TIDELAKE_KILLS", "15"))):
        run_and_kill(tmp_path, raw, raw.chance.uniform(0.2, 15.0), raw.chance.choice([5, 60, 400]))
    check_gold(spark, tmp_path, raw)
