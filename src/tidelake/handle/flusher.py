"""Flush hot rows in the background, once they are old enough or many.

One daemon thread for a lake, started when a first table has something to flush. It never raises into anybody's code: a
flush that fails is tried again later, and until one succeeds the rows stay where they are, readable. It ends with
``close``, with the process, or when nobody holds the lake any more, at any step: a flush is one commit. The thread
itself holds nothing while it waits. It does not flush: see ``write.flush``.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import TypeAlias

from tidelake.errors import NotFoundError

RETRY_S = 5.0  # after a flush that failed
IDLE_S = 60.0  # between looks of a thread that nobody wakes
CLOSING_S = 30.0  # how long close waits for the flush that is under way

Flush: TypeAlias = Callable[[], float | None]  # flushes, and says after how many seconds to come again, if at all


class Flusher:
    """Call a function for each of some owners, each when it is due. Threads may share it, and it survives a fork."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._thread: threading.Thread | None = None
        self._due: dict[Hashable, tuple[float, Flush]] = {}
        self._forget()

    def notice(self, owner: Hashable, flush: Flush, after_s: float) -> None:
        """Flush for an owner after some time, or earlier if that is due already."""
        if self._pid != os.getpid():
            self._forget()  # the thread, and whoever held the lock, stayed with the parent
        due_s = self._clock_s() + after_s
        known = self._due.get(owner)
        if known is not None and known[0] <= due_s:
            return
        with self._changed:
            if self._is_closed:
                return
            self._due[owner] = (due_s, flush)
            if self._thread is None:
                woken = self._woken
                held = weakref.ref(self, lambda _: woken.set())
                self._thread = threading.Thread(target=_run, args=(held, woken), name="tidelake-flusher", daemon=True)
                self._thread.start()
                _started.add(self)
            self._woken.set()

    def close(self) -> None:
        """Stop, after the flush that is under way; what is not flushed yet stays hot."""
        if self._pid != os.getpid():
            return
        with self._changed:
            self._is_closed = True
            self._due.clear()
            self._woken.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSING_S)

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Lock()
        self._woken = threading.Event()
        self._due = {}
        self._thread = None
        self._is_closed = False

    def _next(self) -> tuple[Hashable, Flush] | float | None:
        """Take what is due, or give the seconds until something is; None once closed."""
        with self._changed:
            if self._is_closed:
                return None
            first = min(self._due, key=lambda owner: self._due[owner][0], default=None)
            wait_s = IDLE_S if first is None else self._due[first][0] - self._clock_s()
            if first is None or wait_s > 0:
                return min(wait_s, IDLE_S)
            return first, self._due.pop(first)[1]

    def _step(self) -> float | None:
        """Do what is due, if anything is; give the seconds to wait after it, None once closed."""
        found = self._next()
        if found is None or isinstance(found, float):
            return found
        owner, flush = found
        try:
            again_s = flush()
        except NotFoundError:  # the table was dropped
            again_s = None
        except Exception:  # the rows are safe, and nobody is here to be told
            again_s = RETRY_S
        if again_s is not None:
            self.notice(owner, flush, again_s)
        return None if self._is_closed else 0.0


def _run(held: weakref.ref[Flusher], woken: threading.Event) -> None:
    """Work until closed, or until nobody holds the lake any more."""
    while (flusher := held()) is not None:
        woken.clear()  # before looking: what comes later wakes it
        wait_s = flusher._step()
        del flusher
        if wait_s is None:
            return
        woken.wait(wait_s)


_started: weakref.WeakSet[Flusher] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for flusher in list(_started):
        flusher.close()
