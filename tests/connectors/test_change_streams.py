"""Hold the follower of change streams to this: the lake has what a replica set has, as its manual writes of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import tidelake
from tests.support.change_streams import Replica, change_stream_server
from tidelake.connectors.definition import SYSTEM_COLUMNS
from tidelake.connectors.sources import SyncedSource
from tidelake.lake import Lake

ORDERS = "shop.orders"


@pytest.fixture
def replica() -> Iterator[tuple[str, Replica]]:
    with change_stream_server() as found:
        yield found


def synced(lake: tidelake.Lake, url: str, *tables: str) -> SyncedSource:
    lake.sync(url, list(tables or [ORDERS]), into="crm", via="streams")
    return lake.source("crm")


def latest(lake: tidelake.Lake, table: str = "crm.orders") -> dict[Any, dict[str, Any]]:
    rows = lake.table(table).latest().read_all().to_pylist()
    own = [{name: value for name, value in row.items() if name not in SYSTEM_COLUMNS} for row in rows]
    return {row["_id"]: {name: value for name, value in row.items() if value is not None} for row in own}


def test_every_change_of_a_stream_is_there_once(lake: tidelake.Lake, replica: tuple[str, Replica]) -> None:
    url, shop = replica
    shop.insert(ORDERS, *({"_id": each, "n": each} for each in range(4)))
    shop.insert("shop.others", {"_id": 0})
    source = synced(lake, url)
    shop.update(ORDERS, 1, n=10)
    shop.replace(ORDERS, 2, name="whole")
    shop.update(ORDERS, 3, n=30)  # looked up once it is gone: its deletion tells
    shop.delete(ORDERS, 3)
    shop.insert("shop.others", {"_id": 1})
    with shop.transaction():
        shop.insert(ORDERS, {"_id": 9, "n": 1})
        shop.update(ORDERS, 9, n=2)
    assert source.run().changes == 5
    assert latest(lake) == shop.collections[ORDERS]
    assert source.run().changes == 0
    rows = lake.table("crm.orders").to_arrow(["_tide_pk", "_tide_op", "_tide_lsn"]).sort_by("_tide_lsn").to_pylist()
    assert [(row["_tide_pk"], row["_tide_op"]) for row in rows[4:]] == [
        ("1", "update"), ("2", "update"), ("3", "delete"), ("9", "insert"), ("9", "update"),
    ]  # fmt: skip


def test_collections_that_are_dropped_and_renamed_are_followed(
    lake: tidelake.Lake, replica: tuple[str, Replica]
) -> None:
    url, shop = replica
    shop.insert(ORDERS, {"_id": 1}, {"_id": 2})
    shop.insert("shop.items", {"_id": 1})
    source = synced(lake, url, ORDERS, "shop.items")
    shop.drop(ORDERS)
    shop.insert(ORDERS, {"_id": 5})
    source.run()
    assert (latest(lake), latest(lake, "crm.items")) == ({5: {"_id": 5}}, {1: {"_id": 1}})
    shop.insert("shop.spare", {"_id": 7}, {"_id": 5, "n": 1})
    shop.rename("shop.spare", ORDERS)
    shop.insert(ORDERS, {"_id": 8})
    source.run()
    assert latest(lake) == shop.collections[ORDERS]
    shop.rename("shop.items", "shop.away")
    source.run()
    assert latest(lake, "crm.items") == {}
    shop.drop_database("shop")
    source.run()
    assert latest(lake) == {}


def test_a_stream_whose_history_is_lost_stops_the_source_and_a_resync_goes_on(
    lake: tidelake.Lake, replica: tuple[str, Replica]
) -> None:
    url, shop = replica
    shop.insert(ORDERS, {"_id": 1}, {"_id": 2})
    source = synced(lake, url)
    shop.delete(ORDERS, 1)
    shop.forget()
    with pytest.raises(tidelake.NotFoundError, match=r"forgotten changes.*--resync") as gone:
        source.run()
    assert gone.value.kind == "oplog_lost"
    source.run(resync=True)
    assert latest(lake) == shop.collections[ORDERS] == {2: {"_id": 2}}


def test_a_source_that_has_nothing_to_tell_goes_on_in_time(lake: tidelake.Lake, replica: tuple[str, Replica]) -> None:
    url, shop = replica
    shop.insert(ORDERS, {"_id": 1})
    source = synced(lake, url)
    shop.insert("shop.others", {"_id": 1})
    shop.pass_time(600)
    shop.insert("shop.others", {"_id": 2})
    source.run()
    shop.first = shop.now  # what was passed over is not missed
    with shop.transaction():
        shop.count -= 1  # one that stands where the stream was: nobody says that no more follows there
        shop.insert(ORDERS, {"_id": 2})
    assert source.run().changes == 1
    assert latest(lake) == shop.collections[ORDERS]


@pytest.mark.parametrize("seed", [1, 2])
def test_random_changes_with_connections_cut_lose_and_double_nothing(
    lake: tidelake.Lake, replica: tuple[str, Replica], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelake.connectors.runner.PAUSE_S", (0.0, 0.01))
    url, shop = replica
    shop.insert(ORDERS, {"_id": 0})
    source, draw, cuts = synced(lake, url), random.Random(seed), [0]

    def at(point: str) -> None:
        if point.startswith("sync."):
            changed(shop, draw)
            if draw.random() < 0.3:
                shop.cut()
                cuts[0] += 1

    mortal = Lake(replace(lake.handle, at=at)).source("crm")
    for _ in range(12):
        for _ in range(draw.randrange(12)):
            changed(shop, draw)
        mortal.run()
    source.run()
    assert latest(lake) == shop.collections.get(ORDERS, {})
    assert cuts[0] > 3
    rows = lake.table("crm.orders").to_arrow(["_tide_pk", "_tide_lsn"]).to_pylist()
    assert max(Counter(tuple(row.values()) for row in rows).values()) == 1


def changed(shop: Replica, draw: random.Random) -> None:
    """Change a collection at random."""
    held = list(shop.collections.setdefault(ORDERS, {}))
    id, number = draw.randrange(20), draw.randrange(100)
    if id not in held:
        shop.insert(ORDERS, {"_id": id, "n": number})
    elif number < 3:
        shop.drop(ORDERS)
    elif number < 30:
        shop.delete(ORDERS, id)
    else:
        draw.choice((shop.update, shop.replace))(ORDERS, id, n=number)
