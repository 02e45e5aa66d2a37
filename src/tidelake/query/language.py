"""Tell in which language a question is asked.

It does not read the question: see ``sql`` and ``kql``.
"""

from __future__ import annotations

import re
from typing import Literal

_SQL_WORDS = re.compile(
    r"\s*(?:--[^\n]*\n\s*|/\*.*?\*/\s*|\(\s*)*(select|with|values|from|show|describe)\b", re.I | re.S
)


def language_of(text: str) -> Literal["kql", "sql"]:
    """Tell SQL by its first word; all else is KQL."""
    first = _SQL_WORDS.match(text)
    if first is None:
        return "kql"
    is_kql = first[1].lower() in ("show", "describe", "from", "values") and "|" in text
    return "kql" if is_kql else "sql"
