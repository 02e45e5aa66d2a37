"""Keep copies of manifests and their states on this node, in RocksDB.

::

    h <table id> 0 <user>              what a copy says of itself
    g <table id> 0 <user> 0 <extent>   one segment of it
    s <table id> 0 <user>              the scope's state
    d <state> <due> <table id> 0 <user>   which scopes are to be looked at, the earliest first; none that is in_sync

An update writes what changed, in one batch, and does not wait for the disk: all of it can be had again. RocksDB belongs
to one process at a time: in another, in one that was forked from a process that had it, and where ``rocksdict`` is not
installed, there is no such tier. What cannot be
read is as good as not there; a folder that is damaged is emptied. It does not know whether a copy is right.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tidelake.errors import CorruptError
from tidelake.manifest.manifest_json import segment_from_json, segment_to_json
from tidelake.manifest.parts import Listed
from tidelake.manifest.states import Held, Mark, State, held_from, mark_from, to_bytes
from tidelake.model.snapshot import Scope
from tidelake.runtime.deferred import deferred, is_installed

if TYPE_CHECKING:
    import rocksdict
else:
    rocksdict = deferred("rocksdict")

BUFFER_BYTES = 4 << 20  # of writes that are only in memory and its log
CACHE_BYTES = 8 << 20
MAX_OPEN_FILES = 64

_logger = logging.getLogger(__name__)
_CODES: dict[str, bytes] = {"pending_write": b"p", "syncing": b"s", "stale": b"t", "error": b"e"}  # of what is due
_END = b"\xff" * 8


class NodeTier:
    """Copies and states in RocksDB. Threads may share it; after any error it holds nothing more."""

    def __init__(self, database: Any, place: str) -> None:
        self._database: Any = database
        self._place = place
        self._lock = threading.Lock()  # a state and its place in the index change together

    @property
    def is_open(self) -> bool:
        return self._database is not None

    def held(self, scope: Scope) -> Held | None:
        """Return what this node's copy says of itself."""
        data = self._get(b"h" + _name(scope))
        try:
            return None if data is None else held_from(data)
        except CorruptError:
            self.forget(scope)
            return None

    def segments(self, scope: Scope, count: int) -> list[Listed] | None:
        """Return the segments of this node's copy; None if they are not as many as they should be."""
        prefix = b"g" + _name(scope) + b"\0"
        try:
            found = [
                Listed(segment_from_json(orjson.loads(value), self._place), key[len(prefix) :].decode())
                for key, value in self._scan(prefix)
            ]
        except (CorruptError, ValueError):
            found = []
        if len(found) != count:
            self.forget(scope)
            return None
        return found

    def hold(
        self,
        scope: Scope,
        held: Held,
        added: Collection[Listed] = (),
        removed: Collection[str] = (),
        *,
        whole: bool = False,
    ) -> None:
        """Keep a copy, or bring the one that is there forward; ``whole``: in place of what is there."""
        if not self.is_open:
            return
        name = _name(scope)
        batch = rocksdict.WriteBatch(raw_mode=True)
        if whole:
            for key, _ in self._scan(b"g" + name + b"\0"):
                batch.delete(key)
        for extent in removed:
            batch.delete(b"g" + name + b"\0" + extent.encode())
        for each in added:
            value = orjson.dumps(segment_to_json(each.segment))
            batch.put(b"g" + name + b"\0" + each.extent.encode(), value)
        batch.put(b"h" + name, to_bytes(held))
        self._write(batch)

    def forget(self, scope: Scope) -> None:
        """Let go of a copy; the state stays."""
        if self.is_open:
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key, _ in self._scan(b"g" + _name(scope) + b"\0"):
                batch.delete(key)
            batch.delete(b"h" + _name(scope))
            self._write(batch)

    def mark(self, scope: Scope) -> Mark | None:
        """Return a scope's state as this node knows it."""
        data = self._get(b"s" + _name(scope))
        try:
            return None if data is None else mark_from(data)
        except CorruptError:
            return None

    def set_mark(self, scope: Scope, mark: Mark) -> None:
        """Note a scope's state, and when it is due; what is noted already is not written again."""
        if not self.is_open:
            return
        name = _name(scope)
        with self._lock:
            before = self.mark(scope)
            if before == mark:
                return
            batch = rocksdict.WriteBatch(raw_mode=True)
            if before is not None and (index := _index_key(name, before)):
                batch.delete(index)
            if index := _index_key(name, mark):
                batch.put(index, b"")
            batch.put(b"s" + name, to_bytes(mark))
            self._write(batch)

    def remove(self, scope: Scope) -> None:
        """Let go of all that is known of a scope, as when its table is gone."""
        self.forget(scope)
        if self.is_open:
            with self._lock:
                before = self.mark(scope)
                batch = rocksdict.WriteBatch(raw_mode=True)
                if before is not None and (index := _index_key(_name(scope), before)):
                    batch.delete(index)
                batch.delete(b"s" + _name(scope))
                self._write(batch)

    def due(self, state: State, upto_us: int, limit: int) -> list[Scope]:
        """Return scopes in a state that are due by a time, the earliest first."""
        prefix = b"d" + _CODES.get(state, b"?")
        last, found = prefix + f"{max(upto_us, 0):016x}".encode() + _END, list[Scope]()
        for key, _ in self._scan(prefix):
            if key > last or len(found) >= limit:
                break
            found.append(_scope_of(key[len(prefix) + 16 :]))
        return found

    def scopes(self, after: Scope | None, limit: int) -> list[tuple[Scope, Held]]:
        """Return the next copies after one, in the order of their names, as many as asked for."""
        found: list[tuple[Scope, Held]] = []
        start = b"h" if after is None else b"h" + _name(after) + b"\0"
        for key, value in self._scan(b"h", start):
            if len(found) >= limit:
                break
            with suppress(CorruptError):
                found.append((_scope_of(key[1:]), held_from(value)))
        return found

    def close(self) -> None:
        """Let go of the folder, unless others of this process use it too."""
        _release(self)

    def _get(self, key: bytes) -> bytes | None:
        database = self._database
        try:
            return None if database is None else database.get(key)
        except Exception as error:  # its errors have no class of their own
            self._give_up(error)
            return None

    def _scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        database = self._database
        if database is None:
            return
        try:
            items = database.items(from_key=start or prefix)
            for key, value in items:
                if not key.startswith(prefix):
                    return
                yield key, value
        except Exception as error:
            self._give_up(error)

    def _write(self, batch: Any) -> None:
        database = self._database
        try:
            if database is not None:
                database.write(batch)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Go on without this tier: what it holds may be damaged."""
        _logger.warning("manifests on this node cannot be used any more place=%s: %s", self._place, error)
        database, self._database = self._database, None
        with suppress(Exception):
            database.close()


_opened: dict[str, tuple[NodeTier, int]] = {}  # in this process, and how many use it
_opening = threading.Lock()
_was_used = False  # whether RocksDB has threads in this process
_is_left = False  # whether they stayed with the parent: a database that needs one would be opened for ever
_left_behind: list[Any] = []  # databases of the parent of a forked process, which must not be touched


def open_node_tier(place: Path) -> tuple[NodeTier | None, bool]:
    """Open the copies in a folder, which is made; None if another process has them, or there is no RocksDB here.

    Also say whether this process did not have them open before.
    """
    if _is_left or not is_installed("rocksdict"):
        return None, False
    name = os.path.realpath(place)
    with _opening:
        if name in _opened and _opened[name][0].is_open:
            tier, users = _opened[name]
            _opened[name] = (tier, users + 1)
            return tier, False
        database = _database(Path(name))
        if database is None:
            return None, False
        tier = NodeTier(database, name)
        _opened[name] = (tier, 1)
        return tier, True


def _database(place: Path) -> Any:
    global _was_used
    _was_used = True
    for is_last in (False, True):
        try:
            place.mkdir(parents=True, exist_ok=True)
            return rocksdict.Rdict(str(place), _options())
        except OSError:  # no room, no permission
            return None
        except Exception as error:  # its errors have no class of their own
            if is_last or f"{place}/LOCK" in str(error):
                return None
            _logger.warning("manifests on this node are damaged, and made anew place=%s: %s", place, error)
            shutil.rmtree(place, ignore_errors=True)
    return None


def _options() -> Any:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(BUFFER_BYTES)
    options.set_max_open_files(MAX_OPEN_FILES)
    options.set_keep_log_file_num(1)
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(rocksdict.Cache(CACHE_BYTES))
    options.set_block_based_table_factory(table)
    return options


def _release(tier: NodeTier) -> None:
    with _opening:
        for name, (held, users) in list(_opened.items()):
            if held is not tier:
                continue
            if users > 1:
                _opened[name] = (held, users - 1)
                return
            del _opened[name]
        database, tier._database = tier._database, None
        if database is not None:
            with suppress(Exception):
                database.close()


def _leave_to_parent() -> None:
    """Have a forked child go on without: its threads and locks stayed with the parent."""
    global _opening, _is_left
    _opening, _is_left = threading.Lock(), _was_used
    for tier, _ in _opened.values():
        _left_behind.append(tier._database)
        tier._database, tier._lock = None, threading.Lock()
    _opened.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


@atexit.register
def _close_all() -> None:
    for tier, _ in list(_opened.values()):
        with suppress(Exception):
            tier._database.close()
    _opened.clear()


def _name(scope: Scope) -> bytes:
    return scope.table_id.encode() + b"\0" + scope.user.encode()


def _scope_of(name: bytes) -> Scope:
    table_id, _, user = name.partition(b"\0")
    return Scope(table_id.decode(), user.decode())


def _index_key(name: bytes, mark: Mark) -> bytes | None:
    if mark.due_us is None or mark.state not in _CODES:
        return None
    return b"d" + _CODES[mark.state] + f"{max(mark.due_us, 0):016x}".encode() + name
