"""Say what a type of PostgreSQL is in a table, and read its texts as columns.

=====================================================  ===================================================
smallint, integer                                      int
bigint, oid                                            long
real, double precision                                 real
numeric(p,s) with p <= 38                              decimal(p,s)
numeric                                                string, so that no digit is lost
boolean                                                bool
date, timestamp, timestamptz                           date, timestamp_ntz, timestamp
bytea                                                  binary
json, jsonb, arrays, hstore                            dynamic
all else: text, varchar, uuid, enums, inet, intervals  string, as PostgreSQL writes it
=====================================================  ===================================================

A domain is what it is made of. A text that its type cannot hold here (``infinity``, ``NaN`` of a numeric, a year before
our era) stays a text, which coercion keeps in the overflow column. It does not connect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.model.schema import DataType

MAX_PRECISION = 38
_ARRAY_DIMENSIONS = re.compile(r"^(?:\[-?\d+:-?\d+\])+=")
_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(NULL|"((?:[^"\\]|\\.)*)")(?:, )?')

_PLAIN = {
    "int2": "int", "int4": "int", "int8": "long", "oid": "long", "float4": "real", "float8": "real", "bool": "bool",
    "date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "bytea": "binary", "json": "dynamic",
    "jsonb": "dynamic", "hstore": "dynamic",
}  # fmt: skip
_NUMBERS = {"int", "long", "real", "bool"}


@dataclass(frozen=True, slots=True)
class PgType:
    """A type of PostgreSQL as far as it matters here, domains seen through."""

    name: str  # as in pg_type
    element: str | None = None  # of an array: its element's name
    modifier: int = -1
    delimiter: str = ","


def data_type(kind: PgType) -> DataType:
    """Return the type of a column that holds values of a PostgreSQL type."""
    if kind.element is not None:
        return DataType("dynamic")
    if kind.name == "numeric":
        precision, scale = ((kind.modifier - 4) >> 16) & 0xFFFF, (kind.modifier - 4) & 0x7FF
        fits = kind.modifier >= 4 and precision <= MAX_PRECISION and scale <= precision
        return DataType.parse(f"decimal({precision},{scale})") if fits else DataType("string")
    return DataType.parse(_PLAIN.get(kind.name, "string"))


def column_of(texts: pa.Array, kind: PgType) -> pa.Array:
    """Read texts of a type as Arrow values; JSON text for dynamic ones; the texts as they are where one does not fit.

    Call ``is_json`` to know which.
    """
    try:
        return _read(texts, kind)
    except (pa.ArrowException, ValueError):
        return texts


def is_json(kind: PgType) -> bool:
    """Whether a column's values are handed over as JSON text."""
    return data_type(kind).kind == "dynamic" and data_type(kind).logical is None


def _read(texts: pa.Array, kind: PgType) -> pa.Array:
    if kind.element is not None:
        is_number = _PLAIN.get(kind.element) in _NUMBERS
        is_bool = kind.element == "bool"
        return _each(texts, lambda text: _array(text, kind.delimiter, is_number=is_number, is_bool=is_bool))
    match kind.name:
        case "bool":
            return pc.equal(texts, "t")
        case "bytea":
            return _bytes(texts)
        case "date":
            return texts.cast(pa.date32())
        case "timestamp":
            return texts.cast(pa.timestamp("us"))
        case "timestamptz":
            return texts.cast(pa.timestamp("us", tz="UTC"))
        case "hstore":
            return _each(texts, _hstore)
        case "float4":  # as it is written, and not as the nearest float widens
            return texts.cast(pa.float64())
    target = data_type(kind)
    return texts if target.kind in ("string", "dynamic") and target.logical is None else texts.cast(target.shown)


def _bytes(texts: pa.Array) -> pa.Array:
    """Read bytes in hexadecimal, ``\\x00ff``."""
    return pa.array([None if each is None else bytes.fromhex(each[2:]) for each in texts.to_pylist()], pa.binary())


def _each(texts: pa.Array, read: Any) -> pa.Array:
    """Read values that have a grammar of their own, each for itself: they are rare, and short."""
    found = [None if each is None else orjson.dumps(read(each)).decode() for each in texts.to_pylist()]
    return pa.array(found, pa.string())


def _hstore(text: str) -> Mapping[str, str | None]:
    def plain(quoted: str) -> str:
        return re.sub(r"\\(.)", r"\1", quoted)

    return {plain(key): None if value == "NULL" else plain(quoted) for key, value, quoted in _HSTORE.findall(text)}


def _array(text: str, delimiter: str, *, is_number: bool, is_bool: bool) -> list[Any]:
    """Read an array as PostgreSQL writes it, ``{1,NULL,"a b"}``; ValueError if it is none."""
    at = 0 if (bounds := _ARRAY_DIMENSIONS.match(text)) is None else bounds.end()
    stack: list[list[Any]] = []
    while at < len(text):
        sign = text[at]
        if sign == "{":
            stack.append([])
            at += 1
        elif sign == "}":
            whole = stack.pop()
            if not stack:
                return whole
            stack[-1].append(whole)
            at += 1
        elif sign == delimiter:
            at += 1
        elif sign == '"':
            end, letters = at + 1, []
            while text[end] != '"':
                end += text[end] == "\\"
                letters.append(text[end])
                end += 1
            stack[-1].append("".join(letters))
            at = end + 1
        else:
            end = at
            while text[end] not in (delimiter, "}"):
                end += 1
            stack[-1].append(_item(text[at:end], is_number=is_number, is_bool=is_bool))
            at = end
    raise ValueError("an array that does not end")


def _item(word: str, *, is_number: bool, is_bool: bool) -> Any:
    if word == "NULL":
        return None
    if is_bool:
        return word == "t"
    if not is_number or word in ("NaN", "Infinity", "-Infinity"):
        return word
    try:
        return int(word)
    except ValueError:
        return float(word)
