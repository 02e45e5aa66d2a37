"""Say what is wrong with a line of JSON, and where.

It does not read JSON: whoever does, compiled or not, says at which byte it could not go on.
"""

from __future__ import annotations

from tidelake.errors import InvalidInputError

NEAR = 20  # bytes that are shown before and after the place
NOT_AN_OBJECT = "a line must be an object"

_BOM = b"\xef\xbb\xbf"


def wrong_json(raw: bytes, at: int, reason: str, *, kind: str = "bad_json", first_line: int = 1) -> InvalidInputError:
    """Return what is wrong with a text and where: line and column count from 1, the column in characters."""
    begin = raw.rfind(b"\n", 0, at) + 1
    end = raw.find(b"\n", at)
    end = len(raw) if end < 0 else end
    if begin == 0 and raw.startswith(_BOM):
        begin = len(_BOM)
    line = first_line + raw.count(b"\n", 0, begin)
    column = len(raw[begin:at].decode("utf-8", "replace")) + 1
    near = raw[max(begin, at - NEAR) : min(at + NEAR, end)].decode("utf-8", "replace")
    text = "the line ends too early" if at == end and reason != NOT_AN_OBJECT else reason
    return InvalidInputError(f"bad JSON: {text}", line=line, column=column, near=repr(near), kind=kind)
