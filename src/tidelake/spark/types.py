"""Define what a table's columns are in Spark, and bring Arrow batches from one form to the other.

==========  ==============  ==========================================
table       Spark           Arrow, on its way to and from Spark
==========  ==============  ==========================================
dynamic     VARIANT         struct of two binaries: see ``variant``
vector(N)   ARRAY<FLOAT>    list of floats
timestamp   TIMESTAMP       microseconds UTC
others      their namesake  as the table has them
==========  ==============  ==========================================

A column with a logical type is of that type; asked for as the plain type that keeps it (a date as TIMESTAMP, a struct
as VARIANT), it comes as that. Of two columns that only case tells apart the second is ``name_2`` in Spark. It does not
read or write tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from tidelake.errors import InvalidInputError, NotFoundError, SchemaError
from tidelake.logical import shown, shown_as_plain
from tidelake.model.logical_types import OF_COLUMNS, Logical, decimal
from tidelake.model.schema import DYNAMIC_FIELD, DataType, Schema, told_apart
from tidelake.spark.lines import TIMES_OF_DAY, arrow_of

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
    *((kind, "string") for kind in TIMES_OF_DAY),
    (t.VariantType, "dynamic"),
)
_LEAVES: tuple[tuple[type[t.DataType], str], ...] = (
    (t.BooleanType, "bool"),
    (t.ByteType, "tinyint"),
    (t.ShortType, "smallint"),
    (t.IntegerType, "int"),
    (t.LongType, "long"),
    (t.FloatType, "float"),
    (t.DoubleType, "real"),
    (t.StringType, "string"),
    (t.TimestampType, "timestamp"),
    (t.TimestampNTZType, "timestamp_ntz"),
    (t.DateType, "date"),
    (t.BinaryType, "binary"),
)
_SPARK_LEAVES = {name: kind() for kind, name in _LEAVES}
# What a column takes that has another logical type than it, or none: all of its values, or nearly all, fit.
_TAKES_LOGICAL: dict[str, tuple[str, ...]] = {
    "timestamp": ("date", "timestamp_ntz"),
    "timestamp_ntz": ("date",),
    "long": ("decimal",),
    "real": ("decimal",),
    "string": ("decimal",),
    "decimal": ("decimal", "int", "long", "real"),
}
# What a column takes besides its own type, because all of its values, or nearly all, fit; the rest overflows.
_TAKES: dict[str, tuple[str, ...]] = {
    "int": ("long", "real"),
    "long": ("int", "real"),
    "real": ("int", "long"),
    "string": ("int", "long", "real", "bool"),
}
_WIDER = {("int", "long"), ("int", "real"), ("long", "real")}  # what makes the column another


def spark_type(kind: DataType) -> t.DataType:
    """Return Spark's type of a column."""
    return _SPARK_TYPES[kind.kind] if kind.logical is None else _logical_type(kind.logical)


def plain_type(kind: DataType) -> t.DataType:
    """Return Spark's type of a column that is asked for without its logical type; decimals stay decimals."""
    match kind.logical and kind.logical.kind:
        case "date":
            return t.TimestampType()
        case "decimal":
            return spark_type(kind)
        case _:
            return _SPARK_TYPES[kind.kind]


def spark_schema(schema: Schema, names: Iterable[str] | None = None, *, plain: bool = False) -> t.StructType:
    """Return Spark's schema of these columns, or of all."""
    chosen = schema.names if names is None else tuple(names)
    type_of, shown_as = plain_type if plain else spark_type, told_apart(schema.names)
    return t.StructType([t.StructField(shown_as[schema[n].name], type_of(schema[n].type)) for n in chosen])


def projected(schema: Schema, asked: t.StructType, table: str) -> tuple[str, ...]:
    """Return the columns that a user's schema asks for; one that is not there, or not of that type, is an error."""
    own = spark_names(schema)
    for field in asked:
        if field.name not in own:
            raise NotFoundError(
                "no such column", column=field.name, table=table, columns=", ".join(own), kind="no_column"
            )
        kind, wanted = schema[own[field.name]].type, field.dataType.simpleString()
        has = spark_type(kind).simpleString()
        if wanted not in (has, plain_type(kind).simpleString()):
            raise SchemaError(
                "the schema asks for another type", column=field.name, table=table, has=has, wanted=wanted
            )
    return tuple(own[field.name] for field in asked)


def spark_names(schema: Schema) -> dict[str, str]:
    """Return the columns of a table by their names in Spark."""
    return {shown_as: name for name, shown_as in told_apart(schema.names).items()}


def own_names(schema: Schema, names: Iterable[str]) -> dict[str, str]:
    """Return the columns that Spark's columns are written to: by name, by name in Spark, or else whatever the case.

    A column that is none of these, or of which there is another spelling too, is a new one.
    """
    offered, in_spark = list(names), spark_names(schema)
    exact = {name: name if name in schema else in_spark[name] for name in offered if name in schema or name in in_spark}
    free = {name.lower(): name for name in reversed(schema.names) if name not in exact.values()}
    found = dict(exact)
    for name in offered:
        if name not in found:
            found[name] = free.pop(name.lower(), name)
    return found


def widened(schema: Schema, rows: t.StructType, table: str) -> Schema:
    """Return the schema that holds a table and these rows; what would narrow a column is an error."""
    wider: list[tuple[str, DataType]] = []
    own = own_names(schema, rows.fieldNames())
    for field in (t.StructField(own[each.name], each.dataType) for each in rows):
        kind = (_table_type if field.name in schema else table_type)(field.dataType, field.name)
        if field.name in schema:
            held = schema[field.name].type
            if _takes(held, kind):
                wider.append((field.name, kind if held.logical and _is_wider(held, kind) else held))
                continue
            if held.kind == "dynamic" and held.logical is None:
                continue
            if held.kind == "vector" and isinstance(field.dataType, t.ArrayType):
                continue
            if not (held.logical or kind.logical) and kind.kind in (held.kind, *_TAKES.get(held.kind, ())):
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
    """Return the type of a new column for values of one of Spark's types."""
    if _is_collated(kind):
        raise SchemaError(
            "texts of a lake are compared byte by byte: cast them to STRING", column=name, type=kind.simpleString(),
            kind="unsupported_type",
        )  # fmt: skip
    return _table_type(kind, name)


def _table_type(kind: t.DataType, name: str) -> DataType:
    """Return the type of a column for values of one of Spark's types, whose collations are not looked at."""
    if (logical := _logical_of(kind)) is not None and logical.kind in OF_COLUMNS:
        return DataType.of(logical)
    for spark, ours in _TABLE_TYPES:
        if isinstance(kind, spark):
            return DataType.parse(ours)
    said = "unsupported spark type"
    if isinstance(kind, t.CharType | t.VarcharType):
        said += ": lengths are not checked here, a text is a STRING"
    raise SchemaError(said, column=name, type=kind.simpleString(), kind="unsupported_type")


def _is_collated(kind: t.DataType) -> bool:
    """Return whether values have texts that Spark compares otherwise than byte by byte."""
    match kind:
        case t.StringType():
            return kind.collation != t.StringType().collation
        case t.StructType():
            return any(_is_collated(field.dataType) for field in kind)
        case t.ArrayType():
            return _is_collated(kind.elementType)
        case t.MapType():
            return _is_collated(kind.keyType) or _is_collated(kind.valueType)
        case _:
            return False


def _takes(held: DataType, kind: DataType) -> bool:
    """Return whether a column takes values of another type, at least one of the two being logical."""
    if held.logical is None and kind.logical is None:
        return False
    names = [each.kind if each.logical is None else each.logical.kind for each in (held, kind)]
    return held == kind or names[1] in _TAKES_LOGICAL.get(names[0], ())


def _is_wider(held: DataType, kind: DataType) -> bool:
    """Return whether a decimal column can become one of more digits, kept alike."""
    one, other = held.logical, kind.logical
    both = one is not None and other is not None and one.kind == other.kind == "decimal"
    return both and held.kind == kind.kind and one.scale == other.scale and one.precision < other.precision  # type: ignore[union-attr]


def _logical_type(kind: Logical) -> t.DataType:
    match kind.kind:
        case "decimal":
            return t.DecimalType(kind.precision, kind.scale)
        case "struct":
            pairs = zip(kind.names, kind.parts, strict=True)
            return t.StructType([t.StructField(name, _logical_type(part)) for name, part in pairs])
        case "array":
            return t.ArrayType(_logical_type(kind.parts[0]))
        case "map":
            return t.MapType(_logical_type(kind.parts[0]), _logical_type(kind.parts[1]))
        case name:
            return _SPARK_LEAVES[name]


def _logical_of(kind: t.DataType) -> Logical | None:
    """Return the logical type of values of one of Spark's types, or None if a nested one has parts that we lack."""
    match kind:
        case t.DecimalType():
            return decimal(kind.precision, kind.scale)
        case t.StructType():
            parts = [_logical_of(field.dataType) for field in kind]
            names = tuple(field.name for field in kind)
            is_plain = names and len({name.lower() for name in names}) == len(names)
            known = tuple(part for part in parts if part is not None)
            return Logical("struct", known, names) if is_plain and len(known) == len(parts) else None
        case t.ArrayType():
            element = _logical_of(kind.elementType)
            return None if element is None else Logical("array", (element,))
        case t.MapType():
            key, value = _logical_of(kind.keyType), _logical_of(kind.valueType)
            return None if key is None or value is None or key.is_nested else Logical("map", (key, value))
        case _:
            return next((Logical(name) for leaf, name in _LEAVES if type(kind) is leaf), None)


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """Return the Arrow schema that Spark itself expects of this schema, exactly."""
    return arrow_of(schema)


def to_spark(batch: pa.RecordBatch, schema: pa.Schema, kinds: Mapping[str, DataType]) -> pa.RecordBatch:
    """Return a table's stored rows as Spark expects them; the columns are those of ``schema``, in its order."""
    columns = zip(batch.schema.names, batch.columns, schema, strict=True)
    arrays = [_to_spark(_meant(array, kinds[name], field), field) for name, array, field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_spark(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return Spark's rows as coercion takes them: in the table's names, variants as dynamic values, said to be such."""
    arrays, fields = [], []
    own = own_names(schema, batch.schema.names)
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if _is_variant(field.type):
            from tidelake.spark.variant import dynamics_of

            arrays.append(dynamics_of(array))
            fields.append(pa.field(own[field.name], pa.binary(), metadata=DYNAMIC_FIELD))
        else:
            arrays.append(array)
            fields.append(pa.field(own[field.name], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _meant(array: pa.Array, kind: DataType, field: pa.Field) -> pa.Array:
    """Return stored values in the type that is asked for: the column's own, or the plain one that keeps it."""
    if kind.logical is None or (_is_variant(field.type) and kind.kind == "dynamic"):
        return array
    is_instant = pa.types.is_timestamp(field.type) and field.type.tz is not None
    given = shown_as_plain(array, kind) if is_instant else shown(array, kind, field.name)
    return given if given.type == field.type else given.cast(field.type)


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
    """Return vectors as lists; the numbers stay where they are, those of a null are passed over."""
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
