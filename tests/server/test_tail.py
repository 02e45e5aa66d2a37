"""Follow a table over HTTP: new rows as events, each once, also for those who come back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import tidelake

COLUMNS = {"ts": "timestamp", "service": "string", "n": "long"}


@pytest.fixture(scope="module")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("followed") / "lake"
    with tidelake.connect(place, upkeep=False) as lake:
        for name in ("obs.logs", "obs.more", "obs.gone"):
            lake.create_table(name, COLUMNS).append(rows(0, 3))
    return place


def rows(first: int, end: int) -> list[dict[str, Any]]:
    return [{"ts": f"2026-01-01T00:00:{n % 60:02d}Z", "service": f"s{n % 2}", "n": n} for n in range(first, end)]


@contextmanager
def following(client: httpx.Client, table: str, at: str | None = None, **params: str) -> Iterator[Iterator[Any]]:
    headers = {} if at is None else {"last-event-id": at}
    with client.stream("GET", "/v1/tail", params={"table": table, **params}, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        yield events_of(answer)


def events_of(answer: httpx.Response) -> Iterator[tuple[str, str, Any]]:
    """Yield events as a browser has them: id, name, data; a block without data only moves the id."""
    told: dict[str, str] = {}
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name:
            told[name] = value
        elif told:
            yield told.get("id", ""), told.get("event", ""), json.loads(told.get("data", "null"))
            told = {}


def taken(events: Iterator[Any], count: int) -> tuple[list[int], str]:
    """Return the numbers of the next rows, and the id that the last of them came with."""
    found: list[int] = []
    last = ""
    while len(found) < count:
        last, name, data = next(events)
        if name == "rows":
            found += [row["n"] for row in data["rows"]]
    return found, last


def test_new_rows_that_match_are_told_once(client: httpx.Client, reader: tidelake.Lake) -> None:
    table = reader.table("obs.logs")
    with following(client, "obs.logs", query="service == 's1' and n > 0") as events:
        assert next(events)[1] == ""  # it listens
        table.append(rows(3, 8))
        assert taken(events, 3)[0] == [3, 5, 7]
        table.flush()  # which moves rows, and brings none
        table.append(rows(8, 12))
        found, last = taken(events, 2)
        assert found == [9, 11]
    table.append(rows(12, 14))
    table.append(rows(14, 16))
    table.flush()
    with following(client, "obs.logs", last, query="service = 's1'", language="sql") as events:
        assert taken(events, 2)[0] == [13, 15]
    with following(client, "obs.logs", **{"from": "1"}) as events:
        assert taken(events, 16)[0] == list(range(16))


def test_a_reader_goes_on_in_the_midst_of_a_large_commit(client: httpx.Client, reader: tidelake.Lake) -> None:
    reader.table("obs.more").append(rows(3, 1203))
    with following(client, "obs.more", **{"from": "2"}) as events:
        first, last = taken(events, 1)
    assert (len(first), last) == (500, "2:500")
    with following(client, "obs.more", last) as events:
        rest, end = taken(events, 700)
        assert end == "2:1200"
        assert next(events)[0] == "3"
    assert sorted(first + rest) == list(range(3, 1203))


def test_what_has_expired_is_told_as_missed(client: httpx.Client, reader: tidelake.Lake) -> None:
    table = reader.table("obs.gone")
    for n in range(3):
        table.append(rows(n, n + 1))
    reader.catalog.expire_snapshots(table.handle.scope, before_us=2**62, keep_last=2)
    kept = [each.sequence for each in table.history()]
    with following(client, "obs.gone", **{"from": "1"}) as events:
        told = next(event for event in events if event[1])
        assert told[1:] == ("missed", {"after": 1, "snapshots": 2})
        assert taken(events, 2)[0] == [1, 2]
    assert kept == [5, 4]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"table": "obs.nope"},
        {"table": "obs.logs", "query": "nope == 1"},
        {"table": "obs.logs", "query": "n > 1 | take 1"},
        {"table": "obs.logs", "query": "n > 1; drop", "language": "sql"},
        {"table": "obs.logs", "query": "n >"},
        {"table": "obs.logs", "language": "english"},
        {"table": "obs.logs", "from": "x"},
        {"table": "obs.logs", "from": "99999"},
    ],
)
def test_mistakes_are_told_before_anything_else(client: httpx.Client, params: dict[str, str]) -> None:
    assert client.get("/v1/tail", params=params).status_code in (400, 404)
