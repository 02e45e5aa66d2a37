"""Decode OTLP in loops and plainly, and find the same; whatever bytes come, an answer or an error that says why."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.telemetry import START_NS, logs_request, metrics_request, put_value, spans_request
from tidelake.dynamic.values import decode
from tidelake.errors import InvalidInputError
from tidelake.server.wire import otlp, otlp_plain

NOW_NS = START_NS + 7


def same(fast: otlp.Decoded, plain: otlp.Decoded) -> None:
    assert fast[1] == plain[1]
    assert fast[0].schema.equals(plain[0].schema, check_metadata=True)
    for name in plain[0].schema.names:
        assert fast[0].column(name).to_pylist() == plain[0].column(name).to_pylist(), name


@pytest.mark.parametrize("seed", range(40))
def test_logs_are_decoded_alike_both_ways(seed: int) -> None:
    body = logs_request(seed % 7, seed, is_odd=True).SerializeToString()
    same(otlp._logs(body, NOW_NS), otlp_plain.decode_logs(body, NOW_NS))


@pytest.mark.parametrize("seed", range(20))
def test_spans_are_decoded_alike_both_ways(seed: int) -> None:
    body = spans_request(seed % 9, seed, is_odd=True).SerializeToString()
    same(otlp.decoded_in_loops("spans", body, NOW_NS), otlp_plain.decode_spans(body, NOW_NS))


@pytest.mark.parametrize("kinds", [(), ("gauge",), ("sum", "gauge"), ("histogram", "sum")])
def test_metrics_are_decoded_alike_both_ways(kinds: tuple[str, ...]) -> None:
    for seed in range(8):
        body = metrics_request(4, seed, kinds=kinds).SerializeToString()
        same(otlp.decoded_in_loops("metrics", body, NOW_NS), otlp_plain.decode_metrics(body, NOW_NS))


def test_metrics_of_the_usual_kinds_are_decoded_in_loops_alone() -> None:
    body = metrics_request(6, 3, kinds=("histogram", "gauge", "sum")).SerializeToString()
    same(otlp._metrics(body, NOW_NS), otlp_plain.decode_metrics(body, NOW_NS))
    body = spans_request(6).SerializeToString()
    same(otlp._spans(body, NOW_NS), otlp_plain.decode_spans(body, NOW_NS))


def test_values_that_are_nested_deeply_are_left_to_the_plain_reader() -> None:
    request = logs_request(1)
    value: list[object] = []
    for _ in range(40):
        value = [value]
    put_value(request.resource_logs[0].scope_logs[0].log_records[0].body, value)
    body = request.SerializeToString()
    table, _ = otlp.decoded_in_loops("logs", body, NOW_NS)
    assert decode(table.column("body_value")[0].as_py()) == value


@given(st.binary(max_size=200))
def test_bytes_that_are_no_request_are_an_error_or_nothing(body: bytes) -> None:
    try:
        expected = otlp_plain.decode_logs(body, NOW_NS)
    except InvalidInputError:
        expected = None
    try:
        found = otlp.decoded_in_loops("logs", body, NOW_NS)
    except InvalidInputError:
        found = None
    if found is not None and expected is not None:
        same(found, expected)


def test_requests_with_broken_bytes_do_no_harm() -> None:
    whole = logs_request(5, 1, is_odd=True).SerializeToString()
    chance = random.Random(5)
    for _ in range(300):
        broken = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        body = bytes(broken[: chance.randrange(1, len(broken) + 1)])
        for signal in ("logs", "spans", "metrics"):
            try:
                found, _ = otlp.decoded_in_loops(signal, body, NOW_NS)
                found.validate(full=True)
            except InvalidInputError:
                continue
