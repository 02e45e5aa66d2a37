"""The API of Prometheus over samples that came by remote write."""

from __future__ import annotations

import cramjam
import httpx
import pytest

from tests.server.test_remote_write import first

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
        ("series", {}),
    ],
)
def test_mistakes_are_told_as_prometheus_does(asked: httpx.Client, path: str, params: dict[str, str]) -> None:
    answer = asked.get(f"/api/v1/{path}", params=params)
    assert (answer.status_code, answer.json()["status"], answer.json()["errorType"]) == (400, "error", "bad_data")
