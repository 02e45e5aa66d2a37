"""Turn dynamic values into forms that people and programs outside can use: JSON text, structs or Python objects.

Inside, a dynamic value is CBOR, and a stream may carry it as such (``cbor``). ``json``, the default of every way out,
is text in a field that says so, so that what was read can be appended again. ``struct`` needs all values at once, and
one type at each path. It does not read tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic.values import decode as decode_value
from tidelake.errors import InvalidInputError
from tidelake.model.schema import DYNAMIC_FIELD, JSON_FIELD
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    import pyarrow.json as arrow_json

    from tidelake.dynamic import cbor_json
else:  # one brings a compiler, the other a reader that few need
    cbor_json, arrow_json = deferred("tidelake.dynamic.cbor_json"), deferred("pyarrow.json")

Form = Literal["json", "struct", "cbor"]
FORMS = ("json", "struct", "cbor")
_NAME = "v"


def check_form(form: str) -> None:
    """Refuse a form that there is not."""
    if form not in FORMS:
        raise InvalidInputError(f"dynamic is one of {', '.join(FORMS)}", got=form, kind="bad_form")


def stream_in_form(rows: pa.RecordBatchReader, form: str) -> pa.RecordBatchReader:
    """Return a stream whose dynamic columns are in a form; structs need all rows, so a stream cannot have them."""
    check_form(form)
    if form == "struct":
        raise InvalidInputError(
            "a stream's types are known before its rows: read structs with to_arrow, to_pandas or to_polars",
            kind="bad_form",
        )
    places = [at for at, field in enumerate(rows.schema) if _is_dynamic(field)]
    if form == "cbor" or not places:
        return rows
    schema = rows.schema
    for at in places:
        schema = schema.set(at, _json_field(schema.field(at)))

    def converted() -> Iterable[pa.RecordBatch]:
        for batch in rows:
            arrays = [cbor_json.json_of(array) if at in places else array for at, array in enumerate(batch.columns)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, converted())


def table_in_form(rows: pa.RecordBatchReader, form: str) -> pa.Table:
    """Read a stream whole, with dynamic columns in a form."""
    check_form(form)
    if form != "struct":
        return stream_in_form(rows, form).read_all()
    table = stream_in_form(rows, "json").read_all()
    for at, field in enumerate(table.schema):
        if (field.metadata or {}).get(b"tidelake.type") == JSON_FIELD[b"tidelake.type"]:
            structs = _structs_of(table.column(at), field.name)
            table = table.set_column(at, pa.field(field.name, structs.type), structs)
    return table


def decode(column: Any, to: Literal["python", "json", "struct"] = "python") -> Any:
    """Return the dynamic values of a column as Python objects, as JSON texts or as an Arrow array of structs.

    A column is an Arrow array, a polars or pandas series, or a list: of JSON texts, as queries and scans give dynamic
    values, or of CBOR bytes.
    """
    if to not in ("python", "json", "struct"):
        raise InvalidInputError("to is python, json or struct", got=to, kind="bad_form")
    array = _arrow_of(column)
    if pa.types.is_binary(array.type) and to == "python":
        return [None if value is None else decode_value(value) for value in array.to_pylist()]
    texts = array if pa.types.is_string(array.type) else cbor_json.json_of(array)
    if to == "json":
        return texts.to_pylist()
    if to == "struct":
        return _structs_of(pa.chunked_array([texts]), "column").combine_chunks()
    return [None if text is None else orjson.loads(text) for text in texts.to_pylist()]


def _arrow_of(column: Any) -> pa.Array:
    if hasattr(column, "to_arrow"):  # a polars series
        column = column.to_arrow()
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        column = pa.array(column, from_pandas=True)
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type) or pa.types.is_null(array.type):
        return array.cast(pa.utf8())
    if pa.types.is_large_binary(array.type) or pa.types.is_binary_view(array.type):
        return array.cast(pa.binary())
    if not pa.types.is_string(array.type) and not pa.types.is_binary(array.type):
        raise InvalidInputError("dynamic values are JSON texts or CBOR bytes", type=array.type, kind="bad_form")
    return array


def _structs_of(texts: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Parse JSON texts into Arrow values of one type, by Arrow's own reader."""
    if texts.null_count == len(texts):
        return pa.chunked_array([pa.nulls(len(texts))])
    lines = pc.binary_join_element_wise(f'{{"{_NAME}":', pc.fill_null(texts, "null"), "}\n", "")
    data = b"".join(chunk.buffers()[2].slice(0, pc.sum(pc.binary_length(chunk)).as_py()) for chunk in lines.chunks)
    options = arrow_json.ReadOptions(block_size=max(1 << 20, len(data) + 1))  # one block: types are those of all values
    try:
        return arrow_json.read_json(pa.BufferReader(data), read_options=options).column(_NAME)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            "the values have several types at a path, so no struct holds them: use dynamic='json'",
            column=name, reason=error, kind="mixed_types",
        ) from error  # fmt: skip


def _is_dynamic(field: pa.Field) -> bool:
    return (
        pa.types.is_binary(field.type)
        and (field.metadata or {}).get(b"tidelake.type") == DYNAMIC_FIELD[b"tidelake.type"]
    )


def _json_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.utf8(), field.nullable, JSON_FIELD)
