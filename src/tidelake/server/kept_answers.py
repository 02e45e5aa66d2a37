"""Keep answers for those who ask the same again, as long as no table that was read has changed.

An answer is found by its question: text, language, namespace, user, range of time and form. It is given only if every
table that was read is still at the snapshot that was read, and in the sight of whoever asks now; snapshots never
change, so it is what the question would give. Questions that ask the time or chance, that look at which tables there
are, or that read anything but tables are not kept. The oldest ones go when there are too many bytes. It may be used
from any thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from threading import Lock

from tidelake.errors import TidelakeError
from tidelake.handle.table_handle import TableHandle
from tidelake.lake import Lake
from tidelake.query.result import Result
from tidelake.server.question import Question

ANSWER_SHARE = 16  # of the room, that one answer may take
ENTRY_BYTES = 512  # that one takes besides its own


@dataclass(frozen=True, slots=True)
class _Kept:
    reads: tuple[tuple[str, str], ...]  # tables and their snapshots' ids
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body) + ENTRY_BYTES


class KeptAnswers:
    """Answers that are kept, up to so many bytes; none, if that is zero."""

    def __init__(self, lake: Lake, most_bytes: int) -> None:
        self._lake, self._most = lake, most_bytes
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = Lock()
        self.held_bytes, self.hits, self.misses = 0, 0, 0

    @property
    def answer_bytes(self) -> int:
        """How large an answer may be that is kept."""
        return self._most // ANSWER_SHARE

    def may_have(self, question: Question, form: str) -> bool:
        """Whether there is an answer to a question, true or no longer."""
        return bool(self._most) and question.view.is_newest and _key(question, form) in self._kept

    def missed(self, question: Question, *, count: bool = True) -> None:
        """Count a question that has no answer here, if it could have one."""
        if self._most and question.view.is_newest and count:
            with self._lock:
                self.misses += 1

    def find(self, question: Question, form: str, *, count: bool = True) -> bytes | None:
        """Return the answer to a question, if it is kept and still true."""
        if not self._most or not question.view.is_newest:
            return None
        key = _key(question, form)
        with self._lock:
            found = self._kept.get(key)
        is_true = found is not None and self._is_true(found, question)
        with self._lock:
            if count:
                self.hits, self.misses = self.hits + is_true, self.misses + (not is_true)
            if is_true and key in self._kept:
                self._kept.move_to_end(key)
        return found.body if found is not None and is_true else None

    def keep(self, question: Question, form: str, result: Result, body: bytes) -> None:
        """Keep an answer, if it may be."""
        reads = result.reads
        if reads is None or not question.view.is_newest or len(body) > self.answer_bytes:
            return
        kept, key = _Kept(reads, body), _key(question, form)
        with self._lock:
            self._drop(key)
            self._kept[key] = kept
            self.held_bytes += kept.size
            while self.held_bytes > self._most:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: Hashable) -> None:
        gone = self._kept.pop(key, None)
        self.held_bytes -= 0 if gone is None else gone.size

    def _is_true(self, kept: _Kept, question: Question) -> bool:
        """Whether all tables that were read are in sight, and as they were."""
        try:
            return all(
                question.grant.may_reach(name)
                and TableHandle.seen_by(self._lake.handle, name, question.user).snapshot.id == snapshot
                for name, snapshot in kept.reads
            )
        except TidelakeError:  # dropped, or the catalog is away: whoever asks will be told
            return False


def _key(question: Question, form: str) -> Hashable:
    view = question.view
    return (form, question.language, question.text, question.namespace, question.user, view.start_ns, view.end_ns)
