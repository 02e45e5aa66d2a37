"""Ask lakes that lie elsewhere: a PostgreSQL catalog with objects in S3, and a table with its own log."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

import tidelake
from tests.support.servers import S3Server
from tidelake import Lake

ROWS = [{"ts": f"2026-01-0{day}T00:00:00Z", "service": ("auth", "web")[day % 2], "n": day} for day in range(1, 7)]


def _on_postgres(request: pytest.FixtureRequest, folder: Path) -> Lake:
    s3: S3Server = request.getfixturevalue("s3")
    objects = f"s3://{s3.bucket}/asked-{secrets.token_hex(6)}"
    database = request.getfixturevalue("postgres_database")
    return tidelake.connect(database, objects=objects, endpoint=s3.endpoint, key=s3.key, secret=s3.secret)


def _on_log(request: pytest.FixtureRequest, folder: Path) -> Lake:
    return tidelake.connect(f"log:{folder}/lake")


@pytest.mark.parametrize("opened", [_on_postgres, _on_log])
def test_queries_answer_alike_wherever_the_lake_lies(
    opened: Callable[[pytest.FixtureRequest, Path], Lake], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    schema = {"ts": "timestamp", "service": "string", "n": "long"}
    with opened(request, tmp_path) as lake:
        table = lake.create_table("logs", schema, time="ts", flush_age="off")
        for day in range(0, 4, 2):
            table.append(ROWS[day : day + 2])
            table.flush()
        table.append(ROWS[4:])
        expected = [{"service": "auth", "n": 10}, {"service": "web", "n": 8}]
        sql = lake.sql("select service, sum(n) as n from logs where ts >= '2026-01-03' group by 1 order by 1")
        kql = lake.kql(
            "logs | where ts >= datetime(2026-01-03) | summarize n = sum(n) by service | sort by service asc"
        )
        assert sql.to_arrow().to_pylist() == kql.to_arrow().to_pylist() == expected
        assert [len(plan.tasks) for plan in sql.plans] == [
            1 if lake.catalog.layout.keeps_hot_rows else 2
        ]  # of 3, or of 2 and hot rows
        assert lake.sql("select count(*) as n from logs").to_arrow()["n"].to_pylist() == [6]
