"""Name what a column means on top of how it is stored: dates, wall clocks, decimals, bytes, and nested types.

A logical type is written as in Spark's DDL, in our own words where we have them::

    date  timestamp_ntz  decimal(18,2)  binary  struct<a:int,b:array<string>>  map<string,long>

Inside a nested type stand any of these and ``bool tinyint smallint int long float real string timestamp``. Names that
are no plain words are in backquotes. Arrow is imported by those who ask for its types. It does not convert values: see
``logical``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tidelake.errors import SchemaError
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = deferred("pyarrow")

MAX_PRECISION = 38  # digits that Arrow, Spark and DuckDB all have
LONG_PRECISION = 18  # every such decimal is a 64-bit number of its last places
MAX_NESTING = 32  # deeper is a mistake, and every reader recurses

OF_COLUMNS = ("date", "timestamp_ntz", "decimal", "binary", "struct", "array", "map")  # of a column itself
NESTED = ("struct", "array", "map")
_LEAVES = ("bool", "tinyint", "smallint", "int", "long", "float", "real", "string", "timestamp")
_ALIASES = {
    "boolean": "bool",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "bigint": "long",
    "double": "real",
    "timestamp_ltz": "timestamp",
    "numeric": "decimal",
    "dec": "decimal",
}
_SPARK_NAMES = {"bool": "boolean", "long": "bigint", "real": "double"}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[<>(),:]|[^\s<>(),:`]+)")
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type; a nested one has parts: fields with their names, one element, or a key and a value."""

    kind: str
    parts: tuple[Logical, ...] = ()
    names: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0

    @classmethod
    def parse(cls, text: str) -> Logical:
        """Read a logical type's name; SchemaError if it is none."""
        return _parsed(text)

    @classmethod
    def from_arrow(cls, arrow: pa.DataType) -> Logical | None:
        """Return the logical type that is read back as this Arrow type, or None if there is none."""
        found = _from_arrow(arrow, 0)
        return found if found is not None and found.kind in OF_COLUMNS else None

    @property
    def is_nested(self) -> bool:
        return self.kind in NESTED

    @property
    def stored(self) -> str:
        """The stored type that values of a column of this type are kept as."""
        if self.kind == "decimal":
            return "long" if self.precision <= LONG_PRECISION else "string"
        return {"date": "int", "timestamp_ntz": "timestamp"}.get(self.kind, "dynamic")

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that values are read as."""
        return _arrow(self)

    @property
    def spark(self) -> str:
        """Spark's name of this type."""
        return self._text(_SPARK_NAMES)

    def __str__(self) -> str:
        return self._text({})

    def _text(self, words: dict[str, str]) -> str:
        inner = [part._text(words) for part in self.parts]
        match self.kind:
            case "decimal":
                return f"decimal({self.precision},{self.scale})"
            case "struct":
                return f"struct<{','.join(f'{_quoted(n)}:{t}' for n, t in zip(self.names, inner, strict=True))}>"
            case "array" | "map":
                return f"{self.kind}<{','.join(inner)}>"
            case kind:
                return words.get(kind, kind)


def decimal(precision: int, scale: int) -> Logical:
    """Make a decimal type; SchemaError if no engine has such a one."""
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        raise SchemaError(
            "a decimal has 1 to 38 digits, of which none to all come after the point",
            type=f"decimal({precision},{scale})",
        )
    return Logical("decimal", precision=precision, scale=scale)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Logical:
    tokens = _TOKEN.findall(text)
    if "".join(tokens).replace(" ", "") != re.sub(r"\s", "", text):
        raise SchemaError(f"unknown type {text!r}")
    found, rest = _read(tokens, text, 0)
    if rest or found.kind not in OF_COLUMNS:
        raise SchemaError(f"unknown type {text!r}")
    return found


def _read(tokens: list[str], text: str, depth: int) -> tuple[Logical, list[str]]:
    """Read one type off the front of some tokens, and give it with the others."""
    if depth > MAX_NESTING:
        raise SchemaError("a type is nested too deeply", limit=MAX_NESTING)
    if not tokens:
        raise SchemaError(f"unknown type {text!r}")
    word, rest = tokens[0].lower(), tokens[1:]
    kind = _ALIASES.get(word, word)
    if kind == "decimal":
        return _read_decimal(rest, text)
    if kind in ("array", "map", "struct"):
        names: list[str] = []
        parts: list[Logical] = []
        rest = _after(rest, "<", text)
        while True:
            if kind == "struct":
                names.append(_unquoted(rest[0]) if rest else "")
                rest = rest[1:]
                rest = rest[1:] if rest[:1] == [":"] else rest
            part, rest = _read(rest, text, depth + 1)
            parts.append(part)
            if rest[:1] != [","]:
                break
            rest = rest[1:]
        made = Logical(kind, tuple(parts), tuple(names))
        _check(made, text)
        return made, _after(rest, ">", text)
    if kind in _LEAVES or kind in ("date", "timestamp_ntz", "binary"):
        return Logical(kind), rest
    raise SchemaError(f"unknown type {text!r}", part=tokens[0])


def _read_decimal(rest: list[str], text: str) -> tuple[Logical, list[str]]:
    if rest[:1] != ["("]:
        return decimal(10, 0), rest  # as in SQL
    close = rest.index(")") if ")" in rest else len(rest)
    numbers = [token for token in rest[1:close] if token != ","]
    if close == len(rest) or len(numbers) not in (1, 2) or not all(number.isdecimal() for number in numbers):
        raise SchemaError(f"unknown type {text!r}: write decimal(18,2)")
    return decimal(int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0), rest[close + 1 :]


def _check(made: Logical, text: str) -> None:
    wanted = {"array": 1, "map": 2}.get(made.kind)
    if wanted is not None and len(made.parts) != wanted:
        raise SchemaError(f"unknown type {text!r}: {made.kind} takes {wanted} type{'s' if wanted > 1 else ''}")
    if len({name.lower() for name in made.names}) < len(made.names):
        raise SchemaError("two fields of a struct differ at most in case", type=text, kind="duplicate_column")
    if made.kind == "map" and made.parts[0].is_nested:
        raise SchemaError("a map's key is not nested", type=text)


def _after(tokens: list[str], sign: str, text: str) -> list[str]:
    if tokens[:1] != [sign]:
        raise SchemaError(f"unknown type {text!r}: {sign!r} is missing")
    return tokens[1:]


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _unquoted(token: str) -> str:
    return token[1:-1].replace("``", "`") if token.startswith("`") else token


@lru_cache(maxsize=1024)
def _arrow(kind: Logical) -> pa.DataType:
    match kind.kind:
        case "decimal":
            return pa.decimal128(kind.precision, kind.scale)
        case "struct":
            return pa.struct([pa.field(n, _arrow(t)) for n, t in zip(kind.names, kind.parts, strict=True)])
        case "array":
            return pa.list_(_arrow(kind.parts[0]))
        case "map":
            return pa.map_(_arrow(kind.parts[0]), _arrow(kind.parts[1]))
        case name:
            return _leaf_types()[name]


@lru_cache(maxsize=1)
def _leaf_types() -> dict[str, Any]:
    return {
        "bool": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "real": pa.float64(),
        "string": pa.utf8(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "date": pa.date32(),
        "binary": pa.binary(),
    }


@lru_cache(maxsize=1)
def _leaves_by_arrow() -> dict[Any, str]:
    others = {
        pa.uint8(): "smallint",
        pa.uint16(): "int",
        pa.uint32(): "long",
        pa.float16(): "float",
        pa.large_utf8(): "string",
        pa.string_view(): "string",
        pa.large_binary(): "binary",
        pa.binary_view(): "binary",
        pa.date64(): "date",
    }
    return {arrow: kind for kind, arrow in _leaf_types().items()} | others


def _from_arrow(arrow: pa.DataType, depth: int) -> Logical | None:
    if depth > MAX_NESTING:
        return None
    if pa.types.is_dictionary(arrow):
        return _from_arrow(arrow.value_type, depth)
    if pa.types.is_timestamp(arrow):
        return Logical("timestamp_ntz" if arrow.tz is None else "timestamp")
    if pa.types.is_fixed_size_binary(arrow):
        return Logical("binary")
    if pa.types.is_uint64(arrow):
        return decimal(20, 0) if depth else None
    if pa.types.is_decimal(arrow):
        scale, digits = max(arrow.scale, 0), max(arrow.precision, arrow.scale) - min(arrow.scale, 0)
        return decimal(digits, scale) if digits <= MAX_PRECISION else None
    if pa.types.is_map(arrow):
        return _of_parts("map", [arrow.key_type, arrow.item_type], depth)
    if pa.types.is_struct(arrow):
        names = tuple(field.name for field in arrow)
        plain = names and len({name.lower() for name in names}) == len(names) and all(names)
        return _of_parts("struct", [field.type for field in arrow], depth, names) if plain else None
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return _of_parts("array", [arrow.value_type], depth)
    kind = _leaves_by_arrow().get(arrow)
    return None if kind is None else Logical(kind)


def _of_parts(kind: str, types: list[Any], depth: int, names: tuple[str, ...] = ()) -> Logical | None:
    parts = [_from_arrow(each, depth + 1) for each in types]
    known = tuple(part for part in parts if part is not None)
    if len(known) < len(parts) or (kind == "map" and known[0].is_nested):
        return None
    return Logical(kind, known, names)
