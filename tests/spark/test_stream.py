"""Write and read tables as streams."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidelake.lake import Lake
from tidelake.spark.drops import stream
from tidelake.table import Table


def rows(first: int, count: int) -> list[dict[str, object]]:
    return [{"ts": f"2026-01-01T00:00:{n % 60:02}Z", "n": n} for n in range(first, first + count)]


def make(lake: Lake, name: str = "a") -> Table:
    return lake.create_table(name, {"ts": "timestamp", "n": "long"}, time="ts")


def numbers(table: Table) -> list[int]:
    return sorted(table.to_arrow(["n"])["n"].to_pylist())


def follow(spark: SparkSession, lake: Lake, tmp_path: Path, source: str, target: str, **options: str) -> StreamingQuery:
    """Run one table into another until nothing is left, from where the last run stopped."""
    frame = spark.readStream.format("tidelake").options(lake=lake.where, table=source, **options).load()
    query = (
        frame.writeStream.format("tidelake")
        .options(lake=lake.where, table=target, checkpointLocation=str(tmp_path / f"checkpoint-{source}-{target}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return query


def test_stream_gives_every_row_once_whatever_moves_it(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    source, target = make(lake), make(lake, "b")
    source.append(rows(0, 2_000))
    source.append(rows(2_000, 5))  # hot
    follow(spark, lake, tmp_path, "a", "b")
    assert numbers(target) == list(range(2_005))
    source.flush()  # moves hot rows that were delivered
    source.append(rows(2_005, 5))
    source.append(rows(2_010, 1_500))
    source.flush()  # and some that were not
    follow(spark, lake, tmp_path, "a", "b")
    assert numbers(target) == list(range(3_510))
    source.flush()
    follow(spark, lake, tmp_path, "a", "b")
    assert numbers(target) == list(range(3_510))


def test_stream_takes_at_most_so_many_extents_a_batch(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    source, target = make(lake), make(lake, "b")
    for start in range(0, 7_500, 1_500):
        source.append(rows(start, 1_500))
    query = follow(spark, lake, tmp_path, "a", "b", maxExtentsPerTrigger="2")
    assert numbers(target) == list(range(7_500))
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [
        3_000,
        3_000,
        1_500,
    ]


def test_stream_starts_after_a_snapshot(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    source, target = make(lake), make(lake, "b")
    after = source.append(rows(0, 10)).snapshot
    source.append(rows(10, 10))
    follow(spark, lake, tmp_path, "a", "b", startingSnapshot=str(after))
    assert numbers(target) == list(range(10, 20))


def test_replayed_batch_changes_nothing(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Forget that the last batch was committed, as a driver does that is killed at the wrong moment."""
    source, target = make(lake), make(lake, "b")
    source.append(rows(0, 1_200))
    follow(spark, lake, tmp_path, "a", "b")
    commits = tmp_path / "checkpoint-a-b" / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink()
    before = target.snapshot.sequence
    follow(spark, lake, tmp_path, "a", "b")
    assert numbers(target) == list(range(1_200))
    assert target.snapshot.sequence == before
    assert lake.catalog.pending() == []


def test_any_source_streams_through_the_hook(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    make(lake)
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("".join(f"{n}\n" for n in range(50)))
    query = stream(
        lambda session: session.readStream.text(str(folder)).selectExpr(
            "current_timestamp() as ts", "cast(value as bigint) as n"
        ),
        lake,
        "a",
        checkpoint=str(tmp_path / "checkpoint"),
        every=None,
        spark=spark,
    )
    query.awaitTermination(120)
    assert numbers(lake.table("a")) == list(range(50))
