"""Answer from the manifest: the same as by reading, and without it where the manifest suffices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

import tidelake
from tests.support.faulty import FaultyStore
from tidelake import Lake
from tidelake.catalog import open_catalog
from tidelake.handle.lake_handle import LakeHandle
from tidelake.query.session import run

DAY = "2026-01-{:02}"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Yield a table of four days, an extent each, the last with nulls and NaN, and one day hot."""
    with tidelake.connect(tmp_path_factory.mktemp("lake")) as lake:
        table = lake.create_table(
            "m.points", {"ts": "timestamp", "host": "string", "n": "long", "x": "real", "up": "bool"}, time="ts"
        )
        for day in range(1, 6):
            rows: list[dict[str, Any]] = [
                {
                    "ts": f"{DAY.format(day)}T{hour:02}:00:00Z",
                    "host": f"h{hour % 3}" if day < 4 else None,
                    "n": day * 100 + hour,
                    "x": math.nan if day == 4 and hour == 3 else day / 8 - hour,
                    "up": hour > 5,
                }
                for hour in range(24)
            ]
            table.append(rows)
            if day < 5:
                table.flush()
        yield lake


QUERIES = [
    "select count(*) as n from m.points",
    "select count(*) as n from m.points where ts >= '2026-01-02' and ts < '2026-01-03T06:00:00Z'",
    "select min(ts) as a, max(ts) as b, count(host) as c, count(1) as d from m.points",
    "select min(n) as a, max(n) as b, min(x) as c, max(x) as d from m.points",
    "select min(x) as a, max(x) as b from m.points where ts < '2026-01-04'",
    "select min(host) as a, max(host) as b, min(up) as c, max(up) as d from m.points",
    "select max(n) as a, count(*) as c from m.points where n >= 200 and host = 'h1'",
    "select count(*) as c, max(n) as m from m.points where n > 10000",
    "select count(host) as c, max(host) as m from m.points where ts >= '2026-01-04' and ts < '2026-01-05'",
    "select count(*) as c from (select n as k from m.points where ts >= '2026-01-03') where k < 402",
    "with recent as (select * from m.points where ts >= '2026-01-03') select max(n) as m from recent",
]


@pytest.mark.parametrize("text", QUERIES)
def test_manifest_answers_as_reading_does(text: str, lake: Lake) -> None:
    ours, read = lake.sql(text), run(lake, text, engine="local", prune=False)
    assert (ours.engine, read.engine) == ("manifest", "local")
    assert ours.to_arrow().equals(read.to_arrow().cast(ours.to_arrow().schema)) or repr(
        ours.to_arrow().to_pylist()
    ) == (repr(read.to_arrow().to_pylist()))


@pytest.mark.parametrize(
    "text",
    [
        "select count(*) as n from m.points where n + 1 > 3",
        "select count(distinct n) as n from m.points",
        "select count(*) as n from m.points group by host",
        "select count(*) as n from m.points limit 1",
        "select count(*) as n from (select * from m.points limit 5)",
        "select max(n + 1) as n from m.points",
        "select count(*) as n from m.points a, m.points b",
        "select count(*) filter (where up) as n from m.points",
        "select max(n) over () as n from m.points",
    ],
)
def test_manifest_does_not_answer_what_it_cannot_know(text: str, lake: Lake) -> None:
    result = lake.sql(text)
    assert result.engine == "local"
    read = run(lake, text, prune=False).to_arrow()
    assert sorted(result.to_arrow()["n"].to_pylist()) == sorted(read["n"].to_pylist())


@pytest.mark.parametrize(
    ("text", "objects"),
    [
        ("select count(*) as n from m.points", 0),
        ("select count(*) as n, max(ts) as t from m.points where ts >= '2026-01-02' and ts < '2026-01-04'", 0),
        ("select count(*) as n from m.points where ts >= '2026-01-02T12:00:00Z'", 1),
    ],
)
def test_manifest_answers_without_reading_what_it_proves(text: str, objects: int, lake: Lake) -> None:
    watched = FaultyStore(lake.store)
    with Lake(LakeHandle(open_catalog(lake.where), watched, lake.where)) as other:
        result = other.sql(text)
        expected = lake.sql(text).to_arrow()
        assert result.to_arrow().equals(expected)
        assert len(result.plans[0].tasks) == objects
        assert (watched.bytes_read > 0) == (objects > 0)
        assert "manifest answers" in result.explain()


def test_kql_asks_the_scan_for_real_numbers(world: Lake) -> None:
    result = world.kql("obs.logs | where latency > 500.5 | take 1")
    assert "latency > 500.5" in result.explain()
    assert result.plans[0].stages[-1].rows == 0
