"""Show what a lake knows about itself as tables of the namespace ``system``, for SQL and KQL.

::

    system.tables     one row a table                     system.columns    one row a column
    system.extents    the extents that reads see now      system.commits    the newest commits of each table
    system.work       background work, newest first       system.manifest   see ``manifest.listing``
    system.sources    see ``connectors.listing``

Rows are found when a query is prepared, from the catalog alone, and are scanned like rows that are not yet in extents.
Whoever may see a part of the lake sees the rows about that part; of tables that each user has, a user sees their own. A
process may tell more (``LakeHandle.told``), as a server tells ``system.requests``. Listings are bounded. A table that
somebody made under such a name comes first. It does not read objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from tidelake.catalog.protocol import TableInfo
from tidelake.connectors import listing as sources
from tidelake.errors import NotFoundError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.manifest.listing import SYSTEM_LIMIT, SYSTEM_TABLE, list_manifests
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Extent, Scope, Snapshot
from tidelake.scan.scannable import MemoryRows

MAX_ROWS = 100_000  # of one listing
SCOPES_A_TABLE = 1_000  # of users, whose extents and commits are listed
COMMITS_A_SCOPE = 1_000

Reaches: TypeAlias = Callable[[str], bool]
_Rows: TypeAlias = Iterator[dict[str, Any]]

_TEXT, _COUNT, _TIME = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")
_SCHEMAS: dict[str, dict[str, pa.DataType]] = {
    "system.tables": {
        "namespace": _TEXT, "table": _TEXT, "id": _TEXT, "of_users": pa.bool_(), "format": _TEXT, "time": _TEXT,
        "key": _TEXT, "retention": _TEXT, "columns": _COUNT, "rows": _COUNT, "hot_rows": _COUNT, "extents": _COUNT,
        "bytes": _COUNT, "snapshot": _COUNT, "created": _TIME, "changed": _TIME,
    },
    "system.columns": {
        "namespace": _TEXT, "table": _TEXT, "column": _TEXT, "position": _COUNT, "type": _TEXT, "nullable": pa.bool_(),
    },
    "system.extents": {
        "namespace": _TEXT, "table": _TEXT, "user": _TEXT, "id": _TEXT, "object": _TEXT, "format": _TEXT,
        "rows": _COUNT, "bytes": _COUNT, "blocks": _COUNT, "first": _TIME, "last": _TIME, "level": _COUNT,
        "schema_version": _COUNT, "snapshot": _COUNT,
    },
    "system.commits": {
        "namespace": _TEXT, "table": _TEXT, "user": _TEXT, "snapshot": _COUNT, "id": _TEXT, "committed": _TIME,
        "operation": _TEXT, "rows_added": _COUNT, "rows_removed": _COUNT, "extents_added": _COUNT,
        "extents_removed": _COUNT, "rows": _COUNT, "extents": _COUNT, "bytes": _COUNT, "schema_version": _COUNT,
    },
    "system.work": {
        "id": _TEXT, "kind": _TEXT, "key": _TEXT, "table": _TEXT, "state": _TEXT, "owner": _TEXT, "attempts": _COUNT,
        "max_attempts": _COUNT, "created": _TIME, "updated": _TIME, "ready": _TIME, "lease_until": _TIME,
        "error": _TEXT, "payload": _TEXT,
    },
}  # fmt: skip


EVERYTHING = "*.*"  # is no table: only whoever reaches all tables reaches it


def system_rows(
    lake: LakeHandle, name: str, user: str | None = None, reaches: Reaches = lambda name: True
) -> MemoryRows | None:
    """Return a table that the lake keeps about itself, as far as a user and a sight go; None if there is none."""
    name = name.lower()
    if name == SYSTEM_TABLE:
        rows = list_manifests(lake.manifests, lake.catalog, seen_by=user, limit=SYSTEM_LIMIT)
        seen = [reaches(f"{namespace}.{table}") for namespace, table in _places(rows)]
        return MemoryRows.of(name, rows.filter(pa.array(seen, pa.bool_())), lake.footers)
    if name == sources.SYSTEM_TABLE and user is None:
        rows = sources.list_sources(lake.store)
        filled = [reaches(table) for table in rows.column("table").to_pylist()]
        return MemoryRows.of(name, rows.filter(pa.array(filled, pa.bool_())), lake.footers)
    if name in lake.told:
        rows = lake.told[name]()
        return MemoryRows.of(name, rows if reaches(EVERYTHING) else rows.slice(0, 0), lake.footers)
    make = _MAKERS.get(name)
    if make is None:
        return None
    found = list(islice(make(_Seen(lake, user, reaches)), MAX_ROWS))
    return MemoryRows.of(name, pa.Table.from_pylist(found, pa.schema(list(_SCHEMAS[name].items()))), lake.footers)


def _places(rows: pa.Table) -> Iterator[tuple[str, str]]:
    return zip(rows.column("namespace").to_pylist(), rows.column("table").to_pylist(), strict=True)


class _Seen:
    """The part of a lake that somebody sees."""

    def __init__(self, lake: LakeHandle, user: str | None, reaches: Reaches) -> None:
        self.lake, self.catalog, self._user, self.reaches = lake, lake.catalog, user, reaches

    def tables(self) -> Iterator[TableInfo]:
        return (info for info in self.catalog.tables() if self.reaches(str(info)))

    def scopes(self, info: TableInfo) -> Iterator[Scope]:
        """Yield the scopes of a table that have rows."""
        if not self.lake.has_users(info):
            yield info.scope
        elif self._user is not None:
            yield Scope(info.id, self._user)
        else:
            yield from islice((scope for scope in self.catalog.scopes(info.id) if scope.user), SCOPES_A_TABLE)

    def heads(self) -> Iterator[tuple[TableInfo, Snapshot]]:
        for info in self.tables():
            for scope in self.scopes(info):
                try:
                    yield info, self.catalog.head(scope)
                except NotFoundError:
                    continue  # dropped meanwhile


def _named(info: TableInfo, scope: Scope | None = None) -> dict[str, Any]:
    own = {} if scope is None else {"user": scope.user or None}
    return {"namespace": info.namespace, "table": info.name, **own}


def _tables(seen: _Seen) -> _Rows:
    for info in seen.tables():
        try:
            head = seen.catalog.head(info.scope)
        except NotFoundError:
            continue  # dropped meanwhile
        settings, totals = TableSettings.of(head.settings), head.totals
        of_users = seen.lake.has_users(info)
        if of_users:
            heads = [seen.catalog.head(scope) for scope in seen.scopes(info)]
            totals = sum((each.totals for each in heads), totals)
        yield {
            **_named(info), "id": info.id, "of_users": of_users, "format": settings.format, "time": settings.time,
            "key": ", ".join(settings.key) or None, "retention": _told(head.settings.get("retention")),
            "columns": len(head.schema), "rows": totals.rows + totals.hot_rows, "hot_rows": totals.hot_rows,
            "extents": totals.extents, "bytes": totals.bytes + totals.hot_bytes, "snapshot": head.sequence,
            "created": info.created_us, "changed": head.committed_us,
        }  # fmt: skip


def _told(value: Any) -> str | None:
    return None if value is None else str(value)


def _columns(seen: _Seen) -> _Rows:
    for info in seen.tables():
        try:
            schema = seen.catalog.head(info.scope).schema
        except NotFoundError:
            continue  # dropped meanwhile
        for at, column in enumerate(schema):
            told = {"column": column.name, "position": at, "type": str(column.type), "nullable": column.nullable}
            yield _named(info) | told


def _extents(seen: _Seen) -> _Rows:
    for info, head in seen.heads():
        for extent in seen.catalog.extents(head.scope, sequence=head.sequence, stats=()):
            yield _named(info, head.scope) | _extent(extent)


def _extent(extent: Extent) -> dict[str, Any]:
    return {
        "id": extent.id, "object": extent.key, "format": extent.format, "rows": extent.row_count,
        "bytes": extent.byte_size, "blocks": extent.block_count, "first": _us(extent.min_ts_ns),
        "last": _us(extent.max_ts_ns), "level": extent.level, "schema_version": extent.schema_version,
        "snapshot": extent.added_seq,
    }  # fmt: skip


def _us(ns: int | None) -> int | None:
    return None if ns is None else ns // 1000


def _commits(seen: _Seen) -> _Rows:
    for info, head in seen.heads():
        for each in seen.catalog.history(head.scope, limit=COMMITS_A_SCOPE):
            yield _named(info, head.scope) | {
                "snapshot": each.sequence, "id": each.id, "committed": each.committed_us, "operation": each.operation,
                "rows_added": each.added.rows + each.added.hot_rows,
                "rows_removed": each.removed.rows + each.removed.hot_rows,
                "extents_added": each.added.extents, "extents_removed": each.removed.extents,
                "rows": each.totals.rows + each.totals.hot_rows, "extents": each.totals.extents,
                "bytes": each.totals.bytes + each.totals.hot_bytes, "schema_version": each.schema.version,
            }  # fmt: skip


def _work(seen: _Seen) -> _Rows:
    for unit in seen.catalog.work.units(limit=MAX_ROWS):
        table = unit.payload.get("table")
        if not (seen.reaches(table) if isinstance(table, str) else seen.reaches("system.work")):
            continue
        yield {
            "id": unit.id, "kind": unit.kind, "key": unit.key, "table": _told(table), "state": unit.state,
            "owner": unit.owner, "attempts": unit.attempts, "max_attempts": unit.max_attempts,
            "created": unit.created_us, "updated": unit.updated_us, "ready": unit.ready_us,
            "lease_until": unit.lease_until_us, "error": unit.error,
            "payload": orjson.dumps(dict(unit.payload), default=str).decode(),
        }  # fmt: skip


_MAKERS: Mapping[str, Callable[[_Seen], _Rows]] = {
    "system.tables": _tables,
    "system.columns": _columns,
    "system.extents": _extents,
    "system.commits": _commits,
    "system.work": _work,
}
