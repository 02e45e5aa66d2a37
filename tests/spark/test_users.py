"""Read, write and stream one user's table in Spark, and read all users' for operators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelake
import tidelake.spark
from tidelake.errors import InvalidInputError
from tidelake.lake import Lake
from tidelake.spark.drops import watch
from tidelake.spark.jobs import copy, load
from tidelake.table import Table

COLUMNS = {"id": "long", "ts": "timestamp", "text": "string"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as opened:
        yield opened


@pytest.fixture
def notes(lake: Lake) -> Table:
    return lake.create_table("app.notes", COLUMNS, scope="user", flush_age="off")


def frame(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.range(first, end, 1, 2).selectExpr("id", "timestamp'2026-01-01 12:00:00' as ts", "'text' as text")


def read(spark: SparkSession, lake: Lake, **options: str) -> DataFrame:
    return spark.read.format("tidelake").options(lake=lake.where, table="app.notes", **options).load()


def write(frame: DataFrame, lake: Lake, mode: str = "append", **options: str) -> None:
    frame.write.format("tidelake").options(lake=lake.where, table="app.notes", **options).mode(mode).save()


def ids(found: Any) -> list[int]:
    return sorted(row.id for row in found.select("id").collect())


def test_a_frame_is_written_to_and_read_from_one_users_table(spark: SparkSession, lake: Lake, notes: Table) -> None:
    write(frame(spark, 0, 5_000), lake, user="alice", extentBytes="20000")
    write(frame(spark, 0, 3), lake, user="../bob")
    assert ids(read(spark, lake, user="alice")) == list(range(5_000))
    assert ids(read(spark, lake, user="../bob")) == [0, 1, 2]
    keys = [extent.key for extent in notes.user("alice").extents()]
    assert keys
    assert all(key.startswith("app/notes/alice/job-") and key.endswith(".parquet") for key in keys)
    write(frame(spark, 7, 9), lake, "overwrite", user="../bob")
    assert ids(read(spark, lake, user="../bob")) == [7, 8]
    assert len(notes.user("alice")) == 5_000
    joined = read(spark, lake, user="alice").join(read(spark, lake, user="../bob"), "id")  # each at its own snapshot
    assert ids(joined) == [7, 8]
    assert lake.collect(orphan_after="0s", abandoned_after="0s").left == {}
    assert ids(read(spark, lake, user="alice")) == list(range(5_000))
    with pytest.raises(Exception, match="give a user"):
        read(spark, lake).count()
    with pytest.raises(Exception, match="give a user"):
        write(frame(spark, 0, 3), lake)
    with pytest.raises(Exception, match="not a user id"):
        read(spark, lake, user="").count()


def test_queries_on_spark_and_frames_of_a_table_are_the_users(spark: SparkSession, lake: Lake, notes: Table) -> None:
    notes.user("alice").append([{"id": 1, "ts": "2026-01-01", "text": "a"}])
    notes.user("bob").append([{"id": 2, "ts": "2026-01-01", "text": "b"}])
    for user, wanted in (("alice", [1]), ("bob", [2])):
        assert lake.sql("select id from app.notes", user=user, engine="spark").to_arrow()["id"].to_pylist() == wanted
        assert ids(notes.user(user).to_spark(["id"], spark=spark)) == wanted


def test_streams_are_of_one_user(spark: SparkSession, lake: Lake, notes: Table, tmp_path: Path) -> None:
    notes.user("alice").append([{"id": n, "ts": "2026-01-01", "text": "a"} for n in range(3)])
    notes.user("bob").append([{"id": 9, "ts": "2026-01-01", "text": "b"}])
    source = spark.readStream.format("tidelake").options(lake=lake.where, table="app.notes", user="alice").load()
    query = (
        source.writeStream.format("tidelake")
        .options(lake=lake.where, table="app.notes", user="copy", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert ids(read(spark, lake, user="copy")) == [0, 1, 2]
    assert ids(read(spark, lake, user="bob")) == [9]
    everybody = spark.readStream.format("tidelake").options(lake=lake.where, table="app.notes", users="all").load()
    with pytest.raises(Exception, match="a stream and a write are of one user"):
        everybody.writeStream.format("noop").start().awaitTermination()


@pytest.mark.parametrize("key", [(), ("id",)], ids=["plain", "keyed"])
def test_all_users_are_read_with_whose_each_row_is(spark: SparkSession, lake: Lake, key: tuple[str, ...]) -> None:
    notes = lake.create_table("app.notes", COLUMNS, scope="user", key=key, flush_age="off")
    for number, user in enumerate(("alice", "../bob", "carol")):
        one = notes.user(user)
        one.append([{"id": 10 * number + n, "ts": "2026-01-01", "text": user} for n in range(3)])
        one.flush()
        one.append([{"id": 10 * number, "ts": "2026-01-02", "text": "again"}])
    wanted = {(row["_user"], row["id"], row["text"]) for row in notes.all_users().to_arrow().to_pylist()}
    everything = read(spark, lake, users="all")
    assert everything.columns == ["id", "ts", "text", "_user"]
    found = {(row["_user"], row.id, row.text) for row in everything.collect()}
    assert found == wanted
    assert len(wanted) == (9 if key else 12)
    bobs = everything.where("_user = '../bob' and id > 10").select("id", "_user").collect()
    assert sorted((row.id, row["_user"]) for row in bobs) == [(11, "../bob"), (12, "../bob")]
    counted = everything.groupBy("_user").count().collect()
    assert {row["_user"]: row["count"] for row in counted} == dict.fromkeys(
        ("alice", "../bob", "carol"), 3 if key else 4
    )
    for options in ({"user": "alice"}, {"snapshot": "1"}):
        with pytest.raises(Exception, match="all users are read as they are"):
            read(spark, lake, users="all", **options).count()
    with pytest.raises(Exception, match="option users is all"):
        read(spark, lake, users="some").count()


def test_a_catalogs_tables_are_those_of_the_user_that_its_settings_name(spark: SparkSession, lake: Lake) -> None:
    session = tidelake.spark.register(spark.newSession(), lake=lake)
    session.sql("CREATE TABLE tidelake.app.notes (id BIGINT, ts TIMESTAMP, text STRING) TBLPROPERTIES ('scope'='user')")
    name = "spark.sql.catalog.tidelake.user"
    for number, user in enumerate(("alice", "bob")):
        session.conf.set(name, user)
        session.sql(f"INSERT INTO tidelake.app.notes VALUES ({number}, timestamp'2026-01-01 12:00:00', '{user}')")
        session.sql(f"INSERT INTO tidelake.app.notes VALUES ({number + 10}, timestamp'2026-01-01 12:00:00', '{user}')")
    session.conf.set(name, "alice")
    assert ids(session.table("tidelake.app.notes")) == [0, 10]
    assert ids(session.sql("SELECT * FROM tidelake.app.notes VERSION AS OF 1")) == [0]
    assert session.sql("SELECT * FROM tidelake.app.notes.history").count() == 2
    session.sql("DELETE FROM tidelake.app.notes WHERE id = 0")
    session.sql("CALL tidelake.system.flush('app.notes')")
    assert ids(session.table("tidelake.app.notes")) == [10]
    assert ids(session.sql("SELECT * FROM tidelake.app.notes WITH (user = 'bob')")) == [1, 11]
    session.conf.set(name, "bob")
    assert ids(session.table("tidelake.app.notes")) == [1, 11]
    session.conf.unset(name)
    session.sql("ALTER TABLE tidelake.app.notes SET TBLPROPERTIES ('history'='3d')")
    session.sql("ALTER TABLE tidelake.app.notes ADD COLUMN mood STRING")
    assert ids(session.sql("SELECT * FROM tidelake.app.notes WITH (user = 'bob')")) == [1, 11]
    with pytest.raises(Exception, match="give a user"):
        session.table("tidelake.app.notes").count()
    with pytest.raises(Exception, match="parquet"):
        session.sql("ALTER TABLE tidelake.app.notes SET TBLPROPERTIES ('format'='tlm')")
    session.conf.set(name, "\u200b")
    with pytest.raises(Exception, match="not a user id"):
        session.table("tidelake.app.notes").count()


def test_files_are_loaded_dropped_and_copied_into_one_users_tables(
    spark: SparkSession, lake: Lake, notes: Table, tmp_path: Path
) -> None:
    file = tmp_path / "notes.ndjson"
    file.write_text('{"id": 1, "ts": "2026-01-01T12:00:00Z", "text": "a"}\nnot JSON\n')
    alice, bob = lake.user("alice"), lake.user("../bob")
    assert load(alice, "app.notes", str(file), key="k", spark=spark).rows == 1
    assert load(alice, "app.notes", str(file), key="k", spark=spark).replayed
    assert load(bob, "app.notes", str(file), key="k", spark=spark).rows == 1  # a key is of one user
    with pytest.raises(InvalidInputError, match="user"):
        load(lake, "app.notes", str(file), spark=spark)
    inbox = tmp_path / "inbox" / "app" / "notes"
    inbox.mkdir(parents=True)
    (inbox / "two.ndjson").write_text('{"id": 2, "ts": "2026-01-01T12:00:00Z", "text": "b"}\n')
    (report,) = watch(bob, tmp_path / "inbox", once=True, spark=spark)
    assert (report.rows, report.quarantined) == (1, 0)
    assert copy(bob, "app.notes", "app.kept", query="select * from source where id > 1", spark=spark).rows == 1
    assert [len(notes.user(each)) for each in ("alice", "../bob")] == [1, 2]
    assert lake.table("app.kept").user("../bob").scan(columns=["text"]).read_all().to_pylist() == [{"text": "b"}]
    quarantine = lake.table("app.notes_quarantine")
    assert list(quarantine.users()) == ["../bob", "alice"]
    assert len(quarantine.user("alice")) == 1
