"""Rewrite part of a table: take extents and hot batches away and add others, in one commit.

1. pin one snapshot, and read all that is read at it
2. write what is to be there instead, each extent registered as pending before its first byte
3. commit what is taken away and what is added together

Appends do not disturb it. If another rewrite or a flush was faster with one of the inputs, the commit is refused as a
whole; what was written is given up, and ``at_newest_head`` begins again with the state that the other left. Killed
before the commit, it leaves the table as it was and some objects to collection. It does not choose what to rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from tidelake.errors import CommitUnknownError, ConflictError, StorageError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import (
    Action,
    AddExtent,
    AppendHot,
    Claim,
    Counts,
    DropHot,
    Extent,
    Fence,
    HotBatch,
    Receipt,
    RemoveExtent,
    Snapshot,
    UpdateTable,
    count_of,
)
from tidelake.write.appender import Appender
from tidelake.write.naming import ExtentName
from tidelake.write.publish import publish

REWRITE_TRIES = 20  # each lost to somebody who changed the same extents and was done with it
FINAL = ("fenced", "rewritten")  # conflicts that no newer snapshot resolves

Answer = TypeVar("Answer")


class _InUse:
    """Stands for the snapshot that a rewrite reads, which is leased as long as this lives."""


@dataclass(slots=True, eq=False)
class Rewrite:
    """A change of one table at one snapshot, until it is committed or given up."""

    table: TableHandle
    head: Snapshot
    operation: str
    fence: Fence | None = None
    removed: Counts = field(default_factory=Counts)
    _taken: list[Action] = field(default_factory=list)
    _gone: list[Extent] = field(default_factory=list)
    _hot_gone: list[HotBatch] = field(default_factory=list)
    _added: list[Action] = field(default_factory=list)
    _updates: list[Action] = field(default_factory=list)
    _writers: list[Appender] = field(default_factory=list)
    _finished: int = 0  # of the writers
    _names: list[ExtentName] = field(default_factory=list)  # of extents that no writer wrote
    _keys: list[str] = field(default_factory=list)  # of other objects that no writer wrote
    _in_use: _InUse | None = field(default_factory=_InUse)

    def __post_init__(self) -> None:
        self.table.lake.leases.hold(self.head.scope, self.head.sequence, self._in_use)  # until all of it is read

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self._taken or self._added or self._updates or self._writers)

    @property
    def added(self) -> Counts:
        """How much is added so far by writers that are finished, and by hand."""
        held = [action.extent for action in self._added if isinstance(action, AddExtent)]
        batches = [action.batch for action in self._added if isinstance(action, AppendHot)]
        everything: list[Extent | HotBatch] = [*held, *batches]
        return sum(map(count_of, everything), Counts())

    def writer(self, *, level: int = 0, keep_hot: bool = False, sort: bool = True) -> Appender:
        """Begin to write rows that are in the table already, in another form."""
        writer = Appender(self.table, self.head, keep_hot=keep_hot, is_new=False, is_moved=True, level=level, sort=sort)
        self._writers.append(writer)
        return writer

    def newcomer(self) -> Appender:
        """Begin to write rows that are new to the table; the windows that this rewrite frees are free for them."""
        self.finish()
        store, head = self.table.coverage_store, self.head
        freed = store.freed(head, self._gone, self._hot_gone, self._added)
        writer = Appender(self.table, head, freed=freed)
        self._writers.append(writer)
        return writer

    def take_away(self, extents: Iterable[Extent] = (), hot: Iterable[HotBatch] = ()) -> None:
        """Take extents and hot batches out of the table."""
        for extent in extents:
            self._taken.append(RemoveExtent(extent.id))
            self._gone.append(extent)
            self.removed += count_of(extent)
        for batch in hot:
            self._taken.append(DropHot(batch.id))
            self._hot_gone.append(batch)
            self.removed += count_of(batch)

    def add(self, *actions: Action) -> None:
        """Add what is not written by a writer."""
        self._added.extend(actions)

    def name(self, extent_id: str, suffix: str) -> ExtentName:
        """Name an extent that is about to be written by hand, and register it."""
        settings = TableSettings.of(self.head.settings)
        self._names.append(ExtentName.registered(self.table, settings, extent_id, suffix, is_moved=True))
        return self._names[-1]

    def announced(self, key: str) -> None:
        """Take charge of an object that was registered elsewhere."""
        self._keys.append(key)

    def update(self, **settings: object) -> None:
        """Change settings of the table in the same commit."""
        self._updates.append(UpdateTable(None, settings))

    def finish(self) -> None:
        """Write what is staged; no writer takes rows after it."""
        for writer in self._writers[self._finished :]:
            self._added.extend(writer.finish())
            self._finished += 1

    def commit(
        self, *, key: str | None = None, claims: Callable[[], Sequence[Claim]] = tuple, id: str | None = None
    ) -> Receipt:
        """Publish the change under an id, or a new one; or give it up and raise what forbids it."""
        self.table.at("rewrite.read")
        try:
            self.finish()
            self.table.at("rewrite.written")
            actions = (*self._updates, *self._added, *self._taken)
            receipt = publish(
                self.table, self.head, actions, operation=self.operation, id=id, key=key, claims=tuple(claims()),
                fence=self.fence,
            )  # fmt: skip
            self.table.at("rewrite.committed")
        except BaseException:
            self.give_up()
            raise
        if receipt.replayed:
            self.give_up()
        self._in_use = None  # whoever expires snapshots next must not wait for this one's end
        return receipt

    def give_up(self) -> None:
        """Leave what was written to collection; the table stays as it is."""
        self._in_use = None
        for writer in self._writers:
            writer.give_up()
        with suppress(StorageError, CommitUnknownError):  # the error that led here is the one to tell
            if self._keys:
                self.table.catalog.release_pending(self._keys)
            for name in self._names:
                name.give_up()


def at_newest_head(table: TableHandle, change: Callable[[Snapshot], Answer], *, tries: int = REWRITE_TRIES) -> Answer:
    """Make a change at the newest snapshot, again at a newer one if others took away what it was to take.

    Where there is no newer one, a second try would end as the first did.
    """
    table.refuse_when_pinned()
    head = table.catalog.head(table.scope)
    for left in reversed(range(tries)):
        try:
            return change(head)
        except ConflictError as error:
            tried, head = head, table.catalog.head(table.scope)
            if not left or error.kind in FINAL or head.id == tried.id:
                raise
    raise AssertionError("the last try returns or raises")
