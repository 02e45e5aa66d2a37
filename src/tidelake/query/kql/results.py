"""Finish a result that only the data could shape: a bag's keys become columns.

It does not run queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.query.kql.lowering import Lowered


def unpacked(lowered: Lowered, table: pa.Table) -> tuple[pa.Table, tuple[tuple[str, str], ...]]:
    """Return a result with the keys of its open bag as columns, sorted by name, and the types of all columns.

    A key's column is long, real, bool or string where all of its values are, and JSON text otherwise. A key that is
    also a column's name is left out, replaces the column, or is an error, as the query says. Whole numbers beyond 64
    bits make a column real.
    """
    if lowered.unpack is None:
        return table, lowered.columns
    at = table.schema.get_field_index(lowered.unpack)
    bags = [orjson.loads(text) if text else {} for text in table.column(at).to_pylist()]
    bags = [bag if isinstance(bag, dict) else {} for bag in bags]
    table = table.remove_column(at)
    columns = [column for column in lowered.columns if column[0] != lowered.unpack]
    keys, names = {key for bag in bags for key in bag}, [name for name, _ in columns]
    if (both := sorted(keys.intersection(names))) and lowered.conflict == "error":
        hint = "columnsConflict='keep_source' or 'replace_source' says which counts"
        raise InvalidInputError(f"the bag has a key that is also a column: {hint}", kind="conflict", name=both[0])
    if lowered.conflict == "replace_source":
        table = table.drop_columns([name for name in names if name in keys])
        columns = [column for column in columns if column[0] not in keys]
    for key in sorted(keys - {name for name, _ in columns}):
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
