"""Give tests a disk of their own that can be full, or read-only.

A small tmpfs is mounted where root may; elsewhere the test is skipped, with the reason. It does not touch other disks.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Disk:
    """A mounted disk with little room."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"

    def fill(self) -> None:
        """Leave no room at all."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (65_536, 4_096, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError:
                    continue

    def make_room(self) -> None:
        """Take away what fills it."""
        self._ballast.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Let nobody write for a while."""
        _mount("-o", "remount,ro", str(self.root))
        try:
            yield
        finally:
            _mount("-o", "remount,rw", str(self.root))


@contextmanager
def small_disk(folder: Path, megabytes: int = 8) -> Iterator[Disk]:
    """Mount a disk at a new folder, and take it away afterwards."""
    folder.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a disk of one's own needs root and mount: {error}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)
