"""Name every object that a row of the SQL catalog has, and list extents in pages or by their ids.

Rows are read in pages, each a transaction of its own: a key only moves from the extents and snapshots to the garbage
list, in one transaction, so whoever reads those in this order sees it. It does not change anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import orjson

from tidelake.catalog.protocol import NamedKeys, TableInfo
from tidelake.catalog.sql.checksums import check_count, decoding
from tidelake.catalog.sql.extent_listing import EXTENT_COLUMNS, in_order
from tidelake.catalog.sql.reading import SqlReader
from tidelake.model.snapshot import Extent, Scope

PAGE_ROWS = 10_000
EXTENTS_PAGE = 4_096

_users = """
    SELECT id, user_id FROM scopes WHERE table_id = :table_id AND user_id >= :user_id ORDER BY user_id LIMIT :limit"""
_EXTENTS = "SELECT scope_id, ordinal, key, coverage_key FROM extents WHERE (scope_id, ordinal) > (:scope_id, :after)"
_COVERAGE = """
    SELECT scope_id, sequence, coverage_key FROM snapshots
    WHERE (scope_id, sequence) > (:scope_id, :after) AND coverage_key IS NOT NULL"""
_AMONG_THESE = "AND scope_id AMONG :ids AS BIGINT"
_IN_ORDER = "ORDER BY 1, 2 LIMIT :limit"
_garbage = """
    SELECT key FROM garbage
    WHERE key > :after AND (CAST(:table_id AS TEXT) IS NULL OR table_id = :table_id)
    ORDER BY key LIMIT :limit"""
_dropped = "SELECT id, namespace, name, created_us, dropped_us FROM tables WHERE dropped_us < :before_us ORDER BY id"
_EXTENTS_AT = """
    e.scope_id = :scope_id AND e.added_seq <= :sequence AND (e.removed_seq IS NULL OR e.removed_seq > :sequence)"""
# SQLite keeps to the order written in a CROSS JOIN, and would else go through all extents of the scope.
_extents_by_id = {
    True: f"""
    SELECT {EXTENT_COLUMNS} FROM json_each(:ids) AS w CROSS JOIN extents AS e WHERE e.id = w.value AND {_EXTENTS_AT}""",
    False: f"SELECT {EXTENT_COLUMNS} FROM extents AS e WHERE {_EXTENTS_AT} AND e.id AMONG :ids AS TEXT",
}
_extents_page = f"""
    SELECT {EXTENT_COLUMNS} FROM extents AS e WHERE {_EXTENTS_AT} AND e.ordinal > :after
    ORDER BY e.ordinal LIMIT {EXTENTS_PAGE}"""


class SqlInventory(SqlReader):
    """The part of the SQL catalog that knows every object by name."""

    def named_keys(self, *, table_id: str | None = None) -> Iterator[NamedKeys]:
        """Yield every key that a snapshot holds, then every one on the garbage list, in pages."""
        if table_id is None:
            for statement in (_EXTENTS, _COVERAGE):
                yield from self._held(f"{statement} {_IN_ORDER}")
        else:
            for ids in self._scope_ids(table_id):
                for statement in (_EXTENTS, _COVERAGE):
                    yield from self._held(f"{statement} {_AMONG_THESE} {_IN_ORDER}", ids=orjson.dumps(ids).decode())
        after = ""
        while rows := self._database.query(_garbage, {"table_id": table_id, "after": after, "limit": PAGE_ROWS}):
            yield NamedKeys("garbage", [row[0] for row in rows])
            after = rows[-1][0]

    def dropped_tables(self, *, before_us: int) -> list[TableInfo]:
        """List the tables that were dropped before a time and not purged since."""
        return [TableInfo(*row) for row in self._database.query(_dropped, {"before_us": before_us})]

    def _held(self, statement: str, **values: Any) -> Iterator[NamedKeys]:
        place: dict[str, Any] = {"scope_id": -1, "after": -1, "limit": PAGE_ROWS, **values}
        while rows := self._database.query(statement, place):
            yield NamedKeys("held", list({key: None for row in rows for key in row[2:] if key is not None}))
            place |= {"scope_id": rows[-1][0], "after": rows[-1][1]}

    def _scope_ids(self, table_id: str) -> Iterator[list[int]]:
        """Yield the numbers of a table's scopes, in pages."""
        user = ""
        while rows := self._database.query(_users, {"table_id": table_id, "user_id": user, "limit": PAGE_ROWS}):
            yield [row[0] for row in rows]
            user = f"{rows[-1][1]}\x01"  # the least text after it: no id has a control character

    def extents_by_id(
        self, scope: Scope, ids: Collection[str], *, sequence: int, stats: Collection[str]
    ) -> list[Extent]:
        """Return those of some extents that a snapshot has, by time; the others are not looked at."""
        with self._database.reading() as transaction:
            place = self._place(transaction, scope, sequence)
            values = {
                "scope_id": place.scope_id,
                "sequence": place.sequence,
                "ids": orjson.dumps(list(dict.fromkeys(ids))).decode(),
            }
            with decoding("an extent"):
                rows = in_order(transaction.rows(_extents_by_id[self._database.is_sqlite], values))
            return self._with_stats(transaction, place, rows, stats)

    def extent_pages(self, scope: Scope, *, sequence: int, stats: Collection[str]) -> Iterator[list[Extent]]:
        """Yield all extents of a snapshot some thousand at a time, as they were added."""
        count = row_count = 0
        after = -1
        while True:
            with self._database.reading() as transaction:
                place = self._place(transaction, scope, sequence)
                if place.scope_id is None:
                    return
                values = {"scope_id": place.scope_id, "sequence": place.sequence, "after": after}
                rows = transaction.rows(_extents_page, values)
                if not rows:
                    totals = self._totals(transaction, place)
                    check_count("extents", totals.extents, totals.rows, count, row_count)
                    return
                found = self._with_stats(transaction, place, rows, stats)
            yield found
            after, count = rows[-1][0], count + len(rows)
            row_count += sum(extent.row_count for extent in found)
