"""Turn the values of one column of one block into a page of bytes and back, each in the way that makes it small.

A page begins with its codec. Which one is chosen is measured, by ``choosing``. Values have no gaps: nulls are told
apart before, by ``encode_column``. ``docs/format.md`` is the specification.

A page says nothing of its length or type: whoever decodes knows both, and what does not fit is a ``ValueError``. It
does not know blocks, files or checksums.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pcodec import ChunkConfig, DeltaSpec, ModeSpec, standalone

from tidelake.format.choosing import Choice, Encode, smallest
from tidelake.kernels.spreading import spread

# Of numbers and bits. Pages are stored: these stay for good.
CONSTANT, PLAIN, ZSTD, DELTA, PCO, REAL_PCO, PLANES, DECIMAL, DIFFERENCE = range(9)
# Of texts and other bytes.
TEXT_CONSTANT, TEXT_PLAIN, TEXT_ZSTD, TEXT_DICTIONARY, TEXT_TEMPLATES = range(16, 21)
# Of nulls, before the values of a column.
NO_NULLS, ALL_NULLS, SOME_NULLS = range(32, 35)

CODEC_NAMES = {
    CONSTANT: "constant",
    PLAIN: "plain",
    ZSTD: "zstd",
    DELTA: "delta",
    PCO: "pco",
    REAL_PCO: "pco",
    PLANES: "planes",
    DECIMAL: "decimal",
    DIFFERENCE: "difference",
    TEXT_CONSTANT: "constant",
    TEXT_PLAIN: "plain",
    TEXT_ZSTD: "zstd",
    TEXT_DICTIONARY: "dictionary",
    TEXT_TEMPLATES: "templates",
    ALL_NULLS: "nulls",
}

LEVEL = 3  # of zstd
PLANE_LEVEL = 1  # of zstd over bytes of one rank: what is in them is how often each comes, and no repeats
# Of zstd over texts, from so many bytes on: comments of TPC-H shrink by a tenth, and are written at 50 MB a second.
TEXT_LEVEL, TEXT_LEVEL_BYTES = 7, 64 << 10
PCO_LEVEL = 6  # from 4 to 8 pages shrink by 1 %, and take twice as long to write
LEVEL_SAMPLE_BYTES = 256 << 10  # of texts that show whether the higher level is worth its time
TEXT_LEVEL_GAIN = 0.93  # of the bytes of the lower level that the higher one may take at most
PLAIN_SHARE = 0.97  # above it, compressed bytes are not worth decompressing
SMALL = 64  # values below which only the cheapest candidates are tried
MAX_BYTES = 2**31 - 1  # of the values of a page
MAX_PLACES = 9  # of decimals after the point
MAX_DECIMAL = 2.0**52  # above it, not every whole number is a double

_DTYPES: dict[int, np.dtype[Any]] = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}
_PCO_CONFIG = ChunkConfig(compression_level=PCO_LEVEL)
_PCO_VALUES, _PCO_STEPS = (  # pcodec looks at a sample for all that may help, which takes a quarter of its time
    ChunkConfig(compression_level=PCO_LEVEL, mode_spec=ModeSpec.classic(), delta_spec=each)
    for each in (DeltaSpec.no_op(), DeltaSpec.try_consecutive(1))
)
_ZSTD = pa.Codec("zstd", compression_level=LEVEL)
_TEXT_ZSTD = pa.Codec("zstd", compression_level=TEXT_LEVEL)
_PLANE_ZSTD = pa.Codec("zstd", compression_level=PLANE_LEVEL)

_Array = npt.NDArray[Any]


def encode_ints(values: npt.NDArray[np.int64], choice: Choice | None = None) -> bytes:
    """Encode whole numbers of 64 bits."""
    if _is_constant(values):
        return struct.pack("<Bq", CONSTANT, int(values[0]) if len(values) else 0)
    if len(values) < SMALL:
        return smallest(values, (_plain_ints, _zstd_ints))
    return smallest(values, _INTS, choice, _SOONER)


def encode_reals(values: npt.NDArray[np.float64], choice: Choice | None = None) -> bytes:
    """Encode doubles, bit by bit."""
    bits = values.view(np.int64)
    if _is_constant(bits):
        return struct.pack("<Bq", CONSTANT, int(bits[0]) if len(bits) else 0)
    if len(values) < SMALL:
        return smallest(bits, (_plain_ints, _zstd_ints))
    return smallest(bits, _REALS, choice, _SOONER)


def encode_bits(values: npt.NDArray[np.bool_]) -> bytes:
    """Encode booleans: eight to a byte, the first in the lowest bit."""
    if _is_constant(values):
        return struct.pack("<Bq", CONSTANT, int(values[0]) if len(values) else 0)
    packed = np.packbits(values, bitorder="little").tobytes()
    small = _compressed(packed)
    if len(small) < len(packed) * PLAIN_SHARE:
        return bytes([ZSTD]) + small
    return bytes([PLAIN]) + packed


def encode_texts(values: pa.Array, choice: Choice | None = None) -> bytes:
    """Encode texts, or other bytes: their lengths, then all of them in a row."""
    lengths, letters = lengths_and_letters(values)
    if len(values) and not (lengths != lengths[0]).any():
        size = int(lengths[0])
        first = letters[:size]
        if letters == first * len(values):
            return bytes([TEXT_CONSTANT]) + first
    sizes = encode_ints(lengths)
    small = _compressed_text(letters, choice) if len(letters) > SMALL else letters
    codec = TEXT_ZSTD if len(small) < len(letters) * PLAIN_SHARE else TEXT_PLAIN
    return struct.pack("<BII", codec, len(sizes), len(letters)) + sizes + (small if codec == TEXT_ZSTD else letters)


def decode_ints(page: memoryview, count: int) -> npt.NDArray[np.int64]:
    """Decode whole numbers."""
    codec = _codec_of(page)
    if codec == CONSTANT:
        return np.full(count, _unpack("<q", page, 1)[0], dtype=np.int64)
    if codec == DELTA:
        width, first, base = _unpack("<Bqq", page, 1)
        steps = _raw_ints(page[18:], count - 1, width, ZSTD) if count > 1 else np.zeros(0, dtype=np.uint64)
        out = np.empty(count, dtype=np.uint64)
        out[0] = np.uint64(first & (2**64 - 1))
        np.cumsum(steps + np.uint64(base & (2**64 - 1)), out=out[1:])
        out[1:] += out[0]
        return out.view(np.int64)
    if codec not in (PLAIN, ZSTD, PCO, PLANES):
        raise ValueError(f"numbers in codec {codec}")
    width, base = _unpack("<Bq", page, 1)
    raw = _raw_planes(page[10:], count, width) if codec == PLANES else _raw_ints(page[10:], count, width, codec)
    if base == 0 and width == 8:
        return raw.view(np.int64)
    return (raw.astype(np.uint64) + np.uint64(base & (2**64 - 1))).view(np.int64)


def bounds_of_ints(page: memoryview) -> tuple[int, int]:
    """Return two numbers between which all of a page are, as far as they are known without decoding it."""
    codec = _codec_of(page)
    if codec == CONSTANT:
        (value,) = _unpack("<q", page, 1)
        return value, value
    width, base = _unpack("<Bq", page, 1)
    return (-(2**63), 2**63 - 1) if codec == DELTA or width == 8 else (base, base + (1 << 8 * width) - 1)


def decode_reals(page: memoryview, count: int) -> npt.NDArray[np.float64]:
    """Decode doubles."""
    codec = _codec_of(page)
    if codec == DECIMAL:
        (places,) = _unpack("<B", page, 1)
        if places > MAX_PLACES:
            raise ValueError(f"decimals of {places} places")
        return np.asarray(decode_ints(page[2:], count) / 10.0**places)
    if codec != REAL_PCO:
        return decode_ints(page, count).view(np.float64)
    out = np.empty(count, dtype=np.float64)
    _unpco(page[1:], out)
    return out


def decode_bits(page: memoryview, count: int) -> npt.NDArray[np.bool_]:
    """Decode booleans."""
    codec = _codec_of(page)
    if codec == CONSTANT:
        return np.full(count, bool(_unpack("<q", page, 1)[0]), dtype=np.bool_)
    size = (count + 7) // 8
    if codec not in (PLAIN, ZSTD):
        raise ValueError(f"booleans in codec {codec}")
    packed = page[1:] if codec == PLAIN else memoryview(decompressed(page[1:], size))
    if len(packed) < size:
        raise ValueError(f"{len(packed)} bytes for {count} booleans")
    bits = np.unpackbits(np.frombuffer(packed, np.uint8, size), bitorder="little", count=count)
    return np.asarray(bits.view(np.bool_))


def decode_texts(page: memoryview, count: int, kind: pa.DataType, dictionary: pa.Array | None = None) -> pa.Array:
    """Decode texts, or other bytes; those of a dictionary stay numbers into it."""
    codec = _codec_of(page)
    if codec == TEXT_DICTIONARY:
        if dictionary is None:
            raise ValueError("no dictionary")
        codes = decode_ints(page[1:], count)
        if len(codes) and (int(codes.min()) < 0 or int(codes.max()) >= len(dictionary)):
            raise ValueError("a number beyond the dictionary")
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), dictionary)
    if codec == TEXT_CONSTANT:
        size = len(page) - 1
        if size * count > MAX_BYTES:
            raise ValueError(f"{count} texts of {size} bytes")
        letters: Any = bytes(page[1:]) * count
        lengths = np.full(count, size, dtype=np.int64)
    elif codec in (TEXT_PLAIN, TEXT_ZSTD):
        sizes_size, size = _unpack("<II", page, 1)
        if sizes_size > len(page) - 9 or size > MAX_BYTES:
            raise ValueError("lengths that end past the page")
        lengths = decode_ints(page[9 : 9 + sizes_size], count)
        rest = page[9 + sizes_size :]
        if len(lengths) and not 0 <= int(lengths.min()) <= int(lengths.max()) <= size:  # a sum may go round
            raise ValueError("a text that ends before it begins, or past all")
        if int(lengths.sum()) != size or (codec == TEXT_PLAIN and len(rest) != size):
            raise ValueError(f"texts of {int(lengths.sum())} bytes in {size}")
        letters = rest if codec == TEXT_PLAIN else decompressed(rest, size)
    else:
        raise ValueError(f"texts in codec {codec}")
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)], 0)


def encode_column(values: pa.Array, codes: _Array | None = None, choice: Choice | None = None) -> bytes:
    """Encode a column of a block with its nulls; ``codes`` are its numbers in a dictionary, without nulls."""
    head = nulls_head(values)
    if head[0] == ALL_NULLS:
        return head
    present = values if codes is not None or not values.null_count else values.drop_null()
    return head + encode_values(present, codes, choice)


def nulls_head(values: pa.Array) -> bytes:
    """Encode which rows of a column are null: what its page begins with."""
    if not values.null_count:
        return bytes([NO_NULLS])
    if values.null_count == len(values):
        return bytes([ALL_NULLS])
    valid = encode_bits(values.is_valid().to_numpy(zero_copy_only=False))
    return struct.pack("<BI", SOME_NULLS, len(valid)) + valid


def decode_column(page: memoryview, count: int, kind: pa.DataType, dictionary: pa.Array | None = None) -> pa.Array:
    """Decode a column of a block; texts of a dictionary stay numbers into it."""
    valid, rest = decode_nulls(page, count)
    if not len(rest) and not valid.any():
        return pa.nulls(count, kind)
    dense = decode_values(rest, int(valid.sum()), kind, dictionary)
    return dense if valid.all() else spread(dense, valid)


def decode_nulls(page: memoryview, count: int) -> tuple[npt.NDArray[np.bool_], memoryview]:
    """Read which rows of a column have a value; and the page of the values."""
    state = _codec_of(page)
    if state == NO_NULLS:
        return np.ones(count, dtype=np.bool_), page[1:]
    if state == ALL_NULLS:
        return np.zeros(count, dtype=np.bool_), page[:0]
    if state != SOME_NULLS:
        raise ValueError(f"nulls in codec {state}")
    (size,) = _unpack("<I", page, 1)
    if size > len(page) - 5:
        raise ValueError("nulls that end past the page")
    return decode_bits(page[5 : 5 + size], count), page[5 + size :]


def encode_values(values: pa.Array, codes: _Array | None = None, choice: Choice | None = None) -> bytes:
    """Encode values without nulls, by their type."""
    if codes is not None:
        return bytes([TEXT_DICTIONARY]) + encode_ints(codes, choice)
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return encode_texts(values, choice)
    if pa.types.is_boolean(kind):
        return encode_bits(values.to_numpy(zero_copy_only=False))
    if pa.types.is_float64(kind):
        return encode_reals(values.to_numpy(zero_copy_only=False), choice)
    if pa.types.is_fixed_size_list(kind):
        return encode_bits_of_floats(values.flatten().to_numpy(zero_copy_only=False))
    return encode_ints(as_ints(values), choice)


def decode_values(page: memoryview, count: int, kind: pa.DataType, dictionary: pa.Array | None = None) -> pa.Array:
    """Decode values without nulls, by their type."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return decode_texts(page, count, kind, dictionary)
    if pa.types.is_boolean(kind):
        return pa.array(decode_bits(page, count))
    if pa.types.is_float64(kind):
        return pa.array(decode_reals(page, count))
    if pa.types.is_fixed_size_list(kind):
        child = pa.array(decode_floats(page, count * kind.list_size))
        return pa.FixedSizeListArray.from_arrays(child, type=kind)
    return ints_as(kind, decode_ints(page, count))


def ints_as(kind: pa.DataType, found: npt.NDArray[np.int64]) -> pa.Array:
    """Return whole numbers as a column of their type."""
    values: _Array = found
    if pa.types.is_int32(kind):
        if len(found) and (int(found.min()) < -(2**31) or int(found.max()) >= 2**31):
            raise ValueError("a number beyond 32 bits")
        values = found.astype(np.int32)
    return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(values)], 0)


def as_ints(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return a column without nulls, or with anything for them, as whole numbers."""
    kind: np.dtype[Any] = np.dtype(np.int32) if values.type.bit_width == 32 else np.dtype(np.int64)
    raw = np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values)]
    return np.asarray(raw, dtype=np.int64)


def encode_bits_of_floats(values: npt.NDArray[np.float32]) -> bytes:
    """Encode the components of vectors: as they are, or compressed where that is worth it."""
    raw = np.ascontiguousarray(values).tobytes()
    small = _compressed(raw)
    return bytes([ZSTD]) + small if len(small) < len(raw) * PLAIN_SHARE else bytes([PLAIN]) + raw


def decode_floats(page: memoryview, count: int) -> npt.NDArray[np.float32]:
    """Decode the components of vectors."""
    codec, size = _codec_of(page), count * 4
    if codec not in (PLAIN, ZSTD) or size > MAX_BYTES:
        raise ValueError(f"vectors in codec {codec}")
    raw = page[1:] if codec == PLAIN else memoryview(decompressed(page[1:], size))
    if len(raw) != size:
        raise ValueError(f"{len(raw)} bytes for {count} components")
    return np.frombuffer(raw, np.float32)


def codec_name(page: memoryview | bytes) -> str:
    """Return the name of the codec of a column's page, or of its values."""
    if not len(page):
        return "nothing"
    at = 0
    if page[0] == SOME_NULLS:
        at = 5 + int(struct.unpack_from("<I", page, 1)[0])
    elif page[0] == NO_NULLS:
        at = 1
    return CODEC_NAMES.get(page[at], "unknown") if at < len(page) else "unknown"


def lengths_and_letters(values: pa.Array) -> tuple[npt.NDArray[np.int64], bytes]:
    """Return the lengths of texts without nulls, and all of their bytes."""
    _, offsets, letters = values.buffers()
    if not len(values):
        return np.zeros(0, dtype=np.int64), b""
    places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    start, end = int(places[0]), int(places[-1])
    return np.diff(places).astype(np.int64), letters[start:end].to_pybytes() if letters else b""


def parts(data: memoryview, count: int) -> list[memoryview]:
    """Cut bytes into parts that each have their length before them."""
    found, at = [], 0
    for _ in range(count):
        if at + 4 > len(data):
            raise ValueError("parts that end early")
        (size,) = struct.unpack_from("<I", data, at)
        if at + 4 + size > len(data):
            raise ValueError("a part that ends past the last")
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def decompressed(data: memoryview | bytes, size: int) -> pa.Buffer:
    """Undo zstd; the caller knows how many bytes there must be."""
    if size > MAX_BYTES:
        raise ValueError(f"{size} bytes in one page")
    try:
        found = pa.decompress(pa.py_buffer(data), decompressed_size=size, codec="zstd")
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"a page does not decompress: {error}") from error
    if found.size != size:
        raise ValueError(f"a page of {found.size} bytes where {size} are needed")
    return found


def compressed(data: bytes) -> bytes:
    """Compress bytes as pages are."""
    return _compressed(data)


def _is_constant(values: _Array) -> bool:
    """Whether values are one value, or none; most that are not show it by a few."""
    first = values[:1]
    return bool((values[:SMALL] == first).all()) and bool((values == first).all())


def _narrowed(values: npt.NDArray[np.int64]) -> tuple[int, int, _Array]:
    """Return the width, the minimum, and the numbers as differences from it, in as few bytes as hold them."""
    low, high = int(values.min()), int(values.max())
    span = high - low
    width, kind = next((width, kind) for width, kind in _DTYPES.items() if span < 1 << (8 * width))
    narrow = values.view(np.uint64).astype(kind)  # and modulo as much, as the differences are
    return width, low, narrow - kind.type(low & (1 << 8 * width) - 1) if low else narrow


def _plain_ints(values: npt.NDArray[np.int64]) -> bytes:
    width, base, small = _narrowed(values)
    return struct.pack("<BBq", PLAIN, width, base) + small.tobytes()


def _zstd_ints(values: npt.NDArray[np.int64]) -> bytes:
    width, base, small = _narrowed(values)
    return struct.pack("<BBq", ZSTD, width, base) + _compressed(small.tobytes())


def _delta_ints(values: npt.NDArray[np.int64]) -> bytes:
    steps = np.diff(values.view(np.uint64)).view(np.int64)
    width, base, small = _narrowed(steps)
    return struct.pack("<BBqq", DELTA, width, int(values[0]), base) + _compressed(small.tobytes())


def _planes_ints(values: npt.NDArray[np.int64]) -> bytes:
    width, base, small = _narrowed(values)
    planes = small.view(np.uint8).reshape(len(small), width)
    parts = []
    for rank in range(width):
        plane = planes[:, rank].tobytes()
        packed = bytes(_PLANE_ZSTD.compress(plane, asbytes=True))
        part = packed if len(packed) < len(plane) else plane
        parts.append(struct.pack("<I", len(part)) + part)
    return struct.pack("<BBq", PLANES, width, base) + b"".join(parts)


def _pco_as(config: ChunkConfig) -> Callable[[Any], bytes]:
    """Encode numbers by pcodec, told what to look for."""

    def encoded(values: npt.NDArray[np.int64]) -> bytes:
        width, base, small = _narrowed(values)
        if width == 1:
            width, small = 2, small.astype(_DTYPES[2])
        return struct.pack("<BBq", PCO, width, base) + bytes(standalone.simple_compress(small, config))

    return encoded


def _pco_reals(bits: npt.NDArray[np.int64]) -> bytes:
    reals = np.ascontiguousarray(bits.view(np.float64))
    return bytes([REAL_PCO]) + bytes(standalone.simple_compress(reals, _PCO_CONFIG))


def _decimals(encode: Encode) -> Encode:
    """Encode doubles that are decimals of few places by the whole numbers that they are so many times of."""

    def encoded(bits: npt.NDArray[np.int64]) -> bytes | None:
        reals = bits.view(np.float64)
        for places in range(MAX_PLACES + 1):
            if _as_decimals(reals[:SMALL], places) is not None:
                whole = _as_decimals(reals, places)
                page = None if whole is None else encode(whole)
                return None if page is None else bytes([DECIMAL, places]) + page
        return None

    return encoded


def _as_decimals(reals: npt.NDArray[np.float64], places: int) -> npt.NDArray[np.int64] | None:
    """Return doubles as whole numbers of this many places less; None if one would not come back bit by bit."""
    scale = 10.0**places
    with np.errstate(all="ignore"):
        whole = np.rint(reals * scale)
        if not (np.abs(whole) < MAX_DECIMAL).all():  # nor is what is no number
            return None
    found = whole.astype(np.int64)
    return found if np.array_equal((found / scale).view(np.int64), reals.view(np.int64)) else None


_pco_ints, *_pco_told = map(_pco_as, (_PCO_CONFIG, _PCO_VALUES, _PCO_STEPS))
_pco_decimals, *_pco_decimals_told = map(_decimals, (_pco_ints, *_pco_told))
_INTS = (_plain_ints, _zstd_ints, _planes_ints, _delta_ints, _pco_ints)
_REALS = (_plain_ints, _zstd_ints, *map(_decimals, _INTS[1:-1]), _pco_decimals, _pco_reals)
# What does the same sooner, where there is nothing else to find.
_SOONER: dict[Encode, Sequence[Encode]] = {_pco_ints: _pco_told, _pco_decimals: _pco_decimals_told}


def _raw_planes(data: memoryview, count: int, width: int) -> _Array:
    """Put numbers together of planes: all their lowest bytes, then all of the next rank."""
    if width not in _DTYPES or count * width > MAX_BYTES:
        raise ValueError(f"{count} numbers of {width} bytes")
    planes = np.empty((count, width), dtype=np.uint8)
    for rank, part in enumerate(parts(data, width)):
        plane = part if len(part) == count else memoryview(decompressed(part, count))
        planes[:, rank] = np.frombuffer(plane, np.uint8)
    return planes.view(_DTYPES[width]).reshape(count)


def _raw_ints(data: memoryview, count: int, width: int, codec: int) -> _Array:
    if width not in _DTYPES:
        raise ValueError(f"numbers of {width} bytes")
    kind = _DTYPES[width]
    if count * width > MAX_BYTES:
        raise ValueError(f"{count} numbers in one page")
    if codec == PCO:
        out = np.empty(count, dtype=kind)
        _unpco(data, out)
        return out
    raw = data if codec == PLAIN else memoryview(decompressed(data, count * width))
    if len(raw) != count * width:
        raise ValueError(f"{len(raw)} bytes for {count} numbers of {width}")
    return np.frombuffer(raw, kind)


def _unpco(data: memoryview, out: _Array) -> None:
    try:
        progress = standalone.simple_decompress_into(bytes(data), out)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"a page does not decompress: {error}") from error
    except BaseException as error:  # a panic of the library, which is no Exception
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError("a page does not decompress") from None
    if progress.n_processed != len(out):
        raise ValueError(f"{progress.n_processed} numbers where {len(out)} are needed")


def _compressed_text(data: bytes, choice: Choice | None = None) -> bytes:
    """Compress texts at the higher level where that is worth its time, which is measured if they are many."""
    codec = _ZSTD if len(data) < TEXT_LEVEL_BYTES else _TEXT_ZSTD
    if len(data) >= 4 * LEVEL_SAMPLE_BYTES:
        level = None if choice is None else choice.level
        if level is None:
            start = (len(data) - LEVEL_SAMPLE_BYTES) // 2
            sample = data[start : start + LEVEL_SAMPLE_BYTES]
            low, high = (len(each.compress(sample, asbytes=True)) for each in (_ZSTD, _TEXT_ZSTD))
            level = TEXT_LEVEL if high < low * TEXT_LEVEL_GAIN else LEVEL
        if choice is not None and choice.is_open:
            choice.level = level
        codec = _TEXT_ZSTD if level == TEXT_LEVEL else _ZSTD
    return bytes(codec.compress(data, asbytes=True))


def _compressed(data: bytes) -> bytes:
    return bytes(_ZSTD.compress(data, asbytes=True))


def _codec_of(page: memoryview) -> int:
    if not len(page):
        raise ValueError("a page of no bytes")
    return page[0]


def _unpack(form: str, page: memoryview, at: int) -> tuple[Any, ...]:
    try:
        return struct.unpack_from(form, page, at)
    except struct.error as error:
        raise ValueError(f"a page that ends early: {error}") from error
