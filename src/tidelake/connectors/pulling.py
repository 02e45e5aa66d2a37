"""Pull windows of time from an endpoint on a schedule, each once, and those again that failed.

A window is as long as the schedule and begins at a multiple of it. Its rows and how far the source is are one commit. A
window that cannot be fetched is passed over after some tries, so that later ones come in time: the table keeps coverage
by the schedule, so it is a gap that ``coverage.gaps()`` shows, and ``only_missing`` fetches the gaps again. It does not
know how windows are fetched: see ``fetching``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tidelake.catalog.protocol import now_us
from tidelake.connectors import registry
from tidelake.connectors.definition import SourceDefinition
from tidelake.connectors.fetching import SAMPLES, Window, fetch, time_of
from tidelake.connectors.registry import SourceStatus
from tidelake.connectors.runner import SyncReport, check_running, leased
from tidelake.coverage.verbs import Series
from tidelake.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import infer_schema
from tidelake.model.snapshot import RecordOffset
from tidelake.model.times import duration_us
from tidelake.write.append import append
from tidelake.write.create import create_table

SCHEDULE = "1m"
# How long after its end a window is fetched: a scrape has the time at which it began, and may take 10 s by default.
DELAYS = {"prometheus": "10s"}
TRIES = 3  # of one window
PAUSE_S = 0.2
LOOK_S = 5.0  # between looks for windows that are due
TABLES = {"prometheus": "samples", "sentry": "events", "http": "rows"}  # kinds of sources, and what each fills
PULLED = tuple(TABLES)

log = logging.getLogger("tidelake.connectors")


def run_pull(
    lake: LakeHandle,
    name: str,
    *,
    follow: bool = False,
    only_missing: bool = False,
    stop: threading.Event | None = None,
) -> SyncReport:
    """Pull the windows that are due, or with ``only_missing`` the gaps; with ``follow``, until stopped."""
    definition, halt = registry.read(lake.store, name), stop or threading.Event()
    check_running(definition)
    rows = 0
    with leased(lake, name):
        puller = Puller(lake, definition, halt)
        while not halt.is_set():
            try:
                for window in puller.missing() if only_missing else puller.due():
                    rows += puller.pull(window, moves=not only_missing)
                    if halt.is_set():
                        break
            except InvalidInputError as error:
                reason = str(error)
                registry.change(lake.store, name, lambda held: held.stopped("disabled", reason))  # noqa: B023
                raise
            _tell(lake, name, puller)
            if not follow or registry.read(lake.store, name).state != "running":
                break
            halt.wait(min(schedule_us(definition) / 1e6, LOOK_S))
    return SyncReport(name, changes=rows, tables={puller.table: rows})


def _tell(lake: LakeHandle, name: str, puller: Puller) -> None:
    """Keep what was seen: how many rows the table has, and what failed last."""
    held = TableHandle.open(lake, puller.table).count_rows() if puller.has_table() else 0
    phase = "failing" if puller.error else "streaming"
    seen = SourceStatus(phase=phase, rows=held, error=puller.error, tables={puller.table: held}, lag_us=0)
    registry.tell_status(lake.store, name, seen)


class Puller:
    """Pull the windows of one source."""

    def __init__(self, lake: LakeHandle, definition: SourceDefinition, stop: threading.Event) -> None:
        self._lake, self._definition, self._stop = lake, definition, stop
        self._step_us = schedule_us(definition)
        self._first_us = definition.created_us // self._step_us * self._step_us - self._step_us
        (self.table,) = definition.tables.values()
        self.failed = 0
        self.error: str | None = None

    def due(self, now: int | None = None) -> Iterator[Window]:
        """Yield the windows that have passed and were not tried yet, from the one before the source was made."""
        end = (now_us() - delay_us(self._definition) if now is None else now) // self._step_us * self._step_us
        last = self._position()
        start = self._first_us if last is None else last
        for at in range(start, end, self._step_us):
            yield Window(at, at + self._step_us)

    def missing(self) -> Iterator[Window]:
        """Yield the windows that were tried, and of which the table has nothing."""
        try:
            table = TableHandle.open(self._lake, self.table)
        except NotFoundError:
            return
        last = self._position()
        if last is None or last <= self._first_us:
            return
        asked = Series(table, table.coverage_store).gaps(start=_time(self._first_us), end=_time(last))
        for gap in asked.to_pylist():
            start, end = (round(gap[name].timestamp() * 1e6) for name in ("start", "end"))
            for at in range(start, end, self._step_us):
                yield Window(at, at + self._step_us)

    def pull(self, window: Window, *, moves: bool) -> int:
        """Fetch and commit a window; return how many rows it has. One that fails is counted, and passed over."""
        rows: list[dict[str, Any]] = []
        for tries in range(TRIES):
            try:
                rows = fetch(self._definition, window)
                self.error = None
                break
            except StorageError as error:
                self.error = str(error)
                if tries + 1 == TRIES:
                    self.failed += 1
                    log.warning("source %s: a window is passed over: %s", self._definition.name, error)
                else:
                    self._stop.wait(PAUSE_S * 2**tries)
        offsets = []
        stream = self._definition.stream_of(self.table)
        if moves:
            last = self._position()
            offsets = [RecordOffset(stream, window.end_us, after=-1 if last is None else last)]
        if not rows and (not moves or not self.has_table()):
            if moves and self._definition.kind == "prometheus":
                append(self._made([]), [], offsets=offsets)
            return 0
        key = f"{stream}:{window.start_us}" if rows else None
        report = append(self._made(rows), rows, key=key, offsets=offsets)
        return 0 if report.replayed else report.rows

    def _made(self, rows: list[dict[str, Any]]) -> TableHandle:
        """Return the table; it is made to fit the first rows."""
        if not self.has_table():
            schema: Any = SAMPLES
            time: str | None = "ts"
            if self._definition.kind != "prometheus":
                schema, time = infer_schema(rows, time=time_of(self._definition))
                if time is None:
                    raise InvalidInputError(
                        "no time was found in the rows: name it with the option time=…", kind="no_time"
                    )
            bucket = str(self._definition.options.get("schedule") or SCHEDULE)
            try:
                create_table(self._lake.catalog, self.table, schema, time=time, bucket=bucket, coverage="track")
            except AlreadyExistsError:
                log.debug("another made the table %s", self.table)
        return TableHandle.open(self._lake, self.table)

    def has_table(self) -> bool:
        """Whether the table was made."""
        return self.table in self._lake.tables()

    def _position(self) -> int | None:
        try:
            table = TableHandle.open(self._lake, self.table)
        except NotFoundError:
            return None
        stream = self._definition.stream_of(self.table)
        return table.catalog.positions(table.scope, [stream]).get(stream)


def schedule_us(definition: SourceDefinition) -> int:
    """Return how long the windows of a source are, in microseconds."""
    found = duration_us(str(definition.options.get("schedule") or SCHEDULE))
    if not 1_000_000 <= found <= 86_400_000_000:
        raise InvalidInputError("a schedule is between 1s and 1d", kind="bad_schedule")
    return found


def delay_us(definition: SourceDefinition) -> int:
    """Return how long after its end a window is fetched, in microseconds: so long rows of it may arrive late."""
    given = str(definition.options.get("delay", DELAYS.get(definition.kind, "0s")))
    found = 0 if given in ("0", "0s") else duration_us(given)
    if found > 86_400_000_000:
        raise InvalidInputError("a delay is at most 1d", kind="bad_schedule")
    return found


def _time(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us / 1e6, UTC)
