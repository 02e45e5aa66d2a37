"""Keep what nobody predicted: canonical CBOR values, and paths into them.

A dynamic value is anything JSON can say, and bytes, times and integers of any size. Equal values have equal bytes: map
keys are sorted (the shorter first, then by byte), numbers take their shortest form, lengths are definite.

A path is keys joined by dots. ``{"http": {"status": 5}}`` and ``{"http.status": 5}`` both have ``http.status``; where
both could answer, the longer key wins. A step into a list is written ``tags[0]``.

``cbor`` does the same for whole columns at speed. It does not know tables or files.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any

import cbor2

from tidelake.errors import CorruptError, InvalidInputError

MAX_DEPTH = 200  # deeper is a mistake or an attack, and every reader recurses

_INDEX = re.compile(r"\[(\d{1,9})\]$")
MISSING: Any = object()


def encode(value: Any) -> bytes:
    """Return the canonical bytes of a value."""
    try:
        return cbor2.dumps(_normalised(value, 0), canonical=True)
    except (cbor2.CBOREncodeError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError("not a value that a dynamic column can keep", reason=error) from error


def decode(data: bytes) -> Any:
    """Return the value of stored bytes."""
    try:
        return cbor2.loads(data)
    except (cbor2.CBORDecodeError, ValueError, TypeError, RecursionError) as error:
        raise CorruptError("not a dynamic value", reason=error) from error


def get_path(value: Any, path: str) -> Any:
    """Return what is at a path, or MISSING; see this module's text for the rule."""
    for key, rest in _splits(path):
        held = value[key] if isinstance(value, Mapping) and key in value else _indexed(value, key)
        found = held if rest is None or held is MISSING else get_path(held, rest)
        if found is not MISSING:
            return found
    return MISSING


def paths_of(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield every path that exists in a value, each map's own included; lists are not stepped into."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            path = f"{prefix}.{key}" if prefix else str(key)
            yield path
            yield from paths_of(inner, path)


def to_json(value: Any) -> Any:
    """Return a value as plain JSON types: times as RFC 3339, bytes as base64, numbers that JSON lacks as text."""
    match value:
        case Mapping():
            return {str(key): to_json(inner) for key, inner in value.items()}
        case list() | tuple():
            return [to_json(inner) for inner in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case float() if not math.isfinite(value):
            return repr(value)
        case _:
            return value


def real_text(value: float) -> str:
    """Return a double as JSON writes it; what JSON lacks, as most writers do."""
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _normalised(value: Any, depth: int) -> Any:
    """Reduce a value to the types that are kept; refuse what is not one of them."""
    if depth > MAX_DEPTH:
        raise InvalidInputError("nested too deeply", limit=MAX_DEPTH, kind="too_deep")
    match value:
        case None | bool() | int() | float() | str() | bytes():
            return value
        case datetime():
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        case date():
            return value.isoformat()
        case Mapping():
            return {_key(key): _normalised(inner, depth + 1) for key, inner in value.items()}
        case list() | tuple():
            return [_normalised(inner, depth + 1) for inner in value]
        case bytearray() | memoryview():
            return bytes(value)
        case _ if hasattr(value, "item"):  # a numpy scalar
            return _normalised(value.item(), depth + 1)
        case _:
            raise InvalidInputError("not a value that a dynamic column can keep", type=type(value).__name__)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidInputError("a dynamic map's keys are text", key=repr(key))
    return key


def _splits(path: str) -> Iterator[tuple[str, str | None]]:
    """Yield the ways to split a path into a first key and the rest, the longest key first."""
    yield path, None
    at = path.rfind(".")
    while at > 0:
        yield path[:at], path[at + 1 :]
        at = path.rfind(".", 0, at)


def _indexed(value: Any, path: str) -> Any:
    """Follow a last step into a list, ``…[3]``."""
    match = _INDEX.search(path)
    if not match:
        return MISSING
    before = path[: match.start()]
    held = value if not before else get_path(value, before)
    at = int(match[1])
    return held[at] if isinstance(held, list) and at < len(held) else MISSING
