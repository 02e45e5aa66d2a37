"""Kill the driver of a stream again and again, fail its tasks, run them twice: every row is in once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

import tidelake
from tidelake.lake import Lake
from tidelake.spark.types import spark_schema
from tidelake.spark.writing import StreamWriter

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).parent / "stream_driver.py"
FILE_ROWS = 300


def run_until_killed(folder: Path, after_s: float | None, per_batch: int) -> bool:
    """Run the driver, and kill it and all it started so long after it was ready; say whether it came to its end."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "SPARK_LOCAL_IP": "127.0.0.1"}
    driver = subprocess.Popen(
        [sys.executable, str(DRIVER), str(folder), str(per_batch)],
        env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert driver.stdout is not None
    with driver:
        assert driver.stdout.readline() == "ready\n"
        if after_s is None:
            return driver.stdout.readline() == "done\n"
        time.sleep(after_s)
        for process in [psutil.Process(driver.pid), *psutil.Process(driver.pid).children(recursive=True)]:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        return driver.stdout.readline() == "done\n"


def tortured(folder: Path, *, kills: int, files: int, per_batch: int, seed: int) -> Lake:
    rng = random.Random(seed)
    (folder / "source").mkdir()
    for file in range(files):
        rows = "".join(f"{n}\n" for n in range(file * FILE_ROWS, (file + 1) * FILE_ROWS))
        (folder / "source" / f"{file:04}.csv").write_text(rows)
    lake = tidelake.connect(folder / "lake")
    lake.create_table("t", {"ts": "timestamp", "n": "long"}, time="ts")
    for _ in range(kills):
        if run_until_killed(folder, rng.uniform(0.5, 12.0), per_batch):
            break
    assert run_until_killed(folder, None, per_batch)
    return lake


def check_every_row_is_in_once(lake: Lake, rows: int) -> None:
    assert sorted(lake.table("t").to_arrow(["n"])["n"].to_pylist()) == list(range(rows))
    committed = {extent.key for extent in lake.table("t").extents()}
    folders = {pending.key for pending in lake.catalog.pending()} | {
        garbage.key for garbage in lake.catalog.garbage(before_us=2**62)
    }
    for meta in lake.store.list("data"):  # whatever is not committed is known to the catalog
        assert meta.key in committed or meta.key in folders or meta.key.rpartition("/")[0] in folders


@pytest.mark.torture
def test_driver_killed_at_twenty_points_leaves_every_row_in_once(tmp_path: Path) -> None:
    with tortured(tmp_path, kills=20, files=120, per_batch=2, seed=1) as lake:
        check_every_row_is_in_once(lake, 120 * FILE_ROWS)


def test_lost_and_repeated_attempts_leave_every_row_in_once(tmp_path: Path) -> None:
    """Write every task twice, as after a lost executor or by speculation, and commit one of the two; commit twice."""
    with tidelake.connect(tmp_path / "lake") as lake:
        lake.create_table("t", {"ts": "timestamp", "n": "long"}, time="ts")
        options = {"lake": lake.where, "table": "t", "extentBytes": "20000"}
        schema = spark_schema(lake.table("t").schema)
        for number in range(3):
            writer = StreamWriter(options, schema)
            writer.__getstate__()  # as when it is sent to tasks
            tasks = [numbered(number * 4_000 + at) for at in (0, 2_000)]
            attempts = [[writer.write(iter([task])) for _ in range(2)] for task in tasks]
            chosen = [replace(several[1], query="q") for several in attempts]
            committer = StreamWriter(options, schema)
            for _ in range(2):
                committer.commit(list(chosen), number)
        restarted = StreamWriter(options, schema)
        restarted.__getstate__()
        again = replace(restarted.write(iter([numbered(0)])), query="q")
        StreamWriter(options, schema).commit([again], 2)  # the last batch, written anew
        check_every_row_is_in_once(lake, 12_000)
        assert lake.catalog.pending() == []


def numbered(first: int) -> pa.RecordBatch:
    numbers = range(first, first + 2_000)
    times = pa.array([10**15 + n for n in numbers], pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([times, pa.array(numbers, pa.int64())], names=["ts", "n"])
