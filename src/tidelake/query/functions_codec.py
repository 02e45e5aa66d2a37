"""Hold the portable functions that turn bytes, arrays and bags into one another.

Each is a function of one row's texts; options travel as one JSON array. It does not know engines.
"""

from __future__ import annotations

import base64
import gzip
import ipaddress
import json
import uuid
import zlib
from collections.abc import Callable
from typing import Any

from tidelake.query.functions_series import dumped
from tidelake.query.kql.literals import format_span

MAX_UNPACKED = 64 << 20  # bytes that one compressed text may become
MAX_REPEAT = 1_000_000


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unpacked(text: str, wbits: int) -> str:
    opened = zlib.decompressobj(wbits)
    data = opened.decompress(_bytes(text), MAX_UNPACKED)
    if opened.unconsumed_tail:
        raise ValueError("too large")
    return data.decode("utf-8")


def array_shift(array: str, options: str, direction: int) -> str:
    items, (places, fill) = json.loads(array), json.loads(options)
    shift = direction * int(places)
    kept = items[shift:] if shift >= 0 else items[:shift]
    padding = [fill] * min(abs(shift), len(items))
    return dumped(kept + padding if shift >= 0 else padding + kept)


def array_iff(conditions: str, yes: str, no: str) -> str:
    """Choose item by item; a side that is no array stands for each item."""
    tests, sides = json.loads(conditions), [_plain(side) for side in (yes, no)]

    def item(side: Any, at: int) -> Any:
        return (side[at] if at < len(side) else None) if isinstance(side, list) else side

    return dumped([None if test is None else item(sides[not test], at) for at, test in enumerate(tests)])


def range_timespan(first: str, last: str, step: str) -> str:
    low, high, by = int(first), int(last), int(step)
    count = (high - low) // by + 1
    if count > MAX_REPEAT:
        raise ValueError("too many")
    return dumped([format_span(low + at * by) for at in range(max(count, 0))])


def array_split(array: str, options: str) -> str:
    """Cut an array at some places; one from the end is counted back."""
    items, (places,) = json.loads(array), json.loads(options)
    cuts = [int(place) for place in (places if isinstance(places, list) else [places])]
    cuts = [max(0, cut + len(items)) if cut < 0 else min(cut, len(items)) for cut in cuts]
    bounds = [0, *cuts, len(items)]
    return dumped([items[bounds[at] : bounds[at + 1]] for at in range(len(bounds) - 1)])


def bag_set_key(bag: str, options: str) -> str:
    found, (key, value) = json.loads(bag), json.loads(options)
    path = str(key)[2:].split(".") if str(key).startswith("$.") else [str(key)]
    at = found
    for step in path[:-1]:
        at = at.setdefault(step, {})
    at[path[-1]] = value
    return dumped(found)


def repeat(value: str, options: str) -> str:
    (count,) = json.loads(options)
    if not 0 <= int(count) <= MAX_REPEAT:
        raise ValueError("too many")
    return dumped([_plain(value)] * int(count))


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def treepath(value: str) -> str:
    """List the paths of everything within a value, as KQL writes them."""
    found: list[str] = []

    def walk(item: Any, path: str) -> None:
        if isinstance(item, dict):
            for key, inner in item.items():
                found.append(f"{path}['{key}']")
                walk(inner, f"{path}['{key}']")
        elif isinstance(item, list) and item:
            found.append(f"{path}[0]")
            walk(item[0], f"{path}[0]")

    walk(json.loads(value), "")
    return dumped(found)


def ipv6_compare(one: str, other: str, prefix: str | None) -> int:
    (first, first_size), (second, second_size) = wide_address(one), wide_address(other)
    drop = 128 - min(first_size, second_size, int(prefix) if prefix else 128)
    first, second = first >> drop, second >> drop
    return (first > second) - (first < second)


def wide_address(text: str) -> tuple[int, int]:
    """Give an address, or a network's, as a number of 128 bits and the length of its prefix."""
    host, _, length = text.strip().partition("/")
    parsed = ipaddress.ip_address(host)
    shift = 96 if parsed.version == 4 else 0
    value = int(parsed) | (0xFFFF << 32 if parsed.version == 4 else 0)
    return value, (int(length) + shift) if length else 128


def ipv6_is_in_any(address: str, options: str) -> bool:
    ranges: list[str] = []
    for option in json.loads(options):
        ranges += option if isinstance(option, list) else [option] if option else []
    return any(ipv6_compare(address, each, None) == 0 for each in ranges)


def ipv6_mask(text: str, prefix: str) -> str:
    value, size = wide_address(text)
    drop = 128 - min(size, int(prefix))
    return ipaddress.IPv6Address(value >> drop << drop).exploded


def cidr_list(first: str, last: str) -> str:
    ends = ipaddress.IPv4Address(first), ipaddress.IPv4Address(last)
    return dumped([str(network) for network in ipaddress.summarize_address_range(*ends)])


# name, function, how many texts it takes, what it gives
CODEC: tuple[tuple[str, Callable[..., Any], int, str], ...] = (
    ("tide_base64_from_array", lambda array: _text(bytes(json.loads(array))), 1, "text"),
    ("tide_base64_from_guid", lambda text: _text(uuid.UUID(text).bytes_le), 1, "text"),
    ("tide_base64_to_guid", lambda text: str(uuid.UUID(bytes_le=_bytes(text))), 1, "text"),
    ("tide_zlib_pack", lambda text: _text(zlib.compress(text.encode())), 1, "text"),
    ("tide_zlib_unpack", lambda text: _unpacked(text, zlib.MAX_WBITS), 1, "text"),
    ("tide_gzip_pack", lambda text: _text(gzip.compress(text.encode(), mtime=0)), 1, "text"),
    ("tide_gzip_unpack", lambda text: _unpacked(text, 16 + zlib.MAX_WBITS), 1, "text"),
    ("tide_array_shift", lambda array, options: array_shift(array, options, 1), 2, "json"),
    ("tide_array_shift_right", lambda array, options: array_shift(array, options, -1), 2, "json"),
    ("tide_array_split", array_split, 2, "json"),
    ("tide_array_iff", array_iff, 3, "json"),
    ("tide_range_timespan", range_timespan, 3, "json"),
    ("tide_bag_set_key", bag_set_key, 2, "json"),
    ("tide_repeat", repeat, 2, "json"),
    ("tide_treepath", treepath, 1, "json"),
    ("tide_ipv6_compare", ipv6_compare, 3, "long"),
    ("tide_ipv6_is_in_any", ipv6_is_in_any, 2, "bool"),
    ("tide_ipv6_mask", ipv6_mask, 2, "text"),
    ("tide_cidr_list", cidr_list, 2, "json"),
)
