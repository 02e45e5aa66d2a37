"""Read a SQLite catalog where nothing may be written: on a read-only disk, or without permission.

While a writer has the catalog open, its write-ahead log and the index of it lie beside the file, and SQLite reads all
three. Otherwise the file is all there is, and it is read as one that does not change. A writer that comes meanwhile
makes a log before it changes the file, so a connection is used only while there is none and the file is as it was; what
was read across a change is not believed. It does not write anything.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Any
from urllib.parse import quote

LOG_SUFFIX = "-wal"


class Frozen(sqlite3.Connection):
    """A connection to a file that is not expected to change."""

    path = ""
    seen: object = None


def open_to_read(path: str, busy_timeout_s: float) -> sqlite3.Connection:
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


def is_changed(connection: Any) -> bool:
    """Whether the file of a frozen connection is another than the one it has read."""
    if not isinstance(connection, Frozen):
        return False
    return _has_log(connection.path) or _state(connection.path) != connection.seen


def _has_log(path: str) -> bool:
    try:
        return os.stat(f"{path}{LOG_SUFFIX}").st_size > 0
    except OSError:
        return False


def _state(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
