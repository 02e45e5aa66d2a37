"""Ask for the first rows by time: the same as of all rows, from as few extents and blocks as can hold them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tidelake
from tidelake import Lake
from tidelake.query.session import run

DAY_US = 86_400_000_000
START_US = 1_767_225_600_000_000  # 2026-01-01


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake with a table of ten extents a day apart, one of extents that overlap, and one with a key."""
    lake = tidelake.connect(str(Path(tmp_path_factory.mktemp("lake"))), upkeep=False)
    chance = random.Random(5)
    columns = {"ts": "timestamp", "n": "long", "host": "string"}
    for name, key in (("apart", ()), ("mixed", ()), ("keyed", ("n",))):
        table = lake.create_table(name, columns, time="ts", flush_age="off", key=key)
        for day in range(10):
            spread = DAY_US // 2 if name == "apart" else DAY_US * 6
            table.append(
                [
                    {
                        "ts": START_US + day * DAY_US + chance.randrange(0, spread, 1_000_000),
                        "n": chance.randrange(60) if key else day * 100 + at,
                        "host": f"h{day}" if at % 2 else "h",
                    }
                    for at in range(20)
                ]
            )
            if day < 9 or name == "apart":
                table.flush()  # the last rows of the others stay hot
    return lake


WHERES = ("", "where host = 'h3'", "where n >= 100", "where ts < timestamp '2026-01-05 00:00:00'", "where n % 3 = 1")
ORDERS = ("ts desc", "ts", "ts desc, n", "ts desc nulls first", "n desc", "date_trunc('day', ts) desc, n, ts")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("table", ["apart", "mixed", "keyed"])
def test_first_rows_are_those_of_all(lake: Lake, table: str, order: str) -> None:
    for where in WHERES:
        for limit in ("limit 1", "limit 25", "limit 5 offset 30", "limit 1000"):
            text = f"select ts, n from {table} {where} order by {order}, n {limit}"
            found, whole = (run(lake, text, engine="local", prune=each).to_arrow() for each in (True, False))
            assert found.equals(whole), text
    nested = f"select n from (select * from {table} where n > 3 order by {order}, n limit 30) where n % 2 = 0"
    found, whole = (run(lake, nested, engine="local", prune=each).to_arrow() for each in (True, False))
    assert sorted(found["n"].to_pylist()) == sorted(whole["n"].to_pylist())


@pytest.mark.parametrize(
    ("text", "extents"),
    [
        ("select * from apart order by ts desc limit 5", 1),
        ("select * from apart order by ts limit 25", 2),
        ("select n + 1 from apart where ts < timestamp '2026-01-05 00:00:00' order by ts desc limit 20", 1),
        ("select * from (select ts, n from apart where n >= 0) order by ts desc limit 3", 1),
        ("select * from apart where host = 'h3' order by ts desc limit 5", 1),  # no other has it
        ("select * from apart where host = 'h' order by ts desc limit 5", 10),  # nobody knows how many rows have it
        ("select * from apart where n % 2 = 0 order by ts desc limit 5", 10),
        ("select * from apart order by n, ts desc limit 5", 10),
        ("select max(n) from apart group by ts order by ts desc limit 5", 10),
        ("select a.n from apart a join apart b on a.n = b.n order by a.ts desc limit 5", 10),
    ],
)
def test_few_extents_are_read_for_the_first_rows(lake: Lake, text: str, extents: int) -> None:
    plans = run(lake, text, engine="local").plans
    assert [len(plan.tasks) for plan in plans] == [extents] * len(plans)


def test_kql_reads_few_extents_too(lake: Lake) -> None:
    for text in ("apart | top 5 by ts", "apart | order by ts desc | take 5", "apart | where n >= 0 | top 5 by ts asc"):
        result = run(lake, text, language="kql", engine="local")
        assert len(result.plans[0].tasks) == 1
        assert result.to_arrow().equals(run(lake, text, language="kql", engine="local", prune=False).to_arrow())
