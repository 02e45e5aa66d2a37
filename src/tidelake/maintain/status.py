"""Tell the health of every table in one row: what it holds, what is out of shape, what is due.

Only the catalog is asked; no object is read. It does not change anything.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from tidelake.errors import NotFoundError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain.choice import SMALL, depth_of
from tidelake.maintain.units import due_in_table, due_of_users
from tidelake.maintain.worker import PREFIX

SCHEMA = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("extents", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("small_extents", pa.int64()),
        pa.field("overlap", pa.int64()),  # extents at one point of time, at most
        pa.field("hot_rows", pa.int64()),
        pa.field("hot_batches", pa.int64()),
        pa.field("snapshots", pa.int64()),
        pa.field("oldest_snapshot", pa.timestamp("us", tz="UTC")),
        pa.field("pins", pa.int64()),
        pa.field("garbage", pa.int64()),  # objects that wait for collection
        pa.field("pending", pa.int64()),  # objects that writers announced
        pa.field("failed", pa.int64()),  # pieces of upkeep that were given up
        pa.field("due", pa.list_(pa.string())),
        pa.field("users", pa.int64()),  # that have written; null for a shared table
    ]
)
MAX_GARBAGE = 1_000_000  # counted
USERS_SHOWN = 100  # of whom it is told what is due


def status(lake: LakeHandle) -> pa.Table:
    """Return one row for each table, as ``Lake.status`` says."""
    garbage = Counter(each.table_id for each in lake.catalog.garbage(before_us=2**62, limit=MAX_GARBAGE))
    pending = Counter(each.scope.table_id for each in lake.catalog.pending())
    dead = Counter(
        unit.payload.get("table") for unit in lake.catalog.work.units(state="dead") if unit.kind.startswith(PREFIX)
    )
    rows = []
    for name in lake.tables():
        try:
            row = _row(TableHandle.open(lake, name))
        except NotFoundError:
            continue  # dropped meanwhile
        table_id = row.pop("id")
        rows.append({**row, "garbage": garbage[table_id], "pending": pending[table_id], "failed": dead[name]})
    return pa.Table.from_pylist(rows, SCHEMA)


def _row_of_users(table: TableHandle) -> dict[str, Any]:
    """Return the row of a table of users: what all of them hold together, and what some of them need."""
    found = table.catalog.totals(table.info.id, small=SMALL)
    live = found.live
    return {
        "id": table.info.id,
        "table": table.name,
        "users": found.users,
        "rows": live.rows + live.hot_rows,
        "extents": live.extents,
        "bytes": live.bytes + live.hot_bytes,
        "small_extents": found.small_extents,
        "overlap": None,
        "hot_rows": live.hot_rows,
        "hot_batches": live.hot_batches,
        "snapshots": found.snapshots,
        "oldest_snapshot": found.oldest_us,
        "pins": found.pins,
        "due": sorted({due.kind for due in due_of_users(table, limit=USERS_SHOWN, note=False)}),
    }


def _row(table: TableHandle) -> dict[str, Any]:
    if table.is_of_users:
        return _row_of_users(table)
    head = table.catalog.head(table.scope)
    extents = table.catalog.extents(table.scope, sequence=head.sequence, stats=())
    retained = table.catalog.retained(table.scope, before_us=0)
    totals = head.totals
    return {
        "id": table.info.id,
        "table": table.name,
        "rows": totals.rows + totals.hot_rows,
        "extents": totals.extents,
        "bytes": totals.bytes + totals.hot_bytes,
        "small_extents": sum(map(SMALL.is_small, extents)),
        "overlap": depth_of(extents),
        "hot_rows": totals.hot_rows,
        "hot_batches": totals.hot_batches,
        "snapshots": retained.snapshots,
        "oldest_snapshot": retained.oldest_us,
        "pins": len(table.catalog.pins(table.scope)),
        "due": sorted({due.kind for due in due_in_table(table)}),
    }
