"""Write frames with new columns to tables that the catalog names, with the option mergeSchema."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import tidelake
import tidelake.spark
from tests.spark.test_degrade import without
from tidelake.spark.jvm import merging

TABLE = "tidelake.obs.logs"


@pytest.fixture
def session(spark: SparkSession, lake: tidelake.Lake) -> SparkSession:
    made = tidelake.spark.register(spark.newSession(), lake=lake)
    made.conf.set("spark.sql.session.timeZone", "Australia/Eucla")
    fill(made)
    return made


def fill(session: SparkSession) -> None:
    session.sql(f"CREATE TABLE {TABLE} (ts TIMESTAMP, n BIGINT, s STRING) TBLPROPERTIES ('time' = 'ts')")
    session.sql(f"INSERT INTO {TABLE} VALUES (timestamp'2026-01-01', 1, 'a')")


def rows(session: SparkSession, n: int, columns: str) -> DataFrame:
    return session.sql(f"SELECT timestamp'2026-01-02 03:04:05' AS ts, {n} AS n, {columns}")


def shown(session: SparkSession, columns: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in session.sql(f"SELECT {columns} FROM {TABLE} ORDER BY n").collect()]


def test_each_way_to_append_by_name_brings_columns(session: SparkSession) -> None:
    rows(session, 2, "'b' AS s, 1.5D AS x").writeTo(TABLE).option("mergeSchema", "true").append()
    rows(session, 3, "date'2026-05-05' AS day, 'c' AS s").write.mode("append").option("mergeSchema", True).saveAsTable(
        TABLE
    )
    session.sql("USE tidelake.obs")
    rows(session, 4, "array(1L) AS a").writeTo("logs").option("MERGESCHEMA", "TRUE").append()
    found = shown(session, "n, s, x, day, a, date_format(ts, 'dd HH:mm:ss')")
    day = session.sql("SELECT date'2026-05-05'").collect()[0][0]
    assert found == [
        (1, "a", None, None, None, "01 00:00:00"),
        (2, "b", 1.5, None, None, "02 03:04:05"),
        (3, "c", None, day, None, "02 03:04:05"),
        (4, None, None, None, [1], "02 03:04:05"),
    ]
    assert session.table(TABLE).dtypes[3:] == [("x", "double"), ("day", "date"), ("a", "array<bigint>")]


def test_columns_are_inserted_by_their_place_and_the_rest_is_new(session: SparkSession) -> None:
    rows(session, 2, "'b' AS other, true AS ok").write.option("mergeSchema", "true").insertInto(TABLE)
    assert shown(session, "n, s, ok") == [(1, "a", None), (2, "b", True)]


def test_rows_that_take_others_place_bring_columns(session: SparkSession) -> None:
    rows(session, 1, "'z' AS s, 7L AS k").writeTo(TABLE).option("mergeSchema", "true").overwrite(expr("n = 1"))
    assert shown(session, "n, s, k") == [(1, "z", 7)]
    rows(session, 2, "'y' AS s, 8L AS m").writeTo(TABLE).option("mergeSchema", "true").overwritePartitions()
    assert shown(session, "n, s, k, m") == [(2, "y", None, 8)]
    rows(session, 3, "'x' AS s, 1L AS k, 2L AS m, 9L AS p").write.option("mergeSchema", "true").insertInto(
        TABLE, overwrite=True
    )
    assert shown(session, "n, s, k, m, p") == [(3, "x", 1, 2, 9)]


def test_a_column_widens_and_no_other_type_changes(session: SparkSession) -> None:
    session.sql("CREATE TABLE tidelake.obs.small (n INT)")
    session.range(2).selectExpr("id + 5000000000 AS n").writeTo("tidelake.obs.small").option(
        "mergeSchema", "true"
    ).append()
    assert session.table("tidelake.obs.small").dtypes == [("n", "bigint")]
    with pytest.raises(Exception, match="Failed to merge incompatible schemas"):
        rows(session, 2, "map(1, 2) AS s").writeTo(TABLE).option("mergeSchema", "true").append()
    assert shown(session, "n, s") == [(1, "a")]


def test_without_the_option_what_a_table_lacks_is_refused_and_changes_nothing(session: SparkSession) -> None:
    frame = rows(session, 2, "'b' AS s, 1.5D AS x")
    ways: list[Callable[[], None]] = [
        lambda: frame.writeTo(TABLE).append(),
        lambda: frame.write.mode("append").saveAsTable(TABLE),
        lambda: frame.write.insertInto(TABLE),
    ]
    for write in ways:
        with pytest.raises(Exception, match="INSERT_COLUMN_ARITY_MISMATCH"):
            write()
    assert session.table(TABLE).columns == ["ts", "n", "s"]
    assert shown(session, "n") == [(1,)]


def test_tables_of_others_are_left_alone(session: SparkSession) -> None:
    session.sql("CREATE TABLE spark_catalog.default.merging USING parquet AS SELECT 1 AS n")
    try:
        with pytest.raises(Exception, match="doesn't match"):
            session.sql("SELECT 1 AS n, 2 AS m").write.format("parquet").mode("append").option(
                "mergeSchema", "true"
            ).saveAsTable("spark_catalog.default.merging")
    finally:
        session.sql("DROP TABLE spark_catalog.default.merging")


def test_a_session_goes_on_without_the_rule(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    with without(spark, "MergeRule") as session:
        monkeypatch.setitem(spark.sparkContext.__dict__, merging._KNOWN, set())
        assert not merging.install(session)
        assert tidelake.spark.register(session).range(3).count() == 3
