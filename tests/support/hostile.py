"""Damage bytes in the ways that disks, networks and enemies do, repeatably.

It does not know any format, except that formats have lengths and offsets, so it likes to write extreme numbers.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

EXTREMES = (0, 1, 7, 255, 2**15, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
NEAR_END = 64  # bytes: where most formats keep their lengths


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with one to three damages."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        data = chance.choice(DAMAGES)(data, chance)
    return data


def flip_bits(data: bytes, chance: random.Random) -> bytes:
    """Turn some bits."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        if found:
            found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def overwrite(data: bytes, chance: random.Random) -> bytes:
    """Write over a run of bytes: noise, zeros or ones."""
    at, length = _span(data, chance)
    filler = chance.choice((chance.randbytes(length), bytes(length), b"\xff" * length))
    return data[:at] + filler + data[at + length :]


def write_extreme(data: bytes, chance: random.Random) -> bytes:
    """Write a number that no honest length or offset is, most often near the end."""
    number = chance.choice(EXTREMES)
    width = chance.choice((1, 2, 4, 4, 8))
    if len(data) < width:
        return data
    last = len(data) - width
    at = max(last - chance.randrange(NEAR_END), 0) if chance.random() < 0.4 else chance.randint(0, last)
    return data[:at] + struct.pack("<Q", number % 2**64)[:width] + data[at + width :]


def nudge(data: bytes, chance: random.Random) -> bytes:
    """Make a number a little larger or smaller."""
    if len(data) < 4:
        return data
    at = chance.randint(0, len(data) - 4)
    (number,) = struct.unpack_from("<I", data, at)
    return data[:at] + struct.pack("<I", (number + chance.choice((-8, -1, 1, 8, 64))) % 2**32) + data[at + 4 :]


def copy_over(data: bytes, chance: random.Random) -> bytes:
    """Write one part over another of the same length."""
    source, length = _span(data, chance)
    at = chance.randint(0, len(data) - length)
    return data[:at] + data[source : source + length] + data[at + length :]


def insert(data: bytes, chance: random.Random) -> bytes:
    """Put a part of the bytes in once more."""
    source, length = _span(data, chance)
    at = chance.randint(0, len(data))
    return data[:at] + data[source : source + length] + data[at:]


def remove(data: bytes, chance: random.Random) -> bytes:
    """Take a part out."""
    at, length = _span(data, chance)
    return data[:at] + data[at + length :]


def truncate(data: bytes, chance: random.Random) -> bytes:
    """Keep only the beginning, or only the end."""
    at = chance.randint(0, len(data))
    return data[:at] if chance.random() < 0.8 else data[at:]


def append(data: bytes, chance: random.Random) -> bytes:
    """Add noise, zeros or a copy of the end."""
    length = chance.randint(1, 300)
    return data + chance.choice((chance.randbytes(length), bytes(length), data[-length:]))


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flip_bits,
    flip_bits,
    overwrite,
    write_extreme,
    write_extreme,
    nudge,
    copy_over,
    insert,
    remove,
    truncate,
    append,
)


def _span(data: bytes, chance: random.Random) -> tuple[int, int]:
    """Choose a part of the bytes, most often a short one."""
    length = min(chance.choice((1, 4, 8, 64, 1000)), len(data))
    return chance.randint(0, len(data) - length), length
