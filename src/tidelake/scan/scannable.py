"""Define what a query scans: a table at one snapshot, or rows in memory.

Rows in memory are planned and scanned like rows that are not yet in an extent, so whoever reads a table reads them
alike. It does not know catalogs: a table's handle does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import pyarrow as pa

from tidelake.catalog.protocol import new_id
from tidelake.model.predicate import Predicate
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Counts, HotBatch, Scope, Snapshot
from tidelake.pruning.plan import Question, ScanPlan, Stage, make_plan
from tidelake.scan.extents import prune_blocks
from tidelake.scan.footers import Footers
from tidelake.scan.hot import hot_payload
from tidelake.scan.questions import Columns, question_of


class Scannable(Protocol):
    """What a query can scan, pinned to one snapshot."""

    @property
    def name(self) -> str: ...

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def schema(self) -> Schema: ...

    @property
    def footers(self) -> Footers: ...

    def showing(self, columns: Sequence[str]) -> Scannable:
        """Return the same with what is in the overflow column under these names as columns."""
        ...

    def outline(
        self,
        columns: Columns | None = ...,
        where: Predicate | None = ...,
        *,
        limit: int | None = ...,
        stats: Iterable[str] = ...,
    ) -> ScanPlan:
        """Plan without reading an object: which extents, not yet which blocks."""
        ...

    def plan(
        self,
        columns: Columns | None = ...,
        where: Predicate | None = ...,
        *,
        limit: int | None = ...,
        prune: bool = ...,
    ) -> ScanPlan:
        """Plan to the block."""
        ...


class RowsAtHand(ABC):
    """What whatever is planned by its rows shares: they are read, or there, when it is outlined."""

    __slots__ = ()

    @abstractmethod
    def batches_for(self, question: Question, where: Predicate | None) -> tuple[Sequence[HotBatch], str | None]:
        """Return the rows that a question needs, and what is to be told of where they come from."""

    @property
    def schema(self: Scannable) -> Schema:
        return self.snapshot.schema

    def showing(self, columns: Sequence[str]) -> Self:
        """Return the rows as they are: nothing of theirs is in an overflow column."""
        return self

    def outline(
        self: _Planned,
        columns: Columns | None = None,
        where: Predicate | None = None,
        *,
        limit: int | None = None,
        stats: Iterable[str] = (),
    ) -> ScanPlan:
        """Plan without a catalog, which does not know the rows."""
        question = question_of(self.name, self.snapshot, columns, where, limit=limit)
        batches, told = self.batches_for(question, where)
        plan = make_plan(self.name, self.snapshot, question, (), batches)
        return plan if told is None else replace(plan, stages=(*plan.stages, Stage(told, 0, 0, 0, is_told=True)))

    def plan(
        self: Scannable,
        columns: Columns | None = None,
        where: Predicate | None = None,
        *,
        limit: int | None = None,
        prune: bool = True,
    ) -> ScanPlan:
        """Plan a scan, in which there is nothing to prune."""
        return prune_blocks(self.outline(columns, where, limit=limit), self.footers)


class _Planned(Scannable, Protocol):
    def batches_for(self, question: Question, where: Predicate | None) -> tuple[Sequence[HotBatch], str | None]: ...


@dataclass(frozen=True, slots=True)
class MemoryRows(RowsAtHand):
    """Rows in memory, to be scanned as a table is."""

    name: str
    snapshot: Snapshot
    footers: Footers  # of no extent; whoever scans a plan needs some
    batches: tuple[HotBatch, ...]

    @classmethod
    def of(cls, name: str, rows: pa.Table, footers: Footers) -> Self:
        """Hold the rows of an Arrow table; their types become those that a table would have."""
        own = new_id()
        schema = Schema.of({field.name: _type_of(field.type) for field in rows.schema})
        whole = rows.cast(schema.arrow).combine_chunks().to_batches()
        batches = tuple(HotBatch(new_id(), rows.num_rows, hot_payload(each), None, None, 1) for each in whole[:1])
        size = sum(len(batch.payload) for batch in batches)
        totals = Counts(hot_batches=len(whole), hot_rows=rows.num_rows, hot_bytes=size)
        return cls(name, Snapshot(Scope(own), 1, own, None, 0, "answer", schema, {}, totals), footers, batches)

    def batches_for(self, question: Question, where: Predicate | None) -> tuple[Sequence[HotBatch], str | None]:
        return self.batches, None


def _type_of(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_floating(kind):
        return "real"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return "int" if kind.bit_width <= 32 else "long"
    return "string"
