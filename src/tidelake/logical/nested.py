"""Read CBOR values as Arrow arrays of a logical type, whole columns at a time, and say which values are not of it.

A struct is a map with some or all of its fields and no other; an array a list; a map a CBOR map, or a list of pairs
where its keys are not text. Inside them, and for columns of these types, dates are ISO 8601 text, times RFC 3339 text,
decimals numbers that print as they are or text, bytes byte strings. What a value lacks, and CBOR's null, are null. The
same reader judges values on their way in and gives them on their way out, so what fits comes back. It does not encode.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic import cbor_loops
from tidelake.logical import loops
from tidelake.model.logical_types import Logical

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MAX_REAL_DIGITS = 15  # of a decimal that came as a double: such a one prints as it was written

_INT_LIMITS = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "long": 2**63}
_NAIVE = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6}0*)?)?)?$"
_ZONED = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6}0*)?)?(Z|[+-]\d\d:?\d\d)$"
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_DATE = r"^\d{4}-\d\d-\d\d$"


def decoded(values: pa.Array, kind: Logical) -> tuple[pa.Array, Flags]:
    """Return a dynamic column as Arrow values of a type, and the rows whose value is not of it, which are null."""
    _, offsets, data = values.buffers()
    held = np.frombuffer(offsets, np.int32) if offsets else np.zeros(1, np.int32)
    places: Numbers = held[values.offset : values.offset + len(values) + 1].astype(np.int64)
    letters = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    starts, ends = places[:-1].copy(), places[1:]
    if values.null_count:
        starts[values.is_null().to_numpy(zero_copy_only=False)] = -1
    bad = np.zeros(len(values), dtype=np.bool_)
    slices = _Slices(letters, starts, ends, np.arange(len(values)), bad)
    array = _read(slices, kind)
    if bad.any():
        array = pc.if_else(pa.array(~bad), array, pa.scalar(None, array.type)) if len(array) else array
    return array, bad


@dataclass(frozen=True, slots=True)
class _Slices:
    """Values of one level: where each lies, and the row it belongs to; a start of -1 is null."""

    data: npt.NDArray[np.uint8]
    starts: Numbers
    ends: Numbers
    rows: Numbers
    bad: Flags

    def __post_init__(self) -> None:
        loops.blank_nulls(self.data, self.starts, self.ends)

    def valid(self) -> Flags:
        return (self.starts >= 0) & ~self.bad[self.rows]

    def parted(self, starts: Numbers, ends: Numbers, rows: Numbers) -> _Slices:
        return _Slices(self.data, starts, ends, rows, self.bad)


def _read(slices: _Slices, kind: Logical) -> pa.Array:
    match kind.kind:
        case "struct":
            return _structs(slices, kind)
        case "array":
            return _lists(slices, kind)
        case "map":
            return _maps(slices, kind)
        case _:
            return _leaves(slices, kind)


def _structs(slices: _Slices, kind: Logical) -> pa.Array:
    count, fields = len(slices.starts), len(kind.parts)
    letters = [name.encode() for name in kind.names]
    names = np.cumsum([0, *map(len, letters)], dtype=np.int64)
    starts, ends = np.full((fields, count), -1, np.int64), np.zeros((fields, count), np.int64)
    joined = np.frombuffer(b"".join(letters), np.uint8)
    loops.split_fields(slices.data, slices.starts, slices.ends, slices.rows, joined, names, starts, ends, slices.bad)
    parts = [_read(slices.parted(starts[at], ends[at], slices.rows), part) for at, part in enumerate(kind.parts)]
    return pa.StructArray.from_arrays(parts, fields=list(kind.arrow), mask=pa.array(~slices.valid()))


def _lists(slices: _Slices, kind: Logical) -> pa.Array:
    offsets, owners = _counted(slices, loops.LIST)
    starts, ends = np.full(offsets[-1], -1, np.int64), np.zeros(offsets[-1], np.int64)
    loops.split_items(slices.data, slices.starts, slices.ends, slices.rows, offsets, starts, ends, slices.bad)
    items = _read(slices.parted(starts, ends, owners), kind.parts[0])
    return _offset_array(kind.arrow, slices.valid(), offsets, items)


def _maps(slices: _Slices, kind: Logical) -> pa.Array:
    offsets, owners = _counted(slices, loops.MAP)
    starts, ends = np.full((2, offsets[-1]), -1, np.int64), np.zeros((2, offsets[-1]), np.int64)
    loops.split_pairs(slices.data, slices.starts, slices.ends, slices.rows, offsets, starts, ends, slices.bad)
    keys, values = (_read(slices.parted(starts[at], ends[at], owners), kind.parts[at]) for at in (0, 1))
    if keys.null_count:
        slices.bad[owners[keys.is_null().to_numpy(zero_copy_only=False)]] = True
        keys = keys.fill_null(_any_value(keys.type))  # of rows that are bad, and null
    pairs = pa.StructArray.from_arrays([keys, values], fields=[kind.arrow.key_field, kind.arrow.item_field])
    return _offset_array(kind.arrow, slices.valid(), offsets, pairs)


def _counted(slices: _Slices, major: int) -> tuple[Numbers, Numbers]:
    """Count items: where those of each slot begin, and the row that each belongs to."""
    counts = np.zeros(len(slices.starts), np.int64)
    loops.count_items(slices.data, slices.starts, slices.ends, slices.rows, major, counts, slices.bad)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), np.repeat(slices.rows, counts)


def _offset_array(kind: pa.DataType, valid: Flags, offsets: Numbers, items: pa.Array) -> pa.Array:
    nulls = len(valid) - int(valid.sum())
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(kind, len(valid), buffers, nulls, children=[items])


def _any_value(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar("" if pa.types.is_string(kind) else b"" if pa.types.is_binary(kind) else 0).cast(kind)


@dataclass(slots=True)
class _Found:
    """What some slices are: see ``loops.classify``."""

    slices: _Slices
    kinds: npt.NDArray[np.uint8]
    ints: Numbers
    reals: npt.NDArray[np.float64]
    at_text: Numbers
    text_lengths: Numbers

    @classmethod
    def of(cls, slices: _Slices) -> _Found:
        count = len(slices.starts)
        found = cls(
            slices, np.zeros(count, np.uint8), np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.int64),
            np.zeros(count, np.int64),
        )  # fmt: skip
        loops.classify(
            slices.data, slices.starts, slices.ends, found.kinds, found.ints, found.reals, found.at_text,
            found.text_lengths,
        )  # fmt: skip
        return found

    def refuse(self, fits: Flags) -> Flags:
        """Mark the rows of values that do not fit as bad, and give the slots that have a value."""
        held = self.kinds != loops.NOTHING
        self.slices.bad[self.slices.rows[held & ~fits]] = True
        return np.asarray(held & fits)

    def texts(self, wanted: Flags, kind: pa.DataType) -> pa.Array:
        """Gather the texts, or byte strings, of some slots; the others are null."""
        lengths = np.where(wanted, self.text_lengths, 0)
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        out = np.empty(int(offsets[-1]), np.uint8)
        cbor_loops.copy(self.slices.data, self.at_text, lengths, offsets, out)
        buffers = [pa.py_buffer(np.packbits(wanted, bitorder="little")), pa.py_buffer(offsets.astype(np.int32))]
        return pa.Array.from_buffers(kind, len(wanted), [*buffers, pa.py_buffer(out)])


def _leaves(slices: _Slices, kind: Logical) -> pa.Array:
    found = _Found.of(slices)
    match kind.kind:
        case "bool":
            held = found.refuse((found.kinds == loops.TRUE) | (found.kinds == loops.FALSE))
            return pa.array(found.kinds == loops.TRUE, mask=~held)
        case "tinyint" | "smallint" | "int" | "long":
            limit = _INT_LIMITS[kind.kind]
            held = found.refuse((found.kinds == loops.INT) & (found.ints >= -limit) & (found.ints <= limit - 1))
            return pa.array(np.where(held, found.ints, 0), pa.int64(), mask=~held).cast(kind.arrow)
        case "float" | "real":
            return _reals(found).cast(kind.arrow, safe=False)
        case "string":
            return found.texts(found.refuse(found.kinds == loops.TEXT), pa.utf8())
        case "binary":
            return found.texts(found.refuse(found.kinds == loops.BYTES), pa.binary())
        case "date" | "timestamp" | "timestamp_ntz":
            return _times(found, kind)
        case _:
            return _decimals(found, kind)


def _reals(found: _Found) -> pa.Array:
    near = found.ints.astype(np.float64)
    inside = (found.kinds == loops.INT) & (near < 2.0**63)
    exact = inside & (np.where(inside, near, 0).astype(np.int64) == found.ints)
    held = found.refuse(exact | (found.kinds == loops.REAL))
    return pa.array(np.where(found.kinds == loops.REAL, found.reals, near), mask=~held)


def _times(found: _Found, kind: Logical) -> pa.Array:
    """Read dates and times; a wall clock may come as a time that says UTC, which is how it is kept inside values."""
    is_text, is_time = found.kinds == loops.TEXT, found.kinds == loops.TIME
    if kind.kind == "date":
        is_time = np.zeros_like(is_time)
    texts = found.texts(is_text | is_time, pa.utf8())
    if kind.kind == "timestamp_ntz":
        plain = pc.replace_substring_regex(texts, r"(Z|\+00:00)$", "")
        texts = pc.if_else(pa.array(is_time), plain, texts)
    pattern = {"date": _DATE, "timestamp": _ZONED}.get(kind.kind, _NAIVE)
    shaped = pc.match_substring_regex(texts, pattern).fill_null(False)
    times = _cast_each(pc.if_else(shaped, texts, pa.scalar(None, pa.utf8())), kind.arrow)
    found.refuse(times.is_valid().to_numpy(zero_copy_only=False))
    return times


def _cast_each(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast texts; those that are not of the type, such as a 31st of February, are null."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_cast_one(text, kind) for text in texts])


def _cast_one(text: pa.Scalar, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([text.as_py()], pa.utf8()).cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(1, kind)


def _decimals(found: _Found, kind: Logical) -> pa.Array:
    """Read decimals: whole numbers, doubles of few digits, and texts, where none of them loses a digit."""
    numbers: list[int | None] = [None] * len(found.kinds)
    texts = found.texts(found.kinds == loops.TEXT, pa.utf8()).to_pylist()
    for at in np.flatnonzero(found.kinds != loops.NOTHING).tolist():
        match found.kinds[at]:
            case loops.INT:
                numbers[at] = unscaled(Decimal(int(found.ints[at])), kind)
            case loops.REAL:
                numbers[at] = unscaled_real(float(found.reals[at]), kind)
            case loops.TEXT:
                numbers[at] = unscaled_text(texts[at], kind)
            case _:
                pass
    array = decimal_array(numbers, kind)
    found.refuse(array.is_valid().to_numpy(zero_copy_only=False))
    return array


def unscaled(number: Decimal, kind: Logical) -> int | None:
    """Return a number in units of a decimal type's last place, or None if the type does not hold it exactly."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return None  # infinite, or no number
    letters, shift = "".join(map(str, digits)).lstrip("0"), exponent + kind.scale
    if not letters:
        return 0
    if len(letters) + shift > kind.precision or (shift < 0 and letters[shift:].strip("0")):
        return None
    whole = int(letters[:shift] or 0) if shift < 0 else int(letters) * 10**shift
    return -whole if sign else whole


def unscaled_real(number: float, kind: Logical) -> int | None:
    """Read a double as the number it prints as, if that has few digits: then it was written so."""
    if not math.isfinite(number):
        return None
    printed = Decimal(repr(number))
    digits = "".join(map(str, printed.as_tuple().digits)).strip("0")
    return unscaled(printed, kind) if len(digits) <= MAX_REAL_DIGITS else None


def unscaled_text(text: str, kind: Logical) -> int | None:
    """Read a number that is written out; None if it is none, or the type does not hold it."""
    return unscaled(Decimal(text), kind) if _NUMBER.fullmatch(text) else None


def decimal_array(numbers: Sequence[int | None], kind: Logical) -> pa.Array:
    """Make an array of decimals from numbers in units of the last place."""
    valid = np.array([number is not None for number in numbers], dtype=np.bool_)
    words = b"".join((number or 0).to_bytes(16, "little", signed=True) for number in numbers)
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind.arrow, len(numbers), [bitmap, pa.py_buffer(words)])
