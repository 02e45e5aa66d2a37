"""Name every object that a row of the SQL catalog has.

Rows are read in pages, each a transaction of its own: a key only moves from the extents and snapshots to the garbage
list, in one transaction, so whoever reads those in this order sees it. It does not change anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from tidelake.catalog.protocol import NamedKeys, TableInfo
from tidelake.catalog.sql.reading import SqlReader

PAGE_ROWS = 10_000

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
