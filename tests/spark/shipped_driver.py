"""Be the driver of a cluster whose workers have a bare Python: the package and what it needs come as an archive."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pyarrow as pa

import tidelake.spark


def where_from(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say where a task has the package from."""
    import tidelake

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [tidelake.__file__]})


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = tidelake.spark.session(
        given["master"], lake=given["lake"], spark__driver__host="127.0.0.1", spark__driver__memory="768m",
        spark__executor__memory="512m", spark__archives=f"{given['archive']}#packages",
        spark__executorEnv__PYTHONPATH="packages", spark__sql__shuffle__partitions="2",
        spark__local__dir=given["folder"], spark__sql__warehouse__dir=given["folder"],
    )  # fmt: skip
    spark.sparkContext.setLogLevel("OFF")
    made = (
        "SELECT timestamp_seconds(1767225600 + id) AS ts, id AS n, parse_json('{\"a\": 1}') AS d "
        "FROM range(0, 4000, 1, 4)"
    )
    counted = "SELECT sum(n), count(d) FROM tidelake.obs.t WHERE variant_get(d, '$.a', 'int') = 1"
    spark.sql(f"CREATE TABLE tidelake.obs.t TBLPROPERTIES ('time' = 'ts') AS {made}")
    query = (
        spark.readStream.table("tidelake.obs.t").select("ts", "n").writeStream
        .option("checkpointLocation", f"{given['folder']}/checkpoint").trigger(availableNow=True)
    )  # fmt: skip
    spark.sql("CREATE TABLE tidelake.obs.copy (ts TIMESTAMP, n BIGINT) TBLPROPERTIES ('time' = 'ts')")
    query.toTable("tidelake.obs.copy").awaitTermination()
    spark.sql("UPDATE tidelake.obs.copy SET n = -1 WHERE n % 2 = 0")
    files = {row.file for row in spark.range(0, 4, 1, 2).mapInArrow(where_from, "file string").collect()}
    found = {
        "rows": spark.sql(counted).collect(),
        "copied": spark.sql("SELECT count(*), count_if(n = -1) FROM tidelake.obs.copy WHERE n < 5000").collect(),
        "shipped": all("/packages/tidelake/" in file for file in files),
    }  # fmt: skip
    print("found" + json.dumps(found, default=list), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
