"""Read protobuf's wire format field by field, without a description of the message.

For what is rare in a message that compiled loops have walked already, and for messages so small that nothing else pays.
What is damaged is InvalidInputError. It does not know any message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tidelake.errors import InvalidInputError

_VARINT, _FIXED64, _LEN, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its number, how it is written, its value if that is a number, and where its bytes are."""

    body: bytes
    number: int
    kind: int
    value: int
    start: int
    end: int

    def fields(self) -> Iterator[Field]:
        """Yield the fields of a message inside."""
        return Message(self.body).fields(self.start, self._size())

    def text(self) -> str:
        """Return a text."""
        self._size()
        return text_of(self.body[self.start : self.end])

    def bytes(self) -> bytes:
        """Return bytes."""
        self._size()
        return self.body[self.start : self.end]

    def unsigned(self) -> int:
        """Return a number of 64 bits without a sign."""
        return self.value

    def signed(self) -> int:
        """Return a number of 64 bits."""
        return self.value - (1 << 64) if self.value >= 1 << 63 else self.value

    def zigzag(self) -> int:
        """Return a number whose sign is its last bit."""
        return unzigzag(self.value)

    def double(self) -> float:
        """Return a real."""
        if self.kind != _FIXED64:
            raise _damaged("a real has eight bytes")
        return float(struct.unpack_from("<d", self.body, self.start)[0])

    def fixed64(self) -> int:
        """Return a number of eight bytes."""
        if self.kind != _FIXED64:
            raise _damaged("a fixed number has eight bytes")
        return int(struct.unpack_from("<Q", self.body, self.start)[0])

    def numbers(self) -> list[int]:
        """Return repeated numbers, packed or one."""
        if self.kind == _VARINT:
            return [self.value]
        found, at = [], self.start
        end = at + self._size()
        while at < end:
            value, at = varint(self.body, at, end)
            found.append(value)
        return found

    def doubles(self) -> list[float]:
        """Return repeated reals, packed or one."""
        if self.kind == _FIXED64:
            return [self.double()]
        if self._size() % 8:
            raise _damaged("reals have eight bytes each")
        return list(struct.unpack_from(f"<{(self.end - self.start) // 8}d", self.body, self.start))

    def _size(self) -> int:
        if self.kind != _LEN:
            raise _damaged("a number where bytes belong")
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Message:
    """The bytes of a message."""

    body: bytes

    def fields(self, start: int = 0, size: int | None = None) -> Iterator[Field]:
        """Yield the fields of a part of it, or of all."""
        at, end = start, len(self.body) if size is None else start + size
        while at < end:
            key, at = varint(self.body, at, end)
            number, kind, value = key >> 3, key & 7, 0
            begin = at
            if kind == _VARINT:
                value, at = varint(self.body, at, end)
            elif kind in _WIDTHS:
                at += _WIDTHS[kind]
            elif kind == _LEN:
                held, begin = varint(self.body, at, end)
                at = begin + held
            else:
                raise _damaged("a field is of no known kind")
            if at > end or not number:
                raise _damaged("it ends too early")
            yield Field(self.body, number, kind, value, begin, at)


def varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, and the place after it."""
    value = shift = 0
    while at < end and shift < 70:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7
    raise _damaged("a number does not end")


def unzigzag(value: int) -> int:
    """Return a number whose sign is its last bit."""
    return (value >> 1) ^ -(value & 1)


def text_of(data: bytes) -> str:
    """Return a text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _damaged("a text is not UTF-8") from error


def _damaged(reason: str) -> InvalidInputError:
    return InvalidInputError("the body is not protobuf that can be read", reason=reason, kind="bad_body")
