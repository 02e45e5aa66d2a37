"""Open extents once, and keep what was read of their footers.

An extent never changes, so nothing here goes stale, and all of it may be forgotten at any time. It does not read rows.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from tidelake.errors import CorruptError
from tidelake.format import ExtentReader, segment_format
from tidelake.model.snapshot import Extent
from tidelake.objects import ObjectStore
from tidelake.runtime.forking import renew_after_fork
from tidelake.scan.block_cache import BlockCache, with_cache

FOOTERS_KEPT = 4096  # opened extents; a footer is a few dozen kilobytes


class Footers:
    """Open extents once: a bounded cache of readers by key. Extents never change, so nothing here goes stale."""

    def __init__(self, store: ObjectStore, kept: int = FOOTERS_KEPT) -> None:
        self._store, self._kept, self._blocks = store, kept, BlockCache()
        self._readers: OrderedDict[str, ExtentReader] = OrderedDict()
        self._lock = Lock()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Let nobody wait for a thread of the parent."""
        self._lock, self._readers = Lock(), OrderedDict()

    def holds(self, extent: Extent) -> bool:
        """Return whether an extent is open already."""
        return extent.key in self._readers

    def open(self, extent: Extent) -> ExtentReader:
        with self._lock:
            if reader := self._readers.get(extent.key):
                self._readers.move_to_end(extent.key)
                return reader
        reader = segment_format(extent.format).open_extent(self._store, extent.key)
        found = reader.metadata()
        if found.row_count != extent.row_count:
            raise CorruptError(
                "the extent is not the one committed",
                object=extent.key,
                rows=found.row_count,
                expected=extent.row_count,
            )
        reader = with_cache(reader, extent.key, self._blocks)
        with self._lock:
            self._readers[extent.key] = reader
            while len(self._readers) > self._kept:
                self._readers.popitem(last=False)
        return reader
