"""Know which users' scopes upkeep is to look at, and what all scopes of a table hold together.

A commit notes when its scope may need something: at once if it changed extents, else when its hot rows are old or its
snapshots. Whoever looks finds those that are due by an index, and notes when to look again, or never until the next
commit. So scopes in which nothing is due cost nothing, however many there are. It does not know what is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelake.catalog.sql.driver import Transaction
from tidelake.catalog.sql.layout import SCOPED, insert_into
from tidelake.catalog.sql.retained import SqlRetainer
from tidelake.catalog.sql.setup import has_later
from tidelake.catalog.users import NONE_SMALL, DueScope, Small, TableTotals
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import AddExtent, Commit, Counts, RemoveExtent, Scope, Snapshot

_note = f"""
    {insert_into("due_scopes")}
    ON CONFLICT (scope_id) DO UPDATE SET look_us = excluded.look_us WHERE excluded.look_us < due_scopes.look_us"""
_due = """
    SELECT s.user_id, d.look_us, d.scope_id FROM due_scopes AS d JOIN scopes AS s ON s.id = d.scope_id
    WHERE d.table_id = :table_id AND d.look_us <= :before_us AND (d.look_us, d.scope_id) > (:look_us, :scope_id)
    ORDER BY d.look_us, d.scope_id LIMIT :limit"""
_head = "SELECT sequence FROM scopes WHERE id = :scope_id FOR UPDATE"
_look_again = "UPDATE due_scopes SET look_us = :look_us WHERE scope_id = :scope_id"
_look_no_more = "DELETE FROM due_scopes WHERE scope_id = :scope_id"

_OF_TABLE = "scope_id IN (SELECT id FROM scopes WHERE table_id = :table_id)"
_users = "SELECT COUNT(*) FROM scopes WHERE table_id = :table_id AND user_id <> ''"
_extents = f"""
    SELECT COUNT(*), SUM(row_count), SUM(byte_size),
        SUM(CASE WHEN byte_size < :small_bytes AND COALESCE(e.unpacked_bytes, 0) < :small_unpacked
            AND row_count < :small_rows THEN 1 ELSE 0 END)
    FROM extents AS e WHERE {_OF_TABLE} AND removed_seq IS NULL"""
_hot = f"SELECT COUNT(*), SUM(rows), SUM(bytes) FROM hot_batches WHERE {_OF_TABLE} AND removed_seq IS NULL"
_snapshots = f"SELECT COUNT(*), MIN(committed_us) FROM snapshots WHERE {_OF_TABLE}"
_pins = f"SELECT COUNT(*) FROM pins WHERE {_OF_TABLE}"


class SqlScopes(SqlRetainer):
    """The part of the SQL catalog that knows the scopes of users."""

    def due_scopes(
        self, table_id: str, *, before_us: int, after: DueScope | None = None, limit: int = 1000
    ) -> list[DueScope]:
        """List the users' scopes that upkeep is to look at, the longest due first, after one of them if told."""
        if not has_later(self._database, self._database.query, SCOPED):
            return []
        values = {
            "table_id": table_id,
            "before_us": before_us,
            "look_us": after.look_us if after else -1,
            "scope_id": after.id if after else -1,
            "limit": limit,
        }
        return [DueScope(Scope(table_id, user), *rest) for user, *rest in self._database.query(_due, values)]

    def look_again(self, due: DueScope, *, sequence: int, at_us: int | None) -> None:
        """Note when upkeep is to look at a scope again, unless its head has moved since it was looked at."""
        named = {"scope_id": due.id}
        with self._database.writing(durable=False) as transaction:
            if transaction.rows(_head, named) != [(sequence,)]:
                return
            if at_us is None:
                transaction.change(_look_no_more, named)
            else:
                transaction.change(_look_again, {**named, "look_us": at_us})

    def totals(self, table_id: str, *, small: Small = NONE_SMALL) -> TableTotals:
        """Sum up what all scopes of a table hold; it takes as long as they are many."""
        named: dict[str, Any] = {
            "table_id": table_id,
            "small_bytes": small.byte_size,
            "small_unpacked": small.unpacked_bytes,
            "small_rows": small.rows,
        }
        with self._database.reading() as transaction:
            ((users,),) = transaction.rows(_users, named)
            ((extents, rows, size, small_extents),) = transaction.rows(_extents, named)
            ((batches, hot_rows, hot_bytes),) = transaction.rows(_hot, named)
            ((snapshots, oldest_us),) = transaction.rows(_snapshots, named)
            pins = transaction.rows(_pins, named)[0][0] if has_later(self._database, transaction.rows) else 0
        counts = Counts(*(int(each or 0) for each in (extents, rows, size, batches, hot_rows, hot_bytes)))
        return TableTotals(users, counts, int(small_extents or 0), snapshots, oldest_us, pins)


def note_due(transaction: Transaction, scope_id: int, commits: Sequence[Commit], snapshot: Snapshot) -> None:
    """Note when upkeep is to look at a user's scope that has a new snapshot."""
    moved = any(isinstance(action, AddExtent | RemoveExtent) for commit in commits for action in commit.actions)
    look_us = snapshot.committed_us + (0 if moved else _patience_us(TableSettings.of(snapshot.settings)))
    row = {"scope_id": scope_id, "table_id": snapshot.scope.table_id, "look_us": look_us}
    transaction.change(_note, row)


def _patience_us(settings: TableSettings) -> int:
    """Return how long a scope with new hot rows needs nothing."""
    waits = (settings.flush_age_us, settings.history_us, settings.retention_us)
    return min(each for each in waits if each is not None)
