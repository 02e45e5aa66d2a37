"""Hold the functions that mean the same on both engines, and write a tree as an engine's SQL.

A tree names a portable function as an anonymous call, such as ``tide_has(message, 'error')``. Most are written out in
the engine's own SQL; those of ``python`` are registered with the engine under their name and work on whole
Arrow arrays. In DuckDB a dynamic value is JSON, in Spark VARIANT; both sessions run in UTC. It does not run SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError, UnsupportedError

from tidelake.errors import InvalidInputError, QueryError
from tidelake.query.functions import on_duckdb, on_spark
from tidelake.query.functions.python import PYTHON_FUNCTIONS, PythonFunction
from tidelake.query.functions.sized import register_fits
from tidelake.query.functions.templates import filled
from tidelake.query.sql import functions
from tidelake.query.sql.python import SQL_PYTHON

Engine = Literal["duckdb", "spark"]
Rendering = Callable[[Sequence[exp.Expr]], exp.Expr]
Writer = Callable[[Sequence[exp.Expr], Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class Function:
    """A function under one name on both engines, and how each writes it."""

    name: str
    duckdb: Rendering
    spark: Rendering


def render(tree: exp.Expr, engine: Engine) -> str:
    """Write a tree as SQL of an engine."""
    generator = (DuckDB if engine == "duckdb" else Spark)().generator(unsupported_level=ErrorLevel.RAISE)
    writers = on_duckdb.WRITERS if engine == "duckdb" else on_spark.WRITERS
    # Inner calls are written before the outer ones; sqlglot's generators may be compiled, and then have no subclasses.
    held = exp.Paren(this=tree.copy())
    if engine == "spark":  # which keeps what is drawn by chance without being told, and has no word for it
        for common in held.find_all(exp.CTE):
            common.set("materialized", None)
    ours = [node for node in held.find_all(exp.Anonymous) if node.name.lower().startswith("tide_")]
    try:
        for call in reversed(ours):
            texts = [generator.sql(argument) for argument in call.expressions]
            written = exp.Var(this=_written(call, texts, engine, writers))
            written.type = call.type
            call.replace(written)
        return str(generator.generate(held.this, copy=False))
    except UnsupportedError as error:
        where = "in process: ask with engine='spark'" if engine == "duckdb" else "on Spark: ask with engine='local'"
        raise QueryError(f"a part of the query cannot be run {where}", kind="unsupported") from error
    except SqlglotError as error:  # it writes some calls out as others, which then lack what they need
        raise QueryError("a function is given too few arguments", kind="arguments") from error


def _written(call: exp.Anonymous, texts: Sequence[str], engine: Engine, writers: Mapping[str, Writer]) -> str:
    name = call.name.lower()
    if name.startswith(functions.OURS) and engine == "spark":
        shown = name.removeprefix(functions.OURS)
        return filled(functions.ON_SPARK.get(shown, f"{shown}({{*}})"), texts)
    if writer := writers.get(name):
        return writer(call.expressions, texts)
    if writer := functions.WRITERS.get(name):
        try:
            return writer(call.expressions, texts)
        except QueryError:
            raise
        except (IndexError, ValueError):
            shown = name.removeprefix(functions.OURS)
            raise QueryError(f"{shown} is given too few or too many arguments", kind="arguments") from None
    if name in _OF_SQL:
        return _OF_SQL[name].call(texts, engine)
    if name in PYTHON_FUNCTIONS:
        return PYTHON_FUNCTIONS[name].call(texts, engine)
    raise InvalidInputError("no such portable function", name=name, kind="no_function")


def _rendering(name: str, engine: Engine) -> Rendering:
    def rendering(arguments: Sequence[exp.Expr]) -> exp.Expr:
        call = exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])
        return exp.Var(this=render(call, engine))

    return rendering


FUNCTIONS: Mapping[str, Function] = {
    name: Function(name, _rendering(name, "duckdb"), _rendering(name, "spark"))
    for name in sorted({*on_duckdb.WRITERS, *PYTHON_FUNCTIONS} & {*on_spark.WRITERS, *PYTHON_FUNCTIONS})
}


_OF_SQL: Mapping[str, PythonFunction] = {each[0]: PythonFunction(*each) for each in SQL_PYTHON}


def register_duckdb(connection: Any) -> None:
    """Make the functions that no SQL can write known to a DuckDB connection."""
    for function in (*PYTHON_FUNCTIONS.values(), *_OF_SQL.values()):
        function.register_duckdb(connection)
    register_fits(connection)


def register_spark(session: Any) -> None:
    """Make the functions that no SQL can write known to a Spark session."""
    for function in PYTHON_FUNCTIONS.values():
        function.register_spark(session)
