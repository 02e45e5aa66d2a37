"""Widen a table's schema: a new column, or a wider type for one, in a commit of its own.

It does not narrow: what every row's value would not survive is a SchemaError. Rows are never rewritten for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidelake.catalog.protocol import new_id
from tidelake.errors import ConflictError, InvalidInputError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.schema import DataType, Schema
from tidelake.model.snapshot import Commit, UpdateTable
from tidelake.write.drift import also_in_overflow, check_widening

WIDENING_TRIES = 8  # each lost to a writer that widened the schema in another way


def add_column(table: TableHandle, name: str, type: str | DataType) -> Schema:
    """Add a nullable column, or widen one, as ``Table.add_column`` says."""
    table.refuse_when_pinned()
    refuse_of_user(table)
    kind = DataType.parse(type) if isinstance(type, str) else type
    for tries in range(WIDENING_TRIES):
        head = table.catalog.head(table.info.scope)
        check_widening(table.catalog, head, name, kind)
        try:
            return widen(table, [(name, kind)], also_in_overflow(head, head.schema.widen([(name, kind)])))
        except ConflictError as error:
            if error.kind != "schema" or tries + 1 == WIDENING_TRIES:
                raise
    raise AssertionError("the last try returns or raises")


def refuse_of_user(table: TableHandle) -> None:
    """Raise InvalidInputError for one user's table: its schema is that of the whole table."""
    if table.user:
        raise InvalidInputError(
            "the schema belongs to the table: alter it without a user", table=table.name, kind="has_user"
        )


def widen(table: TableHandle, columns: Iterable[tuple[str, DataType]], settings: Mapping[str, Any]) -> Schema:
    """Commit a schema that has these columns, and settings; nothing if the table has them already."""
    table.refuse_when_pinned()
    head = table.catalog.head(table.info.scope)
    widened = head.schema.widen(columns)
    if widened == head.schema and all(head.settings.get(name) == value for name, value in settings.items()):
        return head.schema
    action = UpdateTable(widened if widened != head.schema else None, settings)
    table.coordinator.commit(Commit(new_id(), table.info.scope, head.sequence, (action,), operation="alter"))
    return table.schema
