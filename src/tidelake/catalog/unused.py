"""Take back a lake's folder that was made for rows which then did not come.

1. The folder holds the catalog's own files, empty folders that extents were in, and nothing else.
2. SQLite gives this process alone the file: where anybody else has it open, nothing is removed.
3. No table is in it. The file is removed while it is still ours alone, and then the folder.

It does not touch a lake that was there before: who calls knows that it made the folder.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from tidelake.catalog import CATALOG_FILE
from tidelake.catalog.sql.turns import TURN_SUFFIX


def remove_unused(folder: Path) -> bool:
    """Remove a lake that is closed here, that nobody else has open, and that holds no table; say whether it was."""
    file = folder / CATALOG_FILE
    ours = {CATALOG_FILE, *(f"{CATALOG_FILE}-{part}" for part in ("wal", "shm", "journal", "turn"))}
    with suppress(sqlite3.Error, OSError):
        if not file.exists() or any(not each.is_dir() for each in _others(folder, ours)):  # 1.
            return False
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
            if connection.execute("PRAGMA journal_mode = DELETE").fetchone() != ("delete",):  # 2.
                return False
            connection.execute("BEGIN EXCLUSIVE")
            if connection.execute("SELECT count(*) FROM tables WHERE dropped_us IS NULL").fetchone() != (0,):  # 3.
                return False
            for each in _others(folder, ours):  # the deepest first; one that was filled meanwhile stays, and ends this
                each.rmdir()
            file.unlink()
            Path(f"{file}{TURN_SUFFIX}").unlink(missing_ok=True)
        folder.rmdir()
        return True
    return False


def _others(folder: Path, ours: set[str]) -> list[Path]:
    """List what else lies in the folder, the deepest first."""
    return sorted((each for each in folder.rglob("*") if each.name not in ours), key=lambda each: -len(each.parts))
