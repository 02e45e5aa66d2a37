"""Commit for the threads of one process together: one transaction and one sync of the disk serve all who wait.

SQLite has one writer at a time, and a commit mostly waits for the disk. So threads with commits of different scopes put
them in a queue; whoever gets to write takes what is in it, commits each behind a savepoint of its own, and hands the
answers out. What one of them does wrong is told to it alone. Processes are joined by letters: see ``letters``. It does
not say how a commit is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

from tidelake.errors import CommitUnknownError, StorageError
from tidelake.model.snapshot import Commit, Receipt, Snapshot

MOST = 64  # requests in one transaction: bounds how long it holds up those behind


@dataclass(slots=True, eq=False)
class Request:
    """Commits of one scope that a thread waits for, and what became of them."""

    commits: Sequence[Commit]
    onto: Snapshot
    rebase: bool
    receipts: list[Receipt] | None = None
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.receipts is not None or self.error is not None


class Together:
    """The threads of one process that wait to commit to one catalog."""

    def __init__(self, name: str, deadline_s: float) -> None:
        self._name, self._deadline_s = name, deadline_s
        self.forget()

    def forget(self) -> None:
        """Begin anew, in a forked child: the threads that waited are the parent's."""
        self._waiting: deque[Request] = deque()
        self._lock, self._leading = Lock(), Lock()

    def commit(self, request: Request, lead: Callable[[Sequence[Request]], None]) -> list[Receipt]:
        """Have a request answered, by ``lead`` in this thread or another; its receipts, or what was raised for it."""
        with self._lock:
            self._waiting.append(request)
        if not self._leading.acquire(timeout=self._deadline_s):
            self._give_up(request)
        try:
            while not request.is_done:
                self._lead(lead)
        finally:
            self._leading.release()
        if request.error is not None:
            raise request.error
        return request.receipts or []

    def _lead(self, lead: Callable[[Sequence[Request]], None]) -> None:
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
        try:
            lead(taken)
        except Exception as error:
            for each in taken:
                each.error = each.error or error
        except BaseException:  # interrupted: of the others nobody knows what became
            for each in taken:
                each.error = each.error or CommitUnknownError("the answer to a commit was lost", catalog=self._name)
            raise

    def _give_up(self, request: Request) -> None:
        """Stop waiting; only what nobody has taken certainly did not happen."""
        with self._lock:
            is_waiting = request in self._waiting
            if is_waiting:
                self._waiting.remove(request)
        if is_waiting:
            raise StorageError("the catalog is busy", catalog=self._name, kind="busy")
        raise CommitUnknownError(
            "the answer to a commit was lost", catalog=self._name, reason="the thread that makes it is late"
        )
