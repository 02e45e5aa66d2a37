"""The API of Prometheus over samples that came by remote write."""

from __future__ import annotations

import cramjam
import httpx
import numpy as np
import pytest

import tidelake
from tests.server.test_remote_write import first
from tidelake.query.budget import Budget
from tidelake.query.promql.listing import Listing
from tidelake.server.doors.prometheus import _unescaped
from tidelake.server.doors.remote_read import _samples
from tidelake.server.flight_words import message, varint_field
from tidelake.server.protocols.protobuf import Message

AT_S = 1_767_225_600


@pytest.fixture(scope="module")
def asked(client: httpx.Client) -> httpx.Client:
    assert client.get("/api/v1/query", params={"query": "up"}).json()["data"] == {"resultType": "vector", "result": []}
    series = [
        (
            {"__name__": "hits", "job": job, "é": "1"},
            [(float(n * (2 if job == "b" else 1)), (AT_S + n * 15) * 1000) for n in range(41)],
        )
        for job in ("a", "b")
    ]
    body = bytes(cramjam.snappy.compress_raw(first(series)))
    assert client.post("/api/v1/write", content=body, headers={"content-encoding": "snappy"}).status_code == 204
    return client


def test_instant_and_range_queries(asked: httpx.Client) -> None:
    told = {"query": "sum by (job) (rate(hits[5m]))", "time": str(AT_S + 600)}
    found = asked.get("/api/v1/query", params=told).json()
    assert found["status"] == "success"
    values = {each["metric"]["job"]: float(each["value"][1]) for each in found["data"]["result"]}
    assert values == pytest.approx({"a": 1 / 15, "b": 2 / 15})
    ranged = {"query": "hits{job='a'}", "start": str(AT_S), "end": "2026-01-01T00:10:00Z", "step": "5m"}
    data = asked.post("/api/v1/query_range", data=ranged).json()["data"]
    assert data["resultType"] == "matrix"
    assert data["result"][0]["values"] == [[AT_S, "0"], [AT_S + 300, "20"], [AT_S + 600, "40"]]
    assert asked.get("/api/v1/query", params={"query": "1 + 1"}).json()["data"]["resultType"] == "scalar"


def test_series_labels_and_values(asked: httpx.Client) -> None:
    times = {"start": str(AT_S), "end": str(AT_S + 600)}
    params = {"match[]": ['hits{job="a"}', "nothing"], **times}
    assert asked.get("/api/v1/series", params=params).json()["data"] == [{"__name__": "hits", "job": "a", "é": "1"}]
    assert asked.get("/api/v1/labels", params=times).json()["data"] == ["__name__", "job", "é"]
    assert asked.get("/api/v1/label/job/values", params=times).json()["data"] == ["a", "b"]
    assert asked.get("/api/v1/label/__name__/values", params=times).json()["data"] == ["hits"]
    assert asked.get("/api/v1/metadata").json() == {"status": "success", "data": {}}
    assert asked.get("/api/v1/status/buildinfo").json()["status"] == "success"


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("query", {}),
        ("query", {"query": "sum("}),
        ("query", {"query": "up", "time": "noon"}),
        ("query", {"query": "up", "time": "1e300"}),
        ("query_range", {"query": "up", "start": "1"}),
        ("query_range", {"query": "up", "start": "1", "end": "2", "step": "x"}),
        ("query_range", {"query": "up", "start": "2", "end": "1", "step": "1"}),
        ("query_range", {"query": "up", "start": "0", "end": "100000000000", "step": "0.001"}),
        ("query_range", {"query": "up", "start": "0", "end": "1", "step": "NaN"}),
        ("query_range", {"query": "up", "start": "0", "end": "1", "step": "1e300"}),
        ("query", {"query": "hits @ -1e15"}),
        ("query", {"query": "hits @ 1e300"}),
        ("query", {"query": "hits{" + "a='b'," * 3_000 + "}"}),
        ("query", {"query": "hits", "timeout": "soon"}),
        ("query", {"query": "hits", "limit": "-1"}),
        ("query", {"query": "hits", "lookback_delta": "0"}),
        ("metadata", {"limit_per_metric": "x"}),
        ("series", {}),
    ],
)
def test_mistakes_are_told_as_prometheus_does(asked: httpx.Client, path: str, params: dict[str, str]) -> None:
    answer = asked.get(f"/api/v1/{path}", params=params)
    assert (answer.status_code, answer.json()["status"], answer.json()["errorType"]) == (400, "error", "bad_data")


def test_limit_lookback_and_timeout_are_heeded(asked: httpx.Client) -> None:
    when = {"query": "hits", "time": str(AT_S + 60)}
    limited = asked.get("/api/v1/query", params={**when, "limit": "1"}).json()
    assert [each["metric"]["job"] for each in limited["data"]["result"]] == ["a"]
    assert limited["warnings"] == ["results truncated due to limit"]
    ranged = {"query": "hits", "start": str(AT_S), "end": str(AT_S + 15), "step": "15", "limit": "1"}
    [series] = asked.get("/api/v1/query_range", params=ranged).json()["data"]["result"]
    assert series["values"] == [[AT_S, "0"], [AT_S + 15, "1"]]
    every = asked.get("/api/v1/query", params={**when, "limit": "2"}).json()
    assert len(every["data"]["result"]) == 2
    assert "warnings" not in every
    late = {"query": "hits", "time": str(AT_S + 660)}
    for delta, series in (("30s", 0), ("2m", 2), ("90", 2)):
        answer = asked.get("/api/v1/query", params={**late, "lookback_delta": delta}).json()
        assert len(answer["data"]["result"]) == series
    slow = {"query": "sum_over_time(vector(1)[20d:1s])", "timeout": "1ms"}
    answer = asked.get("/api/v1/query", params=slow)
    assert (answer.status_code, answer.json()["errorType"]) == (504, "timeout")


def test_labels_are_found_by_their_escaped_names(asked: httpx.Client) -> None:
    times = {"start": str(AT_S), "end": str(AT_S + 600)}
    for name in ("é", "U___e9_"):
        assert asked.get(f"/api/v1/label/{name}/values", params=times).json()["data"] == ["1"]
    assert _unescaped("U__http_2e_method__x") == "http.method_x"
    assert _unescaped("U___ffffff_") == "U___ffffff_"


def test_health_is_told_to_anybody(asked: httpx.Client) -> None:
    assert [asked.get(f"/-/{name}", headers={"authorization": ""}).status_code for name in ("healthy", "ready")] == [
        200,
        200,
    ]


def test_what_clients_look_for_besides(asked: httpx.Client) -> None:
    for path in ("rules", "alerts", "targets", "query_exemplars", "status/flags", "status/config"):
        assert asked.get(f"/api/v1/{path}").json()["status"] == "success"
    formatted = asked.get("/api/v1/format_query", params={"query": "sum  by(job)(rate(hits[5m]))"}).json()
    assert formatted["data"] == "sum by (job) (rate(hits[5m]))"
    times = {"start": str(AT_S), "end": str(AT_S + 600)}
    matched = {"match[]": 'hits{job="b"}', **times}
    assert asked.get("/api/v1/label/job/values", params=matched).json()["data"] == ["b"]
    assert asked.get("/api/v1/labels", params={**matched, "limit": "1"}).json()["data"] == ["__name__"]
    assert asked.get("/api/v1/series", params={"match[]": "sum(hits)", **times}).status_code == 400
    assert asked.get("/api/v1/labels", params={"start": "1", "end": "2"}).json()["data"] == ["__name__", "job", "é"]


def test_names_come_from_statistics_as_from_series(asked: httpx.Client, reader: tidelake.Lake) -> None:
    listing = Listing(reader, "prom_samples", Budget(), None, (AT_S * 1000, (AT_S + 600) * 1000))
    series = listing.series([], 100)
    assert listing.label_names() == sorted({name for each in series for name in each}) == ["__name__", "job", "é"]
    assert listing.metric_names() == ["hits"]
    reader.table("prom_samples").flush()
    again = Listing(reader, "prom_samples", Budget(), None, (AT_S * 1000, (AT_S + 600) * 1000))
    assert (again.label_names(), again.metric_names(), again.series([], 100)) == (
        ["__name__", "job", "é"], ["hits"], series,
    )  # fmt: skip
    assert again.series(["hits{job=~'a|c'}", "nothing"], 100) == series[:1]


def test_remote_read_gives_samples_as_they_are(asked: httpx.Client) -> None:
    matcher = message({2: b"job", 3: b"a"})
    query = varint_field(1, AT_S * 1000) + varint_field(2, (AT_S + 30) * 1000) + message({3: matcher})
    body = bytes(cramjam.snappy.compress_raw(message({1: query})))
    headers = {"content-encoding": "snappy", "content-type": "application/x-protobuf"}
    answer = asked.post("/api/v1/read", content=body, headers=headers)
    assert (answer.status_code, answer.headers["content-encoding"]) == (200, "snappy")
    found = bytes(cramjam.snappy.decompress_raw(answer.content))
    [result] = Message(found).fields()
    [series] = result.fields()
    labels = [tuple(part.text() for part in each.fields()) for each in series.fields() if each.number == 1]
    assert labels == [("__name__", "hits"), ("job", "a"), ("é", "1")]
    samples = [list(each.fields()) for each in series.fields() if each.number == 2]
    assert [(value.double(), at.signed()) for value, at in samples] == [
        (float(n), (AT_S + n * 15) * 1000) for n in range(3)
    ]
    for wrong in (b"", b"\xff" * 40, bytes(cramjam.snappy.compress_raw(b"\x0a\xff")), body[:-3]):
        assert asked.post("/api/v1/read", content=wrong, headers=headers).status_code == 400


def test_samples_are_written_at_any_time() -> None:
    for at_ms in (0, 5, -7, AT_S * 1000, 1 << 43):
        written = _samples(np.array([at_ms, at_ms]), np.array([1.5, float("nan")]))
        first, _ = ([*each.fields()] for each in Message(written).fields())
        assert (first[0].double(), first[1].signed()) == (1.5, at_ms)
