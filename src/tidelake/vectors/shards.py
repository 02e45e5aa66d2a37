"""Keep the coded vectors of extents in memory, brought together so that few searches cover many extents.

Extents come and go with every snapshot: those that were not known yet are brought together in one new shard, a shard of
which an extent is gone is left out, and when there are many, the smaller half are brought together again. What cannot
be read is counted, and the queue of upkeep is told of it. All of it may be forgotten at any time. It does not search.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakKeyDictionary

from tidelake.errors import CorruptError, NotFoundError, TidelakeError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.model.snapshot import Extent
from tidelake.runtime.forking import renew_after_fork
from tidelake.vectors.codebook import Codebook
from tidelake.vectors.definition import VectorIndex
from tidelake.vectors.quantizing import Shard
from tidelake.vectors.sidecar import Sidecar
from tidelake.vectors.sidecars import read_sidecar

UNIT = "upkeep.index"  # the kind of the pieces of upkeep that write what is missing; see ``maintain.units``
MANY_SHARDS = 8  # each costs a search of its own
KEPT_BYTES = 1 << 30  # of shards
READ_THREADS = 8

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Covered:
    """The shards that cover some extents, and the extents that none covers, with the reasons."""

    shards: tuple[Shard, ...]
    exact: tuple[Extent, ...]
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, weakref_slot=True, eq=False)
class ShardCache:
    """The shards that this process holds of a lake's indexes."""

    fallbacks: Counter[str] = field(default_factory=Counter)  # extents searched exactly, by codebook
    _kept: OrderedDict[str, tuple[Shard, ...]] = field(default_factory=OrderedDict)  # by codebook
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Begin anew in a forked child."""
        self._lock, self._kept, self.fallbacks = Lock(), OrderedDict(), Counter()

    def cover(self, table: TableHandle, index: VectorIndex, codebook: Codebook, extents: Sequence[Extent]) -> Covered:
        """Return shards that cover extents, as far as their sidecars can be read."""
        wanted = {extent.id: extent for extent in extents}
        with self._lock:
            kept = [each for each in self._kept.get(index.codebook_key, ()) if wanted.keys() >= set(each.extents)]
        known = {extent_id for each in kept for extent_id in each.extents}
        read, reasons = self._read(table, index, codebook, [each for each in extents if each.id not in known])
        if read:
            kept.append(Shard.of(codebook, read))
        if len(kept) > MANY_SHARDS:
            kept = self._joined(table, index, codebook, kept, wanted)
        covered = {extent_id for each in kept for extent_id in each.extents}
        self._keep(index.codebook_key, tuple(kept))
        exact = tuple(extent for extent in extents if extent.id not in covered)
        self.fallbacks[index.codebook_key] += len(exact)
        return Covered(tuple(kept), exact, reasons)

    def forget(self, codebook_key: str) -> None:
        """Forget the shards of an index."""
        with self._lock:
            self._kept.pop(codebook_key, None)

    def _read(
        self, table: TableHandle, index: VectorIndex, codebook: Codebook, extents: Sequence[Extent]
    ) -> tuple[list[Sidecar], Counter[str]]:
        reasons: Counter[str] = Counter()
        found, bad = [], []
        for extent, sidecar in zip(extents, _side_by_side(table, index, codebook, extents), strict=True):
            if isinstance(sidecar, Sidecar):
                found.append(sidecar)
            else:
                reasons[sidecar] += 1
                bad.append(extent.id)
        if bad:
            _tell(table, index, bad)
        return found, reasons

    def _joined(
        self,
        table: TableHandle,
        index: VectorIndex,
        codebook: Codebook,
        shards: list[Shard],
        wanted: dict[str, Extent],
    ) -> list[Shard]:
        """Bring the smaller half together; their sidecars are read again."""
        by_size = sorted(shards, key=lambda each: -each.coded)
        large, small = by_size[: len(by_size) // 2], by_size[len(by_size) // 2 :]
        extents = [wanted[extent_id] for each in small for extent_id in each.extents]
        read, _ = self._read(table, index, codebook, extents)
        return [*large, Shard.of(codebook, read)] if len(read) == len(extents) else shards

    def _keep(self, codebook_key: str, shards: tuple[Shard, ...]) -> None:
        with self._lock:
            self._kept[codebook_key] = shards
            self._kept.move_to_end(codebook_key)
            sizes = {key: sum(each.byte_size for each in held) for key, held in self._kept.items()}
            while len(self._kept) > 1 and sum(sizes.values()) > KEPT_BYTES:
                gone, _ = self._kept.popitem(last=False)
                del sizes[gone]


def shards_of(lake: LakeHandle) -> ShardCache:
    """Return what this process holds of a lake's indexes."""
    return _CACHES.get(lake) or _CACHES.setdefault(lake, ShardCache())


def _side_by_side(
    table: TableHandle, index: VectorIndex, codebook: Codebook, extents: Sequence[Extent]
) -> Iterator[Sidecar | str]:
    def one(extent: Extent) -> Sidecar | str:
        try:
            return read_sidecar(table.store, index, codebook, extent)
        except NotFoundError:
            return "missing"
        except CorruptError as error:
            _logger.warning("an extent is searched exactly: %s", error)
            return "damaged"

    if len(extents) <= 1:
        yield from map(one, extents)
        return
    with ThreadPoolExecutor(READ_THREADS, thread_name_prefix="tidelake-vectors") as pool:
        yield from pool.map(one, extents)


def _tell(table: TableHandle, index: VectorIndex, extent_ids: Sequence[str]) -> None:
    """Have upkeep write the sidecars of extents; a reader that may not say so goes on."""
    user = {"user": table.user} if table.user else {}
    place = f"{table.name}/{table.user}" if table.user else table.name
    payload = {
        "table": table.name,
        "reason": "vectors are not coded",
        "column": index.column,
        **user,
        "suspects": list(extent_ids),
    }
    with suppress(TidelakeError):
        table.catalog.work.enqueue(UNIT, f"{place}:{index.column}", payload)


_CACHES: WeakKeyDictionary[LakeHandle, ShardCache] = WeakKeyDictionary()
