"""Find where else the values of a column may lie: in the overflow column, or at the path it was promoted from.

A value that did not fit its column is kept in the overflow column under the column's name, as is one that came before
its column; a promoted column's older values lie at their path. The table's settings say of which columns that is so.
It does not read values that are stored: see ``extents``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidelake.catalog.protocol import Catalog
from tidelake.dynamic import cbor
from tidelake.errors import QueryError, SchemaError
from tidelake.model.expression import Distance, parse_where
from tidelake.model.path_value import PathValue
from tidelake.model.predicate import DynamicPathExists, Predicate, columns_of
from tidelake.model.schema import HIDDEN_IDS, OVERFLOW_COLUMN, DataType, Schema
from tidelake.model.settings import OVERFLOWED, PROMOTED, columns_under
from tidelake.model.snapshot import Snapshot
from tidelake.pruning.outcomes import may_match
from tidelake.pruning.statistics import Stats, column_from_json
from tidelake.scan.hot import read_hot


def alternatives_of(settings: Mapping[str, Any]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the columns whose values may lie elsewhere too: what did not fit, and what came before a promotion."""
    alternatives: dict[str, tuple[tuple[str, str], ...]] = {}
    for name, _ in columns_under(OVERFLOWED, settings):
        alternatives[name] = ((OVERFLOW_COLUMN, name),)
    for name, (column, path) in columns_under(PROMOTED, settings):
        alternatives[name] = (*alternatives.get(name, ()), (column, path))
    return alternatives


def understood(
    catalog: Catalog,
    snapshot: Snapshot,
    columns: Sequence[str | Distance | PathValue] | None,
    where: Predicate | str | None,
) -> tuple[Snapshot, Predicate | None]:
    """Read a condition, and show as a column what is none and is found in the overflow column."""
    names = [name for name in columns or () if isinstance(name, str)]
    names += [] if where is None or isinstance(where, str) else columns_of(where)
    for name in names:
        snapshot = showing(catalog, snapshot, name) or snapshot
    while isinstance(where, str):
        try:
            return snapshot, parse_where(where, columns=snapshot.schema.names)
        except QueryError as error:
            found = showing(catalog, snapshot, error.unknown) if error.unknown else None
            if found is None:
                raise nor_in_overflow(error, [snapshot.schema]) from None
            snapshot = found
    return snapshot, where


def showing(catalog: Catalog, snapshot: Snapshot, name: str) -> Snapshot | None:
    """Return a snapshot that shows as a column what is none until it is named; None if there is nothing of the name."""
    if snapshot.is_keyed and name in HIDDEN_IDS and name not in snapshot.schema:
        return replace(snapshot, schema=snapshot.schema.with_hidden([name]))
    return with_overflowed(catalog, snapshot, name)


def with_overflowed(catalog: Catalog, snapshot: Snapshot, name: str) -> Snapshot | None:
    """Return a snapshot that shows as a dynamic column what its overflow column has under a name; None if nothing."""
    schema = snapshot.schema
    if name in schema or OVERFLOW_COLUMN not in schema or not _is_in_overflow(catalog, snapshot, name):
        return None
    try:
        wider = schema.widen([(name, DataType("dynamic"))])
    except SchemaError:  # no name for a column, or one too many
        return None
    return replace(snapshot, schema=wider, settings={**snapshot.settings, OVERFLOWED + name: True})


def nor_in_overflow(error: QueryError, schemas: Iterable[Schema]) -> QueryError:
    """Add to an error about an unknown name that an overflow column, where there is one, does not have it either."""
    if error.unknown is not None and any(OVERFLOW_COLUMN in schema for schema in schemas):
        error.facts["hint"] = f"nor is it in {OVERFLOW_COLUMN}, which has the fields that are no column"
    return error


def _is_in_overflow(catalog: Catalog, snapshot: Snapshot, name: str) -> bool:
    sequence = snapshot.sequence
    hot = catalog.hot(snapshot.scope, sequence=sequence) if snapshot.totals.hot_batches else ()
    for written, rows in read_hot(hot, lambda names: [each for each in names if each == OVERFLOW_COLUMN]):
        if OVERFLOW_COLUMN in written and cbor.extract(rows.column(OVERFLOW_COLUMN), name).is_present().any():
            return True
    if not snapshot.totals.extents:
        return False
    asked = DynamicPathExists(OVERFLOW_COLUMN, name)
    for extent in catalog.extents(snapshot.scope, sequence=sequence, stats=(OVERFLOW_COLUMN,)):
        shape = extent.column_stats.get(OVERFLOW_COLUMN)
        if shape and may_match(asked, Stats(extent.row_count, {OVERFLOW_COLUMN: column_from_json(shape)})):
            return True
    return False
