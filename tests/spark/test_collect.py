"""Show that collection knows what a Spark job has written: it leaves a running job alone, and takes what one left.

A job is also taken apart, step by step as the driver and its tasks do it, to collect between any two. It does not test
what else is collected: see ``tests/maintain``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

import tidelake
from tests.support.upkeep import check_store
from tidelake.catalog.protocol import Pending
from tidelake.errors import ConflictError
from tidelake.ingest import coerce_arrow
from tidelake.lake import Lake
from tidelake.spark.places import Place
from tidelake.spark.writing import Extents, Job, Written, commit_written, give_up, plan_job, register_folder

NOW: dict[str, Any] = {"abandoned_after": "0s", "orphan_after": "0s"}
FRAME = StructType([StructField("ts", TimestampType()), StructField("n", LongType())])


@pytest.fixture(params=["lake", "log"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    with tidelake.connect(f"{'log:' * (request.param == 'log')}{tmp_path / 'lake'}") as found:
        found.create_table("t", {"ts": "timestamp", "n": "long"}, time="ts", bucket="1m")
        yield found


@pytest.fixture
def other(lake: Lake) -> Iterator[Lake]:
    with tidelake.connect(lake.where) as found:
        yield found


def planned(lake: Lake) -> Job:
    """Do what the driver does first."""
    table = lake.table("t").handle
    job = plan_job(table, Place.of_handle(lake.handle), FRAME, {})
    register_folder(table, job.folder)
    return job


def task(lake: Lake, job: Job, number: int, count: int = 3000) -> Written:
    """Do what a task does: write one extent into the job's folder."""
    times = pa.array([number * 60_000_000] * count, pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"ts": times, "n": pa.array(range(number * count, (number + 1) * count), pa.int64())})
    extents = Extents(lake.store, job)
    extents.take(coerce_arrow(rows, job.schema, job.rules))
    return extents.finish(inline_bytes=0)


def numbers(lake: Lake) -> list[int]:
    return sorted(lake.table("t").scan(columns=["n"]).read_all()["n"].to_pylist())


def quiet(lake: Lake) -> None:
    """Collect all that may be, and check that nothing else is gone."""
    lake.collect(**NOW)
    check_store(lake)
    assert [*lake.catalog.pending(), *lake.catalog.garbage(before_us=2**60)] == []


def test_a_collection_at_any_step_of_a_job_leaves_it_alone(lake: Lake, other: Lake) -> None:
    job = planned(lake)
    other.collect(orphan_after="0s")
    written = []
    for number in range(2):
        written.append(task(lake, job, number))
        assert other.collect(orphan_after="0s").left["writing"] >= 1
    task(lake, job, 0)  # another attempt, which Spark does not choose
    commit_written(lake.table("t").handle, job.id, job.folder, written)
    assert numbers(lake) == list(range(6000))
    assert other.collect().deleted["abandoned"].objects >= 1
    assert numbers(lake) == list(range(6000))
    quiet(lake)
    assert numbers(lake) == list(range(6000))


def test_a_job_that_was_given_up_is_refused_and_leaves_nothing(lake: Lake, other: Lake) -> None:
    job = planned(lake)
    written = [task(lake, job, 0)]
    other.collect(**NOW)
    late = task(lake, job, 1)  # a task that did not hear of it
    table = lake.table("t").handle
    with pytest.raises(ConflictError, match="given up for collection"):
        commit_written(table, job.id, job.folder, [*written, late])
    give_up(table, job.folder, [*written, late])
    quiet(lake)
    assert numbers(lake) == []


def test_a_job_can_be_given_up_whose_extents_were_given_up_by_name_before(lake: Lake, other: Lake) -> None:
    job = planned(lake)
    written = [task(lake, job, number) for number in range(2)]
    table = lake.table("t").handle
    names = [Pending(key, table.scope, "spark elsewhere:1") for key in written[0].keys]
    lake.catalog.register_pending(names)
    other.catalog.release_pending([each.key for each in names])  # too old, as a collection sees it, and not yet deleted
    late = task(lake, job, 2)  # an attempt that Spark did not choose
    catalog: Any = lake.catalog
    register = catalog.register_pending
    registered: list[str] = []

    def noted(pending: list[Pending]) -> None:
        registered.extend(each.key for each in pending)
        register(pending)

    catalog.register_pending = noted
    give_up(table, job.folder, written)
    assert set(registered) == set(late.keys)  # a commit under way could still find those that were named before
    assert lake.catalog.pending() == []
    quiet(lake)
    assert numbers(lake) == []


@pytest.mark.parametrize("verb", ["pending", "commit", "receipt"])
def test_a_folder_that_is_given_up_while_its_job_commits_loses_nothing(lake: Lake, other: Lake, verb: str) -> None:
    """Before the driver looks for the folder, the job is refused; after that, all of its extents are in."""
    job = planned(lake)
    written = [task(lake, job, number) for number in range(2)]
    catalog: Any = lake.catalog
    ask: Callable[..., Any] = getattr(catalog, verb)

    def overtaken(*words: Any, **more: Any) -> Any:
        delattr(catalog, verb)
        other.catalog.release_pending([job.folder])
        other.collect()
        return ask(*words, **more)

    setattr(catalog, verb, overtaken)
    table = lake.table("t").handle
    try:
        commit_written(table, job.id, job.folder, written)
        assert verb == "commit"
    except ConflictError:
        assert verb != "commit"
        give_up(table, job.folder, written)
    held = numbers(lake)
    assert held == (list(range(6000)) if verb == "commit" else [])
    quiet(lake)
    assert numbers(lake) == held


def test_what_a_killed_driver_left_is_collected_and_what_it_committed_stays(lake: Lake, other: Lake) -> None:
    job = planned(lake)
    written = [task(lake, job, number) for number in range(3)]
    table = lake.table("t").handle
    commit_written(table, job.id, job.folder, written[:1], keep_folder=True)  # and killed before it forgot its folder
    names = [Pending(key, table.scope, "spark elsewhere:1") for key in written[1].keys]
    lake.catalog.register_pending(names)  # of the next commit, which never came
    report = other.collect(**NOW)
    assert report.deleted["abandoned"].objects == sum(len(each.keys) for each in written[1:])
    assert numbers(lake) == list(range(3000))
    quiet(lake)


def test_collectors_beside_a_running_job_leave_it_alone(spark: SparkSession, lake: Lake, other: Lake) -> None:
    done, reports = threading.Event(), list[Any]()

    def sweep() -> None:
        while not done.is_set():
            reports.append(other.collect(orphan_after="0s"))

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        frame = spark.range(60_000, numPartitions=4).selectExpr("timestamp_micros(id * 1000000) as ts", "id as n")
        options = {"lake": lake.where, "table": "t", "extentBytes": "100000"}
        for _ in range(2):
            frame.write.format("tidelake").options(**options).mode("append").save()
    finally:
        done.set()
        thread.join(120)
    assert numbers(lake) == sorted([*range(60_000)] * 2)
    assert any(report.left.get("writing") for report in reports)
    quiet(lake)
    assert numbers(lake) == sorted([*range(60_000)] * 2)
