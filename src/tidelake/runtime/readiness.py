"""Say whether loops run compiled already, and have them compiled in the background where they do not.

Compiling takes some twenty seconds, once on a machine, and nobody should wait for it: who has a plain twin of a loop
asks ``has_loops`` first. While it says no, other processes compile what is usually needed (``cli/warm_up.py``) into
numba's cache, side by side, and leave a mark when they are done; from then on every process loads the code. Loops
without a twin are compiled where they are called, as are all where marks cannot be written or
``TIDELAKE_COMPILE=now``. It does not import a compiler.

    <cache>/tidelake-loops-<digest>-json.ready      one mark for each part that is compiled side by side
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tidelake.runtime.deferred import is_installed

COMPILER = "numba"
PARTS = ("json", "others")  # take about as long
LOOK_S = 0.1  # between looks for marks
AT_ONCE = "TIDELAKE_COMPILE"

LOOP_ROOMS = (
    "runtime",
    "kernels",
    "dynamic",
    "logical",
    "ingest",
    "scan",
    "query/promql",
    "spark",
    "connectors/postgres",
    "connectors/mysql",
    "server/wire",
)  # that have functions which are compiled

_is_ready = False
_looked = 0.0
_begun: list[subprocess.Popen[bytes]] | None = None


def has_loops() -> bool:
    """Whether loops are compiled, or will be where they are called; if not, have it done."""
    global _is_ready, _looked
    if _is_ready:
        return True
    if not is_installed(COMPILER):
        return False
    if os.environ.get(AT_ONCE) == "now":
        _is_ready = True
        return True
    now = time.monotonic()
    if _looked and now - _looked < LOOK_S:
        return False
    _looked = now
    folder = mark_folder()
    _is_ready = folder is None or all(mark(folder, part).exists() for part in PARTS)
    if not _is_ready and folder is not None:
        _begin(folder)
    return _is_ready


def is_waiting() -> bool:
    """Whether whoever called a loop now would wait for a compiler."""
    return is_installed(COMPILER) and not has_loops()


@functools.cache
def loop_sources() -> str:
    """Return the digest of all sources that loops are compiled from, which is what kept code is valid for.

    numba itself looks at the one file that a loop is written in, and so would go on with code into which an older
    function of another file was compiled.
    """
    package, digest = Path(__file__).parents[1], hashlib.blake2b(digest_size=16)
    archive = archive_of(package)
    for name, source in _sources(package) if archive is None else _archived_sources(archive, package.name):
        digest.update(b"%s %d " % (name.encode(), len(source)))
        digest.update(source)
    return digest.hexdigest()


def archive_of(package: Path) -> Path | None:
    """Return the file that this package is imported from, if it was shipped as one and not installed."""
    return next((parent for parent in package.parents if parent.is_file()), None)


def _sources(package: Path) -> Iterator[tuple[str, bytes]]:
    for room in LOOP_ROOMS:
        for path in sorted((package / room).rglob("*.py")):
            yield path.relative_to(package).as_posix(), path.read_bytes()


def _archived_sources(archive: Path, package: str) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as file:
        for room in LOOP_ROOMS:
            held = f"{package}/{room}/"
            for name in sorted(file.namelist()):
                if name.startswith(held) and name.endswith(".py"):
                    yield name.removeprefix(f"{package}/"), file.read(name)


@functools.cache
def mark_folder() -> Path | None:
    """Return the folder where marks are kept: numba's, else beside our own code, else the user's; None if nowhere."""
    chosen, home = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    own = Path(__file__).parent / "__pycache__"
    folders = [Path(chosen)] if chosen else [own, Path(home or Path.home() / ".cache") / "tidelake"]
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
    return None


def mark(folder: Path, part: str) -> Path:
    """Return the mark of a part that is compiled."""
    try:
        compiler = version(COMPILER)
    except PackageNotFoundError:
        compiler = "none"
    python = f"{sys.implementation.cache_tag}-{compiler}"
    return folder / f"tidelake-loops-{python}-{loop_sources()}-{part}.ready"


def _begin(folder: Path) -> None:
    """Start compiling, once for each process; those that find another at it end at once."""
    global _begun
    if _begun is None:
        _begun = [_started(part) for part in PARTS if not mark(folder, part).exists()]
    for each in _begun:
        each.poll()  # so that none is left as a zombie


def _started(part: str) -> subprocess.Popen[bytes]:
    package = str(Path(__file__).parents[2])
    paths = [package, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = os.environ | {AT_ONCE: "now", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "tidelake.cli.warm_up", part]
    no, place = subprocess.DEVNULL, tempfile.gettempdir()
    return subprocess.Popen(command, stdin=no, stdout=no, stderr=no, env=environment, process_group=0, cwd=place)
