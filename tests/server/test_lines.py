"""Log lines, events and points as agents of Loki, Splunk and Influx send them."""

from __future__ import annotations

import json
import math
import secrets
import struct
from typing import Any

import cramjam
import httpx
import influxdb_client_3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tests.server.test_remote_write import part, varint
from tests.support.serving import Served
from tidelake.errors import InvalidInputError
from tidelake.server.protocols.influx import parse_line
from tidelake.server.protocols.loki import parse_labels

influx: Any = influxdb_client_3  # which has no types
AT_NS = 1_767_225_600_123_456_789


def ask(lake: tidelake.Lake, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.sql(text).to_arrow().to_pylist()
    return rows


def test_loki_lines_as_json(client: httpx.Client, reader: tidelake.Lake) -> None:
    job = secrets.token_hex(4)
    values = [[str(AT_NS + n), f"line {n}", {"trace": "t"}] if n else [str(AT_NS), "line 0"] for n in range(3)]
    body = {"streams": [{"stream": {"job": job, "service_name": "api"}, "values": values}]}
    for _ in range(2):  # sent again, it happens once
        answer = client.post("/loki/api/v1/push", json=body)
        assert (answer.status_code, answer.content) == (204, b"")
    rows = ask(
        reader,
        "select message, service_name, ts_ns, metadata.trace t from loki_logs "
        f"where labels.job = '{job}' order by ts_ns",
    )
    assert [(row["message"], row["service_name"], row["ts_ns"]) for row in rows] == [
        (f"line {n}", "api", AT_NS + n) for n in range(3)
    ]
    assert [row["t"] is None for row in rows] == [True, False, False]


def test_loki_lines_as_protobuf(client: httpx.Client, reader: tidelake.Lake) -> None:
    job = secrets.token_hex(4)
    time = b"\x08" + varint(AT_NS // 10**9) + b"\x10" + varint(AT_NS % 10**9)
    entry = part(1, time) + part(2, "größer\nzwei".encode()) + part(3, part(1, b"k") + part(2, b"v"))
    stream = part(1, f'{{job="{job}", path="a\\"b\\\\"}}'.encode()) + part(2, entry)
    body = bytes(cramjam.snappy.compress_raw(part(1, stream)))
    headers = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}
    assert client.post("/loki/api/v1/push", content=body, headers=headers).status_code == 204
    (row,) = ask(reader, f"select message, labels.path p, ts_ns from loki_logs where labels.job = '{job}'")
    assert (row["message"], row["ts_ns"]) == ("größer\nzwei", AT_NS)


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"streams":[{"stream":{},"values":[["x","y"]]}]}', b'{"streams":[{"stream":{},"values":[["1",2]]}]}',
     b'{"streams":[{"stream":{},"values":[["99999999999999999999","y"]]}]}'],
)  # fmt: skip
def test_loki_bodies_that_are_wrong(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/loki/api/v1/push", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), st.text(max_size=20), max_size=5))
@settings(max_examples=50)
def test_labels_are_read_as_they_were_written(labels: dict[str, str]) -> None:
    text = "{" + ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"
    try:
        assert parse_labels(text) == labels
    except InvalidInputError:
        assert any("\ud800" <= letter <= "\udfff" for value in labels.values() for letter in value)


def test_splunk_events(client: httpx.Client, reader: tidelake.Lake) -> None:
    index = f"main_{secrets.token_hex(4)}"
    first = {
        "time": 1767225600.123456,
        "host": "a",
        "sourcetype": "s",
        "index": index,
        "event": "text",
        "fields": {"k": 1},
    }
    second = {"time": "1767225601", "index": index, "event": {"deep": {"n": 5}}}
    body = json.dumps(first) + json.dumps(second, indent=1)  # nothing between them, and lines inside
    for _ in range(2):
        answer = client.post("/services/collector/event", content=body, headers={"authorization": "Splunk ignored"})
        assert answer.json() == {"text": "Success", "code": 0}
    rows = ask(reader, f"select ts, host, message, event.deep.n n, fields.k k from {index} order by ts")
    assert [(row["host"], row["message"], row["ts"].microsecond) for row in rows] == [
        ("a", "text", 123456),
        (None, None, 0),
    ]
    assert [str(row["n"]) for row in rows] == ["None", "5"]
    raw = client.post(f"/services/collector/raw?index={index}&host=h&channel=c", content=b"one\r\ntwo\n\n")
    assert raw.json() == {"text": "Success", "code": 0, "ackId": 0}
    assert len(ask(reader, f"select message from {index} where host = 'h'")) == 2
    assert client.post("/services/collector/ack?channel=c", json={"acks": [0, 3]}).json() == {
        "acks": {"0": True, "3": True}
    }
    assert client.get("/services/collector/health").json()["code"] == 17


@pytest.mark.parametrize(
    ("body", "code"),
    [("", 5), ("nope", 6), ("[1]", 6), ('{"time":1}', 12), ('{"event":""}', 13), ('{"event":"x","time":"noon"}', 6),
     ('{"event":"x","fields":[]}', 6), ('{"event":"x"}{', 6)],
)  # fmt: skip
def test_splunk_mistakes_have_their_codes(client: httpx.Client, body: str, code: int) -> None:
    answer = client.post("/services/collector", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)


def test_influx_by_its_own_client(served: Served, reader: tidelake.Lake) -> None:
    database = f"db_{secrets.token_hex(4)}"
    options = influx.write_client_options(write_options=influx.SYNCHRONOUS)
    with influx.InfluxDBClient3(host=served.url, database=database, token="t", write_client_options=options) as client:
        points = [
            influx.Point("cpu")
            .tag("host", f"h {n % 2}")
            .field("usage", n / 2)
            .field("n", n)
            .field("up", True)
            .time(AT_NS + n * 1000)
            for n in range(100)
        ]
        client.write(points)
    rows = ask(reader, f"select host, usage, n, up, time from {database}.cpu order by time")
    assert len(rows) == 100
    assert rows[3]["host"] == "h 1"
    assert (rows[3]["usage"], rows[3]["n"], rows[3]["up"]) == (1.5, 3, True)


def test_influx_lines_of_all_versions(client: httpx.Client, reader: tidelake.Lake) -> None:
    bucket = f"b_{secrets.token_hex(4)}"
    first = f'm\\,x,tag\\ a=v\\=1 f="say \\"hi\\"",i=5i,u=18446744073709551615u,t=T {AT_NS}'
    lines = f'{first}\n# comment\n\nm\\,x f="b",i=1.5 {AT_NS}\n'
    for _ in range(2):
        assert client.post(f"/api/v2/write?bucket={bucket}&org=o", content=lines).status_code == 204
    rows = ask(reader, f'select "tag a", f, t from {bucket}.m_x order by f')
    assert rows == [{"tag a": None, "f": "b", "t": None}, {"tag a": "v=1", "f": 'say "hi"', "t": True}]
    assert client.post(f"/write?db={bucket}&precision=s", content=b"old v=1 1767225600").status_code == 204
    (row,) = ask(reader, f"select v, time from {bucket}.old")
    assert (row["v"], row["time"].year) == (1.0, 2026)
    refused = client.post(f"/api/v2/write?bucket={bucket}", content=b"good v=1\nbad\n")
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid")
    part_of = client.post(f"/api/v3/write_lp?db={bucket}", content=b"good v=1 1\nbad\nbad v=\n")
    assert part_of.status_code == 400
    assert [each["line_number"] for each in part_of.json()["data"]] == [2, 3]
    assert ask(reader, f"select v from {bucket}.good") == [{"v": 1.0}]
    assert client.get("/ping").status_code == 204


NAMES = st.text(min_size=1, max_size=8)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
)


@given(
    st.text(min_size=1, max_size=20),
    st.dictionaries(NAMES, NAMES, max_size=3),
    st.dictionaries(NAMES, VALUES, min_size=1, max_size=4),
    st.one_of(st.none(), st.integers(-(10**18), 10**18)),
)
@settings(max_examples=100)
def test_points_are_read_as_the_client_writes_them(
    name: str, tags: dict[str, str], fields: dict[str, Any], at: int | None
) -> None:
    texts = [name, *tags, *tags.values(), *fields]
    if any(set(text) & set("\n\r\t\\\v\f\0") or text.startswith(" ") for text in texts) or set(tags) & set(fields):
        return  # what the protocol has no words for
    point = influx.Point(name)
    for key, value in tags.items():
        point = point.tag(key, value)
    for key, value in fields.items():
        point = point.field(key, value)
    if at is not None:
        point = point.time(at)
    line = point.to_line_protocol()
    if not line or "time" in tags or "time" in fields or any("\n" in str(value) for value in fields.values()):
        return
    measurement, values, found = parse_line(line)
    assert (measurement, found) == (name, at)
    for key, value in fields.items():
        if isinstance(value, float) and not math.isfinite(struct.unpack("<d", struct.pack("<d", value))[0]):
            continue
        assert values[key] == value
