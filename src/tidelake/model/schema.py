"""Define what a table's columns are: eight stored types, logical types on top, stable ids, a schema that only widens.

A column keeps its integer id for life; names are for people, ids are for stored statistics. A schema is a numbered
version, and every change yields a new version that can hold all that the old one held. Arrow is imported by those who
ask for Arrow's types: a listing of tables does without. It does not convert data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from tidelake.errors import InvalidInputError, NotFoundError, SchemaError
from tidelake.model.logical_types import OF_COLUMNS, Logical, decimal
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = deferred("pyarrow")
Kind = Literal["int", "long", "real", "bool", "string", "timestamp", "dynamic", "vector"]
Scalar = TypeVar("Scalar", bool, int, str)

MAX_COLUMNS = 10_000  # a wider table is a mistake in the data, and every footer repeats the names
MAX_NAME_BYTES = 255  # names become file and SQL identifiers
OVERFLOW_COLUMN = "_overflow"  # the dynamic column of values that fit no other
SEQ_COLUMN, DELETED_COLUMN = "_seq", "_deleted"  # of tables with a key: which version of it, and whether a tombstone
HIDDEN_IDS = {SEQ_COLUMN: 2_000_000_001, DELETED_COLUMN: 2_000_000_002}  # far from those that a table gives
ENTITY_KINDS = ("string", "int", "long", "bool")  # of columns whose values can name an entity
MAX_DIMENSION = 65_536  # 256 KiB a value: no embedding is longer

DYNAMIC_FIELD = {b"tidelake.type": b"dynamic"}  # metadata of a binary Arrow field whose values are CBOR as we write it
JSON_FIELD = {b"tidelake.type": b"json"}  # and of a text field whose values are JSON, as queries give dynamic ones

_SPARK_NAMES: dict[Kind, str] = {
    "int": "int",
    "long": "bigint",
    "real": "double",
    "bool": "boolean",
    "string": "string",
    "timestamp": "timestamp",
    "dynamic": "variant",
    "vector": "array<float>",
}
_KINDS_BY_SPARK_NAME: dict[str, Kind] = {
    **{spark: kind for kind, spark in _SPARK_NAMES.items()},
    "integer": "int",
    "long": "long",
    "float8": "real",
    "timestamp_ltz": "timestamp",
}
_NUMBER_KINDS: tuple[Kind, ...] = ("int", "long", "real")  # the narrower first
_PLAIN_KINDS = tuple(kind for kind in _SPARK_NAMES if kind != "vector")
_PYTHON_TYPES: dict[type, str] = {
    int: "long", float: "real", bool: "bool", str: "string", datetime: "timestamp", date: "date", bytes: "binary",
    dict: "dynamic", list: "dynamic",
}  # fmt: skip
_VECTOR = re.compile(r"vector\(\s*(\d{1,9})\s*\)")
_LOGICAL = re.compile(rf"({'|'.join((*OF_COLUMNS, 'numeric', 'dec'))})\b")
_LOGICAL_NAMES = ("date", "timestamp_ntz", "decimal(P,S)", "binary", "struct<…>", "array<…>", "map<…>")


@dataclass(frozen=True, slots=True)
class DataType:
    """One of the eight stored types; a vector also has its dimension.

    A logical type says what the stored values mean: a ``date`` is an int of days. Readers see it, storage does not.
    """

    kind: Kind
    dimension: int | None = None
    logical: Logical | None = None

    @classmethod
    def of(cls, logical: Logical) -> DataType:
        """Return a logical type on the stored type that keeps its values."""
        return cls(cast(Kind, logical.stored), logical=logical)

    @classmethod
    def parse(cls, text: str) -> DataType:
        """Read a type's name, such as ``long``, ``vector(384)`` or ``decimal(18,2)``."""
        name = text.strip().lower()
        if name in _PLAIN_KINDS:
            return cls(cast(Kind, name))
        if match := _VECTOR.fullmatch(name):
            dimension = int(match[1])
            if not 1 <= dimension <= MAX_DIMENSION:
                raise SchemaError("vector dimension out of range", type=text, allowed=f"1..{MAX_DIMENSION}")
            return cls("vector", dimension)
        if _LOGICAL.match(name):
            return cls.of(Logical.parse(text.strip()))
        known = [*_PLAIN_KINDS, "vector(N)", *_LOGICAL_NAMES]
        raise SchemaError(f"unknown type {text!r}", known=", ".join(known))

    @classmethod
    def from_arrow(cls, arrow: pa.DataType) -> DataType:
        """Return the type that holds every value of an Arrow type; SchemaError if there is none."""
        if pa.types.is_dictionary(arrow):
            return cls.from_arrow(arrow.value_type)
        for kind, accepts in _arrow_tests().items():
            if accepts(arrow):
                return cls(kind)
        if pa.types.is_fixed_size_list(arrow) and pa.types.is_float32(arrow.value_type):
            return cls.parse(f"vector({arrow.list_size})")
        raise SchemaError("unsupported arrow type", type=arrow, kind="unsupported_type")

    @classmethod
    def from_spark(cls, name: str, *, dimension: int | None = None) -> DataType:
        """Read Spark's simple name of a type; an array of floats needs its dimension told."""
        kind = _KINDS_BY_SPARK_NAME.get(re.sub(r"\s+", "", name.lower()))
        if kind is None:
            raise SchemaError("unsupported spark type", type=name, kind="unsupported_type")
        if kind != "vector":
            return cls(kind)
        if dimension is None:
            raise SchemaError("a vector's dimension is not part of spark's type: name it", type=name)
        return cls.parse(f"vector({dimension})")

    @property
    def shown(self) -> pa.DataType:
        """The Arrow type that readers see: the logical one, where there is one."""
        return self.arrow if self.logical is None else self.logical.arrow

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of this column as it is stored."""
        if self.kind != "vector":
            return _arrow_types()[self.kind]
        return pa.list_(pa.field("item", pa.float32(), nullable=False), self.dimension)

    @property
    def spark(self) -> str:
        """Spark's simple name for this type."""
        return _SPARK_NAMES[self.kind] if self.logical is None else self.logical.spark

    def __str__(self) -> str:
        if self.logical is not None:
            return str(self.logical)
        return f"vector({self.dimension})" if self.kind == "vector" else self.kind


@dataclass(frozen=True, slots=True)
class Column:
    """A named, typed column with an id that never changes."""

    id: int
    name: str
    type: DataType
    nullable: bool = True

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" + ("" if self.nullable else " not null")


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a table, in order, as one numbered version."""

    columns: tuple[Column, ...]
    version: int = 1

    def __post_init__(self) -> None:
        if not self.columns:
            raise SchemaError("a schema needs at least one column", kind="no_columns")
        if len(self.columns) > MAX_COLUMNS:
            raise SchemaError("too many columns", columns=len(self.columns), limit=MAX_COLUMNS)
        for column in self.columns:
            _check_name(column.name)
        if repeated := _repeated(column.name for column in self.columns):
            raise SchemaError("column name used twice", column=repeated, kind="duplicate_column")
        if repeated_id := _repeated(column.id for column in self.columns):
            raise SchemaError("column id used twice", id=repeated_id, kind="duplicate_column")

    @classmethod
    def of(cls, columns: Mapping[str, str | type | DataType]) -> Schema:
        """Make a first schema from names and types, with ids from 1 in the order given.

        A type is its name, or Python's own: ``int`` is a long, ``float`` a real, ``dict`` and ``list`` dynamic.
        """
        if not isinstance(columns, Mapping):
            raise SchemaError("columns are a mapping of names to types", got=type(columns).__name__)
        parsed = ((name, _type_named(kind, name)) for name, kind in columns.items())
        return cls(tuple(Column(id, name, kind) for id, (name, kind) in enumerate(parsed, start=1)))

    @classmethod
    def from_arrow(cls, arrow: pa.Schema) -> Schema:
        """Make a first schema that holds every value of an Arrow schema."""
        columns = []
        for id, field in enumerate(arrow, start=1):
            try:
                columns.append(Column(id, field.name, DataType.from_arrow(field.type), field.nullable))
            except SchemaError as error:
                raise SchemaError(error.message, column=field.name, **error.facts, kind=error.kind) from None
        return cls(tuple(columns))

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of this table's rows."""
        return _arrow_schema(self.columns)

    @property
    def spark(self) -> str:
        """The schema as Spark DDL, names quoted."""
        return ", ".join(f"`{c.name.replace('`', '``')}` {c.type.spark.upper()}" for c in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __contains__(self, name: object) -> bool:
        return any(column.name == name for column in self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise NotFoundError("no such column", column=name, columns=", ".join(self.names))

    def __repr__(self) -> str:
        return f"Schema v{self.version}({', '.join(map(str, self.columns))})"

    def widen(self, added: Iterable[Column | tuple[str, DataType]]) -> Schema:
        """Return this schema with columns added or widened, or this schema itself if nothing changes.

        A column that exists may keep its type, go from int to long to real, become dynamic, or become nullable; asked
        for a narrower type it keeps its own. Anything else is a SchemaError. A new column is nullable whatever was
        asked, because old extents do not have it.
        """
        columns = {column.name: column for column in self.columns}
        next_id = max(column.id for column in self.columns) + 1
        for item in added:
            name, wanted, nullable = (
                (item.name, item.type, item.nullable) if isinstance(item, Column) else (*item, True)
            )
            if held := columns.get(name):
                columns[name] = replace(held, type=_wider(held, wanted), nullable=held.nullable or nullable)
            else:
                columns[name] = Column(next_id, name, wanted)
                next_id += 1
        widened = tuple(columns.values())
        return self if widened == self.columns else Schema(widened, self.version + 1)

    def with_hidden(self, names: Iterable[str]) -> Schema:
        """Return this schema with hidden columns of a table with a key, which extents may store and readers name."""
        kinds: dict[str, Kind] = {SEQ_COLUMN: "long", DELETED_COLUMN: "bool"}
        wanted = [name for name in HIDDEN_IDS if name in set(names) and name not in self]
        added = (Column(HIDDEN_IDS[name], name, DataType(kinds[name])) for name in wanted)
        return Schema((*self.columns, *added), self.version) if wanted else self

    def to_json(self) -> dict[str, Any]:
        """Return the stored shape; see from_json. A logical type has a key of its own, which old readers pass over."""
        return {"version": self.version, "columns": [_column_to_json(column) for column in self.columns]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Schema:
        """Read the stored shape, strictly."""
        try:
            columns = [
                Column(
                    _exactly(int, c["id"]),
                    _exactly(str, c["name"]),
                    _stored_type(c),
                    _exactly(bool, c["nullable"]),
                )
                for c in value["columns"]
            ]
            return cls(tuple(columns), _exactly(int, value["version"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError("not a stored schema", reason=repr(error)) from error


@cache
def _arrow_types() -> dict[Kind, pa.DataType]:
    return {
        "int": pa.int32(),
        "long": pa.int64(),
        "real": pa.float64(),
        "bool": pa.bool_(),
        "string": pa.utf8(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "dynamic": pa.binary(),
    }


@cache
def _arrow_tests() -> dict[Kind, Any]:
    return {
        "bool": pa.types.is_boolean,
        "int": lambda t: t in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()),
        "long": lambda t: t in (pa.int64(), pa.uint32()),
        "real": lambda t: t in (pa.float16(), pa.float32(), pa.float64()),
        "string": lambda t: t in (pa.utf8(), pa.large_utf8(), pa.string_view()),
        "timestamp": pa.types.is_timestamp,
        "dynamic": lambda t: t in (pa.binary(), pa.large_binary(), pa.binary_view()),
    }


@lru_cache(maxsize=256)  # an append of a few rows asks for it several times
def _arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([pa.field(c.name, c.type.arrow, nullable=c.nullable) for c in columns])


def _column_to_json(column: Column) -> dict[str, Any]:
    kind, logical = replace(column.type, logical=None), column.type.logical
    told = {} if logical is None else {"logical": str(logical)}
    return {"id": column.id, "name": column.name, "type": str(kind), "nullable": column.nullable, **told}


def _stored_type(shape: Mapping[str, Any]) -> DataType:
    kind = DataType.parse(_exactly(str, shape["type"]))
    if "logical" not in shape:
        return kind
    logical = DataType.parse(_exactly(str, shape["logical"]))
    if replace(logical, logical=None) != kind:
        raise ValueError(f"{shape['logical']} is not kept as {kind}")
    return logical


def _wider_logical(held: DataType, wanted: DataType) -> DataType | None:
    """Return the type that holds two, at least one of them logical: kept as dynamic values, or decimals alike."""
    one, other = held.logical, wanted.logical
    if held == wanted or held.kind == wanted.kind == "dynamic":
        return held if held == wanted else DataType("dynamic")
    if one is None or other is None or (one.kind, other.kind) != ("decimal", "decimal"):
        return None
    if one.scale != other.scale or held.kind != wanted.kind:
        return None
    return DataType.of(decimal(max(one.precision, other.precision), one.scale))


def wider_type(held: DataType, wanted: DataType) -> DataType | None:
    """Return the type that holds every value of both, exactly; None if neither of them does.

    Of two numbers the wider, where int is narrower than long and long than real. Who makes a long column real sees to
    it that no value is beyond what a double holds. Dynamic holds everything but vectors, and of logical types
    those that are kept as dynamic values are.
    """
    if held.logical or wanted.logical:
        return _wider_logical(held, wanted)
    if held == wanted:
        return held
    kinds = (held.kind, wanted.kind)
    if all(kind in _NUMBER_KINDS for kind in kinds):
        return max(held, wanted, key=lambda each: _NUMBER_KINDS.index(each.kind))
    if "dynamic" in kinds and "vector" not in kinds:
        return held if held.kind == "dynamic" else wanted
    return None


def fresh_name(name: str, taken: Iterable[str]) -> str:
    """Return a name that differs from others in more than case: itself, or with ``_2`` or the next number after it."""
    used = {each.lower() for each in taken}
    found, count = name, 1
    while found.lower() in used:
        count += 1
        found = f"{name}_{count}"
    return found


def told_apart(names: Iterable[str]) -> dict[str, str]:
    """Name columns for engines to which case tells nothing: the second of two such names is ``name_2``."""
    every = list(names)
    given: dict[str, str] = {}
    seen: set[str] = set()
    for name in every:
        given[name] = name if name.lower() not in seen else fresh_name(name, [*every, *given.values()])
        seen.add(name.lower())
    return given


def alike_but_for_case(held: Schema, wanted: Schema) -> str | None:
    """Return a column that one schema adds to another that has it in another case, unseen by who added it."""
    added = {column.name.lower(): column.name for column in wanted if column.name not in held}
    known = set(wanted.names)
    found = (added[name.lower()] for name in held.names if name.lower() in added and name not in known)
    return next(found, None)


def becoming_real(held: Schema, wanted: Schema) -> list[str]:
    """Return the columns that are long in one schema and real in another."""
    longs = {column.name for column in held if column.type == DataType("long")}
    return [column.name for column in wanted if column.name in longs and column.type == DataType("real")]


def _wider(held: Column, wanted: DataType) -> DataType:
    found = wider_type(held.type, wanted)
    if found is None:
        raise narrowing(held, wanted)
    return found


def narrowing(held: Column, wanted: DataType) -> SchemaError:
    """Return the error that refuses a type which does not hold every value of a column."""
    return SchemaError(
        "a schema only widens: this change would narrow or replace a type",
        column=held.name,
        has=held.type,
        wanted=wanted,
        kind="narrowing",
    )


def _type_named(kind: object, column: str) -> DataType:
    """Return the type that a user named, by our names or by Python's own types."""
    if isinstance(kind, DataType):
        return kind
    name = _PYTHON_TYPES.get(kind) if isinstance(kind, type) else kind
    if not isinstance(name, str):
        known = ", ".join(each.__name__ for each in _PYTHON_TYPES)
        raise SchemaError("not a type: give its name, such as 'long'", column=column, got=kind, python_types=known)
    return DataType.parse(name)


def _exactly(kind: type[Scalar], value: Any) -> Scalar:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def _check_name(name: str) -> None:
    if not name or name != name.strip():
        raise SchemaError(f"column name {name!r} is empty or has spaces around it", kind="bad_name")
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise SchemaError(
            "column name is too long", column=name[:40] + "…", limit_bytes=MAX_NAME_BYTES, kind="bad_name"
        )
    if any(ord(char) < 32 or 0xD800 <= ord(char) <= 0xDFFF for char in name):
        raise SchemaError(f"column name {name!r} has a control character", kind="bad_name")


def _repeated(values: Iterable[Any]) -> Any:
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
