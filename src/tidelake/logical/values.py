"""Bring the values of a column between its logical type and its stored type.

==============  ======================================================================================================
date            int: days since 1970-01-01
timestamp_ntz   timestamp: the wall clock's reading taken as UTC, whatever zone anybody is in
decimal(p,s)    up to 18 digits a long, in units of the last place; else a string of 39 characters that sorts as the
                number does: ``0`` and 38 digits, or ``-`` and the nines' complement of them
binary          dynamic: a CBOR byte string
nested          dynamic: CBOR maps and lists, see ``nested``
==============  ======================================================================================================

It does not decide what a value that does not fit becomes: see ``ingest``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake import dynamic
from tidelake.errors import CorruptError, InvalidInputError
from tidelake.model.logical_types import MAX_PRECISION, Logical
from tidelake.model.schema import DataType
from tidelake.runtime.deferred import deferred

nested: Any = deferred("tidelake.logical.nested")  # these two bring a compiler
loops: Any = deferred("tidelake.logical.loops")

Flags = npt.NDArray[np.bool_]

TEXT_LENGTH = MAX_PRECISION + 1  # of a decimal that is kept as text
DAY_US = 86_400_000_000

_MINUS, _NINE_AND_ZERO = ord("-"), ord("9") + ord("0")


def shown(array: pa.Array, kind: DataType, column: str = "") -> pa.Array:
    """Return stored values as readers see them."""
    logical = kind.logical
    match logical and logical.kind:
        case None:
            return array
        case "date" | "timestamp_ntz":
            return array.view(kind.shown)
        case "decimal":
            return _decimals_of_longs(array, kind) if kind.kind == "long" else _decimals_of_texts(array, kind)
    found, bad = nested.decoded(array, logical)
    if bad.any():
        raise CorruptError("a stored value is not of its column's type", column=column, type=kind, kind="bad_value")
    return found


def shown_as_plain(array: pa.Array, kind: DataType) -> pa.Array:
    """Return stored values in plain types: dates and wall clocks as times, bytes and nested values as dynamic ones."""
    match kind.logical and kind.logical.kind:
        case "date":
            days = array.cast(pa.int64())
            return pc.multiply(days, DAY_US).view(pa.timestamp("us", tz="UTC"))
        case "decimal":
            return shown(array, kind)
        case _:
            return array


def stored(array: pa.Array, kind: DataType) -> pa.Array:
    """Return values of a logical type's own Arrow type as they are stored."""
    logical = kind.logical
    assert logical is not None
    assert array.type == logical.arrow
    match logical.kind:
        case "date" | "timestamp_ntz":
            return array.view(kind.arrow)
        case "decimal":
            return _longs_of_decimals(array) if kind.kind == "long" else _texts_of_decimals(array)
        case "binary":
            return _wrapped(array)
        case _:
            return _encoded(array, logical)


def fitted(values: pa.Array, kind: DataType) -> tuple[pa.Array, Flags]:
    """Return dynamic values as a logical type stores them, null where they do not fit, and say which do not."""
    assert kind.logical is not None
    found, bad = nested.decoded(values, kind.logical)
    if kind.kind == "dynamic":
        return pc.if_else(pa.array(~bad), values, pa.scalar(None, values.type)) if bad.any() else values, bad
    return stored(found, kind), bad


def decimal_text(number: int) -> str:
    """Write a decimal, in units of its last place, as text that sorts as the numbers do."""
    digits = f"{abs(number):0{MAX_PRECISION}d}"
    return "-" + digits.translate(_COMPLEMENT) if number < 0 else "0" + digits


_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def _decimals_of_longs(array: pa.Array, kind: DataType) -> pa.Array:
    numbers = (array.fill_null(0) if array.null_count else array).to_numpy()
    words = np.empty((len(numbers), 2), dtype=np.int64)
    words[:, 0] = numbers
    np.right_shift(numbers, 63, out=words[:, 1])
    return _decimal_array(kind.shown, words, array)


def _longs_of_decimals(array: pa.Array) -> pa.Array:
    words = _words(array)[:, 0]
    return pa.array(words, mask=array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None)


def _words(array: pa.Array) -> npt.NDArray[np.int64]:
    data = array.buffers()[1]
    if data is None:
        return np.zeros((len(array), 2), dtype=np.int64)
    words = np.frombuffer(data, dtype=np.int64, count=2 * (array.offset + len(array)))
    return words.reshape(-1, 2)[array.offset :]


def _decimal_array(kind: pa.DataType, words: npt.NDArray[np.int64], like: pa.Array) -> pa.Array:
    bitmap = None
    if like.null_count:
        bitmap = pa.py_buffer(np.packbits(like.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
    return pa.Array.from_buffers(kind, len(like), [bitmap, pa.py_buffer(words)])


def _decimals_of_texts(array: pa.Array, kind: DataType) -> pa.Array:
    """Read sortable texts: undo the complement, and let Arrow read the digits as whole numbers."""
    letters = _letters(array, kind)
    is_negative = letters[:, :1] == _MINUS
    letters[:, 1:] = np.where(is_negative, _NINE_AND_ZERO - letters[:, 1:], letters[:, 1:])
    offsets = np.arange(len(array) + 1, dtype=np.int32) * TEXT_LENGTH
    texts = pa.Array.from_buffers(pa.utf8(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
    whole = texts.cast(pa.decimal128(MAX_PRECISION, 0))
    return _decimal_array(kind.shown, _words(whole), array)


def _letters(array: pa.Array, kind: DataType) -> npt.NDArray[np.uint8]:
    """Return texts of one length as a row of bytes each; a null as zero."""
    filled = array.fill_null("0" * TEXT_LENGTH) if array.null_count else array
    if len(array) and (pc.min_max(pc.binary_length(filled)).as_py() != {"min": TEXT_LENGTH, "max": TEXT_LENGTH}):
        raise CorruptError("a stored value is not of its column's type", type=kind, kind="bad_value")
    _, offsets, data = filled.buffers()
    if not len(array):
        return np.zeros((0, TEXT_LENGTH), dtype=np.uint8)
    start = int(np.frombuffer(offsets, dtype=np.int32)[filled.offset])
    flat = np.frombuffer(data, dtype=np.uint8)[start : start + len(array) * TEXT_LENGTH]
    return flat.reshape(-1, TEXT_LENGTH).copy()


def _texts_of_decimals(array: pa.Array) -> pa.Array:
    """Write sortable texts: the digits of whole numbers, those of negative ones complemented."""
    nothing = pa.scalar(0).cast(pa.decimal128(MAX_PRECISION, 0))
    whole = _decimal_array(pa.decimal128(MAX_PRECISION, 0), np.ascontiguousarray(_words(array)), array)
    is_negative = pc.less(whole, nothing).fill_null(False).to_numpy(zero_copy_only=False)
    digits = pc.utf8_lpad(pc.abs(whole).cast(pa.utf8()), TEXT_LENGTH, "0")
    letters = _letters(digits, DataType("string"))
    letters[is_negative, 1:] = _NINE_AND_ZERO - letters[is_negative, 1:]
    letters[is_negative, 0] = _MINUS
    offsets = np.arange(len(array) + 1, dtype=np.int32) * TEXT_LENGTH
    texts = pa.Array.from_buffers(pa.utf8(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.utf8())) if array.null_count else texts


def _wrapped(array: pa.Array) -> pa.Array:
    """Write byte strings as CBOR."""
    _, offsets, data = array.buffers()
    held = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1] if offsets else None
    if held is None or not len(array):
        return pa.nulls(len(array), pa.binary())
    lengths = np.diff(held).astype(np.int64)
    heads = np.select([lengths < 24, lengths < 2**8, lengths < 2**16], [1, 2, 3], 5)
    places = np.concatenate(([0], np.cumsum(lengths + heads))).astype(np.int64)
    if places[-1] >= 2**31:
        raise InvalidInputError("too much data for one call", bytes=int(places[-1]), kind="too_large")
    out = np.empty(int(places[-1]), np.uint8)
    letters = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    loops.wrap_bytes(letters, held.astype(np.int64), places, out)
    made = pa.Array.from_buffers(
        pa.binary(), len(array), [None, pa.py_buffer(places.astype(np.int32)), pa.py_buffer(out)]
    )
    return pc.if_else(array.is_valid(), made, pa.scalar(None, pa.binary())) if array.null_count else made


def _encoded(array: pa.Array, kind: Logical) -> pa.Array:
    try:
        values = array.to_pylist()
    except (OverflowError, ValueError) as error:
        raise InvalidInputError("a time out of range", reason=error, kind="bad_time") from error
    return pa.array([None if v is None else dynamic.encode(_plain(v, kind)) for v in values], pa.binary())


def _plain(value: Any, kind: Logical) -> Any:
    """Reduce a value of a nested type to what dynamic values are made of."""
    if value is None:
        return None
    match kind.kind:
        case "struct":
            pairs = zip(kind.names, kind.parts, strict=True)
            return {name: _plain(value[name], part) for name, part in pairs if value[name] is not None}
        case "array":
            return [_plain(item, kind.parts[0]) for item in value]
        case "map":
            return _plain_map([(_plain(k, kind.parts[0]), _plain(v, kind.parts[1])) for k, v in value])
        case "decimal":
            return plain_decimal(value)
        case "date":
            return value.isoformat() if isinstance(value, date) else value
        case _:
            return value


def _plain_map(pairs: Sequence[tuple[Any, Any]]) -> Any:
    """Return a map whose keys are texts, each once, as such; any other as pairs."""
    is_plain = all(isinstance(key, str) for key, _ in pairs) and len(dict(pairs)) == len(pairs)
    return dict(pairs) if is_plain else [list(pair) for pair in pairs]


def plain_decimal(number: Decimal) -> int | float | str:
    """Return a decimal as a number that prints as it does, else as text."""
    if number == number.to_integral_value() and abs(number) < 2**63:
        return int(number)
    digits = "".join(map(str, number.as_tuple().digits)).strip("0")
    return float(number) if len(digits) <= nested.MAX_REAL_DIGITS else format(number, "f")
