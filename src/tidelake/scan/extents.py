"""Turn a plan into Arrow batches. This is the only reader of extents.

Footers are read side by side and kept in a small cache; blocks are read and filtered by a few threads, a bounded number
ahead of the consumer, and handed on in the plan's order. Wide columns that a predicate does not look at are read only
where a row matches. In time order, blocks are merged as they come: a row is given once no later block can begin before
it, so memory holds what overlaps in time and not the table. It does not plan.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic import cbor
from tidelake.dynamic.cbor_encode import encoded
from tidelake.errors import CorruptError
from tidelake.format import ExtentReader, segment_format
from tidelake.logical import shown
from tidelake.model.expression import Distance
from tidelake.model.path_value import PathValue
from tidelake.model.predicate import Predicate
from tidelake.model.schema import DELETED_COLUMN, DYNAMIC_FIELD, SEQ_COLUMN, Column, DataType, Schema, told_apart
from tidelake.model.snapshot import Extent, HotBatch
from tidelake.objects import ObjectStore
from tidelake.pruning.plan import Block, ExtentTask, Question, ScanPlan, surviving, with_blocks
from tidelake.runtime.forking import renew_after_fork
from tidelake.scan.ahead import READ_THREADS, Piece, read_ahead
from tidelake.scan.block_cache import BlockCache, ReadsDistinct, with_cache
from tidelake.scan.candidates import Rows, candidates
from tidelake.scan.evaluate import measured, select, tested
from tidelake.scan.hot import hot_groups
from tidelake.scan.path_columns import (
    Path,
    extracted,
    filled,
    given,
    nothing_at,
    path_name,
    paths_in,
    paths_shown,
    reads_paths,
    templates_apart,
    whole_columns,
    whole_needed,
    with_paths,
)
from tidelake.scan.windows import stretch

FOOTERS_KEPT = 4096  # opened extents; a footer is a few dozen kilobytes
LAST_NS = 2**63
LATE_BYTES = 256 << 10  # columns of a block that are read in a second step, if at all: a request costs about as much
_HIDDEN = frozenset((SEQ_COLUMN, DELETED_COLUMN))
_ROW = "\0row"  # no column's name: control characters are refused

Alternatives: TypeAlias = tuple[tuple[str, str], ...]


class Footers:
    """Open extents once: a bounded cache of readers by key. Extents never change, so nothing here goes stale."""

    def __init__(self, store: ObjectStore, kept: int = FOOTERS_KEPT) -> None:
        self._store, self._kept, self._blocks = store, kept, BlockCache()
        self._readers: OrderedDict[str, ExtentReader] = OrderedDict()
        self._lock = Lock()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Let nobody wait for a thread of the parent."""
        self._lock, self._readers = Lock(), OrderedDict()

    def holds(self, extent: Extent) -> bool:
        """Return whether an extent is open already."""
        return extent.key in self._readers

    def open(self, extent: Extent) -> ExtentReader:
        with self._lock:
            if reader := self._readers.get(extent.key):
                self._readers.move_to_end(extent.key)
                return reader
        reader = segment_format(extent.format).open_extent(self._store, extent.key)
        found = reader.metadata()
        if found.row_count != extent.row_count:
            raise CorruptError(
                "the extent is not the one committed",
                object=extent.key,
                rows=found.row_count,
                expected=extent.row_count,
            )
        reader = with_cache(reader, extent.key, self._blocks)
        with self._lock:
            self._readers[extent.key] = reader
            while len(self._readers) > self._kept:
                self._readers.popitem(last=False)
        return reader


def prune_blocks(plan: ScanPlan, footers: Footers, *, prune: bool = True) -> ScanPlan:
    """Read the footers of a plan's extents and drop the blocks they disprove, or none of them."""
    question = plan.question
    shape = Shape.of(question, whole_needed(question), paths_in(question.where) | paths_shown(question))

    def blocks_of(task: ExtentTask) -> list[Block]:
        reader = footers.open(task.extent)
        infos = reader.metadata().blocks
        stats = [info.stats for info in infos]
        first_rows = np.cumsum([0, *(each.rows for each in stats)])
        kept = surviving(plan.question, task.extent, stats) if prune else dict.fromkeys(range(len(infos)), False)
        return [
            Block(
                number,
                stats[number],
                byte_size=sum(piece.length for piece in infos[number].pieces.values()),
                needed_bytes=_needed_bytes(reader, number, shape),
                proven=proven,
                first_row=int(first_rows[number]),
                dead=_dead_between(task.dead, int(first_rows[number]), int(first_rows[number + 1])),
            )
            for number, proven in kept.items()
        ]

    if sum(not footers.holds(task.extent) for task in plan.tasks) <= 1:  # a thread costs more than a kept footer
        with plan.reading:
            found = list(map(blocks_of, plan.tasks))
    else:
        with plan.reading, ThreadPoolExecutor(READ_THREADS, thread_name_prefix="tidelake-footer") as pool:
            found = list(pool.map(blocks_of, plan.tasks))
    blocks = {task.extent.id: blocks for task, blocks in zip(plan.tasks, found, strict=True)}
    return with_blocks(plan, blocks)


def _needed_bytes(reader: ExtentReader, number: int, shape: Shape) -> int:
    pieces = reader.metadata().blocks[number].pieces
    return sum(piece.length for name, piece in pieces.items() if name in shape.sources) + _paths_size(
        reader, number, shape
    )


def scan(plan: ScanPlan, footers: Footers) -> pa.RecordBatchReader:
    """Stream the rows of a plan whose blocks are known, as they are stored."""
    question = plan.question
    schema = output_schema(question)
    batches = _held(plan, _ordered(plan, footers) if question.ordered_by else _unordered(plan, footers))
    if question.limit is not None:
        batches = _limited(batches, question.limit)
    projected = (_projected(question, batch, schema) for batch in batches)
    return pa.RecordBatchReader.from_batches(schema, projected)


def _held(plan: ScanPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep what is read retained until the last of it is."""
    with plan.reading:
        yield from batches


def scan_shown(plan: ScanPlan, footers: Footers) -> pa.RecordBatchReader:
    """Stream the rows of a plan as readers see them: in the logical types of their columns."""
    question, rows = plan.question, scan(plan, footers)
    kinds = [None if name in question.computed else question.schema[name].type for name in question.columns]
    if all(kind is None or kind.logical is None for kind in kinds):
        return rows
    fields = [
        field if kind is None or kind.logical is None else pa.field(field.name, kind.shown)
        for field, kind in zip(rows.schema, kinds, strict=True)
    ]
    schema = pa.schema(fields)
    batches = (
        pa.RecordBatch.from_arrays(
            [
                array if kind is None else shown(array, kind, field.name)
                for array, kind, field in zip(batch.columns, kinds, fields, strict=True)
            ],
            schema=schema,
        )
        for batch in rows
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def without_cases(rows: pa.RecordBatchReader, schema: Schema) -> pa.RecordBatchReader:
    """Name a table's columns for engines to which case tells nothing; see ``schema.told_apart``."""
    given = told_apart(schema.names)
    names = [given.get(name, name) for name in rows.schema.names]
    if names == rows.schema.names:
        return rows
    renamed = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    return pa.RecordBatchReader.from_batches(renamed, (batch.rename_columns(names) for batch in rows))


def output_schema(question: Question) -> pa.Schema:
    """Return the Arrow schema of a scan's batches."""
    fields = [
        _computed_field(name, question.computed[name]) if name in question.computed else _field(question.schema[name])
        for name in question.columns
    ]
    return pa.schema(fields if question.counted is None else [*fields, pa.field(question.counted, pa.int64())])


def _projected(question: Question, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns that were asked for, and compute those that no table has."""
    if not question.computed:
        return batch.select(list(question.columns))
    arrays = [
        measured(each.metric, each.query, batch.column(each.column))
        if isinstance(each := question.computed.get(name), Distance)
        else batch.column(name)
        for name in question.columns
    ]
    if question.counted is not None:
        arrays.append(batch.column(question.counted))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _pieces(plan: ScanPlan, footers: Footers) -> list[Piece]:
    question = plan.question
    reading = _Reading.of(question, footers)
    pieces = [
        Piece(partial(reading.block, task.extent, block), block.needed_bytes, _first_ns(question, block))
        for task in plan.tasks
        for block in task.blocks or ()
    ]
    if plan.hot:
        size = sum(len(batch.payload) for batch in plan.hot)
        pieces.append(Piece(partial(reading.hot, plan.hot, plan.dead_hot), size, None))
    return pieces


@dataclass(frozen=True, slots=True)
class Shape:
    """Some columns as the table has them now, each with the places where its values may lie too."""

    columns: tuple[Column, ...]
    alternatives: Mapping[str, Alternatives]
    sources: frozenset[str]  # the columns that are read for it
    arrow: pa.Schema
    paths: tuple[Path, ...] = ()  # what is read of other dynamic columns
    around: Shape | None = None  # the columns of those paths, for extents that do not keep paths apart

    @classmethod
    def of(cls, question: Question, names: Sequence[str], paths: Iterable[Path] = ()) -> Shape:
        apart = tuple(sorted(paths))
        around = Shape.of(question, sorted({column for column, _ in apart})) if apart else None
        columns = tuple(question.schema[name] for name in names)
        alternatives = {name: question.alternatives.get(name, ()) for name in names}
        others = {column for places in alternatives.values() for column, _ in places}
        return cls(
            columns,
            alternatives,
            frozenset({*names, *others}),
            pa.schema([_field(column) for column in columns]),
            apart,
            around,
        )

    @property
    def names(self) -> list[str]:
        """The names of its columns in a batch."""
        return [*self.arrow.names, *(path_name(*each) for each in self.paths)]

    def written(self, names: Sequence[str]) -> list[str]:
        """Return those of some columns that are read for it."""
        return [name for name in names if name in self.sources]

    def written_anyhow(self, names: Sequence[str]) -> list[str]:
        """Return those of some columns that are read for it where paths are not kept apart."""
        return [name for name in names if name in self.sources or (self.around and name in self.around.sources)]

    def conformed(self, batch: pa.RecordBatch, written: Sequence[str], rows: int) -> pa.RecordBatch:
        """Return columns that were read as the table has them now: absent ones are null, spread ones are united."""
        if not self.columns:
            return bare(rows)
        arrays = []
        for column in self.columns:
            wanted = column.type.arrow
            array = batch.column(column.name) if column.name in written else pa.nulls(rows, wanted)
            if array.type != wanted:
                array = widened(array, column.type)
            for other, path in self.alternatives[column.name]:
                if other in written and array.null_count:
                    array = _united(array, batch.column(other), path, column)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


@dataclass(frozen=True, slots=True)
class _Reading:
    """How the blocks of one question are read: all that it needs, or first what its predicate looks at."""

    footers: Footers
    where: Predicate | None
    whole: Shape
    asked: Shape
    rest: Shape
    given: tuple[PathValue, ...] = ()  # what is made of the values at paths
    counted: str | None = None  # the column that says of how many rows each is given
    rough: bool = False

    @classmethod
    def of(cls, question: Question, footers: Footers) -> _Reading:
        names, where = whole_needed(question), question.where
        looked_at, paths, shown = whole_columns(where), paths_in(where), paths_shown(question)
        asked, rest = ([name for name in names if (name in looked_at) is each] for each in (True, False))
        return cls(
            footers,
            where,
            Shape.of(question, names, paths | shown),
            Shape.of(question, asked, paths),
            Shape.of(question, rest, shown - paths),
            tuple(each for each in question.computed.values() if isinstance(each, PathValue)),
            question.counted,
            rough=question.rough and question.limit is None,
        )

    def block(self, extent: Extent, block: Block) -> pa.RecordBatch:
        """Read the wanted rows of a block."""
        reader = StoredBlock(self.footers.open(extent), extent.first_seq, block)
        found = None if self.counted is None else self._each_once(reader, block)
        return self._finished(self._block(reader, block) if found is None else found)

    def _each_once(self, stored: StoredBlock, block: Block) -> pa.RecordBatch | None:
        """Read equal rows as one, with how many they are, where that is less; None where rows are read as they are."""
        reader = stored.reader
        if self.whole.columns or len(self.whole.paths) != 1 or block.dead is not None or not _apart(reader, self.whole):
            return None
        path = self.whole.paths[0]
        found = reader.read_distinct(block.number, path) if isinstance(reader, ReadsDistinct) else None
        if found is None:
            return None
        batch = pa.RecordBatch.from_arrays(found.flatten(), [path_name(*path), self.counted])
        return batch if block.proven or self.where is None else select(self.where, batch, rough=self.rough)

    def _finished(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with what is asked of paths in place of all that they have."""
        if not self.whole.paths:
            return batch
        found = batch.select(self.whole.arrow.names)
        for each in self.given:
            values = batch.column(path_name(each.column, each.path))
            found = found.append_column(
                each.name, given(each, values) if each.test is None else tested(each.test, values)
            )
        if self.counted is not None:
            is_counted = self.counted in batch.schema.names
            counts = batch.column(self.counted) if is_counted else pa.array(np.ones(batch.num_rows, dtype=np.int64))
            found = found.append_column(self.counted, counts)
        return found if found.num_columns else bare(batch.num_rows)

    def _block(self, reader: StoredBlock, block: Block) -> pa.RecordBatch:
        if block.proven or self.where is None:
            return reader.loaded(self.whole)
        kept = candidates(reader.reader, block.number, self.where, self.whole.alternatives)
        if kept is not None:
            return self._late(reader, self.where, kept) if kept.any() else _nothing(self.whole)
        pieces = reader.reader.metadata().blocks[block.number].pieces
        late = sum(pieces[column.name].length for column in self.rest.columns if column.name in pieces)
        if late + _paths_size(reader.reader, block.number, self.rest) < LATE_BYTES:
            return select(self.where, reader.loaded(self.whole), rough=self.rough)
        return self._late(reader, self.where)

    def _late(self, reader: StoredBlock, where: Predicate, kept: Rows | None = None) -> pa.RecordBatch:
        """Read what the predicate looks at, of all rows or those that may match, and the rest only where one does."""
        asked = reader.loaded(self.asked, kept)
        numbers = np.arange(asked.num_rows) if kept is None else reader.numbers(kept)
        found = select(where, asked.append_column(_ROW, pa.array(numbers)), rough=self.rough)
        others = _rows_of(reader.loaded(self.rest), found.column(_ROW)) if found.num_rows else _nothing(self.rest)
        parts = dict.fromkeys(self.asked.names, found) | dict.fromkeys(self.rest.names, others)
        return pa.RecordBatch.from_arrays([parts[name].column(name) for name in self.whole.names], self.whole.names)

    def hot(self, hot: Sequence[HotBatch], dead: Mapping[str, Any]) -> pa.RecordBatch:
        """Read all hot rows at once; those of one schema are joined before anything else is done to them."""
        joined = hot_versions_of(hot, self.whole, dead)
        return self._finished(joined if self.where is None else select(self.where, joined))


def _nothing(shape: Shape) -> pa.RecordBatch:
    """Return no rows of a shape."""
    nothing = [nothing_at(path) for _, path in shape.paths]
    return with_paths(pa.RecordBatch.from_pylist([], shape.arrow), shape.paths, nothing)


def _rows_of(batch: pa.RecordBatch, ascending: pa.Array) -> pa.RecordBatch:
    """Take rows by their ascending numbers."""
    first, last = ascending[0].as_py(), ascending[-1].as_py()
    are_neighbours = last - first + 1 == len(ascending)
    return stretch(batch, first, last + 1) if are_neighbours else batch.take(ascending)


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """One block of an open extent, without the rows that newer versions hide."""

    reader: ExtentReader
    first_seq: int | None
    block: Block

    def loaded(self, shape: Shape, kept: Rows | None = None) -> pa.RecordBatch:
        """Read some columns of it, as the table has them now: of all rows, or of those that are kept."""
        block, written = self.block, self.reader.metadata().schema.names
        some = () if kept is None else (kept,)
        read = self.reader.read_block(block.number, shape.written(written), *some)
        batch = shape.conformed(read, written, block.stats.rows)
        if shape.paths:
            batch = with_paths(batch, shape.paths, self._at_paths(shape))
        if _HIDDEN.intersection(batch.schema.names):
            first = None if self.first_seq is None else self.first_seq + block.first_row
            batch = _with_hidden(batch, _counted(first, batch.num_rows))
        if kept is None:
            return _without(batch, block.dead)
        chosen = kept if block.dead is None else kept & ~_marked(block.dead, len(kept))
        return batch.filter(pa.array(chosen)) if batch.num_columns else bare(int(chosen.sum()))

    def numbers(self, kept: Rows) -> Any:
        """Return the numbers that rows have among those that are not hidden."""
        dead = self.block.dead
        return np.flatnonzero(kept if dead is None else kept[~_marked(dead, len(kept))])

    def _at_paths(self, shape: Shape) -> list[pa.StructArray]:
        """Read what the rows have at paths: alone where the extent keeps them apart, else out of whole values."""
        reader, number = self.reader, self.block.number
        apart, found = _apart(reader, shape), {}
        if apart and reads_paths(reader):
            found = dict(zip(apart, reader.read_paths(number, apart), strict=True))
        if shape.around is not None:
            found |= templates_apart(reader, number, shape.paths, shape.around.alternatives)
        if len(found) < len(shape.paths) and shape.around is not None:
            written = reader.metadata().schema.names
            read = reader.read_block(number, shape.around.written(written))
            values = shape.around.conformed(read, written, self.block.stats.rows)
            found |= {each: extracted(values.column(each[0]), each[1]) for each in shape.paths if each not in found}
        return [found[each] for each in shape.paths]


def _apart(reader: ExtentReader, shape: Shape) -> list[Path]:
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


def _paths_size(reader: ExtentReader, number: int, shape: Shape) -> int:
    """Return how many bytes of a block are read for the paths of a shape, about."""
    if not shape.paths:
        return 0
    apart, pieces = _apart(reader, shape), reader.metadata().blocks[number].pieces
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
    return _joined(parts)


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


def bare(rows: int) -> pa.RecordBatch:
    """Return rows without columns."""
    nothing = pa.Array.from_buffers(pa.struct([]), rows, [None], 0, children=[])  # takes no memory
    return pa.RecordBatch.from_struct_array(nothing)


def _dead_between(dead: Any, first: int, end: int) -> Any:
    """Return which positions of an extent lie in a block, counted from its beginning."""
    if dead is None:
        return None
    low, high = np.searchsorted(dead, (first, end))
    return dead[low:high] - first if high > low else None


def widened(array: pa.Array, kind: DataType) -> pa.Array:
    """Return a column that was written under a narrower type as the type that it has now."""
    return encoded(array) if kind.kind == "dynamic" else array.cast(kind.arrow)


def _united(array: pa.Array, other: pa.Array, path: str, column: Column) -> pa.Array:
    """Fill what a column lacks with what a dynamic column has at a path, where the column's type holds it."""
    if column.type.kind in ("vector", "timestamp") or column.type.logical is not None:
        return array  # these never take anything but their own
    if column.type.kind == "dynamic":
        found = cbor.slices(other, path)
        return pc.coalesce(array, found) if found.null_count < len(found) else array
    return pc.coalesce(array, cbor.extract(other, path).as_column(column.type))


def _unordered(plan: ScanPlan, footers: Footers) -> Iterator[pa.RecordBatch]:
    for _, batch in read_ahead(_pieces(plan, footers)):
        if batch.num_rows:
            yield batch


def _ordered(plan: ScanPlan, footers: Footers) -> Iterator[pa.RecordBatch]:
    """Merge blocks by time: rows before the beginning of every block still to come are final."""
    time = plan.question.ordered_by
    pieces = sorted(_pieces(plan, footers), key=lambda piece: -LAST_NS if piece.first_ns is None else piece.first_ns)
    held: list[pa.RecordBatch] = []
    for piece, batch in read_ahead(pieces):
        if held and piece.first_ns is not None:
            final, rest = _split_before(_sorted(held, time), time, piece.first_ns)
            if final.num_rows:
                yield final
            held = [rest] if rest.num_rows else []
        if batch.num_rows:
            held.append(batch)
    if held:
        yield _sorted(held, time)


def _limited(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows


def _first_ns(question: Question, block: Block) -> int | None:
    known = block.stats.columns.get(question.ordered_by) if question.ordered_by else None
    low: Any = known.low if known is not None else None
    return low if isinstance(low, int) else None


def _sorted(batches: Sequence[pa.RecordBatch], time: str | None) -> pa.RecordBatch:
    whole = _joined(batches)
    return whole.take(pc.sort_indices(whole.column(time)))


def _split_before(batch: pa.RecordBatch, time: str | None, ns: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Split sorted rows at a time; rows without a time come last."""
    before = pc.sum(pc.less(batch.column(time).cast(pa.int64()), -(-ns // 1000))).as_py() or 0
    return batch.slice(0, before), batch.slice(before)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _computed_field(name: str, computed: Distance | PathValue) -> pa.Field:
    return pa.field(name, computed.arrow if isinstance(computed, PathValue) else pa.float64())


def _field(column: Column) -> pa.Field:
    metadata = DYNAMIC_FIELD if column.type.kind == "dynamic" else None
    return pa.field(column.name, column.type.arrow, nullable=True, metadata=metadata)
