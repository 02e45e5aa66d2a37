"""Take samples from Prometheus and its kin: ``POST /api/v1/write``, remote write 1.0 and 2.0.

Samples go to ``prom_samples``: a time, the metric's name, its labels, the value. Native histograms go to
``prom_histograms``, exemplars to ``prom_exemplars``, what is told of metrics to ``prom_metadata``; each is made when
its first row comes. A series that has no name or a label twice, or a histogram whose buckets are not its count, is
left out and told with 400, after all others are in, as the protocol wants it. A stale marker is kept to the bit. It
does not answer questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.dynamic.values import encode
from tidelake.errors import InvalidInputError
from tidelake.model.schema import DYNAMIC_FIELD
from tidelake.runtime.deferred import deferred
from tidelake.server.call import Answer, Call, Load, Outcome, Route, Shape, Work
from tidelake.server.protocols import protobuf
from tidelake.server.refusals import Failure, Unsupported

loops: Any = deferred("tidelake.server.wire.remote_write")

SAMPLES = Shape({"ts": "timestamp", "name": "string", "labels": "dynamic", "value": "real"}, "ts")
HISTOGRAMS = Shape({"ts": "timestamp", "name": "string", "labels": "dynamic", "histogram": "dynamic"}, "ts")
EXEMPLARS = Shape(
    {"ts": "timestamp", "name": "string", "labels": "dynamic", "exemplar": "dynamic", "value": "real"}, "ts"
)
METADATA = Shape({"ts": "timestamp", "name": "string", "kind": "string", "help": "string", "unit": "string"}, "ts")
ENCODING = "snappy"  # blocks
FIRST, SECOND = "prometheus.WriteRequest", "io.prometheus.write.v2.Request"
USER_HEADER = "x-tidelake-user"
MAX_SHOWN = 5  # of the series that are left out
MAX_TOLD = 100_000  # metrics whose description is remembered as written

_KINDS = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
_MOST_MS = 2**63 // 1000
_WRONG = {-1: "it ends too early", -2: "it is not protobuf", -3: "a label is no symbol of it"}
_FAULTS = {1: "no metric name", 2: "a label without a name", 3: "a label that is there twice"}
_DYNAMIC = pa.binary()
_ONE_SAMPLE = b"\x0a\x1c\x0a\x0d\x0a\x08__name__\x12\x01m\x12\x0b\x09" + bytes(8) + b"\x10\x01"

Numbers = npt.NDArray[np.int64]
_Told: TypeAlias = "tuple[tuple[str, str], tuple[str, ...]]"  # a table and whose, and what was told of a metric
_told: set[_Told] = set()  # by this process, and durable


@dataclass(frozen=True, slots=True)
class _Series:
    """The series of a message: names and labels as columns, and what is wrong with each."""

    names: pa.Array
    labels: pa.Array
    faults: Numbers


def decode_write(call: Call) -> Work:
    """Decode a message of either version."""
    is_second = _version_of(call) == SECOND
    data = np.frombuffer(call.body, np.uint8)
    counts = np.zeros(7, np.int64)
    _check(loops.survey(data, is_second, counts))
    symbols, starts = np.zeros((counts[3], 2), np.int64), np.zeros(counts[0] + 1, np.int64)
    labels = np.zeros((counts[1] + 1, 4), np.int64)
    owners, values, times = (np.zeros(counts[2], np.int64) for _ in range(3))
    others = np.zeros((counts[4] + counts[5] + counts[6], 4), np.int64)
    _check(loops.walk(data, is_second, symbols, starts, labels, owners, values, times, others))
    series = _series_of(data, starts, labels)
    symbol_at = partial(_symbol, call.body, symbols)
    found = protobuf.Message(call.body)
    rows = {kind: [row for row in others.tolist() if row[0] == kind] for kind in (4, 5, 6)}
    loads, written = list[Load](), [0, 0, 0]
    histograms, wrong = _histograms(series, found, rows[4])
    for at, (name, shape, batch) in enumerate(
        (
            ("prom_samples", SAMPLES, _samples(series, owners, values, times)),
            ("prom_histograms", HISTOGRAMS, histograms),
            ("prom_exemplars", EXEMPLARS, _exemplars(series, found, rows[5], is_second, symbol_at)),
        )
    ):
        written[at] = batch.num_rows
        if batch.num_rows:
            loads.append(Load(call.table(name), batch, batch.num_rows, shape))
    place = (call.table("prom_metadata"), call.headers.get(USER_HEADER, ""))
    fresh = [each for each in _metadata(series, found, rows[6], is_second, symbol_at) if (place, each) not in _told]
    if fresh:
        loads.append(Load(place[0], _metadata_rows(fresh, call.received_us), len(fresh), METADATA))
    return Work(
        loads, partial(_answer, is_second, written, _left_out(series, wrong), [(place, each) for each in fresh])
    )


def warm() -> None:
    """Compile the loops, or load them, by decoding a sample."""
    decode_write(Call(_ONE_SAMPLE, {}))


def refuse(call: Call, failure: Failure) -> Answer:
    """Tell a failure as text, which is what senders log; in the second version with how much went in, which is none."""
    headers = dict(failure.headers)
    if _proto_of(call) == SECOND:
        headers |= _written([0, 0, 0])
    return Answer(failure.status, failure.message.encode(), "text/plain; charset=utf-8", headers)


def _answer(
    is_second: bool, written: Sequence[int], left_out: str, told: Sequence[_Told], outcomes: Sequence[Outcome]
) -> Answer:
    if len(_told) > MAX_TOLD:
        _told.clear()
    _told.update(told)  # they are in, and senders repeat them with every message
    headers = _written(written) if is_second else {}
    if left_out:
        return Answer(400, left_out.encode(), "text/plain; charset=utf-8", headers)
    return Answer(204, headers=headers)


def _written(counts: Sequence[int]) -> dict[str, str]:
    kinds = ("samples", "histograms", "exemplars")
    return {f"x-prometheus-remote-write-{kind}-written": str(n) for kind, n in zip(kinds, counts, strict=True)}


def _version_of(call: Call) -> str:
    if call.headers.get("content-encoding", "snappy").strip().lower() != "snappy":
        raise Unsupported("remote write is compressed with snappy", encoding=call.headers["content-encoding"][:40])
    if call.content_type not in ("", "application/x-protobuf"):
        raise Unsupported("remote write is protobuf", content_type=call.content_type[:80])
    proto = _proto_of(call)
    if proto not in (FIRST, SECOND):
        raise Unsupported("a message of remote write that is not known", proto=proto[:80])
    return proto


def _proto_of(call: Call) -> str:
    parameters = call.headers.get("content-type", "").split(";")[1:]
    named = (part.partition("=") for part in parameters)
    return next((value.strip().strip('"') for name, _, value in named if name.strip().lower() == "proto"), FIRST)


def _check(code: int) -> None:
    if code:
        raise InvalidInputError(
            "the body is no remote write", reason=_WRONG.get(code, "it is damaged"), kind="bad_body"
        )


def _series_of(data: npt.NDArray[np.uint8], starts: Numbers, labels: Numbers) -> _Series:
    count = len(starts) - 1
    sizes = labels[: starts[-1], 1] + labels[: starts[-1], 3]
    out = np.empty(int(sizes.sum()) + 10 * len(sizes) + 5 * count, np.uint8)
    names = np.empty(int(sizes.sum()), np.uint8)
    if len(out) > np.iinfo(np.int32).max:
        raise InvalidInputError("the labels are too large", kind="too_large")
    ends, name_ends = (np.zeros(count + 1, np.int32) for _ in range(2))
    faults = np.zeros(count, np.int64)
    is_wide = loops.write_labels(data, starts, labels, out, ends, names, name_ends, faults)
    if is_wide:
        _check_texts(data, labels[: starts[-1]])
    return _Series(
        pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(name_ends), pa.py_buffer(names)]),
        pa.Array.from_buffers(_DYNAMIC, count, [None, pa.py_buffer(ends), pa.py_buffer(out)]),
        faults,
    )


def _check_texts(data: npt.NDArray[np.uint8], labels: Numbers) -> None:
    """Refuse labels that are not UTF-8; asked only where a byte is beyond ASCII."""
    body = data.tobytes()
    try:
        for place, size in {(int(row[half]), int(row[half + 1])) for row in labels for half in (0, 2)}:
            body[place : place + size].decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("a label is not UTF-8", kind="bad_body") from error


def _samples(series: _Series, owners: Numbers, values: Numbers, times: Numbers) -> pa.RecordBatch:
    kept = series.faults[owners] == 0
    if not kept.all():
        owners, values, times = owners[kept], values[kept], times[kept]
    is_each_once = len(owners) == len(series.faults) and bool((np.diff(owners) == 1).all())
    names, labels = series.names, series.labels
    if not is_each_once:
        chosen = pa.array(owners)
        names, labels = names.take(chosen), labels.take(chosen)
    return _batch(SAMPLES, [_instants(times), names, labels, pa.array(values.view(np.float64))])


def _instants(times_ms: Numbers) -> pa.Array:
    if len(times_ms) and (times_ms.max() >= _MOST_MS or times_ms.min() <= -_MOST_MS):
        raise InvalidInputError("a time is out of range", kind="bad_time")
    return pa.array(times_ms * 1000, pa.timestamp("us", tz="UTC"))


def _batch(shape: Shape, columns: Sequence[pa.Array]) -> pa.RecordBatch:
    fields = [
        pa.field(name, column.type, metadata=DYNAMIC_FIELD if kind == "dynamic" else None)
        for (name, kind), column in zip(shape.columns.items(), columns, strict=True)
    ]
    return pa.record_batch(list(columns), schema=pa.schema(fields))


def _histograms(
    series: _Series, found: protobuf.Message, rows: Sequence[Sequence[int]]
) -> tuple[pa.RecordBatch, list[str]]:
    """Return native histograms, and what is wrong with those that are left out."""
    owners, times, values, wrong = list[int](), list[int](), list[bytes](), list[str]()
    for _, owner, place, size in rows:
        if series.faults[owner] == 0:
            told = _histogram(found.fields(place, size))
            if (fault := _fault_of(told)) is not None:
                wrong.append(f"a histogram of series {owner}: {fault}")
                continue
            owners.append(owner)
            times.append(told.pop("timestamp", 0))
            values.append(encode(told))
    return _of_series(HISTOGRAMS, series, owners, times, [pa.array(values, _DYNAMIC)]), wrong


def _fault_of(told: Mapping[str, Any]) -> str | None:
    """Return why a native histogram cannot be one, if so; counts that are reals are not summed, as they are rounded."""
    buckets = 0
    for sign in ("positive", "negative"):
        deltas, counts = told.get(f"{sign}_deltas", []), told.get(f"{sign}_counts", [])
        if sum(span["length"] for span in told.get(f"{sign}_spans", [])) != max(len(deltas), len(counts)):
            return "its spans and its buckets differ in number"
        held = list(accumulate(deltas))
        if min(held, default=0) < 0 or min(counts, default=0) < 0:
            return "a bucket has less than nothing"
        buckets += sum(held)
    if isinstance(told.get("count", 0.0), float):
        return None
    counted, sum_of_all = buckets + told.get("zero_count", 0), told.get("sum", 0.0)
    if counted > told["count"] or (counted < told["count"] and not math.isnan(sum_of_all)):  # NaNs are in no bucket
        return "its count is not that of its buckets"
    return None


def _exemplars(
    series: _Series, found: protobuf.Message, rows: Sequence[Sequence[int]], is_second: bool, symbol: Any
) -> pa.RecordBatch:
    owners, times, labels, values = list[int](), list[int](), list[bytes](), list[float]()
    for _, owner, place, size in rows:
        if series.faults[owner]:
            continue
        own: dict[str, str] = {}
        value, at_ms = 0.0, 0
        references: list[int] = []
        for field in found.fields(place, size):
            if field.number == 1 and is_second:
                references += field.numbers()
            elif field.number == 1:
                pair = {part.number: part.text() for part in field.fields()}
                own[pair.get(1, "")] = pair.get(2, "")
            elif field.number == 2:
                value = field.double()
            elif field.number == 3:
                at_ms = field.signed()
        texts = [symbol(reference) for reference in references]
        own |= dict(zip(texts[::2], texts[1::2], strict=False))
        owners.append(owner)
        times.append(at_ms)
        labels.append(encode(own))
        values.append(value)
    return _of_series(EXEMPLARS, series, owners, times, [pa.array(labels, _DYNAMIC), pa.array(values, pa.float64())])


def _of_series(
    shape: Shape, series: _Series, owners: Sequence[int], times_ms: Sequence[int], columns: Sequence[pa.Array]
) -> pa.RecordBatch:
    chosen = pa.array(owners, pa.int64())
    times = _instants(np.array(times_ms, np.int64))
    return _batch(shape, [times, series.names.take(chosen), series.labels.take(chosen), *columns])


def _metadata(
    series: _Series, found: protobuf.Message, rows: Sequence[Sequence[int]], is_second: bool, symbol: Any
) -> list[tuple[str, ...]]:
    """Return name, kind, help and unit of metrics, in the order they come, each once."""
    told: dict[tuple[str, ...], None] = {}
    for _, owner, place, size in rows:
        kind, texts = 0, {"name": "", "help": "", "unit": ""}
        for field in found.fields(place, size):
            if field.number == 1:
                kind = field.signed()
            elif is_second and field.number in (3, 4):
                texts["help" if field.number == 3 else "unit"] = symbol(field.signed())
            elif not is_second and field.number in (2, 4, 5):
                texts[{2: "name", 4: "help", 5: "unit"}[field.number]] = field.text()
        if is_second and not series.faults[owner]:
            texts["name"] = series.names[owner].as_py()
        if texts["name"] and (kind or texts["help"] or texts["unit"]):
            named = _KINDS[kind] if 0 <= kind < len(_KINDS) else "unknown"
            told[texts["name"], named, texts["help"], texts["unit"]] = None
    return list(told)


def _metadata_rows(told: Sequence[tuple[str, ...]], at_us: int) -> pa.RecordBatch:
    columns = [pa.array(column, pa.string()) for column in zip(*told, strict=True)]
    return _batch(METADATA, [pa.array([at_us] * len(told), pa.timestamp("us", tz="UTC")), *columns])


def _symbol(body: bytes, symbols: Numbers, reference: int) -> str:
    if not 0 <= reference < len(symbols):
        _check(-3)
    place, size = symbols[reference].tolist()
    return protobuf.text_of(body[place : place + size])


def _histogram(fields: Iterator[protobuf.Field]) -> dict[str, Any]:
    """Return a native histogram as a map: buckets as the protocol has them, spans and deltas or counts."""
    told: dict[str, Any] = {}
    for field in fields:
        match field.number:
            case 1:
                told["count"] = field.unsigned()
            case 6:
                told["zero_count"] = field.unsigned()
            case 2 | 3 | 5 | 7:
                told[{2: "count", 3: "sum", 5: "zero_threshold", 7: "zero_count"}[field.number]] = field.double()
            case 4:
                told["schema"] = field.zigzag()
            case 8 | 11:
                pair = {part.number: part for part in field.fields()}
                span = {
                    "offset": pair[1].zigzag() if 1 in pair else 0,
                    "length": pair[2].signed() if 2 in pair else 0,
                }
                told.setdefault("negative_spans" if field.number == 8 else "positive_spans", []).append(span)
            case 9 | 12:
                name = "negative_deltas" if field.number == 9 else "positive_deltas"
                told.setdefault(name, []).extend(protobuf.unzigzag(each) for each in field.numbers())
            case 10 | 13 | 16:
                name = {10: "negative_counts", 13: "positive_counts", 16: "custom_values"}[field.number]
                told.setdefault(name, []).extend(field.doubles())
            case 14:
                told["reset_hint"] = field.signed()
            case 15:
                told["timestamp"] = field.signed()
            case _:
                continue
    return told


def _left_out(series: _Series, wrong: Sequence[str]) -> str:
    (bad,) = np.nonzero(series.faults)
    said = []
    if len(bad):
        shown = ", ".join(f"series {at}: {_FAULTS[int(series.faults[at])]}" for at in bad[:MAX_SHOWN].tolist())
        said.append(f"{len(bad)} of {len(series.faults)} series were left out: {shown}")
    if wrong:
        said.append(f"{len(wrong)} histograms were left out: {', '.join(wrong[:MAX_SHOWN])}")
    return "; ".join(said)


def check_head(call: Call) -> None:
    """Refuse what is not remote write by its head, whatever the body is: as the protocol wants it, with 415."""
    _version_of(call)
    encoding = call.headers.get("content-encoding", ENCODING).strip().lower()
    if encoding != ENCODING:
        raise Unsupported("remote write is compressed by snappy", encoding=encoding[:40])


ROUTES = (Route("/api/v1/write", decode_write, refuse=refuse, is_once=True, encoding=ENCODING, check=check_head),)
