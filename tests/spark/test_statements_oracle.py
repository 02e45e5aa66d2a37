"""Run random statements on a table of a lake and, as plain queries, on Parquet: rows and aggregates stay equal.

Every statement of the model is a SELECT whose answer is the next state. It does not try conditions one by one: see
``test_sql_catalog_oracle``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import tidelake
import tidelake.spark
from tests.spark.test_sql_catalog_oracle import COLUMNS, CONDITIONS, VALUES, found
from tidelake import Lake

ZONES = ["America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]  # none of which is UTC
UPDATES = {
    "ts": "ts + INTERVAL 1 HOUR", "b": "NOT b", "i": "coalesce(i, 0) % 1000 + 1", "d": "-d", "s": "concat(s, '!')",
    "dt": "date_add(dt, 1)", "ntz": "ntz + INTERVAL 1 DAY", "dec": "dec - 1.5", "bin": "X'beef'",
    "st": "named_struct('a', i, 'b', s)", "ar": "array_append(ar, 7L)", "m": "map('q', d)",
    "v": "parse_json('{\"y\": [2, null]}')",
}  # fmt: skip
QUESTIONS = [
    "SELECT * FROM {t}",
    "SELECT count(*) AS n, min(ts) AS t0, max(ts) AS t1, min(id) AS i0, max(i) AS i1, min(dt) AS d0 FROM {t}",
    "SELECT b, count(*) AS n, sum(i) AS i, sum(dec) AS dec, count(DISTINCT s) AS s, max(ntz) AS ntz, "
    "date_trunc('DAY', min(ts)) AS day FROM {t} GROUP BY b",
    "SELECT count(*) AS n, max(ts) AS ts, min(s) AS s FROM {t} WHERE ts >= '2026-01-01' AND (i > 1 OR i IS NULL)",
]
conditions = st.sampled_from(CONDITIONS)
changes = st.sets(st.sampled_from(sorted(UPDATES)), min_size=1, max_size=4)
statements = st.one_of(
    st.tuples(st.just("insert"), conditions),
    st.tuples(st.just("update"), changes, conditions),
    st.tuples(st.just("delete"), conditions),
    st.tuples(st.just("overwrite"), conditions),
    st.tuples(st.just("merge"), st.integers(0, 8), conditions, changes, changes, conditions, st.booleans()),
)
cases = st.tuples(st.sampled_from(ZONES), st.booleans(), st.lists(statements, min_size=2, max_size=4))
numbers = itertools.count()


@dataclass
class Twins:
    """One table in a lake, and what it must hold, as Parquet files."""

    session: SparkSession
    folder: Path
    table: str
    steps: int = 0
    last: int = 10  # the highest id so far
    names: tuple[str, ...] = field(default=tuple(COLUMNS))

    def begin(self, *, keyed: bool) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        told = "'time' = 'ts', 'flush_age' = 'off'" + (", 'key' = 'id'" if keyed else "")
        self.session.sql(f"CREATE TABLE {self.table} ({columns}) TBLPROPERTIES ({told})")
        self.hold("SELECT * FROM seeds")
        self.session.sql(f"INSERT INTO {self.table} SELECT * FROM seeds")

    def hold(self, query: str) -> None:
        """Make the answer of a query what the model holds."""
        path = str(self.folder / str(self.steps))
        self.session.sql(query).coalesce(1).write.parquet(path)
        self.session.read.parquet(path).createOrReplaceTempView("model")
        self.steps += 1

    def run(self, statement: tuple[Any, ...]) -> None:
        """Run a statement on both."""
        match statement:
            case "insert", where:
                rows = f"SELECT {self.shifted(self.last)} FROM seeds WHERE {where}"
                self.last += 10
                self.both(f"INSERT INTO {self.table} {rows}", f"SELECT * FROM model UNION ALL {rows}")
            case "update", columns, where:
                sets = ", ".join(f"{name} = {UPDATES[name]}" for name in sorted(columns))
                chosen = self.listed({name: f"if({where}, {UPDATES[name]}, {name})" for name in columns})
                self.both(f"UPDATE {self.table} SET {sets} WHERE {where}", f"SELECT {chosen} FROM model")
            case "delete", where:
                self.both(
                    f"DELETE FROM {self.table} WHERE {where}",
                    f"SELECT * FROM model WHERE NOT coalesce({where}, false)",
                )
            case "overwrite", where:
                rows = f"SELECT * FROM {{t}} WHERE {where}"
                self.both(f"INSERT OVERWRITE {self.table} {rows.format(t=self.table)}", rows.format(t="model"))
            case "merge", shift, gone, matched, left, left_where, deletes:
                self.merge(shift, gone, matched, left, left_where, deletes=deletes)

    def merge(
        self, shift: int, gone: str, matched: set[str], left: set[str], left_where: str, *, deletes: bool
    ) -> None:
        """Merge the seeds, with other ids, by all clauses."""
        renamed = ", ".join(f"{name} AS s_{name}" for name in self.names)
        self.session.sql(f"SELECT {renamed} FROM (SELECT {self.shifted(shift)} FROM seeds)").createOrReplaceTempView(
            "s"
        )
        self.last = max(self.last, shift + 10)
        last = "DELETE" if deletes else "UPDATE SET " + ", ".join(f"{name} = {UPDATES[name]}" for name in sorted(left))
        sets = ", ".join(f"{name} = s_{name}" for name in sorted(matched))
        merged = {
            name: f"CASE WHEN id IS NULL THEN s_{name} "
            f"WHEN s_id IS NOT NULL THEN {f's_{name}' if name in matched else name} "
            f"WHEN {left_where} THEN {UPDATES[name] if name in left and not deletes else name} ELSE {name} END"
            for name in self.names
        }
        stays = f"NOT (id IS NOT NULL AND s_id IS NOT NULL AND coalesce({gone}, false))"
        if deletes:
            stays += f" AND NOT (s_id IS NULL AND coalesce({left_where}, false))"
        self.both(
            f"""MERGE INTO {self.table} t USING s ON t.id = s.s_id
                WHEN MATCHED AND ({gone}) THEN DELETE WHEN MATCHED THEN UPDATE SET {sets}
                WHEN NOT MATCHED THEN INSERT ({", ".join(self.names)})
                     VALUES ({", ".join(f"s_{name}" for name in self.names)})
                WHEN NOT MATCHED BY SOURCE AND ({left_where}) THEN {last}""",
            f"SELECT {self.listed(merged)} FROM model FULL OUTER JOIN s ON id = s_id WHERE {stays}",
        )

    def both(self, own: str, model: str) -> None:
        self.hold(model)
        self.session.sql(own)

    def shifted(self, by: int) -> str:
        return self.listed({"id": f"id + {by}L"})

    def listed(self, instead: dict[str, str]) -> str:
        return ", ".join(f"{instead[name]} AS {name}" if name in instead else name for name in self.names)

    def check(self) -> None:
        for question in QUESTIONS:
            assert found(self.session, question.format(t=self.table)) == found(self.session, question.format(t="model"))


def compare(spark: SparkSession, lake: Lake, folder: Path, case: tuple[str, bool, list[tuple[Any, ...]]]) -> None:
    zone, keyed, steps = case
    session = tidelake.spark.register(spark.newSession(), lake=lake)
    session.conf.set("spark.sql.session.timeZone", zone)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    casts = [f"CAST(c{at} AS {kind}) AS {name}" for at, (name, kind) in enumerate(COLUMNS.items())]
    inline = ", ".join(f"({value})" for value in VALUES)
    named = ", ".join(f"c{at}" for at in range(len(COLUMNS)))
    session.sql(f"SELECT {', '.join(casts)} FROM VALUES {inline} AS x({named})").createOrReplaceTempView("seeds")
    number = next(numbers)
    twins = Twins(session, folder / f"model{number}", f"tidelake.o.t{number}")
    twins.begin(keyed=keyed)
    for step in steps:
        twins.run(step)
        if len(steps) > 1 and step is steps[0]:
            lake.table(f"o.t{number}").flush()  # so that later statements find hot rows and extents
        twins.check()


def test_every_statement_has_the_result_that_it_has_on_parquet(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    merge = ("merge", 3, "i > 1", {"s", "v", "st", "ts"}, {"ts", "dec", "ar"}, "b", False)
    steps: list[tuple[Any, ...]] = [
        ("update", set(UPDATES), "ts >= timestamp'2026-01-01 00:00:00' OR i IS NULL"), merge,
        ("delete", "lower(s) = 'apple!'"), ("insert", "id > 4"), ("overwrite", "NOT (i <=> 2)"),
    ]  # fmt: skip
    compare(spark, lake, tmp_path, (ZONES[0], False, steps))
    compare(spark, lake, tmp_path, (ZONES[2], True, steps[:3]))


@pytest.mark.torture
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases)
def test_random_statements_have_the_results_that_they_have_on_parquet(
    spark: SparkSession, lake: Lake, tmp_path: Path, case: tuple[str, bool, list[tuple[Any, ...]]]
) -> None:
    compare(spark, lake, tmp_path, case)
