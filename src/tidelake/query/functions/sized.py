"""Write the guards of values whose size only rows tell, such as ``repeat(message, n)``, for either engine.

A guard gives its first argument as it is, or fails where the value that is made of it would be too large; see
``row_sizes`` for where guards stand. DuckDB computes a call for a vector of rows at once, and what it makes is outside
of its account: there the sizes of a vector are added up. Spark makes one value after the other. It does not run SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidelake.query.functions.declaration import PORTABLE, Function, declare
from tidelake.query.functions.templates import Writer

VECTOR_BYTES = 128 << 20  # of the values that one call makes at once on DuckDB
VALUE_BYTES = 16 << 20  # of one value on Spark, as of one that is told from the text
ITEM_BYTES = 8
MAX_ITEMS = 1 << 20  # to which KQL cuts its lists
TOO_LARGE = "a call makes texts or lists that are too large: ask for fewer or shorter ones"

COUNT, ITEMS, REPLACED, JOINED = "tide_sized_count", "tide_sized_items", "tide_sized_replaced", "tide_sized_joined"
_FITS = "tide_fits"
_MESSAGE = TOO_LARGE.replace("'", "''")

Size = Callable[[Sequence[str], Callable[[str], str]], str]


def _count(texts: Sequence[str], length: Callable[[str], str]) -> str:
    """Return the size of ``texts[1]``, ``texts[0]`` times; where there is a third, no more than so many times."""
    times = f"CAST({texts[0]} AS DOUBLE)" if len(texts) < 3 else f"least(CAST({texts[0]} AS DOUBLE), {texts[2]})"
    return f"{times} * {length(texts[1])}"


def _items(texts: Sequence[str], length: Callable[[str], str]) -> str:
    """Return the size of the numbers up to ``texts[0]`` from ``texts[1]``, in steps of ``texts[2]``."""
    steps = f"abs((CAST({texts[0]} AS DOUBLE) - {texts[1]}) / nullif({texts[2]}, 0))"
    return f"least({steps}, {MAX_ITEMS}) * {ITEM_BYTES}" if len(texts) > 3 else f"{steps} * {ITEM_BYTES}"


def _replaced(texts: Sequence[str], length: Callable[[str], str]) -> str:
    return f"CAST({length(texts[0])} AS DOUBLE) * {length(texts[2])} / greatest({length(texts[1])}, 1)"


def _joined(texts: Sequence[str], length: Callable[[str], str]) -> str:
    return " + ".join(f"coalesce(CAST({length(text)} AS DOUBLE), 0)" for text in texts)


_SIZES: Mapping[str, Size] = {COUNT: _count, ITEMS: _items, REPLACED: _replaced, JOINED: _joined}


def _on_duckdb(size: Size) -> Writer:
    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        made = size(texts, lambda text: f"strlen(CAST({text} AS VARCHAR))")
        return f"CASE WHEN {_FITS}({made}) THEN {texts[0]} END"

    return write


def _on_spark(size: Size) -> Writer:
    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        made = size(texts, lambda text: f"octet_length(CAST({text} AS STRING))")
        return f"IF({made} > {VALUE_BYTES}, raise_error('{_MESSAGE}'), {texts[0]})"

    return write


FUNCTIONS: tuple[Function, ...] = tuple(
    declare(name.removeprefix(PORTABLE), duckdb=_on_duckdb(size), spark=_on_spark(size))
    for name, size in _SIZES.items()
)


def register_fits(connection: Any) -> None:
    """Make the sum over a vector known to a DuckDB connection."""
    connection.create_function(_FITS, _fits, ["DOUBLE"], "BOOLEAN", type="arrow", null_handling="special")


def _fits(sizes: pa.ChunkedArray) -> pa.Array:
    """Return true for each row, or raise if all of them together are too large."""
    if (pc.sum(pc.max_element_wise(sizes, 0.0)).as_py() or 0.0) > VECTOR_BYTES:
        raise ValueError(TOO_LARGE)
    return pa.repeat(True, len(sizes))
