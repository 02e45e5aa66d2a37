"""Hold the portable functions of internet addresses, of four bytes and of sixteen.

Each is a function of one row's texts. A network's prefix counts wherever an address may carry one: the shorter of it
and of what is asked for is used. An address of four bytes is one of sixteen under ``::ffff``. It does not know engines.
"""

from __future__ import annotations

import ipaddress
import json
import re

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.python import dumped

_PRIVATE = tuple(ipaddress.ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
_BETWEEN = re.compile(r"[^\w.]|_")  # what parts an address from others


def _address(text: str) -> tuple[int, int]:
    """Return an address, or a network's, as a number and the length of its prefix."""
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
    """Return the items of an array, or the one value that is none, as texts."""
    held = json.loads(array)
    return [str(each) for each in (held if isinstance(held, list) else [held])]


def wide_address(text: str) -> tuple[int, int]:
    """Return an address, or a network's, as a number of 128 bits and the length of its prefix."""
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


FUNCTIONS: tuple[Function, ...] = (
    declare("ipv4_is_private", returns="bool", python=ipv4_is_private, arity=1),
    declare("ipv4_compare", returns="long", python=ipv4_compare, arity=3),
    declare("ipv4_is_match", returns="bool", python=lambda a, b, p: ipv4_compare(a, b, p) == 0, arity=3),
    declare("ipv4_is_in_range", returns="bool", python=ipv4_is_in_range, arity=2),
    declare("ipv4_is_in_any", returns="bool", python=ipv4_is_in_any, arity=2),
    declare("ipv4_netmask_suffix", returns="long", python=lambda text: _address(text)[1], arity=1),
    declare("parse_ipv4", returns="long", python=parse_ipv4, arity=1),
    declare("parse_ipv4_mask", returns="long", python=parse_ipv4, arity=2),
    declare("format_ipv4", returns="text", python=format_ipv4, arity=2),
    declare(
        "format_ipv4_mask", returns="text", python=lambda value, prefix: format_ipv4(value, prefix, mask=True), arity=2
    ),
    declare("has_ipv4", returns="bool", python=has_ipv4, arity=2),
    declare("has_ipv4_prefix", returns="bool", python=has_ipv4_prefix, arity=2),
    declare(
        "has_ipv4_of",
        returns="bool",
        python=lambda text, many: any(has_ipv4(text, each) for each in texts_of(many)),
        arity=2,
    ),
    declare(
        "has_ipv4_prefix_of",
        returns="bool",
        python=lambda text, many: any(has_ipv4_prefix(text, each) for each in texts_of(many)),
        arity=2,
    ),
    declare("ipv6_is_match", returns="bool", python=lambda a, b, p: ipv6_compare(a, b, p) == 0, arity=3),
    declare("ipv6_compare", returns="long", python=ipv6_compare, arity=3),
    declare("ipv6_is_in_any", returns="bool", python=ipv6_is_in_any, arity=2),
    declare("parse_ipv6", returns="text", python=parse_ipv6, arity=1),
    declare("ipv6_mask", returns="text", python=parse_ipv6, arity=2),
    declare("cidr_list", returns="dynamic", python=cidr_list, arity=2),
)
