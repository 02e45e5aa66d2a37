"""Stop scans early under limits and conditions: to the rows that Spark finds in a copy of the table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidelake
import tidelake.spark
from tests.spark.test_catalog_pushdown import metrics
from tidelake.lake import Lake
from tidelake.spark.reading import Split, TableReader
from tidelake.spark.types import spark_schema

EXTENTS, ROWS = 8, 300
COLUMNS = {
    "ts": "timestamp", "n": "long", "service": "string", "x": "real", "ok": "bool", "day": "date",
    "wall": "timestamp_ntz", "price": "decimal(9,2)", "d": "dynamic",
}  # fmt: skip
EXACT = [
    "service = 's1'", "service IN ('s2', 's4') AND n > 700", "NOT (service = 's1' OR n < 900)", "service LIKE 's3%'",
    "ts > timestamp'2026-01-03 12:00:00' AND service <> 's0'", "ok", "day >= date'2026-02-10' AND NOT ok",
    "wall < timestamp_ntz'2026-01-01 00:00:20' AND service = 's2'", "service IS NULL", "price > 99.5 AND x < 0.5",
    "service = 'nowhere'", "x > 0.9", "x < 0.1", "NOT x > 0.1", "x <> 0.5 AND x >= 0", "x = 0",
]  # fmt: skip
ODD = [float("nan"), -0.0, 0.0, float("inf"), -float("inf")]
OTHERS = [
    "length(service) = 2 AND n > 400", "service LIKE '%1'", "d:a::int = 3", "upper(service) = 'S2' AND n > 5",
    "n % 7 = 0", "hour(ts) = 5", "x IS NOT NULL AND n % 2 = 0 OR n = 5", "rand() + 1 > 0.5 AND service = 's4'",
]  # fmt: skip


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("limits")
    with tidelake.connect(folder / "lake") as lake:
        made = tidelake.spark.register(spark.newSession(), lake=lake)
        made.conf.set("spark.sql.session.timeZone", "America/Caracas")
        for name in ("sound", "warm", "keyed"):
            fill(lake, name)
            made.table(f"tidelake.obs.{name}").write.parquet(str(folder / name))
            made.read.parquet(str(folder / name)).createOrReplaceTempView(f"model_{name}")
        yield made


def fill(lake: Lake, name: str) -> None:
    """Make a table whose extents overlap in time, with ties; with hot rows; or with a key and older versions."""
    rng = random.Random(5)
    key = ["n"] if name == "keyed" else []
    table = lake.create_table(f"obs.{name}", COLUMNS, time="ts", flush_age="off", key=key)
    for extent in range(EXTENTS):
        table.append([row(rng, extent, k) for k in range(ROWS)])
        table.flush()
    if name != "sound":
        table.append([row(rng, EXTENTS - (name == "keyed"), k) for k in range(20)])


def row(rng: random.Random, extent: int, k: int) -> dict[str, Any]:
    return {
        "ts": f"2026-01-{extent + 1 + k % 3:02}T{k % 24:02}:{k % 5:02}:00.{k % 3:06}Z", "n": extent * ROWS + k,
        "service": None if k % 50 == 7 else f"s{rng.randrange(5)}", "x": rng.choice([None, rng.random(), *ODD]),
        "ok": rng.random() < 0.5, "day": f"2026-02-{1 + k % 28:02}", "wall": f"2026-01-01T00:00:{k % 60:02}.5",
        "price": f"{k}.25", "d": {"a": k % 5},
    }  # fmt: skip


def is_told(session: SparkSession, text: str) -> bool:
    """Whether the scan of a query knows how many rows are enough."""
    shown = session.sql(text)._jdf.queryExecution().executedPlan().toString()
    (line,) = {line.split("at snapshot")[1] for line in shown.splitlines() if "at snapshot" in line}
    return any(said in line for said in (" newest ", " oldest ", " limit "))


@pytest.mark.parametrize("table", ["sound", "warm", "keyed"])
def test_first_rows_under_conditions_are_those_of_a_copy(session: SparkSession, table: str) -> None:
    rng = random.Random(table)
    for condition in [*EXACT, *OTHERS][:: 1 if table == "sound" else 2]:
        order = rng.choice(["ts DESC", "ts", "ts DESC NULLS FIRST", "ts ASC NULLS LAST"])
        limit, offset = rng.choice([1, 7, 40, 5000]), rng.choice(["", " OFFSET 3"])
        text = f"SELECT n, ts, service FROM {{}} WHERE {condition} ORDER BY {order}, n LIMIT {limit}{offset}"
        ours = text.format(f"tidelake.obs.{table}")
        assert session.sql(ours).collect() == session.sql(text.format(f"model_{table}")).collect(), ours
        assert is_told(session, ours) == (condition in EXACT), ours


@pytest.mark.parametrize("table", ["sound", "keyed"])
def test_rows_enough_under_conditions_are_rows_that_match(session: SparkSession, table: str) -> None:
    rng = random.Random(table)
    for condition in [*EXACT, *OTHERS][:: 2 if table == "keyed" else 1]:
        limit = rng.choice([1, 7, 40, 5000])
        wanted = {row.n for row in session.sql(f"SELECT n FROM model_{table} WHERE {condition}").collect()}
        ours = f"SELECT n, service FROM tidelake.obs.{table} WHERE {condition} LIMIT {limit}"
        found = [row.n for row in session.sql(ours).collect()]
        assert len(set(found)) == len(found) == min(limit, len(wanted)), ours
        assert wanted.issuperset(found), ours
        assert is_told(session, ours) == (condition in EXACT), ours


def test_limits_elsewhere_in_a_query_give_what_they_give_of_a_copy(session: SparkSession) -> None:
    newest = "SELECT n, ts, service FROM {0} WHERE service = 's2' ORDER BY ts DESC, n LIMIT 9"
    for text in (
        f"SELECT count(*), min(n) FROM ({newest})",
        f"({newest}) UNION ALL (SELECT n, ts, service FROM {{0}} WHERE service = 's1' ORDER BY ts, n LIMIT 4)",
        f"SELECT a.n FROM ({newest}) a JOIN {{0}} b ON a.n = b.n WHERE b.ok",
        f"SELECT n FROM {{0}} WHERE n IN (SELECT n FROM ({newest}))",
        "SELECT n FROM (SELECT n, ts, ok FROM {0} WHERE service = 's2' ORDER BY ts DESC, n LIMIT 50) WHERE ok",
        "SELECT n + 1 AS m, date_trunc('hour', ts) AS h FROM {0} WHERE service = 's2' ORDER BY ts, n LIMIT 5",
        "SELECT n FROM {0} WHERE service = 's2' ORDER BY n DESC LIMIT 5",
        "SELECT n FROM {0} WHERE service = 's2' ORDER BY ts + INTERVAL 1 DAY DESC, n LIMIT 5",
        "SELECT service, count(*) c FROM {0} WHERE n > 100 GROUP BY service ORDER BY service LIMIT 3",
        "SELECT count(*) FROM (SELECT 1 FROM {0} WHERE service = 's2' LIMIT 37)",
        "SELECT count(*) FROM (SELECT * FROM {0} a LEFT JOIN {0} b ON a.n = b.n WHERE a.service = 's2' LIMIT 37)",
    ):
        ours, model = text.format("tidelake.obs.warm"), text.format("model_warm")
        assert sorted(map(str, session.sql(ours).collect())) == sorted(map(str, session.sql(model).collect())), text


def test_the_newest_rows_that_match_are_found_in_few_extents(session: SparkSession) -> None:
    newest = session.sql("SELECT n FROM tidelake.obs.sound WHERE service = 's1' ORDER BY ts DESC LIMIT 5")
    newest.collect()
    found = metrics(newest)
    assert found["extents read"] <= 3
    assert found["extents read"] + found["extents pruned"] == EXTENTS
    assert 0 < found["stored bytes read"] < found["stored bytes pruned"]
    assert "where" in (shown := tidelake.spark.explain(newest))
    assert "ts in [2026-01-" in shown
    some = session.sql("SELECT n FROM tidelake.obs.sound WHERE service = 's1' LIMIT 5")
    assert "limit    5" in tidelake.spark.explain(some)


def test_conditions_of_a_small_side_still_prune_a_join(session: SparkSession) -> None:
    """They stay in Spark's plan, which is how it knows that a side is small."""
    text = """SELECT b.n FROM tidelake.obs.sound b JOIN
        (SELECT n FROM tidelake.obs.warm WHERE service = 's1' AND n < 10 ORDER BY ts DESC LIMIT 3) a ON a.n = b.n"""
    joined = session.sql(text)
    assert len(joined.collect()) <= 3
    assert "dynamicpruning" in joined._jdf.queryExecution().executedPlan().toString().lower()
    assert metrics(joined)["extents pruned"] > EXTENTS


def test_a_task_ends_once_it_has_rows_enough(lake: Lake) -> None:
    fill(lake, "sound")
    table = lake.table("obs.sound")
    options = {"lake": lake.where, "table": "obs.sound", "where": "service == 's1'", "tidelakelimit": "4"}
    reader = TableReader(options, spark_schema(table.schema, ["n", "service"]))
    (split,) = reader.partitions()
    assert isinstance(split, Split)
    assert [row["service"] for batch in reader.read(split) for row in batch.to_pylist()] == ["s1"] * 4


def test_rows_that_are_found_late_are_not_looked_for_for_long(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tidelake.spark.first_rows.LOOKED_AT_BYTES", 1)
    text = "SELECT n FROM {} WHERE n < 3 ORDER BY ts DESC, n LIMIT 2"
    found = session.sql(text.format("tidelake.obs.sound")).collect()
    assert found == session.sql(text.format("model_sound")).collect()


def test_values_that_do_not_fit_their_column_are_what_spark_sees(session: SparkSession, lake: Lake) -> None:
    own = tidelake.spark.register(session.newSession(), lake=lake)
    table = lake.create_table("obs.spilled", {"ts": "timestamp", "n": "long"}, time="ts", flush_age="off")
    for at in range(3):
        table.append([{"ts": f"2026-01-0{at + 1}", "n": k} for k in range(10)])
        table.append([{"ts": f"2026-01-0{at + 1}", "n": each} for each in ("many", 2**70, "7", None)])
        table.flush()
    rows = own.sql("SELECT ts, n FROM tidelake.obs.spilled WHERE rand() + 1 > 0.5").collect()
    own.createDataFrame([tuple(row) for row in rows], "ts TIMESTAMP, n BIGINT").createOrReplaceTempView("model")
    for condition in ("n IS NULL", "n IS NOT NULL", "n > 6", "n = 7", "n <> 3", "NOT (n < 5)", "n IN (2, 7)"):
        for end in ("LIMIT 11", "ORDER BY ts DESC LIMIT 5", "ORDER BY ts LIMIT 100"):
            text = f"SELECT count(*), min(ts), max(ts) FROM (SELECT ts, n FROM {{}} WHERE {condition} {end})"
            ours, model = (own.sql(text.format(name)).collect()[0] for name in ("tidelake.obs.spilled", "model"))
            assert ours[0] == model[0], text
            assert "ORDER" not in text or ours == model, text
