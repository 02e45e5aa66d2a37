"""Provide a table to Spark as a frame that reads only what was asked for.

The columns become the frame's schema and the condition an option, so both reach our own planner whatever Spark itself
pushes down: a path into a dynamic column, a token in a text, any AND and OR. It does not run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelake.dynamic.forms import stream_in_form
from tidelake.handle.table_handle import TableHandle
from tidelake.model.expression import parse_where
from tidelake.model.predicate import Predicate
from tidelake.scan.binding import check
from tidelake.scan.extents import scan_shown
from tidelake.scan.scannable import Scannable
from tidelake.spark import register, session
from tidelake.spark.places import Place
from tidelake.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(
    table: Scannable,
    columns: Sequence[str] | None,
    where: Predicate | str | None,
    spark: SparkSession | None,
    *,
    plain: bool = False,
) -> DataFrame:
    """Make a frame of a table's columns and of the rows that satisfy a condition; what is wrong is said now."""
    engine = register(spark) if spark is not None else session()
    if not isinstance(table, TableHandle):
        return _frame_of_rows(table, columns, where, engine)
    schema = table.schema
    parsed = parse_where(where, columns=schema.names) if isinstance(where, str) else where
    place = Place.of_handle(table.lake)
    options = {**place.options(), "table": table.name}
    if table.scope.user:
        options["user"] = table.scope.user
    if parsed is not None:
        check(parsed, schema)
        options["where"] = repr(parsed)
    if table.past is not None:
        options["snapshot"] = str(table.past.sequence)
    return engine.read.format("tidelake").options(**options).schema(spark_schema(schema, columns, plain=plain)).load()


def _frame_of_rows(
    rows: Scannable, columns: Sequence[str] | None, where: Predicate | str | None, spark: SparkSession
) -> DataFrame:
    """Make a frame of the rows themselves: there is no table for executors to read."""
    parsed = parse_where(where, columns=rows.schema.names) if isinstance(where, str) else where
    plan = rows.plan(columns, parsed)
    frame: DataFrame = spark.createDataFrame(stream_in_form(scan_shown(plan, rows.footers), "json").read_all())
    return frame
