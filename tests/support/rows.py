"""Compare rows as Python values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def same(a: Any, b: Any) -> bool:
    """Say whether two values are equal and of one type, where NaN equals itself."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


def same_rows(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether rows are the same, in the same order."""
    return len(a) == len(b) and all(same(dict(x), dict(y)) for x, y in zip(a, b, strict=True))
