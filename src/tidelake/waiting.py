"""Tell a person why the first use on a machine takes longer: loops are compiled, once, and kept.

``kernels`` says when a loop is compiled, and not when it is loaded; who can talk to a person says how to tell. Short
waits are not worth a word. It does not import a compiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable

QUIET_S = 0.7  # of compiling that nobody needs to be told of
NOTICE = "compiling for this machine, which takes some seconds, once"

_tell: Callable[[str], None] | None = None
_since: float | None = None


def tell_with(tell: Callable[[str], None] | None) -> None:
    """Choose how a person is told, once; None for not at all."""
    global _tell, _since
    _tell, _since = tell, None


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
