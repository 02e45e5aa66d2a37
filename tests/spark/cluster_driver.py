"""Be the driver of the cluster's test: load, stream, read, as a user's program would."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import tidelake
import tidelake.spark
from tidelake.spark.jobs import load


def main() -> None:
    given = json.loads(sys.argv[1])
    folder = Path(given["folder"])
    spark = tidelake.spark.session(
        given["master"],
        spark__driver__host="127.0.0.1",
        spark__driver__memory="768m",
        spark__executor__memory="512m",
        spark__submit__pyFiles=given["package"],
        spark__sql__shuffle__partitions="2",
        spark__task__maxFailures="8",
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
        source = folder / "source"
        source.mkdir()
        options = {
            "lake": given["catalog"], "objects": given["objects"], "endpoint": given["endpoint"],
            "accessKey": given["key"], "secretKey": given["secret"],
        }  # fmt: skip
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
        numbers = lake.table("streamed").to_arrow(["n"])["n"].to_pylist()
        found = {
            "loaded": loaded,
            "streamed": len(numbers),
            "distinct": len(set(numbers)),
            "offered": offered,
            "read": read,
        }
    print("found" + json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
