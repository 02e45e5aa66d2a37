"""Say in a manifest which indexes of vectors a scope's table has.

The settings of the head have them, so every manifest that is written names them, also those of users. What others put
there stays until one of ours is made or dropped. It does not know whether a codebook is there: whoever does says so,
and that is kept until the index changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelake.model.settings import VECTOR_INDEX, columns_under
from tidelake.model.snapshot import Snapshot

ENGINE = "ivf_pq"  # who made an index, as seed 002 has it

_SAME = ("metric", "engine", "dimensions", "snapshot_path", "snapshot_version")


def vector_metadata(
    head: Snapshot, held: Mapping[str, Mapping[str, Any]], states: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the indexes of a head as a manifest has them, after those that it held; ``states`` are known by now."""
    found = {name: dict(index) for name, index in held.items() if index.get("engine") != ENGINE}
    for name, told in sorted(columns_under(VECTOR_INDEX, head.settings)):
        fresh = {
            "column_name": name,
            "enabled": True,
            "metric": told["metric"],
            "engine": ENGINE,
            "dimensions": head.schema[name].type.dimension if name in head.schema else None,
            "snapshot_path": told["codebook"],
            "snapshot_version": told["version"],
            "last_applied_seq": head.sequence,
            "updated_at": head.committed_us // 1000,
            "state": "syncing",
        }
        before = held.get(name, {})
        state = (states or {}).get(name)
        if all(before.get(key) == fresh[key] for key in _SAME) and state in (None, before.get("state")):
            found[name] = dict(before)
        else:
            found[name] = fresh | ({} if state is None else {"state": state})
    return found
