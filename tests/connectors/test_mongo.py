"""Hold the sync of MongoDB's protocol to this: the lake has what the source has, and every change of it once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
import pymongo
import pytest
from bson import Decimal128, Int64, ObjectId

import tidelake
from tests.support.databases import Machine, ferretdb_machine
from tidelake.connectors.definition import SYSTEM_COLUMNS
from tidelake.connectors.mongo.documents import columns_of, key_of, to_json
from tidelake.connectors.sources import SyncedSource


@dataclass(frozen=True, slots=True)
class Bazaar:
    """A server of collections, and the lake that is synced from it."""

    url: str
    client: pymongo.MongoClient[dict[str, Any]]
    lake: tidelake.Lake
    database: Any

    def synced(self, *names: str, **options: Any) -> SyncedSource:
        tables = [f"{self.database.name}.{each}" for each in names or ("orders",)]
        self.lake.sync(self.url, tables, into="crm", **options)
        return self.lake.source("crm")

    def rows(self, name: str) -> dict[str, Any]:
        """Return what the source has, as JSON; a field that is null is none."""
        found = {key_of(each["_id"]): orjson.loads(to_json(each)) for each in self.database[name].find({})}
        return {id: {name: value for name, value in each.items() if value is not None} for id, each in found.items()}

    def latest(self, name: str) -> dict[str, Any]:
        """Return what the lake says that the source has, as JSON."""
        dynamic = {each.name for each in self.lake.table(name).schema if str(each.type) == "dynamic"}
        found = {}
        for row in self.lake.table(name).latest().read_all().to_pylist():
            own = {
                key: orjson.loads(value) if key in dynamic else value
                for key, value in row.items() if value is not None and key not in SYSTEM_COLUMNS and "__" not in key
            }  # fmt: skip
            found[row["_tide_pk"]] = orjson.loads(to_json(own))
        return found


@pytest.fixture(scope="session")
def ferretdb() -> Iterator[Machine]:
    """Run FerretDB, where it is built."""
    with ferretdb_machine() as machine:
        yield machine


@pytest.fixture
def bazaar(ferretdb: Machine, lake: tidelake.Lake) -> Iterator[Bazaar]:
    """Yield a database and a lake, both empty."""
    with pymongo.MongoClient[dict[str, Any]](ferretdb.url, tz_aware=True) as client:
        if "oplog.rs" not in client.local.list_collection_names():
            client.local.create_collection("oplog.rs", capped=True, size=64 << 20)
        name = f"shop_{ObjectId()}"
        yield Bazaar(ferretdb.url, client, lake, client[name])
        client.drop_database(name)


@pytest.mark.parametrize("mode", ["log", "upsert"])
def test_a_copy_and_every_change_after_it_are_what_the_source_has(bazaar: Bazaar, mode: str) -> None:
    orders = bazaar.database.orders
    orders.insert_many(
        [{"_id": each, "name": f"n{each}", "tags": ["a", each], "at": {"city": "x"}} for each in range(9)]
    )
    source = bazaar.synced(mode=mode)
    assert bazaar.latest("crm.orders") == bazaar.rows("orders")
    orders.update_many({"_id": {"$lt": 3}}, {"$set": {"name": "other"}})
    orders.delete_many({"_id": {"$in": [4, 5]}})
    orders.insert_one({"_id": 5, "again": True})
    orders.replace_one({"_id": 6}, {"whole": 1.5})
    report = source.run()
    assert (report.copied, report.changes) == (0, 3 + 2 + 1 + 1)
    assert bazaar.latest("crm.orders") == bazaar.rows("orders")
    assert source.run().changes == 0
    if mode == "log":
        rows = bazaar.lake.table("crm.orders").to_arrow(["_tide_pk", "_tide_op", "_tide_lsn"]).to_pylist()
        told = [(row["_tide_pk"], row["_tide_op"]) for row in sorted(rows, key=lambda row: row["_tide_lsn"])[9:]]
        assert told == [
            ("0", "update"), ("1", "update"), ("2", "update"), ("4", "delete"), ("5", "delete"), ("5", "insert"),
            ("6", "update"),
        ]  # fmt: skip


def test_fields_have_the_types_of_their_values_and_mixed_ones_are_dynamic(bazaar: Bazaar) -> None:
    at = datetime(2026, 3, 14, 12, tzinfo=UTC)
    first = {"_id": ObjectId(), "n": 1, "big": Int64(2**40), "r": 1.5, "ok": True, "at": at,
             "deep": {"a": {"b": [1, None]}}, "mixed": 5, "raw": b"\x00\xff"}  # fmt: skip
    bazaar.database.orders.insert_one(first)
    source = bazaar.synced()
    schema = {each.name: each.type.kind for each in bazaar.lake.table("crm.orders").schema}
    assert {name: schema[name] for name in first} == {
        "_id": "string", "n": "long", "big": "long", "r": "real", "ok": "bool", "at": "timestamp",
        "deep": "dynamic", "mixed": "long", "raw": schema["raw"],
    }  # fmt: skip
    bazaar.database.orders.insert_one({"_id": ObjectId(), "mixed": "five", "n": 2.5})
    source.run()
    bazaar.database.orders.insert_one({"_id": ObjectId(), "mixed": 6, "new": {"x": 1}})
    source.run()
    assert bazaar.latest("crm.orders") == bazaar.rows("orders")
    values = {row["_tide_pk"]: row["mixed"] for row in bazaar.lake.table("crm.orders").latest().read_all().to_pylist()}
    assert sorted(values.values()) == ['"five"', "5", "6"]


def test_ids_of_different_types_are_different_keys() -> None:
    ids = [5, "5", 5.5, True, "true", ObjectId("0" * 24), "0" * 24, "plain", '"plain"', {"a": 1}, '{"a":1}', "", None]
    assert len({key_of(each) for each in ids}) == len(ids)
    assert [key_of("plain"), key_of(5), key_of(ObjectId("0" * 24))] == ["plain", "5", "0" * 24]
    types, _ = columns_of(
        [{"_id": 1, "a": 1}, {"_id": 2, "a": 2.5, "b": "x"}, {"_id": 3, "b": ObjectId(), "d": Decimal128("1.10")}]
    )
    assert {name: kind.kind for name, kind in types.items()} == {
        "_id": "long",
        "a": "real",
        "b": "dynamic",
        "d": "string",
    }


def test_an_oplog_that_was_overwritten_stops_the_source_and_a_resync_goes_on(bazaar: Bazaar) -> None:
    bazaar.database.orders.insert_one({"_id": 1})
    source = bazaar.synced()
    bazaar.database.orders.insert_many([{"_id": each} for each in range(2, 6)])
    bazaar.client.local["oplog.rs"].drop()
    bazaar.client.local.create_collection("oplog.rs", capped=True, size=64 << 20)
    bazaar.database.orders.delete_one({"_id": 3})
    with pytest.raises(tidelake.NotFoundError, match=r"oplog was overwritten.*--resync") as gone:
        source.run()
    assert gone.value.kind == "oplog_lost"
    source.run(resync=True)
    assert bazaar.latest("crm.orders") == bazaar.rows("orders")


def test_servers_and_collections_that_cannot_be_synced_are_refused_in_words(bazaar: Bazaar) -> None:
    with pytest.raises(tidelake.InvalidInputError, match="no such table"):
        bazaar.synced("nothing")
    bazaar.database.taken.insert_one({"_id": 1, "_tide_op": 1})
    with pytest.raises(tidelake.InvalidInputError, match="has this column itself"):
        bazaar.synced("taken")
    with pytest.raises(tidelake.InvalidInputError, match="change streams"):
        bazaar.lake.sync(bazaar.url, [f"{bazaar.database.name}.taken"], into="other", via="streams")


def test_stable_paths_of_synced_documents_become_columns(bazaar: Bazaar) -> None:
    bazaar.database.orders.insert_many([{"_id": each, "at": {"city": f"c{each}"}} for each in range(200)])
    source = bazaar.synced()
    bazaar.database.orders.insert_one({"_id": 999, "at": {"city": "new"}, "city": 5})
    source.run()
    assert bazaar.latest("crm.orders") == bazaar.rows("orders")
    assert bazaar.lake.table("crm.orders").schema["at__city"].type.kind == "string"
    rows = bazaar.lake.table("crm.orders").latest(["_id", "at__city"]).read_all().to_pylist()
    assert {row["_id"]: row["at__city"] for row in rows} == {**{each: f"c{each}" for each in range(200)}, 999: "new"}
    counted = "SELECT count(*) AS n FROM latest('crm.orders') WHERE at__city >= 'c19'"
    assert bazaar.lake.sql(counted).to_arrow().to_pylist() == [{"n": 100}]


@pytest.mark.parametrize("seed", [1])
def test_what_is_synced_is_what_the_source_has_after_random_changes(bazaar: Bazaar, seed: int) -> None:
    draw = random.Random(seed)
    bazaar.database.orders.insert_one({"_id": 0})
    source = bazaar.synced()
    for _ in range(6):
        for _ in range(30):
            changed(bazaar.database.orders, draw)
        source.run()
        assert bazaar.latest("crm.orders") == bazaar.rows("orders")
    rows = bazaar.lake.table("crm.orders").to_arrow(["_tide_pk", "_tide_lsn"]).to_pylist()
    assert max(Counter(tuple(row.values()) for row in rows).values()) == 1


def changed(orders: Any, draw: random.Random) -> None:
    """Change a collection at random, with fields that come, go, and change their types."""
    key, number = draw.randrange(40), draw.randrange(1000)
    value = draw.choice([number, number / 7, f"t{number}", {"deep": number}, [number, "x"], True, None])
    match draw.randrange(5):
        case 0:
            orders.delete_one({"_id": key})
        case 1:
            orders.replace_one({"_id": key}, {"n": number, f"f{draw.randrange(6)}": value}, upsert=True)
        case 2:
            orders.update_many({"_id": {"$gte": key, "$lt": key + 3}}, {"$set": {f"f{draw.randrange(6)}": value}})
        case 3:
            orders.update_one({"_id": key}, {"$unset": {f"f{draw.randrange(6)}": 1}})
        case _:
            orders.update_one({"_id": key}, {"$set": {"n": number}}, upsert=True)
