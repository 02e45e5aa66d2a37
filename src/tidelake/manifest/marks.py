"""Note the states of scopes, in memory and on this node, as things happen to them.

What is written to RocksDB is a change of state and nothing else, so that an append of hot rows to a scope that has some
costs a look into a dictionary. It does not read manifests or decide what is right.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from tidelake.catalog.protocol import Clock
from tidelake.manifest.node_tier import NodeTier
from tidelake.manifest.states import MAX_REASON, NEVER_US, Held, Mark, State, failed
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Scope, Snapshot

MAX_MARKS = 4_096  # scopes whose state is known without asking
VERIFY_AFTER_US = 60 * 1_000_000  # that another process has to write the manifest of its own commit


class Marks:
    """The states of scopes. Threads may share it."""

    def __init__(self, node: Callable[[], NodeTier | None], clock: Clock) -> None:
        self._node, self._clock = node, clock
        self._known: OrderedDict[Scope, Mark] = OrderedDict()
        self._hot: OrderedDict[Scope, int] = OrderedDict()  # the last sequence at which this process made rows hot
        self.renew()

    def renew(self) -> None:
        """Make a new lock, in a forked child."""
        self._lock = threading.RLock()

    def of(self, scope: Scope) -> Mark | None:
        """Return a scope's state as it was last noted in this process or on this node."""
        known = self._known.get(scope)
        if known is None and (node := self._node()) is not None:
            known = node.mark(scope)
        return known

    def hot(self, scope: Scope, sequence: int, flush_age_us: int | None) -> None:
        """Note that a commit made rows hot: a scope that was in sync has something to write."""
        with self._lock:
            self._hot[scope] = max(sequence, self._hot.pop(scope, 0))
            _shorten(self._hot)
            known = self._known.get(scope)
            if known is not None and known.state != "in_sync":
                return
            known = self.of(scope)
            if known is None or known.state == "in_sync":
                self._set(scope, self._pending(flush_age_us))
            else:
                self._keep(scope, known)

    def syncing(self, scope: Scope) -> Mark | None:
        """Note that a flush or a write is under way; return the state before."""
        with self._lock:
            before, now = self.of(scope), self._clock()
            carried = (0, False) if before is None else (before.attempts, before.is_doubted)
            self._set(scope, Mark("syncing", now, now, carried[0], is_doubted=carried[1]))
            return before

    def failed(self, scope: Scope, before: Mark | None, error: Exception) -> Mark:
        """Note that a write failed, and when it is tried again."""
        with self._lock:
            return self._set(scope, failed(before, str(error), self._clock()))

    def stale(self, scope: Scope, reason: object) -> None:
        """Note that a copy was found wrong."""
        with self._lock:
            now, known = self._clock(), self.of(scope)
            if known is None or known.state not in ("syncing", "error"):
                self._set(scope, Mark("stale", now, now, error=str(reason)[:MAX_REASON], is_doubted=True))
            elif not known.is_doubted:
                self._set(scope, replace(known, is_doubted=True))

    def behind(self, scope: Scope) -> None:
        """Note that ``manifest.json`` is not there, or older than it should be."""
        with self._lock:
            now, known = self._clock(), self.of(scope)
            if known is None or known.state in ("in_sync", "pending_write"):
                self._set(scope, Mark("pending_write", now, now))

    def written(self, scope: Scope, head: Snapshot) -> Mark:
        """Note that ``manifest.json`` is right for a head; what became hot since is still to be written."""
        with self._lock:
            return self._set(scope, self._after(scope, head))

    def settled(self, scope: Scope, head: Snapshot, held: Held) -> Mark:
        """Note and return the state that a look found."""
        with self._lock:
            return self._set(scope, self.at(scope, head, held))

    def at(self, scope: Scope, head: Snapshot, held: Held) -> Mark:
        """Return the state of a scope at its head, where a copy of its manifest says what it does."""
        known, now = self.of(scope), self._clock()
        if known is not None and known.state in ("syncing", "error"):
            return known
        wanted = self._after(scope, head)
        if held.written != held.version and (head.totals.extents or held.written > 0):
            due_us = now + VERIFY_AFTER_US
            if known is not None and known.due_us is not None and known.due_us <= due_us:  # it is looked at soon
                return known
            return Mark("pending_write", now, due_us)
        if known is not None and known.is_doubted:
            return known
        return known if known is not None and known.state == wanted.state else wanted

    def end_flush(self, scope: Scope) -> bool:
        """Leave ``syncing``, unless a commit has done so; say whether it was left here."""
        with self._lock:
            known = self.of(scope)
            if known is None or known.state != "syncing":
                return False
            now = self._clock()
            self._set(scope, Mark("pending_write", now, now, is_doubted=known.is_doubted))
            return True

    def forget(self, scope: Scope) -> None:
        """Let go of all that is known of a scope, as when its table is gone."""
        with self._lock:
            self._known.pop(scope, None)
            self._hot.pop(scope, None)
            if (node := self._node()) is not None:
                node.remove(scope)

    def due(self, states: tuple[State, ...], upto_us: int, limit: int) -> list[Scope]:
        """Return scopes in some states that are due by a time, found by an index and not by a walk."""
        node = self._node()
        found: list[Scope] = []
        if node is None:
            marks = [(scope, mark) for scope, mark in list(self._known.items()) if mark.state in states]
            found = [scope for scope, mark in marks if mark.due_us is not None and mark.due_us <= upto_us]
            return found[:limit]
        for state in states:
            found += node.due(state, upto_us, limit - len(found))
        return found

    def _after(self, scope: Scope, head: Snapshot) -> Mark:
        """Return the state of a scope whose ``manifest.json`` is right."""
        if head.totals.hot_batches or self._hot.get(scope, 0) > head.sequence:
            return self._pending(TableSettings.of(head.settings).flush_age_us)
        return Mark("in_sync", self._clock())

    def _pending(self, flush_age_us: int | None) -> Mark:
        now = self._clock()
        return Mark("pending_write", now, NEVER_US if flush_age_us is None else now + flush_age_us)

    def _set(self, scope: Scope, mark: Mark) -> Mark:
        node = self._node()
        if node is not None and self._known.get(scope) != mark:
            node.set_mark(scope, mark)
        return self._keep(scope, mark)

    def _keep(self, scope: Scope, mark: Mark) -> Mark:
        self._known[scope] = mark
        self._known.move_to_end(scope)
        _shorten(self._known)
        return mark


def _shorten(kept: OrderedDict[Scope, Mark] | OrderedDict[Scope, int]) -> None:
    while len(kept) > MAX_MARKS:
        kept.popitem(last=False)
