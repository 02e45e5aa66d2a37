"""Ask for columns with names that engines stumble over: told apart by case alone, or written with odd signs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import tidelake
from tidelake import Lake

ASKED = {
    "ev | project EventID, eventID": {"EventID": [3, 4], "eventID": ["a", "b"]},
    "ev | where EventID == 3 | project eventID": {"eventID": ["a"]},
    "ev | extend eventid = n * 10 | order by n desc | project EventID, eventid": {
        "EventID": [4, 3],
        "eventid": [20, 10],
    },
    "ev | summarize n = count() by eventID, EventID | order by EventID asc": {
        "eventID": ["a", "b"],
        "EventID": [3, 4],
        "n": [1, 1],
    },
    "ev | where eventID == 'b' | summarize max(EventID)": {"max_EventID": [4]},
    "ev | join kind=inner (ev | project EventID, N = n) on EventID | where N == 2 | project eventID, n, N": {
        "eventID": ["b"],
        "n": [2],
        "N": [2],
    },
    "select * from ev where EventID > 3": {"eventID": ["b"], "EventID": [4], "n": [2]},
    "select eventid from ev order by EventID": {"eventID": ["a", "b"]},
    "select eventID from ev where EventID = 4": {"eventID": ["b"]},
    "select EventID as x, max(N) as most from ev group by EventID order by x": {"x": [3, 4], "most": [1, 2]},
    "with c as (select * from ev) select a.EventID, b.N from c a join ev b on a.eventid = b.EVENTID where b.n = 1": {
        "EventID": [3],
        "n": [1],
    },
    "select max(EventID) as most, count(eventID) as n from ev": {"most": [4], "n": [2]},
}

ODD = {
    "@version": 1,
    "a b": 2,
    "x.y": 3,
    "#h": 4,
    "select": 5,
    "1st": 6,
    'q"q': 7,
    "b`t": 8,
    "$d": 9,
    "%p": 10,
    "é": 11,
}
ODD_ASKED = {
    "select * from odd": {name: [value] for name, value in ODD.items()},
    "select o.* from odd o where o.`@version` = 1 and `x.y` < 4": {name: [value] for name, value in ODD.items()},
    "select `b``t`, max(`@version`) as m from odd group by `b``t`": {"b`t": [8], "m": [1]},
    "select a.`a b`, b.`$d` from odd a join odd b on a.`@version` = b.`@version`": {"a b": [2], "$d": [9]},
    "odd | where ['@version'] == 1 | summarize n = count() by ['x.y'], ['%p']": {"x.y": [3], "%p": [10], "n": [1]},
    "odd | extend ['@z'] = ['#h'] + ['1st'] | project ['@z'], ['select'], ['é']": {
        "@z": [10],
        "select": [5],
        "é": [11],
    },
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with tidelake.connect(tmp_path_factory.mktemp("names")) as lake:
        table = lake.create_table("ev", {"ts": "timestamp", "eventID": "string", "EventID": "long", "n": "long"})
        for n, name in enumerate("ab", 1):
            table.append([{"ts": f"2026-01-01T00:00:0{n}Z", "eventID": name, "EventID": n + 2, "n": n}])
            table.flush()
        lake.create_table("odd", {"ts": "timestamp", **dict.fromkeys(ODD, "long")}).append(
            [{"ts": "2026-01-01T00:00:00Z", **ODD}]
        )
        yield lake


def answer(lake: Lake, text: str, engine: str) -> dict[str, list[object]]:
    ask = lake.sql if text.startswith(("select", "with")) else lake.kql
    found = ask(text, engine=engine).to_arrow()
    return {name: found.column(name).to_pylist() for name in found.column_names if name != "ts"}


@pytest.mark.parametrize("text", ASKED)
def test_case_tells_columns_apart(lake: Lake, text: str) -> None:
    assert answer(lake, text, "local") == ASKED[text]


@pytest.mark.parametrize("text", ODD_ASKED)
def test_odd_signs_are_part_of_a_name(lake: Lake, text: str) -> None:
    assert answer(lake, text, "local") == ODD_ASKED[text]


def test_names_mean_the_same_on_spark(lake: Lake, quick_spark: SparkSession) -> None:
    asked = dict([*ASKED.items(), *ODD_ASKED.items()][1::3])
    assert {text: answer(lake, text, "spark") for text in asked} == asked


def test_a_condition_on_either_is_pushed_down_under_its_own_name(lake: Lake) -> None:
    for text in ("ev | where EventID == 3", "ev | where eventID == 'a'"):
        assert "1 extent, 1 block, 1 row" in lake.kql(text).explain()
    for text in ("select n from ev where EventID = 3", "select N from EV where EVENTID = 'a'"):
        assert "1 extent, 1 block, 1 row" in lake.sql(text).explain()
