"""Return the pages of a SQLite catalog that nothing uses any more to the disk.

A catalog made here keeps track of where its pages are used, so its last ones can be moved into free places and cut off,
a few in each transaction, while others read and write. One that an earlier program made does not; it is written anew as
a whole, if nobody else has it open and more than half of it is free, and from then on it keeps track too. PostgreSQL
does the like by itself. It does not delete rows.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress

from tidelake.catalog.sql.driver import Database

STEP_PAGES = 256  # moved in one transaction: a megabyte
FREE_SHARE = 1 / 2  # of a file that is written anew
CHECKPOINTS_S = 1.0  # how long writers may be kept waiting for readers of the write-ahead log

_INCREMENTAL = 2


def shrink(database: Database) -> int:
    """Give free pages back; return by how many bytes the file and its write-ahead log are smaller."""
    before = _bytes_of(database)
    if database.query("PRAGMA auto_vacuum")[0][0] == _INCREMENTAL:
        _cut_off(database)
    elif _is_mostly_free(database):
        _write_anew(database)
    _empty_log(database)
    return max(before - _bytes_of(database), 0)


def _cut_off(database: Database) -> None:
    while left := database.query("PRAGMA freelist_count")[0][0]:
        with database.writing(durable=False) as transaction:
            for _ in range(min(left, STEP_PAGES)):
                transaction.run_text("PRAGMA incremental_vacuum(1)")  # of more, the driver asks for the first only
        if database.query("PRAGMA freelist_count")[0][0] >= left:
            return  # writers free as much as is cut off


def _is_mostly_free(database: Database) -> bool:
    free, pages = (database.query(f"PRAGMA {name}")[0][0] for name in ("freelist_count", "page_count"))
    return bool(free > pages * FREE_SHARE)


def _write_anew(database: Database) -> None:
    """Write the file anew, unless anybody else has it open: SQLite leaves the log of one that is alone only."""
    database.close()
    with suppress(sqlite3.OperationalError), closing(_connected(database, wait_s=0.0)) as connection:
        if connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")


def _empty_log(database: Database) -> None:
    """Move what is in the write-ahead log to the file and cut the log off, unless a reader needs it for long."""
    with suppress(sqlite3.OperationalError), closing(_connected(database, wait_s=CHECKPOINTS_S)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _connected(database: Database, *, wait_s: float) -> sqlite3.Connection:
    return sqlite3.connect(database.name, timeout=wait_s, isolation_level=None)


def _bytes_of(database: Database) -> int:
    total = 0
    for part in ("", "-wal"):
        with suppress(OSError):
            total += os.stat(f"{database.name}{part}").st_size
    return total
