"""Declare a function once: its name, what it returns, and how each engine has it.

A form is a template (``templates``), a writer for what no template can say, or a Python function that is registered
with the engine under the function's name. In a tree a function is an anonymous call: ``contains`` is ``tide_contains``,
and a function of Spark's SQL that DuckDB lacks, such as ``bround``, is ``tide_sql_bround``. What a function returns is
one of ``text bool int long real decimal time date interval dynamic``, or ``same`` for what its first argument is; None
where it depends. It does not hold the functions: see ``registry``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from tidelake.query.functions.macros import Engine
from tidelake.query.functions.python import PythonFunction
from tidelake.query.functions.templates import Writer, filled

PORTABLE = "tide_"
OURS = "tide_sql_"  # functions of Spark's SQL, which Spark is given back by their own name

Form = str | Writer | PythonFunction


@dataclass(frozen=True, slots=True)
class Function:
    """A function under one name, and how each engine has it."""

    name: str  # in a tree
    returns: str | None
    duckdb: Form
    spark: Form | None  # None: duckdb_only says why
    duckdb_only: str = ""
    takes: str | None = None  # what a dynamic argument is read by, such as tide_text
    aggregates: bool = False  # makes one row of many
    makes_rows: bool = False  # makes many rows of one
    in_sql: bool = False  # is a function of SQL too, by its name
    is_tree: bool = False  # becomes part of the tree before SQL is given Spark's meaning

    def form(self, engine: Engine) -> Form | None:
        return self.duckdb if engine == "duckdb" else self.spark

    def write(self, nodes: Sequence[exp.Expr], texts: Sequence[str], engine: Engine) -> str | None:
        """Write a call in an engine's SQL; None if the engine does not have the function."""
        match self.form(engine):
            case None:
                return None
            case str(template):
                return filled(template, texts, engine)
            case PythonFunction() as function:
                return function.call(texts, engine)
            case writer:
                return writer(nodes, texts)


def declare(
    name: str,
    *,
    returns: str | None = None,
    both: Form | None = None,
    duckdb: Form | None = None,
    spark: Form | None = None,
    python: Callable[..., Any] | None = None,
    arity: int = 0,
    duckdb_only: str = "",
    aggregates: bool = False,
    makes_rows: bool = False,
    in_sql: bool = False,
    is_tree: bool = False,
) -> Function:
    """Declare a portable function by a form for both engines, by one for each, or by a Python function of some texts.

    A function that only DuckDB needs says why in ``duckdb_only``.
    """
    full = PORTABLE + name
    if python is not None:
        assert returns is not None, "a Python function says what it returns"
        both = PythonFunction(full, python, arity, returns)
    first, second = both or duckdb, both or spark
    assert first is not None, f"{name} has no form"
    return Function(
        full, returns, first, None if duckdb_only else second, duckdb_only,
        aggregates=aggregates, makes_rows=makes_rows, in_sql=in_sql, is_tree=is_tree,
    )  # fmt: skip


def of_spark(
    name: str,
    *,
    returns: str | None = None,
    duckdb: Form,
    spark: str | None = None,
    takes: str | None = None,
    aggregates: bool = False,
) -> Function:
    """Declare a function of Spark's SQL by its form in DuckDB; Spark has it by its name, unless a form is given."""
    return Function(
        OURS + name, returns, duckdb, spark or f"{name}({{*}})", takes=takes and PORTABLE + takes, aggregates=aggregates
    )
