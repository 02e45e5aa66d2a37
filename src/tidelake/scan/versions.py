"""Find which rows of a table with a key are hidden: all versions of a key but the newest, and tombstones.

It is found once for a snapshot and not again for each query: what is *dead* of an extent is a list of positions, which
a scan drops when it loads a block, whatever it asks for. Only what may overlap is read, and of it only the key, the
version and whether it is a tombstone: extents whose keys lie apart from all others' need no reading, and a condition on
the key leaves out all that cannot have it. Of the next snapshot only the keys that are new are looked for. More rows
than fit in memory are taken in ranges of the first key column.

A row's version is what the hidden column ``_seq`` says or, where that is not stored, its extent's first version plus
its position. It does not scan or plan.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.model.predicate import And, Predicate, columns_of, conjuncts_of
from tidelake.model.schema import DELETED_COLUMN, SEQ_COLUMN, Schema
from tidelake.model.snapshot import Extent, HotBatch, Scope, Snapshot
from tidelake.pruning.plan import Question, ScanPlan, surviving
from tidelake.pruning.statistics import UNKNOWN, Bound, Stats, column_from_json
from tidelake.runtime.forking import renew_after_fork
from tidelake.scan.footers import Footers
from tidelake.scan.hot import hot_groups
from tidelake.scan.key_codes import Numbers, codes_of, newest

MAX_ROWS = 8_000_000  # whose keys are compared at once: some 64 bytes each
KEPT_BYTES = 256 << 20  # of dead positions
KEPT_SCOPES = 1024
FEW_KEYS = 1_000  # looked for by value in statistics; more by their range

Dead: TypeAlias = Mapping[str, Numbers]  # positions by the id of an extent or a hot batch, ascending
_NONE: Numbers = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of one extent or one hot batch: where their keys lie, and whether some are tombstones."""

    id: str
    rows: int
    first_seq: int
    low: Bound | None = None  # of the first key column; None is unknown
    high: Bound | None = None
    has_tombstones: bool = True
    extent: Extent | None = None
    batch: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a source: their positions, keys, versions, and which are tombstones."""

    source: str
    positions: Numbers
    keys: list[pa.Array]
    seqs: Numbers
    deleted: np.ndarray[Any, np.dtype[np.bool_]] | None

    def only(self, mask: pa.BooleanArray) -> Part:
        """Return the rows for which a mask is true."""
        if mask.true_count == len(mask):
            return self
        taken = mask.to_numpy(zero_copy_only=False)
        deleted = None if self.deleted is None else self.deleted[taken]
        return Part(self.source, self.positions[taken], [k.filter(mask) for k in self.keys], self.seqs[taken], deleted)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows are looked at: those that a condition on the key leaves, or that have one of some first keys."""

    where: Predicate | None = None
    first: pa.Array | None = None
    window: tuple[Bound | None, Bound | None] = (None, None)  # of the first key column, from and before
    sought: Sequence[Any] | None = None  # the first keys, sorted, as bounds have them


@dataclass(slots=True)
class _Known:
    """What is dead in a snapshot, and of which sources that was found."""

    sequence: int
    ids: frozenset[str]
    dead: Dead

    @property
    def byte_size(self) -> int:
        return sum(each.nbytes for each in self.dead.values())


@dataclass(slots=True, weakref_slot=True, eq=False)
class Versions:
    """What this process knows of hidden rows, for the scopes that it read last."""

    footers: Footers
    _kept: OrderedDict[Scope, _Known] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Begin anew in a forked child."""
        self._lock, self._kept = Lock(), OrderedDict()

    def dead_in(
        self, snapshot: Snapshot, extents: Sequence[Extent], hot: Sequence[HotBatch], where: Predicate | None
    ) -> Dead:
        """Return what is dead among all rows of a snapshot, at least among those that a condition on the key leaves.

        ``extents`` are all that may hold such rows, with statistics of the key columns.
        """
        keys = keys_of(snapshot)
        with self._lock:
            held = self._kept.get(snapshot.scope)
            if held is not None:
                self._kept.move_to_end(snapshot.scope)
        if held is not None and held.sequence == snapshot.sequence:
            return held.dead
        looking = Looking(self.footers, snapshot.schema, keys)
        sources = [*map(looking.of_extent, extents), *looking.of_hot(hot)]
        if where is not None:
            return looking.dead(sources, Wanted(where))
        ids = frozenset(source.id for source in sources)
        if held is not None and held.sequence < snapshot.sequence and held.ids <= ids:
            dead = looking.carried_on(held.dead, sources, held.ids)
        else:
            dead = looking.dead(sources, Wanted())
        self._keep(snapshot, ids, dead)
        return dead

    def _keep(self, snapshot: Snapshot, ids: frozenset[str], dead: Dead) -> None:
        with self._lock:
            self._kept[snapshot.scope] = _Known(snapshot.sequence, ids, dead)
            self._kept.move_to_end(snapshot.scope)
            while len(self._kept) > 1 and (
                len(self._kept) > KEPT_SCOPES or sum(each.byte_size for each in self._kept.values()) > KEPT_BYTES
            ):
                self._kept.popitem(last=False)


def keys_of(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the key columns of a table, none if it has no key."""
    return tuple(snapshot.settings.get("key") or ())


def on_key(question: Question, keys: Sequence[str]) -> Predicate | None:
    """Return what a question asks of the key alone; rows that it does not leave are not needed to answer."""
    parts = [part for part in conjuncts_of(question.where) if columns_of(part) <= set(keys)]
    return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))


def without_dead(plan: ScanPlan, dead: Dead) -> ScanPlan:
    """Return a plan that leaves dead rows out, and what has no others."""
    tasks = [
        replace(task, dead=gone) if (gone := dead.get(task.extent.id)) is not None and len(gone) else task
        for task in plan.tasks
        if len(dead.get(task.extent.id, _NONE)) < task.extent.row_count
    ]
    hot = [batch for batch in plan.hot if len(dead.get(batch.id, _NONE)) < batch.rows]
    dead_hot = {batch.id: gone for batch in hot if len(gone := dead.get(batch.id, _NONE))}
    return replace(plan, tasks=tuple(tasks), hot=tuple(hot), dead_hot=dead_hot)


def seqs_of(batch: pa.RecordBatch, first_seq: int, rows: int) -> Numbers:
    """Return the versions of rows, the first of which has a version that is not stored."""
    counted = np.arange(first_seq, first_seq + rows)
    if SEQ_COLUMN not in batch.schema.names:
        return counted
    stored = batch.column(SEQ_COLUMN)
    if not stored.null_count:
        return stored.to_numpy()  # type: ignore[no-any-return]
    return np.where(stored.is_valid().to_numpy(zero_copy_only=False), stored.fill_null(0).to_numpy(), counted)


@dataclass(frozen=True, slots=True)
class Looking:
    """How the keys of one snapshot are looked at."""

    footers: Footers
    schema: Schema
    keys: tuple[str, ...]

    def of_extent(self, extent: Extent) -> Source:
        """Return what is known of an extent's keys without reading it."""
        shape = extent.column_stats.get(self.keys[0])
        known = None if shape is None else column_from_json(shape)
        deleted = extent.column_stats.get(DELETED_COLUMN)
        has_tombstones = deleted is not None and column_from_json(deleted).high is not False
        low, high = (None, None) if known is None else (known.low, known.high)
        return Source(extent.id, extent.row_count, extent.first_seq or 0, low, high, has_tombstones, extent=extent)

    def of_hot(self, hot: Sequence[HotBatch]) -> Iterator[Source]:
        """Decode the keys of hot rows, and yield each batch's."""
        wanted = (*self.keys, SEQ_COLUMN, DELETED_COLUMN)
        for _, rows, batches in hot_groups(hot, lambda names: [name for name in names if name in wanted]):
            at = 0
            for batch in batches:
                own = rows.slice(at, batch.rows)
                at += batch.rows
                bounds = pc.min_max(own.column(self.keys[0])) if batch.rows else {"min": None, "max": None}
                low, high = (_bound(bounds[end]) for end in ("min", "max"))
                has_tombstones = DELETED_COLUMN in own.schema.names
                yield Source(batch.id, batch.rows, batch.first_seq or 0, low, high, has_tombstones, batch=own)

    def dead(self, sources: Sequence[Source], wanted: Wanted) -> dict[str, Numbers]:
        """Return the dead positions of sources that have some, among the rows that are wanted."""
        found: dict[str, list[Numbers]] = {}
        for group in _overlapping(sources):
            for window in self.windows(group):
                parts = [part for source in group for part in self.parts(source, replace(wanted, window=window))]
                for name, positions in _judged(parts):
                    found.setdefault(name, []).append(positions)
        return {name: np.unique(np.concatenate(parts)) for name, parts in found.items()}

    def carried_on(self, before: Dead, sources: Sequence[Source], known: frozenset[str]) -> dict[str, Numbers]:
        """Return what is dead once some sources came: only their keys can hide, or be hidden, that were not before."""
        fresh = [source for source in sources if source.id not in known]
        first = [part.keys[0] for source in fresh for part in self.parts(source, Wanted())]
        if not first:
            return dict(before)
        values = pa.chunked_array(first).unique()
        also = self.dead(sources, Wanted(None, values, sought=as_bounds(values)))
        return {**before, **{name: np.union1d(before.get(name, _NONE), more) for name, more in also.items()}}

    def parts(self, source: Source, wanted: Wanted) -> Iterator[Part]:
        """Read the keys and versions of those rows of a source that are wanted, block by block."""
        if source.batch is not None:
            yield from self._part(source, source.batch, 0, wanted)
        elif source.extent is not None:
            reader = self.footers.open(source.extent)
            written = reader.metadata().schema.names
            columns = [name for name in (*self.keys, SEQ_COLUMN, DELETED_COLUMN) if name in written]
            infos = reader.metadata().blocks
            kept = self._kept(source.extent, [info.stats for info in infos], wanted)
            first = 0
            for number, info in enumerate(infos):
                stats = info.stats.columns.get(self.keys[0])
                apart = stats is not None and is_apart(stats.low, stats.high, wanted.window)
                if number in kept and not apart:
                    yield from self._part(source, reader.read_block(number, columns), first, wanted)
                first += info.stats.rows

    def _kept(self, extent: Extent, blocks: Sequence[Stats], wanted: Wanted) -> Collection[int]:
        """Number the blocks that may have wanted rows."""
        if wanted.sought is None:
            return surviving(Question(self.schema, self.keys, wanted.where), extent, blocks)
        bounds = ((at, block.columns.get(self.keys[0], UNKNOWN)) for at, block in enumerate(blocks))
        return {
            at
            for at, known in bounds
            if known.low is None
            or known.high is None
            or bisect_left(wanted.sought, known.low) < bisect_right(wanted.sought, known.high)
        }

    def _part(self, source: Source, batch: pa.RecordBatch, first: int, wanted: Wanted) -> Iterator[Part]:
        rows = batch.num_rows
        deleted = None
        if DELETED_COLUMN in batch.schema.names:
            deleted = batch.column(DELETED_COLUMN).fill_null(False).to_numpy(zero_copy_only=False)
        part = Part(
            source.id, np.arange(first, first + rows), [batch.column(name) for name in self.keys],
            seqs_of(batch, source.first_seq + first, rows), deleted,
        )  # fmt: skip
        if wanted.first is not None:
            part = part.only(pc.is_in(part.keys[0], value_set=wanted.first))
        if wanted.window != (None, None):
            part = part.only(inside(part.keys[0], wanted.window))
        if len(part.positions):
            yield part

    def windows(self, group: Sequence[Source]) -> list[tuple[Bound | None, Bound | None]]:
        """Part the keys of a group into ranges that are compared at once."""
        if sum(source.rows for source in group) <= MAX_ROWS:
            return [(None, None)]
        lows: list[tuple[Any, int]] = []
        for source in group:
            if source.extent is None:
                lows.append((source.low, source.rows))
                continue
            for info in self.footers.open(source.extent).metadata().blocks:
                stats = info.stats.columns.get(self.keys[0])
                lows.append((None if stats is None else stats.low, info.stats.rows))
        known = sorted((low, rows) for low, rows in lows if low is not None)
        cuts: list[Any] = []
        held = 0
        for low, rows in known:
            if held + rows > MAX_ROWS and (not cuts or low > cuts[-1]):
                cuts.append(low)
                held = 0
            held += rows
        return list(pairwise([None, *cuts, None]))


def _judged(parts: Sequence[Part]) -> Iterator[tuple[str, Numbers]]:
    """Yield the dead positions of each source, some of them at a time."""
    if not parts:
        return
    columns = [_joined([part.keys[at] for part in parts]) for at in range(len(parts[0].keys))]
    seqs = np.concatenate([part.seqs for part in parts])
    codes, count = codes_of(columns)
    alive = np.zeros(len(seqs), np.bool_)
    alive[newest(codes, count, seqs)] = True
    at = 0
    for part in parts:
        dead = ~alive[at : at + len(part.positions)]
        at += len(part.positions)
        if part.deleted is not None:
            dead |= part.deleted
        if dead.any():
            yield part.source, part.positions[dead]


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _overlapping(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """Part sources into groups between which no key is shared; what needs no look is left out."""
    held = [source for source in sources if source.rows]
    if any(source.low is None or source.high is None for source in held):
        groups: Iterable[list[Source]] = [held] if held else []
    else:
        groups = _apart(sorted(held, key=lambda source: source.low))  # type: ignore[arg-type, return-value]
    for group in groups:
        if len(group) > 1 or group[0].has_tombstones:
            yield group


def _apart(ordered: Sequence[Source]) -> Iterator[list[Source]]:
    group: list[Source] = []
    high: Any = None
    for source in ordered:
        if group and source.low > high:
            yield group
            group = []
        high = source.high if not group else max(high, source.high)
        group.append(source)
    if group:
        yield group


def is_apart(low: Any, high: Any, window: tuple[Any, Any]) -> bool:
    """Whether keys between two bounds all lie outside of a window."""
    start, end = window
    return (start is not None and high is not None and high < start) or (
        end is not None and low is not None and low >= end
    )


def inside(keys: pa.Array, window: tuple[Any, Any]) -> pa.BooleanArray:
    """Return which keys lie in a window, whose ends are bounds of statistics: times in nanoseconds."""
    is_time = pa.types.is_timestamp(keys.type)
    low, end = (
        bound if bound is None else pa.scalar(bound // 1000, pa.int64()).cast(keys.type) if is_time
        else pa.scalar(bound, keys.type)
        for bound in window
    )  # fmt: skip
    found = pa.array(np.ones(len(keys), np.bool_)) if low is None else pc.greater_equal(keys, low)
    return found if end is None else pc.and_(found, pc.less(keys, end))


def as_bounds(values: pa.Array) -> list[Any]:
    """Return keys as statistics have bounds, sorted: times in nanoseconds."""
    if pa.types.is_timestamp(values.type):
        return sorted(each * 1000 for each in values.cast(pa.int64()).to_pylist())
    return sorted(values.to_pylist())


def _bound(value: pa.Scalar) -> Bound | None:
    """Return the minimum or maximum key of hot rows as statistics have it: times in nanoseconds."""
    if isinstance(value, pa.TimestampScalar):
        return None if value.value is None else int(value.value) * 1000
    found: Bound | None = value.as_py()
    return found
