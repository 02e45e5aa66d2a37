"""Merge the batches of a stream into a table, each once: what ``foreachBatch`` calls.

Spark runs a batch again if it does not know that it ended. A batch has a number, its query an id, and the commit of the
merge records both, so a second run finds it and changes nothing. If another commit is faster with the same rows, the
merge is done again on what that left. It does not read the stream.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidelake.errors import InvalidInputError
from tidelake.spark.catalog.names import table_of
from tidelake.spark.jvm.catalogs import CATALOG, SETTING
from tidelake.spark.options import BATCH
from tidelake.spark.writing import QUERY_ID, happened, offset_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

TRIES = 10  # each lost to another commit of the same rows
LOST = "run it again"  # what an error says then, of which Spark keeps the text alone


def merge_batch(frame: DataFrame, batch_id: int, table: str, clauses: str, *, stream: str | None = None) -> bool:
    """Merge one batch, as ``tidelake.spark.merge_batch`` says."""
    spark = frame.sparkSession
    context = spark.sparkContext
    known = stream or context.getLocalProperty(QUERY_ID)
    if known is None:
        raise InvalidInputError("this is no batch of a stream: name one with stream", table=table, kind="no_stream")
    told = dict(zip(BATCH, (known, str(batch_id)), strict=True))
    if _is_in(spark, table, told):
        return False
    view = f"tidelake_batch_{secrets.token_hex(6)}"
    frame.createOrReplaceTempView(view)
    try:
        with _telling(context, told):
            for left in reversed(range(TRIES)):
                try:
                    spark.sql(f"MERGE INTO {table} AS t USING {view} AS s {clauses}")
                    return True
                except Exception as error:
                    if not left or LOST not in str(error):
                        raise
    finally:
        spark.catalog.dropTempView(view)
    raise AssertionError("the last try returns or raises")


def _is_in(spark: SparkSession, table: str, told: dict[str, str]) -> bool:
    """Whether a batch is known to be in, so that nothing needs to be computed."""
    catalog, *namespace, name = [part.strip("`") for part in table.split(".")]
    prefix = f"{SETTING}{catalog}"
    settings = spark.conf.getAll
    if settings.get(prefix) != CATALOG or len(namespace) > 1:
        return False  # a name that is found by what is current, or not at all: the commit will tell
    options = {key[len(prefix) + 1 :]: value for key, value in settings.items() if key.startswith(f"{prefix}.")}
    found = table_of({"catalog": options}, f"{namespace[0] if namespace else 'default'}.{name}")
    return happened(found, None, offset_of(told)) is not None


@contextmanager
def _telling(context: SparkContext, told: dict[str, str]) -> Iterator[None]:
    """Let statements of this thread say which batch they are."""
    for name, value in told.items():
        context.setLocalProperty(f"tidelake.{name}", value)
    try:
        yield
    finally:
        for name in told:
            context.setLocalProperty(f"tidelake.{name}", None)  # type: ignore[arg-type]
