"""Import a library when something of it is first used.

A command that lists tables must not wait for compilers and column engines that it never calls; a module that only some
callers need such a library for says ``np = later("numpy")`` and is otherwise written as ever. What was used once is
kept, so that the next use costs no more than any other attribute. It does not put anything into ``sys.modules`` itself.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def deferred(name: str) -> Any:
    """Return a stand-in for a module, which imports it at the first use."""
    return _Later(name)


@cache
def is_installed(name: str) -> bool:
    """Whether a library can be imported; it is not imported to find out."""
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name)
        setattr(self, name, found)
        return found

    def __repr__(self) -> str:
        return f"later({self._name!r})"
