"""Let another writer commit each time a reader looks which snapshot is newest.

An operation that looks once reads one snapshot; one that looks twice gets two, every time and not once in a while. The
writer is a real one, with a connection of its own. It does not touch what a pinned snapshot holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import Any

import tidelake
from tidelake.lake import Lake
from tidelake.model.snapshot import Scope, Snapshot
from tidelake.table import Table

Write = Callable[[Table, int], Any]


@contextmanager
def restless(lake: Lake, table: str, write: Write) -> Iterator[list[int]]:
    """Have ``write`` called, with a number that grows, after every look at the newest snapshot; give those it made."""
    made: list[int] = []
    look = lake.catalog.head
    lock, busy = Lock(), set[int]()
    with tidelake.connect(lake.where) as other:
        held = other.table(table)

        def head(scope: Scope) -> Snapshot:
            if get_ident() in busy:  # the writer itself looks, too
                return look(scope)
            with lock:  # two who look at once get two snapshots, too
                found = look(scope)
                busy.add(get_ident())
                try:
                    write(held, len(made))
                    made.append(held.snapshot.sequence)
                finally:
                    busy.discard(get_ident())
            return found

        lake.catalog.head = head  # type: ignore[method-assign]
        try:
            yield made
        finally:
            del lake.catalog.head
