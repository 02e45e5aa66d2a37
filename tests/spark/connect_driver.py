"""Be a client of a Connect server: read, write, stream, use the catalog, and print what came of it as JSON.

It does not start the server.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tidelake
import tidelake.spark


def main(url: str, folder: Path) -> None:
    """Do everything in a folder that the server sees, too."""
    spark = tidelake.spark.register(SparkSession.builder.remote(url).getOrCreate())
    found = {step.__name__: tried(step, spark, folder) for step in (batch, stream, catalog, refused)}
    print("found" + json.dumps(found, default=str), flush=True)
    spark.stop()


def tried(step: Callable[[SparkSession, Path], Any], spark: SparkSession, folder: Path) -> Any:
    try:
        return step(spark, folder)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:1500]}"


def options(folder: Path, table: str) -> dict[str, str]:
    return {"lake": str(folder / "lake"), "table": table}


def batch(spark: SparkSession, folder: Path) -> Any:
    """Write a frame, and read it."""
    rows = spark.range(100).selectExpr("timestamp_seconds(1767225600 + id) AS ts", "id AS n")
    rows.write.format("tidelake").options(**options(folder, "obs.logs")).mode("append").save()
    frame = spark.read.format("tidelake").options(**options(folder, "obs.logs")).load()
    first = spark.range(1).selectExpr("timestamp_seconds(1767225600) AS ts", "0L AS n")
    replaced = first.write.format("tidelake").options(**options(folder, "obs.logs"), replaceWhere="n == 0")
    replaced.mode("overwrite").save()
    return [frame.count(), frame.where("n >= 90").count(), frame.where("n < 3").join(frame.where("n > 1"), "n").count()]


def stream(spark: SparkSession, folder: Path) -> Any:
    """Stream one table into another."""
    source = spark.readStream.format("tidelake").options(**options(folder, "obs.logs")).load()
    query = (
        source.writeStream.format("tidelake").options(**options(folder, "obs.copy"))
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return spark.read.format("tidelake").options(**options(folder, "obs.copy")).load().count()


def catalog(spark: SparkSession, folder: Path) -> Any:
    """Use the server's catalog by SQL and by names."""
    spark.sql("CREATE TABLE tidelake.obs.few AS SELECT n FROM tidelake.obs.logs WHERE n < 4 OR n = 50")
    spark.sql("INSERT INTO tidelake.obs.few SELECT 1000L")
    spark.sql("DELETE FROM tidelake.obs.few WHERE n = 50")
    spark.range(3).selectExpr("id AS n").writeTo("tidelake.obs.few").append()
    asked = (
        "SELECT count(*), max(n) FROM tidelake.obs.few", "SELECT count(*) FROM tidelake.obs.few VERSION AS OF 2",
        "SHOW TABLES IN tidelake.obs", "SELECT n FROM tidelake.obs.logs ORDER BY ts DESC LIMIT 2",
    )  # fmt: skip
    found = [[tuple(row) for row in spark.sql(text).collect()] for text in asked]
    return [*found, len(spark.sql("CALL tidelake.system.compact('obs.few')").collect())]


def refused(spark: SparkSession, folder: Path) -> Any:
    """Say in a line what a client cannot have."""
    said = []
    for attempt in (
        lambda: tidelake.spark.register(spark, lake=folder / "lake"),
        lambda: tidelake.spark.explain(spark.range(1)),
    ):
        try:
            attempt()
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
