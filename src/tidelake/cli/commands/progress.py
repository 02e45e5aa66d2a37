"""Show on a terminal how far a file has got: bytes, rate, time left.

Nothing is shown where no terminal is, or for what takes no time. It does not count rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelake.ingest import FileRows

PROGRESS_BYTES = 16 << 20  # a file that is likely to take a second


@contextmanager
def shown_progress(file: str, rows: FileRows) -> Iterator[None]:
    """Show how much of a file is read, and how long the rest will take; of a pipe, how much so far."""
    size = rows.place.stat().st_size if isinstance(rows.place, Path) and rows.place.exists() else None
    if not sys.stderr.isatty() or (size is not None and size < PROGRESS_BYTES):
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()]
    name = file if len(file) <= 40 else "…" + file[-39:]
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=size)
        rows.on_read = lambda count: progress.advance(task, count)
        try:
            yield
        finally:
            rows.on_read = None
