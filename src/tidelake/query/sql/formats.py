"""Write Spark's conversions by a format in DuckDB's SQL: of times to text, of numbers to text and back.

A time's format that ``strftime`` can say is said so; another is Java's own, by a function of ours. It does not convert.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from sqlglot import exp
from sqlglot.errors import ParseError

from tidelake.errors import QueryError
from tidelake.query.functions.templates import literal_text

_STRFTIME = {
    "yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%g", "SSSSSS": "%f",
    "EEE": "%a", "EEEE": "%A", "E": "%a", "MMM": "%b", "MMMM": "%B", "a": "%p", "hh": "%I", "d": "%-d", "M": "%-m",
    "H": "%-H", "h": "%-I", "m": "%-M", "s": "%-S", "yy": "%y", "D": "%-j", "DDD": "%j",
}  # fmt: skip
_LEAVES = {
    exp.DType.TINYINT: "TINYINT", exp.DType.SMALLINT: "SMALLINT", exp.DType.INT: "INT", exp.DType.BIGINT: "BIGINT",
    exp.DType.FLOAT: "FLOAT", exp.DType.DOUBLE: "DOUBLE", exp.DType.BOOLEAN: "BOOLEAN", exp.DType.DATE: "DATE",
    exp.DType.TIMESTAMP: "TIMESTAMP", exp.DType.TIMESTAMPTZ: "TIMESTAMP", exp.DType.TIMESTAMPLTZ: "TIMESTAMP",
    exp.DType.TIMESTAMPNTZ: "WALL", exp.DType.TIME: "TIME", **dict.fromkeys(exp.DataType.TEXT_TYPES, "TEXT"),
}  # fmt: skip
_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)


def to_text_of_time(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Write ``date_format``."""
    pattern = literal_text(nodes[1])
    time = f"TRY_CAST({texts[0]} AS TIMESTAMP)"
    if pattern is not None and (known := strftime_of_java(pattern)) is not None:
        return f"strftime({time}, '{known}')"
    return f"tide_text_of_time(CAST({time} AS VARCHAR), CAST({texts[1]} AS VARCHAR))"


def to_char(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Write ``to_char`` of a number, of a time, or of bytes."""
    kind = nodes[0].type.this if nodes[0].type is not None else None
    if kind in (exp.DType.BINARY, exp.DType.VARBINARY):
        known = f"WHEN 'base64' THEN to_base64({texts[0]}) WHEN 'hex' THEN hex({texts[0]})"
        return f"CASE lower({texts[1]}) {known} ELSE decode({texts[0]}) END"
    if kind in exp.DataType.TEMPORAL_TYPES:
        return to_text_of_time(nodes, texts)
    return f"tide_number_to_char(CAST({texts[0]} AS VARCHAR), CAST({texts[1]} AS VARCHAR))"


def to_number(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Write ``to_number``, whose format says how many digits the number has."""
    pattern = literal_text(nodes[1]) or ""
    whole, _, fraction = re.sub(r"[Dd]", ".", pattern).partition(".")
    scale = sum(letter in "09" for letter in fraction)
    precision = max(sum(letter in "09" for letter in whole) + scale, 1)
    read = f"tide_number_of(CAST({texts[0]} AS VARCHAR), CAST({texts[1]} AS VARCHAR))"
    return f"TRY_CAST({read} AS DECIMAL({min(precision, 38)}, {min(scale, 38)}))"


def from_json(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Write ``from_json``, whose second argument says the type of what is read."""
    wanted = literal_text(nodes[1])
    if wanted is None or len(nodes) > 2:
        raise QueryError("from_json takes a text and a type written as text in process", kind="unsupported")
    try:
        kind = exp.DataType.build(wanted, dialect="spark")
    except (ParseError, ValueError):
        try:
            kind = exp.DataType.build(f"STRUCT<{wanted}>", dialect="spark")
        except (ParseError, ValueError):
            raise QueryError(f"{wanted!r} is not a type such as a int, b string", kind="syntax") from None
    if kind.this not in (exp.DType.STRUCT, exp.DType.ARRAY, exp.DType.MAP):
        raise QueryError(f"from_json gives a struct, an array or a map, not {wanted!r}", kind="type_mismatch")
    shape = json.dumps(_json_shape(kind)).replace("'", "''")
    strict = json.dumps(_strict_shape(kind)).replace("'", "''")
    return f"json_transform(CAST(tide_json_by_type(CAST({texts[0]} AS VARCHAR), '{strict}') AS JSON), '{shape}')"


def _json_shape(kind: exp.DataType) -> Any:
    """Return a type as the shape of JSON that DuckDB reads."""
    if kind.this is exp.DType.STRUCT:
        return {field.name: _json_shape(field.args["kind"]) for field in kind.expressions}
    if kind.this is exp.DType.ARRAY:
        return [_json_shape(kind.expressions[0])]
    return "TIME" if kind.this is exp.DType.TIME else kind.sql("duckdb")


def _strict_shape(kind: exp.DataType) -> dict[str, Any]:
    """Return a type as ``json_texts`` reads it, or refuse one that it cannot."""
    match kind.this:
        case exp.DType.STRUCT:
            fields = {field.name: field.args["kind"] for field in kind.expressions}
            if "_corrupt_record" not in fields:
                return {"fields": {name: _strict_shape(each) for name, each in fields.items()}}
        case exp.DType.ARRAY if kind.expressions:
            return {"items": _strict_shape(kind.expressions[0])}
        case exp.DType.MAP if len(kind.expressions) == 2 and kind.expressions[0].this in exp.DataType.TEXT_TYPES:
            return {"values": _strict_shape(kind.expressions[1])}
        case exp.DType.DECIMAL:
            precision, scale = [int(part.name) for part in kind.expressions] or (10, 0)
            return {"kind": "DECIMAL", "precision": precision, "scale": scale}
        case found if found in _LEAVES:
            return {"kind": _LEAVES[found]}
    shown = kind.sql("spark").lower()
    raise QueryError(f"from_json does not read {shown} in process: ask with engine='spark'", kind="unsupported")


def strftime_of_java(pattern: str) -> str | None:
    """Return Java's time format as strftime's, or None if it has no equal there."""
    out = []
    for match in _PIECE.finditer(pattern):
        if match[2] is not None:
            known = _STRFTIME.get(match[0])
            if known is None:
                return None
            out.append(known)
        else:
            plain = "'" if match[0] == "''" else (match[1] if match[1] is not None else match[0]).replace("''", "'")
            out.append(plain.replace("%", "%%").replace("'", "''"))
    return "".join(out)
