"""Read a table as a stream: the rows it has, then those that each new snapshot adds, every row once.

A snapshot that takes something away (a flush, a compaction, retention) adds no rows that were not there, so it gives
none; any other gives the extents and the hot rows that it added. Commits that take away never share a snapshot with
others: see ``commit``. An offset says how far a stream is::

    {"snapshot": 41, "taken": 0}              all that snapshots up to 41 brought
    {"snapshot": 41, "taken": 3}              and the first 3 pieces of the one after it
    {"base": 40, "taken": 120}                the first 120 pieces of what was there at 40, where this stream began

Of a table with a key a stream gives what readers see where it begins, and then every version that commits add. Rows
that are deleted by key are left out, unless the option ``changes`` asks for them: then a stream has two more columns,
``_seq`` with the version and ``_op``, which is ``upsert`` or ``delete``; of a key that comes several times, the largest
``_seq`` is the newest. A snapshot that a stream cannot tell as versions (a restore, say) ends it with an error.

The conditions above a stream, of which Spark tells no source, come with the offset at which a batch's plan ends, and
prune that batch (see ``StreamRule.java``). No offset that is kept has them: a stream goes over what they prune.

A piece is an extent, or all hot rows of a snapshot. Snapshots never change, so an offset always means the same rows;
one that has expired is an error, never fewer rows. It does not keep anything of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.predicate import And, Equals, Predicate
from tidelake.model.schema import DELETED_COLUMN, HIDDEN_IDS, SEQ_COLUMN
from tidelake.model.snapshot import Counts, Extent, HotBatch, Snapshot
from tidelake.pruning.plan import make_plan
from tidelake.scan.extents import prune_blocks
from tidelake.scan.versions import Dead, without_dead
from tidelake.spark.catalog.conditions import bound
from tidelake.spark.lines import HAS_LIMITS, ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from tidelake.spark.options import number_of
from tidelake.spark.places import Place, open_table
from tidelake.spark.reading import READING_S, Split, cut_splits, read_split, wanted_rows
from tidelake.spark.types import arrow_schema, projected

HISTORY_PAGE = 500
PREDICATES = "predicates"  # what the offset at which a batch's plan ends has besides
OP_COLUMN, UPSERT, DELETE = "_op", "upsert", "delete"
SAME_ROWS = ("flush", "compact")  # operations that take something away, and change nothing for readers

log = logging.getLogger("tidelake.spark")


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a stream is; see this module's text."""

    snapshot: int
    taken: int = 0
    base: int | None = None

    def to_json(self) -> dict[str, int]:
        if self.base is not None:
            return {"base": self.base, "taken": self.taken}
        return {"snapshot": self.snapshot, "taken": self.taken}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Offset:
        if "base" in value:
            return cls(0, int(value["taken"]), int(value["base"]))
        return cls(int(value["snapshot"]), int(value["taken"]))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Return the rows between two offsets."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = dict(options)
        table = open_table(options)
        self.place = Place.of(options)
        self.objects = table.store.url
        self.schema = arrow_schema(schema)
        self.is_feed = is_feed(options)
        if self.is_feed and not table.snapshot.is_keyed:
            raise InvalidInputError("only a table with a key has changes to tell", table=table.name, kind="bad_option")
        own = StructType([field for field in schema if not (self.is_feed and field.name == OP_COLUMN)])
        shown = table.showing([name for name in own.fieldNames() if name in HIDDEN_IDS])
        self._columns = projected(shown.schema, own, table.name)
        self._start = number_of(options, "startingSnapshot", 0, least=0) or 0
        self._most = number_of(options, "maxExtentsPerTrigger", None)
        if self._most is not None and not HAS_LIMITS:
            raise InvalidInputError(
                "this spark asks a stream for all that there is: maxExtentsPerTrigger needs spark 4.2",
                kind="bad_option",
            )
        self._last: int | None = None  # with a trigger that stops: the snapshot to stop at

    def __getstate__(self) -> dict[str, Any]:
        """Return what tasks need."""
        return {"place": self.place, "schema": self.schema, "objects": self.objects, "is_feed": self.is_feed}

    def initialOffset(self) -> dict[str, int]:
        return Offset(self._start).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._most is None else ReadMaxFiles(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = open_table(self._options).snapshot.sequence

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, int]:
        """Go on from an offset by at most so many pieces; a Spark that tells neither gets all that there is."""
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        table = open_table(self._options)
        head = table.snapshot
        last = head.sequence if self._last is None else min(self._last, head.sequence)
        return (Offset(last) if start is None else advanced(table, Offset.of(start), last, most)).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        table = open_table(self._options).pinned()
        begun = Offset.of(start)
        extents, hot, base = between(table, begun, Offset.of(end))
        table.lake.leases.hold_for(table.scope, begun.base or begun.snapshot or table.snapshot.sequence, READING_S)
        where = wanted_rows(table, self._options.get("where"), _bounds(end.get(PREDICATES, ()), table))
        columns, dead = self._columns, cast(Dead, {})
        if table.snapshot.is_keyed:
            if self.is_feed:
                columns = tuple(dict.fromkeys((*columns, DELETED_COLUMN)))
            else:
                alive = Equals(DELETED_COLUMN, False)
                where = alive if where is None else And((where, alive))
            if base:
                dead = replace(table, past=_snapshot(table, base), held=None).dead()[1]
        snapshot, question = table.question(columns, where)
        outline = without_dead(make_plan(table.name, snapshot, question, extents, hot), dead)
        plan = prune_blocks(outline, table.footers)
        return cut_splits(plan, table.footers, number_of(self._options, "splitBytes", None))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Split)
        store = self.place.open_objects(self.objects)
        if not self.is_feed:
            return read_split(partition, store, self.schema)
        names = [name for name in self.schema.names if name != OP_COLUMN]
        deleted = pa.field(DELETED_COLUMN, pa.bool_())
        fields = [self.schema.field(name) for name in names]
        asked = pa.schema(fields if DELETED_COLUMN in names else [*fields, deleted])
        return (_with_op(batch, self.schema) for batch in read_split(partition, store, asked))


def _bounds(conditions: Sequence[Mapping[str, Any]], table: TableHandle) -> list[Predicate]:
    """Return what rows satisfy that conditions above a scan leave; Spark asks these again, so nothing may be known."""
    try:
        found = [bound(each, table.schema) for each in conditions]
    except Exception:  # whatever another Spark says
        log.warning("a batch of a stream is not pruned", exc_info=True)
        return []
    return [each for each in found if each is not None]


def is_feed(options: Mapping[str, str]) -> bool:
    """Whether a stream is asked for versions and deletions."""
    asked = (options.get("changes") or "false").lower()
    if asked not in ("true", "false"):
        raise InvalidInputError("option changes is true or false", got=asked, kind="bad_option")
    return asked == "true"


def with_feed(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return a schema with the columns that tell changes, if a stream is asked for them."""
    if not is_feed(options):
        return schema
    return StructType([*schema, StructField(SEQ_COLUMN, LongType()), StructField(OP_COLUMN, StringType())])


def _with_op(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Say of each row what became of it."""
    deleted = batch.column(DELETED_COLUMN)
    arrays = [
        pc.if_else(deleted, DELETE, UPSERT).cast(field.type) if field.name == OP_COLUMN else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def advanced(table: TableHandle, start: Offset, last: int, most: int | None) -> Offset:
    """Return the offset after at most so many pieces, none of them from a snapshot after ``last``."""
    left = most if most is not None else 2**63
    if start.base is not None or start.snapshot == 0:
        base = last if start.base is None else start.base
        if base == 0:
            return start
        total = _pieces_at(_snapshot(table, base))
        taken = start.taken if start.base is not None else 0
        if total - taken > left:
            return Offset(0, taken + left, base)
        start, left = Offset(base), left - (total - taken)
    at, taken = start.snapshot, start.taken
    for header in _headers(table, at, last):
        pieces = _pieces_of(header)
        if pieces - taken > left:
            return Offset(at, taken + left)
        left -= pieces - taken
        at, taken = header.sequence, 0
    return Offset(at, taken)


def between(table: TableHandle, start: Offset, end: Offset) -> tuple[list[Extent], list[HotBatch], int | None]:
    """Return the extents and the hot batches from one offset to another, and the snapshot that some were in whole."""
    extents: list[Extent] = []
    hot: list[HotBatch] = []
    base: int | None = None
    if start == end:
        return extents, hot, base
    if start.base is not None or start.snapshot == 0:
        base = end.base if end.base is not None else start.base
        if base is None:
            base = _first_base(table, end)
        _take(extents, hot, *_content(table, base), start.taken, end.taken if end.base is not None else None)
        if end.base is not None:
            return extents, hot, base
        start = Offset(base)
    last = end.snapshot + (1 if end.taken else 0)
    for header in _headers(table, start.snapshot, last):
        if not _pieces_of(header):
            continue
        changes = table.catalog.changes(header.scope, after=header.sequence - 1, upto=header.sequence)
        first = start.taken if header.sequence == start.snapshot + 1 else 0
        upto = end.taken if header.sequence == end.snapshot + 1 else None
        _take(extents, hot, sorted(changes.added, key=lambda e: e.id), list(changes.appended), first, upto)
    return extents, hot, base


def _first_base(table: TableHandle, end: Offset) -> int:
    """Return the snapshot whose content a stream begins with when its first batch went past it: the batch's last."""
    return end.snapshot


def _take(
    extents: list[Extent], hot: list[HotBatch], added: Sequence[Extent], batches: Sequence[HotBatch], first: int,
    upto: int | None,
) -> None:  # fmt: skip
    """Take pieces of one snapshot: its extents in order, then all of its hot rows as the last piece."""
    stop = len(added) + bool(batches) if upto is None else upto
    extents.extend(added[first:stop])
    if batches and first <= len(added) < stop:
        hot.extend(batches)


def _content(table: TableHandle, sequence: int) -> tuple[list[Extent], list[HotBatch]]:
    scope = table.scope
    extents = table.catalog.extents(scope, sequence=sequence)
    return sorted(extents, key=lambda extent: extent.id), table.catalog.hot(scope, sequence=sequence)


def _pieces_at(snapshot: Snapshot) -> int:
    return snapshot.totals.extents + bool(snapshot.totals.hot_batches)


def _pieces_of(header: Snapshot) -> int:
    """Count what a snapshot brought; nothing if it took something away."""
    if header.removed != Counts():
        if header.is_keyed and header.operation not in SAME_ROWS:
            raise InvalidInputError(
                f"snapshot {header.sequence} of the table was a {header.operation}, which is more than new versions of "
                "rows: start the stream anew", kind="not_a_change",
            )  # fmt: skip
        return 0
    return header.added.extents + bool(header.added.hot_batches)


def _snapshot(table: TableHandle, sequence: int) -> Snapshot:
    try:
        return table.catalog.snapshot(table.scope, sequence=sequence)
    except NotFoundError as error:
        raise NotFoundError(
            "the stream's next snapshot has expired: start it anew, or keep snapshots for longer",
            table=table.name,
            snapshot=sequence,
        ) from error


def _headers(table: TableHandle, after: int, upto: int) -> list[Snapshot]:
    """Return the headers of the snapshots after one, oldest first, none missing."""
    found: list[Snapshot] = []
    before = upto + 1
    while before > after + 1:
        page = table.catalog.history(table.scope, limit=min(HISTORY_PAGE, before - after - 1), before=before)
        if not page:
            break
        found.extend(page)
        before = page[-1].sequence
    if before > after + 1:
        _snapshot(table, after + 1)  # which says that it is not there any more
    return found[::-1]
