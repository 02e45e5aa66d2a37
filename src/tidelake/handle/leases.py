"""Hold leases on the snapshots that this process reads, so that nobody deletes what they reach meanwhile.

One lease in each scope, at the lowest sequence in use. It is written before a plan is used, for a minute; nothing more
is written while it covers what is read and half of its time is left. One daemon thread for a lake prolongs it while
anything that was planned lives, and gives it back when nothing does and nobody reads for a few seconds. Who may not
write holds none: such a reader is told that a snapshot has expired when it finds it so.

What a reader holds may end in any thread and at any time, also while this one's locks are held: its end is only noted,
and heeded by whoever comes next. It does not know plans.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tidelake.catalog.protocol import Catalog, new_id
from tidelake.errors import NotFoundError, TidelakeError
from tidelake.model.snapshot import Scope, Snapshot
from tidelake.runtime.forking import renew_after_fork

LEASE_S = 60.0
RENEW_S = LEASE_S / 2  # of a lease, when it is prolonged; by so much may the clocks of machines differ
LINGER_S = 5.0  # after the last read: who reads on takes no new lease
RETRY_S = 5.0  # after a lease that could not be prolonged
LASTING_KEPT = 4096  # scopes with a lease for a time, after which those that ran out are forgotten
NEARLY_ALL = 5 / 6  # of the time that a reader elsewhere wants
CLOSING_S = 30.0  # how long close waits for what is under way


class Held:
    """Stands for a snapshot in use: as long as it lives, the snapshot is leased. It does not travel."""

    __slots__ = ("__weakref__", "_catalog", "sequence", "snapshot")

    def __init__(self, catalog: Catalog, snapshot: Snapshot) -> None:
        self._catalog, self.snapshot, self.sequence = catalog, snapshot, snapshot.sequence

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Say of an object that is not there that its snapshot has expired, if it has."""
        try:
            yield
        except NotFoundError as error:
            if error.kind != "expired" and self._is_expired():
                raise expired_under(self.snapshot) from error
            raise

    def _is_expired(self) -> bool:
        try:
            self._catalog.snapshot(self.snapshot.scope, sequence=self.snapshot.sequence)
        except NotFoundError:
            return True
        except TidelakeError:
            return False
        return False

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _nothing, ()


class LeaseKeeper:
    """Keep the snapshots leased that something in this process uses. Threads may share it, and it survives a fork."""

    def __init__(self, catalog: Catalog, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._catalog = catalog
        self._clock_s = clock_s
        self._scopes: dict[Scope, _Leased] = {}
        self._ended: deque[tuple[Scope, int]] = deque()
        self.renew_after_fork()
        renew_after_fork(self)
        catalog.readers.add(self)

    def renew_after_fork(self) -> None:
        """Be another owner in a forked child: leases and the thread stay with the parent."""
        self.owner = f"{os.getpid()}-{new_id()}"
        self._lock = threading.Lock()
        self._heeding = threading.Lock()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._lasting: dict[Scope, tuple[int, float]] = {}  # leases for a time: a sequence, and until when
        self._scopes = {scope: _Leased(uses=leased.uses) for scope, leased in self._scopes.items()}

    def hold(self, scope: Scope, sequence: int, holder: object) -> None:
        """Keep a snapshot retained while an object lives; NotFoundError (``expired``) if it is not any more."""
        if sequence == 0 or self._is_closed:
            return
        while True:
            leased = self._leased(scope)
            with leased.lock:
                if leased.is_forgotten:
                    continue  # just now, by the thread that looks after leases
                self._take(scope, leased, sequence)
                leased.uses[sequence] += 1
                leased.used_s = self._clock_s()
                break
        weakref.finalize(holder, self._ended.append, (scope, sequence)).atexit = False

    def hold_for(self, scope: Scope, sequence: int, seconds: float) -> None:
        """Keep a snapshot retained for a time, whoever reads it; nothing is written if one before does for nearly all.

        NotFoundError (``expired``) if it is not retained any more.
        """
        now_s = self._clock_s()
        with self._lock:
            held, until_s = self._lasting.get(scope, (sequence + 1, 0.0))
            if sequence == 0 or (held <= sequence and until_s - now_s >= seconds * NEARLY_ALL):
                return
        try:
            owner = f"{self.owner}-{new_id()}"  # another's end is not known
            self._catalog.lease(scope, owner=owner, sequence=sequence, lease_us=int(seconds * 1e6))
        except NotFoundError:
            raise
        except TidelakeError:  # read-only, or out of reach
            return
        with self._lock:
            if len(self._lasting) >= LASTING_KEPT:
                self._lasting = {held: each for held, each in self._lasting.items() if each[1] > now_s}
            self._lasting[scope] = (sequence, now_s + seconds)

    def let_go(self) -> None:
        """Give back at once what nothing uses, also below what something uses."""
        self._look_after(linger_s=0.0)

    def close(self) -> None:
        """Give all leases back; what is still being read is kept no longer."""
        with self._lock:
            self._is_closed = True
            self._woken.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSING_S)
        for scope, leased in list(self._scopes.items()):
            with leased.lock:
                self._give_back(scope, leased)

    def _leased(self, scope: Scope) -> _Leased:
        self._heed()
        leased = self._scopes.get(scope)
        if leased is None:
            with self._lock:
                leased = self._scopes.setdefault(scope, _Leased())
        return leased

    def _heed(self) -> None:
        """Take all that has ended off the lists, and wait for another thread that is about to."""
        with self._heeding:
            while self._ended:
                scope, sequence = self._ended.popleft()
                with (leased := self._scopes[scope]).lock:  # it is there while anything is used
                    leased.uses[sequence] -= 1
                    if leased.uses[sequence] <= 0:
                        del leased.uses[sequence]

    def _take(self, scope: Scope, leased: _Leased, sequence: int) -> None:
        """Have a lease at a sequence or below it, if the catalog gives one."""
        now_s = self._clock_s()
        covers = leased.sequence is not None and leased.sequence <= sequence
        if (covers and leased.until_s - now_s > RENEW_S) or now_s < leased.retry_s:
            return
        try:
            self._write(scope, leased, min((sequence, *leased.uses)))
        except NotFoundError:
            if not leased.uses or sequence < min(leased.uses):
                raise
            self._write(scope, leased, sequence)  # what was lost before is lost: this one may still be there
        except TidelakeError:  # read-only, or out of reach
            leased.sequence, leased.retry_s = None, now_s + RENEW_S
            return
        self._start()

    def _write(self, scope: Scope, leased: _Leased, sequence: int) -> None:
        until_s = self._clock_s() + LEASE_S
        self._catalog.lease(scope, owner=self.owner, sequence=sequence, lease_us=int(LEASE_S * 1e6))
        leased.sequence, leased.until_s = sequence, until_s

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._is_closed:
                woken = self._woken
                held = weakref.ref(self, lambda _: woken.set())
                self._thread = threading.Thread(target=_run, args=(held, woken), name="tidelake-leases", daemon=True)
                self._thread.start()
                _started.add(self)
            self._woken.set()

    def _look_after(self, linger_s: float = LINGER_S) -> None:
        """Prolong what is used, and give back what is not."""
        self._heed()
        for scope, leased in list(self._scopes.items()):
            with leased.lock:
                now_s = self._clock_s()
                if leased.sequence is None:
                    self._forget(scope, leased)
                    continue
                if not leased.uses and now_s - leased.used_s >= linger_s:
                    self._give_back(scope, leased)
                elif leased.uses and (
                    leased.until_s - now_s <= RENEW_S or (not linger_s and leased.sequence < min(leased.uses))
                ):  # at once also from what is used no more up to what is
                    self._prolong(scope, leased)

    def _forget(self, scope: Scope, leased: _Leased) -> None:
        """Keep nothing of a scope that nobody reads, under its lock."""
        if not leased.uses and self._clock_s() >= leased.retry_s:
            leased.is_forgotten = True
            with self._lock:
                self._scopes.pop(scope, None)

    def _prolong(self, scope: Scope, leased: _Leased) -> None:
        try:
            self._write(scope, leased, min(leased.uses))
        except NotFoundError:
            leased.sequence = None  # its readers find out
        except TidelakeError:
            if leased.until_s < self._clock_s():
                leased.sequence = None

    def _give_back(self, scope: Scope, leased: _Leased) -> None:
        """Give a lease back, under its lock: whoever begins to read meanwhile takes the next one after that."""
        if leased.sequence is None:
            return
        leased.sequence = None
        with suppress(TidelakeError):  # it runs out by itself
            self._catalog.release_leases(self.owner, [scope])

    def _next_s(self) -> float | None:
        """Look after all leases; return the seconds until that is due again, None once closed."""
        if self._is_closed:
            return None
        self._look_after()
        is_held = any(leased.sequence is not None for leased in list(self._scopes.values()))
        return LINGER_S if is_held else LEASE_S


@dataclass(slots=True, eq=False)
class _Leased:
    """What is used of one scope, and the lease on it."""

    uses: Counter[int] = field(default_factory=Counter)
    sequence: int | None = None  # that is leased, with all after it
    until_s: float = 0.0
    used_s: float = 0.0  # when something was last asked for
    retry_s: float = 0.0  # before which no lease is asked for: it would not be given
    is_forgotten: bool = False  # another takes its place
    lock: threading.Lock = field(default_factory=threading.Lock)


def expired_under(snapshot: Snapshot) -> NotFoundError:
    """Return the error for a snapshot that expired while it was read."""
    return NotFoundError(
        "the snapshot has expired while it was read: read again",
        scope=snapshot.scope,
        snapshot=snapshot.sequence,
        kind="expired",
    )


def _nothing() -> None:
    """Stand for a hold in another process, which has none."""


def _run(held: weakref.ref[LeaseKeeper], woken: threading.Event) -> None:
    """Work until closed, or until nobody holds the lake any more."""
    while (keeper := held()) is not None:
        woken.clear()  # before looking: what comes later wakes it
        wait_s = keeper._next_s()
        del keeper
        if wait_s is None:
            return
        woken.wait(wait_s)


_started: weakref.WeakSet[LeaseKeeper] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for keeper in list(_started):
        keeper.close()
