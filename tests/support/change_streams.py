"""Answer as a replica set of MongoDB answers who follows it: a stand-in, since none of its servers can be installed.

It speaks the wire protocol over TCP (``OP_MSG``; the first ``hello`` may come as ``OP_QUERY``), keeps documents and a
log of what was done to them, and has the commands that a follower sends. Replies and events have the shapes that
MongoDB's manual and its drivers' specifications give. It does not show that MongoDB does the same: only that what is
written down is understood.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import bson
from bson import Int64, Timestamp

Document = dict[str, Any]
OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
HISTORY_LOST = {"ok": 0.0, "code": 286, "codeName": "ChangeStreamHistoryLost", "errmsg": "Resume of change stream was "
                "not possible, as the resume point may no longer be in the oplog."}  # fmt: skip


@dataclass
class Replica:
    """Documents of some collections, and what was done to them."""

    address: str = ""
    seconds: int = 1_770_000_000
    count: int = 1
    collections: dict[str, dict[Any, Document]] = field(default_factory=dict)
    log: list[Document] = field(default_factory=list)
    first: Timestamp = field(default_factory=lambda: Timestamp(0, 0))  # before it, the log was overwritten
    cursors: dict[int, tuple[int, list[Any]]] = field(default_factory=dict)  # the next event, and what it is asked for
    sockets: list[socket.socket] = field(default_factory=list)
    lock: Any = field(default_factory=threading.RLock)
    is_open: bool = False  # whether what is done is one transaction

    @property
    def now(self) -> Timestamp:
        return Timestamp(self.seconds, self.count)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Give all that is done within one cluster time."""
        with self.lock:
            self.count += 1
            self.is_open = True
            yield
            self.is_open = False

    def pass_time(self, seconds: int) -> None:
        with self.lock:
            self.seconds, self.count = self.seconds + seconds, 1

    def insert(self, table: str, *documents: Document) -> None:
        for each in documents:
            with self.lock:
                self.collections.setdefault(table, {})[each["_id"]] = each
                self._note(table, "insert", each["_id"], fullDocument=dict(each))

    def update(self, table: str, id: Any, **values: Any) -> None:
        with self.lock:
            self.collections[table][id] = {**self.collections[table][id], **values}
            self._note(table, "update", id, updateDescription={"updatedFields": values, "removedFields": []})

    def replace(self, table: str, id: Any, **values: Any) -> None:
        with self.lock:
            self.collections[table][id] = {"_id": id, **values}
            self._note(table, "replace", id, fullDocument={"_id": id, **values})

    def delete(self, table: str, id: Any) -> None:
        with self.lock:
            del self.collections[table][id]
            self._note(table, "delete", id)

    def drop(self, table: str) -> None:
        with self.lock:
            self.collections.pop(table, None)
            self._note(table, "drop")

    def drop_database(self, name: str) -> None:
        with self.lock:
            for table in [each for each in self.collections if each.split(".", 1)[0] == name]:
                self.drop(table)
            self._note(name, "dropDatabase")

    def rename(self, table: str, to: str) -> None:
        with self.lock:
            self.collections[to] = self.collections.pop(table)
            self._note(table, "rename", to=_namespace(to))

    def forget(self) -> None:
        """Overwrite the log, up to now."""
        with self.lock:
            self.count += 1
            self.first = self.now

    def cut(self) -> None:
        """Close all connections, and with them their cursors."""
        with self.lock:
            self.cursors.clear()
            for each in self.sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self.sockets.clear()

    def _note(self, table: str, op: str, id: Any = None, **more: Any) -> None:
        if not self.is_open:
            self.count += 1
        event: Document = {"_id": self._token(len(self.log)), "operationType": op, "clusterTime": self.now,
                           "wallTime": datetime.fromtimestamp(self.seconds, UTC), "ns": _namespace(table)}  # fmt: skip
        self.log.append({**event, **({} if id is None else {"documentKey": {"_id": id}}), **more})

    def _token(self, number: int | None = None) -> Document:
        """Return a token: a cluster time, as a key that sorts, and what else there is to tell events apart.

        Without an event it is a high-water mark, which sorts before the events of its time.
        """
        rest = "2B0229296E04" if number is None else f"2B042C0100296E5A{number:08X}04"
        return {"_data": f"82{self.seconds:08X}{self.count:08X}{rest}"}

    def answer(self, asked: Document) -> Document:
        """Answer a command."""
        name = next(iter(asked))
        with self.lock:
            known = getattr(self, f"_{name.lower()}", None)
            if known is None:
                return {"ok": 0.0, "code": 59, "codeName": "CommandNotFound", "errmsg": f"no such command: '{name}'"}
            return {"ok": 1.0, "operationTime": self.now, **known(asked)}

    def _hello(self, asked: Document) -> Document:
        here = {"setName": "rs0", "hosts": [self.address], "primary": self.address, "me": self.address}
        sizes = {"maxBsonObjectSize": 16 << 20, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000}
        is_primary = {"ismaster": True, "isWritablePrimary": True, "secondary": False, "helloOk": True}
        return {**is_primary, **here, **sizes, "minWireVersion": 0, "maxWireVersion": 21, "readOnly": False}

    _ismaster = _hello

    def _ping(self, asked: Document) -> Document:
        return {}

    _killcursors = _endsessions = _ping

    def _listdatabases(self, asked: Document) -> Document:
        return {"databases": [{"name": name} for name in sorted({each.split(".")[0] for each in self.collections})]}

    def _listcollections(self, asked: Document) -> Document:
        found = [each.split(".", 1)[1] for each in self.collections if each.split(".")[0] == asked["$db"]]
        return _cursor(f"{asked['$db']}.$cmd.listCollections", [{"name": name, "type": "collection"} for name in found])

    def _find(self, asked: Document) -> Document:
        table = f"{asked['$db']}.{asked['find']}"
        wanted = asked.get("filter", {}).get("_id", {}).get("$in")
        held = self.collections.get(table, {})
        return _cursor(table, [each for id, each in held.items() if wanted is None or id in wanted])

    def _aggregate(self, asked: Document) -> Document:
        first, *rest = asked["pipeline"]
        told = first["$changeStream"]
        assert told.get("allChangesForCluster")
        start = told.get("startAtOperationTime", self.now)
        after = (told.get("resumeAfter") or told.get("startAfter") or {}).get("_data")
        if after is not None:  # as when a driver goes on by itself, after a connection was cut
            start = Timestamp(int(after[2:10], 16), int(after[10:18], 16))
        if start < self.first:
            return HISTORY_LOST
        at = sum(each["clusterTime"] < start if after is None else each["_id"]["_data"] <= after for each in self.log)
        self.cursors[number := len(self.cursors) + 1 + self.count] = (at, [each["$match"] for each in rest])
        return {"cursor": {**_cursor("admin.$cmd.aggregate", [], number)["cursor"], **self._after()}}

    def _getmore(self, asked: Document) -> Document:
        number = int(asked["getMore"])
        if number not in self.cursors:
            return {"ok": 0.0, "code": 43, "codeName": "CursorNotFound", "errmsg": f"cursor id {number} not found",
                    "errorLabels": ["ResumableChangeStreamError"]}  # fmt: skip
        at, matches = self.cursors[number]
        found = [self._looked_up(each) for each in self.log[at:] if all(_matches(each, words) for words in matches)]
        self.cursors[number] = (len(self.log), matches)
        batch = {"id": Int64(number), "ns": "admin.$cmd.aggregate", "nextBatch": found}
        return {"cursor": {**batch, **self._after()}}

    def _after(self) -> Document:
        marks = [self._token(), *(each["_id"] for each in self.log[-1:])]
        return {"postBatchResumeToken": max(marks, key=lambda each: str(each["_data"]))}

    def _looked_up(self, event: Document) -> Document:
        if event["operationType"] != "update":
            return event
        table = ".".join(event["ns"].values())
        return {**event, "fullDocument": self.collections.get(table, {}).get(event["documentKey"]["_id"])}


@contextmanager
def change_stream_server() -> Iterator[tuple[str, Replica]]:
    """Run the stand-in on loopback, and yield its address and what it holds."""
    replica = Replica()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with replica.lock:
                replica.sockets.append(self.request)
            with contextlib.suppress(OSError, EOFError):
                while True:
                    self.request.sendall(_replied(self.request, replica))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, allow_reuse_address = True, True

    with Server(("127.0.0.1", 0), Handler) as server:
        replica.address = f"127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"mongodb://{replica.address}/?directConnection=true", replica
        finally:
            server.shutdown()
            replica.cut()


def _replied(connection: socket.socket, replica: Replica) -> bytes:
    size, request, _, code = struct.unpack("<iiii", _read(connection, 16))
    body = _read(connection, size - 16)
    if code == OP_QUERY:
        place = body.index(b"\0", 4) + 9
        found = bson.encode(replica.answer(bson.decode(body[place:])))
        return struct.pack("<iiiiiqii", 36 + len(found), 0, request, OP_REPLY, 8, 0, 0, 1) + found
    assert code == OP_MSG
    assert body[4] == 0, "one document, as commands without sequences have"
    (length,) = struct.unpack_from("<i", body, 5)
    found = bson.encode(replica.answer(bson.decode(body[5 : 5 + length])))
    return struct.pack("<iiiiIB", 21 + len(found), 0, request, OP_MSG, 0, 0) + found


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _cursor(namespace: str, batch: list[Document], number: int = 0) -> Document:
    return {"cursor": {"id": Int64(number), "ns": namespace, "firstBatch": batch}}


def _namespace(table: str) -> Document:
    database, _, name = table.partition(".")
    return {"db": database, "coll": name} if name else {"db": database}


def _matches(event: Mapping[str, Any], words: Mapping[str, Any]) -> bool:
    """Whether an event has all values that are wanted, by paths, or those of one of several."""
    if "$or" in words:
        return any(_matches(event, each) for each in words["$or"])
    for path, wanted in words.items():
        found: Any = event
        for step in path.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None
        if found != wanted:
            return False
    return True
