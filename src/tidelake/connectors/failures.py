"""Raise what a source's library raises as an error of ours, by who can help.

A source that refuses needs somebody to change it or its settings (``config``); one that does not answer is tried again
(``transient``). What each error of a library is, its kind of source says. It does not decide what becomes of a source:
see ``protocol.outcome_of``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tidelake.errors import InvalidInputError, StorageError, TidelakeError, redacted

MAX_WORDS = 400  # characters of a library's own words: some list every server that was asked


@contextmanager
def raised_as_ours(library: type[Exception], translated: Callable[[Any], TidelakeError]) -> Iterator[None]:
    """Translate errors of a library, and of the network; ours pass."""
    try:
        yield
    except TidelakeError:
        raise
    except library as error:
        raise translated(error) from error
    except OSError as error:
        raise unreachable(error) from error


def refused(words: object, what: str = "the source refuses", **facts: object) -> InvalidInputError:
    """Return the error of a source that somebody has to do something about."""
    return InvalidInputError(f"{what}: {plain(words)}", kind="source_refused", **facts)


def unreachable(words: object, **facts: object) -> StorageError:
    """Return the error of a source that may answer later."""
    return StorageError(f"the source does not answer: {plain(words)}", kind="source_unreachable", **facts)


def altered_meanwhile(table: str) -> StorageError:
    """Return the error of a table that is to be copied again, because it was altered while that was done."""
    return StorageError("the table was altered while it was copied", table=table, kind="table_altered")


def plain(words: object) -> str:
    """Return a library's words on one line, without passwords."""
    return redacted(" ".join(str(words).split())[:MAX_WORDS])
