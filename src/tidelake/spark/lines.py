"""Have one name for what the lines of Spark, 4.0 to 4.3, have in their Python data source API.

========================  =========================================================================
since                     before that
========================  =========================================================================
4.1 filters are pushed    none are; the catalog's own pushdown speaks in the same classes
4.1 Arrow to streams      a batch writer's class says that Arrow batches are wanted, of any writer
4.2 streams with limits   a batch of a stream is all that there is
4.1 ``TimeType``          there is no such type
========================  =========================================================================

It does not know what differs in the JVM: each class of ``jvm`` is tried there by itself.
"""

from __future__ import annotations

import inspect
from abc import ABC
from dataclasses import dataclass, make_dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource, types
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )

    pushed = datasource
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:

        class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
            """Take Arrow batches of a stream, as Spark asks of the second class whichever writer it has."""

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxFiles,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit(ABC):  # noqa: B024  # which has no methods
            """Limit a batch of a stream."""

        class ReadAllAvailable(ReadLimit):
            """Take all that there is."""

        @dataclass(frozen=True)
        class ReadMaxFiles(ReadLimit):
            """Take so many pieces."""

            max_files: int

        class SupportsTriggerAvailableNow(ABC):  # noqa: B024
            """Learn when a stream is to end with what is there."""

    if hasattr(datasource, "Filter"):
        pushed = datasource
    else:
        _COMPARISONS = (
            "EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual", "In",
            "StringStartsWith", "StringEndsWith", "StringContains",
        )  # fmt: skip
        _FIELDS = {name: ["attribute", "value"] for name in _COMPARISONS}
        _FIELDS |= {"IsNull": ["attribute"], "IsNotNull": ["attribute"], "Not": ["child"]}
        _FILTER = type("Filter", (), {})
        pushed = SimpleNamespace(
            Filter=_FILTER,
            **{name: make_dataclass(name, names, bases=(_FILTER,), frozen=True) for name, names in _FIELDS.items()},
        )

HAS_LIMITS = ReadLimit.__module__ != __name__  # whether a stream's batch can be bounded
TIMES_OF_DAY: tuple[type[types.DataType], ...] = tuple(filter(None, [getattr(types, "TimeType", None)]))
DEFAULT_PUSH: Any = getattr(datasource.DataSourceReader, "pushFilters", None)  # what Spark takes for no pushdown
_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


def arrow_of(schema: types.StructType, **told: Any) -> pa.Schema:
    """Return Spark's own Arrow schema of a schema, with times in UTC, which 4.0 and 4.1 have by default."""
    found = to_arrow_schema(schema, **_UTC, **told)
    assert isinstance(found, pa.Schema)
    return found


__all__ = [
    "DEFAULT_PUSH",
    "HAS_LIMITS",
    "TIMES_OF_DAY",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxFiles",
    "SupportsTriggerAvailableNow",
    "arrow_of",
    "pushed",
]
