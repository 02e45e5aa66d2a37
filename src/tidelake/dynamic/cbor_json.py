"""Write the values of a dynamic column as JSON text, compiled; equal to ``dynamic.to_json`` of each.

The column is walked twice: first to measure, which also gathers its reals so that Arrow writes them all at once, then
to write. A value in a form that is rare (bytes, integers beyond 64 bits, numbers that JSON lacks, deep nesting, bytes
that are no value) is converted the plain way. It does not read JSON: see ``ingest``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic.cbor_loops import read_head, read_real
from tidelake.dynamic.values import decode, to_json
from tidelake.runtime import notices
from tidelake.runtime.compiling import allocating, compiled
from tidelake.runtime.readiness import has_loops

MAX_FAST_DEPTH = 64
_ALIKE_FROM, _ALIKE_BELOW = 1e-4, 1e15  # reals that nobody writes with an exponent

_U = np.uint64
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_SHORT = np.zeros(32, dtype=np.uint8)  # the letter after a backslash, for control characters that have one
for _code, _letter in ((8, b"b"), (9, b"t"), (10, b"n"), (12, b"f"), (13, b"r")):
    _SHORT[_code] = _letter[0]
_TRUE, _FALSE, _NULL = (np.frombuffer(word, dtype=np.uint8) for word in (b"true", b"false", b"null"))


def json_of(values: pa.Array) -> pa.Array:
    """Return a column of dynamic values as JSON text; nulls stay null."""
    return _by_loops(values) if has_loops() else _plainly(values)


def _plainly(values: pa.Array) -> pa.Array:
    """Write values one by one, but for those with reals that Python writes otherwise than Arrow does."""
    notices.interpreting(values.nbytes)
    several = values.to_pylist()
    others = [at for at, value in enumerate(several) if value is not None and not _is_alike(decode(value))]
    by_loops: dict[int, str] = {}
    if others:  # or a loop would be compiled for nothing
        by_loops = dict(zip(others, _by_loops(values.take(pa.array(others))).to_pylist(), strict=True))
    texts = (by_loops.get(at) or (None if value is None else plain_json(value)) for at, value in enumerate(several))
    return pa.array(texts, pa.utf8())


def _is_alike(value: Any) -> bool:
    """Whether a value's reals are written without an exponent, by Python and by Arrow."""
    if isinstance(value, float):
        return value == 0 or _ALIKE_FROM <= abs(value) < _ALIKE_BELOW
    if isinstance(value, dict):
        return all(map(_is_alike, value.values()))
    return not isinstance(value, list) or all(map(_is_alike, value))


def _by_loops(values: pa.Array) -> pa.Array:
    data, offsets = _buffers(values)
    rows = len(values)
    sizes, counts = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    reals = np.empty(int(offsets[-1] - offsets[0]) // 3 + 1, dtype=np.float64)
    held = np.asarray(values.is_valid())
    _measure(data, offsets, held, sizes, counts, reals)
    texts, text_places = _texts_of(reals[: counts[counts > 0].sum()])
    rare = held & (counts < 0)
    ends = np.zeros(rows + 1, dtype=np.int64)
    firsts = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(np.maximum(counts, 0), out=firsts[1:])
    np.cumsum(sizes + (text_places[firsts[1:]] - text_places[firsts[:-1]]), out=ends[1:])
    out = np.empty(int(ends[-1]), dtype=np.uint8)
    _write(data, offsets, counts, firsts, ends, texts, text_places, out)
    nulls = pa.py_buffer(np.packbits(held, bitorder="little")) if values.null_count else None
    buffers = [nulls, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(out)]
    found = pa.Array.from_buffers(pa.utf8(), rows, buffers, values.null_count)
    return found if not rare.any() else _mended(found, values, rare)


def _mended(found: pa.Array, values: pa.Array, rare: npt.NDArray[np.bool_]) -> pa.Array:
    plain = [plain_json(values[row].as_py()) for row in np.flatnonzero(rare).tolist()]
    return pc.replace_with_mask(found, pa.array(rare), pa.array(plain, pa.utf8()))


def plain_json(value: bytes) -> str:
    """Write one value as JSON text: the meaning that the compiled loop must agree with."""
    return json.dumps(to_json(decode(value)), ensure_ascii=False, separators=(",", ":"))


def _texts_of(reals: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Write reals, with a point or an exponent in each so that they stay reals."""
    written = pa.array(reals).cast(pa.utf8())
    whole = pc.match_substring_regex(written, "^-?[0-9]+$")
    if pc.any(whole).as_py():
        written = pc.if_else(whole, pc.binary_join_element_wise(written, ".0", ""), written)
    _, offsets, data = written.buffers()
    places = np.frombuffer(offsets, dtype=np.int32)[: len(written) + 1] if offsets else np.zeros(1, dtype=np.int32)
    letters = np.frombuffer(data, dtype=np.uint8) if data else np.zeros(0, dtype=np.uint8)
    return letters, places.astype(np.int64)


def _buffers(values: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, dtype=np.int32) if offsets else np.zeros(1, dtype=np.int32)
    window = places[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return np.frombuffer(b"" if data is None else memoryview(data).toreadonly(), dtype=np.uint8), window


@compiled
def _digits(number: Any) -> Any:
    count = 1
    while number >= _U(10):
        number //= _U(10)
        count += 1
    return count


@compiled
def _escaped(data: Any, at: Any, size: Any) -> Any:
    """Return how many bytes a text takes between its quotes; -1 where it holds what JSON text cannot."""
    length = size
    for i in range(at, at + size):
        byte = data[i]
        if byte == 34 or byte == 92:
            length += 1
        elif byte < 32:
            length += 1 if _SHORT[byte] else 5
    return length


@allocating
def _measure(data: Any, offsets: Any, held: Any, sizes: Any, counts: Any, reals: Any) -> None:
    """Give each row's size without its reals, and how many those are; a count of -1 for a rare form."""
    left = np.empty(MAX_FAST_DEPTH, dtype=np.int64)
    is_map = np.empty(MAX_FAST_DEPTH, dtype=np.bool_)
    total = 0
    for row in range(len(offsets) - 1):
        if not held[row]:
            continue
        at, end = offsets[row], offsets[row + 1]
        size, count, depth, fine = 0, 0, 0, True
        left[0], is_map[0] = 1, False
        while fine and depth >= 0:
            if left[depth] == 0:
                depth -= 1
                continue
            left[depth] -= 1
            if is_map[depth]:
                major, argument, at = read_head(data, at, end)
                if major != 3 or argument > _U(end - at):
                    fine = False
                    break
                size += _escaped(data, at, np.int64(argument)) + 3
                at += np.int64(argument)
            if left[depth] > 0 and depth > 0:
                size += 1  # the comma that follows
            begin = at
            major, argument, at = read_head(data, at, end)
            if major == 6 and argument == _U(0):  # a time, as text
                begin = at
                major, argument, at = read_head(data, at, end)
                fine = major == 3
            if not fine or major < 0 or major == 2 or major == 6:
                fine = False
            elif major == 0:
                size += _digits(argument)
            elif major == 1:
                fine = bool(argument >> _U(63) == _U(0))
                size += 1 + _digits(argument + _U(1))
            elif major == 3:
                fine = argument <= _U(end - at)
                if fine:
                    size += _escaped(data, at, np.int64(argument)) + 2
                    at += np.int64(argument)
            elif major == 7:
                info = np.int64(data[begin] & 31)
                if info >= 25:
                    real = read_real(info, argument)
                    fine = bool(np.isfinite(real))
                    reals[total + count] = real
                    count += 1
                else:
                    fine = bool(info >= 20 and info <= 23)
                    size += 5 if info == 20 else 4
            else:
                fine = argument <= _U(end - at) and depth + 1 < MAX_FAST_DEPTH
                if fine:
                    depth += 1
                    left[depth], is_map[depth] = np.int64(argument), major == 5
                    size += 2
        if fine and at == end:
            sizes[row], counts[row] = size, count
            total += count
        else:
            counts[row] = -1


@compiled
def _put_text(data: Any, at: Any, size: Any, out: Any, to: Any) -> Any:
    out[to] = 34
    to += 1
    for i in range(at, at + size):
        byte = data[i]
        if byte == 34 or byte == 92:
            out[to], out[to + 1] = 92, byte
            to += 2
        elif byte >= 32:
            out[to] = byte
            to += 1
        elif _SHORT[byte]:
            out[to], out[to + 1] = 92, _SHORT[byte]
            to += 2
        else:
            out[to], out[to + 1], out[to + 2], out[to + 3] = 92, 117, 48, 48
            out[to + 4], out[to + 5] = _HEX[byte >> 4], _HEX[byte & 15]
            to += 6
    out[to] = 34
    return to + 1


@compiled
def _put_digits(number: Any, out: Any, to: Any) -> Any:
    after = to + _digits(number)
    place = after
    while place > to:
        place -= 1
        out[place] = np.uint8(48 + number % _U(10))
        number //= _U(10)
    return after


@compiled
def _put(word: Any, start: Any, end: Any, out: Any, to: Any) -> Any:
    for i in range(start, end):
        out[to + i - start] = word[i]
    return to + end - start


@allocating
def _write(
    data: Any, offsets: Any, counts: Any, firsts: Any, ends: Any, texts: Any, text_places: Any, out: Any
) -> None:
    """Write the rows that were measured; their bytes were checked then."""
    left = np.empty(MAX_FAST_DEPTH, dtype=np.int64)
    is_map = np.empty(MAX_FAST_DEPTH, dtype=np.bool_)
    for row in range(len(offsets) - 1):
        at, end, to, real = offsets[row], offsets[row + 1], ends[row], firsts[row]
        if counts[row] < 0 or ends[row + 1] == to:
            continue
        depth = 0
        left[0], is_map[0] = 1, False
        opened = True
        while depth >= 0:
            if left[depth] == 0:
                if depth > 0:
                    out[to] = 125 if is_map[depth] else 93
                    to += 1
                depth -= 1
                opened = False
                continue
            if not opened:
                out[to] = 44
                to += 1
            opened = False
            left[depth] -= 1
            if is_map[depth]:
                _, argument, at = read_head(data, at, end)
                to = _put_text(data, at, np.int64(argument), out, to)
                at += np.int64(argument)
                out[to] = 58
                to += 1
            begin = at
            major, argument, at = read_head(data, at, end)
            if major == 6:
                major, argument, at = read_head(data, at, end)
            if major == 0:
                to = _put_digits(argument, out, to)
            elif major == 1:
                out[to] = 45
                to = _put_digits(argument + _U(1), out, to + 1)
            elif major == 3:
                to = _put_text(data, at, np.int64(argument), out, to)
                at += np.int64(argument)
            elif major == 7:
                info = np.int64(data[begin] & 31)
                if info >= 25:
                    to = _put(texts, text_places[real], text_places[real + 1], out, to)
                    real += 1
                elif info == 20:
                    to = _put(_FALSE, 0, 5, out, to)
                elif info == 21:
                    to = _put(_TRUE, 0, 4, out, to)
                else:
                    to = _put(_NULL, 0, 4, out, to)
            else:
                depth += 1
                left[depth], is_map[depth] = np.int64(argument), major == 5
                out[to] = 123 if major == 5 else 91
                to += 1
                opened = True
