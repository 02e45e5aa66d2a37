"""Tell a session's analyzer of the rule by which APPROX NEAREST joins use the index of a table.

Extensions of a session are read when its analyzer is made, with its first query: a session that has asked something
before it was registered keeps Spark's own plan of such joins, which is slower and right. It does not plan them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidelake.spark.jvm.compile import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES, RULE = "tidelake.NearestRule$Rules", "tidelake.NearestRule"
_KNOWN = "_tidelake_joins"  # among a context's attributes: the extensions that have the rule

log = logging.getLogger("tidelake.spark")


def install(spark: SparkSession) -> bool:
    """Tell a session of the rule; False where it cannot have it: a Spark without such joins, or one that has begun."""
    if getattr(spark, "_jsparkSession", None) is None:
        return False
    try:
        _inject(spark)
        rules = spark._jsparkSession.sessionState().analyzer().postHocResolutionRules()
        return any(rule.getClass().getName() == RULE for rule in _list_of(spark, rules))
    except Exception:  # whatever another Spark says to what this one has
        log.info("approximate joins look at every pair of rows here", exc_info=True)
        return False


def _inject(spark: SparkSession) -> None:
    """Add the rule to the extensions of a session, which all sessions that are made of it share, once."""
    from pyspark.java_gateway import ensure_callback_server_started

    from tidelake.spark.approximate import Joins

    jvm: Any = spark.sparkContext._jvm
    extensions = spark._jsparkSession.extensions()
    known = spark.sparkContext.__dict__.setdefault(_KNOWN, set())
    if (own := jvm.java.lang.System.identityHashCode(extensions)) in known:
        return
    rules = java_class(spark, RULES).newInstance()
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    rules.answerWith(Joins(spark))
    extensions.injectPostHocResolutionRule(rules)
    known.add(own)


def _list_of(spark: SparkSession, rules: Any) -> list[Any]:
    jvm: Any = spark.sparkContext._jvm
    return list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(rules))
