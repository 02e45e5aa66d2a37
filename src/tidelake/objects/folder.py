"""Keep objects as files in a folder.

Reads are plain system calls, 7 µs for a small range where obstore's take 64 µs. Writes are our own because obstore does
not sync. It does not know buckets.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tidelake.errors import InvalidInputError, NotFoundError, StorageError
from tidelake.objects.keys import TEMPORARY_PREFIX, check_key, is_unfinished, unfit_reason
from tidelake.objects.protocol import (
    ACCEPTED,
    Buffers,
    Data,
    ObjectMeta,
    Range,
    Tail,
    check_prefix,
    check_ranges,
    check_tail,
    missing,
    short,
    taken,
    view_of,
)
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = deferred("pyarrow")

BEGIN_TRIES = 20  # each is lost to somebody who removes an empty folder just then

_NO_PERMISSION = ("permission_denied", "permission denied: check the folder's owner and mode")
_READ_ONLY = ("read_only", "the disk is read-only: mount it for writing, or use another folder")
_NO_ROOM = ("disk_full", "no room for the object: nothing was written; make room and try again")
_NAME_CLASH = ("name_clash", "a folder cannot hold a file and a folder of one name")
_ERRNO_RULES: dict[int, tuple[str, str]] = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), _NO_PERMISSION),
    errno.EROFS: _READ_ONLY,
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _NO_ROOM),
    **dict.fromkeys((errno.EISDIR, errno.ENOTDIR), _NAME_CLASH),
}


class Folder:
    """A store in a folder."""

    keeps_conditions = True  # a name is linked once

    def __init__(self, root: Path) -> None:
        self.url = root.as_uri()
        self._root = str(root)
        self._settled = {self._root}  # folders whose own entries are known to be on disk

    def __repr__(self) -> str:
        return f"ObjectStore({self.url})"

    def get(self, key: str) -> pa.Buffer:
        with self._opened(key) as (file, status):
            return self._read(key, file, (0, status.st_size), status.st_size)

    def get_range(self, key: str, start: int, length: int) -> pa.Buffer:
        return self.get_ranges(key, [(start, length)])[0]

    def get_ranges(self, key: str, ranges: Sequence[Range]) -> Buffers:
        check_ranges(key, ranges, self.url)
        if not any(length for _, length in ranges):
            return [pa.py_buffer(b"") for _ in ranges]
        with self._opened(key) as (file, status):
            return [self._read(key, file, wanted, status.st_size) for wanted in ranges]

    def get_tail(self, key: str, length: int) -> Tail:
        check_tail(key, length)
        with self._opened(key) as (file, status):
            held = min(length, status.st_size)
            return Tail(self._read(key, file, (status.st_size - held, held), status.st_size), status.st_size)

    def head(self, key: str) -> ObjectMeta:
        with self._opened(key) as (_, status):
            return _meta_of(key, status)

    def put(self, key: str, data: Data) -> None:
        with self._written(key, data) as (temporary, path):
            os.replace(temporary, path)

    def put_if_absent(self, key: str, data: Data) -> None:
        with self._written(key, data) as (temporary, path):
            try:
                os.link(temporary, path)
            except FileExistsError as error:
                raise taken(key, self.url) from error

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        check_prefix(prefix)
        return self._listed(prefix)

    def list_unsorted(self, prefix: str = "") -> Iterator[ObjectMeta]:
        """Yield what ``list`` does as the system tells it, but nothing behind a symbolic link."""
        check_prefix(prefix)
        with _told(self.url, prefix):
            self._check_root()
            for key, entry in self._scanned(prefix):
                if meta := _meta_of_entry(key, entry):
                    yield meta

    def unfinished(self, prefix: str) -> Iterator[ObjectMeta]:
        """Yield the unfinished writes below a folder, of living writers too."""
        check_prefix(prefix)
        with _told(self.url, prefix):
            for key, entry in self._scanned(prefix):
                if is_unfinished(key):
                    with suppress(FileNotFoundError):
                        yield _meta_of(key, entry.stat(follow_symlinks=False))

    def remove_unfinished(self, name: str, *, dry_run: bool = False) -> bool:
        """Remove an unfinished write, unless its writer lives and so holds its lock."""
        if not is_unfinished(name):
            raise InvalidInputError("not an unfinished write", name=ascii(name[:80]), kind="bad_key")
        path = f"{self._root}/{name}"
        with _told(self.url, name), suppress(FileNotFoundError, NotADirectoryError):
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if not _lock(file):
                    return False
                if not dry_run:
                    os.unlink(path)
                return True
            finally:
                os.close(file)
        return False

    def empty_folders(self, prefix: str) -> Iterator[str]:
        """Yield the folders below a folder that hold nothing but such, the innermost first; the folder itself too."""
        check_prefix(prefix)
        with _told(self.url, prefix):
            if os.path.isdir(f"{self._root}/{prefix}"):
                yield from self._empty(prefix)

    def remove_folders(self, folders: Iterable[str]) -> None:
        """Remove those folders that are empty by now."""
        for folder in folders:
            with _told(self.url, folder), suppress(FileNotFoundError, NotADirectoryError):
                try:
                    os.rmdir(f"{self._root}/{check_key(folder)}")
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                        raise

    def delete(self, keys: Iterable[str]) -> None:
        for key in [check_key(key) for key in keys]:
            with _told(self.url, key), suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                os.unlink(f"{self._root}/{key}")

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, os.stat_result]]:
        path = f"{self._root}/{check_key(key)}"
        with _told(self.url, key):
            try:
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError) as error:
                self._check_root()
                raise missing(key, self.url) from error
            try:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise missing(key, self.url)
                yield file, status
            finally:
                os.close(file)

    def _read(self, key: str, file: int, wanted: Range, size: int) -> pa.Buffer:
        start, length = wanted
        if length and start + length > size:  # asked first, so that a hostile length allocates nothing
            raise short(key, self.url)
        parts = []
        while length:  # one call reads at most 2 GiB
            parts.append(part := os.pread(file, length, start))
            if not part:
                raise short(key, self.url)
            start, length = start + len(part), length - len(part)
        return pa.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))

    @contextmanager
    def _written(self, key: str, data: Data) -> Iterator[tuple[str, str]]:
        """Return a synced temporary file to publish under the key's path; whatever happens, its temporary name goes.

        1. Make the folder, and a file in it under a name that no key has, locked so that nobody takes it for a dead
           writer's. From then on the folder is not empty, so that nobody removes it.
        2. Sync the entries of folders that were made, then the bytes.
        3. Let the caller give them their own name.
        4. Sync that name.
        """
        path = f"{self._root}/{check_key(key)}"
        folder = os.path.dirname(path)
        with _told(self.url, key):
            file, made = self._begin(folder)  # 1
            try:
                with file:
                    for each in made:  # 2
                        _sync_folder(os.path.dirname(each))
                        self._settled.add(each)
                    file.write(view_of(data))
                    file.flush()
                    os.fsync(file.fileno())
                    yield file.name, path  # 3
            finally:
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.unlink(file.name)
            _sync_folder(folder)  # 4

    def _begin(self, folder: str) -> tuple[BinaryIO, Sequence[str]]:
        """Open a locked file of a temporary name, and return it with the folders whose entries may not be on disk.

        A folder may be removed while it is empty; then it is made again.
        """
        for tries_left in reversed(range(BEGIN_TRIES)):
            try:
                made = self._made(folder)
                file = open(f"{folder}/{TEMPORARY_PREFIX}{secrets.token_hex(8)}", "xb")  # noqa: SIM115
            except FileNotFoundError:
                if not tries_left:
                    raise
                continue
            _lock(file.fileno(), waits=True)
            if os.fstat(file.fileno()).st_nlink:
                return file, made
            file.close()  # taken for a dead writer's before it was locked
        raise StorageError("the folder is swept all the time", store=self.url, kind="busy")

    def _made(self, folder: str) -> Sequence[str]:
        """Make a folder below the root; its entry is synced later, even if another process made it just now."""
        if folder in self._settled and os.path.isdir(folder):
            return []
        self._check_root()
        made = self._made(os.path.dirname(folder))
        with suppress(FileExistsError):
            os.mkdir(folder)
        return [*made, folder]

    def _check_root(self) -> None:
        """Tell an empty store from one whose disk is not mounted, and never make the root anew."""
        if not os.path.isdir(self._root):
            raise StorageError("the store's folder is gone: is its disk mounted?", store=self.url, kind="missing_root")

    def _listed(self, prefix: str) -> Iterator[ObjectMeta]:
        with _told(self.url, prefix):
            self._check_root()
            yield from self._walked(f"{self._root}/{prefix}", f"{prefix}/" if prefix else "")

    def _walked(self, folder: str, prefix: str) -> Iterator[ObjectMeta]:
        found: dict[str, os.DirEntry[str]] = {}
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            found = {f"{entry.name}/" if entry.is_dir() else entry.name: entry for entry in entries}
        for name in sorted(found):  # a folder sorts with its slash, which is the order of whole keys
            if name.endswith("/"):
                yield from self._walked(found[name].path, prefix + name)
            elif meta := _meta_of_entry(prefix + name, found[name]):
                yield meta

    def _scanned(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield every entry below a folder that is no folder, with its name from the root on."""
        below = []
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(f"{self._root}/{folder}") as entries,
        ):
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    below.append(name)
                elif not entry.is_dir():
                    yield name, entry
        for each in below:
            yield from self._scanned(each)

    def _empty(self, folder: str) -> Iterator[str]:
        """Yield the empty folders from a folder down; it is one of them if all that it holds is."""
        holds_any, below = False, []
        with os.scandir(f"{self._root}/{folder}") as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}"
                if entry.is_dir(follow_symlinks=False) and not unfit_reason(name):
                    below.append(name)
                else:
                    holds_any = True
        for name in below:
            last = None
            with suppress(FileNotFoundError, NotADirectoryError):
                for last in self._empty(name):
                    yield last
            holds_any |= last != name
        if not holds_any:
            yield folder


def open_folder(path: str, *, create: bool) -> Folder:
    """Open a folder as a store; a missing one is made, or refused."""
    if not path or "\0" in path:
        raise InvalidInputError("not a folder's name", store=ascii(path), accepted=ACCEPTED)
    root = Path(os.path.abspath(path))
    with _told(root.as_uri()):
        if not create and not os.path.lexists(root):
            raise NotFoundError("no such folder", store=root, kind="missing_root")
        try:
            for folder in reversed([each for each in (root, *root.parents) if not each.exists()]):
                folder.mkdir(exist_ok=True)
                _sync_folder(str(folder.parent))
        except (FileExistsError, NotADirectoryError) as error:
            raise InvalidInputError("not a folder", store=root, kind="not_a_folder") from error
        if not root.is_dir():
            raise InvalidInputError("a file, not a folder", store=root, kind="not_a_folder")
    return Folder(root)


@contextmanager
def _told(url: str, key: str = "") -> Iterator[None]:
    """Turn what the system raises into our errors."""
    try:
        yield
    except OSError as error:
        facts: dict[str, Any] = {"key": key, "store": url} if key else {"store": url}
        kind, message = _ERRNO_RULES.get(error.errno or 0, ("storage", "the disk did not do it"))
        raise StorageError(message, kind=kind, **facts, reason=error.strerror) from error


def _meta_of(key: str, status: os.stat_result) -> ObjectMeta:
    return ObjectMeta(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def _meta_of_entry(key: str, entry: os.DirEntry[str]) -> ObjectMeta | None:
    """Describe a file, or nothing if no verb could name it or it has gone since."""
    with suppress(FileNotFoundError):
        if not unfit_reason(key) and stat.S_ISREG((status := entry.stat()).st_mode):
            return _meta_of(key, status)
    return None


def _lock(file: int, *, waits: bool = False) -> bool:
    """Lock an open file against everybody else, for as long as it is open; False if another has it.

    Where locks are not known, a file counts as nobody's: its age has to tell.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _sync_folder(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
