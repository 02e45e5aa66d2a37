"""Read a table in Spark: the driver plans and cuts splits, tasks read blocks.

The driver asks the catalog once and reads each footer once. A split holds what its task needs: which blocks, where the
bytes of the wanted columns lie, what is still to be filtered, and hot rows whole. Splits are runs of blocks of about
equal bytes. A task asks the object store for those bytes, filters in Arrow, and gives Spark only rows that match and
columns that were asked for. It does not translate filters: see ``filters``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from tidelake.format import ExtentReader, segment_format
from tidelake.handle.table_handle import TableHandle
from tidelake.model.expression import parse_where
from tidelake.model.predicate import And, Predicate
from tidelake.model.schema import SEQ_COLUMN
from tidelake.model.snapshot import Extent, Snapshot
from tidelake.objects import ObjectStore
from tidelake.pruning.plan import Block, ExtentTask, ScanPlan
from tidelake.pruning.statistics import Stats
from tidelake.scan.extents import scan
from tidelake.scan.footers import Footers
from tidelake.scan.row_ids import RowIds
from tidelake.spark.direct import described, marked
from tidelake.spark.filters import translate
from tidelake.spark.first_rows import bounded, first_of
from tidelake.spark.lines import DEFAULT_PUSH, pushed
from tidelake.spark.narrowing import Keys, narrowed, put_together, readable_keys, used_keys
from tidelake.spark.options import KEYS, LIMIT, OWN_PLAN, PLAN, number_of
from tidelake.spark.places import Place, no_table, open_table
from tidelake.spark.plans import enough, remember
from tidelake.spark.types import arrow_schema, projected, to_spark

MIN_SPLIT_BYTES = 4 << 20  # a task costs some 15 ms, the time to read so much
MAX_SPLIT_BYTES = 48 << 20  # stored; some ten times as much in memory, of which a task holds a part at a time
READING_S = 3600.0  # nobody here learns when the tasks of a plan have ended
SPLITS_A_CORE = 2  # of what is between the two: enough to share evenly
CORES = 8  # where nobody can be asked
ROW_ID = "_tidelake_row"  # a column of a plain table that says which row of the snapshot each is

Describe: TypeAlias = Callable[[ScanPlan, Footers], bytes]

log = logging.getLogger("tidelake.spark")


class Split(InputPartition):
    """What one task reads."""

    def __init__(
        self, plan: ScanPlan, tickets: Mapping[str, bytes], stored: bytes = b"", keys: Keys | None = None
    ) -> None:
        self.plan, self.tickets, self.keys = plan, tickets, keys or {}
        self.stored = marked(stored)  # the last of what is pickled, which is how it is found there

    def __repr__(self) -> str:
        blocks = sum(len(task.blocks or ()) for task in self.plan.tasks)
        return f"Split({self.plan.table}: {blocks} blocks of {len(self.plan.tasks)} extents)"


@dataclass(frozen=True, slots=True)
class _PushFilters:
    """Take Spark's filters for a reader.

    Spark refuses a reader with ``pushFilters`` of its own while pushdown is off; it is told that this one is the
    default, which Spark then does not call, and Spark filters by itself.
    """

    reader: TableReader
    __func__ = staticmethod(DEFAULT_PUSH)

    def __call__(self, filters: list[pushed.Filter]) -> list[pushed.Filter]:
        return self.reader.push(filters)


class TableReader(DataSourceReader):
    """Read one snapshot of a table, the one that is newest when Spark plans unless options name another."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        self._pushed: list[Predicate] = []
        self.pushFilters = _PushFilters(self)  # type: ignore[method-assign]
        self.schema = arrow_schema(schema)
        self.place: Place | None = None
        self._table: TableHandle | None = None
        if OWN_PLAN not in options and not (options.get("table") or options.get("path")):
            return  # a table that SQL created: spark plans it once without its options, and then once with them
        names = [name for name in schema.fieldNames() if name != ROW_ID]
        table = open_table(options).showing(names, options.get("where"))
        self._numbers_rows = len(names) < len(schema)
        if self._numbers_rows:
            table, schema = _numbered(table, schema)
        self._table = table
        self.place, self.objects = Place.of(options), table.store.url
        self._columns = projected(table.schema, schema, table.name)

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need: no connection, and nothing that was only there to plan."""
        return {"place": self.place, "schema": self.schema, "objects": getattr(self, "objects", "")}

    def push(self, filters: list[pushed.Filter]) -> list[pushed.Filter]:
        """Take the filters that prune; give back those that Spark must apply: all, unless each scan is planned alone.

        Spark 4.3 keeps one plan for all scans of a frame, whatever filters each of them has, so a frame used twice
        would get the rows of the one for the other. ``optimizer`` gives each scan its own, and says so by an option.
        """
        if OWN_PLAN not in self._options or self._table is None:
            return filters
        self._pushed, left = translate(filters, self._table.schema)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        if self._table is None:
            return [InputPartition(None)]
        table = self._table
        plan = planned(table, self._options, self._columns, self._pushed)
        if self._numbers_rows:
            plan = row_ids(table, plan.snapshot).numbered(plan)
        if PLAN in self._options:
            remember(self._options[PLAN], plan)
        table.lake.leases.hold_for(table.scope, plan.snapshot.sequence, READING_S)  # tasks outlive this process
        log.info("%s", plan.explain())
        for each in plan.warnings:
            log.warning("%s", each)
        bytes_each = number_of(self._options, "splitBytes", None)
        keys = used_keys(self._options.get(KEYS), table.schema)
        return cut_splits(plan, table.footers, bytes_each, described(table.store.url, self.schema), keys)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self.place is None:
            raise no_table()
        if not isinstance(partition, Split):
            return iter(())  # what Spark sends when there is nothing to read
        return read_split(partition, self.place.open_objects(self.objects), self.schema)


def planned(
    table: TableHandle, options: Mapping[str, str], columns: Sequence[str], pushed: Sequence[Predicate] = ()
) -> ScanPlan:
    """Plan a scan as its options have it: the rows that match, or as few of them as are enough."""
    where = wanted_rows(table, options.get("where"), pushed)
    if (top := first_of(options)) is not None:
        where = bounded(table, where, top)
    plan = table.plan(columns, where)
    if (limit := number_of(options, LIMIT, None, least=0)) is None:
        return plan
    fewer = enough(plan, limit)
    return fewer if where is None else replace(fewer, question=replace(fewer.question, limit=limit))


def row_ids(table: TableHandle, snapshot: Snapshot) -> RowIds:
    """Number the rows of a snapshot."""
    extents = table.catalog.extents(table.scope, sequence=snapshot.sequence, stats=())
    return RowIds.of(extents, table.hot(snapshot))


def _numbered(table: TableHandle, schema: StructType) -> tuple[TableHandle, StructType]:
    """Return a pinned table that has a column for the ids of rows, and a schema that asks for it."""
    pinned = table.snapshot
    shown = replace(table, past=replace(pinned, schema=pinned.schema.with_hidden([SEQ_COLUMN])))
    fields = [StructField(SEQ_COLUMN, LongType()) if field.name == ROW_ID else field for field in schema]
    return shown, StructType(fields)


def wanted_rows(table: TableHandle, where: str | None, pushed: Sequence[Predicate]) -> Predicate | None:
    """Join the condition of an option with pushed filters."""
    parts = [*pushed]
    if where:
        parts.insert(0, parse_where(where, columns=table.schema.names))
    return None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))


def read_split(split: Split, store: ObjectStore, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read the rows of one split, as Spark expects them."""
    question = split.plan.question
    kinds = {column.name: column.type for column in question.schema}
    plan = replace(split.plan, question=narrowed(question, split.keys))
    for batch in scan(plan, Tickets(store, split.tickets)):
        if batch.num_rows:
            whole = put_together(batch, question.columns, split.keys) if split.keys else batch
            yield to_spark(whole, schema, kinds)


def cut_splits(
    plan: ScanPlan,
    footers: Footers,
    split_bytes: int | None = None,
    describe: Describe = lambda *_: b"",
    keys: Keys | None = None,
) -> list[InputPartition]:
    """Cut a plan whose blocks are known into runs of about equal bytes; hot rows are a split of their own."""
    pieces = [(task.extent, block) for task in plan.tasks for block in task.blocks or ()]
    sizes = [max(1, block.needed_bytes) for _, block in pieces]
    total = sum(sizes)
    target = split_bytes or max(MIN_SPLIT_BYTES, min(MAX_SPLIT_BYTES, -(-total // (SPLITS_A_CORE * _cores()))))
    count = min(len(pieces), max(1, -(-total // target)))
    runs: list[list[tuple[Extent, Block]]] = [[] for _ in range(count)]
    at = 0
    for piece, size in zip(pieces, sizes, strict=True):
        runs[min(count - 1, (at + size // 2) * count // max(1, total))].append(piece)
        at += size
    question = plan.question
    others = {column for name in question.needed for column, _ in question.alternatives.get(name, ())}
    columns = others | set(question.needed)
    bare = replace(plan, snapshot=replace(plan.snapshot, settings={}), tasks=(), hot=(), stages=(), dead_hot={})
    splits: list[InputPartition] = []
    for run in (run for run in runs if run):
        split, tickets = _split_of(bare, run, footers, columns)
        apart = readable_keys(keys or {}, split.question, ((footers.open(extent), block) for extent, block in run))
        splits.append(Split(split, tickets, describe(split, footers), apart))
    if plan.hot:
        splits.append(Split(replace(bare, hot=plan.hot, dead_hot=plan.dead_hot), {}))
    return splits


def _cores() -> int:
    """Return how many tasks run at once, if the session is at hand."""
    context = SparkContext._active_spark_context
    return CORES if context is None else max(1, context.defaultParallelism)


def _split_of(
    bare: ScanPlan, run: Sequence[tuple[Extent, Block]], footers: Footers, columns: set[str]
) -> tuple[ScanPlan, dict[str, bytes]]:
    """Plan one split of some blocks; if all their rows are known to match, nothing is left to filter."""
    by_key: dict[str, tuple[Extent, list[Block]]] = {}
    for extent, block in run:
        by_key.setdefault(extent.key, (extent, []))[1].append(block)
    tasks, tickets = [], {}
    for key, (extent, blocks) in by_key.items():
        slim = tuple(replace(block, stats=Stats(block.stats.rows, {})) for block in blocks)
        tasks.append(ExtentTask(replace(extent, column_stats={}, present_paths=()), slim))
        tickets[key] = footers.open(extent).ticket([block.number for block in blocks], columns)
    is_proven = all(block.proven for _, block in run)
    question = replace(bare.question, where=None, limit=None) if is_proven else bare.question
    return replace(bare, question=question, tasks=tuple(tasks)), tickets


class Tickets(Footers):
    """Open extents from the tickets of a split, without their footers."""

    def __init__(self, store: ObjectStore, tickets: Mapping[str, bytes]) -> None:
        super().__init__(store)
        self._objects, self._tickets = store, tickets

    def open(self, extent: Extent) -> ExtentReader:
        if extent.key not in self._readers:
            reader = segment_format(extent.format).reopen(self._objects, extent.key, self._tickets[extent.key])
            self._readers[extent.key] = reader
        return self._readers[extent.key]
