"""Answer questions about a lake itself, ``show tables`` and ``describe TABLE``, from its catalog.

They are for people who type them: the command line and the shell ask here before they ask in a language. It does not
read rows, and is no part of SQL.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelake.listing import Listing, list_columns, list_tables

if TYPE_CHECKING:
    from tidelake.lake import Lake

_NAME = r"[`\"\[']*([\w.\-]+?)[`\"\]']*"
_SHOW = re.compile(r"\s*show\s+tables(?:\s+(?:in|from)\s+" + _NAME + r")?\s*;?\s*", re.I)
_DESCRIBE = re.compile(
    r"\s*(?:(?:describe|desc)(?:\s+table)?(?:\s+extended)?|show\s+columns\s+(?:in|from))\s+" + _NAME + r"\s*;?\s*", re.I
)


def about_lake(lake: Lake, text: str) -> Listing | None:
    """Return what the catalog answers, or None for a text that is a query."""
    if show := _SHOW.fullmatch(text):
        return list_tables(lake, show[1])
    if describe := _DESCRIBE.fullmatch(text):
        return list_columns(lake, describe[1])
    return None
