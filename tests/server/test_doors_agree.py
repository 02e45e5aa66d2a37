"""The same questions through every door, in every form, give the same rows."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as dbapi
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidelake
from tests.support.serving import Served

COLUMNS = {"ts": "timestamp", "s": "string", "n": "long", "x": "real", "b": "bool", "d": "dynamic"}
TEXTS = ["a", "b", 'q"uote', "new\nline", "comma, é", "", None]
REALS = [0.5, -1.0, 1e300, math.nan, math.inf, -math.inf, None]
DYNAMIC = [{"k": 1, "l": ["x", None]}, {"k": {"m": True}}, [1, 2.5], "text", None, {}]


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("agree") / "lake"
    rows = [
        {
            "ts": datetime(2026, 1, 1, 0, n // 60, n % 60, n * 7, tzinfo=UTC),
            "s": TEXTS[n % 7],
            "n": None if n % 11 == 0 else n,
            "x": REALS[n % 5 if n < 100 else n % 7],
            "b": None if n % 13 == 0 else n % 2 == 0,
            "d": DYNAMIC[n % 6],
        }
        for n in range(200)
    ]
    with tidelake.connect(place, upkeep=False) as lake:
        table = lake.create_table("t.rows", COLUMNS)
        table.append(rows[:150])
        table.flush()
        table.append(rows[150:])
    return place


@pytest.fixture(scope="module")
def flown(served: Served) -> Iterator[Any]:
    with dbapi.connect(f"grpc://{served.flight}", autocommit=True) as opened:
        yield opened


def told(value: Any) -> Any:
    """Return a value as the plainest of forms can tell it: no NaN, and an empty text is nothing."""
    match value:
        case None | "" | "NaN" | "Infinity" | "-Infinity" | "nan" | "inf" | "-inf":
            return ""
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.12g}" if math.isfinite(value) else ""
        case int():
            return f"{float(value):.12g}"
        case datetime():
            return value.astimezone(UTC).isoformat()
        case dict() | list():
            return json.dumps(value, sort_keys=True)
        case _:
            return _text(str(value))


def _text(text: str) -> str:
    if text[:1] in "{[":
        return json.dumps(json.loads(text), sort_keys=True)
    try:
        return f"{float(text):.12g}"
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except ValueError:
        return text.strip('"')  # of a dynamic value that is a text


def rows_of(table: pa.Table) -> list[list[Any]]:
    columns = [column.to_pylist() for column in table.columns]
    return [[told(value) for value in row] for row in zip(*columns, strict=True)]


def by_http(client: httpx.Client, form: str, **question: str) -> list[list[Any]]:
    answer = client.post("/v1/query", json={**question, "format": form})
    assert answer.status_code == 200, answer.text
    data = answer.content
    match form:
        case "json":
            return [[told(value) for value in row.values()] for row in json.loads(data)]
        case "ndjson":
            return [[told(value) for value in json.loads(line).values()] for line in data.splitlines()]
        case "csv":
            return [[told(value) for value in row] for row in list(csv.reader(io.StringIO(data.decode())))[1:]]
        case "arrow":
            return rows_of(pa.ipc.open_stream(data).read_all())
        case _:
            return rows_of(pq.read_table(pa.BufferReader(data)))


def by_kusto(client: httpx.Client, version: str, text: str) -> list[list[Any]]:
    found = client.post(f"/{version}/rest/query", json={"db": "t", "csl": text})
    assert found.status_code == 200, found.text
    body = found.json()
    tables = body["Tables"][:1] if version == "v1" else [each for each in body if each.get("TableId") == 1]
    return [[told(value) for value in row] for row in tables[0]["Rows"]]


CONDITIONS = st.sampled_from(
    [
        ("n > 50", "n > 50"),
        ("n between 20 and 60", "n between (20 .. 60)"),
        ("s = 'a'", "s == 'a'"),
        ("s <> 'b' and s <> ''", "s != 'b' and isnotempty(s)"),
        ("b", "b"),
        ("ts < timestamp '2026-01-01T00:02:00Z'", "ts < datetime(2026-01-01T00:02:00Z)"),
        ("x > 0 and x < 10", "x > 0 and x < 10"),
        ("n is null", "isnull(n)"),
        ("n % 7 = 3", "n % 7 == 3"),
    ]
)
SHAPES = st.sampled_from(
    [
        ("ts, n, x, b", "project ts, n, x, b"),
        ("ts, n, d", "project ts, n, d"),
        ("ts, n, n * 2 as m, s is null or s = '' as e", "project ts, n, m = n * 2, e = isempty(s)"),
        ("count(*) as c, min(n) as l, max(ts) as h", "summarize c = count(), l = min(n), h = max(ts)"),
        ("b, count(*) as c, sum(n) as t", "summarize c = count(), t = sum(n) by b"),
    ]
)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(conditions=st.lists(CONDITIONS, max_size=2), shape=SHAPES, limit=st.sampled_from([None, 7]))
def test_every_door_gives_the_same_rows(
    client: httpx.Client,
    reader: tidelake.Lake,
    flown: Any,
    conditions: list[tuple[str, str]],
    shape: tuple[str, str],
    limit: int | None,
) -> None:
    where = " where " + " and ".join(f"({each[0]})" for each in conditions) if conditions else ""
    groups = "count(" in shape[0]
    order = "" if groups else " order by ts"
    group = " group by b" if groups and shape[0].startswith("b") else ""
    sql = f"select {shape[0]} from t.rows{where}{group}{order}"
    kql = "rows" + "".join(f" | where {each[1]}" for each in conditions) + f" | {shape[1]}"
    kql += "" if groups else " | order by ts asc"
    if limit is not None and not groups:
        sql, kql = f"{sql} limit {limit}", f"{kql} | take {limit}"
    wanted = sorted(rows_of(reader.sql(sql).to_arrow()), key=str)
    answers = {form: by_http(client, form, sql=sql) for form in ("json", "ndjson", "csv", "arrow", "parquet")}
    answers |= {f"kql {form}": by_http(client, form, kql=f"t.{kql}") for form in ("json", "csv", "arrow")}
    answers |= {f"kusto {version}": by_kusto(client, version, kql) for version in ("v1", "v2")}
    answers["kept"] = by_http(client, "json", sql=sql)
    with flown.cursor() as cursor:
        cursor.execute(sql)
        answers["flight"] = rows_of(cursor.fetch_arrow_table())
    answers["python kql"] = rows_of(reader.kql(f"t.{kql}").to_arrow())
    for door, found in answers.items():
        assert sorted(found, key=str) == wanted, (door, sql, kql)
