"""Turn JSON documents into lines, compiled, a piece at a time: lists of objects, and objects over several lines.

============  =========================================================================================================
``LINES``     an object a line: nothing to do
``OBJECTS``   objects one after another, each over several lines
``LIST``      ``[{…}, {…}]``: a line for each element
``WRAPPED``   ``{"Records": [{…}, {…}]}``: a line for each element; what is beside the list is not kept
============  =========================================================================================================

Text is not checked here, only cut: what is wrong with it is found where lines are read. It does not hold more than one
piece and one element at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidelake.runtime.compiling import compiled

LINES, OBJECTS, LIST, WRAPPED = range(4)
WRAPPERS = (
    "Records", "records", "events", "Events", "value", "values", "items", "Items", "data", "results", "logs",
    "logEvents", "entries", "rows", "messages", "hits",
)  # fmt: skip

_U = np.uint64
_DEPTH, _IN_STRING, _ESCAPED, _IS_INSIDE, _HASH = range(5)
_SCALAR = r'(?:"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null)'
_WRAPPED = re.compile(rf'\s*\{{(?:\s*"(?:[^"\\]|\\.)*"\s*:\s*{_SCALAR}\s*,)*\s*"({"|".join(WRAPPERS)})"\s*:\s*\[\s*\{{')
_LIST = re.compile(r"\s*\[\s*(?:\{|\]|$)")


@dataclass(frozen=True, slots=True)
class Shape:
    """How the objects of a JSON file lie in it."""

    kind: int
    key: str = ""  # of the list in a wrapper


def find_shape(head: bytes) -> Shape | None:
    """Find how objects lie in a file that begins like this; None if it does not begin as JSON does."""
    text = head[: 1 << 16].decode("utf-8", "replace")
    if _LIST.match(text):
        return Shape(LIST)
    if wrapped := _WRAPPED.match(text):
        return Shape(WRAPPED, wrapped[1])
    lines = [line for line in text.split("\n")[:20] if line.strip()]
    if not lines or not lines[0].lstrip().startswith("{"):
        return None
    if _is_whole(lines[0]) or len(lines) == 1 or lines[1].lstrip().startswith('{"'):
        return Shape(LINES)
    return Shape(OBJECTS)


def is_json(head: bytes) -> bool:
    """Whether text of no known name is JSON: a document, or lines that are objects, most of them."""
    shape = find_shape(head)
    if shape is not None and shape.kind != LINES:
        return shape.kind == WRAPPED or bool(re.match(rb'\s*[\[{]\s*[\]}"{]', head))
    text = head[: 1 << 16].decode("utf-8", "replace")
    lines = [line for line in text.split("\n")[:100] if line.strip()]
    objects = sum(line.lstrip().startswith("{") and line.rstrip().endswith("}") for line in lines)
    cut = len(lines) == 1 and lines[0].lstrip().startswith('{"') and len(head) >= 1 << 16
    return cut or (objects * 2 > len(lines) and any(_is_whole(line) for line in lines))


def _is_whole(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def as_lines(buffers: Iterator[bytes], shape: Shape) -> Iterator[bytes]:
    """Yield the objects of a file as lines."""
    if shape.kind == LINES:
        yield from buffers
        return
    state = np.zeros(5, dtype=np.int64)
    key = _hash_of(shape.key.encode())
    for data in buffers:
        out = np.empty(2 * len(data) + 2, dtype=np.uint8)
        size = int(_split(np.frombuffer(data, dtype=np.uint8), out, state, shape.kind, key))
        if size:
            yield out[:size].tobytes()


def _hash_of(key: bytes) -> int:
    found = 0
    for byte in key:
        found = (found * 131 + byte) & 0xFFFF_FFFF
    return found


@compiled
def _split(data: Any, out: Any, state: Any, kind: Any, key: Any) -> Any:
    """Copy what belongs to elements, with a line end after each and none within."""
    depth, in_string, escaped = state[_DEPTH], state[_IN_STRING], state[_ESCAPED]
    is_inside, hash = state[_IS_INSIDE], state[_HASH]
    level = 0 if kind == OBJECTS else 1 if kind == LIST else 2  # the depth of the elements
    to = np.int64(0)
    for i in range(len(data)):
        letter = data[_U(i)]
        emits = kind == OBJECTS or is_inside == 1
        if in_string == 1:
            if escaped == 1:
                escaped = 0
            elif letter == 92:
                escaped = 1
            elif letter == 34:
                in_string = 0
            if in_string == 1 and depth == 1:
                hash = (hash * 131 + np.int64(letter)) & 0xFFFF_FFFF
        elif letter == 34:
            in_string = 1
            if depth == 1:
                hash = 0
        elif letter == 123 or letter == 91:
            depth += 1
            if is_inside == 0 and letter == 91 and kind != OBJECTS and depth == level:
                is_inside = 1 if kind == LIST or hash == key else 0
                continue
        elif letter == 125 or letter == 93:
            depth -= 1
            if is_inside == 1 and depth < level:
                is_inside = 0
                letter = np.uint8(10)
            elif kind == OBJECTS and depth == 0:
                out[_U(to)] = letter
                to += 1
                letter = np.uint8(10)
        elif letter == 44 and depth == level:
            letter = np.uint8(10)
        elif (letter == 10 or letter == 13) and depth > 0:
            letter = np.uint8(32)
        if emits:
            out[_U(to)] = letter
            to += 1
    state[_DEPTH], state[_IN_STRING], state[_ESCAPED] = depth, in_string, escaped
    state[_IS_INSIDE], state[_HASH] = is_inside, hash
    return to
