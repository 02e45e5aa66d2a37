"""Define what a table holds, and how a commit changes it.

A scope (a table, or one user of a table) is a chain of snapshots, numbered from 1. A commit is a value: the actions
that turn one snapshot into the next. Several commits may share one snapshot; each keeps its own id and receipt::

    Snapshot 41 ──[Commit a, Commit b]──▶ Snapshot 42        apply(manifest 41, [a, b]) == manifest 42

``Snapshot`` is the small header, enough to commit on. ``Manifest`` is a snapshot with everything live in it.
``advance`` costs as much as the change, ``apply`` as much as the manifest; they agree. How a commit is made on top of
another snapshot than its own is in ``rebase``.

The schema and the settings belong to the table, so only its shared scope (``user == ""``) changes them; a user's
snapshots follow. Ids and times are arguments. It does not read or write anything.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from pyroaring import BitMap64

from tidelake.errors import ConflictError, InvalidInputError, SchemaError
from tidelake.model import codec
from tidelake.model.codec import LATER, Json
from tidelake.model.schema import Schema

DOCUMENT_VERSION = 1
MAX_KEY_BYTES = 1024  # of an idempotency key or a stream's name: they are indexed
PINNED = ("entity_identity",)  # settings that are set once


@dataclass(frozen=True, slots=True)
class Scope:
    """The unit of compare-and-swap: a whole table, or one user of a user-scoped table."""

    table_id: str
    user: str = ""

    def __str__(self) -> str:
        return f"{self.table_id}/{self.user}" if self.user else self.table_id


@dataclass(frozen=True, slots=True)
class Extent:
    """One immutable object, as planning sees it. A time bound of None bounds nothing."""

    id: str
    key: str
    format: str
    byte_size: int
    row_count: int
    block_count: int
    min_ts_ns: int | None
    max_ts_ns: int | None
    schema_version: int
    column_stats: Mapping[str, Any] = field(default_factory=dict)
    present_paths: tuple[str, ...] = ()
    level: int = 0  # how many times its rows were compacted
    coverage_key: str | None = None
    added_seq: int = 0  # the snapshot that added it; 0 before it is committed
    removed_seq: int | None = None
    first_seq: int | None = field(default=None, metadata=LATER)  # of its rows' versions; None if the table has no key
    # Of its rows as they lay in memory, roughly; None if nobody noted it. Compaction chooses by it, answers never do.
    unpacked_bytes: int | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True)
class HotBatch:
    """Acknowledged rows that are not yet in an extent, as one Arrow IPC stream."""

    id: str
    rows: int
    payload: bytes = field(repr=False)
    min_ts_ns: int | None
    max_ts_ns: int | None
    schema_version: int
    added_seq: int = 0
    removed_seq: int | None = None
    first_seq: int | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True)
class UnitedCoverage:
    """An object that holds the united coverage of every extent added up to a sequence."""

    key: str
    as_of: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of everything; of what is live, or of what one snapshot added or removed."""

    extents: int = 0
    rows: int = 0
    bytes: int = 0
    hot_batches: int = 0
    hot_rows: int = 0
    hot_bytes: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.extents + other.extents,
            self.rows + other.rows,
            self.bytes + other.bytes,
            self.hot_batches + other.hot_batches,
            self.hot_rows + other.hot_rows,
            self.hot_bytes + other.hot_bytes,
        )

    def __sub__(self, other: Counts) -> Counts:
        return self + Counts(
            -other.extents, -other.rows, -other.bytes, -other.hot_batches, -other.hot_rows, -other.hot_bytes
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The header of one state of a scope. Sequence 0 is the state before a user's first commit and has no parent."""

    scope: Scope
    sequence: int
    id: str
    parent_id: str | None
    committed_us: int
    operation: str
    schema: Schema
    settings: Mapping[str, Any]
    totals: Counts = Counts()
    added: Counts = Counts()
    removed: Counts = Counts()
    coverage: UnitedCoverage | None = None
    next_seq: int = field(default=0, metadata=LATER)  # the version of the next row of a table with a key

    @property
    def is_keyed(self) -> bool:
        """Whether rows have versions, of which the newest counts."""
        return bool(self.settings.get("key"))


@dataclass(frozen=True, slots=True)
class Manifest:
    """A snapshot with all that is live in it, by id, and the last batch of each stream."""

    snapshot: Snapshot
    extents: Mapping[str, Extent] = field(default_factory=dict)
    hot: Mapping[str, HotBatch] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)

    @property
    def live(self) -> frozenset[str]:
        """The ids that a commit may remove or drop."""
        return frozenset(self.extents) | frozenset(self.hot)


@dataclass(frozen=True, slots=True)
class AddExtent:
    """Publish an extent whose object is already written."""

    extent: Extent

    def __post_init__(self) -> None:
        extent = self.extent
        if not extent.id or not extent.key:
            raise InvalidInputError("an extent needs an id and a key", extent=extent.id, key=extent.key)
        if min(extent.byte_size, extent.row_count, extent.block_count, extent.level) < 0:
            raise InvalidInputError("an extent has a negative size", extent=extent.id)
        _check_times(extent.min_ts_ns, extent.max_ts_ns, extent.id)


@dataclass(frozen=True, slots=True)
class RemoveExtent:
    """Take a live extent out; its object stays for older snapshots."""

    extent_id: str


@dataclass(frozen=True, slots=True)
class UpdateTable:
    """Widen the schema, change settings, or both. A setting of None is removed; the others are kept."""

    schema: Schema | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpdateCoverage:
    """Point to newer united coverage. One that is as old as what is there already changes nothing."""

    coverage: UnitedCoverage


@dataclass(frozen=True, slots=True)
class AppendHot:
    """Acknowledge rows by keeping them in the catalog."""

    batch: HotBatch

    def __post_init__(self) -> None:
        if not self.batch.id or self.batch.rows < 0:
            raise InvalidInputError("a hot batch needs an id and rows", batch=self.batch.id, rows=self.batch.rows)
        _check_times(self.batch.min_ts_ns, self.batch.max_ts_ns, self.batch.id)


@dataclass(frozen=True, slots=True)
class DropHot:
    """Take live hot rows out, because an extent of the same commit holds them."""

    batch_id: str


@dataclass(frozen=True, slots=True)
class RecordOffset:
    """Remember that a stream's batch is in; batches only rise, and one that is not above the last is a replay.

    Where batches may be cut anew by whoever reads the stream next, ``after`` says which one must be the last, -1 for
    none: two readers that both think that a stream is theirs cannot both go on.
    """

    stream: str
    batch: int
    after: int | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        if self.batch < 0:
            raise InvalidInputError("a stream's batches are numbered from 0", stream=self.stream, batch=self.batch)
        if self.after is not None and not -1 <= self.after < self.batch:
            raise InvalidInputError(
                "a batch comes after another", stream=self.stream, after=self.after, batch=self.batch
            )
        _check_key("stream", self.stream)


Action: TypeAlias = AddExtent | RemoveExtent | UpdateTable | UpdateCoverage | AppendHot | DropHot | RecordOffset


@dataclass(frozen=True, slots=True)
class Claim:
    """Time buckets of an entity that must be free: all from ``first`` to ``last``, both included, or some of these.

    Which ones, if not all, is a serialised 64-bit roaring bitmap of their numbers plus 2^63.
    """

    entity: str
    first: int
    last: int
    windows: bytes = field(default=b"", repr=False)

    def overlaps(self, other: Claim) -> bool:
        if self.entity != other.entity or self.first > other.last or other.first > self.last:
            return False
        return not (self.windows or other.windows) or bool(self.bitmap.intersect(other.bitmap))

    @property
    def bitmap(self) -> BitMap64:
        """The buckets, as ids."""
        if self.windows:
            return BitMap64.deserialize(self.windows)
        whole = BitMap64()
        whole.add_range(self.first + 2**63, self.last + 2**63 + 1)
        return whole


@dataclass(frozen=True, slots=True)
class Fence:
    """The work unit a commit acts for; it is refused once the unit's token has moved on."""

    unit_id: str
    token: int


@dataclass(frozen=True, slots=True)
class Part:
    """What one of several callers that share a commit brought: the key under which it happens once, and its rows."""

    key: str
    rows: int

    def __post_init__(self) -> None:
        _check_key("idempotency key", self.key)


@dataclass(frozen=True, slots=True)
class Commit:
    """Actions on one scope, built on the snapshot ``base``. Its id is unique for ever, its key is the caller's."""

    id: str
    scope: Scope
    base: int
    actions: tuple[Action, ...]
    operation: str = "append"
    key: str | None = None
    claims: tuple[Claim, ...] = ()
    fence: Fence | None = None
    is_exact: bool = field(default=False, metadata=LATER)  # it holds on its base alone, and is not rebased
    parts: tuple[Part, ...] = field(default=(), metadata=LATER)  # of callers that share it; if one is in, it is refused

    def __post_init__(self) -> None:
        if not self.id or not self.actions:
            raise InvalidInputError("a commit needs an id and at least one action", commit=self.id)
        if self.key is not None:
            _check_key("idempotency key", self.key)
        if self.scope.user and any(isinstance(action, UpdateTable) for action in self.actions):
            raise InvalidInputError("a user's scope cannot change its table", scope=self.scope, commit=self.id)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to one commit; a replay gets the first answer again."""

    commit_id: str
    snapshot_id: str
    sequence: int
    committed_us: int
    rows: int
    extents: int
    replayed: bool = False
    shared: bool = False  # with commits of other processes, so that the snapshot does not follow from one's own


Document: TypeAlias = Commit | Snapshot | Manifest
DocumentT = TypeVar("DocumentT", Commit, Snapshot, Manifest)
Held: TypeAlias = Callable[[Claim], bool]


def nothing_held(claim: Claim) -> bool:
    """Return that no window is held: the answer for tables without exclusive coverage."""
    return False


def first_snapshot(
    scope: Scope, schema: Schema, settings: Mapping[str, Any], *, snapshot_id: str, at_us: int
) -> Snapshot:
    """Return the snapshot that creates a table."""
    return Snapshot(scope, 1, snapshot_id, None, at_us, "create", schema, dict(settings))


def empty_snapshot(scope: Scope, schema: Schema, settings: Mapping[str, Any]) -> Snapshot:
    """Return the state of a user's scope before its first commit."""
    return Snapshot(scope, 0, "", None, 0, "empty", schema, dict(settings))


def inputs_of(commit: Commit) -> tuple[str, ...]:
    """Return the ids of the extents and hot batches that a commit takes away."""
    extents = (action.extent_id for action in commit.actions if isinstance(action, RemoveExtent))
    batches = (action.batch_id for action in commit.actions if isinstance(action, DropHot))
    return (*extents, *batches)


def check_positions(actions: Iterable[Action], last: Mapping[str, int]) -> None:
    """Refuse to go on from another place in a stream than where it is, which ``last`` says."""
    for action in actions:
        if isinstance(action, RecordOffset) and action.after not in (None, last.get(action.stream, -1)):
            raise ConflictError(
                "a stream is not where it was: another reader has it", stream=action.stream, after=action.after,
                found=last.get(action.stream), kind="stream_moved",
            )  # fmt: skip


def has_positions(commit: Commit) -> bool:
    """Whether a commit goes on from a place in a stream, and holds only there."""
    return any(isinstance(action, RecordOffset) and action.after is not None for action in commit.actions)


def keys_of(commit: Commit) -> tuple[str, ...]:
    """Return the keys under which a commit happens once: the caller's, its parts', and one for each stream batch.

    A control character keeps a stream's keys apart from the callers', which are printable. A batch that says which one
    it comes after has no key: its place is checked instead.
    """
    own = () if commit.key is None else (commit.key,)
    parts = tuple(part.key for part in commit.parts)
    batches = (action for action in commit.actions if isinstance(action, RecordOffset) and action.after is None)
    return own + parts + tuple(f"{action.stream}\x1f{action.batch}" for action in batches)


def coverage_keys_of(commit: Commit) -> tuple[str, ...]:
    """Return the keys of the coverage objects that a commit refers to."""
    extents = (action.extent.coverage_key for action in commit.actions if isinstance(action, AddExtent))
    whole = (action.coverage.key for action in commit.actions if isinstance(action, UpdateCoverage))
    return tuple(key for key in (*extents, *whole) if key is not None)


def receipt_of(commit: Commit, snapshot: Snapshot) -> Receipt:
    """Return the first answer to a commit that is in a snapshot."""
    added = _added_by([commit])
    return Receipt(
        commit.id, snapshot.id, snapshot.sequence, snapshot.committed_us, added.rows + added.hot_rows, added.extents
    )


def part_id(commit_id: str, at: int) -> str:
    """Name a part of a commit by its place."""
    return f"{commit_id}-{at}"


def part_receipts(commit: Commit, receipt: Receipt) -> dict[str, Receipt]:
    """Return the answer of each part of a commit, by its key: its own rows in the snapshot of all."""
    return {
        part.key: replace(receipt, commit_id=part_id(commit.id, at), rows=part.rows)
        for at, part in enumerate(commit.parts)
    }


def advance(
    snapshot: Snapshot, commits: Sequence[Commit], *, removed: Counts, snapshot_id: str, at_us: int
) -> Snapshot:
    """Return the header that follows, from the commits and the counts of what they take away.

    Time rises strictly along a scope even if the clock does not, so that a time names one snapshot.
    """
    schema, settings, coverage = snapshot.schema, snapshot.settings, snapshot.coverage
    for commit in commits:
        if commit.scope != snapshot.scope or commit.base != snapshot.sequence:
            raise ConflictError(
                "a commit is built on another snapshot", base=commit.base, found=snapshot.sequence, kind="stale"
            )
        schema = schema_after(commit.actions, schema)
        settings = settings_after(commit.actions, settings)
        for action in commit.actions:
            match action:
                case UpdateCoverage(newer) if coverage is None or newer.as_of > coverage.as_of:
                    coverage = newer
                case _:
                    pass
    added = _added_by(commits)
    return Snapshot(
        scope=snapshot.scope,
        sequence=snapshot.sequence + 1,
        id=snapshot_id,
        parent_id=snapshot.id or None,
        committed_us=max(at_us, snapshot.committed_us + 1),
        operation="+".join(dict.fromkeys(commit.operation for commit in commits)),
        schema=schema,
        settings=settings,
        totals=snapshot.totals + added - removed,
        added=added,
        removed=removed,
        coverage=coverage,
        next_seq=_next_seq(snapshot, commits, added) if snapshot.is_keyed else snapshot.next_seq,
    )


def _next_seq(snapshot: Snapshot, commits: Iterable[Commit], added: Counts) -> int:
    """Return the version of the next row: above those that are given, and those that extents from elsewhere have."""
    extents = (action.extent for commit in commits for action in commit.actions if isinstance(action, AddExtent))
    above = (each.first_seq + each.row_count for each in extents if each.first_seq is not None)
    return max([snapshot.next_seq + added.rows + added.hot_rows, *above])


def numbered(commits: Sequence[Commit], onto: Snapshot) -> Sequence[Commit]:
    """Give the rows that commits add to a table with a key their versions, in the order of the commits.

    What has versions already, because it was in the table before, keeps them.
    """
    if not onto.is_keyed:
        return commits
    at, given = onto.next_seq, []
    for commit in commits:
        actions: list[Action] = []
        for action in commit.actions:
            if isinstance(action, AddExtent):
                first = at if action.extent.first_seq is None else action.extent.first_seq
                at += action.extent.row_count
                action = AddExtent(replace(action.extent, first_seq=first))
            elif isinstance(action, AppendHot):
                first = at if action.batch.first_seq is None else action.batch.first_seq
                at += action.batch.rows
                action = AppendHot(replace(action.batch, first_seq=first))
            actions.append(action)
        given.append(replace(commit, actions=tuple(actions)))
    return given


def apply(manifest: Manifest, commits: Sequence[Commit], *, snapshot_id: str, at_us: int) -> Manifest:
    """Return the manifest that follows, strictly: what is added is new, what is taken away is live."""
    sequence, removed = manifest.snapshot.sequence + 1, Counts()
    extents, hot, offsets = dict(manifest.extents), dict(manifest.hot), dict(manifest.offsets)
    for action in (action for commit in numbered(commits, manifest.snapshot) for action in commit.actions):
        match action:
            case AddExtent(extent):
                _check_new(extent.id, extents, hot)
                extents[extent.id] = replace(extent, added_seq=sequence, removed_seq=None)
            case AppendHot(batch):
                _check_new(batch.id, extents, hot)
                hot[batch.id] = replace(batch, added_seq=sequence, removed_seq=None)
            case RemoveExtent(extent_id):
                removed += count_of(_taken(extents, extent_id, sequence))
            case DropHot(batch_id):
                removed += count_of(_taken(hot, batch_id, sequence))
            case RecordOffset(stream, batch_number):
                if action.after is None and batch_number <= offsets.get(stream, -1):
                    raise ConflictError("a stream's batch is in", stream=stream, batch=batch_number, kind="replayed")
                check_positions((action,), offsets)
                offsets[stream] = batch_number
            case UpdateTable() | UpdateCoverage():
                pass  # advance does these
    snapshot = advance(manifest.snapshot, commits, removed=removed, snapshot_id=snapshot_id, at_us=at_us)
    return Manifest(snapshot, extents, hot, offsets)


def count_of(item: Extent | HotBatch) -> Counts:
    """Return what one extent or hot batch counts for."""
    if isinstance(item, Extent):
        return Counts(extents=1, rows=item.row_count, bytes=item.byte_size)
    return Counts(hot_batches=1, hot_rows=item.rows, hot_bytes=len(item.payload))


def make_id(at_us: int, salt: int) -> str:
    """Make a unique text of 32 hex digits that sorts by time, from a time and 76 random bits."""
    return f"{at_us & (1 << 52) - 1:013x}{salt & (1 << 76) - 1:019x}"


def to_document(value: Document) -> Json:
    """Return the stored shape of a commit, a snapshot's header or a manifest; see the codec."""
    return codec.to_document(type(value).__name__.lower(), DOCUMENT_VERSION, value)


def from_document(kind: type[DocumentT], document: Json) -> DocumentT:
    """Read what to_document gave, strictly."""
    return codec.from_document(kind.__name__.lower(), DOCUMENT_VERSION, kind, document)


def schema_after(actions: Iterable[Action], schema: Schema) -> Schema:
    """Fold the widenings, and check that every version an action names exists by then."""
    for action in actions:
        match action:
            case UpdateTable(schema=Schema() as wanted):
                if wanted != schema.widen(wanted.columns):
                    raise SchemaError("not the next version of the schema", has=schema.version, wanted=wanted.version)
                schema = wanted
            case AddExtent(Extent(schema_version=version)) | AppendHot(HotBatch(schema_version=version)):
                if not 1 <= version <= schema.version:
                    raise SchemaError("no such schema version", version=version, has=schema.version)
            case _:
                pass
    return schema


def settings_after(actions: Iterable[Action], settings: Mapping[str, Any]) -> Mapping[str, Any]:
    for action in actions:
        if isinstance(action, UpdateTable) and action.settings:
            merged = {**settings, **action.settings}
            settings = {name: value for name, value in merged.items() if value is not None}
    return settings


def _added_by(commits: Iterable[Commit]) -> Counts:
    added = Counts()
    for commit in commits:
        for action in commit.actions:
            if isinstance(action, AddExtent):
                added += count_of(action.extent)
            elif isinstance(action, AppendHot):
                added += count_of(action.batch)
    return added


def _taken(held: dict[str, Any], item: str, sequence: int) -> Any:
    if item not in held or held[item].added_seq == sequence:
        raise ConflictError("an input is no longer live", input=item, kind="not_live")
    return held.pop(item)


def _check_new(item: str, extents: Container[str], hot: Container[str]) -> None:
    if item in extents or item in hot:
        raise InvalidInputError("an id is added twice", id=item, kind="added_twice")


def _check_key(what: str, key: str) -> None:
    if not key or not key.isprintable():
        raise InvalidInputError(f"{what} {key[:40]!r} is empty or not printable", kind="bad_key")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise InvalidInputError(f"{what} {key[:40]!r}… is too long", limit_bytes=MAX_KEY_BYTES, kind="bad_key")


def _check_times(low: int | None, high: int | None, item: str) -> None:
    if low is not None and high is not None and low > high:
        raise InvalidInputError("a time range ends before it begins", id=item, min_ts_ns=low, max_ts_ns=high)
