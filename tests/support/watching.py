"""Watch files from outside a process: who opens or reads them is told by the kernel (inotify).

It does not know who touched a file: only the process under test may know its path.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OPENED, _READ, _CHANGED, _MADE, _GONE = 0x20, 0x1, 0x2, 0x100, 0x200
_EVENT = struct.Struct("iIII")


class Watch:
    """What happened to some folders and the files in them since they are watched."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def touched(self) -> list[str]:
        """Return the names of what was opened, read, changed or made, each once; a folder itself is ``.``."""
        names: dict[str, None] = {}
        while True:
            try:
                data = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                return list(names)
            at = 0
            while at < len(data):
                _, _, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                names[data[at : at + length].rstrip(b"\0").decode() or "."] = None
                at += length


@contextmanager
def watched(*folders: Path) -> Iterator[Watch]:
    """Watch folders, and the files that are in them."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "cannot watch files")
    try:
        for folder in folders:
            if libc.inotify_add_watch(descriptor, os.fsencode(folder), _OPENED | _READ | _CHANGED | _MADE | _GONE) < 0:
                raise OSError(ctypes.get_errno(), f"cannot watch {folder}")
        yield Watch(descriptor)
    finally:
        os.close(descriptor)
