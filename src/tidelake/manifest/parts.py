"""Keep ``manifest.json`` short however many segments a scope has: seal older ones into parts that are written once.

::

    manifest.json            segments: the newest, 32 to 64; _tide.parts: the newest parts of each level
    manifest-part-<id>.json  level 0: 32 older segments; level 1: 32 parts of level 0; and so on

A rewrite writes the tail, sometimes a part, and once in 32 times a part of parts: the same for three segments and for
three million. Segments that leave a sealed part, by compaction or deletion, have that part opened: what is left of it
is sealed anew, or joins the tail. Every part is named for ever, so that two writers never write the same one. It does
not read or write files: whoever calls gives a function that reads parts, and writes what is sealed before the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tidelake.errors import NotFoundError
from tidelake.manifest.manifest_json import Notes, Part, PartRef, ScopeManifest, Segment, checksum_of, part_to_bytes

SEALED = 32  # segments of a part, and parts of a part of parts
LONGEST = 2 * SEALED  # of a tail; then its older half is sealed
PART_PREFIX, PART_SUFFIX = "manifest-part-", ".json"

ReadPart: TypeAlias = Callable[[PartRef], Part]
NameOf: TypeAlias = Callable[[], str]  # a new unique id


@dataclass(frozen=True, slots=True)
class Listed:
    """A segment and the id under which the catalog knows it, "" if it does not yet."""

    segment: Segment
    extent: str


@dataclass(slots=True)
class Draft:
    """A manifest that is to be written, the parts that are to be written before it, and those that are used no more."""

    manifest: ScopeManifest
    sealed: dict[str, bytes] = field(default_factory=dict)  # by path
    unused: tuple[str, ...] = ()


_Chunk: TypeAlias = list[Listed]  # what is left of an opened part
_Node: TypeAlias = PartRef | _Chunk


def all_segments(manifest: ScopeManifest, read: ReadPart) -> Iterator[Listed]:
    """Yield every segment of a manifest, the oldest first."""
    if manifest.notes is not None:
        yield from _below(manifest.notes.parts, read)
    yield from _tail_of(manifest)


def changed(
    manifest: ScopeManifest, added: Sequence[Listed], removed: Collection[str], *, read: ReadPart, name: NameOf
) -> Draft:
    """Return a manifest with some segments less, by the catalog's ids, and some more, as short as it may be.

    NotFoundError if one that is to leave is not there: then the copy is not what it was taken for.
    """
    notes = manifest.notes or Notes(0, "")
    left = set(removed)
    tail = [each for each in _tail_of(manifest) if each.extent not in left]
    left.difference_update(notes.extents.values())
    nodes: list[_Node] = list(notes.parts)
    unused: list[str] = []
    if left:
        nodes = _opened(notes.parts, left, read, unused)
        if left:
            raise NotFoundError("a segment is not in the manifest", table=manifest.table_id, extent=min(left))
    draft = Draft(manifest, unused=tuple(unused))
    refs, opened = _closed(nodes, draft, name)
    tail = [*opened, *tail, *added]
    refs += _sealed_tail(tail, draft, name)
    refs = _gathered(refs, draft, name)
    listed = {each.segment.path: each.extent for each in tail if each.extent}
    draft.manifest = replace(
        manifest,
        segments=tuple(each.segment for each in tail),
        notes=replace(notes, parts=tuple(refs), extents=listed),
    )
    return draft


def part_path(part_id: str) -> str:
    """Name a part."""
    return f"{PART_PREFIX}{part_id}{PART_SUFFIX}"


def _tail_of(manifest: ScopeManifest) -> Iterator[Listed]:
    extents: Mapping[str, str] = manifest.notes.extents if manifest.notes is not None else {}
    return (Listed(each, extents.get(each.path, "")) for each in manifest.segments)


def _below(refs: Iterable[PartRef], read: ReadPart) -> Iterator[Listed]:
    for ref in refs:
        part = read(ref)
        yield from (Listed(each, part.extents.get(each.path, "")) for each in part.segments)
        yield from _below(part.parts, read)


def _opened(refs: Sequence[PartRef], left: set[str], read: ReadPart, unused: list[str]) -> list[_Node]:
    """Take the segments that leave out of the parts that have them, the newest first: they leave soonest."""
    nodes: list[_Node] = []  # the newest first
    for ref in reversed(refs):
        if not left:
            nodes.append(ref)
            continue
        part = read(ref)
        if ref.level:
            below = _opened(part.parts, left, read, unused)
            if below == list(part.parts):
                nodes.append(ref)
            else:
                unused.append(ref.path)
                nodes.extend(reversed(below))
            continue
        kept = [Listed(each, part.extents.get(each.path, "")) for each in part.segments]
        kept = [each for each in kept if each.extent not in left]
        if len(kept) == len(part.segments):
            nodes.append(ref)
        else:
            left.difference_update(part.extents.values())
            unused.append(ref.path)
            nodes.append(kept)
    return nodes[::-1]


def _closed(nodes: Sequence[_Node], draft: Draft, name: NameOf) -> tuple[list[PartRef], _Chunk]:
    """Seal what is left of opened parts, but for what is next to the tail; return the parts, and that."""
    refs: list[PartRef] = []
    open_chunk: _Chunk = []
    for node in nodes:
        if isinstance(node, PartRef):
            refs += [_seal(chunk, draft, name) for chunk in _cut(open_chunk)]
            open_chunk = []
            refs.append(node)
        else:
            open_chunk = open_chunk + node
    return refs, open_chunk


def _sealed_tail(tail: _Chunk, draft: Draft, name: NameOf) -> list[PartRef]:
    """Seal the older part of a tail that is too long; the tail is shortened in place."""
    refs = []
    while len(tail) > LONGEST:
        refs.append(_seal(tail[:SEALED], draft, name))
        del tail[:SEALED]
    return refs


def _gathered(refs: list[PartRef], draft: Draft, name: NameOf) -> list[PartRef]:
    """Seal the older parts of a level, where there are many in a row, into one of the next."""
    for level in range(max((ref.level for ref in refs), default=0) + 2):
        start = 0
        while start < len(refs):
            end = start
            while end < len(refs) and refs[end].level == level:
                end += 1
            while end - start > LONGEST:
                some = refs[start : start + SEALED]
                data = part_to_bytes(Part(parts=tuple(some)))
                refs[start : start + SEALED] = [_named(data, level + 1, sum(r.segments for r in some), draft, name)]
                start, end = start + 1, end - SEALED + 1
            start = max(end, start + 1)
    return refs


def _cut(chunk: _Chunk) -> Iterator[_Chunk]:
    return (chunk[at : at + SEALED] for at in range(0, len(chunk), SEALED))


def _seal(chunk: _Chunk, draft: Draft, name: NameOf) -> PartRef:
    extents = {each.segment.path: each.extent for each in chunk if each.extent}
    data = part_to_bytes(Part(tuple(each.segment for each in chunk), extents=extents))
    return _named(data, 0, len(chunk), draft, name)


def _named(data: bytes, level: int, segments: int, draft: Draft, name: NameOf) -> PartRef:
    path = part_path(name())
    draft.sealed[path] = data
    return PartRef(path, level, segments, checksum_of(data))
