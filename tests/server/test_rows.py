"""Send rows in every form that the plain door takes, and find them in the table once they are acknowledged."""

from __future__ import annotations

import gzip
import io
import json
import secrets
import threading
import zlib
from datetime import UTC, datetime

import httpx
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import zstandard

import tidelake
from tidelake.model.schema import DYNAMIC_FIELD
from tidelake.server.protocols.rows import count_lines

ROWS = [{"ts": f"2026-01-01T00:00:0{n}Z", "n": n, "text": f"line {n}"} for n in range(3)]
LINES = "\n".join(map(json.dumps, ROWS)).encode()


def table() -> pa.Table:
    return pa.Table.from_pylist(ROWS).set_column(
        0, "ts", pa.array([r["ts"] for r in ROWS]).cast(pa.timestamp("us", "UTC"))
    )


def csv() -> bytes:
    sink = io.BytesIO()
    pa_csv.write_csv(pa.Table.from_pylist(ROWS), sink)
    return sink.getvalue()


def arrow(codec: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table().schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        stream.write_table(table())
    return bytes(sink.getvalue())


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table(), sink)
    return bytes(sink.getvalue())


BODIES = {
    "lines": ("application/x-ndjson", LINES),
    "lines of curl": ("application/x-www-form-urlencoded", LINES + b"\n\n"),
    "list": ("application/json", json.dumps(ROWS, indent=1).encode()),
    "csv": ("text/csv", csv()),
    "arrow": ("application/vnd.apache.arrow.stream", arrow()),
    "compressed arrow": ("application/vnd.apache.arrow.stream", arrow("zstd")),
    "parquet": ("application/vnd.apache.parquet", parquet()),
    "parquet without a type": ("", parquet()),
}
ENCODINGS = {
    "": lambda body: body,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "deflate": zlib.compress,
}


@pytest.mark.parametrize("kind", BODIES)
def test_rows_of_every_kind_are_in_when_they_are_acknowledged(
    client: httpx.Client, reader: tidelake.Lake, kind: str
) -> None:
    name = f"kinds.t{secrets.token_hex(4)}"
    content_type, body = BODIES[kind]
    answer = client.post(f"/v1/ingest/{name}", content=body, headers={"content-type": content_type})
    assert answer.status_code == 200, answer.text
    assert answer.json() | {"commit": "", "snapshot": 0} == {
        "table": name, "rows": 3, "snapshot": 0, "replayed": False, "commit": "",
    }  # fmt: skip
    found = reader.table(name).to_arrow(["ts", "n", "text"]).sort_by("n").to_pylist()
    assert [(row["ts"].second, row["n"], row["text"]) for row in found] == [(n, n, f"line {n}") for n in range(3)]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_bodies_may_be_compressed(client: httpx.Client, encoding: str) -> None:
    body = ENCODINGS[encoding](LINES)
    answer = client.post("/v1/ingest/kinds.packed", content=body, headers={"content-encoding": encoding})
    assert (answer.status_code, answer.json()["rows"]) == (200, 3)


def test_an_address_that_is_none_is_told_as_other_mistakes_are(client: httpx.Client) -> None:
    answer = client.post("/v1/ingests/a.b", content=LINES)
    assert answer.status_code == 404
    assert answer.json() == {"error": "there is nothing at this address", "kind": "no_address"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-ndjson", b'{"shift": "2026-01-01T00:00:00Z", "left": "2026-01-02T00:00:00Z"}'),
        ("text/csv", b"shift,left\n2026-01-01T00:00:00Z,2026-01-02T00:00:00Z\n"),
    ],
)
def test_the_time_of_a_new_table_may_be_named(
    client: httpx.Client, reader: tidelake.Lake, kind: str, body: bytes
) -> None:
    name = f"named.{kind[-3:]}"
    where, headers = f"/v1/ingest/{name}", {"content-type": kind}
    wrong = client.post(where, params={"time": "nothing"}, content=body, headers=headers)
    assert (wrong.status_code, "nothing" in wrong.json()["error"]) == (400, True)
    assert client.post(where, params={"time": "left"}, content=body, headers=headers).json()["rows"] == 1
    assert client.post(where, content=body, headers=headers).json()["rows"] == 1  # the table knows it
    assert client.get(f"/v1/tables/{name}").json()["settings"]["time"] == "left"
    table = reader.table(name)
    assert table.to_arrow(["left"]).column("left").to_pylist() == [datetime(2026, 1, 2, tzinfo=UTC)] * 2


def test_a_key_makes_a_request_happen_once_with_one_answer(client: httpx.Client, reader: tidelake.Lake) -> None:
    headers = {"idempotency-key": "batch-17"}
    first, second = (client.post("/v1/ingest/keys.once", content=LINES, headers=headers).json() for _ in range(2))
    assert second == first | {"replayed": True}
    assert len(reader.table("keys.once")) == 3
    client.post("/v1/ingest/keys.once", content=LINES)
    assert len(reader.table("keys.once")) == 6


def test_requests_that_come_together_share_snapshots_and_keep_their_answers(
    client: httpx.Client, reader: tidelake.Lake
) -> None:
    client.post("/v1/ingest/many.rows", content=LINES)
    before = reader.table("many.rows").snapshot.sequence
    answers: dict[int, httpx.Response] = {}

    def send(n: int) -> None:
        bad = n % 10 == 3
        row = {"n": 100 + n} if bad else {"ts": 1_767_225_600 + n, "n": 100 + n}
        headers = {"idempotency-key": f"k{n}"}
        answers[n] = client.post("/v1/ingest/many.rows", content=json.dumps(row), headers=headers)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bad = [n for n in answers if answers[n].status_code == 400]
    assert sorted(bad) == [3, 13, 23, 33, 43, 53]
    assert all("time" in answers[n].json()["error"] for n in bad)
    good = {n: answers[n].json() for n in answers if n not in bad}
    assert {answer["rows"] for answer in good.values()} == {1}
    found = reader.table("many.rows").to_arrow(["n"]).column("n").to_pylist()
    assert sorted(n for n in found if n >= 100) == sorted(100 + n for n in good)
    assert reader.table("many.rows").snapshot.sequence - before < len(good) / 2
    send(7)
    assert answers[7].json() == good[7] | {"replayed": True}


@pytest.mark.parametrize(
    ("body", "headers", "status", "said"),
    [
        (b"", {}, 400, "no rows"),
        (b"[]", {}, 400, "no rows"),
        (b'[{"ts": 1', {}, 400, "does not end"),
        (b'{"ts": "2026-01-01T00:00:00Z", "n": }', {}, 400, "line=1"),
        (b'{"n": 1}', {}, 400, "no time column"),
        (b"PAR1 and then nothing", {}, 400, "not Parquet"),
        (b"\xff\xff\xff\xff\x10\x00\x00\x00nothing", {}, 400, "not an Arrow"),
        (b"<xml/>", {"content-type": "application/xml"}, 415, "content type"),
        (LINES, {"content-encoding": "br"}, 415, "encoding"),
        (LINES, {"content-encoding": "gzip"}, 400, "decompressed"),
        (gzip.compress(LINES)[:-20], {"content-encoding": "gzip"}, 400, "decompressed"),
        (gzip.compress(bytes(80 << 20)), {"content-encoding": "gzip"}, 413, "too large"),
        (zstandard.ZstdCompressor().compress(bytes(80 << 20)), {"content-encoding": "zstd"}, 413, "too large"),
        (LINES, {"idempotency-key": "k" * 2000}, 400, "too long"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # bytes of gzip hold the time
)
def test_what_is_wrong_is_said(
    client: httpx.Client, body: bytes, headers: dict[str, str], status: int, said: str
) -> None:
    answer = client.post("/v1/ingest/bad.rows", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert said in answer.json()["error"]


def test_a_name_that_is_none_is_refused(client: httpx.Client) -> None:
    assert client.post("/v1/ingest/a.b.c", content=LINES).status_code == 400
    assert client.get("/v1/ingest/obs.logs").status_code == 405
    assert client.post("/v1/nothing").status_code == 404


def test_columns_that_would_fill_memory_are_refused(client: httpx.Client) -> None:
    bomb = pa.table(
        {
            "ts": pa.array([0] * (1 << 21), pa.timestamp("us", "UTC")),
            **{f"c{n}": pa.nulls(1 << 21, pa.int8()) for n in range(40)},
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(bomb, sink)
    body = bytes(sink.getvalue())
    assert len(body) < 1 << 20
    answer = client.post("/v1/ingest/bad.bomb", content=body, headers={"content-type": "application/x-parquet"})
    assert answer.status_code == 413


@pytest.mark.parametrize("value", [b"\xff\xff", b"\xa1\x61a", b"\x9f", b"\x5b\x7f\xff\xff\xff\xff\xff\xff\xff", b""])
def test_bytes_that_only_say_they_are_dynamic_values_are_refused(client: httpx.Client, value: bytes) -> None:
    fields = [pa.field("ts", pa.timestamp("us", "UTC")), pa.field("d", pa.binary(), metadata=DYNAMIC_FIELD)]
    rows = pa.table([pa.array([0], fields[0].type), pa.array([value])], schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    answer = client.post("/v1/ingest/bad.dynamic", content=bytes(sink.getvalue()), headers=headers)
    assert (answer.status_code, "dynamic" in answer.json()["error"]) == (400, True), answer.text


def test_it_is_healthy_ready_and_measured(client: httpx.Client) -> None:
    client.post("/v1/ingest/seen.rows", content=LINES)
    assert client.get("/healthz").json() == client.get("/readyz").json() == {"status": "ok"}
    text = client.get("/metrics").text
    assert 'tidelake_rows_total{table="seen.rows"} 3.0' in text
    assert 'tidelake_requests_total{protocol="rows",status="200"}' in text


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (b'{"a":1}', 1),
        (b'{"a":1}\n', 1),
        (b'\n\n{"a":1}\n\n{"a":2}\n \n', 2),
        (b'{"a":1}\r\n{"a":2}\r\n', 2),
        (b"  x\ny", 2),
    ],
)
def test_lines_are_counted(lines: bytes, count: int) -> None:
    assert count_lines(lines) == count
