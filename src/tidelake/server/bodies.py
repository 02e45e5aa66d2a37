"""Decompress bodies, and never to more than a limit: what a few bytes can become must not fill memory.

gzip, deflate, zstd and snappy (blocks, as Prometheus and Loki send them). The size is checked while it grows, or before
anything is made where the format tells it. It does not read from the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cramjam
import zstandard
from isal import isal_zlib

from tidelake.server.refusals import Refusal, TooLarge, Unsupported

_CHUNK = 1 << 20
_BAD_ZLIB: Any = isal_zlib.error  # its stubs have it as a value
_CORRUPT = (_BAD_ZLIB, zstandard.ZstdError, cramjam.DecompressionError, EOFError, ValueError)


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body as it was before its encodings, the last one first."""
    for name in reversed([part.strip() for part in encoding.lower().split(",") if part.strip()]):
        if name == "identity":
            continue
        decode = _DECODERS.get(name)
        if decode is None:
            raise Unsupported("the body's encoding is not known", encoding=name[:40], known=", ".join(_DECODERS))
        try:
            body = decode(body, limit)
        except _CORRUPT as error:
            raise Refusal("the body cannot be decompressed", encoding=name, reason=error, kind="bad_body") from error
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> TooLarge:
    return TooLarge("the body is too large", limit_bytes=limit)


def _gunzip(body: bytes, limit: int, wbits: int = 47) -> bytes:
    """Decompress gzip, several members too, or zlib."""
    parts: list[bytes] = []
    left = limit + 1
    while body:
        stream = isal_zlib.decompressobj(wbits)
        part = stream.decompress(body, left)
        parts.append(part)
        left -= len(part)
        if left <= 0:
            raise _too_large(limit)
        if not stream.eof:
            raise EOFError("it ends too early")
        body = stream.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _inflate(body: bytes, limit: int) -> bytes:
    try:
        return _gunzip(body, limit)
    except _BAD_ZLIB:
        return _gunzip(body, limit, -15)  # without zlib's own head, as some clients send it


def _unzstd(body: bytes, limit: int) -> bytes:
    size = zstandard.frame_content_size(body)
    if size > limit:
        raise _too_large(limit)
    if size > 0:
        return zstandard.ZstdDecompressor().decompress(body, max_output_size=limit)
    parts, left = [], limit + 1
    with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
        while part := reader.read(min(left, _CHUNK)):
            parts.append(part)
            left -= len(part)
            if left <= 0:
                raise _too_large(limit)
    return b"".join(parts)


def _unsnappy(body: bytes, limit: int) -> bytes:
    """Decompress one block, which begins with its size as a varint."""
    size, shift = 0, 0
    for byte in body[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    else:
        raise ValueError("it has no size")
    if size > limit:
        raise _too_large(limit)
    if size == 0:
        return b""
    return bytes(cramjam.snappy.decompress_raw(body))


_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate,
    "zstd": _unzstd,
    "snappy": _unsnappy,
}
