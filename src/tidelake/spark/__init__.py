"""Read and write tables with Spark: the data source ``tidelake``, a session that has it, and the pipeline's jobs.

::

    spark = tidelake.spark.session()               # or register(spark) for one that is there already
    spark.read.format("tidelake").option("lake", "lake").option("table", "obs.logs").load()

It does not start Spark before it is asked to.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["PUSHDOWN", "explain", "register", "session"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
DAEMON = "spark.python.daemon.module"


def session(master: str | None = None, *, app: str = "tidelake", **settings: str) -> SparkSession:
    """Give a Spark session that knows ``tidelake``: the active one, or a new one on a master, ``local[*]`` by default.

    Further settings are Spark's own, dots written as two underscores: ``spark__driver__memory="4g"``.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need this Python and not another
    builder = SparkSession.builder.appName(app).config(PUSHDOWN, "true")
    if master is not None or SparkSession.getActiveSession() is None:
        place = master or os.environ.get("TIDELAKE_MASTER") or "local[*]"
        builder = builder.master(place)
        if place == "local" or place.startswith("local["):
            builder = builder.config(DAEMON, "tidelake.spark.daemon")
        builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.ui.enabled", "false")
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    return register(builder.getOrCreate())


def explain(frame: DataFrame) -> str:
    """Say what the scans of a frame would read of their tables, and what was pruned."""
    from tidelake.spark.explaining import explain

    return explain(frame)


def register(spark: SparkSession) -> SparkSession:
    """Make a session ready: the source's name, and filters that reach it. The session's time zone stays as it is."""
    from tidelake.spark.optimizer import install
    from tidelake.spark.planning import register_source
    from tidelake.spark.source import TidelakeSource

    register_source(spark, TidelakeSource)
    spark.conf.set(PUSHDOWN, "true")
    install(spark)
    return spark
