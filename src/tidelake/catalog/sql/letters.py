"""Hand commits to the process whose turn it is, so that one transaction and one sync of the disk serve all who wait.

A letter is a file with the commits of one process to one scope. It lies beside the catalog while its sender waits for
its turn to write (see ``turns``), and the sender keeps it locked for as long as it lives::

    catalog.sqlite-letters/<scope>-<id>      checksum, then the commits as JSON

Whoever has the turn may take letters: it reads one and then deletes it. A sender that stops waiting deletes it too. A
file is deleted once, so one of the two has it: what its sender took back nobody commits, and what was taken is
committed in the turn of who took it or never. There is no answer. A sender whose turn has come and whose letter is
gone looks for its receipts in the catalog; what has none, because whoever took the letter died or could not commit it,
it commits itself, and sees at first hand what is wrong with it. So a letter may be dropped at any time, and one that
is damaged, of a version not known here, or of a sender that died is. Nothing of it is synced. It does not commit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

import orjson
import xxhash

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]

from tidelake.catalog.protocol import new_id
from tidelake.errors import TidelakeError
from tidelake.model.snapshot import Commit, Scope, from_document, has_positions, inputs_of, to_document

LETTERS_SUFFIX = "-letters"
MAX_TAKEN = 64  # commits of others in one transaction: bounds how long it holds up those behind
MAX_LETTER_BYTES = 1 << 20  # more than that is no small append: it does not wait for the disk alone
MAX_TAKEN_BYTES = 8 << 20
_DIGEST_BYTES = 8


def may_be_posted(commits: Sequence[Commit]) -> bool:
    """Whether somebody else may commit these: appends, which need no judgement but the head's and share a snapshot."""
    return not any(
        commit.claims or commit.fence or commit.is_exact or inputs_of(commit) or has_positions(commit)
        for commit in commits
    )


class Letters:
    """The letters beside one catalog; one thread of a process at a time may post and take."""

    def __init__(self, catalog: str) -> None:
        self._folder = os.path.realpath(catalog) + LETTERS_SUFFIX
        self._beside = catalog
        self._posted: Letter | None = None

    def post(self, commits: Sequence[Commit]) -> Letter | None:
        """Leave commits for whoever has the turn; None if that cannot be done here."""
        text = orjson.dumps([to_document(commit) for commit in commits])
        if len(text) > MAX_LETTER_BYTES or fcntl is None:
            return None
        try:
            letter = Letter(self._new(f"{self._folder}/{_start_of(commits[0].scope)}{new_id()}"))
        except OSError:  # no room, no permission: this process waits for its own turn
            return None
        if not letter.write(xxhash.xxh3_64_digest(text) + text):
            letter.take_back()
            return None
        self._posted = letter
        return letter

    def take(self, scope: Scope) -> list[Commit]:
        """Take the letters to a scope, the oldest first: from here on their commits are the caller's or nobody's.

        To be called in this process's turn only, so that whoever took letters before has committed them or never will.
        """
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.startswith(_start_of(scope)))
        except OSError:
            return []
        taken: list[Commit] = []
        room_bytes = MAX_TAKEN_BYTES
        for name in names:
            text = _taken_text(f"{self._folder}/{name}")
            commits = list(_commits_in(text))
            if may_be_posted(commits):
                taken += (commit for commit in commits if commit.scope == scope)
            room_bytes -= len(text)
            if len(taken) >= MAX_TAKEN or room_bytes <= 0:
                break
        return taken

    def forget(self) -> None:
        """Leave what was posted to the parent process: it lives as long as the parent does."""
        if self._posted is not None:
            self._posted.close()
            self._posted = None

    def _new(self, path: str) -> tuple[str, int]:
        how = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        mode = os.stat(self._beside).st_mode & 0o777
        try:
            return path, os.open(path, how, mode)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(self._folder, mode | (mode & 0o444) >> 2)
        return path, os.open(path, how, mode)


class Letter:
    """A letter that was posted; its sender lives while it is locked."""

    def __init__(self, place: tuple[str, int]) -> None:
        self._path, self._number = place

    def write(self, text: bytes) -> bool:
        """Lock the letter and write it whole. Before, it looks like that of a dead sender, and may be dropped."""
        try:
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.write(self._number, text) == len(text)
        except OSError:
            return False

    def take_back(self) -> bool:
        """Take the letter back, so that nobody commits it; False if somebody took it, or may yet."""
        try:
            os.unlink(self._path)
        except OSError:
            return False
        finally:
            self.close()
        return True

    def close(self) -> None:
        """Let go of the file."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


def _start_of(scope: Scope) -> str:
    return f"{xxhash.xxh3_64_hexdigest(f'{scope.table_id}/{scope.user}'.encode())}-"


def _taken_text(path: str) -> bytes:
    """Read a letter and delete it; nothing if another has it, or if its sender died."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        is_alive = _is_locked(number)
        text = os.read(number, MAX_LETTER_BYTES + _DIGEST_BYTES) if is_alive else b""
        os.unlink(path)
    except OSError:  # its sender took it back
        return b""
    finally:
        os.close(number)
    return text


def _is_locked(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _commits_in(text: bytes) -> Iterator[Commit]:
    """Read a letter's commits: all of them, or none if there is anything odd about it."""
    body = text[_DIGEST_BYTES:]
    if not body or xxhash.xxh3_64_digest(body) != text[:_DIGEST_BYTES]:
        return
    with suppress(TidelakeError, orjson.JSONDecodeError):
        yield from [from_document(Commit, document) for document in orjson.loads(body)]
