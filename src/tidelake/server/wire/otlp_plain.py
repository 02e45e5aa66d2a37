"""Decode OTLP requests the plain way, message by message: what defines ``otlp`` and serves until that is compiled.

It is also asked about what the loops leave alone: exponential histograms, summaries, values nested deeply, text that
may not be UTF-8. It does not run where speed counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tidelake.dynamic.values import MAX_DEPTH, encode
from tidelake.errors import InvalidInputError
from tidelake.server.wire.otlp_tables import (
    LOGS,
    MAX_TIME_NS,
    METRICS,
    SPAN_KINDS,
    SPANS,
    STATUS_CODES,
    TEMPORALITIES,
    OtlpTable,
)

Decoded: TypeAlias = tuple[pa.Table, int]
KINDS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")


class _Rows:
    """The columns of a table, as they grow."""

    def __init__(self, table: OtlpTable) -> None:
        self._table = table
        self._columns: defaultdict[str, list[Any]] = defaultdict(list)
        self._dynamic = {name for name, kind in table.columns.items() if kind == "dynamic"}
        self.left_out = 0

    def add(self, row: dict[str, Any], time_ns: int, *others_ns: int) -> None:
        """Add a row with a time, unless that or another is beyond what can be stored."""
        if max(time_ns, *others_ns, 0) > MAX_TIME_NS:
            self.left_out += 1
            return
        row["time"] = time_ns // 1000
        for name in self._table.columns:
            value = row.get(name)
            if name in self._dynamic and value is not None:
                value = encode(value)
            self._columns[name].append(value)

    def finish(self) -> Decoded:
        schema = self._table.arrow
        arrays = []
        for field in schema:
            values = self._columns[field.name]
            is_time = pa.types.is_timestamp(field.type)
            made = pa.array(values, pa.int64()).cast(field.type) if is_time else pa.array(values, field.type)
            arrays.append(made)
        return pa.Table.from_arrays(arrays, schema=schema), self.left_out


def decode_logs(body: bytes, received_ns: int) -> Decoded:
    """Decode an ExportLogsServiceRequest."""
    rows = _Rows(LOGS)
    for shared, record in _records(
        _parsed(ExportLogsServiceRequest(), body).resource_logs, "scope_logs", "log_records"
    ):
        own = record.time_unix_nano or record.observed_time_unix_nano or received_ns
        value = any_value(record.body) if record.HasField("body") else None
        rows.add(
            {
                **shared,
                "time_unix_nano": record.time_unix_nano or None,
                "observed_time_unix_nano": record.observed_time_unix_nano or None,
                "trace_id": record.trace_id.hex() or None,
                "span_id": record.span_id.hex() or None,
                "trace_flags": record.flags & 0x7FFFFFFF or None,
                "severity_number": record.severity_number or None,
                "severity_text": record.severity_text or None,
                "body": value if isinstance(value, str) else None,
                "body_value": None if isinstance(value, str) else value,
                "attributes": attributes(record.attributes),
                "event_name": record.event_name or None,
                "dropped_attributes_count": record.dropped_attributes_count or None,
            },
            own, record.time_unix_nano, record.observed_time_unix_nano,
        )  # fmt: skip
    return rows.finish()


def decode_spans(body: bytes, received_ns: int) -> Decoded:
    """Decode an ExportTraceServiceRequest."""
    rows = _Rows(SPANS)
    for shared, span in _records(_parsed(ExportTraceServiceRequest(), body).resource_spans, "scope_spans", "spans"):
        start, end = span.start_time_unix_nano, span.end_time_unix_nano
        rows.add(
            {
                **shared,
                "start_time_unix_nano": start or None,
                "end_time_unix_nano": end or None,
                "duration_nano": end - start if start and end else None,
                "trace_id": span.trace_id.hex() or None,
                "span_id": span.span_id.hex() or None,
                "parent_span_id": span.parent_span_id.hex() or None,
                "trace_state": span.trace_state or None,
                "trace_flags": span.flags & 0x7FFFFFFF or None,
                "name": span.name or None,
                "kind": _named(span.kind, SPAN_KINDS),
                "status_code": _named(span.status.code, STATUS_CODES),
                "status_message": span.status.message or None,
                "attributes": attributes(span.attributes),
                "events": [_event(each) for each in span.events] or None,
                "links": [_link(each) for each in span.links] or None,
                "dropped_attributes_count": span.dropped_attributes_count or None,
                "dropped_events_count": span.dropped_events_count or None,
                "dropped_links_count": span.dropped_links_count or None,
            },
            start or end or received_ns, start, end,
        )  # fmt: skip
    return rows.finish()


def decode_metrics(body: bytes, received_ns: int) -> Decoded:
    """Decode an ExportMetricsServiceRequest."""
    rows = _Rows(METRICS)
    metrics = _parsed(ExportMetricsServiceRequest(), body).resource_metrics
    for shared, metric in _records(metrics, "scope_metrics", "metrics"):
        kind = metric.WhichOneof("data")
        if kind is None:
            continue
        data = getattr(metric, kind)
        told = {
            **shared,
            "name": metric.name or None,
            "description": metric.description or None,
            "unit": metric.unit or None,
            "kind": kind,
            "is_monotonic": data.is_monotonic if kind == "sum" else None,
        }
        if kind in ("sum", "histogram", "exponential_histogram"):
            told["temporality"] = _named(data.aggregation_temporality, TEMPORALITIES)
        for point in data.data_points:
            at, since = point.time_unix_nano, point.start_time_unix_nano
            row = {
                **told,
                "time_unix_nano": at or None,
                "start_time_unix_nano": since or None,
                "attributes": attributes(point.attributes),
                "flags": point.flags & 0x7FFFFFFF or None,
                **_values(kind, point),
            }
            rows.add(row, at or since or received_ns, at, since)
    return rows.finish()


def sample_logs() -> bytes:
    """Return a small request that has something of everything."""
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    scope = resource.scope_logs.add()
    record = scope.log_records.add(time_unix_nano=1, trace_id=b"1" * 16)
    record.body.string_value = "text"
    resource.resource.attributes.add(key="service.name").value.string_value = "sample"
    for name, value in (("a", 1), ("b", 1.5), ("c", "x")):
        held = record.attributes.add(key=name).value
        setattr(held, {int: "int_value", float: "double_value", str: "string_value"}[type(value)], value)
    return request.SerializeToString()


def sample_metrics() -> bytes:
    """Return a small request of metrics."""
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    scope.metrics.add(name="a").histogram.data_points.add(time_unix_nano=1, bucket_counts=[1, 2], explicit_bounds=[0.5])
    scope.metrics.add(name="b").gauge.data_points.add(time_unix_nano=1, as_double=1.5)
    return request.SerializeToString()


def _values(kind: str, point: Any) -> dict[str, Any]:
    """Return what a point measured, by its kind."""
    if kind in ("gauge", "sum"):
        which = point.WhichOneof("value")
        value = None if which is None else getattr(point, which)
        found: dict[str, Any] = {
            "value": None if value is None else float(value),
            "value_int": value if which == "as_int" else None,
        }
    else:
        found = {"count": _signed(point.count), "sum": _optional(point, "sum") if kind != "summary" else point.sum}
    if kind in ("histogram", "exponential_histogram"):
        found |= {"min": _optional(point, "min"), "max": _optional(point, "max")}
    if kind == "histogram" and (point.bucket_counts or point.explicit_bounds):
        found["buckets"] = {"bounds": list(point.explicit_bounds), "counts": list(point.bucket_counts)}
    elif kind == "exponential_histogram":
        found["buckets"] = {
            "scale": point.scale,
            "zero_count": point.zero_count,
            "zero_threshold": point.zero_threshold,
            "positive": {"offset": point.positive.offset, "counts": list(point.positive.bucket_counts)},
            "negative": {"offset": point.negative.offset, "counts": list(point.negative.bucket_counts)},
        }
    elif kind == "summary":
        found["quantiles"] = [
            {"quantile": each.quantile, "value": each.value} for each in point.quantile_values
        ] or None
    if kind != "summary":
        found["exemplars"] = [_exemplar(each) for each in point.exemplars] or None
    return found


def any_value(value: Any, depth: int = 0) -> Any:
    """Return an AnyValue as Python has it."""
    if depth > MAX_DEPTH:
        raise InvalidInputError("nested too deeply", limit=MAX_DEPTH, kind="too_deep")
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [any_value(each, depth + 1) for each in value.array_value.values]
        case "kvlist_value":
            return {each.key: any_value(each.value, depth + 1) for each in value.kvlist_value.values}
        case kind:
            return getattr(value, kind)


def attributes(several: Iterable[Any]) -> dict[str, Any] | None:
    """Return attributes as a map; None if there are none."""
    return {each.key: any_value(each.value) for each in several} or None


def _records(resources: Iterable[Any], scopes: str, records: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield every record with the columns that it has from its resource and scope."""
    for resource in resources:
        held = attributes(resource.resource.attributes)
        service = next(
            (
                each.value.string_value
                for each in reversed(resource.resource.attributes)
                if each.key == "service.name" and each.value.HasField("string_value")
            ),
            None,
        )
        for scope in getattr(resource, scopes):
            shared = {
                "service_name": service or None,
                "resource": held,
                "scope_name": scope.scope.name or None,
                "scope_version": scope.scope.version or None,
                "scope": attributes(scope.scope.attributes),
                "resource_schema_url": resource.schema_url or None,
                "scope_schema_url": scope.schema_url or None,
            }
            for record in getattr(scope, records):
                yield shared, record


def _parsed(message: Any, body: bytes) -> Any:
    try:
        message.ParseFromString(body)
    except (DecodeError, RecursionError) as error:
        raise InvalidInputError("the body is not such a protobuf message", kind="bad_protobuf") from error
    return message


def _event(event: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"name": event.name, "time_unix_nano": event.time_unix_nano}
    if event.attributes:
        found["attributes"] = attributes(event.attributes)
    if event.dropped_attributes_count:
        found["dropped_attributes_count"] = event.dropped_attributes_count
    return found


def _link(link: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex()}
    if link.trace_state:
        found["trace_state"] = link.trace_state
    if link.attributes:
        found["attributes"] = attributes(link.attributes)
    if link.flags:
        found["flags"] = link.flags
    return found


def _exemplar(exemplar: Any) -> dict[str, Any]:
    which = exemplar.WhichOneof("value")
    found: dict[str, Any] = {"time_unix_nano": exemplar.time_unix_nano}
    if which is not None:
        found["value"] = getattr(exemplar, which)
    if exemplar.trace_id:
        found |= {"trace_id": exemplar.trace_id.hex(), "span_id": exemplar.span_id.hex()}
    if exemplar.filtered_attributes:
        found["attributes"] = attributes(exemplar.filtered_attributes)
    return found


def _named(code: int, names: tuple[str, ...]) -> str:
    return names[code] if 0 <= code < len(names) else names[0]


def _optional(message: Message, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _signed(number: int) -> int:
    """Return an unsigned count as the column holds it."""
    return number if number <= MAX_TIME_NS else number - (1 << 64)
