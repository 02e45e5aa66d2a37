"""Hold a lake: its catalog, its store, and what this process shares between all who work on it.

What reads rows brings compilers with it, and is imported when it is first asked for. It does not open a lake: see
``opening``; nor does it know its tables' rows: see ``table_handle``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tidelake.catalog.commit import Coordinator
from tidelake.catalog.names import check_user
from tidelake.catalog.protocol import Catalog, StepHook, TableInfo, no_hook
from tidelake.errors import InvalidInputError, redacted
from tidelake.handle.flusher import Flusher
from tidelake.handle.leases import LeaseKeeper
from tidelake.model.settings import USER
from tidelake.model.snapshot import Scope, Snapshot
from tidelake.model.times import When, time_us
from tidelake.objects import ObjectStore
from tidelake.objects.protocol import DEADLINE_S
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelake.coverage import coverage_store
    from tidelake.coverage.coverage_store import CoverageStore
    from tidelake.manifest import service as manifest_service
    from tidelake.manifest.service import ManifestService
    from tidelake.scan import footers, points, versions
    from tidelake.scan.footers import Footers
    from tidelake.scan.points import Points
    from tidelake.scan.versions import Versions
else:
    coverage_store, footers = deferred("tidelake.coverage.coverage_store"), deferred("tidelake.scan.footers")
    points, versions = deferred("tidelake.scan.points"), deferred("tidelake.scan.versions")
    manifest_service = deferred("tidelake.manifest.service")

TABLES_KEPT = 4096  # of which it is known whether they have users


class AfterWrite(Protocol):
    """Have a table looked after that was written to; it returns at once and never raises."""

    def __call__(self, table: Any, head: Snapshot, /) -> None: ...


@dataclass(frozen=True, eq=False, repr=False)
class LakeHandle:
    """A catalog and an object store, with what coordinates commits, flushes hot rows and keeps what is read."""

    catalog: Catalog
    store: ObjectStore
    address: str  # with its password, for processes that open the lake too
    deadline_s: float = DEADLINE_S
    at: StepHook = no_hook
    after_write: AfterWrite | None = None  # who looks after a table that was written to, in the background
    node: Path | None = None  # the folder of what this node keeps of the lake's manifests
    flusher: Flusher = field(default_factory=Flusher, init=False)
    coordinator: Coordinator = field(init=False)
    leases: LeaseKeeper = field(init=False)
    _manifests: list[ManifestService] = field(default_factory=list, init=False)  # one, once it was asked for
    told: dict[str, Callable[[], pa.Table]] = field(default_factory=dict, init=False)  # what its process adds: by name
    _have_users: dict[str, bool] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        coordinator = Coordinator(
            self.catalog,
            held_at=lambda snapshot: self.coverage_store.held_at(snapshot),
            completed=lambda commits, onto: self.coverage_store.completed(commits, onto),
            committed=lambda commit, receipt: self.manifests.committed(commit, receipt),
            patience_s=self.deadline_s,
        )
        object.__setattr__(self, "coordinator", coordinator)
        object.__setattr__(self, "leases", LeaseKeeper(self.catalog))

    @property
    def where(self) -> str:
        """The lake's address, without a password."""
        return redacted(self.address)

    @property
    def manifests(self) -> ManifestService:
        """What is known of the segments of tables with users or keys."""
        if not self._manifests:
            made = manifest_service.ManifestService(
                self.catalog, self.store, node=self.node, later=self.flusher.notice, at=lambda point: self.at(point)
            )
            self._manifests.append(made)  # of two that are made at once the first counts, and the other holds nothing
        return self._manifests[0]

    @cached_property
    def footers(self) -> Footers:
        """The footers of extents that this process has read."""
        return footers.Footers(self.store)

    @cached_property
    def versions(self) -> Versions:
        """What this process knows of rows that newer versions hide."""
        return versions.Versions(self.footers)

    @cached_property
    def points(self) -> Points:
        """What this process keeps to find single rows by their keys."""
        return points.Points(self.footers)

    @cached_property
    def coverage_store(self) -> CoverageStore:
        """What this process knows of the tables' coverage."""
        return coverage_store.CoverageStore(self.catalog, self.store, self.footers)

    def tables(self, namespace: str | None = None) -> list[str]:
        """Return the names of the tables."""
        return [str(info) for info in self.catalog.tables(namespace)]

    def has_users(self, info: TableInfo) -> bool:
        """Whether a table has a scope for each user; asked of the catalog once, for it does not change."""
        if not self.catalog.layout.has_users:
            return False
        found = self._have_users.get(info.id)
        if found is None:
            if len(self._have_users) >= TABLES_KEPT:
                self._have_users.clear()
            found = self.catalog.head(info.scope).settings.get("scope") == USER
            self._have_users[info.id] = found
        return found

    def scope(self, info: TableInfo, user: str | None = None) -> Scope:
        """Return a table's scope, or one user's; InvalidInputError if a user is missing, unfit or one too many."""
        if user is not None and not self.has_users(info):
            raise InvalidInputError("the table is shared and has no users", table=info, kind="shared_table")
        return info.scope if user is None else Scope(info.id, check_user(user))

    def seen_scope(self, info: TableInfo, user: str | None) -> Scope:
        """Return the scope of a table that a user sees: their own where each has one, or else the shared one."""
        if not self.has_users(info):
            return info.scope
        if user is None:
            raise InvalidInputError(
                "each user has a table of their own: give a user (table.user(…), user=, --user, SET tide.user in SQL)",
                table=info,
                kind="no_user",
            )
        return Scope(info.id, check_user(user))

    def snapshot(
        self, name: str, *, as_of: When | None = None, snapshot: str | int | None = None, user: str | None = None
    ) -> Snapshot:
        """Return a table's newest snapshot, or the one at a time or with an id or a sequence; or that of a user."""
        scope = self.scope(self.catalog.table(name), user)
        if as_of is not None and snapshot is not None:
            raise InvalidInputError("give as_of or snapshot, not both")
        if as_of is not None:
            return self.catalog.snapshot(scope, at_us=time_us(as_of))
        if isinstance(snapshot, int):
            return self.catalog.snapshot(scope, sequence=snapshot)
        return self.catalog.head(scope) if snapshot is None else self.catalog.snapshot(scope, snapshot_id=snapshot)

    def close(self) -> None:
        """Stop flushing in the background, give leases back, and close the catalog's connections."""
        self.flusher.close()
        self.leases.close()
        for manifests in self._manifests:
            manifests.close()
        self.catalog.close()

    def __repr__(self) -> str:
        return f"LakeHandle({self.where!r}, objects={self.store.url!r})"


class OpenLake(Protocol):
    """Anything that holds a lake open, as ``Lake`` does."""

    @property
    def handle(self) -> LakeHandle: ...
    @property
    def user_id(self) -> str | None: ...
