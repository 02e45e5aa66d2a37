"""Determine whether whole numbers are exact as doubles, which is what lets a long column become real.

A double holds every whole number up to 2**53 and skips some beyond it. What is asked here is conservative: a number
beyond that bound is taken as inexact even where a double happens to hold it, and statistics that do not say are taken
as inexact too. It does not read extents or catalogs: see ``drift``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tidelake.errors import CorruptError
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = deferred("pyarrow"), deferred("pyarrow.compute")

EXACT_IN_DOUBLE = 2**53  # from here on, doubles skip integers


def is_exact_array(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a double holds every value of a column; one that is not of whole numbers is as it is."""
    if not pa.types.is_integer(values.type) or values.type.bit_width < 64:
        return True
    bounds = pc.min_max(values)
    return are_exact(bounds["min"].as_py(), bounds["max"].as_py())


def are_exact(low: Any, high: Any) -> bool:
    """Whether a double holds every number between two bounds; None stands for no numbers at all."""
    return all(bound is None or -EXACT_IN_DOUBLE <= bound <= EXACT_IN_DOUBLE for bound in (low, high))


def has_inexact_longs(column_stats: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether an extent's stored statistics show whole numbers beyond the bound in one of some columns."""
    shapes = (column_stats.get(name) for name in names)
    bounds = (shape.get(key) for shape in shapes if isinstance(shape, Mapping) for key in ("min", "max"))
    return any(type(bound) is int and not are_exact(bound, bound) for bound in bounds)


def stream_has_inexact_longs(payload: bytes, names: Collection[str]) -> bool:
    """Whether rows kept as an Arrow stream have whole numbers beyond the bound in one of some columns."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
            asked = [field.name for field in reader.schema if field.name in names and field.type == pa.int64()]
            rows = reader.read_all() if asked else None
    except (pa.ArrowException, OSError) as error:
        raise CorruptError("hot rows are not readable", reason=error) from error
    return rows is not None and not all(is_exact_array(rows.column(name)) for name in asked)
