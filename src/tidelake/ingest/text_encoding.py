"""Read the bytes of a file or a pipe as UTF-8 text, whatever they are compressed with or encoded in.

A compression is known by its first bytes (gzip, zstd, bzip2). UTF-16 is known by its mark, or by the zeros that every
other byte of it has; a mark before UTF-8 is left off. A byte that is no UTF-8 is read as Latin-1, in text and in CSV.
A piece is some megabytes and ends where a line does. It does not know what the text means.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError

PIECE_BYTES = 8 << 20
MAX_LINE_BYTES = 128 << 20  # of one line, so that a small compressed file cannot take all memory

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_LOOK_BYTES = 4096

OnRead = Callable[[int], None]


class _Counted(io.RawIOBase):
    """A file that tells how many bytes were read, and gives back what was looked at."""

    def __init__(self, file: BinaryIO, on_read: OnRead | None) -> None:
        self._file, self._on_read = file, on_read
        self.looked = file.read(_LOOK_BYTES)
        self._left = self.looked
        self._tell(len(self.looked))

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._left:
            held, self._left = self._left[:size] if size >= 0 else self._left, self._left[size:] if size >= 0 else b""
            return held
        data = self._file.read(size)
        self._tell(len(data))
        return data

    def _tell(self, count: int) -> None:
        if self._on_read is not None and count:
            self._on_read(count)


@contextmanager
def opened(place: Path | BinaryIO, on_read: OnRead | None = None) -> Iterator[Iterator[bytes]]:
    """Open a file or a pipe, and give its text as pieces of UTF-8, or of what may be Latin-1, without a mark."""
    if isinstance(place, Path):
        with place.open("rb") as file:
            yield _decoded(_unpacked(_Counted(file, on_read)))
    else:
        yield _decoded(_unpacked(_Counted(place, on_read)))


def _unpacked(file: _Counted) -> Iterator[bytes]:
    codec = next((name for magic, name in _MAGIC.items() if file.looked.startswith(magic)), None)
    if codec is None:
        while data := file.read(PIECE_BYTES):
            yield data
        return
    with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec) as stream:
        while (buffer := stream.read_buffer(PIECE_BYTES)).size:
            yield buffer.to_pybytes()


def _decoded(buffers: Iterator[bytes]) -> Iterator[bytes]:
    first = next(buffers, b"")
    mark = next((mark for mark in _MARKS if first.startswith(mark)), b"")
    encoding = _MARKS[mark] if mark else _wide_encoding(first[:_LOOK_BYTES])
    first = first[len(mark) :]
    if encoding == "utf-8":
        if first:
            yield first
        yield from buffers
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for data in _chained(first, buffers):
        if text := decoder.decode(data):
            yield text.encode("utf-8", "replace")
    if text := decoder.decode(b"", final=True):
        yield text.encode("utf-8", "replace")


def _chained(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from others


def _wide_encoding(head: bytes) -> str:
    """Return UTF-16 without a mark by its zeros: text in Latin letters has one in every other byte."""
    if len(head) < 4:
        return "utf-8"
    zeros = np.frombuffer(head[: len(head) // 2 * 2], dtype=np.uint8).reshape(-1, 2) == 0
    even, odd = zeros.mean(axis=0).tolist()
    if odd > 0.4 and even < 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 and odd < 0.05 else "utf-8"


def as_utf8(data: bytes) -> bytes:
    """Return text as UTF-8; bytes that are none are taken as Latin-1."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", _LATIN).encode()
    return data


def _latin(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


_LATIN = "tidelake-latin-1"
codecs.register_error(_LATIN, _latin)


def line_too_long(line: int) -> InvalidInputError:
    """Return the error for a line that is not read to its end."""
    return InvalidInputError(
        "a line is too long: one row a line, each shorter than the limit",
        line=line,
        limit_bytes=MAX_LINE_BYTES,
        kind="too_long",
    )


def line_pieces(buffers: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Cut text at line ends into pieces, each with the number of its first line; a last line may lack its end."""
    line, rest = 1, [b""]
    for data in buffers:
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest.append(data)
            if sum(map(len, rest)) > MAX_LINE_BYTES:
                raise line_too_long(line)
            continue
        piece = b"".join([*rest, data[:cut]])
        yield line, piece
        line += piece.count(b"\n")
        rest = [data[cut:]]
    if last := b"".join(rest):
        yield line, last


def is_text(head: bytes) -> bool:
    """Whether bytes may be text: no zeros, and few control characters."""
    seen = np.frombuffer(head[:_LOOK_BYTES], dtype=np.uint8)
    controls = np.count_nonzero((seen < 32) & ~np.isin(seen, (9, 10, 12, 13, 27)))
    return bool(controls * 50 <= len(seen)) and b"\x00" not in head[:_LOOK_BYTES]


def first_lines(data: bytes, count: int) -> list[str]:
    """Return the first lines of some text, as text, without their ends."""
    lines = data.split(b"\n", count)[:count]
    return [as_utf8(line).decode().rstrip("\r") for line in lines]
