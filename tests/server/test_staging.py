"""Rows on their way into a lake share commits, and what cannot be stored is told soon. It does not need a network."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import tidelake
from tidelake.errors import TidelakeError
from tidelake.server.call import Load, Outcome
from tidelake.server.memory import Budget
from tidelake.server.meters import Meters
from tidelake.server.refusals import failure_of
from tidelake.server.staging import Place, Staging

ROW = b'{"ts": "2026-01-01T00:00:00Z", "n": 1}\n'


def test_nobody_waits_behind_what_cannot_be_stored(tmp_path: Path) -> None:
    meters, budget = Meters(), Budget(1 << 20, 1 << 20)

    async def offered(staging: Staging, catalog: sqlite3.Connection) -> list[Outcome]:
        place = Place("a.b")

        def offer(key: str) -> asyncio.Future[Outcome]:
            return staging.offer(place, Load("a.b", ROW, 1), key=key, size=len(ROW))

        assert not isinstance(await offer("first"), TidelakeError)
        catalog.execute("BEGIN EXCLUSIVE")
        waiting = []
        for key in ("one", "two"):  # of which each is a group, because the other is under way
            waiting.append(offer(key))
            await asyncio.sleep(0.2)
        waiting += [offer("three"), offer("four")]  # there are no more than two groups at a time
        outcomes = await asyncio.gather(*waiting)
        assert budget.of(place) == 0
        catalog.execute("ROLLBACK")
        again = await offer("three")
        await staging.drain()
        return [*outcomes, again]

    with tidelake.connect(tmp_path / "lake", upkeep=False, deadline=2.0) as lake:
        catalog = sqlite3.connect(tmp_path / "lake" / "catalog.sqlite", isolation_level=None)
        staging = Staging(lake.handle, budget, meters)
        *away, again = asyncio.run(offered(staging, catalog))
        catalog.close()
        assert all(isinstance(each, TidelakeError) and failure_of(each).is_temporary for each in away), away
        assert not isinstance(again, TidelakeError)
        assert len(lake.table("a.b")) == 2
    assert meters.registry.get_sample_value("tidelake_commit_seconds_count") == 4  # the last two were not tried
