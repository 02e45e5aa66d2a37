"""Read and write tables with Spark: the data source ``tidelake``, a session that has it, and the pipeline's jobs.

::

    spark = tidelake.spark.session(lake="lake")    # or register(spark, lake="lake") for one that is there already
    spark.table("tidelake.obs.logs")
    spark.read.format("tidelake").option("lake", "lake").option("table", "obs.logs").load()

It does not start Spark before it is asked to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from importlib import metadata
from typing import TYPE_CHECKING

from tidelake.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelake.handle.lake_handle import OpenLake
    from tidelake.maintain.worker import Step

__all__ = ["explain", "merge_batch", "register", "session", "work"]

CATALOG = "tidelake"  # the name of a lake among a session's catalogs
DAEMON = "spark.python.daemon.module"
# Spark 4.1 and newer add up the bytes of a batch after each row that they hand to Python, which takes a quarter of a
# write's time in the JVM. Batches of fewer rows are bounded well enough.
BATCHES = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1024",
}
OLDEST, TOO_NEW = (4, 0), (4, 4)  # the lines of Spark that are tested; all is made for the newest of them


def _check_version() -> None:
    """Refuse a pyspark that this package was not made for; one that is missing is told when it is needed."""
    try:
        found = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return
    if not OLDEST <= tuple(int(part) for part in found.split(".")[:2] if part.isdigit()) < TOO_NEW:
        raise UnavailableError(
            "tidelake needs pyspark 4.0 to 4.3: pip install 'tidelake[spark]'",
            found=found,
            kind="unsupported_spark",
        )


_check_version()


def session(
    master: str | None = None,
    *,
    app: str = "tidelake",
    lake: str | os.PathLike[str] | OpenLake | None = None,
    catalog: str = CATALOG,
    **settings: str,
) -> SparkSession:
    """Return a Spark session that knows ``tidelake``: the active one, or one on a master, ``local[*]`` by default.

    A ``lake`` is a catalog of it, as ``register`` says. Further settings are Spark's own, dots written as two
    underscores: ``spark__driver__memory="4g"``. A new session hands rows to Python in batches of 1,024, however large
    these are (``spark.sql.execution.arrow.maxRecordsPerBatch`` and ``maxBytesPerBatch``).
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need this Python and not another
    builder = SparkSession.builder.appName(app)
    if master is not None or SparkSession.getActiveSession() is None:
        place = master or os.environ.get("TIDELAKE_MASTER") or "local[*]"
        builder = builder.master(place)
        if place == "local" or place.startswith("local["):
            builder = builder.config(DAEMON, "tidelake.spark.daemon")
        builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.ui.enabled", "false")
        for name, value in BATCHES.items():
            builder = builder.config(name, value)
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    return register(builder.getOrCreate(), lake=lake, catalog=catalog)


def explain(frame: DataFrame) -> str:
    """Return what the scans of a frame would read of their tables, and what was pruned."""
    from tidelake.spark.explaining import explain

    return explain(frame)


def merge_batch(frame: DataFrame, batch_id: int, table: str, clauses: str, *, stream: str | None = None) -> bool:
    """Merge one batch of a stream into a table of a catalog, once, however often it is run; for ``foreachBatch``.

    The clauses are those of MERGE from ON on, with ``t`` for the table and ``s`` for the batch. Batches are known by
    the query's id and their number; a second merge of the same batch into the same table needs a ``stream`` of its
    own. Return whether there was anything to do.
    """
    from tidelake.spark.batches import merge_batch

    return merge_batch(frame, batch_id, table, clauses, stream=stream)


def work(
    lake: OpenLake,
    *,
    kinds: Collection[str] | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    until_idle: bool = True,
    tell: Callable[[Step], None] | None = None,
) -> int:
    """Do the upkeep of a lake as it falls due, compactions as Spark tasks; return how many pieces were done.

    Unless told otherwise it ends when nothing is due any more.
    """
    from tidelake.maintain.units import KINDS
    from tidelake.spark.working import work

    return work(lake, kinds=kinds or KINDS, spark=spark, master=master, until_idle=until_idle, tell=tell)


def register(
    spark: SparkSession, *, lake: str | os.PathLike[str] | OpenLake | None = None, catalog: str = CATALOG
) -> SparkSession:
    """Make a session ready: the source's name, and a rule by which filters and columns reach it.

    With a ``lake``, open or by its address, the session has it as a catalog: ``tidelake.obs.logs`` in SQL. A folder
    that is not there yet is made. The session's other settings stay as they are, and other sources are not concerned.
    """
    from tidelake.spark.jvm.catalogs import connect, is_set, set_catalog
    from tidelake.spark.jvm.joins import install as install_joins
    from tidelake.spark.jvm.merging import install as install_merging
    from tidelake.spark.jvm.optimizer import install, install_streams
    from tidelake.spark.jvm.planning import register_source
    from tidelake.spark.places import Place
    from tidelake.spark.source import TidelakeSource

    install_merging(spark)  # before anything is asked
    install_joins(spark)
    register_source(spark, TidelakeSource)
    install(spark)
    install_streams(spark)
    if lake is not None:
        place = Place.made(lake) if isinstance(lake, str | os.PathLike) else Place.of_lake(lake)
        set_catalog(spark, place, catalog)
    elif is_set(spark):
        connect(spark)
    return spark
