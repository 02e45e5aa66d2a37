"""Show a person how far a Spark job is, and nobody else.

It does not change what runs: it asks Spark's status tracker a few times a second.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASK_EVERY_S = 0.3


@contextmanager
def watched(spark: SparkSession, title: str) -> Iterator[None]:
    """Draw a bar on a terminal while the jobs started inside run; do nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    group = f"tidelake-{uuid4()}"
    spark.sparkContext.setJobGroup(group, title)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(title, total=None)

        def ask() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not done.wait(ASK_EVERY_S):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                known = [stage for stage in stages if stage is not None]
                if known:
                    total = sum(stage.numTasks for stage in known)
                    progress.update(bar, total=total, completed=sum(stage.numCompletedTasks for stage in known))

        watcher = threading.Thread(target=ask, name="tidelake-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
