"""Collect the rows of a Spark frame, as long as they fit into a budget.

Spark sends batches as its tasks end, and their order at the end; ``toArrow`` holds them all before it can be asked how
much there is. Here the bytes are counted as they arrive, and the rest is not read. It does not bound what Spark itself
holds: its own settings do.
"""

from __future__ import annotations

from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa

from tidelake.query.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


def collected(frame: DataFrame, budget: Budget) -> pa.Table:
    """Return the rows of a frame, or raise that they are larger than the budget."""
    if not hasattr(frame, "_jdf"):  # through Spark Connect
        rows = frame.toArrow()
        if rows.nbytes > budget.result_bytes:
            raise budget.out_of_result()
        return rows
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    return pa.Table.from_batches(_batches(frame, budget), None if not len(schema) else schema)


def _batches(frame: DataFrame, budget: Budget) -> list[pa.RecordBatch]:
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer
    from pyspark.util import _load_from_socket

    class Counted(ArrowCollectSerializer):
        def load_stream(self, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
            return super().load_stream(cast("IO[bytes]", _Counting(stream, budget)))

    port, secret, server = frame._jdf.collectAsArrowToPython()
    try:
        with _load_from_socket((port, secret), Counted()) as found:
            batches = list(found)
    except BaseException:
        with suppress(Exception):  # what it says now is that nobody reads
            server.getResult()
        raise
    with unwrap_spark_exception():
        server.getResult()
    return batches


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
