"""Name every object that a row of the SQL catalog has.

Rows are read in pages, each a transaction of its own: a key only moves from the extents and snapshots to the garbage
list, in one transaction, so whoever reads those in this order sees it. It does not change anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelake.catalog.protocol import NamedKeys, TableInfo
from tidelake.catalog.sql.reading import SqlReader

PAGE_ROWS = 10_000

_scopes = "SELECT id FROM scopes WHERE CAST(:table_id AS TEXT) IS NULL OR table_id = :table_id"
_extents = """
    SELECT ordinal, key, coverage_key FROM extents WHERE scope_id = :scope_id AND ordinal > :after
    ORDER BY ordinal LIMIT :limit"""
_coverage = "SELECT DISTINCT coverage_key FROM snapshots WHERE scope_id = :scope_id AND coverage_key IS NOT NULL"
_garbage = """
    SELECT key FROM garbage
    WHERE key > :after AND (CAST(:table_id AS TEXT) IS NULL OR table_id = :table_id)
    ORDER BY key LIMIT :limit"""
_dropped = "SELECT id, namespace, name, created_us, dropped_us FROM tables WHERE dropped_us < :before_us ORDER BY id"


class SqlInventory(SqlReader):
    """The part of the SQL catalog that knows every object by name."""

    def named_keys(self, *, table_id: str | None = None) -> Iterator[NamedKeys]:
        """Yield every key that a snapshot holds, then every one on the garbage list, in pages."""
        for (scope_id,) in self._database.query(_scopes, {"table_id": table_id}):
            last = -1
            while rows := self._database.query(_extents, {"scope_id": scope_id, "after": last, "limit": PAGE_ROWS}):
                yield NamedKeys("held", [key for row in rows for key in row[1:] if key is not None])
                last = rows[-1][0]
            if rows := self._database.query(_coverage, {"scope_id": scope_id}):
                yield NamedKeys("held", [row[0] for row in rows])
        after = ""
        while rows := self._database.query(_garbage, {"table_id": table_id, "after": after, "limit": PAGE_ROWS}):
            yield NamedKeys("garbage", [row[0] for row in rows])
            after = rows[-1][0]

    def dropped_tables(self, *, before_us: int) -> list[TableInfo]:
        """List the tables that were dropped before a time and not purged since."""
        return [TableInfo(*row) for row in self._database.query(_dropped, {"before_us": before_us})]
