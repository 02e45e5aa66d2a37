"""Join a frame with the rows of a table that are nearest to its vectors, by the table's index.

Spark's own ``APPROX NEAREST`` measures every row of the one side against every row of the other. Here the vectors of
the frame come to the driver, each once. The rows nearest to each are found there as ``Table.nearest`` finds them, in
one snapshot, and go back as a frame, which is joined by the vector. So the frame may be large, but its different
vectors are to be few. It does not read the table with Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.vectors.definition import DISTANCE, MAX_QUERIES, QUERY, vector_column
from tidelake.vectors.nearest import Asking, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tidelake.handle.table_handle import TableHandle

MAX_VECTORS = 100_000  # of a frame, which the driver holds


def join_nearest(
    frame: DataFrame,
    table: TableHandle,
    column: str,
    by: str,
    columns: Sequence[str] | None = None,
    **asking: Unpack[Asking],
) -> DataFrame:
    """Return the frame's rows, each with the columns of the rows nearest to its vector, and their distance."""
    pinned = table.pinned()
    wanted = list(pinned.snapshot.schema.names if columns is None else columns)
    if twice := sorted({*wanted, DISTANCE}.intersection(frame.columns)):
        raise InvalidInputError("the frame has a column of that name too: rename it", column=twice[0])
    if by not in frame.columns:
        raise InvalidInputError("the frame has no such column", column=by, columns=", ".join(frame.columns))
    rows = frame.select(by).where(f"`{by}` is not null").distinct().limit(MAX_VECTORS + 1).toArrow()
    if rows.num_rows > MAX_VECTORS:
        raise InvalidInputError(f"the frame has more than {MAX_VECTORS:,} different vectors", column=by)
    given = rows.column(0).combine_chunks()
    vectors = _matrix(given, by)
    found = []
    for start in range(0, len(given), MAX_QUERIES):
        near = nearest(pinned, column, vectors[start : start + MAX_QUERIES], columns=columns, **asking)
        own = given.take(pa.array(near[QUERY].to_numpy() + start))
        found.append(near.drop_columns([QUERY]).add_column(0, by, own))
    if not found:  # nothing is near nothing, but it has columns
        size = vector_column(pinned.snapshot.schema, column).type.dimension or 1
        near = nearest(pinned, column, np.ones(size), columns=columns, **asking).slice(0, 0)
        found = [near.add_column(0, by, given)]
    return frame.join(frame.sparkSession.createDataFrame(_plain(pa.concat_tables(found))), on=by)


def _matrix(given: pa.Array, by: str) -> npt.NDArray[np.float64]:
    """Return a column of a frame as the rows of an array."""
    if not pa.types.is_list(given.type) or not pa.types.is_floating(given.type.value_type):
        raise InvalidInputError("a frame's vectors are arrays of float or double", column=by, type=given.type)
    sizes = given.value_lengths().to_numpy(zero_copy_only=False)
    if len(sizes) and (sizes != sizes[0]).any():
        raise InvalidInputError("a frame's vectors have several lengths", column=by, lengths=sorted({*sizes.tolist()}))
    flat: npt.NDArray[np.float64] = given.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    return flat.reshape(len(sizes), int(sizes[0]) if len(sizes) else 1)


def _plain(rows: pa.Table) -> pa.Table:
    """Return rows with vectors as Spark has them."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_fixed_size_list(field.type):
            kind = pa.list_(field.type.value_type)
            rows = rows.set_column(at, pa.field(field.name, kind), rows.column(at).cast(kind))
    if rows.num_rows:
        return rows
    empty = [pa.array([], field.type) for field in rows.schema]  # Spark takes no column without a chunk
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(empty, schema=rows.schema)])
