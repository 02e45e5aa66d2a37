"""Ask random questions of tables of a lake and of Parquet copies of them: answers are equal, whatever the settings.

Tables have rows in extents that overlap, hot rows, deleted rows and older versions; questions are what limits, orders,
statistics, paths and joins are pushed down for. It does not change rows: see ``test_statements_oracle``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidelake
import tidelake.spark
from tidelake import Lake

TABLES = {"plain": "'format' = 'tlm'", "keyed": "'key' = 'id'", "other": "'format' = 'parquet'"}
TIMES = [
    "2026-01-01 00:00:00", "2026-03-08 02:30:00", "2026-11-01 01:30:00", "1969-12-31 23:59:59.999999",
    "2026-06-30 12:00:00.000001", "2026-04-05 01:45:00", "0001-01-02 00:00:00", "9999-12-30 00:00:00",
]  # fmt: skip
TEXTS = ["''", "'a'", "'A'", "'apple'", "'été'", "'ap%'", "'x\\'y'", "'日本'", "'5'", "'a '"]
POOLS = {
    "id": ("BIGINT", [f"{id}L" for id in range(0, 200, 9)]),
    "ts": ("TIMESTAMP", [f"timestamp'{text}'" for text in TIMES]),
    "b": ("BOOLEAN", ["true", "false"]),
    "i": ("INT", ["0", "1", "2", "3", "-7", "2147483647"]),
    "n": ("BIGINT", ["0L", "5L", "9223372036854775807L", "9007199254740993L"]),
    "x": ("DOUBLE", ["0.5D", "-1D", "double('NaN')", "double('Infinity')", "0D", "-0.0D", "1e300D"]),
    "s": ("STRING", TEXTS),
    "day": ("DATE", [f"date'{text[:10]}'" for text in TIMES]),
    "wall": ("TIMESTAMP_NTZ", [f"timestamp_ntz'{text}'" for text in TIMES]),
    "price": ("DECIMAL(12,3)", ["0.000BD", "1.250BD", "-99.999BD", "999999999.999BD"]),
    "a.b`c": ("STRING", TEXTS),
}  # fmt: skip
VALUES = [
    '{"x": 1}', '{"x": "auth"}', '{"x": null}', '{"x": true, "y": {"z": "deep", "w": [1, {"q": 3}]}}', "[1, 2]", "5",
    '{"a.b": "dot"}', '{"a": {"b": "nested"}}', '{"x[0]": "bracket"}', '{"x": ["item"]}', '{"X": "upper"}', "{}",
    "null",
]  # fmt: skip
PATHS = ["$.x", "$.y.z", "$.a.b", "$['a.b']", "$['x[0]']", "$.x[0]", "$.y.w[1].q", "$.X", "$[0]", "$.nowhere"]
SETTINGS = {
    "spark.sql.session.timeZone": ["America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Casablanca"],
    "spark.sql.adaptive.enabled": ["true", "false"], "spark.sql.ansi.enabled": ["true", "false"],
    "spark.sql.codegen.wholeStage": ["true", "false"], "spark.sql.caseSensitive": ["false", "true"],
    "spark.sql.autoBroadcastJoinThreshold": ["-1", "10485760"],
}  # fmt: skip


@pytest.fixture(scope="module")
def copied(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SparkSession, Lake, Path]]:
    folder = tmp_path_factory.mktemp("random-queries")
    with tidelake.connect(folder / "lake") as lake:
        session = tidelake.spark.register(spark.newSession(), lake=lake)
        chance = random.Random(7)
        for name, told in TABLES.items():
            make(session, lake, name, told, chance)
            session.table(f"tidelake.q.{name}").write.parquet(str(folder / name))
        yield session, lake, folder


def make(session: SparkSession, lake: Lake, name: str, told: str, chance: random.Random) -> None:
    """Make a table whose rows lie in extents that overlap in time, of which some are gone, and in memory."""
    columns = ", ".join(f"{quoted(column)} {kind}" for column, (kind, _) in POOLS.items())
    told = f"'time' = 'ts', 'flush_age' = 'off', {told}"
    session.sql(f"CREATE TABLE tidelake.q.{name} ({columns}, v VARIANT) TBLPROPERTIES ({told})")
    for part in range(4):
        first = part * 40 - (10 if name == "keyed" and part else 0)  # some keys come again
        rows = ", ".join(f"({', '.join(row(chance, id, part))})" for id in range(first, first + 40))
        session.sql(f"INSERT INTO tidelake.q.{name} VALUES {rows}")
        if part < 3:
            lake.table(f"q.{name}").flush()
    session.sql(f"DELETE FROM tidelake.q.{name} WHERE id % 13 = 3")


def row(chance: random.Random, id: int, part: int) -> list[str]:
    """Write a row; values of the first part have no nulls, so that paths of them are read alone."""
    usual = f"timestamp'2026-01-{part * 5 + id % 9 + 1:02} {id % 24:02}:00:00'"
    cells = [
        "NULL" if name != "ts" and chance.random() < 0.1 else chance.choice(pool) for name, (_, pool) in POOLS.items()
    ]
    cells[0], cells[1] = f"{id}L", usual if chance.random() < 0.7 else cells[1]
    is_null = part > 0 and chance.random() < 0.1
    return [*cells, "NULL" if is_null else f"parse_json('{chance.choice(VALUES)}')"]


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


class Questions:
    """Write questions by chance, with ``{t}`` and ``{u}`` for tables; rows of one are told apart by their ids."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def any(self) -> str:
        end, other = self.end(), self.condition(1)
        return self.chance.choice([
            f"SELECT id, {self.shown()} AS c FROM {{t}} {self.where()} {end}",
            f"SELECT id, {self.shown()} AS c FROM {{t}} WHERE {self.comparison()} {end}",
            f"SELECT count(*) FROM (SELECT id FROM {{t}} WHERE {self.comparison()} AND {self.comparison()} LIMIT 7)",
            f"SELECT count(*), min(id), max(ts) FROM (SELECT * FROM {{t}} WHERE {self.comparison()} {end}) "
            f"WHERE {other}",
            f"SELECT {', '.join(self.bound() for _ in range(2))} FROM {{t}}",
            f"SELECT {self.bound()}, count(*) FILTER (WHERE {other}) FROM {{t}} {self.where()}",
            f"SELECT {self.plain()} AS g, count(*), {self.bound()} FROM {{t}} {self.where()} GROUP BY 1",
            f"SELECT {self.plain()} AS g, b, count(*) FROM {{t}} {self.where()} GROUP BY ROLLUP (g, b)",
            f"SELECT a.id, c.id, {self.shown('a.')} AS c FROM {{t}} a LEFT JOIN {{u}} c ON a.i = c.i AND c.id < 40 "
            f"WHERE {self.comparison('a.')}",
            f"SELECT a.id FROM {{t}} a JOIN (SELECT * FROM {{u}} WHERE {self.comparison()} {end}) c ON a.id = c.id",
            f"WITH c AS (SELECT * FROM {{t}} {self.where()} {end}) SELECT x.id FROM c x JOIN c y ON x.id = y.id "
            f"WHERE {self.comparison('y.')}",
            f"(SELECT id FROM {{t}} WHERE {self.comparison()} {self.end()}) UNION ALL "
            f"(SELECT id FROM {{t}} WHERE {self.comparison()} {end})",
            f"SELECT id FROM {{t}} WHERE id NOT IN (SELECT id FROM {{u}} WHERE {self.comparison()}) AND {other}",
            f"SELECT id, {self.shown()} AS c FROM {{t}} WHERE i = (SELECT max(i) FROM {{u}} WHERE {other}) OR {other}",
            f"SELECT id, rank() OVER (PARTITION BY {self.plain()} ORDER BY ts, id) AS r FROM {{t}} {self.where()}",
            f"SELECT t.id, e.key, to_json(e.value) FROM {{t}} t, LATERAL variant_explode(v) e "
            f"WHERE {self.comparison('t.')}",
            f"SELECT DISTINCT {self.plain()} AS c FROM {{t}} {self.where()}",
        ])  # fmt: skip

    def end(self) -> str:
        order = self.chance.choice(["ts", "ts DESC", "ts DESC NULLS FIRST", "ts NULLS LAST", self.plain()])
        limit, offset = self.chance.choice([0, 1, 2, 5, 17, 9999]), self.chance.choice(["", "", " OFFSET 3"])
        return f"ORDER BY {order}, id LIMIT {limit}{offset}"

    def where(self) -> str:
        return f"WHERE {self.condition()}" if self.chance.random() < 0.85 else ""

    def condition(self, depth: int = 2) -> str:
        part = self.chance.random()
        if depth and part < 0.5:
            word = "AND" if part < 0.3 else "OR"
            return f"({self.condition(depth - 1)} {word} {self.condition(depth - 1)})"
        return f"NOT ({self.condition(depth - 1)})" if depth and part < 0.6 else self.leaf()

    def leaf(self) -> str:
        path = self.path("", "string")
        return self.chance.choice([
            self.comparison(), self.comparison(), f"{path} {self.sign()} 'auth'", f"{path} IS NOT NULL",
            f"{self.path('', 'int')} {self.sign()} 1", "is_variant_null(v:x)", "v:x IS NULL", "s LIKE 'a%'",
            "s LIKE '%é'", "NOT s LIKE '%p%'", "b", "NOT b", "i % 2 = 1", "hour(ts) > 5", "date(ts) = day", "wall > ts",
            "i > 1.5D",
            "lower(s) = 'apple'", "price = 1.25D", "ts > current_timestamp() - INTERVAL 99 YEARS", "n < 3000000000",
            "NULL",
        ])  # fmt: skip

    def comparison(self, of: str = "") -> str:
        name = self.chance.choice(list(POOLS))
        pool = POOLS[name][1]
        value, other = self.chance.choice(pool), self.chance.choice(pool)
        column = of + quoted(name)
        return self.chance.choice([
            f"{column} {self.sign()} {value}", f"{column} {self.sign()} {value}", f"{value} {self.sign()} {column}",
            f"{column} IN ({value}, {other})", f"{column} NOT IN ({value}, NULL)", f"{column} IS NOT NULL",
            f"{column} IS NULL", f"{column} BETWEEN {value} AND {other}", f"{column} <=> {value}",
        ])  # fmt: skip

    def sign(self) -> str:
        return self.chance.choice(["=", "<", "<=", ">", ">=", "<>"])

    def path(self, of: str, kind: str) -> str:
        path = self.chance.choice(PATHS).replace("'", "\\'")
        return f"try_variant_get({of}v, '{path}', '{kind}')"

    def shown(self, of: str = "") -> str:
        return self.chance.choice([self.plain(of), f"to_json(named_struct('v', {of}v))", f"{of}v:x IS NULL"])

    def plain(self, of: str = "") -> str:
        column = of + quoted(self.chance.choice(list(POOLS)))
        kind = self.chance.choice(["string", "int", "double"])
        return self.chance.choice([column, column, self.path(of, kind), f"date_trunc('DAY', {of}ts)", f"hour({of}ts)"])

    def bound(self) -> str:
        return f"{self.chance.choice(['min', 'max', 'count', 'count'])}({self.plain()})"


def ask(copied: tuple[SparkSession, Lake, Path], seed: int, questions: int) -> None:
    """Ask questions under settings chosen by chance."""
    spark, lake, folder = copied
    session = tidelake.spark.register(spark.newSession(), lake=lake)
    chance = random.Random(seed)
    for name, values in SETTINGS.items():
        session.conf.set(name, chance.choice(values))
    for name in TABLES:
        session.read.parquet(str(folder / name)).createOrReplaceTempView(f"copy_{name}")
    for number in range(questions):
        text = Questions(1000 * seed + number).any()
        first, second = (chance.choice(list(TABLES)) for _ in range(2))
        ours, copies = (
            found(session, text.replace("{t}", f"{prefix}{first}").replace("{u}", f"{prefix}{second}"))
            for prefix in ("tidelake.q.", "copy_")
        )
        assert ours == copies, (seed, number, first, second, text)


def found(session: SparkSession, text: str) -> list[str]:
    """Return the rows of an answer, sorted, since limits have orders by which all rows differ; or what the error is."""
    try:
        return sorted(str(tuple(row)) for row in session.sql(text).collect())
    except Exception as error:  # of Spark's, for questions that ANSI mode refuses
        return [str(error).partition("]")[0]]


@pytest.mark.parametrize("seed", range(1))
def test_random_questions_have_the_answers_of_copies(copied: tuple[SparkSession, Lake, Path], seed: int) -> None:
    ask(copied, seed, 5)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_random_questions_have_the_answers_of_copies(copied: tuple[SparkSession, Lake, Path], seed: int) -> None:
    ask(copied, seed, 60)
