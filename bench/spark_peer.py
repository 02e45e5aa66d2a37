"""Be one contender of ``spark_peers``, in an environment of its own: ``python spark_peer.py '{"name": "Delta", …}'``.

It does the same with whichever format it is told, by SQL alone, and prints the seconds of every round as JSON: those on
the clock, and those of processors that it, its JVM and all that these started took. It needs pyspark and nothing else
of this project, unless the format is ours.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE = "spark.driver.memory"
HUNDREDTH = 100  # of the rows, for each round another


def main(told: dict[str, Any]) -> None:
    """Measure what is told."""
    load = os.getloadavg()[0]
    spark = _session(told)
    spark.sparkContext.setLogLevel("OFF")
    spark.read.parquet(told["source"]).createOrReplaceTempView("source")
    spark.sql("SELECT DISTINCT host, substr(host, 6, 2) AS region FROM source").createOrReplaceTempView("found_hosts")
    spark.createDataFrame(spark.table("found_hosts").collect(), "host STRING, region STRING").createOrReplaceTempView(
        "hosts"
    )
    seconds: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    checks: dict[str, Any] = {}
    for round in range(told["rounds"] + 1):
        for name, run in _chores(spark, told, round).items():
            gc.collect()
            begin, busy = time.perf_counter(), processor_seconds()
            found = run()
            seconds.setdefault(name, []).append(time.perf_counter() - begin)
            processor.setdefault(name, []).append(processor_seconds() - busy)
            if round == 1 and found is not None:
                checks[name] = found
    checks["rows in the end"] = spark.sql(f"SELECT count(*), sum(id) FROM {told['table']}").collect()[0][:]
    rounds, busy_rounds = ({name: each[1:] for name, each in every.items()} for every in (seconds, processor))
    measured = {"seconds": rounds, "processor": busy_rounds, "checks": checks, "load": load}
    print("found" + json.dumps({**measured, "written": told["written"]}))
    spark.stop()


def processor_seconds() -> float:
    """Return what this process, all that it started and what these waited for have taken of processors so far."""
    parents, ticks = {}, {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(name)], ticks[int(name)] = int(fields[1]), sum(map(int, fields[11:15]))
    own = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(each, 0) for each in own) / os.sysconf("SC_CLK_TCK")


def stored_bytes(folder: str) -> int:
    """Add up what a contender keeps in its folder, but for what Spark itself put aside."""
    total = 0
    for path, folders, files in os.walk(folder):
        if path == folder and "spark" in folders:
            folders.remove("spark")
        total += sum(os.path.getsize(os.path.join(path, file)) for file in files)
    return total


def _session(told: dict[str, Any]) -> SparkSession:
    settings = {
        LARGE: "3g", "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2", "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.warehouse.dir": f"{told['folder']}/warehouse", "spark.local.dir": f"{told['folder']}/spark",
        **told["settings"],
    }  # fmt: skip
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if told["is_ours"]:
        import tidelake.spark

        given = {name.replace(".", "__"): value for name, value in settings.items()}
        return tidelake.spark.session("local[2]", lake=f"{told['folder']}/lake", **given)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _chores(spark: SparkSession, told: dict[str, Any], round: int) -> dict[str, Callable[[], Any]]:
    """Return what a round does, in order: a write, four reads, and where the format has them, changes."""
    table = told["table"]

    def ask(text: str) -> Callable[[], Any]:
        return lambda: [row[:] for row in spark.sql(text).collect()]

    def write() -> None:
        spark.sql(f"DROP TABLE IF EXISTS {table}")
        before = stored_bytes(told["folder"])  # some formats keep for a while what was dropped
        spark.sql(f"CREATE TABLE {table} {told['using']} AS SELECT * FROM source")
        told["written"] = stored_bytes(told["folder"]) - before

    def scan() -> None:
        spark.table(table).write.format("noop").mode("overwrite").save()

    chores: dict[str, Callable[[], Any]] = {
        "write": write,
        "full scan": scan,
        "two columns, aggregated": ask(
            f"SELECT service, round(avg(duration_ms), 6) FROM {table} GROUP BY service ORDER BY service"
        ),
        "count": ask(f"SELECT count(*) FROM {table}"),
        "join with a small dimension": ask(
            f"SELECT region, count(*), round(avg(duration_ms), 6) FROM {table} JOIN hosts USING (host) "
            "GROUP BY region ORDER BY region"
        ),
    }
    if not told["changes"]:
        return chores
    some = f"id % {HUNDREDTH} = {round}"
    changed = f"SELECT * EXCEPT (duration_ms), duration_ms + 1 AS duration_ms FROM source WHERE id % {HUNDREDTH} = 50"

    def run(text: str) -> Callable[[], None]:
        def change() -> None:
            spark.sql(text).collect()  # some formats tell how many rows it was

        return change

    chores["DELETE of 1 %, scattered"] = run(f"DELETE FROM {table} WHERE {some}")
    chores["DELETE of 1 %, a time"] = run(
        f"DELETE FROM {table} WHERE ts >= timestamp_micros({told['start_us']}) "
        f"AND ts < timestamp_micros({told['end_us']})"
    )
    chores["MERGE of 1 %"] = run(
        f"MERGE INTO {table} t USING ({changed}) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET duration_ms = s.duration_ms WHEN NOT MATCHED THEN INSERT *"
    )
    return chores


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
