"""Compile loops over bytes where numba is installed, and run the same loops as plain Python where it is not.

numba is an extra (``tidelake[fast]``), and larger than all else together but Arrow. A loop is written once, for both:
64-bit words are NumPy's, which go round as compiled ones do, and what is read from arrays of narrower numbers is a
Python integer here, as it is 64 bits wide there. The plain way is right and slow, so whoever has a twin that works on
whole columns asks ``readiness.has_loops`` first. The first call of a compiled loop on a machine compiles, and
``waiting`` hears of it; later processes load the code from numba's cache. It does not know what loops do.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tidelake.runtime import notices
from tidelake.runtime.deferred import is_installed
from tidelake.runtime.readiness import COMPILER, archive_of, loop_sources, mark_folder

HAS_COMPILER = is_installed(COMPILER)

_NARROW = frozenset("bBhHiI?")  # numbers that compiled code widens before it computes, and NumPy does not


def is_ready(loop: Any) -> bool:
    """Whether this process has compiled or loaded a loop; never, where there is no compiler."""
    return HAS_COMPILER and bool(getattr(loop, "signatures", True))


def is_kept(loop: Any) -> bool:
    """Whether the code of a loop is on the disk, so that it is loaded and not compiled; true where nothing compiles."""
    if not HAS_COMPILER:
        return True
    try:
        return bool(loop._cache._cache_file._load_index())
    except (AttributeError, OSError, EOFError, ValueError):
        return False


if HAS_COMPILER:
    import numba
    from numba.core import caching, event

    _Files: Any = caching.IndexDataCacheFile  # numba ships no types

    class CodeFiles(_Files):  # type: ignore[misc]
        """The files that keep a loop's compiled code, one for each signature.

        numba numbers them by what its index held a moment ago. Two processes that compile a loop at once, for different
        types, can take the same number, and then what is read for the one signature is the code of the other. Here a
        file is named by its signature, and says what it was compiled from; a file that does not match is not used.
        """

        def save(self, key: Any, data: Any) -> None:
            """Keep code; of two processes that enter something at once in the index, one will compile again."""
            name = self._data_name(_digest(key[0]))
            self._save_data(name, (self._source_stamp, key, data))
            self._save_index({**self._load_index(), key: name})

        def load(self, key: Any) -> Any:
            """Return the code that was kept for a key, or None."""
            match super().load(key):
                case (stamp, kept_key, data) if stamp == self._source_stamp and kept_key == key:
                    return data
            return None

    def _digest(signature: object) -> int:
        return int.from_bytes(hashlib.blake2b(str(signature).encode(), digest_size=8).digest())

    class _Listener(event.Listener):
        """Hear that numba compiles; what it loads from its cache makes no event."""

        def on_start(self, event: event.Event) -> None:
            notices.compiling()

        def on_end(self, event: event.Event) -> None:
            notices.compiling()

    event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]

    # Arrays that a loop is given are counted by nobody while it runs: their caller holds them. Counting them at every
    # call of a part took three quarters of the time of a decoder that calls one for each field. What makes arrays of
    # its own needs the counting: see ``allocating``.
    _UNCOUNTED: Any = {"_nrt": False}

    def _kept(loop: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        try:
            made: Any = numba.njit(cache=True, nogil=True, **options)(loop)
        except RuntimeError:  # no folder of ours or the user's can be written
            return numba.njit(nogil=True, **options)(loop)  # type: ignore[no-any-return]
        cache = made._cache
        cache._cache_file = CodeFiles(_folder() or cache.cache_path, cache._impl.filename_base, loop_sources())
        return made  # type: ignore[no-any-return]

    def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a loop that Python calls, and keep the code on disk where there is a place to keep it."""
        return _kept(loop, **_UNCOUNTED)

    def allocating(loop: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a loop that Python calls and that makes or returns arrays; else as ``compiled``."""
        return _kept(loop)

    @functools.cache
    def _folder() -> str | None:
        """Return where the code of a shipped package is kept, whatever the place that it was unpacked or copied to."""
        if archive_of(Path(__file__).parents[1]) is None or (folder := mark_folder()) is None:
            return None
        place = folder / f"loops-{loop_sources()}"
        place.mkdir(exist_ok=True)
        return str(place)

    def part(loop: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a function that only loops call, with each of them."""
        made: Callable[..., Any] = numba.njit(**_UNCOUNTED)(loop)
        return made

    def inlined(loop: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a function that only loops call, in the place of each call."""
        return numba.njit(inline="always")(loop)

    def part_or(twin: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a function that only loops call; ``twin`` does the same where there is no compiler."""
        return part

else:

    def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
        """Return a loop that Python calls, so that it reads arrays as compiled code does."""

        @functools.wraps(loop)
        def run(*arguments: Any) -> Any:
            if getattr(_thread, "is_inside", False):
                return loop(*arguments)
            notices.interpreting(sum(each.nbytes for each in arguments if isinstance(each, np.ndarray)))
            _thread.is_inside = True
            try:
                with np.errstate(all="ignore"):  # words go round
                    return _given_back(loop(*map(_as_compiled_code_reads, arguments)))
            finally:
                _thread.is_inside = False

        return run

    def part(loop: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that only loops call."""
        return loop

    inlined = part
    allocating = compiled

    def part_or(twin: Callable[..., Any]) -> Callable[..., Any]:
        """Return what does the same as a function that only loops call, and is faster uncompiled."""
        return lambda loop: twin


_thread = threading.local()


class _Records:
    """An array of records whose fields are attributes, as compiled code has them; what is set is set in the array."""

    __slots__ = ("_columns", "_size")

    def __init__(self, array: Any) -> None:
        names = array.dtype.names
        self._columns = {name: (array[name], array.dtype[name].char in _NARROW) for name in names}
        self._size = len(array)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, at: Any) -> _Record:
        return _Record(self._columns, int(at))

    def __setitem__(self, at: Any, record: _Record) -> None:
        for name, (column, _) in self._columns.items():
            column[at] = getattr(record, name)


class _Record:
    __slots__ = ("_at", "_columns")

    def __init__(self, columns: dict[str, tuple[Any, bool]], at: int) -> None:
        object.__setattr__(self, "_columns", columns)
        object.__setattr__(self, "_at", at)

    def __getattr__(self, name: str) -> Any:
        column, is_narrow = self._columns[name]
        return column.item(self._at) if is_narrow else column[self._at]

    def __setattr__(self, name: str, value: Any) -> None:
        self._columns[name][0][self._at] = value


def _as_compiled_code_reads(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.names:
        return _Records(value)
    return value.data if value.dtype.char in _NARROW else value


def _given_back(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_given_back, value))
    return np.asarray(value) if isinstance(value, memoryview) else value
