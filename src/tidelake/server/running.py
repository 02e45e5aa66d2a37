"""Keep a list of the questions that run, so that people can see and stop them.

A question is on the list from when its turn comes until its last row is taken. Its entry may be asked and stopped from
any thread. It does not run anything: see ``questions``.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidelake.errors import NotFoundError
from tidelake.server.access import Grant

TEXT_SHOWN = 4_096  # characters of a question


def new_id() -> str:
    """Return a name for a question, which nobody can guess."""
    return secrets.token_hex(8)


@dataclass(slots=True, eq=False)
class Running:
    """One question that runs."""

    text: str
    language: str
    who: str  # the token's id
    name: str  # and what it is called
    door: str = ""
    id: str = field(default_factory=new_id)
    began_s: float = field(default_factory=time.time)
    read_bytes: int = 0  # that its scans read, as stored, once it is planned
    sent_bytes: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Have it end soon."""
        self._stopped.set()

    def is_stopped(self) -> bool:
        """Whether somebody stopped it."""
        return self._stopped.is_set()


class RunningQuestions:
    """The questions that run now."""

    def __init__(self) -> None:
        self._all: dict[str, Running] = {}

    @contextmanager
    def listed(self, question: Running) -> Iterator[Running]:
        """Have a question on the list while it runs."""
        self.add(question)
        try:
            yield question
        finally:
            self.remove(question)

    def add(self, question: Running) -> None:
        """Put a question on the list."""
        self._all[question.id] = question

    def remove(self, question: Running) -> bool:
        """Take a question off the list, and return whether it was there."""
        return self._all.pop(question.id, None) is not None

    def seen_by(self, grant: Grant) -> list[Running]:
        """Return the questions that a token may see, the oldest first: its own, or all for an admin."""
        return [each for each in list(self._all.values()) if _may_see(grant, each)]

    def stop(self, id_: str, grant: Grant) -> Running:
        """Stop a question; NotFoundError if there is none that the token may see."""
        found = self._all.get(id_)
        if found is None or not _may_see(grant, found):
            raise NotFoundError("no such question runs", id=id_[:40], kind="no_question")
        found.stop()
        return found


def _may_see(grant: Grant, question: Running) -> bool:
    return grant.allows("admin") or question.who == grant.id
