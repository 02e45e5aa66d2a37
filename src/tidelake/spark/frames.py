"""Give a table to Spark as a frame that reads only what was asked for.

The columns become the frame's schema and the condition an option, so both reach our own planner whatever Spark itself
pushes down: a path into a dynamic column, a token in a text, any AND and OR. It does not run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelake.model.expression import parse_where
from tidelake.model.predicate import Predicate
from tidelake.scan.evaluate import check
from tidelake.spark import register, session
from tidelake.spark.places import Place
from tidelake.spark.types import spark_schema
from tidelake.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(
    table: Table,
    columns: Sequence[str] | None,
    where: Predicate | str | None,
    spark: SparkSession | None,
    *,
    plain: bool = False,
) -> DataFrame:
    """Make a frame of a table's columns and of the rows that satisfy a condition; what is wrong is said now."""
    engine = register(spark) if spark is not None else session()
    schema = table.schema
    parsed = parse_where(where, columns=schema.names) if isinstance(where, str) else where
    place = Place.of_table(table)
    options = {**place.options(), "table": table.name}
    if parsed is not None:
        check(parsed, schema)
        options["where"] = repr(parsed)
    if table._pinned is not None:
        options["snapshot"] = str(table._pinned.sequence)
    return engine.read.format("tidelake").options(**options).schema(spark_schema(schema, columns, plain=plain)).load()
