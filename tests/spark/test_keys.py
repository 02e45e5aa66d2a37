"""Tables with a key in Spark: writes upsert, reads see the newest version, streams tell what changes."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tidelake import Lake, Table, connect

COLUMNS = {"id": "long", "ts": "timestamp", "text": "string"}


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    with connect(tmp_path / "lake", upkeep=False) as lake:
        yield lake


@pytest.fixture
def notes(lake: Lake) -> Table:
    return lake.create_table("app.notes", COLUMNS, key=["id"], flush_age="off")


def frame(spark: SparkSession, first: int, end: int, text: str) -> DataFrame:
    return spark.range(first, end, 1, 3).selectExpr("id", "timestamp'2026-01-01 12:00:00' as ts", f"'{text}' as text")


def written(frame: DataFrame, lake: Lake, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("tidelake").option("lake", lake.where).option("table", "app.notes")
    writer.options(**options).mode(mode).save()


def texts(spark: SparkSession, lake: Lake) -> dict[int, str]:
    reader = spark.read.format("tidelake").option("lake", lake.where).option("table", "app.notes")
    found = reader.load().select("id", "text").collect()
    assert len({row.id for row in found}) == len(found)
    return {row.id: row.text for row in found}


def held(table: Table) -> dict[int, str]:
    return {row["id"]: row["text"] for row in table.scan(["id", "text"]).read_all().to_pylist()}


def test_a_frame_is_upserted_and_every_engine_sees_the_newest(spark: SparkSession, lake: Lake, notes: Table) -> None:
    written(frame(spark, 0, 5_000, "first"), lake, extentBytes="20000")
    written(frame(spark, 4_000, 6_000, "second"), lake)
    notes.append([{"id": 7, "ts": "2026-01-01", "text": "hot"}])
    notes.delete_keys([0, 5_999])
    wanted = {id: "second" if id >= 4_000 else "first" for id in range(1, 5_999)} | {7: "hot"}
    assert texts(spark, lake) == held(notes) == wanted
    asked = "select count(*) as c, min(id) as low, max(text) as most from app.notes where text <> 'first'"
    assert lake.sql(asked, engine="spark").to_arrow().to_pylist() == lake.sql(asked).to_arrow().to_pylist()
    notes.flush()
    notes.compact()
    assert texts(spark, lake) == held(notes) == wanted


def test_a_range_is_overwritten_without_bringing_older_versions_back(
    spark: SparkSession, lake: Lake, notes: Table
) -> None:
    written(frame(spark, 0, 10, "first"), lake)
    written(frame(spark, 0, 10, "second"), lake)
    written(frame(spark, 3, 5, "third"), lake, "overwrite", start="2026-01-01", end="2026-01-02")
    assert texts(spark, lake) == held(notes) == {3: "third", 4: "third"}
    written(frame(spark, 1, 2, "all"), lake, "overwrite")
    assert texts(spark, lake) == {1: "all"}


def test_rows_without_a_key_fail_the_job_and_change_nothing(spark: SparkSession, lake: Lake, notes: Table) -> None:
    odd = spark.sql("select cast(null as bigint) as id, timestamp'2026-01-01 12:00:00' as ts, 'x' as text")
    with pytest.raises(Exception, match="has one of type long"):
        written(odd, lake)
    assert held(notes) == {}


def test_a_stream_of_changes_replayed_is_the_table(
    spark: SparkSession, lake: Lake, notes: Table, tmp_path: Path
) -> None:
    notes.append([{"id": id, "ts": "2026-01-01", "text": "first"} for id in range(5)])
    notes.append([{"id": 1, "ts": "2026-01-01", "text": "second"}])
    notes.delete_keys([2])
    state: dict[int, tuple[int, str | None]] = {}
    plain: list[Row] = []

    def apply(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            if row.id not in state or state[row.id][0] < row._seq:
                state[row.id] = (row._seq, row.text if row._op == "upsert" else None)

    def follow(changes: str, each: Any) -> None:
        reader = spark.readStream.format("tidelake").option("lake", lake.where).option("table", "app.notes")
        stream = reader.option("changes", changes).load().writeStream.trigger(availableNow=True)
        query = stream.option("checkpointLocation", str(tmp_path / changes)).foreachBatch(each).start()
        query.awaitTermination(120)

    follow("true", apply)
    assert {id: text for id, (_, text) in state.items() if text is not None} == held(notes)
    assert set(state) == {0, 1, 3, 4}, "what was hidden where the stream began is not told"
    notes.flush()
    notes.append([{"id": 9, "ts": "2026-01-01", "text": "new"}, {"id": 3, "ts": "2026-01-01", "text": "third"}])
    notes.delete_keys([0, 9])
    notes.compact()
    follow("true", apply)
    assert {id: text for id, (_, text) in state.items() if text is not None} == held(notes)
    follow("false", lambda batch, _: plain.extend(batch.collect()))
    assert {row.id: row.text for row in plain} == held(notes)


def test_a_random_history_is_the_same_for_all_engines(spark: SparkSession, lake: Lake, notes: Table) -> None:
    chance = Random(20261117)
    wanted: dict[int, str] = {}
    for step in range(36):
        ids = chance.sample(range(40), chance.randint(1, 12))
        match chance.choice(("upsert", "upsert", "spark", "delete", "flush", "compact")):
            case "upsert":
                notes.append([{"id": id, "ts": "2026-01-01", "text": f"step {step}"} for id in ids])
                wanted |= dict.fromkeys(ids, f"step {step}")
            case "spark" if step % 3 == 0:
                first = min(ids)
                written(frame(spark, first, first + 5, f"spark {step}"), lake)
                wanted |= dict.fromkeys(range(first, first + 5), f"spark {step}")
            case "delete":
                notes.delete_keys(ids)
                wanted = {id: text for id, text in wanted.items() if id not in ids}
            case "flush":
                notes.flush()
            case _:
                notes.compact()
        assert held(notes) == wanted
        if step % 9 == 8:
            assert texts(spark, lake) == wanted
            asked = "select count(*) as c, min(text) as least, sum(id) as total from app.notes where id > 7"
            answers = [lake.sql(asked, engine=engine).to_arrow().to_pylist() for engine in ("local", "spark")]
            assert answers[0] == answers[1]
