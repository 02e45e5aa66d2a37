"""Translate what a database's driver raised into our own errors.

What lasts until somebody acts (no room, no permission, no such table) is a StorageError that is certain; what may pass
(a lock, a server that is starting, a broken connection) is one that is not; what no sound database says is
CorruptError. It does not know what the statements meant.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from tidelake.errors import CorruptError, StorageError, TidelakeError

_NO_ROOM = "the catalog's disk is full: nothing was written; make room and try again"
_READ_ONLY = "the catalog cannot be written: check the permissions of its folder, and that the disk is not read-only"
_NOT_SOUND = "the catalog is not a sound {} database: keep its files, and restore a copy"

# By the start of SQLite's own name for an error: our kind, and what to tell.
_SQLITE_RULES: dict[str, tuple[str, str]] = {
    "SQLITE_BUSY": ("busy", "the catalog is busy"),
    "SQLITE_LOCKED": ("busy", "the catalog is busy"),
    "SQLITE_FULL": ("disk_full", _NO_ROOM),
    "SQLITE_READONLY": ("read_only", _READ_ONLY),
    "SQLITE_PERM": ("permission_denied", "the catalog cannot be used: check the permissions of its folder"),
    "SQLITE_AUTH": ("permission_denied", "the catalog cannot be used: check the permissions of its folder"),
    "SQLITE_CANTOPEN": ("cannot_open", "the catalog cannot be opened"),
    "SQLITE_IOERR": ("io_error", "the catalog's disk did not do it: nothing was written; check the disk"),
    "SQLITE_NOMEM": ("failed", "the catalog has no memory left"),
}
_SQLITE_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_MISMATCH", "SQLITE_FORMAT")
_SQLITE_TAKEN = ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID")
# Our statements never change, so it is the file that lacks what they name, or has text that is none.
_SQLITE_STRANGE = re.compile(r"no such (table|column|index)|malformed|Could not decode|has no column|not a database")
# A COMMIT that ended so was undone. Not so one whose disk failed: the last frame may be in the write-ahead log.
_SQLITE_REFUSALS = ("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_BUSY", "SQLITE_NOMEM", "SQLITE_TOOBIG", "SQLITE_CORRUPT")

_POSTGRES_UNIQUE = "23505"
_POSTGRES_RULES: dict[str, tuple[str, str]] = {
    "40001": ("busy", "the catalog is busy"),  # serialization failure
    "40P01": ("busy", "the catalog is busy"),  # deadlock
    "55P03": ("busy", "the catalog is busy"),  # lock timeout
    "53100": ("disk_full", _NO_ROOM),
    "53300": ("connection", "the catalog has no connection left"),
    "25006": ("read_only", "the catalog cannot be written: the server is read-only, perhaps a standby"),
    "42501": ("permission_denied", "the catalog refused: check what the user may do in the database"),
    "08": ("connection", "the catalog cannot be reached"),
    "57": ("connection", "the catalog cannot be reached"),  # shutting down, or starting
    "58": ("io_error", "the catalog's disk did not do it: nothing was written; check the server's log"),
}
_POSTGRES_DAMAGE = ("XX001", "XX002", "22P02", "23502", "42P01", "42703")
_PASSING = re.compile(
    r"starting up|shutting down|in recovery|too many clients|terminating connection|slots are reserved"
)


def translated(error: BaseException, name: str) -> TidelakeError:
    """Return our error for a driver's, about the catalog of a name."""
    reason = " ".join(str(error).split())
    if isinstance(error, UnicodeDecodeError):
        return CorruptError(_NOT_SOUND.format("SQLite"), catalog=name, reason="not UTF-8", kind="bad_catalog")
    if isinstance(error, sqlite3.Error):
        return _sqlite_error(getattr(error, "sqlite_errorname", None) or "", name, reason)
    return _postgres_error(error, name, reason)


def is_taken(error: BaseException) -> bool:
    """Whether a unique key is taken."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorname", None) in _SQLITE_TAKEN
    return getattr(error, "sqlstate", None) == _POSTGRES_UNIQUE


def is_read_only(error: BaseException) -> bool:
    """Whether SQLite may not write."""
    return (getattr(error, "sqlite_errorname", None) or "").startswith("SQLITE_READONLY")


def is_refused(error: BaseException) -> bool:
    """Whether the error of a COMMIT says that it did not happen: SQLite, in this process, knows."""
    code = getattr(error, "sqlite_errorname", None) or ""
    return isinstance(error, sqlite3.Error) and code.startswith(_SQLITE_REFUSALS)


def _sqlite_error(code: str, name: str, reason: str) -> TidelakeError:
    if code.startswith((*_SQLITE_DAMAGE, "SQLITE_CONSTRAINT")) or _SQLITE_STRANGE.search(reason):
        return CorruptError(_NOT_SOUND.format("SQLite"), catalog=name, reason=reason, kind="bad_catalog")
    rules = [rule for start, rule in _SQLITE_RULES.items() if code.startswith(start)]
    kind, message = rules[0] if rules else ("failed", "the catalog failed")
    return StorageError(message, catalog=name, reason=reason, kind=kind)


def _postgres_error(error: Any, name: str, reason: str) -> TidelakeError:
    state = getattr(error, "sqlstate", None) or ""
    if state in _POSTGRES_DAMAGE:
        return CorruptError(
            _NOT_SOUND.format("PostgreSQL"), catalog=name, reason=reason, state=state, kind="bad_catalog"
        )
    if not state and "FATAL:" in reason and not _PASSING.search(reason):  # a login that fails carries no state
        return StorageError("the catalog refused the connection", catalog=name, reason=reason, kind="refused")
    if not state:
        return StorageError("the catalog cannot be reached", catalog=name, reason=reason, kind="connection")
    kind, message = _POSTGRES_RULES.get(state) or _POSTGRES_RULES.get(state[:2]) or ("failed", "the catalog failed")
    return StorageError(message, catalog=name, reason=reason, state=state, kind=kind)
