"""Ask random queries in several ways that must agree: by pruning and without, in process and on Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidelake
from tests.query.test_sql_cases import shown
from tests.query.world import log_rows
from tidelake import Lake
from tidelake.query.result import Result
from tidelake.query.session import run
from tidelake.scan import listing_cache

LOCAL_QUERIES, SPARK_QUERIES = 60, 6


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Yield the logs in sixteen extents and some hot rows."""
    with tidelake.connect(tmp_path_factory.mktemp("lake")) as lake:
        kinds = {"ts": "timestamp", "service": "string", "status": "int", "bytes": "long", "latency": "real"}
        table = lake.create_table(
            "obs.logs", {**kinds, "ok": "bool", "message": "string", "attributes": "dynamic"}, time="ts"
        )
        rows = log_rows()
        for start in range(0, 96, 6):
            table.append(rows[start : start + 6])
            if start < 90:
                table.flush()
        yield lake


def condition(chance: random.Random, depth: int = 0) -> str:
    """Make a condition, some of it pushed down and some of it not."""
    if depth < 2 and chance.random() < 0.5:
        word = chance.choice(("and", "and", "or"))
        return f"({condition(chance, depth + 1)} {word} {condition(chance, depth + 1)})"
    negation = "not " if chance.random() < 0.15 else ""
    return negation + chance.choice(
        (
            f"status = {chance.choice((200, 404, 500, 1))}",
            f"status {chance.choice(('<', '>=', '<>'))} {chance.choice((200, 404.5, 500))}",
            f"latency between {chance.randrange(60)} and {chance.randrange(60, 120)}.5",
            f"ts >= '2026-01-0{chance.randrange(1, 5)}T{chance.randrange(24):02}:00:00Z'",
            f"ts < timestamp '2026-01-0{chance.randrange(1, 5)} 12:00:00'",
            f"service in ('auth', '{chance.choice(('web', 'db', 'none'))}')",
            f"service is {chance.choice(('', 'not '))}null",
            f"bytes > {chance.randrange(100_000)}",
            f"has(message, '{chance.choice(('timeout', 'user', 'x'))}')",
            f"message {chance.choice(('like', 'not like'))} '{chance.choice(('GET%', '%miss', '%ime%', 'user _o%'))}'",
            f"attributes:http.method = '{chance.choice(('GET', 'PUT', 'none'))}'",
            f"attributes:http.status {chance.choice(('>', '<=', '='))} {chance.choice((210, 250, 500))}",
            "attributes:note is not null",
            "ok",
            "length(message) > 12",
            f"status + {chance.randrange(5)} > 402",
        )
    )


def query(chance: random.Random) -> str:
    """Make a query whose rows do not depend on an order that it does not ask for."""
    where = condition(chance)
    outer = condition(chance)
    return chance.choice(
        (
            f"select ts, service, status, attributes:http.method as m from obs.logs where {where}",
            f"select service, count(*) as n, max(latency) as m, sum(bytes) as b from obs.logs where {where} group by 1",
            f"select count(*) as n, min(ts) as a, max(status) as b, count(service) as c from obs.logs where {where}",
            f"select ts, bytes from (select * from obs.logs where {where}) where {outer}",
            f"with t as (select * from obs.logs where {where}) select status, count(*) as n from t where {outer}"
            " group by 1",
            f"select ts, latency from obs.logs where {where} order by latency desc, ts limit 7",
            f"select ts from (select * from obs.logs order by ts limit 40) where {where}",
            f"select a.ts, b.service from obs.logs a left join (select * from obs.logs where {where}) b on a.ts = b.ts"
            " where a.status = 404",
            f"select ts, r from (select *, row_number() over (partition by status order by ts) as r from obs.logs)"
            f" where r < 5 and {where}",
            f"select status as s from obs.logs where {where} union select bytes from obs.logs where {outer}",
        )
    )


def rows_of(result: Result) -> list[tuple[str, ...]]:
    columns = [column.to_pylist() for column in result.to_arrow().columns]
    return sorted(tuple(map(shown, row)) for row in zip(*columns, strict=True))


def bytes_of(result: Result) -> int:
    return sum(plan.stages[-1].byte_size for plan in result.plans)


def test_pruning_does_not_change_an_answer_and_reads_less(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(6)
    read = whole = fewer = 0
    for number in range(LOCAL_QUERIES):
        monkeypatch.setattr(
            listing_cache, "MAX_EXTENTS", 50_000 if number % 2 else 0
        )  # from memory, and from the catalog or a listing of very many
        text = query(chance)
        pruned, unpruned = lake.sql(text, engine="auto"), run(lake, text, engine="local", prune=False)
        assert rows_of(pruned) == rows_of(unpruned), text
        read, whole = read + bytes_of(pruned), whole + bytes_of(unpruned)
        fewer += sum(len(plan.tasks) for plan in pruned.plans) < sum(len(plan.tasks) for plan in unpruned.plans)
    assert read < whole
    assert fewer > LOCAL_QUERIES / 3


def test_spark_gives_the_answers_of_the_local_engine(lake: Lake, quick_spark: SparkSession) -> None:
    chance = random.Random(60)
    found: list[Any] = []
    for _ in range(SPARK_QUERIES):
        text = query(chance)
        local = rows_of(lake.sql(text, engine="local"))
        assert rows_of(lake.sql(text, engine="spark")) == local, text
        found += local
    assert found
