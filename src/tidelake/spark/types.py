"""Say what a table's columns are in Spark, and bring Arrow batches from one form to the other.

==========  ==============  ==========================================
table       Spark           Arrow, on its way to and from Spark
==========  ==============  ==========================================
dynamic     VARIANT         struct of two binaries: see ``variant``
vector(N)   ARRAY<FLOAT>    list of floats
timestamp   TIMESTAMP       microseconds UTC
others      their namesake  as the table has them
==========  ==============  ==========================================

It does not read or write tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from tidelake.errors import InvalidInputError, NotFoundError, SchemaError
from tidelake.schema import DYNAMIC_FIELD, DataType, Schema

_SPARK_TYPES: dict[str, t.DataType] = {
    "int": t.IntegerType(),
    "long": t.LongType(),
    "real": t.DoubleType(),
    "bool": t.BooleanType(),
    "string": t.StringType(),
    "timestamp": t.TimestampType(),
    "dynamic": t.VariantType(),
    "vector": t.ArrayType(t.FloatType(), containsNull=False),
}
_TABLE_TYPES: tuple[tuple[type[t.DataType], str], ...] = (
    (t.BooleanType, "bool"),
    (t.ByteType, "int"),
    (t.ShortType, "int"),
    (t.IntegerType, "int"),
    (t.LongType, "long"),
    (t.FloatType, "real"),
    (t.DoubleType, "real"),
    (t.StringType, "string"),
    (t.TimestampType, "timestamp"),
    (t.TimestampNTZType, "timestamp"),
    (t.DateType, "timestamp"),
    (t.TimeType, "string"),
    (t.VariantType, "dynamic"),
    (t.ArrayType, "dynamic"),
    (t.MapType, "dynamic"),
    (t.StructType, "dynamic"),
    (t.BinaryType, "dynamic"),
)
# What a column takes besides its own type, because all of its values, or nearly all, fit; the rest overflows.
_TAKES: dict[str, tuple[str, ...]] = {
    "int": ("long", "real"),
    "long": ("int", "real"),
    "real": ("int", "long"),
    "string": ("int", "long", "real", "bool"),
}
_WIDER = {("int", "long"), ("int", "real"), ("long", "real")}  # what makes the column another
_REAL_DIGITS, _LONG_DIGITS = 15, 18  # decimals of so many digits come back as they were


def spark_type(kind: DataType) -> t.DataType:
    """Give Spark's type of a column."""
    return _SPARK_TYPES[kind.kind]


def spark_schema(schema: Schema, names: Iterable[str] | None = None) -> t.StructType:
    """Give Spark's schema of these columns, or of all."""
    chosen = schema.names if names is None else tuple(names)
    return t.StructType([t.StructField(name, spark_type(schema[name].type)) for name in chosen])


def projected(schema: Schema, asked: t.StructType, table: str) -> tuple[str, ...]:
    """Give the columns that a user's schema asks for; one that is not there, or not of that type, is an error."""
    for field in asked:
        if field.name not in schema:
            raise NotFoundError(
                "no such column", column=field.name, table=table, columns=", ".join(schema.names), kind="no_column"
            )
        has, wanted = spark_type(schema[field.name].type).simpleString(), field.dataType.simpleString()
        if has != wanted:
            raise SchemaError(
                "the schema asks for another type", column=field.name, table=table, has=has, wanted=wanted
            )
    return tuple(field.name for field in asked)


def widened(schema: Schema, rows: t.StructType, table: str) -> Schema:
    """Give the schema that holds a table and these rows; what would narrow a column is an error."""
    wider: list[tuple[str, DataType]] = []
    for field in rows:
        kind = table_type(field.dataType, field.name)
        if field.name in schema:
            held = schema[field.name].type
            if held.kind == kind.kind == "dynamic" or held.kind == "dynamic":
                continue
            if held.kind == "vector" and isinstance(field.dataType, t.ArrayType):
                continue
            if kind.kind in (held.kind, *_TAKES.get(held.kind, ())):
                wider.append((field.name, kind if (held.kind, kind.kind) in _WIDER else held))
                continue
            raise SchemaError(
                "a write cannot narrow or replace a column's type",
                column=field.name,
                table=table,
                has=held,
                wanted=field.dataType.simpleString(),
                kind="narrowing",
            )
        wider.append((field.name, kind))
    return schema.widen(wider)


def table_type(kind: t.DataType, name: str) -> DataType:
    """Give the type of a new column for values of one of Spark's types."""
    if isinstance(kind, t.DecimalType):
        if kind.scale == 0 and kind.precision <= _LONG_DIGITS:
            return DataType("long")
        return DataType("real" if kind.precision <= _REAL_DIGITS else "string")
    for spark, ours in _TABLE_TYPES:
        if isinstance(kind, spark):
            return DataType.parse(ours)
    raise SchemaError("unsupported spark type", column=name, type=kind.simpleString(), kind="unsupported_type")


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """Give the Arrow schema that Spark itself expects of this schema, exactly."""
    found = to_arrow_schema(schema, timezone="UTC")
    assert isinstance(found, pa.Schema)
    return found


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give a table's rows as Spark expects them; the columns are those of ``schema``, in its order."""
    arrays = [_to_spark(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give Spark's rows as coercion takes them: variants as dynamic values, said to be such."""
    arrays, fields = [], []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if _is_variant(field.type):
            from tidelake.spark.variant import dynamics_of

            arrays.append(dynamics_of(array))
            fields.append(pa.field(field.name, pa.binary(), metadata=DYNAMIC_FIELD))
        else:
            arrays.append(array)
            fields.append(pa.field(field.name, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _to_spark(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type == field.type:
        return array
    if _is_variant(field.type):
        from tidelake.spark.variant import variants_of

        value, metadata = variants_of(array)
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays([value, metadata], fields=list(field.type), mask=mask)
    if pa.types.is_list(field.type) and pa.types.is_fixed_size_list(array.type):
        return _list_of(array, field.type)
    raise InvalidInputError("a column is not as Spark expects it", column=field.name, has=array.type, wants=field.type)


def _list_of(vectors: pa.FixedSizeListArray, kind: pa.DataType) -> pa.Array:
    """Give vectors as lists; the numbers stay where they are, those of a null are passed over."""
    valid = np.asarray(vectors.is_valid().to_numpy(zero_copy_only=False))
    lengths = np.where(valid, vectors.type.list_size, 0)
    offsets = np.zeros(len(vectors) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    numbers = vectors.drop_null().flatten()
    nulls = pa.py_buffer(np.packbits(valid, bitorder="little")) if vectors.null_count else None
    return pa.Array.from_buffers(
        kind, len(vectors), [nulls, pa.py_buffer(offsets)], vectors.null_count, children=[numbers]
    )


def _is_variant(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or kind.num_fields != 2:
        return False
    return any((field.metadata or {}).get(b"variant") == b"true" for field in _fields(kind))


def _fields(kind: pa.DataType) -> Iterator[pa.Field]:
    return (kind.field(at) for at in range(kind.num_fields))
