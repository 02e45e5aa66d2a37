"""Teach a session's optimizer to plan each scan of a table alone, with its own filters and its own columns.

Spark 4.3 by itself keeps one plan for all scans of a frame, whichever filters it pushed last, and pushes no columns to
a Python source. The rule in ``ScanRule.java`` mends both, and has all scans of a table in one execution of a query read
one snapshot, which it asks ``pins`` for. Another, in ``StreamRule.java``, has a stream's batches prune by the
conditions above them, which Spark tells no stream. They are compiled inside the driver by the compiler that Spark
brings for its own generated code, so there is nothing to install. Where that cannot be done (a Connect client has no
driver at hand), tables are read whole and Spark filters: slower, and just as right. It does not plan extents.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelake.spark.jvm.compile import jar_class, java_class
from tidelake.spark.pins import Pins

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULE, COLUMNS = "tidelake.ScanRule", "tidelake.ColumnReader$Scans"
# What reads extents without Python, and what it is that is read by Python where that cannot be had.
READERS = {"tidelake.StoredPages": "extents of tlm3", "tidelake.StoredColumns": "all extents"}
STREAMS, STREAM_FILES = "tidelake.StreamRule", ("Trees", "StreamRule")
CANCELLABLE = "tidelake.Cancellable"


def install(spark: SparkSession) -> bool:
    """Give a session the rule, once; False where it cannot have it."""
    if getattr(spark, "_jsparkSession", None) is None:
        return False
    try:
        return _install(spark.sparkContext._jvm, spark)
    except Exception as error:  # whatever another Spark says to what this one has
        warnings.warn(f"tidelake: filters and columns are not pushed down here: {error}", stacklevel=3)
        return False


def install_streams(spark: SparkSession) -> bool:
    """Give a session the rule by which conditions above streams prune, once; False where it cannot have it."""
    if getattr(spark, "_jsparkSession", None) is None:
        return False
    try:
        add_rules(spark, [jar_class(spark, STREAMS, STREAM_FILES).getDeclaredConstructor(None).newInstance(None)])
        return True
    except Exception as error:  # whatever another Spark says to what this one has
        warnings.warn(f"tidelake: conditions above streams do not prune here: {error}", stacklevel=3)
        return False


def add_rules(spark: SparkSession, rules: Sequence[Any]) -> None:
    """Give a session rules of classes of which it has none."""
    jvm: Any = spark.sparkContext._jvm
    held = _rules_of(jvm, spark._jsparkSession)
    names = {rule.getClass().getName() for rule in held}
    if added := [rule for rule in rules if rule.getClass().getName() not in names]:
        _set_rules(jvm, spark._jsparkSession, [*held, *added])


def columns(spark: SparkSession) -> Any:
    """Return what makes tasks hand over columns, and read extents themselves that lie at hand; any error without it."""
    made = java_class(spark, COLUMNS).newInstance()
    for reader, missed in READERS.items():
        try:
            java_class(spark, reader)
        except Exception as error:
            warnings.warn(f"tidelake: {missed} are read by Python processes here: {error}", stacklevel=5)
            continue
        made.readStored(reader)
        break
    return made


def make_cancellable(session: Any, spark: SparkSession) -> None:
    """Give one of the JVM's sessions a rule by which its tasks hear in their loops that they are cancelled."""
    try:
        rule = java_class(spark, CANCELLABLE).newInstance()
        _set_rules(spark.sparkContext._jvm, session, [*_rules_of(spark.sparkContext._jvm, session), rule])
    except Exception as error:  # whatever another Spark says to what this one has
        warnings.warn(f"tidelake: tasks that are cancelled may go on for long here: {error}", stacklevel=3)


def _install(jvm: Any, spark: SparkSession) -> bool:
    from pyspark.java_gateway import ensure_callback_server_started

    rules = _rules_of(jvm, spark._jsparkSession)
    if any(rule.getClass().getName() == RULE for rule in rules):
        return True
    rule = java_class(spark, RULE).newInstance()
    try:
        rule.setColumns(columns(spark))
    except Exception as error:
        warnings.warn(f"tidelake: rows reach Spark one by one here: {error}", stacklevel=4)
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    rule.setPins(Pins())
    _set_rules(jvm, spark._jsparkSession, [*rules, rule])
    return True


def _rules_of(jvm: Any, session: Any) -> list[Any]:
    return list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(session.experimental().extraOptimizations()))


def _set_rules(jvm: Any, session: Any, rules: list[Any]) -> None:
    held = jvm.java.util.ArrayList()
    for rule in rules:
        held.add(rule)
    set_rules = getattr(session.experimental(), "extraOptimizations_$eq")
    set_rules(jvm.scala.jdk.javaapi.CollectionConverters.asScala(held).toList())
