"""Make OTLP requests, ordinary and odd ones.

It does not send them.
"""

from __future__ import annotations

import random
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

START_NS = 1_767_225_600_000_000_000


def put_value(target: Any, value: Any) -> None:
    """Fill an AnyValue."""
    match value:
        case None:
            pass
        case bool():
            target.bool_value = value
        case int():
            target.int_value = value
        case float():
            target.double_value = value
        case str():
            target.string_value = value
        case bytes():
            target.bytes_value = value
        case list():
            target.array_value.SetInParent()
            for each in value:
                put_value(target.array_value.values.add(), each)
        case dict():
            target.kvlist_value.SetInParent()
            put_attributes(target.kvlist_value.values, value)


def put_attributes(target: Any, values: dict[str, Any]) -> None:
    """Fill a list of KeyValues."""
    for key, value in values.items():
        held = target.add(key=key)
        held.value.SetInParent()
        put_value(held.value, value)


def any_value(random: random.Random, depth: int = 0) -> Any:
    """Return a value of any type that OTLP has."""
    kinds = ["none", "bool", "int", "big", "float", "half", "text", "unicode", "bytes"]
    match random.choice(kinds if depth > 2 else [*kinds, "list", "map"]):
        case "bool":
            return random.random() < 0.5
        case "int":
            return random.choice([0, 1, -1, 23, 24, 255, 256, 65_535, 1 << 21, -(1 << 40)])
        case "big":
            return random.choice([(1 << 33) + 5, (1 << 63) - 1, -(1 << 63)])
        case "float":
            return random.choice([random.random(), 1e300, -0.0, float("inf"), 5e-324])
        case "half":
            return random.choice([1.5, 0.0, 65504.0, 3.4e38])
        case "text":
            return "x" * random.choice([0, 1, 23, 24, 300])
        case "unicode":
            return random.choice(["größer", "日本", "🙂", "\x00"])
        case "bytes":
            return random.randbytes(random.randrange(30))
        case "list":
            return [any_value(random, depth + 1) for _ in range(random.randrange(4))]
        case "map":
            return any_attributes(random, depth + 1)
        case _:
            return None


def any_attributes(random: random.Random, depth: int = 0) -> dict[str, Any]:
    """Return attributes whose keys are of many lengths, in no order."""
    keys = ["b", "a", "http.status_code", "service.name", "ö", "", "k" * 30, "http.method", "x.y"]
    return {key: any_value(random, depth) for key in random.sample(keys, random.randrange(len(keys)))}


def logs_request(records: int, seed: int = 0, *, is_odd: bool = False) -> ExportLogsServiceRequest:
    """Return log records: ordinary ones, or ones that have everything that the protocol allows."""
    chance, request = random.Random(seed), ExportLogsServiceRequest()
    for _ in range(chance.randrange(1, 4) if is_odd else 1):
        resource = request.resource_logs.add()
        told = any_attributes(chance) if is_odd else {"service.name": f"svc{seed % 5}", "host.name": "web-1"}
        put_attributes(resource.resource.attributes, told)
        resource.schema_url = chance.choice(["", "https://example.org/1"]) if is_odd else ""
        for _ in range(chance.randrange(3) if is_odd else 1):
            scope = resource.scope_logs.add()
            scope.scope.name, scope.scope.version = "app", "1.0"
            if is_odd:
                put_attributes(scope.scope.attributes, any_attributes(chance))
            for at in range(records):
                _put_record(scope.log_records.add(), chance, at, is_odd)
    return request


def _put_record(record: Any, chance: random.Random, at: int, is_odd: bool) -> None:
    record.time_unix_nano = START_NS + at * 1_000_000 + chance.randrange(1000)
    record.observed_time_unix_nano = record.time_unix_nano + 5000
    record.severity_number, record.severity_text = 9, "INFO"
    record.trace_id, record.span_id = chance.randbytes(16), chance.randbytes(8)
    ordinary = {
        "http.method": chance.choice(["GET", "POST"]), "http.status_code": chance.choice([200, 404, 500]),
        "http.route": "/api/items/{id}", "duration": chance.random() * 100, "user.id": f"u{chance.randrange(1000)}",
        "thread.id": chance.randrange(64),
    }  # fmt: skip
    body: Any = f"GET /api/items/{chance.randrange(100_000)} took {chance.randrange(500)} ms"
    if is_odd:
        ordinary, body = any_attributes(chance), any_value(chance)
        record.event_name = chance.choice(["", "event", "ä"])
        record.flags, record.dropped_attributes_count = chance.choice([0, 1, 257]), chance.choice([0, 3])
        record.severity_number = chance.choice([0, 1, 24])
        if chance.random() < 0.3:
            record.ClearField(chance.choice(["time_unix_nano", "observed_time_unix_nano", "trace_id", "severity_text"]))
        if chance.random() < 0.1:
            record.time_unix_nano = chance.choice([1 << 63, (1 << 64) - 1])
    put_attributes(record.attributes, ordinary)
    record.body.SetInParent()
    put_value(record.body, body)


def spans_request(records: int, seed: int = 0, *, is_odd: bool = False) -> ExportTraceServiceRequest:
    """Return spans: ordinary ones, or ones with everything."""
    chance, request = random.Random(seed), ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    put_attributes(resource.resource.attributes, {"service.name": "checkout"})
    scope = resource.scope_spans.add()
    for at in range(records):
        span: Any = scope.spans.add()
        span.trace_id, span.span_id, span.name = chance.randbytes(16), chance.randbytes(8), f"op {at % 7}"
        span.parent_span_id = chance.choice([b"", chance.randbytes(8)])
        span.kind = chance.choice([0, 1, 2, 3, 4, 5])
        span.start_time_unix_nano = START_NS + at * 1_000_000
        span.end_time_unix_nano = span.start_time_unix_nano + chance.randrange(1_000_000)
        put_attributes(span.attributes, any_attributes(chance) if is_odd else {"http.method": "GET", "n": at})
        if is_odd:
            span.trace_state, span.flags = chance.choice(["", "a=b"]), chance.choice([0, 1])
            span.status.code, span.status.message = chance.choice([0, 1, 2]), chance.choice(["", "failed"])
            if chance.random() < 0.3:
                event = span.events.add(name="exception", time_unix_nano=span.start_time_unix_nano + 1)
                put_attributes(event.attributes, any_attributes(chance))
                link = span.links.add(trace_id=chance.randbytes(16), span_id=chance.randbytes(8))
                put_attributes(link.attributes, {"x": 1})
    return request


def metrics_request(points: int, seed: int = 0, *, kinds: tuple[str, ...] = ()) -> ExportMetricsServiceRequest:
    """Return points of metrics of every kind, or of some."""
    chance, request = random.Random(seed), ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    put_attributes(resource.resource.attributes, {"service.name": "checkout"})
    scope = resource.scope_metrics.add()
    for kind in kinds or ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
        metric = scope.metrics.add(name=f"m.{kind}", description="of the test", unit="ms")
        data = getattr(metric, kind)
        data.SetInParent()
        if kind != "gauge" and kind != "summary":
            data.aggregation_temporality = chance.choice([1, 2])
        if kind == "sum":
            data.is_monotonic = True
        for at in range(points):
            point = data.data_points.add(time_unix_nano=START_NS + at * 1_000_000, start_time_unix_nano=START_NS)
            put_attributes(point.attributes, {"host": f"h{at % 10}", "n": at})
            _put_point(kind, point, chance)
    return request


def _put_point(kind: str, point: Any, chance: random.Random) -> None:
    if kind in ("gauge", "sum"):
        if chance.random() < 0.5:
            point.as_int = chance.choice([0, -5, 1 << 60])
        else:
            point.as_double = chance.random()
        if chance.random() < 0.1:
            point.ClearField("value")
            point.flags = 1
        return
    point.count, point.sum = chance.randrange(100), chance.random()
    if kind == "histogram":
        point.explicit_bounds.extend([0.5, 1.0, 10.0])
        point.bucket_counts.extend([1, 2, 3, chance.randrange(1 << 40)])
        if chance.random() < 0.5:
            point.min, point.max = 0.0, 9.5
    elif kind == "exponential_histogram":
        point.scale, point.zero_count = 3, 2
        point.positive.offset = -2
        point.positive.bucket_counts.extend([1, 0, 5])
    else:
        point.quantile_values.add(quantile=0.5, value=1.5)
