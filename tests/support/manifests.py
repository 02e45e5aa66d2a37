"""Build scopes with segments for tests of manifests: a catalog, a store, a service, and commits that it follows.

It does not assert anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.catalogs import Ticking, announce, commit_of, hot
from tidelake.catalog.commit import Coordinator
from tidelake.catalog.protocol import Catalog, StepHook, TableInfo, new_id, no_hook
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.manifest.manifest_json import ScopeManifest, from_bytes
from tidelake.manifest.service import Entry, Limits, ManifestService
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Action, AddExtent, AppendHot, DropHot, Extent, Receipt, RemoveExtent, Scope
from tidelake.objects import ObjectStore

SCHEMA = Schema.of({"ts": "timestamp", "id": "long", "name": "string"})
USERS = {"scope": "user", "time": "ts"}
KEYED = {"key": ["id"], "time": "ts"}
_numbers = itertools.count()


def segment_extent(folder: str, number: int | str, rows: int = 10) -> Extent:
    """Make an extent in the folder of a scope; no object is written."""
    name = f"batch-{number}.parquet" if isinstance(number, int) else f"compact-{number}.parquet"
    stats = {
        "id": {"distinct": None, "tokens": None, "nulls": 0, "min": -(2**62), "max": 2**62},
        "ts": {"distinct": None, "tokens": None, "nulls": 0, "min": 0, "max": 999_000},
        "name": {"distinct": ["a"], "tokens": None, "nulls": 1, "min": "a", "max": "a"},
    }
    return Extent(new_id(), f"{folder}/{name}", "parquet", rows * 100, rows, 1, 0, 999_000, 1, stats)


@dataclass
class World:
    """One process of several on one catalog and one store."""

    where: str
    store: ObjectStore
    node: Path | None
    clock: Ticking = field(default_factory=Ticking)
    limits: Limits = field(default_factory=Limits)
    at: StepHook = no_hook
    later: list[tuple[Any, Any, float]] = field(default_factory=list)  # what is to be done in the background

    def __post_init__(self) -> None:
        self.catalog: Catalog = SqlCatalog(self.where, clock=self.clock)
        self.open()

    def open(self) -> None:
        """Begin anew, as a process that has just started."""
        self.service = ManifestService(
            self.catalog,
            self.store,
            node=self.node,
            later=lambda owner, work, after_s: self.later.append((owner, work, after_s)),
            limits=self.limits,
            clock=self.clock,
            at=lambda point: self.at(point),
        )
        self.coordinator = Coordinator(self.catalog, committed=self.service.committed)

    def restart(self) -> None:
        """End as a process that is closed, and begin anew."""
        self.service.close()
        self.open()

    def close(self) -> None:
        self.service.close()
        self.catalog.close()

    def table(self, name: str = "app.notes", settings: Mapping[str, Any] = USERS) -> TableInfo:
        info = self.catalog.create_table(name, SCHEMA, settings)
        self.service.know(info)
        return info

    def commit(self, scope: Scope, *actions: Action, operation: str = "append") -> Receipt:
        base = self.catalog.head(scope).sequence
        commit = announce(self.catalog, commit_of(scope, *actions, base=base, operation=operation))
        return self.coordinator.commit(commit)

    def cold(self, scope: Scope, count: int = 1, rows: int = 10) -> list[Extent]:
        """Commit new segments, all at once."""
        folder = self.service.place(scope).folder
        extents = [segment_extent(folder, next(_numbers), rows) for _ in range(count)]
        self.commit(scope, *map(AddExtent, extents))
        return extents

    def hot(self, scope: Scope) -> str:
        batch = hot()
        self.commit(scope, AppendHot(batch))
        return batch.id

    def flush(self, scope: Scope) -> Extent:
        """Swap all hot rows for a segment, as a flush does."""
        with self.service.flushing(scope):
            batches = self.catalog.hot(scope)
            folder = self.service.place(scope).folder
            extent = segment_extent(folder, next(_numbers), sum(each.rows for each in batches))
            drops = [DropHot(each.id) for each in batches]
            self.commit(scope, AddExtent(extent), *drops, operation="flush")
        return extent

    def compact(self, scope: Scope, inputs: Sequence[Extent]) -> Extent:
        """Swap segments for one."""
        folder = self.service.place(scope).folder
        joined = segment_extent(folder, new_id(), sum(each.row_count for each in inputs))
        taken = [RemoveExtent(each.id) for each in inputs]
        self.commit(scope, AddExtent(replace(joined, level=1)), *taken, operation="compact")
        return joined

    def stored(self, scope: Scope) -> ScopeManifest:
        """Read a scope's manifest.json."""
        key = self.service.place(scope).key
        return from_bytes(bytes(self.store.get(key)), key)

    def ids(self, entry: Entry) -> set[str]:
        return {each.extent for each in entry.listed}

    def truth(self, scope: Scope) -> set[str]:
        """What the catalog says."""
        return {each.id for each in self.catalog.extents(scope, stats=())}
