"""Run a source: copy what was not copied yet, then commit what changed, until all is read or for ever.

1. lease the source: of many nodes, one runs it;
2. look up how far each table is, and have the source make ready;
3. copy tables that are nowhere yet, each in one commit;
4. read changes, commit them table by table, and only then let the source forget them.

An error that time may heal is tried again, after longer and longer pauses. One of the settings disables the source, any
other stops it; both with the reason, until it is resumed. Killed at any step, the next run goes on from what is
committed. It does not know kinds of sources: see ``kinds``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tidelake.catalog.protocol import now_us
from tidelake.catalog.work_queue import WorkUnit, give_back_if_dead
from tidelake.connectors import registry
from tidelake.connectors.committing import Committer
from tidelake.connectors.definition import SourceDefinition, State
from tidelake.connectors.kinds import open_source
from tidelake.connectors.protocol import ChangeBatch, Source, TableChanges, outcome_of
from tidelake.errors import ConflictError, InvalidInputError, TidelakeError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.maintain.worker import heartbeat
from tidelake.runtime.processes import process_name

LEASE_S = 30.0
POLL_S = 0.3  # between looks at a source that has nothing new
TELL_S = 2.0  # between words about how it does, and looks whether it is to go on
PAUSE_S = (0.5, 60.0)  # after an error that time may heal: at first, and at most
TRIES = 4  # of a run that ends by itself
KIND = "sync."  # before a source's name, in the queue

log = logging.getLogger("tidelake.connectors")


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a run of a source did."""

    source: str
    copied: int = 0  # rows of tables that were copied whole
    changes: int = 0
    tables: dict[str, int] = field(default_factory=dict)  # rows by table of the lake

    def __str__(self) -> str:
        return f"{self.source}: {self.copied:,} rows copied, {self.changes:,} changes"


class Runner:
    """One run of one source."""

    def __init__(
        self, lake: LakeHandle, name: str, *, follow: bool = False, stop: threading.Event | None = None,
        open_with: Callable[[SourceDefinition], Source] = open_source,
    ) -> None:  # fmt: skip
        self._lake, self._name, self._follow = lake, name, follow
        self._stop, self._open = stop or threading.Event(), open_with
        self._report = SyncReport(name)
        self._status = registry.status(lake.store, name)
        self._looked_s = self._told_s = 0.0

    def run(self) -> SyncReport:
        """Run until all is read, or until told to stop; raise what stops the source."""
        definition = registry.read(self._lake.store, self._name)
        check_running(definition)
        with leased(self._lake, self._name):
            self._run_with_patience(definition)
        return self._report

    def _run_with_patience(self, definition: SourceDefinition) -> None:
        failures, pause_s = 0, PAUSE_S[0]
        while not self._stop.is_set():
            done = self._report
            try:
                self._run(definition)
                break
            except TidelakeError as error:
                if self._report != done:
                    failures, pause_s = 0, PAUSE_S[0]
                failures += 1
                self._note_failure(error)
                if not self._follow and failures >= TRIES:
                    raise
                log.warning("source %s: %s", self._name, error)
            self._stop.wait(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S[1])

    def _note_failure(self, error: TidelakeError) -> None:
        """Keep what went wrong; raise it if only somebody can help."""
        self._tell(phase="failing", error=str(error))
        outcome = outcome_of(error)
        if outcome != "transient":
            state: State = "disabled" if outcome == "config" else "stopped"
            registry.change(self._lake.store, self._name, lambda held: held.stopped(state, str(error)))
            raise error

    def _run(self, definition: SourceDefinition) -> None:
        source, committer = self._open(definition), Committer(self._lake, definition)
        try:
            source.validate()
            positions = committer.positions()
            source.begin(positions, self._status.advanced)
            missing = [name for name in definition.tables if name not in positions]
            if missing:
                self._tell(phase="snapshotting", error=None)
                shapes = {name: source.shape(name) for name in missing}
                for copy in source.snapshot(source.discover(missing)):
                    rows = committer.copy(copy, shapes[copy.table.name]).rows
                    self._count(definition.tables[copy.table.name], copied=rows)
                    self._lake.at("sync.copied")
            self._stream(definition, source, committer)
        finally:
            source.close()

    def _stream(self, definition: SourceDefinition, source: Source, committer: Committer) -> None:
        self._tell(phase="streaming", error=None)
        upto = source.now()  # where a run that ends by itself ends: a busy source never has nothing new
        while not self._stop.is_set():
            if not self._goes_on():
                return
            batch = source.stream(self._status.position)
            self._lake.at("sync.read")
            if batch is not None:
                self._commit(definition, source, committer, batch)
            if batch is None or not (batch.changes or batch.altered):
                self._tell(now=not self._follow, phase="streaming", lag_us=0, behind_bytes=0, error=None)
                if not self._follow:
                    return
                self._stop.wait(POLL_S)
            elif not self._follow and batch.position >= upto:
                self._tell(now=True, lag_us=0, behind_bytes=0)
                return

    def _commit(self, definition: SourceDefinition, source: Source, committer: Committer, batch: ChangeBatch) -> None:
        by_table: dict[str, list[TableChanges]] = {}
        for each in batch.changes:
            by_table.setdefault(each.table.name, []).append(each)
        for name, pieces in by_table.items():
            count = committer.change(pieces, batch.position, source)
            self._count(definition.tables[name], changes=count)
            self._lake.at("sync.committed")
        for altered in batch.altered:
            read = committer.alter(altered, batch.position, source)
            self._count(definition.tables[altered.table], copied=read)
            self._lake.at("sync.committed")
        if not batch.changes and not batch.altered:  # only a word of ours says that the source may forget this
            self._tell(now=True, advanced=batch.position)
        source.acknowledge(batch.position)
        self._lake.at("sync.acknowledged")
        lag = None if batch.event_us is None else max(now_us() - batch.event_us, 0)
        self._tell(
            now=False, phase="streaming", position=batch.position, advanced=batch.position, lag_us=lag,
            behind_bytes=batch.behind_bytes, event_us=batch.event_us or self._status.event_us,
        )  # fmt: skip

    def _goes_on(self) -> bool:
        """Whether the source is still to run; looked up now and then."""
        now_s = time.monotonic()
        if now_s - self._looked_s < TELL_S:
            return True
        self._looked_s = now_s
        return registry.read(self._lake.store, self._name).state == "running"

    def _count(self, table: str, *, copied: int = 0, changes: int = 0) -> None:
        tables = {**self._report.tables, table: self._report.tables.get(table, 0) + copied + changes}
        self._report = replace(
            self._report, copied=self._report.copied + copied, changes=self._report.changes + changes, tables=tables
        )
        self._status = replace(
            self._status, rows=self._status.rows + copied + changes,
            tables={**self._status.tables, table: self._status.tables.get(table, 0) + copied + changes},
        )  # fmt: skip

    def _tell(self, *, now: bool | None = None, **seen: object) -> None:
        """Note what is seen, and keep it for others: at once where something turned, or else now and then."""
        before = self._status
        self._status = replace(before, **seen)  # type: ignore[arg-type]
        turned = (before.phase, before.error) != (self._status.phase, self._status.error)
        if now or turned or time.monotonic() - self._told_s >= TELL_S:
            self._told_s = time.monotonic()
            registry.tell_status(self._lake.store, self._name, self._status)


def check_running(definition: SourceDefinition) -> None:
    """Raise InvalidInputError for a source that is not to run, with the reason."""
    if definition.state != "running":
        reason = f": {definition.reason}" if definition.reason else ""
        way_on = "" if "--resync" in reason else f". Run it again with tidelake sync resume {definition.name}"
        raise InvalidInputError(
            f"the source is {definition.state}{reason}{way_on}",
            source=definition.name, kind=f"source_{definition.state}",
        )  # fmt: skip


@contextmanager
def leased(lake: LakeHandle, name: str) -> Iterator[None]:
    """Have a source to oneself; ConflictError if another runs it."""
    unit = _leased(lake, name)
    try:
        with heartbeat(lake, unit, LEASE_S):
            yield
    finally:
        _give_back(lake, unit)


def _leased(lake: LakeHandle, name: str) -> WorkUnit:
    """Lease a source; ConflictError if another runs it."""
    queue, kind = lake.catalog.work, f"{KIND}{name}"
    unit = queue.enqueue(kind, name, {"source": name}, max_attempts=2**31 - 1)
    give_back_if_dead(queue, unit)
    found = queue.claim([kind], owner=process_name(), lease_us=int(LEASE_S * 1e6))
    if found is None:
        raise ConflictError("the source is being run", source=name, by=unit.owner, kind="source_running")
    return found


def _give_back(lake: LakeHandle, unit: WorkUnit) -> None:
    try:
        lake.catalog.work.complete(unit)
    except TidelakeError as error:  # the lease runs out by itself
        log.debug("the lease of %s was not given back: %s", unit.key, error)
