"""Do upkeep with compactions on Spark: rows stay, leases fence, and what fails leaves nothing."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import tidelake
import tidelake.spark
from tidelake import Lake, Table
from tidelake.cli.main import main
from tidelake.maintain import units, worker
from tidelake.model.snapshot import Fence
from tidelake.spark import working

NOW = int(time.time()) // 60 * 60
COLUMNS = {"ts": "timestamp", "k": "string", "v": "long", "d": "dynamic"}


def filled(lake: Lake, name: str, **settings: Any) -> Table:
    """Make a table of six small extents that lie in one another, and a hot row."""
    table = lake.create_table(name, COLUMNS, time="ts", flush_age="off", upkeep=False, **settings)
    for at in range(6):
        times = range(NOW - 9000 + at, NOW - 9000 + at + 6006, 6)
        table.append([{"ts": ts, "k": "ab"[v % 2], "v": v, "d": {"x": v % 7}} for v, ts in enumerate(times)])
    table.append([{"ts": NOW, "k": "c", "v": -1}])
    return table


def held(table: Table) -> Counter[str]:
    return Counter(map(repr, table.to_arrow().to_pylist()))


def test_compactions_run_in_tasks_and_give_what_they_give_here(spark: SparkSession, lake: Lake) -> None:
    several: dict[str, dict[str, Any]] = {
        "plain": {},
        "sorted": {"cluster_by": ["k"]},
        "covered": {"bucket": "1m", "entity": ["k"], "format": "parquet"},
    }
    tables = {name: filled(lake, name, **settings) for name, settings in several.items()}
    twins = {name: filled(lake, f"{name}_twin", **settings) for name, settings in several.items()}
    before = {name: held(table) for name, table in tables.items()}
    for twin in twins.values():
        twin.compact()
    told: list[worker.Step] = []
    assert tidelake.spark.work(lake, spark=spark, tell=told.append) == len(told)
    assert [step.error for step in told] == [None] * len(told)
    said = {step.done.table: step.done.said for step in told if step.done.said}
    assert said == {f"default.{name}": "6 extents became 1" for name in tables}
    for name, table in tables.items():
        assert held(table) == before[name]
        ((extent,), (other,)) = table.extents(), twins[name].extents()
        assert (extent.level, extent.format, extent.column_stats) == (other.level, other.format, other.column_stats)
        read, as_here = (
            t.handle.footers.open(e).read_block(0, ["ts", "k"]) for t, e in ((table, extent), (twins[name], other))
        )
        assert read == as_here
        assert table.history()[0].operation == "compact"
    assert tables["covered"].coverage.gaps().equals(twins["covered"].coverage.gaps())
    assert lake.catalog.pending() == []
    assert lake.catalog.work.units(state="queued") == lake.catalog.work.units(state="leased") == []


def test_worker_that_lost_its_lease_cannot_commit(spark: SparkSession, lake: Lake) -> None:
    table = filled(lake, "t")
    (unit,) = worker.plan(lake.handle)
    slow = lake.catalog.work.claim([unit.kind], owner="slow", lease_us=1)
    assert slow is not None
    time.sleep(0.01)
    assert lake.catalog.work.claim([unit.kind], owner="fast", lease_us=60_000_000) is not None
    with pytest.raises(tidelake.ConflictError, match="lease"):
        units.do(
            lake.handle, worker._due_of(slow), fence=Fence(slow.id, slow.token), compact_run=working._compact_on(spark)
        )
    assert len(table.extents()) == 6
    assert lake.catalog.pending() == []
    committed = {extent.key for extent in table.extents()}
    garbage = {each.key for each in lake.catalog.garbage(before_us=2**62)}
    assert all(meta.key in committed | garbage for meta in lake.store.list("data"))


def test_failed_piece_changes_nothing_and_is_tried_again(spark: SparkSession, lake: Lake) -> None:
    table, other = filled(lake, "t"), filled(lake, "u")
    lost = Path(lake.where) / table.extents()[2].key
    data = lost.read_bytes()
    lost.unlink()
    told: list[worker.Step] = []
    working.work(lake, kinds=["compact"], spark=spark, tell=told.append)
    assert [type(step.error) for step in told if step.error] == [tidelake.NotFoundError]
    assert (len(table.extents()), len(other.extents())) == (6, 1)
    assert lake.catalog.pending() == []
    lost.write_bytes(data)
    (unit,) = lake.catalog.work.units(state="queued")
    assert "no such object" in (unit.error or "")


def test_command_works_on_spark(spark: SparkSession, lake: Lake) -> None:
    table = filled(lake, "t")
    run = CliRunner().invoke(main, ["work", "--spark", "--only", "compact", "--until-idle", "--lake", lake.where])
    assert (run.exit_code, run.output) == (0, "default.t: 6 extents became 1\n1 pieces of work done\n")
    assert len(table.extents()) == 1
    run = CliRunner().invoke(main, ["work", "--master", "local[1]", "--lake", lake.where])
    assert run.exit_code == 2
    assert "--master is for --spark" in run.output
