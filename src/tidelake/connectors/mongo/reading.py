"""Read collections of MongoDB: a copy of each, then every change.

1. Where the source stands is looked up, then collections are copied as they are read; changes from before the copy
   began follow, and are the newer ones, so that the latest is right once they are in.
2. Changes come from a change stream or the oplog, see ``following``. What one cluster time has is one transaction.

It does not commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pymongo
from pymongo.errors import PyMongoError

from tidelake.catalog.protocol import now_us
from tidelake.connectors.checking import RESERVED, check_tables, lost
from tidelake.connectors.definition import PK, SourceDefinition
from tidelake.connectors.mongo.connecting import Document, connect, told_apart
from tidelake.connectors.mongo.documents import ID, columns_of, keys_of
from tidelake.connectors.mongo.following import (
    OPLOG,
    Change,
    Follower,
    OplogFollower,
    StreamFollower,
    follower_of,
    position_of,
)
from tidelake.connectors.protocol import (
    DELETE,
    Alteration,
    ChangeBatch,
    Effect,
    SourceTable,
    TableChanges,
    TableCopy,
    TableShape,
)
from tidelake.connectors.system_columns import Places, changes_of, copied_rows, truncation_of
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.model.schema import DataType

CHANGES_AT_ONCE = 20_000
COPIED_AT_ONCE = 5_000
SYSTEM = ("admin", "local", "config")
_SECOND = 1 << 32


class MongoSource:
    """A server of MongoDB, or of its protocol, as a source of changes."""

    def __init__(self, definition: SourceDefinition) -> None:
        self._definition = definition
        self._opened: pymongo.MongoClient[Document] | None = None
        self._follower: Follower | None = None
        self._looks: Iterator[Change | None] | None = None
        self._next: Change | None = None  # which was read, and is of another cluster time than those before it
        self._at: int | None = None

    def validate(self) -> None:
        """Raise InvalidInputError if the server tells nobody what changes."""
        with told_apart():
            self._following().close()
            self._follower = None

    def discover(self, tables: Sequence[str] | None = None) -> list[SourceTable]:
        """Name collections, which have the columns that their documents have."""
        with told_apart():
            there = list(self._collections())
        if tables is None:
            return [_table(name, {}) for name in there]
        check_tables(tables, dict.fromkeys(there, (ID,)))
        return [_table(name, {}) for name in tables]

    def begin(self, positions: Mapping[str, int], told: int | None) -> None:
        """See that the server still has what was not read yet."""
        self._at = max(min(positions.values()), told or 0) if positions else None
        if self._at is None:
            return
        with told_apart():
            follower = self._following()
            if isinstance(follower, OplogFollower):
                first = follower.first()
                if first is not None and first > self._at > 1:  # at 1, there was none yet when we began
                    raise self._lost("the oplog was overwritten before it was read")
            if self.now() + 1 < max(positions.values()):
                raise self._lost("the source is older than what was read from it, as after a restore", "source_older")

    def snapshot(self, tables: Sequence[SourceTable]) -> Iterator[TableCopy]:
        """Copy collections."""
        with told_apart():
            position = self.now() + 1
            self._at = position if self._at is None else min(self._at, position)
        for table in tables:
            yield TableCopy(table, position, self._rows(table, position))

    def now(self) -> int:
        """Return the cluster time that the source has reached."""
        with told_apart():
            if isinstance(self._following(), StreamFollower):
                answer = self._client().admin.command("ping")
                if (time := answer.get("operationTime")) is not None:
                    return position_of(time)
            found = self._client().local[OPLOG].find_one({}, sort=[("$natural", -1)])
            return 0 if found is None else position_of(found["ts"])

    def stream(self, position: int | None) -> ChangeBatch | None:
        """Return the next changes, as many as some number, of whole cluster times."""
        if self._at is None:
            return None
        try:
            with told_apart():
                found = self._read(CHANGES_AT_ONCE)
        except NotFoundError as error:
            raise self._lost(str(error)) from error
        if not found:
            reached = self._following().reached()
            if reached is not None and reached - self._at > 30 * _SECOND:  # half a minute
                self._at = reached
                return ChangeBatch([], self._at)
            return None
        self._at = found[-1].position + 1
        last = found[-1].at_us
        altered = [Alteration(each.table, each.position, Effect("rows")) for each in found if each.op == "replaced"]
        with told_apart():
            changes = [piece for name in self._definition.tables for piece in self._pieces(name, found)]
        return ChangeBatch(changes, self._at, last, None, altered)

    def shape(self, table: str) -> TableShape:
        """Return nothing: documents have no shape."""
        return TableShape()

    def acknowledge(self, position: int) -> None:
        """Do nothing: the server does not wait for us."""

    def forget(self) -> None:
        """Do nothing: nothing was left at the server."""

    def close(self) -> None:
        """Let go of the connections."""
        with suppress(PyMongoError):
            if self._follower is not None:
                self._follower.close()
            if self._opened is not None:
                self._opened.close()
        self._follower = self._looks = self._opened = None

    def _client(self) -> pymongo.MongoClient[Document]:
        if self._opened is None:
            self._opened = connect(self._definition.url)
        return self._opened

    def _following(self) -> Follower:
        if self._follower is None:
            via = self._definition.options.get("via")
            self._follower = follower_of(self._client(), self._definition.tables, None if via is None else str(via))
        return self._follower

    def _collections(self) -> Iterator[str]:
        try:
            own = self._client().get_default_database().name
        except PyMongoError:
            own = None
        databases = [own] if own else [name for name in self._client().list_database_names() if name not in SYSTEM]
        for database in databases:
            for name in sorted(self._client()[database].list_collection_names()):
                if not name.startswith("system."):
                    yield f"{database}.{name}"

    def _collection(self, table: str) -> Any:
        database, _, name = table.partition(".")
        return self._client()[database][name]

    def _rows(self, table: SourceTable, position: int) -> Iterator[pa.RecordBatch]:
        at_us = now_us()
        with told_apart():
            documents = iter(self._collection(table.name).find({}))
            while piece := list(islice(documents, COPIED_AT_ONCE)):
                _check(table.name, piece)
                _, columns = columns_of(piece)
                batch = pa.RecordBatch.from_arrays(
                    [array for _, array in columns], schema=pa.schema([field for field, _ in columns])
                )
                keys = keys_of(each[ID] for each in piece)
                yield copied_rows(batch, keys, position, at_us, epoch=self._definition.epoch)

    def _read(self, most: int) -> list[Change]:
        """Read changes: of whole cluster times, and up to a collection that took the place of another."""
        if self._looks is None:
            assert self._at is not None
            self._looks = self._following().changes(self._at)
        found = [] if self._next is None else [self._next]
        self._next = None
        for change in self._looks:
            if change is None:
                break
            is_apart = bool(found) and change.position != found[-1].position
            if is_apart and (len(found) >= most or "replaced" in (change.op, found[-1].op)):
                self._next = change
                break
            found.append(change)
        return found

    def _pieces(self, name: str, changes: Sequence[Change]) -> Iterator[TableChanges]:
        """Yield the changes of a collection as rows, parted where it was emptied."""
        numbered, numbers = list[tuple[int, Change]](), dict[int, int]()
        for each in changes:
            numbers[each.position] = number = numbers.get(each.position, -1) + 1
            if each.table == name:
                numbered.append((number, each))
        run: list[tuple[int, Change]] = []
        for number, each in numbered:
            if each.op == "truncate":
                yield from self._piece(name, run)
                run = []
                place = Places(*(np.array([value], np.int64) for value in (each.position, number, each.at_us or 0)))
                yield truncation_of(_table(name, {}), place, epoch=self._definition.epoch)
            elif each.op != "replaced":
                run.append((number, each))
        yield from self._piece(name, run)

    def _piece(self, name: str, run: list[tuple[int, Change]]) -> Iterator[TableChanges]:
        looked = [each.id for _, each in run if each.document is None and each.op != DELETE]
        known = {} if not looked else {
            keys_of([each[ID]])[0].as_py(): each for each in self._collection(name).find({ID: {"$in": looked}})
        }  # fmt: skip
        rows, kept = [], []
        for number, each in run:
            document = {ID: each.id} if each.op == DELETE else each.document
            if document is None:
                document = known.get(keys_of([each.id])[0].as_py())
            if document is not None:  # if it is none, its deletion follows
                rows.append(document)
                kept.append((each.position, number, each.at_us or 0, each.op, each.id))
        if not rows:
            return
        _check(name, rows)
        types, columns = columns_of(rows)
        places = Places(*(np.array([each[at] for each in kept], np.int64) for at in range(3)))
        keys = keys_of(each[4] for each in kept)
        ops = [each[3] for each in kept]
        yield changes_of(_table(name, types), columns, keys, ops, places, epoch=self._definition.epoch)

    def _lost(self, words: str, kind: str = "oplog_lost") -> NotFoundError:
        return lost(self._definition, words, kind)


def _table(name: str, types: Mapping[str, DataType]) -> SourceTable:
    return SourceTable(name, types, (PK,), has_fields=True)


def _check(table: str, documents: Sequence[Mapping[str, Any]]) -> None:
    for each in documents:
        if taken := [name for name in each if name.lower() in RESERVED]:
            raise InvalidInputError(
                "a synced table has this column itself", table=table, column=taken[0], kind="reserved_column"
            )
