"""Answer what cold segments a scope has from the nearest tier, and keep the tiers right.

``get_or_load`` looks in this order, and fills the faster tiers on the way back::

    memory          of this process; shared scopes only, so that millions of users cost none
    rocksdb         on this node; see ``node_tier``
    manifest.json   beside the segments; see ``stored``
    catalog         the truth

A copy is good if it was made for the very snapshot that is the head: one comparison. Another that was right for an
older snapshot of the same catalog is brought forward by the commits that it missed, and held against what the head
counts. Any other (torn, of a catalog that was restored, damaged) is left, and the next tier is asked. So no copy can
give a wrong answer, and all of them may be deleted at any time.

The states of ``states`` change by what happens: a commit of hot rows, a flush, a commit of segments, a failure, a look.
Nothing here fails a commit: what goes wrong is a state with a reason, and is tried again. It does not flush.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from tidelake.catalog.protocol import Catalog, Clock, StepHook, TableInfo, no_hook, now_us
from tidelake.errors import CorruptError, NotFoundError, StorageError, TidelakeError
from tidelake.manifest.manifest_json import ScopeManifest
from tidelake.manifest.marks import Marks
from tidelake.manifest.node_tier import NodeTier, open_node_tier
from tidelake.manifest.parts import Listed
from tidelake.manifest.segments import folder_of, is_segmented, listed_of, listed_statistics, table_text
from tidelake.manifest.states import NEVER_US, Held, Mark, State, Tier, recovered
from tidelake.manifest.stored import Place, StoredManifests, Wish, in_order, is_past, last_change
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import AddExtent, AppendHot, Commit, Receipt, RemoveExtent, Scope, Snapshot
from tidelake.objects import ObjectStore, remove_unfinished, unfinished
from tidelake.runtime.forking import renew_after_fork

MAX_ENTRIES = 500  # manifests of shared scopes in the memory of a process
EVICTION_TTL_US = 7 * 24 * 3600 * 1_000_000  # after which a copy that nobody asked for leaves this node
EVICTION_INTERVAL_US = 300 * 1_000_000  # between looks for such
EVICTION_STEP = 1_000  # copies that one look goes through
MAX_TABLES = 4_096
LOCKS = 64
DUE_STEP = 1_000  # scopes that are put right at once
RETRY_S = 1.0  # between such steps

_logger = logging.getLogger(__name__)
_FIRST: Scope | None = None  # where a walk over this node's copies begins

Later: TypeAlias = Callable[[Hashable, Callable[[], float | None], float], None]  # as ``Flusher.notice``


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept, and for how long; an eviction TTL of 0 keeps copies for ever."""

    max_entries: int = MAX_ENTRIES
    eviction_ttl_us: int = EVICTION_TTL_US
    eviction_interval_us: int = EVICTION_INTERVAL_US


@dataclass(frozen=True, slots=True)
class Entry:
    """The cold segments of a scope, right for one snapshot, and who answered."""

    scope: Scope
    table: str
    folder: str
    state: State
    tier: Tier
    held: Held
    listed: tuple[Listed, ...]  # the oldest rows' first
    error: str | None = None

    @property
    def version(self) -> int:
        """The sequence at which the segments changed last."""
        return self.held.version

    def key_of(self, listed: Listed) -> str:
        """Return the key of a segment's object."""
        return f"{self.folder}/{listed.segment.path}"


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a scope's manifest without loading it."""

    place: Place
    head: Snapshot
    held: Held | None
    mark: Mark
    tier: Tier  # the nearest that has a copy


@dataclass(frozen=True, slots=True)
class _Known:
    """What does not change about a table."""

    info: TableInfo
    is_segmented: bool
    has_users: bool
    flush_age_us: int | None


@dataclass(frozen=True, slots=True)
class _Missed:
    """What changed of a scope's segments since a copy was right."""

    added: tuple[Listed, ...]
    removed: tuple[str, ...]
    version: int

    @property
    def more(self) -> int:
        return len(self.added) - len(self.removed)


class ManifestService:
    """The manifests of a lake's segmented tables. Threads may share it, and it survives a fork."""

    def __init__(
        self,
        catalog: Catalog,
        store: ObjectStore,
        *,
        node: Path | None = None,
        later: Later | None = None,
        limits: Limits | None = None,
        clock: Clock = now_us,
        at: StepHook = no_hook,
    ) -> None:
        self._catalog, self._store, self._folder, self._later = catalog, store, node, later
        self._limits, self._clock, self._at = limits or Limits(), clock, at
        self._stored = StoredManifests(catalog, store, at)
        self._marks = Marks(lambda: self._node, clock)
        self._tables: dict[str, _Known] = {}  # by id
        self._memory: OrderedDict[Scope, Entry] = OrderedDict()
        self._evicted_us, self._evicted_upto = 0, _FIRST
        self._opened: tuple[NodeTier | None] | None = None
        self._is_closed = False
        self.renew_after_fork()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Make new locks in a forked child; RocksDB stays with the parent."""
        self._lock, self._opening = threading.Lock(), threading.RLock()
        self._writing = [threading.Lock() for _ in range(LOCKS)]
        self._marks.renew()

    @property
    def _node(self) -> NodeTier | None:
        """The copies on this node, opened when first asked for; what a process that died left there is put right."""
        if self._opened is None:
            with self._opening:
                if self._opened is None:
                    closed = self._folder is None or self._is_closed
                    tier, is_first = (None, False) if closed else open_node_tier(cast(Path, self._folder))
                    self._opened = (tier,)
                    if tier is not None and is_first:
                        self._recover(tier)
        return self._opened[0]

    @property
    def _was_used(self) -> bool:
        """Whether this node ever had a manifest of the lake: to find out makes no folder."""
        return self._opened is not None or (self._folder is not None and self._folder.exists())

    # what tables there are

    def know(self, info: TableInfo) -> None:
        """Remember a table's name."""
        if info.id not in self._tables:
            self._learn(info)

    def is_segmented(self, scope: Scope) -> bool:
        """Whether a scope has a manifest: its table has users, or a key."""
        known = self._known(scope)
        return known is not None and known.is_segmented

    def has_users(self, scope: Scope) -> bool:
        """Whether a scope's table has a scope for each user, so that its shared one holds no rows."""
        known = self._known(scope)
        return known is not None and known.has_users

    def place(self, scope: Scope) -> Place:
        """Return where a scope's manifest lies; NotFoundError if there is no such table."""
        known = self._known(scope)
        if known is None:
            raise NotFoundError("no such table", table=scope.table_id, kind="no_table")
        return Place(scope, table_text(known.info), folder_of(known.info, scope.user))

    def _known(self, scope: Scope) -> _Known | None:
        if scope.table_id not in self._tables:
            for info in self._catalog.tables():
                if info.id == scope.table_id:
                    self._learn(info)
        return self._tables.get(scope.table_id)

    def _learn(self, info: TableInfo) -> None:
        if len(self._tables) >= MAX_TABLES:
            self._tables.clear()
        settings = self._catalog.head(info.scope).settings
        has_users, flush_age_us = settings.get("scope") == "user", TableSettings.of(settings).flush_age_us
        self._tables[info.id] = _Known(info, is_segmented(settings), has_users, flush_age_us)

    # reading

    def get_or_load(self, scope: Scope, head: Snapshot | None = None) -> Entry:
        """Return the segments of a scope at its head, from the nearest tier that has them right."""
        place = self.place(scope)
        head = self._catalog.head(scope) if head is None else head
        found = self._memory.get(scope)
        if found is not None and found.held.snapshot == head.id:
            return self._settled(found, head)
        if not head.sequence:
            return Entry(scope, place.table, place.folder, "in_sync", "catalog", _nothing_held(self._clock()), ())
        entry = self._from_memory(place, head) or self._from_node(place, head) or self._from_file(place, head)
        entry = self._settled(entry or self._from_catalog(place, head), head)
        self._evict()
        return entry

    def _settled(self, entry: Entry, head: Snapshot) -> Entry:
        """Give an answer its state, and have ``manifest.json`` written if it is known to be behind."""
        mark = self._marks.settled(entry.scope, head, entry.held)
        if mark.state in ("stale", "pending_write") and mark.due_us is not None and mark.due_us <= self._clock():
            self._have_synced(entry.scope, 0.0)
        return replace(entry, state=mark.state, error=mark.error)

    def _from_memory(self, place: Place, head: Snapshot) -> Entry | None:
        kept = self._memory.get(place.scope)
        return None if kept is None else self._answer(place, head, "memory", kept.held, lambda: kept.listed)

    def _from_node(self, place: Place, head: Snapshot) -> Entry | None:
        node = self._node
        held = node.held(place.scope) if node is not None else None
        if node is None or held is None:
            return None
        return self._answer(place, head, "rocksdb", held, lambda: node.segments(place.scope, held.segments))

    def _from_file(self, place: Place, head: Snapshot) -> Entry | None:
        """Look at ``manifest.json``; one that cannot be read, or is not right, is to be written again."""
        try:
            found = self._stored.read(place)
            if found is None or found.notes is None:
                if head.totals.extents:
                    self._marks.behind(place.scope)
                return None
            held, listed = _held_in(found, self._clock()), self._stored.segments(place, found)
        except CorruptError as error:
            self._marks.stale(place.scope, error)
            return None
        except StorageError:
            return None
        return self._answer(place, head, "manifest.json", held, lambda: listed)

    def _from_catalog(self, place: Place, head: Snapshot) -> Entry:
        """List the segments anew."""
        extents = self._catalog.extents(place.scope, sequence=head.sequence, stats=listed_statistics(head.settings))
        listed = [listed_of(each, head.schema, head.settings, place.folder) for each in extents]
        held = replace(_nothing_held(self._clock()), version=last_change(self._catalog, head, None, 0))
        if self._node is not None and (before := self._node.held(place.scope)) is not None:
            held = replace(before, version=held.version, written=-1)
        entry = self._entry(place, head, "catalog", held, listed)
        if self._node is not None:
            self._node.hold(entry.scope, entry.held, entry.listed, whole=True)
        self._remember(entry)
        return entry

    def _answer(
        self, place: Place, head: Snapshot, tier: Tier, copy: Held, listed: Callable[[], Sequence[Listed] | None]
    ) -> Entry | None:
        """Bring a copy to the head, and fill the tiers above it; None if it is not right and cannot be made so."""
        scope = place.scope
        if not is_past(self._catalog, head, copy.sequence, copy.snapshot):
            self._marks.stale(scope, f"the copy in {tier} is of another state of the catalog")
            return None
        missed = self._missed(place, head, copy)
        before = None if missed is None else listed()
        if missed is None or before is None:
            return None  # what it missed has expired, or it is damaged
        gone = set(missed.removed)
        kept = [*(each for each in before if each.extent not in gone), *missed.added]
        if not _agrees(kept, head):
            self._marks.stale(scope, f"the copy in {tier} is not what the catalog counts")
            return None
        entry = self._entry(place, head, tier, replace(copy, version=missed.version), kept)
        if (node := self._node) is not None:
            if tier == "rocksdb" or (tier == "memory" and node.held(scope) == copy):
                node.hold(scope, entry.held, missed.added, missed.removed)
            else:
                node.hold(scope, entry.held, entry.listed, whole=True)
        self._remember(entry)
        return entry

    def _missed(self, place: Place, head: Snapshot, copy: Held) -> _Missed | None:
        """Return what changed of a scope's segments since a copy was right; None if that has expired."""
        if copy.snapshot == head.id:
            return _Missed((), (), copy.version)
        try:
            version = last_change(self._catalog, head, copy.version, copy.sequence)
            if version == copy.version:
                return _Missed((), (), version)
            changes = self._catalog.changes(place.scope, after=copy.sequence, upto=head.sequence)
        except NotFoundError:
            return None
        added = tuple(listed_of(each, head.schema, head.settings, place.folder) for each in changes.added)
        return _Missed(added, changes.removed, version)

    def _entry(self, place: Place, head: Snapshot, tier: Tier, held: Held, listed: Sequence[Listed]) -> Entry:
        counted = head.totals
        held = replace(
            held,
            sequence=head.sequence,
            snapshot=head.id,
            refreshed_us=self._clock(),
            segments=counted.extents,
            rows=counted.rows,
            bytes=counted.bytes,
        )
        return Entry(place.scope, place.table, place.folder, "in_sync", tier, held, tuple(sorted(listed, key=in_order)))

    def _remember(self, entry: Entry) -> None:
        if entry.scope.user or not self._limits.max_entries:
            return
        with self._lock:
            self._memory[entry.scope] = replace(entry, tier="memory")
            self._memory.move_to_end(entry.scope)
            while len(self._memory) > self._limits.max_entries:
                self._memory.popitem(last=False)

    # writing

    def committed(self, commit: Commit, receipt: Receipt) -> None:
        """Follow a commit that is in: note rows that became hot, write segments to ``manifest.json``. Never raises."""
        try:
            known = None if receipt.replayed else self._known(commit.scope)
            if known is None or not known.is_segmented:
                return
            if any(isinstance(action, AddExtent | RemoveExtent) for action in commit.actions):
                mark = self.sync(commit.scope)
                if mark.state == "error" and mark.due_us is not None:
                    self._have_synced(commit.scope, (mark.due_us - self._clock()) / 1e6)
            elif any(isinstance(action, AppendHot) for action in commit.actions):
                self._marks.hot(commit.scope, receipt.sequence, known.flush_age_us)
        except TidelakeError as error:
            _logger.warning("a manifest was not brought forward scope=%s: %s", commit.scope, error)

    @contextmanager
    def flushing(self, scope: Scope) -> Iterator[None]:
        """Be ``syncing`` while rows are flushed; ``error`` if that fails, with the reason."""
        if not self.is_segmented(scope):
            yield
            return
        before = self._marks.syncing(scope)
        try:
            yield
        except Exception as error:
            self._marks.failed(scope, before, error)
            raise
        if self._marks.end_flush(scope):  # nothing was committed
            with suppress(TidelakeError):
                self.get_or_load(scope)

    def sync(self, scope: Scope, *, wish: Wish | None = None) -> Mark:
        """Bring all tiers to the head: RocksDB first, then ``manifest.json``; return the state that this leaves."""
        with self._writing[hash(scope) % LOCKS]:
            before = self._marks.syncing(scope)
            try:
                is_doubted = before is not None and before.is_doubted
                return self._sync(scope, replace(wish or Wish(), is_anew=is_doubted))
            except TidelakeError as error:
                if isinstance(error, NotFoundError) and self._is_gone(scope):
                    self._forget(scope)
                    return Mark("in_sync", self._clock())
                return self._marks.failed(scope, before, error)

    def _sync(self, scope: Scope, wish: Wish) -> Mark:
        place, head = self.place(scope), self._catalog.head(scope)
        if not head.sequence and not wish.is_any:
            return self._marks.written(scope, head)
        held = self._note(place, head)
        self._at("manifest.noted")
        manifest, newest = self._stored.write(place, head, known=held, wish=wish)
        self._at("manifest.synced")
        if newest.id != head.id:
            held = self._note(place, newest)
        held = replace(
            held,
            written=manifest.version,
            created_ms=manifest.created_at,
            last_batch=manifest.last_sequence_number,
            files=manifest.files,
            vector_indexes=manifest.vector_indexes,
        )
        if self._node is not None:
            self._node.hold(scope, held)
        with self._lock:
            if (kept := self._memory.get(scope)) is not None and kept.held.snapshot == held.snapshot:
                self._memory[scope] = replace(kept, held=held)
        return self._marks.written(scope, newest)

    def _note(self, place: Place, head: Snapshot) -> Held:
        """Bring the copies in memory and on this node to the head, at the cost of what changed."""
        scope, node = place.scope, self._node
        if scope in self._memory:
            return (self._from_memory(place, head) or self._from_catalog(place, head)).held
        if node is None:
            held = replace(_nothing_held(self._clock()), version=last_change(self._catalog, head, None, 0))
            return self._entry(place, head, "catalog", held, ()).held
        copy = node.held(scope)
        missed = None
        if copy is not None and is_past(self._catalog, head, copy.sequence, copy.snapshot):
            missed = self._missed(place, head, copy)
        if copy is None or missed is None or copy.segments + missed.more != head.totals.extents:
            return self._from_catalog(place, head).held
        held = self._entry(place, head, "rocksdb", replace(copy, version=missed.version), ()).held
        node.hold(scope, held, missed.added, missed.removed)
        return held

    def persist_now(
        self,
        scope: Scope,
        *,
        vector_indexes: dict[str, dict[str, Any]] | None = None,
        files: dict[str, int] | None = None,
    ) -> None:
        """Write control-plane metadata of a scope to ``manifest.json`` at once; StorageError if that fails.

        No flush follows that would do it by the way, and nothing else has it.
        """
        mark = self.sync(scope, wish=Wish(vector_indexes, files))
        if mark.state == "error":
            raise StorageError("the manifest could not be written", scope=scope, reason=mark.error)

    # upkeep

    def due(self, limit: int = DUE_STEP) -> list[Scope]:
        """Return the scopes that are to be looked at now, found by an index and not by a walk."""
        if not self._was_used:
            return []
        return self._marks.due(("error", "stale", "pending_write"), self._clock(), limit)

    def repair(self, flush: Callable[[Scope], object] | None = None, limit: int = DUE_STEP) -> int:
        """Put right what is due: rows that are hot for too long, writes that failed, files and copies that are behind.

        Return how many scopes are right by now.
        """
        done = 0
        for scope in self.due(limit):
            try:
                if flush is not None and self._catalog.head(scope).totals.hot_batches:
                    flush(scope)
                done += self.sync(scope).state != "error"
            except TidelakeError as error:
                if isinstance(error, NotFoundError) and self._is_gone(scope):
                    self._forget(scope)
                else:
                    self._marks.failed(scope, self._marks.of(scope), error)
        return done

    def _have_synced(self, scope: Scope, after_s: float) -> None:
        """Have ``manifest.json`` written in the background, if somebody does that."""
        if self._later is not None and not self._is_closed:
            self._later(("manifest", scope), lambda: self._try_again(scope), max(0.0, after_s))

    def _try_again(self, scope: Scope) -> float | None:
        mark = self.sync(scope)
        if mark.state != "error" or mark.due_us is None:
            return None
        return max(0.0, (mark.due_us - self._clock()) / 1e6)

    def _recover(self, tier: NodeTier) -> None:
        """Put right what a process that died was in the middle of, and have the rest of what is due looked at."""
        now = self._clock()
        while found := tier.due("syncing", NEVER_US, DUE_STEP):
            for scope in found:
                tier.set_mark(scope, recovered(tier.mark(scope) or Mark("syncing", now), now))
                with suppress(TidelakeError):
                    self._remove_unfinished(scope)
        if self._later is not None and self.due(1):
            self._later(("manifests",), self._repair_step, 0.0)

    def _repair_step(self) -> float | None:
        self.repair()
        return RETRY_S if self.due(1) else None

    def _remove_unfinished(self, scope: Scope) -> None:
        """Remove the temporary files of writers that are gone from a scope's folder."""
        for meta in unfinished(self._store, self.place(scope).folder):
            remove_unfinished(self._store, meta.key)

    def _is_gone(self, scope: Scope) -> bool:
        """Whether a scope's table was dropped."""
        return all(info.id != scope.table_id for info in self._catalog.tables())

    def _forget(self, scope: Scope) -> None:
        self._tables.pop(scope.table_id, None)
        self._memory.pop(scope, None)
        self._marks.forget(scope)

    def _evict(self) -> None:
        """Let go of copies on this node that nobody asked for in a long time, some at a time; never of what is due."""
        node, ttl_us, now = self._node, self._limits.eviction_ttl_us, self._clock()
        if node is None or not ttl_us or now - self._evicted_us < self._limits.eviction_interval_us:
            return
        self._evicted_us = now
        page = node.scopes(self._evicted_upto, EVICTION_STEP)
        self._evicted_upto = page[-1][0] if len(page) == EVICTION_STEP else _FIRST
        for scope, held in page:
            mark = node.mark(scope)
            if held.refreshed_us < now - ttl_us and (mark is None or mark.state == "in_sync"):
                node.remove(scope)

    # looking

    def scopes(self, state: State | None, limit: int) -> Iterator[Scope]:
        """Yield scopes in a state as this node knows it, or all that the catalog knows of segmented tables."""
        if state is not None and state != "in_sync" and self._was_used and self._node is not None:
            yield from self._marks.due((state,), 2**63 - 1, limit)
            return
        for info in self._catalog.tables():
            self.know(info)
            if self._tables[info.id].is_segmented:
                yield from self._catalog.scopes(info.id)

    def look(self, scope: Scope) -> Look:
        """Return what is known of a scope's manifest without loading it."""
        place, head = self.place(scope), self._catalog.head(scope)
        kept, node = self._memory.get(scope), self._node
        held = kept.held if kept is not None else node.held(scope) if node is not None else None
        tier: Tier = "memory" if kept is not None else "rocksdb" if held is not None else "catalog"
        mark = self._marks.of(scope)
        if held is not None:
            mark = self._marks.at(scope, head, held)
        elif mark is None:
            mark = Mark("pending_write" if head.totals.hot_batches else "in_sync", head.committed_us)
        return Look(place, head, held, mark, tier)

    def close(self) -> None:
        """Let go of the copies on this node."""
        self._is_closed = True
        tier = self._opened[0] if self._opened is not None else None
        self._opened = (None,)
        if tier is not None:
            tier.close()


def _nothing_held(now: int) -> Held:
    return Held(0, "", 0, -1, now, 0, 0, 0)


def _held_in(manifest: ScopeManifest, now: int) -> Held:
    notes = manifest.notes
    assert notes is not None
    return Held(
        sequence=notes.sequence,
        snapshot=notes.snapshot,
        version=manifest.version,
        written=manifest.version,
        refreshed_us=now,
        segments=0,
        rows=0,
        bytes=0,
        created_ms=manifest.created_at,
        last_batch=manifest.last_sequence_number,
        files=manifest.files,
        vector_indexes=manifest.vector_indexes,
    )


def _agrees(listed: Sequence[Listed], head: Snapshot) -> bool:
    """Whether a list is what the head counts."""
    totals = head.totals
    rows, size = sum(each.segment.row_count for each in listed), sum(each.segment.size_bytes for each in listed)
    return (len(listed), rows, size) == (totals.extents, totals.rows, totals.bytes)
