"""Describe the values of a dynamic column without a compiler: what ``cbor_loops.walk`` finds, value by value.

Equal values are looked at once, and leaves are hashed together. A block with more paths or leaves than are usual is
left to the loop itself, which knows when to give up. It does not take paths out of values: see ``cbor``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelake.dynamic.cbor import MAX_PATH_BYTES, MAX_WALK_DEPTH
from tidelake.kernels.bloom import LEAF_TEXT_CAP, MASK

MAX_PATHS = 1 << 14
MAX_LEAVES = 1 << 18

_BYTES, _TEXT, _LIST, _MAP, _TAG, _SIMPLE = range(2, 8)  # CBOR's major types
_NAN_BITS = struct.pack("<Q", 0x7FF8_0000_0000_0000)


class BadForm(Exception):
    """A value has a form that we never write."""


@dataclass(slots=True)
class Described:
    """What some values have: numbers as (minimum, maximum, whether one is NaN), texts by their first bytes."""

    paths: set[bytes] = field(default_factory=set)
    numbers: dict[bytes, tuple[float, float, bool]] = field(default_factory=dict)
    initials: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    leaves: set[bytes] = field(default_factory=set)
    texts: list[bytes] = field(default_factory=list)

    def add_number(self, path: bytes, low: float, high: float) -> None:
        least, most, has_nan = self.numbers.get(path, (math.inf, -math.inf, False))
        if math.isnan(low):
            self.numbers[path] = least, most, True
        else:
            self.numbers[path] = min(least, low), max(most, high), has_nan

    def add_text(self, path: bytes, first: int, last: int) -> None:
        low, high = self.initials.get(path, (first, last))
        self.initials[path] = min(low, first), max(high, last)


def describe(values: Sequence[bytes]) -> Described | None:
    """Describe values; None if there is too much in them, ``BadForm`` if one has a form that we never write."""
    found = Described()
    for value in dict.fromkeys(values):
        if _walk(value, 0, b"", None, 0, found) != len(value):
            raise BadForm
        if len(found.paths) > MAX_PATHS or len(found.leaves) > MAX_LEAVES:
            return None
    return found


def _walk(data: bytes, at: int, around: bytes, path: bytes | None, depth: int, found: Described) -> int:
    """Describe one item, and return the place after it; ``path`` is None inside of lists and for a whole value.

    ``around`` is the path of the map that the item may be: empty for a whole value.
    """
    begin = at
    major, argument, at = _head(data, at)
    is_tagged = major == _TAG
    while major == _TAG:
        begin = at
        major, argument, at = _head(data, at)
    if major in (_LIST, _MAP):
        if argument > len(data) - at or depth + 1 == MAX_WALK_DEPTH:
            raise BadForm
        is_listed = major == _LIST or (path is None and depth > 0)
        for _ in range(argument):
            inner = None
            if major == _MAP:
                key, at = _key(data, at)
                if not is_listed:
                    inner = _joined(around, key, found)
            at = _walk(data, at, inner or b"", inner, depth + 1, found)
        return at
    if major in (_BYTES, _TEXT):
        if argument > len(data) - at:
            raise BadForm
        text = data[at : at + argument]
        _add_text(text, path, is_text=major == _TEXT, is_tagged=is_tagged, found=found)
        return at + argument
    if path is not None:
        _add_plain(major, data[begin] & 31, argument, path, found)
    return at


def _head(data: bytes, at: int) -> tuple[int, int, int]:
    """Read one item's head: its major type, argument, and the place after it."""
    if at >= len(data):
        raise BadForm
    major, info = data[at] >> 5, data[at] & 31
    if info < 24:
        return major, info, at + 1
    size = 1 << info - 24
    if info > 27 or at + 1 + size > len(data):
        raise BadForm
    return major, int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size


def _key(data: bytes, at: int) -> tuple[bytes, int]:
    major, size, at = _head(data, at)
    if major != _TEXT or size > len(data) - at:
        raise BadForm
    return data[at : at + size], at + size


def _joined(around: bytes, key: bytes, found: Described) -> bytes:
    """Return the path of a key, which is a leaf of its own."""
    if len(around) + len(key) + 1 > MAX_PATH_BYTES:
        raise BadForm
    path = around + b"." + key if around else key
    if not path:
        raise BadForm
    found.paths.add(path)
    found.leaves.add(path)
    return path


def _add_text(text: bytes, path: bytes | None, *, is_text: bool, is_tagged: bool, found: Described) -> None:
    is_fresh = True
    if path is not None:
        first = text[0] if is_text and text else 0
        found.add_text(path, first, first if is_text else 255)
    if is_text and not is_tagged:
        if path is not None:
            leaf = path + b"\0s" + text[:LEAF_TEXT_CAP]
            is_fresh = leaf not in found.leaves or len(text) > LEAF_TEXT_CAP
            found.leaves.add(leaf)
        if is_fresh:
            found.texts.append(text)
    if is_tagged and path is not None:  # a number too large for 64 bits, or a time: no bound holds
        found.add_number(path, -math.inf, math.inf)
        found.leaves.add(path + b"\0b")


def _add_plain(major: int, info: int, argument: int, path: bytes, found: Described) -> None:
    """Describe a number, or one of the simple values."""
    if major == _SIMPLE and info < 25:
        if info in (20, 21):
            found.leaves.add(path + (b"\0f" if info == 20 else b"\0t"))
        return
    if major == _SIMPLE:
        size = 1 << info - 24
        low = high = struct.unpack({2: ">e", 4: ">f", 8: ">d"}[size], argument.to_bytes(size, "big"))[0]
        is_huge = math.isfinite(low) and abs(low) >= 2.0**63
        is_whole = abs(low) < 2.0**63 and low == math.floor(low)
        bits = _NAN_BITS if math.isnan(low) else struct.pack("<d", low)
        if is_whole:
            bits = struct.pack("<Q", int(low) & MASK)
    else:
        low = float(argument) if major == 0 else -1.0 - float(argument)
        slack = abs(low) * 2.0**-52 if abs(low) >= 2.0**53 else 0.0
        low, high = low - slack, low + slack
        is_huge, is_whole = argument >> 63 != 0, True
        bits = struct.pack("<Q", argument if major == 0 else ~argument & MASK)
    found.leaves.add(path + (b"\0b" if is_huge else (b"\0i" if is_whole else b"\0d") + bits))
    found.add_number(path, low, high)
