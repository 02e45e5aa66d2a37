"""Keep the catalog in SQLite or PostgreSQL.

One commit is one short transaction, its cost set by the change alone:

1. swap the scope's current snapshot for the new one, if it still is the expected one; from here on PostgreSQL's other
   writers of this scope wait, SQLite's writers of any scope have waited since the transaction began. If it is not, and
   the caller lets it, rebase onto the one that is and swap that
2. leave out the commits that happened before
3. check fences, take away what is taken away, take the added extents off the pending list
4. write the snapshot, what it adds, the receipts and the keys

Readers see all of it after COMMIT, or nothing. On SQLite, commits that other processes left for whoever has the turn to
write are taken along: see ``letters``. It does not retry.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidelake.catalog.commit import answers_of, check_commits, lost_race, refitted
from tidelake.catalog.contributions import Contribution, not_recorded, part
from tidelake.catalog.layouts import LakeLayout
from tidelake.catalog.protocol import (
    Clock,
    StepHook,
    TableInfo,
    new_id,
    no_hook,
    now_us,
    parse_table_name,
)
from tidelake.catalog.sql import publish, reading
from tidelake.catalog.sql import publish_statements as s
from tidelake.catalog.sql.driver import Database, Transaction, Violation, WritersTurn
from tidelake.catalog.sql.extent_listing import ordinal_of
from tidelake.catalog.sql.inventory import SqlInventory
from tidelake.catalog.sql.letters import Letters, may_be_posted
from tidelake.catalog.sql.offsets import offsets_of, seal_offsets, write_offsets
from tidelake.catalog.sql.scopes import SqlScopes, note_due
from tidelake.catalog.sql.setup import prepare
from tidelake.catalog.sql.sweep import SqlSweeper
from tidelake.catalog.sql.together import Request, Together
from tidelake.catalog.sql.work import SqlWorkQueue, check_fence
from tidelake.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    TidelakeError,
)
from tidelake.model.rebase import gather
from tidelake.model.schema import Schema
from tidelake.model.snapshot import (
    Commit,
    Receipt,
    RecordOffset,
    Scope,
    Snapshot,
    advance,
    empty_snapshot,
    first_snapshot,
    numbered,
    receipt_of,
)
from tidelake.objects.protocol import DEADLINE_S
from tidelake.runtime.closing import Closing
from tidelake.runtime.forking import renew_after_fork


class SqlCatalog(SqlSweeper, SqlInventory, SqlScopes, Closing):
    """A catalog in SQLite (a file's path) or PostgreSQL (its address); see the protocol. Threads may share it."""

    layout = LakeLayout()

    def __init__(
        self,
        where: str | Path,
        *,
        deadline_s: float = DEADLINE_S,
        clock: Clock = now_us,
        ids: Callable[[], str] = new_id,
        at: StepHook = no_hook,
    ) -> None:
        database = Database(where, deadline_s=deadline_s, at=at)
        try:
            prepare(database, clock)
        except BaseException:
            database.close()
            raise
        super().__init__(database, clock)
        self.work = SqlWorkQueue(database, clock, ids)
        self._ids = ids
        self._at = at
        self._letters = Letters(database.name) if database.is_sqlite else None
        self._together = Together(database.name, deadline_s) if database.is_sqlite else None
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Leave commits that are under way to the parent."""
        if self._letters is not None:
            self._letters.forget()
        if self._together is not None:
            self._together.forget()

    def create_table(self, name: str, schema: Schema, settings: Mapping[str, Any]) -> TableInfo:
        """Make a table with its first snapshot; AlreadyExistsError if the name is taken."""
        namespace, own = parse_table_name(name)
        if schema.version != 1:
            raise InvalidInputError("a table begins with version 1 of its schema", version=schema.version)
        info = TableInfo(self._ids(), namespace, own, self._clock())
        before = empty_snapshot(info.scope, schema, {})
        first = first_snapshot(info.scope, schema, settings, snapshot_id=self._ids(), at_us=info.created_us)
        row = {"id": info.id, "namespace": namespace, "name": own, "created_us": info.created_us, "dropped_us": None}
        try:
            with self._database.writing() as transaction:
                transaction.change(s.insert_table, {**row, "schema_version": 1, "settings_seq": 1})
                publish.write_schemas(transaction, info.id, [schema])
                publish.write_settings(transaction, first)
                publish.write_snapshot(transaction, self._swap(transaction, before, first.id), first)
        except Violation as error:
            raise AlreadyExistsError("the table exists", table=info) from error
        return info

    def drop_table(self, name: str) -> TableInfo:
        """Take a table's name away. What it held stays until ``purge_tables``."""
        namespace, own = parse_table_name(name)
        with self._database.writing() as transaction:
            rows = transaction.rows(s.drop_table, {"namespace": namespace, "name": own, "now": self._clock()})
            if not rows:
                raise NotFoundError("no such table", table=f"{namespace}.{own}", kind="no_table")
        return TableInfo(*rows[0])

    def rename_table(self, name: str, to: str, *, replace: bool = False) -> TableInfo:
        """Give a table another name, at once; AlreadyExistsError if it is taken, unless that table is replaced."""
        (namespace, own), (to_namespace, to_own) = parse_table_name(name), parse_table_name(to)
        named = {"namespace": namespace, "name": own, "to_namespace": to_namespace, "to_name": to_own}
        if (namespace, own) == (to_namespace, to_own):
            return self.table(name)
        try:
            with self._database.writing() as transaction:
                if replace:
                    transaction.rows(s.drop_table, {"namespace": to_namespace, "name": to_own, "now": self._clock()})
                rows = transaction.rows(s.rename_table, named)
                if not rows:
                    raise NotFoundError("no such table", table=f"{namespace}.{own}", kind="no_table")
        except Violation as error:
            raise AlreadyExistsError("the table exists", table=f"{to_namespace}.{to_own}") from error
        return TableInfo(*rows[0])

    def commit(self, commits: Sequence[Commit], *, onto: Snapshot, rebase: bool = False) -> list[Receipt]:
        """Publish commits of one scope, built on ``onto``, as its next snapshot; one receipt each, in order."""
        check_commits(commits, onto)
        if onto.scope.user:
            self._ensure_scoped()
        self._at("commit.begin")
        request = Request(commits, onto, rebase)
        if self._together is None:
            receipts = self._commit_alone(request)
        else:
            receipts = self._together.commit(request, self._commit_all)
        self._at("commit.end")
        return receipts

    def _commit_all(self, requests: Sequence[Request]) -> None:
        """Answer the requests of this process's threads: one as it is, several in one transaction."""
        if len(requests) == 1:
            requests[0].receipts = self._commit_alone(requests[0])
            return
        with self._database.turn() as turn, turn.writing() as transaction:
            for request in requests:
                self._commit_behind(transaction, request)
        for request in requests:
            if isinstance(request.error, Violation):
                request.error = self._added_twice(request.onto, request.error)

    def _commit_behind(self, transaction: Transaction, request: Request) -> None:
        """Commit behind a savepoint; what is wrong with the request alone is left to it."""
        transaction.run_text("SAVEPOINT one")
        try:
            request.receipts = self._commit(transaction, request.commits, request.onto, (), rebase=request.rebase)
        except _AllReplayed as nothing:  # what was begun is taken back
            request.receipts = nothing.receipts
            transaction.run_text("ROLLBACK TO one")
        except (TidelakeError, sqlite3.IntegrityError) as error:
            if isinstance(error, StorageError | CommitUnknownError):
                raise
            request.error = self._database.translated(error) if isinstance(error, sqlite3.Error) else error
        if request.error is not None:
            transaction.run_text("ROLLBACK TO one")
        transaction.run_text("RELEASE one")

    def _commit_alone(self, request: Request) -> list[Receipt]:
        commits, onto = request.commits, request.onto
        if request.rebase and self._letters is not None and may_be_posted(commits):
            return self._commit_together(self._letters, commits, onto)
        with self._database.turn() as turn:
            return self._commit_in_turn(turn, commits, onto, rebase=request.rebase)

    def _commit_together(self, letters: Letters, commits: Sequence[Commit], onto: Snapshot) -> list[Receipt]:
        """Commit in one transaction with what other processes posted, or have another process do it."""
        with self._database.turn(lambda: letters.post(commits)) as turn:
            if turn.is_ours:
                return self._commit_with_letters(letters, turn, commits, onto)
        self._at("letter.gone")
        found = self._receipts(commits, onto)
        if found is not None:
            return found
        with self._database.turn() as turn:  # whoever took the letter died, or could not commit it
            return self._commit_with_letters(letters, turn, commits, onto)

    def _commit_with_letters(
        self, letters: Letters, turn: WritersTurn, commits: Sequence[Commit], onto: Snapshot
    ) -> list[Receipt]:
        others = letters.take(onto.scope) if turn.is_alone else []
        if others:
            self._at("letters.taken")
            with suppress(
                ConflictError, InvalidInputError, CorruptError
            ):  # whose fault it was shows when each is alone
                receipts = self._commit_in_turn(turn, commits, onto, rebase=True, others=others)
                return [replace(receipt, shared=True) for receipt in receipts]
        return self._commit_in_turn(turn, commits, onto, rebase=True)

    def _commit_in_turn(
        self,
        turn: WritersTurn,
        commits: Sequence[Commit],
        onto: Snapshot,
        *,
        rebase: bool,
        others: Sequence[Commit] = (),
    ) -> list[Receipt]:
        """Commit in one transaction; those of other processes are left out if they do not fit."""
        own = len(commits)
        try:
            with turn.writing() as transaction:
                return self._commit(transaction, commits, onto, others, rebase=rebase)[:own]
        except _AllReplayed as nothing:
            return nothing.receipts[:own]
        except Violation as error:
            raise self._added_twice(onto, error) from error

    def _added_twice(self, onto: Snapshot, error: Violation) -> TidelakeError:
        """Say what a key that is taken means: that somebody was faster, or that an id was used before."""
        head = self.head(onto.scope)
        if head.id != onto.id:
            return lost_race(onto, head)
        return InvalidInputError("an id is added twice", reason=error, kind="added_twice")

    def _receipts(self, commits: Sequence[Commit], onto: Snapshot) -> list[Receipt] | None:
        """Return what another process got for these commits; None if it did not commit all of them."""
        with self._database.reading() as transaction:
            rows = transaction.rows(s.receipts_by_id, publish.listed(ids=[commit.id for commit in commits]))
        found = {row[0]: publish.receipt_from(row) for row in rows}
        if len(found) < len(commits):
            return None
        return [
            replace(found[commit.id], replayed=found[commit.id].sequence <= onto.sequence, shared=True)
            for commit in commits
        ]

    def receipt(self, scope: Scope, *, commit_id: str | None = None, key: str | None = None) -> Receipt | None:
        """Return the answer a commit got, by its id or its idempotency key; None if it is not in."""
        if (commit_id is None) == (key is None):
            raise InvalidInputError("name a commit by its id or by its key")
        with self._database.reading() as transaction:
            if key is None:
                rows = transaction.rows(s.receipts_by_id, publish.listed(ids=[commit_id]))
                return publish.receipt_from(rows[0]) if rows else None
            scopes = transaction.rows(reading.scope_id, {"table_id": scope.table_id, "user_id": scope.user})
            for (scope_id,) in scopes:
                return publish.receipts_of(transaction, scope_id, [key]).get(key)
            return None

    def contributions(self, scope: Scope, *, sequence: int) -> list[Contribution]:
        """Return what each commit of a retained snapshot added, in the order in which they were published."""
        with self._database.reading() as transaction:
            place = self._place(transaction, scope, sequence)
            if place.scope_id is None:
                return []
            named = {"scope_id": place.scope_id, "sequence": sequence}
            numbers = {"first": ordinal_of(sequence, 0), "last": ordinal_of(sequence + 1, 0)}
            extents, hot = (
                [row[0] for row in transaction.rows(statement, {**named, **numbers})]
                for statement in (s.added_extents, s.added_hot)
            )
            shares = publish.shares_from(place.scope_id, sequence, transaction.rows(s.shares, named)[0])
            if shares is not None:
                return part(shares, extents, hot)
            receipts = [publish.receipt_from(row) for row in transaction.rows(s.receipts_of_snapshot, named)]
            if not extents and not hot:
                return [Contribution(receipt.commit_id, (), ()) for receipt in receipts]
            if len(receipts) != 1:  # those of a snapshot are forgotten together
                raise not_recorded(scope, sequence, len(receipts))
            return [Contribution(receipts[0].commit_id, tuple(extents), tuple(hot))]

    def positions(self, scope: Scope, streams: Sequence[str]) -> dict[str, int]:
        """Return the last batch of those streams of which a scope has one; nothing if the scope has no commits."""
        with self._database.reading() as transaction:
            place = self._place(transaction, scope)
            found = {} if place.scope_id is None else offsets_of(transaction, place.scope_id, streams)
        return {stream: found[stream] for stream in streams if stream in found}

    def expire_receipts(self, *, before_us: int) -> int:
        """Forget ids and keys of commits before a time, so that a later replay of them is a new commit."""
        with self._database.writing() as transaction:
            seal_offsets(transaction)
            transaction.change(s.expire_keys, {"before_us": before_us})
            return transaction.change(s.expire_receipts, {"before_us": before_us})

    def close(self) -> None:
        """Let go of connections; a closed catalog cannot be used again."""
        self._database.close()

    def _commit(
        self,
        transaction: Transaction,
        commits: Sequence[Commit],
        onto: Snapshot,
        others: Sequence[Commit],
        *,
        rebase: bool,
    ) -> list[Receipt]:
        # 1. Swap. The whole header is only known in the end, but its id is.
        snapshot_id = self._ids()
        scope_id = publish.swap(transaction, onto, snapshot_id=snapshot_id)
        if scope_id is None:
            head = self._head_in(transaction, onto.scope, hold=rebase)
            if not rebase:
                raise lost_race(onto, head)
            commits, onto = _rebased(commits, onto, head), head
            scope_id = self._swap(transaction, onto, snapshot_id)
        if others:
            commits = [*commits, *gather([*commits, *others], onto, live=())[0][len(commits) :]]
        self._at("commit.swapped")
        # 2. Leave out what happened before.
        replayed = publish.find_replayed(transaction, scope_id, commits, onto)
        fresh: Sequence[Commit] = [commit for at, commit in enumerate(commits) if at not in replayed]
        if not fresh:
            raise _AllReplayed(answers_of(commits, replayed, {}))
        if replayed:
            fresh = refitted(fresh, onto)  # again: they were fitted after some that are left out
        # 3. Check, and take away.
        for commit in fresh:
            if commit.fence is not None:
                check_fence(transaction, commit.fence, commit.id)
        removed = publish.take_away(transaction, scope_id, fresh, onto.sequence + 1)
        snapshot = advance(onto, fresh, removed=removed, snapshot_id=snapshot_id, at_us=self._clock())
        publish.take_off_pending(transaction, scope_id, fresh, snapshot)
        # 4. Write.
        receipts = {commit.id: receipt_of(commit, snapshot) for commit in fresh}
        with transaction.sent_together():
            publish.write_snapshot(transaction, scope_id, snapshot, fresh)
            publish.write_added(transaction, scope_id, numbered(fresh, onto), snapshot.sequence)
            publish.write_table(transaction, fresh, onto, snapshot)
            publish.write_receipts(transaction, scope_id, fresh, receipts)
        moved = (action for commit in fresh for action in commit.actions if isinstance(action, RecordOffset))
        write_offsets(transaction, scope_id, moved)
        if snapshot.scope.user:
            note_due(transaction, scope_id, fresh, snapshot)
        return answers_of(commits, replayed, receipts)

    def _swap(self, transaction: Transaction, onto: Snapshot, snapshot_id: str) -> int:
        scope_id = publish.swap(transaction, onto, snapshot_id=snapshot_id)
        if scope_id is None:
            raise lost_race(onto, self._head_in(transaction, onto.scope))
        return scope_id


class _AllReplayed(Exception):
    """Undo the swap: there is nothing to publish."""

    def __init__(self, receipts: list[Receipt]) -> None:
        super().__init__()
        self.receipts = receipts


def _rebased(commits: Sequence[Commit], onto: Snapshot, head: Snapshot) -> Sequence[Commit]:
    """Rebase commits onto the head that is held, or leave it to who can judge their claims."""
    if head.id == onto.id:
        return commits
    if any(commit.claims for commit in commits):
        raise lost_race(onto, head)
    return refitted(commits, head)
