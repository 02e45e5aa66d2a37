"""Find one row by its key, fast: what a scope consists of and the blocks that were read last are kept in memory.

Of a snapshot are kept the keys of its hot rows and the bounds of its extents; of extents that are sorted by key, which
block may have which. So a row that was read before, or lies near one, is found without the object store, and one in an
extent costs one read of one block. What is kept may vanish at any time, and a newer snapshot has its own. It does not
look many keys up: see ``lookup``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.format.segment import BlockInfo
from tidelake.model.predicate import Equals
from tidelake.model.schema import DELETED_COLUMN, HIDDEN_IDS, SEQ_COLUMN
from tidelake.model.snapshot import Extent, HotBatch, Scope, Snapshot
from tidelake.pruning.outcomes import TRUE, outcomes
from tidelake.pruning.plan import Block, Question
from tidelake.pruning.statistics import UNKNOWN, ColumnStats, Stats, column_from_json
from tidelake.runtime.forking import renew_after_fork
from tidelake.scan.alternatives import alternatives_of
from tidelake.scan.footers import Footers
from tidelake.scan.shapes import Shape
from tidelake.scan.stored_rows import StoredBlock, hot_versions_of
from tidelake.scan.versions import keys_of

KEPT_SCOPES = 4_096
KEPT_BYTES = 128 << 20  # of blocks, decoded
SCOPES_BYTES = 64 << 20  # of what scopes consist of, their hot rows included
SCOPE_BYTES, EXTENT_BYTES = 1_000, 4_000  # what is known of a scope, and of one of its extents, roughly


@dataclass(frozen=True, slots=True)
class Point:
    """The newest version of a key: a batch, and which row of it; ``tier`` says where it was found."""

    tier: str
    seq: int
    rows: pa.RecordBatch
    row: int

    @property
    def is_deleted(self) -> bool:
        return bool(self.rows.column(DELETED_COLUMN)[self.row].as_py())


@dataclass(frozen=True, slots=True)
class _Indexed:
    """An extent as a look for one key sees it."""

    extent: Extent
    stats: dict[str, ColumnStats]
    last_seq: int


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the first keys of an extent's blocks begin and end."""

    blocks: list[Block]
    lows: list[Any]
    highs: list[Any]
    is_sorted: bool  # as all are that this program wrote

    @classmethod
    def of(cls, infos: Sequence[BlockInfo], name: str) -> _Places:
        known = [info.stats.columns.get(name, UNKNOWN) for info in infos]
        firsts = np.cumsum([0, *(info.stats.rows for info in infos)]).tolist()
        blocks = [Block(at, info.stats, 0, 0, True, firsts[at]) for at, info in enumerate(infos)]
        lows, highs = [each.low for each in known], [each.high for each in known]
        bounds: list[Any] = [bound for pair in zip(lows, highs, strict=True) for bound in pair]
        is_sorted = None not in bounds and all(low <= high for low, high in pairwise(bounds))
        return cls(blocks, lows, highs, is_sorted)

    def having(self, value: Any) -> list[Block]:
        """Return the blocks that may have a value."""
        if self.is_sorted:
            return self.blocks[bisect_left(self.highs, value) : bisect_right(self.lows, value)]
        return [
            block
            for block, low, high in zip(self.blocks, self.lows, self.highs, strict=True)
            if (low is None or low <= value) and (high is None or high >= value)
        ]


@dataclass(slots=True)
class _Scope:
    """What one snapshot of a scope consists of."""

    sequence: int
    hot: pa.RecordBatch | None
    extents: list[_Indexed]  # the newest rows first

    @property
    def byte_size(self) -> int:
        return SCOPE_BYTES + (0 if self.hot is None else self.hot.nbytes) + EXTENT_BYTES * len(self.extents)


@dataclass(slots=True, weakref_slot=True, eq=False)
class Points:
    """What this process keeps to find single rows."""

    footers: Footers
    _scopes: OrderedDict[Scope, _Scope] = field(default_factory=OrderedDict)
    _blocks: OrderedDict[tuple[Any, ...], pa.RecordBatch] = field(default_factory=OrderedDict)
    _places: dict[str, _Places] = field(default_factory=dict)
    _bytes: int = 0
    _scope_bytes: int = 0
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Begin anew in a forked child."""
        self._lock, self._scopes, self._blocks, self._bytes = Lock(), OrderedDict(), OrderedDict(), 0
        self._places, self._scope_bytes = {}, 0

    def find(
        self,
        snapshot: Snapshot,
        key: Sequence[pa.Scalar],
        extents: Callable[[], Sequence[Extent]],
        hot: Callable[[], Sequence[HotBatch]],
    ) -> Point | None:
        """Return the newest version of a key, a tombstone too; what a snapshot consists of is asked for once."""
        scope = self._scope(snapshot, extents, hot)
        names = keys_of(snapshot)
        best = _newest(scope.hot, names, key, "hot") if scope.hot is not None else None
        conditions = [Equals(name, value.as_py()) for name, value in zip(names, key, strict=True)]
        for each in scope.extents:
            if best is not None and best.seq > each.last_seq:
                break
            known = Stats(each.extent.row_count, each.stats)
            if all(outcomes(condition, known) & TRUE for condition in conditions):
                for block in self._candidates(each.extent, names[0], key[0]):
                    found = _newest(self._block(snapshot, each.extent, block), names, key, "extents")
                    if found is not None and (best is None or found.seq > best.seq):
                        best = found
        return best

    def _scope(
        self,
        snapshot: Snapshot,
        extents: Callable[[], Sequence[Extent]],
        hot: Callable[[], Sequence[HotBatch]],
    ) -> _Scope:
        with self._lock:
            held = self._scopes.get(snapshot.scope)
            if held is not None and held.sequence == snapshot.sequence:
                self._scopes.move_to_end(snapshot.scope)
                return held
        shape = _shape(snapshot)
        rows = hot_versions_of(hot(), shape) if snapshot.totals.hot_batches else None
        listed = extents() if snapshot.totals.extents else ()
        fresh = _Scope(snapshot.sequence, rows, sorted(map(_indexed, listed), key=lambda each: -each.last_seq))
        with self._lock:
            if (before := self._scopes.pop(snapshot.scope, None)) is not None:
                self._scope_bytes -= before.byte_size
            self._scopes[snapshot.scope] = fresh
            self._scope_bytes += fresh.byte_size
            while len(self._scopes) > 1 and (len(self._scopes) > KEPT_SCOPES or self._scope_bytes > SCOPES_BYTES):
                _, gone = self._scopes.popitem(last=False)
                self._scope_bytes -= gone.byte_size
        return fresh

    def _candidates(self, extent: Extent, name: str, value: pa.Scalar) -> Iterable[Block]:
        """Return the blocks of an extent that may have a first key."""
        places = self._places.get(extent.id)
        if places is None:
            places = self._places[extent.id] = _Places.of(self.footers.open(extent).metadata().blocks, name)
            while len(self._places) > KEPT_SCOPES:
                self._places.pop(next(iter(self._places)), None)
        wanted = value.value * 1000 if isinstance(value, pa.TimestampScalar) else value.as_py()
        return places.having(wanted)

    def _block(self, snapshot: Snapshot, extent: Extent, block: Block) -> pa.RecordBatch:
        """Return a block with all of its columns, as the table has them now."""
        key = (extent.id, block.number, snapshot.schema.version, tuple(sorted(alternatives_of(snapshot.settings))))
        with self._lock:
            if (held := self._blocks.get(key)) is not None:
                self._blocks.move_to_end(key)
                return held
        read = StoredBlock(self.footers.open(extent), extent.first_seq, block).loaded(_shape(snapshot))
        with self._lock:
            if key not in self._blocks:
                self._blocks[key] = read
                self._bytes += read.nbytes
            while self._bytes > KEPT_BYTES and len(self._blocks) > 1:
                _, gone = self._blocks.popitem(last=False)
                self._bytes -= gone.nbytes
        return read


def _shape(snapshot: Snapshot) -> Shape:
    schema = snapshot.schema.with_hidden(HIDDEN_IDS)
    return Shape.of(Question(schema, schema.names, alternatives=alternatives_of(snapshot.settings)), schema.names)


def _indexed(extent: Extent) -> _Indexed:
    stats = {name: column_from_json(shape) for name, shape in extent.column_stats.items()}
    known = stats.get(SEQ_COLUMN)
    if known is not None and isinstance(known.high, int):
        return _Indexed(extent, stats, known.high)
    return _Indexed(extent, stats, (extent.first_seq or 0) + extent.row_count - 1)


def _newest(rows: pa.RecordBatch, names: Sequence[str], key: Sequence[pa.Scalar], tier: str) -> Point | None:
    """Return the row of a batch with a key that has the largest version."""
    at: np.ndarray[Any, np.dtype[np.int64]] | None = None
    for name, value in zip(names, key, strict=True):
        column = rows.column(name)
        if at is not None:
            column = column.take(pa.array(at))
        equal = pc.equal(column, value).to_numpy(zero_copy_only=False)
        at = np.flatnonzero(equal) if at is None else at[np.flatnonzero(equal)]
        if not len(at):
            return None
    assert at is not None
    seqs = rows.column(SEQ_COLUMN)
    best = max(at.tolist(), key=lambda row: seqs[row].as_py())
    return Point(tier, seqs[best].as_py(), rows, best)
