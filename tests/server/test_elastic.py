"""Documents by the Elasticsearch client itself, and what agents ask before they send."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from elasticsearch import Elasticsearch, helpers

import tidelake
from tests.support.serving import Served


@pytest.fixture(scope="module")
def elastic(served: Served) -> Iterator[Elasticsearch]:
    with Elasticsearch(served.url, http_compress=True, retry_on_status=(429, 503)) as opened:
        yield opened


def test_the_client_writes_in_bulk(elastic: Elasticsearch, reader: tidelake.Lake) -> None:
    index = f"logs-{secrets.token_hex(4)}"
    actions: list[dict[str, Any]] = [
        {"_index": index, "@timestamp": f"2026-01-01T00:00:{n % 60:02d}Z", "message": f"line {n}", "n": n}
        for n in range(1200)
    ]
    done, errors = helpers.bulk(elastic, actions, chunk_size=500)
    assert (done, errors) == (1200, [])
    table = index.replace(".", "_")
    assert reader.sql(f'select count(*) c, sum(n) s from "{table}"').to_arrow().to_pylist() == [
        {"c": 1200, "s": sum(range(1200))}
    ]


def test_one_bad_document_fails_alone(elastic: Elasticsearch, reader: tidelake.Lake) -> None:
    index = f"mixed_{secrets.token_hex(4)}"
    actions: list[dict[str, Any]] = [
        {"_index": index, "@timestamp": "2026-01-01T00:00:00Z", "n": 1},
        {"_index": index, "@timestamp": "yesterday", "n": 2},
        {"_op_type": "delete", "_index": index, "_id": "x"},
        {"_index": index, "n": 4},
        {"_index": index, "_id": "mine", "@timestamp": "2026-01-01T00:00:00Z", "n": 5},
    ]
    done, errors = helpers.bulk(elastic, actions, raise_on_error=False)
    assert done == 3
    assert [next(iter(each.values()))["status"] for each in errors] == [400, 400]  # type: ignore[union-attr]
    rows = reader.sql(f'select n, _id from "{index}" order by n').to_arrow().to_pylist()
    assert rows == [{"n": 1, "_id": None}, {"n": 4, "_id": None}, {"n": 5, "_id": "mine"}]


def test_single_documents_and_a_name_with_dots(elastic: Elasticsearch, reader: tidelake.Lake) -> None:
    index = f"app.{secrets.token_hex(4)}-2026.01.01"
    answer = elastic.index(index=index, document={"@timestamp": "2026-01-01T00:00:00Z", "text": "<b>"})
    assert answer["result"] == "created"
    table = index.replace(".", "_")
    assert reader.sql(f'select text from "{table}"').to_arrow().to_pylist() == [{"text": "<b>"}]


def test_what_agents_ask_before_they_send(client: httpx.Client, elastic: Elasticsearch) -> None:
    assert elastic.info()["version"]["number"].startswith("9.")
    assert elastic.ping()
    for path in (
        "/_license",
        "/_xpack",
        "/_ilm/policy/filebeat",
        "/_index_template/x",
        "/_nodes/http",
        "/_cluster/health",
    ):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["x-elastic-product"]) == (200, "Elasticsearch"), path
    assert client.put("/_index_template/x", json={}).json() == {"acknowledged": True}


def test_a_body_that_is_sent_again_happens_once_if_its_documents_have_times(
    client: httpx.Client, reader: tidelake.Lake
) -> None:
    index = f"once_{secrets.token_hex(4)}"
    timed = b'{"index":{}}\n{"@timestamp":"2026-01-01T00:00:00Z","n":1}\n'
    for _ in range(2):
        answer = client.post(f"/{index}/_bulk", content=timed, headers={"content-type": "application/x-ndjson"})
        assert answer.json()["errors"] is False
    untimed = b'{"index":{}}\n{ "n":2}\n{"create":{}}\n{}\n'
    for _ in range(2):
        assert client.post(f"/{index}/_bulk", content=untimed).json()["errors"] is False
    counted = reader.sql(f'select n, count(*) c from "{index}" group by n order by n').to_arrow().to_pylist()
    assert counted == [{"n": 1, "c": 1}, {"n": 2, "c": 2}, {"n": None, "c": 2}] or counted == [
        {"n": None, "c": 2}, {"n": 1, "c": 1}, {"n": 2, "c": 2}
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body", [b"", b"\n\n", b"not json\n{}\n", b'{"index":1}\n{}\n', b'{"index":{},"create":{}}\n{}\n', b"[1]\n{}\n"]
)
def test_bodies_that_are_no_bulk_are_refused(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/x/_bulk", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "illegal_argument_exception"


def test_documents_that_are_none_are_told_each(client: httpx.Client) -> None:
    index = f"bad_{secrets.token_hex(4)}"
    body = b"\n".join([b'{"index":{}}', b"{", b'{"index":{}}', b"[]", b'{"index":{}}', b'{"ok":1}', b""])
    items = client.post(f"/{index}/_bulk", content=body).json()["items"]
    assert [each["index"]["status"] for each in items] == [400, 400, 201]
    assert json.dumps(items).count("document_parsing_exception") == 2
