"""Provide obstore to this process: as it is, or a copy of its own to a child that was forked after it was used.

obstore's requests are served by threads that a fork does not copy, through a queue of events that parent and child
would share: a child that used them would wait for ever, or disturb its parent. Its compiled library keeps them for as
long as the process lives, so a child loads the library a second time, from a copy of the file, with threads of its own.
That takes some tens of milliseconds, once, and only in a child that uses a bucket. It does not ask anything of a store.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import obstore
import obstore.exceptions
import obstore.store

_COMPILED = "obstore._obstore"


@dataclass(frozen=True, slots=True)
class Library:
    """obstore's functions, stores and errors; a store of one is no store of another."""

    functions: Any
    stores: Any
    exceptions: Any


ORIGINAL = Library(obstore, obstore.store, obstore.exceptions)

_library = ORIGINAL
_is_used = _is_inherited = False
_loading = threading.Lock()


def library() -> Library:
    """Return what this process may use, and note that it is used."""
    global _is_used
    if _is_inherited:
        _load_again()
    _is_used = True
    return _library


def _after_fork() -> None:
    global _is_inherited, _is_used, _loading
    _is_inherited, _is_used = _is_inherited or _is_used, False
    _loading = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _load_again() -> None:
    global _library, _is_inherited
    with _loading:
        if _is_inherited:
            _library = _copied()
            _is_inherited = False


def _copied() -> Library:
    """Load a copy; the system takes the same file for the same library."""
    compiled = sys.modules[_COMPILED].__file__
    assert compiled is not None
    with tempfile.TemporaryDirectory(prefix="tidelake-") as folder:
        copy = shutil.copy(compiled, folder)
        with _modules_aside(), _found_at(copy):
            functions = importlib.import_module("obstore")
            stores = importlib.import_module("obstore.store")
            exceptions = importlib.import_module("obstore.exceptions")
    return Library(functions, stores, exceptions)


@contextmanager
def _modules_aside() -> Iterator[None]:
    """Have obstore's modules imported anew, and leave those of before to whoever imports them."""
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "obstore"}
    for name in before:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
            del sys.modules[name]
        sys.modules.update(before)


@contextmanager
def _found_at(copy: str) -> Iterator[None]:
    """Have the compiled part found in a copy of its file."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
            if name != _COMPILED:
                return None
            loader = importlib.machinery.ExtensionFileLoader(name, copy)
            return importlib.util.spec_from_file_location(name, copy, loader=loader)

    sys.meta_path.insert(0, Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(Finder)
