"""Where the objects of a table lie, and what its readers know: in a lake of ours, or beside a transaction log.

The layout beside a log is the original's, whose readers must find every acknowledged row and all coverage where they
look for them. A catalog supplies its layout; whoever writes asks it and not the catalog's kind. It does not write.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.catalog.protocol import TableInfo
from tidelake.objects import extent_coverage_key, segment_coverage_key, table_coverage_key, united_coverage_key


@dataclass(frozen=True, slots=True)
class LakeLayout:
    """Objects of a lake: each table has a folder of its own."""

    default_format: str = "tlm"
    keeps_hot_rows: bool = True
    has_users: bool = True
    has_one_entity: bool = False
    tasks_write_coverage: bool = True

    def extent_coverage_key(self, info: TableInfo, extent_id: str, content_id: str) -> str:
        return extent_coverage_key(info.namespace, info.name, extent_id)

    def united_coverage_key(self, info: TableInfo, as_of: int, content_id: str) -> str:
        return united_coverage_key(info.namespace, info.name, as_of, content_id)


@dataclass(frozen=True, slots=True)
class LogLayout:
    """Objects beside the transaction log of one table, where the original's readers look for them."""

    default_format: str = "parquet"
    keeps_hot_rows: bool = False  # the original's readers know none, and an acknowledged row is for every reader
    has_users: bool = False
    has_one_entity: bool = True
    tasks_write_coverage: bool = False

    def extent_coverage_key(self, info: TableInfo, extent_id: str, content_id: str) -> str:
        return segment_coverage_key(f"segcov-{content_id}")

    def united_coverage_key(self, info: TableInfo, as_of: int, content_id: str) -> str:
        return table_coverage_key(as_of, f"tblcov-{content_id}")
