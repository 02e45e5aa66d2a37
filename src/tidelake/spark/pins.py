"""Choose the snapshot that an execution of a query reads of each table: one, however many scans it has.

``ScanRule.java`` asks for each scan of a plan, by the name of the execution that is being planned. The first scan of a
table is given the newest snapshot there is, every other one of the same execution the same. It does not plan.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

import orjson

from tidelake.runtime.forking import renew_after_fork

if TYPE_CHECKING:
    from tidelake.handle.table_handle import TableHandle
    from tidelake.model.snapshot import Scope, Snapshot

KEPT = 4096  # tables of executions; one is asked for again only while it is being planned


class _Pinned:
    """The snapshots that executions read, by execution and table."""

    def __init__(self) -> None:
        self.renew_after_fork()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Forget all in a forked child: a thread of the parent may have been in the middle of a change."""
        self.snapshots: OrderedDict[tuple[str, Scope], Snapshot] = OrderedDict()
        self.lock = Lock()


_PINNED = _Pinned()


class Pins:
    """Say to Spark's JVM which snapshot a scan reads."""

    def apply(self, query: str, options: str) -> str | None:
        """Return a snapshot's number; None where the options name no table that opens, which its reader says."""
        from tidelake.spark.options import known_options
        from tidelake.spark.places import open_table

        try:
            given = known_options(orjson.loads(options), "batch")
            table = open_table(given)
            snapshot = table.snapshot if "snapshot" in given else pinned(query, table)
        except Exception:  # raised again, and told, by the scan's reader
            return None
        return str(snapshot.sequence)

    class Java:
        implements = ("java.util.function.BiFunction",)


def pinned(query: str, table: TableHandle) -> Snapshot:
    """Return the snapshot that an execution of a query reads of a table, or of the table as it was at a time."""
    newest = _newest(query, table)
    past = table.past
    return newest if past is None or past.sequence > newest.sequence else past  # after it: a time still to come


def _newest(query: str, table: TableHandle) -> Snapshot:
    key = (query, table.scope)
    with _PINNED.lock:
        if key not in _PINNED.snapshots:
            _PINNED.snapshots[key] = table.catalog.head(table.scope)
            while len(_PINNED.snapshots) > KEPT:
                _PINNED.snapshots.popitem(last=False)
        return _PINNED.snapshots[key]
