"""Say what a type of MySQL or MariaDB is in a table, and read its texts as columns.

=====================================================  =====================================================
tinyint(1), bit(1)                                     bool
tinyint, smallint, mediumint, int, year                int
int unsigned, bigint, bit(n)                           long
bigint unsigned, bit(64)                               decimal(20,0), so that every value fits
float, double                                          real
decimal(p,s) with p <= 38                              decimal(p,s)
decimal(p,s)                                           string, so that no digit is lost
date, datetime, timestamp                              date, timestamp_ntz, timestamp
binary, varbinary, blobs, geometry                     binary
json (also MariaDB's, a text that is checked)          dynamic
char, varchar, texts, enum, set, time                  string, as MySQL writes it
=====================================================  =====================================================

A value that its type cannot hold here (``0000-00-00``, a 2 in a ``tinyint(1)``) stays what it is, which coercion keeps
in the overflow column. It does not connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import InvalidInputError
from tidelake.model.schema import JSON_FIELD, DataType

MAX_PRECISION = 38
INTEGERS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}  # bytes
BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry")
TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_GEOMETRIES = (
    "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    "geomcollection",
)  # fmt: skip
_PLAIN = {
    "float": "real", "double": "real", "year": "int", "date": "date", "datetime": "timestamp_ntz",
    "timestamp": "timestamp", "json": "dynamic", "time": "string", "enum": "string", "set": "string",
    **dict.fromkeys(TEXTS, "string"), **dict.fromkeys(BYTES, "binary"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MyType:
    """A type of MySQL as far as it matters here."""

    name: str  # as in information_schema, without its size
    unsigned: bool = False
    precision: int = 0  # of a decimal: its digits; of bits: how many
    scale: int = 0
    is_flag: bool = False  # tinyint(1)


def type_named(name: str, written: str, precision: int | None, scale: int | None, *, is_json: bool) -> MyType:
    """Return a type as ``information_schema`` describes it; InvalidInputError for one that cannot be synced."""
    own = "geometry" if name in _GEOMETRIES else "json" if is_json else name
    if own not in (*INTEGERS, *_PLAIN, "decimal", "bit"):
        raise InvalidInputError("columns of this type cannot be synced", type=written[:80], kind="bad_type")
    return MyType(own, "unsigned" in written, precision or 0, scale or 0, written.startswith("tinyint(1)"))


def data_type(kind: MyType) -> DataType:
    """Return the type of a column that holds values of a type."""
    match kind.name:
        case "tinyint" if kind.is_flag:
            return DataType("bool")
        case "bigint" if kind.unsigned:
            return DataType.parse("decimal(20,0)")
        case "bigint":
            return DataType("long")
        case "int" if kind.unsigned:
            return DataType("long")
        case "tinyint" | "smallint" | "mediumint" | "int":
            return DataType("int")
        case "bit":
            wide = "decimal(20,0)" if kind.precision > 63 else "long"
            return DataType.parse("bool" if kind.precision == 1 else wide)
        case "decimal":
            fits = 0 < kind.precision <= MAX_PRECISION and kind.scale <= kind.precision
            return DataType.parse(f"decimal({kind.precision},{kind.scale})" if fits else "string")
    return DataType.parse(_PLAIN[kind.name])


def is_json(kind: MyType) -> bool:
    """Whether a column's values are handed over as JSON text."""
    return kind.name == "json"


def asked(column: str, kind: MyType) -> str:
    """Return how a column is asked for, so that its text is exact: of bits their number, of a float all its digits."""
    if kind.name == "bit":
        return f"{column} + 0"
    return f"CAST({column} AS DOUBLE)" if kind.name == "float" else column


def column_of(values: Sequence[bytes | None], kind: MyType) -> pa.Array:
    """Read what MySQL writes as Arrow values; the texts as they are where one does not fit."""
    raw = pa.array(values, pa.binary())
    if kind.name in BYTES:
        return raw
    texts = raw.cast(pa.string())
    try:
        return _read(texts, kind)
    except (pa.ArrowException, ValueError):
        return texts


def flags_of(numbers: pa.Array) -> pa.Array:
    """Return numbers as true and false; as they are if one is neither 0 nor 1."""
    is_flag = pc.all(pc.or_kleene(pc.equal(numbers, 0), pc.equal(numbers, 1)), min_count=0).as_py()
    return pc.equal(numbers, 1) if is_flag else numbers


def field_of(name: str, kind: MyType, array: pa.Array) -> pa.Field:
    """Return the field of a column that was read, which says whether its texts are JSON."""
    return pa.field(name, array.type, metadata=JSON_FIELD if is_json(kind) else None)


def shortest(floats: pa.Array) -> pa.Array:
    """Return floats of 32 bits as the numbers that they are written as, and not as they widen."""
    return floats.cast(pa.float32()).cast(pa.string()).cast(pa.float64())


def _read(texts: pa.Array, kind: MyType) -> pa.Array:
    target = data_type(kind)
    if target == DataType("bool"):
        return flags_of(texts.cast(pa.int64()))
    if kind.name == "float":
        return shortest(texts.cast(pa.float64()))
    if target == DataType("string") or is_json(kind):
        return texts
    if kind.name == "timestamp":
        return texts.cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
    return texts.cast(target.shown)
