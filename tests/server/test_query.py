"""Ask over HTTP: the same answer as in Python, in every form, within what a token reaches, while somebody listens."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import tidelake
from tests.support.serving import Served, serving
from tidelake.server.access import create_token
from tidelake.server.gate import Gate
from tidelake.server.refusals import Busy

SQL = "select service, count(*) c, sum(n) s from a.logs group by service order by service"
KQL = "a.logs | summarize c = count(), s = sum(n) by service | order by service asc"
WANTED = [{"service": f"s{k}", "c": 334 - (k > 0), "s": sum(range(k, 1000, 3))} for k in range(3)]
ENDLESS = "select count(*) from range(3000000) a, range(3000000) b where a.id * b.id = 7"


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("asked") / "lake"
    with tidelake.connect(place, upkeep=False) as lake:
        for name in ("a.logs", "b.logs"):
            table = lake.create_table(name, {"ts": "timestamp", "service": "string", "n": "long", "tags": "dynamic"})
            table.append(
                [
                    {
                        "ts": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z",
                        "service": f"s{n % 3}",
                        "n": n,
                        "tags": {"k": n},
                    }
                    for n in range(1000)
                ]
            )
        lake.create_table("a.own", {"ts": "timestamp", "n": "long"}, scope="user")
        for user in ("ann", "bob"):
            lake.table("a.own").user(user).append([{"ts": "2026-01-01T00:00:00Z", "n": len(user) + (user == "bob")}])
    return place


def damage(table: tidelake.Table, place: Path) -> None:
    """Give a table one extent, and turn bytes of it around."""
    table.append([{"ts": "2026-01-01T00:00:00Z", "n": n * n % 97} for n in range(1000)])
    table.flush()
    (extent,) = table.extents()
    path = next(place.rglob(Path(extent.key).name))
    whole = path.read_bytes()
    middle = len(whole) // 3
    path.write_bytes(whole[:middle] + bytes(byte ^ 255 for byte in whole[middle : middle + 64]) + whole[middle + 64 :])


def test_what_is_damaged_is_told_and_logged_and_not_to_be_asked_for_again(
    client: httpx.Client, served: Served, lake_folder: Path
) -> None:
    with tidelake.connect(lake_folder, upkeep=False) as lake:
        damage(lake.create_table("a.damaged", {"ts": "timestamp", "n": "long"}), lake_folder)
        answer = client.post("/v1/query", json={"sql": "select sum(n) s from a.damaged group by n order by s"})
        lake.drop_table("a.damaged")
    assert answer.status_code == 500
    assert "damaged" in answer.json()["error"]
    assert "retry-after" not in answer.headers
    assert served.says('"error"', "damaged")
    assert client.post("/v1/query", json={"sql": SQL}).status_code == 200


@pytest.mark.parametrize("form", ["json", "ndjson", "csv", "arrow", "parquet"])
@pytest.mark.parametrize("question", [{"sql": SQL}, {"kql": KQL}])
def test_rows_come_in_the_form_that_is_asked_for(client: httpx.Client, form: str, question: dict[str, str]) -> None:
    answer = client.post("/v1/query", json={**question, "format": form})
    assert answer.status_code == 200, answer.text
    data = answer.content
    if form == "json":
        rows = json.loads(data)
    elif form == "ndjson":
        rows = [json.loads(line) for line in data.splitlines()]
    elif form == "csv":
        rows = pa_csv.read_csv(io.BytesIO(data)).to_pylist()
    elif form == "arrow":
        rows = pa.ipc.open_stream(data).read_all().to_pylist()
    else:
        rows = pq.read_table(pa.BufferReader(data)).to_pylist()
    assert rows == WANTED


def test_a_question_may_be_text_or_in_the_address(client: httpx.Client) -> None:
    plain = {"content-type": "text/plain", "accept": "application/x-ndjson"}
    text = client.post("/v1/query?language=kql", content=KQL, headers=plain)
    assert [json.loads(line) for line in text.text.splitlines()] == WANTED
    assert client.get("/v1/query", params={"sql": SQL}).json() == WANTED
    form = {"content-type": "application/x-www-form-urlencoded"}  # as curl sends whatever it is given
    assert client.post("/v1/query", content=json.dumps({"kql": KQL}), headers=form).json() == WANTED
    assert client.post("/v1/query", data={"sql": SQL, "format": "json"}).json() == WANTED
    nothing = client.post("/v1/query", json={"sql": "select n from a.logs where n < 0"})
    assert nothing.json() == []


def test_a_large_result_streams(client: httpx.Client) -> None:
    question = {"sql": "select a.n, b.n m, a.service from a.logs a, a.logs b", "format": "ndjson"}
    with client.stream("POST", "/v1/query", json=question) as answer:
        lines = sum(1 for _ in answer.iter_lines())
    assert lines == 1_000_000


def test_a_small_answer_tells_its_size_and_a_large_one_does_not_wait_for_it(client: httpx.Client) -> None:
    none = "select n from a.logs where n < 0"
    for form in ("json", "ndjson", "csv", "arrow"):
        for question in (SQL, none):
            answer = client.post(
                "/v1/query", json={"sql": question, "format": form}, headers={"cache-control": "no-cache"}
            )
            assert int(answer.headers["content-length"]) == len(answer.content)
            assert "transfer-encoding" not in answer.headers
    large = client.post("/v1/query", json={"sql": "select id from range(200000)", "format": "ndjson"})
    assert large.headers["transfer-encoding"] == "chunked"
    assert len(large.content.splitlines()) == 200_000
    assert client.post("/v1/query", json={"sql": SQL}).json() == WANTED  # by the same connection


def test_what_is_wrong_is_told_in_words(client: httpx.Client) -> None:
    for body, kind in (
        ({"sql": "select nope from a.logs"}, "unknown"),
        ({"sql": "select * from a.nope"}, "unknown_table"),
        ({"sql": "select", "kql": "x"}, "no_question"),
        ({}, "no_question"),
        ({"sql": 5}, "no_question"),
        ({"sql": SQL, "format": "xml"}, "bad_format"),
        ({"sql": SQL, "budget": {"seconds": "many"}}, "bad_budget"),
        ({"sql": SQL, "budget": {"external": "file:"}}, "bad_budget"),
        ({"sql": SQL, "more": 1}, "bad_body"),
        ({"sql": "select * from read_csv('/etc/passwd')"}, ""),
        ({"kql": "externaldata (a:string) ['file:///etc/passwd']"}, ""),
    ):
        answer = client.post("/v1/query", json=body)
        assert answer.status_code in (400, 404), (body, answer.text)
        assert kind in answer.json()["kind"], (body, answer.text)
        assert "Traceback" not in answer.text
    assert client.post("/v1/query", content=b"{", headers={"content-type": "application/json"}).status_code == 400
    assert client.post("/v1/query", content=b"x" * (2 << 20)).status_code == 413
    assert client.get("/v1/query", params={"sql": SQL}, headers={"accept": "image/png"}).status_code == 415


def test_tables_are_listed_and_described(client: httpx.Client) -> None:
    tables = client.get("/v1/tables").json()["tables"]
    assert [(each["name"], each["rows"]) for each in tables] == [("a.logs", 1000), ("a.own", 2), ("b.logs", 1000)]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, lake_folder: Path) -> Iterator[tuple[Served, dict[str, str]]]:
    import shutil

    place = tmp_path_factory.mktemp("guarded") / "lake"
    shutil.copytree(lake_folder, place)
    with tidelake.connect(place, upkeep=False) as lake:
        tokens = {
            "a": create_token(lake.store, "a", roles=["read"], namespaces=["a"])[0],
            "b": create_token(lake.store, "b", roles=["read"], namespaces=["b"])[0],
            "writer": create_token(lake.store, "w", roles=["write"])[0],
            "ann": create_token(lake.store, "ann", roles=["read"], namespaces=["a"], users=["ann"])[0],
        }
    with serving(place) as server:
        yield server, tokens


def test_a_token_sees_its_own_tables_and_learns_nothing_of_others(guarded: tuple[Served, dict[str, str]]) -> None:
    server, tokens = guarded
    with server.client(tokens["a"]) as client:
        assert [each["name"] for each in client.get("/v1/tables").json()["tables"]] == ["a.logs", "a.own"]
        assert client.post("/v1/query", json={"sql": "select count(*) c from logs"}).json() == [{"c": 1000}]
        missing = client.post("/v1/query", json={"sql": "select count(*) c from b.logs"})
        nowhere = client.post("/v1/query", json={"sql": "select count(*) c from z.logs"})
        assert missing.status_code == nowhere.status_code
        assert missing.text.replace("b.logs", "z.logs") == nowhere.text
        for text in ("b.logs | count", "union a.logs, b.logs | count", "system.manifest | count"):
            assert client.post("/v1/query", json={"kql": text}).status_code in (400, 404), text
        assert "b.logs" not in client.post("/v1/query", json={"sql": "select * from b.log"}).text
        for path in ("tables/b.logs", "tables/b.logs/history", "tables/b.logs/fields", "coverage/b.logs"):
            assert client.get(f"/v1/{path}").status_code == 404, path
        assert client.get("/v1/tail", params={"table": "b.logs"}).status_code == 404
    with server.client(tokens["writer"]) as client:
        assert client.post("/v1/query", json={"sql": SQL}).status_code == 403
    with server.client() as client:
        assert client.post("/v1/query", json={"sql": SQL}).status_code == 401
    with server.client(tokens["ann"]) as client:
        assert client.post("/v1/query", json={"sql": "select n from a.own"}).json() == [{"n": 3}]
        other = client.post("/v1/query", json={"sql": "select n from a.own"}, headers={"x-tidelake-user": "bob"})
        assert other.status_code == 403
        assert client.post("/v1/query", json={"sql": "set tide.user = 'bob'; select n from a.own"}).status_code == 400


def test_a_question_ends_when_its_client_goes(served: Served) -> None:
    address = served.url.removeprefix("http://").split(":")
    body = json.dumps({"sql": ENDLESS}).encode()
    for _ in range(8):  # more than are answered at once
        with socket.create_connection((address[0], int(address[1]))) as connection:
            connection.sendall(b"POST /v1/query HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.05)
    with served.client() as client:
        assert client.post("/v1/query", json={"sql": "select 1 one"}).json() == [{"one": 1}]


def test_a_question_that_costs_too_much_is_ended(client: httpx.Client) -> None:
    began_s = time.monotonic()
    answer = client.post("/v1/query", json={"sql": ENDLESS, "budget": {"seconds": 0.5}})
    assert (answer.status_code, answer.json()["kind"]) == (504, "time_budget")
    assert time.monotonic() - began_s < 20


def test_the_lines_at_the_gate_take_turns() -> None:
    async def scene() -> list[str]:
        gate, passed = Gate(1, 10), list[str]()

        async def ask(who: str) -> None:
            async with gate.passing(who):
                passed.append(who)
                await asyncio.sleep(0)

        await asyncio.gather(*(ask(who) for who in ("greedy", "greedy", "greedy", "greedy", "modest")))
        return passed

    assert asyncio.run(scene()) == ["greedy", "greedy", "modest", "greedy", "greedy"]

    async def full() -> None:
        gate = Gate(1, 1)
        async with gate.passing("a"):
            waiting = asyncio.create_task(gate.enter("b"))
            await asyncio.sleep(0)
            with pytest.raises(Busy):
                await gate.enter("c")
            waiting.cancel()
        await gate.enter("d")

    asyncio.run(full())


def test_answers_are_kept_until_a_table_changes(client: httpx.Client, reader: tidelake.Lake) -> None:
    reader.create_table("kept.rows", {"ts": "timestamp", "n": "long"}).append([{"ts": "2026-01-01T00:00:00Z", "n": 1}])

    def ask(**question: object) -> tuple[object, str]:
        answer = client.post("/v1/query", json=question)
        return answer.json(), answer.headers["x-tidelake-cache"]

    total = {"sql": "select sum(n) s from kept.rows"}
    assert ask(**total) == ([{"s": 1}], "miss")
    assert ask(**total) == ([{"s": 1}], "hit")
    assert ask(**total, format="json", budget={"seconds": 5}) == ([{"s": 1}], "hit")
    explained = client.post("/v1/explain", json=total).json()
    assert explained["kept"] == ["json"]
    assert "is kept as json" in explained["text"]
    reader.table("kept.rows").append([{"ts": "2026-01-01T00:00:01Z", "n": 2}])
    assert ask(**total) == ([{"s": 3}], "miss")
    assert ask(**total, end="2026-01-01T00:00:01Z") == ([{"s": 1}], "miss")
    assert ask(**total, end="2026-01-01T00:00:01Z") == ([{"s": 1}], "hit")
    assert ask(**total, snapshot=2) == ask(**total, snapshot=2) == ([{"s": 1}], "miss")
    for text in (
        "kept.rows | extend at = now() | project n",
        "kept.rows | where rand() < 2 | project n",
        "kept.rows | sample 1",
        "union withsource=t kept.* | count",
        "kept.rows | project g = new_guid()",
    ):
        assert [ask(kql=text)[1] for _ in range(2)] == ["miss", "miss"], text
    for text in (
        "select rand() < 2 r from kept.rows",
        "select uuid() is null u from kept.rows",
        "select shuffle(array(1, 2)) s from kept.rows",
        "select now() n",
    ):
        assert [client.post("/v1/query", json={"sql": text}).headers.get("x-tidelake-cache") for _ in range(2)] in (
            ["miss", "miss"],
            [None, None],
        ), text
    tables = {"db": "kept", "csl": "rows | count"}
    assert [client.post("/v2/rest/query", json=tables).headers["x-tidelake-cache"] for _ in range(2)] == ["miss", "hit"]
    told = client.get("/metrics").text
    assert 'tidelake_result_cache_lookups{outcome="hit"}' in told
    reader.drop_table("kept.rows")
    assert client.post("/v1/query", json=total).status_code in (400, 404)


def test_what_is_kept_for_one_token_is_not_told_to_another(guarded: tuple[Served, dict[str, str]]) -> None:
    server, tokens = guarded
    question = {"sql": "select sum(n) s from a.logs"}
    with server.client(tokens["a"]) as client:
        assert [client.post("/v1/query", json=question).headers["x-tidelake-cache"] for _ in range(2)] == [
            "miss",
            "hit",
        ]
    with server.client(tokens["b"]) as client:
        assert client.post("/v1/query", json=question).status_code in (400, 404)
    own = {"sql": "select n from a.own"}
    with server.client(tokens["ann"]) as client:
        assert client.post("/v1/query", json=own).json() == [{"n": 3}]


def test_the_requests_that_brought_rows_are_a_table(client: httpx.Client) -> None:
    assert client.post("/v1/ingest/q.requests", content=b'{"ts":"2026-01-01T00:00:00Z"}').status_code == 200
    assert client.post("/v1/ingest/q.requests", content=b"{").status_code == 400
    asked = "select protocol, status, bytes from system.requests order by answered desc limit 2"
    assert client.post("/v1/query", json={"sql": asked}).json() == [
        {"protocol": "rows", "status": 400, "bytes": 1},
        {"protocol": "rows", "status": 200, "bytes": 29},
    ]
