"""Speak OTLP: ``/v1/logs``, ``/v1/traces`` and ``/v1/metrics``, in protobuf or JSON; ``otlp_grpc`` the same over gRPC.

Rows go to ``otel_logs``, ``otel_spans`` and ``otel_metrics`` in the token's namespace, or to the table that the header
``X-Tidelake-Table`` names. Records whose times cannot be stored are left out and told as a partial success, which a
client does not send again. An error is a ``google.rpc.Status`` in the form of the request. It does not decode records:
see ``wire.otlp``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import orjson
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tidelake.catalog.protocol import parse_table_name
from tidelake.server.call import JSON, Answer, Call, Load, Outcome, Packed, Route, Shape, Work
from tidelake.server.refusals import Failure, Unsupported
from tidelake.server.wire.otlp import (
    Decoded,
    count_records,
    decode_logs,
    decode_metrics,
    decode_spans,
    logs_together,
    spans_together,
)
from tidelake.server.wire.otlp_json import from_json
from tidelake.server.wire.otlp_tables import LOGS, METRICS, SPANS, OtlpTable
from tidelake.write.append import AppendReport

PROTOBUF = "application/x-protobuf"
TABLE_HEADER = "x-tidelake-table"
GRPC_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 408: 4, 409: 9, 413: 3, 415: 3, 503: 14}  # by HTTP's
UNKNOWN_CODE = 13


@dataclass(frozen=True, slots=True)
class Signal:
    """One of the three that OTLP has."""

    table: OtlpTable
    request: Callable[[], Message]
    decode: Callable[[bytes, int], Decoded]
    rejected: str  # what JSON calls the records that were left out
    service: str  # of gRPC
    together: Callable[[bytes, int], Decoded] | None = None  # decodes requests that stand one after another

    @property
    def shape(self) -> Shape:
        return Shape(self.table.columns, "time")


LOG_SIGNAL = Signal(
    LOGS, ExportLogsServiceRequest, decode_logs, "rejectedLogRecords", "logs.v1.LogsService", logs_together
)
SPAN_SIGNAL = Signal(
    SPANS, ExportTraceServiceRequest, decode_spans, "rejectedSpans", "trace.v1.TraceService", spans_together
)
METRIC_SIGNAL = Signal(
    METRICS, ExportMetricsServiceRequest, decode_metrics, "rejectedDataPoints", "metrics.v1.MetricsService"
)
SIGNALS = (LOG_SIGNAL, SPAN_SIGNAL, METRIC_SIGNAL)


def decode_signal(signal: Signal, call: Call) -> Work:
    """Decode a request of one signal."""
    is_json = call.content_type == JSON
    if not is_json and call.content_type not in (PROTOBUF, "application/protobuf", ""):
        raise Unsupported("OTLP is protobuf or JSON", content_type=call.content_type[:80])
    body = from_json(call.body, signal.request()) if is_json else call.body
    received_ns = call.received_us * 1000
    name = call.table(call.headers.get(TABLE_HEADER) or signal.table.name)
    name = ".".join(parse_table_name(name))
    if signal.together is not None and (count := count_records(body)) is not None:
        packed = Load(name, Packed(body, signal.decode, signal.together, received_ns), count, signal.shape)
        return Work([packed] if count else [], partial(_answer, signal, is_json, count))
    table, left_out = signal.decode(body, received_ns)
    loads = [Load(name, table, table.num_rows, signal.shape)] if table.num_rows else []
    return Work(loads, partial(_answer, signal, is_json, table.num_rows + left_out))


def _answer(signal: Signal, is_json: bool, sent: int, outcomes: Sequence[Outcome]) -> Answer:
    rows = sum(each.rows for each in outcomes if isinstance(each, AppendReport))
    rejected, said = sent - rows, "times beyond the year 2262 cannot be stored"
    if is_json:
        told = {"partialSuccess": {signal.rejected: str(rejected), "errorMessage": said}} if rejected else {}
        return Answer(200, orjson.dumps(told), JSON)
    partial_success = _number(1, rejected) + _bytes(2, said.encode()) if rejected else b""
    return Answer(200, _bytes(1, partial_success) if rejected else b"", PROTOBUF, _TYPED)


_TYPED = {"content-type": PROTOBUF}  # also where there is no body


def refuse_otlp(call: Call, failure: Failure) -> Answer:
    """Tell a failure as a Status, in the form of the request."""
    code = GRPC_CODES.get(failure.status, UNKNOWN_CODE)
    if call.content_type == JSON:
        return Answer(failure.status, orjson.dumps({"code": code, "message": failure.message}), JSON, failure.headers)
    return Answer(failure.status, status_bytes(code, failure), PROTOBUF, failure.headers)


def status_bytes(code: int, failure: Failure) -> bytes:
    """Return a google.rpc.Status, with when to try again if that makes sense."""
    status = _number(1, code) + _bytes(2, failure.message.encode())
    if failure.is_temporary:
        delay = _bytes(1, _number(1, failure.retry_after_s))
        status += _bytes(3, _bytes(1, b"type.googleapis.com/google.rpc.RetryInfo") + _bytes(2, delay))
    return status


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


ROUTES: Sequence[Route] = tuple(
    Route(path, partial(decode_signal, signal), refuse=refuse_otlp, is_once=True)
    for path, signal in (("/v1/logs", LOG_SIGNAL), ("/v1/traces", SPAN_SIGNAL), ("/v1/metrics", METRIC_SIGNAL))
)
