"""Give a session a lake as a catalog: ``LakeCatalog.java``, compiled in the driver and set by its settings.

Spark loads a catalog by the name of its class, in whichever thread first asks for it. So the classes are packed as a
jar, and the jar is added to the class loader that all threads of the driver share, as ``spark.jars`` would be. They are
built on Spark's public interfaces for connectors, and on its class for Python sources. Executors get them
for what hands over changed rows. It does not answer the catalog's questions: see ``tidelake.spark.catalog``.
"""

from __future__ import annotations

import logging
import secrets
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidelake.errors import InvalidInputError, UnavailableError
from tidelake.spark.jvm.compile import jar_class, optional_class, send_jar
from tidelake.spark.jvm.optimizer import add_rules, columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.spark.places import Place

CATALOG = "tidelake.LakeCatalog"
RULES = ("tidelake.LimitRule", "tidelake.PathRule")  # of a session's optimizer
PUSHDOWN, PATHS, EVOLVING = "tidelake.LakePushdown", "tidelake.LakePaths", "tidelake.LakeEvolving"
# Each sees those before it.
FILES = (
    "ChangedRows", "Trees", "Door", "LakeSource", "LakeScans", "LakeWrites", "LakeTable", "LakePushdown", "LakePaths",
    "LimitRule", "PathRule", "LakeRows", "LakeEvolving", "LakeCatalog",
)  # fmt: skip
SERVER_FILES = (*FILES, "Companion")  # for a JVM that no Python program has started
SETTING = "spark.sql.catalog."

log = logging.getLogger("tidelake.spark")


def set_catalog(spark: SparkSession, place: Place, name: str) -> bool:
    """Set a lake as a catalog of a session; False, and a line that says why, where it cannot be.

    The catalog asks the settings each time, so another lake under the same name takes the place of the one before.
    """
    from tidelake.spark.catalog.names import SESSION, options_of

    if getattr(spark, "_jsparkSession", None) is None:
        raise UnavailableError(
            "a connect client cannot add a catalog: start its server with the jar of python -m tidelake.spark.jar",
            kind="no_catalog",
        )
    if not name.isidentifier():
        raise InvalidInputError(f"{name!r} is no name for a catalog", kind="bad_name")
    own = spark.conf.get(f"{SETTING}{name}.{SESSION}", None) or secrets.token_hex(8)
    told = options_of(place) | {SESSION: own}
    options = {f"{SETTING}{name}": CATALOG} | {f"{SETTING}{name}.{each}": value for each, value in told.items()}
    if not connect(spark):
        return False
    _remember(spark, own, told)
    for setting in _held(spark, name) - options.keys():
        spark.conf.unset(setting)
    for setting, value in options.items():
        spark.conf.set(setting, value)
    _load(spark, name)
    return True


def connect(spark: SparkSession) -> bool:
    """Let catalogs ask this process; False, and a line that says why, where it cannot be."""
    try:
        _connect(spark)
    except Exception as error:  # whatever another Spark says to what this one has
        warnings.warn(f"tidelake: there is no catalog here: {error}", stacklevel=4)
        return False
    return True


def is_set(spark: SparkSession) -> bool:
    """Whether the settings of a session name our catalog, be it by ``spark-defaults.conf``."""
    if getattr(spark, "_jsparkSession", None) is None:
        return False
    return CATALOG in spark.conf.getAll.values()


def _connect(spark: SparkSession) -> None:
    from pyspark.java_gateway import ensure_callback_server_started

    from tidelake.spark.catalog.door import Answers

    catalog = jar_class(spark, CATALOG, FILES)
    send_jar(spark, CATALOG)
    try:
        with warnings.catch_warnings(action="ignore"):  # said when the rule was installed
            handing: Any = columns(spark)
    except Exception:  # said, too: rows come one by one
        handing = None
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    made = catalog.getDeclaredConstructor(None).newInstance(None)
    made.connect(Answers(), handing)
    made.pushWith(_pushdown(spark))
    made.evolveWith(_lacking(spark, EVOLVING))
    add_rules(spark, [found for rule in RULES if (found := _lacking(spark, rule)) is not None])


def _pushdown(spark: SparkSession) -> Any:
    """Return what makes scans that take more than columns and conditions; None where this Spark cannot have it."""
    try:
        made: Any = optional_class(spark, PUSHDOWN, CATALOG).getDeclaredConstructor(None).newInstance(None)
        made.hearWith(_lacking(spark, PATHS))
    except Exception as error:
        warnings.warn(f"tidelake: counts, limits and runtime filters are not pushed down here: {error}", stacklevel=6)
        return None
    return made


def _lacking(spark: SparkSession, name: str) -> Any:
    """Return an object of a class that only newer Sparks can have; None where this one cannot."""
    try:
        return optional_class(spark, name, CATALOG).getDeclaredConstructor(None).newInstance(None)
    except Exception:  # which versions lack what is told in the documentation
        return None


def _remember(spark: SparkSession, own: str, told: Mapping[str, str]) -> None:
    """Tell the catalog what a session's settings say, for when Spark asks from a thread of another session."""
    jvm: Any = spark.sparkContext._jvm
    options = jvm.java.util.HashMap()
    for name, value in told.items():
        options.put(name, value)
    catalog = jar_class(spark, CATALOG, FILES)
    catalog.getDeclaredConstructor(None).newInstance(None).remember(own, options)


def _load(spark: SparkSession, name: str) -> None:
    """Have Spark make the catalog now: it does so by the settings of the session that is the thread's, perhaps another.

    Where that cannot be done here, the catalog is made when it is first named, as any other.
    """
    sessions: Any = spark.sparkContext._jvm.org.apache.spark.sql.SparkSession  # type: ignore[union-attr]
    active = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        spark._jsparkSession.sessionState().catalogManager().catalog(name)
    except Exception:
        log.info("the catalog %s is made when it is first named", name, exc_info=True)
    finally:
        if active.isDefined():
            sessions.setActiveSession(active.get())
        else:
            sessions.clearActiveSession()


def _held(spark: SparkSession, name: str) -> set[str]:
    """Return the settings of a session that speak of a catalog."""
    return {key for key in spark.conf.getAll if key.startswith(f"{SETTING}{name}.")}
