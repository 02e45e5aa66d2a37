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
from tidelake.query.templates import literal_text

_STRFTIME = {
    "yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%g", "SSSSSS": "%f",
    "EEE": "%a", "EEEE": "%A", "E": "%a", "MMM": "%b", "MMMM": "%B", "a": "%p", "hh": "%I", "d": "%-d", "M": "%-m",
    "H": "%-H", "h": "%-I", "m": "%-M", "s": "%-S", "yy": "%y", "D": "%-j", "DDD": "%j",
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
    shape = json.dumps(_json_shape(kind)).replace("'", "''")
    return f"json_transform(TRY_CAST({texts[0]} AS JSON), '{shape}')"


def _json_shape(kind: exp.DataType) -> Any:
    """Return a type as the shape of JSON that DuckDB reads."""
    if kind.this is exp.DType.STRUCT:
        return {field.name: _json_shape(field.args["kind"]) for field in kind.expressions}
    if kind.this is exp.DType.ARRAY:
        return [_json_shape(kind.expressions[0])]
    return "TIME" if kind.this is exp.DType.TIME else kind.sql("duckdb")


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
