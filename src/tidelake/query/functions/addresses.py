"""Hold the portable functions of internet addresses, of four bytes and of sixteen.

Each is a function of one row's texts. A network's prefix counts wherever an address may carry one: the shorter of it
and of what is asked for is used. An address of four bytes is one of sixteen under ``::ffff``. It does not know engines.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable
from typing import Any

from tidelake.query.functions.series import dumped

_PRIVATE = tuple(ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
_BETWEEN = re.compile(r"[^\w.]|_")  # what parts an address from others


def _address(text: str) -> tuple[int, int]:
    """Give an address, or a network's, as a number and the length of its prefix."""
    host, mark, prefix = text.strip().partition("/")
    return int(ipaddress.IPv4Address(host)), _length(prefix, 32) if mark else 32


def _length(prefix: str | None, most: int) -> int:
    found = int(prefix) if prefix is not None else most
    if not 0 <= found <= most:
        raise ValueError("no length of a prefix")
    return found


def _masked(value: int, length: int) -> int:
    return value >> (32 - length) << (32 - length)


def ipv4_is_private(text: str) -> bool:
    address = ipaddress.IPv4Address(_masked(*_address(text)))
    return any(address in network for network in _PRIVATE)


def ipv4_compare(one: str, other: str, prefix: str | None) -> int:
    (first, first_length), (second, second_length) = _address(one), _address(other)
    length = min(first_length, second_length, _length(prefix, 32))
    first, second = _masked(first, length), _masked(second, length)
    return (first > second) - (first < second)


def ipv4_is_in_range(address: str, network: str) -> bool:
    value, _ = _address(address)
    base, length = _address(network)
    return _masked(value, length) == _masked(base, length)


def ipv4_is_in_any(address: str, networks: str) -> bool:
    return any(ipv4_is_in_range(address, network) for network in json.loads(networks))


def parse_ipv4(text: str, prefix: str | None = None) -> int:
    value, length = _address(text)
    return _masked(value, min(length, _length(prefix, 32)))


def format_ipv4(value: str, prefix: str | None, *, mask: bool = False) -> str:
    number, own = (int(value), 32) if value.isdecimal() else _address(value)
    length = min(own, _length(prefix, 32))
    address = str(ipaddress.IPv4Address(_masked(number, length)))
    return f"{address}/{length}" if mask else address


def cidr_list(first: str, last: str) -> str:
    ends = ipaddress.IPv4Address(first), ipaddress.IPv4Address(last)
    return dumped([str(network) for network in ipaddress.summarize_address_range(*ends)])


def has_ipv4(text: str, address: str) -> bool:
    return _is_ipv4(address) and any(found == address for found in _addresses_in(text))


def has_ipv4_prefix(text: str, prefix: str) -> bool:
    """Whether a text has an address that begins so; a prefix is a whole address or ends with a dot."""
    if not prefix.endswith("."):
        return has_ipv4(text, prefix)
    return any(found.startswith(prefix) for found in _addresses_in(text))


def _addresses_in(text: str) -> list[str]:
    return [word for each in _BETWEEN.split(text) if _is_ipv4(word := each.strip("."))]


def _is_ipv4(text: str) -> bool:
    try:
        return ipaddress.IPv4Address(text) is not None
    except ValueError:
        return False


def texts_of(array: str) -> list[str]:
    """Give the items of an array, or the one value that is none, as texts."""
    held = json.loads(array)
    return [str(each) for each in (held if isinstance(held, list) else [held])]


def wide_address(text: str) -> tuple[int, int]:
    """Give an address, or a network's, as a number of 128 bits and the length of its prefix."""
    host, mark, prefix = text.strip().partition("/")
    head, _, tail = host.rpartition(":")
    if "." in tail and head in ("", ":", "::ffff", "::FFFF"):  # four bytes, alone or at the end of sixteen
        length = 96 + _length(prefix, 32) if mark else 128
        return 0xFFFF << 32 | int(ipaddress.IPv4Address(tail)), length
    return int(ipaddress.IPv6Address(host)), _length(prefix, 128) if mark else 128


def ipv6_compare(one: str, other: str, prefix: str | None) -> int:
    (first, first_size), (second, second_size) = wide_address(one), wide_address(other)
    drop = 128 - min(first_size, second_size, _length(prefix, 128))
    first, second = first >> drop, second >> drop
    return (first > second) - (first < second)


def ipv6_is_in_any(address: str, options: str) -> bool:
    ranges: list[str] = []
    for option in json.loads(options):
        ranges += option if isinstance(option, list) else [option] if option else []
    return any(ipv6_compare(address, each, None) == 0 for each in ranges)


def parse_ipv6(text: str, prefix: str | None = None) -> str:
    value, size = wide_address(text)
    drop = 128 - min(size, _length(prefix, 128))
    return ipaddress.IPv6Address(value >> drop << drop).exploded


# name, function, how many texts it takes, what it gives
ADDRESSES: tuple[tuple[str, Callable[..., Any], int, str], ...] = (
    ("tide_ipv4_is_private", ipv4_is_private, 1, "bool"),
    ("tide_ipv4_compare", ipv4_compare, 3, "long"),
    ("tide_ipv4_is_match", lambda a, b, p: ipv4_compare(a, b, p) == 0, 3, "bool"),
    ("tide_ipv4_is_in_range", ipv4_is_in_range, 2, "bool"),
    ("tide_ipv4_is_in_any", ipv4_is_in_any, 2, "bool"),
    ("tide_ipv4_netmask_suffix", lambda text: _address(text)[1], 1, "long"),
    ("tide_parse_ipv4", parse_ipv4, 1, "long"),
    ("tide_parse_ipv4_mask", parse_ipv4, 2, "long"),
    ("tide_format_ipv4", format_ipv4, 2, "text"),
    ("tide_format_ipv4_mask", lambda value, prefix: format_ipv4(value, prefix, mask=True), 2, "text"),
    ("tide_has_ipv4", has_ipv4, 2, "bool"),
    ("tide_has_ipv4_prefix", has_ipv4_prefix, 2, "bool"),
    ("tide_has_ipv4_of", lambda text, many: any(has_ipv4(text, each) for each in texts_of(many)), 2, "bool"),
    (
        "tide_has_ipv4_prefix_of",
        lambda text, many: any(has_ipv4_prefix(text, each) for each in texts_of(many)),
        2,
        "bool",
    ),
    ("tide_ipv6_is_match", lambda a, b, p: ipv6_compare(a, b, p) == 0, 3, "bool"),
    ("tide_ipv6_compare", ipv6_compare, 3, "long"),
    ("tide_ipv6_is_in_any", ipv6_is_in_any, 2, "bool"),
    ("tide_parse_ipv6", parse_ipv6, 1, "text"),
    ("tide_ipv6_mask", parse_ipv6, 2, "text"),
    ("tide_cidr_list", cidr_list, 2, "json"),
)
