"""Ask with long lists of values: they answer as short ones do, on both engines, and prune as much."""

from __future__ import annotations

from typing import TypeAlias, cast

import pytest
from pyspark.sql import SparkSession

from tidelake import Lake, QueryError
from tidelake.model.predicate import DynamicPathTest, Equals, InSet, Not, Range
from tidelake.pruning.outcomes import LONG_SET, outcomes
from tidelake.pruning.statistics import ColumnStats, Stats
from tidelake.query.conjuncts import with_short_sets
from tidelake.query.long_lists import LONG

# What is asked, and the values of which some are there; LIST stands for them.
NUMBERS, TEXTS = [404, 500, -1], ["auth", "web", "it\\'s", 'a "b" {0}', ""]
SQL = {
    "select ts, status from obs.logs where status in (LIST) order by ts": NUMBERS,
    "select count(*) as n from obs.logs where status not in (LIST)": NUMBERS,
    "select count(*) as n from obs.logs where bytes in (LIST) or service is null": [3000, 9000],
    "select count(*) as n from obs.logs where not (bytes in (LIST) and status = 200)": [3000, 9000],
    "select count(*) as n from obs.logs where latency in (LIST)": [5, 10],
    "select count(*) as n from obs.logs where service in (LIST)": TEXTS,
    "select count(*) as n from obs.logs where service not in (LIST)": TEXTS,
    "select count(*) as n from obs.logs where attributes['http.method'] in (LIST)": ["GET", "PUT"],
    "select count(*) as n from obs.logs where attributes:http.status in (LIST)": [200, 204],
    "select count(*) as n from obs.logs where lower(message) in (LIST)": ["cache miss"],
    "select count(*) as n from obs.logs where status in (LIST)": ["404", "500"],
    "select count(*) as n from obs.logs where ts in (LIST)": ["2026-01-02 03:00:00"],
    "select max(case when service in (LIST) then bytes end) as n from obs.logs": ["auth"],
    "select a.service, count(*) as n from obs.logs a join obs.logs b on a.ts = b.ts and a.status in (LIST)"
    " group by 1 order by 1": NUMBERS,
}
KQL = {
    "obs.logs | where status in (LIST) | count": NUMBERS,
    "obs.logs | where status !in (LIST) | count": NUMBERS,
    "obs.logs | where service in (LIST) | count": TEXTS,
    "obs.logs | where service !in (LIST) | count": TEXTS,
    "obs.logs | where service in~ (LIST) | count": ["AUTH"],
    "obs.logs | where latency in (LIST) | count": [5, 10],
    "obs.logs | where attributes.http.method in (LIST) | count": ["GET"],
    "obs.logs | extend x = service in (LIST) | summarize n = count() by x | order by x asc": ["auth"],
}
Case: TypeAlias = tuple[str, list[int] | list[str], str]
CASES = cast(
    "list[Case]",
    [*((text, values, "sql") for text, values in SQL.items()), *((t, v, "kql") for t, v in KQL.items())],
)


def written(values: list[int] | list[str]) -> str:
    return ", ".join("'" + each.replace("'", "\\'").replace("\\\\", "\\") + "'" if isinstance(each, str) else str(each)
                     for each in values)  # fmt: skip


def fillers(values: list[int] | list[str], count: int) -> str:
    """Return values that no row has, of the same kind."""
    if isinstance(values[0], int):
        return ", ".join(str(-1000 - at) for at in range(count))
    is_time, is_number = values[0].startswith("2026"), values[0].isdecimal()
    return ", ".join(
        f"'1999-01-01 00:00:{at % 60:02}'" if is_time else f"'{70_000 + at}'" if is_number else f"'none {at}'"
        for at in range(count)
    )


def asked(lake: Lake, text: str, language: str, engine: str) -> list[object]:
    ask = lake.sql if language == "sql" else lake.kql
    return list(ask(text, engine=engine).to_arrow().to_pylist())


@pytest.mark.parametrize(("text", "values", "language"), CASES)
def test_a_long_list_answers_as_a_short_one(
    text: str, values: list[int] | list[str], language: str, world: Lake
) -> None:
    short, long = written(values), f"{fillers(values, LONG)}, {written(values)}"
    assert asked(world, text.replace("LIST", long), language, "local") == asked(
        world, text.replace("LIST", short), language, "local"
    )


def test_long_lists_answer_on_spark_as_in_process(world: Lake, quick_spark: SparkSession) -> None:
    chosen = [case for at, case in enumerate(CASES) if at in (1, 2, 6, 7, 12, 13, 15, 17, 21)]
    for text, values, language in chosen:
        long = text.replace("LIST", f"{fillers(values, LONG_SET)}, {written(values)}")
        assert asked(world, long, language, "spark") == asked(world, long, language, "local"), text


def test_a_predicate_with_short_sets_keeps_all_that_the_long_ones_keep() -> None:
    numbers, texts = tuple(range(LONG_SET + 1)), tuple(f"t{at}" for at in range(LONG_SET + 1))
    long, other, few = InSet("x", numbers), Equals("y", 1), InSet("x", (1, 2))
    bounds = Range("x", 0, LONG_SET)
    assert with_short_sets(long) == bounds
    assert with_short_sets(InSet("x", texts)) == Range("x", "t0", "t999")
    assert with_short_sets(long & other) == bounds & other
    assert with_short_sets(long | other) == bounds | other
    assert with_short_sets(Not(long)) is None
    assert with_short_sets(Not(long) & other) == other
    assert with_short_sets(Not(long) | other) is None
    assert with_short_sets(Not(few) & few) == Not(few) & few
    assert with_short_sets(InSet("x", (*numbers, "a"))) is None
    assert with_short_sets(DynamicPathTest("x", "a", long)) is None


def test_a_long_list_prunes_as_a_short_one(world: Lake) -> None:
    text = "select message from obs.logs where bytes in (LIST)"
    short, long = (
        world.sql(text.replace("LIST", more + "3000, 4000")).plans[0]
        for more in ("", fillers([1], 2 * LONG_SET) + ", ")
    )
    assert len(long.tasks) == len(short.tasks)
    assert len(short.tasks) < len(world.sql("select message from obs.logs").plans[0].tasks)


@pytest.mark.parametrize("name", ["tide_texts", "tide_longs"])
def test_the_node_of_a_long_list_cannot_be_written(name: str, world: Lake) -> None:
    with pytest.raises(QueryError, match="there is no function"):
        world.sql(f"select 1 from obs.logs where service in ({name}('[1]'))")


@pytest.mark.parametrize("end", ["'a' 'b'", "'a',, 'b'", "'a', message", "1", "'a',", "null"])
def test_a_long_list_that_is_not_plain_is_read_as_any_other(end: str, world: Lake) -> None:
    text = "select count(*) as n from obs.logs where service in (LIST)"
    found = []
    for more in ("'none', ", fillers(["a"], LONG) + ", "):
        try:
            found.append(asked(world, text.replace("LIST", more + end), "sql", "local"))
        except QueryError as error:
            found.append([error.kind])
    assert found[0] == found[1]


@pytest.mark.parametrize("low", [0, 5, 1_500, 2_999, 4_000])
@pytest.mark.parametrize("width", [0, 1, 7, 5_000])
def test_judging_a_long_set_never_says_less_than_judging_its_values(low: int, width: int) -> None:
    values = tuple(range(0, 3_000, 2))
    known = Stats(10, {"x": ColumnStats(nulls=0, low=low, high=low + width)})
    may = any(low <= value <= low + width for value in values)
    for predicate in (InSet("x", values), InSet("x", tuple(map(str, values)))):
        assert outcomes(predicate, known) & 1 or not may
    found = outcomes(InSet("x", values), known)
    assert bool(found & 1) == may
    assert found == (1 if width == 0 and may else 3 if may else 2)
    assert bool(outcomes(Not(InSet("x", values)), known) & 1) == bool(found & 2)
