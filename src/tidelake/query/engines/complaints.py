"""Translate what DuckDB complains of into our own words, with the place in the text where it can be found.

A complaint is told apart by its first line. One that is not known is said to be a part of the query that cannot be run
in process; the engine's own error stays behind ours as its cause. It does not know tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tidelake.errors import QueryError
from tidelake.model.lexer import error_at
from tidelake.query.functions.sized import TOO_LARGE

_TYPES = {
    "VARCHAR": "text", "STRING_LITERAL": "text", "INTEGER": "int", "INTEGER_LITERAL": "int", "BIGINT": "bigint",
    "DOUBLE": "double", "FLOAT": "float", "BOOLEAN": "boolean", "TIMESTAMP WITH TIME ZONE": "timestamp", "BLOB": "binary",
    "TIMESTAMP": "timestamp", "DATE": "date", "INTERVAL": "interval", "JSON": "dynamic", "SMALLINT": "smallint",
    "TINYINT": "tinyint", "HUGEINT": "decimal", '"NULL"': "null",
}  # fmt: skip
_TOO_LARGE = "a number is too large for its type: cast to double or decimal, or use try_add and its like"
_ELSEWHERE = "ask with engine='spark'"


def complaint_of(label: str, message: str, text: str) -> QueryError:
    """Return the error to show for one of DuckDB's, by its label, such as ``Binder Error``, and its first line."""
    for pattern, make in _KNOWN:
        if (match := re.search(pattern, message)) is not None:
            return make(match, text)
    if label == "Out of Range Error":
        return QueryError(_TOO_LARGE, kind="out_of_range")
    if label == "Conversion Error":
        return QueryError("a value cannot be cast to the type that is asked for: use try_cast", kind="runtime")
    if label in ("Binder Error", "Catalog Error"):
        message = f"a part of the query does not fit the types it is given, or cannot be run in process: {_ELSEWHERE}"
        return QueryError(message, kind="type_mismatch")
    if label in ("Parser Error", "Not implemented Error"):
        return QueryError(f"a part of the query cannot be run in process: {_ELSEWHERE}", kind="unsupported")
    return QueryError(f"the query failed in process: {_ELSEWHERE}", kind="runtime")


def _types(listed: str) -> str:
    parts = re.split(r",\s*(?![^(\[]*[)\]])", listed)
    return " and ".join(_type(part) for part in parts) or "nothing"


def _type(name: str) -> str:
    plain = name.strip()
    return _TYPES.get(plain) or re.sub(r"^DECIMAL\(.*\)$", "decimal", plain).lower()


def _placed(text: str, name: str, message: str, kind: str) -> QueryError:
    """Return an error at the first place where a word stands, or without a place."""
    match = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) if name else None
    return QueryError(message, kind=kind) if match is None else error_at(text, match.start(), message, kind=kind)


def _call(match: re.Match[str], text: str) -> QueryError:
    name, listed = match[1].lower().strip('"'), match[2]
    known = re.search(rf"(?<!\w){re.escape(name)}\s*\(", text, re.IGNORECASE) if name.isidentifier() else None
    if name.isidentifier() and known is None:
        message = f"a function cannot be used with {_types(listed)}: cast what it is given"
        return QueryError(message, kind="type_mismatch")
    what = name if name.isidentifier() else repr(name)
    message = f"{what} cannot be used with {_types(listed)}: cast what it is given"
    return _placed(text, name if known else "", message, "type_mismatch")


def _no_function(match: re.Match[str], text: str) -> QueryError:
    name = match[1].lower()
    message = f"there is no function {name} in process: correct its name, or {_ELSEWHERE}"
    return _placed(text, name, message, "no_function")


def _ungrouped(match: re.Match[str], text: str) -> QueryError:
    message = f"{match[1]!r} is neither grouped by nor inside of an aggregate"
    return _placed(text, match[1], message, "not_grouped")


def _two_types(what: str) -> Callable[[re.Match[str], str], QueryError]:
    def make(match: re.Match[str], text: str) -> QueryError:
        return QueryError(what.format(_type(match[1]), _type(match[2])), kind="type_mismatch")

    return make


def _not_a(match: re.Match[str], text: str) -> QueryError:
    shown = {"INT32": "int", "INT64": "bigint", "INT16": "smallint", "INT8": "tinyint"}.get(match[2]) or _type(match[2])
    message = f"{match[1]!r} is not of type {shown}: use try_cast, which gives null"
    return _placed(text, match[1], message, "runtime")


def _said(message: str, kind: str) -> Callable[[re.Match[str], str], QueryError]:
    def make(match: re.Match[str], text: str) -> QueryError:
        return QueryError(message, kind=kind)

    return make


_KNOWN: tuple[tuple[str, Callable[[re.Match[str], str], QueryError]], ...] = (
    (
        r"(an interval is longer than 64 bits of microseconds|a decimal has more digits than its type says[^']*"
        r"|from_json reads no text in single quotes in process)",
        lambda match, text: QueryError(match[1].strip(), kind="runtime"),
    ),
    (re.escape(TOO_LARGE), _said(TOO_LARGE, "too_large")),
    (r"Function with name \"?(\w+)\"? does not exist", _no_function),
    (r"No function matches the given name and argument types '(.+?)\((.*)\)'", _call),
    (r"best candidate function for the function call \"(.+?)\((.*)\)\"\.", _call),
    (r"column \"(.+?)\" must appear in the GROUP BY", _ungrouped),
    (
        r"Cannot mix values of type (.+?) and (.+?) in",
        _two_types("the branches of a choice are {} and {}: cast them to one type"),
    ),
    (r"Cannot compare values of type (.+?) and type (.+?) -", _two_types("{} and {} cannot be compared: cast one of them")),
    (r"Could not convert string '(.*)' to (\w+)", _not_a),
    (r"[Ii]nvalid perl operator", _said(f"a pattern looks ahead or behind, which is not done in process: {_ELSEWHERE}", "unsupported")),
    (r"Malformed JSON", _said("a text that should be JSON is not", "runtime")),
    (r"(?i)more than one row returned by a subquery|scalar subquery", _said("a subquery that stands for one value gave several rows", "runtime")),
    (r"(?i)where clause cannot contain aggregates", _said("where cannot hold an aggregate: use having", "syntax")),
    (r"(?i)aggregate function calls cannot be nested", _said("an aggregate cannot hold another: use a subquery", "syntax")),
    (r"(?i)where clause cannot contain window|window functions are not allowed", _said("a window function can only be selected, ordered by or in qualify", "syntax")),
    (r"(?i)set operations can only apply to expressions with the same number", _said("the queries that are united give different numbers of columns", "syntax")),
    (r"(?i)overflow|out of range", _said(_TOO_LARGE, "out_of_range")),
    (r"(?i)correlated", _said(f"a subquery refers to what is around it in a way that is not done in process: {_ELSEWHERE}", "unsupported")),
)  # fmt: skip
