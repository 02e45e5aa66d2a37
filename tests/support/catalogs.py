"""Build the small values that catalog tests commit, and open catalogs of every store.

It does not assert anything.
"""

from __future__ import annotations

import itertools
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pyarrow as pa
import pytest

from tidelake.catalog.protocol import Catalog, Pending, StepHook, new_id, no_hook
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.errors import CommitUnknownError, StorageError
from tidelake.model.schema import Schema
from tidelake.model.snapshot import (
    Action,
    AddExtent,
    AppendHot,
    Commit,
    Extent,
    HotBatch,
    Receipt,
    Scope,
    Snapshot,
    coverage_keys_of,
)
from tidelake.scan.hot import hot_payload

SCHEMA = Schema.of({"ts": "timestamp", "service": "string", "level": "long", "load": "real"})
SQL_STORES = ("sqlite", "postgres")


class Ticking:
    """A clock that moves a little each time it is read, and further when told."""

    def __init__(self, now_us: int = 1_000_000) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        self.now_us += 10
        return self.now_us


def place_of(store: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """Return where a new catalog of a store is to be."""
    if store == "sqlite":
        return str(folder / "catalog.sqlite")
    return fresh_schema(request.getfixturevalue("postgres"))


def fresh_schema(server: str) -> str:
    """Return the address of an empty schema of a PostgreSQL server: as good as a database, a hundred times faster."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server}?options=-csearch_path%3D{name}"


def open_sql(where: str, *, clock: Callable[[], int] | None = None, at: StepHook = no_hook) -> SqlCatalog:
    """Open a SQL catalog, by default with a ticking clock."""
    return SqlCatalog(where, clock=clock or Ticking(), at=at)


_numbers = itertools.count()


def extent(
    rows: int = 10,
    *,
    times: tuple[int | None, int | None] = (0, 999),
    stats: Mapping[str, Any] | None = None,
    version: int = 1,
    level: int = 0,
    coverage_key: str | None = None,
) -> Extent:
    """Make an extent with an id of its own."""
    own = new_id()
    return Extent(
        id=own,
        key=f"data/{own}.tlm",
        format="tlm",
        byte_size=rows * 100,
        row_count=rows,
        block_count=1,
        min_ts_ns=times[0],
        max_ts_ns=times[1],
        schema_version=version,
        column_stats=dict(stats or {}),
        present_paths=("http.status",),
        level=level,
        coverage_key=coverage_key,
    )


def hot(rows: int = 3, *, version: int = 1) -> HotBatch:
    """Make a hot batch with an id of its own."""
    payload = hot_payload(pa.record_batch({"number": pa.array([next(_numbers)] * rows, pa.int64())}))
    return HotBatch(new_id(), rows, payload, 5, 6, version)


def commit_of(scope: Scope, *actions: Action, base: int = 0, **words: Any) -> Commit:
    """Make a commit with an id of its own."""
    return Commit(new_id(), scope, base, actions, **words)


def announce(catalog: Catalog, commit: Commit) -> Commit:
    """Register the extents and the coverage that a commit adds, and give the commit."""
    keys = [action.extent.key for action in commit.actions if isinstance(action, AddExtent)]
    keys += coverage_keys_of(commit)
    if keys:
        catalog.register_pending([Pending(key, commit.scope, "test") for key in keys])
    return commit


def publish(catalog: Catalog, scope: Scope, *actions: Action, **words: Any) -> Receipt:
    """Commit actions on top of the head, as one that is alone does."""
    head = catalog.head(scope)
    commit = announce(catalog, commit_of(scope, *actions, base=head.sequence, **words))
    return catalog.commit([commit], onto=head)[0]


def append(catalog: Catalog, scope: Scope, rows: int = 10, **words: Any) -> Extent:
    """Commit one new extent and give it as it is listed."""
    added = extent(rows, **words)
    publish(catalog, scope, AddExtent(added))
    return next(listed for listed in catalog.extents(scope) if listed.id == added.id)


def append_hot(catalog: Catalog, scope: Scope, rows: int = 3) -> HotBatch:
    """Commit one new hot batch and give it as it is listed."""
    added = hot(rows)
    publish(catalog, scope, AppendHot(added))
    return next(listed for listed in catalog.hot(scope) if listed.id == added.id)


class FaultyCatalog:
    """A catalog that does what it is told wrong: lose answers, fail before doing anything, or not answer at all."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.plan: list[str] = []  # for each next commit: "ok", "before", "lost", "undone"
        self.silent_receipts = 0  # how many times looking for a receipt fails
        self.commits = 0

    def commit(self, commits: Sequence[Commit], *, onto: Snapshot, rebase: bool = False) -> list[Receipt]:
        """Commit, or fail as planned."""
        self.commits += 1
        fault = self.plan.pop(0) if self.plan else "ok"
        if fault == "before":
            raise StorageError("the catalog cannot be reached", kind="connection")
        if fault == "undone":
            raise CommitUnknownError("the answer to a commit was lost")
        receipts = self._catalog.commit(commits, onto=onto, rebase=rebase)
        if fault == "lost":
            raise CommitUnknownError("the answer to a commit was lost")
        return receipts

    def receipt(self, scope: Scope, *, commit_id: str | None = None, key: str | None = None) -> Receipt | None:
        """Look, or fail as planned."""
        if self.silent_receipts:
            self.silent_receipts -= 1
            raise StorageError("the catalog cannot be reached", kind="connection")
        return self._catalog.receipt(scope, commit_id=commit_id, key=key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


class PostgresProxy:
    """A door to a PostgreSQL server that can pass a COMMIT on and hang up on the client, once each time it is told."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._target = (parts.hostname or "", parts.port or 5432)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = urlunsplit(parts._replace(netloc=f"postgres@127.0.0.1:{self._door.getsockname()[1]}"))
        self.will_cut = False  # at the next COMMIT: the server commits, the client hears nothing
        self.delay_s = 0.0  # how much later the server gets it
        self._cuts = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._door.close()

    def at(self, point: str) -> None:
        """Be the catalog's hook, to know that the next message is a COMMIT."""
        if point == "transaction.written" and self.will_cut:
            self.will_cut, self._cuts = False, True

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                server = socket.create_connection(self._target)
                for pump in (self._to_server, self._to_client):
                    threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self._cuts:
                    self._cuts = False
                    client.shutdown(socket.SHUT_RDWR)
                    time.sleep(self.delay_s)
                    server.sendall(data)
                    time.sleep(0.2)
                    break
                server.sendall(data)
        server.close()

    def _to_client(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        client.close()
