"""Make and drop indexes of vectors, and write what of them is missing.

Making one commits its name first and writes its objects then: a codebook that is named is never taken for garbage, and
a maker that is killed leaves an index that upkeep completes. Until a table has enough vectors to learn from, its index
waits, and searches measure every row. A codebook that was damaged, or outgrown by its table, is followed by another
version: that one is written first, with all sidecars, and committed then, so searches never wait for it. It does not
search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from weakref import WeakKeyDictionary

import numpy as np

from tidelake.catalog.protocol import new_id, now_us
from tidelake.errors import AlreadyExistsError, ConflictError, CorruptError, InvalidInputError, NotFoundError
from tidelake.format import segment_format
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.manifest.vector_metadata import vector_metadata
from tidelake.model.settings import VECTOR_INDEX, TableSettings
from tidelake.model.snapshot import Commit, Extent, Fence, Snapshot, UpdateTable
from tidelake.objects import codebook_key
from tidelake.vectors import codebook as codebooks
from tidelake.vectors import quantizing
from tidelake.vectors.codebook import Codebook
from tidelake.vectors.definition import (
    Floats,
    VectorIndex,
    check_metric,
    index_on,
    indexes_of,
    vector_column,
)
from tidelake.vectors.shards import shards_of
from tidelake.vectors.sidecars import (
    forget_codebook,
    has_sidecar,
    read_codebook,
    read_sidecar,
    vectors_of,
    write_sidecar,
)

COMMIT_TRIES = 50  # each lost to another commit to the same table
OUTGROWN = 16  # times the rows that a codebook was learned from, and the table gets another
USERS_LEARNED_FROM = 256
HEAD_THREADS = 16

SEEN_KEPT = 100_000  # names of sidecars that are there


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What making an index did."""

    column: str
    metric: str
    version: int
    rows: int  # whose vectors were coded
    extents: int  # that were given a sidecar
    is_waiting: bool  # there are too few vectors to learn from yet

    def __str__(self) -> str:
        if self.is_waiting:
            few = f"fewer than {quantizing.MIN_ROWS:,} vectors in extents"
            return f"{self.column} is indexed by {self.metric}; with {few} every row is measured"
        return f"{self.column} is indexed by {self.metric}: {self.rows:,} rows of {self.extents:,} extents coded"


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """An index as it is: ``active``, ``waiting`` for enough vectors, or ``syncing`` while sidecars are missing."""

    column: str
    metric: str
    dimensions: int
    version: int
    state: str
    extents: int  # with a sidecar
    missing: int  # extents without one, which are searched exactly
    byte_size: int  # of the codebook and the sidecars
    fallbacks: int  # extents that this process has searched exactly for want of a sidecar


def create_index(table: TableHandle, column: str, *, metric: str = "cosine") -> IndexReport:
    """Index a column of vectors, as ``Table.create_index`` says."""
    table.refuse_when_pinned()
    _refuse_of_user(table)
    wanted = check_metric(metric)
    quantizing.require()

    def made(head: Snapshot) -> VectorIndex:
        held = vector_column(head.schema, column)
        if column in indexes_of(head.settings, head.schema):
            raise AlreadyExistsError("the column has an index: drop it first", table=table.name, column=column)
        key = codebook_key(table.info.namespace, table.info.name, held.id, new_id())
        return VectorIndex(column, held.id, held.type.dimension or 0, wanted, key, 1, now_us())

    index = _commit_index(table, made, "create_index")
    table.at("index.named")
    report = write_missing(table, index)
    tell_manifests(table)
    return report


def drop_index(table: TableHandle, column: str) -> None:
    """Drop the index of a column; its objects are left to collection."""
    table.refuse_when_pinned()
    _refuse_of_user(table)

    def gone(head: Snapshot) -> VectorIndex:
        vector_column(head.schema, column)
        return index_on(indexes_of(head.settings, head.schema), column)

    index = _commit_index(table, gone, "drop_index", drop=True)
    shards_of(table.lake).forget(index.codebook_key)
    tell_manifests(table)


def indexes(table: TableHandle) -> list[IndexInfo]:
    """List the indexes of a table, by column."""
    snapshot = table.snapshot
    found = indexes_of(snapshot.settings, snapshot.schema)
    return [_info(table, snapshot, index) for _, index in sorted(found.items())]


def missing_in(table: TableHandle, head: Snapshot) -> Iterator[tuple[VectorIndex, str]]:
    """Yield the indexes of a snapshot for which there is something to write, and what."""
    for index in indexes_of(head.settings, head.schema).values():
        known = read_codebook(table.store, index)
        if known is None:
            if head.totals.rows >= quantizing.MIN_ROWS:
                yield index, f"the vectors of {index.column} wait to be coded"
            continue
        if head.totals.rows > OUTGROWN * known.rows:
            yield index, f"there are {head.totals.rows:,} rows by now, and {known.rows:,} were learned from"
            continue
        extents = table.catalog.extents(head.scope, sequence=head.sequence, stats=())
        if count := len(_without_sidecar(table, index, extents)):
            yield index, f"{count:,} extents have no codes for {index.column}"


def write_missing(
    table: TableHandle, index: VectorIndex, *, suspects: Collection[str] = (), fence: Fence | None = None
) -> IndexReport:
    """Write what an index lacks: its codebook, if there are vectors enough, and sidecars; of suspects also bad ones."""
    known = read_codebook(table.store, index)
    parts = list(_parts(table))
    rows = sum(part.snapshot.totals.rows for part in parts)
    if known is None or rows > OUTGROWN * known.rows:
        sample, count = _sample(parts, index, rows)
        learned = quantizing.learn(sample, index.metric, rows=rows) if count >= quantizing.MIN_ROWS else None
        if learned is None and known is None:
            return IndexReport(index.column, index.metric, index.version, 0, 0, is_waiting=True)
        if learned is not None:
            index, known = _with_codebook(table, index, learned, parts, is_next=known is not None, fence=fence)
    assert known is not None
    rows, count = 0, 0
    for part in [part for part in _parts(table) if index.column in indexes_of(part.snapshot.settings, part.schema)]:
        written = _write_sidecars(part, index, known, suspects)
        rows, count = rows + sum(extent.row_count for extent in written), count + len(written)
    return IndexReport(index.column, index.metric, index.version, rows, count, is_waiting=False)


def tell_manifests(table: TableHandle) -> None:
    """Write which indexes there are to the manifest beside the segments, at once, where a table has one."""
    head = table.catalog.head(table.info.scope)
    if not TableSettings.of(head.settings).is_segmented or table.lake.has_users(table.info):
        return
    found = indexes_of(head.settings, head.schema)
    states = {name: "syncing" if read_codebook(table.store, each) is None else "active" for name, each in found.items()}
    table.lake.manifests.persist_now(table.info.scope, vector_indexes=vector_metadata(head, {}, states))


def _with_codebook(
    table: TableHandle,
    index: VectorIndex,
    learned: Codebook,
    parts: Sequence[TableHandle],
    *,
    is_next: bool,
    fence: Fence | None,
) -> tuple[VectorIndex, Codebook]:
    """Store a codebook that was learned: under the name that waits for it, or as the next version."""
    data = codebooks.encode(learned)
    if not is_next:
        with suppress(AlreadyExistsError):  # another was faster, or what is there is damaged
            table.store.put_if_absent(index.codebook_key, data)
        found = read_codebook(table.store, index)
        if found is not None:
            return index, found
    key = codebook_key(table.info.namespace, table.info.name, index.column_id, new_id())
    fresh = replace(index, codebook_key=key, version=index.version + 1)
    table.store.put(key, data)
    for part in parts:
        _write_sidecars(part, fresh, learned, ())
    table.at("index.renewed")

    def renewed(head: Snapshot) -> VectorIndex:
        held = indexes_of(head.settings, head.schema).get(index.column)
        if held != index:
            raise ConflictError("the index was changed meanwhile", table=table.name, column=index.column)
        return fresh

    committed = _commit_index(table, renewed, "alter", fence=fence)
    forget_codebook(table.store, index)
    shards_of(table.lake).forget(index.codebook_key)
    return committed, learned


def _commit_index(
    table: TableHandle,
    make: Callable[[Snapshot], VectorIndex],
    operation: str,
    *,
    drop: bool = False,
    fence: Fence | None = None,
) -> VectorIndex:
    """Commit an index on top of the snapshot that it was checked against, the newest there is."""
    scope = table.info.scope
    for left in reversed(range(COMMIT_TRIES)):
        head = table.catalog.head(scope)
        index = make(head)
        action = UpdateTable(None, {VECTOR_INDEX + index.column: None if drop else index.to_setting()})
        commit = Commit(new_id(), scope, head.sequence, (action,), operation, fence=fence, is_exact=True)
        try:
            table.coordinator.commit(commit)
            return index
        except ConflictError as error:
            if error.kind != "moved" or not left:
                raise
    raise AssertionError("the last try returns or raises")


def _write_sidecars(table: TableHandle, index: VectorIndex, known: Codebook, suspects: Collection[str]) -> list[Extent]:
    """Write the sidecars that extents of a table lack, and those of suspects that cannot be read."""
    head = table.snapshot
    extents = table.catalog.extents(table.scope, sequence=head.sequence, stats=())
    lacking = _without_sidecar(table, index, extents)
    named = {extent.id for extent in lacking}
    lacking += [
        extent
        for extent in extents
        if extent.id in suspects and extent.id not in named and not _is_sound(table, index, known, extent)
    ]
    written = []
    for extent in lacking:
        with suppress(NotFoundError):  # it was taken away meanwhile, and its object with it
            write_sidecar(table.store, index, known, extent)
            written.append(extent)
            table.at("index.sidecar")
    return written


def _is_sound(table: TableHandle, index: VectorIndex, known: Codebook, extent: Extent) -> bool:
    try:
        read_sidecar(table.store, index, known, extent)
    except (NotFoundError, CorruptError):
        return False
    return True


def _without_sidecar(table: TableHandle, index: VectorIndex, extents: Sequence[Extent]) -> list[Extent]:
    """Return the extents whose sidecar is not there; one that was seen once is not looked for again.

    Should it go nevertheless, a search finds out, and names its extent as a suspect.
    """
    seen = _SEEN.setdefault(table.lake, set())
    unknown = [extent for extent in extents if index.sidecar_key(extent.key) not in seen]
    if not unknown:
        return []
    if len(seen) > SEEN_KEPT:
        seen.clear()
    with ThreadPoolExecutor(HEAD_THREADS, thread_name_prefix="tidelake-vectors") as pool:
        there = list(pool.map(lambda extent: has_sidecar(table.store, index, extent), unknown))
    seen.update(index.sidecar_key(extent.key) for extent, is_there in zip(unknown, there, strict=True) if is_there)
    return [extent for extent, is_there in zip(unknown, there, strict=True) if not is_there]


def _parts(table: TableHandle) -> Iterator[TableHandle]:
    """Yield the tables whose extents an index covers: itself, or those of its users."""
    if not table.is_of_users:
        yield table.pinned()
        return
    yield from (table.of_user(user).pinned() for user in table.users())


def _sample(parts: Sequence[TableHandle], index: VectorIndex, rows: int) -> tuple[Floats, int]:
    """Read some vectors of a table, spread evenly over its rows, and say how many there are in all, about."""
    chance = np.random.default_rng(quantizing.SEED)
    share = quantizing.sample_rows(rows) / max(1, rows)
    found, count = [np.empty((0, index.dimensions), np.float32)], 0
    for part in islice(parts, USERS_LEARNED_FROM):
        for extent in part.extents():
            vectors, _ = vectors_of(segment_format(extent.format).open_extent(part.store, extent.key), index)
            count += len(vectors)
            chosen = chance.random(len(vectors)) < share
            found.append(vectors if share >= 1 else vectors[chosen])
    return np.concatenate(found), count


def _info(table: TableHandle, snapshot: Snapshot, index: VectorIndex) -> IndexInfo:
    known = read_codebook(table.store, index)
    sizes: list[int] = []
    missing = 0
    for part in _parts(table):
        for extent in part.extents():
            try:
                sizes.append(table.store.head(index.sidecar_key(extent.key)).size)
            except NotFoundError:
                missing += 1
    state = "waiting" if known is None else "syncing" if missing else "active"
    own = 0 if known is None else known.byte_size
    fallbacks = shards_of(table.lake).fallbacks[index.codebook_key]
    return IndexInfo(
        index.column, index.metric, index.dimensions, index.version, state, len(sizes), missing, own + sum(sizes),
        fallbacks,
    )  # fmt: skip


def _refuse_of_user(table: TableHandle) -> None:
    if table.user:
        raise InvalidInputError(
            "indexes belong to the table: name it without a user", table=table.name, kind="has_user"
        )


_SEEN: WeakKeyDictionary[LakeHandle, set[str]] = WeakKeyDictionary()
