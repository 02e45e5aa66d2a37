"""Hold the one point in time by which a query must have ended, planning included.

Planning walks trees, much of it in the parser's own code, which nobody can ask to stop. So a thread waits for the end
and then raises in the thread that plans. That is safe because planning only makes new values; where it asks the catalog
or reads anything it is ``undisturbed``, and the clock is looked at before. It does not stop engines: they stop
themselves by what is ``left``.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

AGAIN_SECONDS = 0.05  # an exception that is raised in a finalizer is lost: it is raised again

T = TypeVar("T")


class Deadline:
    """When a query must have ended; the clock runs from the moment it is made."""

    def __init__(self, seconds: float) -> None:
        self._began = time.monotonic()
        self._ends = self._began + seconds
        self._watch: _Watch | None = None

    @property
    def spent(self) -> float:
        """The seconds since the query began."""
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        """The seconds that are left, negative once it is over."""
        return self._ends - time.monotonic()

    def watched(self, work: Callable[[], T], late: Exception) -> T:
        """Do some work in this thread, and raise ``late`` as soon as the time is over, whatever is being computed."""
        watch = self._watch = _Watch(self)
        try:
            try:
                watch.thread.start()
                return work()
            finally:
                watch.over = True
                watch.clear()
        except _OutOfTimeError:
            watch.over = True
            watch.clear()
            raise late from None
        finally:
            self._watch = None

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Let what must not be broken off go on, once it has begun."""
        if (watch := self._watch) is None:
            yield
            return
        watch.held += 1
        try:
            watch.clear()
            if self.left < 0:
                raise _OutOfTimeError
            yield
        finally:
            watch.held -= 1


class _OutOfTimeError(BaseException):
    """Raised in a thread that plans for too long; it never leaves ``Deadline.watched``."""


class _Watch:
    """A thread that raises in the one that made it once a deadline has passed, unless that is held or over."""

    def __init__(self, deadline: Deadline) -> None:
        self.over, self.held = False, 0
        self._deadline, self._target = deadline, ctypes.c_ulong(threading.get_ident())
        self._lock = threading.Lock()  # held while it is raised, so that it can be cleared for certain
        self._done = threading.Event()
        self.thread = threading.Thread(target=self._run, name="tidelake-deadline", daemon=True)

    def clear(self) -> None:
        """Take back what was raised and has not come yet; nothing is raised after, while it is held or over."""
        with self._lock:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(self._target, None)
        if self.over:
            self._done.set()

    def _run(self) -> None:
        self._done.wait(max(self._deadline.left, 0.0))
        while not self.over:
            with self._lock:
                if not (self.held or self.over):
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(self._target, ctypes.py_object(_OutOfTimeError))
            self._done.wait(AGAIN_SECONDS)
