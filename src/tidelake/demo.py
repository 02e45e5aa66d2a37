"""Show what an extent does with a day of logs: write it, lay it open, and search it while reading little.

The rows are made up, seeded, and look like those of a small shop's services: one of them runs out of memory in the
afternoon, another runs as a canary in the morning. Every search is answered twice, from the blocks that survive pruning
and from all blocks, and the two answers must be equal. It does not show tables or commits: an extent is all there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidelake import dynamic
from tidelake.errors import CorruptError
from tidelake.format import ExtentReader, SegmentFormat, segment_format
from tidelake.inspect import anatomy, inspect_extent, size_text
from tidelake.objects import Buffers, ObjectStore, Range, Tail, open_store
from tidelake.predicate import (
    And,
    DynamicPathExists,
    Equals,
    Predicate,
    StringContains,
    StringHas,
    TimeRange,
    columns_of,
    text_holds,
)
from tidelake.schema import Schema

ROWS = 1 << 20  # sixteen blocks: enough to see some of them skipped
KEY = "demo.tlm"
SEED = 20260314
DAY_US = 1_773_446_400_000_000  # 2026-03-14 UTC
HOUR_US = 3_600_000_000

SCHEMA = Schema.of(
    {
        "ts": "timestamp",
        "service": "string",
        "level": "string",
        "host": "string",
        "status": "int",
        "duration_ms": "real",
        "bytes": "long",
        "request_id": "string",
        "message": "string",
        "attributes": "dynamic",
    }
)

_SERVICES = ("gateway", "auth", "checkout", "payments", "search", "inventory", "mailer")
_CANARY = "checkout-canary"
# level, status, and the message around a number
_EVENTS: tuple[tuple[str, int, str, str], ...] = (
    ("INFO", 200, "GET /api/v2/cart answered in", "ms"),
    ("INFO", 200, "GET /api/v2/items answered in", "ms"),
    ("INFO", 201, "POST /api/v2/orders created order", "for a returning customer"),
    ("INFO", 200, "user", "signed in with a passkey"),
    ("INFO", 200, "cache refreshed,", "entries kept"),
    ("INFO", 204, "health check passed, uptime", "s"),
    ("DEBUG", 200, "connection pool has", "idle connections"),
    ("DEBUG", 200, "retry budget left:", "tokens"),
    ("WARN", 429, "rate limit reached for client", "backing off"),
    ("WARN", 404, "no such item", "was it sold out?"),
    ("WARN", 200, "slow query, scanned", "rows"),
    ("ERROR", 502, "upstream closed the connection after", "bytes"),
    ("ERROR", 504, "timeout waiting for payments, attempt", "of 5"),
)
_MEMORY_EVENTS: tuple[tuple[str, int, str, str], ...] = (
    ("ERROR", 500, "java.lang.OutOfMemoryError: Java heap space, live set", "MiB"),
    ("FATAL", 500, "container exceeded its memory limit, OOMKilled with exit code", "and restarted"),
)
_WEIGHTS = np.array([20, 18, 6, 9, 6, 8, 12, 6, 3, 4, 3, 2, 2], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one search found, and what it had to read."""

    rows: int
    blocks: tuple[int, ...]
    byte_count: int
    seconds: float


def run_demo(folder: str, console: Console, *, rows: int = ROWS) -> None:
    """Write the extent into a folder, print its anatomy, and search it."""
    store, format = open_store(folder), segment_format("tlm")
    with console.status("making and writing a day of logs …"):
        batches = list(log_batches(rows))
        began = time.perf_counter()
        write_extent(format, store, batches)
        seconds = time.perf_counter() - began
    console.print(f"[bold]A day of logs as one extent[/bold], {rows:,} rows written in {seconds:.1f} s\n")
    report = inspect_extent(store, KEY)
    console.print(anatomy(report))
    footer = size_text(report.footer_bytes)
    console.print(f"\n[bold]Searching it[/bold]: the footer first ({footer}), then only blocks that may match\n")
    console.print(_funnel(store, format, questions(batches), len(report.blocks), report.byte_size))
    console.print("\nReading every block gives the same rows for each of them.")
    console.print("Look closer:", Text(f"tidelake inspect {folder}/{KEY}", style="cyan"))


def log_batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Make up a day of log rows, in time order."""
    rng = np.random.default_rng(SEED)
    times = DAY_US + np.sort(rng.integers(0, 24 * HOUR_US, rows))
    for start in range(0, rows, 1 << 17):
        yield _batch(rng, times[start : start + (1 << 17)])


def write_extent(format: SegmentFormat, store: ObjectStore, batches: Sequence[pa.RecordBatch]) -> None:
    """Write rows as one extent."""
    writer = format.start_extent(store, KEY, SCHEMA, extent_id="demo")
    for batch in batches:
        writer.append(batch)
    writer.finish()


def questions(batches: Sequence[pa.RecordBatch]) -> tuple[Predicate, ...]:
    """Give searches of every kind; one asks for the request id of a row near the end of the day."""
    request_id = batches[-1].column("request_id")[-1000].as_py()
    afternoon = TimeRange("ts", (DAY_US + 14 * HOUR_US) * 1000, (DAY_US + 15 * HOUR_US) * 1000)
    return (
        afternoon,
        Equals("service", _CANARY),
        StringContains("message", "oom"),
        And((afternoon, StringContains("message", "outofmem"))),
        DynamicPathExists("attributes", "heap.dump"),
        StringHas("request_id", request_id),
        Equals("service", "billing"),
    )


def search(store: ObjectStore, format: SegmentFormat, predicate: Predicate, *, prune: bool = True) -> Answer:
    """Count the rows that satisfy a predicate, reading only its columns and only blocks that may match."""
    meter = _Meter(store)
    began = time.perf_counter()
    reader: ExtentReader = format.open_extent(cast(ObjectStore, meter), KEY)
    blocks = reader.pruned_blocks(predicate if prune else None)
    wanted = sorted(columns_of(predicate))
    rows = sum(_true_rows(reader.read_block(block, wanted), predicate) for block in blocks)
    return Answer(rows, tuple(blocks), meter.byte_count, time.perf_counter() - began)


class _Meter:
    """A store that counts the bytes it gives."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.byte_count = 0

    def get_range(self, key: str, start: int, length: int) -> pa.Buffer:
        self.byte_count += length
        return self._inner.get_range(key, start, length)

    def get_ranges(self, key: str, ranges: Sequence[Range]) -> Buffers:
        self.byte_count += sum(length for _, length in ranges)
        return self._inner.get_ranges(key, ranges)

    def get_tail(self, key: str, length: int) -> Tail:
        tail = self._inner.get_tail(key, length)
        self.byte_count += tail.data.size
        return tail


def _funnel(
    store: ObjectStore, format: SegmentFormat, asked: Sequence[Predicate], blocks: int, byte_size: int
) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold cyan")
    table.add_column("where")
    table.add_column("blocks read", no_wrap=True)
    for heading in ("", f"bytes of {size_text(byte_size)}", "", "rows", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for predicate in asked:
        answer, check = search(store, format, predicate), search(store, format, predicate, prune=False)
        if answer.rows != check.rows:
            raise CorruptError("pruning lost rows", where=predicate, pruned=answer.rows, unpruned=check.rows)
        table.add_row(
            Text(repr(predicate)),
            Text("".join("■" if block in answer.blocks else "·" for block in range(blocks)), style="green"),
            f"{len(answer.blocks)} of {blocks}",
            size_text(answer.byte_count),
            f"{answer.byte_count / byte_size:.1%}",
            f"{answer.rows:,}",
            f"{answer.seconds * 1000:.0f} ms",
        )
    return table


def _true_rows(batch: pa.RecordBatch, predicate: Predicate) -> int:
    return int(pc.sum(_mask(batch, predicate), min_count=0).as_py())


def _mask(batch: pa.RecordBatch, predicate: Predicate) -> pa.Array:
    """Judge the few kinds of predicate that the demo asks."""
    match predicate:
        case And(parts):
            return reduce(pc.and_kleene, (_mask(batch, part) for part in parts))
        case TimeRange(column, int(start), int(end)):
            times = batch.column(column).view(pa.int64())
            return pc.and_(pc.greater_equal(times, start // 1000), pc.less(times, end // 1000))
        case Equals(column, value):
            return pc.equal(batch.column(column), value)
        case StringContains(column, needle):
            return pc.match_substring(batch.column(column), needle, ignore_case=True)
        case StringHas(column, term):
            near = pc.match_substring(batch.column(column), term, ignore_case=True)
            return _confirmed(batch.column(column), near, lambda text: text_holds(predicate, text))
        case DynamicPathExists(column, path):
            near = pc.match_substring(batch.column(column), path.rpartition(".")[2].encode())
            return _confirmed(batch.column(column), near, lambda data: _has_path(data, path))
    raise NotImplementedError(f"the demo does not ask {predicate!r}")


def _confirmed(values: pa.Array, near: pa.Array, judge: Callable[[Any], bool]) -> pa.Array:
    """Judge the few values that a fast test let through, one by one."""
    found = np.zeros(len(values), dtype=np.bool_)
    for row in np.flatnonzero(near.to_numpy(zero_copy_only=False)):
        found[row] = judge(values[int(row)].as_py())
    return pa.array(found)


def _has_path(data: bytes, path: str) -> bool:
    return dynamic.get_path(dynamic.decode(data), path) is not dynamic.MISSING


def _batch(rng: np.random.Generator, times: npt.NDArray[np.int64]) -> pa.RecordBatch:
    count = len(times)
    hours = (times - DAY_US) / HOUR_US
    services = rng.integers(0, len(_SERVICES), count)
    events = rng.choice(len(_EVENTS), count, p=_WEIGHTS / _WEIGHTS.sum())
    is_sick = (_SERVICES.index("payments") == services) & (hours > 14.05) & (hours < 14.7) & (rng.random(count) < 0.06)
    events[is_sick] = len(_EVENTS) + rng.integers(0, len(_MEMORY_EVENTS), int(is_sick.sum()))
    is_canary = (_SERVICES.index("checkout") == services) & (hours > 9) & (hours < 11) & (rng.random(count) < 0.1)
    services[is_canary] = len(_SERVICES)
    levels, statuses, heads, tails = zip(*_EVENTS, *_MEMORY_EVENTS, strict=True)
    numbers = pa.array(rng.integers(1, 9_000, count)).cast(pa.utf8())
    message = pc.binary_join_element_wise(_taken(heads, events), numbers, _taken(tails, events), " ")
    columns = [
        pa.array(times, pa.timestamp("us", tz="UTC")),
        _taken((*_SERVICES, _CANARY), services),
        _taken(levels, events),
        _taken([f"node-{number:02}" for number in range(40)], rng.integers(0, 40, count)),
        _taken(statuses, events).cast(pa.int32()),
        pa.array(np.round(rng.lognormal(3, 1, count), 2)),
        pa.array((rng.pareto(1.5, count) * 400).astype(np.int64)),
        _request_ids(rng, count),
        message,
        _taken(_attributes(), np.where(is_sick, 512, rng.integers(0, 512, count))),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow)


def _taken(choices: Sequence[Any], places: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(choices).take(pa.array(places))


def _request_ids(rng: np.random.Generator, count: int) -> pa.Array:
    letters = rng.bytes(count * 6).hex().encode()
    offsets = np.arange(count + 1, dtype=np.int32) * 12
    return pa.Array.from_buffers(pa.utf8(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])


def _attributes() -> list[bytes]:
    """Give 512 usual values of the dynamic column, and one of a service that is out of memory."""
    regions, methods = ("eu-west", "eu-north", "us-east"), ("GET", "POST")
    usual = (
        {
            "region": regions[number % 3],
            "http": {"method": methods[number % 2], "client": number % 97},
            "build": f"1.{number % 7}.0",
        }
        for number in range(512)
    )
    sick = {"region": "eu-west", "heap": {"used_mb": 4096, "dump": "payments.hprof"}}
    return [dynamic.encode(value) for value in (*usual, sick)]
