"""Turn what other systems call an index, a bucket or a measurement into the name of a table.

It does not decide in which namespace that is.
"""

from __future__ import annotations

import re

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_MOST = 128


def table_name(text: str, default: str) -> str:
    """Return a name that a table may have: other characters become ``_``; the default for nothing."""
    name = _UNFIT.sub("_", text.strip())[:_MOST]
    if not name:
        return default
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"[:_MOST]
