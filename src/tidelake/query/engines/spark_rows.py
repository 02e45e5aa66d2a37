"""Collect the rows of a Spark frame, as long as they fit into a budget.

Spark sends batches as its tasks end, and their order at the end; ``toArrow`` holds them all before it can be asked how
much there is. Here the bytes are counted twice: by the tasks, before they hold too much for the process they run in
(``Gathered.java``), and as they arrive, after which the rest is not read. It does not bound what Spark needs for joins,
groups and sorts: its own settings do.
"""

from __future__ import annotations

import re
import warnings
from contextlib import closing, suppress
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa

from tidelake.errors import UnavailableError
from tidelake.query.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


COUNTED = "tidelake.Gathered$Frames"
TOO_LARGE = re.compile(
    r"bigger than (?:local )?(?:maxResultSize|spark\.driver\.maxResultSize)"
    r"|tidelake: the result is larger than its budget"
)
NO_ROOM = "tidelake: the result is larger than the memory of Spark allows"


def collected(frame: DataFrame, budget: Budget) -> pa.Table:
    """Return the rows of a frame, or raise that they are larger than the budget."""
    if not hasattr(frame, "_jdf"):  # through Spark Connect
        rows = frame.toArrow()
        if rows.nbytes > budget.result_bytes:
            raise budget.out_of_result()
        return rows
    from tidelake.spark.lines import arrow_of

    schema = arrow_of(frame.schema, error_on_duplicated_field_names_in_struct=True)
    return pa.Table.from_batches(_batches(_counted(frame, budget), budget), None if not len(schema) else schema)


def as_too_large(error: Exception, budget: Budget) -> Exception | None:
    """Return what it means that Spark complains of a result's size, or None if it complains of something else."""
    text = str(error)
    if TOO_LARGE.search(text) is not None:
        return budget.out_of_result()
    if NO_ROOM in text:
        return UnavailableError(
            "the result is larger than the memory of Spark allows: ask for less,"
            " or start a session with more of it (spark.driver.memory)",
            kind="result_budget",
        )
    return None


def _counted(frame: DataFrame, budget: Budget) -> Any:
    """Return the JVM's frame with its rows counted by its tasks, where this Spark can have that."""
    from tidelake.spark.jvm.compile import java_class

    try:
        frames = java_class(frame.sparkSession, COUNTED).newInstance()
    except Exception as error:  # whatever another Spark says to what this one has
        warnings.warn(f"tidelake: the rows of a result are not counted by Spark here: {error}", stacklevel=2)
        return frame._jdf
    return frames.counted(frame._jdf, budget.result_bytes)


def _batches(frame: Any, budget: Budget) -> list[pa.RecordBatch]:
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer
    from pyspark.util import _load_from_socket

    class Counted(ArrowCollectSerializer):
        def load_stream(self, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
            return super().load_stream(cast("IO[bytes]", _Counting(stream, budget)))

    port, secret, server = frame.collectAsArrowToPython()
    try:
        found: Any = _load_from_socket((port, secret), Counted())
        with found if hasattr(found, "__enter__") else closing(found) as read:  # before Spark 4.2 a plain generator
            batches = _in_order(list(read))
    except BaseException:
        with suppress(Exception):  # what it says now is that nobody reads
            server.getResult()
        raise
    with unwrap_spark_exception():
        server.getResult()
    return batches


def _in_order(found: list[Any]) -> list[pa.RecordBatch]:
    """Bring batches into their order, which before Spark 4.3 is told after them."""
    if not found or isinstance(found[-1], pa.RecordBatch):
        return found
    *batches, order = found
    return [batches[at] for at in order]


class _Counting:
    """A file that is read, up to as many bytes as a result may have."""

    def __init__(self, file: Any, budget: Budget) -> None:
        self._file, self._budget, self._left = file, budget, budget.result_bytes
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise self._budget.out_of_result()
        return data

    def readable(self) -> bool:
        return True

    def flush(self) -> None:
        """Do nothing: it is only read."""

    def close(self) -> None:
        """Leave the file open: more than one stream comes through it."""
