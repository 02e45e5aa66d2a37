"""Read, write, stream and use the catalog on whichever Spark this Python has, and print what came of it as JSON.

It does not judge: ``test_lines`` compares what the lines of Spark say.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import tidelake
import tidelake.spark
from tidelake.spark.lines import HAS_LIMITS

COLUMNS = {
    "ts": "TIMESTAMP", "n": "BIGINT", "name": "STRING", "x": "DOUBLE", "ok": "BOOLEAN", "day": "DATE",
    "wall": "TIMESTAMP_NTZ", "price": "DECIMAL(12,3)", "raw": "BINARY", "st": "STRUCT<a: INT, b: STRING>",
    "ar": "ARRAY<BIGINT>", "m": "MAP<STRING, DOUBLE>", "d": "VARIANT",
}  # fmt: skip
ROWS = 400  # in four commits
MADE = """
    SELECT timestamp_seconds(1772323200 + id * 60) AS ts, id AS n, concat('é', id % 7) AS name,
        IF(id % 5 = 0, NULL, id / 4D) AS x, id % 2 = 0 AS ok, date_add(date'2026-01-01', CAST(id AS INT)) AS day,
        timestamp_ntz'2026-01-01 00:00:00' + make_dt_interval(0, CAST(id AS INT)) AS wall,
        CAST(id AS DECIMAL(12,3)) / 8 AS price, CAST(concat('b', id) AS BINARY) AS raw,
        named_struct('a', CAST(id AS INT), 'b', 'x') AS st, array(id, id + 1) AS ar, map('k', CAST(id AS DOUBLE)) AS m,
        parse_json(concat('{{"a": ', id % 3, '}}')) AS d
    FROM range({0}, {1})
"""  # fmt: skip
SHOWN = "n, ts, name, x, ok, day, wall, CAST(price AS STRING) p, hex(raw) r, st, ar, m, to_json(d) d"


def main(folder: Path) -> None:
    """Do everything in a folder."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        spark = tidelake.spark.session(
            "local[2]", lake=folder / "lake", spark__sql__session__timeZone="UTC", spark__driver__memory="1g",
            spark__sql__warehouse__dir=str(folder / "warehouse"), spark__sql__shuffle__partitions="2",
        )  # fmt: skip
    spark.sparkContext.setLogLevel("OFF")
    said = sorted(str(each.message).split(" here")[0] for each in told if str(each.message).startswith("tidelake"))
    found: dict[str, Any] = {"version": pyspark.__version__, "missing": said}
    for step in (batch, stream, sql_table, catalog, changes, buckets, join, query):
        found[step.__name__] = tried(step, spark, folder)
    print("found" + json.dumps(found, default=str), flush=True)
    spark.stop()


def tried(step: Callable[[SparkSession, Path], Any], spark: SparkSession, folder: Path) -> Any:
    """Return what a step gives, or how it fails."""
    try:
        return step(spark, folder)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:1500]}"


def options(folder: Path, table: str) -> dict[str, str]:
    return {"lake": str(folder / "lake"), "table": table}


def batch(spark: SparkSession, folder: Path) -> Any:
    """Write frames, overwrite some rows, and read them by filters."""
    with tidelake.connect(folder / "lake") as lake:
        columns = {"ts": "timestamp", "n": "long"}
        lake.create_table("t", columns, time="ts", flush_age="off")
    where = options(folder, "t")
    for at in range(0, ROWS, 100):
        made = spark.sql(MADE.format(at, at + 100))
        made.write.format("tidelake").options(**where, key=f"k{at}").mode("append").save()
        made.write.format("tidelake").options(**where, key=f"k{at}").mode("append").save()  # once is enough
        with tidelake.connect(folder / "lake") as lake:
            lake.table("t").flush()
    again = spark.sql(MADE.format(0, 10)).selectExpr("* except (name)", "'new' AS name")
    again.write.format("tidelake").options(**where, replaceWhere="n < 10").mode("overwrite").save()
    frame = spark.read.format("tidelake").options(**where).load()
    frame.createOrReplaceTempView("rows_of_t")
    shown = spark.sql(f"SELECT {SHOWN} FROM rows_of_t WHERE n IN (0, 5, 11, 399) ORDER BY n").collect()
    with tidelake.connect(folder / "lake") as lake:
        path = lake.table("t").to_spark(["n"], 'd["a"] == 2', spark=spark).count()
    return [
        frame.count(), frame.where("n >= 390").count(), frame.where("n < 3 or name = 'é6'").count(),
        frame.where("x is null and ok").count(), frame.where("day = date'2026-01-03'").count(),
        frame.where("variant_get(d, '$.a', 'int') = 1").count(), path,
        frame.selectExpr("sum(n)", "max(price)").collect()[0],
        [tuple(row) for row in shown],
    ]  # fmt: skip


def stream(spark: SparkSession, folder: Path) -> Any:
    """Stream one table into another, twice, so that the second goes on where the first ended."""
    with tidelake.connect(folder / "lake") as lake:
        lake.create_table("copy", {"ts": "timestamp", "n": "long", "name": "string"}, time="ts")
    limit = {"maxExtentsPerTrigger": "2"} if HAS_LIMITS else {}
    for at in (0, 1):
        if at:
            spark.sql(MADE.format(1000, 1005)).write.format("tidelake").options(**options(folder, "t")).mode(
                "append"
            ).save()
        source = spark.readStream.format("tidelake").options(**options(folder, "t"), **limit).load()
        query = (
            source.select("ts", "n", "name").writeStream.format("tidelake").options(**options(folder, "copy"))
            .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
    copied = spark.read.format("tidelake").options(**options(folder, "copy")).load()
    return [copied.count(), copied.select("n").distinct().count(), copied.where("n >= 1000").count()]


def sql_table(spark: SparkSession, folder: Path) -> Any:
    """Name a table in Spark's own catalog; what a Spark cannot do so, it says."""
    spark.sql(f"CREATE TABLE named USING tidelake OPTIONS (lake '{folder}/lake', table 'copy')")
    try:
        spark.sql("INSERT INTO named SELECT timestamp_seconds(0), 5000L, 'sql'")
        return spark.sql("SELECT count(*), max(n) FROM named WHERE n > 998").collect()[0]
    except Exception as error:
        return "refused" if "name the table with option table" in str(error) else str(error)[:1000]
    finally:
        spark.sql("DROP TABLE named")


def catalog(spark: SparkSession, folder: Path) -> Any:
    """Make, fill, change and ask tables by SQL alone."""
    typed = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    for text in (
        f"CREATE TABLE tidelake.obs.made ({typed}) TBLPROPERTIES ('time' = 'ts')",
        f"INSERT INTO tidelake.obs.made {MADE.format(0, 100)}",
        "CREATE TABLE tidelake.obs.few AS SELECT n, name FROM tidelake.obs.made WHERE n < 10 OR n = 50",
        "DELETE FROM tidelake.obs.few WHERE n = 50 OR name = 'é1'",
        "ALTER TABLE tidelake.obs.few ADD COLUMN later INT",
        "INSERT INTO tidelake.obs.few VALUES (77, 'é', 1)",
    ):
        spark.sql(text)
    asked = (
        "SELECT count(*), min(n), max(name), sum(later) FROM tidelake.obs.few",
        "SELECT count(*) FROM tidelake.obs.few VERSION AS OF 2",
        f"SELECT {SHOWN} FROM tidelake.obs.made WHERE n IN (5, 20) ORDER BY n",
        "SELECT count(*), min(ts), max(ts), max(day), max(wall), max(price) FROM tidelake.obs.made",
        "SELECT n FROM tidelake.obs.made ORDER BY ts DESC LIMIT 3",
        "SHOW TABLES IN tidelake.obs",
        "SELECT operation FROM tidelake.obs.few.history ORDER BY snapshot",
    )
    found = [[tuple(row) for row in spark.sql(text).collect()] for text in asked]
    spark.sql("INSERT OVERWRITE tidelake.obs.few SELECT 1L, 'only', 2")
    called = tried(lambda spark, _: len(spark.sql("CALL tidelake.system.compact('obs.few')").collect()), spark, folder)
    return [*found, spark.table("tidelake.obs.few").collect(), "no CALL" if isinstance(called, str) else called]


def changes(spark: SparkSession, folder: Path) -> Any:
    """Update, merge and delete rows by conditions that only Spark can judge, in a plain table and in one with a key."""
    found = []
    for name, key in (("plain", ""), ("keyed", ", 'key' = 'n'")):
        table = f"tidelake.obs.{name}"
        spark.sql(
            f"CREATE TABLE {table} (ts TIMESTAMP, n BIGINT, name STRING, d VARIANT) TBLPROPERTIES ('time' = 'ts'{key})"
        )
        spark.sql(f"INSERT INTO {table} SELECT ts, n, name, d FROM tidelake.obs.made WHERE n < 30")
        with tidelake.connect(folder / "lake") as lake:
            lake.table(f"obs.{name}").flush()
        for text in (
            f"UPDATE {table} SET name = upper(name), d = parse_json('[1]') WHERE n % 7 = 3",
            f"DELETE FROM {table} WHERE n % 5 = 4 AND length(name) = 2",
            f"""MERGE INTO {table} t USING (SELECT id * 3 AS n, timestamp_seconds(id) AS ts FROM range(12)) s
                ON t.n = s.n WHEN MATCHED AND s.n % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET name = 'merged'
                WHEN NOT MATCHED THEN INSERT (ts, n, name) VALUES (s.ts, s.n, 'new')""",
        ):
            spark.sql(text)
        shown = spark.sql(f"SELECT n, ts, name, to_json(d) d FROM {table} ORDER BY n").collect()
        operations = spark.sql(f"SELECT operation FROM {table}.history ORDER BY snapshot").collect()
        found.append([[tuple(row) for row in shown], [row.operation for row in operations]])
    return found


def buckets(spark: SparkSession, folder: Path) -> Any:
    """Overwrite the days that a frame has rows in."""
    days = "SELECT timestamp_seconds(1767225600 + 86400 * (id % {0})) AS ts, id AS n FROM range(9)"
    spark.sql("CREATE TABLE tidelake.obs.days (ts TIMESTAMP, n BIGINT) TBLPROPERTIES ('time' = 'ts')")
    spark.sql(f"INSERT INTO tidelake.obs.days {days.format(3)}")
    spark.sql(days.format(2)).where("n > 5").writeTo("tidelake.obs.days").overwritePartitions()
    return [tuple(row) for row in spark.sql("SELECT n, ts FROM tidelake.obs.days ORDER BY n, ts").collect()]


def join(spark: SparkSession, folder: Path) -> Any:
    """Use one frame several times in one query."""
    frame = spark.table("tidelake.obs.made")
    other = spark.read.format("tidelake").options(**options(folder, "t")).load()
    return [
        frame.where("n < 3").alias("a").join(frame.where("n > 1").alias("b"), "n").count(),
        other.where("n < 20").join(other.where("n > 15"), "n", "full").count(),
    ]


def query(spark: SparkSession, folder: Path) -> Any:
    """Ask in the lake's own languages, with Spark as their engine."""
    sql = "select name, count(*) c, max(cast(d.a as bigint)) a from t where n < 50 group by name order by name"
    kql = (
        "t | where n < 40 and d.a == 1 | summarize c = count(), s = sum(n) by ok | sort by ok",
        "t | where n < 4 | project p = parse_path(strcat('/a/', name)).Filename, n | sort by n",
    )
    with tidelake.connect(folder / "lake") as lake:
        asked = [lake.sql(sql, engine="spark"), *(lake.kql(text, engine="spark") for text in kql)]
        return [each.to_arrow().to_pylist() for each in asked]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
