"""Keep a scope's ``manifest.json`` and its parts beside its segments.

A write, after the commit that made it necessary:

1. read what is there; if it is as new as the catalog, nothing is to be done
2. bring it forward by the commits that it missed, or make it anew from the catalog if it cannot be
3. write the parts that are sealed by that, under names that nobody else has
4. write ``manifest.json``, only if absent where it was; then look at the catalog again, and begin again if that has
   moved on: so an older writer that comes late cannot leave its file for good
5. delete the parts that are used no more

Killed at any step it leaves the file as it was, or the new one, and perhaps a part that nobody names. It does not keep
copies: see ``service``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tidelake.catalog.protocol import Catalog, StepHook, new_id
from tidelake.errors import AlreadyExistsError, ConflictError, CorruptError, NotFoundError, StorageError
from tidelake.manifest.manifest_json import (
    MANIFEST_NAME,
    Notes,
    Part,
    PartRef,
    ScopeManifest,
    from_bytes,
    part_from_bytes,
    to_bytes,
)
from tidelake.manifest.parts import Draft, Listed, all_segments, changed
from tidelake.manifest.segments import last_batch_number, listed_of, listed_statistics, table_notes
from tidelake.manifest.states import Held
from tidelake.manifest.vector_metadata import vector_metadata
from tidelake.model.snapshot import Scope, Snapshot
from tidelake.objects import ObjectStore

MAX_TRIES = 20  # each is lost to another writer's commit
HISTORY_PAGE = 100  # headers that are read at once to find the last that changed segments
MAX_HISTORY = 10_000  # headers that are read for it; hot rows are flushed long before


@dataclass(frozen=True, slots=True)
class Place:
    """A scope, the name of its table, and the folder of its segments."""

    scope: Scope
    table: str
    folder: str

    @property
    def key(self) -> str:
        """The key of the scope's manifest."""
        return f"{self.folder}/{MANIFEST_NAME}"


@dataclass(frozen=True, slots=True)
class Wish:
    """Control-plane metadata that a write sets, whether or not segments changed."""

    vector_indexes: dict[str, dict[str, Any]] | None = None
    files: dict[str, int] | None = None
    is_anew: bool = False  # what is there is doubted: the list is made from the catalog

    @property
    def is_any(self) -> bool:
        return self.is_anew or self.vector_indexes is not None or self.files is not None


class StoredManifests:
    """Read and write the manifests that lie beside segments."""

    def __init__(self, catalog: Catalog, store: ObjectStore, at: StepHook) -> None:
        self._catalog, self._store, self._at = catalog, store, at

    def read(self, place: Place) -> ScopeManifest | None:
        """Return a scope's manifest; None if there is none, CorruptError if it is torn."""
        try:
            data = bytes(self._store.get(place.key))
        except NotFoundError:
            return None
        found = from_bytes(data, place.key)
        if found.table_id != place.table or (found.user_id or "") != place.scope.user:
            raise CorruptError(
                "not a manifest", object=place.key, at="table_id", reason="it is another scope's", kind="bad_manifest"
            )
        return found

    def segments(self, place: Place, manifest: ScopeManifest) -> list[Listed]:
        """Return all segments that a manifest lists, those in its parts too; CorruptError if a part is missing."""
        return list(all_segments(manifest, lambda ref: self._part(place, ref)))

    def write(
        self, place: Place, head: Snapshot, *, known: Held, wish: Wish | None = None
    ) -> tuple[ScopeManifest, Snapshot]:
        """Bring ``manifest.json`` to the newest state of its scope, and return it with the head that it is right for.

        What only manifests have, ``known`` has too, should the file be torn. StorageError if it cannot be read or
        written.
        """
        for _ in range(MAX_TRIES):
            try:
                before = self.read(place)  # 1
                is_there = before is not None
            except CorruptError:
                before, is_there = None, True
            self._at("manifest.read")
            draft = self._draft(place, before, head, known, wish or Wish())  # 2
            if draft is None:
                assert before is not None
                return before, head
            if not self._put(place, draft, is_there=is_there):  # 3, 4
                self._delete(place, draft.sealed)  # nobody else has their names
                head = self._catalog.head(place.scope)
                continue
            newest = self._catalog.head(place.scope)
            self._at("manifest.looked")
            if newest.id == head.id or cold_version(self._catalog, newest, draft.manifest) == draft.manifest.version:
                self._delete(place, draft.unused)  # 5
                return draft.manifest, newest
            head = newest
        raise ConflictError("a manifest is written by too many at once", scope=place.scope, kind="busy")

    def _draft(
        self, place: Place, before: ScopeManifest | None, head: Snapshot, known: Held, wish: Wish
    ) -> Draft | None:
        """Return what is to be written; None if what is there is as it should be."""
        base = before if before is not None and self._is_past(before, head) else None
        version = cold_version(self._catalog, head, base)
        if base is not None and base.version == version and not wish.is_any:
            return None
        draft = self._forward(place, base, head) if base is not None and not wish.is_anew else None
        if draft is None:
            draft = self._anew(place, before or _empty(place, head, known), head)
        notes = draft.manifest.notes or Notes(0, "")
        last = last_batch_number([each.path for each in draft.manifest.segments], draft.manifest.last_sequence_number)
        held = draft.manifest
        draft.manifest = replace(
            held,
            version=version,
            updated_at=head.committed_us // 1000,
            last_sequence_number=last,
            files=held.files if wish.files is None else wish.files,
            vector_indexes=vector_metadata(head, held.vector_indexes)
            if wish.vector_indexes is None
            else wish.vector_indexes,
            notes=replace(notes, sequence=head.sequence, snapshot=head.id, table=table_notes(head.settings)),
        )
        return draft

    def _is_past(self, manifest: ScopeManifest, head: Snapshot) -> bool:
        """Whether a manifest was right at an older state of this very catalog, or is right now."""
        notes = manifest.notes
        return notes is not None and is_past(self._catalog, head, notes.sequence, notes.snapshot)

    def _forward(self, place: Place, base: ScopeManifest, head: Snapshot) -> Draft | None:
        """Bring a manifest forward by the commits that it missed; None if that cannot be."""
        assert base.notes is not None
        try:
            changes = self._catalog.changes(place.scope, after=base.notes.sequence, upto=head.sequence)
            added = [listed_of(each, head.schema, head.settings, place.folder) for each in changes.added]
            return changed(base, added, changes.removed, read=lambda ref: self._part(place, ref), name=new_id)
        except (NotFoundError, CorruptError) as error:
            if isinstance(error, CorruptError) and error.kind != "bad_manifest":
                raise  # the catalog's own
            return None

    def _anew(self, place: Place, before: ScopeManifest, head: Snapshot) -> Draft:
        """Make a manifest from the catalog; what it alone knew is carried over."""
        extents = self._catalog.extents(place.scope, sequence=head.sequence, stats=listed_statistics(head.settings))
        listed = [listed_of(each, head.schema, head.settings, place.folder) for each in extents]
        listed.sort(key=in_order)
        last = last_batch_number([each.segment.path for each in listed], before.last_sequence_number)
        empty = replace(before, segments=(), last_sequence_number=last, notes=None)
        draft = changed(empty, listed, (), read=lambda ref: self._part(place, ref), name=new_id)
        if before.notes is not None:
            draft.unused = tuple(self._names(place, before.notes.parts))
        return draft

    def _names(self, place: Place, refs: Iterable[PartRef]) -> Iterator[str]:
        """Yield the paths of parts and of those below them, as far as they can be read."""
        for ref in refs:
            yield ref.path
            if ref.level:
                with suppress(CorruptError):
                    yield from self._names(place, self._part(place, ref).parts)

    def _put(self, place: Place, draft: Draft, *, is_there: bool) -> bool:
        """Write the parts and then the manifest; False if another made one where there was none."""
        for path, data in draft.sealed.items():
            self._store.put_if_absent(f"{place.folder}/{path}", data)
        self._at("manifest.sealed")
        data = to_bytes(draft.manifest)
        try:
            if is_there:
                self._store.put(place.key, data)
            else:
                self._store.put_if_absent(place.key, data)
        except AlreadyExistsError:
            return False
        self._at("manifest.written")
        return True

    def _delete(self, place: Place, parts: Iterable[str]) -> None:
        """Delete parts that nothing names; what cannot be deleted goes with its table."""
        with suppress(StorageError):
            self._store.delete([f"{place.folder}/{path}" for path in parts])

    def _part(self, place: Place, ref: PartRef) -> Part:
        return read_part(self._store, place.folder, ref)


def read_part(store: ObjectStore, folder: str, ref: PartRef) -> Part:
    """Read a sealed part; CorruptError if it is missing, or not the one that was sealed."""
    key = f"{folder}/{ref.path}"
    try:
        return part_from_bytes(bytes(store.get(key)), ref, key)
    except NotFoundError as error:
        raise CorruptError("a part of a manifest is missing", object=key, kind="bad_manifest") from error


def _empty(place: Place, head: Snapshot, known: Held) -> ScopeManifest:
    made_ms = known.created_ms or head.committed_us // 1000
    return ScopeManifest(
        table_id=place.table,
        user_id=place.scope.user or None,
        version=0,
        created_at=made_ms,
        updated_at=made_ms,
        last_sequence_number=known.last_batch,
        files=known.files,
        vector_indexes=known.vector_indexes,
    )


def in_order(listed: Listed) -> tuple[int, str]:
    """Order segments by their oldest rows."""
    return listed.segment.min_seq, listed.segment.path


def is_past(catalog: Catalog, head: Snapshot, sequence: int, snapshot_id: str) -> bool:
    """Whether a snapshot is the head, or is retained below it; a restored catalog may have other ones there."""
    if snapshot_id == head.id:
        return True
    if not 0 < sequence < head.sequence:
        return False
    try:
        return catalog.snapshot(head.scope, sequence=sequence).id == snapshot_id
    except NotFoundError:
        return False


def cold_version(catalog: Catalog, head: Snapshot, known: ScopeManifest | None) -> int:
    """Return the sequence at which a scope's segments changed last, as far as its history tells.

    What is known to be right at an older sequence shortens the search. Where the history is gone, its beginning is the
    answer: later than the change, so that nobody takes an older list for this one.
    """
    notes = known.notes if known is not None else None
    return last_change(
        catalog, head, known.version if known and notes else None, notes.sequence if notes is not None else 0
    )


def last_change(catalog: Catalog, head: Snapshot, version: int | None, right_at: int) -> int:
    """Return the sequence at which segments changed last; ``version`` is known to be that at sequence ``right_at``."""
    if _is_cold(head) or not head.sequence:
        return head.sequence
    before, seen = head.sequence, head.sequence
    while head.sequence - before < MAX_HISTORY:
        page = catalog.history(head.scope, limit=HISTORY_PAGE, before=before)
        for snapshot in page:
            if version is not None and snapshot.sequence <= right_at:
                return version
            if _is_cold(snapshot):
                return snapshot.sequence
            seen = snapshot.sequence
        if len(page) < HISTORY_PAGE:
            break
        before = page[-1].sequence
    return version if version is not None and seen <= right_at + 1 else seen


def _is_cold(snapshot: Snapshot) -> bool:
    return bool(snapshot.added.extents or snapshot.removed.extents)
