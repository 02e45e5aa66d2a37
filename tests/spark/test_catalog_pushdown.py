"""Push counts, bounds, limits and what joins find out to a catalog's tables: to the answers that rows give."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelake
import tidelake.spark
from tidelake.lake import Lake
from tidelake.spark.catalog import aggregates
from tidelake.spark.plans import figures

EXTENTS, ROWS = 6, 500
COLUMNS = {
    "ts": "timestamp", "i": "int", "n": "long", "x": "real", "ok": "bool", "s": "string", "d": "dynamic", "day": "date",
    "wall": "timestamp_ntz", "price": "decimal(12,3)",
}  # fmt: skip
ORDERED = [name for name in COLUMNS if name != "d"]


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with tidelake.connect(tmp_path_factory.mktemp("catalog-pushdown") / "lake") as lake:
        fill(lake)
        yield tidelake.spark.register(spark.newSession(), lake=lake)


def fill(lake: Lake) -> None:
    """Make tables of one schema: of extents alone, with hot rows too, with nulls and odd numbers, and an empty one."""
    rng = random.Random(3)
    for name in ("sound", "odd", "warm", "empty"):
        table = lake.create_table(f"obs.{name}", COLUMNS, time="ts", flush_age="off")
        for extent in range(0 if name == "empty" else EXTENTS):
            table.append([row(rng, extent, k, name) for k in range(ROWS)])
            table.flush()
        if name == "warm":
            table.append([row(rng, EXTENTS + 1, k, name) | {"n": 10**9 + k, "s": f"zz{k}"} for k in range(7)])


def row(rng: random.Random, extent: int, k: int, name: str) -> dict[str, Any]:
    is_odd = name == "odd"
    made = {
        "ts": f"2026-01-{extent + 1:02}T{k % 24:02}:{k % 60:02}:00.{k:06}Z", "i": rng.randrange(-50, 50) or 1,
        "n": extent * 10_000 + k, "x": rng.random() + 0.5, "ok": rng.random() < 0.5,
        "s": ("é" * (400 if is_odd else 3)) + str(rng.randrange(99)), "d": {"a": rng.randrange(3)},
        "day": f"2026-02-{rng.randrange(1, 28):02}", "wall": f"2026-01-01T00:00:{k % 60:02}.5", "price": f"{k}.125",
    }  # fmt: skip
    if is_odd:
        made["x"] = rng.choice([float("nan"), -0.0, 0.0, float("inf"), 1.5])
        made |= {name: None for name in ("i", "s", "ok", "x") if rng.random() < 0.2}
    return made


def is_answered(frame: DataFrame) -> bool:
    """Whether a query has its answer from metadata: no scan is left to run."""
    return "LocalTableScan" in frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("table", ["sound", "odd", "warm", "empty"])
def test_counts_and_bounds_are_those_of_the_rows(session: SparkSession, table: str) -> None:
    asked = [f"{each}({name})" for name in ORDERED for each in ("min", "max", "count")]
    singly = [f"SELECT {each} AS a FROM tidelake.obs.{table}" for each in asked]
    whole = f"SELECT count(*), count(1), {', '.join(asked)} FROM tidelake.obs.{table}"
    reading = (
        f"SELECT count(*), count(1), {', '.join(asked)} FROM tidelake.obs.{table} WHERE n IS NOT NULL OR n IS NULL"
    )
    expected = session.sql(reading.replace("WHERE", "WHERE rand() < 2 AND (") + ")").collect()[0]
    assert str(session.sql(whole).collect()[0]) == str(expected)
    answered = 0
    for text, wanted in zip(singly, expected[2:], strict=True):
        frame = session.sql(text)
        if is_answered(frame):
            answered += 1
            assert str(frame.collect()[0].a) == str(wanted), text
    assert answered >= (len(asked) // 2 if table in ("sound", "warm") else 5)


def test_a_count_is_no_job_and_goes_with_the_table(session: SparkSession) -> None:
    count = session.sql("SELECT count(*) AS c, max(ts) AS m, min(s) AS s FROM tidelake.obs.warm")
    assert is_answered(count)
    assert count.collect()[0].c == EXTENTS * ROWS + 7
    assert session.sql("SELECT count(*) FROM tidelake.obs.warm VERSION AS OF 1").collect()[0][0] < EXTENTS * ROWS


def test_what_statistics_cannot_tell_is_read(session: SparkSession) -> None:
    for text in (
        "SELECT count(*) FROM tidelake.obs.sound WHERE i > 0", "SELECT count(DISTINCT i) FROM tidelake.obs.sound",
        "SELECT i, count(*) FROM tidelake.obs.sound GROUP BY i", "SELECT max(s) FROM tidelake.obs.odd",
        "SELECT max(x) FROM tidelake.obs.odd", "SELECT sum(n) FROM tidelake.obs.sound",
        "SELECT max(price) FROM tidelake.obs.sound", "SELECT max(i + 1) FROM tidelake.obs.sound",
    ):  # fmt: skip
        assert not is_answered(session.sql(text)), text


def test_values_that_lie_elsewhere_are_counted_by_reading(session: SparkSession, lake: Lake) -> None:
    other = tidelake.spark.register(session.newSession(), lake=lake)
    table = lake.create_table("obs.spilled", {"ts": "timestamp", "n": "long"}, time="ts", flush_age="off")
    table.append([{"ts": k, "n": k} for k in range(10)])
    table.append([{"ts": 20, "n": "many"}, {"ts": 21, "n": 2**70}])
    table.flush()
    keyed = lake.create_table("obs.keyed", {"ts": "timestamp", "n": "long"}, key=["n"])
    for _ in range(2):
        keyed.append([{"ts": k, "n": k} for k in range(10)])
    assert other.sql("SELECT count(*) FROM tidelake.obs.keyed").collect()[0][0] == 10
    read = other.sql("SELECT count(n), max(n) FROM tidelake.obs.spilled WHERE rand() < 2").collect()
    assert other.sql("SELECT count(n), max(n) FROM tidelake.obs.spilled").collect() == read
    assert other.sql("SELECT count(*) FROM tidelake.obs.spilled").collect()[0][0] == 12


def test_first_rows_by_time_and_a_limit_read_few_extents(session: SparkSession) -> None:
    rng = random.Random(1)
    for table in ("sound", "warm"):
        everything = [row.n for row in session.sql(f"SELECT n FROM tidelake.obs.{table} ORDER BY ts, n").collect()]
        for _ in range(6):
            limit, order = rng.choice([1, 3, 499, 501, 1200, 9999]), rng.choice(["", "DESC"])
            text = f"SELECT n FROM tidelake.obs.{table} ORDER BY ts {order}, n {order} LIMIT {limit}"
            wanted = everything[:limit] if not order else everything[::-1][:limit]
            assert [row.n for row in session.sql(text).collect()] == wanted, text
    last = session.sql("SELECT n FROM tidelake.obs.sound ORDER BY ts DESC LIMIT 5")
    assert "1 extent," in tidelake.spark.explain(last)
    few = session.sql("SELECT n, s FROM tidelake.obs.sound LIMIT 5")
    assert len(few.collect()) == 5
    assert metrics(few)["extents read"] == 1
    assert len(session.sql("SELECT n FROM tidelake.obs.warm LIMIT 100000").collect()) == EXTENTS * ROWS + 7
    assert session.sql("SELECT n FROM tidelake.obs.sound WHERE i = 7 LIMIT 2").count() == 2


def test_a_join_prunes_by_what_its_small_side_has(session: SparkSession) -> None:
    days = "SELECT 20000L + id AS n, id % 3 AS kind FROM range(0, 60)"
    session.sql(days).createOrReplaceTempView("few_numbers")
    text = "SELECT s.n, s.s FROM tidelake.obs.sound s JOIN few_numbers f ON s.n = f.n WHERE f.kind = 1"
    joined = session.sql(text)
    assert sorted(row.n for row in joined.collect()) == [20_000 + k for k in range(60) if k % 3 == 1]
    assert "dynamicpruning" in joined._jdf.queryExecution().executedPlan().toString().lower()
    assert metrics(joined) == metrics(joined) | {"extents read": 1, "extents pruned": EXTENTS - 1}
    nothing = session.sql(text.replace("kind = 1", "kind = 9"))
    assert nothing.collect() == []
    many = text.replace("few_numbers f", "(SELECT 20000L + id AS n, 1 AS kind FROM range(0, 1500) WHERE id % 3 = 0) f")
    assert session.sql(many).count() == 167
    union = f"{text} UNION ALL SELECT n, s FROM tidelake.obs.sound WHERE n < 2"
    assert session.sql(union).count() == 22


def test_figures_of_a_plan_are_metrics_of_the_query(session: SparkSession) -> None:
    frame = session.sql("SELECT i FROM tidelake.obs.sound WHERE ts < '2026-01-03'")
    assert len(frame.collect()) == 2 * ROWS
    found = metrics(frame)
    assert (found["extents read"], found["extents pruned"]) == (2, EXTENTS - 2)
    assert 0 < found["stored bytes read"] < found["stored bytes pruned"]
    assert figures("a plan of another process") == {}


def test_bounds_of_time_pieces_are_those_that_hold_rows_enough() -> None:
    pieces = [(0, 10, 5), (8, 20, 5), (15, 30, 5), (40, 50, 1)]
    assert aggregates._bound_of(pieces, 1, descending=True) == 40
    assert aggregates._bound_of(pieces, 2, descending=True) == 15
    assert aggregates._bound_of(pieces, 6, descending=False) == 20
    assert aggregates._bound_of(pieces, 17, descending=False) is None
    assert aggregates._bound_of([*pieces, (None, 5, 100)], 1, descending=True) is None


def metrics(frame: DataFrame) -> dict[str, int]:
    """Return the metrics of the scans of a frame that was run, by what they are called, added up."""
    found: dict[str, int] = {}
    nodes = [frame._jdf.queryExecution().executedPlan()]
    while nodes:
        node = nodes.pop()
        if node.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            nodes.append(node.executedPlan())
        if node.getClass().getSimpleName() == "BatchScanExec":
            values = node.metrics()
            names = values.keys().toList()
            for at in range(names.size()):
                metric = values.apply(names.apply(at))
                shown = metric.name().get() if metric.name().isDefined() else names.apply(at)
                found[shown] = found.get(shown, 0) + metric.value()
        if hasattr(node, "plan") and node.getClass().getSimpleName().endswith("QueryStageExec"):
            nodes.append(node.plan())
        children = node.children()
        nodes.extend(children.apply(at) for at in range(children.size()))
    return found
