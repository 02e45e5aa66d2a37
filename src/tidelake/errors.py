"""Name what went wrong, grouped by what the caller does next.

One root, one class per next step, and a stable ``kind`` for the detail::

    TidelakeError
      ConflictError        refresh and retry
      CommitUnknownError   look before acting
      NotFoundError        also a KeyError
      AlreadyExistsError
      InvalidInputError    also a ValueError
        QueryError         with line, column and a caret
        InvalidRangeError
      SchemaError          the change would narrow, or a type is not ours
      OverlapError         the time window is already held
      StorageError         retry later
      CorruptError         stop, keep the evidence
        CorruptExtent
      UnavailableError     a budget, a limit, or shutting down

A message is lower case, says what happened, then the facts: ``commit lost the race table=logs expected=41 found=43``.
It is enough alone, because Spark keeps only the text, and an error pickles with its facts. Passwords in addresses are
taken out of both. It does not log or retry.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Self

_EXTRAS = {
    "pyspark": "spark",
    "psycopg": "postgres",
    "pymysql": "mysql",
    "pymysqlreplication": "mysql",
    "pymongo": "mongo",
    "promql_parser": "promql",
    **dict.fromkeys(
        (
            "starlette",
            "uvicorn",
            "uvloop",
            "httptools",
            "grpc",
            "opentelemetry",
            "prometheus_client",
            "zstandard",
            "cramjam",
        ),
        "serve",
    ),
}  # what to ask pip for
# Kinds of StorageError after which nothing was done, and which last until somebody acts.
_CERTAIN = frozenset(
    {
        "bad_key",
        "cannot_open",
        "disk_full",
        "failed",
        "io_error",
        "missing_bucket",
        "missing_root",
        "name_clash",
        "no_conditional_put",
        "permission_denied",
        "read_only",
        "refused",
        "unauthenticated",
    }
)
_USER_PASSWORD = re.compile(
    r"(://[^:@/\s]*:)\S*@"
)  # one that is not percent-encoded may hold any character, / and @ too
_PASSWORD_WORD = re.compile(
    r"(?i)\b((?:password|passwd|pwd|sslpassword|secret|secret_?(?:access_?)?key|token|sig|signature)\s*=\s*)"
    r"(?:'[^']*'|\"[^\"]*\"|[^&\s,;)}'\"]+)"
)
HIDDEN = "***"


def redacted(text: str) -> str:
    """Return an address, or a sentence about one, with every password in it replaced by ``***``."""
    if "://" not in text and "=" not in text:
        return text
    return _PASSWORD_WORD.sub(rf"\g<1>{HIDDEN}", _USER_PASSWORD.sub(rf"\g<1>{HIDDEN}@", text))


class TidelakeError(Exception):
    """The root of every error this package raises on purpose."""

    default_kind: ClassVar[str] = "error"

    def __init__(self, message: str, *, kind: str | None = None, **facts: object) -> None:
        self.message = redacted(message)
        super().__init__(self.message)
        self.kind = kind or self.default_kind
        self.facts = {name: _without_secrets(value) for name, value in facts.items()}

    def __str__(self) -> str:
        """Return the message and its facts on one line."""
        facts = " ".join(f"{name}={value}" for name, value in self.facts.items())
        return f"{self.message} {facts}" if facts else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with kind and facts, so that an error crosses processes whole."""
        return _rebuild, (type(self), self.message, self.kind, self.facts)


class ConflictError(TidelakeError):
    """Another commit won and a rule forbids the rebase: refresh and decide again."""

    default_kind = "conflict"


class CommitUnknownError(TidelakeError):
    """The answer to a commit was lost and could not be found out: look before acting."""

    default_kind = "commit_unknown"


class NotFoundError(TidelakeError, KeyError):
    """A table, snapshot, object or column that was named does not exist."""

    default_kind = "not_found"


class AlreadyExistsError(TidelakeError):
    """The name or key is taken."""

    default_kind = "already_exists"


class InvalidInputError(TidelakeError, ValueError):
    """The caller gave something that cannot be accepted; nothing was changed."""

    default_kind = "invalid_input"


class QueryError(InvalidInputError):
    """A query or expression text is wrong; the message shows where."""

    default_kind = "query"
    unknown: str | None = None  # the name that stands for nothing, if that is what is wrong

    def about(self, name: str) -> Self:
        """Note which name is not known."""
        self.unknown = name
        return self


class InvalidRangeError(InvalidInputError):
    """A time range whose start is not before its end."""

    default_kind = "invalid_range"


class SchemaError(TidelakeError):
    """A schema change would narrow or drop, or a type is not one of ours."""

    default_kind = "schema"


class OverlapError(TidelakeError):
    """A time window that is already held was written again to an exclusive table."""

    default_kind = "overlap"


class StorageError(TidelakeError):
    """The object store or the catalog did not answer well; a later try may succeed."""

    default_kind = "storage"

    @property
    def is_certain(self) -> bool:
        """Whether nothing was done, and no later try will do better before somebody acts."""
        return self.kind in _CERTAIN


class CorruptError(TidelakeError):
    """Stored bytes are not what was written: stop, keep the evidence."""

    default_kind = "corrupt"


class CorruptExtent(CorruptError):
    """The bytes of one extent are wrong; the message names the object and the reason."""

    default_kind = "corrupt_extent"


class UnavailableError(TidelakeError):
    """A budget or a limit was reached, or the process is shutting down."""

    default_kind = "unavailable"


def not_installed(error: ModuleNotFoundError) -> UnavailableError | None:
    """Return how to install what only some need, if that is what is missing."""
    name = (error.name or "").partition(".")[0]
    if name not in _EXTRAS:
        return None
    return UnavailableError(f"this needs {name}: pip install 'tidelake[{_EXTRAS[name]}]'", kind="not_installed")


def _without_secrets(fact: object) -> object:
    """Return a fact as it is, or the redacted text of one that would show a password."""
    if isinstance(fact, int | float | None):
        return fact
    text = str(fact)
    shown = redacted(text)
    return fact if shown == text else shown


def _rebuild(cls: type[TidelakeError], message: str, kind: str, facts: dict[str, object]) -> TidelakeError:
    return cls(message, kind=kind, **facts)
