"""Read snapshots out of a transaction log.

What a retained snapshot has is in memory once the log was followed; older headers and the rows of dropped hot batches
are read from their entries when somebody asks. It does not change anything.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tidelake.catalog.contributions import Contribution
from tidelake.catalog.log.journal import Journal
from tidelake.catalog.log.state import (
    LogState,
    changes_between,
    contributions_of,
    keys_of_done,
    of_nobody,
    receipt_of,
    snapshot_of,
)
from tidelake.catalog.protocol import (
    Changes,
    HotHeader,
    Interval,
    TableInfo,
    expired,
    intervals_of,
    parse_table_name,
)
from tidelake.catalog.users import NONE_SMALL, DueScope, Small, TableTotals
from tidelake.errors import InvalidInputError, NotFoundError, UnavailableError
from tidelake.model.predicate import Predicate
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Extent, HotBatch, Manifest, Receipt, Scope, Snapshot

MIN_NS, MAX_NS = -(2**63), 2**63 - 1  # stand for an unknown bound

_ID = re.compile(r"[0-9a-f]{32}")
_TYPES: dict[str, type] = {"whole": int, "real": float, "text": str}


class LogReader:
    """The reading half of the log catalog."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def table(self, name: str) -> TableInfo:
        """Find a table by ``name`` or ``namespace.name``; NotFoundError if there is none."""
        named = parse_table_name(name)
        for info in self.tables():
            if (info.namespace, info.name) == named:
                return info
        here = ", ".join(map(str, self.tables())) or "none"
        raise NotFoundError("no such table", table=".".join(named), here=here, kind="no_table")

    def tables(self, namespace: str | None = None) -> list[TableInfo]:
        """List the tables that are not dropped, by name: one, or none."""
        state = self._journal.refresh()
        if state is None or state.info.dropped_us is not None or namespace not in (None, state.info.namespace):
            return []
        return [state.info]

    def schema(self, table_id: str, version: int) -> Schema:
        """Return one version of a table's schema."""
        with self._reading(Scope(table_id)) as state:
            if version not in state.schemas:
                raise NotFoundError("no such schema version", table=table_id, version=version)
            return state.schemas[version]

    def settings(self, table_id: str) -> Mapping[str, Any]:
        """Return the table's settings as they are now, or were when it was dropped."""
        state = self._journal.refresh()
        if state is None or state.info.id != table_id:
            raise NotFoundError("no such table", table=table_id, kind="no_table")
        return state.head.settings

    def scopes(self, table_id: str, *, after: str = "") -> Iterator[Scope]:
        """Yield the scope of the table; it has no users."""
        yield from (info.scope for info in self.tables() if info.id == table_id and not after)

    def due_scopes(
        self, table_id: str, *, before_us: int, after: DueScope | None = None, limit: int = 1000
    ) -> list[DueScope]:
        """Return none: the table has no users."""
        return []

    def look_again(self, due: DueScope, *, sequence: int, at_us: int | None) -> None:
        """Note nothing: the table has no users."""

    def totals(self, table_id: str, *, small: Small = NONE_SMALL) -> TableTotals:
        """Sum up what the table holds."""
        with self._reading(Scope(table_id)) as state:
            extents = state.extents.at(state.head.sequence)
            return TableTotals(0, state.head.totals, sum(map(small.is_small, extents)), 0, None, len(state.pins))

    def head(self, scope: Scope) -> Snapshot:
        """Return the newest snapshot."""
        with self._reading(scope) as state:
            return state.head

    def snapshot(
        self, scope: Scope, *, sequence: int | None = None, snapshot_id: str | None = None, at_us: int | None = None
    ) -> Snapshot:
        """Return a retained snapshot by exactly one of sequence, id, or the newest at or before a time."""
        if [sequence, snapshot_id, at_us].count(None) != 2:
            raise InvalidInputError("name a snapshot by exactly one of sequence, id and time")
        with self._reading(scope) as state:
            if sequence is not None:
                return self._snapshot_at(state, sequence)
            if snapshot_id is not None:
                return self._snapshot_by_id(state, snapshot_id)
            assert at_us is not None
            found = self._sequence_at(state, at_us)
            if found is None:
                raise expired(scope, at_us)
            return self._snapshot_at(state, found)

    def history(self, scope: Scope, *, limit: int = 100, before: int | None = None) -> list[Snapshot]:
        """List retained snapshots, newest first, those below sequence ``before`` if given."""
        with self._reading(scope) as state:
            last = state.head.sequence if before is None else min(before - 1, state.head.sequence)
            first = max(state.oldest, last - limit + 1)
            return [self._snapshot_at(state, sequence) for sequence in range(last, first - 1, -1)]

    def extents(
        self,
        scope: Scope,
        *,
        sequence: int | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        where: Predicate | None = None,
        stats: Collection[str] | None = None,
        ids: Collection[str] | None = None,
    ) -> list[Extent]:
        """List the extents of a snapshot that may hold rows in ``[start_ns, end_ns)`` that match ``where``."""
        with self._reading(scope) as state:
            snapshot = self._snapshot_at(state, sequence)
            held = state.extents.at(snapshot.sequence)
        if ids is not None:
            wanted = frozenset(ids)
            held = [extent for extent in held if extent.id in wanted]
        intervals = intervals_of(where, snapshot.schema)
        found = [e for e in held if _may_overlap(e, start_ns, end_ns) and all(_may_hold(e, i) for i in intervals)]
        found.sort(key=_by_time)
        return found if stats is None else [_with_stats(extent, stats) for extent in found]

    def extents_by_id(
        self, scope: Scope, ids: Collection[str], *, sequence: int, stats: Collection[str]
    ) -> list[Extent]:
        """Return those of some extents that a snapshot has, by time."""
        return self.extents(scope, sequence=sequence, stats=stats, ids=ids)

    def extent_pages(self, scope: Scope, *, sequence: int, stats: Collection[str]) -> Iterator[list[Extent]]:
        """Yield all extents of a snapshot at once: they are in memory."""
        yield self.extents(scope, sequence=sequence, stats=stats)

    def hot(self, scope: Scope, *, sequence: int | None = None, ids: Collection[str] | None = None) -> list[HotBatch]:
        """List the hot rows of a snapshot, oldest first, or only those batches of some ids that it has."""
        with self._reading(scope) as state:
            held = state.hot.at(self._snapshot_at(state, sequence).sequence)
            wanted = None if ids is None else frozenset(ids)
            return self._journal.rows_of(each for each in held if wanted is None or each.id in wanted)

    def hot_headers(self, scope: Scope, *, sequence: int | None = None) -> list[HotHeader]:
        """List the hot batches of a snapshot without their rows, oldest first."""
        with self._reading(scope) as state:
            held = state.hot.at(self._snapshot_at(state, sequence).sequence)
        return [HotHeader(each.id, each.rows, each.min_ts_ns, each.max_ts_ns) for each in held]

    def manifest(self, scope: Scope, *, sequence: int | None = None) -> Manifest:
        """Return a snapshot with everything live in it. Its offsets are the head's."""
        with self._reading(scope) as state:
            snapshot = self._snapshot_at(state, sequence)
            extents = sorted(state.extents.at(snapshot.sequence), key=_by_time)
            batches = self._journal.rows_of(state.hot.at(snapshot.sequence))
            return Manifest(
                snapshot,
                {extent.id: extent for extent in extents},
                {batch.id: batch for batch in batches},
                dict(state.offsets),
            )

    def positions(self, scope: Scope, streams: Sequence[str]) -> dict[str, int]:
        """Return the last batch of those streams of which the table has one."""
        with self._reading(scope) as state:
            return {stream: state.offsets[stream] for stream in streams if stream in state.offsets}

    def changes(self, scope: Scope, *, after: int, upto: int) -> Changes:
        """Return what differs between two retained snapshots; ``after`` 0 stands for the empty scope."""
        if after > upto:
            raise InvalidInputError("changes go forward", after=after, upto=upto)
        with self._reading(scope) as state:
            for sequence in (after, upto) if after else (upto,):
                self._check_retained(state, sequence)
            found = changes_between(state, after, upto)
            return replace(found, appended=tuple(self._journal.rows_of(found.appended)))

    def live(self, scope: Scope, ids: Collection[str]) -> frozenset[str]:
        """Return which of some extents and hot batches are live at the head."""
        with self._reading(scope) as state:
            return frozenset(item for item in ids if item in state.extents or item in state.hot)

    def receipt(self, scope: Scope, *, commit_id: str | None = None, key: str | None = None) -> Receipt | None:
        """Return the answer a commit got, by its id or its idempotency key; None if it is not in."""
        if (commit_id is None) == (key is None):
            raise InvalidInputError("name a commit by its id or by its key")
        with self._reading(scope) as state:
            return self._receipt(state, commit_id, () if key is None else (key,))

    def contributions(self, scope: Scope, *, sequence: int) -> list[Contribution]:
        """Return what each commit of a retained snapshot added, in the order in which they were published."""
        with self._reading(scope) as state:
            if not sequence:
                return []
            self._check_retained(state, sequence)
            entry = self._journal.entry(sequence)
            extents = [extent for extent in state.extents.at(sequence) if extent.added_seq == sequence]
            batches = [batch for batch in state.hot.at(sequence) if batch.added_seq == sequence]
        return contributions_of(entry, extents, batches)

    @contextmanager
    def _reading(self, scope: Scope) -> Iterator[LogState]:
        """Return the newest state, and keep it as it is meanwhile."""
        with self._journal.lock:
            yield check_scope(self._journal.refresh(), scope)

    def _receipt(self, state: LogState, commit_id: str | None, keys: Sequence[str]) -> Receipt | None:
        """Return the first answer to the commit of an id, or else of one of some keys."""
        sequence = None if commit_id is None else state.commits.get(commit_id)
        wanted = next((key for key in keys if key in state.keys), None)
        if sequence is None and wanted is not None:
            commit_id, sequence = None, state.keys[wanted]
        if sequence is None:
            return None
        entry = self._journal.entry(sequence)
        for done in entry.mark.commits if entry.mark else ():
            if done.id == commit_id or (commit_id is None and wanted in keys_of_done(done)):
                return receipt_of(entry, done, replayed=True, key=None if commit_id else wanted)
        return None

    def _snapshot_at(self, state: LogState, sequence: int | None) -> Snapshot:
        if sequence is None or sequence == state.head.sequence:
            return state.head
        self._check_retained(state, sequence)
        return snapshot_of(state, self._journal.entry(sequence))

    def _snapshot_by_id(self, state: LogState, snapshot_id: str) -> Snapshot:
        """Find a snapshot by its id, which begins with the version of its entry."""
        version = int(snapshot_id[:13], 16) if _ID.fullmatch(snapshot_id) else 0
        sequence = version - bisect_right(state.bare, version)
        if state.oldest <= sequence <= state.head.sequence:
            found = self._snapshot_at(state, sequence)
            if found.id == snapshot_id:
                return found
        raise expired(state.scope, snapshot_id)

    def _sequence_at(self, state: LogState, at_us: int) -> int | None:
        """Find the newest retained sequence at or before a time; times rise along the log."""
        retained = range(state.oldest, state.head.sequence + 1)
        found = bisect_right(retained, at_us, key=self._time_of)
        return retained[found - 1] if found else None

    def _time_of(self, sequence: int) -> int:
        return self._journal.entry(sequence).at_us

    def _check_retained(self, state: LogState, sequence: int) -> None:
        if not state.oldest <= sequence <= state.head.sequence:
            raise expired(state.scope, sequence)


def check_scope(state: LogState | None, scope: Scope) -> LogState:
    """Return the state of a scope, if its table is there and not dropped; a user's is empty."""
    if state is None or state.info.id != scope.table_id or state.info.dropped_us is not None:
        raise NotFoundError("no such table, or it was dropped", table=scope.table_id, kind="no_table")
    return of_nobody(state, scope) if scope.user else state


def check_writable(state: LogState | None, scope: Scope) -> LogState:
    """Return the state of a scope that can be committed to."""
    found = check_scope(state, scope)
    if scope.user:
        raise UnavailableError(
            "a log table has one scope: tables with users need SQLite or PostgreSQL", scope=scope, kind="no_users"
        )
    return found


def _may_overlap(extent: Extent, start_ns: int | None, end_ns: int | None) -> bool:
    low, high = extent.min_ts_ns, extent.max_ts_ns
    return (start_ns is None or high is None or high >= start_ns) and (end_ns is None or low is None or low < end_ns)


def _may_hold(extent: Extent, wanted: Interval) -> bool:
    """Compare an extent's least and most value with an interval; what cannot be compared keeps the extent."""
    known: Any = extent.column_stats.get(wanted.column)
    if not isinstance(known, dict):
        return True
    kind, low, high = _TYPES[wanted.sort], known.get("min"), known.get("max")
    is_above = type(low) is kind and wanted.high is not None and _before(wanted.high, low)
    is_below = type(high) is kind and wanted.low is not None and _before(high, wanted.low)
    return not (is_above or is_below)


def _before(a: Any, b: Any) -> bool:
    return bool(a < b)


def _by_time(extent: Extent) -> tuple[int, int]:
    low, high = extent.min_ts_ns, extent.max_ts_ns
    return MIN_NS if low is None else low, MAX_NS if high is None else high


def _with_stats(extent: Extent, names: Collection[str]) -> Extent:
    kept = {name: known for name, known in extent.column_stats.items() if name in names}
    return replace(extent, column_stats=kept)
