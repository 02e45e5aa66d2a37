"""Keep the catalog of one table in a transaction log beside its data, without a database.

The root of the table is an object store of its own, a folder or a bucket's prefix::

    _timeseries_log/…                       the log: see ``journal`` for its files, ``entries`` for their bytes
    _timeseries_log/_pending/<hash>.json    an object that a writer has announced: see ``sweep``
    _coverage/…  data/…                     named in the log, and read and written by others

The log decides: whatever needs one order (commits, receipts, giving up what was announced, expiry, leases) is an entry
of it, and creating the next entry has one winner. A commit is one snapshot; upkeep makes none, so a snapshot's sequence
may be less than the version of its file. Each call reads on to the end of the log first, which costs one look for an
entry that is not there.

A commit, in order: 1. leave out what happened before, and refuse what a rule forbids; 2. append the entry; 3. delete
the announcements of the extents in it. An announcement that a crash leaves behind is known to be over, for its key is
in. An extent is given up by an entry too, so a commit that raced with it is refused, never half done.

What differs from a database: one table in a root, and one scope, no users; a dropped table's root cannot be used again;
nothing of the log is deleted when snapshots expire, because the original's readers replay it from the beginning; work
units are for few workers. It does not read or write extents.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from tidelake.catalog.commit import check_commits, lost_race
from tidelake.catalog.layouts import LogLayout
from tidelake.catalog.log.draft import Draft, Drafter, creation
from tidelake.catalog.log.entries import Upkeep
from tidelake.catalog.log.inventory import LogInventory
from tidelake.catalog.log.journal import Journal
from tidelake.catalog.log.reading import check_scope, check_writable
from tidelake.catalog.log.state import LogState
from tidelake.catalog.log.sweep import LogSweeper
from tidelake.catalog.protocol import (
    Clock,
    StepHook,
    TableInfo,
    new_id,
    no_hook,
    now_us,
    parse_table_name,
)
from tidelake.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    TidelakeError,
    UnavailableError,
)
from tidelake.model.schema import Schema
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Commit, Receipt, Snapshot, keys_of
from tidelake.objects import ObjectStore, open_store
from tidelake.runtime.closing import Closing
from tidelake.runtime.forking import renew_after_fork


def open_log_catalog(
    where: ObjectStore | str | os.PathLike[str], *, create: bool = False, clock: Clock = now_us, at: StepHook = no_hook
) -> LogCatalog:
    """Open the log table at a root: a store, a folder or an ``s3://`` place.

    A root without a log is NotFoundError, unless a table is to be created there.
    """
    store = open_store(where, create=create) if isinstance(where, str | os.PathLike) else where
    catalog = LogCatalog(store, clock=clock, at=at)
    if not create and not catalog.exists():
        raise NotFoundError("no table here: no commits, version 0", store=store.url, kind="no_table")
    return catalog


class LogCatalog(LogSweeper, LogInventory, Closing):
    """The catalog of one table in a root of its own; see the protocol. Threads may share it."""

    layout = LogLayout()

    def __init__(self, store: ObjectStore, *, clock: Clock = now_us, at: StepHook = no_hook) -> None:
        super().__init__(Journal(store, _name_of(store.url), clock=clock, at=at), clock)
        self._at = at
        self._drafter = Drafter(lambda s, commit: self._receipt(s, commit.id, keys_of(commit)), self._is_pending)
        self._turn = threading.Lock()  # commits of this process do not race each other
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Let the child's first commit take its turn."""
        self._turn = threading.Lock()

    def exists(self) -> bool:
        """Return whether there is a log, be its table dropped or not."""
        return self._journal.refresh() is not None

    def create_table(self, name: str, schema: Schema, settings: Mapping[str, Any]) -> TableInfo:
        """Make the root's table with its first snapshot; AlreadyExistsError if it has or had one."""
        namespace, own = parse_table_name(name)
        if schema.version != 1:
            raise InvalidInputError("a table begins with version 1 of its schema", version=schema.version)
        if TableSettings.of(settings).is_segmented:
            raise InvalidInputError(
                "a transaction log holds one shared table without a key: make tables of users in another lake",
                table=name,
                kind="no_segments",
            )
        if not self.exists():
            self._journal.ensure_conditions()
            info = TableInfo(new_id(), namespace, own, self._clock())
            if self._journal.append(creation(info, schema, settings, salt=_salt())):
                return info
        info = self._newest().info
        if info.dropped_us is None:
            raise AlreadyExistsError("the table exists", table=info, store=self._store.url)
        raise AlreadyExistsError(
            "the root had a table that was dropped: use another", table=info, store=self._store.url
        )

    def drop_table(self, name: str) -> TableInfo:
        """Take the table's name away. What it held stays until ``purge_tables``."""
        info = self.table(name)

        def propose(state: LogState) -> tuple[Upkeep | None, TableInfo]:
            dropped = replace(check_scope(state, info.scope).info, dropped_us=self._clock())
            return Upkeep("drop", dropped_us=dropped.dropped_us), dropped

        return self._amend(propose)

    def rename_table(self, name: str, to: str, *, replace: bool = False) -> TableInfo:
        """Refuse: a log has one table, under one name."""
        info = self.table(name)
        raise UnavailableError("the table of a log keeps its name", table=info, to=to, kind="no_rename")

    def commit(self, commits: Sequence[Commit], *, onto: Snapshot, rebase: bool = False) -> list[Receipt]:
        """Publish commits of one scope, built on ``onto``, as its next snapshot; one receipt each, in order.

        Nobody can hold the end of a log still, so nothing is rebased here: StaleHead tells the caller to.
        """
        check_commits(commits, onto)
        self._at("commit.begin")
        lost = 0
        with self._turn:
            while True:
                draft = self._draft(commits, onto)  # 1
                if draft.entry is None or self._journal.append(draft.entry):  # 2
                    break
                if draft.entry.version == lost:
                    raise StorageError("the store holds an entry that it does not show", store=self._store.url)
                lost = draft.entry.version
        self._at("commit.appended")
        self._delete_announcements(draft.keys)  # 3
        self._at("commit.end")
        return draft.answers

    def close(self) -> None:
        """Let go of connections; there are none."""

    def _draft(self, commits: Sequence[Commit], onto: Snapshot) -> Draft:
        """Draft on what is known, and refuse only on what is newest."""
        with self._journal.lock:
            known = self._journal.state()
            if known is not None and known.head.id == onto.id:
                version = known.version
                try:
                    return self._draft_on(known, commits, onto)
                except TidelakeError:
                    newest = self._journal.refresh()
                    if newest is not None and newest.version == version:
                        raise
            return self._draft_on(self._journal.refresh(), commits, onto)

    def _draft_on(self, state: LogState | None, commits: Sequence[Commit], onto: Snapshot) -> Draft:
        state = check_writable(state, onto.scope)
        if state.head.id != onto.id:
            raise lost_race(onto, state.head)
        return self._drafter.draft(state, commits, at_us=self._clock(), salt=_salt())


def _salt() -> int:
    return secrets.randbits(76)


def _name_of(url: str) -> str:
    """Name a table that nobody named by the last part of its root."""
    last = unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2]) or urlsplit(url).netloc
    name = re.sub(r"[^A-Za-z0-9_-]", "_", last)[:127]
    return name if name[:1].isalpha() else f"_{name}"
