"""Be the driver of the cluster's test: load, stream, read, as a user's program would."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

import tidelake
import tidelake.spark
from tidelake.spark.jobs import load


def troubled(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fail the first attempt of one task, and let that of another be so slow that Spark runs it a second time."""
    context = TaskContext.get()
    assert context is not None
    part, attempt = context.partitionId(), context.attemptNumber()
    Path(folder, f"attempt-{part}-{attempt}").touch()
    yield from batches
    if part == 0 and attempt == 0:
        time.sleep(20)
    if part == 1 and attempt == 0:
        raise RuntimeError("this attempt fails after it has written")


def main() -> None:
    given = json.loads(sys.argv[1])
    folder = Path(given["folder"])
    spark = tidelake.spark.session(
        given["master"],
        spark__driver__host="127.0.0.1",
        spark__driver__memory="768m",
        spark__executor__memory="512m",
        spark__executor__extraJavaOptions=os.environ["SPARK_SUBMIT_OPTS"],
        spark__submit__pyFiles=given["package"],
        spark__sql__shuffle__partitions="2",
        spark__task__maxFailures="8",
        spark__speculation="true",
        spark__speculation__interval="50ms",
        spark__speculation__quantile="0.5",
        spark__speculation__minTaskRuntime="200ms",
        spark__speculation__efficiency__enabled="false",
        spark__local__dir=str(folder / "local"),
        spark__sql__warehouse__dir=str(folder / "warehouse"),
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.sparkContext.addPyFile(given["package"])
    store = {"objects": given["objects"], "endpoint": given["endpoint"], "key": given["key"], "secret": given["secret"]}
    with tidelake.connect(given["catalog"], **store) as lake:
        lines = "".join(f"2026-01-01T00:00:{n % 60:02}Z,{n}\n" for n in range(3_000))
        (folder / "rows.csv").write_text("ts,n\n" + lines)
        loaded = load(lake, "loaded", str(folder / "rows.csv"), spark=spark).rows
        lake.create_table("streamed", {"ts": "timestamp", "n": "long"}, time="ts")
        lake.create_table("troubled", {"ts": "timestamp", "n": "long"}, time="ts", flush_age="off")
        rows = spark.range(0, 4_000, 1, 4).mapInArrow(partial(troubled, given["folder"]), "id long")
        rows = rows.selectExpr("timestamp_seconds(1767225600 + id) as ts", "id as n")
        source = folder / "source"
        source.mkdir()
        options = {
            "lake": given["catalog"], "objects": given["objects"], "endpoint": given["endpoint"],
            "accessKey": given["key"], "secretKey": given["secret"],
        }  # fmt: skip
        writer = rows.write.format("tidelake").options(**options, table="troubled", extentBytes="8000")
        writer.mode("append").save()
        attempts = [len(list(folder.glob(f"attempt-{part}-*"))) for part in (0, 1)]
        troubled_numbers = lake.table("troubled").to_arrow(["n"])["n"].to_pylist()
        offered = 0
        for file in range(12):
            (source / f"{file}.csv").write_text("".join(f"{n}\n" for n in range(offered, offered + 500)))
            offered += 500
        frame = spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 2).csv(str(source))
        query = (
            frame.selectExpr("current_timestamp() as ts", "n").repartition(4)
            .writeStream.format("tidelake").options(**options, table="streamed")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        while query.isActive and lake.table("streamed").snapshot.sequence < 2:
            time.sleep(0.05)
        print("streaming", flush=True)
        sys.stdin.readline()
        query.awaitTermination()
        read = spark.read.format("tidelake").options(**options, table="loaded").load().where("n >= 0").count()
        tidelake.spark.register(spark, lake=lake)  # executors have neither the catalog's classes nor who answers it
        spark.sql("CREATE TABLE tidelake.obs.copied AS SELECT n FROM tidelake.default.loaded WHERE n >= 1000")
        spark.sql("INSERT INTO tidelake.obs.copied SELECT n FROM tidelake.default.loaded WHERE n < 10")
        copied = spark.sql("SELECT count(*) FROM tidelake.obs.copied WHERE n >= 5").collect()[0][0]
        shown = [value for name, value in spark.conf.getAll.items() if name.startswith("spark.sql.catalog.")]
        secrets = [value for value in shown if given["secret"] in value or value == given["key"]]
        numbers = lake.table("streamed").to_arrow(["n"])["n"].to_pylist()
        found = {
            "loaded": loaded,
            "streamed": len(numbers),
            "distinct": len(set(numbers)),
            "offered": offered,
            "read": read,
            "copied": copied,
            "secrets": len(secrets),
            "troubled": sorted(troubled_numbers) == list(range(4_000)),
            "attempts": attempts,
        }
    print("found" + json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
