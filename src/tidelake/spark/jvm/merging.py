"""Tell a session's analyzer of the rule by which the option ``mergeSchema`` brings columns to tables of the catalog.

Extensions of a session are read when its analyzer is made, with its first query: in a session that has asked something
before it was registered, Spark refuses rows with columns that a table lacks. It does not add columns: Spark has the
catalog do so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidelake.spark.jvm.compile import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = "tidelake.MergeRule$Rules"
_KNOWN = "_tidelake_merging"  # among a context's attributes: the extensions that have the rule

log = logging.getLogger("tidelake.spark")


def install(spark: SparkSession) -> bool:
    """Tell a session of the rule, once for all that are made of it; False where it cannot have it."""
    if getattr(spark, "_jsparkSession", None) is None:
        return False
    try:
        jvm: Any = spark.sparkContext._jvm
        extensions = spark._jsparkSession.extensions()
        known = spark.sparkContext.__dict__.setdefault(_KNOWN, set())
        if (own := jvm.java.lang.System.identityHashCode(extensions)) not in known:
            extensions.injectHintResolutionRule(java_class(spark, RULES).newInstance())
            known.add(own)
        return True
    except Exception:  # whatever another Spark says to what this one has
        log.info("mergeSchema does not bring columns to tables of a catalog here", exc_info=True)
        return False
