"""Write to a log table from a process of its own, as many others do at the same time.

It does not import the tests, so that a process is soon there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count as count_from
from typing import Any

from tests.support.catalogs import announce, commit_of, extent, hot
from tidelake.catalog.commit import Coordinator
from tidelake.catalog.log.log_catalog import open_log_catalog
from tidelake.model.snapshot import AddExtent, AppendHot
from tidelake.objects import ObjectStore


def append_many(store: ObjectStore, number: int, count: int, results: Any) -> None:
    """Append under keys of this process's own and under one that all share, with upkeep in between."""
    catalog = open_log_catalog(store)
    scope = catalog.table("logs").scope
    coordinator = Coordinator(catalog)
    done = []
    for at in range(count):
        for key in (f"{number}-{at}", "shared"):
            ours = announce(catalog, commit_of(scope, AddExtent(extent()), AppendHot(hot()), key=key))
            receipt = coordinator.commit(ours)
            done.append((key, receipt.sequence, receipt.replayed))
        catalog.abandon_pending(before_us=1)
        if at == number % count:
            catalog.work.enqueue("compact", str(number), {})
    results.put(done)


def append_until_killed(store: ObjectStore, number: int, acknowledged: Any) -> None:
    """Append for ever, and tell each key that was acknowledged; end by being killed."""
    catalog = open_log_catalog(store)
    scope = catalog.table("logs").scope
    coordinator = Coordinator(catalog)
    for key in _keys(number):
        coordinator.commit(announce(catalog, commit_of(scope, AddExtent(extent()), AppendHot(hot()), key=key)))
        acknowledged.send(key)


def _keys(number: int) -> Iterator[str]:
    return (f"{number}-{at}" for at in count_from())
