"""Fill in values that a source left out because they are as they were.

PostgreSQL does not tell a long value again that an update did not touch. A synced row is whole, so the value is taken
from the change before: one of the same batch, or else the latest in the table. It does not ask the source, which may be
further by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidelake.connectors.definition import PK
from tidelake.connectors.latest import latest_rows
from tidelake.connectors.protocol import TableChanges
from tidelake.handle.table_handle import TableHandle
from tidelake.model.predicate import InSet


def filled(table: TableHandle, pieces: Sequence[TableChanges]) -> list[TableChanges]:
    """Return changes of one table, which come in order, with every value."""
    seen: dict[str, dict[str, Any]] = {}  # by column, the values so far of keys that need them
    for each in pieces:
        keys = each.rows.column(PK)
        for name, left_out in each.unchanged.items():
            needed = keys.filter(pa.array(left_out)).unique().to_pylist()
            seen.setdefault(name, {}).update(dict.fromkeys(needed))
    for name, values in seen.items():
        values.update(_latest(table, name, values))
    return [_filled(each, seen) for each in pieces]


def _latest(table: TableHandle, name: str, keys: Iterable[str]) -> Mapping[str, Any]:
    if name not in table.schema:
        return {}
    found = latest_rows(table, [PK, name], InSet(PK, tuple(sorted(keys)))).read_all()
    return dict(zip(found.column(PK).to_pylist(), found.column(name).to_pylist(), strict=True))


def _filled(changes: TableChanges, seen: Mapping[str, dict[str, Any]]) -> TableChanges:
    rows, keys = changes.rows, changes.rows.column(PK).to_pylist()
    for name, known in seen.items():
        if name not in rows.column_names:
            continue
        values, left_out = rows.column(name).to_pylist(), changes.unchanged.get(name)
        for at, key in enumerate(keys):
            if key not in known:
                continue
            if left_out is not None and left_out[at]:
                values[at] = known[key]
            else:
                known[key] = values[at]
        field = rows.schema.field(name)
        rows = rows.set_column(rows.schema.get_field_index(name), field, pa.array(values, field.type))
    return replace(changes, rows=rows, unchanged={})
