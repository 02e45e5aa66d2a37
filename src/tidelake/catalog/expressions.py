"""Say "among a list" in the words of SQLite and of PostgreSQL, for SQLAlchemy.

It does not know what is asked.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Text, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import NullType


class among(ColumnElement[Any]):
    """A column's value is in a list, given as one parameter of JSON text, so that one statement serves every length."""

    inherit_cache = True
    type = NullType()  # a Boolean would make SQLite compare it with 1

    def __init__(self, column: ColumnElement[Any], name: str) -> None:
        self.column = column
        self.listed = bindparam(name, type_=Text)


@compiles(among, "sqlite")
def _among_sqlite(element: among, compiler: Any, **words: Any) -> str:
    column, listed = (compiler.process(part, **words) for part in (element.column, element.listed))
    return f"{column} IN (SELECT value FROM json_each({listed}))"


@compiles(among, "postgresql")
def _among_postgres(element: among, compiler: Any, **words: Any) -> str:
    column, listed = (compiler.process(part, **words) for part in (element.column, element.listed))
    kind = element.column.type.compile(dialect=compiler.dialect)
    each = f"SELECT CAST(jsonb_array_elements_text(CAST({listed} AS JSONB)) AS {kind})"
    return f"{column} = ANY(ARRAY({each}))"
