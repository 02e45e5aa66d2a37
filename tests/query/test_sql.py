"""Ask lakes in SQL: answers, what was read for them, and what is said to a mistake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tidelake
from tidelake import Lake, QueryError


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with tidelake.connect(tmp_path_factory.mktemp("lake")) as lake:
        logs = lake.create_table(
            "obs.logs",
            {
                "ts": "timestamp",
                "service": "string",
                "status": "int",
                "message": "string",
                "attributes": "dynamic",
            },
            time="ts",
        )
        for day in range(1, 5):
            rows = [
                {
                    "ts": f"2026-01-{day:02}T00:00:{second:02}Z",
                    "service": ("auth", "web")[second % 2],
                    "status": 200 + second * day,
                    "message": f"request {day}-{second}" + (" timeout" if second % 10 == 0 else ""),
                    "attributes": {"http": {"method": ("GET", "PUT")[second % 2]}, "day": day},
                }
                for second in range(60)
            ]
            logs.append(rows)
            logs.flush()
        logs.append([{"ts": "2026-01-05T00:00:00Z", "service": "web", "status": 1, "message": "hot"}])
        yield lake


def test_sql_groups_what_pruning_left(lake: Lake) -> None:
    result = lake.sql(
        "select service, count(*) from obs.logs where ts >= '2026-01-04' and status > 300 group by 1 order by 1"
    )
    assert result.to_arrow().to_pydict() == {"service": ["auth", "web"], "count(*)": [17, 17]}
    (scan,) = result._scans
    assert [task.extent.row_count for task in scan.plan.tasks] == [60]
    assert "time bounds" in result.explain()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select nope from obs.logs", "there is no column 'nope'; there are ts, service"),
        ("select l.servic from obs.logs l", "there is no column 'servic', did you mean 'service'?"),
        ("select * from obs.log", "there is no table 'obs.log', did you mean 'obs.logs'?"),
        ("select * from logs", "there is no table 'logs', did you mean 'obs.logs'?"),
        ("select ts from obs.logs a join obs.logs b on a.ts = b.ts", "'ts' is ambiguous"),
        ("select ts from obs.logs where", "expected an expression, found the end"),
        ("select ts,, service from obs.logs", "expected an expression, found ','"),
        ("selec ts from obs.logs", "did you mean 'select'?"),
        ("select 'a from obs.logs", "a quote that is not closed"),
        ("drop table obs.logs", "only queries can be run"),
    ],
)
def test_mistake_in_sql_is_one_message_with_its_place(text: str, message: str, lake: Lake) -> None:
    with pytest.raises(QueryError) as caught:
        lake.sql(text).to_arrow()
    assert message in str(caught.value)
    assert {"line", "column"} <= caught.value.facts.keys()
    assert "^" in str(caught.value)
