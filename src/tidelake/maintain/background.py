"""Do upkeep by the way: whoever writes to a table looks after it, a little at a time, and nobody waits for it.

Some time after a write the thread that flushes hot rows looks what is due, takes one piece from the queue, and rests
nine times as long as that took before it looks again: a tenth of one core at most, and of many processes
one does each piece. A process that is about to end, as ``tidelake ingest`` is, gives it a moment. A table that was made
with ``upkeep=False`` is left to ``maintain`` and ``work``. It does not know what the pieces are: see ``units``.
"""

from __future__ import annotations

import time

from tidelake.handle.table_handle import TableHandle
from tidelake.maintain.collect import collect_garbage
from tidelake.maintain.units import Kind
from tidelake.maintain.worker import maintain, plan, work_once
from tidelake.model.settings import TableSettings

RESTS = 9.0  # times as long as a piece of work took
SHORTEST_S = 0.5
PARTING_S = 1.0  # that a process which is about to end gives it
BACKGROUND: tuple[Kind, ...] = ("flush", "retain", "compact", "expire")


def step(table: TableHandle) -> float | None:
    """Do one piece of what is due; return after how many seconds to come again, None if nothing is due."""
    began_s = time.monotonic()
    planned = plan(table.lake, [table.name], BACKGROUND)
    taken = work_once(table.lake, BACKGROUND) if planned else None
    if taken is None or not taken.done.said:
        if not table.catalog.garbage(before_us=2**62, limit=1):
            return None
        collect_garbage(table.lake)
    return max(SHORTEST_S, RESTS * (time.monotonic() - began_s))


def at_parting(table: TableHandle) -> None:
    """Do what is due of a table as far as a moment allows."""
    if TableSettings.of(table.snapshot.settings).upkeep:
        maintain(table.lake, [table.name], kinds=BACKGROUND, seconds=PARTING_S)
