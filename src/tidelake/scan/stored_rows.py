"""Read rows of a block, or hot rows, as the table has them now, without those that newer versions hide.

It does not answer predicates.
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

_HIDDEN = frozenset((SEQ_COLUMN, DELETED_COLUMN))


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """One block of an open extent, without the rows that newer versions hide."""

    reader: ExtentReader
    first_seq: int | None
    block: Block

    def loaded(self, shape: Shape, places: Places | None = None) -> pa.RecordBatch:
        """Read some columns of it, as the table has them now: of all rows, or of those at some ascending places."""
        block, written = self.block, self.reader.metadata().schema.names
        rows = block.stats.rows if places is None else len(places)
        batch = shape.conformed(self._read(shape, places), written, rows)
        if shape.paths:
            batch = with_paths(batch, shape.paths, self._at_paths(shape, places))
        if _HIDDEN.intersection(batch.schema.names):
            first = None if self.first_seq is None else self.first_seq + block.first_row
            seqs = _counted(first, block.stats.rows)
            batch = _with_hidden(batch, seqs if places is None else seqs[places])
        return _without(batch, block.dead) if places is None else batch

    def _read(self, shape: Shape, places: Places | None) -> pa.RecordBatch:
        """Read columns as they were written; those that are wanted as dictionaries as these, where they are kept so."""
        names, number = shape.written(self.reader.metadata().schema.names), self.block.number
        some: dict[str, Any] = {}
        if (encoded := shape.kept_encoded(names)) and reads_encoded(self.reader):
            some["encoded"] = encoded
        if places is None:
            return self.reader.read_block(number, names, **some)
        lines = lines_of(self.reader, number, names, places)
        others = [name for name in names if name not in lines]
        if not others:
            return pa.RecordBatch.from_pydict(lines) if lines else bare(len(places))
        batch = self.reader.read_block(number, others, **some).take(pa.array(places))
        return pa.RecordBatch.from_pydict(
            {name: lines[name] if name in lines else batch.column(name) for name in names}
        )

    def places(self, kept: Rows) -> Places:
        """Return the places of rows that are kept and not hidden."""
        dead = self.block.dead
        return np.flatnonzero(kept if dead is None else kept & ~_marked(dead, len(kept)))

    def _at_paths(self, shape: Shape, places: Places | None) -> list[pa.StructArray]:
        """Read what rows have at paths: alone where the extent keeps them apart, else out of whole values."""
        reader, number = self.reader, self.block.number
        apart, found = paths_apart(reader, shape), {}
        if apart and reads_paths(reader):
            found = dict(zip(apart, reader.read_paths(number, apart, places), strict=True))
        if len(found) == len(shape.paths):
            return [found[each] for each in shape.paths]
        others = self._others_at_paths(shape, found)
        if places is not None:
            others = {each: values.take(pa.array(places)) for each, values in others.items()}
        return [(found | others)[each] for each in shape.paths]

    def _others_at_paths(self, shape: Shape, known: Collection[Path]) -> dict[Path, pa.Array]:
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


def lines_of(reader: Any, number: int, names: Sequence[str], places: Places) -> dict[str, pa.Array]:
    """Read those of some columns of which an extent puts the texts of few rows together alone."""
    if not hasattr(reader, "read_lines"):
        return {}
    return {name: reader.read_lines(number, name, places) for name in names if reader.lines(name) is not None}


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
        if _HIDDEN.intersection(batch.schema.names):
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
