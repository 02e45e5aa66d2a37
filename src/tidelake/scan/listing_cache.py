"""Keep in memory what the catalog listed, so that the next plan of a table asks it only what is new.

For each scope the newest listing is kept: its extents, and of the columns that were asked about their statistics,
decoded, as sieves that drop most extents without a look at each. A newer snapshot brings it forward by the commits in
between; an older one is the catalog's to list. Of a table with very many extents only ids and sieves are kept
(``large_listing``): whoever asks first without a window of time reads them, page by page, which takes less time and
memory than to list them; for others a thread does, and until it has, the catalog's index lists. What is kept here is a
copy: it may vanish at any time, and never drops an extent that its statistics do not disprove. It does not judge what
is left: see ``plan``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from threading import Lock, Thread
from typing import Any
from weakref import WeakKeyDictionary, proxy

import numpy as np

from tidelake.catalog.protocol import Catalog
from tidelake.errors import TidelakeError
from tidelake.model.predicate import Leaf
from tidelake.model.snapshot import Extent, Scope, Snapshot
from tidelake.pruning.column_outcomes import Known, Mask, Sieve
from tidelake.pruning.plan import Question, time_window
from tidelake.pruning.statistics import column_from_json
from tidelake.runtime.forking import renew_after_fork
from tidelake.scan.large_listing import LargeListing, may_match

FEW_EXTENTS = 64  # fewer are listed by the catalog in the time it takes to ask what changed
MAX_EXTENTS = 50_000  # with all that is known of each; of more, only what drops most of them
MAX_BYTES = 512 << 20  # of statistics: words and filters of long texts are some kilobytes an extent
KEPT_SCOPES = 16
MAX_LARGE_BYTES = 1 << 30  # of one listing of very many
KEPT_LARGE = 2
MAX_SURVIVORS = 4_096  # that are asked for by their ids; more are the catalog's to list
MAX_BEHIND = 1_000  # snapshots that a listing of very many is brought forward by; it is read anew past them


class Listings:
    """The newest listing of each scope of one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog: Catalog = proxy(catalog)  # whoever asks holds it; this must not, or nobody could let go of it
        self._kept: OrderedDict[Scope, _Listing] = OrderedDict()
        self._large: OrderedDict[Scope, LargeListing] = OrderedDict()
        self._readers: dict[Scope, Thread] = {}
        self._lock = Lock()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Begin anew: a thread of the parent may have been bringing a listing forward."""
        self._lock, self._kept, self._large, self._readers = Lock(), OrderedDict(), OrderedDict(), {}

    def extents(self, snapshot: Snapshot, question: Question, columns: Collection[str]) -> list[Extent] | None:
        """List the extents that may hold wanted rows, with statistics; None where the catalog does it better."""
        if snapshot.totals.extents > MAX_EXTENTS:
            return self._of_very_many(snapshot, question, columns)
        with self._lock:
            held = self._kept.get(snapshot.scope)
            is_few = snapshot.totals.extents < FEW_EXTENTS
            if held is None and not is_few and time_window(question) != (None, None):
                return None  # a window of time is an index's work
            if held is None or held.sequence != snapshot.sequence:
                held = self._listed_anew(held, snapshot) if is_few else self._brought_forward(held, snapshot)
                if held is None:
                    return None
                self._kept[snapshot.scope] = held
            self._kept.move_to_end(snapshot.scope)
            for name in columns:
                if name not in held.sieves:
                    held.sieves[name] = self._sieve(snapshot.scope, held, name)
            found = held.surviving(question, columns)
            self._let_go(snapshot.scope)
            return found

    def _of_very_many(self, snapshot: Snapshot, question: Question, columns: Collection[str]) -> list[Extent] | None:
        """List the few that are left of very many; None where many are, or what is known of the columns is not here."""
        judged = frozenset(columns) - {question.time}
        if question.where is None or not judged:
            return None
        scope = snapshot.scope
        with self._lock:
            held = self._large.get(scope)
            if held is None or not judged <= held.names or snapshot.sequence - held.sequence > MAX_BEHIND:
                reader = self._read_aside(snapshot, judged if held is None else judged | held.names)
            else:
                reader = None
        if reader is not None:
            if time_window(question) != (None, None):
                return None  # an index's work
            reader.join()
        with self._lock:
            held = self._large.get(scope)
            if held is None or not judged <= held.names or snapshot.sequence - held.sequence > MAX_BEHIND:
                return None
            if held.sequence != snapshot.sequence:
                forward = self._large_forward(held, snapshot)
                if forward is None:
                    return None
                self._large[scope] = held = forward
            self._large.move_to_end(scope)
        ids = held.surviving(question)
        if len(ids) > MAX_SURVIVORS:
            return None
        found = self._catalog.extents_by_id(scope, ids, sequence=snapshot.sequence, stats=columns) if ids else []
        return found if len(found) == len(ids) else None

    def _large_forward(self, held: LargeListing, snapshot: Snapshot) -> LargeListing | None:
        if snapshot.sequence < held.sequence:
            return None
        try:
            changes = self._catalog.changes(snapshot.scope, after=held.sequence, upto=snapshot.sequence)
        except TidelakeError:  # what lies between has expired
            self._read_aside(snapshot, held.names)
            return None
        found = held.changed(snapshot.sequence, changes.added, frozenset(changes.removed))
        if found.count > 2 * snapshot.totals.extents:  # most of it is gone
            self._read_aside(snapshot, held.names)
        return found

    def _read_aside(self, snapshot: Snapshot, names: frozenset[str]) -> Thread:
        """Have a thread read what is known of some columns, unless one does; return that thread."""
        reader = self._readers.get(snapshot.scope)
        if reader is None:
            reader = Thread(target=self._read, args=(snapshot, names), name="tidelake-listing", daemon=True)
            self._readers[snapshot.scope] = reader
            reader.start()
        return reader

    def _read(self, snapshot: Snapshot, names: frozenset[str]) -> None:
        scope, sequence = snapshot.scope, snapshot.sequence
        found: LargeListing | None = None

        def known(names: frozenset[str]) -> LargeListing:
            pages = self._catalog.extent_pages(scope, sequence=sequence, stats=names)
            return LargeListing.of(sequence, names, pages, MAX_LARGE_BYTES)

        try:
            held = self._large.get(scope)
            if held is not None and held.sequence == sequence and held.names < names:
                found = held.beside(known(names - held.names), MAX_LARGE_BYTES)
            if found is None:
                found = known(names)
        except (
            TidelakeError,
            ReferenceError,
        ):  # it has expired, or nobody holds the catalog: who asks again begins anew
            pass
        finally:
            with self._lock:
                self._readers.pop(scope, None)
                if found is not None:
                    self._large[scope] = found
                    while len(self._large) > KEPT_LARGE:
                        self._large.popitem(last=False)

    def settle(self) -> None:
        """Wait for listings that are being read."""
        for reader in list(self._readers.values()):
            reader.join()

    def _let_go(self, scope: Scope) -> None:
        """Let go of other scopes while too much is kept, and then of what is known of this one's columns."""
        while len(self._kept) > 1 and (len(self._kept) > KEPT_SCOPES or self._byte_size > MAX_BYTES):
            self._kept.popitem(last=False)
        if self._byte_size > MAX_BYTES:
            self._kept[scope].sieves.clear()

    @property
    def _byte_size(self) -> int:
        return sum(listing.byte_size for listing in self._kept.values())

    def _listed_anew(self, held: _Listing | None, snapshot: Snapshot) -> _Listing | None:
        """List few extents, and read what is known of those that are new."""
        scope, sequence = snapshot.scope, snapshot.sequence
        if held is not None and sequence < held.sequence:
            return None
        listed = self._catalog.extents(scope, sequence=sequence, stats=())
        if held is None:
            return _Listing(sequence, listed)
        places = {extent.id: at for at, extent in enumerate(held.extents)}
        fresh = [extent.id for extent in listed if extent.id not in places]
        stats = self._catalog.extents_by_id(scope, fresh, sequence=sequence, stats=list(held.sieves)) if fresh else ()
        added = {extent.id: extent for extent in stats}
        if len(added) < len(fresh):
            return _Listing(sequence, listed)
        return _Listing(
            sequence,
            listed,
            {
                name: Sieve([_known(added[e.id], name) if e.id in added else sieve.each[places[e.id]] for e in listed])
                for name, sieve in held.sieves.items()
            },
        )

    def _brought_forward(self, held: _Listing | None, snapshot: Snapshot) -> _Listing | None:
        scope, sequence = snapshot.scope, snapshot.sequence
        if held is None:
            return _Listing(sequence, self._catalog.extents(scope, sequence=sequence, stats=()))
        if sequence < held.sequence:
            return None
        try:
            changes = self._catalog.changes(scope, after=held.sequence, upto=sequence)
        except TidelakeError:  # what lies between has expired
            return _Listing(sequence, self._catalog.extents(scope, sequence=sequence, stats=()))
        return held.changed(sequence, changes.added, set(changes.removed))

    def _sieve(self, scope: Scope, held: _Listing, name: str) -> Sieve:
        listed = self._catalog.extents(scope, sequence=held.sequence, stats=(name,))
        known = {extent.id: _known(extent, name) for extent in listed}
        return Sieve([known[extent.id] for extent in held.extents])


_LISTINGS: WeakKeyDictionary[Any, Listings] = WeakKeyDictionary()


def listings_of(catalog: Catalog) -> Listings:
    """Return the listings kept of a catalog."""
    found = _LISTINGS.get(catalog)
    if found is None:
        found = _LISTINGS[catalog] = Listings(catalog)
    return found


def _known(extent: Extent, name: str) -> Known | None:
    """Decode a column's statistics; None where the extent has none."""
    shape = extent.column_stats.get(name)
    return None if shape is None else Known(column_from_json(shape))


@dataclass(slots=True)
class _Listing:
    """What one snapshot holds."""

    sequence: int
    extents: list[Extent]
    sieves: dict[str, Sieve] = field(default_factory=dict)

    @property
    def byte_size(self) -> int:
        """About how much memory the statistics take."""
        return sum(sieve.byte_size for sieve in self.sieves.values())

    def changed(self, sequence: int, added: Iterable[Extent], removed: set[str]) -> _Listing:
        """Return the listing after commits that added and removed extents."""
        fresh = [extent for extent in added if extent.id not in removed]
        kept = [at for at, extent in enumerate(self.extents) if extent.id not in removed]
        bare = [replace(extent, column_stats={}) for extent in fresh]
        extents = [self.extents[at] for at in kept] + bare
        known = {
            name: [sieve.each[at] for at in kept] + [_known(extent, name) for extent in fresh]
            for name, sieve in self.sieves.items()
        }
        order = sorted(
            range(len(extents)), key=lambda at: (extents[at].min_ts_ns is not None, extents[at].min_ts_ns or 0)
        )
        return _Listing(
            sequence,
            [extents[at] for at in order],
            {name: Sieve([each[at] for at in order]) for name, each in known.items()},
        )

    def surviving(self, question: Question, columns: Collection[str]) -> list[Extent]:
        """List the extents that sieves do not disprove, with statistics of some columns."""

        def judged(leaf: Leaf) -> Mask | None:
            sieve = None if leaf.column in question.alternatives else self.sieves.get(leaf.column)
            return None if sieve is None else sieve.may_match(leaf)

        mask = may_match(question.where, judged)
        places = range(len(self.extents)) if mask is None else np.flatnonzero(mask).tolist()
        return [replace(self.extents[at], column_stats=self._stats(at, columns)) for at in places]

    def _stats(self, at: int, columns: Collection[str]) -> dict[str, Any]:
        return {name: known.stats for name in columns if (known := self.sieves[name].each[at]) is not None}
