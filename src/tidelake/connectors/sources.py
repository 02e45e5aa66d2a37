"""Define, run and look after the sources of a lake: what ``lake.sync`` and ``tidelake sync`` call.

It does not do the syncing: see ``runner``.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow.compute as pc

from tidelake.connectors import registry
from tidelake.connectors.attached import PREFIX
from tidelake.connectors.definition import LSN, SourceDefinition, check_options, kind_of, target_tables
from tidelake.connectors.fetching import address_of
from tidelake.connectors.kinds import open_source
from tidelake.connectors.latest import is_synced
from tidelake.connectors.pulling import PULLED, TABLES, delay_us, run_pull, schedule_us
from tidelake.connectors.registry import SourceStatus
from tidelake.connectors.runner import Runner, SyncReport
from tidelake.connectors.system_columns import epoch_of
from tidelake.errors import AlreadyExistsError, ConflictError, InvalidInputError, NotFoundError, TidelakeError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle


class SyncedSource:
    """A source of a lake, by its name."""

    def __init__(self, lake: LakeHandle, name: str) -> None:
        self._lake, self.name = lake, name
        registry.read(lake.store, name)

    @property
    def definition(self) -> SourceDefinition:
        return registry.read(self._lake.store, self.name)

    @property
    def status(self) -> SourceStatus:
        """What whoever runs it last saw."""
        return registry.status(self._lake.store, self.name)

    def run(
        self,
        *,
        follow: bool = False,
        resync: bool = False,
        only_missing: bool = False,
        stop: threading.Event | None = None,
    ) -> SyncReport:
        """Copy what was not copied yet and commit what changed, until all is read; with ``follow``, until stopped.

        With ``resync`` all tables are read again, and what the source has no more is deleted: the way on when the
        source has forgotten changes that were not read. With ``only_missing``, windows of a source that is pulled on a
        schedule are fetched which failed before.
        """
        if self.definition.kind in PULLED:
            return run_pull(self._lake, self.name, follow=follow, only_missing=only_missing, stop=stop)
        if only_missing:
            raise InvalidInputError("only what is pulled on a schedule has missing windows", kind="not_pulled")
        if resync:
            self._begin_again()
        return Runner(self._lake, self.name, follow=follow, stop=stop).run()

    def pause(self) -> None:
        """Let it rest until it is resumed; who runs it stops within seconds."""
        registry.change(self._lake.store, self.name, lambda held: held.stopped("paused", "paused by hand"))

    def resume(self) -> None:
        """Let it run again, after a pause or once what stopped it is mended."""
        registry.change(self._lake.store, self.name, lambda held: replace(held, state="running", reason=None))

    def remove(self, *, keep_remote: bool = False) -> None:
        """Forget it; its tables stay. What it has left at the source is taken away, unless ``keep_remote``."""
        definition = self.definition
        if not keep_remote and definition.kind not in PULLED:
            source = open_source(definition)
            try:
                source.forget()
            finally:
                source.close()
        registry.remove(self._lake.store, self.name)

    def _begin_again(self) -> None:
        """Have all tables copied again, as a new epoch."""
        source = open_source(self.definition)
        try:
            source.forget()
        finally:
            source.close()
        registry.change(
            self._lake.store,
            self.name,
            lambda held: replace(held, epoch=held.epoch + 1, id=secrets.token_hex(4), state="running", reason=None),
        )

    def __repr__(self) -> str:
        definition = self.definition
        return f"SyncedSource({self.name!r}, {definition.kind}, {definition.state}, {len(definition.tables)} tables)"


def define(
    lake: LakeHandle,
    url: str,
    tables: Sequence[str] | Mapping[str, str] | None = None,
    *,
    into: str | None = None,
    name: str | None = None,
    mode: str = "log",
    options: Mapping[str, Any] | None = None,
) -> SyncedSource:
    """Keep a new source, once it was looked at; the same one again is what is there already."""
    own = name or into
    if own is None:
        raise InvalidInputError("name the namespace for the tables: into='crm'", kind="no_namespace")
    if own.startswith(PREFIX):
        raise InvalidInputError(f"a source's name does not begin with {PREFIX}", name=own, kind="bad_name")
    kind = kind_of(url)
    check_options(kind, options or {})
    probe = SourceDefinition(own, kind, url, {}, mode, dict(options or {}), id=secrets.token_hex(4))
    if own in registry.names(lake.store):
        return _same(lake, probe, tables, into)
    if kind in PULLED:
        return _define_pulled(lake, probe, tables, into)
    source = open_source(probe)
    try:
        source.validate()
        asked = None if tables is None else [tables] if isinstance(tables, str) else list(tables)
        found = [each.name for each in source.discover(asked)]
    finally:
        source.close()
    if not found:
        raise InvalidInputError("the source has no table that can be synced", kind="no_source_table")
    targets = target_tables(found if tables is None or not isinstance(tables, Mapping) else tables, into)
    definition = replace(probe, tables=targets, epoch=_next_epoch(lake, targets))
    registry.add(lake.store, definition)
    return SyncedSource(lake, own)


def sources(lake: LakeHandle) -> list[SyncedSource]:
    """Return all sources of a lake, by name."""
    return [SyncedSource(lake, name) for name in registry.names(lake.store) if not name.startswith(PREFIX)]


def _define_pulled(
    lake: LakeHandle, probe: SourceDefinition, tables: Sequence[str] | Mapping[str, str] | None, into: str | None
) -> SyncedSource:
    """Keep a source that is pulled: it fills one table."""
    schedule_us(probe)
    delay_us(probe)
    address_of(probe)
    targets = target_tables(tables or [TABLES[probe.kind]], into)
    if len(targets) != 1:
        raise InvalidInputError("what is pulled fills one table", tables=", ".join(targets), kind="bad_table")
    registry.add(lake.store, replace(probe, tables=targets))
    return SyncedSource(lake, probe.name)


def _same(
    lake: LakeHandle, probe: SourceDefinition, tables: Sequence[str] | Mapping[str, str] | None, into: str | None
) -> SyncedSource:
    """Return a source that was defined before; AlreadyExistsError if this would be another."""
    held = registry.read(lake.store, probe.name)
    wanted = held.tables if tables is None else target_tables(tables, into)
    is_other = bool(probe.options) and dict(probe.options) != dict(held.options)
    if is_other or (held.url, held.mode, dict(held.tables)) != (probe.url, probe.mode, dict(wanted)):
        raise AlreadyExistsError(
            "there is another source of this name: give this one a name=, or remove that one", source=probe.name,
            kind="source_exists",
        )  # fmt: skip
    return SyncedSource(lake, probe.name)


def _next_epoch(lake: LakeHandle, targets: Mapping[str, str]) -> int:
    """Return an epoch after those of changes that the tables have from an earlier source."""
    newest = 0
    for target in targets.values():
        try:
            table = TableHandle.open(lake, target)
        except NotFoundError:
            continue
        if is_synced(table.schema):
            last = pc.max(table.scan([LSN]).read_all().column(LSN)).as_py()
            newest = max(newest, epoch_of(last) if last else 0)
    return newest + 1


def run_several(
    lake: LakeHandle,
    names: Sequence[str] = (),
    *,
    follow: bool = False,
    resync: bool = False,
    only_missing: bool = False,
    stop: threading.Event | None = None,
) -> list[SyncReport]:
    """Run sources by their names, or all that are to run; side by side if they are followed.

    One that others run is left to them, unless it was named. The first error is raised when all others are done.
    """
    chosen = [SyncedSource(lake, name) for name in names]
    if not names:
        chosen = [each for each in sources(lake) if each.definition.state == "running"]
    halt = stop or threading.Event()

    def run(each: SyncedSource) -> SyncReport | TidelakeError:
        try:
            return each.run(follow=follow, resync=resync, only_missing=only_missing, stop=halt)
        except ConflictError as error:
            return error if names or error.kind != "source_running" else SyncReport(each.name)
        except TidelakeError as error:
            return error

    with ThreadPoolExecutor(max(len(chosen), 1) if follow else 1, thread_name_prefix="tidelake-sync") as pool:
        found = list(pool.map(run, chosen))
    if failed := [each for each in found if isinstance(each, TidelakeError)]:
        raise failed[0]
    return [each for each in found if isinstance(each, SyncReport)]
