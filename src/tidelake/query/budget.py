"""Bound what a query may cost: time on the wall, memory, bytes read from extents, and what it may reach outside.

A budget that is exceeded is an UnavailableError that says which, and by how much. ``external`` lists how the addresses
begin that ``externaldata`` may read; without it there are none.

Planning walks trees, much of it in the parser's own code, which nobody can ask to stop. So a thread waits for the end
and then raises in the thread that plans. That is safe because planning only makes new values; where it asks the catalog
or reads anything it is ``undisturbed``, and the clock is looked at before. Nothing is raised in a finalizer of somebody
else that happens to run there: only where every step of the stack is planning's own, and while the collector rests. It
does not stop engines: they stop themselves by what is ``left``.

What was raised is never taken back but always let come. CPython 3.11 has no way to take it back: clearing leaves the
interpreter on the watch for good, which costs every later loop, and never ends one under a profiler.
"""

from __future__ import annotations

import ctypes
import gc
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from tidelake.errors import InvalidInputError, UnavailableError

DEFAULT_SECONDS = 600.0  # ten minutes: past it somebody stopped waiting
DEFAULT_MEMORY = 4 << 30  # of the local engine; what needs more belongs on Spark
AGAIN_SECONDS = 0.02  # between tries to raise, while the thread is where it must not be
HEARD_SECONDS = 0.5  # until it is raised again, should somebody have caught it
TURNS = 1_000  # of a loop, by the first of which what was raised has come
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# Packages that planning runs in: of ours, those that only make new values, and have no finalizers.
_PLANNING = frozenset(
    {"sqlglot", "re", "difflib", "copy", "enum", "functools", "collections", "contextlib", "typing", "dataclasses"}
    | {"decimal", "datetime", "json", "abc", "heapq", "string", "ast", "calendar", "fnmatch"}
)
_OURS = ("tidelake.query", "tidelake.model", "tidelake.pruning")
_NOT_PLANNING = ("tidelake.query.engines", "tidelake.query.result")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Budget:
    """What one query may cost; ``read_bytes`` of None is without bound."""

    seconds: float = DEFAULT_SECONDS
    memory_bytes: int = DEFAULT_MEMORY
    read_bytes: int | None = None
    external: tuple[str, ...] = ()
    spent: float = 0.0  # seconds that planning took of it
    is_stopped: Callable[[], bool] = field(default=lambda: False, compare=False, repr=False)  # nobody waits any more

    @classmethod
    def of(cls, given: Budget | Mapping[str, Any] | None) -> Budget:
        """Read a budget as people write it: ``{"seconds": 5, "memory": "1GB", "read": "200MB"}``."""
        if given is None or isinstance(given, Budget):
            return given or cls()
        names = {"memory": "memory_bytes", "read": "read_bytes"}
        known = {each.name for each in fields(cls)} - {"spent", "is_stopped"}
        values: dict[str, Any] = {}
        for name, value in given.items():
            own = names.get(name, name)
            if own not in known:
                raise InvalidInputError(
                    f"a budget has seconds, memory, read and external, not {name!r}", kind="bad_budget"
                )
            if own == "external":
                values[own] = (value,) if isinstance(value, str) else tuple(map(str, value))
                continue
            values[own] = float(value) if own == "seconds" else parse_bytes(value)
        budget = cls(**values)
        if budget.seconds <= 0 or budget.memory_bytes <= 0:
            raise InvalidInputError("a budget must be more than zero", kind="bad_budget")
        return budget

    @property
    def engine_bytes(self) -> int:
        """The share of the memory that the local engine may hold: half, since what it gives is held besides."""
        return self.memory_bytes // 2

    @property
    def result_bytes(self) -> int:
        """The share of the memory that a result may take when all of its rows are collected."""
        return self.memory_bytes * 3 // 8

    @property
    def left(self) -> float:
        """The seconds that remain for running."""
        return max(self.seconds - self.spent, 0.0)

    def check_read(self, size: int) -> None:
        """Refuse a query whose plan reads more than it may."""
        if self.read_bytes is not None and size > self.read_bytes:
            raise UnavailableError(
                "the query would read more than its budget: narrow its time or ask for fewer columns",
                kind="read_budget",
                bytes=size,
                budget=self.read_bytes,
            )

    def out_of_time(self, *, planning: bool = False) -> UnavailableError:
        where = " to plan: make it shorter, or put long lists into a table" if planning else ""
        return UnavailableError(
            f"the query took longer than its budget{where}", kind="time_budget", seconds=self.seconds
        )

    def out_of_memory(self) -> UnavailableError:
        return UnavailableError(
            "the query needs more memory than its budget: narrow it, or run it with engine='spark'",
            kind="memory_budget",
            bytes=self.memory_bytes,
        )

    def stopped(self) -> UnavailableError:
        """Return the error of a query that somebody stopped."""
        return UnavailableError("the query was stopped", kind="stopped")

    def out_of_result(self) -> UnavailableError:
        return UnavailableError(
            "the result is larger than its budget: read it as a stream with to_reader(), ask for less,"
            " or give more memory",
            kind="result_budget",
            bytes=self.result_bytes,
        )


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
        """Do some work in this thread, and raise ``late`` as soon as the time is over, whatever is being computed.

        The work itself must be planning's own too: a lambda of an engine's module is not.
        """
        watch = self._watch = _Watch(self)
        try:
            try:
                watch.thread.start()
                return work()
            finally:
                watch.end()
        except _OutOfTimeError:
            watch.end_for_certain()
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
            watch.let_come()
            if self.left < 0:
                watch.over = True
                raise _OutOfTimeError
            yield
        finally:
            watch.held -= 1


def parse_bytes(value: str | int) -> int:
    """Read a size: a number of bytes, or text such as ``512MB``."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(str(value))
    if match is None:
        raise InvalidInputError(f"{value!r} is not a size such as 512MB or 2GB", kind="bad_budget")
    return int(float(match[1]) * _UNITS[match[2].lower()])


class _OutOfTimeError(BaseException):
    """Raised in a thread that plans for too long; it never leaves ``Deadline.watched``."""


class _Unheard:
    """Passes over what was raised where nobody could hear it, as in the callback of a weak reference: it comes again.

    The interpreter would print it. All else goes to the hook that was there before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: Callable[[Any], object] = sys.unraisablehook

    def __call__(self, unraisable: Any) -> None:
        if unraisable.exc_type is not _OutOfTimeError:
            self._before(unraisable)

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before, sys.unraisablehook = sys.unraisablehook, self
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and sys.unraisablehook is self:
                sys.unraisablehook = self._before


_unheard = _Unheard()


class _Watch:
    """A thread that raises in the one that made it once a deadline has passed, unless that is held or over."""

    def __init__(self, deadline: Deadline) -> None:
        self.over, self.held = False, 0
        self._deadline, self._target = deadline, ctypes.c_ulong(threading.get_ident())
        self._sent = False
        self._lock = threading.Lock()  # held while it is raised, so that none is on its way unknown
        self._done = threading.Event()
        self.thread = threading.Thread(target=self._run, name="tidelake-deadline", daemon=True)

    def let_come(self) -> None:
        """Let what was raised come here, if it has not yet; nothing is raised after, while it is held or over."""
        with self._lock:
            sent = self._sent
        if sent:  # the interpreter looks for it whenever a loop turns
            for _ in range(TURNS):
                pass

    def end(self) -> None:
        """Stop watching. What was raised comes here, or has come."""
        self.over = True
        self._done.set()
        self.let_come()

    def end_for_certain(self) -> None:
        """Stop watching, also where what was raised comes only now, and leave all as it was before."""
        try:
            self.end()
        except _OutOfTimeError:
            self.end()
        self.thread.join()

    def _run(self) -> None:
        self._done.wait(max(self._deadline.left, 0.0))
        while not self.over:
            collects = gc.isenabled()
            gc.disable()  # before the stack is looked at, and until it has come: the other thread goes on meanwhile
            try:
                with _unheard:
                    with self._lock:
                        if raised := not (self.held or self.over) and self._is_planning():
                            self._sent = True
                            ctypes.pythonapi.PyThreadState_SetAsyncExc(self._target, ctypes.py_object(_OutOfTimeError))
                    if raised:
                        self._done.wait(HEARD_SECONDS)
            finally:
                if collects:
                    gc.enable()
            if not raised:
                self._done.wait(AGAIN_SECONDS)

    def _is_planning(self) -> bool:
        """Whether all that the thread is in the midst of, down to where it is watched, is planning's own."""
        frame = sys._current_frames().get(self._target.value)
        while frame is not None and frame.f_code is not Deadline.watched.__code__:
            module = str(frame.f_globals.get("__name__"))
            is_ours = module.startswith(_OURS) and not module.startswith(_NOT_PLANNING)
            if not is_ours and module.partition(".")[0] not in _PLANNING:
                return False
            frame = frame.f_back
        return frame is not None
