"""Send telemetry with OpenTelemetry's own SDK, over HTTP and gRPC, and find every record with its types."""

from __future__ import annotations

import gzip
import json
import secrets
import subprocess
import time
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import rotel
import zstandard
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import tidelake
from tests.support.servers import free_ports
from tests.support.serving import Served
from tests.support.telemetry import logs_request, metrics_request, spans_request
from tidelake.dynamic.values import decode

PROTOBUF = {"content-type": "application/x-protobuf"}
EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


def rows(lake: tidelake.Lake, table: str, service: str) -> list[dict[str, Any]]:
    found = lake.table(table).to_arrow(where=tidelake.col("service_name") == service, dynamic="cbor").to_pylist()
    names = ("attributes", "resource", "events", "buckets", "body_value")
    return [{k: decode(v) if k in names and v is not None else v for k, v in row.items()} for row in found]


@pytest.fixture(params=["http", "grpc"])
def exporters(request: pytest.FixtureRequest, served: Served) -> dict[str, Any]:
    """Exporters of the SDK, over both transports."""
    if request.param == "grpc":
        options: dict[str, Any] = {"endpoint": served.otlp, "insecure": True, "compression": grpc.Compression.Gzip}
        return {"logs": GrpcLogs(**options), "spans": GrpcSpans(**options), "metrics": GrpcMetrics(**options)}
    return {
        "logs": HttpLogs(f"{served.url}/v1/logs", compression=Compression.Gzip),
        "spans": HttpSpans(f"{served.url}/v1/traces", compression=Compression.Gzip),
        "metrics": HttpMetrics(f"{served.url}/v1/metrics", compression=Compression.Gzip),
    }


def test_logs_of_the_sdk_arrive(exporters: dict[str, Any], reader: tidelake.Lake) -> None:
    service = f"logs-{secrets.token_hex(4)}"
    provider = LoggerProvider(resource=Resource.create({"service.name": service, "host.cores": 2}))
    provider.add_log_record_processor(BatchLogRecordProcessor(exporters["logs"]))
    logger = provider.get_logger("app", "1.0")
    for n in range(30):
        attributes: dict[str, Any] = {"n": n, "ratio": n / 4, "is_even": n % 2 == 0, "tags": ["a", "b"]}
        logger.emit(
            LogRecord(
                timestamp=1_767_225_600_000_000_001 + n, body=f"line {n}", severity_number=SeverityNumber.INFO,
                severity_text="INFO", attributes=attributes,
            )
        )  # fmt: skip
    provider.shutdown()
    found = sorted(rows(reader, "otel_logs", service), key=lambda row: row["time_unix_nano"])
    assert [(row["body"], row["time_unix_nano"] % 1000) for row in found] == [(f"line {n}", n + 1) for n in range(30)]
    assert found[3]["attributes"] == {"n": 3, "ratio": 0.75, "is_even": False, "tags": ["a", "b"]}
    assert (found[3]["resource"]["host.cores"], found[3]["scope_name"], found[3]["severity_number"]) == (2, "app", 9)


def test_spans_of_the_sdk_arrive(exporters: dict[str, Any], reader: tidelake.Lake) -> None:
    service = f"spans-{secrets.token_hex(4)}"
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(exporters["spans"]))
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span("outer") as outer:
        outer.add_event("happened", {"n": 1})
        with tracer.start_as_current_span("inner", attributes={"http.status_code": 200}):
            pass
    provider.shutdown()
    inner, found = sorted(rows(reader, "otel_spans", service), key=lambda row: str(row["name"]))
    assert (inner["name"], inner["kind"], inner["attributes"]) == ("inner", "INTERNAL", {"http.status_code": 200})
    assert (inner["trace_id"], inner["parent_span_id"]) == (found["trace_id"], found["span_id"])
    assert found["duration_nano"] == found["end_time_unix_nano"] - found["start_time_unix_nano"] > 0
    assert [(event["name"], event["attributes"]) for event in found["events"]] == [("happened", {"n": 1})]


def test_metrics_of_the_sdk_arrive(exporters: dict[str, Any], reader: tidelake.Lake) -> None:
    service = f"metrics-{secrets.token_hex(4)}"
    metrics = PeriodicExportingMetricReader(exporters["metrics"], export_interval_millis=1e9)
    provider = MeterProvider([metrics], resource=Resource.create({"service.name": service}))
    meter = provider.get_meter("app")
    meter.create_counter("requests", unit="1").add(5, {"route": "/"})
    meter.create_histogram("latency").record(12.5)
    meter.create_gauge("queue").set(1.5)
    provider.shutdown()
    found = {row["name"]: row for row in rows(reader, "otel_metrics", service)}
    assert (found["requests"]["kind"], found["requests"]["value_int"], found["requests"]["is_monotonic"]) == (
        "sum",
        5,
        True,
    )
    assert (found["latency"]["kind"], found["latency"]["count"], found["latency"]["sum"]) == ("histogram", 1, 12.5)
    assert sum(found["latency"]["buckets"]["counts"]) == 1
    assert (found["queue"]["kind"], found["queue"]["value"]) == ("gauge", 1.5)


@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
def test_a_body_that_comes_again_is_in_once_with_the_same_answer(
    client: httpx.Client, reader: tidelake.Lake, encoding: str
) -> None:
    body = logs_request(500, seed=len(encoding)).SerializeToString()
    packed: Any = {"identity": bytes, "gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}[encoding]
    headers = {**PROTOBUF, "content-encoding": encoding, "x-tidelake-table": f"once.{encoding}"}
    answers = [client.post("/v1/logs", content=packed(body), headers=headers) for _ in range(2)]
    assert [(each.status_code, each.content) for each in answers] == [(200, b""), (200, b"")]
    assert answers[0].headers["content-type"] == "application/x-protobuf"
    assert len(reader.table(f"once.{encoding}")) == 500


def test_json_is_taken_and_answered_in_json(client: httpx.Client, reader: tidelake.Lake) -> None:
    record = {
        "timeUnixNano": "1767225600000000001", "severityNumber": 9, "body": {"stringValue": "hello"},
        "traceId": "5B8EFFF798038103D269B633813FC60C", "spanId": "EEE19B7EC3C1B174",
        "attributes": [{"key": "n", "value": {"intValue": "7"}}], "unknown": 1,
    }  # fmt: skip
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "of json"}}]}
    request = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]}
    answer = client.post("/v1/logs", json=request)
    assert (answer.status_code, answer.json(), answer.headers["content-type"]) == (200, {}, "application/json")
    (row,) = rows(reader, "otel_logs", "of json")
    assert (row["trace_id"], row["span_id"]) == ("5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174")
    assert (row["time_unix_nano"], row["body"], row["attributes"]) == (1767225600000000001, "hello", {"n": 7})
    bad = client.post("/v1/logs", json={"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": "xyz"}]}]}]})
    assert (bad.status_code, bad.json()["code"]) == (400, 3)


@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_records_that_cannot_be_stored_are_a_partial_success(client: httpx.Client, form: str) -> None:
    request = logs_request(3)
    request.resource_logs[0].scope_logs[0].log_records[1].time_unix_nano = (1 << 64) - 1
    if form == "protobuf":
        answer = client.post("/v1/logs", content=request.SerializeToString(), headers=PROTOBUF)
        told = ExportLogsServiceResponse.FromString(answer.content).partial_success
        assert (answer.status_code, told.rejected_log_records, "2262" in told.error_message) == (200, 1, True)
    else:
        record = {"timeUnixNano": str((1 << 64) - 1), "body": {"stringValue": "far away"}}
        answer = client.post("/v1/logs", json={"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})
        assert answer.json()["partialSuccess"]["rejectedLogRecords"] == "1"


def test_what_is_wrong_is_a_status(client: httpx.Client, served: Served) -> None:
    answer = client.post("/v1/logs", content=b"\x0a\xff\xff", headers=PROTOBUF)
    assert (answer.status_code, answer.headers["content-type"], answer.content[:2]) == (
        400,
        "application/x-protobuf",
        b"\x08\x03",
    )
    assert client.post("/v1/traces", content=b"x", headers={"content-type": "text/html"}).status_code == 415
    assert client.post("/v1/metrics", content=b"", headers=PROTOBUF).status_code == 200
    with grpc.insecure_channel(served.otlp) as channel, pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(EXPORT)(b"\x0a\xff\xff", timeout=30)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_all_kinds_of_records_go_in_and_can_be_asked(client: httpx.Client, reader: tidelake.Lake) -> None:
    for path, request in (
        ("/v1/logs", logs_request(50, 1, is_odd=True)),
        ("/v1/traces", spans_request(50, 2, is_odd=True)),
        ("/v1/metrics", metrics_request(5)),
    ):
        headers = {**PROTOBUF, "x-tidelake-namespace": "odd"}
        answer = client.post(path, content=request.SerializeToString(), headers=headers)
        assert answer.status_code == 200, answer.text
    kinds = reader.sql("select kind, count(*) as n from odd.otel_metrics group by kind order by kind").to_arrow()
    assert kinds.to_pydict() == {
        "kind": ["exponential_histogram", "gauge", "histogram", "sum", "summary"], "n": [5, 5, 5, 5, 5],
    }  # fmt: skip
    assert len(reader.table("odd.otel_spans")) == 50


def test_json_text_of_attributes_keeps_their_types(client: httpx.Client, reader: tidelake.Lake) -> None:
    headers = {**PROTOBUF, "x-tidelake-table": "typed.logs"}
    client.post("/v1/logs", content=logs_request(10).SerializeToString(), headers=headers)
    found = reader.sql("select attributes from typed.logs limit 1").to_arrow().column(0)[0].as_py()
    values = json.loads(found) if isinstance(found, str) else found
    assert {type(values["http.status_code"]), type(values["duration"]), type(values["http.route"])} == {int, float, str}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_records_arrive_through_an_agent(served: Served, reader: tidelake.Lake, protocol: str) -> None:
    agent = Path(rotel.__file__).parent / "rotel-agent"
    grpc_port, http_port = free_ports(2)
    service = f"agent-{protocol}"
    command = [
        str(agent), "start", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc_port}",
        "--otlp-http-endpoint", f"127.0.0.1:{http_port}", "--exporter", "otlp", "--otlp-exporter-protocol", protocol,
        "--otlp-exporter-endpoint", served.url if protocol == "http" else f"http://{served.otlp}",
        "--batch-timeout", "100ms",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        for seed in range(5):
            request = logs_request(100, seed)
            request.resource_logs[0].resource.attributes[0].value.string_value = service
            while True:
                try:
                    url = f"http://127.0.0.1:{http_port}/v1/logs"
                    assert httpx.post(url, content=request.SerializeToString(), headers=PROTOBUF).status_code == 200
                    break
                except httpx.TransportError:
                    assert time.monotonic() < until
                    time.sleep(0.1)
        is_service = tidelake.col("service_name") == service
        while (found := reader.table("otel_logs").to_arrow(["body"], where=is_service).num_rows) < 500:
            assert time.monotonic() < until, found
            time.sleep(0.1)
        assert found == 500
    finally:
        process.terminate()
        process.wait(30)
