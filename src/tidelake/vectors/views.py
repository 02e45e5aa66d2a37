"""Hold what the vectors of a snapshot consist of: sources of rows, shards that cover some, and which rows are hidden.

It is made once for a snapshot and an index, and kept for the next search. One in which sidecars were missing is made
again after a while, for upkeep may have written them. It does not search.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.model.snapshot import Extent, Scope
from tidelake.runtime.forking import renew_after_fork
from tidelake.vectors import quantizing
from tidelake.vectors.codebook import Codebook, Mask
from tidelake.vectors.definition import IndexMetric, VectorIndex, indexes_of
from tidelake.vectors.quantizing import Shard
from tidelake.vectors.shards import shards_of
from tidelake.vectors.sidecars import read_codebook
from tidelake.vectors.sources import ExtentSource, HotSource, Positions, Source, all_but

VIEWS_KEPT = 32  # of snapshots, what their vectors consist of
LOOK_AGAIN_S = 5.0  # after which sidecars are looked for again that were not there


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What the vectors of one snapshot consist of, when nothing is left out."""

    sources: tuple[Source, ...]
    dead: Mapping[int, npt.NDArray[Any]]  # by the number of a source
    hot: int | None  # the number of the source that has the hot rows
    parts: tuple[tuple[Shard, tuple[int, ...]], ...]  # shards, and the sources that their extents are
    exact: tuple[int, ...]  # sources without codes, hot rows among them
    reasons: Counter[str]
    made_s: float
    codebook: Codebook | None = None
    allowed: tuple[Mask | None, ...] = ()  # of each shard: rows that are not hidden


class _Views:
    """What the vectors of some snapshots consist of: those that were asked for last."""

    def __init__(self) -> None:
        self.renew_after_fork()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Begin anew in a forked child."""
        self._lock = Lock()
        self._kept: OrderedDict[tuple[Scope, str, str, str], View] = OrderedDict()

    def get(self, key: tuple[Scope, str, str, str], make: Callable[[], View]) -> View:
        with self._lock:
            held = self._kept.get(key)
            if held is not None:
                self._kept.move_to_end(key)
        if held is not None and (not held.reasons or monotonic() - held.made_s < LOOK_AGAIN_S):
            return held
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > VIEWS_KEPT:
                self._kept.popitem(last=False)
        return made


def view_of(table: TableHandle, column: str, metric: IndexMetric) -> View:
    """Return what the vectors of a pinned table consist of, with the index of a column if it is of that metric."""
    snapshot = table.snapshot
    index = indexes_of(snapshot.settings, snapshot.schema).get(column)
    fitting = index if index is not None and index.metric == metric else None
    named = "" if fitting is None else fitting.codebook_key
    views = _VIEWS.get(table.lake)
    if views is None:
        views = _VIEWS.setdefault(table.lake, _Views())
    key = (table.scope, snapshot.id, column, named)
    return views.get(key, lambda: _made_view(table, fitting))


def _made_view(table: TableHandle, index: VectorIndex | None) -> View:
    snapshot = table.snapshot
    extents = table.catalog.extents(table.scope, sequence=snapshot.sequence, stats=())
    _, dead = table.dead()
    sources: list[Source] = [ExtentSource.of(extent, table.footers) for extent in extents]
    numbers = {extent.id: at for at, extent in enumerate(extents)}
    hidden = {numbers[each]: positions for each, positions in dead.items() if each in numbers}
    hot = None
    if snapshot.totals.hot_batches and (plan := table.outline(())).hot:  # of hot deletions alone nothing is seen
        hot = len(sources)
        sources.append(HotSource.of(plan))
    codebook = read_codebook(table.store, index) if index is not None and quantizing.is_available() else None
    parts: tuple[tuple[Shard, tuple[int, ...]], ...] = ()
    exact: Sequence[Extent] = extents
    reasons: Counter[str] = Counter()
    if codebook is not None and index is not None:
        covered = shards_of(table.lake).cover(table, index, codebook, extents)
        exact, reasons = covered.exact, covered.reasons
        parts = tuple((shard, tuple(numbers[each] for each in shard.extents)) for shard in covered.shards)
    own = tuple(numbers[extent.id] for extent in exact) + (() if hot is None else (hot,))
    allowed = tuple(_not_hidden(shard, places, hidden) for shard, places in parts)
    return View(tuple(sources), hidden, hot, parts, own, reasons, monotonic(), codebook, allowed)


def _not_hidden(shard: Shard, numbers: Sequence[int], dead: Mapping[int, npt.NDArray[Any]]) -> Mask | None:
    if not any(number in dead for number in numbers):
        return None
    allowed = np.ones(int(shard.firsts[-1]), np.bool_)
    for number, first in zip(numbers, shard.firsts, strict=False):
        if number in dead:
            allowed[first + dead[number]] = False
    return allowed


def seen(view: View, number: int) -> Positions:
    """Return the positions of the rows of a source that are not hidden."""
    source = view.sources[number]
    rows = source.extent.row_count if isinstance(source, ExtentSource) else source.batch.num_rows  # type: ignore[attr-defined]
    return all_but(rows, view.dead.get(number))


_VIEWS: WeakKeyDictionary[LakeHandle, _Views] = WeakKeyDictionary()
