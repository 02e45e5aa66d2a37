"""Be the driver that torture kills: stream numbered files into a table, from where the last one stopped."""

from __future__ import annotations

import sys

import tidelake
import tidelake.spark
from tidelake.spark.drops import stream


def main() -> None:
    folder, per_batch = sys.argv[1], sys.argv[2]
    spark = tidelake.spark.session(
        "local[2]",
        spark__driver__memory="512m",
        spark__driver__host="127.0.0.1",
        spark__local__dir=f"{folder}/local",
        spark__sql__warehouse__dir=f"{folder}/warehouse",
        spark__sql__shuffle__partitions="2",
    )
    spark.sparkContext.setLogLevel("OFF")
    print("ready", flush=True)
    with tidelake.connect(f"{folder}/lake") as lake:
        query = stream(
            lambda session: (
                session.readStream.schema("n bigint").option("maxFilesPerTrigger", per_batch).csv(f"{folder}/source")
                .selectExpr("timestamp_micros(1767225600000000 + n) as ts", "n").repartition(2)
            ),
            lake, "t", checkpoint=f"{folder}/checkpoint", every=None, spark=spark,
        )  # fmt: skip
        query.awaitTermination()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
