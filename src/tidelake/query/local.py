"""Run a query in this process, on DuckDB, over the Arrow scans of its tables.

Every reference is a stream that begins anew whenever DuckDB reads it, so a plan that reads a table twice is right. Time
is bounded by interrupting, memory by DuckDB's own limit, and nothing is spilled to disk: what does not fit belongs on
Spark. It does not plan.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from threading import Timer
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.cbor_json import json_of
from tidelake.errors import QueryError, TidelakeError
from tidelake.lake import Lake
from tidelake.query.budget import Budget
from tidelake.query.functions import register_duckdb
from tidelake.query.plain import render
from tidelake.query.result import Prepared, Scan
from tidelake.scan import output_schema, scan

_SETTINGS = {
    "temp_directory": "''",  # nothing is spilled
    "TimeZone": "'UTC'",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",  # a name in a query is never a variable of ours
    "ieee_floating_point_ops": "false",  # what is divided by zero is null, as on Spark
    "error_on_division_by_zero": "false",
}
_JSON = {b"ARROW:extension:name": b"arrow.json", b"ARROW:extension:metadata": b""}


def execute(prepared: Prepared, scans: Sequence[Scan], budget: Budget, lake: Lake) -> pa.Table:
    """Run a query to its end and give its rows."""
    if "duckdb" not in prepared.rendered:
        prepared.rendered["duckdb"] = render(prepared.tree, "duckdb", language=prepared.language)
    deadline = time.monotonic() + budget.seconds
    streams = [_Stream(each, lake, deadline, budget) for each in scans]
    connection = _database(budget.memory_bytes).cursor()
    timer = Timer(budget.seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        for stream in streams:
            connection.register(stream.name, stream)
        found = connection.sql(prepared.rendered["duckdb"])
        rows = pa.table([], names=[]) if found is None else found.to_arrow_table()
        return _plain(rows, prepared.columns)
    except duckdb.Error as error:
        raise _explained(error, streams, budget) from error
    finally:
        timer.cancel()
        connection.close()


@lru_cache(maxsize=4)
def _database(memory_bytes: int) -> duckdb.DuckDBPyConnection:
    """Open DuckDB once for each memory limit; opening costs more than a small query."""
    connection = duckdb.connect(":memory:", config={"memory_limit": f"{memory_bytes}B"})
    for name, value in _SETTINGS.items():
        connection.execute(f"SET GLOBAL {name} = {value}")
    register_duckdb(connection)
    return connection


@atexit.register
def _close() -> None:
    _database.cache_clear()


class _Stream:
    """The rows of one scan, as an Arrow stream that can be begun many times."""

    def __init__(self, scan: Scan, lake: Lake, deadline: float, budget: Budget) -> None:
        self.name = scan.name
        self._scan, self._lake, self._deadline, self._budget = scan, lake, deadline, budget
        self.failure: TidelakeError | None = None
        self._source = output_schema(scan.plan.question)
        kinds = [scan.plan.question.schema[name].type for name in scan.plan.question.columns]
        self._dynamic = [kind.kind == "dynamic" for kind in kinds]
        self._schema = pa.schema(
            [
                pa.field(name, pa.utf8(), metadata=_JSON) if dynamic else pa.field(name, field.type)
                for name, field, dynamic in zip(scan.columns, self._source, self._dynamic, strict=True)
            ]
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in scan(self._scan.plan, self._lake.footers):
                if time.monotonic() > self._deadline:
                    raise self._budget.out_of_time()
                columns = [
                    json_of(values) if dynamic else values
                    for values, dynamic in zip(batch.columns, self._dynamic, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
        except TidelakeError as error:
            self.failure = error
            raise


def _explained(error: duckdb.Error, streams: Sequence[_Stream], budget: Budget) -> TidelakeError:
    for stream in streams:
        if stream.failure is not None:
            return stream.failure
    if isinstance(error, duckdb.OutOfMemoryException):
        return budget.out_of_memory()
    if isinstance(error, duckdb.InterruptException):
        return budget.out_of_time()
    message = str(error).split("\n")[0]
    label, _, rest = message.partition(": ")
    kind = "type_mismatch" if isinstance(error, duckdb.BinderException) else "runtime"
    return QueryError(f"{label.removesuffix(' Error').lower()}: {rest}", kind=kind)


def _plain(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Give a result in the types that both engines share: 64-bit sums, doubles, times in UTC."""
    columns = [_plain_column(column) for column in rows.columns]
    return pa.table(columns, names=list(names) if len(names) == len(columns) else rows.schema.names)


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_decimal(kind) and kind.scale == 0 and kind.precision == 38:
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            raise QueryError("a whole number is beyond 64 bits: cast to double", kind="runtime") from None
    if pa.types.is_float32(kind):
        return column.cast(pa.float64())
    if pa.types.is_timestamp(kind) and (kind.tz != "UTC" or kind.unit != "us"):
        return column.cast(pa.timestamp("us", tz="UTC"), safe=False)
    if pa.types.is_integer(kind) and kind not in (pa.int32(), pa.int64()):
        return column.cast(pa.int32() if kind.bit_width < 32 else pa.int64())
    if pa.types.is_large_string(kind):
        return column.cast(pa.utf8())
    if pa.types.is_dictionary(kind):
        return pc.cast(column, kind.value_type)
    return column
