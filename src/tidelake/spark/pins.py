"""Choose the snapshot that an execution of a query reads of each table: one, however many scans it has.

``ScanRule.java`` asks for each scan of a plan, by the name of the execution that is being planned. The first scan of a
table is given the newest snapshot there is, every other one of the same execution the same. It does not plan.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from tidelake.snapshot import Snapshot
    from tidelake.table import Table

KEPT = 4096  # tables of executions; one is asked for again only while it is being planned

_PINNED: OrderedDict[tuple[str, str], Snapshot] = OrderedDict()
_LOCK = Lock()


class Pins:
    """Say to Spark's JVM which snapshot a scan reads."""

    def apply(self, query: str, options: str) -> str | None:
        """Give a snapshot's number; None where the options name no table that can be opened, which its reader says."""
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


def pinned(query: str, table: Table) -> Snapshot:
    """Give the snapshot that an execution of a query reads of a table, or of the table as it was at a time."""
    newest = _newest(query, table)
    past = table._pinned
    return newest if past is None or past.sequence > newest.sequence else past  # after it: a time still to come


def _newest(query: str, table: Table) -> Snapshot:
    key = (query, table._info.id)
    with _LOCK:
        if key not in _PINNED:
            _PINNED[key] = table._catalog.head(table._info.scope)
            while len(_PINNED) > KEPT:
                _PINNED.popitem(last=False)
        return _PINNED[key]
