"""Let the processes that write one SQLite catalog take turns: in order, and woken rather than polling.

SQLite's own write lock has no queue: whoever looks at the right moment gets it, and with many processes most of the
time goes into looking. So a writer first takes a lock of the kernel, ``flock``, on an empty file beside the catalog.
Linux grants it in the order in which it was asked for, wakes only the next in line, and gives it back for whoever
dies::

    catalog.sqlite         the catalog
    catalog.sqlite-turn    empty; whoever has it locked may begin to write

It is a courtesy and not what keeps the catalog whole: that is SQLite's lock, which is taken too. Programs that do not
know of turns, folders where the file cannot be made and disks without ``flock`` go on by SQLite's lock alone.

The call that waits for the lock cannot be given a deadline, so a thread makes it. A writer that stops waiting leaves
the thread in line; it gives the lock back when it gets it, or has it for the next who asks. It does not write.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]

TURN_SUFFIX = "-turn"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)  # a disk that does not know them


class Turn:
    """The turn of one process to write a catalog; one thread of it at a time may ask."""

    def __init__(self, catalog: str) -> None:
        self._path = os.path.realpath(catalog) + TURN_SUFFIX
        self._beside = catalog
        self._file: _LockFile | None = None
        self._is_off = fcntl is None
        self._is_held = False
        self._wait: _Wait | None = None  # the thread that is in line, if there is one

    @property
    def is_held(self) -> bool:
        """Whether this process has the lock; without, it relies on SQLite's alone."""
        return self._is_held

    def take_at_once(self) -> bool:
        """Have the turn now, or say that somebody else has it. Where there are no turns it is always ours."""
        file = self._opened()
        if file is None:
            return True
        if self._wait is not None and self._wait.is_in_line:
            return False  # ask it, or this process would wait for itself
        try:
            fcntl.flock(file.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            self._switch_off(error)
            return True
        self._is_held = True
        return True

    def wait(self, deadline_s: float, *, unless: Callable[[], bool]) -> bool | None:
        """Have the turn by a time of the monotonic clock: True. None if it did not come.

        Whoever gets the lock asks ``unless`` first: if there is no need for it any more, it is passed on: False.
        """
        file = self._opened()
        if file is None:
            return not unless()
        try:
            if self._wait is None or not self._wait.adopt(unless):
                self._wait = _Wait(file, unless)
            answer = self._wait.answer(deadline_s)
        except RuntimeError:  # no thread can be started
            return not unless()
        except OSError as error:
            self._switch_off(error)
            return not unless()
        self._is_held = answer is True
        return answer

    def give_back(self) -> None:
        """Let the next in line have its turn."""
        if self._is_held and self._file is not None:
            self._is_held = False
            fcntl.flock(self._file.number, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file; a thread that is still in line closes it."""
        self.give_back()
        self._file = None

    def forget(self) -> None:
        """Leave the turn, and whoever is in line, to the parent process: the lock is not given back."""
        if self._file is not None:
            self._file.close()
        self._file, self._wait, self._is_held = None, None, False

    def _opened(self) -> _LockFile | None:
        if self._file is None and not self._is_off:
            try:
                self._file = _LockFile(_open_lock_file(self._path, self._beside))
            except OSError as error:
                self._switch_off(error)
        return self._file

    def _switch_off(self, error: OSError) -> None:
        """Do without. What is wrong with the disk or its permissions, SQLite says better."""
        self._file, self._is_held = None, False
        self._is_off = error.errno in _NO_LOCKS


class _LockFile:
    """An open file, closed when nobody refers to it any more: a number alone could be another file's by then."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            with suppress(OSError):
                os.close(number)

    __del__ = close


class _Wait:
    """A thread in line for the lock, and the writer that wants it, if it still does."""

    def __init__(self, file: _LockFile, unless: Callable[[], bool]) -> None:
        self._file = file
        self._unless: Callable[[], bool] | None = unless  # None: nobody wants it any more
        self._guard = threading.Lock()
        self._done = threading.Lock()  # cheaper than an event: held until there is an answer
        self._done.acquire()
        self._answer: bool | OSError | None = None
        self._is_over = False
        threading.Thread(target=self._stand_in_line, name="tidelake-turn", daemon=True).start()

    @property
    def is_in_line(self) -> bool:
        return not self._is_over

    def adopt(self, unless: Callable[[], bool]) -> bool:
        """Want the lock again that somebody left this thread to wait for; False if it has it no more."""
        with self._guard:
            if self._is_over:
                return False
            self._unless = unless
            return True

    def answer(self, deadline_s: float) -> bool | None:
        """Return what became of it, or None at the deadline."""
        try:
            came = self._done.acquire(timeout=max(deadline_s - time.monotonic(), 0.0))
        except BaseException:  # interrupted
            if not self._leave() and self._answer is True:
                fcntl.flock(self._file.number, fcntl.LOCK_UN)
            raise
        came = came or not self._leave()
        if not came:
            return None
        if isinstance(self._answer, OSError):
            raise self._answer
        return self._answer

    def _leave(self) -> bool:
        """Want the lock no more; False if it came at the last moment."""
        with self._guard:
            if self._is_over:
                return False
            self._unless = None
            return True

    def _stand_in_line(self) -> None:
        answer: bool | OSError
        try:
            fcntl.flock(self._file.number, fcntl.LOCK_EX)
        except OSError as error:
            answer = error
        else:
            answer = True
        with self._guard:
            if answer is True and (self._unless is None or self._unless()):
                fcntl.flock(self._file.number, fcntl.LOCK_UN)
                answer = False
            self._answer, self._is_over = answer, True
        self._done.release()


def _open_lock_file(path: str, beside: str) -> int:
    """Open or make the file, for all who may write the catalog."""
    how = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(path, how)
    except FileNotFoundError:
        mode = os.stat(beside).st_mode & 0o777
        number = os.open(path, how | os.O_CREAT, mode)
        with suppress(OSError):
            os.fchmod(number, mode)  # as SQLite does with its own: not less, because of who came first
        return number
