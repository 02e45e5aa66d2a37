"""Run the functions that no SQL can write well, in Python: a function of one row's texts, over whole Arrow arrays.

Equal rows are computed once. A row that a function has no answer for is null. It does not know
which functions there are.
"""

from __future__ import annotations

import csv
import json
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

import pyarrow as pa

MAX_ROWS_SEEN = 10_000  # results kept for rows that repeat
# What a function raises for a row that it has no answer for: the answer is null.
_NO_ANSWER = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
    StopIteration,
    csv.Error,
    re.error,
    struct.error,
    zlib.error,
    expat.ExpatError,
)

_ARROW = {"text": pa.string(), "dynamic": pa.string(), "bool": pa.bool_(), "long": pa.int64(), "real": pa.float64()}
_DUCKDB = {"text": "VARCHAR", "dynamic": "VARCHAR", "bool": "BOOLEAN", "long": "BIGINT", "real": "DOUBLE"}
_SPARK = {"text": "string", "dynamic": "string", "bool": "boolean", "long": "bigint", "real": "double"}


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function of one row's texts, with how many it takes and what it gives."""

    name: str
    apply: Callable[..., Any]
    arity: int
    result: str

    def call(self, texts: Sequence[str], engine: str) -> str:
        """Write a call; arguments that are left out are null."""
        kind = "VARCHAR" if engine == "duckdb" else "STRING"
        given = [f"CAST({text} AS {kind})" for text in texts]
        given += [f"CAST(NULL AS {kind})"] * (self.arity - len(given))
        written = f"{self.name}({', '.join(given)})"
        if self.result != "dynamic":
            return written
        return f"CAST({written} AS JSON)" if engine == "duckdb" else f"try_parse_json({written})"

    def over(self, *columns: pa.Array) -> pa.Array:
        """Compute the function for each row of some arrays of text."""
        seen: dict[tuple[Any, ...], Any] = {}
        out: list[Any] = []
        for row in zip(*(column.to_pylist() for column in columns), strict=True):
            if row not in seen:
                if len(seen) > MAX_ROWS_SEEN:
                    seen.clear()
                seen[row] = self._safely(row)
            out.append(seen[row])
        return pa.array(out, _ARROW[self.result])

    def _safely(self, row: tuple[Any, ...]) -> Any:
        if row[0] is None:
            return None
        try:
            return self.apply(*row)
        except _NO_ANSWER:
            return None

    def register_duckdb(self, connection: Any) -> None:
        parameters = ["VARCHAR"] * self.arity
        result = _DUCKDB[self.result]
        connection.create_function(
            self.name, self._of_arrays(), parameters, result, type="arrow", null_handling="special"
        )

    def register_spark(self, session: Any) -> None:
        from pyspark.sql import functions

        if not hasattr(functions, "arrow_udf"):  # before 4.1: row by row
            session.udf.register(self.name, lambda *row: self._safely(row), _SPARK[self.result])
            return
        over = functions.arrow_udf(_annotated(self._of_arrays(), self.arity), _SPARK[self.result])
        session.udf.register(self.name, over)

    def _of_arrays(self) -> Callable[..., pa.Array]:
        """Return the function with its number of parameters, which engines look at."""
        over = self.over
        functions: dict[int, Callable[..., pa.Array]] = {
            1: lambda a: over(a),
            2: lambda a, b: over(a, b),
            3: lambda a, b, c: over(a, b, c),
        }
        return functions[self.arity]


def _annotated(function: Any, arity: int) -> Any:
    """Return the types of arrays, which Spark reads to know what it hands over."""
    names = function.__code__.co_varnames[:arity]
    function.__annotations__ = {**dict.fromkeys(names, pa.Array), "return": pa.Array}
    return function


def dumped(value: Any) -> str:
    """Return a value as JSON, which is how a function returns a dynamic value."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
