"""Keep a list of the questions that run, so that people can see and stop them.

A question is on the list from when its turn comes until its last row is taken. Its entry may be asked and stopped from
any thread. Where several processes are one server, the others are asked too, which may take a while: not in an event
loop. It does not run anything: see ``questions``.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tidelake.errors import NotFoundError
from tidelake.server.access import Grant
from tidelake.server.siblings import Answers, Siblings

TEXT_SHOWN = 4_096  # characters of a question
ID_BYTES, IDS_TOGETHER = 8, 256


class _Ids:
    """Names that nobody can guess, made many at once: the system's chance lets other threads run each time it is asked,
    and whoever asks waits for its turn.
    """

    def __init__(self) -> None:
        self._lock, self._left = threading.Lock(), b""

    def next(self) -> str:
        with self._lock:
            if not self._left:
                self._left = secrets.token_bytes(ID_BYTES * IDS_TOGETHER)
            found, self._left = self._left[:ID_BYTES], self._left[ID_BYTES:]
        return found.hex()


_IDS = _Ids()


def new_id() -> str:
    """Return a name for a question, which nobody can guess."""
    return _IDS.next()


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

    def told(self) -> dict[str, Any]:
        """Return what another process makes the same entry of."""
        return {name: getattr(self, name) for name in _TOLD}


_TOLD = ("text", "language", "who", "name", "door", "id", "began_s", "read_bytes", "sent_bytes")


class RunningQuestions:
    """The questions that run now."""

    def __init__(self, siblings: Siblings | None = None) -> None:
        self._all: dict[str, Running] = {}
        self._siblings = siblings or Siblings()

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
        others = self._siblings.ask("questions", who=_who(grant))
        found = [*self._seen(_who(grant)), *(Running(**each) for several in others for each in several)]
        return sorted(found, key=lambda each: each.began_s)

    def stop(self, id_: str, grant: Grant) -> str:
        """Stop a question, and return its id; NotFoundError if there is none that the token may see."""
        who = _who(grant)
        if not self._stopped(id_, who) and not any(self._siblings.ask("stop", id=id_, who=who)):
            raise NotFoundError("no such question runs", id=id_[:40], kind="no_question")
        return id_

    def stop_all(self) -> None:
        """Have all questions of this process end soon."""
        for each in list(self._all.values()):
            each.stop()

    def answers(self) -> Answers:
        """Return what other processes of the server may ask of this one."""
        return {
            "questions": lambda who: [each.told() for each in self._seen(who)],
            "stop": lambda id, who: self._stopped(id, who),
        }

    def _seen(self, who: str | None) -> list[Running]:
        return [each for each in list(self._all.values()) if who in (None, each.who)]

    def _stopped(self, id_: str, who: str | None) -> bool:
        found = self._all.get(id_)
        if found is None or who not in (None, found.who):
            return False
        found.stop()
        return True


def _who(grant: Grant) -> str | None:
    """Return whose questions a token may see; None for everybody's."""
    return None if grant.allows("admin") else grant.id
