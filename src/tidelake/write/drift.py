"""Follow values that change their type: find out what a column may become.

A long column may become real where every value that the table holds is one that a double holds. That is read off the
statistics of the extents and the hot rows themselves; an extent without statistics forbids it.

A column whose values truly mix becomes dynamic: where, of the values in the newest ``WINDOW_ROWS`` rows, or in one
append if that is longer, at least ``MIN_MISFITS`` and more than ``MISFIT_SHARE`` do not fit it. The window is the
rows of the append, the hot rows before it, and the newest extents as far as they say how many of their values did not
fit. The time column, columns that name an entity, and vectors stay as they are.

Of values that lie elsewhere than in their column, a commit's settings tell: see ``scan.alternatives``, which reads
them. It does not commit, and it does not decide how a value fits: see ``ingest``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.catalog.protocol import Catalog
from tidelake.dynamic import cbor
from tidelake.errors import SchemaError
from tidelake.ingest import Coerced
from tidelake.model.exact import are_exact, is_exact_array
from tidelake.model.schema import OVERFLOW_COLUMN, DataType, Schema, narrowing, wider_type
from tidelake.model.settings import OVERFLOWED, PROMOTED, USER, columns_under
from tidelake.model.snapshot import Extent, Snapshot
from tidelake.pruning.statistics import column_from_json
from tidelake.runtime.deferred import deferred
from tidelake.scan.hot import read_hot

if TYPE_CHECKING:
    from tidelake.pruning import collector
else:
    collector = deferred("tidelake.pruning.collector")  # brings a compiler, which few appends need

WINDOW_ROWS = 1_000
MIN_MISFITS = 10  # fewer are mistakes
MISFIT_SHARE = 0.01  # so are those among so many values that fit
MAX_LISTED = 1_000  # extents: of a larger table only the hot rows are looked at, as listing costs more than an append


@dataclass(slots=True)
class Tally:
    """How many values of some rows fit their column, and how many did not."""

    fits: int = 0
    misfits: int = 0

    @property
    def is_mixed(self) -> bool:
        """Whether so many do not fit that the column is one of several types."""
        return self.misfits >= MIN_MISFITS and self.misfits > MISFIT_SHARE * (self.fits + self.misfits)


def fixed_columns(settings: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns whose type a table relies on: of its time, its index, and its entities."""
    entity = settings.get("entity") or ()
    names = (settings.get("time"), settings.get("index"), *((entity,) if isinstance(entity, str) else entity))
    return frozenset(name for name in names if name is not None)


def demoted_in(held: Schema, wider: Schema) -> dict[str, str]:
    """Return the columns that a wider schema has made dynamic, with the type that they had."""
    return {
        column.name: str(column.type)
        for column in held
        if column.type.kind != "dynamic" and wider[column.name].type.kind == "dynamic"
    }


def changes_of(held: Schema, wider: Schema, tallies: Mapping[str, Tally]) -> tuple[str, ...]:
    """Return in sentences how columns changed, and of which there were values that did not fit."""
    said = []
    for column in wider:
        old = held[column.name].type if column.name in held else column.type
        if old != column.type:
            why = ": its values are of several types" if column.type.kind == "dynamic" else ""
            said.append(f"{column.name} was {old} and is {column.type} now{why}")
        elif column.type != DataType("dynamic") and (misfits := tallies.get(column.name, Tally()).misfits):
            values = "1 value" if misfits == 1 else f"{misfits:,} values"
            said.append(f"{values} of {column.name} did not fit its type, {column.type}: see {OVERFLOW_COLUMN}")
    return tuple(said)


def tally(batches: Iterable[pa.RecordBatch], name: str) -> Tally:
    """Count the values of a column that fit, and those that lie in the overflow column instead."""
    found = Tally()
    for batch in batches:
        if name in batch.schema.names:
            found.fits += batch.num_rows - batch.column(name).null_count
        if OVERFLOW_COLUMN in batch.schema.names:
            counts = collector.misfits_in(batch.column(OVERFLOW_COLUMN), (name,)).get(name, {})
            found.misfits += counts.get("count", 0)
    return found


def tally_before(catalog: Catalog, head: Snapshot, name: str, rows: int) -> Tally:
    """Count the same in the newest rows of a snapshot, about as many as asked for."""
    hot = catalog.hot(head.scope, sequence=head.sequence) if head.totals.hot_batches else ()
    found = tally(
        (batch for _, batch in read_hot(hot, lambda names: [n for n in names if n in (name, OVERFLOW_COLUMN)])), name
    )
    left = rows - head.totals.hot_rows
    if left <= 0 or not 0 < head.totals.extents <= MAX_LISTED:
        return found
    listed = catalog.extents(head.scope, sequence=head.sequence, stats=(name, OVERFLOW_COLUMN))
    for extent in sorted(listed, key=lambda each: -each.added_seq):
        if left <= 0:
            break
        stats = {key: column_from_json(shape) for key, shape in extent.column_stats.items()}
        own, over = stats.get(name), stats.get(OVERFLOW_COLUMN)
        part = min(1.0, left / extent.row_count) if extent.row_count else 0.0  # taken to be like the whole
        left -= extent.row_count
        if own is not None and own.nulls is not None:
            found.fits += round(part * (extent.row_count - own.nulls))
        if over is not None and over.misfits is not None:
            found.misfits += round(part * over.misfits.get(name, {}).get("count", 0))
    return found


def check_widening(catalog: Catalog, head: Snapshot, name: str, kind: DataType) -> None:
    """Refuse to narrow a column, and to make real what a double does not hold."""
    if name not in head.schema:
        return
    held = head.schema[name]
    is_fixed = held.type != kind and name in fixed_columns(head.settings)
    if is_fixed or wider_type(held.type, kind) != kind:
        raise narrowing(held, kind)
    if (held.type.kind, kind.kind) == ("long", "real") and not is_exact_in_table(catalog, head, name):
        raise SchemaError(
            "the column has whole numbers that a real cannot hold, or no statistics to tell",
            column=name,
            has=held.type,
            wanted=kind,
            kind="inexact",
        )


def is_exact_in_table(catalog: Catalog, head: Snapshot, name: str) -> bool:
    """Whether a double holds every value that a column has in a snapshot's extents and hot rows."""
    return name in exact_columns(catalog, head, (name,))


def exact_columns(catalog: Catalog, head: Snapshot, names: Iterable[str]) -> frozenset[str]:
    """Return those of some columns of which a double holds every value in a snapshot's extents and hot rows."""
    asked = set(names)
    longs = {column.name for column in head.schema if column.name in asked and column.type.kind == "long"}
    if head.settings.get("scope") == USER:
        return frozenset(asked - longs)  # other users have rows too, and nobody reads those of all of them
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


def also_in_overflow(head: Snapshot, widened: Schema) -> dict[str, Any]:
    """Mark the new columns of a table that has an overflow column: older rows may have such a value in there."""
    if OVERFLOW_COLUMN not in head.schema:
        return {}
    return {OVERFLOWED + name: True for name in widened.names if name not in head.schema}


def spilled_columns(coerced: Coerced) -> set[str]:
    """Return the columns that have a value in the overflow column, because it did not fit."""
    found = cbor.PathTable().add(coerced.batch.column(OVERFLOW_COLUMN).drop_null())
    return set(coerced.schema.names).intersection(coerced.schema.names if found is None else found.paths)


def with_promoted(coerced: Coerced, settings: Mapping[str, Any]) -> pa.RecordBatch:
    """Copy the values of promoted paths to their columns; they stay where they are, too."""
    batch = coerced.batch
    for name, (column, path) in columns_under(PROMOTED, settings):
        kind, held = coerced.schema[name].type, batch.column(column)
        values = cbor.slices(held, path) if kind.kind == "dynamic" else cbor.extract(held, path).as_column(kind)
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, batch.schema.field(at), pc.coalesce(batch.column(name), values))
    return batch
