"""Fork Spark's Python workers from a process that has the engine loaded already.

Spark starts a daemon, which forks a fresh process for tasks; each of them would import us and our compilers again,
which takes a second. Only a session of this process uses it: on a cluster the daemon starts before the package is
shipped. Nothing here prints or starts threads: a fork would lose them. It does not change what workers do.
"""

from __future__ import annotations

import gc
import importlib
import sys

from pyspark import daemon

LOADED = (
    "tidelake.spark.source",
    "tidelake.spark.reading",
    "tidelake.spark.writing",
    "tidelake.spark.streaming",
    "tidelake.catalog.sql.sql_catalog",
    "tidelake.format.tlm",
    "tidelake.format.parquet",
    "tidelake.scan.evaluate",
    "tidelake.handle.opening",
    "tidelake.handle.table_handle",
)


def preload() -> None:
    """Import what tasks use."""
    for name in (*LOADED, *sys.argv[1:2]):
        importlib.import_module(name)
    gc.freeze()  # what is loaded is not looked at again by any child's collector


if __name__ == "__main__":
    preload()
    daemon.manager()
