"""Turn rows of Python values into Arrow arrays of a table's types.

Beyond what JSON has, a value may be a datetime (UTC when it has no zone), a date (its midnight), bytes, a Decimal, an
integer of any size, a UUID or a numpy scalar or array. Rows are read once, key by key and value by value in Python;
what has one type then goes to Arrow as a whole. The makers of arrays, by which other readers make theirs too, are here.
It does not choose which keys become columns.
"""

from __future__ import annotations

import json
import math
import uuid
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake import dynamic
from tidelake.errors import InvalidInputError, SchemaError, TidelakeError
from tidelake.ingest.instants import NO_TIME, times_of_decimals, times_of_ints, times_of_texts
from tidelake.logical import fitted
from tidelake.model.logical_types import Logical, decimal
from tidelake.model.schema import DataType

Flags = npt.NDArray[np.bool_]

MISFIT: Any = object()
SHOWN_BYTES = 40  # of a value in a message
DECIMAL = DataType.of(decimal(38, 18))  # of Python's decimals, which have no type: as Spark takes them

_PLAIN = frozenset({bool, int, float, str, bytes, datetime, date, Decimal, dict, list})
_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_OWN_TYPES: dict[str, set[type]] = {
    "int": {int},
    "long": {int},
    "real": {float},
    "bool": {bool},
    "string": {str},
}
_PROPOSED: dict[frozenset[type], DataType] = {
    frozenset({int}): DataType("long"),
    frozenset({float}): DataType("real"),
    frozenset({int, float}): DataType("real"),
    frozenset({bool}): DataType("bool"),
    frozenset({str}): DataType("string"),
    frozenset({datetime}): DataType("timestamp"),
    frozenset({date}): DataType.of(Logical("date")),
    frozenset({bytes}): DataType.of(Logical("binary")),
    frozenset({datetime, date}): DataType("timestamp"),
}


_TEXTS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "true" if value else "false",
    int: str,
    float: dynamic.real_text,
    Decimal: str,
}  # of what a string column takes as text
# Which values a logical type refuses that are kept as those it takes are: of wall clocks, times with a zone.
_ZONED: dict[str, Callable[[Any], bool]] = {
    "timestamp_ntz": lambda value: isinstance(value, datetime) and value.tzinfo is not None
}


class Spill:
    """Values that fit no column, by row."""

    def __init__(self) -> None:
        self._maps: dict[int, dict[str, Any]] = {}
        self.count = 0

    def add(self, name: str, rows: Sequence[int], values: Sequence[Any]) -> None:
        for row, value in zip(rows, values, strict=True):
            self._maps.setdefault(row, {})[name] = value
        self.count += len(rows)

    def array(self, rows: int, carried: pa.Array | None = None) -> pa.Array:
        """Return one CBOR map a row, united with the maps that the rows carried already."""
        if carried is not None and not self._maps:
            return carried
        maps: list[bytes | None] = [None] * rows if carried is None else carried.to_pylist()
        for row, held in self._maps.items():
            before = maps[row]
            maps[row] = encode({**dynamic.decode(before), **held} if before else held, {"row": row + 1})
        return pa.array(maps, pa.binary())


class Rows:
    """The values of some rows, by key; ``names`` are those of the table's columns."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
        self.rows = len(rows)
        self._known = dict.fromkeys(names)
        self._held: dict[str, tuple[Sequence[int], Sequence[Any]]] = {}
        self._spill = Spill()
        if not self._take_alike(rows):
            self._take_each(rows)
        for name in [name for name, (_, values) in self._held.items() if not _PLAIN.issuperset(map(type, values))]:
            self._make_plain(name)

    def _take_alike(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Take rows that all have the same keys in the same order and no null, a column at a time."""
        if not rows or not all(type(row) is dict for row in rows):
            return False
        names = list(rows[0])
        if any(list(row) != names for row in rows):
            return False
        columns = list(zip(*map(dict.values, cast("Sequence[dict[str, Any]]", rows)), strict=True))
        if any(type(None) in set(map(type, values)) for values in columns):
            return False
        places = range(len(rows))
        self._held = {_checked_name(name, 0): (places, values) for name, values in zip(names, columns, strict=True)}
        return True

    def _take_each(self, rows: Sequence[Mapping[str, Any]]) -> None:
        held_rows: dict[str, tuple[list[int], list[Any]]] = {}
        for at, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise InvalidInputError("a row must be a mapping", row=at + 1, got=type(row).__name__, kind="bad_row")
            for name, value in row.items():
                if value is None:
                    continue
                if (held := held_rows.get(name)) is None:
                    held = held_rows[_checked_name(name, at)] = ([], [])
                held[0].append(at)
                held[1].append(value)
        self._held = dict(held_rows)

    @property
    def spilled(self) -> int:
        return self._spill.count

    def names(self) -> Iterator[str]:
        """Yield the keys that have a value somewhere: the columns' first, then others in the order of their first."""
        yield from (name for name in self._known if name in self._held)
        yield from (name for name in self._held if name not in self._known)

    def fold(self, name: str, into: str) -> bool:
        """Return all values of a key to another; not where a row has both."""
        rows, values = self._held[name]
        if into in self._held:
            others = self._held[into]
            if not set(rows).isdisjoint(others[0]):
                return False
            pairs = sorted([*zip(rows, values, strict=True), *zip(*others, strict=True)], key=lambda pair: pair[0])
            rows, values = [row for row, _ in pairs], [value for _, value in pairs]
        self._held = {into if key == name else key: held for key, held in self._held.items()}
        self._held[into] = (rows, values)
        return True

    def proposed(self, name: str) -> DataType | None:
        """Return the type that holds all values of a key, if they are scalars and there is one."""
        _, values = self._held[name]
        types = frozenset(map(type, values))
        if types == {Decimal}:
            _array, misfits = _fit_logical(values, DECIMAL, range(len(values)), len(values), name)
            return DataType("string") if misfits else DECIMAL
        if types == {int} and any(fit(value, DataType("long")) is MISFIT for value in values):
            return None
        return _PROPOSED.get(types)

    def has_reals(self, name: str) -> bool:
        """Whether a key has a number that is not whole, or is written as such."""
        _, values = self._held[name]
        types = set(map(type, values))
        if float in types:
            return True
        return Decimal in types and any(type(value) is Decimal and _is_short(value) for value in values)

    def spill_others(self, kept: Collection[str]) -> None:
        """Send all values of all other keys to the overflow column."""
        for name, held in self._held.items():
            if name not in kept:
                self._spill.add(name, *held)

    def overflow(self) -> pa.Array:
        """Return one CBOR map a row of the spilled values under their keys, null where there is none."""
        return self._spill.array(self.rows)

    def where(self, row: int) -> dict[str, int]:
        """Return where a row is, for a message."""
        return {"row": row + 1}

    def raw(self, rows: Sequence[int]) -> list[tuple[int, str]]:
        """Return the numbers and the values of rows, as text."""
        held = {name: dict(zip(places, values, strict=True)) for name, (places, values) in self._held.items()}
        made = [{name: values[row] for name, values in held.items() if row in values} for row in rows]
        return [(row + 1, json.dumps(found, default=str)) for row, found in zip(rows, made, strict=True)]

    def shown(self, name: str, row: int) -> str:
        """Show what a row has under a key, for a message."""
        rows, values = self._held.get(name, ([], []))
        return repr(values[rows.index(row)])[:SHOWN_BYTES] if row in rows else "none"

    def column(self, name: str, kind: DataType) -> pa.Array:
        """Return the values of a key as this type, or as long where one is too large for an int; spill the others."""
        rows, values = self._held[name]
        array, misfits = fit_all(values, kind, rows, self.rows, name)
        if misfits:
            self._spill.add(name, [rows[at] for at in misfits], [values[at] for at in misfits])
        return array

    def _make_plain(self, name: str) -> None:
        rows, values = self._held[name]
        kept = [
            (row, value)
            for row, value in ((row, _plain_at(value, row, name)) for row, value in zip(rows, values, strict=True))
            if value is not None
        ]
        if kept:
            self._held[name] = ([row for row, _ in kept], [value for _, value in kept])
        else:
            del self._held[name]


def fit_all(
    values: Sequence[Any], kind: DataType, rows: Sequence[int], length: int, name: str
) -> tuple[pa.Array, list[int]]:
    """Return plain values as an array of this type and length, and the places of those that do not fit."""
    if kind.logical is not None:
        return _fit_logical(values, kind, rows, length, name)
    if len(values) == length and (whole := _whole(values, kind)) is not None:
        return whole, []
    places = np.array(rows, dtype=np.int64)
    valid = np.zeros(length, dtype=np.bool_)
    match kind.kind:
        case "timestamp":
            times = _times_of(values)
            fits = times != NO_TIME
            column = np.zeros(length, dtype=np.int64)
            column[places[fits]], valid[places[fits]] = times[fits], True
            return fixed_array(kind.arrow, column, valid), np.flatnonzero(~fits).tolist()
        case "vector":
            dimension = cast(int, kind.dimension)
            vectors = np.zeros((length, dimension), dtype=np.float32)
            for row, value in zip(rows, values, strict=True):
                vectors[row] = vector_of(_plain_list(value), dimension, name, {"row": row + 1})
                valid[row] = True
            return vector_array(kind.arrow, vectors, valid), []
        case "dynamic":
            encoded: list[bytes | None] = [None] * length
            for row, value in zip(rows, values, strict=True):
                encoded[row] = encode(value, {"row": row + 1, "column": name})
            return pa.array(encoded, pa.binary()), []
    fitted = [fit(value, kind) for value in values]
    misfits = [at for at, value in enumerate(fitted) if value is MISFIT]
    if misfits:
        fits = np.ones(len(fitted), dtype=np.bool_)
        fits[misfits] = False
        fitted = [value for value in fitted if value is not MISFIT]
        places = places[fits]
    valid[places] = True
    return _typed(fitted, kind, places, valid, name), misfits


def _fit_logical(
    values: Sequence[Any], kind: DataType, rows: Sequence[int], length: int, name: str
) -> tuple[pa.Array, list[int]]:
    """Fit values to a logical type: as dynamic values are read as that type."""
    refused = _ZONED.get(str(kind), lambda _: False)
    encoded: list[bytes | None] = [None] * length
    for row, value in zip(rows, values, strict=True):
        offered = str(value) if type(value) is Decimal and str(kind).startswith("decimal") else value
        encoded[row] = None if refused(value) else encode(offered, {"row": row + 1, "column": name})
    array, bad = fitted(pa.array(encoded, pa.binary()), kind)
    return array, [at for at, row in enumerate(rows) if bad[row] or encoded[row] is None]


def _whole(values: Sequence[Any], kind: DataType) -> pa.Array | None:
    """Return values that all have the type's own Python type as an array at once, or None where that is not sure."""
    if _OWN_TYPES.get(kind.kind) != set(map(type, values)):
        return None
    try:
        match kind.kind:
            case "real":
                return _numbers(kind.arrow, array("d", values))
            case "long":
                return _numbers(kind.arrow, array("q", values))
            case "int":
                numbers = np.array(values, dtype=np.int64)
                return pa.array(numbers, pa.int32() if (numbers == numbers.astype(np.int32)).all() else pa.int64())
            case _:
                return pa.array(values, kind.arrow)
    except (OverflowError, UnicodeEncodeError):  # which one it is, the slower way says
        return None


def _numbers(kind: pa.DataType, values: array[Any]) -> pa.Array:
    """Return numbers that lie as Arrow has them: a third of the time that Arrow takes to convert a list."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0)


def fit(value: Any, kind: DataType) -> Any:
    """Return a plain value as what this type holds without loss, or MISFIT."""
    exact = type(value)
    match kind.kind:
        case "int" | "long":
            if exact is Decimal and value.is_finite() and value.as_tuple().exponent == 0:
                value, exact = int(value), int
            return value if exact is int and -(2**63) <= value < 2**63 else MISFIT
        case "real":
            if exact is Decimal:
                return float(value) if _is_short(value) else MISFIT
            near = double_of(value) if exact is int else value if exact is float else None
            return MISFIT if near is None else near
        case "bool":
            return value if exact is bool else MISFIT
        case "string":
            return value if exact is str else _TEXTS[exact](value) if exact in _TEXTS else MISFIT
    raise TypeError(f"{kind} is not fitted value by value")


def encode(value: Any, where: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a value, or say which one has none."""
    try:
        return dynamic.encode(plain(value, 1))  # as nested: a dynamic column keeps no Decimal
    except TidelakeError as error:
        raise InvalidInputError(error.message, **where, **error.facts, kind=error.kind) from error


def plain(value: Any, depth: int = 0) -> Any:
    """Reduce a value to Python's own types; a Decimal inside a nested one to a number that is equal to it, or text."""
    exact = type(value)
    if exact in _SCALARS:
        return value
    if depth > dynamic.MAX_DEPTH:
        raise InvalidInputError("nested too deeply", limit=dynamic.MAX_DEPTH, kind="too_deep")
    if exact is dict or isinstance(value, Mapping):
        made = {}
        for key, inner in value.items():
            made[key] = plain(inner, depth + 1)
        return made
    if exact is list or exact is tuple:
        several = []
        for inner in value:
            several.append(plain(inner, depth + 1))  # noqa: PERF401  a comprehension would be one more frame a level
        return several
    return _plain_other(value, depth)


def _plain_other(value: Any, depth: int) -> Any:
    match value:
        case Decimal() if depth > 0:
            fits = (fit(value, DataType(kind)) for kind in ("long", "real", "string"))
            return next(found for found in fits if found is not MISFIT)
        case Decimal():
            return value
        case datetime():
            return _plain_datetime(value)
        case date():
            return date.fromordinal(value.toordinal())
        case time():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
        case np.datetime64():
            return None if np.isnat(value) else _of_numpy_time(value)
        case np.ndarray():
            return value.tolist() if value.dtype.kind in "biuf" else plain(value.tolist(), depth)
        case float():
            return float(value)
        case int():
            return int(value)
        case str():
            return str.__str__(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case list() | tuple():
            return plain(list(value), depth)
        case np.generic():
            return plain(value.item(), depth)
        case _:
            raise InvalidInputError("not a value that a table can keep", type=type(value).__name__, kind="bad_value")


def _plain_datetime(value: datetime) -> datetime | None:
    if type(value) is datetime:
        return value
    if value != value:  # what pandas calls not a time
        return None
    return datetime.combine(value.date(), value.time(), value.tzinfo)


def _of_numpy_time(value: np.datetime64) -> datetime:
    found = value.astype("datetime64[us]").item()
    if not isinstance(found, datetime):
        raise InvalidInputError("a time out of range", value=value, kind="bad_time")
    return found


def _plain_at(value: Any, row: int, name: str) -> Any:
    try:
        return plain(value)
    except TidelakeError as error:
        raise InvalidInputError(error.message, row=row + 1, column=name, **error.facts, kind=error.kind) from None


def _plain_list(value: Any) -> Any:
    return value if isinstance(value, list) and {int, float}.issuperset(map(type, value)) else plain(value)


def _checked_name(name: Any, row: int) -> str:
    if not isinstance(name, str):
        raise InvalidInputError("a row's keys are text", row=row + 1, key=repr(name), kind="bad_key")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            "a key has half of a surrogate pair", row=row + 1, key=ascii(name), kind="bad_text"
        ) from None
    return name


def _is_short(value: Decimal) -> bool:
    """Return whether the nearest double is printed as this very number."""
    return value.is_finite() and Decimal(repr(float(value))) == value


def _typed(fitted: list[Any], kind: DataType, places: Any, valid: Flags, name: str) -> pa.Array:
    """Put values that fit at their places."""
    match kind.kind:
        case "int" | "long":
            numbers = np.zeros(len(valid), dtype=np.int64)
            numbers[places] = np.array(fitted, dtype=np.int64)
            is_narrow = kind.kind == "int" and bool((numbers == numbers.astype(np.int32)).all())
            return int_array(numbers, valid) if is_narrow else long_array(numbers, valid)
        case "real":
            reals = np.zeros(len(valid), dtype=np.float64)
            reals[places] = fitted
            return fixed_array(kind.arrow, reals, valid)
        case "bool":
            bits = np.zeros(len(valid), dtype=np.bool_)
            bits[places] = fitted
            return fixed_array(kind.arrow, np.packbits(bits, bitorder="little"), valid)
        case _:
            texts: list[str | None] = [None] * len(valid)
            for place, text in zip(places.tolist(), fitted, strict=True):
                texts[place] = text
            try:
                return pa.array(texts, pa.string())
            except UnicodeEncodeError:
                bad = next(row for row, text in enumerate(texts) if text and not _is_unicode(text))
                raise InvalidInputError(
                    "half of a surrogate pair is not text", row=bad + 1, column=name, kind="bad_text"
                ) from None


def _is_unicode(text: str) -> bool:
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)


def _times_of(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return the microseconds of each value that is a time, NO_TIME for others."""
    times = np.full(len(values), NO_TIME, dtype=np.int64)
    by_type: dict[type, list[int]] = {}
    for at, value in enumerate(values):
        by_type.setdefault(type(value), []).append(at)
    for exact, places in by_type.items():
        several = [values[at] for at in places]
        if exact is str:
            times[places] = times_of_texts(pa.array([_or_none(text) for text in several], pa.string()))
        elif exact is int:
            inside = [value if abs(value) < 2**63 else -(2**63) for value in several]  # which is no time
            times[places] = times_of_ints(np.array(inside, dtype=np.int64))
        elif exact is float or exact is Decimal:
            times[places] = times_of_decimals(pa.array([_decimal_text(value) for value in several], pa.string()))
        elif exact is datetime:
            times[places] = [_microseconds(value) for value in several]
        elif exact is date:
            times[places] = [(value.toordinal() - _EPOCH_DAY) * 86_400_000_000 for value in several]
    return times


def _or_none(text: str) -> str | None:
    return text if text.isascii() else None


def _decimal_text(value: float | Decimal) -> str | None:
    is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    return str(value) if is_finite else None


def _microseconds(value: datetime) -> int:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND


def vector_of(found: Any, dimension: int, name: str, where: dict[str, int]) -> npt.NDArray[np.float32]:
    """Return a list of exactly this many numbers as floats, or raise, naming the column and the row."""
    facts: dict[str, Any] = {**where, "column": name, "kind": "vector_length"}
    if not isinstance(found, list) or len(found) != dimension:
        got = f"{len(found)} values" if isinstance(found, list) else type(found).__name__
        raise SchemaError("not a vector of the column's length", wanted=dimension, got=got, **facts)
    if any(type(value) not in (int, float) for value in found):
        raise SchemaError("a vector holds numbers only", **facts)
    try:
        wide = np.array(found, dtype=np.float64)
    except OverflowError:  # an integer beyond all doubles
        wide = np.array([1e300])
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    if (np.isinf(narrow) & ~np.isinf(wide)).any():
        raise SchemaError("a number too large for a vector", **facts)
    return narrow


def double_of(number: int) -> float | None:
    """Return the double that is exactly this integer, if there is one."""
    try:
        near = float(number)
    except OverflowError:
        return None
    return near if int(near) == number else None


def int_array(numbers: npt.NDArray[np.int64], valid: Flags) -> pa.Array:
    return fixed_array(pa.int32(), numbers.astype(np.int32), valid)


def long_array(numbers: npt.NDArray[np.int64], valid: Flags) -> pa.Array:
    return fixed_array(pa.int64(), numbers, valid)


def fixed_array(kind: pa.DataType, values: Any, valid: Flags) -> pa.Array:
    """Make an array of values of one width, or of packed bits."""
    nulls = len(valid) - int(np.count_nonzero(valid))
    return pa.Array.from_buffers(kind, len(valid), [_bitmap(valid, nulls), pa.py_buffer(values)], null_count=nulls)


def vector_array(kind: pa.DataType, values: npt.NDArray[np.float32], valid: Flags) -> pa.Array:
    """Make an array of vectors, one row of values each."""
    nulls = len(valid) - int(np.count_nonzero(valid))
    return pa.Array.from_buffers(
        kind, len(valid), [_bitmap(valid, nulls)], null_count=nulls, children=[pa.array(values.ravel())]
    )


def binary_array(kind: pa.DataType, offsets: Any, letters: Any, valid: Flags) -> pa.Array:
    """Make a string or binary array of buffers that are ready."""
    nulls = len(valid) - int(np.count_nonzero(valid))
    buffers = [_bitmap(valid, nulls), pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pa.Array.from_buffers(kind, len(valid), buffers, null_count=nulls)


def _bitmap(valid: Flags, nulls: int) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
