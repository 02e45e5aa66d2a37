"""Rows that a join drops are left out of scans: answers are those of DuckDB over plain Arrow, and less is read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

import tidelake
from tidelake import Lake
from tidelake.query import join_filters
from tidelake.query.session import run

START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS, EXTENTS = 300, 6
STRINGS = {"ts": "timestamp", "id": "long", "k": "int", "s": "string", "v": "real"}


def made(chance: random.Random, first: int, rows: int) -> list[dict[str, object]]:
    """Return rows whose keys, texts and times lie in a range of their own, some of them null."""

    def some(value: object) -> object:
        return None if chance.random() < 0.1 else value

    numbers = [first + chance.randrange(rows) for _ in range(rows)]
    return [
        {
            "ts": START + timedelta(minutes=number),
            "id": some(number),
            "k": some(number * 2),
            "s": some(f"s{number:05}"),
            "v": chance.random(),
        }
        for number in numbers
    ]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, duckdb.DuckDBPyConnection]]:
    chance = random.Random(11)
    with tidelake.connect(tmp_path_factory.mktemp("lake")) as lake, duckdb.connect() as plain:
        plain.execute("set TimeZone = 'UTC'")
        kinds = pa.schema(
            [("ts", pa.timestamp("us", "UTC")), ("id", pa.int64()), ("k", pa.int32()), ("s", pa.utf8()),
             ("v", pa.float64())]
        )  # fmt: skip
        for name in ("large", "other"):
            whole: list[dict[str, object]] = []
            table = lake.create_table(name, STRINGS, time="ts", flush_age="off")
            for number in range(EXTENTS):
                rows = made(chance, number * ROWS, ROWS)
                table.append(rows)
                table.flush()
                whole += rows
            plain.register(name, pa.Table.from_pylist(whole, kinds))
        for name, first, count in (("small", 650, 12), ("wide", 200, 900), ("nobody", 10**6, 5), ("empty", 0, 0)):
            few = [*made(chance, first, count), *([{"ts": START, "id": None, "k": None, "s": None}] if count else [])]
            table = lake.create_table(name, STRINGS, time="ts", flush_age="off")
            if few:
                table.append(few)
            plain.register(name, pa.Table.from_pylist(few, kinds))
        yield lake, plain


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_filters, "LARGE_ROWS", 100)
    monkeypatch.setattr(join_filters, "LARGER", 1)


KEYS = ("l.id = r.id", "l.k = r.k", "l.id = r.k", "l.s = r.s", "l.ts = r.ts", "r.id = l.id and l.s = r.s")
JOINS = (
    "select l.id, l.v, r.v from large l join {side} r on {on}",
    "select l.id, r.id from large l, {side} r where {on} and l.v < 0.9",
    "select l.id, r.id, r.v from large l left join {side} r on {on}",
    "select l.id, r.id, l.v from {side} r left join large l on {on}",
    "select l.id, r.id, l.v from large l right join {side} r on {on}",
    "select l.id, r.id from large l full join {side} r on {on}",
    "select l.id, r.id from large l full join {side} r on {on} where {on}",
    "select l.id, r.id from large l left join {side} r on {on} where r.id is null",
    "select l.id from large l semi join {side} r on {on}",
    "select l.id from large l anti join {side} r on {on}",
    "select r.id from {side} r anti join large l on {on}",
    "select l.id from large l where exists (select 1 from {side} r where {on})",
    "select l.id from large l where not exists (select 1 from {side} r where {on})",
    "select r.id from {side} r where not exists (select 1 from large l where {on})",
    "select r.id, (select sum(l.v) from large l where {on}) v from {side} r",
    "select r.id, (select count(*) from large l where {on}) v from {side} r",
    "select x.id, x.n from (select id, k, s, ts, count(*) n from large group by 1, 2, 3, 4) l2 join {side} r on {on2}"
    " join large x0 on x0.id = r.id join (select id, 1 n from large) x on x.id = r.id",
    "select l.id, r.id, o.id from large l join {side} r on {on} left join other o on o.id = l.id",
    "select l.id, r.id, o.id from other o left join large l on o.id = l.id join {side} r on {on}",
    "with t as (select * from {side} where v > 0.2) select l.id from large l join t r on {on}",
    "with t as (select * from large) select a.id from t a join {side} r on a.id = r.id union all select b.id from t b",
    "select l.id from (select * from large union all select * from other) l join {side} r on {on}",
    "select l.id from (select *, row_number() over (order by v) n from large) l join {side} r on {on} where l.n > 3",
)
INS = (
    "select id from large where id in (select id from {side})",
    "select id from large where id not in (select id from {side} where id is not null)",
    "select id from large where id not in (select id from {side})",
    "select id from {side} where k in (select k from large where v < 0.5)",
    "select id from large where id in (select k from {side}) or v < 0.1",
    "select id from large where (id in (select id from {side})) is null",
    "select id from {side} where id in (select max(id) from large group by k)",
    "select id from large where s in (select s from {side}) and ts in (select ts from {side})",
)


def texts() -> Iterator[str]:
    for join in JOINS:
        for on in KEYS:
            yield join.replace("{on2}", on.replace("l.", "l2.")).replace("{on}", on)
    yield from INS


SIDES = ("small", "wide", "nobody", "empty")


@pytest.mark.parametrize("side", SIDES)
def test_answers_are_those_of_plain_tables_whatever_a_join_leaves_out(
    side: str, tables: tuple[Lake, duckdb.DuckDBPyConnection]
) -> None:
    some = [text for number, text in enumerate(texts()) if number % 5 == SIDES.index(side)]
    assert compare(side, some, tables) >= 3 * (side != "empty")


@pytest.mark.torture
@pytest.mark.parametrize("side", SIDES)
def test_answers_are_those_of_plain_tables_for_every_join(
    side: str, tables: tuple[Lake, duckdb.DuckDBPyConnection]
) -> None:
    assert compare(side, list(texts()), tables) >= 10 * (side != "empty")


def compare(side: str, several: list[str], tables: tuple[Lake, duckdb.DuckDBPyConnection]) -> int:
    """Compare answers with those over plain tables; return how often less was read."""
    (lake, plain), less = tables, 0
    for text in several:
        own = text.replace("{side}", side)
        result = run(lake, own, engine="local")
        wanted = sorted(map(repr, plain.execute(own).fetchall()))
        assert sorted(repr(tuple(row.values())) for row in _rows(result.to_arrow())) == wanted, own
        less += any(plan.stages[-1].rows < ROWS * EXTENTS for plan in result.plans if plan.table.endswith("large"))
    return less


def _rows(table: pa.Table) -> list[dict[str, object]]:
    named = table.rename_columns([f"{at}" for at in range(table.num_columns)])
    rows: list[dict[str, object]] = named.to_pylist()
    return rows


@pytest.mark.parametrize(
    ("text", "extents"),
    [
        ("select l.v from large l join small r on l.id = r.id", 1),
        ("select l.v from large l left join small r on l.id = r.id", EXTENTS),
        ("select l.v from small r left join large l on l.id = r.id", 1),
        ("select l.v from large l where l.s in (select s from small)", 1),
        ("select l.v from large l where l.s not in (select s from small)", EXTENTS),
        ("select l.v from large l where not exists (select 1 from small r where r.ts = l.ts)", EXTENTS),
        ("select l.v from large l where exists (select 1 from small r where r.ts = l.ts and r.id = l.id)", 1),
        ("select l.v from (select id, sum(v) v from large group by id) l join small r on l.id = r.id", 1),
        ("select l.v from (select id, v from large limit 1700) l join small r on l.id = r.id", EXTENTS),
        ("select l.v from large l join small r on l.v = r.v", EXTENTS),
    ],
)
def test_a_small_side_prunes_the_large_one_only_where_its_rows_may_go(
    text: str, extents: int, tables: tuple[Lake, duckdb.DuckDBPyConnection]
) -> None:
    plans = [plan for plan in run(tables[0], text, engine="local").plans if plan.table.endswith("large")]
    assert [len(plan.tasks) for plan in plans] == [extents]


def test_joins_of_kql_prune_too(tables: tuple[Lake, duckdb.DuckDBPyConnection]) -> None:
    lake, plain = tables
    text = "large | join kind=inner (small | where v >= 0) on id | summarize n = count()"
    result = run(lake, text, language="kql", engine="local")
    asked = "select count(*) from large l join small r on l.id = r.id where r.v >= 0"
    wanted = plain.execute(asked).fetchall()[0][0]
    assert result.to_arrow().to_pydict() == {"n": [wanted]}
    assert [len(plan.tasks) for plan in result.plans if plan.table.endswith("large")] == [1]
