"""Write rows as JSON, whole columns at a time.

Every column becomes a column of JSON texts, and a row is those joined, so that a million rows take as many steps as
one. Times are RFC 3339 in UTC, bytes base64, decimals and durations text, a map is an object; NaN and the infinities,
which JSON lacks, are null. A dynamic value, be it stored or a query's JSON text, is nested as it is. What comes out is
always JSON, each row on one line. A few rows of plain types take fewer steps one by one, and come out the same. It does
not write files: see ``writing``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic.cbor_json import json_of
from tidelake.model.schema import DYNAMIC_FIELD, JSON_FIELD

FEW_CELLS = 300  # up to which rows are written one by one: 72 cells took less processor time so, 900 took more
PIECE_BYTES = 8 << 20  # of rows that are written at a time; their text must stay far below Arrow's 2 GiB

_ESCAPED = r'["\\\x00-\x1f]'
_CONTROLS = r"[\x00-\x1f]"
_ESCAPES = [("\\", "\\\\"), ('"', '\\"')] + [(chr(code), json.dumps(chr(code))[1:-1]) for code in range(32)]
_ODD_JSON = r"NaN|Infinity|[\n\r]"  # what DuckDB writes for numbers that JSON lacks, and lines in what others wrote
_NULL = pa.scalar("null")
_EPOCH = datetime(1970, 1, 1)
_PLAIN_REALS = (1e-3, 1e9)  # between which Arrow and Python write reals alike, without an exponent


def row_texts(batch: pa.RecordBatch, *, before: str = "", after: str = "") -> Iterator[memoryview]:
    """Yield the rows of a batch as JSON objects, each between two texts, in pieces of many rows."""
    places = {name: at for at, name in enumerate(batch.schema.names)}  # of a name that occurs twice, the last
    if 0 < batch.num_rows * len(places) <= FEW_CELLS and (values := _few_values(batch)) is not None:
        rows = [orjson.dumps(dict(zip(batch.schema.names, row, strict=True))) for row in zip(*values, strict=True)]
        head, tail = before.encode(), after.encode()
        yield memoryview(head + (tail + head).join(rows) + tail)
        return
    step = max(1, PIECE_BYTES * batch.num_rows // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, step):
        piece = batch.slice(start, step)
        columns = {name: column_texts(piece.schema.field(at), piece.column(at)) for name, at in places.items()}
        yield _bytes_of(_objects(columns, piece.num_rows, before=before, after=after))


def column_texts(field: pa.Field, column: pa.Array) -> pa.Array:
    """Return each value of a column as JSON text; null is ``null``."""
    if is_marked(field, DYNAMIC_FIELD):
        return _or_null(json_of(column))
    if is_marked(field, JSON_FIELD):
        return _or_null(_clean(column))
    if isinstance(column.type, pa.JsonType):
        return _or_null(_clean(column.storage))
    return _texts(column)


def is_marked(field: pa.Field, mark: Mapping[bytes, bytes]) -> bool:
    """Return whether a field's metadata says that its values are dynamic ones, in one form or the other."""
    return bool(field.metadata) and all(field.metadata.get(key) == value for key, value in mark.items())


def plain_texts(column: pa.Array) -> pa.Array | None:
    """Return times, dates and decimals as text without quotes, nulls left null; None of another type."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _times(column)
    if pa.types.is_time(kind):
        return _without_zeros(column.cast(pa.utf8()))
    if pa.types.is_date32(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.utf8())
    if pa.types.is_date64(kind):
        return column.cast(pa.date32()).cast(pa.utf8())
    return None


def json_value(value: Any) -> Any:
    """Return a value as JSON can hold it: times as text, bytes as base64, no NaN."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case timedelta() | Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(key): json_value(inner) for key, inner in value.items()}
        case Sequence():
            return [json_value(inner) for inner in value]
        case _:
            return str(value)


def _few_values(batch: pa.RecordBatch) -> list[list[Any]] | None:
    """Return the columns of a few rows as values that are written alone as they are in columns; None if one is not."""
    found = []
    for at, field in enumerate(batch.schema):
        values = None if field.metadata else _plain_values(batch.column(at))
        if values is None:
            return None
        found.append(values)
    return found


def _plain_values(column: pa.Array) -> list[Any] | None:
    kind = column.type
    if kind == pa.int64() or kind == pa.int32() or kind == pa.utf8() or kind == pa.bool_():
        return column.to_pylist()  # type: ignore[no-any-return]
    if kind == pa.float64():
        reals = column.to_pylist()
        low, high = _PLAIN_REALS
        return reals if all(not real or not math.isfinite(real) or low <= abs(real) < high for real in reals) else None
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        zone = "" if kind.tz is None else "Z"
        times = column.view(pa.int64()).to_pylist()
        try:
            return [None if us is None else (_EPOCH + timedelta(microseconds=us)).isoformat() + zone for us in times]
        except OverflowError:  # years that the calendar of Python lacks
            return None
    return None


def _texts(column: pa.Array) -> pa.Array:
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _texts(column.storage)
    if pa.types.is_dictionary(kind):
        return _texts(column.cast(kind.value_type))
    if pa.types.is_null(kind):
        return pa.repeat(_NULL, len(column))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _or_null(column.cast(pa.utf8()))
    if pa.types.is_floating(kind):
        return _or_null(_reals(column))
    for is_text in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view):
        if is_text(kind):
            return _or_null(_quoted(_escaped(column.cast(pa.utf8()))))
    if (plain := plain_texts(column)) is not None:
        return _or_null(_quoted(plain))
    if pa.types.is_struct(kind):
        fields = [(kind.field(at), column.field(at)) for at in range(kind.num_fields)]
        columns = {field.name: column_texts(field, values) for field, values in fields}
        return _where_held(column, _objects(columns, len(column)))
    if pa.types.is_map(kind):
        return _lists(column, _entries, "{", "}")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column, lambda lists: column_texts(kind.value_field, lists.values), "[", "]")
    if pa.types.is_fixed_size_list(kind):
        return _texts(column.cast(pa.list_(kind.value_field)))
    return pa.array([orjson.dumps(json_value(value)).decode() for value in column.to_pylist()], pa.utf8())


def _objects(columns: Mapping[str, pa.Array], rows: int, *, before: str = "", after: str = "") -> pa.Array:
    parts: list[Any] = []
    for at, (name, texts) in enumerate(columns.items()):
        parts += [f"{',' if at else before + '{'}{json.dumps(name, ensure_ascii=False)}:", texts]
    if not parts:
        return pa.repeat(pa.scalar(before + "{}" + after), rows)
    return pc.binary_join_element_wise(*parts, "}" + after, "")


def _lists(column: pa.Array, texts_of: Callable[[pa.Array], pa.Array], start: str, end: str) -> pa.Array:
    """Join the texts of what each list holds."""
    texts = pa.LargeListArray.from_arrays(column.offsets.cast(pa.int64()), texts_of(column))
    return _where_held(column, pc.binary_join_element_wise(start, pc.binary_join(texts, ","), end, ""))


def _entries(column: pa.MapArray) -> pa.Array:
    """Return a map's entries as members of an object; a key that is no text becomes one."""
    keys = column_texts(column.type.key_field, column.keys)
    if not pa.types.is_string(column.type.key_type):
        is_quoted = pc.starts_with(keys, '"')
        keys = pc.if_else(is_quoted, keys, _quoted(_escaped(keys)))
    return pc.binary_join_element_wise(keys, column_texts(column.type.item_field, column.items), ":")


def _reals(column: pa.Array) -> pa.Array:
    """Write reals so that they read back as reals, and equal."""
    texts = column.cast(pa.utf8())
    if pc.any(pc.equal(pc.trunc(column), column)).as_py():
        is_bare = pc.match_substring_regex(texts, r"^-?\d+$")
        texts = pc.if_else(is_bare, pc.binary_join_element_wise(texts, ".0", ""), texts)
    return pc.if_else(pc.is_finite(column), texts, pa.scalar(None, pa.utf8()))


def _times(column: pa.Array) -> pa.Array:
    zone = "" if column.type.tz is None else "Z"
    plain = column.cast(pa.timestamp(column.type.unit, tz="UTC")) if zone else column
    texts = plain.cast(pa.timestamp(column.type.unit)).cast(pa.utf8())  # without a zone: ten times as quick
    texts = _without_zeros(pc.replace_substring(texts, " ", "T", max_replacements=1))
    return pc.binary_join_element_wise(texts, zone, "") if zone else texts


def _without_zeros(texts: pa.Array) -> pa.Array:
    """Leave out a fraction of a second that is none."""
    return pc.replace_substring_regex(texts, r"\.0+$", "") if pc.any(pc.ends_with(texts, "000")).as_py() else texts


def _escaped(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return texts
    rare = pc.any(pc.match_substring_regex(texts, _CONTROLS)).as_py()
    for letter, escape in _ESCAPES if rare else _ESCAPES[:2]:
        if pc.any(pc.match_substring(texts, letter)).as_py():
            texts = pc.replace_substring(texts, letter, escape)
    return texts


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _clean(texts: pa.Array) -> pa.Array:
    """Return JSON texts on one line each, and with null for what DuckDB writes of numbers that JSON lacks."""
    odd = pc.fill_null(pc.match_substring_regex(texts, _ODD_JSON), False)
    if not pc.any(odd).as_py():
        return texts
    mended = [_mended(text) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(mended, pa.utf8()))


def _mended(text: str) -> str:
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except ValueError:  # no JSON after all: a text
        value = text
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _or_null(texts: pa.Array) -> pa.Array:
    return pc.fill_null(texts, _NULL)


def _where_held(column: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), texts, _NULL) if column.null_count else texts


def _bytes_of(texts: pa.Array) -> memoryview:
    """Return the bytes of texts that are all held, one after the other."""
    _, offsets, data = texts.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(data or b"")[ends[texts.offset] : ends[texts.offset + len(texts)]]
