"""Keep connections to a catalog's database open between transactions.

SQLite's are kept here, so that looking into a lake needs no toolkit; PostgreSQL's by SQLAlchemy. It does not run
statements.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tidelake.errors import InvalidInputError

if TYPE_CHECKING:
    from sqlalchemy import URL, Dialect, Engine, PoolProxiedConnection

BUSY_PAUSE_S = (0.0002, 0.0015)  # between looks at a lock that another process holds
CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_S = 60  # as a writer's patience with SQLite, on PostgreSQL
IDLE_TIMEOUT_S = 120  # a client that stopped inside a transaction holds others up no longer than this
POOL_SIZE = 8  # connections kept open; more are opened while more threads ask at once
CACHE_KIB = 16_384  # of pages each SQLite connection keeps


class Pool(Protocol):
    """Connections that are kept open between transactions."""

    driver: Any

    def take(self) -> Any:
        """Give a connection that nobody else has; the driver's error if there can be none."""
        ...

    def put(self, connection: Any) -> None:
        """Take a connection back; one that is closed is let go of."""
        ...

    def empty(self) -> None:
        """Close those that nobody has."""
        ...

    def forget(self) -> None:
        """Let go of those of a parent process without a word to the database."""
        ...

    def dialect(self) -> Dialect:
        """Give what SQLAlchemy's expressions are compiled with."""
        ...


def pool_of(where: str | Path, *, busy_timeout_s: float) -> tuple[str, Pool]:
    """Name a catalog's database and give the pool of its connections; none is opened yet."""
    if isinstance(where, Path) or "://" not in where:
        return str(where), _SqlitePool(str(where), busy_timeout_s)
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        url = make_url(where)
        if url.get_backend_name() == "postgresql":
            return url.render_as_string(hide_password=True), _PostgresPool(_postgres_engine(url))
    except ImportError as error:
        raise InvalidInputError("PostgreSQL needs the extra tidelake[postgres]", reason=error) from error
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise InvalidInputError("not a catalog's address", address=_without_password(where)) from error
    raise InvalidInputError("a catalog is a folder, postgresql://… or log:…", address=_without_password(where))


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
    """Say whether a connection has ended, by either side's doing."""
    if not isinstance(connection, sqlite3.Connection):
        return bool(connection.closed)
    try:
        return connection.total_changes < 0
    except sqlite3.ProgrammingError:
        return True


class _SqlitePool:
    """Connections to a file."""

    driver: Any = sqlite3

    def __init__(self, path: str, busy_timeout_s: float) -> None:
        self._path, self._busy_timeout_s = path, busy_timeout_s
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._inherited: list[sqlite3.Connection] = []  # left alone: SQLite must not be carried across a fork

    def take(self) -> sqlite3.Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        connection = sqlite3.connect(
            self._path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            # Of a new file, SQLite does not wait for others here.
            patiently(connection, "PRAGMA journal_mode = WAL", within_s=self._busy_timeout_s)
            for pragma in ("synchronous = FULL", "fullfsync = ON", f"cache_size = -{CACHE_KIB}"):
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
        return connection

    def put(self, connection: sqlite3.Connection) -> None:
        if is_closed(connection):
            return
        with self._lock:
            if len(self._idle) < POOL_SIZE:
                self._idle.append(connection)
                return
        connection.close()

    def empty(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def forget(self) -> None:
        self._inherited += self._idle
        self._idle, self._lock = [], threading.Lock()

    def dialect(self) -> Dialect:
        from sqlalchemy.dialects.sqlite import dialect

        found: Dialect = dialect(paramstyle="named")
        return found


class _PostgresPool:
    """Connections to a server, kept by SQLAlchemy."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lent: dict[int, PoolProxiedConnection] = {}
        self.driver: Any = engine.dialect.loaded_dbapi

    def take(self) -> Any:
        from sqlalchemy.exc import DBAPIError

        try:
            proxy = self._engine.raw_connection()
        except DBAPIError as error:
            raise error.orig or error from error
        connection = proxy.driver_connection
        self._lent[id(connection)] = proxy
        return connection

    def put(self, connection: Any) -> None:
        proxy = self._lent.pop(id(connection))
        if is_closed(connection):
            proxy.invalidate()
        else:
            proxy.close()

    def empty(self) -> None:
        self._engine.dispose()

    def forget(self) -> None:
        self._engine.dispose(close=False)

    def dialect(self) -> Dialect:
        return self._engine.dialect


def _postgres_engine(url: URL) -> Engine:
    from sqlalchemy import create_engine

    limits = {"lock_timeout": LOCK_TIMEOUT_S, "idle_in_transaction_session_timeout": IDLE_TIMEOUT_S}
    options = [f"-c {name}={seconds}s" for name, seconds in limits.items()]
    if given := url.query.get("options"):  # such as -csearch_path=…, for several lakes in one database
        options += [given] if isinstance(given, str) else given
    return create_engine(
        url.set(drivername="postgresql+psycopg").difference_update_query(["options"]),
        connect_args={
            "autocommit": True,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "tidelake",
            "options": " ".join(options),
        },
        use_native_hstore=False,
        pool_size=POOL_SIZE,
        max_overflow=-1,
        pool_reset_on_return=None,
    )


def _without_password(where: str) -> str:
    scheme, _, rest = where.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
