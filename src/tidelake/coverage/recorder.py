"""Judge and record what one append covers.

Rows come in the order and in the portions in which they are written, one portion an extent or a hot batch. Of an
exclusive table's rows:

1. no bucket may be held already; looked at here, so that nothing is written in vain, and again when it is committed;
2. no two rows of an entity may have the same time;
3. a bucket that an earlier portion of the append has may only be gone on with, by later times.

A table that tracks takes everything and counts the rows in buckets that were held when the append began. A table of
one entity takes no other, and the first append says which it is. It does not write or commit anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tidelake.catalog.protocol import TableInfo
from tidelake.coverage.coverage_store import CoverageRules, CoverageStore, overlap_error, pinned_text, same_time
from tidelake.coverage.entities import Cells, Coverage, cells_of, entity_values, shown_entity
from tidelake.errors import InvalidInputError, NotFoundError, OverlapError
from tidelake.model.snapshot import Claim, Extent, Snapshot

BESIDE_ROWS = 200_000  # of a portion that is judged while it is written: the judgement takes some milliseconds


@dataclass(slots=True)
class Recorder:
    """What an append covers so far."""

    coverage_store: CoverageStore
    rules: CoverageRules
    head: Snapshot
    table: str
    is_new: bool = True  # the rows are not in the table yet, in any form
    freed: Coverage = field(default_factory=Coverage)  # what the same commit takes away, and is held no more
    overlap: int = 0  # rows in buckets that were held
    coverage: Coverage = field(default_factory=Coverage)
    _last: dict[str, int] = field(default_factory=dict)  # the greatest value of each entity
    _admitted: list[tuple[Extent, Coverage]] = field(default_factory=list)

    @classmethod
    def of(
        cls, coverage_store: CoverageStore, head: Snapshot, table: str, *, is_new: bool, freed: Coverage | None = None
    ) -> Recorder | None:
        """Begin with nothing, if the table keeps coverage."""
        rules = coverage_store.rules(head)
        if rules is None:
            return None
        return cls(coverage_store, rules, head, table, is_new=is_new, freed=Coverage() if freed is None else freed)

    @property
    def is_exclusive(self) -> bool:
        return self.rules.mode == "exclusive" and self.is_new

    def take(self, batches: Sequence[pa.RecordBatch]) -> Coverage:
        """Judge a portion of the rows, and give what it covers."""
        names = [self.rules.index.column, *self.rules.index.entity]
        for name in names:
            if any(name not in batch.schema.names for batch in batches):
                raise InvalidInputError("a row has no value in an entity column", column=name, kind="null_entity")
        alike = [batch.select(names) for batch in batches]
        cells = cells_of(pa.Table.from_batches(alike), self.rules.index)
        self._check_entities(cells.entities)
        if self.is_exclusive:
            self._check_free(cells)
            self._check_own(cells)
        elif self.is_new:
            if not len(self.coverage):
                self.head = self.coverage_store.newest(self.head)  # the one at hand may be older than what others did
            self.overlap += cells.rows_in(self._held())
        self.coverage = self.coverage | cells.coverage
        return cells.coverage

    def begin(self, batches: Sequence[pa.RecordBatch]) -> Callable[[], Coverage]:
        """Judge a portion of the rows beside other work if it is large; the answer is had by a call, or raised."""
        if sum(batch.num_rows for batch in batches) < BESIDE_ROWS:
            covered = self.take(batches)
            return lambda: covered
        pool = ThreadPoolExecutor(1, thread_name_prefix="tidelake-recorder")
        judged = pool.submit(self.take, list(batches))
        pool.shutdown(wait=False)
        return judged.result

    def admit(self, extent: Extent, info: TableInfo) -> Extent:
        """Judge an extent that others wrote for this append, and give it with the key of its coverage.

        Whether its buckets are free is judged when it is committed, because it may have been committed before.
        """
        if extent.coverage_key is None:
            covered = self.coverage_store.from_data(extent, self.rules)
            key = self.coverage_store.write_extent(info, extent.id, covered, self.rules)
            extent = replace(extent, coverage_key=key)
        covered = self.coverage_store.of_extent(extent, self.rules)
        self._check_entities(list(covered))
        if self.is_exclusive:
            again = covered & self.coverage
            for cells in self.coverage_store.cells_in(extent, self.rules) if len(again) else ():
                self._check_apart(cells, again)
            self._admitted.append((extent, covered))
        self.coverage = self.coverage | covered
        return extent

    def claims(self) -> tuple[Claim, ...]:
        """Return what must be free when the append is committed."""
        if not self.is_exclusive:
            return ()
        claimed = self.coverage - self.freed  # the rest nobody else can take before this commit frees it
        packed = claimed.packed()
        return tuple(
            Claim(entity, bitmap.min() - 2**63, bitmap.max() - 2**63, packed[entity])
            for entity, bitmap in ((entity, claimed.bitmap(entity)) for entity in packed)
        )

    def pinned(self) -> Mapping[str, Any]:
        """Return the settings that pin the entity of a table of one, if that is not done."""
        if not self.rules.is_single or self.rules.identity is not None or not len(self.coverage):
            return {}
        (entity,) = self.coverage
        values = map(pinned_text, entity_values(entity))
        return {"entity_identity": dict(zip(self.rules.index.entity, values, strict=True))}

    def explained(self, error: OverlapError) -> OverlapError:
        """Return in times what a rule said in buckets."""
        if "start" in error.facts:
            return error
        return overlap_error(self.rules.index, {e: self.coverage.bitmap(e) for e in self.coverage}, self.table)

    def _check_entities(self, entities: Sequence[str]) -> None:
        if not self.rules.is_single:
            return
        expected = self.rules.identity or next(iter(self.coverage), None) or next(iter(entities), None)
        for entity in entities:
            if entity != expected:
                raise InvalidInputError(
                    "the table holds another entity: a table of a log holds one",
                    table=self.table,
                    expected=shown_entity(expected or "[]", self.rules.index.entity),
                    found=shown_entity(entity, self.rules.index.entity),
                    kind="entity_mismatch",
                )

    def _check_free(self, cells: Cells) -> None:
        taken = cells.coverage & self._held()
        if len(taken):
            self.head = self.coverage_store.newest(self.head)  # what was held may be gone by now
            taken = cells.coverage & self._held()
        if len(taken):
            raise overlap_error(self.rules.index, {entity: taken.bitmap(entity) for entity in taken}, self.table)

    def _held(self) -> Coverage:
        """Return what is held already, and stays so."""
        while True:
            try:
                held = self.coverage_store.at(self.head)
                return held - self.freed if len(self.freed) else held
            except NotFoundError:
                newest = self.coverage_store.newest(self.head)
                if newest.id == self.head.id:
                    raise
                self.head = newest  # the one at hand has expired

    def _check_own(self, cells: Cells) -> None:
        index = self.rules.index
        if (twins := cells.twins()) is not None:
            raise same_time(index, self.table, twins)
        again = cells.coverage & self.coverage
        if self._admitted:
            self._check_apart(cells, again)
            return
        low, high = cells.ends()
        for at, entity in enumerate(cells.entities):
            if entity in again and (len(again.bitmap(entity)) > 1 or int(low[at]) <= self._last[entity]):
                error = overlap_error(index, {entity: again.bitmap(entity)}, self.table)
                raise OverlapError(
                    "an append comes back to a time window: sort its rows by time", kind="duplicate", **error.facts
                )
            self._last[entity] = max(self._last.get(entity, int(high[at])), int(high[at]))

    def _check_apart(self, cells: Cells, again: Coverage) -> None:
        """Refuse rows that have the same entity and time as rows of extents that others wrote."""
        own = cells.pairs_in(again)
        for extent, covered in self._admitted if own else ():
            if len(covered & again):
                for others in self.coverage_store.cells_in(extent, self.rules):
                    if same := own & others.pairs_in(again):
                        raise same_time(self.rules.index, self.table, (*min(same), len(same)))
