"""Tell which values at a path become a text, or a number, where a query converts what is there before it compares.

It does not know trees, nor ask scans.
"""

from __future__ import annotations

import re

from tidelake.model.predicate import Equals, InSet, Range, Value

# A number that a double cannot hold exactly could compare otherwise on an engine that rounds it.
MAX_EXACT = 2**53

# Text that no other value is converted to: it begins with a letter and is no word for another value.
_ONLY_TEXT = re.compile(r"(?!(?i:true|false|null|nan|inf|infinity)$)[A-Za-z_][^\n]*")


def given_as(text: str) -> tuple[Value, ...]:
    """Return the values whose text is this one; none where that is not known."""
    if _ONLY_TEXT.fullmatch(text):
        return (text,)
    if text in ("true", "false"):
        return (text, text == "true")
    if re.fullmatch(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?", text):
        number = float(text)
        return (text, int(number) if number.is_integer() else number)
    plain = text[:1] not in ("", "[", "{", '"') and re.fullmatch(r"[ -~]+", text) and not re.match(r"[-+.0-9\s]", text)
    return (text,) if plain and not re.fullmatch(r"(?i:true|false|null|nan|inf|infinity)", text) else ()


def numbers_given(leaf: Equals | InSet | Range, *, whole: bool) -> Range | InSet | None:
    """Return the test that numbers pass where what they are converted to passes another; None if some may be rounded.

    Conversion to a whole number cuts off: what becomes five lies between four and six.
    """
    values: tuple[Value | None, ...]
    match leaf:
        case Equals(_, value):
            values = (value,)
        case InSet(_, values):
            pass
        case Range(_, low, high):
            values = (low, high)
    known = [value for value in values if value is not None]
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in known):
        return None
    bounds = [value for value in known if isinstance(value, int | float)]
    if not bounds or not all(abs(value) < MAX_EXACT for value in bounds):
        return None
    if not isinstance(leaf, Range):
        plain = InSet(leaf.column, tuple(bounds))
        return Range(leaf.column, min(bounds) - 1, max(bounds) + 1) if whole else plain
    if not whole:
        return leaf
    low, high = (value if isinstance(value, int | float) else None for value in (leaf.low, leaf.high))
    return Range(leaf.column, None if low is None else low - 1, None if high is None else high + 1)
