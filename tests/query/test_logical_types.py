"""Show that columns of logical types are what they say in SQL and KQL, prune, and answer alike on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidelake
from tidelake import Lake

DAYS = [date(2024, 3, 1) + timedelta(days=n) for n in range(12)]
COLUMNS = {
    "n": "long", "day": "date", "local": "timestamp_ntz", "price": "decimal(10,2)", "big": "decimal(38,5)",
    "raw": "binary", "st": "struct<a:int,b:struct<s:string,f:float>>", "l": "array<int>", "m": "map<string,long>",
}  # fmt: skip

# Of each question the rows that it gives; and how many of the four extents it reads, if that is told.
SQL: dict[str, tuple[list[tuple[Any, ...]], int | None]] = {
    "select sum(price), avg(price) from t": ([(Decimal("73.20"), Decimal("6.100000"))], None),
    "select n from t where day = '2024-03-05'": ([(4,)], 1),
    "select n from t where day between date'2024-03-06' and date'2024-03-07' order by n": ([(5,), (6,)], 2),
    "select n from t where day > timestamp'2024-03-11 12:00:00'": ([(11,)], 1),
    "select min(day), max(day), count(day) from t": ([(DAYS[0], DAYS[11], 12)], None),
    "select min(local), max(local) from t": ([(datetime(2024, 3, 1, 2, 30), datetime(2024, 3, 12, 2, 30))], None),
    "select max(price), min(big) from t": ([(Decimal("11.60"), Decimal("0.00000"))], None),
    "select n from t where local = '2024-03-10 02:30:00'": ([(9,)], 1),
    "select n from t where price = 2.6": ([(2,)], 1),
    "select n from t where price > 11 or price < 0.7 order by n": ([(0,), (11,)], 2),
    "select n from t where big = 30000000000000000000000000000000": ([(3,)], 1),
    "select n from t where raw = X'02'": ([(2,)], None),
    "select n from t where st.a = 7": ([(7,)], 1),
    "select n from t where ST.B.s = 'x11' and st.a > 3": ([(11,)], 1),
    "select n from t where t.st.b.s like 'x1%' order by n": ([(1,), (10,), (11,)], None),
    "select n from t where st.a = '7'": ([(7,)], None),
    "select n from t where st.b.f > 2.4 and st.b.f < 2.6": ([(5,)], None),
    "select st.a % 2 as odd, count(*) from t group by st.a % 2 order by 1": ([(0, 6), (1, 6)], None),
    "select count(distinct st) from t": ([(12,)], None),
    "select l[1], m['k'] from t where n = 3": ([(4, 3)], 1),
    "select n from t where st.a is null": ([], None),
    "select day + interval 1 day, year(day) from t where n = 0": ([(date(2024, 3, 2), 2024)], 1),
    "select a.n from t a join t b on a.day = b.day and a.st.a = b.st.a where b.price = 2.6": ([(2,)], None),
}
KQL: dict[str, list[tuple[Any, ...]]] = {
    "t | summarize sum(price), max(day), min(local)": [
        (73.2, datetime(2024, 3, 12, tzinfo=UTC), datetime(2024, 3, 1, 2, 30, tzinfo=UTC))
    ],
    "t | where n < 3 | summarize avg(price), avgif(price, n > 0)": [(1.6, 2.1)],
    "t | where day == datetime(2024-03-05) | project n": [(4,)],
    "t | where day > datetime(2024-03-11 12:00) | project n, day": [(11, datetime(2024, 3, 12, tzinfo=UTC))],
    "t | where local between (datetime(2024-03-10) .. datetime(2024-03-11)) | project n": [(9,)],
    "t | where st.a == 7 | project st.b.s, l[0], m.k": [('"x7"', "7", "7")],
    "t | where price > 11.5 | project price, tostring(price), price * 2": [(11.6, "11.6", 23.2)],
    "t | where n == 2 | project raw, big": [('"Ag=="', 2e31)],
    "t | summarize n = count() by bin(day, 7d) | order by day asc | project n": [(3,), (7,), (2,)],
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with tidelake.connect(tmp_path_factory.mktemp("logical")) as lake:
        table = lake.create_table("t", COLUMNS)
        rows = [
            {"n": n, "day": day, "local": datetime(day.year, day.month, day.day, 2, 30), "raw": bytes([n]),
             "price": Decimal(n) + Decimal("0.6"), "big": Decimal(n) * 10**31, "l": [n, n + 1], "m": {"k": n},
             "st": {"a": n, "b": {"s": f"x{n}", "f": n / 2}}}
            for n, day in enumerate(DAYS)
        ]  # fmt: skip
        for start in range(0, 12, 3):
            table.append(rows[start : start + 3])
            table.flush()
        yield lake


def tuples(found: Any) -> list[tuple[Any, ...]]:
    rows = found.to_arrow()
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


@pytest.mark.parametrize("text", SQL)
def test_sql_answers_and_prunes(lake: Lake, text: str) -> None:
    rows, extents = SQL[text]
    found = lake.sql(text)
    assert tuples(found) == rows
    if extents is not None:
        assert len(found.plans[0].tasks) == extents


@pytest.mark.parametrize("text", KQL)
def test_kql_answers(lake: Lake, text: str) -> None:
    assert tuples(lake.kql(text)) == KQL[text]


def test_spark_answers_alike(lake: Lake, spark: SparkSession) -> None:
    for text, (rows, _) in SQL.items():
        assert tuples(lake.sql(text, engine="spark")) == rows, text
    for text, rows in KQL.items():
        assert tuples(lake.kql(text, engine="spark")) == rows, text


def test_values_come_out_of_a_query_in_their_own_types(lake: Lake) -> None:
    whole = lake.table("t").to_arrow()
    found = lake.sql("select * from t", engine="local").to_arrow()
    assert found.schema == whole.schema
    assert found.sort_by("n") == whole.sort_by("n")
