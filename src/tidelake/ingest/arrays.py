"""Turn the columns of an Arrow batch into those of a table's types.

Columns are cast as a whole, by Arrow's kernels: any integer, float, text, timestamp, date, boolean, dictionary, view or
run-end form. Only nested values, decimals, and values that go to a dynamic column are converted one by one. A binary
column holds bytes, unless its field says that they are a dynamic column's own (``DYNAMIC_FIELD``), and a text column
texts, unless its field says that they are JSON. It does not choose which columns a table gets.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic.values import real_text
from tidelake.errors import InvalidInputError, SchemaError
from tidelake.ingest.instants import NO_TIME, times_of_decimals, times_of_ints, times_of_texts
from tidelake.ingest.json.texts import dynamic_of_json, is_json
from tidelake.ingest.rows import SHOWN_BYTES, Flags, Spill, fit_all, vector_array
from tidelake.logical import stored
from tidelake.model.logical_types import Logical
from tidelake.model.schema import DYNAMIC_FIELD, MAX_DIMENSION, DataType

_UNSUPPORTED = "unsupported arrow type: cast the column first, a duration to int64 (its ticks) or to text"
_TICKS_PER_US = {"s": 1_000_000, "ms": 1_000}


class Arrays:
    """The columns of a batch, by name; ``names`` are the table's, ``overflow`` the one that may hold its own maps."""

    def __init__(self, data: pa.RecordBatch | pa.Table, names: Sequence[str], overflow: str) -> None:
        self.rows = data.num_rows
        self._known = dict.fromkeys(names)
        self.rounded: dict[str, int] = {}  # times that were finer than microseconds, by column
        self._spill = Spill()
        self._carried: pa.Array | None = None
        self._columns: dict[str, pa.Array] = {}
        self._dynamic: set[str] = set()
        for name in data.schema.names:
            if len(data.schema.get_all_field_indices(name)) > 1:
                raise InvalidInputError("a column occurs twice", column=name, kind="duplicate_column")
        for field, column in zip(data.schema, data.columns, strict=True):
            array = _simple(_one_chunk(column), field.name)
            if pa.types.is_string(array.type) and is_json(field):
                array = dynamic_of_json(array)
                self._dynamic.add(field.name)
            elif _is_dynamic(field, array.type):
                self._dynamic.add(field.name)
            if pa.types.is_null(array.type):
                continue
            if field.name == overflow and field.name in self._dynamic:
                self._carried = array if array.null_count < len(array) else None
            else:
                self._columns[field.name] = array

    @property
    def spilled(self) -> int:
        """How many values were spilled; maps that the rows carried already count as one each."""
        carried = 0 if self._carried is None else len(self._carried) - self._carried.null_count
        return self._spill.count + carried

    def names(self) -> Iterator[str]:
        """Yield the columns that have values: the table's first, then others in their order."""
        yield from (name for name in self._known if name in self._columns)
        yield from (name for name in self._columns if name not in self._known)

    def fold(self, name: str, into: str) -> bool:
        """Return all values of a column to another; not where a row has both, or where no type holds the two."""
        array, other = self._columns[name], self._columns.get(into)
        if (name in self._dynamic) != (into in self._dynamic) and other is not None:
            return False
        if other is not None:
            united = _united_columns(other, array)
            if united is None:
                return False
            array = united
        if name in self._dynamic:
            self._dynamic.add(into)
        self._columns = {into if key == name else key: held for key, held in self._columns.items()} | {into: array}
        return True

    def proposed(self, name: str) -> DataType | None:
        """Return the type that holds all values of a column, if they are scalars or vectors and there is one."""
        kind = self._columns[name].type
        if name in self._dynamic:
            return DataType("dynamic")
        if pa.types.is_uint64(kind):
            return DataType("long")
        if pa.types.is_time(kind) or (pa.types.is_decimal(kind) and Logical.from_arrow(kind) is None):
            return DataType("string")
        if self._is_vector(name):
            return DataType.from_arrow(kind)
        if (logical := Logical.from_arrow(kind)) is not None:
            return DataType.of(logical)
        try:
            return DataType.from_arrow(kind)
        except SchemaError:
            return None

    def _is_vector(self, name: str) -> bool:
        """Return whether a column has lists of one length, of floats, none of which is null."""
        array = self._columns[name]
        is_vector = pa.types.is_fixed_size_list(array.type) and pa.types.is_float32(array.type.value_type)
        return bool(is_vector) and 1 <= array.type.list_size <= MAX_DIMENSION and not array.flatten().null_count

    def has_reals(self, name: str) -> bool:
        """Whether a column has numbers that need not be whole."""
        array = self._columns[name]
        is_real = pa.types.is_floating(array.type) or (pa.types.is_decimal(array.type) and array.type.scale > 0)
        return bool(is_real and array.null_count < len(array))

    def spill_others(self, kept: Collection[str]) -> None:
        """Send all values of all other columns to the overflow column."""
        for name in self._columns:
            if name not in kept:
                self._spill_all(name)

    def overflow(self) -> pa.Array:
        return self._spill.array(self.rows, self._carried)

    def where(self, row: int) -> dict[str, int]:
        return {"row": row + 1}

    def raw(self, rows: Sequence[int]) -> list[tuple[int, str]]:
        """Return the numbers and the values of rows, as text."""
        made = [{name: array[row].as_py() for name, array in self._columns.items()} for row in rows]
        return [(row + 1, json.dumps(found, default=str)) for row, found in zip(rows, made, strict=True)]

    def shown(self, name: str, row: int) -> str:
        return str(self._columns[name][row])[:SHOWN_BYTES] if name in self._columns else "none"

    def column(self, name: str, kind: DataType) -> pa.Array:
        """Return a column as this type, or as long where a value is too large for an int; spill what does not fit."""
        array = self._columns[name]
        if kind.logical is not None:
            return self._logical(name, kind, kind.logical)
        if pa.types.is_decimal(array.type) and kind.kind in ("int", "long", "real", "string", "timestamp"):
            return self._one_by_one(name, kind)
        match kind.kind:
            case "int" | "long":
                return self._integers(name, kind)
            case "real":
                return self._reals(name)
            case "bool":
                return array if pa.types.is_boolean(array.type) else self._none(name, kind)
            case "string":
                if pa.types.is_time(array.type):
                    return array.cast(pa.string())
                return array if pa.types.is_string(array.type) else self._texts(name, kind)
            case "timestamp":
                return self._times(name, kind)
            case "vector":
                return self._vectors(name, kind)
            case "dynamic":
                if name in self._dynamic:
                    return array
                return self._one_by_one(name, kind)

    def _logical(self, name: str, kind: DataType, logical: Logical) -> pa.Array:
        """Return a column as a logical type: at once where its own type is that or converts to it, else one by one."""
        array = self._columns[name]
        if logical.kind == "timestamp_ntz" and pa.types.is_timestamp(array.type) and array.type.tz is not None:
            return self._none(name, kind)  # an instant is not a wall clock
        own = Logical.from_arrow(array.type)
        is_clock = logical.kind == "timestamp_ntz" and (
            pa.types.is_timestamp(array.type) or pa.types.is_date(array.type)
        )
        if is_clock:
            return stored(self._instants(name).view(logical.arrow), kind)
        if own is not None and own.kind == logical.kind and (own == logical or own.kind == "decimal"):
            with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
                return stored(array.cast(logical.arrow), kind)
        return self._one_by_one(name, kind)

    def _none(self, name: str, kind: DataType) -> pa.Array:
        self._spill_all(name)
        return pa.nulls(self.rows, kind.arrow)

    def _texts(self, name: str, kind: DataType) -> pa.Array:
        """Return numbers and booleans as JSON writes them."""
        array = self._columns[name]
        if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
            return array.cast(pa.string())
        if pa.types.is_floating(array.type):
            reals = array.cast(pa.float64()).to_pylist()
            return pa.array([None if real is None else real_text(real) for real in reals], pa.string())
        return self._none(name, kind)

    def _one_by_one(self, name: str, kind: DataType) -> pa.Array:
        rows, values = _values_of(self._columns[name], name)
        array, misfits = fit_all(values, kind, rows, self.rows, name)
        self._spill.add(name, [rows[at] for at in misfits], [values[at] for at in misfits])
        return array

    def _spill_all(self, name: str) -> None:
        self._spill_where(name, self._columns[name].is_valid().to_numpy(zero_copy_only=False))

    def _spill_where(self, name: str, mask: Flags) -> None:
        if not mask.any():
            return
        places = np.flatnonzero(mask)
        _, values = _values_of(self._columns[name].take(pa.array(places)), name)
        self._spill.add(name, places.tolist(), values)

    def _keep(self, name: str, array: pa.Array, fits: Flags) -> pa.Array:
        """Return an array with null for, and spill, the valid values that do not fit."""
        valid = self._columns[name].is_valid().to_numpy(zero_copy_only=False)
        if (fits | ~valid).all():
            return array
        self._spill_where(name, valid & ~fits)
        return pc.if_else(pa.array(fits), array, pa.scalar(None, array.type))

    def _integers(self, name: str, kind: DataType) -> pa.Array:
        array = self._columns[name]
        if not pa.types.is_integer(array.type):
            return self._none(name, kind)
        if pa.types.is_uint64(array.type):
            fits = pc.less(array, pa.scalar(2**63, pa.uint64())).fill_null(True).to_numpy(zero_copy_only=False)
            array = self._keep(name, array.cast(pa.int64(), safe=False), fits)
        array = array.cast(pa.int64())
        if kind.kind == "long":
            return array
        bounds = pc.min_max(array)
        low, high = bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
        return array if low < -(2**31) or high >= 2**31 else array.cast(pa.int32())

    def _reals(self, name: str) -> pa.Array:
        array = self._columns[name]
        if pa.types.is_floating(array.type):
            return array.cast(pa.float64())
        if not pa.types.is_integer(array.type):
            return self._none(name, DataType("real"))
        near = array.cast(pa.float64(), safe=False)
        if array.type.bit_width < 64:
            return near
        values, exact = near.fill_null(0).to_numpy(), array.fill_null(0).to_numpy()
        top = 2.0 ** (63 if pa.types.is_signed_integer(array.type) else 64)
        inside = values < top
        fits = inside & (np.where(inside, values, 0).astype(exact.dtype) == exact)
        return self._keep(name, near, fits)

    def _times(self, name: str, kind: DataType) -> pa.Array:
        array = self._columns[name]
        if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
            return self._instants(name).view(kind.arrow)
        if pa.types.is_string(array.type):
            times = times_of_texts(array)
        elif pa.types.is_integer(array.type):
            wide = array.cast(pa.int64(), safe=False).fill_null(0).to_numpy()
            times = times_of_ints(wide)
            if pa.types.is_uint64(array.type):
                times[wide < 0] = NO_TIME
        elif pa.types.is_floating(array.type):
            times = times_of_decimals(array.cast(pa.float64()).cast(pa.string()))
        else:
            return self._none(name, kind)
        fits = times != NO_TIME
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        made = pa.array(np.where(fits, times, 0), pa.int64(), mask=~(fits & valid)).view(kind.arrow)
        self._spill_where(name, valid & ~fits)
        return made

    def _instants(self, name: str) -> pa.Array:
        """Return timestamps and dates as whole microseconds, floored; what was finer is counted."""
        array = self._columns[name]
        if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
            finer = np.count_nonzero(array.view(pa.int64()).fill_null(0).to_numpy() % 1000)
            if finer:
                self.rounded[name] = int(finer)
        return _instants(array, name)

    def _vectors(self, name: str, kind: DataType) -> pa.Array:
        array, dimension = self._columns[name], cast(int, kind.dimension)
        if not (_is_list(array.type) and _is_number(array.type.value_type)):
            return self._one_by_one(name, kind)
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        held = array.drop_null()
        lengths = pc.list_value_length(held)
        flat = held.flatten()
        if pc.any(pc.not_equal(lengths, dimension)).as_py() or flat.null_count:
            return self._one_by_one(name, kind)  # which says where
        wide = flat.cast(pa.float64(), safe=False).to_numpy().reshape(-1, dimension)
        with np.errstate(over="ignore"):
            narrow = wide.astype(np.float32)
        if (np.isinf(narrow) & ~np.isinf(wide)).any():
            return self._one_by_one(name, kind)
        vectors = np.zeros((self.rows, dimension), dtype=np.float32)
        vectors[valid] = narrow
        return vector_array(kind.arrow, vectors, valid)


def _one_chunk(column: Any) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        if whole.num_chunks > 1:
            raise InvalidInputError("too much data for one call", bytes=column.nbytes, kind="too_large")
        return whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
    return whole


def _united_columns(one: pa.Array, other: pa.Array) -> pa.Array | None:
    """Return the values of two columns as one, or None where a row has both or no type holds the two."""
    valid = one.is_valid().to_numpy(zero_copy_only=False)
    if (valid & other.is_valid().to_numpy(zero_copy_only=False)).any():
        return None
    try:
        joined = pa.concat_arrays([one, other.cast(one.type)])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        try:
            joined = pa.concat_arrays([one.cast(other.type), other])
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
    return joined.take(pa.array(np.where(valid, np.arange(len(one)), np.arange(len(one)) + len(one))))


def _simple(array: pa.Array, name: str) -> pa.Array:
    """Undo the forms that only change how the same values lie in memory."""
    kind = array.type
    try:
        if isinstance(kind, pa.BaseExtensionType):
            return _storage(array, name)
        if pa.types.is_dictionary(kind):
            return _simple(array.dictionary, name).take(array.indices)  # views first: Arrow cannot take from them
        if pa.types.is_run_end_encoded(kind):
            return _simple(pc.run_end_decode(array), name)
        if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return array.cast(pa.string())
        if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
            return array.cast(pa.binary())
        if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
            return _list_of_view(array)
    except pa.ArrowInvalid as error:
        raise InvalidInputError("the column cannot be read", column=name, reason=error, kind="too_large") from error
    if pa.types.is_duration(kind) or pa.types.is_interval(kind) or pa.types.is_union(kind):
        raise SchemaError(_UNSUPPORTED, column=name, type=kind, kind="unsupported_type")
    return array


def _list_of_view(array: pa.Array) -> pa.Array:
    """Return list views as lists, which Arrow's own cast makes wrongly."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy()
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return pa.ListArray.from_arrays(offsets, array.flatten(), mask=array.is_null())


def _storage(array: pa.Array, name: str) -> pa.Array:
    """Return the values of an extension type: as they are stored, where that says what they are."""
    extension = array.type.extension_name
    if extension == "arrow.bool8":
        return pc.not_equal(array.storage, pa.scalar(0, pa.int8()))
    if extension.startswith("pandas."):
        raise SchemaError(_UNSUPPORTED, column=name, type=extension, kind="unsupported_type")
    return _simple(array.storage, name)


def _is_dynamic(field: pa.Field, kind: pa.DataType) -> bool:
    metadata = field.metadata or {}
    return pa.types.is_binary(kind) and all(metadata.get(key) == value for key, value in DYNAMIC_FIELD.items())


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _instants(array: pa.Array, name: str) -> pa.Array:
    """Return timestamps and dates as whole microseconds, floored."""
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("ms"))
    ticks = array.view(pa.int64())
    match array.type.unit:
        case "us":
            return ticks
        case "ns":
            floored = ticks.fill_null(0).to_numpy() // 1000
            return pa.array(floored, mask=ticks.is_null().to_numpy(zero_copy_only=False))
        case unit:
            try:
                return pc.multiply_checked(ticks, _TICKS_PER_US[unit])
            except pa.ArrowInvalid:
                limit = 2**63 // _TICKS_PER_US[unit]
                row = int(np.argmax(np.abs(ticks.fill_null(0).to_numpy().astype(np.float64)) >= limit))
                raise InvalidInputError(
                    "time out of range", row=row + 1, column=name, value=ticks[row], unit=unit, kind="bad_time"
                ) from None


def _values_of(array: pa.Array, name: str) -> tuple[list[int], list[Any]]:
    """Return the rows and the Python values of what is not null."""
    try:
        if _is_python_ready(array.type):
            values = array.to_pylist(maps_as_pydicts="strict")
        else:
            values = [_value_of(scalar) for scalar in array]
    except KeyError:  # a map with a key twice
        values = [_value_of(scalar) for scalar in array]
    except (OverflowError, ValueError) as error:
        raise InvalidInputError("a time out of range", column=name, reason=error, kind="bad_time") from error
    rows = [row for row, value in enumerate(values) if value is not None]
    return rows, [values[row] for row in rows]


def _is_python_ready(kind: pa.DataType) -> bool:
    """Return whether Arrow's own conversion of this type loses nothing and knows no other form."""
    if pa.types.is_timestamp(kind):
        return bool(kind.unit != "ns")
    if pa.types.is_map(kind):
        return pa.types.is_string(kind.key_type) and _is_python_ready(kind.item_type)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return len(set(names)) == len(names) and all(_is_python_ready(field.type) for field in kind)
    if pa.types.is_nested(kind):
        return _is_list(kind) and _is_python_ready(kind.value_type)
    return not (pa.types.is_time64(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind))


def _value_of(scalar: pa.Scalar) -> Any:
    """Return one value in Python, times floored to microseconds, a map as pairs where a key is no text or not alone."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if isinstance(kind, pa.BaseExtensionType):
        return _value_of(scalar.value)
    if pa.types.is_dictionary(kind) or pa.types.is_union(kind):
        return _value_of(scalar.value)
    if pa.types.is_map(kind):
        pairs = [(_value_of(item["key"]), _value_of(item["value"])) for item in scalar.values]
        is_plain = all(isinstance(key, str) for key, _ in pairs) and len(dict(pairs)) == len(pairs)
        return dict(pairs) if is_plain else [list(pair) for pair in pairs]
    if pa.types.is_struct(kind):
        pairs = [(field.name, _value_of(scalar[at])) for at, field in enumerate(kind)]
        return dict(pairs) if len(dict(pairs)) == len(pairs) else [list(pair) for pair in pairs]
    if pa.types.is_nested(kind):
        return [_value_of(item) for item in scalar.values]
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        floored = pa.scalar(scalar.value // 1000, pa.timestamp("us"))
        return cast(datetime, floored.as_py()).replace(tzinfo=UTC)
    if pa.types.is_time64(kind):
        return str(scalar.cast(pa.string()))
    return scalar.as_py()
