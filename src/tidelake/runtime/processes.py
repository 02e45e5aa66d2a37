"""Name the process that does something, so that others can tell later whether it still runs.

::

    web1:4242:9f3c01ab:8812345    host, process id, where that id counts, when the process started

Where an id counts is told by the boot of the machine and the process namespace, so that another machine or container of
the same host name is not mistaken for this one; when the process started tells it from a later one of the same id. It
does not know clocks.
"""

from __future__ import annotations

import os
import socket
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

_DEAD = "ZX"  # states of a process that has ended and is only remembered


def process_name() -> str:
    """Return the name of this process."""
    pid = os.getpid()
    start = _start_of(pid)
    own = f"{socket.gethostname()}:{pid}"
    return own if start is None or _place() is None else f"{own}:{_place()}:{start}"


def is_gone(name: str) -> bool:
    """Whether a process is known to run no more; one of another machine, or of a shorter name, may run."""
    try:
        host, pid, place, start = name.rsplit(":", 3)
        number = int(pid)
    except ValueError:
        return False
    if host != socket.gethostname() or place != _place() or number <= 0:
        return False
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # somebody else's, and there
    found = _start_of(number)
    return found is not None and found != start


@cache
def _place() -> str | None:
    """Return where process ids count; None if the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        return f"{zlib.crc32(boot + os.readlink('/proc/self/ns/pid').encode()):08x}"
    except OSError:
        return None


def _start_of(pid: int) -> str | None:
    """Return when a process started, as the system counts, or that it has ended; None if that cannot be known."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return "ended" if fields[0] in _DEAD else fields[19]
    return None
