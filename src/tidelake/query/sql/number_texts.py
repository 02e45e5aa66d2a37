"""Read numbers out of text as Spark does, where DuckDB reads them otherwise.

A text that is no number gives None. It does not read the plain forms, which engines read alike.
"""

from __future__ import annotations

import re
from decimal import Decimal

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_BASE_16 = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d{1,9})[fFdD]?", re.ASCII)
_MAX_DIGITS = 40  # before and behind the point: more than any decimal has, and one to round by


def number_text(text: str) -> str | None:
    """Return a number without its exponent; one that no decimal can hold is None."""
    bare = text.strip()
    if _NUMBER.fullmatch(bare) is None:
        return None
    number = Decimal(bare)
    if number and number.adjusted() > _MAX_DIGITS:
        return None
    return f"{number:f}" if number and number.adjusted() > -_MAX_DIGITS else "0"


def real_of_base_16(text: str) -> float | None:
    """Return a real that is written in base 16 with an exponent of two, such as 0x1p3."""
    found = _BASE_16.fullmatch(text.strip())
    return None if found is None else float.fromhex(found[1])
