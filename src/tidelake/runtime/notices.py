"""Tell a person why they wait: loops are compiled, once on a machine, or there is no compiler for them.

``compiling`` says when a loop is compiled, and not when it is loaded; what runs uncompiled says how many bytes it goes
through. Who can talk to a person says how to tell. Short waits are not worth a word. It does not import a compiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidelake.runtime.deferred import is_installed

QUIET_S = 0.7  # of compiling that nobody needs to be told of
QUIET_BYTES = 32 << 20  # gone through uncompiled that nobody needs to be told of: some seconds
NOTICE = "compiling for this machine, which takes some seconds, once"
PLAIN_NOTICE = "large files take a quarter of the time with a compiler: pip install 'tidelake[fast]'"

_tell: Callable[[str], None] | None = None
_since: float | None = None
_plain_bytes = 0


def tell_with(tell: Callable[[str], None] | None) -> None:
    """Choose how a person is told, once; None for not at all."""
    global _tell, _since, _plain_bytes
    _tell, _since, _plain_bytes = tell, None, 0


def compiling() -> None:
    """Note that a loop is being compiled; tell when it has gone on for a while."""
    global _tell, _since
    if _tell is None:
        return
    now = time.monotonic()
    _since = now if _since is None else _since
    if now - _since >= QUIET_S:
        tell, _tell = _tell, None
        tell(NOTICE)


def interpreting(size: int) -> None:
    """Note that bytes are gone through without a compiler; tell when they are many."""
    global _tell, _plain_bytes
    _plain_bytes += size
    if _tell is not None and _plain_bytes >= QUIET_BYTES and not is_installed("numba"):
        tell, _tell = _tell, None
        tell(PLAIN_NOTICE)
