"""Use a lake as a catalog of Spark: what SQL and writers can name, make, change and call."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import tidelake
import tidelake.spark
from tidelake import Lake
from tidelake.errors import InvalidInputError
from tidelake.spark.catalog.names import options_of, place_of
from tidelake.spark.places import Place


@pytest.fixture
def session(spark: SparkSession, lake: Lake) -> SparkSession:
    """Return a session of its own that has the lake as its catalog."""
    return tidelake.spark.register(spark.newSession(), lake=lake)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def numbers(session: SparkSession, count: int, start: int = 0) -> DataFrame:
    """Make rows, one a minute."""
    return session.range(start, start + count).selectExpr(
        "timestamp_seconds(1767225600 + id * 60) as ts", "id as n", "concat('é', id % 7) as name"
    )


def test_namespaces_and_tables_are_listed_made_and_dropped(session: SparkSession, lake: Lake) -> None:
    def listed() -> list[str]:
        return [row[0] for row in session.sql("SHOW NAMESPACES IN tidelake").collect()]

    assert listed() == ["default"]
    session.sql("CREATE NAMESPACE tidelake.obs")
    session.sql("CREATE NAMESPACE IF NOT EXISTS tidelake.obs")
    with pytest.raises(Exception, match="SCHEMA_ALREADY_EXISTS"):
        session.sql("CREATE NAMESPACE tidelake.obs")
    assert listed() == ["default", "obs"]
    session.sql("USE tidelake.obs")
    session.sql("CREATE TABLE logs (ts TIMESTAMP, message STRING)")
    lake.create_table("m.cpu", {"ts": "timestamp"})  # by somebody else, and seen at once
    lake.create_table("plain", {"n": "long"})
    assert listed() == ["default", "m", "obs"]
    assert rows(session.sql("SHOW TABLES")) == [("obs", "logs", False)]
    assert [row.tableName for row in session.sql("SHOW TABLES IN tidelake.default").collect()] == ["plain"]
    assert session.table("tidelake.plain").columns == ["n"]  # a name without a namespace is in default
    with pytest.raises(Exception, match="SCHEMA_NOT_EMPTY"):
        session.sql("DROP NAMESPACE tidelake.obs")
    session.sql("DROP TABLE tidelake.obs.logs")
    session.sql("DROP TABLE IF EXISTS tidelake.obs.logs")
    session.sql("DROP NAMESPACE tidelake.m CASCADE")
    assert listed() == ["default", "obs"]
    session.sql("DROP NAMESPACE tidelake.obs")
    assert (listed(), lake.tables()) == (["default"], ["default.plain"])


def test_a_created_table_is_what_create_table_makes_and_shows_how_it_was_made(
    session: SparkSession, lake: Lake
) -> None:
    session.sql(
        """CREATE TABLE tidelake.m.cpu (ts TIMESTAMP NOT NULL, device STRING COMMENT 'which', load DOUBLE,
           amount DECIMAL(10, 2), tags MAP<STRING, BIGINT>, raw VARIANT) USING tidelake COMMENT 'of machines'
           TBLPROPERTIES ('time' = 'ts', 'bucket' = '1m', 'entity' = 'device', 'coverage' = 'exclusive',
                          'retention' = '3000d', 'format' = 'parquet', 'upkeep' = 'false', 'cluster_by' = 'device')"""
    )
    made = lake.table("m.cpu").snapshot
    twin = lake.create_table(
        "m.twin",
        {
            "ts": "timestamp", "device": "string", "load": "real", "amount": "decimal(10,2)",
            "tags": "map<string, long>", "raw": "dynamic",
        },
        time="ts", bucket="1m", entity=["device"], coverage="exclusive", retention="3000d", format="parquet",
        upkeep=False, cluster_by=["device"],
    )  # fmt: skip
    assert made.schema == twin.schema
    told = dict(made.settings)
    assert (told.pop("comment"), told.pop("comment:device")) == ("of machines", "which")
    assert told == twin.snapshot.settings
    described = {row.col_name: row.data_type for row in session.sql("DESCRIBE tidelake.m.cpu").collect()}
    assert described["amount"] == "decimal(10,2)"
    assert [row.comment for row in session.sql("DESCRIBE tidelake.m.cpu").collect()][:2] == [None, "which"]
    text = session.sql("SHOW CREATE TABLE tidelake.m.cpu").collect()[0][0]
    session.sql("DROP TABLE tidelake.m.cpu")
    session.sql(text)
    again = lake.table("m.cpu").snapshot
    assert (again.schema, again.settings) == (made.schema, made.settings)


def test_a_table_is_altered(session: SparkSession, lake: Lake) -> None:
    session.sql("CREATE TABLE tidelake.t (ts TIMESTAMP NOT NULL, n INT)")  # the only timestamp is the time
    session.sql("INSERT INTO tidelake.t VALUES (timestamp'2026-01-01', 1)")
    session.sql("ALTER TABLE tidelake.t ADD COLUMNS (name STRING COMMENT 'who', raw VARIANT)")
    session.sql("ALTER TABLE tidelake.t ALTER COLUMN n TYPE BIGINT")
    session.sql(
        "ALTER TABLE tidelake.t SET TBLPROPERTIES ('retention' = '9000d', 'flush_age' = 'off', 'comment' = 'x')"
    )
    table = lake.table("t")
    assert [str(column.type) for column in table.schema] == ["timestamp", "long", "string", "dynamic"]
    assert {name: table.snapshot.settings.get(name) for name in ("retention", "flush_age", "comment")} == {
        "retention": "9000d", "flush_age": "off", "comment": "x",
    }  # fmt: skip
    shown = {row.key: row.value for row in session.sql("SHOW TBLPROPERTIES tidelake.t").collect()}
    assert shown == {"time": "ts", "format": "tlm", "retention": "9000d", "flush_age": "off"}
    session.sql("ALTER TABLE tidelake.t ALTER COLUMN name COMMENT 'whose'")
    assert [row.comment for row in session.sql("DESCRIBE tidelake.t").collect()] == [None, None, "whose", None]
    for statement, clustered in (("CLUSTER BY (name, n)", ["name", "n"]), ("CLUSTER BY NONE", None)):
        session.sql(f"ALTER TABLE tidelake.t {statement}")
        assert table.snapshot.settings.get("cluster_by") == clustered
    session.sql("ALTER TABLE tidelake.t UNSET TBLPROPERTIES ('retention', 'flush_age')")
    assert not {"retention", "flush_age"} & {n for n, value in table.snapshot.settings.items() if value is not None}
    session.sql("INSERT INTO tidelake.t SELECT timestamp'2026-01-02', 5000000000, 'x', parse_json('1')")
    session.sql("ALTER TABLE tidelake.t RENAME TO other.u")
    assert lake.tables() == ["other.u"]
    session.sql("ALTER TABLE tidelake.other.u RENAME TO default.t")
    assert rows(session.sql("SELECT n, name FROM tidelake.t")) == [(1, None), (5000000000, "x")]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE tidelake.t DROP COLUMN n", "a column cannot be dropped"),
        ("ALTER TABLE tidelake.t RENAME COLUMN n TO m", "a column keeps its name"),
        ("ALTER TABLE tidelake.t ADD COLUMN m INT FIRST", "a new column comes last"),
        ("ALTER TABLE tidelake.t ADD COLUMN m INT DEFAULT 3", "a column has no default"),
        ("ALTER TABLE tidelake.t SET LOCATION '/tmp/x'", "leave LOCATION out"),
        ("ALTER TABLE tidelake.t CLUSTER BY (m)", "FIELD_NOT_FOUND|no such column|UNRESOLVED"),
        ("INSERT INTO tidelake.t REPLACE WHERE n % 2 = 0 VALUES (timestamp'2026-01-01', 2)", "compare columns with v"),
        ("ALTER TABLE tidelake.t ALTER COLUMN n TYPE INT", "NOT_SUPPORTED_CHANGE_COLUMN"),
        ("ALTER TABLE tidelake.t ALTER COLUMN n TYPE STRING", "tidelake: .* column=n"),
        ("ALTER TABLE tidelake.t SET TBLPROPERTIES ('retentoin' = '1d')", "did you mean 'retention'"),
        ("ALTER TABLE tidelake.t SET TBLPROPERTIES ('retention' = 'soon')", "'soon' is not a duration"),
        ("ALTER TABLE tidelake.t SET TBLPROPERTIES ('time' = 'n')", "the property time is for a new table"),
        ("CREATE TABLE tidelake.t (n INT)", "TABLE_OR_VIEW_ALREADY_EXISTS"),
        ("CREATE TABLE tidelake.u (n INT) USING csv", "tables of a lake are USING tidelake"),
        ("CREATE TABLE tidelake.u (n INT) PARTITIONED BY (n)", "leave PARTITIONED BY out"),
        ("CREATE TABLE tidelake.u (ts TIMESTAMP) PARTITIONED BY (days(ts))", "CLUSTER BY columns that are asked for"),
        ("CREATE TABLE tidelake.u (n INT) CLUSTERED BY (n) INTO 4 BUCKETS", "leave PARTITIONED BY out"),
        ("CREATE TABLE tidelake.u (s VARCHAR(3))", "a text is a STRING"),
        ("CREATE TABLE tidelake.u (s STRING COLLATE UTF8_LCASE)", "texts of a lake are compared byte by byte"),
        ("CREATE TABLE tidelake.u AS SELECT array('x' COLLATE UNICODE_CI) AS s", "texts of a lake are compared"),
        ("ALTER TABLE tidelake.t ADD COLUMN s STRING COLLATE UNICODE", "cast them to STRING column=s"),
        ("CREATE TABLE tidelake.u (n INT) LOCATION '/tmp/x'", "leave LOCATION out"),
        ("CREATE TABLE tidelake.u (n INT NOT NULL)", "only the time column and key columns can be NOT NULL"),
        ("CREATE TABLE tidelake.u (n INTERVAL DAY)", "unsupported spark type"),
        ("CREATE TABLE tidelake.u (n INT) TBLPROPERTIES ('bukket' = '1m')", "did you mean 'bucket'"),
        ("CREATE TABLE tidelake.u (n INT) TBLPROPERTIES ('time' = 'n')", "the time column must be a timestamp"),
        ("CREATE TABLE tidelake.a.b.u (n INT)", "no such table"),
        ("REPLACE TABLE tidelake.u (n INT)", "TABLE_OR_VIEW_NOT_FOUND|CANNOT_BE_REPLACED|cannot be"),
        ("SELECT * FROM tidelake.t.history.more", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT * FROM tidelake.t.gaps", "the table keeps no coverage"),
        ("SELECT * FROM tidelake.t VERSION AS OF 99", "no such snapshot"),
        ("CREATE NAMESPACE tidelake.a.b", "a lake's namespaces have one part"),
        ("CALL tidelake.system.compat('t')", "did you mean 'compact'"),
        ("CALL tidelake.system.compact('nothing')", "no such table"),
        ("CALL tidelake.system.delete('t', '')", "a delete needs a condition"),
    ],
)  # fmt: skip
def test_what_a_lake_cannot_do_is_said_and_changes_nothing(
    session: SparkSession, lake: Lake, statement: str, said: str
) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "n": "long"})
    with pytest.raises(Exception, match=said):
        session.sql(statement).collect()
    assert (lake.tables(), table.snapshot.sequence) == (["default.t"], 1)


def test_sql_inserts_overwrites_and_travels_in_time(session: SparkSession, lake: Lake) -> None:
    session.sql("CREATE TABLE tidelake.t (ts TIMESTAMP, n BIGINT, name STRING)")
    numbers(session, 10).createOrReplaceTempView("ten")
    session.sql("INSERT INTO tidelake.t SELECT * FROM ten")
    session.sql("INSERT INTO tidelake.t (n, ts) VALUES (77, timestamp'2026-02-01')")
    session.sql("INSERT INTO tidelake.t WITH (key 'once') VALUES (timestamp'2026-02-02', 78, 'x')")
    session.sql("INSERT INTO tidelake.t WITH (key 'once') VALUES (timestamp'2026-02-02', 78, 'x')")
    assert len(lake.table("t")) == 12
    session.sql("INSERT OVERWRITE tidelake.t SELECT ts, n + 1, name FROM tidelake.t WHERE n < 3")
    assert [row[0] for row in session.sql("SELECT n FROM tidelake.t ORDER BY n").collect()] == [1, 2, 3]
    past = {each.sequence: each for each in lake.table("t").history()}
    for sequence, snapshot in past.items():
        expected = snapshot.totals.rows + snapshot.totals.hot_rows
        assert session.sql(f"SELECT * FROM tidelake.t VERSION AS OF {sequence}").count() == expected
        assert session.sql(f"SELECT * FROM tidelake.t VERSION AS OF '{snapshot.id}'").count() == expected
    at = session.sql(f"SELECT timestamp_micros({past[2].committed_us})").collect()[0][0]
    with_zone = f"timestamp'{at.isoformat()}Z'"
    assert session.sql(f"SELECT * FROM tidelake.t TIMESTAMP AS OF {with_zone}").count() == 10
    assert session.read.option("versionAsOf", "2").table("tidelake.t").count() == 10
    zone = str(session.conf.get("spark.sql.session.timeZone"))
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    there = session.sql(f"SELECT CAST(timestamp_micros({past[2].committed_us}) AS STRING)").collect()[0][0]
    assert session.sql(f"SELECT * FROM tidelake.t TIMESTAMP AS OF '{there}'").count() == 10
    assert session.read.option("timestampAsOf", there).table("tidelake.t").where("n < 4").count() == 4
    session.conf.set("spark.sql.session.timeZone", zone)
    assert session.read.option("where", "n == 2").table("tidelake.t").count() == 1
    with pytest.raises(Exception, match="there is no option 'wher'"):
        session.read.option("wher", "n == 2").table("tidelake.t").count()
    session.sql("INSERT WITH SCHEMA EVOLUTION INTO tidelake.t SELECT *, 1.5D AS extra FROM ten LIMIT 1")
    assert lake.table("t").schema.names == ("ts", "n", "name", "extra")
    narrower = "SELECT timestamp'2026-02-03' AS ts, 5 AS n, 7 AS more, 1.5F AS extra"
    session.sql(f"INSERT WITH SCHEMA EVOLUTION INTO tidelake.t BY NAME {narrower}")
    session.sql(
        f"""MERGE WITH SCHEMA EVOLUTION INTO tidelake.t t USING (SELECT *, 4L AS last FROM ({narrower})) s ON t.n = s.n
            WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    )
    wider = "SELECT timestamp'2026-02-04' AS ts, 6 AS n, 5000000000 AS more"
    session.sql(f"INSERT WITH SCHEMA EVOLUTION INTO tidelake.t BY NAME {wider}")
    types = [str(column.type) for column in lake.table("t").schema]
    assert types == ["timestamp", "long", "string", "real", "long", "long"]
    told = session.sql("SELECT n, more, extra, last FROM tidelake.t WHERE ts > '2026-02-02'")
    assert rows(told) == [(5, 7, 1.5, 4), (6, 5000000000, None, None)]
    with pytest.raises(Exception, match="CANNOT_SAFELY_CAST"):
        session.sql("INSERT WITH SCHEMA EVOLUTION INTO tidelake.t BY NAME SELECT 'x' AS n, timestamp'2026-02-05' AS ts")


def test_tables_are_made_of_queries_whole_or_not_at_all(session: SparkSession, lake: Lake) -> None:
    numbers(session, 5).createOrReplaceTempView("five")
    session.sql("CREATE TABLE tidelake.obs.t TBLPROPERTIES ('retention' = '9000d') AS SELECT * FROM five")
    table = lake.table("obs.t")
    assert (len(table), table.snapshot.settings["time"], table.snapshot.settings["retention"]) == (5, "ts", "9000d")
    with pytest.raises(Exception, match="ALREADY_EXISTS"):
        session.sql("CREATE TABLE tidelake.obs.t AS SELECT 1 AS n")
    failing = "SELECT n, if(n < 3, name, raise_error('it is over')) AS q FROM five"
    for statement in ("CREATE OR REPLACE TABLE tidelake.obs.t AS", "CREATE TABLE tidelake.obs.u AS"):
        with pytest.raises(Exception, match="it is over"):
            session.sql(f"{statement} {failing}")
        assert lake.tables() == ["obs.t"]
    assert len(lake.table("obs.t")) == 5
    session.sql("CREATE OR REPLACE TABLE tidelake.obs.t AS SELECT n, name AS label FROM tidelake.obs.t WHERE n > 1")
    assert lake.table("obs.t").schema.names == ("n", "label")
    assert sorted(lake.table("obs.t").to_arrow(["n"])["n"].to_pylist()) == [2, 3, 4]
    session.sql("REPLACE TABLE tidelake.obs.t (a INT)")
    assert (lake.table("obs.t").schema.names, len(lake.table("obs.t"))) == (("a",), 0)
    session.sql("CREATE OR REPLACE TABLE tidelake.obs.u AS SELECT 1 AS n")
    assert lake.tables() == ["obs.t", "obs.u"]


def test_writers_make_append_to_and_overwrite_tables(session: SparkSession, lake: Lake) -> None:
    frame = numbers(session, 8)
    frame.writeTo("tidelake.w").using("tidelake").tableProperty("flush_age", "off").create()
    frame.writeTo("tidelake.w").append()
    table = lake.table("w")
    assert (len(table), table.snapshot.settings["flush_age"]) == (16, "off")
    frame.where("n < 3").writeTo("tidelake.w").overwrite(F.col("n") < 3)
    assert Counter(table.to_arrow(["n"])["n"].to_pylist()) == {n: 1 if n < 3 else 2 for n in range(8)}
    with pytest.raises(Exception, match="a row is not among those that are replaced"):
        frame.writeTo("tidelake.w").overwrite(F.col("n") < 3)
    with pytest.raises(Exception, match="overwritten by conditions that compare columns with values"):
        frame.writeTo("tidelake.w").overwrite(F.col("n") % 2 == 0)
    assert len(table) == 13
    frame.where("n < 1").writeTo("tidelake.w").overwritePartitions()  # the bucket of its time, which all rows share
    assert len(table) == 1
    frame.writeTo("tidelake.w").overwrite(F.lit(True))
    assert len(table) == 8
    frame.writeTo("tidelake.w").createOrReplace()
    frame.write.saveAsTable("tidelake.s")
    with pytest.raises(Exception, match="ALREADY_EXISTS"):
        frame.write.saveAsTable("tidelake.s")
    frame.write.mode("append").saveAsTable("tidelake.s")
    frame.write.insertInto("tidelake.s")
    assert (len(lake.table("s")), lake.table("s").snapshot.settings["format"]) == (24, "tlm")
    frame.write.mode("overwrite").option("overwriteSchema", "true").saveAsTable("tidelake.s")
    assert rows(session.table("tidelake.s")) == rows(frame)
    for option, value in (("replaceWhere", "n < 3"), ("start", "2026-01-01"), ("end", "2026-01-02")):
        with pytest.raises(Exception, match=f"this write makes the table anew, and {option} keeps rows"):
            frame.write.mode("overwrite").option(option, value).saveAsTable("tidelake.s")
        assert len(lake.table("s")) == 8


def test_a_frame_reads_the_newest_rows_each_time_and_one_snapshot_at_a_time(session: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "n": "long"})
    frame = session.table("tidelake.t")
    joined = frame.alias("a").join(session.table("tidelake.t").alias("b"), "n")
    for count in range(1, 3):
        table.append([{"ts": count, "n": count}])
        assert (frame.count(), joined.count()) == (count, count)
    table.add_column("more", "string")
    table.append([{"ts": 9, "n": 9, "more": "x"}])
    assert (frame.count(), frame.columns, session.table("tidelake.t").columns) == (3, ["ts", "n"], ["ts", "n", "more"])


def test_conditions_and_columns_reach_the_planner_and_sizes_the_optimizer(session: SparkSession, lake: Lake) -> None:
    table = lake.create_table(
        "t", {"ts": "timestamp", "n": "long", "name": "string", "raw": "dynamic"}, flush_age="off"
    )
    for start in (0, 1_000_000):
        table.append([{"ts": start + n, "n": start + n, "name": f"x{n}", "raw": {"a": n}} for n in range(3000)])
        table.flush()
    frame = session.table("tidelake.t").where("n >= 1000000 OR name = 'x7'").select("n")
    assert "columns  n, name\n" in (told := tidelake.spark.explain(frame))
    assert "where    (n >= 1000000 or name == 'x7')" in told
    assert "extent statistics" in tidelake.spark.explain(session.table("tidelake.t").where("n >= 1000000"))
    assert frame.count() == 3001

    def estimated(question: str) -> int:
        plan = session.sql(question)._jdf.queryExecution().optimizedPlan().collectLeaves().head()
        return int(str(plan.stats().sizeInBytes()))

    whole = estimated("SELECT n FROM tidelake.t")
    assert 6000 * 16 <= whole < 1_000_000
    assert (
        estimated("SELECT n FROM tidelake.t WHERE ts >= timestamp_seconds(1000000)")
        < whole
        < estimated("SELECT * FROM tidelake.t")
    )
    assert estimated("SELECT n FROM tidelake.t VERSION AS OF 1") == 0
    join = "SELECT count(*) FROM tidelake.t a JOIN tidelake.t b ON a.n = b.n"
    assert "BroadcastHashJoin" in session.sql(join)._jdf.queryExecution().executedPlan().toString()
    assert session.sql("SELECT count(*) FROM tidelake.t WHERE variant_get(raw, '$.a', 'int') = 5").collect()[0][0] == 2


def test_what_is_told_of_a_table_is_a_table(session: SparkSession, lake: Lake) -> None:
    columns = {"ts": "timestamp", "device": "string", "v": "long"}
    table = lake.create_table("m.cpu", columns, bucket="1m", entity=["device"])
    minutes = [0, 1, 2, 5, 6]
    table.append([{"ts": 1_700_000_040 + 60 * at, "device": "a", "v": at} for at in minutes])
    table.flush()
    table.append([{"ts": 1_700_000_040, "device": "b", "v": 1}])
    history = session.sql("SELECT snapshot, operation, rows_added FROM tidelake.m.cpu.history ORDER BY snapshot")
    assert [tuple(row) for row in history.collect()] == [
        (each.sequence, each.operation, each.added.rows + each.added.hot_rows) for each in table.history()[::-1]
    ]
    (extent,) = table.extents()
    found = session.table("tidelake.m.cpu.extents").collect()[0]
    assert (found.extent, found.rows, found.bytes, found.added) == (extent.id, 5, extent.byte_size, extent.added_seq)
    assert session.sql("SELECT unix_seconds(start) FROM tidelake.m.cpu.extents").collect()[0][0] == 1_700_000_040
    assert session.table("tidelake.m.cpu.extents").where("rows > 5").count() == 0
    assert session.sql("SELECT * FROM tidelake.m.cpu.extents VERSION AS OF 1").count() == 0
    for name, expected in (("coverage", table.coverage.held()), ("gaps", table.coverage.gaps())):
        told = session.sql(f"SELECT device, unix_micros(start) s, buckets FROM tidelake.m.cpu.{name}")
        starts = [int(each.timestamp()) * 1_000_000 for each in expected["start"].to_pylist()]
        assert rows(told) == sorted(
            zip(expected["device"].to_pylist(), starts, expected["buckets"].to_pylist(), strict=True), key=repr
        )
    lake.create_table("plain", {"n": "long"})
    assert session.table("tidelake.plain.history").count() == 1


def test_upkeep_is_called(session: SparkSession, lake: Lake) -> None:
    def call(text: str) -> dict[str, Any]:
        (row,) = session.sql(f"CALL tidelake.system.{text}").collect()
        return row.asDict()

    table = lake.create_table("obs.logs", {"ts": "timestamp", "n": "long"}, flush_age="off")
    for start in (0, 100, 200):
        table.append([{"ts": start + n, "n": start + n} for n in range(50)])
        assert call("flush('obs.logs')")["rows"] == 50
    compacted = call("compact('obs.logs')")
    assert (compacted["extents"], compacted["written"], compacted["rows"]) == (3, 1, 150)
    deleted = call("""delete('obs.logs', "n >= 200 and n < 210")""")
    assert (deleted["rows"], len(table)) == (10, 140)
    assert call(f"restore('obs.logs', {compacted['snapshot']})")["rows_restored"] == 150
    assert len(table) == 150
    table.append([{"ts": 1, "n": 1}])
    assert call(f"undo(table => 'obs.logs', snapshot => {table.snapshot.sequence})")["rows_removed"] == 1
    assert call("delete(where => 'n == 3', table => 'obs.logs')")["rows"] == 1
    kept = len(table.history())
    assert call("expire('obs.logs')")["snapshots"] == 0
    gone = call("expire(table => 'obs.logs', older_than => '0s', keep_last => 2)")["snapshots"]
    assert gone == kept - len(table.history()) > 0
    dry = call("collect(dry_run => true)")
    assert dry["objects"] > 0
    assert call("collect()")["objects"] == dry["objects"]
    assert call("collect()")["objects"] == 0
    assert len(table.to_arrow()) == 149
    listed = {row.procedure_name for row in session.sql("SHOW PROCEDURES IN tidelake.system").collect()}
    assert {"collect", "compact", "delete", "expire"} <= listed


def test_streams_read_and_write_tables_by_name(session: SparkSession, lake: Lake, tmp_path: Path) -> None:
    source = lake.create_table("source", {"ts": "timestamp", "n": "long"})
    seen: list[int] = []

    def counted(frame: DataFrame, batch: int) -> None:
        seen.append(frame.sparkSession.table("tidelake.source").count() - frame.count())

    def run(write: Callable[[Any], Any], checkpoint: str) -> None:
        stream = session.readStream.table("tidelake.source").where("n < 100").writeStream.trigger(availableNow=True)
        write(stream.option("checkpointLocation", str(tmp_path / checkpoint))).awaitTermination()

    for start in (0, 10):
        source.append([{"ts": n, "n": n} for n in range(start, start + 10)])
        run(lambda stream: stream.toTable("tidelake.obs.target"), "one")
    assert sorted(lake.table("obs.target").to_arrow(["n"])["n"].to_pylist()) == list(range(20))
    run(lambda stream: stream.foreachBatch(counted).start(), "two")
    assert seen == [0]


def test_threads_and_other_sessions_find_the_catalog(session: SparkSession, lake: Lake, tmp_path: Path) -> None:
    lake.create_table("t", {"n": "long"}).append([{"n": 1}])
    found: list[Row] = []

    def ask() -> None:
        other = tidelake.spark.register(session.newSession(), lake=lake.where, catalog="other")
        found.extend(other.sql("SELECT n FROM other.t").collect())
        found.extend(session.sql("SELECT n FROM tidelake.t").collect())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert [row.n for row in found] == [1, 1]
    tidelake.spark.register(session, lake=lake)  # again: nothing changes
    assert session.sql("SHOW TABLES IN tidelake.default").count() == 1
    tidelake.spark.register(session, lake=tmp_path / "elsewhere")  # another takes its place, here alone
    assert session.sql("SHOW TABLES IN tidelake.default").count() == 0
    assert tidelake.spark.register(session.newSession(), lake=lake).table("tidelake.t").count() == 1


def test_a_catalog_may_be_set_by_settings(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("t", {"n": "long"}).append([{"n": 1}])
    fresh = spark.newSession()
    fresh.conf.set("spark.sql.catalog.mine", "tidelake.LakeCatalog")  # as spark-defaults.conf does
    fresh.conf.set("spark.sql.catalog.mine.lake", lake.where)
    assert tidelake.spark.register(fresh).sql("SELECT n FROM mine.t").collect() == [Row(n=1)]
    fresh.conf.set("spark.sql.catalog.wrong", "tidelake.LakeCatalog")
    fresh.conf.set("spark.sql.catalog.wrong.lakes", lake.where)
    with pytest.raises(Exception, match="a catalog has no option 'lakes'"):
        fresh.sql("SHOW NAMESPACES IN wrong")


def test_the_table_of_a_log_is_in_a_catalog_too(spark: SparkSession, tmp_path: Path) -> None:
    with tidelake.connect(f"log:{tmp_path}/prices") as log:
        session = tidelake.spark.register(spark.newSession(), lake=log)
        session.sql("CREATE TABLE tidelake.prices AS SELECT timestamp'2026-01-01' AS ts, 1.5D AS price")
        assert session.sql("SELECT price FROM tidelake.prices").collect() == [Row(price=1.5)]
        with pytest.raises(Exception, match="cannot take another's place"):
            session.sql("CREATE OR REPLACE TABLE tidelake.prices AS SELECT 1 AS n")
        with pytest.raises(Exception, match="the table of a log keeps its name"):
            session.sql("ALTER TABLE tidelake.prices RENAME TO other")
        assert len(log.table("prices")) == 1


def test_tables_of_users_and_tables_with_a_key_are_made_and_keep_their_names(session: SparkSession, lake: Lake) -> None:
    session.sql(
        "CREATE TABLE tidelake.app.notes (id BIGINT, text STRING) TBLPROPERTIES ('scope' = 'user', 'key' = 'id')"
    )
    session.sql("CREATE TABLE tidelake.app.k (id BIGINT, text STRING) TBLPROPERTIES ('key' = 'id')")
    made = {name: lake.table(name).handle.catalog.settings(lake.catalog.table(name).id) for name in lake.tables()}
    assert (made["app.notes"]["scope"], made["app.notes"]["key"], made["app.k"]["key"]) == ("user", ["id"], ["id"])
    shown = {row.key: row.value for row in session.sql("SHOW TBLPROPERTIES tidelake.app.notes").collect()}
    assert (shown["scope"], shown["key"]) == ("user", "id")
    assert session.table("tidelake.app.notes").columns == ["id", "text"]
    with pytest.raises(Exception, match="each user has a table of their own"):
        session.table("tidelake.app.notes").count()
    lake.table("app.k").append([{"id": 1, "text": "a"}, {"id": 2, "text": "b"}])
    lake.table("app.k").append([{"id": 1, "text": "c"}])
    assert rows(session.table("tidelake.app.k")) == [(1, "c"), (2, "b")]
    with pytest.raises(Exception, match="keep their names"):
        session.sql("ALTER TABLE tidelake.app.k RENAME TO app.l")
    with pytest.raises(Exception, match="cannot take another's place"):
        session.sql("REPLACE TABLE tidelake.app.k (id BIGINT) TBLPROPERTIES ('key' = 'id')")
    session.sql("CREATE OR REPLACE TABLE tidelake.app.k AS SELECT 1 AS n")
    assert lake.table("app.k").schema.names == ("n",)


def test_settings_of_a_session_hold_no_secret() -> None:
    place = Place("postgresql://me:hidden@host/db", "s3://bucket/x", "http://host", "akey", "skey")
    options = options_of(place)
    assert not [text for text in options.values() if "hidden" in text or "akey" in text or "skey" in text]
    assert place_of({"catalog": options}) == place
    assert options_of(Place("/lake")) == {"lake": "/lake"}
    with pytest.raises(InvalidInputError, match="is known to the process that registered it alone"):
        place_of({"catalog": options | {"place": "0" * 16}})


def test_sessions_with_a_catalog_of_one_name_keep_to_their_own_lakes(
    spark: SparkSession, session: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    with tidelake.connect(tmp_path / "other") as other:
        second = tidelake.spark.register(spark.newSession(), lake=other)
        frame, others = numbers(session, 4), numbers(second, 3)
        for active in (second, session):
            spark.sparkContext._jvm.org.apache.spark.sql.SparkSession.setActiveSession(active._jsparkSession)  # type: ignore[union-attr]
            for each, mine in ((session, frame), (second, others)):
                mine.write.mode("append").saveAsTable("tidelake.both")
                assert each.table("tidelake.both").count() % mine.count() == 0
        assert (len(lake.table("both")), len(other.table("both"))) == (8, 6)
        with tidelake.connect(tmp_path / "third") as third:
            tidelake.spark.register(session, lake=third)
            spark.sparkContext._jvm.org.apache.spark.sql.SparkSession.setActiveSession(second._jsparkSession)  # type: ignore[union-attr]
            frame.write.mode("append").saveAsTable("tidelake.both")
            assert (len(lake.table("both")), len(other.table("both")), len(third.table("both"))) == (8, 6, 4)
