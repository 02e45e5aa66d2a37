"""Start Spark for tests: one session for the whole run, small enough to share a machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_MEMORY = "1g"
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # no query here runs long enough for a better compiler to pay


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Return a session on two local cores, with everything it writes in a folder of its own."""
    import tidelake.spark

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [os.path.join(root, "src"), root, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    with tempfile.TemporaryDirectory(prefix="tidelake-spark-") as folder:
        session = tidelake.spark.session(
            "local[2]",
            spark__driver__memory=DRIVER_MEMORY,
            spark__driver__host="127.0.0.1",
            spark__local__dir=folder,
            spark__sql__warehouse__dir=os.path.join(folder, "warehouse"),
            spark__sql__shuffle__partitions="2",
            spark__sql__session__timeZone="UTC",
            spark__speculation="false",
            spark__sql__streaming__stopTimeout="30s",
        )
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()
