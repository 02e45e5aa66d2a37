"""Run a query on Spark, over the same scans as in process.

Each reference becomes a temporary view, pinned to the snapshot that was planned, with the columns and rows that were
pushed down. Spark answers as the local engine does: UTC, null where a cast or a division cannot be made. The settings
for that are those of a clone of the session, which one query has to itself: whoever else uses the session sees no
change. Through Spark Connect they are set in the session and put back. It does not plan.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelake import errors
from tidelake.errors import QueryError, TidelakeError, UnavailableError
from tidelake.model.logical_types import Logical
from tidelake.query.budget import Budget, Deadline
from tidelake.query.conjuncts import with_short_sets
from tidelake.query.engines.spark_rows import as_too_large, collected
from tidelake.query.functions.registry import register_spark
from tidelake.query.functions.rendering import render_query
from tidelake.query.functions.sized import TOO_LARGE
from tidelake.query.prepared import Prepared, Scan, result_schema
from tidelake.query.sql.parse import too_deep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What both engines agree on; see ``local`` for the other half.
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.legacy.sizeOfNull": "false",  # what is not there has no size, rather than one of -1
    "spark.sql.variant.allowDuplicateKeys": "true",  # of JSON's equal keys the last counts
}
# What holds besides while a query's names are resolved: a name is never a path.
CLOSED = {
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.analyzer.maxIterations": "1000",  # forty steps of a pipeline can take more than Spark's hundred
}
# Rules that put what a column stands for in its place in a condition, however large that makes it.
GROWING = ("PushDownPredicates", "PushPredicateThroughNonJoin")
EXCLUDED = "spark.sql.optimizer.excludedRules"

INTERRUPT_EVERY_S = 0.25  # once a query is late
LATE_S = 1.0  # for a query that is late to hear an interrupt

_READY: set[int] = set()  # sessions that know our functions
_OURS = re.compile(r"tidelake\.errors\.(\w+): ([^\n]*)")
_REFERENCE = re.compile(r"`tide_(\d+)`")


def execute(prepared: Prepared, scans: Sequence[Scan], budget: Budget, spark: SparkSession) -> pa.Table:
    """Run a query to its end and give its rows.

    A thread of its own asks Spark, since what the driver itself computes hears no interrupt: who waits is told in time,
    and it ends by itself.
    """
    from pyspark import InheritableThread

    found: list[pa.Table | BaseException] = []

    def ask() -> None:
        try:
            found.append(_execute(prepared, scans, budget, spark))
        except BaseException as error:
            found.append(error)

    remote = not hasattr(spark, "_jsparkSession")
    thread = InheritableThread(ask, session=spark) if remote else InheritableThread(ask)
    thread.daemon = True
    thread.start()
    thread.join(budget.left + LATE_S)
    if not found:
        raise budget.out_of_time()
    match found[0]:
        case pa.Table() as rows:
            return rows
        case ConnectionError() as error:  # also where the session's settings are put back
            raise _explained(error) from error
        case error:
            raise error


def _execute(prepared: Prepared, scans: Sequence[Scan], budget: Budget, spark: SparkSession) -> pa.Table:
    deadline = Deadline(budget.left)
    if "spark" not in prepared.rendered:
        prepared.rendered["spark"] = deadline.watched(
            partial(render_query, prepared.tree, "spark", language=prepared.language), budget.out_of_time(planning=True)
        )
    with _stopped_after(max(deadline.left, 0.0), spark) as late:
        try:
            with _own_frame(prepared, scans, spark) as own:
                frame, dynamic = _as_text(own)
                rows = [
                    _plain_column(column, is_clock=at in prepared.clocks)
                    for at, column in enumerate(collected(frame, budget).columns)
                ]
        except Exception as error:
            if late.is_set():
                raise budget.out_of_time() from error
            raise as_too_large(error, budget) or _explained(error) from error
    if late.is_set():
        raise budget.out_of_time()
    plain = pa.schema([pa.field(name, column.type) for name, column in zip(prepared.columns, rows, strict=True)])
    return pa.table(rows, schema=result_schema(prepared, plain, dynamic))


def frame_of(prepared: Prepared, scans: Sequence[Scan], spark: SparkSession) -> DataFrame:
    """Return a query as a frame of the session, which Spark runs when it is asked to."""
    with _own_frame(prepared, scans, spark) as frame:
        return _moved(frame, spark._jsparkSession, spark) if hasattr(spark, "_jsparkSession") else frame


@contextmanager
def _own_frame(prepared: Prepared, scans: Sequence[Scan], spark: SparkSession) -> Iterator[DataFrame]:
    """Return a query as a frame that has our settings for as long as this lasts, and nothing else has them."""
    if "spark" not in prepared.rendered:
        prepared.rendered["spark"] = render_query(prepared.tree, "spark", language=prepared.language)
    _know_functions(spark, prepared.rendered["spark"])
    mark = secrets.token_hex(4)
    views = {f"{scan.name}_{mark}": _view(scan, spark, prepared.language) for scan in scans}
    text = _REFERENCE.sub(lambda found: f"`tide_{found[1]}_{mark}`", prepared.rendered["spark"])
    if not hasattr(spark, "_jsparkSession"):  # through Spark Connect
        with _settings(spark, SETTINGS):
            yield _remote_frame(text, views, spark)
        return
    from pyspark.sql import DataFrame

    from tidelake.spark.jvm.optimizer import make_cancellable

    own = spark._jsparkSession.cloneSession()  # it is forgotten with the frame
    make_cancellable(own, spark)
    for name, value in (SETTINGS | CLOSED).items():
        own.conf().set(name, value)
    if prepared.grows:
        rules = (f"org.apache.spark.sql.catalyst.optimizer.{name}" for name in GROWING)
        own.conf().set(EXCLUDED, ",".join(filter(None, (own.conf().get(EXCLUDED, ""), *rules))))
    try:
        for name, view in views.items():
            _moved(view, own, spark).createOrReplaceTempView(name)
        frame = DataFrame(own.sql(text), spark)
    except Exception as error:
        raise _explained(error) from error
    yield frame


def _moved(frame: DataFrame, session: Any, spark: SparkSession) -> DataFrame:
    """Return a frame as one of another of the JVM's sessions, with all that its names meant where it was made."""
    from pyspark.sql import DataFrame

    jvm: Any = spark.sparkContext._jvm
    plan: Any = frame._jdf.queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, plan), spark)


def _remote_frame(text: str, views: Mapping[str, DataFrame], spark: SparkSession) -> DataFrame:
    with _settings(spark, CLOSED):
        try:
            for name, view in views.items():
                view.createOrReplaceTempView(name)
            return spark.sql(text)
        except Exception as error:
            raise _explained(error) from error
        finally:
            for name in views:
                spark.catalog.dropTempView(name)


def session() -> SparkSession:
    """Return the active Spark session, or start one in this process."""
    from tidelake.spark import session as own_session

    return own_session()


def _know_functions(spark: SparkSession, text: str) -> None:
    """Register what no SQL can write, once a session and only for a query that calls it: it takes half a second."""
    if "tide_" in text.replace("`tide_", "") and id(spark) not in _READY:
        register_spark(spark)
        _READY.add(id(spark))


def _view(scan: Scan, spark: SparkSession, language: str) -> DataFrame:
    from tidelake.spark.frames import frame_of as table_frame

    asked = None if scan.plan.question.where is None or scan.ask.where is None else scan.ask.where.predicate
    where = None if asked is None else with_short_sets(asked)
    columns = list(scan.plan.question.columns)
    return table_frame(scan.table, columns, where, spark, plain=language == "kql").toDF(*scan.columns)


def _as_text(frame: DataFrame) -> tuple[DataFrame, list[bool]]:
    """Return variants as JSON text, since Arrow cannot carry a variant that is null, and say which columns were."""
    from pyspark.sql import functions
    from pyspark.sql.types import VariantType

    variants = [isinstance(field.dataType, VariantType) for field in frame.schema]
    if not any(variants):
        return frame, variants
    plain = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    texts = plain.select(
        [
            functions.to_json(plain[name]).alias(name) if variant else plain[name]
            for name, variant in zip(plain.columns, variants, strict=True)
        ]
    )
    return texts, variants


@contextmanager
def _stopped_after(seconds: float, spark: SparkSession) -> Iterator[Event]:
    """Interrupt what Spark runs here once the time is over, and say so.

    A query runs several jobs one after the other, and an interrupt only reaches those that have begun: it is repeated.
    Rows are collected in a thread of Spark's own, which a tag of the context reaches and one of the session does not.
    """
    tag = f"tidelake-{secrets.token_hex(4)}"
    done, late = Event(), Event()
    remote = not hasattr(spark, "_jsparkSession")  # through Spark Connect there is no context
    add, interrupt, remove = (
        (spark.addTag, spark.interruptTag, spark.removeTag)
        if remote
        else (spark.sparkContext.addJobTag, spark.sparkContext.cancelJobsWithTag, spark.sparkContext.removeJobTag)
    )

    def watch() -> None:
        if done.wait(seconds):
            return
        late.set()
        while not done.is_set():
            interrupt(tag)
            done.wait(INTERRUPT_EVERY_S)

    watcher = Thread(target=watch, daemon=True)
    add(tag)
    watcher.start()
    try:
        yield late
    finally:
        done.set()
        watcher.join()
        remove(tag)


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _explained(error: Exception) -> Exception:
    """Return Spark's complaint as one of ours: its first line, without the trace."""
    if isinstance(error, TidelakeError):
        return error
    if TOO_LARGE in str(error):
        return QueryError(TOO_LARGE, kind="too_large")
    if inner := _OURS.findall(str(error)):  # raised in a process of Spark's, of which the text is left
        name, message = inner[-1]
        kind = getattr(errors, name, None)
        return kind(message) if isinstance(kind, type) else QueryError(message)
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return UnavailableError(
            "Spark has ended, perhaps for want of memory: start a session with more of it (spark.driver.memory)",
            kind="spark_gone",
        )
    if type(error).__name__ == "Py4JJavaError":  # neither of Spark's errors nor of ours: what Java itself says
        if "java.lang.StackOverflowError" in str(error):
            return too_deep()
        reason = next((line.lstrip(": ") for line in str(error).splitlines() if line.startswith(": ")), "no reason")
        return QueryError(f"Spark could not run the query: {reason[:200]}", kind="spark")
    plain = not type(error).__module__.startswith("pyspark")
    if plain and isinstance(error, ValueError | pa.ArrowException):  # what Spark gave is no Arrow table
        return QueryError("the rows that Spark gave cannot be read, since one has no type: cast it", kind="spark")
    condition: Any = getattr(error, "getCondition", lambda: None)()
    if condition is None and not type(error).__module__.startswith("pyspark"):
        return error
    message = str(error).split("\n")[0]
    message = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", message).split(" SQLSTATE")[0]
    return QueryError(message[:1].lower() + message[1:], kind=str(condition or "spark").lower())


def _plain_column(column: pa.ChunkedArray, *, is_clock: bool) -> pa.ChunkedArray:
    """Return a column in the type that both engines share."""
    kind = column.type
    if is_clock:
        return column.cast(pa.timestamp("us"))
    if pa.types.is_nested(kind) and (logical := Logical.from_arrow(kind)) is not None:
        return column.cast(logical.arrow)  # in which the items of lists have one name
    if pa.types.is_timestamp(kind) and kind.tz != "UTC":
        return column.cast(pa.timestamp("us", tz="UTC"))
    if pa.types.is_float32(kind):
        return column.cast(pa.float64())
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        return column.cast(pa.int32())
    return column
