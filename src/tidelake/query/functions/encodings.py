"""Declare how texts become bytes, codes and hashes, and come back.

It does not know engines beyond their SQL.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import uuid
import zlib
from urllib.parse import quote, quote_plus, unquote_plus

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.python import dumped

MAX_UNPACKED = 64 << 20  # bytes that one compressed text may become

_MASK = (1 << 64) - 1
_PRIMES = (
    11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261,
)  # fmt: skip  # fmt: skip


def decoded(text: str) -> bytes:
    """Read base64, which is padded and has no other signs."""
    return base64.b64decode(text, validate=True)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _packed(data: bytes) -> bytes:
    """Compress bytes, without a header; what does not become shorter is stored as it is."""
    found = _deflated(data, zlib.Z_DEFAULT_COMPRESSION)
    return found if len(found) + 1 < len(data) else _deflated(data, zlib.Z_NO_COMPRESSION)


def _deflated(data: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def zlib_pack(text: str) -> str:
    data = text.encode()
    return _text(b"\x78\x01" + _packed(data) + zlib.adler32(data).to_bytes(4, "big"))


def gzip_pack(text: str) -> str:
    """Compress a text as a member of gzip that names neither a time nor a system."""
    data = text.encode()
    ends = zlib.crc32(data).to_bytes(4, "little") + (len(data) % 2**32).to_bytes(4, "little")
    return _text(b"\x1f\x8b\x08" + bytes(6) + b"\xff" + _packed(data) + ends)


def _unpacked(text: str, wbits: int) -> str:
    opened = zlib.decompressobj(wbits)
    data = opened.decompress(decoded(text), MAX_UNPACKED)
    if opened.unconsumed_tail:
        raise ValueError("too large")
    return data.decode("utf-8")


def base64_to_array(text: str) -> str:
    return dumped(list(decoded(text)))


def url_encode_form(text: str) -> str:
    """Encode as forms do: a space is a plus, and digits are in lower case."""
    encoded = quote_plus(text, safe="!()*").replace("~", "%7e")
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)


def url_encode(text: str) -> str:
    return quote(text, safe="")


def codepoints(text: str) -> str:
    return dumped([ord(letter) for letter in text])


def from_codepoints(array: str) -> str:
    """Join letters by their numbers, given alone or in arrays."""
    value = json.loads(array)
    if isinstance(value, list):
        return "".join(from_codepoints(json.dumps(each)) for each in value)
    return chr(int(value))


def punycode_encode(text: str) -> str:
    return text.encode("punycode").decode()


def punycode_decode(text: str) -> str:
    return text.encode().decode("punycode")


def punycode_domain_encode(text: str) -> str:
    parts = re.split("[.\u3002\uff0e\uff61]", text)  # the dots of other scripts part a domain too
    return ".".join(part if part.isascii() else "xn--" + punycode_encode(part) for part in parts)


def punycode_domain_decode(text: str) -> str:
    return ".".join(punycode_decode(part[4:]) if part[:4].lower() == "xn--" else part for part in text.split("."))


def hashed(text: str, kind: str, divisor: str | None) -> int | None:
    """Return xxhash64 of a text's bytes, or of the eight of a number, or what a division leaves of it."""
    match kind:
        case "long":
            data = int(text).to_bytes(8, "little", signed=True)
        case "real":
            data = struct.pack("<d", float(text))
        case _:
            data = text.encode()
    found = _xxhash64(data)
    if divisor is not None:
        return found % int(divisor) if int(divisor) > 0 else None
    return found - (1 << 64) if found >> 63 else found


def _xxhash64(data: bytes) -> int:
    first, second, third, fourth, fifth = _PRIMES
    size, at = len(data), 0
    if size >= 32:
        lanes = [(first + second) & _MASK, second, 0, -first & _MASK]
        for at in range(0, size - 31, 32):
            lanes = [_mixed(lane, _word(data, at + 8 * number, 8)) for number, lane in enumerate(lanes)]
        at += 32
        total = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            total = ((total ^ _mixed(0, lane)) * first + fourth) & _MASK
    else:
        total = fifth
    total = (total + size) & _MASK
    while at + 8 <= size:
        total, at = (_turned(total ^ _mixed(0, _word(data, at, 8)), 27) * first + fourth) & _MASK, at + 8
    if at + 4 <= size:
        total, at = (_turned(total ^ (_word(data, at, 4) * first & _MASK), 23) * second + third) & _MASK, at + 4
    for byte in data[at:]:
        total = _turned(total ^ (byte * fifth & _MASK), 11) * first & _MASK
    for shift, prime in ((33, second), (29, third), (32, 1)):
        total = (total ^ (total >> shift)) * prime & _MASK
    return total


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _turned(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


def _mixed(lane: int, value: int) -> int:
    return _turned((lane + value * _PRIMES[1]) & _MASK, 31) * _PRIMES[0] & _MASK


FUNCTIONS: tuple[Function, ...] = (
    declare("base64_encode", returns="text", duckdb="to_base64(encode({0}))", spark="base64(encode({0}, 'UTF-8'))"),
    declare("base64_decode", returns="text", python=lambda text: decoded(text).decode(), arity=1),
    declare("base64_to_array", returns="dynamic", python=base64_to_array, arity=1),
    declare("base64_from_array", returns="text", python=lambda array: _text(bytes(json.loads(array))), arity=1),
    declare("base64_from_guid", returns="text", python=lambda text: _text(uuid.UUID(text).bytes_le), arity=1),
    declare("base64_to_guid", returns="text", python=lambda text: str(uuid.UUID(bytes_le=decoded(text))), arity=1),
    declare("zlib_pack", returns="text", python=zlib_pack, arity=1),
    declare("zlib_unpack", returns="text", python=lambda text: _unpacked(text, zlib.MAX_WBITS), arity=1),
    declare("gzip_pack", returns="text", python=gzip_pack, arity=1),
    declare("gzip_unpack", returns="text", python=lambda text: _unpacked(text, 16 + zlib.MAX_WBITS), arity=1),
    declare("url_encode", returns="text", python=url_encode, arity=1),
    declare("url_encode_form", returns="text", python=url_encode_form, arity=1),
    declare("url_decode", returns="text", python=unquote_plus, arity=1),
    declare("codepoints", returns="dynamic", python=codepoints, arity=1),
    declare("from_codepoints", returns="text", python=from_codepoints, arity=1),
    declare("punycode_encode", returns="text", python=punycode_encode, arity=1),
    declare("punycode_decode", returns="text", python=punycode_decode, arity=1),
    declare("punycode_domain_encode", returns="text", python=punycode_domain_encode, arity=1),
    declare("punycode_domain_decode", returns="text", python=punycode_domain_decode, arity=1),
    declare("md5", returns="text", both="md5({0})"),
    declare("sha1", returns="text", both="sha1({0})"),
    declare("sha256", returns="text", duckdb="sha256({0})", spark="sha2({0}, 256)"),
    declare("hashed", returns="long", python=hashed, arity=3),
)
