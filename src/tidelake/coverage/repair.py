"""Find coverage that is lost or damaged, and make it again from the next better source.

Each extent's coverage object is read and checked; one that cannot be used is made again from the extent's rows, under
the same key. Then the table's united coverage is held against the union of them all; if it cannot be used, or differs,
a commit that changes nothing else brings a new one. Rows are never changed. It does not mend extents.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from tidelake.catalog.commit import Coordinator
from tidelake.catalog.protocol import Catalog, TableInfo, new_id
from tidelake.coverage.coverage_store import REPAIR, CoverageRules, CoverageStore
from tidelake.coverage.entities import Coverage
from tidelake.errors import CorruptError, InvalidInputError, NotFoundError
from tidelake.model.snapshot import Commit, Extent, Scope, UpdateTable

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mended:
    """One object that was made again, and why."""

    key: str
    source: str  # rows, or the coverage of extents
    reason: str


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What was looked at, and what was made again."""

    table: str
    snapshot: int
    extents: int
    objects: int  # coverage objects of extents; an extent without one is read when it is asked about
    mended: tuple[Mended, ...]
    is_thorough: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "extents": self.extents,
            "objects": self.objects,
            "thorough": self.is_thorough,
            "mended": [{"key": each.key, "source": each.source, "reason": each.reason} for each in self.mended],
        }


def repair(
    info: TableInfo,
    catalog: Catalog,
    coordinator: Coordinator,
    coverage_store: CoverageStore,
    *,
    thorough: bool = False,
    user: str = "",
) -> RepairReport:
    """Check a table's coverage and mend it; ``thorough`` reads every row and compares.

    1. mend the coverage objects of extents; 2. unite what they and the hot rows say; 3. hold the united object against
    it, and commit a new one if need be. Killed at any step, it can be run again.
    """
    scope = Scope(info.id, user)
    head = catalog.head(scope)
    rules = coverage_store.rules(head)
    if rules is None:
        raise InvalidInputError("the table keeps no coverage", table=info, kind="no_coverage")
    coverage_store.forget(scope)
    mended: list[Mended] = []
    extents = catalog.extents(scope, sequence=head.sequence)
    known = {extent.id: _mend(extent, coverage_store, rules, mended, thorough=thorough) for extent in extents}  # 1
    whole = coverage_store.all_of(head, lambda extent: known[extent.id])  # 2
    if head.coverage is not None and (reason := _wrong_united(coverage_store, head, rules, whole)):  # 3
        coverage_store.learn(head, whole)
        commit = Commit(new_id(), scope, head.sequence, (UpdateTable(),), operation=REPAIR)
        head = catalog.snapshot(scope, sequence=coordinator.commit(commit).sequence)
        mended.append(Mended(head.coverage.key if head.coverage else "", "the coverage of extents", reason))
    for each in mended:
        _logger.warning("coverage was made again table=%s key=%s from=%s: %s", info, each.key, each.source, each.reason)
    objects = sum(extent.coverage_key is not None for extent in extents)
    return RepairReport(str(info), head.sequence, len(extents), objects, tuple(mended), thorough)


def _mend(
    extent: Extent, coverage_store: CoverageStore, rules: CoverageRules, mended: list[Mended], *, thorough: bool
) -> Coverage:
    if extent.coverage_key is None:
        return coverage_store.from_data(extent, rules)
    try:
        found = coverage_store.read_object(extent, rules)
        if not thorough or found == coverage_store.from_data(extent, rules):
            return found
        reason = "it is not what the rows cover"
    except (NotFoundError, CorruptError) as error:
        reason = error.message
    found = coverage_store.from_data(extent, rules)
    coverage_store.rewrite_extent(extent, found, rules)
    mended.append(Mended(extent.coverage_key, "rows", reason))
    return found


def _wrong_united(coverage_store: CoverageStore, head: Any, rules: CoverageRules, whole: Coverage) -> str | None:
    """Return what is wrong with the united coverage, if anything."""
    try:
        coverage_store.read_united(head, rules)
    except (NotFoundError, CorruptError) as error:
        return error.message
    return None if coverage_store.at(head) == whole else "it is not what the extents cover"
