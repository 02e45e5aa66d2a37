"""Keep a query written in SQL to the tables of the lake and to functions that only compute.

The tree is judged as it was read, before any name is resolved: every node must be of a kind that is listed in
``allowed``, and every function too. So a query cannot reach files, globs, settings, the environment, the network, a
shell, classes, or functions that others have registered with an engine. The engines are locked besides: see ``local``
and ``spark``. KQL needs no such list, since it is lowered from functions of our own.

Nor may a query make a value far too large out of nothing, such as ``repeat('x', 1000000000)``: an engine builds it
whole, outside of its own account of memory, and hears no interrupt meanwhile. So a size that can be told from the text
is checked before the query runs, texts made of texts included. A size that only rows can tell is left to the engine. It
does not raise or change the tree: it says what is wrong, and where.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from sqlglot import exp

from tidelake.model.lexer import did_you_mean
from tidelake.query.functions.declaration import OURS
from tidelake.query.sql.allowed import FUNCTION_NAMES, FUNCTION_NODES, NODES, TABLE_FUNCTIONS
from tidelake.query.tables import ANSWERS

MAX_ITEMS = 1 << 20  # of a list that is counted out
MAX_LETTERS = 1 << 24  # of a text that is repeated or filled up
MAX_DEPTH = 40  # of arithmetic that is worked out; deeper is not known
_UNKNOWN = 64.0  # letters of a text that only rows can tell

# Names that are known to lead out of the lake, and what to say of them. What is refused does not depend on this.
_OUTSIDE = (
    (
        r"read_\w+|(?:\w+_)?glob|\w+_scan|parquet_\w+|sniff_\w+|input_file_\w+|file|files|load_\w+|to_file"
        r"|(?:from|to|schema_of)_(?:avro|protobuf|xml)|xpath\w*",
        "reads files: a query reads tables of the lake alone",
    ),
    (
        r"getenv|current_(?!date|time)\w+|duckdb_\w+|pragma_\w+|version|user|session_user|settings?|which_secret|secret"
        r"|getvariable|txid_current|pg_\w+|has_\w+_privilege|python_worker_logs|sql_keywords|collations|nextval|currval",
        "tells of the engine and its surroundings: a query reads tables of the lake alone",
    ),
    (
        r"query|query_table|json_execute_serialized_sql|reflect|try_reflect|java_method|python_map_function|ai_\w+"
        r"|http_\w+|enable_\w+|disable_\w+|write_log|checkpoint|force_checkpoint|identifier",
        "runs what is not in the query: a query calls functions that compute",
    ),
)
_CLAUSES: dict[type[exp.Expr], str] = {
    exp.Hint: "hints are not supported: leave them out",
    exp.JoinHint: "hints are not supported: leave them out",
    exp.Lock: "a query locks nothing: leave out for update or for share",
    exp.Into: "a query writes nothing: leave out into",
    exp.Parameter: "parameters are not supported: write the value",
    exp.SessionParameter: "parameters are not supported: write the value",
    exp.Placeholder: "parameters are not supported: write the value",
    exp.QueryTransform: "a query runs no programs: transform … using is not supported",
    exp.Columns: "columns(…) is not supported: name the columns, or write *",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A part of a query that may not be, and what to say of it."""

    node: exp.Expr
    message: str
    kind: str


def refusal_of(tree: exp.Expr, own: Collection[str]) -> Refusal | None:
    """Return the first part of a tree that a query may not have, or None; ``own`` names our own functions."""
    return next(_refusals(tree, own), None)


def _refusals(tree: exp.Expr, own: Collection[str]) -> Iterator[Refusal]:
    for node in tree.walk():
        kind = type(node).__name__
        if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
            yield from _call(node, own)
        elif isinstance(node, exp.Func):
            if kind not in FUNCTION_NODES and node.sql_name().lower() not in own:
                yield _unknown(node, node.sql_name().lower(), own)
            elif missing := [key for key, needed in node.arg_types.items() if needed and node.args.get(key) is None]:
                yield Refusal(
                    node, f"{node.sql_name().lower()} is given too little: {missing[0]!r} is missing", "arguments"
                )
            elif _is_source(node) and not _is_row_maker(node):
                yield Refusal(node, f"{node.sql_name().lower()} makes no rows: expected a table", "unsupported")
        elif isinstance(node, exp.Pivot):
            continue  # has words of its own
        elif kind not in NODES and not (isinstance(node, exp.Parameter) and isinstance(node.parent, exp.TableAlias)):
            yield Refusal(node, _CLAUSES.get(type(node)) or f"{_words(kind)} is not supported", "unsupported")
        if isinstance(node, exp.Func) and (problem := _too_large(node)) is not None:
            yield Refusal(node, problem, "too_large")
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            name = node.expression.name if isinstance(node.expression, exp.Anonymous) else node.expression.sql_name()
            yield Refusal(node.expression, f"functions have no namespace: write {name.lower()}(…)", "unknown_function")


def _call(node: exp.Anonymous | exp.AnonymousAggFunc, own: Collection[str]) -> Iterator[Refusal]:
    name = node.name.lower().removeprefix(OURS)  # of a function that is written out per engine
    if _is_source(node):
        if name not in TABLE_FUNCTIONS and name not in ANSWERS:
            yield _unknown(node, name, {*TABLE_FUNCTIONS, *ANSWERS}, among_tables=True)
    elif name not in FUNCTION_NAMES and name not in own:
        yield _unknown(node, name, own)


def _is_source(node: exp.Expr) -> bool:
    """Whether a call stands where a table does."""
    return isinstance(node.parent, exp.Table | exp.From | exp.Join | exp.Lateral) and node.arg_key == "this"


def _is_row_maker(node: exp.Func) -> bool:
    names = {name.lower() for name in type(node).sql_names()} | {node.sql_name().lower()}
    return bool(names & TABLE_FUNCTIONS) or isinstance(node, exp.Explode | exp.Unnest | exp.Inline | exp.Stack)


def _unknown(node: exp.Expr, name: str, own: Collection[str], *, among_tables: bool = False) -> Refusal:
    for pattern, reason in _OUTSIDE:
        if re.fullmatch(pattern, name):
            return Refusal(node, f"{name} {reason}", "refused")
    known = own if among_tables else {*FUNCTION_NAMES, *own}
    what = "function that gives rows" if among_tables else "function"
    return Refusal(node, f"there is no {what} {name!r}{did_you_mean(name, sorted(known))}", "unknown_function")


def _words(kind: str) -> str:
    """Write the name of a kind of node as words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).lower()


def _too_large(node: exp.Expr) -> str | None:
    """Return what is wrong with the size of a value that a call makes, or None if nothing is known to be."""
    name, arguments = _called(node)
    if name == "sequence" and _items(arguments) > MAX_ITEMS:
        return f"a sequence of more than {MAX_ITEMS:,} values: use from range(start, end), which gives rows"
    if name == "array_repeat" and _number(_at(arguments, 1), 0.0) > MAX_ITEMS:
        return f"an array of more than {MAX_ITEMS:,} values"
    if name in ("repeat", "space", "lpad", "rpad", "pad", "replace", "randstr") and _letters(node) > MAX_LETTERS:
        return f"a text of more than {MAX_LETTERS:,} characters"
    return None


def _called(node: exp.Expr) -> tuple[str, list[exp.Expr | None]]:
    """Return the name of a function and what it is given, whichever kind of node stands for it."""
    match node:
        case exp.Anonymous():
            return node.name.lower().removeprefix(OURS), list(node.expressions)
        case exp.GenerateSeries():
            return "sequence", [node.args.get(key) for key in ("start", "end", "step")]
        case exp.Repeat():
            return "repeat", [node.this, node.args.get("times")]
        case exp.Pad():
            return "pad", [node.this, node.expression]
        case exp.Replace():
            return "replace", [node.this, node.expression, node.args.get("replacement")]
        case exp.DPipe():
            return "concat", [node.this, node.expression]
        case exp.Concat():
            return "concat", list(node.expressions)
        case exp.Func() | exp.Paren() | exp.Cast():
            return node.key, [node.this if isinstance(node.this, exp.Expr) else None]
        case _:
            return "", []


def _items(arguments: list[exp.Expr | None]) -> float:
    """Count the values of a sequence of numbers; 0 where it cannot be told."""
    start, end = _number(_at(arguments, 0)), _number(_at(arguments, 1))
    step = _number(_at(arguments, 2), 1.0)
    return abs(end - start) / abs(step) if step and math.isfinite(end - start) else 0.0


def _letters(node: exp.Expr | None, depth: int = 0) -> float:
    """Estimate the length of a text from above, columns taken as short."""
    if node is None or depth > MAX_DEPTH:
        return _UNKNOWN
    if isinstance(node, exp.Literal):
        return float(len(str(node.this)))
    name, arguments = _called(node)
    match name:
        case "paren" | "cast" | "lower" | "upper" | "trim" | "reverse":
            return _letters(_at(arguments, 0), depth + 1)
        case "repeat":
            return _letters(_at(arguments, 0), depth + 1) * max(_number(_at(arguments, 1), 1.0), 0.0)
        case "space" | "randstr":
            return max(_number(_at(arguments, 0), 1.0), 0.0)
        case "lpad" | "rpad" | "pad":
            return max(_number(_at(arguments, 1), 1.0), 0.0)
        case "replace":
            put = _letters(_at(arguments, 2), depth + 1) if _at(arguments, 2) is not None else 0.0
            sought = max(_letters(_at(arguments, 1), depth + 1), 1.0)
            return _letters(_at(arguments, 0), depth + 1) * max(put / sought, 1.0)
        case "concat":
            return sum(_letters(each, depth + 1) for each in arguments)
        case _:
            return _UNKNOWN


def _at(arguments: list[exp.Expr | None], at: int) -> exp.Expr | None:
    return arguments[at] if at < len(arguments) else None


def _number(node: exp.Expr | None, unknown: float = math.nan, depth: int = 0) -> float:
    """Work out a number that is written with numbers alone."""
    if depth > MAX_DEPTH:
        return unknown
    try:
        match node:
            case exp.Literal() if not node.is_string:
                return float(node.this)
            case exp.Paren() | exp.Cast():
                return _number(node.this, unknown, depth + 1)
            case exp.Neg():
                return -_number(node.this, unknown, depth + 1)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Pow():
                left, right = _number(node.this, math.nan, depth + 1), _number(node.expression, math.nan, depth + 1)
                found = _OPERATIONS[type(node)](left, right)
                return unknown if math.isnan(found) else found
    except (ArithmeticError, ValueError):
        return unknown
    return unknown


_OPERATIONS: dict[type[exp.Expr], Callable[[float, float], float]] = {
    exp.Add: lambda left, right: left + right,
    exp.Sub: lambda left, right: left - right,
    exp.Mul: lambda left, right: left * right,
    exp.Div: lambda left, right: left / right,
    exp.Pow: lambda left, right: left**right,
}
