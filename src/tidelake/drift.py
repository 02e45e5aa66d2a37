"""Follow values that change their type: find out what a column may become.

A long column may become real where every value that the table holds is one that a double holds. That is read off the
statistics of the extents and the hot rows themselves; an extent without statistics forbids it. It does not commit, and
it does not decide how a value fits: see ``ingest``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelake.catalog.protocol import Catalog
from tidelake.exact import are_exact, is_exact_array
from tidelake.hot import read_hot
from tidelake.snapshot import Extent, Snapshot
from tidelake.stats import column_from_json


def is_exact_in_table(catalog: Catalog, head: Snapshot, name: str) -> bool:
    """Whether a double holds every value that a column has in a snapshot's extents and hot rows."""
    return name in exact_columns(catalog, head, (name,))


def exact_columns(catalog: Catalog, head: Snapshot, names: Iterable[str]) -> frozenset[str]:
    """Return those of some columns of which a double holds every value in a snapshot's extents and hot rows."""
    asked = set(names)
    longs = {column.name for column in head.schema if column.name in asked and column.type.kind == "long"}
    inexact = set[str]()
    if longs and head.totals.extents:
        first = head.schema.columns[0].name  # every extent has it: where it has statistics, others have them
        for extent in catalog.extents(head.scope, sequence=head.sequence, stats=(first, *longs)):
            inexact.update(name for name in longs if not is_exact_in_extent(extent, name, first))
    hot = catalog.hot(head.scope, sequence=head.sequence) if longs and head.totals.hot_batches else ()
    for written, rows in read_hot(hot, lambda names: [name for name in names if name in longs]):
        inexact.update(name for name in longs.intersection(written) if not is_exact_array(rows.column(name)))
    return frozenset(asked - inexact)


def is_exact_in_extent(extent: Extent, name: str, other: str) -> bool:
    """Whether an extent's statistics show that a double holds every value of a column that it may have."""
    if name not in extent.column_stats:
        return other in extent.column_stats
    known = column_from_json(extent.column_stats[name])
    if known.nulls == extent.row_count:
        return True
    return isinstance(known.low, int) and isinstance(known.high, int) and are_exact(known.low, known.high)


def are_exact_in_extents(extents: Sequence[Extent], name: str) -> bool:
    """Whether the same holds for extents that were written just now, whose statistics are complete."""
    return all(
        name not in extent.column_stats or _is_real(extent, name) or is_exact_in_extent(extent, name, name)
        for extent in extents
    )


def _is_real(extent: Extent, name: str) -> bool:
    """Whether an extent has a column as real already, because its rows were the first that needed it."""
    return isinstance(column_from_json(extent.column_stats[name]).low, float)
