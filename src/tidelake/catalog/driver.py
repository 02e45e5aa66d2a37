"""Run prepared statements on SQLite or PostgreSQL, and say plainly what went wrong.

Statements are SQLAlchemy expressions, turned into the driver's text once and then run on the driver itself: ten times
less work for each than going through the toolkit, and a commit is ten of them.

A transaction is short and waits for nothing but the database. A writing transaction on SQLite takes the write lock at
once; a reading one sees a single state. A broken connection is replaced when a transaction begins; when one breaks
later nothing was committed, unless COMMIT itself had no answer, which is CommitUnknownError.

It does not know what the statements mean.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import (
    URL,
    ColumnElement,
    Dialect,
    Engine,
    PoolProxiedConnection,
    Text,
    bindparam,
    create_engine,
    make_url,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql import ClauseElement, Join
from sqlalchemy.types import NullType

from tidelake.catalog.protocol import At, nothing_at
from tidelake.errors import CommitUnknownError, CorruptError, InvalidInputError, StorageError, TidelakeError

BUSY_TIMEOUT_S = 60.0  # a writer waits this long for its turn; each turn takes about a millisecond
BUSY_PAUSE_S = (0.0002, 0.0015)  # between looks at a lock that another process holds
CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_S = 60  # as BUSY_TIMEOUT_S, on PostgreSQL
IDLE_TIMEOUT_S = 120  # a client that stopped inside a transaction holds others up no longer than this
POOL_SIZE = 8  # connections kept open; more are opened while more threads ask at once
CACHE_KIB = 16_384  # of pages each SQLite connection keeps

Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Mapping[str, Any]


class among(ColumnElement[Any]):
    """A column's value is in a list, given as one parameter of JSON text, so that one statement serves every length."""

    inherit_cache = True
    type = NullType()  # a Boolean would make SQLite compare it with 1

    def __init__(self, column: ColumnElement[Any], name: str) -> None:
        self.column = column
        self.listed = bindparam(name, type_=Text)


@compiles(among, "sqlite")
def _among_sqlite(element: among, compiler: Any, **words: Any) -> str:
    column, listed = (compiler.process(part, **words) for part in (element.column, element.listed))
    return f"{column} IN (SELECT value FROM json_each({listed}))"


@compiles(among, "postgresql")
def _among_postgres(element: among, compiler: Any, **words: Any) -> str:
    column, listed = (compiler.process(part, **words) for part in (element.column, element.listed))
    kind = element.column.type.compile(dialect=compiler.dialect)
    each = f"SELECT CAST(jsonb_array_elements_text(CAST({listed} AS JSONB)) AS {kind})"
    return f"{column} = ANY(ARRAY({each}))"


class for_each(Join):
    """Join in the order written: SQLite keeps to it in a CROSS JOIN, and would else scan the larger side."""

    inherit_cache = True


@compiles(for_each)
def _for_each(element: for_each, compiler: Any, **words: Any) -> str:
    words["asfrom"] = True
    return " CROSS JOIN ".join(compiler.process(side, **words) for side in (element.left, element.right))


_Texts: TypeAlias = weakref.WeakKeyDictionary[ClauseElement, tuple[str, Parameters]]


class Violation(Exception):
    """A unique key is taken; the catalog says what that means."""


class Database:
    """A pool of connections to one database; safe to share between threads, and across a fork."""

    def __init__(self, where: str | Path, *, at: At = nothing_at) -> None:
        self.name, self._engine = _engine_of(where)
        # All SQLite databases are alike, and lakes are opened often: what one compiled, the next need not.
        self._texts: _Texts = _sqlite_texts if self.is_sqlite else weakref.WeakKeyDictionary()
        self._at = at
        self._writer = threading.Lock()
        _opened.add(self)

    @property
    def dialect(self) -> Dialect:
        return self._engine.dialect

    @property
    def is_sqlite(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """See one state of the database through several statements."""
        begin = "BEGIN" if self.is_sqlite else "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        with self._connection(begin) as connection:
            yield Transaction(self, connection)
            connection.execute("COMMIT")

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[Transaction]:
        """Change the database in one step at the end of the block, or not at all if it raises.

        What is not durable may be undone by a power failure, of this machine with all its processes: SQLite then does
        not wait for the disk. PostgreSQL serves other machines and always waits.
        """
        eager = self.is_sqlite and not durable
        begin = "BEGIN IMMEDIATE" if self.is_sqlite else "BEGIN"
        with self._turn(), self._connection(begin, eager=eager) as connection:
            self._at("transaction.begun")
            yield Transaction(self, connection)
            self._at("transaction.written")
            try:
                answer = connection.execute("COMMIT")
                self._at("transaction.committed")
            except BaseException as error:
                connection.close()  # whatever became of it ends now
                if not isinstance(error, Exception):
                    raise
                raise CommitUnknownError("the answer to a commit was lost", catalog=self.name, reason=error) from error
            if not self.is_sqlite and answer.statusmessage != "COMMIT":
                raise StorageError("the catalog did not commit", catalog=self.name, answer=answer.statusmessage)

    def query(self, statement: ClauseElement, parameters: Parameters | None = None) -> list[Row]:
        """Run one reading statement on its own."""
        try:
            with self._connection(None) as connection:
                return Transaction(self, connection).rows(statement, parameters)
        except StorageError as error:
            if error.kind != "connection":
                raise
        self._engine.dispose()  # one that died in the pool shows at its first statement: its neighbours died too
        with self._connection(None) as connection:
            return Transaction(self, connection).rows(statement, parameters)

    def prepared(self, statement: ClauseElement) -> tuple[str, Parameters]:
        """Give a statement's text for the driver, and the values that are part of it."""
        found = self._texts.get(statement)
        if found is None:
            compiled = statement.compile(dialect=self.dialect)
            constants = {name: value for name, value in compiled.params.items() if value is not None}
            found = self._texts[statement] = str(compiled), constants
        return found

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def forget_connections(self) -> None:
        """Leave the parent's connections alone after a fork."""
        self._engine.dispose(close=False)
        self._writer = threading.Lock()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let this process's threads queue for SQLite's one write lock, rather than poll for it."""
        if not self.is_sqlite:
            yield
            return
        if not self._writer.acquire(timeout=BUSY_TIMEOUT_S):
            raise StorageError("the catalog is busy", catalog=self.name, kind="busy")
        try:
            yield
        finally:
            self._writer.release()

    @contextmanager
    def _connection(self, begin: str | None, *, eager: bool = False) -> Iterator[Any]:
        """Lend the driver's connection, with a transaction begun; translate its errors."""
        proxy, connection = self._begun(begin, eager=eager)
        try:
            yield connection
        except BaseException as error:
            if not isinstance(error, Exception):
                connection.close()  # interrupted: nobody knows inside which call
            if isinstance(error, self._driver.Error):
                raise self._translated(error) from error
            raise
        finally:
            self._put_back(proxy, connection, eager=eager)

    def _begun(self, begin: str | None, *, eager: bool) -> tuple[PoolProxiedConnection, Any]:
        """Begin on a connection that is alive: one that died in the pool shows here."""
        for may_retry in (True, False):
            try:
                proxy = self._engine.raw_connection()
            except (DBAPIError, self._driver.Error) as error:
                raise self._translated(getattr(error, "orig", error)) from error
            connection: Any = proxy.driver_connection
            try:
                if eager:
                    connection.execute("PRAGMA synchronous = NORMAL")
                if begin == "BEGIN IMMEDIATE":
                    _take_write_lock(connection)
                elif begin is not None:
                    connection.execute(begin)
                return proxy, connection
            except self._driver.Error as error:
                died = _is_closed(connection)
                self._put_back(proxy, connection, eager=eager)
                if not (died and may_retry):
                    raise self._translated(error) from error
                self._engine.dispose()
        raise AssertionError("the second try returns or raises")

    def _put_back(self, proxy: PoolProxiedConnection, connection: Any, *, eager: bool) -> None:
        """Return a connection to the pool outside of any transaction, or throw it away if that cannot be."""
        try:
            if _in_transaction(connection):
                connection.execute("ROLLBACK")
            if eager and not _is_closed(connection):
                connection.execute("PRAGMA synchronous = FULL")
        except self._driver.Error:
            connection.close()
        if _is_closed(connection):
            proxy.invalidate()
        else:
            proxy.close()

    @property
    def _driver(self) -> Any:
        return self._engine.dialect.dbapi

    def _translated(self, error: BaseException) -> Exception:
        if isinstance(error, self._driver.IntegrityError):
            return Violation(str(error))
        reason = " ".join(str(error).split())
        if isinstance(error, sqlite3.Error):
            return _sqlite_error(error, self.name, reason)
        return _postgres_error(error, self.name, reason)


class Transaction:
    """Statements inside one transaction."""

    def __init__(self, database: Database, connection: Any) -> None:
        self._database = database
        self._connection = connection

    def rows(self, statement: ClauseElement, parameters: Parameters | None = None) -> list[Row]:
        """Run a statement and give its rows."""
        rows: list[Row] = self._execute(statement, parameters).fetchall()
        return rows

    def change(self, statement: ClauseElement, parameters: Parameters | None = None) -> int:
        """Run a statement and say how many rows it changed."""
        changed: int = self._execute(statement, parameters).rowcount
        return changed

    def change_many(self, statement: ClauseElement, parameters: Sequence[Parameters]) -> int:
        """Run a statement for each set of values and say how many rows that changed."""
        if len(parameters) <= 1:
            return self.change(statement, parameters[0]) if parameters else 0
        text, constants = self._database.prepared(statement)
        cursor = self._connection.cursor()
        cursor.executemany(text, [{**constants, **each} for each in parameters] if constants else parameters)
        changed: int = cursor.rowcount
        return changed

    @contextmanager
    def sent_together(self) -> Iterator[None]:
        """Send the statements of a block without waiting for each; what they changed cannot be asked in between."""
        if isinstance(self._connection, sqlite3.Connection):
            yield
        else:
            with self._connection.pipeline():
                yield

    def run_text(self, text: str, parameters: Parameters | None = None) -> list[Row]:
        """Run what is already the driver's text."""
        cursor = self._connection.execute(text, parameters or {})
        rows: list[Row] = cursor.fetchall() if cursor.description else []
        return rows

    def _execute(self, statement: ClauseElement, parameters: Parameters | None) -> Any:
        text, constants = self._database.prepared(statement)
        values = {**constants, **(parameters or {})} if constants else parameters or {}
        return self._connection.execute(text, values)


def _engine_of(where: str | Path) -> tuple[str, Engine]:
    if isinstance(where, Path) or "://" not in where:
        return str(where), _sqlite_engine(str(where))
    try:
        url = make_url(where)
        if url.get_backend_name() == "postgresql":
            return url.render_as_string(hide_password=True), _postgres_engine(url)
    except ImportError as error:
        raise InvalidInputError("PostgreSQL needs the extra tidelake[postgres]", reason=error) from error
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise InvalidInputError("not a catalog's address", address=_without_password(where)) from error
    raise InvalidInputError("a catalog is a folder, postgresql://… or log:…", address=_without_password(where))


def _sqlite_engine(path: str) -> Engine:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        _patiently(connection, "PRAGMA journal_mode = WAL")  # of a new file, SQLite does not wait for others here
        for pragma in ("synchronous = FULL", "fullfsync = ON", f"cache_size = -{CACHE_KIB}"):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    return create_engine(
        "sqlite://",
        creator=connect,
        paramstyle="named",
        poolclass=QueuePool,
        pool_size=POOL_SIZE,
        max_overflow=-1,
        pool_reset_on_return=None,
    )


def _take_write_lock(connection: sqlite3.Connection) -> None:
    """Begin to write. SQLite itself would look again after up to 100 ms, fifty commits of somebody else's."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        _patiently(connection, "BEGIN IMMEDIATE")
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Execute a statement as soon as nobody is in its way."""
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline_s:
                raise
        time.sleep(random.uniform(*BUSY_PAUSE_S))


def _postgres_engine(url: URL) -> Engine:
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


def _in_transaction(connection: Any) -> bool:
    if isinstance(connection, sqlite3.Connection):
        return not _is_closed(connection) and connection.in_transaction
    return not connection.closed and connection.info.transaction_status != 0  # 0 is idle


def _is_closed(connection: Any) -> bool:
    if not isinstance(connection, sqlite3.Connection):
        return bool(connection.closed)
    try:
        return connection.total_changes < 0
    except sqlite3.ProgrammingError:
        return True


def _sqlite_error(error: sqlite3.Error, name: str, reason: str) -> TidelakeError:
    code = getattr(error, "sqlite_errorname", "")
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StorageError("the catalog is busy", catalog=name, reason=reason, kind="busy")
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return CorruptError("the catalog is not a sound SQLite database", catalog=name, reason=reason)
    if code.startswith("SQLITE_READONLY"):
        return StorageError("the catalog cannot be written", catalog=name, reason=reason, kind="read_only")
    if code.startswith("SQLITE_CANTOPEN"):
        return StorageError("the catalog cannot be opened", catalog=name, reason=reason, kind="cannot_open")
    return StorageError("the catalog failed", catalog=name, reason=reason, kind="failed")


def _postgres_error(error: BaseException, name: str, reason: str) -> TidelakeError:
    state = getattr(error, "sqlstate", None) or ""
    if state in ("40001", "40P01", "55P03"):  # serialization failure, deadlock, lock timeout
        return StorageError("the catalog is busy", catalog=name, reason=reason, kind="busy")
    if "FATAL:" in reason:  # a login that fails carries no state
        return StorageError("the catalog refused the connection", catalog=name, reason=reason, kind="refused")
    if not state or state.startswith(("08", "57")):
        return StorageError("the catalog cannot be reached", catalog=name, reason=reason, kind="connection")
    return StorageError("the catalog failed", catalog=name, reason=reason, state=state, kind="failed")


def _without_password(where: str) -> str:
    scheme, _, rest = where.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


_opened: weakref.WeakSet[Database] = weakref.WeakSet()
_sqlite_texts: _Texts = weakref.WeakKeyDictionary()


def _after_fork() -> None:
    for database in list(_opened):
        database.forget_connections()


os.register_at_fork(after_in_child=_after_fork)
