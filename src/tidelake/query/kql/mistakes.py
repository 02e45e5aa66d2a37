"""Show where a KQL text is wrong.

A long line is shown in part, around the place. It does not decide what is wrong.
"""

from __future__ import annotations

from tidelake.errors import QueryError
from tidelake.model.lexer import error_at as whole_line_error

MAX_SHOWN = 160  # letters of a line in a message: queries are pasted as one line


def error_at(text: str, at: int, message: str, *, kind: str | None = None, **facts: object) -> QueryError:
    """Return what is wrong with a text, with a caret under the place, and its line and column from 1."""
    at = max(0, min(at, len(text)))
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    if end - start <= MAX_SHOWN:
        return whole_line_error(text, at, message, kind=kind, **facts)
    first = max(start, at - MAX_SHOWN // 2)
    shown = ("…" if first > start else "") + text[first : first + MAX_SHOWN] + "…"
    caret = at - first + (first > start)
    line = text.count("\n", 0, at) + 1
    message = f"{message}\n  {shown}\n  {' ' * caret}^"
    return QueryError(message, kind=kind, line=line, column=at - start + 1, **facts)
