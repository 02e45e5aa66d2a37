"""Read a few lines of JSON the plain way, where compiling the loops for them would take longer than they are worth.

What comes out must be what the loops make of the same bytes, so only text about which there can be no two opinions is
read here: no half of a pair of surrogates, no key twice, no number that Python would write otherwise. All else, and
all that is wrong, is left to ``columns``, which also has the messages. A process that reads more than a little is
better off with the loops, so it gets them, unless they cannot be compiled: then many lines are read here too. It does
not give values a table's shape: see ``rows``.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tidelake.runtime import notices
from tidelake.runtime.readiness import has_loops

FEW_BYTES = 32 << 10  # ten milliseconds; the loops take twenty seconds to compile, and a fifth of one to load
PROCESS_BYTES = 256 << 10  # after which a process has its loops
MAX_DIGITS = 15  # every such decimal is a double, and comes back as written
LONGS = range(-(2**63), 2**63)  # the whole numbers that have a place in 64 bits
MAX_WHOLE_LETTERS = 20  # of those

_PAIR = re.compile(rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")  # one letter; or no escape
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")  # of two escapes that are one letter, where the other is missing

_read = 0  # bytes so far, of this process


class _Unsure(Exception):
    """There is something that the loops should read."""


def few_rows(data: bytes | memoryview) -> list[dict[str, Any]] | None:
    """Return a few lines of JSON as rows, or None if there are more, or anything is out of the ordinary."""
    global _read
    _read += len(data)
    if (len(data) > FEW_BYTES or _read > PROCESS_BYTES) and has_loops():
        return None
    notices.interpreting(len(data))
    whole = bytes(data)
    if _HALF_PAIR.search(whole) and _HALF_PAIR.search(_PAIR.sub(b" ", whole)):
        return None
    try:
        rows = [_DECODER.decode(line) for line in whole.decode().split("\n") if line.strip(" \t\r")]
    except (ValueError, RecursionError, _Unsure):
        return None
    return rows if all(type(row) is dict for row in rows) else None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _Unsure
    return made


def _real(text: str) -> float:
    found = float(text)
    if repr(found) != text and (len(text) > MAX_DIGITS or "e" in text or "E" in text or text.startswith("-0")):
        raise _Unsure
    return found


def _whole(text: str) -> int:
    if len(text) > MAX_WHOLE_LETTERS or text == "-0" or (found := int(text)) not in LONGS:
        raise _Unsure
    return found


def _constant(text: str) -> Any:
    raise _Unsure


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_real, parse_int=_whole, parse_constant=_constant, strict=True
)
