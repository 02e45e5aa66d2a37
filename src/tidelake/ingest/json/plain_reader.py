"""Read a few lines of JSON the plain way, where compiling the loops for them would take longer than they are worth.

What comes out must be what the loops make of the same bytes, so only text about which there can be no two opinions is
read here: no half of a pair of surrogates, no key twice, no number that Python would write otherwise. All else, and
all that is wrong, is left to ``columns``, which also has the messages; only where these would wait for a compiler, a
line that is no JSON to anybody is told from here. A process that reads more than a little is
better off with the loops, so it gets them, unless they cannot be compiled: then many lines are read here too. It does
not give values a table's shape: see ``rows``.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tidelake.ingest.json.wording import NOT_AN_OBJECT, wrong_json
from tidelake.runtime import notices
from tidelake.runtime.readiness import has_loops, is_waiting

FEW_BYTES = 32 << 10  # ten milliseconds; the loops take twenty seconds to compile, and a fifth of one to load
PROCESS_BYTES = 256 << 10  # after which a process has its loops
MAX_DIGITS = 15  # every such decimal is a double, and comes back as written
LONGS = range(-(2**63), 2**63)  # the whole numbers that have a place in 64 bits
MAX_WHOLE_LETTERS = 20  # of those

_PAIR = re.compile(rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")  # one letter; or no escape
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")  # of two escapes that are one letter, where the other is missing

_read = 0  # bytes so far, of this process


_OPEN_STRING = "the string does not end"  # before its line does

# How what Python's decoder says begins, and what ``columns`` says of the same.
_REASONS = {
    "Expecting value": "expected a value",
    "Expecting property name enclosed in double quotes": "expected a key in double quotes",
    "Expecting ':' delimiter": "expected a colon",
    "Expecting ',' delimiter": "expected a comma or the end of the map or list",
    "Extra data": "text after the object",
    "Invalid control character at": "control character in a string",
    "Invalid \\escape": "not an escape",
    "Invalid \\uXXXX escape": "not an escape",
    "Unterminated string starting at": _OPEN_STRING,
}


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


def require_json(data: bytes | memoryview, first_line: int = 1) -> None:
    """Raise for the first line that is no JSON object, where it would take a compiler to tell so; else do nothing.

    Lines whose reading is left to the loops are passed over.
    """
    if not is_waiting():
        return
    whole, at = bytes(data), 0
    for line in whole.split(b"\n"):
        if reason := _wrong_in(line, is_first=at == 0 and first_line == 1):
            raise wrong_json(whole, at + reason[0], reason[1], first_line=first_line)
        at += len(line) + 1


def _wrong_in(line: bytes, *, is_first: bool) -> tuple[int, str] | None:
    """Return where and why a line is no JSON object, if anybody would say so."""
    try:
        text = line.decode()
        if not text.strip(" \t\r") or (is_first and text.startswith("\ufeff")):
            return None
        found = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        reason = next((ours for theirs, ours in _REASONS.items() if error.msg.startswith(theirs)), "not JSON")
        place = len(text) if reason is _OPEN_STRING else error.pos
        return len(text[:place].encode()), reason
    except (ValueError, RecursionError, _Unsure):
        return None
    return None if type(found) is dict else (len(line) - len(line.lstrip(b" \t\r")), NOT_AN_OBJECT)


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
