"""Plan reads and writes in the driver's own Python, which has the package loaded and the lake open.

Spark starts Python processes for the steps of a plan (make the source, push filters, cut splits, prepare a write,
commit it), and each of them would import everything and open the catalog again, half a second a query. The class in
``DriverSource.java`` stands where Spark's own stands and sends the same bytes to this process, where the same functions
of Spark's answer them. Tasks are not concerned: they run in Spark's workers. Where it cannot be done (a Connect client,
an unknown Spark) the source is registered as any other, and is slower. It does not plan itself: see ``reading``.
"""

from __future__ import annotations

import importlib
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidelake.errors import TidelakeError
from tidelake.spark.jvm.compile import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

FACTORY = "tidelake.DriverSource$Factory"
STEPS = "pyspark.sql.worker."
ASKED = ("create_data_source", "plan_data_source_read", "write_into_data_source", "commit_data_source_write")

log = logging.getLogger("tidelake.spark")


class Planner:
    """Answer one step of a plan, as a Python process of Spark's would."""

    def apply(self, module: str, question: bytes) -> bytearray:
        """Run Spark's own function for a step on its bytes; an error is part of the answer, as Spark expects it.

        Of our own errors the message is enough; of any other Spark is told where it came from, too.
        """
        from pyspark.util import handle_worker_exception

        answer = io.BytesIO()
        try:
            if not module.startswith(STEPS):
                raise ImportError(f"{module} is no step of a plan")
            importlib.import_module(module)._main(io.BytesIO(question), answer)
        except BaseException as error:  # whatever it is, Spark must be answered
            log.info("a step of a plan failed: %s", module, exc_info=True)
            handle_worker_exception(error, answer, hide_traceback=isinstance(error, TidelakeError) or None)
        return bytearray(answer.getvalue())

    class Java:
        implements = ("java.util.function.BiFunction",)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a source known to a session, once, planned in this process where that can be done."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        spark.dataSource.register(source)
        return
    name = session.sessionUUID()
    ready: dict[str, Any] = spark.sparkContext.__dict__.setdefault("_tidelake_sources", {})
    if name in ready:
        return
    made = next(iter(ready.values()), None) or _in_driver(spark, source)
    with _active(spark):
        if made is None:
            spark.dataSource.register(source)
        else:
            session.dataSource().registerPython(source.name(), made)
    ready[name] = made


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Let a session be the active one for a while: Spark looks there if a name is taken."""
    jvm: Any = spark.sparkContext._jvm
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    active = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if active.isDefined():
            sessions.setActiveSession(active.get())
        else:
            sessions.clearActiveSession()


def _in_driver(spark: SparkSession, source: type[DataSource]) -> Any:
    """Return the source that plans here, or None if this Spark is not as expected."""
    from pyspark.java_gateway import ensure_callback_server_started
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    try:
        for step in ASKED:  # which another Spark may only have as programs
            getattr(importlib.import_module(STEPS + step), "_main")  # noqa: B009
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        return java_class(spark, FACTORY).newInstance().apply(_wrap_function(context, source), Planner())
    except Exception as error:  # whatever another Spark says to what this one has
        warnings.warn(f"tidelake: every plan starts Python processes here: {error}", stacklevel=4)
        return None
