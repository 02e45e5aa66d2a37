"""Find what a table covers at a snapshot, from whatever still says so.

What a table covers is the union of what its live extents and hot rows cover. It is known, best first, from

1. memory: the last snapshot this process knew, brought forward by what changed since;
2. the table's united coverage, an object that a commit points to, brought forward likewise;
3. the coverage objects of the extents;
4. the extents themselves.

An object that is missing or damaged is told of in the log, and the next source is asked; the answer is the same. A
commit whose table has gathered much since the last united object brings a new one, so that neither a reader's work
nor a writer's grows with the number of commits. In a log table of one entity each commit brings one, as the original's
readers expect. It does not decide what may be appended.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import orjson

from tidelake.catalog.protocol import Catalog, Layout, Pending, TableInfo
from tidelake.coverage.buckets import parse_bucket
from tidelake.coverage.entities import (
    NO_ENTITY,
    Cells,
    Coverage,
    Index,
    cells_of,
    entity_text,
    shown_entity,
    united,
)
from tidelake.coverage.sidecar import checked_id, decode_any, encode, encode_seed, is_own, is_vouched
from tidelake.errors import CorruptError, NotFoundError, OverlapError
from tidelake.model.schema import Schema
from tidelake.model.snapshot import (
    Action,
    AddExtent,
    AppendHot,
    Claim,
    Commit,
    DropHot,
    Extent,
    Held,
    HotBatch,
    RemoveExtent,
    Scope,
    Snapshot,
    UnitedCoverage,
    UpdateCoverage,
)
from tidelake.objects import (
    ObjectStore,
)
from tidelake.runtime.forking import renew_after_fork
from tidelake.runtime.processes import process_name
from tidelake.scan.footers import Footers
from tidelake.scan.hot import read_hot

UNITED_AFTER = 64  # extents and hot batches since the last united object, each of which a reader must ask for
STATES_KEPT = 64  # scopes whose coverage stays in memory
ENTITIES_KEPT = 200_000  # in the coverage of single extents, together
READ_THREADS = 8
SEED_SUFFIX = ".roar"  # of objects in the original's layout
REPAIR = "repair"  # the operation of a commit that only brings a united object

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CoverageRules:
    """What a table says of its coverage."""

    index: Index
    mode: str  # exclusive or track
    is_single: bool  # of one entity, which the first append pins
    identity: str | None  # that entity

    @property
    def entity(self) -> str:
        """The entity of coverage that does not name one."""
        return self.identity or NO_ENTITY


def rules_of(settings: Mapping[str, Any], schema: Schema, layout: Layout) -> CoverageRules | None:
    """Read a table's settings; None if it keeps no coverage."""
    mode = settings.get("coverage") or "off"
    column = settings.get("index") or settings.get("time")
    if mode == "off" or column is None or settings.get("bucket") is None:
        return None
    entity = settings.get("entity") or ()
    names = (entity,) if isinstance(entity, str) else tuple(entity)
    pinned = settings.get("entity_identity")
    identity = entity_text([_typed(pinned[name], name, schema) for name in names]) if pinned and names else None
    return CoverageRules(
        Index(column, parse_bucket(settings["bucket"]), names), mode, layout.has_one_entity and bool(names), identity
    )


def pinned_text(value: Any) -> str:
    """Return a value of an entity as a log's table is pinned to it."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _typed(text: str, name: str, schema: Schema) -> Any:
    kind = schema[name].type.kind if name in schema else "string"
    return text if kind == "string" else orjson.loads(text)


@dataclass(frozen=True, slots=True)
class _State:
    """What a scope covers at a sequence, and how much a reader would have to unite to know it."""

    sequence: int
    coverage: Coverage
    as_of: int  # of the united object
    tail: int  # extents and hot batches since
    is_broken: bool = False  # the united object could not be used


class CoverageStore:
    """What the tables of a lake cover. Threads may share it."""

    def __init__(self, catalog: Catalog, store: ObjectStore, footers: Footers) -> None:
        self._catalog, self._store, self._footers = catalog, store, footers
        self._states: OrderedDict[Scope, _State] = OrderedDict()
        self._extents = _Kept(ENTITIES_KEPT)
        self._infos: dict[str, TableInfo] = {}
        self._lock = threading.Lock()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Forget what a thread of the parent may have been noting."""
        self._lock, self._states, self._extents = threading.Lock(), OrderedDict(), _Kept(ENTITIES_KEPT)

    def know(self, info: TableInfo) -> None:
        """Remember a table's name, of which its coverage's keys are made."""
        self._infos[info.id] = info

    def told(self, snapshot: Snapshot) -> CoverageRules | None:
        """Return what a table says of its coverage; None if it keeps none."""
        return rules_of(snapshot.settings, snapshot.schema, self._catalog.layout)

    def rules(self, snapshot: Snapshot) -> CoverageRules | None:
        """Return how a snapshot's coverage is kept; None if it is not, as of a table with a key, whose rows change."""
        return None if snapshot.is_keyed else self.told(snapshot)

    def at(self, snapshot: Snapshot) -> Coverage:
        """Return what a table covers at a snapshot."""
        return self._state(snapshot).coverage

    def newest(self, snapshot: Snapshot) -> Snapshot:
        """Return the newest snapshot of a snapshot's scope."""
        return self._catalog.head(snapshot.scope)

    def held_at(self, snapshot: Snapshot) -> Held:
        """Return the judge of claims at a snapshot; an OverlapError of its tells what is held."""
        rules = self.rules(snapshot)
        coverage = Coverage() if rules is None else self.at(snapshot)

        def held(claim: Claim) -> bool:
            if rules is not None and claim.entity in coverage:
                taken = coverage.bitmap(claim.entity) & claim.bitmap
                if taken:
                    raise overlap_error(rules.index, {claim.entity: taken}, self._name(snapshot.scope))
            return False

        return held

    def completed(self, commits: Sequence[Commit], onto: Snapshot) -> Sequence[Commit]:
        """Add a new united object to commits that are about to be published, if it is time for one."""
        rules = self.rules(onto)
        if rules is None or onto.scope.user or not any(_needs_united(commit) for commit in commits):
            return commits
        state = self._state(onto)
        if self._catalog.layout.has_one_entity and len(state.coverage) <= 1:
            after, as_of = self._after(state, commits, onto, rules), onto.sequence + 1
        elif state.tail >= UNITED_AFTER or state.is_broken or any(commit.operation == REPAIR for commit in commits):
            after, as_of = state.coverage, onto.sequence
        else:
            return commits
        if onto.coverage is not None and as_of <= onto.coverage.as_of:
            return commits
        action = UpdateCoverage(UnitedCoverage(self._offer(onto.scope, after, as_of, rules), as_of))
        return [*commits[:-1], replace(commits[-1], actions=(*commits[-1].actions, action))]

    def freed(
        self, snapshot: Snapshot, extents: Sequence[Extent], hot: Sequence[HotBatch], added: Sequence[Action]
    ) -> Coverage:
        """Return what is held no more once some extents and hot rows leave a snapshot and others come."""
        rules = self.rules(snapshot)
        if rules is None or not (extents or hot):
            return Coverage()
        gone = united([*self._of_extents(extents, rules), self._of_hot(hot, rules)])
        if not len(gone):
            return gone
        low, high = _time_bounds(gone, rules)
        removed = {extent.id for extent in extents} | {batch.id for batch in hot}
        near = self._catalog.extents(snapshot.scope, sequence=snapshot.sequence, start_ns=low, end_ns=high)
        warm = self._catalog.hot(snapshot.scope, sequence=snapshot.sequence) if snapshot.totals.hot_batches else []
        left = [extent for extent in near if extent.id not in removed]
        left += [action.extent for action in added if isinstance(action, AddExtent)]
        batches = [batch for batch in warm if batch.id not in removed]
        batches += [action.batch for action in added if isinstance(action, AppendHot)]
        return gone - united([*self._of_extents(left, rules), self._of_hot(batches, rules)])

    def write_extent(self, info: TableInfo, extent_id: str, coverage: Coverage, rules: CoverageRules) -> str:
        """Write what an extent covers, announced first, and give the object's key."""
        data = self._encoded(coverage, rules)
        key = self._catalog.layout.extent_coverage_key(info, extent_id, checked_id(data, secrets.randbits(64)))
        self._announce(info.scope, key)
        self._store.put(key, data)
        self._extents.keep(extent_id, coverage)
        return key

    def of_extent(self, extent: Extent, rules: CoverageRules) -> Coverage:
        """Return what an extent covers."""
        known = self._extents.get(extent.id)
        if known is None:
            known = self._read_extent(extent, rules)
            self._extents.keep(extent.id, known)
        return known

    def read_object(self, extent: Extent, rules: CoverageRules) -> Coverage:
        """Read an extent's coverage object; NotFoundError or CorruptError if it cannot be used."""
        key = extent.coverage_key or ""
        data = bytes(self._store.get(key))
        is_ours = not key.endswith(SEED_SUFFIX) or bool(extent.column_stats)
        if is_ours and not is_own(data) and not is_vouched(_stem(key), data):
            raise CorruptError("the checksum does not fit", object=key, kind="bad_coverage")
        found = decode_any(data, rules.index, rules.entity)
        if not is_ours:
            _check_plausible(found, extent, rules)
        return found

    def read_united(self, snapshot: Snapshot, rules: CoverageRules) -> Coverage:
        """Read the united object of a snapshot; NotFoundError or CorruptError if it cannot be used."""
        if snapshot.coverage is None:
            raise NotFoundError("there is no united coverage", scope=snapshot.scope)
        key = snapshot.coverage.key
        data = bytes(self._store.get(key))
        if not is_own(data) and not is_vouched(_stem(key), data):
            is_foreign = key.endswith(SEED_SUFFIX)  # another program's may be sound, but nothing vouches for it
            kind = "unvouched" if is_foreign else "bad_coverage"
            raise CorruptError("the checksum does not fit", object=key, kind=kind)
        return decode_any(data, rules.index, rules.entity)

    def from_data(self, extent: Extent, rules: CoverageRules) -> Coverage:
        """Read an extent itself, and find what it covers."""
        return united(cells.coverage for cells in self.cells_in(extent, rules))

    def cells_in(self, extent: Extent, rules: CoverageRules) -> Iterator[Cells]:
        """Read what the rows of an extent cover, block by block."""
        reader = self._footers.open(extent)
        names = [rules.index.column, *rules.index.entity]
        for block in range(len(reader.metadata().blocks)):
            yield cells_of(reader.read_block(block, names), rules.index)

    def forget(self, scope: Scope) -> None:
        """Forget what is in memory of a scope, because its objects were mended."""
        with self._lock:
            self._states.pop(scope, None)
        self._extents.clear()

    def rewrite_extent(self, extent: Extent, coverage: Coverage, rules: CoverageRules) -> None:
        """Write an extent's coverage again, in the place of an object that is gone or damaged."""
        if extent.coverage_key is not None:
            self._store.put(extent.coverage_key, self._encoded(coverage, rules))

    def learn(self, snapshot: Snapshot, coverage: Coverage) -> None:
        """Take what a snapshot covers from one who found it out."""
        with self._lock:
            self._states[snapshot.scope] = _State(snapshot.sequence, coverage, 0, 0, is_broken=True)

    def all_of(self, snapshot: Snapshot, read: Callable[[Extent], Coverage] | None = None) -> Coverage:
        """Unite what every extent and hot row of a snapshot covers, whatever is in memory or united."""
        rules = self.rules(snapshot)
        if rules is None:
            return Coverage()
        extents = self._catalog.extents(snapshot.scope, sequence=snapshot.sequence, stats=None)
        hot = self._catalog.hot(snapshot.scope, sequence=snapshot.sequence) if snapshot.totals.hot_batches else []
        return united([*self._of_extents(extents, rules, read), self._of_hot(hot, rules)])

    def _state(self, snapshot: Snapshot) -> _State:
        rules = self.rules(snapshot)
        if rules is None:
            return _State(snapshot.sequence, Coverage(), 0, 0)
        with self._lock:
            known = self._states.get(snapshot.scope)
        if known is not None and known.sequence == snapshot.sequence:
            return known
        found = None
        if known is not None and known.sequence < snapshot.sequence:
            found = self._forward(known, snapshot, rules)
        found = found or self._load(snapshot, rules)
        with self._lock:
            newest = self._states.get(snapshot.scope)
            if newest is None or newest.sequence < found.sequence:
                self._states[snapshot.scope] = found
                self._states.move_to_end(snapshot.scope)
            while len(self._states) > STATES_KEPT:
                self._states.popitem(last=False)
        return found

    def _load(self, snapshot: Snapshot, rules: CoverageRules) -> _State:
        """Know what a snapshot covers from its united object, or from all that is in it."""
        if snapshot.coverage is not None:
            base = self._try_united(snapshot, rules)
            if base is not None and base.sequence == snapshot.sequence:
                return base
            if base is not None and (found := self._forward(base, snapshot, rules)) is not None:
                return found
        whole = self.all_of(snapshot)
        tail = snapshot.totals.extents + snapshot.totals.hot_batches
        return _State(snapshot.sequence, whole, 0, tail, is_broken=snapshot.coverage is not None)

    def _try_united(self, snapshot: Snapshot, rules: CoverageRules) -> _State | None:
        assert snapshot.coverage is not None
        try:
            coverage = self.read_united(snapshot, rules)
        except (NotFoundError, CorruptError) as error:
            level = logging.INFO if error.kind == "unvouched" else logging.WARNING
            _logger.log(level, "united coverage is made again table=%s: %s", self._name(snapshot.scope), error)
            return None
        as_of = snapshot.coverage.as_of
        return _State(min(as_of, snapshot.sequence), coverage, as_of, 0)

    def _forward(self, state: _State, snapshot: Snapshot, rules: CoverageRules) -> _State | None:
        """Bring what is known forward by what changed; None if the catalog has forgotten what did."""
        scope = snapshot.scope
        try:
            changes = self._catalog.changes(scope, after=state.sequence, upto=snapshot.sequence)
            removed = [
                extent
                for extent in (self._catalog.extents(scope, sequence=state.sequence) if changes.removed else ())
                if extent.id in set(changes.removed)
            ]
            dropped = [
                batch
                for batch in (self._catalog.hot(scope, sequence=state.sequence) if changes.dropped else ())
                if batch.id in set(changes.dropped)
            ]
        except NotFoundError:
            return None
        added = united([*self._of_extents(changes.added, rules), self._of_hot(changes.appended, rules)])
        gone = united([*self._of_extents(removed, rules), self._of_hot(dropped, rules)])
        coverage = self._without(state.coverage | added, gone - added, snapshot, rules)
        as_of = snapshot.coverage.as_of if snapshot.coverage else 0
        sequences = [extent.added_seq for extent in changes.added] + [batch.added_seq for batch in changes.appended]
        fresh = sum(sequence > as_of for sequence in sequences)
        tail = fresh if as_of > state.as_of else state.tail + fresh
        return _State(
            snapshot.sequence, coverage, max(as_of, state.as_of), tail, state.is_broken and as_of <= state.as_of
        )

    def _without(self, coverage: Coverage, gone: Coverage, snapshot: Snapshot, rules: CoverageRules) -> Coverage:
        """Take away what is gone, but for what others that are still there hold too."""
        if not len(gone):
            return coverage
        low, high = _time_bounds(gone, rules)
        extents = self._catalog.extents(snapshot.scope, sequence=snapshot.sequence, start_ns=low, end_ns=high)
        hot = self._catalog.hot(snapshot.scope, sequence=snapshot.sequence) if snapshot.totals.hot_batches else []
        left = united([*self._of_extents(extents, rules), self._of_hot(hot, rules)])
        return coverage - (gone - left)

    def _after(self, state: _State, commits: Sequence[Commit], onto: Snapshot, rules: CoverageRules) -> Coverage:
        """Return what a table will cover once commits are in."""
        actions = [action for commit in commits for action in commit.actions]
        extents = [action.extent for action in actions if isinstance(action, AddExtent)]
        batches = [action.batch for action in actions if isinstance(action, AppendHot)]
        added = united([*self._of_extents(extents, rules), self._of_hot(batches, rules)])
        taken = {action.extent_id for action in actions if isinstance(action, RemoveExtent)}
        dropped = {action.batch_id for action in actions if isinstance(action, DropHot)}
        if not taken and not dropped:
            return state.coverage | added
        live = self._catalog.extents(onto.scope, sequence=onto.sequence)
        hot = self._catalog.hot(onto.scope, sequence=onto.sequence)
        left = self._of_extents([extent for extent in live if extent.id not in taken], rules)
        return united([*left, self._of_hot([batch for batch in hot if batch.id not in dropped], rules), added])

    def _of_extents(
        self, extents: Sequence[Extent], rules: CoverageRules, read: Callable[[Extent], Coverage] | None = None
    ) -> list[Coverage]:
        def one(extent: Extent) -> Coverage:
            return read(extent) if read else self.of_extent(extent, rules)

        if len(extents) <= 1:
            return [one(extent) for extent in extents]
        with ThreadPoolExecutor(READ_THREADS, thread_name_prefix="tidelake-coverage") as pool:
            return list(pool.map(one, extents))

    def _read_extent(self, extent: Extent, rules: CoverageRules) -> Coverage:
        if extent.coverage_key is not None:
            try:
                return self.read_object(extent, rules)
            except (NotFoundError, CorruptError) as error:
                _logger.warning("coverage of an extent is found again in its rows extent=%s: %s", extent.id, error)
        return self.from_data(extent, rules)

    def _of_hot(self, batches: Sequence[HotBatch], rules: CoverageRules) -> Coverage:
        if not batches:
            return Coverage()
        names = [rules.index.column, *rules.index.entity]
        return united(cells_of(rows, rules.index).coverage for _, rows in read_hot(batches, lambda _: names))

    def _offer(self, scope: Scope, coverage: Coverage, as_of: int, rules: CoverageRules) -> str:
        data = self._encoded(coverage, rules)
        content_id = checked_id(data, secrets.randbits(64))
        key = self._catalog.layout.united_coverage_key(self._info(scope), as_of, content_id)
        self._announce(scope, key)  # and if its commit loses a race, it is collected with what others gave up
        self._store.put(key, data)
        return key

    def _encoded(self, coverage: Coverage, rules: CoverageRules) -> bytes:
        seed = encode_seed(coverage) if self._catalog.layout.has_one_entity else None
        return encode(coverage, rules.index) if seed is None else seed

    def _announce(self, scope: Scope, key: str) -> None:
        self._catalog.register_pending([Pending(key, scope, process_name())])

    def _info(self, scope: Scope) -> TableInfo:
        if scope.table_id not in self._infos:
            self._infos |= {info.id: info for info in self._catalog.tables()}
        return self._infos[scope.table_id]

    def _name(self, scope: Scope) -> str:
        return str(self._infos.get(scope.table_id, scope.table_id))


def overlap_error(index: Index, taken: Mapping[str, Any], table: str) -> OverlapError:
    """Return which windows are held already: whose, from when to when, and how many."""
    entity = min(taken)
    first, last = taken[entity].min() - 2**63, taken[entity].max() - 2**63
    facts: dict[str, Any] = {
        "table": table,
        "entity": shown_entity(entity, index.entity),
        "start": index.bucket.shown(index.bucket.start(first)),
        "end": index.bucket.shown(index.bucket.start(last + 1)),
        "buckets": len(taken[entity]),
    }
    if len(taken) > 1:
        facts["entities"] = len(taken)
        facts["buckets_in_all"] = sum(map(len, taken.values()))
    return OverlapError("the time window is already held", **facts)


def same_time(index: Index, table: str, twins: tuple[str, int, int]) -> OverlapError:
    """Return that rows of one append have the same entity and time: which, and how many are too many."""
    entity, value, rows = twins
    return OverlapError(
        "rows of one append have the same time",
        table=table,
        entity=shown_entity(entity, index.entity),
        start=index.bucket.shown(value),
        rows=rows,
        kind="duplicate",
    )


class _Kept:
    """Coverage of single extents, the last ones asked for."""

    def __init__(self, most: int) -> None:
        self._most, self._entities = most, 0
        self._held: OrderedDict[str, Coverage] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, extent_id: str) -> Coverage | None:
        with self._lock:
            return self._held.get(extent_id)

    def keep(self, extent_id: str, coverage: Coverage) -> None:
        with self._lock:
            if extent_id in self._held:
                return
            self._held[extent_id] = coverage
            self._entities += len(coverage) + 1
            while self._entities > self._most and len(self._held) > 1:
                self._entities -= len(self._held.popitem(last=False)[1]) + 1

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self._entities = 0


def _needs_united(commit: Commit) -> bool:
    return commit.operation == REPAIR or any(
        isinstance(action, AddExtent | AppendHot | RemoveExtent | DropHot) for action in commit.actions
    )


def _time_bounds(gone: Coverage, rules: CoverageRules) -> tuple[int | None, int | None]:
    """Return the times between which extents may hold what is gone, as nanoseconds; None where they cannot say."""
    if not rules.index.bucket.is_time:
        return None, None
    runs = gone.runs
    low = rules.index.bucket.start(int(runs.first.min())) * 1000
    high = rules.index.bucket.start(int(runs.last.max()) + 1) * 1000
    return (low if low > -(2**63) else None), (high if high < 2**63 else None)


def _check_plausible(found: Coverage, extent: Extent, rules: CoverageRules) -> None:
    """Refuse coverage that nothing vouches for if it cannot be that of its extent."""
    bitmap = found.bitmap(rules.entity)
    fits = 0 < len(bitmap) <= extent.row_count
    for bound, held in ((extent.min_ts_ns, min), (extent.max_ts_ns, max)):
        if fits and bound is not None:
            number = rules.index.bucket.number(bound // 1000)
            fits = held(bitmap.min(), bitmap.max()) - 2**63 == number
    if not fits:
        raise CorruptError("coverage does not fit its extent", object=extent.coverage_key, kind="bad_coverage")


def _stem(key: str) -> str:
    return key.rpartition("/")[2].rpartition(".")[0]
