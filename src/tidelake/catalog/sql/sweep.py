"""Keep track of objects on their way in and on their way out of the SQL catalog.

::

    register ──▶ pending ──commit──▶ extent ──removed, and every snapshot with it expired──▶ garbage ──▶ forgotten
                    └──────────────────────released or abandoned──────────────────────────────▲

A key moves along in one transaction, so it is always in one place, and a commit that finds its key gone from pending is
refused. ``retained`` has the step in the middle. It does not delete objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import orjson

from tidelake.catalog.protocol import Expired, Garbage, Pending, let_unused_go
from tidelake.catalog.sql import retained_statements as retaining
from tidelake.catalog.sql import sweep_statements as s
from tidelake.catalog.sql.driver import Row, Transaction, Violation
from tidelake.catalog.sql.retained import SqlRetainer
from tidelake.errors import AlreadyExistsError
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Scope
from tidelake.objects import batch_key, batch_number, scope_folder

SCOPES_AT_ONCE = 1000  # that one transaction purges

PURGE_STEP = 40_000  # statistics that one transaction lets go of: some 20 ms of processor time


class SqlSweeper(SqlRetainer):
    """The part of the SQL catalog that knows what is on its way in and out."""

    def register_pending(self, pending: Sequence[Pending]) -> None:
        """Announce objects before their first byte is written; AlreadyExistsError if a key is taken."""
        rows = [self._pending_row(each) for each in pending]
        numbered = [found for each in pending if (found := batch_number(each.key)) is not None]
        if numbered:
            self._ensure_scoped()
        try:
            # A power failure that undoes this has ended the writer too, and left an object that nothing points to.
            with self._database.writing(durable=False) as transaction:
                if taken := transaction.rows(s.in_garbage, _listed(each.key for each in pending)):
                    raise AlreadyExistsError("an object of this key is garbage", key=taken[0][0])
                for folder, number in numbered:
                    transaction.change(s.raise_number, {"folder": folder, "number": number + 1})
                transaction.change_many(s.insert_pending, rows)
        except Violation as error:
            raise AlreadyExistsError(
                "an object is announced already", keys=", ".join(p.key for p in pending)
            ) from error

    def register_segment(self, scope: Scope, *, folder: str, owner: str) -> str:
        """Announce the next numbered segment of a scope's folder, and return its key."""
        self._ensure_scoped()
        with self._database.writing(durable=False) as transaction:
            while True:
                key = batch_key(folder, transaction.rows(s.next_number, {"folder": folder})[0][0])
                if not transaction.rows(s.in_garbage, _listed([key])):
                    transaction.change(s.insert_pending, self._pending_row(Pending(key, scope, owner)))
                    return key

    def forget_pending(self, keys: Collection[str]) -> None:
        """Take registrations back whose names turned out to be other programs' objects: they are not garbage."""
        with self._database.writing(durable=False) as transaction:
            transaction.change(s.forget_pending, _listed(keys))

    def _pending_row(self, each: Pending) -> dict[str, Any]:
        return {
            "key": each.key,
            "table_id": each.scope.table_id,
            "user_id": each.scope.user,
            "owner": each.owner,
            "since_us": self._clock(),
        }

    def pending(self, *, table_id: str | None = None) -> list[Pending]:
        """List the objects that writers announced and did not commit yet, oldest first."""
        rows = self._database.query(s.list_pending, {"table_id": table_id})
        return [Pending(key, Scope(table, user), owner, since) for key, table, user, owner, since in rows]

    def release_pending(self, keys: Collection[str]) -> list[str]:
        """Give up registrations of this caller's own, so that their objects are garbage; those that were there."""
        with self._database.writing() as transaction:
            return self._discard(transaction, transaction.rows(s.take_pending, _listed(keys)), "abandoned")

    def abandon_pending(self, *, before_us: int) -> list[str]:
        """Give up registrations made before a time, so that their objects are garbage and cannot be committed."""
        with self._database.writing() as transaction:
            taken = transaction.rows(s.take_old_pending, {"before_us": before_us})
            return self._discard(transaction, taken, "abandoned")

    def purge_tables(self, *, before_us: int, table_id: str | None = None) -> Expired:
        """Let go of all that dropped tables held, or one of them, unless somebody has a lease there."""
        let_unused_go(self.readers)
        snapshots, keys = 0, list[str]()
        wanted = {"before_us": before_us, "table_id": table_id}
        for (table_id,) in self._database.query(s.dropped_tables, wanted):
            self._ensure_later()
            self._ensure_scoped()
            is_more = True
            while is_more:
                self._purge_statistics(table_id)
                with self._database.writing() as transaction:
                    step, is_more = self._purge(transaction, table_id)
                snapshots += step.snapshots
                keys += step.keys
        return Expired(snapshots, tuple(keys))

    def _purge(self, transaction: Transaction, table_id: str) -> tuple[Expired, bool]:
        """Let go of some scopes of a table, or of the table itself if those are all; say whether there is more.

        The shared scope is the last to go. Killed in between, the next call goes on.
        """
        named: dict[str, Any] = {"table_id": table_id, "limit": SCOPES_AT_ONCE}
        scopes = transaction.rows(s.scopes_of, named)
        is_more = len(scopes) == SCOPES_AT_ONCE
        if self._are_leased(transaction, table_id, scopes):
            return Expired(0, ()), False
        values = _numbers_of(scopes)
        found = {key for listing in s.keys_of_scopes for row in transaction.rows(listing, values) for key in row if key}
        snapshots = transaction.change(s.purge_scopes[0], values)
        for statement in s.purge_scopes[1:]:
            transaction.change(statement, values)
        if not is_more:
            found |= {row[0] for row in transaction.rows(s.take_tables_pending, named)}
            found |= self._segment_folder(transaction, table_id)
            transaction.change(s.last_receipts, values)
            for statement in s.purge_table:
                transaction.change(statement, named)
        keys = self._discard(transaction, [(key, table_id) for key in sorted(found)], "dropped")
        return Expired(snapshots, tuple(keys)), is_more

    def _segment_folder(self, transaction: Transaction, table_id: str) -> set[str]:
        """Return the folder of a table's segments, in which there is more than a catalog names; none if it has none."""
        for namespace, name, settings_seq in transaction.rows(s.name_of_table, {"table_id": table_id}):
            if TableSettings.of(self._settings_at(table_id, settings_seq)).is_segmented:
                return {scope_folder(namespace, name)}
        return set()

    def _purge_statistics(self, table_id: str) -> None:
        """Let go of the statistics of the scopes that go next, but for the last ones, in steps: a writer waits for one.

        They are most of the rows, and nobody can list the extents of a dropped table any more.
        """
        for scope in self._database.query(s.scopes_of, {"table_id": table_id, "limit": SCOPES_AT_ONCE}):
            values = {"scope_id": scope[0], "step": PURGE_STEP}
            while further := self._database.query(s.statistics_after_a_step, values):
                with self._database.writing() as transaction:
                    if self._are_leased(transaction, table_id, [scope]):
                        return
                    transaction.change(s.drop_statistics, {"scope_id": scope[0], "upto": further[0][0]})

    def _are_leased(self, transaction: Transaction, table_id: str, scopes: Sequence[Row]) -> bool:
        """Whether somebody reads one of some scopes; nobody begins to until the transaction ends."""
        for _, user in scopes:
            self._guard(transaction, Scope(table_id, user), retaining.take_guard)
        return bool(transaction.rows(s.leases_of_scopes, {**_numbers_of(scopes), "now_us": self._clock()}))

    def garbage(self, *, before_us: int, limit: int = 1000) -> list[Garbage]:
        """List objects that nothing could reach since before a time, oldest first."""
        rows = self._database.query(s.list_garbage, {"before_us": before_us, "limit": limit})
        return [Garbage(*row) for row in rows]

    def forget_garbage(self, keys: Collection[str]) -> None:
        """Take keys off the list, once their objects are deleted."""
        with self._database.writing() as transaction:
            transaction.change(s.forget_garbage, _listed(keys))


def _listed(keys: Iterable[str]) -> dict[str, str]:
    return {"keys": orjson.dumps(list(keys)).decode()}


def _numbers_of(scopes: Iterable[Row]) -> dict[str, str]:
    return {"ids": orjson.dumps([row[0] for row in scopes]).decode()}
