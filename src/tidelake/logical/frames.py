"""Turn Arrow rows into pandas frames without changing a value.

Arrow's own way makes doubles of whole numbers where one is missing, which rounds large ones, inside nested values too.
Here such columns have pandas' nullable types, and nested values are Python's own lists and dicts. It does not read
tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pandas


def pandas_frame(rows: pa.Table) -> pandas.DataFrame:
    """Return rows as a pandas frame; needs pandas."""
    import pandas

    nullable = {
        pa.bool_(): pandas.BooleanDtype(),
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
    }
    made = {}
    for at, field in enumerate(rows.schema):
        column = rows.column(at)
        if pa.types.is_nested(field.type) and not pa.types.is_fixed_size_list(field.type):
            made[at] = pandas.Series(column.to_pylist(), dtype=object)
        elif column.null_count and field.type in nullable:
            made[at] = column.to_pandas(types_mapper=nullable.get)
        else:
            made[at] = column.to_pandas()
    frame = pandas.DataFrame(made, index=range(rows.num_rows))
    frame.columns = pandas.Index(rows.schema.names)
    return frame
