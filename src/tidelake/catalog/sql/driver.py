"""Run prepared statements on SQLite or PostgreSQL, and say plainly what went wrong.

A statement is SQL text with ``:names``, in the words that both databases share and two more: ``column AMONG :names AS
TYPE`` takes a list as one parameter of JSON text, so that one statement serves every length, and ``FOR UPDATE`` is left
out where a writer is alone anyway. It is turned into the driver's text once.

A transaction is short and waits for nothing but the database. A writing transaction on SQLite waits for this process's
turn and then takes the write lock at once; a reading one sees a single state. A broken connection is replaced when a
transaction begins; when one breaks later nothing was committed, unless COMMIT itself had no answer, which is
CommitUnknownError. A COMMIT that SQLite refused for want of room, say, did not happen, and is told as what it is. No
wait is longer than the deadline.

It does not know what the statements mean.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from tidelake.catalog.protocol import StepHook, no_hook
from tidelake.catalog.sql.driver_errors import is_read_only, is_refused, is_taken, translated
from tidelake.catalog.sql.letters import Letter
from tidelake.catalog.sql.pools import is_changed, is_closed, patiently, pool_of
from tidelake.catalog.sql.turns import Turn
from tidelake.errors import CommitUnknownError, CorruptError, StorageError
from tidelake.objects.protocol import DEADLINE_S
from tidelake.runtime.forking import hold_for_fork, renew_after_fork

FORK_WITHIN_S = 5.0  # a fork waits so long for a transaction of another thread

Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Mapping[str, Any]

_AMONG = re.compile(r"(\S+) AMONG :(\w+) AS (\w+)")
_AMONG_SQLITE = r"\1 IN (SELECT value FROM json_each(:\2))"
_AMONG_POSTGRES = r"\1 = ANY(ARRAY(SELECT CAST(jsonb_array_elements_text(CAST(:\2 AS JSONB)) AS \3)))"
_FOR_UPDATE = re.compile(r" FOR UPDATE\b.*")
_NAMED = re.compile(r"(?<!:):([a-z]\w*)")


class Violation(CorruptError):
    """A unique key is taken; the catalog says what that means, where it can mean anything but damage."""


class Database:
    """A pool of connections to one database; safe to share between threads, and across a fork."""

    def __init__(self, where: str | Path, *, deadline_s: float = DEADLINE_S, at: StepHook = no_hook) -> None:
        self.name, self._pool = pool_of(where, deadline_s=deadline_s)
        self._deadline_s = deadline_s
        self.is_sqlite = self._pool.driver is sqlite3
        self._driver = self._pool.driver
        self._left_out: frozenset[str] = frozenset()
        self._texts: dict[str, str] = {}
        self._at = at
        self._writer = threading.Lock()
        self._turn = Turn(self.name) if self.is_sqlite else None
        self._is_still = False  # while a fork is under way
        renew_after_fork(self)
        hold_for_fork(self)

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
        with self.turn() as turn, turn.writing(durable=durable) as transaction:
            yield transaction

    @contextmanager
    def turn(self, post: Callable[[], Letter | None] | None = None) -> Iterator[WritersTurn]:
        """Let this process's threads, and the processes, queue for SQLite's one write lock rather than poll for it.

        While it waits for other processes, what ``post`` gives is left for them; if one took it, it is nobody's turn.
        CommitUnknownError if somebody did and the turn did not come.
        """
        until_s = time.monotonic() + self._deadline_s
        if self._turn is None:
            yield WritersTurn(self, until_s)
            return
        if not self._writer.acquire(timeout=self._deadline_s):
            raise self._busy()
        try:
            is_ours = self._turn.take_at_once() or self._wait_for(self._turn, post, until_s)
            yield WritersTurn(self, until_s, is_ours=is_ours, is_alone=self._turn.is_held)
        finally:
            self._turn.give_back()
            self._writer.release()

    def _wait_for(self, turn: Turn, post: Callable[[], Letter | None] | None, until_s: float) -> bool:
        """Wait for other processes; False if one of them took the letter."""
        self._at("turn.waiting")
        letter = post() if post else None
        if letter is None:
            if turn.wait(until_s, unless=bool):
                return True
            raise self._busy()
        try:
            self._at("letter.posted")
            answer = turn.wait(until_s, unless=lambda: not letter.take_back())
        except BaseException:
            letter.take_back()
            raise
        if answer is not None:
            return answer
        if letter.take_back():
            raise self._busy()
        raise CommitUnknownError("the answer to a commit was lost", catalog=self.name, reason="it was handed on")

    def _busy(self) -> StorageError:
        return StorageError("the catalog is busy", catalog=self.name, kind="busy")

    @contextmanager
    def _writing(self, until_s: float, *, durable: bool) -> Iterator[Transaction]:
        eager = self.is_sqlite and not durable
        begin = "BEGIN IMMEDIATE" if self.is_sqlite else "BEGIN"
        with self._connection(begin, eager=eager, until_s=until_s) as connection:
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
                if is_refused(error):
                    raise translated(error, self.name) from error
                raise CommitUnknownError("the answer to a commit was lost", catalog=self.name, reason=error) from error
            if not self.is_sqlite and answer.statusmessage != "COMMIT":
                raise StorageError("the catalog did not commit", catalog=self.name, answer=answer.statusmessage)

    def query(self, statement: str, parameters: Parameters | None = None) -> list[Row]:
        """Run one reading statement on its own."""
        try:
            with self._connection(None) as connection:
                return Transaction(self, connection).rows(statement, parameters)
        except StorageError as error:
            if error.kind != "connection":
                raise
        self._pool.empty()  # one that died in the pool shows at its first statement: its neighbours died too
        with self._connection(None) as connection:
            return Transaction(self, connection).rows(statement, parameters)

    def prepared(self, statement: str) -> str:
        """Return a statement's text for the driver."""
        found = self._texts.get(statement)
        if found is None:
            found = self._texts[statement] = self._worded(statement)
        return found

    def leave_out(self, columns: Collection[str]) -> None:
        """Neither read nor write some columns: an older catalog that may not be changed lacks them."""
        self._left_out = frozenset(columns)
        self._texts.clear()

    def close(self) -> None:
        """Close every connection."""
        self._pool.empty()
        if self._turn is not None and self._writer.acquire(blocking=False):  # whoever writes now keeps its turn
            self._turn.close()
            self._writer.release()

    def hold_for_fork(self) -> None:
        """Let no transaction write meanwhile: in the child, SQLite would wait for it for ever."""
        self._is_still = self.is_sqlite and self._writer.acquire(timeout=FORK_WITHIN_S)

    def let_go_after_fork(self) -> None:
        """Go on, in the parent."""
        if self._is_still:
            self._is_still = False
            self._writer.release()

    def renew_after_fork(self) -> None:
        """Leave the parent's connections alone."""
        self._pool.forget()
        self._writer = threading.Lock()
        if self._turn is not None:
            self._turn.forget()

    @property
    def size_bytes(self) -> int:
        """The size of SQLite's file; 0 if it cannot be told."""
        with suppress(OSError):
            return os.stat(self.name).st_size
        return 0

    def _worded(self, statement: str) -> str:
        for name in self._left_out:
            read = re.sub(rf"\b[a-z]\.{name}\b", "NULL", statement)
            statement = re.sub(rf", :?{name}\b( = :{name}\b)?", "", read)
        if self.is_sqlite:
            return _FOR_UPDATE.sub("", _AMONG.sub(_AMONG_SQLITE, statement))
        return _NAMED.sub(r"%(\1)s", _AMONG.sub(_AMONG_POSTGRES, statement))

    @contextmanager
    def _connection(self, begin: str | None, *, eager: bool = False, until_s: float = 0.0) -> Iterator[Any]:
        """Lend the driver's connection, with a transaction begun; translate its errors."""
        connection = self._begun(begin, eager=eager, until_s=until_s)
        try:
            yield connection
            if is_changed(connection):
                raise StorageError(
                    "the catalog was changed while it was read: try again", catalog=self.name, kind="busy"
                )
        except BaseException as error:
            if not isinstance(error, Exception):
                connection.close()  # interrupted: nobody knows inside which call
            if isinstance(error, (self._driver.Error, UnicodeDecodeError)):  # SQLite's own words may be damaged too
                raise self.translated(error) from error
            raise
        finally:
            self._put_back(connection, eager=eager)

    def _begun(self, begin: str | None, *, eager: bool, until_s: float) -> Any:
        """Begin on a connection that is alive: one that died in the pool shows here."""
        for may_retry in (True, False):
            try:
                connection = self._pool.take()
            except (self._driver.Error, UnicodeDecodeError) as error:
                raise self.translated(error) from error
            try:
                if eager:
                    connection.execute("PRAGMA synchronous = NORMAL")
                if begin == "BEGIN IMMEDIATE":
                    self._take_write_lock(connection, until_s)
                elif begin is not None:
                    connection.execute(begin)
                return connection
            except (self._driver.Error, UnicodeDecodeError) as error:
                if is_read_only(error):
                    connection.close()  # it may be permitted by now
                died = is_closed(connection)
                self._put_back(connection, eager=eager)
                if not (died and may_retry):
                    raise self.translated(error) from error
                self._pool.empty()
        raise AssertionError("the second try returns or raises")

    def _take_write_lock(self, connection: sqlite3.Connection, until_s: float) -> None:
        """Begin to write. Only a process that knows no turns is in the way; SQLite itself would look every 100 ms."""
        try:
            connection.execute("PRAGMA busy_timeout = 0")
            patiently(connection, "BEGIN IMMEDIATE", within_s=until_s - time.monotonic())
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(self._deadline_s * 1000)}")

    def _put_back(self, connection: Any, *, eager: bool) -> None:
        """Return a connection to the pool outside of any transaction, or throw it away if that cannot be."""
        try:
            if _in_transaction(connection):
                connection.execute("ROLLBACK")
            if eager and not is_closed(connection):
                connection.execute("PRAGMA synchronous = FULL")
        except self._driver.Error:
            connection.close()
        self._pool.put(connection)

    def translated(self, error: BaseException) -> Exception:
        """Return what went wrong in the driver as an error of ours."""
        return Violation("a key is taken", reason=error) if is_taken(error) else translated(error, self.name)


class WritersTurn:
    """A turn to write: nobody else does until it ends, unless they know no turns."""

    def __init__(self, database: Database, until_s: float, *, is_ours: bool = True, is_alone: bool = False) -> None:
        self._database = database
        self._until_s = until_s
        self.is_ours = is_ours  # False: somebody took what was posted, and this turn was passed on
        self.is_alone = is_alone  # every process that knows turns waits for this one to end

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[Transaction]:
        """Change the database as ``Database.writing`` does, in this turn."""
        with self._database._writing(self._until_s, durable=durable) as transaction:
            yield transaction


class Transaction:
    """Statements inside one transaction."""

    def __init__(self, database: Database, connection: Any) -> None:
        self._database = database
        self._connection = connection

    def rows(self, statement: str, parameters: Parameters | None = None) -> list[Row]:
        """Run a statement and give its rows."""
        rows: list[Row] = self._execute(statement, parameters).fetchall()
        return rows

    def change(self, statement: str, parameters: Parameters | None = None) -> int:
        """Run a statement and say how many rows it changed."""
        changed: int = self._execute(statement, parameters).rowcount
        return changed

    def change_many(self, statement: str, parameters: Sequence[Parameters]) -> int:
        """Run a statement for each set of values and say how many rows that changed."""
        if len(parameters) <= 1:
            return self.change(statement, parameters[0]) if parameters else 0
        cursor = self._connection.cursor()
        cursor.executemany(self._database.prepared(statement), parameters)
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

    def _execute(self, statement: str, parameters: Parameters | None) -> Any:
        return self._connection.execute(self._database.prepared(statement), parameters or {})


def _in_transaction(connection: Any) -> bool:
    if isinstance(connection, sqlite3.Connection):
        return not is_closed(connection) and connection.in_transaction
    return not connection.closed and connection.info.transaction_status != 0  # 0 is idle
