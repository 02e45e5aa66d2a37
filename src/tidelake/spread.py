"""Know where else the values of a column may lie: in the overflow column, or at the path it was promoted from.

A value that did not fit its column is kept in the overflow column under the column's name, as is one that came before
its column; a promoted column's older values lie at their path. The table's settings say of which columns that is so.
It does not read values that are stored: see ``scan``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake import cbor
from tidelake.ingest import OVERFLOW_COLUMN, Coerced
from tidelake.schema import Schema
from tidelake.snapshot import Snapshot

PROMOTED, OVERFLOWED = "promoted:", "overflowed:"  # how names of settings begin
DEMOTED = "demoted:"  # of a column that is dynamic by now: the type it had, for people


def places(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Give the columns that settings of one sort name, with what they say."""
    return ((name.removeprefix(prefix), value) for name, value in settings.items() if name.startswith(prefix))


def spread_of(settings: Mapping[str, Any]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Give the columns whose values may lie elsewhere too: what did not fit, and what came before a promotion."""
    spread: dict[str, tuple[tuple[str, str], ...]] = {}
    for name, _ in places(settings, OVERFLOWED):
        spread[name] = ((OVERFLOW_COLUMN, name),)
    for name, (column, path) in places(settings, PROMOTED):
        spread[name] = (*spread.get(name, ()), (column, path))
    return spread


def also_in_overflow(head: Snapshot, widened: Schema) -> dict[str, Any]:
    """Mark the new columns of a table that has an overflow column: older rows may have such a value in there."""
    if OVERFLOW_COLUMN not in head.schema:
        return {}
    return {OVERFLOWED + name: True for name in widened.names if name not in head.schema}


def spilled_columns(coerced: Coerced) -> set[str]:
    """Give the columns that have a value in the overflow column, because it did not fit."""
    found = cbor.PathTable().add(coerced.batch.column(OVERFLOW_COLUMN).drop_null())
    return set(coerced.schema.names).intersection(coerced.schema.names if found is None else found.paths)


def with_promoted(coerced: Coerced, settings: Mapping[str, Any]) -> pa.RecordBatch:
    """Copy the values of promoted paths to their columns; they stay where they are, too."""
    batch = coerced.batch
    for name, (column, path) in places(settings, PROMOTED):
        kind, held = coerced.schema[name].type, batch.column(column)
        values = cbor.slices(held, path) if kind.kind == "dynamic" else cbor.extract(held, path).as_column(kind)
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, batch.schema.field(at), pc.coalesce(batch.column(name), values))
    return batch
