"""Read thrift's compact encoding, in which Parquet keeps its footers, into plain values.

pyarrow reads it too, but its accessors end the whole process on some wrong lengths in a footer, so a footer that no
checksum vouches for is read here instead. A struct becomes a dict by field number, a text its bytes. Every access stays
inside the bytes, and nothing grows larger than they warrant; else it is a ``ValueError``. It does not know what the
fields mean, nor write any.
"""

from __future__ import annotations

import struct
from typing import Any

MAX_DEPTH = 32  # Parquet's own footers nest eight deep

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)


def parse_struct(data: bytes) -> dict[int, Any]:
    """Read the struct that these bytes begin with."""
    return _Cursor(data).struct(0)


class _Cursor:
    """A place in the bytes, which every read moves on."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, depth: int) -> dict[int, Any]:
        if depth > MAX_DEPTH:
            raise ValueError("the footer nests too deep")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._signed()
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_I16, _I32, _I64):
            return self._signed()
        if kind == _BINARY:
            return self._take(self._unsigned())
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind in (_BYTE, _TRUE, _FALSE):
            return self._byte()
        if kind == _DOUBLE:
            return struct.unpack("<d", self._take(8))[0]
        if kind == _UUID:
            return self._take(16)
        if kind == _MAP:
            return self._map(depth)
        raise ValueError(f"the footer has a value of unknown kind {kind}")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 != 15 else self._unsigned()
        self._check_count(count, depth)
        return [self._value(head & 15, depth) for _ in range(count)]

    def _map(self, depth: int) -> dict[Any, Any]:
        count = self._unsigned()
        self._check_count(count, depth)
        kinds = self._byte() if count else 0
        pairs = [(self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)) for _ in range(count)]
        return {key: value for key, value in pairs if isinstance(key, int | float | bytes)}

    def _check_count(self, count: int, depth: int) -> None:
        """Refuse more values than bytes are left: each takes one at least."""
        if depth > MAX_DEPTH or count > len(self._data) - self._at:
            raise ValueError(f"the footer has a list of {count} values")

    def _signed(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)

    def _unsigned(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 128:
            number |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("the footer has a number of more than 64 bits")
        return number | byte << shift

    def _byte(self) -> int:
        if self._at >= len(self._data):
            raise ValueError("the footer ends early")
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, length: int) -> bytes:
        if length > len(self._data) - self._at:
            raise ValueError("the footer ends early")
        self._at += length
        return self._data[self._at - length : self._at]
