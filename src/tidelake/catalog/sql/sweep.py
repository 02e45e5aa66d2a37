"""Keep track of objects on their way in and on their way out of the SQL catalog.

::

    register ──▶ pending ──commit──▶ extent ──removed, and every snapshot with it expired──▶ garbage ──▶ forgotten
                    └──────────────────────released or abandoned──────────────────────────────▲

A key moves along in one transaction, so it is always in one place, and a commit that finds its key gone from pending is
refused. ``retained`` has the step in the middle. It does not delete objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import orjson

from tidelake.catalog.protocol import Expired, Garbage, Pending, let_unused_go
from tidelake.catalog.sql import sweep_statements as s
from tidelake.catalog.sql.driver import Violation
from tidelake.catalog.sql.retained import SqlRetainer
from tidelake.errors import AlreadyExistsError
from tidelake.model.snapshot import Scope

PURGE_STEP = 40_000  # statistics that one transaction lets go of: some 20 ms of processor time


class SqlSweeper(SqlRetainer):
    """The part of the SQL catalog that knows what is on its way in and out."""

    def register_pending(self, pending: Sequence[Pending]) -> None:
        """Announce objects before their first byte is written; AlreadyExistsError if a key is taken."""
        now = self._clock()
        rows = [
            {
                "key": each.key,
                "table_id": each.scope.table_id,
                "user_id": each.scope.user,
                "owner": each.owner,
                "since_us": now,
            }
            for each in pending
        ]
        try:
            # A power failure that undoes this has ended the writer too, and left an object that nothing points to.
            with self._database.writing(durable=False) as transaction:
                if taken := transaction.rows(s.in_garbage, _listed(each.key for each in pending)):
                    raise AlreadyExistsError("an object of this key is garbage", key=taken[0][0])
                transaction.change_many(s.insert_pending, rows)
        except Violation as error:
            raise AlreadyExistsError(
                "an object is announced already", keys=", ".join(p.key for p in pending)
            ) from error

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
        snapshots, keys = 0, []
        wanted = {"before_us": before_us, "table_id": table_id}
        for (table_id,) in self._database.query(s.dropped_tables, wanted):
            self._ensure_later()
            self._purge_statistics(table_id)
            with self._database.writing() as transaction:
                if self._is_leased(transaction, table_id):
                    continue
                named = {"table_id": table_id}
                found = {row[0] for row in transaction.rows(s.take_tables_pending, named)}
                for (scope_id,) in transaction.rows(s.scopes_of, named):
                    values = {"scope_id": scope_id}
                    for listing in s.keys_of_scope:
                        found |= {key for row in transaction.rows(listing, values) for key in row if key is not None}
                    snapshots += transaction.change(s.purge_scope[0], values)
                    for statement in s.purge_scope[1:]:
                        transaction.change(statement, values)
                for statement in s.purge_table:
                    transaction.change(statement, named)
                keys += self._discard(transaction, [(key, table_id) for key in sorted(found)], "dropped")
        return Expired(snapshots, tuple(keys))

    def _purge_statistics(self, table_id: str) -> None:
        """Let go of a dropped table's statistics but for the last ones, in steps, so that a writer waits for one only.

        They are most of its rows, and nobody can list the extents of a dropped table any more.
        """
        for (scope_id,) in self._database.query(s.scopes_of, {"table_id": table_id}):
            values = {"scope_id": scope_id, "step": PURGE_STEP}
            while further := self._database.query(s.statistics_after_a_step, values):
                with self._database.writing() as transaction:
                    if self._is_leased(transaction, table_id):
                        return
                    transaction.change(s.drop_statistics, {"scope_id": scope_id, "upto": further[0][0]})

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
