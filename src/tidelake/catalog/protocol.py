"""Define what every catalog answers, whatever keeps it.

A catalog is the one place that says which objects a table consists of. Its promises, the same in every store:

- ``commit`` publishes one new snapshot or nothing. It is a compare-and-swap on the snapshot the commits were built on;
  if that is no longer the head, ``StaleHead`` carries the one that is, and nothing was changed.
- A commit happens once: a second commit with the same id, the same key or a stream batch that is in changes nothing and
  gets the first receipt, also when both run at once.
- A commit answers with receipts, or with an error that means "did not happen", or with ``CommitUnknownError``, which
  means just that: look for ``receipt(scope, commit_id=…)``, then try the same commit again.
- Whatever is read at a retained sequence is the same for ever. Reading never blocks a commit.
- An extent is registered as pending before its first byte is written, and committing it takes the registration away. An
  extent whose registration was given up for collection cannot be committed any more.
- A key is offered as garbage only when no retained snapshot and no pending registration has it.
- A snapshot that is pinned stays retained. Pins and expiry have one order: a pin holds, or was refused as expired.
- While a lease is valid, no object that its snapshot or a later one reaches is offered as garbage.

Ids are unique for ever and not reused. A listing leaves out extents whose bounds lie outside of what is wanted, which a
catalog compares as intervals of whole numbers, reals or texts. It does not read or write objects, and deletes none.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias
from weakref import WeakSet

from tidelake.catalog.contributions import Contribution
from tidelake.catalog.users import NONE_SMALL, DueScope, Small, TableTotals
from tidelake.catalog.work_queue import WorkQueue
from tidelake.errors import ConflictError, InvalidInputError, NotFoundError
from tidelake.model.predicate import (
    Equals,
    InSet,
    Nanoseconds,
    Predicate,
    Range,
    TimeRange,
    conjuncts_of,
    time_ns,
)
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Commit, Extent, HotBatch, Manifest, Receipt, Scope, Snapshot, make_id

DEFAULT_NAMESPACE = "default"
MAX_INTERVALS = 8  # compared inside a catalog; each costs every extent in time's range a look-up
RECEIPTS_KEPT_US = 7 * 24 * 3600 * 1_000_000  # how long a replay is told from a new commit, unless a table says more

Clock: TypeAlias = Callable[[], int]  # microseconds since 1970 UTC
StepHook: TypeAlias = Callable[[str], None]  # called at each named step, so that tests can stop the world there
Sort: TypeAlias = Literal["whole", "real", "text"]  # of a bound, as a catalog can compare it

_SORTS: dict[str, Sort] = {"int": "whole", "long": "whole", "timestamp": "whole", "real": "real", "string": "text"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")


class StaleHead(ConflictError):
    """The head has moved on: rebase onto ``head`` and commit again."""

    default_kind = "stale"

    def __init__(self, message: str, *, head: Snapshot, kind: str | None = None, **facts: object) -> None:
        super().__init__(message, kind=kind, **facts)
        self.head = head

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_stale, (self.message, self.head, self.kind, self.facts)


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table's name and id. The id names it for ever; the name may be used again after a drop."""

    id: str
    namespace: str
    name: str
    created_us: int
    dropped_us: int | None = None

    @property
    def scope(self) -> Scope:
        return Scope(self.id)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True)
class Pending:
    """An object that a writer is about to write, and since when."""

    key: str
    scope: Scope
    owner: str
    since_us: int = 0  # set by the catalog


@dataclass(frozen=True, slots=True)
class Garbage:
    """An object that nothing can reach, since when, and why: expired, abandoned or dropped."""

    key: str
    table_id: str
    since_us: int
    reason: str


@dataclass(frozen=True, slots=True)
class Pin:
    """A snapshot that is kept by a name, and since when."""

    name: str
    sequence: int
    created_us: int


@dataclass(frozen=True, slots=True)
class HotHeader:
    """A hot batch without its rows."""

    id: str
    rows: int
    min_ts_ns: int | None
    max_ts_ns: int | None


@dataclass(frozen=True, slots=True)
class NamedKeys:
    """Some objects that a catalog names, and why: a snapshot holds them, or they are on the garbage list."""

    why: Literal["held", "garbage"]
    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between two snapshots of a scope. What came and went in between is in neither."""

    added: tuple[Extent, ...]
    removed: tuple[str, ...]
    appended: tuple[HotBatch, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expired:
    """How many snapshots were let go, and how many objects nothing can reach since."""

    snapshots: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Retained:
    """How many snapshots of a scope there are, since when, and how many an expiry would let go of."""

    snapshots: int
    oldest_us: int | None
    due: int


@dataclass(frozen=True, slots=True)
class Interval:
    """Where wanted values of a column lie, both ends included; None is unbounded."""

    column: str
    sort: Sort
    low: int | float | str | None
    high: int | float | str | None


class Layout(Protocol):
    """Where the objects of a table lie, and what its readers know: see ``layouts``. It travels to other processes."""

    @property
    def default_format(self) -> str:
        """The format of extents of a table that names none."""
        ...

    @property
    def keeps_hot_rows(self) -> bool:
        """Whether readers see rows that the catalog holds."""
        ...

    @property
    def has_users(self) -> bool:
        """Whether a table can have a scope for each user."""
        ...

    @property
    def has_one_entity(self) -> bool:
        """Whether a table with an entity holds one alone, and its coverage is a bare bitmap, united at each commit."""
        ...

    @property
    def tasks_write_coverage(self) -> bool:
        """Whether coverage lies beside its extent, where a Spark task can put it."""
        ...

    def extent_coverage_key(self, info: TableInfo, extent_id: str, content_id: str) -> str:
        """Name the coverage of an extent."""
        ...

    def united_coverage_key(self, info: TableInfo, as_of: int, content_id: str) -> str:
        """Name the coverage of a whole table at a snapshot."""
        ...


class Readers(Protocol):
    """Those who hold leases in this process."""

    def let_go(self) -> None:
        """Give back at once what nothing uses."""
        ...


class Catalog(Protocol):
    """Say what tables hold; the promises are in this module's text."""

    @property
    def readers(self) -> WeakSet[Readers]:
        """Who is asked to give unused leases back before this catalog lets snapshots or dropped tables go."""
        ...

    @property
    def layout(self) -> Layout: ...

    @property
    def work(self) -> WorkQueue: ...

    # tables

    def create_table(self, name: str, schema: Schema, settings: Mapping[str, Any]) -> TableInfo:
        """Make a table with its first snapshot; AlreadyExistsError if the name is taken."""
        ...

    def table(self, name: str) -> TableInfo:
        """Find a table by ``name`` or ``namespace.name``; NotFoundError if there is none."""
        ...

    def tables(self, namespace: str | None = None) -> list[TableInfo]:
        """List the tables that are not dropped, by name."""
        ...

    def drop_table(self, name: str) -> TableInfo:
        """Take a table's name away. What it held stays until ``purge_tables``."""

    def rename_table(self, name: str, to: str, *, replace: bool = False) -> TableInfo:
        """Give a table another name at once; AlreadyExistsError if it is taken, unless ``replace`` drops who has it."""

    def schema(self, table_id: str, version: int) -> Schema:
        """Return one version of a table's schema."""
        ...

    def settings(self, table_id: str) -> Mapping[str, Any]:
        """Return a table's settings as they are now, or were when it was dropped."""
        ...

    def scopes(self, table_id: str, *, after: str = "") -> Iterator[Scope]:
        """Yield every scope of a table that has a snapshot, the shared one first; or of the users after one."""
        ...

    def due_scopes(
        self, table_id: str, *, before_us: int, after: DueScope | None = None, limit: int = 1000
    ) -> list[DueScope]:
        """List the users' scopes that upkeep is to look at, the longest due first, after one of them if told."""
        ...

    def look_again(self, due: DueScope, *, sequence: int, at_us: int | None) -> None:
        """Note when upkeep is to look at a scope again, unless its head has moved since it was looked at.

        None is never, until its next commit.
        """
        ...

    def totals(self, table_id: str, *, small: Small = NONE_SMALL) -> TableTotals:
        """Sum up what all scopes of a table hold; it takes as long as they are many."""
        ...

    # snapshots

    def head(self, scope: Scope) -> Snapshot:
        """Return the newest snapshot; for a user without commits, the empty one at sequence 0."""
        ...

    def snapshot(
        self, scope: Scope, *, sequence: int | None = None, snapshot_id: str | None = None, at_us: int | None = None
    ) -> Snapshot:
        """Return a retained snapshot by exactly one of sequence, id, or the time at which it was the newest.

        NotFoundError if it has expired (``expired``), also if an older one is still there.
        """
        ...

    def history(self, scope: Scope, *, limit: int = 100, before: int | None = None) -> list[Snapshot]:
        """List retained snapshots, newest first, those below sequence ``before`` if given."""
        ...

    def pin(self, scope: Scope, name: str, sequence: int) -> Pin:
        """Keep a snapshot by a name until it is unpinned; what it alone holds is all that is kept for it.

        A log keeps besides what came after it. NotFoundError if the snapshot is not retained; AlreadyExistsError if the
        name keeps another one. The same pin again changes nothing.
        """
        ...

    def unpin(self, scope: Scope, name: str) -> None:
        """Let a pinned snapshot go with the next expiry; NotFoundError if no pin has the name."""
        ...

    def pins(self, scope: Scope) -> list[Pin]:
        """List the pins of a scope, the oldest snapshot's first."""
        ...

    def extents(
        self,
        scope: Scope,
        *,
        sequence: int | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        where: Predicate | None = None,
        stats: Collection[str] | None = None,
        ids: Collection[str] | None = None,
    ) -> list[Extent]:
        """List the extents of a snapshot that may hold rows in ``[start_ns, end_ns)`` that match ``where``.

        Never leaves out an extent that does; may give others. By time, those without bounds first. Their statistics are
        those of the columns in ``stats``, or of every column. With ``ids``, only those of these that are among them.
        """
        ...

    def extents_by_id(
        self, scope: Scope, ids: Collection[str], *, sequence: int, stats: Collection[str]
    ) -> list[Extent]:
        """Return those of some extents that a snapshot has, by time; no other is read or counted."""
        ...

    def extent_pages(self, scope: Scope, *, sequence: int, stats: Collection[str]) -> Iterator[list[Extent]]:
        """Yield all extents of a snapshot in pages, in no order; NotFoundError if it expires between two of them."""
        ...

    def hot(self, scope: Scope, *, sequence: int | None = None, ids: Collection[str] | None = None) -> list[HotBatch]:
        """List the hot rows of a snapshot, oldest first, or only those batches of some ids that it has."""
        ...

    def hot_headers(self, scope: Scope, *, sequence: int | None = None) -> list[HotHeader]:
        """List the hot batches of a snapshot without their rows, oldest first.

        A database checks bounds and rows together: what is to be taken away by its bounds is read with ``hot`` first.
        """
        ...

    def manifest(self, scope: Scope, *, sequence: int | None = None) -> Manifest:
        """Return a snapshot with everything live in it. Its offsets are the head's."""
        ...

    def positions(self, scope: Scope, streams: Sequence[str]) -> dict[str, int]:
        """Return the last batch of those streams of which a scope has one; nothing if the scope has no commits."""
        ...

    def changes(self, scope: Scope, *, after: int, upto: int) -> Changes:
        """Return what differs between two retained snapshots; ``after`` 0 stands for the empty scope."""
        ...

    def live(self, scope: Scope, ids: Collection[str]) -> frozenset[str]:
        """Return which of some extents and hot batches are live at the head."""
        ...

    # leases

    def lease(self, scope: Scope, *, owner: str, sequence: int, lease_us: int) -> None:
        """Keep a snapshot and all after it for a time, or for more time, because somebody reads there.

        An owner has one lease in a scope, so ``sequence`` is the lowest that it uses; it takes the place of the one
        before. NotFoundError (``expired``) if the snapshot is not retained any more. A process whose clock is ahead of
        the owner's by more than what is left of a lease takes it for one that ran out.
        """
        ...

    def release_leases(self, owner: str, scopes: Collection[Scope]) -> None:
        """Give an owner's leases back; those that it does not have are passed over."""
        ...

    # commits

    def commit(self, commits: Sequence[Commit], *, onto: Snapshot, rebase: bool = False) -> list[Receipt]:
        """Publish commits of one scope, built on ``onto``, as its next snapshot; one receipt each, in order.

        With ``rebase``, a store that can hold its head still may rebase the commits onto it and publish them there, if
        no rule forbids it: their receipts then name a later sequence. Without, ``onto`` must be the head.

        Commits that happened before are left out and get their first receipt, replayed; one whose receipt is forgotten
        gets the head's. If none is left there is no new snapshot. Raises StaleHead, ConflictError (``not_live``,
        ``not_pending``, ``fenced``, each with the commit's id as the fact ``commit``), CommitUnknownError, or an error
        of the input or the storage. Only after CommitUnknownError may something have changed.
        """
        ...

    def receipt(self, scope: Scope, *, commit_id: str | None = None, key: str | None = None) -> Receipt | None:
        """Return the answer a commit got, by its id or its idempotency key; None if it is not in."""
        ...

    def contributions(self, scope: Scope, *, sequence: int) -> list[Contribution]:
        """Return what each commit of a retained snapshot added, in the order in which they were published.

        Those that added nothing are listed too. InvalidInputError (``not_recorded``) if several commits of an older
        program share the snapshot.
        """
        ...

    def expire_receipts(self, *, before_us: int) -> int:
        """Forget ids and keys of commits before a time, so that a later replay of them is a new commit.

        How far each stream is stays known, also of streams that have not moved since: it is a number a stream, and all
        that tells a batch which comes again from a new one.
        """
        ...

    # pending and garbage

    def register_pending(self, pending: Sequence[Pending]) -> None:
        """Announce objects before their first byte is written; AlreadyExistsError if a key is taken."""
        ...

    def register_segment(self, scope: Scope, *, folder: str, owner: str) -> str:
        """Announce the next numbered segment of a scope's folder, and return its key.

        A number is given out once, also where an earlier table had the folder, so a key never means two objects.
        """
        ...

    def forget_pending(self, keys: Collection[str]) -> None:
        """Take registrations back whose names turned out to be other programs' objects: they are not garbage."""
        ...

    def pending(self, *, table_id: str | None = None) -> list[Pending]:
        """List the objects that writers announced and did not commit yet, oldest first."""
        ...

    def release_pending(self, keys: Collection[str]) -> list[str]:
        """Give up registrations of this caller's own, so that their objects are garbage; those that were there."""
        ...

    def abandon_pending(self, *, before_us: int) -> list[str]:
        """Give up registrations made before a time, so that their objects are garbage and cannot be committed."""
        ...

    def expire_snapshots(self, scope: Scope, *, before_us: int, keep_last: int = 1) -> Expired:
        """Let go of the snapshots that ended before a time, and of what only they could reach.

        Never of the newest ``keep_last``, nor of what is pinned or leased. Leases that ran out are
        forgotten. It may go in steps, so that writers wait for
        one only; after a crash the next call goes on.
        """
        ...

    def purge_tables(self, *, before_us: int, table_id: str | None = None) -> Expired:
        """Let go of all that dropped tables held, or one of them, unless somebody has a lease there."""
        ...

    def dropped_tables(self, *, before_us: int) -> list[TableInfo]:
        """List the tables that were dropped before a time and not purged since."""
        ...

    def named_keys(self, *, table_id: str | None = None) -> Iterator[NamedKeys]:
        """Yield every key that a snapshot holds, then every one on the garbage list, in pages.

        An object that was there before ``pending`` was asked, and is in neither answer, is nobody's if ``pending`` is
        asked before this: keys move along in this order.
        """
        ...

    def garbage(self, *, before_us: int, limit: int = 1000) -> list[Garbage]:
        """List objects that nothing could reach since before a time, oldest first."""
        ...

    def forget_garbage(self, keys: Collection[str]) -> None:
        """Take keys off the list, once their objects are deleted."""
        ...

    def retained(self, scope: Scope, *, before_us: int) -> Retained:
        """Count the snapshots of a scope, and those that an expiry before a time would let go of, but for leases."""
        ...

    def shrink(self) -> int:
        """Give the space that nothing uses any more back to the disk, and say how many bytes that was.

        Only SQLite keeps it otherwise: PostgreSQL frees space by itself, and a log is never shortened.
        """
        ...

    def close(self) -> None:
        """Let go of connections; a closed catalog cannot be used again."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def now_us() -> int:
    """Read the system clock."""
    return time.time_ns() // 1000


def new_id() -> str:
    """Make an id that is unique for ever and sorts by time."""
    return make_id(now_us(), secrets.randbits(76))


def no_hook(point: str) -> None:
    """Do nothing at a named step."""


def parse_table_name(text: str) -> tuple[str, str]:
    """Part ``namespace.name`` or ``name``, and refuse what could be anything but a name."""
    namespace, dot, name = text.rpartition(".")
    if not dot:
        namespace = DEFAULT_NAMESPACE
    for part in (namespace, name):
        if not _NAME.fullmatch(part):
            raise InvalidInputError(
                f"{text!r} is not a table name: letters, digits, _ and -, at most one dot", kind="bad_name"
            )
    return namespace, name


def intervals_of(where: Predicate | None, schema: Schema) -> tuple[Interval, ...]:
    """Return intervals that every wanted row lies in."""
    found = [interval for part in conjuncts_of(where) if (interval := _interval(part, schema)) is not None]
    return tuple(found[:MAX_INTERVALS])


def sort_of(value: Any) -> Sort | None:
    """Return how a catalog can compare a bound; None if it cannot."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return "whole"
    if type(value) is float and math.isfinite(value):
        return "real"
    if type(value) is str and "\x00" not in value:  # PostgreSQL has no text with a zero byte
        return "text"
    return None


def let_unused_go(readers: WeakSet[Readers]) -> None:
    """Have readers of this process give back what nothing uses, so that it does not hold up its own expiry."""
    for each in list(readers):
        each.let_go()


def expired(scope: Scope, wanted: object) -> NotFoundError:
    """Return the error for a snapshot that is not retained, or never was."""
    return NotFoundError("no such snapshot, or it has expired", scope=scope, wanted=wanted, kind="expired")


def _rebuild_stale(message: str, head: Snapshot, kind: str, facts: dict[str, object]) -> StaleHead:
    return StaleHead(message, head=head, kind=kind, **facts)


def _interval(part: Predicate, schema: Schema) -> Interval | None:
    low: Any
    high: Any
    match part:
        case Equals(column, value):
            low = high = value
        case InSet(column, values) if len({type(value) for value in values}) == 1 and all(v == v for v in values):
            ordered: list[Any] = list(values)
            low, high = min(ordered), max(ordered)
        case Range(column, low, high):
            pass
        case TimeRange(column, low, end_ns):
            high = None if end_ns is None else end_ns - 1
        case _:
            return None
    sort = _SORTS.get(schema[column].type.kind) if column in schema else None
    if sort is None:
        return None
    least, most = _fitted(low, sort, outwards=-math.inf), _fitted(high, sort, outwards=math.inf)
    return None if least is None and most is None else Interval(column, sort, least, most)


def _fitted(value: Any, sort: Sort, *, outwards: float) -> int | float | str | None:
    """Return a bound as the column's type, no tighter than it was, or None if that cannot be."""
    if isinstance(value, datetime | Nanoseconds):
        value = time_ns(value) if isinstance(value, datetime) else int(value)
    if sort == "real" and type(value) is int and abs(value) < 2**1000:
        nearest = float(value)
        return nearest if nearest == value else math.nextafter(nearest, outwards)
    return value if sort_of(value) == sort else None
