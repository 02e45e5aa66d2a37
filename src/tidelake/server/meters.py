"""Count what a server does, for ``/metrics`` and its log: once for each request or commit, never for each row.

Labels are names of protocols and tables, and the kinds of errors; nothing that a client sends is a label. It does not
decide anything.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from tidelake.catalog.protocol import now_us
from tidelake.errors import redacted
from tidelake.server.call import Outcome
from tidelake.write.append import AppendReport

TABLES_SHOWN = 500  # beyond which tables are counted together
OTHER_TABLES = "(others)"
REQUESTS_KEPT = 10_000  # that this process answered last
REQUESTS = pa.schema(
    {
        "answered": pa.timestamp("us", tz="UTC"),
        "protocol": pa.string(),
        "status": pa.int64(),
        "bytes": pa.int64(),  # of the body, decompressed
        "seconds": pa.float64(),
    }
)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Request: TypeAlias = tuple[int, str, int, int, float]  # one row of them

log = logging.getLogger("tidelake.server")

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class KeptCounts(Protocol):
    """What is counted of kept answers."""

    hits: int
    misses: int
    held_bytes: int


class Spans(Protocol):
    """Who is told of each request and each commit."""

    def request(self, protocol: str, status: int, size: int, seconds: float) -> None: ...

    def commit(self, table: str, requests: int, rows: int, size: int, seconds: float, failed: str) -> None: ...


class Meters:
    """The counters of one server."""

    def __init__(self) -> None:
        self.spans: Spans | None = None
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        own: Any = {"registry": self.registry, "namespace": "tidelake"}
        self._requests = Counter("requests", "Requests answered.", ["protocol", "status"], **own)
        self._bytes = Counter("request_bytes", "Bytes of bodies, decompressed.", ["protocol"], **own)
        self._seconds = Histogram(
            "request_seconds", "From the last byte of a request to its answer.", ["protocol"], buckets=_SECONDS, **own
        )
        self._rows = Counter("rows", "Rows acknowledged as durable.", ["table"], **own)
        self._replays = Counter("replays", "Requests that had been acknowledged before.", ["table"], **own)
        self._commits = Counter("commits", "Groups of requests that were committed.", ["table"], **own)
        self._failed = Counter("failed", "Requests whose rows were not taken, by the kind of error.", ["kind"], **own)
        self._commit_seconds = Histogram("commit_seconds", "How long a group took.", buckets=_SECONDS, **own)
        self._defects = Counter("defects", "Errors that should not happen.", ["where"], **own)
        self._dropped = Counter("dropped", "Messages of syslog over UDP that there was no room for.", **own)
        self._lost_spans = Counter("lost_spans", "Spans of its own that were not stored.", **own)
        self._held = Gauge("held_bytes", "Bytes of requests that are on their way.", **own)
        self._tables: set[str] = set()
        self._newest: deque[Request] = deque(maxlen=REQUESTS_KEPT)

    def newest(self) -> list[Request]:
        """Return the requests that this process answered last."""
        return list(self._newest)

    def requests(self, others: Sequence[Sequence[Request]] = ()) -> pa.Table:
        """Return the newest requests as rows, the newest first: the table ``system.requests``.

        Those of ``others`` are what other processes of the server answered.
        """
        theirs = (tuple(each) for several in others for each in several)
        found = sorted([*self._newest, *theirs], reverse=True)[:REQUESTS_KEPT]
        columns = zip(*found, strict=True) if found else [()] * len(REQUESTS)
        return pa.table([pa.array(each, kind.type) for each, kind in zip(columns, REQUESTS, strict=True)], REQUESTS)

    def watch_held(self, held: Callable[[], float]) -> None:
        """Show how many bytes are held when somebody looks."""
        self._held.set_function(held)

    def watch_answers(self, kept: KeptCounts) -> None:
        """Show how many answers were found kept, and how many bytes of them there are, when somebody looks."""
        own: Any = {"registry": self.registry, "namespace": "tidelake"}
        found = Gauge("result_cache_lookups", "Looks for a kept answer, by what came of them.", ["outcome"], **own)
        found.labels("hit").set_function(lambda: kept.hits)
        found.labels("miss").set_function(lambda: kept.misses)
        held = Gauge("result_cache_bytes", "Bytes of answers that are kept.", **own)
        held.set_function(lambda: kept.held_bytes)

    def dropped(self, count: int) -> None:
        """Count messages that nobody sends again."""
        self._dropped.inc(count)

    def lost_spans(self, count: int) -> None:
        """Count spans of its own that were not stored."""
        self._lost_spans.inc(count)

    def answered(self, protocol: str, status: int, size: int, seconds: float) -> None:
        """Count a request."""
        self._newest.append((now_us(), protocol, status, size, seconds))
        self._requests.labels(protocol, str(status)).inc()
        self._bytes.labels(protocol).inc(size)
        self._seconds.labels(protocol).observe(seconds)
        if self.spans is not None:
            self.spans.request(protocol, status, size, seconds)

    def committed(self, table: str, outcomes: Sequence[Outcome], size: int, seconds: float) -> None:
        """Count a group of requests."""
        name = self._shown(table)
        reports = [each for each in outcomes if isinstance(each, AppendReport)]
        if reports:
            self._commits.labels(name).inc()
            self._rows.labels(name).inc(sum(each.rows for each in reports if not each.replayed))
            self._replays.labels(name).inc(sum(each.replayed for each in reports))
        self._commit_seconds.observe(seconds)
        errors = [each for each in outcomes if not isinstance(each, AppendReport)]
        for error in errors:
            self._failed.labels(error.kind).inc()
        if self.spans is not None:
            rows = sum(each.rows for each in reports)
            self.spans.commit(table, len(outcomes), rows, size, seconds, errors[0].kind if errors else "")
        log.debug("committed table=%s requests=%d bytes=%d seconds=%.3f", table, len(outcomes), size, seconds)
        if errors:
            log.warning("not stored table=%s requests=%d: %s", table, len(errors), redacted(str(errors[0])))

    def not_tried(self, kind: str, count: int) -> None:
        """Count requests that were refused because those before them could not be stored."""
        if count:
            self._failed.labels(kind).inc(count)

    def defect(self, where: str, error: BaseException) -> None:
        """Count and log an error that should not happen."""
        self._defects.labels(where).inc()
        log.error("defect in %s: %s", where, redacted(repr(error)), exc_info=error)

    def text(self) -> str:
        """Return all of them, as Prometheus reads them."""
        return generate_latest(self.registry).decode()

    def _shown(self, table: str) -> str:
        if table not in self._tables:
            if len(self._tables) >= TABLES_SHOWN:
                return OTHER_TABLES
            self._tables.add(table)
        return table


def summed(texts: Sequence[str]) -> str:
    """Return the meters of several processes as those of one server: each is the sum of theirs."""
    families: dict[str, dict[str, float]] = {}  # samples under what is said of their family
    for text in texts:
        about, samples = "", families.setdefault("", {})
        for line in text.splitlines():
            if line.startswith("#"):
                about = f"{about}\n{line}" if line.startswith("# TYPE") else line
                samples = families.setdefault(about, {}) if line.startswith("# TYPE") else samples
            else:
                name, _, value = line.rpartition(" ")
                samples[name] = samples.get(name, 0.0) + float(value)
    lines = []
    for about, samples in families.items():
        lines += [about] if about else []
        lines += [f"{name} {value!r}" for name, value in samples.items()]
    return "\n".join(lines) + "\n"
