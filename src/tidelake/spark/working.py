"""Be a worker of upkeep whose compactions run on Spark: one piece of work is one task.

1. A thread of the driver takes a piece from the catalog's queue and prolongs its lease, as every worker does. There are
   as many threads as the cluster has cores, each waiting for one task.
2. A compaction's task reads the extents of the run and writes the new ones into a folder that was registered for it.
   It asks the object store alone, never the catalog.
3. The driver commits them with the fence of the piece's lease: if that was lost, or an input has gone, nothing changes
   and what was written is given up.

Every other kind of work is the catalog's more than the rows', and is done by the driver. It does not choose or plan
work: see ``maintain``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidelake.errors import TidelakeError, UnavailableError
from tidelake.handle.lake_handle import OpenLake
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain import compact, worker
from tidelake.maintain.compact import CompactReport
from tidelake.maintain.rewrite import Rewrite
from tidelake.maintain.units import KINDS
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Extent, Fence, Snapshot
from tidelake.scan.footers import Footers
from tidelake.spark.jobs import job_of, session_of, told_by_task
from tidelake.spark.progress import watched
from tidelake.spark.writing import Extents, Job, Written, announce, give_up, register_folder, take_written
from tidelake.write.stager import EXTENT_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def work(
    lake: OpenLake,
    *,
    kinds: Collection[str] = KINDS,
    spark: SparkSession | None = None,
    master: str | None = None,
    stop: threading.Event | None = None,
    every_s: float = 10.0,
    until_idle: bool = True,
    tell: Callable[[worker.Step], None] | None = None,
) -> int:
    """Plan upkeep and do it until nothing is due, or until told to stop; return how many pieces were done.

    Compactions run as Spark tasks, one a task, everything else in this process.
    """
    engine = session_of(spark, master)
    with watched(engine, "upkeep"):
        return worker.work(
            lake.handle,
            kinds,
            stop=stop or threading.Event(),
            every_s=every_s,
            until_idle=until_idle,
            tell=tell,
            threads=max(1, engine.sparkContext.defaultParallelism),
            compact_run=_compact_on(engine),
        )


def _compact_on(engine: SparkSession) -> Callable[..., CompactReport]:
    """Return what compacts a run in a task of a session."""

    def compact_run(table: TableHandle, head: Snapshot, run: Sequence[Extent], *, fence: Fence | None) -> CompactReport:
        if head.is_keyed:  # one process can tell which versions are the newest
            return compact.compact_run(table, head, run, fence=fence)
        in_order = compact.stays_as_it_comes(TableSettings.of(head.settings))
        job = replace(job_of(table, head, head.settings, EXTENT_BYTES), sort=not in_order)
        written: list[Written] = []

        def write(rewrite: Rewrite, run: Sequence[Extent]) -> int:
            register_folder(table, job.folder)
            found = _in_task(engine, job, run)
            level = compact.level_of(run)
            message = replace(found, extents=tuple(replace(extent, level=level) for extent in found.extents))
            written.append(message)
            announce(table, job.id, job.folder, message.keys)
            extents = take_written(rewrite.writer(), [message])
            rewrite.add(*extents)
            return message.rows

        try:
            return compact.compact_run(table, head, run, fence=fence, write=write, id=job.id)
        finally:
            give_up(table, job.folder, written)  # all that was not committed

    return compact_run


def _in_task(engine: SparkSession, job: Job, run: Sequence[Extent]) -> Written:
    """Write the rows of a run again in one task."""
    try:
        (found,) = engine.sparkContext.parallelize([tuple(run)], 1).map(_compactor(job)).collect()
    except Exception as error:  # of Spark or of what speaks to it, whatever their classes: the queue tries again
        told = told_by_task(error) or [(type(error).__name__, str(error).strip().partition("\n")[0])]
        raise UnavailableError(f"a spark task failed: {': '.join(told[-1])}", table=job.table) from error
    if isinstance(found, TidelakeError):
        raise found
    return found


def _compactor(job: Job) -> Callable[[Sequence[Extent]], Written | TidelakeError]:
    def compact_in_task(run: Sequence[Extent]) -> Written | TidelakeError:
        store = job.place.open_objects(job.objects)
        extents = Extents(store, job)
        try:
            for batch in compact.sorted_rows(Footers(store), job.schema, TableSettings.of(job.settings), run):
                extents.take_batch(batch)
            return extents.finish(inline_bytes=0)
        except TidelakeError as error:
            return error  # as a value it keeps its class; the piece is tried again by the queue and not by spark

    return compact_in_task
