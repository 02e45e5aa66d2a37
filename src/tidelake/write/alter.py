"""Alter a table: a new column, a wider type for one, or other settings, in a commit of its own.

It does not narrow: what every row's value would not survive is a SchemaError. Rows are never rewritten for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidelake.catalog.names import refuse_staged
from tidelake.catalog.protocol import new_id
from tidelake.errors import ConflictError, InvalidInputError, UnavailableError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.model.schema import DataType, Schema
from tidelake.model.settings import FLUSH_OFF, SEGMENT_FORMAT, TableSettings
from tidelake.model.snapshot import Commit, UpdateTable
from tidelake.model.times import duration_us
from tidelake.write.create import cluster_columns, known_format
from tidelake.write.drift import also_in_overflow, check_widening

CHANGEABLE = ("format", "retention", "flush_age", "promote", "history", "cluster_by", "upkeep")
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


def rename_table(lake: LakeHandle, name: str, to: str, *, replace: bool = False) -> None:
    """Give a table another name, at once, and drop who has it if told so; segments of scopes lie in a folder of it."""
    info = lake.catalog.table(name)
    if TableSettings.of(lake.catalog.settings(info.id)).is_segmented:
        raise UnavailableError("tables of users and tables with a key keep their names", table=info, kind="no_rename")
    refuse_staged(to)
    lake.catalog.rename_table(name, to, replace=replace)


def change_settings(table: TableHandle, changes: Mapping[str, Any]) -> None:
    """Change what a table was told of upkeep and of how extents are written; None brings the default back."""
    table.refuse_when_pinned()
    refuse_of_user(table)
    head = table.catalog.head(table.info.scope)
    told = {name: value for name, value in (dict(head.settings) | dict(changes)).items() if value is not None}
    asked = TableSettings.of(told | {"format": told.get("format") or table.catalog.layout.default_format})
    for duration in (asked.retention, asked.history, None if asked.flush_age == FLUSH_OFF else asked.flush_age):
        if duration is not None:
            duration_us(duration)
    if asked.retention is not None and asked.time is None:
        raise InvalidInputError("a retention needs a time column", table=table.name, kind="no_time")
    known_format(asked.format)
    if asked.is_segmented and asked.format != SEGMENT_FORMAT:
        raise InvalidInputError(f"the segments of this table are {SEGMENT_FORMAT} files", format=asked.format)
    cluster_columns(head.schema, asked.cluster_by)
    shape = asked.to_json()
    unknown = [name for name in changes if name not in CHANGEABLE]
    if unknown:
        raise InvalidInputError(
            "a setting of a new table cannot be changed later", setting=unknown[0], changeable=", ".join(CHANGEABLE)
        )
    widen(table, (), {name: shape.get(name) for name in changes})
