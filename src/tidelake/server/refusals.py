"""Say what a request is answered that cannot be done: one table from errors to HTTP, whatever the protocol.

What a client should send again is 503 with ``Retry-After``, never 500 or 429, because agents that are in use drop what
they sent after those. What will never succeed is 4xx. It does not know how a protocol words its answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidelake.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    OverlapError,
    SchemaError,
    StorageError,
    TidelakeError,
    UnavailableError,
)

RETRY_AFTER_S = 1  # after which a client may try again; most causes are gone by then


class Refusal(TidelakeError):
    """A request that is not let in, for a reason of its own."""

    status: ClassVar[int] = 400


class Unauthenticated(Refusal):
    """No token, or none that is known."""

    default_kind, status = "unauthenticated", 401


class Forbidden(Refusal):
    """The token does not allow it."""

    default_kind, status = "forbidden", 403


class Unsupported(Refusal):
    """A content type or an encoding that nobody here reads."""

    default_kind, status = "unsupported", 415


class TooLarge(Refusal):
    """A body that is larger than the limit, as it comes or decompressed."""

    default_kind, status = "too_large", 413


class TooSlow(Refusal):
    """A body that did not come in time."""

    default_kind, status = "too_slow", 408


class Busy(Refusal):
    """No room for more, now."""

    default_kind, status = "busy", 503


@dataclass(frozen=True, slots=True)
class Failure:
    """What a client is told of an error: the status, a message, and whether to try again."""

    status: int
    message: str
    kind: str
    retry_after_s: int = RETRY_AFTER_S

    @property
    def is_temporary(self) -> bool:
        return self.status == 503

    @property
    def headers(self) -> dict[str, str]:
        """The headers that go with the status."""
        if self.is_temporary:
            return {"retry-after": str(self.retry_after_s)}
        return {"www-authenticate": 'Bearer realm="tidelake"'} if self.status == 401 else {}


_STATUS: tuple[tuple[type[TidelakeError], int], ...] = (
    (OverlapError, 409),
    (AlreadyExistsError, 409),
    (NotFoundError, 404),
    (InvalidInputError, 400),
    (SchemaError, 400),
    (ConflictError, 503),
    (CommitUnknownError, 503),
    (StorageError, 503),
    (UnavailableError, 503),
    (CorruptError, 503),  # the rows are not in, and can go in once somebody has looked
)
# Of questions: what was too much for a budget is so again, and whoever asked is told what to change.
_OF_QUESTIONS = {"time_budget": 504, "memory_budget": 400, "result_budget": 400, "read_budget": 400, "stopped": 409}
_RETRY_AFTER_S = {"quota": 60}  # until the next day; agents should not ask every second for hours
_WITHOUT_FACTS = frozenset({503})  # facts of storage name hosts and paths, which are not for clients
_SAID = {
    "disk_full": "the disk is full",
    "busy": "there is no room for more now",
    "stopping": "the server is stopping",
    "catalog_away": "the catalog does not answer",
}
_DAMAGED = "what is stored is damaged and cannot be read; the server's log says where"


def failure_of(error: BaseException, *, of_question: bool = False) -> Failure:
    """Return what a client is told of an error; one that is not ours is a defect, and tells nothing.

    Whoever asks for what is damaged is told so, because it stays so; rows are kept by whoever brings them meanwhile.
    """
    if isinstance(error, Refusal):
        return Failure(error.status, str(error), error.kind, _RETRY_AFTER_S.get(error.kind, RETRY_AFTER_S))
    if isinstance(error, UnavailableError) and error.kind in _OF_QUESTIONS:
        return Failure(_OF_QUESTIONS[error.kind], str(error), error.kind)
    if of_question and isinstance(error, CorruptError):
        return Failure(500, _DAMAGED, error.kind)
    for kind, status in _STATUS:
        if isinstance(error, kind):
            not_now = "the question could not be answered now" if of_question else "the rows could not be stored now"
            said = _SAID.get(error.kind, not_now) if status in _WITHOUT_FACTS else str(error)
            return Failure(status, said, error.kind)
    return Failure(500, "an error that should not happen; the server's log has it", "defect")
