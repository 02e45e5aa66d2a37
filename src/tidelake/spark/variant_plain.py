"""Turn one dynamic value into a variant and back, the plain way: what the compiled loops are tested against.

A time inside a value becomes a variant's timestamp; what no variant can say (an integer beyond 38 digits) becomes text.
It does not know columns: see ``variant``.
"""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal, localcontext
from typing import Any

from pyspark.sql.types import VariantVal

from tidelake import dynamic
from tidelake.errors import CorruptError
from tidelake.ingest.rows import plain

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DIGITS = 38  # of a variant's decimals
_MAX_DECIMAL = 10**_DIGITS


def plain_variant(data: bytes) -> tuple[bytes, bytes]:
    """Return the value and the metadata of the variant of one dynamic value."""
    value = dynamic.decode(data)
    keys = sorted(_keys_of(value), key=lambda key: key.encode("utf-16-be"))
    ids = {key: id for id, key in enumerate(keys)}
    texts = [key.encode() for key in keys]
    total = sum(map(len, texts))
    width = 1 if max(total, len(keys)) < 256 else 4
    ends, at = [0], 0
    for text in texts:
        at += len(text)
        ends.append(at)
    head = bytes([0x11 | (width - 1) << 6])
    numbers = b"".join(number.to_bytes(width, "little") for number in (len(keys), *ends))
    return _value_bytes(value, ids), head + numbers + b"".join(texts)


def plain_cbor(value: bytes, metadata: bytes) -> bytes:
    """Return the dynamic value of one variant."""
    try:
        with localcontext(prec=_DIGITS):  # the usual 28 digits would round
            found = VariantVal(value, metadata).toPython()
    except Exception as error:  # whatever pyspark raises on bytes that are no variant
        raise CorruptError("not a variant", reason=error) from error
    return dynamic.encode(plain(_with_integers(found), 1))


def _with_integers(value: Any) -> Any:
    """Return whole decimals as integers, which a dynamic value has in any size."""
    match value:
        case Decimal() if value.as_tuple().exponent == 0:
            return int(value)
        case dict():
            return {key: _with_integers(inner) for key, inner in value.items()}
        case list():
            return [_with_integers(inner) for inner in value]
        case _:
            return value


def _keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_keys_of, value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*map(_keys_of, value)) if value else set()
    return set()


def _value_bytes(value: Any, ids: dict[str, int]) -> bytes:
    match value:
        case None:
            return b"\x00"
        case bool():
            return b"\x04" if value else b"\x08"
        case int():
            return _integer_bytes(value)
        case float():
            return bytes([7 << 2]) + struct.pack("<d", value)
        case str():
            return _text_bytes(value.encode())
        case bytes():
            return bytes([15 << 2]) + struct.pack("<I", len(value)) + value
        case dt.datetime():
            micros = (value.astimezone(dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
            return bytes([12 << 2]) + struct.pack("<q", micros)
        case list():
            parts = [_value_bytes(inner, ids) for inner in value]
            return bytes([((1 << 2 | 3) << 2) | 3]) + struct.pack("<I", len(parts)) + _offsets(parts) + b"".join(parts)
        case dict():
            ordered = sorted(value, key=lambda key: ids[key])
            parts = [_value_bytes(value[key], ids) for key in ordered]
            numbers = b"".join(struct.pack("<I", ids[key]) for key in ordered)
            head = bytes([((1 << 4 | 3 << 2 | 3) << 2) | 2]) + struct.pack("<I", len(parts))
            return head + numbers + _offsets(parts) + b"".join(parts)
        case _:
            return _text_bytes(str(value).encode())


def _integer_bytes(value: int) -> bytes:
    for kind, width in ((3, 1), (4, 2), (5, 4), (6, 8)):
        if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
            return bytes([kind << 2]) + value.to_bytes(width, "little", signed=True)
    if abs(value) < _MAX_DECIMAL:
        return bytes([10 << 2, 0]) + value.to_bytes(16, "little", signed=True)
    return _text_bytes(str(Decimal(value)).encode())


def _text_bytes(text: bytes) -> bytes:
    if len(text) < 64:
        return bytes([len(text) << 2 | 1]) + text
    return bytes([16 << 2]) + struct.pack("<I", len(text)) + text


def _offsets(parts: list[bytes]) -> bytes:
    at, numbers = 0, [0]
    for part in parts:
        at += len(part)
        numbers.append(at)
    return struct.pack(f"<{len(numbers)}I", *numbers)
