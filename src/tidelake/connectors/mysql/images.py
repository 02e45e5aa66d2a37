"""Turn row images of a binlog into columns, all rows of a table's shape at once.

A shape is what a table map tells: names, types, and what their bytes need to be read. Values are found by a compiled
loop, and each column is read by NumPy. It does not know transactions: see ``binlog``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.json_binary import parse_json

from tidelake.connectors.mysql import image_loops as loops
from tidelake.connectors.mysql.types import BYTES, INTEGERS, MyType, data_type, field_of, flags_of, is_json, shortest
from tidelake.dynamic.shredding import gathered
from tidelake.errors import CorruptError, InvalidInputError
from tidelake.model.schema import DataType

_Ints = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]

_INTEGERS = {
    FIELD_TYPE.TINY: "tinyint", FIELD_TYPE.SHORT: "smallint", FIELD_TYPE.INT24: "mediumint", FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
}  # fmt: skip
_TEXTS = (FIELD_TYPE.VARCHAR, FIELD_TYPE.VAR_STRING, FIELD_TYPE.STRING)
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # of a part of a decimal with so many digits
_DIGITS = 9  # of a whole group of a decimal, which has four bytes
_UTF8 = ("utf8", "utf8mb3", "utf8mb4", "utf-8", "ascii")
_BINARY = ("binary", None)
_EXACT = Context(prec=80)


@dataclass(frozen=True, slots=True)
class ImageColumn:
    """A column as the binlog has it: its type, and how its bytes are found and read."""

    name: str
    kind: MyType
    width: int  # negative if it varies
    prefix: int = 0  # bytes that say how long a value is
    fraction: int = 0  # digits of a second
    charset: str | None = None
    words: tuple[str, ...] = ()  # of an enumeration or a set
    padded: int = 0  # bytes to which zeros are added that the binlog leaves out


def image_column(column: Any, hint: MyType | None) -> ImageColumn:
    """Return a column of a table map; ``hint`` is what the table has now under the name, which tells a little more."""
    kind, name = column.type, str(column.name)
    if kind in _INTEGERS:
        own = MyType(_INTEGERS[kind], bool(column.unsigned))
        is_flag = own.name == "tinyint" and hint is not None and hint.is_flag
        return ImageColumn(name, MyType(own.name, own.unsigned, is_flag=is_flag), INTEGERS[own.name])
    if kind in _TEXTS or kind == FIELD_TYPE.BLOB:
        prefix = column.length_size if kind == FIELD_TYPE.BLOB else 2 if column.max_length > 255 else 1
        charset = None if column.character_set_name in _BINARY else str(column.character_set_name)
        text = "json" if hint is not None and is_json(hint) else "text"
        padded = column.max_length if kind == FIELD_TYPE.STRING and charset is None else 0
        own = MyType("blob" if charset is None else text)
        return ImageColumn(name, own, -1, prefix, charset=charset, padded=padded)
    match kind:
        case FIELD_TYPE.FLOAT:
            return ImageColumn(name, MyType("float"), 4)
        case FIELD_TYPE.DOUBLE:
            return ImageColumn(name, MyType("double"), 8)
        case FIELD_TYPE.NEWDECIMAL:
            own = MyType("decimal", precision=column.precision, scale=column.decimals)
            return ImageColumn(name, own, sum(_decimal_parts(own)[0]))
        case FIELD_TYPE.DATE | FIELD_TYPE.NEWDATE:
            return ImageColumn(name, MyType("date"), 3)
        case FIELD_TYPE.DATETIME2:
            return ImageColumn(name, MyType("datetime"), 5 + (column.fsp + 1) // 2, fraction=column.fsp)
        case FIELD_TYPE.TIMESTAMP2:
            return ImageColumn(name, MyType("timestamp"), 4 + (column.fsp + 1) // 2, fraction=column.fsp)
        case FIELD_TYPE.TIME2:
            return ImageColumn(name, MyType("time"), 3 + (column.fsp + 1) // 2, fraction=column.fsp)
        case FIELD_TYPE.YEAR:
            return ImageColumn(name, MyType("year"), 1)
        case FIELD_TYPE.BIT:
            return ImageColumn(name, MyType("bit", precision=column.bits), column.bytes)
        case FIELD_TYPE.ENUM:
            return ImageColumn(name, MyType("enum"), column.size, words=tuple(column.enum_values or ()))
        case FIELD_TYPE.SET:
            return ImageColumn(name, MyType("set"), column.size, words=tuple(column.set_values or ()))
        case FIELD_TYPE.GEOMETRY:
            return ImageColumn(name, MyType("geometry"), -1, column.length_size)
        case FIELD_TYPE.JSON:
            return ImageColumn(name, MyType("json"), -1, column.length_size)
    raise InvalidInputError("columns of this type cannot be synced", column=name, code=kind, kind="bad_type")


@dataclass(frozen=True, slots=True)
class Images:
    """Where the values of some row images are, column by column."""

    raw: _Bytes
    columns: tuple[ImageColumn, ...]
    counts: _Ints  # images of each event
    starts: _Ints
    lengths: _Ints

    @classmethod
    def find(cls, events: Sequence[bytes], columns: tuple[ImageColumn, ...]) -> Images:
        """Find all values of all images of some events; CorruptError if one is not as it should be."""
        raw = np.frombuffer(b"".join(events), np.uint8)
        ends = np.cumsum([len(event) for event in events], dtype=np.int64)
        begins = ends - np.array([len(event) for event in events], np.int64)
        widths = np.array([column.width for column in columns], np.int64)
        prefixes = np.array([column.prefix for column in columns], np.int64)
        counts = np.zeros(len(events), np.int64)
        empty = np.empty((0, len(columns)), np.int64)
        count = int(loops.find(raw, begins, ends, widths, prefixes, counts, empty, empty))
        starts = np.empty((max(count, 0), len(columns)), np.int64)
        lengths = np.empty_like(starts)
        if count < 0 or loops.find(raw, begins, ends, widths, prefixes, counts, starts, lengths) < 0:
            raise CorruptError("a row of the binlog is not as it should be", event=-1 - count, kind="bad_message")
        return cls(raw, columns, counts, starts, lengths)

    def take(self, rows: _Ints) -> Images:
        return Images(self.raw, self.columns, self.counts, self.starts[rows], self.lengths[rows])

    def only(self, names: Sequence[str], rows: npt.NDArray[np.bool_]) -> Images:
        """Leave out all values but those of some columns, in some rows."""
        lengths = self.lengths.copy()
        others = [at for at, column in enumerate(self.columns) if column.name not in names]
        lengths[np.ix_(np.flatnonzero(rows), np.array(others, np.int64))] = loops.NULL
        return Images(self.raw, self.columns, self.counts, self.starts, lengths)

    def read(self, names: Sequence[str]) -> list[tuple[pa.Field, pa.Array]]:
        """Return some columns in their types."""
        found = []
        for name in names:
            at = next(at for at, column in enumerate(self.columns) if column.name == name)
            array = self._read(at)
            found.append((field_of(name, self.columns[at].kind, array), array))
        return found

    def _read(self, at: int) -> pa.Array:
        column, starts, lengths = self.columns[at], self.starts[:, at], self.lengths[:, at]
        nulls = lengths == loops.NULL
        if column.width < 0:
            found = gathered(self.raw, np.ascontiguousarray(starts), np.where(nulls, 0, lengths), pa.binary())
            values = pc.if_else(pa.array(~nulls), found, pa.scalar(None, pa.binary())) if nulls.any() else found
            return _variable(values, column)
        if not len(self.raw):
            return pa.nulls(len(starts), data_type(column.kind).shown)
        where = np.where(nulls, 0, starts)[:, None] + np.arange(column.width)
        matrix = self.raw[np.minimum(where, len(self.raw) - 1)]
        matrix[nulls] = _ZERO.get(column.kind.name, 0)
        return _FIXED[column.kind.name](matrix, nulls, column)


def _variable(values: pa.Array, column: ImageColumn) -> pa.Array:
    if column.padded:
        whole = [None if each is None else each.ljust(column.padded, b"\0") for each in values.to_pylist()]
        return pa.array(whole, pa.binary())
    if column.kind.name in BYTES:
        return values
    if column.kind.name == "json" and column.charset is None:
        return pa.array([None if each is None else _json(each) for each in values.to_pylist()], pa.string())
    charset = (column.charset or "utf8").lower()
    if charset in _UTF8:
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            return values
    coded = values.dictionary_encode()
    try:
        texts = [each.decode(charset) for each in coded.dictionary.to_pylist()]
    except (UnicodeDecodeError, LookupError):
        return values
    return pa.DictionaryArray.from_arrays(coded.indices, pa.array(texts, pa.string())).cast(pa.string())


def _json(data: bytes) -> str:
    """Read JSON as MySQL keeps it: a tree with types of its own."""
    if not data:
        return "null"
    try:
        return orjson.dumps(parse_json(data[0], data[1:]), default=str).decode()
    except (ValueError, IndexError, TypeError) as error:
        raise CorruptError("a value of the binlog is no JSON", kind="bad_message") from error


def _little(matrix: _Bytes) -> npt.NDArray[np.uint64]:
    """Read numbers whose lowest byte comes first."""
    found = np.zeros(len(matrix), np.uint64)
    for at in range(matrix.shape[1]):
        found |= matrix[:, at].astype(np.uint64) << np.uint64(8 * at)
    return found


def _big(matrix: _Bytes) -> npt.NDArray[np.uint64]:
    """Read numbers whose highest byte comes first."""
    return _little(matrix[:, ::-1])


def _integers(matrix: _Bytes, nulls: npt.NDArray[np.bool_], column: ImageColumn) -> pa.Array:
    found, bits = _little(matrix), 8 * column.width
    if column.kind.unsigned and bits == 64:
        return _decimals(found, nulls, np.zeros(len(found), np.int64), pa.decimal128(20, 0))
    numbers = found.astype(np.int64)
    if not column.kind.unsigned and bits < 64:
        numbers = (numbers ^ (1 << (bits - 1))) - (1 << (bits - 1))
    array = pa.array(numbers, mask=nulls)
    target = data_type(column.kind)
    return flags_of(array) if target == DataType("bool") else array.cast(target.shown)


def _bits(matrix: _Bytes, nulls: npt.NDArray[np.bool_], column: ImageColumn) -> pa.Array:
    found = _big(matrix)
    if column.kind.precision > 63:
        return _decimals(found, nulls, np.zeros(len(found), np.int64), pa.decimal128(20, 0))
    array = pa.array(found.astype(np.int64), mask=nulls)
    return flags_of(array) if column.kind.precision == 1 else array


def _floats(matrix: _Bytes, nulls: npt.NDArray[np.bool_], column: ImageColumn) -> pa.Array:
    is_single = column.width == 4
    found = np.ascontiguousarray(matrix).view("<f4" if is_single else "<f8").reshape(-1)
    array = pa.array(found, mask=nulls)
    return shortest(array) if is_single else array


def _decimals(low: npt.NDArray[np.uint64], nulls: npt.NDArray[np.bool_], high: _Ints, kind: pa.DataType) -> pa.Array:
    """Make decimals of the lower and upper halves of their numbers."""
    words = np.empty((len(low), 2), np.int64)
    words[:, 0], words[:, 1] = low.view(np.int64), high
    valid = pa.array(~nulls).buffers()[1] if nulls.any() else None
    return pa.Array.from_buffers(kind, len(low), [valid, pa.py_buffer(words.tobytes())])


def _decimal_parts(kind: MyType) -> tuple[list[int], list[int]]:
    """Return of how many bytes, and of how many digits, each group of a decimal is."""
    whole, first = divmod(kind.precision - kind.scale, _DIGITS)
    fraction, last = divmod(kind.scale, _DIGITS)
    digits = [*([first] if first else []), *[_DIGITS] * (whole + fraction), *([last] if last else [])]
    return [_DIGIT_BYTES[each] for each in digits], digits


def _decimal(matrix: _Bytes, nulls: npt.NDArray[np.bool_], column: ImageColumn) -> pa.Array:
    """Read decimals: groups of digits, the highest first; a negative one has all bits turned but the first."""
    sizes, digits = _decimal_parts(column.kind)
    is_negative = matrix[:, 0] < 0x80
    matrix = matrix.copy()
    matrix[:, 0] ^= 0x80
    matrix[is_negative] ^= 0xFF
    groups, at = [], 0
    for size in sizes:
        groups.append(_big(matrix[:, at : at + size]).astype(np.int64))
        at += size
    target = data_type(column.kind).shown
    if column.kind.precision <= 18:
        number = np.zeros(len(matrix), np.int64)
        for group, width in zip(groups, digits, strict=True):
            number = number * 10**width + group
        number = np.where(is_negative, -number, number)
        return _decimals(number.view(np.uint64), nulls, number >> 63, target)
    texts = []
    for row in range(len(matrix)):  # wide ones are rare
        text = "".join(f"{int(group[row]):0{width}d}" for group, width in zip(groups, digits, strict=True))
        texts.append(Decimal(("-" if is_negative[row] else "") + text).scaleb(-column.kind.scale, _EXACT))
    values = [None if null else each for null, each in zip(nulls, texts, strict=True)]
    if pa.types.is_decimal(target):
        return pa.array(values, target)
    return pa.array([None if each is None else f"{each:f}" for each in values], pa.string())


def _date(matrix: _Bytes, nulls: npt.NDArray[np.bool_], column: ImageColumn) -> pa.Array:
    found = _little(matrix).astype(np.int64)
    year, month, day = found >> 9, (found >> 5) & 15, found & 31
    days, fits = _days(year, month, day)
    if fits[~nulls].all():
        return pa.array(days.astype(np.int32), mask=nulls).cast(pa.date32())
    return _texts_of(lambda row: f"{year[row]:04d}-{month[row]:02d}-{day[row]:02d}", nulls)


def _datetime(matrix: _Bytes, nulls: npt.NDArray[np.bool_], column: ImageColumn) -> pa.Array:
    packed = _big(matrix[:, :5]).astype(np.int64) & ((1 << 39) - 1)
    months, day = packed >> 22, (packed >> 17) & 31
    year, month = months // 13, months % 13
    hour, minute, second = (packed >> 12) & 31, (packed >> 6) & 63, packed & 63
    days, fits = _days(year, month, day)
    micros = _fraction(matrix[:, 5:], column.fraction)
    if fits[~nulls].all():
        us = ((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + micros
        return pa.array(us, pa.timestamp("us"), mask=nulls)
    return _texts_of(
        lambda row: (
            f"{year[row]:04d}-{month[row]:02d}-{day[row]:02d} {hour[row]:02d}:{minute[row]:02d}:{second[row]:02d}"
            + _shown_fraction(int(micros[row]), column.fraction)
        ),
        nulls,
    )


def _timestamp(matrix: _Bytes, nulls: npt.NDArray[np.bool_], column: ImageColumn) -> pa.Array:
    seconds = _big(matrix[:, :4]).astype(np.int64)
    us = seconds * 1_000_000 + _fraction(matrix[:, 4:], column.fraction)
    if (us[~nulls] != 0).all():
        return pa.array(us, pa.timestamp("us", tz="UTC"), mask=nulls)
    texts = pa.array(us, pa.timestamp("us"), mask=nulls).cast(pa.string())  # 0 is 0000-00-00 there
    zero = "0000-00-00 00:00:00" + _shown_fraction(0, column.fraction)
    return pc.if_else(pa.array((us == 0) & ~nulls), zero, texts)


def _time(matrix: _Bytes, nulls: npt.NDArray[np.bool_], column: ImageColumn) -> pa.Array:
    """Read times of day and spans: as MySQL writes them, ``-838:59:59.000``."""
    size = matrix.shape[1]
    packed = _big(matrix).astype(np.int64) - (1 << (8 * size - 1))
    is_negative, packed = packed < 0, np.abs(packed)
    scale = 8 * (size - 3)
    whole, rest = packed >> scale, packed & ((1 << scale) - 1)
    micros = rest * 10 ** (6 - 2 * (size - 3))

    def text(row: int) -> str:
        hour, minute, second = (int(whole[row]) >> 12) & 1023, (int(whole[row]) >> 6) & 63, int(whole[row]) & 63
        sign = "-" if is_negative[row] else ""
        return f"{sign}{hour:02d}:{minute:02d}:{second:02d}{_shown_fraction(int(micros[row]), column.fraction)}"

    return _texts_of(text, nulls)


def _year(matrix: _Bytes, nulls: npt.NDArray[np.bool_], column: ImageColumn) -> pa.Array:
    found = matrix[:, 0].astype(np.int32)
    return pa.array(np.where(found == 0, 0, found + 1900).astype(np.int32), mask=nulls)


def _enum(matrix: _Bytes, nulls: npt.NDArray[np.bool_], column: ImageColumn) -> pa.Array:
    found = _little(matrix).astype(np.int64)
    if len(found) and found.max(initial=0) >= len(column.words):
        raise CorruptError("a value is not of its enumeration", column=column.name, kind="bad_message")
    return pa.array(list(column.words), pa.string()).take(pa.array(found, mask=nulls))


def _set(matrix: _Bytes, nulls: npt.NDArray[np.bool_], column: ImageColumn) -> pa.Array:
    masks, at = np.unique(_little(matrix), return_inverse=True)
    texts = [",".join(word for bit, word in enumerate(column.words) if (int(mask) >> bit) & 1) for mask in masks]
    return pa.array(texts, pa.string()).take(pa.array(at.astype(np.int64), mask=nulls))


def _days(year: _Ints, month: _Ints, day: _Ints) -> tuple[_Ints, npt.NDArray[np.bool_]]:
    """Return days since 1970, and which dates there are."""
    months = (year - 1970) * 12 + month - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    fits = (year > 0) & (month >= 1) & (month <= 12) & (day >= 1) & (first + day - 1 < after)
    return first + day - 1, fits


def _fraction(matrix: _Bytes, digits: int) -> _Ints:
    """Read microseconds, which are kept in two digits a byte."""
    return (
        _big(matrix).astype(np.int64) * 10 ** (6 - 2 * matrix.shape[1]) if digits else np.zeros(len(matrix), np.int64)
    )


def _shown_fraction(micros: int, digits: int) -> str:
    return f".{micros:06d}"[: digits + 1] if digits else ""


def _texts_of(text: Callable[[int], str], nulls: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array([None if null else text(row) for row, null in enumerate(nulls)], pa.string())


_FIXED: Mapping[str, Callable[[_Bytes, npt.NDArray[np.bool_], ImageColumn], pa.Array]] = {
    **dict.fromkeys(INTEGERS, _integers), "bit": _bits, "float": _floats, "double": _floats, "decimal": _decimal,
    "date": _date, "datetime": _datetime, "timestamp": _timestamp, "time": _time, "year": _year, "enum": _enum,
    "set": _set,
}  # fmt: skip
_ZERO = {"decimal": 0x80}
