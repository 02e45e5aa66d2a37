"""What there is to ask about, over HTTP: tables, snapshots, extents, fields, coverage, plans, and what runs."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import tidelake
from tests.support.serving import Served

HOUR = "2026-01-01T00:{0:02d}:00Z"
ENDLESS = "select count(*) from range(3000000) a, range(3000000) b where a.id * b.id = 7"


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("told") / "lake"
    with tidelake.connect(place, upkeep=False) as lake:
        logs = lake.create_table(
            "a.logs", {"ts": "timestamp", "service": "string", "n": "long", "tags": "dynamic"}, retention="9000d"
        )
        for part in range(3):
            rows = [
                {"ts": HOUR.format(n), "service": f"s{n % 3}", "n": n, "tags": {"http": {"status": n}, "k": "x"}}
                for n in range(part * 10, part * 10 + 10)
            ]
            logs.append(rows)
            if part < 2:
                logs.flush()
        cpu = lake.create_table(
            "m.cpu", {"ts": "timestamp", "device": "string", "load": "real"}, bucket="1m", entity=["device"]
        )
        held = [(device, n) for device in ("a", "b") for n in range(20) if device == "a" or not 5 <= n < 10]
        cpu.append([{"ts": HOUR.format(n), "device": device, "load": 1.0} for device, n in held])
    return place


def get(client: httpx.Client, path: str, **params: Any) -> Any:
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_tables_are_listed_with_what_they_hold(client: httpx.Client) -> None:
    logs, cpu = get(client, "/v1/tables")["tables"]
    assert (logs["name"], logs["rows"], logs["extents"], logs["hot_rows"], logs["columns"]) == ("a.logs", 30, 2, 10, 4)
    assert (logs["start"], logs["end"]) == (HOUR.format(0), HOUR.format(29))
    assert (cpu["name"], cpu["rows"]) == ("m.cpu", 35)
    assert get(client, "/v1/tables")["tables"] == [logs, cpu]  # remembered


def test_a_table_is_described(client: httpx.Client) -> None:
    told = get(client, "/v1/tables/a.logs")
    assert [(each["name"], each["type"], each["id"]) for each in told["columns"][:2]] == [
        ("ts", "timestamp", 1), ("service", "string", 2),
    ]  # fmt: skip
    assert (told["settings"]["time"], told["settings"]["retention"], told["settings"]["key"]) == ("ts", "9000d", [])
    settings = get(client, "/v1/tables/m.cpu")["settings"]
    assert (settings["bucket"], settings["entity"], settings["coverage"]) == ("1m", ["device"], "track")
    for path in ("a.nope", "a.nope/history", "a.nope/fields", "a.nope/extents", "a.b.c"):
        assert client.get(f"/v1/tables/{path}").status_code in (400, 404)


def test_snapshots_and_extents_come_in_pages(client: httpx.Client) -> None:
    newest = get(client, "/v1/tables/a.logs/history")["snapshots"]
    assert [each["operation"] for each in newest] == ["append", "flush", "append", "flush", "append", "create"]
    assert (newest[0]["rows"], newest[0]["rows_change"], newest[1]["extents_added"]) == (30, 10, 1)
    older = get(client, "/v1/tables/a.logs/history", limit=2, before=newest[1]["snapshot"])["snapshots"]
    assert older == newest[2:4]
    first = get(client, "/v1/tables/a.logs/extents", limit=1)
    second = get(client, "/v1/tables/a.logs/extents", limit=1, after=first["after"])
    assert (first["total"], second["after"]) == (2, None)
    assert {each["rows"] for each in first["extents"] + second["extents"]} == {10}
    assert {each["start"] for each in first["extents"] + second["extents"]} == {HOUR.format(0), HOUR.format(10)}
    assert get(client, "/v1/tables/a.logs/extents", snapshot=2)["total"] == 0


def test_fields_are_described_by_statistics(client: httpx.Client) -> None:
    told = get(client, "/v1/tables/a.logs/fields")
    fields = {each["name"]: each for each in told["fields"]}
    assert told["rows_described"] == told["rows"] == 30
    assert (fields["n"]["min"], fields["n"]["max"], fields["n"]["nulls"]) == (0, 29, 0)
    assert fields["service"]["examples"] == ["s0", "s1", "s2"]
    assert (fields["ts"]["min"], fields["ts"]["max"]) == (HOUR.format(0), HOUR.format(29))
    paths = {each["path"]: each for each in fields["tags"]["paths"]}
    assert (paths["http.status"]["min"], paths["http.status"]["max"], paths["k"]["rows"]) == (0, 29, 30)


def test_plans_are_told_for_people_and_programs(client: httpx.Client) -> None:
    question = {"query": f"a.logs | where ts < datetime({HOUR.format(5)})", "language": "kql"}
    told = client.post("/v1/explain", json=question).json()
    assert "a.logs" in told["text"]
    [scan] = told["scans"]
    assert scan["table"] == "a.logs"
    names = [each["name"] for each in scan["stages"]]
    assert (names[0], names[-1]) == ("snapshot", "needed columns")
    assert (scan["stages"][0]["extents"], scan["stages"][-1]["extents"], scan["stages"][-1]["blocks"]) == (2, 1, 1)
    assert told["columns"] == ["ts", "service", "n", "tags"]


def test_a_question_is_about_a_range_or_an_older_state(client: httpx.Client) -> None:
    def count(**told: Any) -> Any:
        answer = client.post("/v1/query", json={"sql": "select count(*) c, min(n) least from a.logs", **told})
        return answer.json()[0]["c"] if answer.status_code == 200 else answer.status_code

    assert count() == 30
    assert count(start=HOUR.format(5), end=HOUR.format(25)) == 20
    assert count(start=HOUR.format(5)) == 25
    assert count(start=HOUR.format(5), end=HOUR.format(5)) == 400
    assert (count(snapshot=2), count(snapshot={"a.logs": 4}), count(snapshot=99)) == (10, 20, 404)
    at = {each["snapshot"]: each["at"] for each in get(client, "/v1/tables/a.logs/history")["snapshots"]}
    assert (count(as_of=at[2]), count(as_of=at[4], snapshot=2), count(snapshot="x")) == (10, 400, 400)
    plain = {"sql": "select n from a.logs where n % 2 = 0 limit 5", "start": HOUR.format(13)}
    assert client.post("/v1/query", json=plain).json() == [{"n": n} for n in range(14, 24, 2)]
    both = {"sql": "select count(*) c from a.logs, m.cpu", "snapshot": 2}
    assert client.post("/v1/query", json=both).json()["kind"] == "bad_snapshot"
    kql = "declare query_parameters(least:long); a.logs | where n >= least | count"
    assert client.post("/v1/query", json={"kql": kql, "parameters": {"least": 20}}).json() == [{"Count": 10}]
    assert client.post("/v1/query", json={"kql": kql, "parameters": {"least": "1 | x"}}).status_code == 400


def test_coverage_tells_gaps_and_fractions(client: httpx.Client) -> None:
    told = get(client, "/v1/coverage/m.cpu")
    assert (told["bucket"], told["ratio"], told["gaps_total"]) == ("1m", 0.875, 1)
    assert told["gaps"] == [{"device": "b", "start": HOUR.format(5), "end": HOUR.format(10), "buckets": 5}]
    one = get(client, "/v1/coverage/m.cpu", entity="b", start=HOUR.format(0), end=HOUR.format(10))
    assert (one["ratio"], one["entities_total"]) == (0.5, 1)
    drawn = get(client, "/v1/coverage/m.cpu", resolution=4)
    assert drawn["matrix"] == [[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0]]
    assert drawn["windows"] == [HOUR.format(n) for n in (0, 5, 10, 15, 20)]
    assert [each["device"] for each in drawn["entities"]] == ["a", "b"]
    for path, params in (
        ("a.logs", {}),
        ("m.cpu", {"resolution": "x"}),
        ("m.cpu", {"resolution": "99999"}),
        ("m.cpu", {"start": "noon"}),
        ("m.cpu", {"entity": ["a", "b"]}),
        ("m.cpu", {"nonsense": "1"}),
    ):
        assert client.get(f"/v1/coverage/{path}", params=params).status_code == 400, (path, params)


@pytest.mark.parametrize(
    ("question", "devices", "gaps"),
    [
        ({"kql": "m.cpu | where device in ('b', 'z')"}, 1, 1),
        ({"kql": "m.cpu | where device startswith 'A' and load > 0"}, 1, 0),
        ({"kql": "m.cpu | where device != 'a' or load > 3"}, 2, 1),
        ({"kql": "m.cpu | where load < 9 | where device !in ('a', 'q') and device !startswith 'c'"}, 1, 1),
        ({"kql": "m.cpu | extend d = tolower(device) | where d !in ('a', 'q')"}, 2, 1),  # a computed value says nothing
        ({"sql": "with own as (select * from m.cpu where lower(device) = 'a') select count(*) from own"}, 1, 0),
        ({"sql": "select * from m.cpu where device in (select service from a.logs)"}, 2, 1),
        ({"kql": "m.cpu | where device == 'nobody'"}, 0, 0),
        ({"sql": "select count(*) from m.cpu where not device like '%a%'"}, 1, 1),
        ({"kql": "union (m.cpu | where device == 'a'), (m.cpu | where device == 'b')"}, 2, 1),
        ({"kql": "m.cpu | where device == 'b'", "snapshot": 1}, 0, 0),
    ],
)
def test_coverage_is_of_the_entities_that_a_question_may_be_about(
    client: httpx.Client, question: dict[str, Any], devices: int, gaps: int
) -> None:
    answer = client.post("/v1/coverage/m.cpu", params={"start": HOUR.format(0)}, json=question)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["entities_total"], answer.json()["gaps_total"]) == (devices, gaps)


def test_a_question_that_reads_no_coverage_of_a_table_is_refused(client: httpx.Client) -> None:
    for table, question in (("m.cpu", "a.logs"), ("a.logs", "a.logs"), ("m.cpu", "m.cpu | wher"), ("m.nope", "m.cpu")):
        assert client.post(f"/v1/coverage/{table}", json={"kql": question}).status_code in (400, 404)


def test_drift_tells_what_each_version_of_a_schema_changed(client: httpx.Client, reader: tidelake.Lake) -> None:
    table = reader.create_table("d.rows", {"ts": "timestamp", "n": "int"}, time="ts")
    table.append([{"ts": HOUR.format(0), "n": 1}])
    table.append([{"ts": HOUR.format(1), "n": 2**40, "city": "Oslo"}])
    told = get(client, "/v1/tables/d.rows/drift")
    first, *later = told["versions"]
    assert (first["snapshot"], first["operation"], first["changes"][1]) == (
        1, "create", {"column": "n", "was": None, "now": "int"},
    )  # fmt: skip
    changes = [change for each in later for change in each["changes"]]
    assert {"column": "n", "was": "int", "now": "long"} in changes
    assert {"column": "city", "was": None, "now": "string"} in changes
    assert [each["version"] for each in told["versions"]] == list(range(1, told["total"] + 1))
    assert all(each["snapshot"] > 1 and each["at"] for each in later)
    table.expire(older_than="0s")
    assert {each["at"] for each in get(client, "/v1/tables/d.rows/drift")["versions"]} == {None}
    reader.drop_table("d.rows", purge=True)
    assert client.get("/v1/tables/d.rows/drift").status_code == 404


def test_what_runs_is_listed_and_stopped(served: Served, client: httpx.Client) -> None:
    answers: list[httpx.Response] = []

    def ask() -> None:
        with served.client() as own:
            answers.append(own.post("/v1/query", json={"sql": ENDLESS}))

    asking = threading.Thread(target=ask)
    asking.start()
    until_s = time.monotonic() + 20
    while not (found := get(client, "/v1/queries")["queries"]) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert (found[0]["text"], found[0]["who"], found[0]["language"]) == (ENDLESS, "anonymous", "sql")
    assert client.delete("/v1/queries/nope").status_code == 404
    assert client.delete(f"/v1/queries/{found[0]['id']}").json() == {"stopped": found[0]["id"]}
    asking.join(20)
    assert (answers[0].status_code, answers[0].json()["kind"]) == (409, "stopped")
    assert get(client, "/v1/queries")["queries"] == []


def test_the_description_is_true(client: httpx.Client) -> None:
    """Every path is answered with every method, and every parameter that is described is taken."""
    told = get(client, "/v1/openapi.json")
    assert told["openapi"].startswith("3.")
    seen = 0
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            place = path.replace("{table}", "a.logs").replace("{id}", "none").replace("{name}", "x")
            place = place.replace("{database}", "a").replace("{index}", "i").replace("{target}", "i")
            if "tail" in path:
                continue  # which does not end: see its own tests
            for parameter in [None, *(p["name"] for p in operation["parameters"] if p["in"] == "query")]:
                params = {} if parameter is None else {parameter: "1"}
                answer = client.request(method.upper(), place, params=params)
                assert answer.status_code not in (405, 500), (method, place, answer.text)
                assert answer.status_code != 404 or "no such" in answer.text or "no_" in answer.text, (method, place)
                assert "unknown_parameter" not in answer.text, (place, parameter)
                seen += 1
    assert seen > 50
    wrong = client.get("/v1/tables", params={"nonsense": "1"})
    assert (wrong.status_code, wrong.json()["kind"]) == (400, "unknown_parameter")
    assert json.dumps(told)
