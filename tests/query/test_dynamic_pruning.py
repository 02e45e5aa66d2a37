"""KQL's conditions on dynamic paths prune, and never lose a row that a text or a rounded number would give."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidelake import Lake, connect
from tidelake.query.session import run

PATH = "http.status_code"
MIXED: tuple[Any, ...] = (
    200, 404, 500, 503, 503.5, -1, 0, 2**53 + 1, 1e300, "500", "503.0", " 503", "5e2", "+600", "-7", ".5", "0x1F4",
    "inf", "Infinity", "-inf", "nan", "info", "NaN", "none", "", "timeout", "Überlauf", "true", True, False, None,
    [500], {"a": 1}, "[500]", "9007199254740993",
)  # fmt: skip
CONDITIONS = (
    ">= 500", "> 499.5", "< 0", "<= 200", "== 500", "== 503.5", "!= 500", "in (500, 503)", '== "500"', '== "503.5"',
    '== "timeout"', '== "true"', '== "/x"', 'in ("503", "timeout")', "> 9007199254740992", "== true",
)  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table of extents that hold numbers alone, words alone, numbers in texts, and all at once."""
    lake = connect(tmp_path_factory.mktemp("lake"))
    table = lake.create_table("logs", {"id": "long", "attributes": "dynamic"})
    chance = random.Random(14)
    groups: list[tuple[Any, ...]] = [
        (200, 201, 301), (500, 503, 504), ("timeout", "reset"), ("404", "500"), (1.5, 2.25), ("", "x"), MIXED, MIXED,
    ]  # fmt: skip
    for group in groups:
        values = [*group, *(chance.choice(group) for _ in range(40))]
        table.append([{"id": at, "attributes": {PATH: value, "a": at}} for at, value in enumerate(values)])
        table.flush()
    return lake


def conditions() -> list[str]:
    subject = f'attributes["{PATH}"]'
    plain = [f"{subject} {condition}" for condition in CONDITIONS]
    converted = [f"tolong({subject}) {c}" for c in (">= 500", "== 503", "< 1", "in (0, 404)")]
    converted += [f"toreal({subject}) {c}" for c in ("> 503.4", "== 1.5")]
    return [*plain, *converted, f"tostring({subject}) == '503'", f"{subject} between (400 .. 503)"]


@pytest.mark.parametrize("condition", conditions())
def test_condition_on_a_path_finds_the_same_rows_pruned_and_not(lake: Lake, condition: str) -> None:
    text = f"logs | where {condition} | project id, v = tostring(attributes) | sort by id asc, v asc"
    pruned, whole = (run(lake, text, language="kql", engine="local", prune=prune) for prune in (True, False))
    assert pruned.to_arrow().to_pylist() == whole.to_arrow().to_pylist()


def test_number_is_sought_only_where_numbers_or_texts_like_numbers_are(lake: Lake) -> None:
    found = lake.kql(f'logs | where attributes["{PATH}"] >= 500 | count', engine="local")
    assert len(found.plans[0].tasks) == 5  # not those of words or of small numbers; an empty text may stand before any
    assert len(lake.kql(f'logs | where attributes["{PATH}"] < 0 | count', engine="local").plans[0].tasks) == 4


def test_extent_without_first_bytes_is_read(lake: Lake, tmp_path: Path) -> None:
    """What an earlier writer did not say is not known."""
    from dataclasses import replace

    from tidelake.model.predicate import DynamicPathTest, Range
    from tidelake.pruning.outcomes import TRUE, outcomes
    from tidelake.pruning.statistics import ColumnStats, Stats

    known = ColumnStats(nulls=0, paths=("p",), ranges={"p": (1.0, 2.0)}, initials={})
    wanted = DynamicPathTest("d", "p", Range("d", high=":", include_high=False))
    assert not outcomes(wanted, Stats(5, {"d": known})) & TRUE
    assert outcomes(wanted, Stats(5, {"d": replace(known, initials=None)})) & TRUE
    assert outcomes(wanted, Stats(5, {"d": replace(known, initials={"p": (48, 90)})})) & TRUE
    assert not outcomes(wanted, Stats(5, {"d": replace(known, initials={"p": (65, 90)})})) & TRUE


SEARCHES = ("has 'timeout'", "contains_cs 'IME'", "startswith '5'")


def test_searches_at_a_path_give_the_same_rows_on_spark(lake: Lake, spark: SparkSession) -> None:
    asked = ", ".join(
        f"(logs | where attributes['{PATH}'] {each} | project q = {at}, id, v = tostring(attributes['{PATH}']))"
        for at, each in enumerate(SEARCHES)
    )
    text = f"union {asked} | sort by q asc, id asc, v asc"
    found = [lake.kql(text, engine=engine).to_arrow().to_pylist() for engine in ("local", "spark")]
    assert found[0] == found[1]
    assert {row["q"] for row in found[0]} == {0, 2}
