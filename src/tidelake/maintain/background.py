"""Do upkeep by the way: whoever writes to a table looks after it, a little at a time, and nobody waits for it.

Some time after a write the thread that flushes hot rows looks what is due, takes one piece from the queue, and rests
nine times as long as that took before it looks again: a tenth of one core at most, and of many processes
one does each piece. A process that is about to end, as ``tidelake ingest`` is, gives it a moment. A table that was made
with ``upkeep=False`` is left to ``maintain`` and ``work``. It does not know what the pieces are: see ``units``.
"""

from __future__ import annotations

import time

from tidelake.errors import StorageError
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain.collect import EVER, collect_garbage
from tidelake.maintain.units import Kind
from tidelake.maintain.worker import maintain, plan, work_once
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Scope

RESTS = 9.0  # times as long as a piece of work took
SHORTEST_S = 0.5
FAILED_S = 300.0  # after a failure of the store or the catalog
KEPT = 4096  # tables whose rest is remembered
PARTING_S = 1.0  # that a process which is about to end gives it
USERS_AT_ONCE = 8  # of a table, that are looked at in one step
_resting: dict[Scope, float] = {}  # until when a table is not looked at again

BACKGROUND: tuple[Kind, ...] = ("flush", "retain", "compact", "index", "expire")


def step(table: TableHandle) -> float | None:
    """Do one piece of what is due; return after how many seconds to come again, None if nothing is due."""
    began_s = time.monotonic()
    if (until_s := _resting.get(table.place, 0.0)) > began_s:
        return until_s - began_s
    try:
        is_more = _step(table)
    except StorageError:  # a store or a catalog that is away, or may not be written: this process is not alone
        is_more, rest_s = False, FAILED_S
    else:
        rest_s = max(SHORTEST_S, RESTS * (time.monotonic() - began_s))
    if is_more:
        return rest_s
    if len(_resting) >= KEPT:
        _resting.clear()
    _resting[table.place] = time.monotonic() + rest_s  # looking costs too, where there are many extents
    return None


def _step(table: TableHandle) -> bool:
    """Do one piece of what is due; say whether there was one."""
    planned = plan(table.lake, [table.name], BACKGROUND, users=USERS_AT_ONCE)
    taken = work_once(table.lake, BACKGROUND) if planned else None
    if taken is not None and taken.done.said:
        return True
    if not table.catalog.garbage(before_us=EVER, limit=1):
        return False
    return collect_garbage(table.lake).total.objects > 0


def at_parting(table: TableHandle) -> None:
    """Do what is due of a table as far as a moment allows."""
    if TableSettings.of(table.snapshot.settings).upkeep:
        maintain(table.lake, [table.name], kinds=BACKGROUND, seconds=PARTING_S)
