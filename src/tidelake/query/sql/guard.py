"""Keep a query written in SQL to the tables of the lake and to functions that only compute.

The tree is judged as it was read, before any name is resolved: every node must be of a kind that is listed in
``allowed``, and every function too. So a query cannot reach files, globs, settings, the environment, the network, a
shell, classes, or functions that others have registered with an engine. The engines are locked besides: see ``local``
and ``spark``. KQL needs no such list, since it is lowered from functions of our own. It does not raise: it says what
is wrong, and where.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sqlglot import exp

from tidelake.model.lexer import did_you_mean
from tidelake.query.functions.declaration import OURS
from tidelake.query.sql.allowed import FUNCTION_NAMES, FUNCTION_NODES, NODES, TABLE_FUNCTIONS
from tidelake.query.sql.sizes import too_large
from tidelake.query.tables import ANSWERS

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
        if isinstance(node, exp.Func) and (problem := too_large(node)) is not None:
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
