"""Read what Prometheus asks by remote read, and write samples as it reads them.

Answers are samples, which every client of the protocol takes; chunks are an offer to clients, and are not made here.
Samples are written whole series at a time. It does not read tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import cramjam
import numpy as np

from tidelake.errors import InvalidInputError, UnavailableError
from tidelake.query.promql.selecting import Condition, Conditions
from tidelake.query.promql.vectors import Samples
from tidelake.server.flight_words import message, varint
from tidelake.server.protocols.protobuf import Field, Message

MOST_QUERIES = 64
SIGNS = ("=", "!=", "=~", "!~")
_SIX_BYTES = (1 << 35, 1 << 42)  # times, in milliseconds, that are written in six bytes: 1971 to 2109


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """Which series, and between which times, both included."""

    start_ms: int
    end_ms: int
    conditions: Conditions


def read_queries(body: bytes) -> list[ReadQuery]:
    """Read a request."""
    found = [_query(each) for each in Message(body).fields() if each.number == 1]
    if not 0 < len(found) <= MOST_QUERIES:
        raise InvalidInputError("a request has some queries", queries=len(found), most=MOST_QUERIES, kind="bad_data")
    return found


def written_results(results: Iterable[Samples | None], most_bytes: int) -> bytes:
    """Write an answer, compressed; one that would be too large is refused."""
    parts, size = [], 0
    for samples in results:
        series = [] if samples is None else [_series(samples, at) for at in range(len(samples.labels))]
        parts.append(_repeated(1, series))
        size += len(parts[-1])
        if size > most_bytes:
            raise UnavailableError("the samples are more than the budget: ask for fewer", kind="result_budget")
    return bytes(cramjam.snappy.compress_raw(_repeated(1, parts)))


def _query(told: Field) -> ReadQuery:
    start = end = 0
    conditions = []
    for each in told.fields():
        if each.number == 1:
            start = each.signed()
        elif each.number == 2:
            end = each.signed()
        elif each.number == 3:
            conditions.append(_condition(each))
    if end < start:
        raise InvalidInputError("the end is before the start", kind="bad_data")
    return ReadQuery(start, end, tuple(conditions))


def _condition(told: Field) -> Condition:
    kind, name, value = 0, "", ""
    for each in told.fields():
        if each.number == 1:
            kind = each.unsigned()
        elif each.number == 2:
            name = each.text()
        elif each.number == 3:
            value = each.text()
    if kind >= len(SIGNS):
        raise InvalidInputError("a matcher of no known kind", kind="bad_data")
    return Condition(name, SIGNS[kind], value)


def _series(samples: Samples, at: int) -> bytes:
    """Write one series: its labels by their names, then its samples."""
    labels = samples.labels
    pairs = sorted(
        (name, text)
        for name, code in zip(labels.names, labels.codes[at], strict=True)
        if (text := labels.words.texts[int(code)])
    )
    head = _repeated(1, [message({1: name.encode(), 2: text.encode()}) for name, text in pairs])
    first, end = int(samples.first[at]), int(samples.first[at + 1])
    return head + _samples(samples.times_ms[first:end], samples.values[first:end])


def _samples(times_ms: np.ndarray, values: np.ndarray) -> bytes:
    """Write samples, a value of eight bytes and a time each."""
    low, high = _SIX_BYTES
    if len(times_ms) and low <= times_ms.min() and times_ms.max() < high:
        rows = np.empty((len(times_ms), 18), np.uint8)
        rows[:, :3] = (0x12, 16, 0x09)  # a field of 16 bytes, in which the first is the value
        rows[:, 3:11] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)
        rows[:, 11] = 0x10
        for place in range(6):
            rows[:, 12 + place] = (times_ms >> (7 * place)) & 127 | (128 if place < 5 else 0)
        return rows.tobytes()
    parts = []
    for time, value in zip(times_ms.tolist(), values.tolist(), strict=True):
        own = b"\x09" + np.float64(value).tobytes() + b"\x10" + bytes(varint(time & (1 << 64) - 1))
        parts.append(own)
    return _repeated(2, parts)


def _repeated(number: int, parts: Sequence[bytes]) -> bytes:
    key = bytes(varint(number << 3 | 2))
    return b"".join(key + bytes(varint(len(part))) + part for part in parts)
