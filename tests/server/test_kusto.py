"""Kusto's own client asks, unmodified."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.kusto.data import ClientRequestProperties, KustoClient, KustoConnectionStringBuilder
from azure.kusto.data.data_format import DataFormat
from azure.kusto.data.exceptions import KustoApiError
from azure.kusto.ingest import IngestionProperties, KustoStreamingIngestClient, ManagedStreamingIngestClient

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
    listed = rows_of(kusto.execute_mgmt("obs", ".show database ['obs'] schema"))
    assert {(row["DatabaseName"], row["TableName"]) for row in listed} == {("obs", None), ("obs", "logs")}
    assert {row["ColumnType"] for row in listed if row["ColumnName"] == "ts"} == {"System.DateTime"}
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


@pytest.mark.parametrize("text", ["logs | nonsense", "nope | count", "logs | where missing == 1", ".alter table logs"])
def test_mistakes_are_errors_with_their_codes(kusto: KustoClient, text: str) -> None:
    with pytest.raises(KustoApiError) as refused:
        kusto.execute("obs", text)
    error = refused.value.get_api_error()
    assert str(error.code).startswith("BadRequest")
    assert error.permanent


def properties_of(table: str, form: DataFormat) -> IngestionProperties:
    return IngestionProperties(database="made", table=table, data_format=form)


def test_the_ingest_client_streams_rows(kusto: KustoClient, served: Served) -> None:
    made = kusto.execute_mgmt("made", ".create table events (ts:datetime, who:string, n:long, more:dynamic)")
    assert rows_of(made)[0]["TableName"] == "events"
    told = KustoConnectionStringBuilder.with_no_authentication(served.url)
    with KustoStreamingIngestClient(told) as client:
        text = io.BytesIO(b'2026-01-01T00:00:00Z,"a,b",1,"{""k"":1}"\n2026-01-01T00:00:01Z,c,2,\n')
        client.ingest_from_stream(text, properties_of("events", DataFormat.CSV))
        lines = io.BytesIO(b'{"ts":"2026-01-01T00:00:02Z","who":"d","n":3}\n{"ts":"2026-01-01T00:00:03Z","n":4}\n')
        client.ingest_from_stream(lines, properties_of("events", DataFormat.JSON))
        with pytest.raises(KustoApiError) as refused:
            client.ingest_from_stream(io.BytesIO(b"1"), properties_of("nowhere", DataFormat.CSV))
        assert refused.value.get_api_error().permanent
        with pytest.raises(KustoApiError):
            client.ingest_from_stream(io.BytesIO(b"1,2,3,4,5,6"), properties_of("events", DataFormat.CSV))
    rows = rows_of(kusto.execute("made", "events | order by n asc | project who, n, k = more.k"))
    assert [(row["who"], row["n"], row["k"]) for row in rows] == [
        ("a,b", 1, 1),
        ("c", 2, None),
        ("d", 3, None),
        ("", 4, None),
    ]


def test_the_managed_client_sends_the_same_rows_once(kusto: KustoClient, served: Served, client: httpx.Client) -> None:
    kusto.execute_mgmt("made", ".create-merge table twice (ts:datetime, n:long)")
    told = KustoConnectionStringBuilder.with_no_authentication(served.url)
    with ManagedStreamingIngestClient(told, KustoConnectionStringBuilder.with_no_authentication(served.url)) as managed:
        managed.ingest_from_stream(io.BytesIO(b"2026-01-01T00:00:00Z,1\n"), properties_of("twice", DataFormat.CSV))
    for attempt in range(2):
        id_ = f"KPC.executeManagedStreamingIngest;{uuid.UUID(int=7)};{attempt}"
        headers = {"x-ms-client-request-id": id_, "content-type": "application/octet-stream"}
        answer = client.post("/v1/rest/ingest/made/twice", content=b"2026-01-01T00:00:01Z,2\n", headers=headers)
        assert answer.json()["Tables"][0]["Rows"][0][0] == 1
    assert rows_of(kusto.execute("made", "twice | count")) == [{"Count": 2}]


def test_commands_make_and_fill_tables(kusto: KustoClient) -> None:
    kusto.execute_mgmt("made", ".create table plain (ts:datetime, n:long)")
    inline = ".ingest inline into table plain with (format='csv') <|\n2026-01-01T00:00:00Z,1\n2026-01-01T00:00:01Z,2"
    assert rows_of(kusto.execute_mgmt("made", inline))[0]["ConsumedRecordsCount"] == 2
    kusto.execute_mgmt("made", ".create-merge table plain (ts:datetime, n:long, extra:real)")
    schema = rows_of(kusto.execute_mgmt("made", ".show table plain cslschema"))[0]["Schema"]
    assert schema == "ts:datetime,n:long,extra:real"
    details = rows_of(kusto.execute_mgmt("made", ".show table plain details"))[0]
    assert (details["TableName"], details["TotalRowCount"]) == ("plain", 2)
    assert [row["AttributeName"] for row in rows_of(kusto.execute_mgmt("made", ".show table plain"))][:2] == ["ts", "n"]
    for command in (".show functions", ".show materialized-views", ".show queries", ".get ingestion resources"):
        assert rows_of(kusto.execute_mgmt("made", command)) == []
    kusto.execute_mgmt("made", ".drop table plain")
    kusto.execute_mgmt("made", ".drop table plain ifexists")
    with pytest.raises(KustoApiError):
        kusto.execute_mgmt("made", ".create table bad (a:nonsense)")
    with pytest.raises(KustoApiError):
        kusto.execute_mgmt("made", ".drop table plain")


def test_errors_have_the_codes_of_what_went_wrong(client: httpx.Client) -> None:
    text = "range a from 1 to 99999999 step 1 | extend b = a | join (range b from 1 to 99999999 step 1) on b | count"
    late = {"db": "obs", "csl": text, "properties": '{"Options":{"servertimeout":"00:00:00.3"}}'}
    answer = client.post("/v2/rest/query", json=late)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "Timeout: time_budget")
    assert client.get("/v1/rest/auth/metadata").json()["AzureAD"] is None
