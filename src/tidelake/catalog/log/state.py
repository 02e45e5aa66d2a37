"""Track what a table is, holds and remembers after each entry of its log.

``start`` reads the first entry, ``follow`` each next one at the cost of what it changes, and the two ends of a
checkpoint, ``to_json`` and ``from_json``, skip the way between. A snapshot's number is its own: an entry of upkeep
makes none, so the log's versions may run ahead of the table's sequences.

What a retained snapshot can reach is kept, with the sequence that added it and the one that took it away. The rows of a
hot batch are kept while it is live; those of one that is gone are in the entry that added it, as are the headers and
receipts of older snapshots.

It does not read files. A state whose ``follow`` raised is spoilt and must be thrown away.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, islice
from operator import attrgetter
from typing import Any, Generic, TypeVar

from tidelake.catalog.contributions import Contribution, Share, part
from tidelake.catalog.log.entries import Covered, Done, Entry, Mark, Upkeep, unit_from_json, unit_to_json
from tidelake.catalog.log.metadata import Body, Meta, created_us_of, schema_of, settings_of
from tidelake.catalog.protocol import DEFAULT_NAMESPACE, Changes, Garbage, Pin, TableInfo
from tidelake.catalog.work_queue import WorkUnit
from tidelake.errors import CorruptError
from tidelake.model import codec
from tidelake.model.schema import Schema
from tidelake.model.snapshot import (
    AddExtent,
    Counts,
    Extent,
    HotBatch,
    Receipt,
    RemoveExtent,
    Scope,
    Snapshot,
    UnitedCoverage,
    count_of,
    empty_snapshot,
    part_id,
)
from tidelake.objects import log_commit_key

Item = TypeVar("Item", Extent, HotBatch)


class Kept(Generic[Item]):
    """Extents or hot batches that some retained snapshot has, in the order in which they were added."""

    def __init__(self, items: Iterable[Item] = (), **shed: Any) -> None:
        self._items: dict[int, Item] = {}
        self._live: dict[str, int] = {}
        self._ids: set[str] = set()
        self._next = 0
        self._shed = shed  # what an item loses when it is removed
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(list(self._items.values()))

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._live

    def __getitem__(self, item_id: str) -> Item:
        return self._items[self._live[item_id]]

    def knows(self, item_id: str) -> bool:
        """Return whether an id is in use, live or not."""
        return item_id in self._ids

    def add(self, item: Item) -> None:
        """Keep an item; it is live if it was not removed."""
        self._items[self._next] = item
        self._ids.add(item.id)
        if item.removed_seq is None:
            self._live[item.id] = self._next
        self._next += 1

    def take(self, item_id: str, sequence: int) -> Counts:
        """Remove a live item, and tell what it counted for; one that is not live counts for nothing."""
        if (at := self._live.pop(item_id, None)) is None:
            return Counts()
        item = self._items[at]
        self._items[at] = replace(item, removed_seq=sequence, **self._shed)
        return count_of(item)

    def at(self, sequence: int) -> list[Item]:
        """Return what a snapshot has."""
        return [i for i in self if i.added_seq <= sequence and (i.removed_seq is None or sequence < i.removed_seq)]

    def gone_by(self, oldest: int) -> list[Item]:
        """Return what no snapshot from ``oldest`` on has."""
        return [item for item in self if item.removed_seq is not None and item.removed_seq <= oldest]

    def let_go(self, oldest: int) -> None:
        """Forget what no snapshot from ``oldest`` on has."""
        self._items = {n: i for n, i in self._items.items() if i.removed_seq is None or i.removed_seq > oldest}
        self._ids = {item.id for item in self._items.values()}

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self._live.clear()
        self._ids.clear()


@dataclass(slots=True)
class LogState:
    """All that a log says up to one version."""

    version: int
    at_us: int  # when that version was written
    info: TableInfo
    head: Snapshot
    meta: Body  # in the original's words
    oldest: int = 1  # the first sequence that is retained
    purged: bool = False
    given_up: int = 0  # the last version that made garbage of anything
    schemas: dict[int, Schema] = field(default_factory=dict)
    settings: list[tuple[int, Body]] = field(default_factory=list)  # since which sequence
    coverages: list[tuple[int, UnitedCoverage]] = field(default_factory=list)  # likewise
    extents: Kept[Extent] = field(default_factory=Kept)
    hot: Kept[HotBatch] = field(default_factory=lambda: Kept(payload=b""))
    offsets: dict[str, int] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)  # the sequence of a commit's id
    keys: dict[str, int] = field(default_factory=dict)  # and of its keys
    plain: dict[int, Entry] = field(default_factory=dict)  # by sequence: what other programs' entries do not say
    bare: list[int] = field(default_factory=list)  # versions that made no snapshot
    garbage: dict[str, Garbage] = field(default_factory=dict)
    units: dict[str, WorkUnit] = field(default_factory=dict)
    pins: dict[str, Pin] = field(default_factory=dict)  # by name
    given_at: dict[str, int] = field(default_factory=dict)  # the version that made garbage of a key

    @property
    def scope(self) -> Scope:
        return self.info.scope

    @property
    def size(self) -> int:
        """How many things a checkpoint would hold."""
        return len(self.extents) + len(self.hot) + len(self.commits) + len(self.keys) + len(self.garbage)


def start(entry: Entry, name: str) -> LogState:
    """Read the first entry; ``name`` is the table's if nobody gave it one."""
    metas = [change for change in entry.changes if isinstance(change, Meta)]
    if entry.version != 1 or not metas:
        raise CorruptError("the log does not begin with a table", file=log_commit_key(entry.version), kind="bad_commit")
    table = entry.table
    info = TableInfo(
        id=table.id if table else entry.id,
        namespace=table.namespace if table else DEFAULT_NAMESPACE,
        name=table.name if table else name,
        created_us=created_us_of(metas[0]),
    )
    schema = schema_of(metas[0], None)
    settings = settings_of(metas[0], schema, None)
    before = Snapshot(info.scope, 0, "", None, 0, "empty", schema, settings)
    state = LogState(0, 0, info, before, metas[0].body)
    follow(state, entry)
    return state


def of_nobody(state: LogState, scope: Scope) -> LogState:
    """Return the state of a user's scope, which a log keeps nothing of."""
    head = empty_snapshot(scope, state.head.schema, state.head.settings)
    return LogState(state.version, state.at_us, state.info, head, state.meta, schemas=state.schemas)


def follow(state: LogState, entry: Entry) -> None:
    """Bring a state to the next version."""
    mark, upkeep, head = entry.mark, entry.upkeep, state.head
    follows = entry.version == state.version + 1
    if mark is not None:
        follows &= (mark.sequence, mark.parent_id or "") == (head.sequence + 1, head.id)
    if not follows:
        raise CorruptError(
            "a commit file does not follow the one before it",
            file=log_commit_key(entry.version),
            after=state.version,
            kind="bad_commit",
        )
    if upkeep is None:
        _advance(state, entry)
    else:
        _keep_up(state, upkeep)
        state.bare.append(entry.version)
        state.given_up = entry.version if upkeep.garbage else state.given_up
        state.given_at.update({each.key: entry.version for each in upkeep.garbage})
    state.version, state.at_us = entry.version, entry.at_us


def version_of(state: LogState, sequence: int) -> int:
    """Return the version whose entry made a snapshot."""
    version = sequence
    while (found := sequence + bisect_right(state.bare, version)) != version:
        version = found
    return version


def snapshot_of(state: LogState, entry: Entry) -> Snapshot:
    """Return the snapshot that an entry made; it must be retained, and the entry must have a mark."""
    mark = entry.mark
    assert mark is not None
    at = bisect_right(state.settings, mark.sequence, key=lambda change: change[0])
    return Snapshot(
        scope=state.scope,
        sequence=mark.sequence,
        id=entry.id,
        parent_id=mark.parent_id,
        committed_us=entry.at_us,
        operation=mark.operation,
        schema=state.schemas[mark.schema_version],
        settings=state.settings[max(at - 1, 0)][1],
        totals=mark.totals,
        added=mark.added,
        removed=mark.removed,
        coverage=mark.coverage,
    )


def receipt_of(entry: Entry, done: Done, *, replayed: bool, key: str | None = None) -> Receipt:
    """Return the answer that a commit got, or the part of it that has a key."""
    assert entry.mark is not None
    whole = Receipt(done.id, entry.id, entry.mark.sequence, entry.at_us, done.rows, done.extents, replayed)
    for at, each in enumerate(done.parts):
        if each.key == key:
            return replace(whole, commit_id=part_id(done.id, at), rows=each.rows)
    return whole


def keys_of_done(done: Done) -> tuple[str, ...]:
    """Return the keys under which a commit happens once, as ``snapshot.keys_of`` makes them."""
    own = () if done.key is None else (done.key,)
    parts = tuple(each.key for each in done.parts)
    return own + parts + tuple(f"{offset.stream}\x1f{offset.batch}" for offset in done.offsets)


def changes_between(state: LogState, after: int, upto: int) -> Changes:
    """Return what differs between two retained snapshots; the rows of hot batches that are gone are not there."""
    extents, batches = state.extents, state.hot
    return Changes(
        added=tuple(item for item in extents.at(upto) if item.added_seq > after),
        removed=tuple(item.id for item in extents.at(after) if (item.removed_seq or upto + 1) <= upto),
        appended=tuple(item for item in batches.at(upto) if item.added_seq > after),
        dropped=tuple(item.id for item in batches.at(after) if (item.removed_seq or upto + 1) <= upto),
    )


def contributions_of(entry: Entry, extents: Sequence[Extent], batches: Sequence[HotBatch]) -> list[Contribution]:
    """Return what each commit of an entry added, out of all that the entry did; another program's is one commit.

    A commit's hot batches are those that have as many rows as it has beside its extents.
    """
    assert entry.mark is not None
    foreign = Done(entry.id, None, sum(extent.row_count for extent in extents), len(extents))
    done = entry.mark.commits or ((foreign,) if extents else ())
    rows = (extent.row_count for extent in extents)
    ends = list(accumulate(batch.rows for batch in batches))
    shares, upto, begun = [], 0, 0
    for each in done:
        upto += each.rows - sum(islice(rows, each.extents))
        end = bisect_right(ends, upto)
        shares.append(Share(each.id, each.extents, end - begun))
        begun = end
    return part(shares, [extent.id for extent in extents], [batch.id for batch in batches])


def keys_let_go(state: LogState, oldest: int) -> list[str]:
    """Return the objects that only snapshots below ``oldest`` can reach."""
    gone = state.extents.gone_by(oldest)
    found = [key for extent in gone for key in (extent.key, extent.coverage_key) if key is not None]
    superseded = _superseded(state.coverages, oldest)
    found += [coverage.key for _, coverage in state.coverages[:superseded]]
    reachable = {coverage.key for _, coverage in state.coverages[superseded:]}
    for extent in state.extents:
        if extent.removed_seq is None or extent.removed_seq > oldest:
            reachable.update((extent.key, extent.coverage_key or extent.key))
    return list(dict.fromkeys(key for key in found if key not in reachable))


def keys_held(state: LogState) -> list[str]:
    """Return every object that a retained snapshot can reach."""
    found = [key for extent in state.extents for key in (extent.key, extent.coverage_key) if key is not None]
    return list(dict.fromkeys([*found, *(coverage.key for _, coverage in state.coverages)]))


def lightened(entry: Entry) -> Entry:
    """Return an entry without what a header does not need."""
    assert entry.mark is not None
    return replace(entry, changes=(), mark=replace(entry.mark, hot=()))


def to_json(state: LogState) -> dict[str, Any]:
    """Return all of a state, as a checkpoint holds it."""
    return {
        "version": state.version,
        "at_us": state.at_us,
        "info": codec.to_json(state.info),
        "head": codec.to_json(state.head),
        "meta": state.meta,
        "oldest": state.oldest,
        "purged": state.purged,
        "given_up": state.given_up,
        "schemas": [schema.to_json() for schema in state.schemas.values()],
        "settings": state.settings,
        "coverages": [(since, coverage.key, coverage.as_of) for since, coverage in state.coverages],
        "extents": [_EXTENT_FIELDS(extent) for extent in state.extents],
        "hot": [codec.to_json(batch) for batch in state.hot],
        "offsets": state.offsets,
        "commits": state.commits,
        "keys": state.keys,
        "plain": [codec.to_json(entry) for entry in state.plain.values()],
        "bare": state.bare,
        "garbage": [codec.to_json(each) for each in state.garbage.values()],
        "units": [unit_to_json(unit) for unit in state.units.values()],
        "pins": [codec.to_json(pin) for pin in state.pins.values()],
        "given_at": state.given_at,
    }


def from_json(value: Mapping[str, Any]) -> LogState:
    """Read what ``to_json`` gave; its bytes are known to be sound."""
    schemas = [Schema.from_json(each) for each in value["schemas"]]
    plain = [codec.from_json(Entry, each) for each in value["plain"]]
    garbage = [codec.from_json(Garbage, each) for each in value["garbage"]]
    units = [unit_from_json(each) for each in value["units"]]
    pins = [codec.from_json(Pin, each) for each in value.get("pins", ())]
    return LogState(
        version=value["version"],
        at_us=value["at_us"],
        info=codec.from_json(TableInfo, value["info"]),
        head=codec.from_json(Snapshot, value["head"]),
        meta=value["meta"],
        oldest=value["oldest"],
        purged=value["purged"],
        given_up=value["given_up"],
        schemas={schema.version: schema for schema in schemas},
        settings=[(since, settings) for since, settings in value["settings"]],
        coverages=[(since, UnitedCoverage(key, as_of)) for since, key, as_of in value["coverages"]],
        extents=Kept(_extent_of(row) for row in value["extents"]),
        hot=Kept((codec.from_json(HotBatch, each) for each in value["hot"]), payload=b""),
        offsets=value["offsets"],
        commits=value["commits"],
        keys=value["keys"],
        plain={entry.mark.sequence: entry for entry in plain if entry.mark is not None},
        bare=value["bare"],
        garbage={each.key: each for each in garbage},
        units={unit.id: unit for unit in units},
        pins={pin.name: pin for pin in pins},
        given_at={each.key: value.get("given_at", {}).get(each.key, value["given_up"]) for each in garbage},
    )


_EXTENT_NAMES = tuple(each.name for each in fields(Extent))
_EXTENT_FIELDS = attrgetter(*_EXTENT_NAMES)
_PATHS_AT = _EXTENT_NAMES.index("present_paths")


def _extent_of(row: list[Any]) -> Extent:
    row[_PATHS_AT] = tuple(row[_PATHS_AT])
    return Extent(*row)


def _advance(state: LogState, entry: Entry) -> None:
    """Make the next snapshot, out of what its entry says or, for another program's, out of what it changes."""
    head, sequence = state.head, state.head.sequence + 1
    schema, settings = head.schema, head.settings
    coverage = head.coverage if entry.mark is None else entry.mark.coverage
    added = removed = Counts()
    for change in entry.changes:
        match change:
            case Meta(body):
                schema = schema_of(change, schema if state.schemas else None)
                settings = settings_of(change, schema, settings if state.schemas else None)
                state.meta, state.schemas[schema.version] = body, schema
            case AddExtent(extent):
                removed += state.extents.take(extent.id, sequence)  # the original replaces one of the same id
                version = extent.schema_version or schema.version
                state.extents.add(replace(extent, added_seq=sequence, schema_version=version))
                added += count_of(extent)
            case RemoveExtent(extent_id):
                removed += state.extents.take(extent_id, sequence)
            case Covered(_, key) if entry.mark is None:
                coverage = UnitedCoverage(key, sequence)
            case Covered():
                pass
    if entry.mark is None:
        operation = "create" if sequence == 1 else "append" if removed == Counts() else "change"
        totals = head.totals + added - removed
        mark = Mark(sequence, head.id or None, operation, schema.version, totals, added, removed, coverage)
        entry = replace(entry, at_us=max(entry.at_us, head.committed_us + 1), mark=mark)
        state.plain[sequence] = lightened(entry)
    else:
        _remember(state, entry.mark)
    if not state.settings or settings != head.settings:
        state.settings.append((sequence, settings))
    if coverage is not None and coverage != head.coverage:
        state.coverages.append((sequence, coverage))
    state.head = snapshot_of(state, entry)


def _remember(state: LogState, mark: Mark) -> None:
    for batch in mark.hot:
        state.hot.add(replace(batch, added_seq=mark.sequence))
    for batch_id in mark.dropped:
        state.hot.take(batch_id, mark.sequence)
    for done in mark.commits:
        state.commits[done.id] = mark.sequence
        state.keys.update(dict.fromkeys(keys_of_done(done), mark.sequence))
        state.offsets.update({offset.stream: offset.batch for offset in done.offsets})


def _keep_up(state: LogState, upkeep: Upkeep) -> None:
    if upkeep.oldest is not None:
        _let_go(state, upkeep.oldest)
    if upkeep.first_kept is not None:
        for memory in (state.commits, state.keys):
            for key in [key for key, sequence in memory.items() if sequence < upkeep.first_kept]:
                del memory[key]
    if upkeep.dropped_us is not None:
        state.info = replace(state.info, dropped_us=upkeep.dropped_us)
    if upkeep.purged:
        state.purged = True
        for held in (state.extents, state.hot, state.commits, state.keys, state.offsets, state.coverages):
            held.clear()
    for key in upkeep.forgotten:
        state.garbage.pop(key, None)
        state.given_at.pop(key, None)
    state.garbage.update({each.key: each for each in upkeep.garbage})
    for unit_id in upkeep.closed:
        state.units.pop(unit_id, None)
    for shape in upkeep.units:
        unit = unit_from_json(shape)
        state.units[unit.id] = unit
    for name in upkeep.unpinned:
        state.pins.pop(name, None)
    state.pins.update({pin.name: pin for pin in upkeep.pinned})


def _let_go(state: LogState, oldest: int) -> None:
    state.oldest = oldest
    state.extents.let_go(oldest)
    state.hot.let_go(oldest)
    del state.settings[: _superseded(state.settings, oldest)]
    del state.coverages[: _superseded(state.coverages, oldest)]
    for sequence in [sequence for sequence in state.plain if sequence < oldest]:
        del state.plain[sequence]


def _superseded(changes: list[tuple[int, Any]], oldest: int) -> int:
    """Count the changes that another one had replaced by a sequence."""
    return max(bisect_right(changes, oldest, key=lambda change: change[0]) - 1, 0)
