"""Delete exactly what nothing can reach, and say what was left and why.

1. List the store. First, so that whatever is committed meanwhile is known in step 5.
2. Drop tables that were made for a query which never ended, and purge dropped tables: their rows leave the catalog,
   and their objects go to the garbage list.
3. Give up registrations of writers that are gone, or too old; a commit of theirs is refused from then on.
4. Delete what is on the garbage list, page by page, and take it off once it is deleted.
5. Of what step 1 listed, delete what nothing names. A writer registers an object before its first byte, so what was
   listed and is neither registered, nor held by a snapshot, nor garbage by now, is nobody's. Its age is one more care.
6. Remove unfinished writes of writers that are gone, and empty folders.

Killed at any step it has deleted nothing that something can reach, and the next run goes on. Two may run at once.

The folder of a Spark job is registered for all that lies in it. Given up, all of it is deleted but what is named by
itself: a job registers its extents by name and looks, after that, whether its folder is still registered; so those that
it may commit are named by the time the folder is known to be given up.

Only names that a lake makes are deleted. It does not expire snapshots, and does not look at leases: the catalog offers
no garbage that a reader still uses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from tidelake.catalog.names import is_staged_name
from tidelake.catalog.protocol import Garbage, Pending, TableInfo, now_us
from tidelake.coverage.sidecar import is_own, is_vouched
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.maintain.coded_vectors import CodedVectors
from tidelake.maintain.inventory import PAGE, Inventory, paged, time_us_of
from tidelake.model.settings import TableSettings
from tidelake.model.times import duration_us
from tidelake.objects import (
    DATA_FOLDER,
    LOG_CURRENT,
    LOG_FOLDER,
    ObjectMeta,
    ObjectStore,
    empty_folders,
    is_job_folder,
    is_manifest_key,
    is_own_folder,
    is_own_key,
    is_probe_key,
    is_segment_table,
    is_sidecar_key,
    listing,
    remove_folders,
    remove_unfinished,
    scope_folder,
    table_prefix,
    unfinished,
    unfit_reason,
)
from tidelake.runtime.processes import is_gone

REASONS = ("expired", "abandoned", "dropped", "orphan", "temporary")
FOREIGN_SHOWN = 20  # names of what others put beside our objects
HEAD_THREADS = 16  # requests at once for the sizes of objects
DOUBT_OBJECTS = 100  # so many orphans, and more than there are other objects: it may be another lake's store
EVER = 2**62  # later than any time
ABANDONED_AFTER = "1d"  # a registration, that its writer would have used by then

STEPS = (
    "collect.listed",
    "collect.purged",
    "collect.abandoned",
    "collect.page",
    "collect.deleted",
    "collect.forgotten",
    "collect.named",
    "collect.orphans",
    "collect.unfinished",
    "collect.folders",
)

Watch: TypeAlias = Callable[[str, int], None]  # is told what was done, "listed" or "deleted", and to how many objects

_ZERO = re.compile(r"\s*0+\s*[a-z]*\s*", re.IGNORECASE)
_SHAPE = pa.schema(
    [
        ("key", pa.string()),
        ("size", pa.int64()),
        ("reason", pa.string()),
        ("since", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many objects, and how large together."""

    objects: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class CollectReport:
    """What a collection deleted, or in a dry run would delete, by reason; and what it left, and why.

    Reasons are expired, abandoned, dropped, orphan and temporary. ``left`` counts the objects and registrations of
    writers at work (``writing``), of readers (``reading``), those too young to be judged (``young``), other programs'
    (``foreign``, the first of which are named), and orphans of a store that the catalog hardly knows (``doubtful``).
    ``objects`` lists key, size, reason and since when, in a dry run.
    """

    deleted: Mapping[str, Tally]
    left: Mapping[str, int]
    foreign: tuple[str, ...] = ()
    tables: int = 0  # that were purged
    registrations: int = 0  # that were given up
    dry_run: bool = False
    objects: pa.Table | None = None

    @property
    def total(self) -> Tally:
        """All that was deleted."""
        tallies = self.deleted.values()
        return Tally(sum(each.objects for each in tallies), sum(each.bytes for each in tallies))


def collect(
    lake: LakeHandle,
    *,
    dry_run: bool = False,
    abandoned_after: str = ABANDONED_AFTER,
    dropped_after: str = "0s",
    orphan_after: str = "1d",
    all_orphans: bool = False,
    watch: Watch | None = None,
) -> CollectReport:
    """Delete what nothing can reach; see the steps in this module's text. A dry run changes nothing at all."""
    run = _Run(lake, dry_run, watch or (lambda what, count: None))
    abandoned_us, dropped_us, orphan_us = map(_age_us, (abandoned_after, dropped_after, orphan_after))
    with Inventory() as found:
        run.list_store(found)  # 1
        run.drop_staged(now_us() + 1 - abandoned_us)  # 2
        run.purge(now_us() + 1 - dropped_us)
        run.abandon(now_us() + 1 - abandoned_us)  # 3
        run.sweep(found)  # 4
        run.delete_orphans(found, now_us() + 1 - orphan_us, all_orphans=all_orphans)  # 5
    run.tidy(now_us() + 1 - orphan_us)  # 6
    return run.report()


def collect_garbage(lake: LakeHandle) -> CollectReport:
    """Delete what is on the garbage list and nothing else: no store is listed, and nothing given up."""
    run = _Run(lake, False, lambda what, count: None)
    run.sweep(None)
    return run.report()


@dataclass(slots=True)
class _Run:
    """One collection: what it works on, and what it has come to."""

    lake: LakeHandle
    dry_run: bool
    watch: Watch
    tables: int = 0
    registrations: int = 0
    foreign: list[str] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    _tallies: dict[str, Tally] = field(default_factory=lambda: dict.fromkeys(REASONS, Tally()))
    _rows: list[tuple[str, int, str, int]] = field(default_factory=list)
    _doomed: list[Garbage] = field(default_factory=list)  # of a dry run: what would be on the garbage list
    _prefixes: tuple[str, ...] = ()  # of the tables of a log
    _segmented: tuple[str, ...] = ()  # folders of tables whose extents are segments
    _staged: list[TableInfo] = field(default_factory=list)  # tables that were made for a query which never ended

    @property
    def store(self) -> ObjectStore:
        return self.lake.store

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders in which a lake has objects."""
        example = self.lake.catalog.layout.extent_coverage_key(TableInfo("0", "n", "t", 0), "0" * 32, "0" * 32)
        return tuple(dict.fromkeys((DATA_FOLDER, example.partition("/")[0])))

    def list_store(self, found: Inventory) -> None:
        self._refuse_shared()
        catalog = self.lake.catalog
        infos = [*catalog.tables(), *catalog.dropped_tables(before_us=EVER)]
        self._prefixes = tuple(f"{table_prefix(info.namespace, info.name)}/" for info in infos)
        self._segmented = tuple(sorted({scope_folder(i.namespace, i.name) for i in infos if self._is_segmented(i)}))
        for root in (*self.roots, *self._segmented):
            for page in paged(listing(self.store, root)):
                found.add(page)
                self.watch("listed", len(page))
        self.lake.at("collect.listed")

    def drop_staged(self, before_us: int) -> None:
        """Drop the tables of queries whose driver is gone, or has not been heard of."""
        staged = [info for info in self.lake.catalog.tables() if is_staged_name(info.name)]
        self._staged = [info for info in staged if self._is_left(info, before_us)]
        if not self.dry_run:
            for info in self._staged:
                with suppress(NotFoundError):  # it has got its name, or another collection was faster
                    self.lake.catalog.drop_table(str(info))

    def purge(self, before_us: int) -> None:
        catalog = self.lake.catalog
        dropped = catalog.dropped_tables(before_us=before_us)
        if self.dry_run:
            dropped = [*dropped, *self._staged]
        self.tables = len(dropped)
        if self.dry_run:
            for info in dropped:
                pending = [each.key for each in catalog.pending(table_id=info.id)]
                held = (k for page in catalog.named_keys(table_id=info.id) if page.why == "held" for k in page.keys)
                since_us = info.dropped_us or info.created_us
                folder = [scope_folder(info.namespace, info.name)] if self._is_segmented(info) else []
                self._doomed += [Garbage(key, info.id, since_us, "dropped") for key in {*pending, *held, *folder}]
        elif dropped:
            catalog.purge_tables(before_us=before_us)
        self.lake.at("collect.purged")

    def abandon(self, before_us: int) -> None:
        catalog = self.lake.catalog
        doomed = {each.key for each in self._doomed}
        pending = [each for each in catalog.pending() if each.key not in doomed]
        chosen = [each for each in pending if self._is_abandoned(each, before_us)]
        if self.dry_run:
            given_up = {each.key for each in chosen}
            self._doomed += [Garbage(each.key, each.scope.table_id, each.since_us, "abandoned") for each in chosen]
        else:
            given_up = {key for page in paged(chosen) for key in catalog.release_pending([each.key for each in page])}
        self.registrations = len(given_up)
        self.left["writing"] = len(pending) - len(given_up)
        self.lake.at("collect.abandoned")

    def sweep(self, found: Inventory | None) -> None:
        """Delete what is on the garbage list, oldest first, and forget it; what was not listed is not counted."""
        for page in self._garbage_pages():
            self.lake.at("collect.page")
            by_key = {each.key: each for each in page if _may_go(each.key)}
            self._leave_foreign([each.key for each in page if each.key not in by_key])
            owned = self._sidecars_of(by_key, found)
            doomed = [(meta, by_key[meta.key]) for meta in self._metas_of(found, list(by_key)).values()]
            doomed += [(meta, owned[meta.key]) for meta in self._metas_of(found, list(owned)).values()]
            doomed += self._below([each for each in page if is_job_folder(each.key)])
            for meta, why in doomed:
                self._note(meta, why.reason, why.since_us)
            keys = list(dict.fromkeys([*by_key, *owned, *(meta.key for meta, _ in doomed)]))
            for each in page:
                if is_segment_table(each.key):
                    self._delete_below_table(each, found)
            if not self.dry_run:
                for some in paged(keys):
                    self.store.delete(some)
                self.lake.at("collect.deleted")
                self.lake.catalog.forget_garbage([each.key for each in page])
                self._remove_emptied(keys)
            if found is not None:
                found.forget(keys)
            self.watch("deleted", len(doomed))
            self.lake.at("collect.forgotten")

    def delete_orphans(self, found: Inventory, before_us: int, *, all_orphans: bool) -> None:
        """Delete what was listed and nothing names."""
        listed = len(found)
        catalog = self.lake.catalog
        infos = [*catalog.tables(), *catalog.dropped_tables(before_us=EVER)]
        vectors = CodedVectors.named_by(catalog, [info.id for info in infos])
        found.forget(vectors.keys)
        found.disown(vectors.endings)
        self.left["reading"] = self._take_named(found, self.lake.catalog.pending())
        self.lake.at("collect.named")
        orphans, named = sum(is_own_key(meta.key) for page in found.pages() for meta in page), listed - len(found)
        is_doubtful = not all_orphans and orphans >= DOUBT_OBJECTS and orphans > named
        for page in found.pages():
            page = [meta for meta in page if not is_manifest_key(meta.key)]  # they go with their table
            own = [meta for meta in page if self._is_ours(meta.key)]
            self._leave_foreign(sorted({meta.key for meta in page} - {meta.key for meta in own}))
            old = [meta for meta in own if time_us_of(meta) < before_us]
            self.left["young"] += len(own) - len(old)
            if is_doubtful:
                self.left["doubtful"] += len(old)
                continue
            for meta in old:
                self._note(meta, "temporary" if is_probe_key(meta.key) else "orphan", time_us_of(meta))
            if old and not self.dry_run:
                self.store.delete([meta.key for meta in old])
                self._remove_emptied([meta.key for meta in old])
            self.watch("deleted", len(old))
        self.lake.at("collect.orphans")

    def tidy(self, before_us: int) -> None:
        """Remove unfinished writes of writers that are gone, and empty folders."""
        for root in (*self.roots, *self._segmented, LOG_FOLDER):
            for meta in unfinished(self.store, root):
                if time_us_of(meta) >= before_us:
                    self.left["young"] += 1
                elif remove_unfinished(self.store, meta.key, dry_run=self.dry_run):
                    self._note(meta, "temporary", time_us_of(meta))
                else:
                    self.left["writing"] += 1
        self.lake.at("collect.unfinished")
        if not self.dry_run:
            for root in (DATA_FOLDER, *self._segmented):
                remove_folders(self.store, filter(is_own_folder, empty_folders(self.store, root)))
        self.lake.at("collect.folders")

    def report(self) -> CollectReport:
        objects = [pa.array([row[at] for row in self._rows], kind) for at, kind in enumerate(_SHAPE.types)]
        return CollectReport(
            deleted={reason: tally for reason, tally in self._tallies.items() if tally.objects},
            left={why: count for why, count in sorted(self.left.items()) if count},
            foreign=tuple(self.foreign),
            tables=self.tables,
            registrations=self.registrations,
            dry_run=self.dry_run,
            objects=pa.Table.from_arrays(objects, schema=_SHAPE) if self.dry_run else None,
        )

    def _refuse_shared(self) -> None:
        """Refuse a store in which a transaction log has its objects, too."""
        if len(self.roots) == 1:
            try:
                self.store.head(LOG_CURRENT)
            except NotFoundError:
                return
            raise InvalidInputError(
                "a log table has its objects in this store, too: give each a place of its own",
                store=self.store.url,
                kind="shared_store",
            )

    def _is_left(self, info: TableInfo, before_us: int) -> bool:
        """Whether nobody will name a table that a query was to fill: its writer is gone, or it is too old."""
        pending = self.lake.catalog.pending(table_id=info.id)
        if pending:
            return all(self._is_abandoned(each, before_us) for each in pending)
        return max(info.created_us, self.lake.catalog.head(info.scope).committed_us) < before_us

    def _is_abandoned(self, each: Pending, before_us: int) -> bool:
        """Whether a writer is gone, or has not been heard of; a Spark job is heard of when a task writes."""
        if is_gone(each.owner):
            return True
        if each.since_us >= before_us:
            return False
        return not is_job_folder(each.key) or all(
            time_us_of(meta) < before_us for meta in listing(self.store, each.key)
        )

    def _garbage_pages(self) -> Iterator[list[Garbage]]:
        catalog = self.lake.catalog
        if self.dry_run:
            yield from paged([*catalog.garbage(before_us=EVER, limit=EVER), *self._doomed])
            return
        before_us = now_us() + 1  # what others give up from now on is for the next run
        while page := catalog.garbage(before_us=before_us, limit=PAGE):
            yield page

    def _is_segmented(self, info: TableInfo) -> bool:
        """Whether the extents of a table are segments in folders of their own."""
        return TableSettings.of(self.lake.catalog.settings(info.id)).is_segmented

    def _sidecars_of(self, by_key: Mapping[str, Garbage], found: Inventory | None) -> dict[str, Garbage]:
        """Return the sidecars of extents that go: those that were listed or, where none were, that may be there."""
        if found is not None:
            return {key: by_key[owner] for key, owner in found.sidecars_of(list(by_key)).items()}
        vectors = CodedVectors.named_by(self.lake.catalog, {each.table_id for each in by_key.values()})
        return dict(vectors.sidecars_of(by_key.values()))

    def _below(self, folders: Sequence[Garbage]) -> list[tuple[ObjectMeta, Garbage]]:
        """Return what lies in the folders of jobs that were given up, and nothing names by itself."""
        doomed: list[tuple[ObjectMeta, Garbage]] = []
        for table_id in {each.table_id for each in folders}:
            by_key = {each.key: each for each in folders if each.table_id == table_id}
            with Inventory() as found:
                for page in paged(meta for key in by_key for meta in listing(self.store, key)):
                    found.add(page)
                if not len(found):
                    continue
                pending = [each for each in self.lake.catalog.pending() if each.key not in by_key]
                self._take_named(found, pending, table_id)
                metas = [meta for page in found.pages() for meta in page if is_own_key(meta.key)]
            doomed += [(meta, by_key[meta.key.rpartition("/")[0]]) for meta in metas]
        return doomed

    def _delete_below_table(self, gone: Garbage, listed: Inventory | None) -> None:
        """Delete what lies in the folder of a table that was purged, unless another table of its name is there by now.

        That one has its objects there too; what is left of the other is found as what nothing names.
        """
        catalog = self.lake.catalog
        with Inventory() as found:
            for page in paged(listing(self.store, gone.key)):
                found.add(page)
            others = [*catalog.tables(), *catalog.dropped_tables(before_us=EVER)]  # asked after what was listed
            alike = [
                info for info in others if f"{info.namespace}/{info.name}" == gone.key and info.id != gone.table_id
            ]
            if any(map(self._is_segmented, alike)):
                return
            for some in paged(each.key for each in self._doomed):
                found.forget(some)
            for page in found.pages():
                doomed = [meta for meta in page if is_own_key(meta.key) or is_manifest_key(meta.key)]
                for meta in doomed:
                    self._note(meta, gone.reason, gone.since_us)
                if doomed and not self.dry_run:
                    keys = [meta.key for meta in doomed]
                    self.store.delete(keys)
                    self._remove_emptied(keys)
                    if listed is not None:
                        listed.forget(keys)

    def _take_named(self, found: Inventory, pending: Sequence[Pending], table_id: str | None = None) -> int:
        """Take off the list what registrations, snapshots and the garbage list name, asked in this order.

        Returns how many are on the garbage list.
        """
        for page in paged(pending):
            found.forget([each.key for each in page])
            for each in page:
                found.forget_below(each.key)
        garbage = 0
        for named in self.lake.catalog.named_keys(table_id=table_id):
            taken = found.forget(named.keys)
            garbage += taken if named.why == "garbage" else 0
        return garbage

    def _leave_foreign(self, keys: Sequence[str]) -> None:
        self.left["foreign"] += len(keys)
        self.foreign += keys[: FOREIGN_SHOWN - len(self.foreign)]

    def _is_ours(self, key: str) -> bool:
        """Whether a lake has written an object; of coverage beside a log, its bytes must say so."""
        if is_probe_key(key):
            return True
        if len(self.roots) == 1:
            return is_own_key(key)
        if is_sidecar_key(key):
            try:
                data = bytes(self.store.get(key))
            except NotFoundError:
                return False
            return is_own(data) or is_vouched(key.rpartition("/")[2].removesuffix(".roar"), data)
        return is_own_key(key) and key.startswith(self._prefixes)

    def _metas_of(self, found: Inventory | None, keys: Sequence[str]) -> dict[str, ObjectMeta]:
        """Return those of some objects that are there, with their sizes: by the list, or else by asking for each."""
        if found is not None:
            return found.metas_of(keys)
        with ThreadPoolExecutor(HEAD_THREADS, thread_name_prefix="tidelake-collect") as pool:
            metas = pool.map(self._head, [key for key in keys if not is_job_folder(key)])
            return {meta.key: meta for meta in metas if meta is not None}

    def _head(self, key: str) -> ObjectMeta | None:
        try:
            return self.store.head(key)
        except NotFoundError:
            return None

    def _note(self, meta: ObjectMeta, reason: str, since_us: int) -> None:
        known = self._tallies.get(reason, Tally())
        self._tallies[reason] = Tally(known.objects + 1, known.bytes + meta.size)
        if self.dry_run:
            self._rows.append((meta.key, meta.size, reason, since_us))

    def _remove_emptied(self, keys: Iterable[str]) -> None:
        """Remove folders that held nothing else, the innermost first."""
        folders: Collection[str] = {key.rpartition("/")[0] for key in keys}
        while folders := {folder for folder in folders if is_own_folder(folder) and folder != DATA_FOLDER}:
            remove_folders(self.store, sorted(folders, reverse=True))
            folders = {folder.rpartition("/")[0] for folder in folders}


def _may_go(key: str) -> bool:
    """Whether an object that a catalog gave up may be deleted; a log may name what is no object, and its own files."""
    return not unfit_reason(key) and not key.startswith(f"{LOG_FOLDER}/")


def _age_us(text: str) -> int:
    """Read how old something must be; nothing, 0s, is old enough too."""
    return 0 if _ZERO.fullmatch(text) else duration_us(text)
