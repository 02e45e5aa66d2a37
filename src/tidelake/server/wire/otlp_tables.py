"""Name the columns of the tables that OTLP fills: ``otel_logs``, ``otel_spans``, ``otel_metrics``.

Names are those of the protocol in snake case. ``time`` is the table's time in microseconds; what came in nanoseconds is
kept beside it, as it came. ``service_name`` is the resource's. Attributes are ``dynamic``, each value with the type it
had. It does not hold rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from tidelake.model.schema import DYNAMIC_FIELD

MAX_TIME_NS = (1 << 63) - 1  # the last nanosecond that has a place in 64 bits, in the year 2262

SPAN_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
STATUS_CODES = ("UNSET", "OK", "ERROR")
TEMPORALITIES = ("UNSPECIFIED", "DELTA", "CUMULATIVE")

_ARROW = {
    "timestamp": pa.timestamp("us", "UTC"),
    "long": pa.int64(),
    "int": pa.int32(),
    "real": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.utf8(),
    "dynamic": pa.binary(),
}


@dataclass(frozen=True)
class OtlpTable:
    """A table by its name and its columns."""

    name: str
    columns: Mapping[str, str]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns in Arrow, dynamic ones as the bytes that are kept."""
        return pa.schema(
            [
                pa.field(name, _ARROW[kind], metadata=DYNAMIC_FIELD if kind == "dynamic" else None)
                for name, kind in self.columns.items()
            ]
        )


_SHARED = {
    "service_name": "string",
    "resource": "dynamic",
    "scope_name": "string",
    "scope_version": "string",
    "scope": "dynamic",
    "resource_schema_url": "string",
    "scope_schema_url": "string",
}

LOGS = OtlpTable(
    "otel_logs",
    {
        "time": "timestamp",
        "time_unix_nano": "long",
        "observed_time_unix_nano": "long",
        "trace_id": "string",
        "span_id": "string",
        "trace_flags": "int",
        "severity_number": "int",
        "severity_text": "string",
        "body": "string",  # the text of a body that is text
        "body_value": "dynamic",  # any other body
        "attributes": "dynamic",
        "event_name": "string",
        "dropped_attributes_count": "long",
        **_SHARED,
    },
)
SPANS = OtlpTable(
    "otel_spans",
    {
        "time": "timestamp",
        "start_time_unix_nano": "long",
        "end_time_unix_nano": "long",
        "duration_nano": "long",
        "trace_id": "string",
        "span_id": "string",
        "parent_span_id": "string",
        "trace_state": "string",
        "trace_flags": "int",
        "name": "string",
        "kind": "string",
        "status_code": "string",
        "status_message": "string",
        "attributes": "dynamic",
        "events": "dynamic",
        "links": "dynamic",
        "dropped_attributes_count": "long",
        "dropped_events_count": "long",
        "dropped_links_count": "long",
        **_SHARED,
    },
)
METRICS = OtlpTable(
    "otel_metrics",
    {
        "time": "timestamp",
        "time_unix_nano": "long",
        "start_time_unix_nano": "long",
        "name": "string",
        "description": "string",
        "unit": "string",
        "kind": "string",  # gauge, sum, histogram, exponential_histogram, summary
        "temporality": "string",
        "is_monotonic": "bool",
        "value": "real",
        "value_int": "long",  # of points that are whole numbers, exactly
        "count": "long",
        "sum": "real",
        "min": "real",
        "max": "real",
        "buckets": "dynamic",
        "quantiles": "dynamic",
        "exemplars": "dynamic",
        "attributes": "dynamic",
        "flags": "int",
        **_SHARED,
    },
)
