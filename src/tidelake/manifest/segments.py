"""Say of an extent what a manifest says of a segment.

Numbers of rows (``_seq``) lie in a range that an extent knows: stored in a column of its own where rows of several
commits were united, else counted from the snapshot that added it. Bounds are those of the columns that rows are looked
up by: the key, or the time where there is no key. It does not read objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tidelake.catalog.protocol import TableInfo
from tidelake.errors import CorruptError
from tidelake.manifest.manifest_json import ColumnBounds, Segment
from tidelake.manifest.parts import Listed
from tidelake.manifest.scalars import typed_bound
from tidelake.model.schema import SEQ_COLUMN, Schema
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Extent
from tidelake.objects import scope_folder

NOTED = ("key", "time", "retention", "history", "flush_age")  # settings that a manifest carries along
SEQUENCE_BITS = 32  # the rows of one snapshot are numbered below its sequence
_BATCH = re.compile(r"batch-(0|[1-9][0-9]{0,18})\.parquet")
_ID = re.compile(r"[0-9a-f]{32}")


def indexed_columns(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns whose bounds a manifest has: those that rows are looked up by."""
    key: Sequence[str] = settings.get("key") or ()
    time = settings.get("time")
    return tuple(key) if key else (time,) if time else ()


def listed_statistics(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns whose statistics a manifest is made from."""
    return (*indexed_columns(settings), SEQ_COLUMN)


def listed_of(extent: Extent, schema: Schema, settings: Mapping[str, Any], folder: str) -> Listed:
    """Return an extent of a scope whose segments lie in a folder as its manifest lists it."""
    if not extent.key.startswith(f"{folder}/"):
        raise CorruptError("a segment lies outside of its scope's folder", key=extent.key, folder=folder)
    path = extent.key[len(folder) + 1 :]
    low, high = sequence_range(extent)
    columns = {column.name: column for column in schema}
    stats = {
        columns[name].id: _bounds(extent.column_stats[name], columns[name].type)
        for name in indexed_columns(settings)
        if name in columns and name in extent.column_stats
    }
    segment = Segment(
        min_seq=low,
        max_seq=high,
        row_count=extent.row_count,
        size_bytes=extent.byte_size,
        created_at=_made_ms(extent.id),
        id=path,
        path=path,
        column_stats=stats,
        schema_version=extent.schema_version,
    )
    return Listed(segment, extent.id)


def table_notes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a table's settings is needed to read its segments without its catalog."""
    return {name: settings[name] for name in NOTED if settings.get(name)}


def sequence_range(extent: Extent) -> tuple[int, int]:
    """Return the lowest and the highest number of an extent's rows; bounds where the rows themselves tell."""
    stored = extent.column_stats.get(SEQ_COLUMN) or {}
    low, high = stored.get("min"), stored.get("max")
    if type(low) is int and type(high) is int:
        return low, high
    first = extent.added_seq << SEQUENCE_BITS if extent.first_seq is None else extent.first_seq
    return first, first + max(extent.row_count - 1, 0)


def batch_number(path: str) -> int | None:
    """Return the number in the name of a segment; None if it takes none."""
    found = _BATCH.fullmatch(path)
    return int(found[1]) if found else None


def last_batch_number(paths: Sequence[str], before: int) -> int:
    """Return the highest number that was ever taken: of these, and of those that are gone."""
    return max([before, *(number for path in paths if (number := batch_number(path)) is not None)])


def table_text(info: TableInfo) -> str:
    """Return a table's name as a manifest has it."""
    return f"{info.namespace}.{info.name}"


def _bounds(stats: Mapping[str, Any], kind: Any) -> ColumnBounds:
    low, high = typed_bound(stats.get("min"), kind), typed_bound(stats.get("max"), kind)
    nulls = stats.get("nulls")
    return ColumnBounds(low, high, nulls if type(nulls) is int else None)


def _made_ms(extent_id: str) -> int:
    """Return when an id was made, which its first digits tell."""
    return int(extent_id[:13], 16) // 1000 if _ID.fullmatch(extent_id) else 0


def is_segmented(settings: Mapping[str, Any]) -> bool:
    """Whether a table's scopes have segments and a manifest: it has users, or a key."""
    return TableSettings.of(settings).is_segmented or bool(settings.get("key"))


def folder_of(info: TableInfo, user: str) -> str:
    """Return the folder of a scope's segments."""
    return scope_folder(info.namespace, info.name, user)
