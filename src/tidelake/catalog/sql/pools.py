"""Open connections to a catalog's database, and keep them between transactions.

No connection waits for a silent server longer than a share of the deadline, so that a server that stopped is told from
one that works.

A SQLite catalog may lie where nothing may be written: on a read-only disk, or without permission. While a writer has it
open, its write-ahead log and the index of it lie beside the file, and SQLite reads all three. Otherwise the file is all
there is, and it is read as one that does not change. A writer that comes meanwhile makes a log before it changes the
file, so such a connection is used only while there is none and the file is as it was; what was read across a change is
not believed. It does not run statements.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tidelake.errors import InvalidInputError, redacted

BUSY_PAUSE_S = (0.0002, 0.0015)  # between looks at a lock that another process holds
CONNECT_TIMEOUT_S = 10
SILENCE = 1 / 2  # of the deadline: how long a server may say nothing, so that there is time to ask once more
IDLE_TIMEOUT_S = 120  # a client that stopped inside a transaction holds others up no longer than this
POOL_SIZE = 8  # connections kept open; more are opened while more threads ask at once
CACHE_KIB = 16_384  # of pages each SQLite connection keeps
LOG_SUFFIX = "-wal"


class Frozen(sqlite3.Connection):
    """A connection to a file that is not expected to change."""

    path = ""
    seen: object = None


class Pool:
    """Connections that are kept open between transactions; threads may share it."""

    def __init__(self, driver: Any, connect: Callable[[], Any]) -> None:
        self.driver = driver  # the module, for its errors
        self._connect = connect
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._inherited: list[Any] = []  # left alone: a connection must not be carried across a fork

    def take(self) -> Any:
        """Return a connection that nobody else has; the driver's error if there can be none."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            if not is_changed(connection):
                return connection
            connection.close()
        return self._connect()

    def put(self, connection: Any) -> None:
        """Take a connection back; one that is closed is let go of."""
        if is_closed(connection):
            return
        with self._lock:
            if len(self._idle) < POOL_SIZE:
                self._idle.append(connection)
                return
        connection.close()

    def empty(self) -> None:
        """Close those that nobody has."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def forget(self) -> None:
        """Let go of those of a parent process without a word to the database."""
        self._inherited += self._idle
        self._idle, self._lock = [], threading.Lock()


def pool_of(where: str | Path, *, deadline_s: float) -> tuple[str, Pool]:
    """Name a catalog's database and give the pool of its connections; none is opened yet."""
    if isinstance(where, Path) or "://" not in where:
        return str(where), Pool(sqlite3, lambda: _open_sqlite(str(where), deadline_s))
    scheme, _, rest = where.partition("://")
    if scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise InvalidInputError("a catalog is a folder, postgresql://… or log:…", address=redacted(where))
    try:
        import psycopg
    except ImportError as error:
        raise InvalidInputError("PostgreSQL needs the extra tidelake[postgres]", reason=error) from error
    address = f"postgresql://{rest}"
    if rest.partition("?")[0].count("@") > 1:  # libpq would take a part of the password for the host, and repeat it
        raise InvalidInputError("write an @ inside a user or password as %40", address=where, kind="bad_address")
    try:
        told = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.Error as error:
        reason = redacted(" ".join(str(error).split()))
        # Without the cause, which repeats the address as it was given.
        raise InvalidInputError("not a catalog's address", address=redacted(where), reason=reason) from None
    return redacted(address), Pool(psycopg, lambda: _open_postgres(told, deadline_s))


def patiently(connection: sqlite3.Connection, statement: str, *, within_s: float) -> None:
    """Execute a statement as soon as nobody is in its way."""
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline_s:
                raise
        time.sleep(random.uniform(*BUSY_PAUSE_S))


def is_closed(connection: Any) -> bool:
    """Return whether a connection has ended, by either side's doing."""
    if not isinstance(connection, sqlite3.Connection):
        return bool(connection.closed)
    try:
        return connection.total_changes < 0
    except sqlite3.ProgrammingError:
        return True


def is_changed(connection: Any) -> bool:
    """Whether the file of a frozen connection is another than the one it has read."""
    if not isinstance(connection, Frozen):
        return False
    return _has_log(connection.path) or _state(connection.path) != connection.seen


def _open_sqlite(path: str, busy_timeout_s: float) -> sqlite3.Connection:
    """Open a file to read and write it, or to read it only where nothing else is permitted."""
    try:
        return _open_to_write(path, busy_timeout_s)
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorname", None) or ""
        if not code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")) or not os.path.exists(path):
            raise
        return _open_to_read(path, busy_timeout_s)


def _open_to_write(path: str, busy_timeout_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False)
    try:
        if not _has_bytes(path):  # later it would be too late, and take the write lock: see shrinking
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # Of a new file, SQLite does not wait for others here.
        patiently(connection, "PRAGMA journal_mode = WAL", within_s=busy_timeout_s)
        # What is deleted is overwritten: whoever purges a row wants it gone from the file.
        for pragma in ("synchronous = FULL", "fullfsync = ON", f"cache_size = -{CACHE_KIB}", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _open_to_read(path: str, busy_timeout_s: float) -> sqlite3.Connection:
    """Open a file that may not be written; the driver's error if its log needs somebody who may."""
    how: dict[str, Any] = {"uri": True, "timeout": busy_timeout_s, "isolation_level": None, "check_same_thread": False}
    address = f"file:{quote(os.path.abspath(path))}?mode=ro"
    if _has_log(path):
        connection: sqlite3.Connection = sqlite3.connect(address, **how)
    else:
        seen = _state(path)
        connection = still = Frozen(f"{address}&immutable=1", **how)
        still.path, still.seen = path, seen
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _has_log(path: str) -> bool:
    try:
        return os.stat(f"{path}{LOG_SUFFIX}").st_size > 0
    except OSError:
        return False


def _has_bytes(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def _state(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _open_postgres(told: dict[str, Any], deadline_s: float) -> Any:
    silence_s = deadline_s * SILENCE
    limits = {"lock_timeout": silence_s * 0.9, "idle_in_transaction_session_timeout": IDLE_TIMEOUT_S}
    options = [f"-c {name}={max(int(seconds * 1000), 1)}ms" for name, seconds in limits.items()]
    if given := told.get("options"):  # such as -csearch_path=…, for several lakes in one database
        options.append(given)
    connect_s = max(min(CONNECT_TIMEOUT_S, int(deadline_s / 4)), 2)  # libpq takes a single second for two
    ours = {"connect_timeout": connect_s, "application_name": "tidelake"}
    connection = _impatient().connect(**{**ours, **told, "options": " ".join(options)}, autocommit=True)
    connection.silence_s = silence_s
    return connection


@cache
def _impatient() -> Any:
    """Return psycopg's connection, made to end with an error when the server is silent for too long."""
    import psycopg

    class Impatient(psycopg.Connection[Any]):
        silence_s = 60.0

        def wait(self, gen: Any, *how: Any, **named: Any) -> Any:
            return super().wait(self._heard(gen), *how, **named)

        def _heard(self, gen: Any) -> Any:
            """Pass on what a wait says and hears; silence is heard too, ten times a second."""
            heard_s = time.monotonic()
            try:
                asked = next(gen)
                while True:
                    ready = yield asked
                    now_s = time.monotonic()
                    if ready:
                        heard_s = now_s
                    elif now_s - heard_s > self.silence_s:
                        self.close()  # so that nobody waits for its ROLLBACK
                        raise psycopg.OperationalError(f"the server was silent for {self.silence_s:g} s")
                    asked = gen.send(ready)
            except StopIteration as end:
                return end.value

    return Impatient
