"""Kusto's own client asks, unmodified."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.kusto.data import ClientRequestProperties, KustoClient, KustoConnectionStringBuilder
from azure.kusto.data.exceptions import KustoApiError

import tidelake
from tests.support.serving import Served
from tidelake.server.doors.kql_parameters import with_parameters


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kusto") / "lake"
    with tidelake.connect(place, upkeep=False) as lake:
        table = lake.create_table(
            "obs.logs", {"ts": "timestamp", "service": "string", "n": "long", "x": "real", "tags": "dynamic"}
        )
        rows = [
            {"ts": f"2026-01-01T00:00:0{n}Z", "service": 'a"<b>', "n": n, "x": n / 2, "tags": {"k": [n]}}
            for n in range(5)
        ]
        table.append([*rows, {"ts": "2026-01-01T00:00:09Z"}])
    return place


@pytest.fixture(scope="module")
def kusto(served: Served) -> Iterator[KustoClient]:
    told = KustoConnectionStringBuilder.with_no_authentication(served.url)
    with KustoClient(told) as client:
        yield client


def rows_of(answer: Any) -> list[dict[str, Any]]:
    return [row.to_dict() for row in answer.primary_results[0]]


def test_values_of_all_types_come_through(kusto: KustoClient) -> None:
    rows = rows_of(kusto.execute("obs", "logs | where n == 3 | extend d = 90s, nan = real(nan), b = n > 1"))
    (row,) = rows
    assert row["ts"] == datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC)
    assert (row["service"], row["n"], row["x"], row["b"]) == ('a"<b>', 3, 1.5, True)
    assert row["tags"] == {"k": [3]}
    assert row["d"] == timedelta(seconds=90)
    assert row["nan"] == "NaN"  # as Kusto itself tells it
    assert rows_of(kusto.execute("obs", "logs | where isnull(n) | project n, service")) == [{"n": None, "service": ""}]


def test_what_clients_ask_by_themselves(kusto: KustoClient) -> None:
    assert rows_of(kusto.execute("obs", "range c from 1 to 10 step 1 | count")) == [{"Count": 10}]
    names = [row["DatabaseName"] for row in rows_of(kusto.execute("obs", ".show databases"))]
    assert "obs" in names
    assert [row["TableName"] for row in rows_of(kusto.execute_mgmt("obs", ".show tables"))] == ["logs"]
    told = rows_of(kusto.execute_mgmt("obs", ".show databases schema as json"))[0]["ClusterSchema"]
    assert '"CslType":"datetime"' in told
    schema = rows_of(kusto.execute_mgmt("obs", ".show table logs schema as json"))[0]
    assert schema["TableName"] == "logs"


def test_the_first_version_answers_in_tables(client: httpx.Client) -> None:
    told = client.post("/v1/rest/query", json={"db": "obs", "csl": "logs | count"}).json()["Tables"][0]
    assert (told["Columns"][0]["ColumnName"], told["Columns"][0]["ColumnType"], told["Rows"]) == (
        "Count",
        "long",
        [[6]],
    )


def test_parameters_are_given_to_their_declaration(kusto: KustoClient) -> None:
    properties: Any = ClientRequestProperties()  # type: ignore[no-untyped-call]
    properties.set_parameter("least", 2)
    properties.set_parameter("who", 'a"<b>')
    properties.set_option("servertimeout", timedelta(seconds=20))
    declared = "declare query_parameters(least:long, who:string = 'nobody')"
    text = f"{declared}; logs | where n >= least and service == who | count"
    assert rows_of(kusto.execute("obs", text, properties)) == [{"Count": 3}]


def test_parameters_in_a_text() -> None:
    text = 'declare query_parameters(a:long, b:string="x,)", c:datetime = datetime(2026-01-01)); t'
    assert with_parameters(text, {}) == text
    assert with_parameters(text, {"a": "5"}) == (
        'declare query_parameters(a:long = 5, b:string = "x,)", c:datetime = datetime(2026-01-01)); t'
    )
    assert with_parameters("t", {"a": 1}) == "t"


@pytest.mark.parametrize("text", ["logs | nonsense", "nope | count", "logs | where missing == 1", ".drop table logs"])
def test_mistakes_are_errors_with_their_codes(kusto: KustoClient, text: str) -> None:
    with pytest.raises(KustoApiError) as refused:
        kusto.execute("obs", text)
    error = refused.value.get_api_error()
    assert str(error.code).startswith("BadRequest")
    assert error.permanent
