"""Determine in which language a question is asked, and which word was meant for a misspelt first one.

It does not read the question: see ``sql`` and ``kql``.
"""

from __future__ import annotations

import difflib
import re
from typing import Literal

from tidelake.errors import QueryError

_SQL_WORDS = re.compile(
    r"\s*(?:--[^\n]*\n\s*|/\*.*?\*/\s*|\(\s*)*(select|with|values|from|show|describe|set(?=\s+tide\b))\b", re.I | re.S
)
_FIRST_WORD = re.compile(r"\s*([A-Za-z]+)\s+[^\s|]")  # and something after it, which no pipe has
_MEANT = ("select", "with", "show", "describe", "print", "range", "union", "search", "find", "datatable")


def language_of(text: str) -> Literal["kql", "sql"]:
    """Return SQL by its first word; all else is KQL."""
    first = _SQL_WORDS.match(text)
    if first is None:
        return "kql"
    is_kql = first[1].lower() in ("show", "describe", "from", "values") and "|" in text
    return "kql" if is_kql else "sql"


def hinted(error: QueryError, text: str) -> QueryError:
    """Add to an error which word its text may have begun with, if the first one is spelled like it."""
    first = _FIRST_WORD.match(text)
    if first is None or "did you mean" in error.message or first[1].lower() in _MEANT:
        return error
    close = difflib.get_close_matches(first[1].lower(), _MEANT, n=1, cutoff=0.7)
    if close:
        told, line, shown = error.message.partition("\n")
        error.message = f"{told}; did you mean {close[0]!r} for {first[1]!r}?{line}{shown}"
    return error
