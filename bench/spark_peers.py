"""Measure tables in Spark beside Delta and Iceberg, each on the Spark that it is made for: reads, a write, changes.

Each contender is a process in an environment of its own, which this makes by pip in ``build/bench`` and keeps; jars
come by Spark's own ``spark.jars.packages``. All hold the same rows and run the same SQL. Where others use the machine,
``TIDELAKE_BENCH_UNDER`` names a command that each process is started by, such as one that waits until it is quiet. It
does not measure in turns: a process has the machine to itself from its first round to its last.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.data import SPAN_US, START_US, log_table
from bench.report import Ratio, Report

DAYS = 5  # of the rows that other benchmarks measure with
ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "bench"
DELTA, ICEBERG = "io.delta:delta-spark_4.2_2.13:4.4.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
ON_SPARK = "org.slf4j:slf4j-api,org.xerial.snappy:snappy-java"  # what every Spark has
RUN_S = 4 * 3600
UNDER = "TIDELAKE_BENCH_UNDER"
GOALS = {
    "full scan": 0.9, "two columns, aggregated": 1.0, "write": 1.15, "count": None, "join with a small dimension": None,
}  # fmt: skip
CHANGES = ("DELETE of 1 %, scattered", "DELETE of 1 %, a time", "MERGE of 1 %")

METHOD = (
    "Ratios are of medians. Each contender is a process of its own with local[2] and 3 GB, one after the other; its "
    "first round is a warm-up, left out. A round writes the table anew, reads it, and then changes it.",
    "Tidelake and Parquet run on Spark 4.3, Delta 4.4 on Spark 4.2, Iceberg 1.12 on Spark 4.1, each with the settings "
    "that it has by default (Parquet files with zstd).",
    "Rows are five days of log rows with an id and a JSON text. A write is CREATE TABLE AS SELECT from the same "
    "Parquet files. A scan ends in Spark's noop sink.",
    "The scattered hundredth is of ids, in every extent or file; the other lies in one hour and a quarter. The merge "
    "updates a hundredth by id, and inserts those of them that were deleted.",
    "Processor time is of the driver, its JVM and all Python processes. On a machine that others use, trust it and not "
    "the clock: it says what a chore costs, though not how well it is spread over cores.",
    "That all contenders give equal answers, also after the changes, is checked.",
    "A size is what the last write added to a contender's folder. What a format keeps of tables that were dropped, and "
    "of the snapshots before a change, is not in it: how long that is kept is a setting of each.",
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A format, the environment that it needs, and how SQL names it."""

    name: str
    table: str
    using: str
    pyspark: str | None = None  # None: the Spark of this environment
    settings: dict[str, str] = field(default_factory=dict)
    changes: bool = True

    @property
    def python(self) -> str:
        """The Python of its environment, which is made if it is not there."""
        if self.pyspark is None:
            return sys.executable
        folder = ENVIRONMENTS / f"pyspark-{self.pyspark}"
        ready = folder / "ready"
        if not ready.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, f"pyspark=={self.pyspark}.*"], check=True)
            ready.touch()
        return str(folder / "bin" / "python")


CONTENDERS = (
    Contender("tidelake", "tidelake.bench.logs", "TBLPROPERTIES ('time' = 'ts')"),
    Contender("Parquet", "logs", "USING parquet", changes=False),
    Contender(
        "Delta", "logs", "USING delta", "4.2",
        {
            "spark.jars.packages": DELTA, "spark.jars.excludes": ON_SPARK,
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    ),
    Contender(
        "Iceberg", "ice.bench.logs", "USING iceberg", "4.1",
        {
            "spark.jars.packages": ICEBERG, "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.ice.type": "hadoop",
        },
    ),
)  # fmt: skip


def run(folder: Path, *, rows: int, rounds: int) -> Report:
    """Measure everything; files go to a folder that the caller removes."""
    _write_source(folder / "source", rows)
    found = {each.name: _measured(each, folder, rounds) for each in CONTENDERS}
    _check_equal({name: each["checks"] for name, each in found.items()})
    seconds = {
        f"{chore}: {name}": tuple(times) for name, each in found.items() for chore, times in each["seconds"].items()
    }
    busy = {
        f"{chore}, processor time: {name}": tuple(times)
        for name, each in found.items()
        for chore, times in each["processor"].items()
    }
    ratios = [*_ratios(seconds, ""), *_ratios(busy, ", processor time")]
    loads = ", ".join(f"{name} {each['load']:.1f}" for name, each in found.items())
    return Report(
        name="spark_peers",
        workload=f"{rows * DAYS:,} log rows of 10 columns; see bench/data.py.",
        ratios=tuple(ratios),
        seconds=seconds | busy,
        sizes={name: each["written"] for name, each in found.items()},
        method=(*METHOD, f"Load before each: {loads}."),
    )


def _ratios(seconds: Mapping[str, Sequence[float]], of: str) -> list[Ratio]:
    """Compare medians, of the clock or of processors."""
    medians = {name: median(times) for name, times in seconds.items()}
    ratios = []
    for chore, goal in GOALS.items():
        for peer in ("Parquet", "Delta", "Iceberg"):
            ours, theirs = medians[f"{chore}{of}: tidelake"], medians[f"{chore}{of}: {peer}"]
            ratios.append(Ratio(f"{chore}{of}, against {peer}", ours, theirs, "s", goal if peer == "Parquet" else None))
    for chore in CHANGES:
        theirs, better = min((medians[f"{chore}{of}: {peer}"], peer) for peer in ("Delta", "Iceberg"))
        ours = medians[f"{chore}{of}: tidelake"]
        ratios.append(Ratio(f"{chore}{of}, against {better}, the better of two", ours, theirs, "s", 1.0))
    return ratios


def _measured(contender: Contender, folder: Path, rounds: int) -> dict[str, Any]:
    own = folder / contender.name
    own.mkdir()
    settings = dict(contender.settings)
    if contender.name == "Iceberg":
        settings["spark.sql.catalog.ice.warehouse"] = str(own / "warehouse")
    start = START_US + SPAN_US
    told = {
        "name": contender.name, "table": contender.table, "using": contender.using, "settings": settings,
        "changes": contender.changes, "is_ours": contender.name == "tidelake", "folder": str(own),
        "source": str(folder / "source"), "rounds": rounds, "start_us": start,
        "end_us": start + DAYS * SPAN_US // 100,
    }  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    if contender.pyspark is not None:
        environment.pop("PYTHONPATH", None)
    command = [contender.python, "-P", str(ROOT / "bench" / "spark_peer.py"), json.dumps(told)]  # -P: not its folder
    done = subprocess.run(
        [*shlex.split(os.environ.get(UNDER, "")), *command],
        env=environment | {"SPARK_LOCAL_IP": "127.0.0.1"}, cwd=own, capture_output=True, text=True, check=False,
        timeout=RUN_S,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("found")]
    if not lines:
        raise RuntimeError(f"{contender.name} ended early: {done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(lines[0].removeprefix("found"))
    return found


def _check_equal(answers: dict[str, dict[str, Any]]) -> None:
    """Refuse figures of contenders that do not give the same answers."""
    changed = [name for name in answers if name != "Parquet"]
    for name in answers:
        for question, answer in answers["tidelake"].items():
            if question == "rows in the end" and name not in changed:
                continue
            if answers[name][question] != answer:
                raise RuntimeError(f"{name} answers {question!r} with {answers[name][question]}, and we with {answer}")


def _write_source(folder: Path, rows: int) -> None:
    """Write the rows as plain files that every contender reads."""
    folder.mkdir()
    table = log_table(rows)
    for day in range(DAYS):
        shifted = pc.add(table["ts"].cast(pa.int64()), day * SPAN_US).cast(pa.timestamp("us", tz="UTC"))
        numbers = np.arange(rows)
        text = pc.binary_join_element_wise(
            '{"http": {"status": ', table["status"].cast(pa.string()), '}, "user": "u',
            pa.array(numbers % 10_007).cast(pa.string()), '"}', "",
        )  # fmt: skip
        made = table.set_column(0, "ts", shifted).append_column("attributes", text)
        made = made.append_column("id", pa.array(numbers + day * rows))
        pq.write_table(made, folder / f"{day}.parquet", row_group_size=500_000)
