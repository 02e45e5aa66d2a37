"""Write a tree as an engine's SQL, with the functions that mean the same on both engines.

A tree names such a function as an anonymous call, as in ``tide_has(message, 'error')``. In DuckDB a dynamic value is
JSON, in Spark VARIANT; both sessions run in UTC. It does not run SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError, UnsupportedError

from tidelake.errors import InvalidInputError, QueryError
from tidelake.query.functions.declaration import OURS, PORTABLE, Function
from tidelake.query.functions.macros import Engine
from tidelake.query.functions.registry import FUNCTIONS
from tidelake.query.functions.templates import filled
from tidelake.query.sql.meaning import as_spark
from tidelake.query.sql.parse import too_deep
from tidelake.query.sql.words import for_spark


def render_query(tree: exp.Query, engine: Engine, *, language: str) -> str:
    """Write a query as SQL of an engine; what was SQL means on DuckDB what it does on Spark."""
    held = exp.Subquery(this=tree.copy())  # so that the root can be replaced too
    for node in reversed(list(held.find_all(exp.Anonymous))):  # arguments before the calls they are given to
        function = FUNCTIONS.get(str(node.this))
        if function is not None and function.is_tree:
            node.replace(_as_tree(function, node.expressions, engine))
    if language == "sql":
        (as_spark if engine == "duckdb" else for_spark)(held)
    try:
        return render(cast(exp.Expression, held.this), engine)
    except RecursionError:
        raise too_deep() from None


def render(tree: exp.Expr, engine: Engine) -> str:
    """Write a tree as SQL of an engine."""
    generator = (DuckDB if engine == "duckdb" else Spark)().generator(unsupported_level=ErrorLevel.RAISE)
    # Inner calls are written before the outer ones; sqlglot's generators may be compiled, and then have no subclasses.
    held = exp.Paren(this=tree.copy())
    if engine == "spark":  # which keeps what is drawn by chance without being told, and has no word for it
        for common in held.find_all(exp.CTE):
            common.set("materialized", None)
    ours = [node for node in held.find_all(exp.Anonymous) if node.name.lower().startswith(PORTABLE)]
    try:
        for call in reversed(ours):
            texts = [generator.sql(argument) for argument in call.expressions]
            written = exp.Var(this=_written(call, texts, engine))
            written.type = call.type
            call.replace(written)
        return str(generator.generate(held.this, copy=False))
    except UnsupportedError as error:
        where = "in process: ask with engine='spark'" if engine == "duckdb" else "on Spark: ask with engine='local'"
        raise QueryError(f"a part of the query cannot be run {where}", kind="unsupported") from error
    except SqlglotError as error:  # it writes some calls out as others, which then lack what they need
        raise QueryError("a function is given too few arguments", kind="arguments") from error
    except (AttributeError, TypeError) as error:  # it reads arguments without looking whether they are there
        raise QueryError("a function is given arguments that it cannot have", kind="arguments") from error


def _written(call: exp.Anonymous, texts: Sequence[str], engine: Engine) -> str:
    name = call.name.lower()
    function = FUNCTIONS.get(name)
    try:
        written = None if function is None or function.is_tree else function.write(call.expressions, texts, engine)
    except (IndexError, ValueError) as error:
        if not name.startswith(OURS) or isinstance(error, QueryError):
            raise
        shown = name.removeprefix(OURS)
        raise QueryError(f"{shown} is given too few or too many arguments", kind="arguments") from None
    if written is None:
        raise InvalidInputError("no such portable function", name=name, kind="no_function")
    return written


def _as_tree(function: Function, arguments: Sequence[exp.Expr], engine: Engine) -> exp.Expr:
    """Read a function's template as a tree, with the arguments where its holes are."""
    template = function.form(engine)
    assert isinstance(template, str), "what becomes part of a tree is a template"
    names = [f"__argument_{number}" for number in range(len(arguments))]
    tree = sqlglot.parse_one(filled(template, names, engine), read=engine)
    for column in list(tree.find_all(exp.Column)):
        if column.name in names:
            given = arguments[names.index(column.name)].copy()
            wrapped = exp.paren(given) if isinstance(given, exp.Binary) else given
            if column is tree:
                return wrapped
            column.replace(wrapped)
    return tree
