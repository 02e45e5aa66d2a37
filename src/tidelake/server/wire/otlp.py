"""Decode OTLP requests into Arrow: logs, traces and metrics, in compiled loops or, until those are ready, plainly.

``decode_logs`` and its siblings return a table and how many records were left out because their times are beyond what
can be stored. Both ways give equal tables; the plain one (``otlp_plain``) defines what is right, and has the last word
on what the loops leave to it. It does not know HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.runtime.compiling import HAS_COMPILER, is_ready
from tidelake.server.wire import otlp_plain
from tidelake.server.wire import proto_loops as loops
from tidelake.server.wire.columns import (
    Bytes,
    NotUtf8,
    Spans,
    dynamics,
    empty_spans,
    hex_texts,
    numbers,
    texts,
)
from tidelake.server.wire.otlp_tables import (
    LOGS,
    MAX_TIME_NS,
    METRICS,
    SPAN_KINDS,
    SPANS,
    STATUS_CODES,
    TEMPORALITIES,
)

Decoded: TypeAlias = tuple[pa.Table, int]  # and how many records were left out
_Decoder: TypeAlias = Callable[[bytes, int], Decoded]
MARKS = 1024
FEW_BYTES = 4 << 10  # of a body, which the plain reader has decoded before the loops are called
_NOTHING = np.zeros((0, 5), dtype=np.int64)
SERVICE_NAME = np.frombuffer(b"service.name", dtype=np.uint8)


class _LeftToPlain(Exception):
    """The loops leave this body to the plain reader."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which fields of a record become what."""

    numbers: tuple[int, ...]
    spans: tuple[int, ...]
    attributes: int
    repeated: tuple[int, ...] = ()

    def tables(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        actions, slots = np.zeros(loops.SLOTS, dtype=np.int64), np.zeros(loops.SLOTS, dtype=np.int64)
        for kind, fields in ((loops.NUMBER, self.numbers), (loops.BYTES, self.spans), (loops.REPEATED, self.repeated)):
            for slot, field in enumerate(fields):
                actions[field] = kind
                slots[field] = slot if kind != loops.BYTES else slot + len(self.numbers)
        actions[self.attributes] = loops.ATTRIBUTE
        return actions, slots


_NO_FIELD = 31  # that no message has

_RESOURCE = _Layout((), (), 1)
_SCOPE = _Layout((), (1, 2), 3)
_LOG = _Layout((1, 11, 2, 8, 7), (3, 5, 9, 10, 12), 6)
_SPAN = _Layout((7, 8, 6, 16, 10, 12, 14), (1, 2, 4, 3, 5, 15), 9, (11, 13))
_STATUS = _Layout((3,), (2,), _NO_FIELD)
_METRIC = _Layout((), (1, 2, 3, 5, 7, 9, 10, 11), _NO_FIELD)
_SERIES = _Layout((2, 3), (), _NO_FIELD, (1,))
_NUMBER_POINT = _Layout((2, 3, 4, 6, 8), (), 7, (5,))
_HISTOGRAM_POINT = _Layout((2, 3, 4, 5, 10, 11, 12), (), 9, (6, 7, 8))
_KIND_FIELDS = (5, 7, 9, 10, 11)  # of a metric, in the order of otlp_plain.KINDS
_HISTOGRAM_AT = 2
_BUCKET_NAMES = np.frombuffer(b"boundscounts", dtype=np.uint8)


@dataclass(slots=True)
class _Scanned:
    """The fields of some records."""

    layout: _Layout
    numbers: npt.NDArray[np.int64]
    seen: npt.NDArray[np.bool_]
    spans: npt.NDArray[np.int64]
    repeated: npt.NDArray[np.int64]
    attributes: pa.Array

    def number(self, field: int) -> npt.NDArray[np.int64]:
        return self.numbers[:, self.layout.numbers.index(field)]

    def span(self, field: int) -> Spans:
        return self.spans[:, self.layout.spans.index(field) + len(self.layout.numbers)]


def is_compiled() -> bool:
    """Whether the loops are ready in this process."""
    return HAS_COMPILER and is_ready(loops.scan) and is_ready(loops.envelope)


def decode_logs(body: bytes, received_ns: int) -> Decoded:
    """Decode an ExportLogsServiceRequest."""
    return _decoded("logs", body, received_ns)


def decode_spans(body: bytes, received_ns: int) -> Decoded:
    """Decode an ExportTraceServiceRequest."""
    return _decoded("spans", body, received_ns)


def decode_metrics(body: bytes, received_ns: int) -> Decoded:
    """Decode an ExportMetricsServiceRequest."""
    return _decoded("metrics", body, received_ns)


def decoded_in_loops(signal: str, body: bytes, received_ns: int) -> Decoded:
    """Decode a request in loops, whether they are compiled yet or not; what they leave alone, plainly."""
    fast, plain = _WAYS[signal]
    try:
        return fast(body, received_ns)
    except (_LeftToPlain, NotUtf8):
        return plain(body, received_ns)


def logs_together(body: bytes, received_ns: int) -> Decoded:
    """Decode requests of logs that stand one after another; InvalidInputError if the loops cannot do it alone."""
    return _together(_logs, body, received_ns)


def spans_together(body: bytes, received_ns: int) -> Decoded:
    """Decode requests of spans that stand one after another; InvalidInputError if the loops cannot do it alone."""
    return _together(_spans, body, received_ns)


def _together(fast: _Decoder, body: bytes, received_ns: int) -> Decoded:
    try:
        return fast(body, received_ns)
    except (_LeftToPlain, NotUtf8) as error:  # one of them: whose requests are plain ones must not wait for it
        raise InvalidInputError("the requests are to be decoded one by one", kind="one_by_one") from error


def count_records(body: bytes) -> int | None:
    """Return how many records a request has, if that is told fast; None if not. InvalidInputError if it is none.

    Requests that were counted may stand one after another, and are a request then.
    """
    if not is_compiled():
        return None
    counts = np.zeros(3, dtype=np.int64)
    _checked(loops.envelope(np.frombuffer(body, dtype=np.uint8), counts, _NOTHING, _NOTHING, _NOTHING))
    return int(counts[2])


def warm() -> None:
    """Compile the loops, or load them, by decoding a little."""
    if HAS_COMPILER:
        _logs(otlp_plain.sample_logs(), 1)
        _metrics(otlp_plain.sample_metrics(), 1)


def _decoded(signal: str, body: bytes, received_ns: int) -> Decoded:
    if len(body) > FEW_BYTES and is_compiled():
        return decoded_in_loops(signal, body, received_ns)
    return _WAYS[signal][1](body, received_ns)


def _checked(result: Any) -> int:
    if result == loops.BAD:
        raise InvalidInputError("the body is not such a protobuf message", kind="bad_protobuf")
    if result == loops.LEFT:
        raise _LeftToPlain
    return int(result)


@dataclass(slots=True)
class _Envelope:
    data: Bytes
    resources: npt.NDArray[np.int64]
    scopes: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]

    @property
    def scope_of(self) -> pa.Array:
        return pa.array(self.records[:, 2])

    @property
    def resource_of(self) -> pa.Array:
        return pa.array(self.scopes[self.records[:, 2], 4])


def _envelope(body: bytes) -> _Envelope:
    data = np.frombuffer(body, dtype=np.uint8)
    counts = np.zeros(3, dtype=np.int64)
    _checked(loops.envelope(data, counts, _NOTHING, _NOTHING, _NOTHING))
    resources, scopes, records = (np.zeros((int(count), 5), dtype=np.int64) for count in counts)
    resources[:, (1, 3)], scopes[:, (1, 3)] = -1, -1
    if len(records):
        _checked(loops.envelope(data, counts, resources, scopes, records))
    return _Envelope(data, resources, scopes, records)


def _scan(data: Bytes, records: npt.NDArray[np.int64], layout: _Layout) -> _Scanned:
    rows, columns = len(records), len(layout.numbers) + len(layout.spans)
    actions, slots = layout.tables()
    found = np.zeros((rows, max(1, len(layout.numbers))), dtype=np.int64)
    seen = np.zeros((rows, max(1, columns)), dtype=np.bool_)
    spans = np.zeros((rows, max(1, columns), 2), dtype=np.int64)
    spans[:, :, 1] = -1
    offsets = np.zeros(rows + 1, dtype=np.int64)
    size = int(np.maximum(records[:, 1] - records[:, 0], 0).sum())
    out = np.empty(_room(size, rows), dtype=np.uint8)
    marks, room = MARKS, max(16, rows) if layout.repeated else 1
    while True:
        repeated = np.zeros((room, 4), dtype=np.int64)
        count = loops.scan(
            data, records, actions, slots, found, seen, spans, repeated, out, offsets, np.zeros((marks, 4), np.int64)
        )
        if count != loops.FULL:
            break
        marks, room = marks * 8, room * 8
        if marks > len(data) * 8 + MARKS * 8:
            raise _LeftToPlain
    kept = repeated[: _checked(count)]
    return _Scanned(layout, found, seen, spans, kept, dynamics(out, offsets))


def _room(size: int, rows: int) -> int:
    """Return how many bytes of CBOR some bytes of values can become; see ``proto_loops.put``."""
    return size + size // 4 + rows * 9 + 16


def _shared_columns(held: _Envelope) -> dict[str, pa.Array]:
    """Return the columns that records have from their resource and scope."""
    data, resource_of, scope_of = held.data, held.resource_of, held.scope_of
    services = empty_spans(len(held.resources))
    _checked(loops.find_text(data, held.resources, 1, SERVICE_NAME, services))
    resources = _scan(data, held.resources, _RESOURCE)
    scopes = _scan(data, held.scopes, _SCOPE)
    return {
        "service_name": texts(data, services).take(resource_of),
        "resource": resources.attributes.take(resource_of),
        "scope_name": texts(data, scopes.span(1)).take(scope_of),
        "scope_version": texts(data, scopes.span(2)).take(scope_of),
        "scope": scopes.attributes.take(scope_of),
        "resource_schema_url": texts(data, held.resources[:, 2:4]).take(resource_of),
        "scope_schema_url": texts(data, held.scopes[:, 2:4]).take(scope_of),
    }


def _times(ns: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(ns // 1000).cast(pa.timestamp("us", "UTC"))


def _finished(columns: dict[str, pa.Array], schema: pa.Schema, is_kept: npt.NDArray[np.bool_]) -> Decoded:
    table = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
    left_out = int(len(is_kept) - is_kept.sum())
    return (table.filter(pa.array(is_kept)) if left_out else table), left_out


def _optional(values: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """Return numbers of which 0 stands for none."""
    return numbers(values, kind, values == 0)


def _logs(body: bytes, received_ns: int) -> Decoded:
    held = _envelope(body)
    found = _scan(held.data, held.records, _LOG)
    data, rows = held.data, len(held.records)
    time, observed = found.number(1), found.number(11)
    own = np.where(time != 0, time, np.where(observed != 0, observed, received_ns))
    is_kept = (own >= 0) & (own <= MAX_TIME_NS) & (time >= 0) & (observed >= 0)
    bodies, kinds = empty_spans(rows), np.zeros(rows, dtype=np.uint8)
    places = np.ascontiguousarray(found.span(5))
    size = int(np.maximum(places[:, 1] - places[:, 0], 0).sum())
    out, offsets = np.empty(_room(size, rows), dtype=np.uint8), np.zeros(rows + 1, dtype=np.int64)
    marks = MARKS
    while (
        result := loops.any_values(data, places, bodies, kinds, out, offsets, np.zeros((marks, 4), np.int64))
    ) == loops.FULL:
        marks *= 8
    _checked(result)
    columns = {
        "time": _times(np.where(is_kept, own, 0)),
        "time_unix_nano": _optional(time, pa.int64()),
        "observed_time_unix_nano": _optional(observed, pa.int64()),
        "trace_id": hex_texts(data, found.span(9)),
        "span_id": hex_texts(data, found.span(10)),
        "trace_flags": _optional(found.number(8) & 0x7FFFFFFF, pa.int32()),
        "severity_number": _optional(found.number(2), pa.int32()),
        "severity_text": texts(data, found.span(3)),
        "body": texts(data, bodies, blank_is_null=False),
        "body_value": dynamics(out, offsets),
        "attributes": found.attributes,
        "event_name": texts(data, found.span(12)),
        "dropped_attributes_count": _optional(found.number(7), pa.int64()),
        **_shared_columns(held),
    }
    return _finished(columns, LOGS.arrow, is_kept)


def _spans(body: bytes, received_ns: int) -> Decoded:
    held = _envelope(body)
    found = _scan(held.data, held.records, _SPAN)
    if len(found.repeated):
        raise _LeftToPlain
    data = held.data
    start, end = found.number(7), found.number(8)
    own = np.where(start != 0, start, np.where(end != 0, end, received_ns))
    is_kept = (own >= 0) & (own <= MAX_TIME_NS) & (start >= 0) & (end >= 0)
    status = found.span(15)
    states = _scan(data, np.ascontiguousarray(np.hstack([status, status[:, :1]])), _STATUS)
    columns = {
        "time": _times(np.where(is_kept, own, 0)),
        "start_time_unix_nano": _optional(start, pa.int64()),
        "end_time_unix_nano": _optional(end, pa.int64()),
        "duration_nano": numbers(end - start, pa.int64(), (start == 0) | (end == 0)),
        "trace_id": hex_texts(data, found.span(1)),
        "span_id": hex_texts(data, found.span(2)),
        "parent_span_id": hex_texts(data, found.span(4)),
        "trace_state": texts(data, found.span(3)),
        "trace_flags": _optional(found.number(16) & 0x7FFFFFFF, pa.int32()),
        "name": texts(data, found.span(5)),
        "kind": _named(found.number(6), SPAN_KINDS),
        "status_code": _named(states.number(3), STATUS_CODES),
        "status_message": texts(data, states.span(2)),
        "attributes": found.attributes,
        "events": pa.nulls(len(held.records), pa.binary()),
        "links": pa.nulls(len(held.records), pa.binary()),
        "dropped_attributes_count": _optional(found.number(10), pa.int64()),
        "dropped_events_count": _optional(found.number(12), pa.int64()),
        "dropped_links_count": _optional(found.number(14), pa.int64()),
        **_shared_columns(held),
    }
    return _finished(columns, SPANS.arrow, is_kept)


def _named(codes: npt.NDArray[np.int64], names: tuple[str, ...]) -> pa.Array:
    """Return the names of an enumeration; a number that has none is the first."""
    known = np.where((codes >= 0) & (codes < len(names)), codes, 0)
    return pa.array(names).take(pa.array(known))


def _metrics(body: bytes, received_ns: int) -> Decoded:
    held = _envelope(body)
    data, metrics = held.data, _scan(held.data, held.records, _METRIC)
    kinds = np.stack([metrics.span(field)[:, 1] >= 0 for field in _KIND_FIELDS], axis=1)
    if kinds[:, 3:].any() or (kinds.sum(axis=1) > 1).any():  # rare kinds, or several in one
        raise _LeftToPlain
    kind = np.where(kinds.any(axis=1), kinds.argmax(axis=1), -1)
    places = np.full((len(kind), 3), -1, dtype=np.int64)
    for at, field in enumerate(_KIND_FIELDS):
        places[kind == at, :2] = metrics.span(field)[kind == at]
    series = _scan(data, places, _SERIES)
    points = np.ascontiguousarray(series.repeated[:, (2, 3, 0)])
    is_number = kind[points[:, 2]] < _HISTOGRAM_AT
    parts = [_number_points(data, points[is_number], received_ns), _histograms(data, points[~is_number], received_ns)]
    order = np.argsort(np.concatenate([np.flatnonzero(is_number), np.flatnonzero(~is_number)]), kind="stable")
    own = {
        name: pa.concat_arrays([part[0][name] for part in parts]).take(pa.array(order)) for name in parts[0][0]
    }  # in the order in which they came
    is_kept = np.concatenate([part[1] for part in parts])[order]
    of = points[:, 2]
    metric_of, temporality = pa.array(of), _named(series.number(2), TEMPORALITIES)
    shared = {name: array.take(metric_of) for name, array in _shared_columns(held).items()}
    columns = {
        "name": texts(data, metrics.span(1)).take(metric_of),
        "description": texts(data, metrics.span(2)).take(metric_of),
        "unit": texts(data, metrics.span(3)).take(metric_of),
        "kind": pa.array(otlp_plain.KINDS).take(pa.array(np.maximum(kind, 0)[of])),
        "temporality": pc.if_else(pa.array(kind[of] > 0), temporality.take(metric_of), pa.scalar(None, pa.utf8())),
        "is_monotonic": pa.array(series.number(3)[of] != 0, mask=kind[of] != 1),
        "quantiles": pa.nulls(len(of), pa.binary()),
        "exemplars": pa.nulls(len(of), pa.binary()),
        **own,
        **shared,
    }
    return _finished(columns, METRICS.arrow, is_kept)


_Points: TypeAlias = tuple[dict[str, pa.Array], npt.NDArray[np.bool_]]


def _point_columns(found: _Scanned, received_ns: int, flags: int) -> _Points:
    """Return the columns that points of all kinds have, and which of them have times that can be stored."""
    time, start = found.number(3), found.number(2)
    own = np.where(time != 0, time, np.where(start != 0, start, received_ns))
    is_kept = (own >= 0) & (own <= MAX_TIME_NS) & (time >= 0) & (start >= 0)
    return {
        "time": _times(np.where(is_kept, own, 0)),
        "time_unix_nano": _optional(time, pa.int64()),
        "start_time_unix_nano": _optional(start, pa.int64()),
        "attributes": found.attributes,
        "flags": _optional(found.number(flags) & 0x7FFFFFFF, pa.int32()),
    }, is_kept


def _seen(found: _Scanned, field: int) -> npt.NDArray[np.bool_]:
    return found.seen[:, found.layout.numbers.index(field)]


def _real(found: _Scanned, field: int) -> pa.Array:
    """Return doubles, which were read as their bits, where there are any."""
    bits = np.ascontiguousarray(found.number(field))
    return numbers(bits.view(np.float64), pa.float64(), ~_seen(found, field))


def _number_points(data: Bytes, points: npt.NDArray[np.int64], received_ns: int) -> _Points:
    found = _scan(data, points, _NUMBER_POINT)
    is_int, is_real = _seen(found, 6), _seen(found, 4)
    if len(found.repeated) or (is_int & is_real).any():
        raise _LeftToPlain
    columns, is_kept = _point_columns(found, received_ns, 8)
    whole = found.number(6)
    reals = np.where(is_int, whole.astype(np.float64), np.ascontiguousarray(found.number(4)).view(np.float64))
    nothing = pa.nulls(len(points), pa.float64())
    return columns | {
        "value": numbers(reals, pa.float64(), ~(is_int | is_real)),
        "value_int": numbers(whole, pa.int64(), ~is_int),
        "count": pa.nulls(len(points), pa.int64()),
        "sum": nothing, "min": nothing, "max": nothing,
        "buckets": pa.nulls(len(points), pa.binary()),
    }, is_kept  # fmt: skip


def _histograms(data: Bytes, points: npt.NDArray[np.int64], received_ns: int) -> _Points:
    found = _scan(data, points, _HISTOGRAM_POINT)
    rows, slots = found.repeated[:, 0], found.repeated[:, 1]
    if (slots == 2).any() or len(np.unique(rows * 2 + slots)) < len(rows):  # exemplars, or lists in pieces
        raise _LeftToPlain
    counts, bounds = empty_spans(len(points)), empty_spans(len(points))
    for slot, spans in ((0, counts), (1, bounds)):
        spans[rows[slots == slot]] = found.repeated[slots == slot, 2:4]
    size = int(np.maximum(counts[:, 1] - counts[:, 0], 0).sum() + np.maximum(bounds[:, 1] - bounds[:, 0], 0).sum())
    out, offsets = np.empty(size + size // 4 + len(points) * 40 + 16, np.uint8), np.zeros(len(points) + 1, np.int64)
    _checked(loops.put_buckets(data, bounds, counts, _BUCKET_NAMES, out, offsets))
    columns, is_kept = _point_columns(found, received_ns, 10)
    return columns | {
        "value": pa.nulls(len(points), pa.float64()),
        "value_int": pa.nulls(len(points), pa.int64()),
        "count": numbers(found.number(4), pa.int64()),
        "sum": _real(found, 5), "min": _real(found, 11), "max": _real(found, 12),
        "buckets": dynamics(out, offsets),
    }, is_kept  # fmt: skip


_WAYS: dict[str, tuple[_Decoder, _Decoder]] = {
    "logs": (_logs, otlp_plain.decode_logs),
    "spans": (_spans, otlp_plain.decode_spans),
    "metrics": (_metrics, otlp_plain.decode_metrics),
}
