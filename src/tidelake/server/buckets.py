"""Keep how much is left to whom within a second, for one process or for several that share a file.

A bucket holds what its rate gives in a second, and fills again at that rate; what is larger than a bucket may overdraw
a full one, and later requests wait for it. Buckets lie in slots of a fixed table, found by a digest of their name among
a few neighbours. Where all of those are taken the one that was touched longest ago gives way: after a second it was
full again in any case, unless it had been overdrawn. It does not refuse: see ``allowance``.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SLOTS = 4096
NEIGHBOURS = 16  # slots that may hold one name
ROUNDING = 1e-9  # of times a rate: what a third of a second gives three times is one
_SLOT = struct.Struct("<16sdd")  # digest of the name, what was left, and when that was


class Buckets:
    """What is left of rates. It may be used by several threads, and by all processes that name the same file."""

    def __init__(self, place: Path | None = None, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s, self._lock, self._file = clock_s, threading.Lock(), -1
        size = SLOTS * _SLOT.size
        if place is not None:
            self._file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.posix_fallocate(self._file, 0, size)  # whoever comes first; no page may lack room when it is written
        self._slots = mmap.mmap(self._file, size)

    def take(self, name: str, rate: int, amount: int, *, refuses: bool = True) -> bool:
        """Take an amount off a bucket, and return whether it was there; if not, nothing is taken where it refuses."""
        digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
        with self._held():
            now_s = self._clock_s()
            at, left, was_s = self._found(digest, rate, now_s)
            there = min(float(rate), left + max(0.0, now_s - was_s) * rate)
            if refuses and there + ROUNDING * rate < min(amount, rate):
                return False
            _SLOT.pack_into(self._slots, at, digest, there - amount, now_s)
            return True

    def close(self) -> None:
        """Let the file go."""
        self._slots.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _found(self, digest: bytes, rate: int, now_s: float) -> tuple[int, float, float]:
        """Return where a bucket is or may be, what was left, and when; it is full if it is new."""
        first = int.from_bytes(digest[:8], "little")
        oldest, oldest_s = 0, float("inf")
        for step in range(NEIGHBOURS):
            at = (first + step) % SLOTS * _SLOT.size
            held, left, was_s = _SLOT.unpack_from(self._slots, at)
            if held == digest:
                return at, left, was_s
            if was_s < oldest_s:
                oldest, oldest_s = at, was_s  # one that was never taken is as old as can be
        return oldest, float(rate), now_s

    @contextmanager
    def _held(self) -> Iterator[None]:
        with self._lock:
            if self._file < 0:
                yield
                return
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
