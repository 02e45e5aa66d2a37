"""Samples by Prometheus remote write, both versions, built here byte by byte from the protocol's own description."""

from __future__ import annotations

import secrets
import struct
import subprocess
import sys
from collections.abc import Iterable

import cramjam
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidelake
from tidelake.dynamic.values import decode
from tidelake.errors import InvalidInputError
from tidelake.runtime.compiling import HAS_COMPILER
from tidelake.server.call import Call, Work
from tidelake.server.protocols.remote_write import decode_write

STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
SECOND = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
NOW_MS = 1_767_225_600_000

Series = tuple[dict[str, str], list[tuple[float, int]]]


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def part(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def sample(value: float, at_ms: int) -> bytes:
    return b"\x09" + struct.pack("<d", value) + b"\x10" + varint(at_ms)


def first(series: Iterable[Series], more: bytes = b"") -> bytes:
    """Return a message of version 1.0."""
    out = b""
    for labels, samples in series:
        own = b"".join(part(1, part(1, n.encode()) + part(2, v.encode())) for n, v in labels.items())
        out += part(1, own + b"".join(part(2, sample(*each)) for each in samples))
    return out + more


def second(series: Iterable[Series], more: bytes = b"") -> bytes:
    """Return a message of version 2.0."""
    symbols: dict[str, int] = {"": 0}
    out = b""
    for labels, samples in series:
        references = [symbols.setdefault(text, len(symbols)) for pair in labels.items() for text in pair]
        own = part(1, b"".join(map(varint, references)))
        out += part(5, own + b"".join(part(2, sample(*each)) for each in samples) + more)
    return b"".join(part(4, text.encode()) for text in symbols) + out


def rows_of(work: Work) -> list[tuple[str, dict[str, str], int, bytes]]:
    return [
        (row["name"], decode(row["labels"]), row["ts"].timestamp(), struct.pack("<d", row["value"]))
        for load in work.loads
        if load.table.endswith("prom_samples")
        for row in load.rows.to_pylist()  # type: ignore[union-attr]
    ]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
LABELS = st.dictionaries(TEXTS.filter(lambda text: text != "__name__"), TEXTS, max_size=30)
SAMPLES = st.lists(st.tuples(st.floats(), st.integers(-(10**13), 10**14)), max_size=4)
SERIES = st.lists(st.tuples(TEXTS, LABELS, SAMPLES), max_size=6)


@given(SERIES, st.booleans())
@settings(deadline=None, max_examples=60)
def test_what_was_written_is_what_is_read(
    found: list[tuple[str, dict[str, str], list[tuple[float, int]]]], new: bool
) -> None:
    series = [({"__name__": name, **labels}, samples) for name, labels, samples in found]
    headers = {"content-type": SECOND} if new else {}
    work = decode_write(Call((second if new else first)(series), headers))
    wanted = [
        (name, labels, at_ms / 1000, struct.pack("<d", value))
        for name, labels, samples in found
        for value, at_ms in samples
    ]
    assert rows_of(work) == wanted


@given(st.binary(max_size=200), st.booleans())
@settings(deadline=None, max_examples=200)
def test_any_bytes_are_read_or_refused(data: bytes, new: bool) -> None:
    try:
        decode_write(Call(data, {"content-type": SECOND} if new else {}))
    except InvalidInputError:
        return


@given(SERIES, st.integers(0, 10_000), st.integers(0, 255), st.booleans())
@settings(deadline=None, max_examples=150)
def test_a_changed_byte_is_read_or_refused(
    found: list[tuple[str, dict[str, str], list[tuple[float, int]]]], at: int, byte: int, new: bool
) -> None:
    body = bytearray((second if new else first)([({"__name__": n, **labels}, s) for n, labels, s in found]))
    if body:
        body[at % len(body)] = byte
    try:
        decode_write(Call(bytes(body), {"content-type": SECOND} if new else {}))
    except InvalidInputError:
        return


def send(client: httpx.Client, body: bytes, kind: str = "application/x-protobuf", **headers: str) -> httpx.Response:
    told = {"content-type": kind, "content-encoding": "snappy", **headers}
    return client.post("/api/v1/write", content=bytes(cramjam.snappy.compress_raw(body)), headers=told)


def test_samples_are_in_the_table_when_they_are_answered(client: httpx.Client, reader: tidelake.Lake) -> None:
    job = secrets.token_hex(4)
    series = [({"__name__": "up", "job": job, "n": str(n)}, [(float(n), NOW_MS + n)]) for n in range(1000)]
    series[7] = (series[7][0], [(STALE, NOW_MS)])
    answer = send(client, first(series))
    assert (answer.status_code, answer.content) == (204, b"")
    assert not [name for name in answer.headers if name.startswith("x-prometheus")]
    summed = "sum(case when isnan(value) then 0 else value end)"
    asked = f"select count(*) c, {summed} s from prom_samples where labels.job = '{job}'"
    assert reader.sql(asked).to_arrow().to_pylist() == [{"c": 1000, "s": sum(range(1000)) - 7.0}]
    again = send(client, first(series), **{"retry-attempt": "1"})
    assert again.status_code == 204
    assert reader.sql(asked).to_arrow().to_pylist()[0]["c"] == 1000


def test_the_second_version_tells_how_much_went_in(client: httpx.Client, reader: tidelake.Lake) -> None:
    job = secrets.token_hex(4)
    series: list[Series] = [({"__name__": "rpc", "job": job}, [(1.0, NOW_MS), (2.0, NOW_MS + 1)])]
    metadata = part(5, b"\x08\x01" + b"\x18\x02")
    body = second(series, metadata)
    for _ in range(2):  # the second time is a replay, and told as the first was
        answer = send(client, body, SECOND)
        assert answer.status_code == 204
        assert answer.headers["x-prometheus-remote-write-samples-written"] == "2"
        assert answer.headers["x-prometheus-remote-write-histograms-written"] == "0"
    asked = f"select count(*) c from prom_samples where labels.job = '{job}'"
    assert reader.sql(asked).to_arrow().to_pylist() == [{"c": 2}]
    (told,) = reader.sql("select name, kind, help from prom_metadata where name = 'rpc'").to_arrow().to_pylist()
    assert told == {"name": "rpc", "kind": "counter", "help": "rpc"}


def test_histograms_and_exemplars_have_tables_of_their_own(client: httpx.Client, reader: tidelake.Lake) -> None:
    job = secrets.token_hex(4)
    histogram = b"\x08\x04" + b"\x19" + struct.pack("<d", 7.5) + b"\x20\x06" + part(11, b"\x08\x00\x10\x02")
    histogram += part(12, b"\x02\x04") + b"\x78" + varint(NOW_MS)
    exemplar = (
        part(1, part(1, b"trace_id") + part(2, b"abc")) + b"\x11" + struct.pack("<d", 0.5) + b"\x18" + varint(NOW_MS)
    )
    labels = b"".join(part(1, part(1, n) + part(2, v)) for n, v in ((b"__name__", b"latency"), (b"job", job.encode())))
    answer = send(client, part(1, labels + part(3, exemplar) + part(4, histogram)))
    assert answer.status_code == 204, answer.text
    (row,) = reader.sql(f"select histogram, ts from prom_histograms where labels.job = '{job}'").to_arrow().to_pylist()
    told = tidelake.decode(reader.table("prom_histograms").scan(columns=["histogram"]).read_all()["histogram"])
    assert {
        "count": 4,
        "sum": 7.5,
        "schema": 3,
        "positive_spans": [{"offset": 0, "length": 2}],
        "positive_deltas": [1, 2],
    } in told
    asked = f"select exemplar.trace_id t, value from prom_exemplars where labels.job = '{job}'"
    (found,) = reader.sql(asked).to_arrow().to_pylist()
    assert (str(found["t"]).strip('"'), found["value"]) == ("abc", 0.5)
    assert row["ts"].timestamp() * 1000 == NOW_MS


@pytest.mark.parametrize(
    ("labels", "reason"),
    [({"job": "x"}, "no metric name"), ({"__name__": "up", "": "x"}, "without a name")],
)
def test_a_series_that_is_wrong_is_told_and_the_others_go_in(
    client: httpx.Client, reader: tidelake.Lake, labels: dict[str, str], reason: str
) -> None:
    job = secrets.token_hex(4)
    answer = send(client, second([({"__name__": "ok", "job": job}, [(1.0, 1)]), (labels, [(2.0, 2)])]), SECOND)
    assert answer.status_code == 400
    assert reason in answer.text
    assert answer.headers["x-prometheus-remote-write-samples-written"] == "1"
    assert reader.sql(f"select value from prom_samples where labels.job = '{job}'").to_arrow().to_pylist() == [
        {"value": 1.0}
    ]


@pytest.mark.parametrize(
    ("count", "total", "spans", "deltas", "status"),
    [
        (4, 7.5, 2, b"\x02\x04", 204),
        (5, 7.5, 2, b"\x02\x04", 400),  # a count that is not the buckets'
        (5, float("nan"), 2, b"\x02\x04", 204),  # of which some were NaN, and are in no bucket
        (3, float("nan"), 2, b"\x02\x04", 400),
        (4, 7.5, 3, b"\x02\x04", 400),  # more places than buckets
        (1, 7.5, 2, b"\x02\x03", 400),  # a bucket of -1
    ],
)
def test_histograms_that_cannot_be_are_told_and_the_others_go_in(
    client: httpx.Client, reader: tidelake.Lake, count: int, total: float, spans: int, deltas: bytes, status: int
) -> None:
    job = secrets.token_hex(4)
    histogram = b"\x08" + varint(count) + b"\x19" + struct.pack("<d", total) + part(11, b"\x10" + varint(spans))
    histogram += part(12, deltas) + b"\x78" + varint(NOW_MS)
    labels = b"".join(part(1, part(1, n) + part(2, v)) for n, v in ((b"__name__", b"h"), (b"job", job.encode())))
    body = part(1, labels + part(4, histogram)) + first([({"__name__": "ok", "job": job}, [(1.0, NOW_MS)])])
    answer = send(client, body)
    assert answer.status_code == status, answer.text
    asked = f"select count(*) c from prom_samples where labels.job = '{job}'"
    assert reader.sql(asked).to_arrow().to_pylist() == [{"c": 1}]
    if status == 400:
        assert "1 histograms were left out" in answer.text


def test_other_types_and_encodings_are_refused(client: httpx.Client) -> None:
    assert send(client, b"", "application/json").status_code == 415
    assert send(client, b"", "application/x-protobuf;proto=other").status_code == 415
    for other in ("gzip", "deflate", "zstd", "snappy, gzip"):  # as the protocol wants it, whatever else is known here
        assert client.post("/api/v1/write", content=b"x", headers={"content-encoding": other}).status_code == 415
    assert send(client, b"\x0a\xff").status_code == 400
    for other in ("application/json", "image/png"):  # also where the body is nothing at all
        headers = {"content-type": other, "content-encoding": "snappy"}
        assert client.post("/api/v1/write", content=b"\xff\xff\xff", headers=headers).status_code == 415
    torn = client.post("/api/v1/write", content=b"\xff\xff\xff", headers={"content-encoding": "snappy"})
    assert torn.status_code == 400


_WARMED = """
import sys
from tidelake.server.bodies import decompressed
from tidelake.server.call import Call
from tidelake.server.protocols.remote_write import decode_write
from tidelake.server.wire import remote_write as loops, warming

warming.warm()
known = [list(loop.signatures) for loop in (loops.survey, loops.walk, loops.write_labels)]
for kind, body in zip(sys.argv[1::2], sys.argv[2::2]):
    call = Call(decompressed(bytes.fromhex(body), "snappy", 1 << 20), {"content-type": kind})
    assert decode_write(call).loads[0].count == 2
assert [list(loop.signatures) for loop in (loops.survey, loops.walk, loops.write_labels)] == known
assert warming.is_warm()
"""


@pytest.mark.skipif(not HAS_COMPILER, reason="nothing is compiled here")
def test_a_warm_server_compiles_nothing_for_samples() -> None:
    series: list[Series] = [({"__name__": "up", "job": "a"}, [(1.0, NOW_MS), (2.0, NOW_MS + 1)])]
    bodies = {"application/x-protobuf": first(series), SECOND: second(series)}
    sent = [each for kind, body in bodies.items() for each in (kind, bytes(cramjam.snappy.compress_raw(body)).hex())]
    subprocess.run([sys.executable, "-c", _WARMED, *sent], check=True)
