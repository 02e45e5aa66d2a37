"""Import a library when something of it is first used.

A command that lists tables must not wait for compilers and column engines that it never calls; a module that only some
callers need such a library for says ``np = later("numpy")`` and is otherwise written as ever. What was used once is
kept, so that the next use costs no more than any other attribute. It does not put anything into ``sys.modules`` itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def later(name: str) -> Any:
    """Give a stand-in for a module, which imports it at the first use."""
    return _Later(name)


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name)
        setattr(self, name, found)
        return found

    def __repr__(self) -> str:
        return f"later({self._name!r})"
