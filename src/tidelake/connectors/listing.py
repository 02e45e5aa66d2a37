"""List the sources of a lake as rows: for ``Lake.sources``, and as the table ``system.sources`` of SQL and KQL.

It does not ask the sources: what is told is what whoever runs them last saw.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelake.connectors import registry
from tidelake.errors import redacted
from tidelake.objects import ObjectStore

SYSTEM_TABLE = "system.sources"
_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    {
        "source": pa.string(),
        "kind": pa.string(),
        "url": pa.string(),
        "table": pa.string(),
        "source_table": pa.string(),
        "mode": pa.string(),
        "state": pa.string(),
        "phase": pa.string(),
        "rows": pa.int64(),
        "lag_seconds": pa.float64(),
        "behind_bytes": pa.int64(),
        "last_event_at": _TIME,
        "seen_at": _TIME,
        "reason": pa.string(),
    }
)


def list_sources(store: ObjectStore) -> pa.Table:
    """Return a row for each table of each source, without secrets."""
    rows: list[dict[str, Any]] = []
    for name in registry.names(store):
        held, seen = registry.read(store, name), registry.status(store, name)
        is_known = seen.lag_us is not None and seen.error is None and held.state == "running"
        for source_table, table in held.tables.items():
            rows.append(
                {
                    "source": name,
                    "kind": held.kind,
                    "url": redacted(held.url),
                    "table": table,
                    "source_table": source_table,
                    "mode": "live" if name.startswith("live-") else held.mode,
                    "state": held.state,
                    "phase": seen.phase,
                    "rows": seen.tables.get(table, 0),
                    "lag_seconds": (seen.lag_us or 0) / 1e6
                    if is_known
                    else None,  # of one that stands still, nobody knows
                    "behind_bytes": seen.behind_bytes,
                    "last_event_at": seen.event_us,
                    "seen_at": seen.seen_us,
                    "reason": redacted(held.reason or seen.error or "") or None,
                }
            )
    return pa.Table.from_pylist(rows, SCHEMA)
