"""Follow what changes in a server's collections: by a change stream, or by reading its oplog.

A **change stream** is what a replica set or a sharded cluster offers. The **oplog** is what it is made from, and all
that some servers of the protocol have. Both stand at a cluster time, which is a number here: seconds and a count. What
has one cluster time was done at once. An update tells what it changed, not what became of the document; that is looked
up, and may be newer by then: the change that made it so follows. It does not make rows: see ``reading``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pymongo
from bson import Timestamp
from pymongo.errors import OperationFailure

from tidelake.connectors.mongo.connecting import HISTORY_LOST, Document
from tidelake.errors import InvalidInputError, NotFoundError

LOOK_MS = 200  # that a server waits for a change, when there is none
OPLOG = "oplog.rs"
_TICKS = 32  # bits of a position that are the count in a second


@dataclass(frozen=True, slots=True)
class Change:
    """One change: of a document, or of a whole collection."""

    position: int
    table: str  # database.collection
    op: Literal["insert", "update", "delete", "truncate", "replaced"]
    id: Any = None
    document: Mapping[str, Any] | None = None  # None: it is to be looked up, or was deleted
    at_us: int | None = None


class Follower(Protocol):
    """What tells changes from a position on, in order."""

    def changes(self, position: int) -> Iterator[Change | None]:
        """Yield changes; None where there is nothing more for now."""
        ...

    def reached(self) -> int | None:
        """Return from where on to go on, though nothing was told: nothing before it is missed."""
        ...

    def close(self) -> None: ...


def position_of(time: Timestamp) -> int:
    """Return a cluster time as a number."""
    return (time.time << _TICKS) + time.inc


def timestamp_of(position: int) -> Timestamp:
    """Return a number as a cluster time."""
    return Timestamp(position >> _TICKS, position & ((1 << _TICKS) - 1))


def has_streams(client: pymongo.MongoClient[Document]) -> bool:
    """Whether a server offers change streams."""
    try:
        with client.watch(max_await_time_ms=1):
            return True
    except OperationFailure:
        return False


def has_oplog(client: pymongo.MongoClient[Document]) -> bool:
    """Whether a server has an oplog that we may read."""
    try:
        return OPLOG in client.local.list_collection_names()
    except OperationFailure:
        return False


class StreamFollower:
    """Changes by a change stream of the whole server, of some collections."""

    def __init__(self, client: pymongo.MongoClient[Document], tables: Collection[str]) -> None:
        self._client, self._tables = client, tables
        self._stream: Any = None

    def changes(self, position: int) -> Iterator[Change | None]:
        named = [dict(zip(("ns.db", "ns.coll"), table.split(".", 1), strict=True)) for table in self._tables]
        databases = [{"ns.db": name, "operationType": "dropDatabase"} for name in {each["ns.db"] for each in named}]
        renamed = [
            dict(zip(("to.db", "to.coll"), table.split(".", 1), strict=True)) for table in self._tables
        ]  # another collection that takes the name
        try:
            self._stream = self._client.watch(
                [{"$match": {"$or": [*named, *databases, *renamed]}}], full_document="updateLookup",
                start_at_operation_time=timestamp_of(position), max_await_time_ms=LOOK_MS,
            )  # fmt: skip
            while True:
                event = self._stream.try_next()
                if event is None:
                    yield None
                else:
                    yield from self._told(event)
        except OperationFailure as error:
            if error.code in HISTORY_LOST:
                raise NotFoundError("the source has forgotten changes that were not read", kind="oplog_lost") from error
            raise

    def reached(self) -> int | None:
        """Return the time that the stream's own token has, which moves on while nothing is told.

        More may follow at that very time: a mark without an event sorts before the events of its time.
        """
        token = str((self._stream.resume_token or {}).get("_data", "")) if self._stream is not None else ""
        if len(token) < 18 or token[:2] != "82":  # a cluster time, as the first part of a key
            return None
        return (int(token[2:10], 16) << _TICKS) + int(token[10:18], 16)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _told(self, event: Mapping[str, Any]) -> Iterator[Change]:
        position, at = position_of(event["clusterTime"]), event.get("wallTime")
        at_us = round(at.timestamp() * 1e6) if at is not None else (position >> _TICKS) * 1_000_000
        namespace = event.get("ns") or {}
        table = f"{namespace.get('db')}.{namespace.get('coll')}"
        match event["operationType"]:
            case "insert" | "replace" | "update" as op:
                id, found = event["documentKey"]["_id"], event.get("fullDocument")
                if found is not None:  # if it is none, its deletion follows
                    yield Change(position, table, "insert" if op == "insert" else "update", id, found, at_us)
            case "delete":
                yield Change(position, table, "delete", event["documentKey"]["_id"], None, at_us)
            case "drop":
                yield Change(position, table, "truncate", at_us=at_us)
            case "dropDatabase":
                for each in self._tables:
                    if each.split(".", 1)[0] == namespace.get("db"):
                        yield Change(position, each, "truncate", at_us=at_us)
            case "rename":
                if table in self._tables:
                    yield Change(position, table, "truncate", at_us=at_us)
                target = f"{event['to']['db']}.{event['to']['coll']}"
                if target in self._tables:
                    yield Change(position, target, "replaced", at_us=at_us)


class OplogFollower:
    """Changes by the oplog itself."""

    def __init__(self, client: pymongo.MongoClient[Document], tables: Collection[str]) -> None:
        self._client, self._tables = client, tables
        self._reached: int | None = None

    def first(self) -> int | None:
        """Return where the oplog begins."""
        found = self._client.local[OPLOG].find_one({}, sort=[("$natural", 1)])
        return None if found is None else position_of(found["ts"])

    def changes(self, position: int) -> Iterator[Change | None]:
        while True:
            asked = {"ts": {"$gte": timestamp_of(position)}}
            for entry in self._client.local[OPLOG].find(asked, sort=[("$natural", 1)]):
                self._reached = position_of(entry["ts"])
                position = self._reached + 1
                yield from self._told(entry, self._reached)
            yield None

    def reached(self) -> int | None:
        """Return what follows the last entry that was read."""
        return None if self._reached is None else self._reached + 1

    def close(self) -> None:
        """Do nothing: every look is a question of its own."""

    def _told(self, entry: Mapping[str, Any], position: int) -> Iterator[Change]:
        table, what, at = str(entry.get("ns")), entry.get("o") or {}, entry.get("wall")
        at_us = round(at.timestamp() * 1e6) if at is not None else (position >> _TICKS) * 1_000_000
        match entry.get("op"):
            case "c":
                yield from self._command(what, table.split(".", 1)[0], position, at_us)
            case _ if table not in self._tables:
                return
            case "i":
                yield Change(position, table, "insert", what["_id"], what, at_us)
            case "d":
                yield Change(position, table, "delete", what["_id"], None, at_us)
            case "u":
                whole = what.get("$set", {}) if "$v" in what else what
                found = whole if "_id" in whole else None
                yield Change(position, table, "update", (entry.get("o2") or whole)["_id"], found, at_us)

    def _command(self, what: Mapping[str, Any], database: str, position: int, at_us: int) -> Iterator[Change]:
        match what:
            case {"applyOps": [*entries]}:
                for each in entries:
                    yield from self._told(each, position)
            case {"drop": name} if f"{database}.{name}" in self._tables:
                yield Change(position, f"{database}.{name}", "truncate", at_us=at_us)
            case {"dropDatabase": _}:
                for each in self._tables:
                    if each.split(".", 1)[0] == database:
                        yield Change(position, each, "truncate", at_us=at_us)
            case {"renameCollection": old, "to": new}:
                if old in self._tables:
                    yield Change(position, old, "truncate", at_us=at_us)
                if new in self._tables:
                    yield Change(position, new, "replaced", at_us=at_us)


def follower_of(client: pymongo.MongoClient[Document], tables: Collection[str], via: str | None) -> Follower:
    """Return what follows a server: its change streams, or its oplog where it has none or ``via`` says so."""
    if via not in (None, "streams", "oplog"):
        raise InvalidInputError("the option via is streams or oplog", found=via, kind="bad_option")
    if via != "oplog" and has_streams(client):
        return StreamFollower(client, tables)
    if via != "streams" and has_oplog(client):
        return OplogFollower(client, tables)
    raise InvalidInputError(
        "the server offers no change streams and has no oplog: run it as a replica set (also one of a single server)",
        kind="no_change_streams",
    )
