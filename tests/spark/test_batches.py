"""Write streams in every output mode, and each batch once, whoever runs it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelake
import tidelake.spark
from tidelake import Lake

MERGE = "ON t.n = s.n WHEN MATCHED THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED THEN INSERT *"


@pytest.fixture
def session(spark: SparkSession, lake: Lake) -> SparkSession:
    """Return a session of its own that has the lake as its catalog."""
    return tidelake.spark.register(spark.newSession(), lake=lake)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    put(folder, 1, [(1, 10), (2, 20)])
    put(folder, 2, [(1, 5), (3, 7)])
    return folder


def put(folder: Path, number: int, rows: list[tuple[int, int]]) -> None:
    whole = folder.parent / f"{number}.part"
    whole.write_text("".join(f"{n},{v}\n" for n, v in rows))
    whole.rename(folder / f"{number}.csv")


def stream(session: SparkSession, source: Path) -> DataFrame:
    return session.readStream.schema("n bigint, v bigint").option("maxFilesPerTrigger", 1).csv(str(source))


def sums(session: SparkSession, source: Path) -> DataFrame:
    return stream(session, source).groupBy("n").sum("v").withColumnRenamed("sum(v)", "v")


def run(writer: Any, checkpoint: Path, **to: str) -> None:
    started = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = started.toTable(to["table"]) if to else started.start()
    query.awaitTermination()


def held(lake: Lake, name: str) -> dict[int, int]:
    found = lake.table(name).to_arrow(["n", "v"]).to_pylist()
    assert len({row["n"] for row in found}) == len(found)
    return {row["n"]: row["v"] for row in found}


@pytest.mark.parametrize(
    ("mode", "key"), [("update", ["n"]), ("complete", ["n"]), ("complete", [])], ids=["update", "complete", "plain"]
)
def test_an_aggregate_is_kept_as_the_stream_has_it(
    session: SparkSession, lake: Lake, source: Path, tmp_path: Path, mode: str, key: list[str]
) -> None:
    table = lake.create_table("g.sums", {"n": "long", "v": "long"}, key=key)
    for _ in range(2):  # the second run has one batch more
        run(sums(session, source).writeStream.outputMode(mode), tmp_path / "c", table="tidelake.g.sums")
        put(source, 3, [(3, 100), (4, 1)])
    assert held(lake, "g.sums") == {1: 15, 2: 20, 3: 107, 4: 1}
    assert [each.operation for each in table.history()].count("append" if mode == "update" else "replace") == 3


def test_a_batch_that_comes_again_is_not_replaced_again(
    session: SparkSession, lake: Lake, source: Path, tmp_path: Path
) -> None:
    table = lake.create_table("g.sums", {"n": "long", "v": "long"})
    writer = sums(session, source).writeStream.format("tidelake").options(lake=lake.where, table="g.sums")
    run(writer.outputMode("complete"), tmp_path / "c")
    before = table.snapshot.sequence
    for each in (tmp_path / "c" / "commits").glob("*1*"):  # as if the driver had died before it noted the end
        each.unlink()
    run(writer.outputMode("complete"), tmp_path / "c")
    assert (held(lake, "g.sums"), table.snapshot.sequence) == ({1: 15, 2: 20, 3: 7}, before)


def test_update_mode_is_refused_where_there_is_no_key(
    session: SparkSession, lake: Lake, source: Path, tmp_path: Path
) -> None:
    lake.create_table("g.sums", {"n": "long", "v": "long"})
    with pytest.raises(Exception, match="does not support Update mode"):
        run(sums(session, source).writeStream.outputMode("update"), tmp_path / "c", table="tidelake.g.sums")
    assert len(lake.table("g.sums")) == 0


@pytest.mark.parametrize("key", [["n"], []], ids=["key", "plain"])
def test_a_batch_is_merged_once(
    session: SparkSession, lake: Lake, source: Path, tmp_path: Path, key: list[str]
) -> None:
    lake.create_table("g.sums", {"n": "long", "v": "long"}, key=key)
    told: list[bool] = []

    def merge(frame: DataFrame, batch: int) -> None:
        told.extend([tidelake.spark.merge_batch(frame, batch, "tidelake.g.sums", MERGE) for _ in range(2)])
        if batch == 1 and len(told) == 4:
            raise RuntimeError("the driver is gone")

    with pytest.raises(Exception, match="the driver is gone"):
        run(stream(session, source).writeStream.foreachBatch(merge), tmp_path / "c")
    put(source, 3, [(1, 100)])
    run(stream(session, source).writeStream.foreachBatch(merge), tmp_path / "c")
    assert told == [True, False, True, False, False, False, True, False]
    assert held(lake, "g.sums") == {1: 115, 2: 20, 3: 7}
    assert session.catalog.listTables("default") == []


def test_a_merge_of_no_stream_says_so(session: SparkSession, lake: Lake) -> None:
    lake.create_table("g.sums", {"n": "long", "v": "long"})
    frame = session.range(3).selectExpr("id as n", "1L as v")
    with pytest.raises(tidelake.InvalidInputError, match="name one with stream"):
        tidelake.spark.merge_batch(frame, 1, "tidelake.g.sums", MERGE)
    told = [tidelake.spark.merge_batch(frame, batch, "tidelake.g.sums", MERGE, stream="mine") for batch in (1, 1, 2, 1)]
    assert (told, held(lake, "g.sums")) == ([True, False, True, False], {0: 2, 1: 2, 2: 2})
    session.sql("UPDATE tidelake.g.sums SET v = v + 1")  # which is of no batch
    session.sql("UPDATE tidelake.g.sums SET v = v + 1")
    assert held(lake, "g.sums") == {0: 4, 1: 4, 2: 4}


def test_a_write_with_a_number_happens_once(session: SparkSession, lake: Lake) -> None:
    lake.create_table("g.sums", {"n": "long", "v": "long"})
    frame = session.range(2).selectExpr("id as n", "id as v")
    for number in (3, 3, 2):
        frame.writeTo("tidelake.g.sums").options(txnAppId="a", txnVersion=number).append()
    assert held(lake, "g.sums") == {0: 0, 1: 1}
    more = frame.selectExpr("n + 10 as n", "v")
    options = {"lake": lake.where, "table": "g.sums", "txnAppId": "a", "txnVersion": "4"}
    more.write.format("tidelake").mode("overwrite").options(**options).save()
    session.sql("INSERT INTO tidelake.g.sums VALUES (5, 5)")
    more.write.format("tidelake").mode("overwrite").options(**options).save()
    assert held(lake, "g.sums") == {10: 0, 11: 1, 5: 5}
    with pytest.raises(Exception, match="go together"):
        frame.writeTo("tidelake.g.sums").option("txnAppId", "a").append()
