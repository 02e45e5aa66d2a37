"""Finish a result that only the data could shape: a bag's keys become columns.

It does not run queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from tidelake.query.kql.lowering import Lowered


def unpacked(lowered: Lowered, table: pa.Table) -> tuple[pa.Table, tuple[tuple[str, str], ...]]:
    """Give a result with the keys of its open bag as columns, sorted by name, and the types of all columns.

    A key's column is long, real, bool or string where all of its values are, and JSON text otherwise. A key that is
    also a column's name is left out. Whole numbers beyond 64 bits make a column real.
    """
    if lowered.unpack is None:
        return table, lowered.columns
    at = table.schema.get_field_index(lowered.unpack)
    bags = [orjson.loads(text) if text else {} for text in table.column(at).to_pylist()]
    bags = [bag if isinstance(bag, dict) else {} for bag in bags]
    table = table.remove_column(at)
    columns = [column for column in lowered.columns if column[0] != lowered.unpack]
    for key in sorted({key for bag in bags for key in bag} - {name for name, _ in columns}):
        array, kind = _column([bag.get(key) for bag in bags])
        table = table.append_column(key, array)
        columns.append((key, kind))
    return table, tuple(columns)


def _column(values: Sequence[Any]) -> tuple[pa.Array, str]:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.array(values, pa.bool_()), "bool"
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pa.array(values, pa.int64()), "long"
    if kinds and kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64()), "real"
    if kinds == {str}:
        return pa.array(values, pa.string()), "string"
    return pa.array(
        [None if value is None else orjson.dumps(value).decode() for value in values], pa.string()
    ), "dynamic"
