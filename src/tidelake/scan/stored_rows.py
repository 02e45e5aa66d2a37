"""Read a block, or hot rows, as the table has them now, without the rows that newer versions hide.

It does not answer predicates, nor read some rows of a block: see ``few_rows``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.format import ExtentReader
from tidelake.model.schema import DELETED_COLUMN, SEQ_COLUMN
from tidelake.model.snapshot import HotBatch
from tidelake.pruning.plan import Block
from tidelake.scan.candidates import Rows
from tidelake.scan.hot import hot_groups
from tidelake.scan.path_columns import Path, extracted, filled, reads_paths, templates_apart, with_paths
from tidelake.scan.shapes import Shape, bare

Places: TypeAlias = npt.NDArray[np.int64]

HIDDEN = frozenset((SEQ_COLUMN, DELETED_COLUMN))


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """One block of an open extent, without the rows that newer versions hide."""

    reader: ExtentReader
    first_seq: int | None
    block: Block

    def loaded(self, shape: Shape) -> pa.RecordBatch:
        """Read some columns of it, as the table has them now."""
        block, written = self.block, self.reader.metadata().schema.names
        batch = shape.conformed(self._read(shape), written, block.stats.rows)
        if shape.paths:
            batch = with_paths(batch, shape.paths, self._at_paths(shape))
        if HIDDEN.intersection(batch.schema.names):
            first = None if self.first_seq is None else self.first_seq + block.first_row
            batch = _with_hidden(batch, _counted(first, block.stats.rows))
        return _without(batch, block.dead)

    def _read(self, shape: Shape) -> pa.RecordBatch:
        """Read columns as they were written."""
        return read_columns(self.reader, self.block.number, shape, shape.written(self.reader.metadata().schema.names))

    def places(self, kept: Rows) -> Places:
        """Return the places of rows that are kept and not hidden."""
        dead = self.block.dead
        return np.flatnonzero(kept if dead is None else kept & ~_marked(dead, len(kept)))

    def _at_paths(self, shape: Shape) -> list[pa.StructArray]:
        """Read what rows have at paths: alone where the extent keeps them apart, else out of whole values."""
        reader, number = self.reader, self.block.number
        apart, found = paths_apart(reader, shape), dict[Path, pa.Array]()
        if apart and reads_paths(reader):
            found = dict(zip(apart, reader.read_paths(number, apart), strict=True))
        if len(found) < len(shape.paths):
            found |= self.others_at_paths(shape, found)
        return [found[each] for each in shape.paths]

    def others_at_paths(self, shape: Shape, known: Collection[Path]) -> dict[Path, pa.Array]:
        """Read what all rows have at the paths that are not known: templates of texts, and paths in whole values."""
        reader, number, found = self.reader, self.block.number, dict[Path, pa.Array]()
        if shape.around is not None:
            found = templates_apart(reader, number, shape.paths, shape.around.alternatives)
        missing = [each for each in shape.paths if each not in known and each not in found]
        if missing and shape.around is not None:
            written = reader.metadata().schema.names
            read = reader.read_block(number, shape.around.written(written))
            values = shape.around.conformed(read, written, self.block.stats.rows)
            found |= {each: extracted(values.column(each[0]), each[1]) for each in missing}
        return found


def read_columns(reader: ExtentReader, number: int, shape: Shape, names: Sequence[str]) -> pa.RecordBatch:
    """Read columns of a block as they were written; those that are wanted as dictionaries as these, if kept so."""
    some: dict[str, Any] = {}
    if (encoded := shape.kept_encoded(names)) and reads_encoded(reader):
        some["encoded"] = encoded
    return reader.read_block(number, names, **some)


def reads_encoded(reader: object) -> bool:
    """Whether a reader gives columns as dictionaries if it is asked to."""
    return hasattr(reader, "word_count")


def paths_apart(reader: ExtentReader, shape: Shape) -> list[Path]:
    """Return the paths of a shape that an extent keeps apart, with nothing of them elsewhere."""
    schema = reader.metadata().schema
    if not reads_paths(reader) or shape.around is None:
        return []
    elsewhere = shape.around.alternatives
    return [
        each
        for each in shape.paths
        if each[0] in schema and schema[each[0]].type.kind == "dynamic" and not elsewhere[each[0]]
    ]


def paths_size_of(reader: ExtentReader, number: int, shape: Shape) -> int:
    """Return how many bytes of a block are read for the paths of a shape, about."""
    if not shape.paths:
        return 0
    apart, pieces = paths_apart(reader, shape), reader.metadata().blocks[number].pieces
    size = reader.paths_size(number, apart) if reads_paths(reader) else 0
    whole = {column for column, path in shape.paths if (column, path) not in apart}
    return size + sum(pieces[name].length for name in whole if name in pieces)


def hot_versions_of(hot: Sequence[HotBatch], shape: Shape, dead: Mapping[str, Any] | None = None) -> pa.RecordBatch:
    """Read some columns of hot rows, as the table has them now, without those that newer versions hide."""
    parts, hidden = [], dead or {}
    for written, rows, batches in hot_groups(hot, shape.written_anyhow):
        batch = shape.conformed(rows, written, rows.num_rows)
        if shape.around is not None:
            around = shape.around.conformed(rows, written, rows.num_rows)
            found = (filled(extracted(around.column(name), path)) for name, path in shape.paths)
            batch = with_paths(
                batch, shape.paths, found
            )  # filled, since what is at a path differs from schema to schema
        if HIDDEN.intersection(batch.schema.names):
            batch = _with_hidden(batch, np.concatenate([_counted(each.first_seq, each.rows) for each in batches]))
        at = np.cumsum([0, *(each.rows for each in batches)])
        gone = [at[n] + hidden[each.id] for n, each in enumerate(batches) if each.id in hidden]
        parts.append(_without(batch, np.concatenate(gone) if gone else None))
    return joined(parts)


def _counted(first_seq: int | None, rows: int) -> Any:
    """Return versions that are not stored: from the first on, row by row."""
    return np.arange(rows) + (first_seq or 0)


def _with_hidden(batch: pa.RecordBatch, seqs: Any) -> pa.RecordBatch:
    """Fill hidden columns where they are not stored: versions are counted, and nothing is deleted."""
    for name, filling in ((SEQ_COLUMN, pa.array(seqs, pa.int64())), (DELETED_COLUMN, pa.scalar(False))):
        if name in batch.schema.names and batch.column(name).null_count:
            at = batch.schema.names.index(name)
            batch = batch.set_column(at, batch.schema.field(at), pc.coalesce(batch.column(name), filling))
    return batch


def _without(batch: pa.RecordBatch, dead: Any) -> pa.RecordBatch:
    """Leave rows out by their positions."""
    if dead is None or not len(dead):
        return batch
    if not batch.num_columns:
        return bare(batch.num_rows - len(dead))
    return batch.filter(pa.array(~_marked(dead, batch.num_rows)))


def _marked(places: Any, rows: int) -> Rows:
    found = np.zeros(rows, np.bool_)
    found[places] = True
    return found


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return several batches of one schema as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
