"""Hold what a store lists, in bounded memory, to take away from it what a catalog names: what is left is nobody's.

The sidecar of an extent's vectors is named by no catalog: it is taken away with its extent, unless it was disowned. The
list is a table in a temporary file of SQLite's, which goes with the process. It does not ask a store or a catalog.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar

import orjson

from tidelake.objects import ObjectMeta, extent_of_sidecar

PAGE = 1000  # objects at once, as many as a bucket deletes in one request

Item = TypeVar("Item")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_META = "key, size, at_us"
_LISTED = "(SELECT value FROM json_each(?))"


class Inventory:
    """Objects by key, with size and time."""

    def __init__(self) -> None:
        self._held = sqlite3.connect("", isolation_level=None)  # a temporary file, without a name
        for statement in ("journal_mode = OFF", "synchronous = OFF", "temp_store = FILE"):
            self._held.execute(f"PRAGMA {statement}")
        self._held.execute("CREATE TABLE objects (key TEXT PRIMARY KEY, size INT, at_us INT, owner TEXT) WITHOUT ROWID")
        self._held.execute("CREATE INDEX owners ON objects (owner) WHERE owner IS NOT NULL")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def __len__(self) -> int:
        count: int = self._held.execute("SELECT count(*) FROM objects").fetchone()[0]
        return count

    def add(self, metas: Sequence[ObjectMeta]) -> None:
        """Note objects; one that is listed twice counts once."""
        rows = [(meta.key, meta.size, time_us_of(meta), extent_of_sidecar(meta.key)) for meta in metas]
        self._held.execute("BEGIN")
        self._held.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", rows)
        self._held.execute("COMMIT")

    def metas_of(self, keys: Sequence[str]) -> dict[str, ObjectMeta]:
        """Return those of some objects that are noted."""
        rows = self._held.execute(f"SELECT {_META} FROM objects WHERE key IN {_LISTED}", (orjson.dumps(keys).decode(),))
        return {row[0]: _meta(*row) for row in rows}

    def sidecars_of(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the noted sidecars of some objects, each with its owner."""
        listed = (orjson.dumps(keys).decode(),)
        return dict(self._held.execute(f"SELECT key, owner FROM objects WHERE owner IN {_LISTED}", listed).fetchall())

    def disown(self, endings: Sequence[str]) -> None:
        """Let sidecars stand for themselves whose names do not end so, after the names of their owners."""
        self._held.execute(
            f"UPDATE objects SET owner = NULL WHERE substr(key, length(owner) + 1) NOT IN {_LISTED}",
            (orjson.dumps(endings).decode(),),
        )

    def forget(self, keys: Sequence[str]) -> int:
        """Take objects off the list, with their sidecars, and return how many of them were on it."""
        listed = (orjson.dumps(keys).decode(),)
        self._held.execute(f"DELETE FROM objects WHERE owner IN {_LISTED}", listed)
        return self._held.execute(f"DELETE FROM objects WHERE key IN {_LISTED}", listed).rowcount

    def forget_below(self, folder: str) -> int:
        """Take all that lies in a folder off the list, and nothing of a sibling whose name begins alike."""
        return self._held.execute(
            "DELETE FROM objects WHERE key > ? AND key < ?",
            (f"{folder}/", f"{folder}0"),  # 0 comes after /
        ).rowcount

    def pages(self) -> Iterator[list[ObjectMeta]]:
        """Yield what is on the list, in the order of keys; whoever reads it may forget what it has read."""
        last = ""
        while found := [
            _meta(*row)
            for row in self._held.execute(
                f"SELECT {_META} FROM objects WHERE key > ? ORDER BY key LIMIT ?", (last, PAGE)
            )
        ]:
            yield found
            last = found[-1].key


def paged(items: Iterable[Item], size: int = PAGE) -> Iterator[list[Item]]:
    """Yield items in lists of a size, the last one perhaps shorter."""
    rest = iter(items)
    while page := list(islice(rest, size)):
        yield page


def time_us_of(meta: ObjectMeta) -> int:
    """Return when an object was written, by its store's clock."""
    return (meta.modified - _EPOCH) // timedelta(microseconds=1)


def _meta(key: str, size: int, at_us: int) -> ObjectMeta:
    return ObjectMeta(key, size, _EPOCH + timedelta(microseconds=at_us))
