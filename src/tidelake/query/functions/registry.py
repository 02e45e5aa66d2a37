"""Hold every declared function, by the name it has in a tree, and register with engines what no SQL can write.

Rendering, registration, what SQL may call, and what a limit may reach past are all read from here. It does not write
SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelake.query.functions import (
    addresses,
    aggregates,
    arrays,
    bags,
    conversions,
    dynamic,
    encodings,
    numbers,
    pairs,
    parsing,
    places,
    series,
    sized,
    terms,
    texts,
    times,
    units,
    vectors,
)
from tidelake.query.functions.declaration import PORTABLE, Function
from tidelake.query.functions.python import PythonFunction
from tidelake.query.functions.sized import register_fits
from tidelake.query.sql import decimal_meaning
from tidelake.query.sql import functions as of_sql
from tidelake.query.sql import python as sql_python

FAMILIES: tuple[tuple[Function, ...], ...] = (
    terms.FUNCTIONS,
    texts.FUNCTIONS,
    encodings.FUNCTIONS,
    parsing.FUNCTIONS,
    pairs.FUNCTIONS,
    conversions.FUNCTIONS,
    numbers.FUNCTIONS,
    times.FUNCTIONS,
    dynamic.FUNCTIONS,
    arrays.FUNCTIONS,
    bags.FUNCTIONS,
    vectors.FUNCTIONS,
    aggregates.FUNCTIONS,
    series.FUNCTIONS,
    addresses.FUNCTIONS,
    places.FUNCTIONS,
    units.FUNCTIONS,
    sized.FUNCTIONS,
    tuple(of_sql.CALLS.values()),
    sql_python.FUNCTIONS,
    decimal_meaning.FUNCTIONS,
)

FUNCTIONS: Mapping[str, Function] = {function.name: function for family in FAMILIES for function in family}

# What our own functions are called in SQL, and the names they have in a tree.
IN_SQL: Mapping[str, str] = {
    name.removeprefix(PORTABLE): name for name, function in FUNCTIONS.items() if function.in_sql
}

# A limit or a condition must not be asked of the rows that such a call reads.
AGGREGATES = frozenset(name for name, function in FUNCTIONS.items() if function.aggregates)
ROW_MAKERS = frozenset(name for name, function in FUNCTIONS.items() if function.makes_rows)


def register_duckdb(connection: Any) -> None:
    """Make the functions that no SQL can write known to a DuckDB connection."""
    for function in FUNCTIONS.values():
        if isinstance(function.duckdb, PythonFunction):
            function.duckdb.register_duckdb(connection)
    register_fits(connection)


def register_spark(session: Any) -> None:
    """Make the functions that no SQL can write known to a Spark session."""
    for function in FUNCTIONS.values():
        if isinstance(function.spark, PythonFunction):
            function.spark.register_spark(session)
